//! The options of `lab check`, `lab run` and `lab shell`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};

use super::hosts::DeviceKind;
use super::spec::PathSpec;
use crate::output::JsonArgs;
use crate::units::parse_seconds;

/// Returns the end of a command's help: the description of a path, and examples.
macro_rules! help {
    ($($example:literal),+) => {
        concat!(
            "\
A SPEC has these words, separated by commas; each is optional, and both directions are alike:
  30mbit                    the rate: kbit, mbit or gbit in a second [default: no limit]
  50ms                      the delay: us, ms or s [default: none]
  queue=400kB               what waits at most: B, kB, MB, KiB, MiB or packets (queue=50packets)
                            [default: the bandwidth-delay product of a round trip, at least 64 kB];
                            where bytes count, short packets still fit when long ones do not
  loss=0.1%  burst=4        packets lost at random, or in bursts of this mean length
  down=10s/20s              the line is down in the last 10 s of every 20
  jitter=2ms                each packet takes up to this time longer; none overtakes another
  reorder=1%/5ms            this share of the packets arrives this much later
  duplicate=1%  corrupt=1%  packets that are sent twice, or whose bits are flipped
  ecn=50kB                  a packet that finds more waiting is marked, if its sender understands marks (TCP: as in
                            RFC 3168; accurate ECN, RFC 9768, loses counts where a super-packet is cut)
  mtu=1500                  the longest packet, headers included

Examples:"
            $(, "\n  ", $example)+
        )
    };
}

/// Operation on two hosts and the lines between them.
#[derive(Debug, Subcommand)]
pub(crate) enum LineCommand {
    /// Measure whether this host can emulate such lines: rate, delay, loss, lateness and processor time. Each path is measured
    /// alone, and then all are loaded at the same time in both directions, with datagrams and with TCP.
    #[command(arg_required_else_help = false, after_help = help!(
        "swiftwater lab check                                      100 Mbit/s and 10 ms",
        "swiftwater lab check --path 1gbit,5ms --seconds 5",
        "swiftwater lab check --path 30mbit,50ms --path 100mbit,5ms,loss=0.1% --json",
        "swiftwater lab check --device veth --path 1gbit,5ms       without TUN",
        "swiftwater lab check --tcp --path 100mbit,10ms,loss=0.1%  TCP as theory predicts it"
    ))]
    Check(CheckArgs),
    /// Run programs on two hosts that such lines join, and report the fate of their packets. For an ordinary user the hosts are
    /// in a user namespace, in which `id` calls this user root.
    #[command(arg_required_else_help = true, after_help = help!(
        "swiftwater lab run --path 30mbit,50ms --server 'iperf3 -s' -- iperf3 -c 198.18.0.2",
        "swiftwater lab run --path 5ms,loss=1% -- ping -c 10 198.18.0.2",
        "swiftwater lab run --path 30mbit,50ms,queue=400kB --path 100mbit,5ms,down=10s/20s \\",
        "  --server 'swiftwater perf server -B 198.18.0.2,198.18.1.2' \\",
        "  -- swiftwater perf client 198.18.0.2 -B 198.18.0.1,198.18.1.1"
    ))]
    Run(RunArgs),
    /// Open a shell on the client; within it, `lab shell --server` opens one on the server.
    #[command(arg_required_else_help = false, after_help = help!(
        "swiftwater lab shell --path 30mbit,50ms   a shell on the client; its end removes both hosts",
        "swiftwater lab shell --server             in there: a shell on the server"
    ))]
    Shell(ShellArgs),
}

/// The lines.
#[derive(Clone, Debug, Args)]
pub(crate) struct LineArgs {
    /// A path between the hosts, such as 30mbit,50ms,queue=400kB,loss=0.1%; up to four of them.
    #[arg(long = "path", value_name = "SPEC", default_value = "100mbit,10ms", allow_hyphen_values = true)]
    pub paths: Vec<PathSpec>,
    /// Seed of all random decisions.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Segments of a super-packet that are due within so many microseconds arrive in one piece [default: 150; 0 on lines up to
    /// 100 Mbit/s].
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(..=100_000))]
    pub join_us: Option<u64>,
    /// The network devices of the hosts.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceKind,
}

/// Measurement of lines.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub line: LineArgs,
    /// Compare the rate of the kernel's TCP with that of theory on paths with random losses: 1.22·MSS/(RTT·√p) for Reno (Mathis
    /// et al.), RFC 9438 §5 for CUBIC. Fails if they differ by more than 10 %.
    #[arg(long)]
    pub tcp: bool,
    /// Seconds of each load [default: 2; with --tcp, for each congestion control, the time of 200 losses in each direction:
    /// theory is given the losses that happened, so chance makes a difference of about 2 %].
    #[arg(long, value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Programs to run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub line: LineArgs,
    /// Command line for the shell of the server. The client starts once the server has a socket open; the server ends with the
    /// client.
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    #[command(flatten)]
    pub json: JsonArgs,
    /// Program of the client and its arguments. It finds addresses in $LAB_SERVER and $LAB_CLIENT: one for each path, separated
    /// by commas.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Shell on a host.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    pub line: LineArgs,
    /// Within a shell of the laboratory, open one on the server.
    #[arg(long)]
    pub server: bool,
}
