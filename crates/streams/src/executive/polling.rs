//! Readiness of streams, and the drivers' lower half.

use crate::Executive;
use crate::driver::{Cx, FlushScope};
use crate::flow;
use crate::head::{Interest, Readiness};
use crate::stream::StreamId;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

impl Executive {
    /// What can be done with a stream now. A closed one hangs.
    pub fn poll(&mut self, s: StreamId) -> Readiness {
        let Some((stream, _)) = self.streams.parts(s) else {
            return Readiness { readable: true, hangup: true, ..Readiness::default() };
        };
        let room_below = !flow::next_down(&mut stream.modules, &mut stream.device).is_full(0);
        stream.head.poll(room_below)
    }

    /// Lists the stream among the wake-ups, once, when something of `interest` becomes true (at once if it is); errors and
    /// hang-ups list it too. Replaces what was wanted before.
    pub fn want(&mut self, s: StreamId, interest: Interest) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        // A writer that waits for the queue below must be seen by it.
        let room_below = match interest.contains(Interest::WRITABLE) {
            true => flow::next_down(&mut stream.modules, &mut stream.device).canput(0),
            false => true,
        };
        stream.head.want(s, interest, room_below, scheduler);
    }

    /// Appends the streams whose wanted interest became true, each once, and forgets them.
    pub fn take_wakeups(&mut self, woken: &mut Vec<StreamId>) {
        while let Some(s) = self.streams.scheduler.wakeups.pop() {
            if let Some(stream) = self.streams.get_mut(s) {
                stream.head.unlist();
                woken.push(s);
            }
        }
    }

    /// Whether [`Executive::take_wakeups`] has something to say.
    #[inline]
    pub fn has_wakeups(&self) -> bool {
        !self.streams.scheduler.wakeups.is_empty()
    }

    /// Lets every driver take what has arrived. True: there may be more.
    ///
    /// # Errors
    ///
    /// The first error of a driver, after all were called.
    pub fn receive(&mut self, now: Instant) -> io::Result<bool> {
        let mut result = Ok(false);
        for driver in &mut self.drivers {
            let received = driver.receive(&mut Cx::new(&mut self.streams), now);
            result = match (result, received) {
                (Ok(earlier), Ok(more)) => Ok(earlier | more),
                (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            };
        }
        self.settle();
        result
    }

    /// Whether something waits for [`Executive::receive`] that no descriptor tells of.
    pub fn has_arrivals(&self) -> bool {
        self.drivers.iter().any(|driver| driver.has_arrivals())
    }

    /// When [`Executive::timeout`] is to be called, if nothing happens before.
    pub fn deadline(&self) -> Option<Instant> {
        self.drivers.iter().filter_map(|driver| driver.deadline()).min()
    }

    /// Tells the drivers whose deadline has come.
    pub fn timeout(&mut self, now: Instant) {
        for driver in &mut self.drivers {
            if driver.deadline().is_some_and(|deadline| deadline <= now) {
                driver.timeout(&mut Cx::new(&mut self.streams), now);
            }
        }
        self.settle();
    }

    /// Whether a driver should send what waits now. Coalesced bytes of heads do not count: see
    /// [`Executive::is_coalescing`].
    pub fn flush_due(&self) -> bool {
        self.drivers.iter().any(|driver| driver.flush_due())
    }

    /// Whether a head may hold coalesced bytes that only a flush sends down.
    #[inline]
    pub fn is_coalescing(&self) -> bool {
        !self.streams.scheduler.coalescing.is_empty()
    }

    /// Whether a driver has something left to do that needs no open stream.
    pub fn is_busy(&self) -> bool {
        self.drivers.iter().any(|driver| driver.is_busy())
    }

    /// Whether something waits, in a driver or a head, that only a flush of everything sends.
    pub fn has_unsent(&self) -> bool {
        self.is_coalescing() || self.drivers.iter().any(|driver| driver.has_unsent())
    }

    /// Lets the drivers hand what waits, or only what is due, to their links. A flush of all first sends down what heads
    /// hold, as far as there is room.
    pub fn flush(&mut self, now: Instant, scope: FlushScope) {
        if scope == FlushScope::All {
            self.flush_heads();
        }
        for driver in &mut self.drivers {
            driver.flush(&mut Cx::new(&mut self.streams), now, scope);
        }
        self.settle();
    }

    /// Names the descriptors that the drivers wait for, and what for.
    pub fn descriptors(&self, f: &mut dyn FnMut(BorrowedFd<'_>, Interest)) {
        for driver in &self.drivers {
            driver.descriptors(f);
        }
    }

    fn flush_heads(&mut self) {
        let listed = std::mem::take(&mut self.streams.scheduler.coalescing);
        for &s in &listed {
            // A full driver leaves the bytes held until it enables the head's service; a failure reaches the next write.
            let _ = self.flush_head(s);
            if let Some((stream, ..)) = self.streams.all_parts(s) {
                stream.head.coalesced.listed = false;
            }
        }
        self.streams.scheduler.coalescing = reuse(listed);
    }
}

/// The same list without its contents, so that its memory is used again.
fn reuse(mut list: Vec<StreamId>) -> Vec<StreamId> {
    list.clear();
    list
}
