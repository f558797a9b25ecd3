//! Running: delivering what was posted, and service procedures.

use crate::Executive;
use crate::driver::Cx;
use crate::flow;
use crate::queue::Side;
use crate::scheduler::{Errand, Place, QueueRef};
use crate::stream::Procedure;

impl Executive {
    /// Runs enabled service procedures, first in first out, until none is left.
    pub fn run(&mut self) {
        self.settle();
        while let Some(at) = self.streams.scheduler.next_to_run() {
            self.run_service(at);
            self.settle();
        }
    }

    /// Whether a service procedure is enabled.
    #[inline]
    pub fn is_runnable(&self) -> bool {
        self.streams.scheduler.is_runnable()
    }

    fn run_service(&mut self, at: QueueRef) {
        let Some((stream, scheduler)) = self.streams.parts(at.stream) else { return };
        match (at.place, at.side) {
            (Place::Driver, side) => {
                if !stream.device.side(side).clear_enabled() {
                    return;
                }
                let driver = &mut self.drivers[stream.driver.0];
                let cx = &mut Cx::new(&mut self.streams);
                match side {
                    Side::Write => driver.service(cx, at.stream),
                    Side::Read => driver.read_service(cx, at.stream),
                }
            }
            (Place::Module(index), side) => {
                let Some(slot) = stream.modules.get_mut(usize::from(index)) else { return };
                // A module that was popped since may have left its place to another one.
                if slot.queues.side(side).clear_enabled() {
                    // A fault has been reported to the stream's head.
                    let _ = stream.run(at.stream, usize::from(index), side, Procedure::Service, scheduler);
                }
            }
            (Place::Head | Place::BelowHead, Side::Write) => {
                // What does not fit stays held, and a failure is reported to the next write.
                let _ = self.flush_head(at.stream);
            }
            (Place::Head | Place::BelowHead, Side::Read) => {
                if stream.head.queue.relieved() {
                    flow::back_enable_below(at.stream, &mut stream.modules, &mut stream.device, scheduler);
                }
            }
        }
    }

    /// Delivers what procedures have posted, until nothing is on its way.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.streams.scheduler.is_settled() {
            self.settle_all();
        }
    }

    #[cold]
    fn settle_all(&mut self) {
        loop {
            self.streams.deliver();
            let Some(errand) = self.streams.scheduler.next_errand() else { return };
            match errand {
                Errand::Put { stream, message } => {
                    let Some(driver) = self.streams.get(stream).map(|open| open.driver) else { continue };
                    self.drivers[driver.0].put(&mut Cx::new(&mut self.streams), stream, message);
                }
                Errand::Consumed { stream, association, bytes } => {
                    let Some(driver) = self.streams.get(stream).map(|open| open.driver) else { continue };
                    let cx = &mut Cx::new(&mut self.streams);
                    self.drivers[driver.0].consumed(cx, stream, association, bytes, true);
                }
            }
        }
    }
}
