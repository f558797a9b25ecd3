//! `swiftwater bench neighbours`: measures how long one user of a daemon keeps another waiting.

pub(crate) mod args;
pub(crate) mod trouble;

use std::io;
use std::ops::Not;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use socket2::{Domain, Socket, Type};
use thiserror::Error;

use crate::bench::run::{Daemon, Ends, EndsAt, Runner};
use crate::bench::series::Series;
use crate::bench::{Conditions, table::align};
use crate::load::{histogram, record};
use crate::output::{OutputError, note};
use crate::peer::{GRACE, Peer, PeerError, print_line};
use crate::perf::client::{Latency, Outcome};
use crate::run::find_shim_for_itself;
use crate::sockets::SCTP;
use crate::stats::median;
use crate::units::grouped;
use crate::{host, interrupt};
use args::NeighboursArgs;

/// User numbers that no system assigns.
const USER: u32 = 61_001;
const NEIGHBOUR: u32 = 61_002;
/// Nice value of the neighbour's programs, so that the measurement shows the daemon and not the scheduler.
const NEIGHBOUR_NICE: i32 = 19;
const REQUEST_BYTES: usize = 1;
const SMALL_BYTES: usize = 64;
const LARGE_BYTES: usize = 4 << 20;
/// Pause between two sockets that the user opens.
const SOCKETS_EVERY: Duration = Duration::from_millis(1);
/// Time for the neighbour to begin, and time by which it outlasts the dialogue.
const SETTLING: Duration = Duration::from_millis(300);

/// Error of the measurement.
#[derive(Debug, Error)]
pub(crate) enum NeighboursError {
    /// Two users need root.
    #[error("bench neighbours runs programs of two users at one daemon: run it as root")]
    NotRoot,
    /// There is no shim.
    #[error("{0}")]
    Shim(String),
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] interrupt::ListenError),
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A run failed.
    #[error("beside the neighbour `{neighbour}`: {source}")]
    Run { neighbour: &'static str, source: PeerError },
    /// This program cannot start itself.
    #[error("cannot locate the own executable: {0}")]
    Program(io::Error),
}

/// Activities of the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    None,
    Requests,
    Connections,
    ConnectionFlood,
    /// As the flood, without the daemon: shows what the kernel costs.
    FloodElsewhere,
    Messages,
    LargeMessages,
    ManyPeers,
    Closes,
}

impl Activity {
    const ALL: [Self; 9] = [
        Self::None,
        Self::Requests,
        Self::Connections,
        Self::ConnectionFlood,
        Self::FloodElsewhere,
        Self::Messages,
        Self::LargeMessages,
        Self::ManyPeers,
        Self::Closes,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Requests => "requests",
            Self::Connections => "connections",
            Self::ConnectionFlood => "connection-flood",
            Self::FloodElsewhere => "flood-elsewhere",
            Self::Messages => "messages",
            Self::LargeMessages => "large-messages",
            Self::ManyPeers => "many-peers",
            Self::Closes => "closes",
        }
    }
}

/// One object of the JSON array and a line of the table.
#[derive(Clone, Debug, Serialize)]
struct Row {
    neighbour: &'static str,
    exchanges_per_s: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    latency_us_p999: f64,
    latency_us_max: f64,
    delay_us_p999: f64,
    delay_us_max: f64,
    socket_us_p50: f64,
    socket_us_p99: f64,
    socket_us_max: f64,
    socket_delay_us_p50: f64,
    socket_delay_us_max: f64,
    runs: usize,
    seconds_per_run: f64,
    kernel: String,
    processor: String,
    date: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    #[serde(skip_serializing_if = "Not::not")]
    stopped_early: bool,
}

/// Result of one run.
#[derive(Clone, Debug)]
struct Measured {
    dialogue: Outcome,
    /// Time that each `socket()` takes.
    sockets: Latency,
}

/// Runs the command.
pub(crate) fn run(args: &NeighboursArgs) -> Result<(), NeighboursError> {
    if !rustix::process::geteuid().is_root() {
        return Err(NeighboursError::NotRoot);
    }
    let mut json = args.json.open()?;
    interrupt::listen()?;
    let shim = find_shim_for_itself().map_err(NeighboursError::Shim)?;
    let runner = Runner::new(Ok(shim)).map_err(NeighboursError::Program)?;
    let mut conditions = Conditions::here(args.seconds);
    let others = host::OthersBusy::begin();
    let (outcomes, failure) = measure_all(&runner, args);
    conditions.stopped_early = interrupt::requested();
    let rows = rows(&outcomes, &conditions);
    json.write_beside(&table(&rows), &rows)?;
    if let Some(sentence) = others.sentence() {
        note(format_args!("{sentence}"));
    }
    if conditions.stopped_early {
        note(format_args!("swiftwater bench neighbours: stopped early; these are the rows so far"));
    }
    failure.map_or(Ok(()), Err)
}

/// Measures beside each neighbour in turn, and again. If the other user waits for too long, that run fails; the others go on.
fn measure_all(runner: &Runner, args: &NeighboursArgs) -> (Vec<Vec<Measured>>, Option<NeighboursError>) {
    let mut outcomes: Vec<Vec<Measured>> = vec![Vec::new(); Activity::ALL.len()];
    let mut failure = None;
    'rounds: for _ in 0..args.repeat {
        for (activity, outcomes) in Activity::ALL.into_iter().zip(&mut outcomes) {
            let outcome = measure(runner, activity, args.seconds);
            if interrupt::requested() {
                break 'rounds;
            }
            match outcome {
                Ok(outcome) => outcomes.push(outcome),
                Err(source) => {
                    failure.get_or_insert(NeighboursError::Run { neighbour: activity.name(), source });
                }
            }
        }
    }
    (outcomes, failure)
}

/// Measures a dialogue of one user and then its `socket()`, while the neighbour is active, with a daemon for this run.
fn measure(runner: &Runner, activity: Activity, seconds: f64) -> Result<Measured, PeerError> {
    let allowed = host::allowed_processors();
    let daemon = Daemon::start(runner, &allowed)?;
    let neighbour = EndsAt { processors: &allowed, nice: Some(NEIGHBOUR_NICE), user: Some(NEIGHBOUR) };
    let longer = 2.0 * seconds + 2.0 * SETTLING.as_secs_f64();
    let send = |message_bytes| {
        let spec = Series::SctpSockets.spec(message_bytes, 1, None);
        runner.start_ends(Some(&daemon), &spec, longer, [&neighbour; 2]).map(Some)
    };
    let words = ["trouble", "--kind", activity.name()];
    let (_ends, _process): (Option<Ends>, Option<Peer>) = match activity {
        Activity::None => (None, None),
        Activity::Messages => (send(SMALL_BYTES)?, None),
        Activity::LargeMessages => (send(LARGE_BYTES)?, None),
        Activity::Requests
        | Activity::Connections
        | Activity::ConnectionFlood
        | Activity::FloodElsewhere
        | Activity::ManyPeers
        | Activity::Closes => {
            let mut process = runner.start_peer(Some(&daemon), &words, &neighbour)?;
            process.read_line::<()>()?;
            (None, Some(process))
        }
    };
    thread::sleep(SETTLING);
    let user = EndsAt { processors: &allowed, nice: None, user: Some(USER) };
    let spec = Series::SctpSocketsRr.spec(REQUEST_BYTES, 1, None);
    let dialogue = runner.start_ends(Some(&daemon), &spec, seconds, [&user; 2])?.finish(seconds)?;
    let words = ["sockets", "--seconds", &seconds.to_string()];
    let mut opener = runner.start_peer(Some(&daemon), &words, &user)?;
    let sockets =
        opener.read_line_unless_interrupted(Instant::now() + Duration::from_secs_f64(seconds) + GRACE)?;
    Ok(Measured { dialogue, sockets })
}

fn rows(outcomes: &[Vec<Measured>], conditions: &Conditions) -> Vec<Row> {
    let idle = &outcomes[0];
    let row = |(activity, outcomes): (Activity, &Vec<Measured>)| {
        let exchange =
            |value: fn(&Latency) -> f64| middle(outcomes, |run| run.dialogue.latency.as_ref().map(value));
        let idle_exchange =
            |value: fn(&Latency) -> f64| middle(idle, |run| run.dialogue.latency.as_ref().map(value));
        let socket = |value: fn(&Latency) -> f64| middle(outcomes, |run| Some(value(&run.sockets)));
        let idle_socket = |value: fn(&Latency) -> f64| middle(idle, |run| Some(value(&run.sockets)));
        let rates: Vec<f64> = outcomes.iter().map(|run| run.dialogue.messages_per_s()).collect();
        Some(Row {
            neighbour: activity.name(),
            exchanges_per_s: median(&rates)?,
            latency_us_p50: exchange(|l| l.p50_us),
            latency_us_p99: exchange(|l| l.p99_us),
            latency_us_p999: exchange(|l| l.p999_us),
            latency_us_max: exchange(|l| l.max_us),
            delay_us_p999: (exchange(|l| l.p999_us) - idle_exchange(|l| l.p999_us)).max(0.0),
            delay_us_max: (exchange(|l| l.max_us) - idle_exchange(|l| l.max_us)).max(0.0),
            socket_us_p50: socket(|l| l.p50_us),
            socket_us_p99: socket(|l| l.p99_us),
            socket_us_max: socket(|l| l.max_us),
            socket_delay_us_p50: (socket(|l| l.p50_us) - idle_socket(|l| l.p50_us)).max(0.0),
            socket_delay_us_max: (socket(|l| l.max_us) - idle_socket(|l| l.max_us)).max(0.0),
            runs: outcomes.len(),
            seconds_per_run: conditions.seconds_per_run,
            kernel: conditions.kernel.clone(),
            processor: conditions.processor.clone(),
            date: conditions.date.clone(),
            version: conditions.version.clone(),
            commit: conditions.commit,
            stopped_early: conditions.stopped_early,
        })
    };
    Activity::ALL.into_iter().zip(outcomes).filter_map(row).collect()
}

/// Returns the median of a value over all runs, or 0 if no run has it.
fn middle(runs: &[Measured], value: impl Fn(&Measured) -> Option<f64>) -> f64 {
    median(&runs.iter().filter_map(value).collect::<Vec<_>>()).unwrap_or(0.0)
}

fn table(rows: &[Row]) -> String {
    const HEAD: [&str; 12] = [
        "exchanges/s",
        "neighbour",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "delay: p99.9 us",
        "max us",
        "socket(): p50 us",
        "max us",
        "delay: p50 us",
        "max us",
    ];
    let line = |row: &Row| {
        let exchange = [row.latency_us_p50, row.latency_us_p99, row.latency_us_p999, row.latency_us_max];
        let above = [row.delay_us_p999, row.delay_us_max];
        let socket = [row.socket_us_p50, row.socket_us_max, row.socket_delay_us_p50, row.socket_delay_us_max];
        let mut cells = vec![grouped(row.exchanges_per_s.round() as u64), row.neighbour.to_owned()];
        cells.extend(exchange.iter().chain(&above).chain(&socket).map(|us| format!("{us:.0}")));
        ((), cells)
    };
    let mut out = String::new();
    align(&mut out, &HEAD, &rows.iter().map(line).collect::<Vec<_>>());
    out.push_str("daemon and both users share all processors; the neighbour's programs run at nice 19\n");
    out
}

/// Runs the hidden command: opens an SCTP socket and closes it again and again, and prints the times that `socket()` takes.
pub(crate) fn open_sockets(seconds: f64) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut latencies = histogram();
    while Instant::now() < end {
        let began = Instant::now();
        let opened = Socket::new(Domain::IPV4, Type::STREAM, Some(SCTP));
        record(&mut latencies, began.elapsed());
        opened.map_err(|error| format!("socket() failed: {error}"))?;
        thread::sleep(SOCKETS_EVERY);
    }
    print_line(&Latency::of(&latencies))
}
