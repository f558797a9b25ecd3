//! Arguments of `swiftwater lab`.

use std::ffi::OsStr;
use std::path::PathBuf;

use ::lab::experiment;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgGroup, Args, Command, Subcommand, ValueEnum};
use thiserror::Error;

use super::line::args::LineCommand;
use crate::offered::Offered;
use crate::output::JsonArgs;
use crate::units::parse_seconds;

/// Experiments.
#[derive(Debug, Args)]
#[command(after_help = "\
A virtual experiment runs both ends in this process, on a network and a clock that are simulated: it \
needs no privileges and runs as fast as the processor permits, and a seed gives the same figures on every \
machine. `of limit` is the share of what the lines could carry at best in full packets, after the headers of \
IP, UDP and SCTP. `of best path` and `of their sum` compare with each path alone in the same run. A queue of \
1 BDP holds the bandwidth-delay product of its line. The processor is not simulated: neither end is ever busy.

A live experiment runs `swiftwater perf` between two hosts that `lab run` would make, over lines in real time, each \
measurement five times in turn with the others: the median. A run is disturbed if this machine itself lost packets, \
delivered half of them 0.2 ms late or one in a hundred 1 ms late, or was busy with other programs: it is repeated up to \
three times, but not with --quick. Ctrl-C ends the experiment and removes its hosts.

docs/published/INDEX.md of the source lists the command for each published figure and table.

Examples:
  swiftwater lab --list                                    experiments, cases and how long they take
  swiftwater lab --virtual sctplib                         beside published figures
  swiftwater lab --virtual loss-grid --seconds 30 --json | python3 -m json.tool
  swiftwater lab --virtual datatag --plot datatag.html     windows and queues over time
  swiftwater lab --virtual two-equal --case 'message, 64'  two paths at once, and each alone
  swiftwater lab --virtual failover --plot failover.html   data of each path while one fails
  swiftwater lab --virtual tail-loss --case 'last packet' --capture tail.pcapng --qlog tail.sqlog
  swiftwater lab --live asymmetric-rate                    beside the kernel's TCP and MPTCP
  swiftwater lab --live all --quick --out results          all experiments, within 15 minutes
  swiftwater lab report results                            a page of these results
  swiftwater lab check --path 1gbit,5ms                    whether this host can emulate it
  swiftwater lab shell --path 30mbit,50ms                  a shell on a host behind this line
  swiftwater lab run --path 30mbit,50ms --server 'iperf3 -s' -- iperf3 -c 198.18.0.2")]
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
    #[arg(value_parser = Offered(|| experiment::ALL.iter().map(|experiment| experiment.name).collect()))]
    pub experiment: Option<String>,
    /// The experiment, in real time between two hosts of this machine, or on loopback.
    #[arg(long, value_name = "NAME", value_parser = LiveNames)]
    pub live: Option<LiveName>,
    /// List the experiments.
    #[arg(long, conflicts_with_all = ["experiment", "live"])]
    pub list: bool,
    /// Run only cases whose names contain this text.
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Seed of all random numbers: with --virtual those of both ends and the network, with --live those of the lines.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Seconds of each case that has no end of its own, or of each measurement of --live [default: the experiment's].
    #[arg(long, value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    /// With --live: runs of each measurement; the median is reported [default: 5].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: Option<u32>,
    /// With --live: one short run of each measurement, which is not repeated if it was disturbed.
    #[arg(long)]
    pub quick: bool,
    /// With --live: folder for the results, traces of typical runs and a description of this machine, for `lab report`.
    /// Results of an earlier run are replaced; other files remain.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run the long cases, too: an hour of `datatag`, twice the file of `sctplib`. With --live, `datatag` takes an hour for each
    /// of five transports and each run: five hours with --repeat 1, and a day without.
    #[arg(long)]
    pub full: bool,
    #[command(flatten)]
    pub json: JsonArgs,
    /// With --virtual: file for a page with the figures. Of --live, `lab report` makes one.
    #[arg(long, value_name = "FILE.html")]
    pub plot: Option<PathBuf>,
    /// With --virtual: file for the packets of each case; with several cases, one file each, with the number of the case.
    #[arg(long, value_name = "FILE.pcapng")]
    pub capture: Option<PathBuf>,
    /// With --virtual: file for a trace of each case, for `swiftwater trace`; with several cases, one file each, with the number
    /// of the case.
    #[arg(long, value_name = "FILE")]
    pub qlog: Option<PathBuf>,
}

/// Options that cannot be used together.
#[derive(Debug, Error, PartialEq)]
pub(crate) enum Misplaced {
    /// Experiments of both kinds.
    #[error(
        "--live cannot be used with --virtual: the one is in real time, the other on a virtual clock; run one after the other"
    )]
    BothKinds,
    /// Other numbers or lengths of runs than those of `--quick`.
    #[error(
        "{0} cannot be used with --quick, which measures each transport once and for a short time; leave one of them out"
    )]
    WithQuick(&'static str),
    /// An option of live experiments without one.
    #[error("{0} is for experiments in real time: add --live NAME")]
    WithoutLive(&'static str),
    /// The experiment is live.
    #[error(
        "{0} cannot be used with --live, which keeps curves in a folder: give --out DIR, and then `swiftwater lab report DIR` makes a page"
    )]
    WithLive(&'static str),
    /// The experiment is virtual.
    #[error(
        "{0} cannot be used with --virtual, whose runs are exact; --plot writes a page, --json=FILE the figures, --capture the packets, --qlog a trace"
    )]
    WithVirtual(&'static str),
}

impl LabArgs {
    /// Fails if options are given that cannot be used together. clap would only say that the two conflict.
    pub(super) fn check_options(&self) -> Result<(), Misplaced> {
        let of_virtual = [("--plot", &self.plot), ("--capture", &self.capture), ("--qlog", &self.qlog)];
        let of_virtual = of_virtual.into_iter().find(|(_, file)| file.is_some()).map(|(option, _)| option);
        let of_live =
            [("--out", self.out.is_some()), ("--repeat", self.repeat.is_some()), ("--quick", self.quick)];
        let of_live = of_live.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option);
        let with_quick = [("--repeat", self.repeat.is_some()), ("--full", self.full)];
        let with_quick = with_quick.into_iter().find(|(_, is_given)| *is_given && self.quick);
        match (self.live, &self.experiment, of_virtual, of_live) {
            (Some(_), Some(_), ..) => Err(Misplaced::BothKinds),
            (Some(_), None, Some(option), _) => Err(Misplaced::WithLive(option)),
            (None, Some(_), _, Some(option)) => Err(Misplaced::WithVirtual(option)),
            (None, None, _, Some(option)) => Err(Misplaced::WithoutLive(option)),
            _ => with_quick.map_or(Ok(()), |(option, _)| Err(Misplaced::WithQuick(option))),
        }
    }
}

/// Commands of the laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    #[command(flatten)]
    Line(LineCommand),
    /// Make a page of the results that `lab --live --out DIR` has kept: tables, and curves over time.
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
}

/// End of the help of `lab report`.
const REPORT_HELP: &str = "\
The page needs no network and no other file. A pointer on a curve shows the values at that time.

Examples:
  swiftwater lab --live coexistence --quick --out results
  swiftwater lab report results                           results/report.html
  swiftwater lab report results --html coexistence.html   another file";

/// Page of results.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The folder that --out named.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// File for the page [default: report.html in that folder].
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
}

/// Accepts the names of [`LiveName`]. Its error names the other option if the experiment is on the virtual clock alone.
#[derive(Clone)]
struct LiveNames;

impl TypedValueParser for LiveNames {
    type Value = LiveName;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<LiveName, clap::Error> {
        EnumValueParser::new().parse_ref(command, arg, value).map_err(|error| {
            let Some(experiment) = value.to_str().and_then(experiment::find) else { return error };
            let name = experiment.name;
            let said = format!("`{name}` is not in real time, but on the virtual clock: --virtual {name}\n");
            clap::Error::raw(ErrorKind::InvalidValue, said).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(LiveName::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
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
    /// All experiments except loopback; with --quick within 15 minutes.
    All,
}
