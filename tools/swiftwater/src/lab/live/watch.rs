//! Observation of the lines during a measurement.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use emulator::LineState;
use netsim::Schedule;

use crate::lab::line::hosts::Hosts;
use crate::lab::line::spec::PathSpec;
use crate::moment::Moment;

/// Interval between observations, in runs of up to two minutes and in longer ones.
const INTERVAL: Duration = Duration::from_millis(100);
const LONG_RUN_INTERVAL: Duration = Duration::from_secs(1);
const LONG_RUN_S: f64 = 120.0;
/// Interval between observations within this time after the return of a line.
const RETURN_INTERVAL: Duration = Duration::from_millis(5);
const RETURN_S: f64 = 1.0;

/// A test of a rate whose lines have passed fewer bytes to the server than this in so much time stands still. Acknowledgements of
/// reports, and heartbeats, are half as many. Single requests and their answers over a long line are not many more, so tests of a
/// latency are not watched: they have their deadline.
const STALLED_BYTES: u64 = 64 << 10;
pub(super) const STALLED: Duration = Duration::from_secs(60);

/// Returns the interval between the points of a run.
pub(super) fn interval(seconds: f64) -> Duration {
    if seconds > LONG_RUN_S { LONG_RUN_INTERVAL } else { INTERVAL }
}

/// The lines of all paths at a moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StateAt {
    pub(super) at_s: f64,
    pub(super) paths: Vec<[LineState; 2]>,
}

/// The lines during a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LineHistory {
    /// Time since the restart of the lines at which the test began: their schedules count from the restart.
    pub(super) began_s: f64,
    /// States during the test at even intervals, since its beginning.
    pub(super) states: Vec<StateAt>,
    /// States at short intervals after each return of a line.
    pub(super) returns: Vec<StateAt>,
}

impl LineHistory {
    /// Returns all states in the order of time.
    pub(super) fn all(&self) -> Vec<&StateAt> {
        let mut all: Vec<&StateAt> = self.states.iter().chain(&self.returns).collect();
        all.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        all
    }
}

/// The observations since the restart of the lines.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// The restart, by `CLOCK_MONOTONIC`, in seconds.
    began_monotonic_s: f64,
    states: Vec<StateAt>,
    returns: Vec<StateAt>,
}

impl Observations {
    /// Returns what was seen since a moment of `CLOCK_MONOTONIC`, or all.
    pub(super) fn since(&self, monotonic_s: Option<f64>) -> LineHistory {
        // A program may report a whole second.
        let began_s = monotonic_s.map_or(0.0, |monotonic_s| (monotonic_s - self.began_monotonic_s).max(0.0));
        let shifted = |states: &[StateAt]| {
            let states = states.iter().map(|state| StateAt { at_s: state.at_s - began_s, ..state.clone() });
            states.filter(|state| state.at_s >= 0.0).collect()
        };
        LineHistory { began_s, states: shifted(&self.states), returns: shifted(&self.returns) }
    }
}

/// Returns the times at which a line comes back within so many seconds.
pub(super) fn return_times(schedule: &Schedule, seconds: f64) -> Vec<f64> {
    let Schedule::Periodic { first_down, down, up } = schedule else { return Vec::new() };
    let period = (*down + *up).as_secs_f64();
    let first = (*first_down + *down).as_secs_f64();
    // A return at the very end leaves no time to observe use.
    (0..).map(|number| first + f64::from(number) * period).take_while(|at_s| *at_s < seconds - 1.0).collect()
}

/// Whether a test goes on: the number of bytes that its lines had passed at a moment, and that moment.
#[derive(Debug)]
pub(super) struct Progress(Mutex<(u64, Instant)>);

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        Progress(Mutex::new((0, now)))
    }

    /// Notes the number of bytes that the lines have passed to the server.
    fn on_passed(&self, bytes: u64, now: Instant) {
        let mut last = self.last();
        if bytes >= last.0 + STALLED_BYTES {
            *last = (bytes, now);
        }
    }

    /// Returns whether the lines have passed next to nothing for [`STALLED`].
    pub(super) fn has_stalled(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last().1) > STALLED
    }

    fn last(&self) -> MutexGuard<'_, (u64, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of bytes that all lines have passed to the server.
fn passed_bytes(paths: &[[LineState; 2]]) -> u64 {
    paths.iter().map(|[to_server, _]| to_server.bytes_accepted).sum()
}

/// The moments at which the lines are observed.
#[derive(Debug)]
struct Moments {
    interval_s: f64,
    /// The next of the even moments.
    even_s: f64,
    /// The returns of all lines.
    returns_s: Vec<f64>,
}

impl Moments {
    fn new(seconds: f64, lines: &[PathSpec]) -> Self {
        let interval_s = interval(seconds).as_secs_f64();
        // The test begins some time after the restart, and may last longer than planned.
        let until_s = seconds + 2.0 * RETURN_S;
        let returns = lines.iter().flat_map(|line| return_times(&line.pipe.schedule, until_s));
        Moments { interval_s, even_s: interval_s, returns_s: returns.collect() }
    }

    /// Returns whether a line has just returned.
    fn is_return(&self, now_s: f64) -> bool {
        self.returns_s.iter().any(|return_s| (*return_s..return_s + RETURN_S).contains(&now_s))
    }

    /// Returns the time until the next observation.
    fn wait(&self, now_s: f64) -> Duration {
        if self.is_return(now_s) {
            return RETURN_INTERVAL;
        }
        let next = self.returns_s.iter().copied().filter(|return_s| *return_s > now_s);
        Duration::from_secs_f64((next.fold(self.even_s, f64::min) - now_s).max(0.0))
    }

    /// Takes the next of the even observations, if it is due. Returns whether it is.
    fn take_even(&mut self, now_s: f64) -> bool {
        let is_even = now_s >= self.even_s;
        if is_even {
            self.even_s = now_s + self.interval_s;
        }
        is_even
    }
}

/// Observes the lines, which were just restarted, repeatedly while `work` runs, which takes about this number of seconds. `work`
/// gets the progress of its test if there are lines.
pub(super) fn watch<T>(
    hosts: Option<&Hosts>,
    lines: &[PathSpec],
    seconds: f64,
    work: impl FnOnce(Option<&Progress>) -> T,
) -> (T, Observations) {
    // The schedules count from the restart of the lines.
    let began = hosts.map_or_else(Instant::now, Hosts::restarted_at);
    let moments = Moments::new(seconds, lines);
    observe(began, moments, || hosts.and_then(Hosts::states), |progress| work(hosts.map(|_| progress)))
}

/// Observes these states of all lines at these moments while `work` runs. The observation ends when there is no state.
fn observe<T>(
    began: Instant,
    mut moments: Moments,
    states: impl Fn() -> Option<Vec<[LineState; 2]>> + Sync,
    work: impl FnOnce(&Progress) -> T,
) -> (T, Observations) {
    let began_monotonic_s = Moment::now().ago(began.elapsed()).monotonic_s;
    let (done, is_done) = channel::<()>();
    let progress = Progress::new(Instant::now());
    let observe = || {
        let is_done = is_done;
        let mut observed = Observations::default();
        let now_s = || began.elapsed().as_secs_f64();
        while is_done.recv_timeout(moments.wait(now_s())) == Err(RecvTimeoutError::Timeout) {
            let Some(paths) = states() else { break };
            progress.on_passed(passed_bytes(&paths), Instant::now());
            let state = StateAt { at_s: now_s(), paths };
            if moments.is_return(state.at_s) {
                observed.returns.push(state.clone());
            }
            if moments.take_even(state.at_s) {
                observed.states.push(state);
            }
        }
        observed
    };
    let (result, observed) = thread::scope(|scope| {
        let observing = scope.spawn(observe);
        let result = work(&progress);
        drop(done);
        (result, observing.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    (result, Observations { began_monotonic_s, ..observed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_since_the_beginning_of_the_test() {
        let at = |at_s| StateAt { at_s, paths: Vec::new() };
        let states = vec![at(0.5), at(1.5)];
        let observed = Observations { began_monotonic_s: 100.0, states, returns: vec![at(0.75), at(1.25)] };
        let history = observed.since(Some(101.0));
        assert_eq!(history, LineHistory { began_s: 1.0, states: vec![at(0.5)], returns: vec![at(0.25)] });
        assert_eq!(history.all(), [&at(0.25), &at(0.5)]);
        assert_eq!(observed.since(None).states.len(), 2);
        let (result, observed) = watch(None, &[], 1.0, |progress| 7 + usize::from(progress.is_some()));
        assert_eq!((result, observed.states.len()), (7, 0), "loopback has no lines");
    }

    #[test]
    #[should_panic(expected = "a defect of the observer")]
    fn a_panic_of_the_observer_leaves_no_figures() {
        let moments = Moments { interval_s: 0.1, even_s: 0.0, returns_s: Vec::new() };
        let (observing, is_observed) = channel();
        let states = move || -> Option<Vec<[LineState; 2]>> {
            let _ = observing.send(());
            panic!("a defect of the observer")
        };
        observe(Instant::now(), moments, states, |_| {
            let _ = is_observed.recv();
        });
    }

    #[test]
    fn a_line_is_observed_closely_from_the_moment_at_which_it_returns() {
        let lines: Vec<PathSpec> = ["8kbit,down=2s/4s".parse().expect("a path")].into();
        let mut moments = Moments::new(12.0, &lines);
        let milliseconds = |moments: &Moments, now_s| moments.wait(now_s).as_secs_f64() * 1e3;
        let about = |one: f64, other: f64| (one - other).abs() < 1e-6;
        assert!(about(milliseconds(&moments, 0.04), 60.0), "{moments:?}");
        assert!(!moments.take_even(0.09) && moments.take_even(0.103) && !moments.take_even(0.2));
        assert!(moments.take_even(3.93), "the next one is at 4.03 s");
        assert!(about(milliseconds(&moments, 3.96), 40.0), "{moments:?}");
        assert!(!moments.is_return(3.99) && moments.is_return(4.0) && !moments.is_return(5.0));
        assert!(about(milliseconds(&moments, 4.5), 5.0), "{moments:?}");
        assert!(moments.is_return(8.2) && moments.is_return(12.2), "the test begins after the restart");
    }

    #[test]
    fn a_test_whose_lines_pass_only_acknowledgements_of_reports_stands_still() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let progress = Progress::new(began);
        progress.on_passed(1 << 20, at(10));
        assert!(!progress.has_stalled(at(70)));
        for second in 11..=70 {
            progress.on_passed((1 << 20) + 520 * (second - 10), at(second));
        }
        assert!(progress.has_stalled(at(71)), "ten reports a second");
        progress.on_passed(2 << 20, at(72));
        assert!(!progress.has_stalled(at(132)));
    }
}
