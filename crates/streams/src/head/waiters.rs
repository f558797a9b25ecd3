//! Waiters of a stream: the owner's interest, several waiters, and programs that asked for signals.

use super::{Interest, WaiterId, Woken};
use crate::bit_set::bit_set;
use crate::identifiers::StreamId;
use crate::scheduler::Scheduler;

/// Events for which a program can request signals (`I_SETSIG`): a set of bits with the numbers of SVR4.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalEvents(u16);

impl SignalEvents {
    /// No event.
    pub const NONE: Self = Self(0);
    /// `S_INPUT`: a message other than one of high priority has come.
    pub const INPUT: Self = Self(0x0001);
    /// `S_HIPRI`: a message of high priority has come.
    pub const HIGH_PRIORITY: Self = Self(0x0002);
    /// `S_OUTPUT`, `S_WRNORM`: there is room below for normal messages.
    pub const OUTPUT: Self = Self(0x0004);
    /// `S_MSG`: a signal message stands at the front of the queue.
    pub const MESSAGE: Self = Self(0x0008);
    /// `S_ERROR`: the stream has failed.
    pub const ERROR: Self = Self(0x0010);
    /// `S_HANGUP`: the other end is gone.
    pub const HANGUP: Self = Self(0x0020);
    /// `S_RDNORM`: a message of band 0 has come.
    pub const READ_NORMAL: Self = Self(0x0040);
    /// `S_RDBAND`: a message of another band has come.
    pub const READ_BAND: Self = Self(0x0080);
    /// `S_WRBAND`: there is room below for a band other than 0.
    pub const WRITE_BAND: Self = Self(0x0100);
    /// `S_BANDURG`: with `S_RDBAND`, the signal is SIGURG.
    pub const BAND_URGENT: Self = Self(0x0200);
    const ALL: u16 = 0x03ff;

    /// Returns the set with these bits; `None` if a bit is undefined.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits & !Self::ALL == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns the set as bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the events that correspond to conditions which become ready.
    pub(crate) fn of(what: Interest) -> Self {
        let pairs = [
            (Interest::READ_NORMAL, Self::READ_NORMAL | Self::INPUT),
            (Interest::READ_BAND, Self::READ_BAND | Self::INPUT),
            (Interest::PRIORITY, Self::HIGH_PRIORITY),
            (Interest::WRITABLE, Self::OUTPUT),
            (Interest::WRITE_BAND, Self::WRITE_BAND),
        ];
        let come = pairs.into_iter().filter(|(interest, _)| what.intersects(*interest));
        come.fold(Self::NONE, |all, (_, events)| all | events)
    }

    /// Returns the conditions that can cause these events.
    fn interest(self) -> Interest {
        let pairs = [
            (Self::INPUT | Self::MESSAGE, Interest::READABLE | Interest::PRIORITY),
            (Self::READ_NORMAL, Interest::READ_NORMAL),
            (Self::READ_BAND, Interest::READ_BAND),
            (Self::HIGH_PRIORITY, Interest::PRIORITY),
            (Self::OUTPUT, Interest::WRITABLE),
            (Self::WRITE_BAND, Interest::WRITE_BAND),
        ];
        let asked = pairs.into_iter().filter(|(events, _)| self.intersects(*events));
        asked.fold(Interest::NONE, |all, (_, interest)| all | interest)
    }
}

bit_set!(SignalEvents);

/// A signal that is due to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalNotice {
    /// The stream.
    pub stream: StreamId,
    /// The program, as it was registered.
    pub program: u64,
    /// The requested events that have happened since the last notice.
    pub events: SignalEvents,
}

impl SignalNotice {
    /// Returns whether the signal is SIGURG instead of SIGPOLL.
    pub fn is_urgent(&self) -> bool {
        self.events.intersects(SignalEvents::BAND_URGENT)
    }
}

#[derive(Debug)]
struct Registration {
    program: u64,
    events: SignalEvents,
    /// Events that have happened and were not taken yet.
    pending: SignalEvents,
}

/// All waiters of one stream.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Union of all interests; cached for the fast path.
    any: Interest,
    /// The owner's interest.
    wanted: Interest,
    /// The stream is in the list of wake-ups.
    listed: bool,
    waiters: Vec<(WaiterId, Interest)>,
    registrations: Vec<Registration>,
}

/// Largest number of waiters, and of programs with signals, of one stream.
const WAITERS_MAX: usize = 1024;

impl Waiters {
    /// Returns whether anybody waits for one of these.
    #[inline]
    pub(crate) fn wait_for(&self, what: Interest) -> bool {
        self.any.intersects(what)
    }

    /// Replaces the owner's interest.
    pub(crate) fn want(&mut self, wanted: Interest) {
        self.wanted = wanted;
        self.sum_up();
    }

    /// Adds a waiter or replaces its interest. Returns false if there are too many.
    pub(crate) fn add(&mut self, waiter: WaiterId, interest: Interest) -> bool {
        self.remove(waiter);
        if self.waiters.len() >= WAITERS_MAX {
            return false;
        }
        self.waiters.push((waiter, interest));
        self.sum_up();
        true
    }

    pub(crate) fn remove(&mut self, waiter: WaiterId) {
        self.waiters.retain(|(other, _)| *other != waiter);
        self.sum_up();
    }

    /// Registers a program for signals; an empty set unregisters it. Returns false if there are too many.
    pub(crate) fn register(
        &mut self,
        s: StreamId,
        program: u64,
        events: SignalEvents,
        scheduler: &mut Scheduler,
    ) -> bool {
        self.registrations.retain(|registration| registration.program != program);
        // Forgets pending events, and removes the program from the list of due signals.
        scheduler.forget_signals(s, Some(program));
        if events != SignalEvents::NONE {
            if self.registrations.len() >= WAITERS_MAX {
                return false;
            }
            self.registrations.push(Registration { program, events, pending: SignalEvents::NONE });
        }
        self.sum_up();
        true
    }

    /// Returns the events that a program is registered for.
    pub(crate) fn registered(&self, program: u64) -> Option<SignalEvents> {
        self.registrations.iter().find(|registration| registration.program == program).map(|r| r.events)
    }

    fn sum_up(&mut self) {
        let waiters = self.waiters.iter().map(|(_, interest)| *interest);
        let programs = self.registrations.iter().map(|registration| registration.events.interest());
        self.any = waiters.chain(programs).fold(self.wanted, |all, one| all | one);
    }

    /// Wakes those who wait for one of these, each once.
    #[cold]
    pub(crate) fn wake(&mut self, s: StreamId, what: Interest, scheduler: &mut Scheduler) {
        if self.wanted.intersects(what) {
            self.wanted = self.wanted.without(what);
            self.list(s, scheduler);
        }
        self.waiters.retain(|&(waiter, interest)| {
            let ready = interest.and(what);
            if ready != Interest::NONE {
                scheduler.list_woken(Woken { stream: s, waiter, ready });
            }
            ready == Interest::NONE
        });
        self.sum_up();
    }

    /// Wakes all waiters, whatever they wait for.
    #[cold]
    pub(crate) fn wake_all(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        if self.wanted != Interest::NONE {
            self.wanted = Interest::NONE;
            self.list(s, scheduler);
        }
        for (waiter, ready) in self.waiters.drain(..) {
            scheduler.list_woken(Woken { stream: s, waiter, ready });
        }
        self.sum_up();
    }

    /// Puts the stream on the list of wake-ups, once.
    #[cold]
    pub(crate) fn list(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        if !std::mem::replace(&mut self.listed, true) {
            scheduler.list_wakeup(s);
        }
    }

    /// Notes that the stream was removed from the list of wake-ups.
    pub(crate) fn unlist(&mut self) {
        self.listed = false;
    }

    /// Records events for the programs that asked for them. Events are merged, not queued, so a flood of them takes no memory.
    pub(crate) fn signal(&mut self, s: StreamId, events: SignalEvents, scheduler: &mut Scheduler) {
        for registration in &mut self.registrations {
            let due = registration.events.and(events);
            if due == SignalEvents::NONE {
                continue;
            }
            if registration.pending == SignalEvents::NONE {
                scheduler.list_signal(s, registration.program);
            }
            registration.pending |= due;
            if due.intersects(SignalEvents::READ_BAND) {
                registration.pending |= registration.events.and(SignalEvents::BAND_URGENT);
            }
        }
    }

    /// Takes the recorded events of a program.
    pub(crate) fn take_notice(&mut self, s: StreamId, program: u64) -> Option<SignalNotice> {
        let registration = self.registrations.iter_mut().find(|r| r.program == program)?;
        let events = std::mem::take(&mut registration.pending);
        (events != SignalEvents::NONE).then_some(SignalNotice { stream: s, program, events })
    }

    /// Returns whether a program is registered for signals.
    #[inline]
    pub(crate) fn has_programs(&self) -> bool {
        !self.registrations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_program_that_registers_again_and_again_is_due_one_signal() {
        let (mut waiters, mut scheduler) = (Waiters::default(), Scheduler::new(Instant::now()));
        let s = StreamId { index: 3, generation: 5 };
        for _ in 0..100 {
            assert!(waiters.register(s, 7, SignalEvents::INPUT, &mut scheduler));
            waiters.signal(s, SignalEvents::INPUT, &mut scheduler);
        }
        assert_eq!(scheduler.next_signal(), Some((s, 7)));
        assert_eq!(scheduler.next_signal(), None);
        assert!(waiters.register(s, 7, SignalEvents::INPUT, &mut scheduler));
        waiters.signal(s, SignalEvents::INPUT, &mut scheduler);
        assert!(waiters.register(s, 7, SignalEvents::NONE, &mut scheduler));
        assert_eq!(scheduler.next_signal(), None, "a program that is no longer registered");
    }
}
