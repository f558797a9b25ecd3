//! Arguments of `swiftwater bench neighbours`.

use clap::Args;

use crate::output::JsonArgs;
use crate::units::parse_seconds;

/// Comparison of two users of one daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Neighbours:
  none              no neighbour: the reference for the others
  requests          a program that opens, binds, queries and closes sockets without pause
  connections       a program that opens connections to the daemon and sends nothing
  connection-flood  threads that open connections to the daemon and close them at once
  flood-elsewhere   the same at a listener of their own: what the kernel costs
  messages          two programs, messages of 64 bytes without pause
  large-messages    two programs, messages of 4 MB without pause
  many-peers        a one-to-many socket and 400 peers, which exchange messages of 64 bytes without pause
  closes            a program that closes 200 associations at once, with messages left, again and again

Meanwhile two programs of another user exchange messages of one byte, and then one opens sockets. Both users' programs run under `swiftwater run` \
at one daemon that is started for each run. It needs root, to be two users.

Examples:
  swiftwater bench neighbours                      one run of each, 3 seconds
  swiftwater bench neighbours --repeat 5 --json    medians of five, for programs")]
pub(crate) struct NeighboursArgs {
    /// Seconds of each dialogue, and of opening sockets after it.
    #[arg(long, default_value = "3", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Runs of each; the median is printed.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    #[command(flatten)]
    pub json: JsonArgs,
}
