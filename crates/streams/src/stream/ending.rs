//! The end of a stream: what becomes of the messages that are still on their way.

use super::Stream;
use crate::credit::DiscardedCredit;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::module::flow;
use crate::module::slot::Slot;
use crate::scheduler::Scheduler;

impl Stream {
    /// Returns whether messages are still on their way down.
    pub(crate) fn is_draining(&self) -> bool {
        let modules = self.modules.iter().map(|slot| &slot.queues.write);
        !self.broken && modules.chain([&self.device.write]).any(|queue| !queue.is_empty())
    }

    /// Sends one message on to the next place, whether that has room or not: the first one of the lowest module that holds
    /// messages on their way down. Returns false if none does.
    pub(crate) fn force_down(&mut self, s: StreamId, scheduler: &mut Scheduler) -> bool {
        if self.broken {
            return false;
        }
        let mut queues = self.modules.iter_mut().map(|slot| &mut slot.queues.write).enumerate();
        let Some((index, m)) = queues.find_map(|(index, queue)| Some((index, queue.getq()?))) else {
            return false;
        };
        scheduler.count_work();
        let driver = QueueRef { stream: s, place: Place::Driver, side: Side::Write };
        let next = index.checked_sub(1).map_or(driver, |below| flow::module_at(s, below, Side::Write));
        scheduler.post(next, m);
        true
    }

    /// Discards what waits in modules and in the head, and returns the receive window.
    pub(crate) fn discard_queued(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        let mut discarded = DiscardedCredit::default();
        scheduler.count_moved(self.head.queue.len());
        discarded.discard(&mut self.head.queue);
        for Slot { queues, .. } in &mut self.modules {
            scheduler.count_moved(queues.read.len() + queues.write.len());
            discarded.discard(&mut queues.read);
            while queues.write.getq().is_some() {}
        }
        discarded.return_to(s, scheduler);
    }
}
