//! Arguments of `swiftwater bench attack`.

use clap::{Args, ValueEnum};

use super::flood::Flood;
use crate::offered::Offered;
use crate::output::JsonArgs;
use crate::units::{parse_count, parse_seconds};

/// Attack on a server.
#[derive(Debug, Args)]
#[command(after_help = "\
Floods:
  init-one-prefix   INITs to a port that listens, from the 256 addresses of one network
  init              INITs to a port that listens, from random addresses
  init-repeated     such INITs, each sent twice, a second apart, as a peer does
  handshakes        complete handshakes, from the 256 addresses of a network that the attacker owns
  init-closed-port  INITs to a port without listener, from random addresses
  data              DATA of associations that do not exist, from random addresses
  cookie-echo       COOKIE ECHOs with random cookies, from random addresses
  bad-checksum      packets with a wrong checksum
  bad-chunks        packets with a valid checksum and random bytes for chunks
  abort, heartbeat  packets with the addresses and ports of the peer's association, and a wrong tag

A server, a peer that sends it messages of 1,024 bytes without pause, new peers that connect, one each 50 ms, and the flood \
are processes of this program, in two network namespaces of their own, which leave nothing behind. Nothing else is attacked. \
They share the processors, so each run is paired with one in which the same flood goes to a UDP port without socket, and the \
ratio compares the two. It needs root, or a user who may make user namespaces.

Examples:
  swiftwater bench attack --quick  each flood at 100,000 packets/s: 90 seconds
  swiftwater bench attack          at 30,000, too, with more rounds: six minutes
  swiftwater bench attack --floods init,data --repeat 5
  swiftwater bench attack --rates 10k,300k --json=attack.json")]
pub(crate) struct AttackArgs {
    /// Finish within 90 seconds: 100,000 packets a second only, and fewer rounds.
    #[arg(long)]
    pub quick: bool,
    /// Floods, comma separated [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide_possible_values = true)]
    #[arg(value_parser = Offered(|| Flood::ALL.map(Flood::name).to_vec()))]
    pub floods: Vec<String>,
    /// Packets in a second, comma separated, up to 1M [default: 30k,100k; 100k with --quick].
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = parse_flood_rate)]
    pub rates: Vec<u64>,
    /// The processor that the flood takes time from, as interrupts of a network card would.
    #[arg(long, value_enum, default_value = "server")]
    pub flood_beside: FloodBeside,
    /// Seconds of each run, up to 20 [default: 1.5; 1 with --quick].
    #[arg(long, value_parser = parse_flood_seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    /// Rounds [default: as many as fit into the time, at most 5].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: Option<u32>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Processor that the flood shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FloodBeside {
    /// On the processor of the server.
    Server,
    /// On the processor of its peers.
    Peers,
}

/// Highest rate of a flood.
const FLOOD_PACKETS_PER_S_MAX: u64 = 1_000_000;
/// Longest run with a flood.
pub(super) const FLOOD_SECONDS_MAX: f64 = 20.0;

fn parse_flood_rate(text: &str) -> Result<u64, String> {
    parse_count(text)
        .ok()
        .filter(|rate| *rate <= FLOOD_PACKETS_PER_S_MAX)
        .ok_or_else(|| format!("`{text}` is not a flood rate; write a count up to 1M such as 30k"))
}

fn parse_flood_seconds(text: &str) -> Result<f64, String> {
    parse_seconds(text)
        .ok()
        .filter(|seconds| *seconds <= FLOOD_SECONDS_MAX)
        .ok_or_else(|| format!("`{text}` is not a flood duration; write seconds from 0.001 to 20"))
}
