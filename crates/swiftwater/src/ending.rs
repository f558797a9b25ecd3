//! Ends the associations of a program or a daemon that exits, so that no peer waits for them.

use std::thread;
use std::time::{Duration, Instant};

use providers::SctpDriver;
use sctp::{AssociationId, AssociationState};
use streams::{Cx, Interest};

use crate::shard::{Inner, OBSERVER_INTEREST};
use crate::socket::{Socket, Style, Wait};
use crate::stack::Stack;

/// Number of ABORTs in one burst: less than the core's queue of packets without an association, and less than fits the
/// smallest socket buffer of a peer that gets all of them. An ABORT is never repeated.
const ABORTS_AT_ONCE: usize = 64;
/// Time between two bursts, in which peers take the first from their socket buffers.
pub(crate) const ABORT_PAUSE: Duration = Duration::from_millis(1);
/// Maximum time that the sockets of this side may have no room for a burst.
pub(crate) const ROOM_WAIT: Duration = Duration::from_millis(100);

impl Stack {
    /// Ends all associations of this stack before the program exits: the kernel does not tell the peers of a process
    /// that its associations are gone. Shuts each association down, and waits up to `wait` until everything sent is
    /// delivered. Then aborts the remaining associations with `reason`. Returns whether none remained. Listeners stay open:
    /// drop them first, because a peer that connects afterwards is not told that the program exits.
    ///
    /// The call blocks its thread, which sleeps until something happens on the sockets. Tasks call
    /// [`tokio::Stack::close`](crate::tokio).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// # let listener = stack.listen(7)?;
    /// # let client = stack.connect(&listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send(b"the last word")?;
    /// assert!(stack.close(Duration::from_secs(5), "the program was stopped"));
    /// assert_eq!(server.recv()?.unwrap().to_vec(), b"the last word");
    /// assert!(server.recv()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self, wait: Duration, reason: impl AsRef<[u8]>) -> bool {
        self.shut_all_down();
        let all_ended = self.await_end(wait);
        if !all_ended {
            self.abort_all(reason);
        }
        all_ended
    }

    /// Aborts all current associations of this stack. Undelivered messages are lost; each ABORT contains the first 256
    /// bytes of `reason`. Blocks while it sends more than 64 ABORTs: a pause follows each 64, so that none is lost in a
    /// full socket buffer.
    pub fn abort_all(&self, reason: impl AsRef<[u8]>) {
        self.abort_where(reason.as_ref(), |_| true);
    }

    /// Shuts all associations down, without waiting.
    pub(crate) fn shut_all_down(&self) {
        // After a fault has closed the stack there are no associations.
        let _ = self.command(SctpDriver::shutdown_all);
    }

    /// Waits up to `wait` until no association is left. Returns whether none is left.
    pub(crate) fn await_end(&self, wait: Duration) -> bool {
        self.until(Wait::within(wait), has_ended)
    }

    pub(crate) fn abort_where(&self, reason: &[u8], ends: impl Fn(AssociationState) -> bool) {
        for burst in self.abort_bursts(reason, ends) {
            self.until(Wait::within(ROOM_WAIT), has_room);
            if burst == Burst::Follows {
                thread::sleep(ABORT_PAUSE);
            }
        }
    }

    /// Returns an iterator that aborts the associations whose state satisfies `ends`, in bursts.
    pub(crate) fn abort_bursts<'a, F: Fn(AssociationState) -> bool>(
        &'a self,
        reason: &'a [u8],
        ends: F,
    ) -> AbortBursts<'a, F> {
        AbortBursts { stack: self, reason, ends, next: Some(AssociationId::FIRST) }
    }

    /// Calls the provider at once, and sends the resulting packets. Returns `None` if a fault has closed the stack.
    pub(crate) fn command<R>(&self, f: impl FnOnce(&mut SctpDriver, &mut Cx<'_>) -> R) -> Option<R> {
        let mut inner = self.shard.enter();
        let command = |inner: &mut Inner| inner.executive.command(Instant::now(), f);
        let outcome = inner.guarded(None, command).flatten();
        self.shard.after_command(&mut inner, None);
        outcome
    }

    /// Waits until a condition of the stack holds. Returns whether it does.
    fn until(&self, wait: Wait, condition: impl Fn(&mut Inner) -> bool) -> bool {
        match Observer::new(self) {
            Some(observer) => observer
                .socket
                .until(Observer::INTEREST, wait, |inner| condition(inner).then_some(()))
                .is_ok(),
            None => condition(&mut self.shard.enter()),
        }
    }
}

/// Aborts associations: each step sends one burst of ABORTs. After each, the caller waits up to [`ROOM_WAIT`] until the sockets
/// have room, and before the next it pauses for [`ABORT_PAUSE`].
pub(crate) struct AbortBursts<'a, F> {
    stack: &'a Stack,
    reason: &'a [u8],
    ends: F,
    /// The association that the next burst begins with.
    next: Option<AssociationId>,
}

/// Whether another burst follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Burst {
    Follows,
    IsLast,
}

impl<F: Fn(AssociationState) -> bool> Iterator for AbortBursts<'_, F> {
    type Item = Burst;

    fn next(&mut self) -> Option<Burst> {
        let first = self.next.take()?;
        let AbortBursts { stack, reason, ends, .. } = &*self;
        let abort = |driver: &mut SctpDriver, cx: &mut Cx<'_>| {
            driver.abort_where(cx, first, ABORTS_AT_ONCE, reason, ends)
        };
        self.next = stack.command(abort).flatten();
        Some(if self.next.is_some() { Burst::Follows } else { Burst::IsLast })
    }
}

/// Returns whether no association is left.
pub(crate) fn has_ended(inner: &mut Inner) -> bool {
    inner.executive.provider(|driver| driver.association_count()).unwrap_or_default() == 0
}

/// Sends what the sockets have had no room for. Returns whether everything is sent.
pub(crate) fn has_room(inner: &mut Inner) -> bool {
    inner.flush(true);
    !inner.is_refused()
}

/// A stream whose waiters are notified after all work in the perimeter: they wait for a condition of the whole stack.
pub(crate) struct Observer {
    pub(crate) socket: Socket,
}

impl Observer {
    /// The events that waiters of the stream wait for.
    pub(crate) const INTEREST: Interest = OBSERVER_INTEREST;

    /// Opens a stream; `None` if a fault has closed the stack, or it has no room for another stream.
    pub(crate) fn new(stack: &Stack) -> Option<Observer> {
        let socket = Socket::open(&stack.shard, Style::OneToMany).ok()?;
        socket.shard.enter().observe(socket.stream);
        Some(Observer { socket })
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.socket.shard.enter().unobserve(self.socket.stream);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::StackOptions;

    const ASSOCIATIONS: usize = 4 * ABORTS_AT_ONCE;

    #[test]
    fn each_association_is_looked_at_once_whatever_the_number_of_bursts() {
        let options = StackOptions { udp_port: Some(0), ..StackOptions::default() };
        let [clients, servers] = [(); 2].map(|()| Stack::bind(&options).expect("a free port"));
        let listener = servers.listen(7).expect("a free port");
        let pairs: Vec<_> = (0..ASSOCIATIONS)
            .map(|_| {
                let association = clients.connect(listener.address()).expect("it listens");
                (association, listener.accept().expect("one has come"))
            })
            .collect();
        let (looks, bursts) = (Cell::new(0), ASSOCIATIONS / 2 / ABORTS_AT_ONCE);
        clients.abort_where(b"the service was stopped", |_| {
            looks.set(looks.get() + 1);
            looks.get() % 2 == 0
        });
        // A burst ends with a look at the association that the next one begins with.
        assert!(looks.get() <= ASSOCIATIONS + bursts, "{} looks", looks.get());
        assert!(clients.statistics().associations <= ASSOCIATIONS / 2 + bursts);
        drop(pairs);
    }

    fn local_stack() -> Stack {
        let options =
            StackOptions::default().with_udp_port(0).with_local_addresses(["127.0.0.1".parse().unwrap()]);
        Stack::bind(&options).expect("a free port")
    }

    #[test]
    fn a_wait_looks_only_when_something_has_happened() {
        let stack = local_stack();
        let listener = stack.listen(7).expect("a free port");
        let client = stack.connect(listener.address()).expect("it listens");
        let looks = Cell::new(0);
        let look = |inner: &mut Inner| {
            looks.set(looks.get() + 1);
            has_ended(inner)
        };
        assert!(!stack.until(Wait::within(Duration::from_millis(300)), look));
        // At most a SACK and its timer, and the first HEARTBEATs.
        assert!(looks.get() < 50, "{} looks", looks.get());
        drop(client);
    }
}
