//! One run of one cell: a receiver, a sender, and for some series a daemon, each a fresh process of this program.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swiftwater::StackOptions;
use swiftwater_daemon::{DaemonAddressError, DaemonError, DaemonOptions};

use super::plan::{Cell, processors};
use crate::host;
use crate::peer::{GRACE, Peer, PeerError, print_line};
use crate::perf::client::{self, Outcome};
use crate::perf::config::{ClientConfig, Clients, ServerConfig};
use crate::perf::server::{Server, ServerEvent};
use crate::perf::spec::{Link, Spec};
use crate::run::{ADDRESS_VARIABLE, PRELOAD_VARIABLE, preload};

/// Time that a receiver waits for its sender.
const PATIENCE: Duration = Duration::from_secs(15);

/// The line that a receiver prints when it is ready.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    port: u16,
}

/// The line that a daemon prints when it is ready.
#[derive(Debug, Serialize, Deserialize)]
struct Serving {
    address: String,
}

/// Measurements of a successful run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The result.
    pub outcome: Outcome,
    /// Processors that other programs kept busy meanwhile, if that is known.
    pub others_busy: Option<f64>,
}

/// Starts runs.
pub(crate) struct Runner {
    program: PathBuf,
    allowed: Vec<usize>,
    /// Path of the shim, or the reason for which there is none.
    shim: Result<PathBuf, String>,
}

impl Runner {
    /// Returns a runner that runs this program at both ends.
    pub(crate) fn new(shim: Result<PathBuf, String>) -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, allowed: host::allowed_processors(), shim })
    }

    /// Measures the cell once.
    pub(crate) fn run(&self, cell: &Cell, seconds: f64) -> Result<Run, PeerError> {
        let others = host::OthersBusy::begin();
        let outcome = self.run_peers(cell, seconds)?;
        Ok(Run { outcome, others_busy: others.processors() })
    }

    fn run_peers(&self, cell: &Cell, seconds: f64) -> Result<Outcome, PeerError> {
        let (sender_on, receiver_on) = processors(cell.cpus, &self.allowed);
        let nice = cell.series.nice();
        let spec = Spec {
            buffer_bytes: cell.buffer_bytes,
            ..cell.series.spec(cell.message_bytes, cell.parallel, cell.packet_cap)
        };
        let daemon = match cell.series.needs_daemon() {
            true => Some(Daemon::start(self, &[&sender_on[..], &receiver_on[..]].concat())?),
            false => None,
        };
        let sender = EndsAt { processors: &sender_on, nice: nice.map(|(s, _)| s), user: None };
        let receiver = EndsAt { processors: &receiver_on, nice: nice.map(|(_, r)| r), user: None };
        self.start_ends(daemon.as_ref(), &spec, seconds, [&sender, &receiver])?.finish(seconds)
    }

    /// Starts a sender and a receiver.
    pub(crate) fn start_ends(
        &self,
        daemon: Option<&Daemon>,
        spec: &Spec,
        seconds: f64,
        [sender_at, receiver_at]: [&EndsAt<'_>; 2],
    ) -> Result<Ends, PeerError> {
        let mut receiver = self.start_peer(daemon, &["receive"], receiver_at)?;
        let listening: Listening = receiver.read_line()?;
        let (port, seconds_text) = (listening.port.to_string(), seconds.to_string());
        let spec = serde_json::to_string(spec).map_err(io::Error::from)?;
        let words = ["send", "--port", &port, "--seconds", &seconds_text, "--spec", &spec];
        Ok(Ends { sender: self.start_peer(daemon, &words, sender_at)?, receiver })
    }

    /// Starts a program, with a daemon if one is given.
    pub(crate) fn start_peer(
        &self,
        daemon: Option<&Daemon>,
        words: &[&str],
        at: &EndsAt<'_>,
    ) -> Result<Peer, PeerError> {
        let mut command = self.peer(words, at);
        if let Some(daemon) = daemon {
            command.envs(daemon.environment());
        }
        Ok(Peer::start(command)?)
    }

    fn peer(&self, words: &[&str], at: &EndsAt<'_>) -> Command {
        let list = at.processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(&self.program);
        command.arg("peer").args(words).arg("--processors").arg(list);
        if let Some(nice) = at.nice {
            command.arg(format!("--nice={nice}"));
        }
        if let Some(user) = at.user {
            command.arg(format!("--user={user}"));
        }
        command
    }
}

/// Processors, priority and user of one end.
pub(crate) struct EndsAt<'a> {
    /// Its processors.
    pub processors: &'a [usize],
    /// Nice value, if not that of the command.
    pub nice: Option<i32>,
    /// Its user, if not that of the command.
    pub user: Option<u32>,
}

/// Both ends of a run. Dropping this ends them.
pub(crate) struct Ends {
    sender: Peer,
    receiver: Peer,
}

impl Ends {
    /// Waits for the sender's report after so many seconds, or for Ctrl-C.
    pub(crate) fn finish(mut self, seconds: f64) -> Result<Outcome, PeerError> {
        let until = Instant::now() + Duration::from_secs_f64(seconds) + GRACE;
        let outcome = self.sender.read_line_unless_interrupted(until);
        if let Err(PeerError::Interrupted) = outcome {
            return outcome;
        }
        self.sender.wait_until(until);
        self.receiver.wait_until(Instant::now() + Duration::from_secs(5));
        match outcome {
            Err(PeerError::Peer(said)) if said.is_empty() => Err(PeerError::Peer(self.receiver.complaint())),
            other => other,
        }
    }
}

/// The daemon of one run. Dropping this ends it.
pub(crate) struct Daemon {
    _process: Peer,
    address: String,
    shim: PathBuf,
}

impl Daemon {
    /// Starts the daemon on these processors.
    pub(crate) fn start(runner: &Runner, processors: &[usize]) -> Result<Self, PeerError> {
        let shim = runner.shim.clone().map_err(PeerError::Peer)?;
        let at = EndsAt { processors, nice: None, user: None };
        let mut process = runner.start_peer(None, &["daemon"], &at)?;
        let Serving { address } = process.read_line()?;
        Ok(Self { _process: process, address, shim })
    }

    /// Returns the environment of the programs.
    fn environment(&self) -> [(&'static str, OsString); 2] {
        [(PRELOAD_VARIABLE, preload(&self.shim)), (ADDRESS_VARIABLE, self.address.clone().into())]
    }
}

/// Serves as `swiftwater daemon` does, on any UDP port, at an address that other users cannot guess and take before.
pub(crate) fn serve_programs() -> Result<(), String> {
    let (daemon, address) = bind(host::random).map_err(|error| error.to_string())?;
    print_line(&Serving { address })?;
    daemon.run().map_err(|error| error.to_string())
}

/// Makes a daemon at an address with a random number, the next one if the address is taken, and returns the address.
fn bind(mut random: impl FnMut() -> u64) -> Result<(swiftwater_daemon::Daemon, String), DaemonError> {
    loop {
        let address = format!("@swiftwater-bench-{:016x}", random());
        let options = DaemonOptions {
            address: address[..].into(),
            stack: StackOptions::default().with_udp_port(0).with_hairpin(true),
            ..DaemonOptions::default()
        };
        match swiftwater_daemon::Daemon::bind(&options) {
            Err(DaemonError::Address(DaemonAddressError::Taken(_))) => {}
            bound => return bound.map(|daemon| (daemon, address)),
        }
    }
}

/// Receives one test.
pub(crate) fn receive() -> Result<(), String> {
    let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let config = ServerConfig {
        addresses,
        port: 0,
        control: None,
        clients: Clients::OwnUser,
        udp_port: 0,
        link: Link::Udp,
        trace: None,
    };
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

/// Sends one test, given as JSON, and prints its outcome.
pub(crate) fn send(port: u16, spec: &str, seconds: f64) -> Result<(), String> {
    let spec: Spec = serde_json::from_str(spec).map_err(|error| error.to_string())?;
    let config = ClientConfig {
        host: Ipv4Addr::LOCALHOST.to_string(),
        port,
        control: None,
        local_addresses: Vec::new(),
        local_udp_port: None,
        spec,
        duration: Duration::from_secs_f64(seconds),
        count: None,
        hold: false,
        trace: None,
    };
    let outcome = client::run(&config, &mut |_, _| ()).map_err(|error| error.to_string())?;
    print_line(&outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_takes_another_address_if_one_is_taken() {
        let first = host::random();
        let (_taken, address) = bind(|| first).expect("nobody can guess it");
        let mut numbers = [first, first.wrapping_add(1)].into_iter();
        let (_daemon, other) = bind(|| numbers.next().expect("two suffice")).expect("the second is free");
        assert_ne!(address, other);
    }
}
