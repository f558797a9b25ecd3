//! `lab check`, `lab run`, `lab shell`: two hosts in real time, and lines between them.

pub(crate) mod args;
mod check;
pub(crate) mod hosts;
pub(in crate::lab) mod limits;
mod program;
pub(in crate::lab) mod report;
mod run;
mod shell;
pub(crate) mod spec;

use std::io;
use std::process::{self, ExitStatus};
use std::time::Duration;

use emulator::{EmulatorError, Settings};
use netns::private::{self, Limits, PrivateError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::interrupt;
use crate::output::{OutputError, note};
use args::{LineArgs, LineCommand};
use hosts::{DeviceKind, Hosts, HostsError};
use spec::PathSpec;

/// Error of a command.
#[derive(Debug, Error)]
pub(crate) enum LineError {
    /// Namespaces are not permitted.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// There are no hosts.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// Ctrl-C cannot be caught.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(#[from] interrupt::ListenError),
    /// A program cannot be started, or waited for.
    #[error("cannot run `{name}`: {source}; {}", advice(source))]
    Program { name: String, source: io::Error },
    /// The server has ended before a client started.
    #[error(
        "the server `{line}` has ended before it had a socket open, with status {code}; run it by hand to see why"
    )]
    Server {
        /// The server's command line.
        line: String,
        /// Its exit status.
        code: u8,
    },
    /// The sockets of a measurement fail.
    #[error("cannot measure the line: {0}")]
    Probe(io::Error),
    /// The host is too slow, or too busy.
    #[error("{0}")]
    TooMuch(String),
    /// TCP on a path cannot be compared with theory.
    #[error("--tcp cannot compare path {path}: {reason}; try --path 100mbit,10ms,loss=0.1%")]
    NoTheory {
        /// The path as the user wrote it.
        path: String,
        /// The reason, and what to change.
        reason: String,
    },
    /// A shell of the server was asked for outside of the laboratory.
    #[error(
        "this is not a shell of the laboratory; `swiftwater lab shell` opens one, and --server works in there"
    )]
    NotInside,
    /// The results cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl LineError {
    /// Returns whether the arguments cannot be used.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            LineError::NoTheory { .. } | LineError::Hosts(HostsError::Emulator(EmulatorError::Paths(_)))
        )
    }
}

/// Returns what to do about a program that cannot be started.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "install it, or name its path",
        io::ErrorKind::PermissionDenied => "is it a program, and may this user execute it?",
        _ => "run it by hand to see why",
    }
}

/// Runs a command in namespaces of its own. Must be called before a thread is started. Returns if the command has failed or
/// succeeded; ends this process to report another status.
pub(crate) fn run(command: &LineCommand) -> Result<(), LineError> {
    if let LineCommand::Shell(args) = command
        && args.server
    {
        return shell::enter_server();
    }
    let limits = match command {
        LineCommand::Shell(_) => enter_by(private::run_again_with_terminal)?,
        _ => enter()?,
    };
    interrupt::listen()?;
    let code = match command {
        LineCommand::Check(args) => return check::run(args, &limits),
        LineCommand::Run(args) => run::run(args, &limits)?,
        LineCommand::Shell(args) => shell::run(args, &limits)?,
    };
    match interrupt::exit_status().unwrap_or(code) {
        0 => Ok(()),
        code => process::exit(code.into()),
    }
}

/// Runs this process again in namespaces of its own, and returns there: the calling process ends with the new one.
pub(super) fn enter() -> Result<Limits, LineError> {
    enter_by(private::run_again)
}

fn enter_by(run_again: impl FnOnce() -> Result<ExitStatus, PrivateError>) -> Result<Limits, LineError> {
    if !private::is_inside() {
        process::exit(private::exit_code(run_again()?).into());
    }
    Ok(private::set_up()?)
}

/// Hosts that could be made here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// The kind of the lines' devices.
    pub(crate) device: String,
    /// Restrictions of this host, a sentence each.
    pub(crate) restrictions: Vec<String>,
}

/// Makes two hosts joined by a line, in namespaces of their own, and removes them. Must be called before a thread is started.
pub(crate) fn attempt() -> Result<Attempt, LineError> {
    let limits = enter()?;
    let hosts = Hosts::build(&[PathSpec::default()], DeviceKind::Auto, &Settings::default())?;
    let restrictions = limits.0.into_iter().chain(limits::all()).collect();
    Ok(Attempt { device: hosts.device.to_owned(), restrictions })
}

/// Makes the hosts, and reports their limits.
fn build(args: &LineArgs, restrictions: &Limits) -> Result<Hosts, LineError> {
    let settings = Settings { join: args.join_us.map(Duration::from_micros), seed: args.seed };
    let hosts = Hosts::build(&args.paths, args.device, &settings)?;
    // The reports tell the priority of the emulator.
    for limit in restrictions.0.iter().cloned().chain(limits::of_buffers()) {
        note(format_args!("{limit}"));
    }
    Ok(hosts)
}
