//! Ends the daemon, and tells the peers, so that none has to wait for its timers.
//!
//! Associations that programs have closed are delivered within [`END_WAIT`]. Open associations are aborted: a shutdown
//! would tell the peer that the program had sent everything it wanted to send. Their pairs then close without a
//! state in the page, which tells the shim that the daemon has ended.

use std::sync::Arc;
use std::time::Duration;

use swiftwater::{Stack, internals};
use tokio::runtime::LocalRuntime;
use tokio::sync::Notify;

use crate::state::registry::Registry;
use crate::system::listener::SocketFile;

/// Time limit of each of the two steps at the end of the daemon: to take the messages that programs sent before they
/// closed their sockets, and to deliver these.
const END_WAIT: Duration = Duration::from_secs(5);
/// The reason in each ABORT.
const REASON: &str = "the SCTP service was stopped";

/// Ends a running daemon, from another thread such as that of a signal handler.
#[derive(Clone, Debug)]
pub struct Ending {
    wanted: Arc<Notify>,
    stack: Stack,
    file: Option<Arc<SocketFile>>,
}

impl Ending {
    /// Returns a handle that notifies `wanted`. `file` is the file of the daemon's socket, if the daemon has made one.
    pub(crate) fn new(wanted: Arc<Notify>, stack: Stack, file: Option<Arc<SocketFile>>) -> Ending {
        Ending { wanted, stack, file }
    }

    /// Makes [`Daemon::run`](crate::Daemon::run) end in an orderly way.
    pub fn begin(&self) {
        self.wanted.notify_one();
    }

    /// Aborts every association, including those being delivered, and removes the file of the daemon's socket. The
    /// process may exit afterwards.
    pub fn at_once(&self) {
        self.file.iter().for_each(|file| file.remove());
        self.stack.abort_all(REASON);
    }
}

/// Waits until all messages are taken that programs sent before they closed their sockets, up to [`END_WAIT`].
pub(crate) async fn drain(registry: &Registry) {
    let all_gone = async {
        while let Some(closed) = registry.all().into_iter().find(|socket| socket.channel().is_closed()) {
            closed.gone().await;
        }
    };
    // Messages that were not taken by then are lost.
    let _ = tokio::time::timeout(END_WAIT, all_gone).await;
}

/// Aborts open associations and ends their tasks; waits until closed associations are delivered.
pub(crate) fn shut_down(runtime: LocalRuntime, stack: &Stack) {
    // First abort, because the tasks would shut their associations down in an orderly way.
    internals::abort_open(stack, REASON);
    drop(runtime);
    if !internals::await_end(stack, END_WAIT) {
        stack.abort_all(REASON);
    }
}
