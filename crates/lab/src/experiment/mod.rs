//! Experiments on the virtual clock, and what others have published about the same.
//!
//! An [`Experiment`] is a list of cases. A case runs alone and always in the same way: the same seed gives the same
//! figures on every machine.
//!
//! # Examples
//!
//! ```
//! use lab::experiment::{self, Options, Watch};
//!
//! let experiment = experiment::find("tail-loss").expect("it is in the list");
//! for case in (experiment.cases)(&Options::default()) {
//!     for outcome in case.run(&mut Watch::default())? {
//!         println!("{}: {:.2} s", outcome.case, outcome.seconds);
//!     }
//! }
//! # Ok::<(), netsim::CaptureError>(())
//! ```

mod bulk;
mod datatag;
mod fairness;
#[cfg(test)]
mod interruption;
mod limit;
mod loss_grid;
mod multipath;
mod outcome;
mod published;
mod response;
mod sctplib;
#[cfg(test)]
mod snapshot;
mod table;
mod tail_loss;
mod transfer;

use std::fmt;
use std::io::Write;
use std::time::Duration;

use netsim::{Capture, CaptureError};
use sctp::trace::Record;

pub use datatag::{datatag_marks, published_datatag};
pub use limit::{Mode, limit_bits_per_s, message_limit_bits_per_s, payload_bytes};
pub use multipath::{published_flapping, published_two_equal};
pub use outcome::{Outcome, PathSample, Returns, Sample, path_numbers};
pub use published::Network;
pub use response::{predicted_bits_per_s, predicted_window_packets};
pub use sctplib::published_sctplib;
pub use table::{AddedColumn, table, table_with};

use crate::simulation::{Application, Simulation};

/// Bytes that a capture keeps of a packet: the headers and a SACK with many gaps, and little of the contents, which are zeros.
const CAPTURED_BYTES: usize = 256;

/// Options of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// All chance comes from it. Default 1.
    pub seed: u64,
    /// How long a case without an end of its own lasts, where that is not a part of the experiment.
    pub time: Option<Duration>,
    /// The long cases, too.
    pub full: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { seed: 1, time: None, full: false }
    }
}

/// Several cases that belong together.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Purpose, in a line.
    pub about: &'static str,
    /// Its cases.
    pub cases: fn(&Options) -> Vec<Box<dyn Case>>,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One run of an experiment.
pub trait Case: Send + Sync {
    /// Returns the name.
    fn name(&self) -> String;
    /// Runs the case. Returns our outcomes first, then the published ones.
    ///
    /// # Errors
    ///
    /// The capture cannot be written.
    fn run(&self, watch: &mut Watch<'_>) -> Result<Vec<Outcome>, CaptureError>;
}

/// Observers of a running case.
#[derive(Default)]
pub struct Watch<'a> {
    /// Called with the part that is done, from 0 to 1. Returns whether to go on.
    pub progress: Option<&'a mut dyn FnMut(f64) -> bool>,
    /// The destination of the packets that the hosts send and receive, as pcapng.
    pub capture: Option<Box<dyn Write + Send>>,
    /// Called with the trace of the associations, at the end that sends.
    pub trace: Option<Box<dyn FnMut(Record) + Send>>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch<'_> {
    /// Traces the later associations of a simulation, if requested.
    fn start_trace<A: Application>(&mut self, simulation: &mut Simulation<A>) {
        if let Some(mut take) = self.trace.take() {
            simulation.trace(move |_, record| take(record));
        }
    }

    /// Captures the packets at the hosts of a simulation, if requested.
    fn start_capture<A: Application>(&mut self, simulation: &mut Simulation<A>) -> Result<(), CaptureError> {
        let Some(out) = self.capture.take() else { return Ok(()) };
        let capture = Capture::to(out).packet_bytes_max(CAPTURED_BYTES);
        let hosts = 0..simulation.hosts();
        let capture = hosts.fold(capture, |capture, number| {
            let node = simulation.node(number);
            capture.host(node.host(), &format!("host {} at {}", number + 1, node.address.ip()))
        });
        simulation.network.start_capture(capture)
    }

    /// Returns whether to go on.
    fn goes_on(&mut self, part: f64) -> bool {
        self.progress.as_mut().is_none_or(|progress| progress(part.clamp(0.0, 1.0)))
    }
}

/// Every experiment.
pub const ALL: [Experiment; 11] = [
    Experiment {
        name: "sctplib",
        about: "a file over 30 Mbit/s and 100 ms with a small and a large receive buffer, as sctplib was measured",
        cases: sctplib::cases,
    },
    Experiment {
        name: "datatag",
        about: "1 Gbit/s and 120 ms between two continents, as the kernel's SCTP and TCP were measured",
        cases: datatag::cases,
    },
    Experiment {
        name: "loss-grid",
        about: "throughput by loss rate, round trip and algorithm, beside what theory predicts",
        cases: loss_grid::cases,
    },
    Experiment {
        name: "tail-loss",
        about: "how long a lost last packet and a lost retransmission take to be repaired",
        cases: tail_loss::cases,
    },
    Experiment {
        name: "fairness",
        about: "how evenly ten associations share a bottleneck after 30 seconds",
        cases: fairness::cases,
    },
    Experiment {
        name: "two-equal",
        about: "messages of 8 to 16384 bytes over one and two paths of 100 Mbit/s, as OpenSS7 was measured",
        cases: multipath::two_equal_cases,
    },
    Experiment {
        name: "asymmetric-rate",
        about: "100 Mbit/s and 10 Mbit/s at once, also with a small receive buffer, beside each alone",
        cases: multipath::rate_cases,
    },
    Experiment {
        name: "asymmetric-delay",
        about: "100 Mbit/s with 10 ms and 100 Mbit/s with 200 ms at once, beside each alone",
        cases: multipath::delay_cases,
    },
    Experiment {
        name: "lossy",
        about: "100 Mbit/s and 100 Mbit/s that loses 2 % at once, beside each alone, by algorithm",
        cases: multipath::lossy_cases,
    },
    Experiment {
        name: "flapping",
        about: "10 Mbit/s that is down half of the time and 5 Mbit/s at once, as a dissertation measured",
        cases: multipath::flapping_cases,
    },
    Experiment {
        name: "failover",
        about: "how long delivery rests when one of two paths dies at full load, and when it is used again",
        cases: multipath::failover_cases,
    },
];

/// Returns the experiment with this name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
