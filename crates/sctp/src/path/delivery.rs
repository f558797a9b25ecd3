//! Measures the delivery rate of a path (draft-ietf-ccwg-bbr, "Delivery Rate Samples").

use std::time::Duration;

use crate::congestion::RateSample;
use crate::time::Time;

/// Totals of the data that a path has delivered.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    delivered_bytes: u64,
    delivered_at: Time,
    /// Time when the first packet of the measured flight was sent.
    first_sent_at: Time,
    lost_bytes: u64,
    /// Count up to which the user limits the rate, because no more data waited.
    app_limited_until_bytes: u64,
}

/// State of the path at the time when a packet left.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    pub(crate) delivered_bytes: u64,
    pub(crate) lost_bytes: u64,
    delivered_at: Time,
    first_sent_at: Time,
    pub(crate) in_flight_bytes: usize,
    pub(crate) app_limited: bool,
}

impl Delivery {
    /// Marks a packet that leaves. `in_flight_bytes` includes it; `idle`: no other packet is in flight.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time, in_flight_bytes: usize, idle: bool) -> Mark {
        if idle {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Mark {
            delivered_bytes: self.delivered_bytes,
            lost_bytes: self.lost_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight_bytes,
            app_limited: self.is_app_limited(),
        }
    }

    /// Records that no data waits although the window is open.
    #[inline]
    pub(crate) fn note_app_limited(&mut self, in_flight_bytes: usize) {
        self.app_limited_until_bytes = (self.delivered_bytes + in_flight_bytes as u64).max(1);
    }

    #[inline]
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited_until_bytes > self.delivered_bytes
    }

    pub(crate) fn on_lost(&mut self, bytes: usize) {
        self.lost_bytes += bytes as u64;
    }

    /// Returns the bytes lost so far.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Counts `bytes` that a SACK has acknowledged.
    #[inline]
    pub(crate) fn on_acked(&mut self, now: Time, bytes: usize) {
        self.delivered_bytes += bytes as u64;
        self.delivered_at = now;
    }

    /// Returns the delivery rate according to the newest packet of a SACK; `None` if the SACK came sooner than any round trip
    /// takes.
    #[inline]
    pub(crate) fn sample(
        &mut self,
        mark: &Mark,
        sent_at: Time,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        let send_time = sent_at.saturating_since(mark.first_sent_at);
        let ack_time = self.delivered_at.saturating_since(mark.delivered_at);
        self.first_sent_at = sent_at;
        let interval = send_time.max(ack_time);
        if interval.is_zero() || min_rtt.is_some_and(|least| interval < least) {
            return None;
        }
        Some(RateSample {
            delivered_bytes: self.delivered_bytes - mark.delivered_bytes,
            interval,
            prior_delivered_bytes: mark.delivered_bytes,
            total_delivered_bytes: self.delivered_bytes,
            sent_in_flight_bytes: mark.in_flight_bytes,
            lost_bytes: self.lost_bytes - mark.lost_bytes,
            app_limited: mark.app_limited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_steady_flow_shows_its_rate() {
        // 1000 bytes a millisecond, 50 ms round trip.
        let mut delivery = Delivery::default();
        let mut marks = std::collections::VecDeque::new();
        for ms in 0..500 {
            if ms >= 50 {
                let (mark, sent_at) = marks.pop_front().unwrap();
                delivery.on_acked(at(ms), 1000);
                let sample = delivery.sample(&mark, sent_at, Some(Duration::from_millis(50))).unwrap();
                if ms >= 100 {
                    assert_eq!(sample.bytes_per_s(), 1_000_000);
                    assert!(!sample.app_limited);
                }
            }
            let in_flight = (marks.len() + 1) * 1000;
            marks.push_back((delivery.on_sent(at(ms), in_flight, marks.is_empty()), at(ms)));
        }
    }

    #[test]
    fn packets_of_an_idle_application_are_marked() {
        let mut delivery = Delivery::default();
        delivery.on_sent(at(0), 1000, true);
        delivery.note_app_limited(1000);
        let mark = delivery.on_sent(at(1), 2000, false);
        assert!(mark.app_limited);
        delivery.on_acked(at(50), 1000);
        assert!(!delivery.on_sent(at(51), 2000, false).app_limited);
    }
}
