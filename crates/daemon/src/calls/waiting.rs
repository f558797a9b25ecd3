//! Requests whose answers come late.

use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::task::Poll;

use rustix::io::Errno;

use crate::channel::recall::Recalled;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::users::requester::Requester;
use crate::users::user_permits::Permit;

/// Takes a place for a request of this user that waits for its answer.
pub(super) fn take_waiting(registry: &Registry, requester: Requester) -> Result<Permit, Errno> {
    registry.resources().take_waiting(requester.user())
}

/// Waits for `something` in a place of this user; fails with `ENOBUFS` if there is none, or another user takes it.
pub(crate) async fn wait_for<T>(
    registry: &Registry,
    requester: Requester,
    something: impl Future<Output = T>,
) -> Result<T, Errno> {
    take_waiting(registry, requester)?.unless_lost(something).await
}

/// Waits for `something` as [`wait_for`] does, but takes no place if it is there at once.
pub(crate) async fn wait_if_pending<T>(
    registry: &Registry,
    requester: Requester,
    something: impl Future<Output = T>,
) -> Result<T, Errno> {
    let mut something = pin!(something);
    match poll_fn(|cx| Poll::Ready(something.as_mut().poll(cx))).await {
        Poll::Ready(happened) => Ok(happened),
        Poll::Pending => wait_for(registry, requester, something).await,
    }
}

/// Takes back records that the program has not read.
pub(crate) async fn recall(
    registry: &Registry,
    socket: &Socket,
    program_end: BorrowedFd<'_>,
    requester: Requester,
) -> Result<Recalled, Errno> {
    wait_for(registry, requester, socket.channel().daemon_end().recall(program_end)).await?
}
