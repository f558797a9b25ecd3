//! The hidden command `peer`: one process of a measurement, which `bench` starts.

use std::process;

use clap::{Args, Subcommand};

use crate::peer::at_end_of_input;
use crate::units::parse_seconds;
use crate::{attack, bench, host, neighbours};

/// One end of a run.
#[derive(Debug, Subcommand)]
pub(crate) enum PeerCommand {
    /// Serve as the daemon of the two ends.
    Daemon(PeerArgs),
    /// Receive one test.
    Receive(PeerArgs),
    /// Keep a daemon busy.
    Trouble {
        #[command(flatten)]
        peer: PeerArgs,
        /// Kind of trouble.
        #[arg(long)]
        kind: String,
    },
    /// Open sockets and print how long that takes.
    Sockets {
        #[command(flatten)]
        peer: PeerArgs,
        /// Seconds to do so.
        #[arg(long, value_parser = parse_seconds)]
        seconds: f64,
    },
    /// Serve as the victim of an attack.
    Victim(PeerArgs),
    /// Send to the victim without pause.
    SendOn(PeerArgs),
    /// Connect to the victim again and again.
    ConnectAll {
        #[command(flatten)]
        peer: PeerArgs,
        /// Number of connects.
        #[arg(long)]
        count: u32,
    },
    /// Flood the victim.
    Flood {
        #[command(flatten)]
        peer: PeerArgs,
        /// Name of the flood.
        #[arg(long)]
        name: String,
        /// Packets in a second.
        #[arg(long)]
        rate: u64,
        /// Flood its UDP port without socket.
        #[arg(long)]
        dead_port: bool,
    },
    /// Send one test and print its outcome as JSON.
    Send {
        #[command(flatten)]
        peer: PeerArgs,
        /// The receiver's control port on this machine.
        #[arg(long)]
        port: u16,
        /// The test, as JSON.
        #[arg(long)]
        spec: String,
        /// Seconds to send.
        #[arg(long, value_parser = parse_seconds)]
        seconds: f64,
    },
}

/// Processors, priority and user of one end.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// The processors to run on.
    #[arg(long, value_delimiter = ',')]
    pub processors: Vec<usize>,
    /// Nice value to set.
    #[arg(long, allow_hyphen_values = true)]
    pub nice: Option<i32>,
    /// User to switch to.
    #[arg(long)]
    pub user: Option<u32>,
}

/// Runs the hidden `peer` command: one end of a run.
pub(crate) fn run(command: PeerCommand) -> Result<(), String> {
    match command {
        PeerCommand::Receive(args) => {
            set_priority_and_processors(&args)?;
            end_with_input()?;
            bench::run::receive()
        }
        PeerCommand::Daemon(args) => {
            set_priority_and_processors(&args)?;
            end_with_input()?;
            bench::run::serve_programs()
        }
        PeerCommand::Send { peer, port, spec, seconds } => {
            set_priority_and_processors(&peer)?;
            end_with_input()?;
            bench::run::send(port, &spec, seconds)
        }
        PeerCommand::Trouble { peer, kind } => {
            set_priority_and_processors(&peer)?;
            neighbours::trouble::keep_busy(&kind)
        }
        PeerCommand::Sockets { peer, seconds } => {
            set_priority_and_processors(&peer)?;
            neighbours::open_sockets(seconds)
        }
        PeerCommand::Victim(args) => {
            set_priority_and_processors(&args)?;
            attack::victim::run()
        }
        PeerCommand::SendOn(args) => {
            set_priority_and_processors(&args)?;
            attack::caller::send_on()
        }
        PeerCommand::ConnectAll { peer, count } => {
            set_priority_and_processors(&peer)?;
            attack::caller::connect_all(count)
        }
        PeerCommand::Flood { peer, name, rate, dead_port } => {
            set_priority_and_processors(&peer)?;
            attack::flood(&name, rate, dead_port)
        }
    }
}

/// Lets this process end with its standard input. The other commands read theirs.
fn end_with_input() -> Result<(), String> {
    at_end_of_input(|| process::exit(1)).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Pins this process and sets its nice value, before any thread is started.
fn set_priority_and_processors(args: &PeerArgs) -> Result<(), String> {
    if !args.processors.is_empty() {
        host::pin_to(&args.processors)
            .map_err(|errno| format!("cannot run on the processors asked for: {errno}"))?;
    }
    if let Some(nice) = args.nice {
        host::renice(nice);
    }
    if let Some(user) = args.user {
        host::become_user(user).map_err(|errno| format!("cannot become user {user}: {errno}"))?;
    }
    Ok(())
}
