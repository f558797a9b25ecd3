//! The executive's timers, and closes that wait for queues to drain.

use std::time::{Duration, Instant};

use crate::Executive;
use crate::driver::Cx;
use crate::identifiers::{Place, StreamId};
use crate::timers::{Alarm, TimerId};

impl Executive {
    /// Returns the executive for calls at this time, or at the time of an earlier call if that was later. Timers that
    /// were started since the last call begin to run now. Calls that no time depends on, such as reads, need none.
    #[inline]
    pub fn at(&mut self, now: Instant) -> &mut Executive {
        self.streams.scheduler.timers.advance(now);
        self
    }

    /// Advances the time and returns it: callers of several threads may state times in another order than they come.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) -> Instant {
        self.at(now).streams.scheduler.timers.now()
    }

    /// Returns the time by which [`Executive::timeout`] must be called.
    pub fn deadline(&self) -> Option<Instant> {
        let drivers = self.drivers.iter().filter_map(|driver| driver.deadline());
        drivers.chain(self.streams.scheduler.timers.deadline()).min()
    }

    /// Expires timers that are due, and calls the drivers whose deadline has passed.
    pub fn timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        for driver in &mut self.drivers {
            if driver.deadline().is_some_and(|deadline| deadline <= now) {
                driver.timeout(&mut Cx::new(&mut self.streams), now);
            }
        }
        self.deliver_posts();
        // Timers that the drivers have started begin to run.
        self.at(now);
        while let Some((s, timer, alarm)) = self.streams.scheduler.timers.next_due() {
            self.ring(s, timer, alarm);
            self.deliver_posts();
        }
        self.end_drained();
    }

    fn ring(&mut self, s: StreamId, timer: TimerId, alarm: Alarm) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        match alarm {
            Alarm::Ioctl { id } => stream.head.expire_ioctl(s, id, scheduler),
            Alarm::Close => self.close_now(s),
            Alarm::Procedure { place: Place::Module(index), serial, side } => {
                stream.run_timer(s, (usize::from(index), serial), side, timer, scheduler);
            }
            Alarm::Procedure { .. } => {
                let driver = stream.driver();
                self.drivers[driver.0].timer(&mut Cx::new(&mut self.streams), s, timer);
            }
        }
    }

    /// Returns how long a close waits for messages on their way down (`I_GETCLTIME`).
    pub fn close_time(&self, s: StreamId) -> Option<Duration> {
        Some(self.streams.get(s)?.head.close_time())
    }

    /// Sets how long a close waits for messages on their way down (`I_SETCLTIME`). Default: 15 s.
    pub fn set_close_time(&mut self, s: StreamId, time: Duration) {
        if let Some(stream) = self.streams.get_mut(s) {
            stream.head.set_close_time(time);
        }
    }

    /// Keeps a closed stream until no message is on its way down. Returns false if none is, or if waiting is futile.
    pub(super) fn begin_draining(&mut self, s: StreamId) -> bool {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return false };
        let close_time = stream.head.close_time();
        if close_time.is_zero() || !stream.is_draining() || stream.head.check_write().is_err() {
            return false;
        }
        stream.head.begin_close(s, scheduler);
        scheduler.timers.start(s, Alarm::Close, close_time);
        scheduler.list_draining(s);
        true
    }

    /// Ends the closed streams whose queues have drained.
    pub(super) fn end_drained(&mut self) {
        for _ in 0..self.streams.scheduler.draining() {
            let Some(s) = self.streams.scheduler.next_draining() else { return };
            let Some(stream) = self.streams.get(s) else { continue };
            if stream.is_draining() && !stream.head.is_failed() {
                self.streams.scheduler.list_draining(s);
            } else {
                self.close_now(s);
            }
        }
    }
}
