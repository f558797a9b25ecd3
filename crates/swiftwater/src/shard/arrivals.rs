//! Takes what has arrived: receives from the sockets, handles expired timers, and answers.

use std::io;
use std::time::{Duration, Instant};

use streams::FlushScope;

use super::Inner;
use super::poller::Poller;

/// Maximum number of receives in one turn, and time of all turns at once, so that a flood does not block the perimeter:
/// packets that cost little are answered together, and those that cost much leave time for other work.
const RECEIVES_MAX: usize = 256;
const ARRIVALS_TIME_MAX: Duration = Duration::from_micros(500);

/// Maximum number of turns that answer packets looped back in memory, before other work is done.
const TURNS_MAX: usize = 8;

/// The results of the last receives.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Whether the last receive left datagrams in the sockets: try them before sleeping.
    are_likely: bool,
    /// Whether arrivals were taken since the last send that transmitted.
    were_taken: bool,
    /// The error of the last receive, if it failed.
    error: Option<String>,
}

impl Arrivals {
    /// Returns whether datagrams are probably left in the sockets.
    pub(super) fn are_likely(&self) -> bool {
        self.are_likely
    }

    /// Returns whether arrivals were taken since the last call of this method.
    #[inline]
    pub(super) fn take_arrived(&mut self) -> bool {
        std::mem::take(&mut self.were_taken)
    }

    /// Returns the error of the last receive, if it failed.
    pub(super) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    /// Handles the result of a receive. Returns whether another one is worth its system call.
    #[inline]
    fn on_received(&mut self, received: io::Result<bool>) -> bool {
        self.are_likely = matches!(received, Ok(true));
        self.error = received.err().map(|error| error.to_string());
        self.are_likely
    }
}

impl Inner {
    /// Handles arrivals and expired timers, transmits the answers, and wakes the affected waiters.
    pub(crate) fn take_arrivals(&mut self) {
        self.guarded(None, |inner| inner.take_arrivals_from(Instant::now()));
    }

    /// Begins a round of the work of modules, unless a task of the runtime does that. A program that never waits polls by its
    /// calls alone.
    pub(crate) fn begin_round_without_task(&mut self) {
        if self.poller.current() != Poller::Task {
            self.executive.begin_round();
        }
    }

    /// Takes arrivals as [`Inner::take_arrivals`] does, from inside a procedure that has just read the clock.
    pub(super) fn take_arrivals_from(&mut self, mut now: Instant) {
        self.arrivals.were_taken = true;
        let until = now + ARRIVALS_TIME_MAX;
        for turn in 1..=TURNS_MAX {
            self.take_turn(now, until);
            // Packets to this stack itself are handled before timers. If this process had to wait for the processor, a
            // timer that expired meanwhile would declare these packets lost.
            if turn < TURNS_MAX
                && let Some(next) = self.next_turn(until)
            {
                now = next;
                continue;
            }
            self.handle_timers(now);
            match self.next_turn(until) {
                Some(next) => now = next,
                None => break,
            }
        }
        self.wake();
        self.notify_observers();
        self.shorten_sleep();
    }

    /// Returns the time of the next turn; `None` if nothing is left that no descriptor announces, or the time is up.
    fn next_turn(&self, until: Instant) -> Option<Instant> {
        self.executive.has_arrivals().then(Instant::now).filter(|now| *now < until)
    }

    /// Handles the datagrams that have arrived, as many as there is time for, and answers them.
    fn take_turn(&mut self, now: Instant, until: Instant) {
        for _ in 0..RECEIVES_MAX {
            if !self.arrivals.on_received(self.executive.with_messages_queued().receive(now))
                || Instant::now() >= until
            {
                break;
            }
        }
        self.answer(now);
    }

    /// Handles expired timers.
    fn handle_timers(&mut self, now: Instant) {
        if self.executive.deadline().is_some_and(|at| at <= now) {
            self.executive.with_messages_queued().timeout(now);
            self.answer(now);
        }
    }

    fn answer(&mut self, now: Instant) {
        let mut executive = self.executive.at(now);
        executive.run();
        if executive.flush_due() {
            executive.flush(now, FlushScope::Due);
        }
    }
}
