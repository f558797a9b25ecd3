//! Tail loss probes: detect the loss of the end of a burst, which no later packet can show (RFC 8985 §7).
//!
//! A few probes repeat data. A path that answers none of them is silent: heartbeats probe it, and the tail is probed at once when
//! it answers one. A path that falls silent after T3 has expired is treated the same way, because data sent then was a
//! retransmission, and further copies would add to the congestion that T3 has detected.

use std::time::Duration;

use super::silence::PROBE_INTERVAL;
use crate::packet_number::PacketNumber;
use crate::time::Time;
use crate::tsn::TsnRanges;

/// Minimum time between a packet and its probe: shorter times are scheduling noise.
const PROBE_TIME_MIN: Duration = Duration::from_millis(10);
/// Maximum number of probes in a row, each after twice the time of the one before, up to [`PROBE_INTERVAL`]; then the path is
/// silent.
const PROBES_MAX: u32 = 3;

/// Action to take when the time of a probe has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Send a probe.
    Probe,
    /// Stop repeating data: the path is silent.
    Silence,
}

/// The tail loss probes of one path.
#[derive(Debug, Default)]
pub(crate) struct TailLossProbe {
    /// Time when the next probe is due, if nothing arrives before.
    at: Option<Time>,
    /// Whether a packet may be sent now, whatever the window is.
    due: bool,
    /// Number of probes since the last arrival.
    sent: u32,
    /// Whether the path is silent, so that no probe is planned until something arrives.
    silent: bool,
    /// The last probe, if it repeated data, until it has shown whether that was needed.
    repeat: Option<Repeat>,
}

/// A probe that repeated data.
#[derive(Debug)]
struct Repeat {
    packet: PacketNumber,
    tsns: TsnRanges,
}

/// The values that determine the time of a probe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeTime {
    pub(crate) last_sent_at: Time,
    pub(crate) srtt: Option<Duration>,
    /// The RTO before its lower bound: the longest reasonable round-trip time.
    pub(crate) longest: Duration,
    /// Maximum delay of the peer's SACK.
    pub(crate) sack_delay: Duration,
}

impl TailLossProbe {
    #[inline]
    pub(crate) fn at(&self) -> Option<Time> {
        self.at
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Plans the next probe: two round trips after the last packet, more if they vary much, and one after now. Plans none without
    /// a measured round trip, or for a silent path.
    #[inline]
    pub(crate) fn plan(&mut self, now: Time, times: ProbeTime) {
        self.at = times.srtt.filter(|_| !self.silent).map(|srtt| {
            let answer = (2 * srtt).max(times.longest).max(PROBE_TIME_MIN);
            let first = answer + times.sack_delay;
            let wait = (first * (1 << self.sent)).min(first.max(PROBE_INTERVAL));
            (times.last_sent_at + wait).max(now + srtt)
        });
    }

    /// Stops probing: nothing is in flight, or another timer guards it.
    #[inline]
    pub(crate) fn cancel(&mut self) {
        (self.at, self.due) = (None, false);
    }

    /// Handles the timer of the probe. `after_timeout`: T3 has expired, and the chunks that it declared lost are being repaired.
    /// RFC 8985 §7.2 has no probe then.
    pub(crate) fn expire(&mut self, after_timeout: bool) -> Expired {
        self.at = None;
        self.silent = after_timeout || self.sent >= PROBES_MAX;
        self.due = !self.silent;
        if self.silent { Expired::Silence } else { Expired::Probe }
    }

    /// Stops probes until something arrives.
    pub(crate) fn on_silence(&mut self) {
        self.cancel();
        self.silent = true;
    }

    /// Permits probes again, because the path has answered a heartbeat.
    pub(crate) fn on_silence_ended(&mut self) {
        (self.sent, self.silent) = (0, false);
    }

    /// Lets a probe leave now.
    pub(crate) fn probe_at_once(&mut self) {
        (self.at, self.due) = (None, true);
    }

    /// Records a sent packet. `repeated` has its TSNs if it repeats data. Returns whether it was the probe.
    #[inline]
    pub(crate) fn on_sent(&mut self, packet: PacketNumber, repeated: Option<&TsnRanges>) -> bool {
        if !std::mem::take(&mut self.due) {
            return false;
        }
        self.sent += 1;
        if let Some(tsns) = repeated {
            self.repeat = Some(Repeat { packet, tsns: tsns.clone() });
        }
        true
    }

    /// Handles the peer's report that it has received `tsn` twice: a probe that repeated it was not needed.
    pub(crate) fn on_duplicate(&mut self, tsn: u64) {
        self.repeat.take_if(|repeat| repeat.tsns.iter().any(|tsns| tsns.contains(&tsn)));
    }

    /// Handles the acknowledgement of packet `newest`, the newest one. Returns whether the probe repaired a loss, which indicates
    /// congestion (RFC 8985 §7.4). Only the arrival of a packet sent after the probe shows that: before, the peer may not have
    /// had time to report the probe as a duplicate.
    #[inline]
    pub(crate) fn on_acked(&mut self, newest: PacketNumber) -> bool {
        self.on_silence_ended();
        self.repeat.take_if(|repeat| newest.is_after(repeat.packet)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Duration = Duration::from_millis(50);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn state(last_sent_at: Time, srtt: Option<Duration>) -> ProbeTime {
        ProbeTime { last_sent_at, srtt, longest: Duration::ZERO, sack_delay: Duration::ZERO }
    }

    #[test]
    fn a_probe_follows_two_round_trips_after_the_last_packet() {
        let mut probe = TailLossProbe::default();
        probe.plan(at(0), state(at(0), None));
        assert_eq!(probe.at(), None);
        probe.plan(at(0), state(at(0), Some(SRTT)));
        assert_eq!(probe.at(), Some(at(100)));
        // The answer to earlier packets, after one round trip, does not put it off.
        probe.plan(at(50), state(at(0), Some(SRTT)));
        assert_eq!(probe.at(), Some(at(100)));
        probe.plan(at(80), state(at(0), Some(SRTT)));
        assert_eq!(probe.at(), Some(at(130)));
        probe.plan(at(0), state(at(0), Some(Duration::from_micros(20))));
        assert_eq!(probe.at(), Some(at(10)));
    }

    #[test]
    fn three_probes_and_then_silence() {
        let mut probe = TailLossProbe::default();
        for wait in [100, 200, 250] {
            probe.plan(at(0), state(at(0), Some(SRTT)));
            assert_eq!(probe.at(), Some(at(wait)));
            assert_eq!(probe.expire(false), Expired::Probe);
            assert!(probe.on_sent(PacketNumber::new(1), None));
        }
        probe.plan(at(0), state(at(0), Some(SRTT)));
        assert_eq!(probe.at(), Some(at(250)));
        assert_eq!(probe.expire(false), Expired::Silence);
        assert!(!probe.is_due());
        probe.plan(at(0), state(at(0), Some(SRTT)));
        assert_eq!(probe.at(), None, "until something arrives");
        probe.on_acked(PacketNumber::new(1));
        probe.plan(at(500), state(at(500), Some(SRTT)));
        assert_eq!(probe.at(), Some(at(600)));
    }

    #[test]
    fn after_a_timeout_there_is_silence_at_once() {
        let mut probe = TailLossProbe::default();
        probe.plan(at(0), state(at(0), Some(SRTT)));
        assert_eq!(probe.expire(true), Expired::Silence);
        assert!(!probe.is_due());
        // A heartbeat was answered.
        probe.on_silence_ended();
        probe.probe_at_once();
        assert!(probe.is_due() && probe.on_sent(PacketNumber::new(1), None));
    }

    #[test]
    fn round_trips_that_vary_put_the_probe_off() {
        let mut probe = TailLossProbe::default();
        let longest = Duration::from_millis(300);
        probe.plan(at(0), ProbeTime { longest, ..state(at(0), Some(SRTT)) });
        assert_eq!(probe.at(), Some(at(300)));
    }

    #[test]
    fn a_probe_that_was_needed_is_a_sign_of_congestion() {
        // The probe repeats TSNs 100 to 102 and 105.
        for (duplicate, was_needed) in
            [(None, true), (Some(101), false), (Some(105), false), (Some(103), true)]
        {
            let mut probe = TailLossProbe::default();
            probe.expire(false);
            probe.on_sent(PacketNumber::new(7), Some(&[100..103, 105..106].into_iter().collect()));
            assert!(!probe.on_acked(PacketNumber::new(7)));
            if let Some(tsn) = duplicate {
                probe.on_duplicate(tsn);
            }
            assert_eq!(probe.on_acked(PacketNumber::new(8)), was_needed, "{duplicate:?}");
            assert!(!probe.on_acked(PacketNumber::new(9)), "only once");
        }
    }
}
