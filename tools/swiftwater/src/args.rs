//! The command line: the commands. Each command has its arguments beside it.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::bench::args::BenchArgs;
use crate::daemon::DaemonArgs;
use crate::doctor::DoctorArgs;
use crate::lab::args::LabArgs;
use crate::peer_command::PeerCommand;
use crate::perf::args::PerfCommand;
use crate::run::RunArgs;
use crate::status::StatusArgs;
use crate::streams::StreamsArgs;
use crate::trace::args::TraceCommand;

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
    #[command(
        subcommand,
        after_help = "\
Examples:
  swiftwater perf server                            on one host, until Ctrl-C
  swiftwater perf client 192.0.2.1                  on another one: SCTP, for 10 seconds
  swiftwater perf client 192.0.2.1 --proto tcp      the kernel's TCP beside it"
    )]
    Perf(PerfCommand),
    /// Compare all transports over a range of message sizes on this machine.
    Bench(BenchArgs),
    /// Print or draw a trace that `perf --qlog` or `lab --qlog` has recorded.
    #[command(
        subcommand,
        after_help = "\
Examples:
  swiftwater perf client HOST --qlog run.sqlog      record a trace
  swiftwater trace plot run.sqlog                   draw it: run.svg
  swiftwater trace show run.sqlog -e packet_lost    print events"
    )]
    Trace(TraceCommand),
    /// Run experiments on simulated networks and in real time, and compare them with published results.
    Lab(LabArgs),
    /// One end of a run of `bench`, which starts it.
    #[command(hide = true, subcommand)]
    Peer(PeerCommand),
    /// Print the completions of a shell: bash, zsh, fish, elvish or powershell.
    #[command(after_help = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  swiftwater completions bash > ~/.local/share/bash-completion/completions/swiftwater
  mkdir -p ~/.zfunc                                        a folder in fpath
  swiftwater completions zsh > ~/.zfunc/_swiftwater
  mkdir -p ~/.config/fish/completions
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_holds() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_ends_with_examples_of_its_command() {
        fn check(command: &clap::Command) {
            let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let (_, examples) =
                help.split_once("Examples:\n").unwrap_or_else(|| panic!("{name} has no examples"));
            assert!(
                examples.contains(&format!("  {name} ")) || examples.contains(&format!("  {name}\n")),
                "{name}: {examples}"
            );
            assert!(
                examples.lines().all(|line| line.starts_with("  ")),
                "{name}: text behind the examples: {examples}"
            );
            command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(check);
        }
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        check(&command);
    }
}
