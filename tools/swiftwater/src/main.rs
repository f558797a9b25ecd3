//! The swiftwater command: gives programs SCTP sockets, and measures SCTP in user space beside the kernel's TCP and UDP.
#![forbid(unsafe_code)]
// These macros panic when nobody reads their output; `output` has functions in their place.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod activation;
mod args;
mod attack;
mod bench;
mod daemon;
mod doctor;
mod failure;
mod folder;
mod host;
mod interrupt;
mod lab;
mod load;
mod man;
mod moment;
mod neighbours;
mod offered;
mod output;
mod peer;
mod peer_command;
mod perf;
mod plot;
mod program;
mod regular_file;
mod result_file;
mod run;
mod sockets;
mod stats;
mod status;
mod streams;
mod trace;
mod units;

use std::env::VarError;
use std::fmt::Display;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use args::{Cli, Command};
use attack::AttackError;
use bench::BenchError;
use bench::args::{BenchArgs, BenchCommand};
use failure::Failure;
use lab::LabError;
use neighbours::NeighboursError;
use output::{EXIT_CLOSED, OutputError, note, print};
use perf::PerfError;
use trace::TraceError;

/// Converts errors of a command, keeping failures of the output and errors with an exit status of their own apart.
macro_rules! from_errors {
    ($($error:ident),+) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                match error {
                    $error::Output(error) => Failure::Output(error),
                    error => match error.exit_status() {
                        Some(status) => Failure::WithStatus(error.to_string(), status),
                        None => Failure::Said(error.to_string()),
                    },
                }
            }
        }
    )+};
}

from_errors!(AttackError, BenchError, LabError, PerfError, TraceError);

impl From<NeighboursError> for Failure {
    fn from(error: NeighboursError) -> Self {
        match error {
            NeighboursError::Output(error) => Failure::Output(error),
            error => Failure::Said(error.to_string()),
        }
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => check_environment().and_then(|()| perform(cli.command)),
        // Help and versions go to standard output as results do.
        Err(error) if !error.use_stderr() => error.print().map_err(|error| OutputError::from(error).into()),
        Err(error) => error.exit(),
    };
    interrupt::end_all();
    let status = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Output(OutputError::Closed)) => EXIT_CLOSED.into(),
        Err(Failure::Output(error)) => fail(&error),
        Err(Failure::Said(sentence)) => fail(&sentence),
        Err(Failure::WithStatus(sentence, status)) => {
            fail(&sentence);
            ExitCode::from(status)
        }
    };
    interrupt::exit_status().map_or(status, ExitCode::from)
}

/// Checks that the daemon's address can be read. The default address would be that of another daemon.
fn check_environment() -> Result<(), Failure> {
    match std::env::var(run::ADDRESS_VARIABLE) {
        Err(VarError::NotUnicode(value)) => Err(Failure::Said(format!(
            "{} is not UTF-8: {}; name the daemon by @NAME or a path",
            run::ADDRESS_VARIABLE,
            value.display()
        ))),
        _ => Ok(()),
    }
}

fn fail(sentence: &dyn Display) -> ExitCode {
    note(format_args!("swiftwater: {}", failure::without_numbers(&sentence.to_string())));
    ExitCode::FAILURE
}

fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    let mut command = public(&Cli::command()).version(env!("CARGO_PKG_VERSION"));
    clap_complete::generate(shell, &mut command, "swiftwater", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the definition of a command without the commands and options that only this program and packages use.
fn public(command: &clap::Command) -> clap::Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(public);
    // clap wants names that live for ever, and this process ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    let public = clap::Command::new(name).args(arguments).subcommands(commands);
    match command.get_about() {
        Some(about) => public.about(about.clone()),
        None => public,
    }
}

fn perform(command: Command) -> Result<(), Failure> {
    match command {
        Command::Perf(command) => perf::run(command)?,
        Command::Bench(BenchArgs { command: Some(BenchCommand::Attack(args)), .. }) => attack::run(&args)?,
        Command::Bench(BenchArgs { command: Some(BenchCommand::Neighbours(args)), .. }) => {
            neighbours::run(&args)?
        }
        Command::Bench(args) => bench::run(&args)?,
        Command::Run(args) => run::run(&args)?,
        Command::Daemon(args) => daemon::run(&args)?,
        Command::Doctor(args) => doctor::run(&args)?,
        Command::Status(args) => status::run(&args)?,
        Command::Streams(args) => streams::run(&args)?,
        Command::Lab(args) => lab::run(&args)?,
        Command::Peer(command) => peer_command::run(command)?,
        Command::Trace(command) => trace::run(&command)?,
        Command::Completions { shell } => print(&completions(shell))?,
        Command::Man { directory } => man::write_pages(&directory)
            .map_err(|error| format!("cannot write manual pages to {}: {error}", directory.display()))?,
    }
    Ok(())
}
