//! Tail loss probes: the end of a burst has no followers that could show its loss (RFC 8985 §7).

use std::time::Duration;

use crate::packet_number::after;
use crate::time::Time;

/// The earliest that a probe follows a packet: less is the noise of schedulers.
const PROBE_TIME_MIN: Duration = Duration::from_millis(10);
/// Probes in a row, each after twice the time of the one before; then the retransmission timer decides.
const PROBES_MAX: u32 = 3;

/// The probing of one path.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// When the next probe is due, if nothing arrives before.
    at: Option<Time>,
    /// A packet may leave now, whatever the window is.
    due: bool,
    /// Probes since something arrived.
    sent: u32,
    /// The packet of the probe that repeats data.
    repeat: Option<u32>,
}

/// What the path knows when a probe is planned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TailState {
    pub(crate) last_sent_at: Time,
    pub(crate) srtt: Option<Duration>,
    /// The timeout before its lower bound: as long as a round trip may reasonably take.
    pub(crate) longest: Duration,
    /// How long the peer may keep a SACK to itself.
    pub(crate) ack_delay: Duration,
}

impl Tail {
    pub(crate) fn at(&self) -> Option<Time> {
        self.at
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Plans the next probe: two round trips after the last packet, more if they vary much, and one after now. Without a
    /// measured round trip there is none.
    pub(crate) fn plan(&mut self, now: Time, state: TailState) {
        self.at = state.srtt.filter(|_| self.sent < PROBES_MAX).map(|srtt| {
            let answer = (2 * srtt).max(state.longest).max(PROBE_TIME_MIN);
            let after = (answer + state.ack_delay) * (1 << self.sent);
            (state.last_sent_at + after).max(now + srtt)
        });
    }

    /// Nothing is in flight, or another timer speaks for it.
    pub(crate) fn cancel(&mut self) {
        (self.at, self.due) = (None, false);
    }

    /// The time has come.
    pub(crate) fn expire(&mut self) {
        (self.at, self.due) = (None, true);
    }

    /// A packet has left. True: it was the probe.
    #[inline]
    pub(crate) fn on_sent(&mut self, number: u32, repeats: bool) -> bool {
        if !std::mem::take(&mut self.due) {
            return false;
        }
        self.sent += 1;
        if repeats {
            self.repeat = Some(number);
        }
        true
    }

    /// The peer has had something twice: the probe was not needed.
    pub(crate) fn on_duplicate(&mut self) {
        self.repeat = None;
    }

    /// Something arrived; `newest` is the newest packet acknowledged. True: the probe brought what had been lost, which is
    /// a sign of congestion (RFC 8985 §7.4). Only the arrival of what left after the probe shows that: before, the peer may
    /// have had no time to report the probe.
    pub(crate) fn on_acked(&mut self, newest: u32) -> bool {
        self.sent = 0;
        self.repeat.take_if(|number| after(newest, *number)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Duration = Duration::from_millis(50);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn state(last_sent_at: Time, srtt: Option<Duration>) -> TailState {
        TailState { last_sent_at, srtt, longest: Duration::ZERO, ack_delay: Duration::ZERO }
    }

    #[test]
    fn a_probe_follows_two_round_trips_after_the_last_packet() {
        let mut tail = Tail::default();
        tail.plan(at(0), state(at(0), None));
        assert_eq!(tail.at(), None);
        tail.plan(at(0), state(at(0), Some(SRTT)));
        assert_eq!(tail.at(), Some(at(100)));
        // The answer to earlier packets, after one round trip, does not put it off.
        tail.plan(at(50), state(at(0), Some(SRTT)));
        assert_eq!(tail.at(), Some(at(100)));
        tail.plan(at(80), state(at(0), Some(SRTT)));
        assert_eq!(tail.at(), Some(at(130)));
        tail.plan(at(0), state(at(0), Some(Duration::from_micros(20))));
        assert_eq!(tail.at(), Some(at(10)));
    }

    #[test]
    fn three_probes_and_no_more() {
        let mut tail = Tail::default();
        for wait in [100, 200, 400] {
            tail.plan(at(0), state(at(0), Some(SRTT)));
            assert_eq!(tail.at(), Some(at(wait)));
            tail.expire();
            assert!(tail.on_sent(1, true));
        }
        tail.plan(at(0), state(at(0), Some(SRTT)));
        assert_eq!(tail.at(), None);
        tail.on_acked(1);
        tail.plan(at(500), state(at(500), Some(SRTT)));
        assert_eq!(tail.at(), Some(at(600)));
    }

    #[test]
    fn round_trips_that_vary_put_the_probe_off() {
        let mut tail = Tail::default();
        let longest = Duration::from_millis(300);
        tail.plan(at(0), TailState { longest, ..state(at(0), Some(SRTT)) });
        assert_eq!(tail.at(), Some(at(300)));
    }

    #[test]
    fn a_probe_that_was_needed_is_a_sign_of_congestion() {
        for duplicate in [false, true] {
            let mut tail = Tail::default();
            tail.expire();
            tail.on_sent(7, true);
            assert!(!tail.on_acked(7));
            if duplicate {
                tail.on_duplicate();
            }
            assert_eq!(tail.on_acked(8), !duplicate);
            assert!(!tail.on_acked(9), "only once");
        }
    }
}
