//! Observation of the lines during a measurement.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use emulator::LineState;

use crate::lab::line::hosts::Hosts;

/// Interval between observations, in runs of up to two minutes and in longer ones.
const INTERVAL: Duration = Duration::from_millis(100);
const LONG_RUN_INTERVAL: Duration = Duration::from_secs(1);
const LONG_RUN_S: f64 = 120.0;

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
pub(super) struct LinesSeen {
    /// Time since the restart of the lines at which the test began: their schedules count from the restart.
    pub(super) began_s: f64,
    /// States during the test, since its beginning.
    pub(super) states: Vec<StateAt>,
}

/// The observations.
#[derive(Debug)]
pub(super) struct Watched {
    began_unix_s: f64,
    states: Vec<StateAt>,
}

impl Watched {
    /// Returns what was seen since a moment of the day, or all.
    pub(super) fn since(&self, unix_s: Option<f64>) -> LinesSeen {
        // A program may report a whole second.
        let began_s = unix_s.map_or(0.0, |unix_s| (unix_s - self.began_unix_s).max(0.0));
        let shifted = self.states.iter().map(|state| StateAt { at_s: state.at_s - began_s, ..state.clone() });
        LinesSeen { began_s, states: shifted.filter(|state| state.at_s >= 0.0).collect() }
    }
}

/// Observes the lines, which were just restarted, repeatedly while `work` runs, which takes about this number of seconds.
pub(super) fn watch<T>(hosts: Option<&Hosts>, seconds: f64, work: impl FnOnce() -> T) -> (T, Watched) {
    let (began, began_at) = (Instant::now(), SystemTime::now());
    let (done, is_done) = channel::<()>();
    let observe = move || {
        let mut states = Vec::new();
        while is_done.recv_timeout(interval(seconds)) == Err(RecvTimeoutError::Timeout) {
            let Some(paths) = hosts.and_then(Hosts::states) else { break };
            states.push(StateAt { at_s: began.elapsed().as_secs_f64(), paths });
        }
        states
    };
    let (result, states) = thread::scope(|scope| {
        let observing = scope.spawn(observe);
        let result = work();
        drop(done);
        (result, observing.join().unwrap_or_default())
    });
    let began_unix_s = began_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    (result, Watched { began_unix_s, states })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_since_the_beginning_of_the_test() {
        let at = |at_s| StateAt { at_s, paths: Vec::new() };
        let watched = Watched { began_unix_s: 100.0, states: vec![at(0.5), at(1.5)] };
        assert_eq!(watched.since(Some(101.0)), LinesSeen { began_s: 1.0, states: vec![at(0.5)] });
        assert_eq!(watched.since(None).states.len(), 2);
        let (result, watched) = watch(None, 1.0, || 7);
        assert_eq!((result, watched.states.len()), (7, 0), "loopback has no lines");
    }
}
