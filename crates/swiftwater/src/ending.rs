//! The end of a program or a daemon: no peer waits for an association that nobody has any more.

use std::thread;
use std::time::{Duration, Instant};

use providers::SctpDriver;
use sctp::{AssociationId, AssociationState};
use streams::Cx;

use crate::stack::Stack;

/// Associations that are aborted at once: fewer than the core keeps of packets that belong to no association, and than the
/// smallest socket buffer takes of a peer that has them all. An ABORT is never sent again.
const ABORTS_AT_ONCE: usize = 64;
/// Time between two such bursts.
const ABORT_PAUSE: Duration = Duration::from_millis(1);
/// How often it is tried to send while the socket has no room.
const SEND_TRIES_MAX: u32 = 100;
/// Time between two looks at what is left.
const LOOK: Duration = Duration::from_millis(1);

impl Stack {
    /// Ends all associations of this stack, before the program ends: the kernel tells no peer when a process is gone. Shuts each
    /// association down, and waits for `wait` at most until what was sent is delivered. Aborts those that are left then, and tells
    /// their peers `reason`. Returns whether none was left.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{Stack, StackOptions};
    /// let stack = Stack::bind(&StackOptions { udp_port: Some(0), ..StackOptions::default() })?;
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

    /// Aborts all associations that this stack has when it is called. Undelivered messages are lost; peers are told the first 256
    /// bytes of `reason`.
    pub fn abort_all(&self, reason: &str) {
        self.abort_where(reason, |_| true);
    }

    /// Aborts all associations that this stack has when it is called, but those that are shutting down. [`Stack::await_end`] waits for
    /// these.
    pub fn abort_open(&self, reason: &str) {
        self.abort_where(reason, |state| {
            use AssociationState::{CookieEchoed, CookieWait, Established};
            matches!(state, CookieWait | CookieEchoed | Established)
        });
    }

    /// Waits until no association is left, for `wait` at most. Returns whether none is left.
    pub fn await_end(&self, wait: Duration) -> bool {
        let deadline = Instant::now().checked_add(wait);
        while self.statistics().associations > 0 {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
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

    /// Has the provider do something at once, and sends what that gives to send. `None`: a fault has closed everything.
    fn command<R>(&self, f: impl FnOnce(&mut SctpDriver, &mut Cx<'_>) -> R) -> Option<R> {
        let outcome = {
            let mut inner = self.shard.enter();
            let driver = inner.driver;
            inner.tell_time();
            let outcome = inner.guarded(None, |inner| inner.executive.with_driver(driver, f)).flatten();
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
            thread::sleep(LOOK);
        }
        outcome
    }
}
