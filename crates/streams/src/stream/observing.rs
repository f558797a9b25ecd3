//! Modules that look at messages on their way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Stream;
use crate::identifiers::{Place, Side, StreamId};
use crate::message::{Kind, Seen};
use crate::scheduler::Scheduler;

impl Stream {
    /// Shows the scheduler's message to a module that observes. Returns whether the message passes to the next queue, where it
    /// is without being moved. The module may panic.
    #[inline]
    pub(super) fn passes_observer(&mut self, index: usize, side: Side, scheduler: &mut Scheduler) -> bool {
        let modules = self.modules.len();
        let Some(slot) = self.modules.get_mut(index) else { return false };
        if !slot.observes || slot.queues.side(side).has_service() {
            return false;
        }
        let Some((now, m)) = scheduler.begin_show() else { return false };
        // A flush concerns the queues of the module, too.
        let passes = !matches!(m.kind, Kind::Flush(_)) && slot.module.observe(side, now, &Seen::from(m));
        scheduler.end_show();
        if !passes {
            return false;
        }
        let place = match side {
            Side::Read if index + 1 == modules => Place::Head,
            Side::Read => Place::Module(index as u16 + 1),
            Side::Write if index == 0 => Place::Driver,
            Side::Write => Place::Module(index as u16 - 1),
        };
        scheduler.forward_current(place);
        true
    }

    /// Returns whether every module only observes messages that come down, unless it decides otherwise for one of them.
    #[inline]
    pub(crate) fn only_observes_writes(&self) -> bool {
        self.modules.iter().all(|slot| slot.observes && !slot.queues.write.has_service())
    }

    /// Shows a write to the modules, which only observe, from the head downward. Returns the place from which the write
    /// continues; `None` if a module has panicked, which fails the stream and takes the message along.
    #[inline]
    pub(crate) fn show_written(
        &mut self,
        s: StreamId,
        m: &Seen<'_>,
        scheduler: &mut Scheduler,
    ) -> Option<Place> {
        let now = scheduler.timers.now();
        let modules = &mut self.modules;
        let shown = catch_unwind(AssertUnwindSafe(|| {
            modules.iter_mut().rposition(|slot| !slot.module.observe(Side::Write, now, m))
        }));
        match shown {
            Ok(Some(index)) => Some(Place::Module(index as u16)),
            Ok(None) => Some(Place::Driver),
            Err(_) => {
                self.fail(s, scheduler);
                self.enable_queued(s, scheduler);
                None
            }
        }
    }
}
