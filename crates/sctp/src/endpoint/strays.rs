//! Detects floods of strays, so that the link steers them away from packets of peers: packets with unknown verification tags,
//! INITs for unused ports, and COOKIE ECHOs with forged cookies.
//!
//! Receiving a stray costs more than its handling. A link may separate strays before they are received, but only if it knows all
//! valid tags and ports, and each update costs a system call for each new association. So the link gets updates only during a
//! flood. A link that cannot take as many tags is told only the ports.

use std::time::Duration;

use crate::time::Time;

/// Number of strays within `WINDOW` that make a flood: 10,000 in a second.
const FLOOD_STRAYS: u32 = 200;
const WINDOW: Duration = Duration::from_millis(20);
/// Time for which the link steers. If the flood continues, steering begins again after another `WINDOW`.
const STEERING_TIME: Duration = Duration::from_secs(5);
/// Time after which a link that cannot take the tags is told them again.
const REFUSAL_TIME: Duration = Duration::from_secs(30);
/// Minimum interval between updates. Until the update, packets with a new tag are mixed with the strays, and may be lost.
const RENEWAL_GAP: Duration = Duration::from_millis(1);

/// An update for the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Update {
    /// All valid tags and ports.
    TagsAndPorts,
    /// All ports; every tag is valid.
    Ports,
    /// Every packet is expected, because the flood may be over.
    Everything,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Quiet,
    Steering {
        until: Time,
        told_at: Time,
        by_tag: bool,
    },
}

/// Counts strays.
#[derive(Debug, Default)]
pub(super) struct Strays {
    state: State,
    window_began: Time,
    counted: u32,
    /// Whether tags have changed since the last update.
    stale_tags: bool,
    /// Whether ports have changed since then.
    stale_ports: bool,
    /// Whether a listener has been added since then.
    new_listener: bool,
}

impl Strays {
    /// Counts a stray.
    #[inline]
    pub(super) fn on_stray(&mut self, now: Time) {
        if now > self.window_began + WINDOW {
            (self.window_began, self.counted) = (now, 0);
        }
        self.counted = self.counted.saturating_add(1);
    }

    /// Records that an association was added or removed.
    pub(super) fn on_tags_changed(&mut self) {
        self.stale_tags = true;
    }

    /// Records that a port has come into use, or is no longer used.
    pub(super) fn on_ports_changed(&mut self) {
        self.stale_ports = true;
    }

    /// Records that a listener was added. The link is told at once, so that it knows the port before the listener's user does.
    pub(super) fn on_listener_added(&mut self) {
        (self.stale_ports, self.new_listener) = (true, true);
    }

    /// Records that the link cannot steer by tags. It is told only the ports, if it takes them.
    pub(super) fn on_tags_refused(&mut self, now: Time) {
        self.state = State::Steering { until: now + REFUSAL_TIME, told_at: Time::ZERO, by_tag: false };
        self.stale_ports = true;
    }

    /// Returns an update for the link, if there is one.
    #[inline]
    pub(super) fn poll(&mut self, now: Time) -> Option<Update> {
        match self.state {
            State::Quiet if self.counted < FLOOD_STRAYS => None,
            State::Quiet => Some(self.steer(now + STEERING_TIME, now, true)),
            State::Steering { until, .. } if now >= until => {
                (self.state, self.counted) = (State::Quiet, 0);
                Some(Update::Everything)
            }
            State::Steering { until, told_at, by_tag } => {
                let is_stale = self.stale_ports || by_tag && self.stale_tags;
                let is_due = self.new_listener || now >= told_at + RENEWAL_GAP;
                (is_stale && is_due).then(|| self.steer(until, now, by_tag))
            }
        }
    }

    fn steer(&mut self, until: Time, told_at: Time, by_tag: bool) -> Update {
        self.state = State::Steering { until, told_at, by_tag };
        (self.stale_tags, self.stale_ports, self.new_listener) = (false, false, false);
        if by_tag { Update::TagsAndPorts } else { Update::Ports }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds strays at an even rate for a time. Returns the updates and when they came.
    fn run(strays: &mut Strays, from: Time, per_s: u64, lasting: Duration) -> Vec<(Duration, Update)> {
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
        let news: Vec<Update> = told.iter().map(|(_, news)| *news).collect();
        assert_eq!(news, [Update::TagsAndPorts, Update::Everything, Update::TagsAndPorts]);
        assert!(told[0].0 < 2 * WINDOW && told[2].0 - told[1].0 < 2 * WINDOW, "{told:?}");
        assert_eq!(told[1].0.as_secs(), STEERING_TIME.as_secs());
    }

    #[test]
    fn a_few_strays_are_no_flood() {
        assert_eq!(run(&mut Strays::default(), Time::ZERO, 5_000, Duration::from_secs(3)), []);
    }

    #[test]
    fn a_flood_begins_with_the_last_stray_of_a_window_and_steering_ends_on_time() {
        let mut strays = Strays::default();
        let window_ends = Time::ZERO + WINDOW;
        (1..FLOOD_STRAYS).for_each(|_| strays.on_stray(Time::ZERO));
        assert_eq!(strays.poll(window_ends), None);
        strays.on_stray(window_ends);
        assert_eq!(strays.poll(window_ends), Some(Update::TagsAndPorts));
        assert_eq!(strays.poll(window_ends + (STEERING_TIME - RENEWAL_GAP)), None);
        assert_eq!(strays.poll(window_ends + STEERING_TIME), Some(Update::Everything));
        (1..FLOOD_STRAYS).for_each(|_| strays.on_stray(window_ends + STEERING_TIME));
        let next_window = window_ends + STEERING_TIME + WINDOW + RENEWAL_GAP;
        strays.on_stray(next_window);
        assert_eq!(strays.poll(next_window), None, "strays of two windows do not add up");
    }

    #[test]
    fn new_tags_are_told_soon_but_not_each_at_once() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        let now = Time::ZERO + WINDOW;
        strays.on_tags_changed();
        assert_eq!(strays.poll(now), Some(Update::TagsAndPorts));
        strays.on_tags_changed();
        assert_eq!(strays.poll(now + RENEWAL_GAP / 2), None);
        assert_eq!(strays.poll(now + RENEWAL_GAP), Some(Update::TagsAndPorts));
        assert_eq!(strays.poll(now + 2 * RENEWAL_GAP), None);
    }

    #[test]
    fn a_flood_that_is_over_is_not_steered_away_again() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        let over = Time::ZERO + STEERING_TIME + WINDOW;
        assert_eq!(strays.poll(over), Some(Update::Everything));
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
    fn a_link_that_refuses_tags_is_told_the_ports_alone_for_a_while() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        strays.on_tags_refused(Time::ZERO);
        assert_eq!(strays.poll(Time::ZERO + RENEWAL_GAP), Some(Update::Ports));
        // Each association of a flood of handshakes is a new tag.
        strays.on_tags_changed();
        assert_eq!(run(&mut strays, Time::ZERO + WINDOW, 30_000, Duration::from_secs(29)), []);
        strays.on_ports_changed();
        assert_eq!(strays.poll(Time::ZERO + (REFUSAL_TIME - RENEWAL_GAP)), Some(Update::Ports));
        let told = run(&mut strays, Time::ZERO + REFUSAL_TIME, 30_000, Duration::from_secs(1));
        let updates: Vec<Update> = told.iter().map(|(_, update)| *update).collect();
        assert_eq!(updates, [Update::Everything, Update::TagsAndPorts]);
    }

    #[test]
    fn a_port_that_comes_into_use_in_a_flood_is_told_soon() {
        let mut strays = Strays::default();
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        strays.on_ports_changed();
        let now = Time::ZERO + WINDOW;
        assert_eq!((strays.poll(now), strays.poll(now + RENEWAL_GAP)), (Some(Update::TagsAndPorts), None));
    }

    #[test]
    fn the_port_of_a_new_listener_is_told_at_once() {
        let mut strays = Strays::default();
        strays.on_listener_added();
        assert_eq!(strays.poll(Time::ZERO), None, "nothing is steered");
        assert_eq!(run(&mut strays, Time::ZERO, 100_000, WINDOW / 2).len(), 1);
        let now = Time::ZERO + WINDOW;
        strays.on_ports_changed();
        assert_eq!(strays.poll(now), Some(Update::TagsAndPorts));
        strays.on_ports_changed();
        assert_eq!(strays.poll(now), None);
        strays.on_listener_added();
        assert_eq!((strays.poll(now), strays.poll(now)), (Some(Update::TagsAndPorts), None));
    }
}
