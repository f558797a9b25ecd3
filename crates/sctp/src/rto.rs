//! The retransmission timeout of a path (RFC 9260 §6.3).

use std::time::Duration;

use crate::config::RtoConfig;
use crate::time::Time;

/// Smoothed round-trip time and the timeout that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Rto {
    latest: Option<Duration>,
    srtt: Option<Duration>,
    rttvar: Duration,
    measured_at: Option<Time>,
    /// Samples of packets sent before this time are stale: the path was silent until then, and nothing was measured
    /// since.
    stale_before: Option<Time>,
    rto: Duration,
    /// The longest timeout so far.
    rto_max: Duration,
}

impl Rto {
    pub(crate) fn new(config: &RtoConfig) -> Self {
        Rto {
            latest: None,
            srtt: None,
            rttvar: Duration::ZERO,
            measured_at: None,
            stale_before: None,
            rto: config.initial,
            rto_max: config.initial,
        }
    }

    /// Takes the answer to a packet that was sent at that time; the caller applies Karn's rule.
    pub(crate) fn on_answer(&mut self, now: Time, sent_at: Time, config: &RtoConfig) {
        if self.stale_before.is_some_and(|at| sent_at < at) {
            self.restore(config);
        } else {
            self.measure(now, now.saturating_since(sent_at), config);
        }
    }

    /// Takes one measurement (RFC 9260 §6.3.1 C2 to C7).
    pub(crate) fn measure(&mut self, now: Time, rtt: Duration, config: &RtoConfig) {
        self.measured_at = Some(now);
        self.latest = Some(rtt);
        match self.srtt {
            Some(srtt) if self.stale_before.is_none() => {
                let error = srtt.abs_diff(rtt);
                self.rttvar = self.rttvar * 3 / 4 + error / 4;
                self.srtt = Some(srtt * 7 / 8 + rtt / 8);
            }
            _ => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2;
                self.stale_before = None;
            }
        }
        self.restore(config);
    }

    /// Marks the measured times as stale, since the path was silent and answers again. Packets sent before may have
    /// waited for the end of the silence, so their round trips show nothing; the next measurement counts as the first.
    pub(crate) fn mark_stale(&mut self, now: Time) {
        self.stale_before = Some(now);
    }

    /// Returns whether no valid measurement exists.
    pub(crate) fn is_unknown(&self) -> bool {
        self.srtt.is_none() || self.stale_before.is_some()
    }

    /// Returns when the last measurement was taken.
    pub(crate) fn measured_at(&self) -> Option<Time> {
        self.measured_at
    }

    /// Undoes the back-off.
    pub(crate) fn restore(&mut self, config: &RtoConfig) {
        self.rto = self.unbounded().clamp(config.min, config.max);
        self.rto_max = self.rto_max.max(self.rto);
    }

    /// Applies changed limits. Measured and backed-off values stay, within the limits.
    pub(crate) fn change_limits(&mut self, old: &RtoConfig, config: &RtoConfig) {
        let untouched = self.srtt.is_none() && self.rto == old.initial;
        let rto = if untouched { config.initial } else { self.rto };
        self.rto = rto.clamp(config.min, config.max);
        self.rto_max = self.rto_max.max(self.rto);
    }

    /// Doubles the timeout after it expired (RFC 9260 §6.3.3 E2).
    pub(crate) fn back_off(&mut self, config: &RtoConfig) {
        self.rto = (self.rto * 2).min(config.max);
        self.rto_max = self.rto_max.max(self.rto);
    }

    pub(crate) fn current(&self) -> Duration {
        self.rto
    }

    /// Returns the timeout as measured, without its bounds and without back-off.
    pub(crate) fn unbounded(&self) -> Duration {
        self.srtt.unwrap_or_default() + 4 * self.rttvar
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Returns the newest round-trip time.
    pub(crate) fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// Returns the variation of the round-trip time.
    pub(crate) fn rttvar(&self) -> Option<Duration> {
        self.srtt.map(|_| self.rttvar)
    }

    pub(crate) fn longest(&self) -> Duration {
        self.rto_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn follows_the_rules_of_section_6_3() {
        let config = RtoConfig::default();
        let mut rto = Rto::new(&config);
        assert_eq!(rto.current(), ms(1000));
        rto.measure(Time::ZERO, ms(800), &config);
        assert_eq!(rto.current(), ms(800 + 4 * 400));
        rto.measure(Time::ZERO, ms(1), &config);
        assert!(rto.current() >= config.min);
        for _ in 0..20 {
            rto.back_off(&config);
        }
        assert_eq!(rto.current(), config.max);
    }

    #[test]
    fn packets_sent_before_the_end_of_a_silence_give_no_measure() {
        let config = RtoConfig::default();
        let mut rto = Rto::new(&config);
        assert!(rto.is_unknown());
        rto.measure(Time::ZERO, ms(500), &config);
        assert!(!rto.is_unknown());
        let back = Time::ZERO + ms(3000);
        rto.mark_stale(back);
        rto.on_answer(back + ms(10), Time::ZERO + ms(600), &config);
        assert!(rto.is_unknown());
        assert_eq!((rto.srtt(), rto.current()), (Some(ms(500)), ms(1500)), "what was known holds until then");
        rto.on_answer(back + ms(20), back, &config);
        assert!(!rto.is_unknown());
        assert_eq!((rto.srtt(), rto.rttvar()), (Some(ms(20)), Some(ms(10))));
    }
}
