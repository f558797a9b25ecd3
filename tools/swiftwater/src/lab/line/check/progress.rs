//! A bar that moves with the time.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::lab::progress_bar;
use crate::output::note;

/// Interval between movements of the bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A bar on the terminal that moves with the time while paths are measured. Dropping it removes the bar.
pub(super) struct Progress {
    bar: ProgressBar,
    paths: usize,
    /// The thread that moves the bar ends when this is closed.
    done: Option<Sender<()>>,
    mover: Option<JoinHandle<()>>,
}

impl Progress {
    /// Prints how long so many paths take together, and shows the bar.
    pub(super) fn begin(paths: usize, whole: Duration) -> Self {
        let named = if paths == 1 { "1 path".to_owned() } else { format!("{paths} paths") };
        note(format_args!("{named}: about {:.0} s", whole.as_secs_f64().ceil()));
        let bar = progress_bar(whole.as_millis() as u64);
        let (done, is_done) = channel();
        let (moved, began) = (bar.clone(), Instant::now());
        let mover = thread::spawn(move || {
            while is_done.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                moved.set_position(began.elapsed().min(whole).as_millis() as u64);
            }
        });
        Progress { bar, paths, done: Some(done), mover: Some(mover) }
    }

    /// Shows which path is measured.
    pub(super) fn show_path(&self, number: usize, name: &str) {
        self.show(format!("path {} of {}: {name}", number + 1, self.paths));
    }

    /// Shows what is measured.
    pub(super) fn show(&self, what: String) {
        self.bar.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done = None;
        if let Some(mover) = self.mover.take() {
            let _ = mover.join();
        }
        self.bar.finish_and_clear();
    }
}

/// Names what has no measurement. Figures of a measurement that was cut short say nothing about the host.
pub(super) fn note_unmeasured<'a>(names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        note(format_args!("interrupted: no measurement of {}", names.join(" and ")));
    }
}
