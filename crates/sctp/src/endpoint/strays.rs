//! Detects floods of strays, packets with unknown verification tags, so that the link steers them away from packets of peers.
//!
//! Receiving a stray costs more than its handling. A link may separate strays before they are received, but only if it knows all
//! valid tags, and each update costs a system call for each new association. So the link gets updates only during a flood.

use std::time::Duration;

use crate::time::Time;

/// Number of strays within `WINDOW` that make a flood: 10,000 in a second.
const FLOOD_STRAYS: u32 = 200;
const WINDOW: Duration = Duration::from_millis(20);
/// Time for which the link steers. If the flood continues, steering begins again after another `WINDOW`.
const STEERING_TIME: Duration = Duration::from_secs(5);
/// Time after which a link that cannot steer is asked again.
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// Minimum interval between updates of the tags. Until the update, packets with a new tag are mixed with the strays, and may be
/// lost.
const RENEWAL_GAP: Duration = Duration::from_millis(1);

/// An update for the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TagUpdate {
    /// All valid tags.
    Tags,
    /// Every tag is valid, because the flood may be over.
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
    /// Whether tags have changed since the last update.
    stale: bool,
}

impl Strays {
    /// Counts a packet with an unknown tag.
    #[inline]
    pub(super) fn on_stray(&mut self, now: Time) {
        if now > self.window_began + WINDOW {
            (self.window_began, self.counted) = (now, 0);
        }
        self.counted = self.counted.saturating_add(1);
    }

    /// Records that an association was added or removed.
    pub(super) fn on_tags_changed(&mut self) {
        self.stale = true;
    }

    /// Records that the link cannot steer by tags.
    pub(super) fn on_refused(&mut self, now: Time) {
        self.state = State::Refused { until: now + REFUSAL_TIME };
    }

    /// Returns an update for the link, if there is one.
    #[inline]
    pub(super) fn poll(&mut self, now: Time) -> Option<TagUpdate> {
        match self.state {
            State::Quiet if self.counted < FLOOD_STRAYS => None,
            State::Quiet => {
                self.state = State::Steering { until: now + STEERING_TIME, told_at: now };
                self.stale = false;
                Some(TagUpdate::Tags)
            }
            State::Steering { until, .. } if now >= until => {
                self.look_again();
                Some(TagUpdate::EveryTag)
            }
            State::Steering { until, told_at } if self.stale && now >= told_at + RENEWAL_GAP => {
                self.stale = false;
                self.state = State::Steering { until, told_at: now };
                Some(TagUpdate::Tags)
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

    /// Feeds strays at an even rate for a time. Returns the updates and when they came.
    fn run(strays: &mut Strays, from: Time, per_s: u64, lasting: Duration) -> Vec<(Duration, TagUpdate)> {
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
        let news: Vec<TagUpdate> = told.iter().map(|(_, news)| *news).collect();
        assert_eq!(news, [TagUpdate::Tags, TagUpdate::EveryTag, TagUpdate::Tags]);
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
        assert_eq!(strays.poll(now), Some(TagUpdate::Tags));
        strays.on_tags_changed();
        assert_eq!(strays.poll(now + RENEWAL_GAP / 2), None);
        assert_eq!(strays.poll(now + RENEWAL_GAP), Some(TagUpdate::Tags));
        assert_eq!(strays.poll(now + 2 * RENEWAL_GAP), None);
    }

    #[test]
    fn a_flood_that_is_over_is_not_steered_away_again() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        let over = Time::ZERO + STEERING_TIME + WINDOW;
        assert_eq!(strays.poll(over), Some(TagUpdate::EveryTag));
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
