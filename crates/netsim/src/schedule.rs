//! The times at which a line is up.

use std::ops::Range;
use std::time::Duration;

use crate::time::nanoseconds;

/// The times at which a line is up, from the start of the clock. [`WhenDown`] defines what happens to packets while it is down.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use netsim::{DropReason, Pipe, PipeConfig, Schedule, Verdict};
///
/// let schedule = Schedule::Listed(vec![Duration::from_secs(2)..Duration::from_secs(3)]);
/// let mut pipe = Pipe::new(&PipeConfig { schedule, ..PipeConfig::default() }, 0);
/// assert!(matches!(pipe.offer(1_999_999_999, 100), Verdict::Deliver(_)));
/// assert_eq!(pipe.offer(2_000_000_000, 100), Verdict::Drop(DropReason::Down));
/// assert!(matches!(pipe.offer(3_000_000_000, 100), Verdict::Deliver(_)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// The line is always up.
    #[default]
    AlwaysUp,
    /// The line is up until `first_down`, and from then on alternately down for `down` and up for `up`.
    Periodic {
        /// The start of the first outage.
        first_down: Duration,
        /// The length of each outage.
        down: Duration,
        /// The time between two outages; zero counts as a nanosecond.
        up: Duration,
    },
    /// The line is down within each of these times. They may overlap and need no order.
    Listed(Vec<Range<Duration>>),
}

impl Schedule {
    /// Returns how much of a time the line is down.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use netsim::Schedule;
    /// let second = Duration::from_secs(1);
    /// let schedule = Schedule::Periodic { first_down: second, down: second, up: second };
    /// assert_eq!(schedule.time_down(Duration::ZERO..second * 7 / 2), second * 3 / 2);
    /// ```
    pub fn time_down(&self, within: Range<Duration>) -> Duration {
        let calendar = Calendar::new(self);
        let (mut at_ns, end_ns) = (nanoseconds(within.start), nanoseconds(within.end));
        let mut down_ns = 0;
        while at_ns < end_ns {
            let next_ns = match calendar.up_again_ns(at_ns) {
                Some(up_ns) => {
                    down_ns += up_ns.min(end_ns) - at_ns;
                    up_ns
                }
                None => calendar.down_next_ns(at_ns),
            };
            at_ns = next_ns;
        }
        Duration::from_nanos(down_ns)
    }
}

/// Treatment of packets while the line is down.
///
/// Packets that have left the queue before are on their way and arrive in either case.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use netsim::{Pipe, PipeConfig, Schedule, Verdict, WhenDown};
///
/// let schedule = Schedule::Listed(vec![Duration::from_nanos(10)..Duration::from_nanos(20)]);
/// let config = PipeConfig { schedule, when_down: WhenDown::Wait, ..PipeConfig::default() };
/// let verdict = Pipe::new(&config, 0).offer(15, 100);
/// assert!(matches!(verdict, Verdict::Deliver(passage) if passage.at_ns == 20));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// The queue is lost at the moment when the line goes down, with the packet that is leaving, and what comes before
    /// it is up again is lost too: a cable that is pulled.
    #[default]
    Lose,
    /// The queue stands still and takes packets up to its bound; the packet that is leaving continues where it
    /// stopped: a radio without a signal.
    Wait,
}

/// A [`Schedule`] in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Calendar {
    AlwaysUp,
    Periodic {
        first_down_ns: u64,
        down_ns: u64,
        period_ns: u64,
    },
    /// Ordered; none is empty, and none touches the next.
    Listed(Vec<Range<u64>>),
}

impl Calendar {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        match schedule {
            Schedule::AlwaysUp => Calendar::AlwaysUp,
            Schedule::Periodic { down, .. } if down.is_zero() => Calendar::AlwaysUp,
            Schedule::Periodic { first_down, down, up } => {
                // Half of all time each, at most, so that a period can be counted.
                let down_ns = nanoseconds(*down).min(u64::MAX / 2);
                let period_ns = down_ns + nanoseconds(*up).clamp(1, u64::MAX / 2);
                Calendar::Periodic { first_down_ns: nanoseconds(*first_down), down_ns, period_ns }
            }
            Schedule::Listed(outages) => Calendar::Listed(joined(outages)),
        }
    }

    /// Returns when the line is up again, if it is down at `now_ns`.
    pub(crate) fn up_again_ns(&self, now_ns: u64) -> Option<u64> {
        match self {
            Calendar::AlwaysUp => None,
            Calendar::Periodic { first_down_ns, down_ns, period_ns } => {
                let within_ns = now_ns.checked_sub(*first_down_ns)? % period_ns;
                (within_ns < *down_ns).then(|| now_ns.saturating_add(down_ns - within_ns))
            }
            Calendar::Listed(outages) => {
                let outage = outages.get(outages.partition_point(|outage| outage.end <= now_ns))?;
                (outage.start <= now_ns).then_some(outage.end)
            }
        }
    }

    /// Returns when the line goes down next, if it is up at `now_ns`; the end of time if it does not.
    pub(crate) fn down_next_ns(&self, now_ns: u64) -> u64 {
        match self {
            Calendar::AlwaysUp => u64::MAX,
            Calendar::Periodic { first_down_ns, period_ns, .. } => match now_ns.checked_sub(*first_down_ns) {
                None => *first_down_ns,
                Some(since_ns) => now_ns.saturating_add(period_ns - since_ns % period_ns),
            },
            Calendar::Listed(outages) => {
                let next = outages.partition_point(|outage| outage.start < now_ns);
                outages.get(next).map_or(u64::MAX, |outage| outage.start)
            }
        }
    }

    /// Returns when work of `taken_ns` that begins at `start_ns` is done, if it rests while the line is down.
    pub(crate) fn finished_ns(&self, start_ns: u64, taken_ns: u64) -> u64 {
        let (mut at_ns, mut left_ns) = (start_ns, taken_ns);
        loop {
            at_ns = self.up_again_ns(at_ns).unwrap_or(at_ns);
            // Whole periods are skipped at once: a slow line may need a million of them for one packet.
            if let Calendar::Periodic { first_down_ns, down_ns, period_ns } = self
                && at_ns >= *first_down_ns
            {
                let up_ns = period_ns - down_ns;
                let periods = left_ns.saturating_sub(1) / up_ns;
                at_ns = at_ns.saturating_add(periods.saturating_mul(*period_ns));
                left_ns -= periods * up_ns;
            }
            let down_ns = self.down_next_ns(at_ns);
            if at_ns == u64::MAX || left_ns <= down_ns - at_ns {
                return at_ns.saturating_add(left_ns);
            }
            left_ns -= down_ns - at_ns;
            at_ns = down_ns;
        }
    }
}

/// Returns the outages in order, joined where they touch.
fn joined(outages: &[Range<Duration>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = outages
        .iter()
        .map(|outage| nanoseconds(outage.start)..nanoseconds(outage.end))
        .filter(|outage| !outage.is_empty())
        .collect();
    sorted.sort_by_key(|outage| outage.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for outage in sorted {
        match joined.last_mut() {
            Some(last) if outage.start <= last.end => last.end = last.end.max(outage.end),
            _ => joined.push(outage),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendars() -> [Calendar; 3] {
        let ns = Duration::from_nanos;
        [
            Calendar::new(&Schedule::AlwaysUp),
            Calendar::new(&Schedule::Periodic { first_down: ns(7), down: ns(3), up: ns(4) }),
            Calendar::new(&Schedule::Listed(vec![
                ns(20)..ns(25),
                ns(3)..ns(5),
                ns(4)..ns(9),
                ns(9)..ns(10),
                ns(12)..ns(12),
            ])),
        ]
    }

    /// Returns whether the line is up at each nanosecond, according to the documentation.
    fn is_down(calendar: usize, now_ns: u64) -> bool {
        match calendar {
            0 => false,
            1 => now_ns >= 7 && (now_ns - 7) % 7 < 3,
            _ => (3..10).contains(&now_ns) || (20..25).contains(&now_ns),
        }
    }

    #[test]
    fn calendars_say_when_the_line_is_down() {
        for (number, calendar) in calendars().iter().enumerate() {
            for now_ns in 0..60 {
                let up_ns = (now_ns..).find(|at| !is_down(number, *at)).filter(|at| *at > now_ns);
                assert_eq!(calendar.up_again_ns(now_ns), up_ns, "calendar {number} at {now_ns}");
                if up_ns.is_none() {
                    let down_ns = (now_ns..200).find(|at| is_down(number, *at)).unwrap_or(u64::MAX);
                    assert_eq!(calendar.down_next_ns(now_ns), down_ns, "calendar {number} at {now_ns}");
                }
            }
        }
    }

    #[test]
    fn work_rests_while_the_line_is_down() {
        for (number, calendar) in calendars().iter().enumerate() {
            for (start_ns, taken_ns) in (0..40).flat_map(|start| (1..40).map(move |taken| (start, taken))) {
                let last = (start_ns..).filter(|at| !is_down(number, *at)).nth(taken_ns as usize - 1);
                let finished_ns = calendar.finished_ns(start_ns, taken_ns);
                assert_eq!(Some(finished_ns), last.map(|at| at + 1), "calendar {number}");
            }
        }
    }

    #[test]
    fn a_line_that_never_comes_back_and_one_that_is_hardly_up_end() {
        let down_for_good = Calendar::new(&Schedule::Listed(vec![Duration::ZERO..Duration::MAX]));
        assert_eq!(down_for_good.finished_ns(5, 1), u64::MAX);
        let hardly_up = Schedule::Periodic {
            first_down: Duration::ZERO,
            down: Duration::from_nanos(9),
            up: Duration::ZERO,
        };
        assert_eq!(Calendar::new(&hardly_up).finished_ns(0, 1_000_000), 10_000_000);
        let never_down = Schedule::Periodic {
            first_down: Duration::ZERO,
            down: Duration::ZERO,
            up: Duration::from_nanos(1),
        };
        assert_eq!(Calendar::new(&never_down).up_again_ns(0), None);
        let down_nearly_for_good = Schedule::Periodic {
            first_down: Duration::from_nanos(1),
            down: Duration::MAX,
            up: Duration::MAX,
        };
        assert_eq!(Calendar::new(&down_nearly_for_good).finished_ns(0, 2), u64::MAX / 2 + 2);
    }
}
