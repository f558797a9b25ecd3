//! The retransmission timeout of a path (RFC 9260 §6.3).

use std::time::Duration;

use crate::config::RtoConfig;

/// Smoothed round-trip time and the timeout that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Rto {
    latest: Option<Duration>,
    srtt: Option<Duration>,
    rttvar: Duration,
    rto: Duration,
    /// The longest timeout that there was.
    rto_max: Duration,
}

impl Rto {
    pub(crate) fn new(config: &RtoConfig) -> Self {
        Rto { latest: None, srtt: None, rttvar: Duration::ZERO, rto: config.initial, rto_max: config.initial }
    }

    /// Takes one measurement; Karn's rule is the caller's (RFC 9260 §6.3.1 C2 to C7).
    pub(crate) fn measure(&mut self, rtt: Duration, config: &RtoConfig) {
        self.latest = Some(rtt);
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2;
            }
            Some(srtt) => {
                let error = srtt.abs_diff(rtt);
                self.rttvar = self.rttvar * 3 / 4 + error / 4;
                self.srtt = Some(srtt * 7 / 8 + rtt / 8);
            }
        }
        self.restore(config);
    }

    /// Takes back what was doubled.
    pub(crate) fn restore(&mut self, config: &RtoConfig) {
        self.rto = self.unbounded().clamp(config.min, config.max);
        self.rto_max = self.rto_max.max(self.rto);
    }

    /// The limits have changed. What was measured or doubled stays, within them.
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

    /// The timeout as measured, without its bounds and without back-off.
    pub(crate) fn unbounded(&self) -> Duration {
        self.srtt.unwrap_or_default() + 4 * self.rttvar
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// The newest round-trip time.
    pub(crate) fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// The variation of the round-trip time.
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

    #[test]
    fn follows_the_rules_of_section_6_3() {
        let config = RtoConfig::default();
        let mut rto = Rto::new(&config);
        assert_eq!(rto.current(), Duration::from_secs(1));
        rto.measure(Duration::from_millis(800), &config);
        assert_eq!(rto.current(), Duration::from_millis(800 + 4 * 400));
        rto.measure(Duration::from_millis(1), &config);
        assert!(rto.current() >= config.min);
        for _ in 0..20 {
            rto.back_off(&config);
        }
        assert_eq!(rto.current(), config.max);
    }
}
