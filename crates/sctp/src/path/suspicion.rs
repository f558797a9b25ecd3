//! Whether a path has fallen silent, long before T3 would tell.
//!
//! A path is suspected when the oldest packet in flight on it has gone unanswered for longer than a round trip reasonably
//! takes, and nothing that left after it was answered either. Data avoids it then, and heartbeats ask it often, until one
//! is answered.

use std::time::Duration;

use crate::time::Time;

/// The least patience: less is the noise of schedulers.
const PATIENCE_MIN: Duration = Duration::from_millis(50);
/// How often the patience is doubled at most.
const DOUBLINGS_MAX: u32 = 3;
/// A mistake older than this is forgotten.
const MISTAKE_LIFE: Duration = Duration::from_secs(60);
/// How often a suspected path is asked, and for how long.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
const PROBING_TIME: Duration = Duration::from_secs(60);

/// How often the time is doubled at most that data stays away from a path which swallows it. A path is asked often for longer.
const VAIN_DOUBLINGS_MAX: u32 = 7;

/// What a path knows of its silence.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    /// When the path fell silent, if it has not answered since.
    since: Option<Time>,
    /// Suspicions lately in which the first heartbeat was answered: the path had merely been slow.
    mistakes: u32,
    mistaken_at: Time,
    /// What the path had delivered when it was suspected with data on it.
    delivered_bytes: Option<u64>,
    /// How often in a row it has answered heartbeats since then, and delivered nothing of what was tried.
    vain: u32,
}

impl Suspicion {
    /// How long an answer may take.
    #[inline]
    pub(crate) fn patience(&self, srtt: Duration, longest: Duration) -> Duration {
        (srtt * 3 / 2).max(longest).max(PATIENCE_MIN) * (1 << self.mistakes)
    }

    /// The path has fallen silent. `delivered_bytes`: what it has delivered up to now, if data is on it. True: that is news.
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

    /// Whether data stays away although a heartbeat was answered: the path has answered before and then swallowed all.
    pub(crate) fn holds(&self, now: Time) -> bool {
        let time = PROBE_INTERVAL * (1 << self.vain);
        self.vain > 0 && self.since.is_some_and(|since| now.saturating_since(since) < time)
    }

    /// When the next heartbeat is due after one that leaves now, as long as the path is asked often.
    pub(crate) fn next_probe(&self, now: Time, srtt: Option<Duration>) -> Option<Time> {
        self.since
            .filter(|since| now.saturating_since(*since) < PROBING_TIME)
            .map(|_| now + srtt.unwrap_or_default().max(PROBE_INTERVAL))
    }

    /// The path has answered what was sent at that time. True: it had been suspected by mistake, and has more time from
    /// now on.
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
        let suspicion = Suspicion::default();
        assert_eq!(suspicion.patience(SRTT, Duration::ZERO), Duration::from_millis(150));
        assert_eq!(suspicion.patience(SRTT, Duration::from_millis(180)), Duration::from_millis(180));
        assert_eq!(suspicion.patience(Duration::ZERO, Duration::ZERO), PATIENCE_MIN);
    }

    #[test]
    fn a_suspected_path_is_asked_often_for_a_minute() {
        let mut suspicion = Suspicion::default();
        assert_eq!(suspicion.next_probe(at(0), None), None);
        assert!(suspicion.begin(at(0), None));
        assert!(!suspicion.begin(at(5), None), "it is suspected already");
        assert_eq!(suspicion.next_probe(at(10), Some(SRTT)), Some(at(260)));
        assert_eq!(suspicion.next_probe(at(10), Some(4 * SRTT)), Some(at(410)));
        assert_eq!(suspicion.next_probe(at(60_000), Some(SRTT)), None);
    }

    #[test]
    fn each_mistake_doubles_the_patience_for_a_while() {
        let mut suspicion = Suspicion::default();
        let patience = |suspicion: &Suspicion| suspicion.patience(SRTT, Duration::ZERO).as_millis();
        for expected in [300, 600, 1200, 1200] {
            suspicion.begin(at(10), None);
            assert!(suspicion.end(at(400), at(10)));
            assert_eq!(patience(&suspicion), expected);
        }
        // A path that does not answer the first heartbeat was suspected rightly.
        suspicion.begin(at(100_000), None);
        assert!(!suspicion.end(at(100_500), at(100_250)));
        assert_eq!(patience(&suspicion), 150);
        assert!(!suspicion.end(at(100_500), at(0)), "it was not suspected");
    }

    #[test]
    fn a_path_that_answers_and_swallows_data_gets_it_ever_later() {
        let mut suspicion = Suspicion::default();
        for held_ms in [0, 500, 1000, 2000] {
            suspicion.begin(at(10), Some(5000));
            assert!(held_ms == 0 || suspicion.holds(at(10 + held_ms - 1)));
            assert!(!suspicion.holds(at(10 + held_ms)));
            suspicion.end(at(5000), at(4900));
        }
        suspicion.begin(at(6000), Some(5001));
        assert!(!suspicion.holds(at(6000)), "something has arrived meanwhile");
    }
}
