//! The time of calls, the executive's timers, and closes that wait for queues to drain.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use crate::Executive;
use crate::driver::{Cx, Driver};
use crate::error::{Refused, WriteError};
use crate::identifiers::{DriverId, Place, StreamId};
use crate::message::Message;
use crate::queue::SERVED_MAX;
use crate::shares::PutOff;
use crate::timers::{Alarm, TimerId, TimerKey};

/// Number of timers that expire before the owner does other work.
const EXPIRED_MAX: usize = 64;
/// Number of timers that are looked at for that. Those of modules that have had their share of a round are put off.
const DUE_MAX: usize = 1024;
/// Number of closed streams that end before the owner does other work.
const ENDED_MAX: usize = 64;

/// The executive at a time, for the calls whose effects depend on it; made by [`Executive::at`].
///
/// Drivers and modules see this time ([`Cx::now`], [`Q::now`](crate::Q::now)). The other calls are those of the [`Executive`]
/// itself. [`Executive::write`] asks for the time if modules are pushed or the message has a lifetime. In the others, such as
/// ioctls and pushes of modules, drivers and modules see the time that the executive was given last, and timers that they begin
/// run from the next.
#[derive(Debug)]
pub struct At<'a> {
    executive: &'a mut Executive,
}

impl Deref for At<'_> {
    type Target = Executive;

    #[inline]
    fn deref(&self) -> &Executive {
        self.executive
    }
}

impl DerefMut for At<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Executive {
        self.executive
    }
}

impl At<'_> {
    /// Calls an operation of a driver of type `D` with a [`Cx`], and delivers the messages that it sends. Returns `None` if the
    /// driver is of another type.
    pub fn with_driver<D: Driver, R>(
        &mut self,
        id: DriverId,
        f: impl FnOnce(&mut D, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        self.executive.with_driver(id, f)
    }

    /// Runs enabled service procedures, first in first out, until none is left, or until they have done so much that other work
    /// comes first: then [`Executive::deadline`] has passed, and a further call goes on.
    pub fn run(&mut self) {
        self.executive.run();
    }

    /// Puts a message on a stream. High-priority messages are always taken.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::write`], with the message.
    pub fn putmsg(&mut self, s: StreamId, m: Message) -> Result<(), Refused> {
        self.executive.putmsg(s, m)
    }

    /// Puts a message down whose control part names another stream (`I_FDINSERT`): writes that stream's number at `offset` of the
    /// raw control part, in native byte order.
    ///
    /// # Errors
    ///
    /// The errors of [`At::putmsg`]; returns the message unchanged if the control part has no room at a multiple of four.
    pub fn fdinsert(
        &mut self,
        s: StreamId,
        other: StreamId,
        m: Message,
        offset: usize,
    ) -> Result<(), Refused> {
        self.executive.fdinsert(s, other, m, offset)
    }

    /// Sends down the coalesced bytes of writes with more to come.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::write`]; after [`WriteError::WouldBlock`] the head still holds the bytes.
    pub fn flush_head(&mut self, s: StreamId) -> Result<(), WriteError> {
        self.executive.flush_head(s)
    }

    /// Closes a stream for one of its users. The last close ends the stream: written data still goes down, as there is room, and
    /// after the close time (`I_SETCLTIME`) whether there is room or not. Then modules are popped, unread messages return their
    /// credit, and the driver ends its part. Closing a closed stream does nothing.
    pub fn close(&mut self, s: StreamId) {
        self.executive.close(s);
    }

    /// Ends a stream at once. Messages on their way down that have not reached the driver are lost.
    pub fn close_now(&mut self, s: StreamId) {
        self.executive.close_now(s);
    }
}

impl Executive {
    /// Returns the executive for calls at this time, or at the time of an earlier call if that was later. Timers that
    /// were started since the last call begin to run now.
    #[inline]
    pub fn at(&mut self, now: Instant) -> At<'_> {
        self.advance(now);
        At { executive: self }
    }

    /// Advances the time and returns it: callers of several threads may state times in another order than they come.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) -> Instant {
        self.streams.scheduler.timers.advance(now);
        self.streams.scheduler.timers.now()
    }

    /// Returns the time by which [`Executive::timeout`], and then [`At::run`], must be called.
    pub fn deadline(&self) -> Option<Instant> {
        if self.streams.scheduler.is_behind() || self.streams.scheduler.has_drained() {
            return Some(self.streams.scheduler.timers.now());
        }
        let drivers = self.drivers.iter().filter_map(|driver| driver.deadline());
        drivers.chain(self.streams.scheduler.timers.deadline()).min()
    }

    /// Expires timers that are due, in the order of their times, and calls the drivers whose deadline has passed. If very many
    /// are due, only some expire, and [`Executive::deadline`] remains in the past: the owner does other work, and calls again.
    pub fn timeout(&mut self, now: Instant) {
        let now = self.advance(now);
        for driver in &mut self.drivers {
            if driver.deadline().is_some_and(|deadline| deadline <= now) {
                driver.timeout(&mut Cx::new(&mut self.streams), now);
            }
        }
        self.deliver_posts();
        // Timers that the drivers have started begin to run.
        self.advance(now);
        self.streams.scheduler.begin_step();
        let mut expired = 0;
        for _ in 0..DUE_MAX {
            let Some((s, timer, alarm)) = self.streams.scheduler.timers.next_due() else { break };
            let is_of_module =
                matches!(alarm, Alarm::Procedure { place: Place::Module(_), .. } | Alarm::Close);
            let memory = if is_of_module { self.streams.memory_of_modules(s) } else { None };
            if memory.is_some_and(|memory| self.streams.scheduler.put_off(&memory, PutOff::Timer(timer))) {
                continue;
            }
            self.expire(timer);
            expired += 1;
            if expired == EXPIRED_MAX || self.streams.scheduler.is_step_over() {
                break;
            }
        }
        self.end_drained();
    }

    /// Ends a timer that has expired, unless it was stopped, and does what it is for.
    pub(super) fn expire(&mut self, timer: TimerKey) {
        let Some((s, timer, alarm)) = self.streams.scheduler.timers.end(timer) else { return };
        let memory = self.streams.memory_of_modules(s);
        let before = self.streams.scheduler.work();
        self.streams.scheduler.count_work();
        self.ring(s, timer, alarm);
        self.deliver_posts();
        if let Some(memory) = &memory {
            self.streams.scheduler.count_share(memory, before);
        }
    }

    fn ring(&mut self, s: StreamId, timer: TimerId, alarm: Alarm) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        match alarm {
            Alarm::Ioctl { id } => stream.head.expire_ioctl(s, id, scheduler),
            Alarm::Close => self.end_close_time(s),
            Alarm::Procedure { place: Place::Module(index), serial, side } => {
                stream.run_timer(s, index.into(), serial, side, timer, scheduler);
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
        if !stream.is_draining() || stream.head.check_write().is_err() {
            return false;
        }
        let close_time = stream.head.close_time();
        stream.head.begin_close(s, scheduler);
        scheduler.timers.start(s, Alarm::Close, close_time);
        scheduler.on_draining_began();
        true
    }

    /// Sends what modules of a closed stream still hold down to the driver, whether it has room or not, and then ends the stream.
    /// A part at a time, because there may be thousands of messages in each.
    fn end_close_time(&mut self, s: StreamId) {
        for _ in 0..SERVED_MAX {
            let Some((stream, scheduler)) = self.streams.parts(s) else { return };
            if stream.head.is_failed() || !stream.force_down(s, scheduler) {
                return self.close_now(s);
            }
            self.deliver_posts();
        }
        if let Some((_, scheduler)) = self.streams.parts(s) {
            scheduler.timers.start(s, Alarm::Close, Duration::ZERO);
        }
    }

    /// Ends closed streams whose queues have drained. Looks only at those to which something has happened: very many may drain.
    /// If very many have drained, only some end, and [`Executive::deadline`] remains in the past.
    pub(super) fn end_drained(&mut self) {
        self.streams.scheduler.begin_step();
        for _ in 0..ENDED_MAX {
            let Some(s) = self.streams.scheduler.next_drained() else { return };
            let Some(stream) = self.streams.get(s) else { continue };
            if !stream.is_draining() || stream.head.is_failed() {
                let memory = self.streams.memory_of_modules(s);
                let before = self.streams.scheduler.work();
                self.close_now(s);
                if let Some(memory) = &memory {
                    self.streams.scheduler.count_share(memory, before);
                }
            }
            if self.streams.scheduler.is_step_over() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::Nuls;
    use crate::modules::Limit;
    use crate::{Errno, Kind, Primitive, SendInfo, Which};

    #[test]
    fn a_step_looks_only_at_closed_streams_that_may_end() {
        const STREAMS: usize = 200;
        let start = Instant::now();
        let mut executive = Executive::new(start);
        let driver = executive.add_driver("nuls", Box::new(Nuls));
        let streams: Vec<_> = (0..STREAMS).map(|_| executive.open(driver).unwrap()).collect();
        for &s in &streams {
            executive.push(s, Box::new(Limit::new(None, Some(1.0), false))).unwrap();
            for _ in 0..2 {
                let request = Primitive::OptdataReq { association: Which::Only, info: SendInfo::default() };
                let m = Message { data: b"x"[..].into(), ..Message::proto(request) };
                executive.at(start).putmsg(s, m).unwrap();
            }
            executive.at(start).run();
            executive.at(start).close(s);
            assert!(!executive.streams.scheduler.has_drained(), "its second message waits for a second");
        }
        executive.timeout(start);
        executive.at(start).run();
        assert_eq!(executive.streams.scheduler.draining(), STREAMS);
        assert!(!executive.streams.scheduler.has_drained(), "a step does not list those that drain");

        // An event that does not end them: each is looked at once.
        executive.at(start).with_driver(driver, |_: &mut Nuls, cx| {
            for &s in &streams {
                cx.putnext(s, Message::new(Kind::Error { read: Some(Errno::EIO), write: None }));
            }
        });
        for _ in 0..STREAMS.div_ceil(ENDED_MAX) {
            executive.at(start).run();
        }
        assert_eq!(executive.streams.scheduler.draining(), STREAMS);
        assert!(!executive.streams.scheduler.has_drained());

        // The driver fails all of them together.
        executive.at(start).with_driver(driver, |_: &mut Nuls, cx| {
            streams.iter().for_each(|&s| cx.hangup(s));
        });
        let mut left = STREAMS;
        while left > 0 {
            assert_eq!(executive.deadline(), Some(start), "more may end");
            executive.at(start).run();
            let ended = left - executive.streams.scheduler.draining();
            assert!((1..=ENDED_MAX).contains(&ended), "{ended} in one step");
            left -= ended;
        }
        assert!(!executive.is_busy());
    }
}
