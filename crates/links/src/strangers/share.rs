//! The share of the time of a socket for strangers while peers are busy.

use std::time::{Duration, Instant};

/// Maximum time that a share may be ahead; with less, a flood that begins would lose the packets of one read.
const AHEAD_MAX: Duration = Duration::from_millis(1);
/// Maximum charge for a packet: time beyond this was taken by another thread.
const PACKET_MAX: Duration = Duration::from_micros(5);

/// The share of one socket, represented by the time that it has taken in advance.
#[derive(Debug)]
pub(crate) struct Share {
    /// Divisor of the time.
    part: u32,
    ahead: Duration,
    since: Option<Instant>,
}

impl Share {
    pub(crate) fn one_in(part: u32) -> Self {
        Share { part, ahead: Duration::ZERO, since: None }
    }

    /// Advances the share to `now`. Returns whether the socket may be read: always unless peers are `busy`, and then not beyond
    /// its share.
    pub(crate) fn take_turn(&mut self, busy: bool, now: Instant) -> bool {
        if !busy {
            // Peers have not used that time, so it is not compensated later.
            (self.ahead, self.since) = (Duration::ZERO, None);
            return true;
        }
        let elapsed = now.saturating_duration_since(self.since.replace(now).unwrap_or(now));
        self.ahead = self.ahead.saturating_sub(elapsed / self.part);
        self.ahead <= AHEAD_MAX
    }

    /// Records a read that took `spent` and returned this many packets.
    pub(crate) fn charge(&mut self, spent: Duration, packets: usize) {
        self.ahead += spent.min(PACKET_MAX * packets as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Plays a second in which a look at a socket that is never empty takes 100 µs, and the peers 20 µs between two looks.
    /// Returns the time that the socket took.
    fn taken(mut share: Share, busy: bool) -> Duration {
        let began = Instant::now();
        let (mut now, mut taken) = (began, Duration::ZERO);
        while now - began < Duration::from_secs(1) {
            if share.take_turn(busy, now) {
                let spent = 100 * MICROSECOND;
                share.charge(spent, 32);
                taken += spent;
                now += spent;
            }
            now += 20 * MICROSECOND;
        }
        taken
    }

    #[test]
    fn time_that_no_peer_missed_is_not_made_good() {
        let mut share = Share::one_in(64);
        let now = Instant::now();
        for _ in 0..10_000 {
            assert!(share.take_turn(false, now));
            share.charge(100 * MICROSECOND, 32);
        }
        // Peers are busy from now on: the first of these charges alone counts.
        share.take_turn(false, now);
        assert!(share.take_turn(true, now), "the peers have only begun");
    }

    #[test]
    fn a_flood_takes_its_share_while_peers_are_busy_and_all_that_is_left_otherwise() {
        let busy = taken(Share::one_in(8), true);
        assert!((Duration::from_millis(120)..Duration::from_millis(130)).contains(&busy), "{busy:?}");
        let idle = taken(Share::one_in(8), false);
        assert!(idle > Duration::from_millis(800), "{idle:?}");
    }

    #[test]
    fn a_share_that_is_ahead_by_the_maximum_and_not_by_more_has_its_turn() {
        let (mut share, now) = (Share::one_in(8), Instant::now());
        share.charge(AHEAD_MAX, 1000);
        assert!(share.take_turn(true, now));
        share.charge(Duration::from_nanos(1), 1);
        assert!(!share.take_turn(true, now));
    }

    #[test]
    fn a_thread_that_was_kept_from_running_is_not_charged_for_it() {
        let mut share = Share::one_in(8);
        share.charge(Duration::from_secs(1), 32);
        assert_eq!(share.ahead, 32 * PACKET_MAX);
    }
}
