//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use swiftwater::{CongestionControl, Coupling, Multipath};

use crate::daemon::DaemonArgs;
use crate::doctor::DoctorArgs;
use crate::lab::line::args::LineCommand;
use crate::output::JsonArgs;
use crate::perf::spec::{Carrier, Protocol};
use crate::run::RunArgs;
use crate::status::StatusArgs;
use crate::streams::StreamsArgs;
use crate::trace::args::TraceCommand;
use crate::units::{parse_bytes, parse_count, parse_seconds};

/// Default port of the server. As UDP port, 9899 is the one registered for SCTP over UDP (RFC 6951 §4.1); the control connection
/// uses the TCP port of the same number.
pub(crate) const DEFAULT_PORT: u16 = 9899;

/// SCTP in user space: for unmodified programs, and measured beside the kernel's TCP.
#[derive(Debug, Parser)]
#[command(name = "swiftwater", version, max_term_width = 110, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  swiftwater bench --quick              compare SCTP with TCP on this machine in two minutes
  swiftwater lab --virtual sctplib      send a file over a simulated long line
  swiftwater perf server                wait for tests from this host or another
  swiftwater run -- iperf3 -s           give a program SCTP sockets
  swiftwater perf client HOST -l 64     send 64-byte messages there for 10 seconds")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program whose SCTP sockets are Swiftwater's, on a kernel that has no SCTP.
    Run(RunArgs),
    /// Run the service that holds the SCTP sockets of programs under `run`; `run` starts it if needed.
    Daemon(DaemonArgs),
    /// Show the sockets of programs under `run`, their associations and paths.
    Status(StatusArgs),
    /// Show the streams of associations; push, pop and read modules while they run.
    Streams(StreamsArgs),
    /// Check what this host allows, and suggest remedies.
    Doctor(DoctorArgs),
    /// Send messages from one host to another, or between two processes, and measure.
    #[command(subcommand)]
    Perf(PerfCommand),
    /// Compare all transports over a range of message sizes on this machine.
    Bench(BenchArgs),
    /// Print or draw what `perf --qlog` recorded of an association.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Run experiments on simulated networks, and compare them with published results.
    Lab(LabArgs),
    /// One end of a run of `bench`, which starts it.
    #[command(hide = true, subcommand)]
    Peer(PeerCommand),
    /// Print the completions of a shell: bash, zsh, fish, elvish or powershell.
    #[command(after_help = "\
Examples:
  swiftwater completions bash > ~/.local/share/bash-completion/completions/swiftwater
  swiftwater completions zsh > ~/.zfunc/_swiftwater        with ~/.zfunc in fpath
  swiftwater completions fish > ~/.config/fish/completions/swiftwater.fish")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Man {
        /// Directory to write to.
        directory: PathBuf,
    },
}

/// The two ends of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Wait for clients, receive or answer what they send, and count it.
    Server(ServerArgs),
    /// Send to a server, or make requests to it, and report what it received.
    Client(ClientArgs),
}

/// Receiving end of a measurement.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater perf server                          all addresses, TCP and UDP port 9899
  swiftwater perf server -B 192.0.2.1,198.51.100.1  two addresses: SCTP uses both
  swiftwater perf server --once --json            one test, then its result as JSON

The firewall of this host must let in port 9899, TCP and UDP. With -P, tests over UDP use one \
port for each flow, counted up from it.")]
pub(crate) struct ServerArgs {
    /// TCP port to listen on; also the SCTP port.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Local addresses, comma separated or repeated. TCP listens on the first, SCTP on all [default: all].
    #[arg(short = 'B', long = "bind", value_name = "ADDRESS", value_delimiter = ',', value_parser = parse_address)]
    pub bind: Vec<IpAddr>,
    /// UDP port that carries SCTP, and of tests over UDP; 0 for any that is free.
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub udp_port: u16,
    /// Links that the server accepts; auto accepts the one that each client asks for.
    #[arg(long, value_enum, default_value = "auto")]
    pub link: Carrier,
    /// Stop after one test.
    #[arg(short = '1', long)]
    pub once: bool,
    /// Record what every association does, for `swiftwater trace`.
    #[arg(long, value_name = "FILE")]
    pub qlog: Option<PathBuf>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Sending end of a measurement.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater perf client 192.0.2.1                       SCTP, 64-byte messages, 10 seconds
  swiftwater perf client 192.0.2.1 --proto tcp -l 1k -i 1   TCP, 1024 bytes a write, a line each second
  swiftwater perf client 192.0.2.1 --rr -l 1             how long an answer takes
  swiftwater perf client 192.0.2.1 --crr -n 1000         with a new association every time
  swiftwater perf client 192.0.2.1 -P 4 --mode stream    four associations, boundaries ignored
  swiftwater perf client 192.0.2.1 --mode batch -l 16    short messages, many in a call at both ends
  swiftwater perf client 192.0.2.1 -B 192.0.2.7,198.51.100.7   a path from each of two addresses
  swiftwater perf client 192.0.2.1 --link auto           directly over IP where that is permitted
  swiftwater perf client 192.0.2.1 --json | python3 -m json.tool
  swiftwater perf client 192.0.2.1 --qlog run.sqlog && swiftwater trace plot run.sqlog

Only delivered messages count: the rates are the server's count. Ctrl-C ends the test and prints \
the totals so far.")]
pub(crate) struct ClientArgs {
    /// Name or address of the server.
    pub host: String,
    /// TCP port of the server.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// The transport.
    #[arg(long, value_enum, default_value = "sctp")]
    pub proto: Protocol,
    /// Bytes of a message: 64, 1k, 1M.
    #[arg(short = 'l', long = "length", value_name = "BYTES", default_value = "64", value_parser = parse_bytes)]
    pub message_bytes: usize,
    /// Seconds to send or ask [default: 10, or no limit with -n].
    #[arg(short = 't', long = "time", value_name = "SECONDS", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Messages to send or requests to make: 1000, 250k, 4M.
    #[arg(short = 'n', long = "count", value_name = "MESSAGES", value_parser = parse_count)]
    pub count: Option<u64>,
    /// Seconds from one report to the next.
    #[arg(short = 'i', long = "interval", value_name = "SECONDS", value_parser = parse_seconds)]
    pub interval: Option<f64>,
    /// Bytes of send and receive buffer at both ends [default: the system's].
    #[arg(short = 'w', long = "window", value_name = "BYTES", value_parser = parse_bytes)]
    pub buffer_bytes: Option<usize>,
    /// Local addresses, comma separated or repeated. SCTP uses all of them; TCP and UDP take them in turn.
    #[arg(short = 'B', long = "bind", value_name = "ADDRESS", value_delimiter = ',', value_parser = parse_address)]
    pub bind: Vec<IpAddr>,
    /// Associations, connections or flows at a time, each with its own thread.
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1)]
    pub parallel: usize,
    /// Keep the boundaries of messages, or send one endless stream [default: message; stream for TCP].
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// Send a request, wait for the answer, and again: latency percentiles.
    #[arg(long, conflicts_with = "crr")]
    pub rr: bool,
    /// Send a request and wait for the answer, with a new connection or association every time.
    #[arg(long)]
    pub crr: bool,
    /// Largest IP packet, where less than the path allows.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub mtu: Option<usize>,
    /// Local UDP port of SCTP [default: any].
    #[arg(long)]
    pub udp_port: Option<u16>,
    /// Link that carries SCTP.
    #[arg(long, value_enum, default_value = "udp")]
    pub link: Carrier,
    /// Congestion control: cubic, newreno (or reno) or bbr; of SCTP at both ends [default: cubic], of TCP at this one [default:
    /// the system's].
    #[arg(long, value_name = "NAME", value_parser = parse_congestion)]
    pub congestion: Option<CongestionControl>,
    /// Whether SCTP sends on all paths at once: off, agreed (if both ends want it) or always [default: agreed].
    #[arg(long, value_name = "WHEN")]
    pub multipath: Option<Multipath>,
    /// Congestion control of all paths together, in place of --congestion: none, rpv2 or balia [default: none].
    #[arg(long, value_name = "NAME")]
    pub coupling: Option<Coupling>,
    /// Send SCTP packets without a checksum. For measurements on one machine, not for networks.
    #[arg(long)]
    pub no_checksum: bool,
    /// Record what every association does, for `swiftwater trace`.
    #[arg(long, value_name = "FILE")]
    pub qlog: Option<PathBuf>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Boundaries between messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One message per call arrives as one message. TCP puts a length before each and batches them.
    Message,
    /// Calls are coalesced into one endless message, as TCP does.
    Stream,
    /// The program collects messages and hands over many in a call, at both ends. TCP does so with `message`, too.
    Batch,
}

/// Comparison of all transports.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater bench --quick                       two minutes, a table and bench-out/bench.html
  swiftwater bench                               all sizes, series and packet sizes: about half an hour
  swiftwater bench --sizes 64,1k --seconds 1     two sizes only
  swiftwater bench --cpus 1 --quick              both ends on one processor, as the published machines had
  swiftwater bench --series sctp-message --json  JSON on standard output, the table on standard error

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
  relay           AF_UNIX records to a thread that passes them on one by one, as a daemon would at best
  udp-limit       the most that plain UDP with offloads moves with this packet size; only counted
  tcp-rr, sctp-rr, sctp-sockets-rr, relay-rr, udp-rr  one-byte request and answer

The series of one size take turns and every repeat starts with another one, so that a busy moment of the \
machine meets all of them. A ratio is the median of the ratios to `tcp` within each repeat.")]
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
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub series: Vec<String>,
    /// Processors: 1 pins both ends to one, 2 to one each, 4 to two each [default: 2,1; 2 with --quick].
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// Largest IP packet: `loopback` or a number of bytes [default: loopback,1500].
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    pub packet_bytes: Vec<String>,
    /// Connections or associations at a time, comma separated [default: 1].
    #[arg(short = 'P', long, value_name = "COUNT", value_delimiter = ',')]
    pub parallel: Vec<usize>,
    /// Seconds of each run [default: 1; what fits into two minutes with --quick].
    #[arg(long, value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Runs of each cell; the median is printed [default: 5; 3 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: Option<u32>,
    #[command(flatten)]
    pub json: JsonArgs,
    /// Write the page there [default: bench-out/bench.html].
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Other comparisons.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Flood a server, and measure what is left for its peers.
    Attack(AttackArgs),
    /// Let one user of a daemon keep it busy, and measure how long another user waits.
    Neighbours(NeighboursArgs),
}

/// Comparison of two users of one daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater bench neighbours                      one run of each, 3 seconds
  swiftwater bench neighbours --repeat 5 --json    medians of five, for programs

Neighbours:
  none              nobody: what the others are compared with
  requests          a program that makes, binds, asks and closes sockets without pause
  connections       a program that opens connections to the daemon and says nothing on them
  connection-flood  threads that open connections to the daemon and close them at once
  messages          two programs, messages of 64 bytes without pause
  large-messages    the same with messages of 4 MB

Meanwhile two programs of another user exchange messages of one byte, and then one opens sockets. Both users' programs run under `swiftwater run` \
at one daemon that is started for each run. It needs root, to be two users.")]
pub(crate) struct NeighboursArgs {
    /// Seconds of each dialogue, and of opening sockets after it.
    #[arg(long, default_value = "3", value_parser = parse_seconds)]
    pub seconds: f64,
    /// Runs of each; the median is printed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Attack on a server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater bench attack --quick                  each flood at 100,000 packets a second, in 90 seconds
  swiftwater bench attack                          at 30,000, too, with more rounds: six minutes
  swiftwater bench attack --floods init,data --repeat 5
  swiftwater bench attack --rates 10k,300k --json=attack.json

Floods:
  init-one-prefix   INITs to a port that listens, from the 256 addresses of one network
  init              the same from addresses all over
  handshakes        handshakes that the attacker completes, from the 256 addresses of one network, which it has
  init-closed-port  INITs to a port without listener, from addresses all over
  data              DATA of associations that do not exist, from addresses all over
  cookie-echo       COOKIE ECHOs with random cookies, from addresses all over
  bad-checksum      packets with a wrong checksum
  bad-chunks        packets with a right checksum and noise for chunks
  abort, heartbeat  packets that name the peer's association, with a wrong tag

A server, a peer that sends it messages of 1,024 bytes without pause, new peers that connect, one each 50 ms, and the flood \
are processes of this program, in two network namespaces of their own, which leave nothing behind. Nothing else is attacked. \
They share the processors, so each run is paired with one in which the same flood goes to a UDP port without socket, and the \
ratio compares the two. It needs root, or a user who may make user namespaces.")]
pub(crate) struct AttackArgs {
    /// Finish within 90 seconds: 100,000 packets a second only, and fewer rounds.
    #[arg(long)]
    pub quick: bool,
    /// Floods, comma separated [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub floods: Vec<String>,
    /// Packets in a second, comma separated, up to 1M [default: 30k,100k; 100k with --quick].
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = parse_flood_rate)]
    pub rates: Vec<u64>,
    /// The processor that the flood takes time from, as interrupts of a network card would.
    #[arg(long, value_enum, default_value = "server")]
    pub flood_beside: FloodBeside,
    /// Seconds of each run, up to 20 [default: 1.5; 1 with --quick].
    #[arg(long, value_parser = parse_flood_seconds)]
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
const FLOOD_SECONDS_MAX: f64 = 20.0;

fn parse_flood_rate(text: &str) -> Result<u64, String> {
    parse_count(text)
        .ok()
        .filter(|rate| *rate <= FLOOD_PACKETS_PER_S_MAX)
        .ok_or_else(|| format!("`{text}` is no rate of a flood; write a count up to 1M such as 30k"))
}

fn parse_flood_seconds(text: &str) -> Result<f64, String> {
    parse_seconds(text)
        .ok()
        .filter(|seconds| *seconds <= FLOOD_SECONDS_MAX)
        .ok_or_else(|| format!("`{text}` is no length of a flood; write seconds from 0.001 to 20"))
}

/// Experiments.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  swiftwater lab --list                                 what there is
  swiftwater lab --virtual sctplib                      two receive buffers beside the published figures
  swiftwater lab --virtual loss-grid --seconds 30 --json | python3 -m json.tool
  swiftwater lab --virtual datatag --plot datatag.html  windows and queues over the time
  swiftwater lab --virtual two-equal --case 'message, 64' two paths at once, beside one and beside what was published
  swiftwater lab --virtual failover --plot failover.html  what each path carried when one of them died
  swiftwater lab --live asymmetric-rate                   the kernel's TCP and MPTCP beside it
  swiftwater lab --live all --quick --out results         every published figure in real time, within 15 minutes
  swiftwater lab report results                           one page of that: tables, and curves over the time
  swiftwater lab check --path 1gbit,5ms                   whether this host can hold such a line
  swiftwater lab run --path 30mbit,50ms --server 'iperf3 -s' -- iperf3 -c 198.18.0.2
                                                        any programs on two hosts, with that line between them
  swiftwater lab shell --path 30mbit,50ms                 a shell on one of them
  swiftwater lab --virtual tail-loss --case 'last packet' --capture tail.pcapng --qlog tail.sqlog

A virtual experiment runs both ends in this process, on a network and a clock that are simulated: it \
needs no privileges and no time but the processor's, and the same seed gives the same figures on every \
machine. `of limit` is the share of what the lines could carry at best in full packets, after the headers of \
IP, UDP and SCTP. `of best path` and `of their sum` compare with each path alone in the same run. A queue of \
1 BDP holds the bandwidth-delay product of its line. The processor is not simulated: neither end is ever busy.

A live experiment runs `swiftwater perf` between two hosts that `lab run` would make, over lines in real time, each \
measurement five times in turn with the others: the median. A run in which this machine itself lost packets, or was a \
millisecond late, is repeated up to three times, but not with --quick. Ctrl-C ends it, and nothing is left.

docs/published/INDEX.md names the command for each figure and table that others have published.")]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["experiment", "live", "list"]))]
#[command(
    arg_required_else_help = true,
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub command: Option<LabCommand>,
    /// The experiment, on a virtual clock.
    #[arg(long = "virtual", value_name = "NAME")]
    pub experiment: Option<String>,
    /// The experiment, in real time between two hosts of this machine, or on loopback.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["experiment", "capture", "qlog", "plot"])]
    pub live: Option<LiveName>,
    /// List the experiments.
    #[arg(long)]
    pub list: bool,
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Seed of all random numbers.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Seconds of each case that has no end of its own, or of each measurement of --live [default: the experiment's].
    #[arg(long, value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// With --live: runs of each measurement; the median is reported [default: 5].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100), requires = "live")]
    pub repeat: Option<u32>,
    /// With --live: one short run of each measurement, which is not repeated if it was disturbed.
    #[arg(long, requires = "live", conflicts_with_all = ["repeat", "full"])]
    pub quick: bool,
    /// With --live: keep the results, traces of typical runs and a description of this machine there, for `lab report`.
    #[arg(long, value_name = "DIR", requires = "live")]
    pub out: Option<PathBuf>,
    /// Run the long cases, too: an hour of `datatag`, twice the file of `sctplib`.
    #[arg(long)]
    pub full: bool,
    #[command(flatten)]
    pub json: JsonArgs,
    /// Write a page with the figures there.
    #[arg(long, value_name = "FILE.html")]
    pub plot: Option<PathBuf>,
    /// Write the packets of each case there; with several cases, each into a file with its number.
    #[arg(long, value_name = "FILE.pcapng")]
    pub capture: Option<PathBuf>,
    /// Record the associations of each case, for `swiftwater trace`; with several cases, each into a file with its number.
    #[arg(long, value_name = "FILE")]
    pub qlog: Option<PathBuf>,
}

/// Commands of the laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    #[command(flatten)]
    Line(LineCommand),
    /// Make a page of the results that `lab --live --out DIR` has kept: tables, and curves over time.
    Report(ReportArgs),
}

/// Page of results.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The folder that --out named.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Write the page there [default: report.html in that folder].
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
}

/// Experiments in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveName {
    /// Two lines of 100 Mbit/s and 0.2 ms, as OpenSS7 was measured, beside the kernel's TCP on one and MPTCP on both.
    TwoEqual,
    /// 100 and 10 Mbit/s, beside the same transports.
    AsymmetricRate,
    /// 100 Mbit/s with 10 ms and 100 Mbit/s with 200 ms, beside the same transports.
    AsymmetricDelay,
    /// 100 Mbit/s and 100 Mbit/s that loses 2 %, beside the same transports.
    Lossy,
    /// 30 Mbit/s and 100 ms with a small buffer and a large one, as sctplib was measured, beside the kernel's TCP.
    Sctplib,
    /// 1 Gbit/s and 120 ms with buffers of 32 MB, as the kernel's SCTP and TCP were measured, beside the kernel's TCP of today.
    Datatag,
    /// 10 Mbit/s up and down, and 5 Mbit/s: throughput and latency as the dissertation measured them, beside TCP and MPTCP.
    Flapping,
    /// One of two lines is cut and comes back, beside MPTCP.
    Failover,
    /// SCTP and TCP with the same congestion control at one bottleneck, 1 + 1 flows and 4 + 4.
    Coexistence,
    /// Messages over loopback with the buffers of the paper, on one processor and on two, beside its seven tables.
    Strsctp,
    /// Two loopback addresses beside one. Needs no root.
    Loopback,
    /// All of them but loopback; with --quick within 15 minutes.
    All,
}

/// One end of a run.
#[derive(Debug, Subcommand)]
pub(crate) enum PeerCommand {
    /// Serve as the daemon of the two ends.
    Daemon {
        #[command(flatten)]
        peer: PeerArgs,
        /// Address of the daemon.
        #[arg(long)]
        place: String,
    },
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

/// Parses a congestion control by our name or by the kernel's.
fn parse_congestion(text: &str) -> Result<CongestionControl, String> {
    let name = if text == "reno" { "newreno" } else { text };
    name.parse().map_err(|_| format!("`{text}` is no congestion control; write cubic, newreno, reno or bbr"))
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .map_err(|_| format!("`{text}` is no IP address; write one such as 192.0.2.1 or 2001:db8::1"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_holds() {
        Cli::command().debug_assert();
    }

    #[test]
    fn local_addresses_come_separated_or_repeated() {
        for line in [
            "swiftwater perf server -B 192.0.2.1,[2001:db8::1]",
            "swiftwater perf server -B 192.0.2.1 -B 2001:db8::1",
            "swiftwater perf server --bind 192.0.2.1 -B [2001:db8::1]",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).expect("a good line");
            let Command::Perf(PerfCommand::Server(server)) = cli.command else { panic!("another command") };
            let expected: Vec<IpAddr> =
                ["192.0.2.1", "2001:db8::1"].map(|a| a.parse().expect("good")).to_vec();
            assert_eq!(server.bind, expected);
        }
        let error =
            Cli::try_parse_from("swiftwater perf server -B 192.0.2".split(' ')).expect_err("a bad address");
        assert!(error.to_string().contains("no IP address"), "{error}");
    }

    #[test]
    fn sizes_have_suffixes() {
        let line = "swiftwater perf client host -l 1k -w 4M -n 2M -t 0.5 -P 4 --rr";
        let cli = Cli::try_parse_from(line.split(' ')).expect("a good line");
        let Command::Perf(PerfCommand::Client(client)) = cli.command else { panic!("another command") };
        assert_eq!((client.message_bytes, client.buffer_bytes), (1024, Some(4 << 20)));
        assert_eq!((client.count, client.seconds, client.parallel), (Some(2_000_000), Some(0.5), 4));
        assert!(client.rr && !client.crr);
    }

    #[test]
    fn congestion_controls_have_the_names_of_the_kernel_too() {
        let control = |name| {
            let line = ["swiftwater", "perf", "client", "host", "--proto", "tcp", "--congestion", name];
            let Command::Perf(PerfCommand::Client(client)) = Cli::try_parse_from(line).ok()?.command else {
                return None;
            };
            client.congestion
        };
        assert_eq!(control("reno"), Some(CongestionControl::NewReno));
        assert_eq!(control("cubic"), Some(CongestionControl::Cubic));
        assert_eq!(control("vegas"), None);
    }

    #[test]
    fn rr_and_crr_exclude_each_other() {
        assert!(Cli::try_parse_from("swiftwater perf client host --rr --crr".split(' ')).is_err());
    }
}
