//! Readiness of streams, and the drivers' lower half.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::Executive;
use crate::driver::{Cx, FlushScope};
use crate::head::{Interest, Readiness, SignalEvents, SignalNotice, WaiterId, Woken};
use crate::identifiers::StreamId;

impl Executive {
    /// Returns the readiness of a stream. A closed stream is hung up.
    pub fn poll(&mut self, s: StreamId) -> Readiness {
        let Some((stream, _)) = self.streams.parts(s) else {
            return Readiness { readable: true, hangup: true, ..Readiness::default() };
        };
        stream.poll()
    }

    /// Returns whether a stream was hung up, even if its reader finds messages before that.
    pub fn is_hung_up(&self, s: StreamId) -> bool {
        self.streams.get(s).is_none_or(|stream| stream.head.is_hung_up())
    }

    /// Lists the stream among the wake-ups, once, when part of `interest` becomes ready (at once if it is); errors and hang-ups
    /// list it, too. Replaces the earlier interest.
    pub fn want(&mut self, s: StreamId, interest: Interest) {
        let now = self.poll_for(s, interest);
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        stream.head.want(s, interest, now, scheduler);
    }

    /// Adds a waiter to a stream, or replaces its interest. [`Executive::take_woken`] returns it once when part of `interest`
    /// becomes ready, at once if it is, and when the stream fails or is hung up. Returns false if the stream is closed or has too
    /// many waiters.
    pub fn wait(&mut self, s: StreamId, waiter: WaiterId, interest: Interest) -> bool {
        let now = self.poll_for(s, interest);
        let Some((stream, scheduler)) = self.streams.parts(s) else { return false };
        stream.head.wait(s, waiter, interest, now, scheduler)
    }

    /// Removes a waiter.
    pub fn cancel_wait(&mut self, s: StreamId, waiter: WaiterId) {
        if let Some(stream) = self.streams.get_mut(s) {
            stream.head.waiters().remove(waiter);
        }
    }

    /// Appends the waiters that were woken, and forgets them.
    pub fn take_woken(&mut self, woken: &mut Vec<Woken>) {
        self.streams.scheduler.take_woken(woken);
    }

    /// Polls as [`Executive::poll`] does; for a writer, also registers with the queue below, so that the queue wakes it.
    fn poll_for(&mut self, s: StreamId, interest: Interest) -> Readiness {
        if interest.contains(Interest::WRITABLE)
            && let Some((stream, _)) = self.streams.parts(s)
        {
            let _ = stream.next_down().canput(0);
        }
        self.poll(s)
    }

    /// Registers a program for signals when one of `events` happens (`I_SETSIG`, `I_ESETSIG`); an empty set unregisters it.
    /// Returns false if the stream is closed or has too many programs.
    pub fn set_signals(&mut self, s: StreamId, program: u64, events: SignalEvents) -> bool {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return false };
        stream.head.waiters().register(s, program, events, scheduler)
    }

    /// Returns the events that a program is registered for (`I_GETSIG`, `I_EGETSIG`).
    pub fn signals(&mut self, s: StreamId, program: u64) -> Option<SignalEvents> {
        self.streams.get_mut(s)?.head.waiters().registered(program)
    }

    /// Takes the next signal that is due to a program. Events that happen before it is taken share one signal.
    pub fn take_signal_notice(&mut self) -> Option<SignalNotice> {
        while let Some((s, program)) = self.streams.scheduler.next_signal() {
            let stream = self.streams.get_mut(s);
            if let Some(notice) = stream.and_then(|stream| stream.head.waiters().take_notice(s, program)) {
                return Some(notice);
            }
        }
        None
    }

    /// Appends the streams whose interest became ready, each once, and forgets them.
    pub fn take_wakeups(&mut self, woken: &mut Vec<StreamId>) {
        while let Some(s) = self.streams.scheduler.next_wakeup() {
            if let Some(stream) = self.streams.get_mut(s) {
                stream.head.unlist();
                woken.push(s);
            }
        }
    }

    /// Returns whether [`Executive::take_wakeups`] would return a stream.
    #[inline]
    pub fn has_wakeups(&self) -> bool {
        self.streams.scheduler.has_wakeups()
    }

    /// Lets every driver take what has arrived; returns whether more may have.
    ///
    /// # Errors
    ///
    /// The first error of a driver; all drivers are called nevertheless.
    pub fn receive(&mut self, now: Instant) -> io::Result<bool> {
        let now = self.advance(now);
        let mut result = Ok(false);
        for driver in &mut self.drivers {
            let received = driver.receive(&mut Cx::new(&mut self.streams), now);
            result = match (result, received) {
                (Ok(earlier), Ok(more)) => Ok(earlier | more),
                (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            };
        }
        self.deliver_posts();
        result
    }

    /// Returns whether [`Executive::receive`] has work that no descriptor announces.
    pub fn has_arrivals(&self) -> bool {
        self.drivers.iter().any(|driver| driver.has_arrivals())
    }

    /// Returns whether a driver should send its waiting data now. Coalesced bytes of heads do not count: see
    /// [`Executive::is_coalescing`].
    pub fn flush_due(&self) -> bool {
        self.drivers.iter().any(|driver| driver.flush_due())
    }

    /// Returns whether a head may hold coalesced bytes that only a flush sends down.
    #[inline]
    pub fn is_coalescing(&self) -> bool {
        self.streams.scheduler.coalescing() > 0
    }

    /// Returns whether work is left that needs no open stream: in a driver, or for a stream that was closed.
    pub fn is_busy(&self) -> bool {
        self.streams.scheduler.draining() > 0 || self.drivers.iter().any(|driver| driver.is_busy())
    }

    /// Returns whether a driver or a head holds data that only a flush of everything sends.
    pub fn has_unsent(&self) -> bool {
        self.is_coalescing() || self.drivers.iter().any(|driver| driver.has_unsent())
    }

    /// Makes the drivers pass waiting data, or only what is due, to their links. A flush of everything first sends down the
    /// coalesced bytes of heads, as far as there is room.
    pub fn flush(&mut self, now: Instant, scope: FlushScope) {
        let now = self.advance(now);
        if scope == FlushScope::All {
            self.flush_heads();
        }
        for driver in &mut self.drivers {
            driver.flush(&mut Cx::new(&mut self.streams), now, scope);
        }
        self.deliver_posts();
    }

    /// Calls `f` with each descriptor that the drivers wait for, and with the interest.
    pub fn descriptors(&self, f: &mut dyn FnMut(BorrowedFd<'_>, Interest)) {
        for driver in &self.drivers {
            driver.descriptors(f);
        }
    }

    fn flush_heads(&mut self) {
        // A head that is listed again meanwhile waits for the next flush.
        for _ in 0..self.streams.scheduler.coalescing() {
            let Some(s) = self.streams.scheduler.next_coalescing() else { return };
            // A full driver leaves the bytes in the head until it enables the head's service; the next write reports a failure.
            let _ = self.flush_head(s);
            if let Some((stream, ..)) = self.streams.all_parts(s) {
                stream.head.coalesced.unlist();
            }
        }
    }
}
