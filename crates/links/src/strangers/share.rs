//! The share of the time of a socket for strangers while peers are busy.

use std::time::{Duration, Instant};

/// Maximum time that a share may be ahead; with less, a flood that begins would lose the packets of one read.
const AHEAD_MAX: Duration = Duration::from_millis(1);
/// Maximum charge for a packet: time beyond this was taken by another thread.
const PACKET_MAX: Duration = Duration::from_micros(5);
/// Interval, in receives, of reading a socket that was empty the last time, because a read costs a system call.
const STRIDE: u32 = 8;

/// The share of one socket, represented by the time that it has taken in advance.
#[derive(Debug)]
pub(crate) struct Share {
    /// Divisor of the time.
    part: u32,
    ahead: Duration,
    since: Option<Instant>,
    backlog: bool,
}

impl Share {
    pub(crate) fn one_in(part: u32) -> Self {
        Share { part, ahead: Duration::ZERO, since: None, backlog: false }
    }

    /// Returns whether the socket has its turn in the receive of this number: every few receives as long as it is empty, in
    /// each one while more waits, and never beyond its share while peers are `busy`.
    pub(crate) fn has_turn(&mut self, receive: u32, busy: bool, now: impl FnOnce() -> Instant) -> bool {
        if !self.backlog {
            return receive.is_multiple_of(STRIDE);
        }
        if !busy {
            // Peers have not used that time, so it is not compensated later.
            (self.ahead, self.since) = (Duration::ZERO, None);
            return true;
        }
        let now = now();
        let elapsed = now.saturating_duration_since(self.since.replace(now).unwrap_or(now));
        self.ahead = self.ahead.saturating_sub(elapsed / self.part);
        self.ahead <= AHEAD_MAX
    }

    /// Records a read that took `spent` and returned this many packets; `backlog`: more wait.
    pub(crate) fn charge(&mut self, spent: Duration, packets: usize, backlog: bool) {
        self.ahead += spent.min(PACKET_MAX * packets as u32);
        self.backlog = backlog;
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
        let (mut now, mut taken, mut receive) = (began, Duration::ZERO, 0);
        while now - began < Duration::from_secs(1) {
            if share.has_turn(receive, busy, || now) {
                let spent = 100 * MICROSECOND;
                share.charge(spent, 32, true);
                taken += spent;
                now += spent;
            }
            now += 20 * MICROSECOND;
            receive += 1;
        }
        taken
    }

    #[test]
    fn time_that_no_peer_missed_is_not_made_good() {
        let mut share = Share::one_in(64);
        let now = Instant::now();
        for receive in 0..10_000 {
            assert!(share.has_turn(receive, false, || now));
            share.charge(100 * MICROSECOND, 32, true);
        }
        assert!(share.has_turn(10_001, true, || now), "the peers have only begun");
    }

    #[test]
    fn a_flood_takes_its_share_while_peers_are_busy_and_all_that_is_left_otherwise() {
        let busy = taken(Share::one_in(8), true);
        assert!((Duration::from_millis(120)..Duration::from_millis(130)).contains(&busy), "{busy:?}");
        let idle = taken(Share::one_in(8), false);
        assert!(idle > Duration::from_millis(800), "{idle:?}");
    }

    #[test]
    fn an_empty_socket_is_looked_at_now_and_then() {
        let mut share = Share::one_in(8);
        share.charge(MICROSECOND, 3, false);
        let turns = (0..80).filter(|&receive| share.has_turn(receive, true, Instant::now)).count();
        assert_eq!(turns, 10);
    }

    #[test]
    fn a_thread_that_was_kept_from_running_is_not_charged_for_it() {
        let mut share = Share::one_in(8);
        share.charge(Duration::from_secs(1), 32, true);
        assert_eq!(share.ahead, 32 * PACKET_MAX);
    }
}
