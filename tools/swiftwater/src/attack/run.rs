//! One run: the victim, its peers and the flood, each a fresh process, on two hosts.

use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::arena::Arena;
use super::args::FloodBeside;
use super::caller::{CONNECT_INTERVAL, CONNECT_PATIENCE, Connects};
use super::flood::Flood;
use super::generator::Sent;
use super::victim::{MESSAGE_BYTES, VictimState};
use crate::peer::{Peer, PeerError};
use crate::units::grouped;
use crate::{host, interrupt};

/// Time for the flood and the association to become steady before the measurement.
const SETTLING: Duration = Duration::from_millis(200);
/// Time that a process may take beyond its own duration.
const GRACE: Duration = Duration::from_secs(5);
/// Interval at which Ctrl-C is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The case of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// The flood; `None` for a run without.
    pub flood: Option<Flood>,
    /// Packets in a second.
    pub packets_per_s: u64,
}

/// Measurements of a successful run.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// Goodput of the peer's association.
    pub goodput_bits_per_s: f64,
    /// The new peers.
    pub connects: Connects,
    /// Packets of the flood.
    pub sent: Sent,
    /// The victim before the flood.
    pub before: VictimState,
    /// The victim at the end of the flood.
    pub after: VictimState,
}

impl Case {
    /// Returns the name for display.
    pub(super) fn name(self) -> String {
        match self.flood {
            None => "no flood".into(),
            Some(flood) => format!("{}, {} packets/s", flood.name(), grouped(self.packets_per_s)),
        }
    }
}

impl Run {
    /// Returns the measured rate of the flood.
    pub(super) fn sent_packets_per_s(&self) -> f64 {
        self.sent.packets as f64 / self.sent.seconds.max(f64::MIN_POSITIVE)
    }

    /// Returns the number of the flood's packets that reached the victim's host.
    pub(super) fn received_packets(&self) -> u64 {
        self.after.attack_packets - self.before.attack_packets
    }

    /// Returns the bytes of these packets.
    pub(super) fn received_bytes(&self) -> u64 {
        self.after.attack_bytes - self.before.attack_bytes
    }

    /// Returns the number of datagrams that found no room in the victim's receive buffer, those of peers included.
    pub(super) fn dropped_packets(&self) -> u64 {
        self.after.dropped - self.before.dropped
    }

    /// Returns the number of packets sent to strangers.
    pub(super) fn answers(&self) -> u64 {
        self.after.answers - self.before.answers
    }

    /// Returns the bytes of these packets.
    pub(super) fn answer_bytes(&self) -> u64 {
        self.after.answer_bytes - self.before.answer_bytes
    }
}

/// Processors of the processes. They are pinned, so that the scheduler treats all runs alike.
#[derive(Clone, Debug)]
pub(super) struct Processors {
    /// Processors of the victim.
    pub victim: Vec<usize>,
    /// Processors of the peers.
    pub peers: Vec<usize>,
    /// Processors of the flood. The kernel also receives the flood's packets there, before the victim's socket gets them.
    pub flood: Vec<usize>,
}

impl Processors {
    /// Chooses the first allowed processor for the victim, the last for its peers, and one of both for the flood.
    pub(super) fn here(flood_beside: FloodBeside) -> Self {
        let allowed = host::allowed_processors();
        let only = |processor: Option<&usize>| processor.copied().into_iter().collect::<Vec<_>>();
        let (victim, peers) = (only(allowed.first()), only(allowed.last()));
        let flood = match flood_beside {
            FloodBeside::Server => victim.clone(),
            FloodBeside::Peers => peers.clone(),
        };
        Processors { victim, peers, flood }
    }
}

/// Measures a case once, for so many seconds, with the flood at the server or at a UDP port without socket; returns `None` after
/// Ctrl-C.
pub(super) fn run(
    arena: &Arena,
    processors: &Processors,
    case: Case,
    to_dead_port: bool,
    seconds: f64,
) -> Result<Option<Run>, PeerError> {
    let window = Duration::from_secs_f64(seconds);
    let victim_command = command(&["victim"], &processors.victim)?;
    let mut victim = Peer::start_on(&arena.victim, victim_command)?;
    let _: VictimState = victim.read_line()?;
    // The other processes print a line when they are ready.
    let outside = |words: &[&str], processors: &[usize]| -> Result<Peer, PeerError> {
        let mut peer = Peer::start_on(&arena.outside, command(words, processors)?)?;
        peer.read_line().map(|()| peer)
    };
    let rate = case.packets_per_s.to_string();
    let flood_words = case.flood.map(|flood| flood_words(flood, &rate, to_dead_port));
    let mut flood = flood_words.map(|words| outside(&words, &processors.flood)).transpose()?;
    let _sender = outside(&["send-on"], &processors.peers)?;
    let count = (seconds / CONNECT_INTERVAL.as_secs_f64()).ceil().max(1.0).to_string();
    let mut connecting = outside(&["connect-all", "--count", &count], &processors.peers)?;

    let before: VictimState = victim.ask()?;
    if let Some(flood) = &mut flood {
        flood.write_line()?;
    }
    thread::sleep(SETTLING);
    connecting.write_line()?;
    let first: VictimState = victim.ask()?;
    sleep(window);
    let last: VictimState = victim.ask()?;
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

/// Returns the command of one process of a run.
fn command(words: &[&str], processors: &[usize]) -> io::Result<Command> {
    let list = processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peer").args(words).arg("--processors").arg(list);
    Ok(command)
}

fn sleep(duration: Duration) {
    let until = Instant::now() + duration;
    while !interrupt::requested() && Instant::now() < until {
        thread::sleep(CHECK_INTERVAL.min(until.saturating_duration_since(Instant::now())));
    }
}
