//! The tasks of one association of a one-to-many socket.

use std::cell::RefCell;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The tasks of one association of a one-to-many socket. Associations of other sockets have none: the task of the socket relays
/// their messages.
#[derive(Default)]
pub(crate) struct AssociationTasks {
    /// Sets the association up, and sends its queued messages.
    outbound: RefCell<Option<JoinHandle<()>>>,
    /// Hands received messages up.
    inbound: RefCell<Option<JoinHandle<()>>>,
    /// Notified when the program aborts the association while it is being set up.
    setup_aborted: Notify,
}

impl AssociationTasks {
    /// Records the task that sets the association up and sends the queued messages.
    pub(crate) fn on_outbound_started(&self, task: JoinHandle<()>) {
        self.outbound.replace(Some(task));
    }

    /// Records the task that hands received messages up.
    pub(crate) fn on_inbound_started(&self, task: JoinHandle<()>) {
        self.inbound.replace(Some(task));
    }

    /// Cancels the task that sets the association up and sends the queued messages.
    pub(crate) fn abort_outbound(&self) {
        self.outbound.take().inspect(JoinHandle::abort);
    }

    /// Cancels the task that hands received messages up.
    pub(crate) fn abort_inbound(&self) {
        self.inbound.take().inspect(JoinHandle::abort);
    }

    /// Cancels both tasks, and waits until they have dropped what they hold.
    pub(crate) async fn stop(&self) {
        let tasks = [self.outbound.take(), self.inbound.take()];
        tasks.iter().flatten().for_each(JoinHandle::abort);
        for task in tasks.into_iter().flatten() {
            // The task was cancelled, so the result is an error.
            let _ = task.await;
        }
    }

    /// Records that the program aborts the association while it is being set up.
    pub(crate) fn on_setup_aborted(&self) {
        self.setup_aborted.notify_one();
    }

    /// Waits until the program aborts the association while it is being set up.
    pub(crate) async fn setup_aborted(&self) {
        self.setup_aborted.notified().await;
    }
}
