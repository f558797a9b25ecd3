//! `lab shell`: a shell on either host.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use netns::Host;
use netns::private::Limits;

use super::args::ShellArgs;
use super::hosts::{End, address};
use super::program::{HOSTS_VARIABLE, Program};
use super::{LineError, build, report};
use crate::output::note;

/// Opens a shell on the client, and reports when it has ended. Returns its status.
pub(super) fn run(args: &ShellArgs, limits: &Limits) -> Result<u8, LineError> {
    let paths = &args.line.paths;
    let hosts = build(&args.line, limits)?;
    note(format_args!(
        "the client, {}; `swiftwater lab shell --server` opens a shell on the server, {}",
        address(0, End::Client),
        address(0, End::Server)
    ));
    let code = Program::start(&hosts, End::Client, paths.len(), &[shell()], Stdio::inherit())?.wait()?;
    let (counts, host_dropped) = hosts.counts()?;
    report::tell(paths, &report::rows(paths, &counts, host_dropped), &counts, host_dropped, hosts.device);
    Ok(code)
}

/// Replaces this process by a shell on the server of its laboratory. Returns only if that fails.
pub(super) fn enter_server() -> Result<(), LineError> {
    let hosts = env::var(HOSTS_VARIABLE).map_err(|_| LineError::NotInside)?;
    let (_, server) = hosts.split_once(',').ok_or(LineError::NotInside)?;
    let failed = |source: io::Error| LineError::Program { name: shell().display().to_string(), source };
    note(format_args!(
        "the server, {}; the end of this shell leads back to the client",
        address(0, End::Server)
    ));
    Host::named(server).and_then(|host| host.enter()).map_err(failed)?;
    Err(failed(Command::new(shell()).exec()))
}

fn shell() -> OsString {
    env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}
