//! Whether so many packets come with verification tags of nobody that the link should steer them away from those of peers.
//!
//! Reading a stray costs more than all that is then done with it. A link may keep strays apart before they are read, but only
//! if it knows every tag that may come, and telling it costs a system call for each association that begins. So it is told
//! while there is a flood.

use std::time::Duration;

use crate::time::Time;

/// So many strays within `WINDOW` are a flood: 10,000 in a second.
const FLOOD_STRAYS: u32 = 200;
const WINDOW: Duration = Duration::from_millis(20);
/// The link steers for so long. If the flood still goes on, it begins anew after another `WINDOW`.
const STEERING_TIME: Duration = Duration::from_secs(5);
/// A link that cannot steer is not asked again for so long.
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// The link is told of new tags no sooner than this after the last time. What comes with one of them before goes among the
/// strays, and is read with luck.
const RENEWAL_GAP: Duration = Duration::from_millis(1);

/// Change that the link must learn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// All tags that may come.
    Tags,
    /// The flood may be over: every tag is expected again.
    EveryTag,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Quiet,
    Steering {
        until: Time,
        told_at: Time,
    },
    Refused {
        until: Time,
    },
}

/// Counts strays.
#[derive(Debug, Default)]
pub(super) struct Strays {
    state: State,
    window_began: Time,
    counted: u32,
    /// Tags have changed since the link was told.
    stale: bool,
}

impl Strays {
    /// Counts a packet with a tag of nobody.
    #[inline]
    pub(super) fn on_stray(&mut self, now: Time) {
        if now > self.window_began + WINDOW {
            (self.window_began, self.counted) = (now, 0);
        }
        self.counted = self.counted.saturating_add(1);
    }

    /// Takes note that an association has come or gone.
    pub(super) fn on_tags_changed(&mut self) {
        self.stale = true;
    }

    /// Takes note that the link cannot steer by the tags that it was told.
    pub(super) fn on_refused(&mut self, now: Time) {
        self.state = State::Refused { until: now + REFUSAL_TIME };
    }

    /// Returns news for the link, if there is any.
    #[inline]
    pub(super) fn poll(&mut self, now: Time) -> Option<News> {
        match self.state {
            State::Quiet if self.counted < FLOOD_STRAYS => None,
            State::Quiet => {
                self.state = State::Steering { until: now + STEERING_TIME, told_at: now };
                self.stale = false;
                Some(News::Tags)
            }
            State::Steering { until, .. } if now >= until => {
                self.look_again();
                Some(News::EveryTag)
            }
            State::Steering { until, told_at } if self.stale && now >= told_at + RENEWAL_GAP => {
                self.stale = false;
                self.state = State::Steering { until, told_at: now };
                Some(News::Tags)
            }
            State::Refused { until } if now >= until => {
                self.look_again();
                None
            }
            State::Steering { .. } | State::Refused { .. } => None,
        }
    }

    fn look_again(&mut self) {
        (self.state, self.counted) = (State::Quiet, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets strays come at an even rate for so long. Returns when the link was told what.
    fn run(strays: &mut Strays, from: Time, per_s: u64, lasting: Duration) -> Vec<(Duration, News)> {
        let mut told = Vec::new();
        for n in 0..per_s * lasting.as_millis() as u64 / 1000 {
            let elapsed = Duration::from_nanos(n * 1_000_000_000 / per_s);
            strays.on_stray(from + elapsed);
            told.extend(strays.poll(from + elapsed).map(|news| (elapsed, news)));
        }
        told
    }

    #[test]
    fn a_flood_is_steered_away_and_the_link_is_told_when_to_look_again() {
        let told = run(&mut Strays::default(), Time::ZERO, 30_000, Duration::from_secs(6));
        let news: Vec<News> = told.iter().map(|(_, news)| *news).collect();
        assert_eq!(news, [News::Tags, News::EveryTag, News::Tags]);
        assert!(told[0].0 < 2 * WINDOW && told[2].0 - told[1].0 < 2 * WINDOW, "{told:?}");
        assert_eq!(told[1].0.as_secs(), STEERING_TIME.as_secs());
    }

    #[test]
    fn a_few_strays_are_no_flood() {
        assert_eq!(run(&mut Strays::default(), Time::ZERO, 5_000, Duration::from_secs(3)), []);
    }

    #[test]
    fn new_tags_are_told_soon_but_not_each_at_once() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        let now = Time::ZERO + WINDOW;
        strays.on_tags_changed();
        assert_eq!(strays.poll(now), Some(News::Tags));
        strays.on_tags_changed();
        assert_eq!(strays.poll(now + RENEWAL_GAP / 2), None);
        assert_eq!(strays.poll(now + RENEWAL_GAP), Some(News::Tags));
        assert_eq!(strays.poll(now + 2 * RENEWAL_GAP), None);
    }

    #[test]
    fn a_flood_that_is_over_is_not_steered_away_again() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        let over = Time::ZERO + STEERING_TIME + WINDOW;
        assert_eq!(strays.poll(over), Some(News::EveryTag));
        assert_eq!(strays.poll(over), None);
    }

    #[test]
    fn tags_that_changed_before_a_flood_are_told_once() {
        let mut strays = Strays::default();
        strays.on_tags_changed();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        assert_eq!(strays.poll(Time::ZERO + WINDOW), None);
    }

    #[test]
    fn a_link_that_refuses_is_left_alone_for_a_while() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        strays.on_refused(Time::ZERO);
        assert_eq!(run(&mut strays, Time::ZERO, 30_000, Duration::from_secs(29)), []);
        let told = run(&mut strays, Time::ZERO + REFUSAL_TIME, 30_000, Duration::from_secs(1));
        assert_eq!(told.len(), 1);
    }
}
