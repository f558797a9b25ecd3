//! The command line of `swiftwater trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Commands for a trace.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Draw windows, round-trip times, rates and losses over time.
    Plot(PlotArgs),
    /// Print the events, a line each.
    Show(ShowArgs),
}

/// The trace to draw.
#[derive(Debug, Args)]
#[command(after_help = "\
Each path of each association gets a figure of its own: the congestion window, its threshold and the \
bytes in flight; losses, retransmissions, timeouts and probes as marks; round-trip times; the rate \
at which data arrived and the pacing rate. trace.md in share/doc/swiftwater describes the file.

Examples:
  swiftwater perf client HOST --qlog run.sqlog     record a trace
  swiftwater trace plot run.sqlog                  draw it: run.svg
  swiftwater trace plot run.sqlog -o run.html      a page with the figures and a table
  swiftwater trace plot run.sqlog --from 2 --to 3  one second of it")]
pub(crate) struct PlotArgs {
    /// The trace file.
    pub file: PathBuf,
    /// File to write, whose name ends with .svg or .html [default: FILE with .svg].
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub select: Select,
}

/// The trace to print.
#[derive(Debug, Args)]
#[command(after_help = "\
A line has the time in seconds, the association (our verification tag at its beginning) and path, the \
name of the event and what it says. trace.md in share/doc/swiftwater lists the names.

Examples:
  swiftwater trace show run.sqlog                               every event
  swiftwater trace show run.sqlog -e packet_lost,timer_expired  only these
  swiftwater trace show run.sqlog --from 1.5 --to 1.6           a tenth of a second
  swiftwater trace show run.sqlog -a 5c0e91aa --path 0          one path of one association")]
pub(crate) struct ShowArgs {
    /// The trace file.
    pub file: PathBuf,
    /// Only events of these names, comma separated: packet_lost, metrics_updated ...
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub event: Vec<String>,
    #[command(flatten)]
    pub select: Select,
}

/// Part of a trace.
#[derive(Debug, Default, Args)]
pub(crate) struct Select {
    /// Only this association: its tag, as `trace show` prints it.
    #[arg(short, long, value_name = "TAG")]
    pub association: Option<String>,
    /// Only this path of it, counted from 0.
    #[arg(long, value_name = "NUMBER")]
    pub path: Option<u8>,
    /// Start, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_time)]
    pub from: Option<f64>,
    /// End, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_time)]
    pub to: Option<f64>,
}

fn parse_time(text: &str) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0).ok_or_else(|| {
        format!("`{text}` is not a time; write seconds from the beginning of the file, such as 1.5")
    })
}
