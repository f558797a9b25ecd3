//! Arguments of `swiftwater bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::series::Series;
use crate::attack::args::AttackArgs;
use crate::neighbours::args::NeighboursArgs;
use crate::offered::Offered;
use crate::output::JsonArgs;
use crate::units::{parse_bytes, parse_seconds};

/// Comparison of all transports.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --json the array goes to bench-out/bench.json, beside the page.

Series:
  tcp             a plain blocking write per message, reads of 128 KB, default buffers: the baseline
  tcp-artificial  the same, sender at nice -20 and receiver at 19, as far as the system allows
  tcp-batched     a length before each message and 64 KB of buffer in the program at both ends
  sctp-message    one SCTP message a call, checksum on, 1:1 with what the receiver gets
  sctp-batch      sctp-message through `Association::sender()` and `reader()`, which take many messages at once
  sctp-stream     each call continues one endless message, as netperf's SCTP test did
  sctp-nocsum     sctp-message without a checksum: as the published loopback runs, not for networks
  sctp-sockets    sctp-message by two programs under `swiftwater run`, through its shim and a daemon
  relay           AF_UNIX records through a thread that forwards them one by one: the best rate of a daemon with a system call per message
  udp-limit       the maximum rate of plain UDP with offloads at this packet size; not compared
  tcp-rr, sctp-rr, sctp-sockets-rr, relay-rr, udp-rr  one-byte request and answer

The series of one size take turns, and every repeat starts with another one, so that a busy moment of the \
machine affects all of them. A ratio is the median of the ratios to `tcp` within each repeat.

Examples:
  swiftwater bench --quick                       two minutes, a table and bench-out/bench.html
  swiftwater bench                               all sizes and series: about half an hour
  swiftwater bench --sizes 64,1k --seconds 1     two sizes only
  swiftwater bench --cpus 1 --quick              both ends on one processor
  swiftwater bench --series sctp-message --json  JSON; the table goes to standard error")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    /// Another comparison.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Finish within two minutes: fewer sizes, series and repeats.
    #[arg(long)]
    pub quick: bool,
    /// Message sizes, comma separated [default: 1, 2, 4 ... 16384, 65536].
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = parse_bytes)]
    pub sizes: Vec<usize>,
    /// Series, comma separated [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide_possible_values = true)]
    #[arg(value_parser = Offered(|| Series::ALL.map(Series::name).to_vec()))]
    pub series: Vec<String>,
    /// Processors: 1 pins both ends to one, 2 to one each, 4 to two each [default: 2,1; 2 with --quick].
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// Maximum size of IP packets: `loopback` or a number of bytes [default: loopback,1500].
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub packet_bytes: Vec<String>,
    /// Number of concurrent connections or associations, comma separated [default: 1].
    #[arg(short = 'P', long, value_name = "COUNT", value_delimiter = ',')]
    pub parallel: Vec<usize>,
    /// Seconds of each run [default: 1; what fits into two minutes with --quick].
    #[arg(long, value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    /// Runs of each cell; the median is printed [default: 5; 3 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: Option<u32>,
    #[command(flatten)]
    pub json: JsonArgs,
    /// File for the page [default: bench-out/bench.html].
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Other comparisons.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Flood a server, and measure the remaining rate of its peers.
    Attack(AttackArgs),
    /// Let one user of a daemon keep it busy, and measure how long another user waits.
    Neighbours(NeighboursArgs),
}
