//! Detects the failure of a path long before T3 does.
//!
//! A path is suspected when the oldest packet in flight on it has been unanswered for longer than a round trip reasonably
//! takes, and nothing that left after it was answered either. Data then avoids the path, and frequent heartbeats probe it
//! until one is answered.

use std::time::Duration;

use crate::time::Time;

/// Minimum time allowed for an answer: shorter delays are scheduling noise.
const PATIENCE_MIN: Duration = Duration::from_millis(50);
/// Maximum number of times that this time is doubled.
const DOUBLINGS_MAX: u32 = 3;
/// Age at which a mistake no longer counts.
const MISTAKE_LIFE: Duration = Duration::from_secs(60);
/// Interval of the heartbeats on a suspected path, and the time for which they stay that frequent.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_millis(250);
const PROBING_TIME: Duration = Duration::from_secs(60);
/// Maximum number of times that the avoidance of a path that answers heartbeats but drops data is doubled. Frequent heartbeats
/// last longer than that.
const VAIN_DOUBLINGS_MAX: u32 = 7;

/// Since when the path has not answered, and its record so far.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// When the path fell silent, if it has not answered since.
    since: Option<Time>,
    /// Number of recent mistakes: the first heartbeat was answered, so the path was merely slow.
    mistakes: u32,
    mistaken_at: Time,
    /// Bytes that the path had delivered when it last fell silent with data on it.
    delivered_bytes: Option<u64>,
    /// Number of times in a row that the path has since answered heartbeats and delivered no data.
    vain: u32,
}

impl Silence {
    /// Returns the time allowed for an answer. `longest` is the longest reasonable round-trip time.
    #[inline]
    pub(crate) fn patience(&self, srtt: Duration, longest: Duration) -> Duration {
        (srtt * 3 / 2).max(longest).max(PATIENCE_MIN) * (1 << self.mistakes)
    }

    /// Marks the path as silent. `delivered_bytes`: the number of bytes delivered so far, if data is in flight on it. Returns
    /// whether it was not marked before.
    pub(crate) fn begin(&mut self, now: Time, delivered_bytes: Option<u64>) -> bool {
        if self.since.is_some() {
            return false;
        }
        if delivered_bytes.is_some() {
            let vain = delivered_bytes == std::mem::replace(&mut self.delivered_bytes, delivered_bytes);
            self.vain = if vain { (self.vain + 1).min(VAIN_DOUBLINGS_MAX) } else { 0 };
        }
        if now.saturating_since(self.mistaken_at) > MISTAKE_LIFE {
            self.mistakes = 0;
        }
        self.since = Some(now);
        true
    }

    /// Returns whether the path has answered before without delivering data afterwards.
    pub(crate) fn answers_without_delivering(&self) -> bool {
        self.vain > 0
    }

    /// Returns whether data avoids the path although it has answered a heartbeat, because it did so before and then dropped all
    /// data.
    pub(crate) fn holds(&self, now: Time) -> bool {
        let time = PROBE_INTERVAL * (1 << self.vain);
        self.vain > 0 && self.since.is_some_and(|since| now.saturating_since(since) < time)
    }

    /// Returns when the heartbeat after one at `now` is due, as long as heartbeats are frequent.
    pub(crate) fn next_probe(&self, now: Time, srtt: Option<Duration>) -> Option<Time> {
        self.since
            .filter(|since| now.saturating_since(*since) < PROBING_TIME)
            .map(|_| now + srtt.unwrap_or_default().max(PROBE_INTERVAL))
    }

    /// Ends the silence: the path has answered a packet sent at `asked_at`. Returns whether it was suspected by mistake; it then
    /// gets more time for its answers.
    pub(crate) fn end(&mut self, now: Time, asked_at: Time) -> bool {
        let mistaken = self.since.take().is_some_and(|since| asked_at <= since);
        if mistaken {
            self.mistakes = (self.mistakes + 1).min(DOUBLINGS_MAX);
            self.mistaken_at = now;
        }
        mistaken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn an_answer_may_take_half_as_long_again_or_as_long_as_it_varies() {
        let silence = Silence::default();
        assert_eq!(silence.patience(SRTT, Duration::ZERO), Duration::from_millis(150));
        assert_eq!(silence.patience(SRTT, Duration::from_millis(180)), Duration::from_millis(180));
        assert_eq!(silence.patience(Duration::ZERO, Duration::ZERO), PATIENCE_MIN);
    }

    #[test]
    fn a_suspected_path_is_asked_often_for_a_minute() {
        let mut silence = Silence::default();
        assert_eq!(silence.next_probe(at(0), None), None);
        assert!(silence.begin(at(0), None));
        assert!(!silence.begin(at(5), None), "it is suspected already");
        assert_eq!(silence.next_probe(at(10), Some(SRTT)), Some(at(260)));
        assert_eq!(silence.next_probe(at(10), Some(4 * SRTT)), Some(at(410)));
        assert_eq!(silence.next_probe(at(60_000), Some(SRTT)), None);
    }

    #[test]
    fn each_mistake_doubles_the_patience_for_a_while() {
        let mut silence = Silence::default();
        let patience = |silence: &Silence| silence.patience(SRTT, Duration::ZERO).as_millis();
        for expected in [300, 600, 1200, 1200] {
            silence.begin(at(10), None);
            assert!(silence.end(at(400), at(10)));
            assert_eq!(patience(&silence), expected);
        }
        // A path that does not answer the first heartbeat was suspected rightly.
        silence.begin(at(100_000), None);
        assert!(!silence.end(at(100_500), at(100_250)));
        assert_eq!(patience(&silence), 150);
        assert!(!silence.end(at(100_500), at(0)), "it was not suspected");
    }

    #[test]
    fn a_path_that_answers_and_swallows_data_gets_it_ever_later() {
        let mut silence = Silence::default();
        for held_ms in [0, 500, 1000, 2000] {
            silence.begin(at(10), Some(5000));
            assert!(held_ms == 0 || silence.holds(at(10 + held_ms - 1)));
            assert!(!silence.holds(at(10 + held_ms)));
            silence.end(at(5000), at(4900));
        }
        silence.begin(at(6000), Some(5001));
        assert!(!silence.holds(at(6000)), "something has arrived meanwhile");
    }
}
