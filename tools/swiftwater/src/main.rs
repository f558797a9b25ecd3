//! The swiftwater command: gives programs SCTP sockets, and measures SCTP in user space beside the kernel's TCP and UDP.
#![forbid(unsafe_code)]

mod activation;
mod args;
mod bench;
mod daemon;
mod doctor;
mod host;
mod interrupt;
mod lab;
mod load;
mod man;
mod perf;
mod program;
mod run;
mod sockets;
mod stats;
mod status;
mod trace;
mod units;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let outcome: Result<(), String> = match Cli::parse().command {
        Command::Perf(command) => perf::run(command).map_err(|error| error.to_string()),
        Command::Bench(args) => bench::run(&args).map_err(|error| error.to_string()),
        Command::Run(args) => run::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Lab(args) => lab::run(&args).map_err(|error| error.to_string()),
        Command::Peer(command) => bench::run::peer(command),
        Command::Trace(command) => trace::run(&command).map_err(|error| error.to_string()),
        Command::Man { directory } => man::write_pages(&directory)
            .map_err(|error| format!("cannot write manual pages to {}: {error}", directory.display())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("swiftwater: {sentence}");
            ExitCode::FAILURE
        }
    }
}
