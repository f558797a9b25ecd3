//! One run: the victim, its peers and the flood, each a fresh process, on two hosts.

use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::caller::{CONNECT_INTERVAL, CONNECT_PATIENCE, Connects};
use super::flood::Flood;
use super::generator::Sent;
use super::victim::{Look, MESSAGE_BYTES};
use crate::interrupt;
use crate::peer::{Peer, PeerError};

/// The flood and the association settle before anything is measured.
const SETTLING: Duration = Duration::from_millis(200);
/// How long a process may take beyond what it was told.
const GRACE: Duration = Duration::from_secs(5);
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// What is measured in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// What floods; nothing if there is none.
    pub flood: Option<Flood>,
    /// Packets in a second.
    pub packets_per_s: u64,
    /// Whether the flood goes to a port without socket.
    pub to_dead_port: bool,
}

/// A run that gave a result.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// What the peer's association delivered in a second.
    pub goodput_bits_per_s: f64,
    /// The new peers.
    pub connects: Connects,
    /// What the flood sent.
    pub sent: Sent,
    /// The victim before the flood.
    pub before: Look,
    /// The victim at the end of the flood.
    pub after: Look,
}

/// Where processes run, besides the host.
#[derive(Clone, Debug)]
pub(super) struct Processors {
    /// Those of the victim.
    pub victim: Vec<usize>,
    /// Those of the peers and the flood.
    pub outside: Vec<usize>,
}

/// Measures a case once, for so many seconds. `None`: Ctrl-C came.
pub(super) fn run(
    arena: &Arena,
    processors: &Processors,
    case: Case,
    seconds: f64,
) -> Result<Option<Run>, PeerError> {
    let window = Duration::from_secs_f64(seconds);
    let mut victim = Peer::start_on(&arena.victim, command(&["victim"], &processors.victim)?)?;
    let _: Look = victim.read_line()?;
    let outside = |words: &[&str]| -> Result<Peer, PeerError> {
        Ok(Peer::start_on(&arena.outside, command(words, &processors.outside)?)?)
    };
    let mut flood = match case.flood {
        Some(flood) => {
            Some(outside(&flood_words(flood, &case.packets_per_s.to_string(), case.to_dead_port))?)
        }
        None => None,
    };
    if let Some(flood) = &mut flood {
        let () = flood.read_line()?;
    }
    let mut sender = outside(&["send-on"])?;
    let () = sender.read_line()?;
    let connects = (seconds / CONNECT_INTERVAL.as_secs_f64()).ceil().max(1.0).to_string();
    let mut connecting = outside(&["connect-all", "--count", &connects])?;
    let () = connecting.read_line()?;

    let before: Look = victim.ask()?;
    if let Some(flood) = &mut flood {
        flood.write_line()?;
    }
    thread::sleep(SETTLING);
    connecting.write_line()?;
    let first: Look = victim.ask()?;
    sleep(window);
    let last: Look = victim.ask()?;
    let connects = connecting.read_line_until(Instant::now() + window + CONNECT_PATIENCE + GRACE)?;
    let after = victim.ask()?;
    let sent = match &mut flood {
        Some(flood) => {
            flood.close_input();
            flood.read_line()?
        }
        None => Sent::default(),
    };
    let bits = (last.messages - first.messages) as f64 * MESSAGE_BYTES as f64 * 8.0;
    let goodput_bits_per_s = bits / (last.seconds - first.seconds);
    Ok((!interrupt::requested()).then_some(Run { goodput_bits_per_s, connects, sent, before, after }))
}

fn flood_words(flood: Flood, packets_per_s: &str, to_dead_port: bool) -> Vec<&str> {
    let mut words = vec!["flood", "--name", flood.name(), "--rate", packets_per_s];
    words.extend(to_dead_port.then_some("--dead-port"));
    words
}

/// The command of one process of a run.
fn command(words: &[&str], processors: &[usize]) -> io::Result<Command> {
    let list = processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peer").args(words).arg("--processors").arg(list);
    Ok(command)
}

fn sleep(duration: Duration) {
    let until = Instant::now() + duration;
    while !interrupt::requested() && Instant::now() < until {
        thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
}
