//! Ends the associations of a program or a daemon that exits, so that no peer waits for them.

use std::thread;
use std::time::{Duration, Instant};

use providers::SctpDriver;
use sctp::{AssociationId, AssociationState};
use streams::Cx;

use crate::shard::{Inner, WakeTarget};
use crate::stack::Stack;

/// Number of ABORTs in one burst: less than the core's queue of packets without an association, and less than fits the
/// smallest socket buffer of a peer that gets all of them. An ABORT is never repeated.
const ABORTS_AT_ONCE: usize = 64;
/// Time between two bursts.
const ABORT_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of attempts to send while the socket has no room.
const SEND_TRIES_MAX: u32 = 100;
/// Pause between two attempts.
const SEND_PAUSE: Duration = Duration::from_millis(1);

impl Stack {
    /// Ends all associations of this stack before the program exits: the kernel does not tell the peers of a process
    /// that its associations are gone. Shuts each association down, and waits up to `wait` until everything sent is
    /// delivered. Then aborts the remaining associations with `reason`. Returns whether none remained.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
    /// # let listener = stack.listen(7)?;
    /// # let client = stack.connect(&listener.local_address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send(b"the last word")?;
    /// assert!(stack.close(Duration::from_secs(5), "the program was stopped"));
    /// assert_eq!(server.recv()?.unwrap().to_vec(), b"the last word");
    /// assert!(server.recv()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self, wait: Duration, reason: &str) -> bool {
        self.command(SctpDriver::shutdown_all);
        let all_ended = self.await_end(wait);
        if !all_ended {
            self.abort_all(reason);
        }
        all_ended
    }

    /// Aborts all current associations of this stack. Undelivered messages are lost; each ABORT contains the first 256
    /// bytes of `reason`.
    pub fn abort_all(&self, reason: &str) {
        self.abort_where(reason, |_| true);
    }

    /// Aborts all current associations of this stack except those that are shutting down. [`Stack::await_end`] waits
    /// for these.
    pub fn abort_open(&self, reason: &str) {
        self.abort_where(reason, |state| {
            use AssociationState::{CookieEchoed, CookieWait, Established};
            matches!(state, CookieWait | CookieEchoed | Established)
        });
    }

    /// Waits up to `wait` until no association is left. Returns whether none is left.
    pub fn await_end(&self, wait: Duration) -> bool {
        let deadline = Instant::now().checked_add(wait);
        loop {
            if self.shard.enter().has_no_association(WakeTarget::Thread(thread::current())) {
                return true;
            }
            self.shard.arm_background();
            let Some(deadline) = deadline else {
                thread::park();
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
    }

    fn abort_where(&self, reason: &str, ends: impl Fn(AssociationState) -> bool) {
        let mut next = Some(AssociationId(0));
        while let Some(first) = next {
            let burst = |driver: &mut SctpDriver, cx: &mut Cx<'_>| {
                driver.abort_where(cx, first, ABORTS_AT_ONCE, reason.as_bytes(), &ends)
            };
            next = self.command(burst).flatten();
            if next.is_some() {
                thread::sleep(ABORT_PAUSE);
            }
        }
    }

    /// Calls the provider at once, and sends the resulting packets. Returns `None` if a fault has closed the stack.
    fn command<R>(&self, f: impl FnOnce(&mut SctpDriver, &mut Cx<'_>) -> R) -> Option<R> {
        let outcome = {
            let mut inner = self.shard.enter();
            let command = |inner: &mut Inner| inner.executive.command(Instant::now(), f);
            let outcome = inner.guarded(None, command).flatten();
            self.shard.after_command(&mut inner, None);
            outcome
        };
        for _ in 0..SEND_TRIES_MAX {
            let mut inner = self.shard.enter();
            if !inner.is_refused() {
                break;
            }
            inner.flush(true);
            drop(inner);
            thread::sleep(SEND_PAUSE);
        }
        outcome
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
                let association = clients.connect(listener.local_address()).expect("it listens");
                (association, listener.accept().expect("one has come"))
            })
            .collect();
        let (looks, bursts) = (Cell::new(0), ASSOCIATIONS / 2 / ABORTS_AT_ONCE);
        clients.abort_where("the service was stopped", |_| {
            looks.set(looks.get() + 1);
            looks.get() % 2 == 0
        });
        // A burst ends with a look at the association that the next one begins with.
        assert!(looks.get() <= ASSOCIATIONS + bursts, "{} looks", looks.get());
        assert!(clients.statistics().associations <= ASSOCIATIONS / 2 + bursts);
        drop(pairs);
    }
}
