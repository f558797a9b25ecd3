//! The end of the daemon: peers are told, so that none waits for its timers.
//!
//! Associations that programs have closed are delivered within [`END_WAIT`]. Those that are open are aborted: a regular end would tell
//! the peer that the program had sent all that it wanted to. Their carriers then close without a state in the page, which the shim takes for the end of
//! the daemon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use swiftwater::Stack;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::state::registry::Registry;

/// The longest that the end of the daemon takes in each of its two steps: to take what programs had sent before they closed their
/// sockets, and to deliver it.
const END_WAIT: Duration = Duration::from_secs(5);
/// Time between two looks at what is left.
const LOOK: Duration = Duration::from_millis(5);
/// What peers are told.
const REASON: &str = "the SCTP service was stopped";

/// Ends a daemon that runs; from another thread, such as that of a signal handler.
#[derive(Clone, Debug)]
pub struct Ending {
    pub(crate) wanted: Arc<Notify>,
    pub(crate) stack: Stack,
}

impl Ending {
    /// Has [`Daemon::run`](crate::Daemon::run) come to its end.
    pub fn begin(&self) {
        self.wanted.notify_one();
    }

    /// Aborts every association, also those that are being delivered. The process may end then.
    pub fn at_once(&self) {
        self.stack.abort_all(REASON);
    }
}

/// Waits until everything is taken that programs had sent before they closed their sockets, for [`END_WAIT`] at most.
pub(crate) async fn drain(registry: &Registry) {
    let deadline = Instant::now() + END_WAIT;
    while registry.all().iter().any(|socket| socket.channel.endpoint.is_hung_up())
        && Instant::now() < deadline
    {
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends what is open, and everything that serves it; waits until what was closed is delivered.
pub(crate) fn end(runtime: Runtime, stack: &Stack) {
    // Before the tasks go: they would shut down in an orderly way what they have.
    stack.abort_open(REASON);
    drop(runtime);
    if !stack.await_end(END_WAIT) {
        stack.abort_all(REASON);
    }
}
