//! A future that repeats an attempt.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use streams::Interest;
use tokio::task::coop;

use super::driver;
use crate::shard::{Inner, Ticket, WakeTarget};
use crate::socket::{Fault, Socket};

/// Repeats an attempt until it has a result; see [`Socket::until`]. Dropping the future loses nothing.
pub(super) struct Until<'a, F> {
    socket: &'a Socket,
    interest: Interest,
    attempt: F,
    ticket: Option<Ticket>,
}

pub(super) fn until<F, T>(socket: &Socket, interest: Interest, attempt: F) -> Until<'_, F>
where
    F: FnMut(&mut Inner) -> Option<T> + Unpin,
{
    Until { socket, interest, attempt, ticket: None }
}

/// Waits until a stream is ready for one of these events.
pub(super) async fn ready(socket: &Socket, interest: Interest) -> Result<(), Fault> {
    until(socket, interest, |inner| inner.is_ready(socket.stream, interest).then_some(())).await
}

impl<F, T> Future for Until<'_, F>
where
    F: FnMut(&mut Inner) -> Option<T> + Unpin,
{
    type Output = Result<T, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let budget = ready!(coop::poll_proceed(cx));
        let stream = this.socket.stream;
        let mut inner = this.socket.shard.enter();
        if let Some(ticket) = this.ticket.take() {
            inner.unregister(stream, ticket);
        }
        loop {
            match inner.guarded(Some(stream), &mut this.attempt) {
                Some(Some(result)) => {
                    budget.made_progress();
                    return Poll::Ready(Ok(result));
                }
                Some(None) => {}
                None => return Poll::Ready(Err(Fault::internal())),
            }
            if let Some(why) = inner.take_failure() {
                return Poll::Ready(Err(Fault::new(why)));
            }
            if !inner.before_wait(stream, this.interest) && !inner.is_ready(stream, this.interest) {
                break;
            }
        }
        this.ticket = Some(inner.register(stream, this.interest, WakeTarget::Task(cx.waker().clone())));
        driver::ensure(&this.socket.shard, &mut inner);
        Poll::Pending
    }
}

impl<F> Drop for Until<'_, F> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.socket.shard.enter().unregister(self.socket.stream, ticket);
        }
    }
}
