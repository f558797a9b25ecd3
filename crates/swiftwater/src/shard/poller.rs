//! Which thread or task polls the sockets. At most one does.

/// The current poller of the sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Poller {
    None,
    /// A thread of the program.
    Leader,
    Background,
    /// A task of an async runtime. A sleeping thread cannot rely on it: the task may have to run on that very thread.
    Task,
}

/// The current poller, and the task that polls while no thread does.
#[derive(Debug)]
pub(super) struct PollerState {
    current: Poller,
    has_task: bool,
    /// Whether a task has failed because its runtime lacks a driver.
    #[cfg(feature = "tokio")]
    task_failed: bool,
}

impl PollerState {
    pub(super) fn new() -> Self {
        PollerState {
            current: Poller::None,
            has_task: false,
            #[cfg(feature = "tokio")]
            task_failed: false,
        }
    }

    #[inline]
    pub(super) fn current(&self) -> Poller {
        self.current
    }

    /// Records that a thread of the program becomes the leader. Returns the poller that it replaces.
    pub(super) fn on_lead(&mut self) -> Poller {
        std::mem::replace(&mut self.current, Poller::Leader)
    }

    /// Records that the leader no longer polls.
    pub(super) fn on_lead_ended(&mut self) {
        self.current = self.without_threads();
    }

    /// Records that the background thread polls from now on.
    pub(super) fn on_background_began(&mut self) {
        self.current = Poller::Background;
    }

    /// Records that the background thread has returned from its poll. Another poller may have replaced it meanwhile.
    pub(super) fn on_background_ended(&mut self) {
        if self.current == Poller::Background {
            self.current = self.without_threads();
        }
    }

    /// Returns the poller of the sockets while no thread polls them.
    fn without_threads(&self) -> Poller {
        if self.has_task { Poller::Task } else { Poller::None }
    }
}

/// The task of an async runtime that polls the sockets.
#[cfg(feature = "tokio")]
impl PollerState {
    pub(super) fn has_task(&self) -> bool {
        self.has_task
    }

    pub(super) fn has_task_failed(&self) -> bool {
        self.task_failed
    }

    /// Records that a task polls from now on while no thread of the program does. Returns whether it polls at once.
    pub(super) fn on_task_started(&mut self) -> bool {
        self.has_task = true;
        let polls = self.current != Poller::Leader;
        if polls {
            self.current = Poller::Task;
        }
        polls
    }

    /// Records that the task has ended, and whether it failed.
    pub(super) fn on_task_ended(&mut self, failed: bool) {
        self.has_task = false;
        self.task_failed |= failed;
        if self.current == Poller::Task {
            self.current = Poller::None;
        }
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;

    #[test]
    fn a_task_polls_whenever_no_thread_does() {
        let mut poller = PollerState::new();
        assert_eq!(poller.on_lead(), Poller::None);
        assert!(!poller.on_task_started(), "the leader polls");
        poller.on_lead_ended();
        assert_eq!(poller.current(), Poller::Task);
        poller.on_background_began();
        poller.on_background_ended();
        assert_eq!(poller.current(), Poller::Task);
        assert_eq!(poller.on_lead(), Poller::Task);
        poller.on_task_ended(false);
        assert_eq!(poller.current(), Poller::Leader);
        poller.on_lead_ended();
        assert_eq!(poller.current(), Poller::None);
        assert!(!poller.has_task_failed());
    }

    #[test]
    fn a_background_thread_that_was_replaced_ends_no_poll_of_its_successor() {
        let mut poller = PollerState::new();
        poller.on_background_began();
        assert_eq!(poller.on_lead(), Poller::Background);
        poller.on_background_ended();
        assert_eq!(poller.current(), Poller::Leader);
        poller.on_lead_ended();
        poller.on_background_began();
        assert!(poller.on_task_started(), "the task replaces the background thread");
        poller.on_background_ended();
        assert_eq!(poller.current(), Poller::Task);
        poller.on_task_ended(true);
        assert_eq!((poller.current(), poller.has_task_failed()), (Poller::None, true));
    }
}
