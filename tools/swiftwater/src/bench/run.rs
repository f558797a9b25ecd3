//! One run of one cell: a receiver and a sender, each a fresh process of this program, and where they need one, a daemon.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swiftwater::Options;
use swiftwater_daemon::DaemonOptions;

use super::plan::{Cell, processors};
use crate::args::{PeerArgs, PeerCommand};
use crate::attack;
use crate::host;
use crate::output::print;
use crate::peer::{GRACE, Peer, PeerError};
use crate::perf::client::{self, ClientConfig, Outcome};
use crate::perf::server::{Server, ServerConfig, ServerEvent};
use crate::perf::spec::{Carrier, Spec};
use crate::run::{PLACE_VARIABLE, PRELOAD_VARIABLE, preload};

/// How long a receiver waits for its sender.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a receiver prints when it is ready.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    port: u16,
}

/// A run that gave a result.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The result.
    pub outcome: Outcome,
    /// Processors that other programs kept busy meanwhile.
    pub others_busy: f64,
}

/// Starts runs.
pub(crate) struct Runner {
    program: PathBuf,
    allowed: Vec<usize>,
    /// What makes SCTP sockets of a program ours, or why there is none.
    shim: Result<PathBuf, String>,
}

impl Runner {
    /// Runs this very program at both ends.
    pub(crate) fn new(shim: Result<PathBuf, String>) -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, allowed: host::allowed_processors(), shim })
    }

    /// Measures the cell once.
    pub(crate) fn run(&self, cell: &Cell, seconds: f64) -> Result<Run, PeerError> {
        let (began, busy, ours) = (Instant::now(), host::busy_time(), our_time());
        let outcome = self.run_peers(cell, seconds)?;
        let (busy, ours) = (host::busy_time().saturating_sub(busy), our_time().saturating_sub(ours));
        let others_busy = busy.saturating_sub(ours).as_secs_f64() / began.elapsed().as_secs_f64();
        Ok(Run { outcome, others_busy })
    }

    fn run_peers(&self, cell: &Cell, seconds: f64) -> Result<Outcome, PeerError> {
        let (sender_on, receiver_on) = processors(cell.cpus, &self.allowed);
        let nice = cell.series.nice();
        let spec = cell.series.spec(cell.message_bytes, cell.parallel, cell.packet_cap);
        let daemon = match cell.series.needs_daemon() {
            true => Some(Daemon::start(self, &[&sender_on[..], &receiver_on[..]].concat())?),
            false => None,
        };
        let start = |words: &[&str], processors: &[usize], nice| {
            let mut command = self.peer(words, processors, nice);
            if let Some(daemon) = &daemon {
                command.envs(daemon.environment());
            }
            Peer::start(command)
        };
        let mut receiver = start(&["receive"], &receiver_on, nice.map(|(_, r)| r))?;
        let listening: Listening = receiver.read_line()?;
        let (port, seconds_text) = (listening.port.to_string(), seconds.to_string());
        let spec = serde_json::to_string(&spec).map_err(io::Error::from)?;
        let words = ["send", "--port", &port, "--seconds", &seconds_text, "--spec", &spec];
        let mut sender = start(&words, &sender_on, nice.map(|(s, _)| s))?;
        let until = Instant::now() + Duration::from_secs_f64(seconds) + GRACE;
        let outcome = sender.read_line_until(until);
        sender.wait_until(until);
        receiver.wait_until(Instant::now() + Duration::from_secs(5));
        match outcome {
            Err(PeerError::Peer(said)) if said.is_empty() => Err(PeerError::Peer(receiver.complaint())),
            other => other,
        }
    }
}

impl Runner {
    fn peer(&self, words: &[&str], processors: &[usize], nice: Option<i32>) -> Command {
        let list = processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(&self.program);
        command.arg("peer").args(words).arg("--processors").arg(list);
        if let Some(nice) = nice {
            command.arg(format!("--nice={nice}"));
        }
        command
    }
}

/// The daemon of one run. It ends with this.
struct Daemon {
    _process: Peer,
    place: String,
    shim: PathBuf,
}

impl Daemon {
    fn start(runner: &Runner, processors: &[usize]) -> Result<Self, PeerError> {
        let shim = runner.shim.clone().map_err(PeerError::Peer)?;
        let place = format!("@swiftwater-bench-{}", std::process::id());
        let mut process = Peer::start(runner.peer(&["daemon", "--place", &place], processors, None))?;
        let Listening { .. } = process.read_line()?;
        Ok(Self { _process: process, place, shim })
    }

    /// What its programs are started with.
    fn environment(&self) -> [(&'static str, OsString); 2] {
        [(PRELOAD_VARIABLE, preload(&self.shim)), (PLACE_VARIABLE, self.place.clone().into())]
    }
}

/// The processor time of this program and of the ends that have ended.
fn our_time() -> Duration {
    host::processor_time() + host::processor_time_of_children()
}

/// What the hidden `peer` command does: one end of a run.
pub(crate) fn peer(command: PeerCommand) -> Result<(), String> {
    match command {
        PeerCommand::Receive(args) => {
            settle(&args)?;
            receive()
        }
        PeerCommand::Daemon { peer, place } => {
            settle(&peer)?;
            serve_programs(&place)
        }
        PeerCommand::Send { peer, port, spec, seconds } => {
            settle(&peer)?;
            send(port, &spec, seconds)
        }
        PeerCommand::Victim(args) => {
            settle(&args)?;
            attack::victim::run()
        }
        PeerCommand::SendOn(args) => {
            settle(&args)?;
            attack::caller::send_on()
        }
        PeerCommand::ConnectAll { peer, count } => {
            settle(&peer)?;
            attack::caller::connect_all(count)
        }
        PeerCommand::Flood { peer, name, rate, dead_port } => {
            settle(&peer)?;
            attack::flood(&name, rate, dead_port)
        }
    }
}

/// Takes its place before any thread is started.
fn settle(args: &PeerArgs) -> Result<(), String> {
    if !args.processors.is_empty() {
        host::pin_to(&args.processors)
            .map_err(|errno| format!("cannot run on the processors asked for: {errno}"))?;
    }
    if let Some(nice) = args.nice {
        host::renice(nice);
    }
    Ok(())
}

/// As `swiftwater daemon`, with any UDP port.
fn serve_programs(place: &str) -> Result<(), String> {
    let options = DaemonOptions {
        place: place.into(),
        stack: Options { udp_port: Some(0), hairpin: true, ..Options::default() },
        idle_exit: None,
    };
    let daemon = swiftwater_daemon::Daemon::bind(&options).map_err(|error| error.to_string())?;
    print_line(&Listening { port: 0 })?;
    daemon.run().map_err(|error| error.to_string())
}

fn receive() -> Result<(), String> {
    let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let config = ServerConfig { addresses, port: 0, udp_port: 0, link: Carrier::Udp, trace: None };
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    let port = server.local_address().map_err(|error| error.to_string())?.port();
    print_line(&Listening { port })?;
    let mut failure = None;
    let served = server.run(Some(1), Some(PATIENCE), &mut |event| {
        if let ServerEvent::Failed(_, reason) = event {
            failure = Some(reason);
        }
    });
    served.map_err(|error| error.to_string())?;
    failure.map_or(Ok(()), Err)
}

fn send(port: u16, spec: &str, seconds: f64) -> Result<(), String> {
    let spec: Spec = serde_json::from_str(spec).map_err(|error| error.to_string())?;
    let config = ClientConfig {
        host: Ipv4Addr::LOCALHOST.to_string(),
        port,
        local_addresses: Vec::new(),
        local_udp_port: None,
        spec,
        duration: Duration::from_secs_f64(seconds),
        count: None,
        trace: None,
    };
    let outcome = client::run(&config, &mut |_| ()).map_err(|error| error.to_string())?;
    print_line(&outcome)
}

/// Prints a value for the process that started this one.
pub(crate) fn print_line(what: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(what).map_err(|error| error.to_string())?;
    print(&(line + "\n")).map_err(|error| error.to_string())
}
