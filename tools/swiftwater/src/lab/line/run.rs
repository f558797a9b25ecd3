//! `lab run`: programs on the two hosts.

use std::io;
use std::process::Stdio;

use netns::private::Limits;

use super::args::RunArgs;
use super::hosts::End;
use super::program::Program;
use super::{LineError, build, report};
use crate::interrupt;

/// Runs the programs and reports. Returns the client's status.
pub(super) fn run(args: &RunArgs, limits: &Limits) -> Result<u8, LineError> {
    let mut json = args.json.open()?;
    let paths = &args.line.paths;
    let mut hosts = build(&args.line, limits)?;
    // An array on standard output has it for itself.
    let leaves_text = json.leaves_text();
    let output = || if leaves_text { Stdio::inherit() } else { Stdio::from(io::stderr()) };
    let mut server = match &args.server {
        None => None,
        Some(line) => {
            let mut server = Program::start_server(&hosts, paths.len(), line, output())?;
            if let Some(code) = server.wait_until_open(&hosts)? {
                // A terminal sends Ctrl-C to the server, too.
                if interrupt::requested() {
                    return Ok(code);
                }
                return Err(LineError::Server { line: line.clone(), code });
            }
            Some(server)
        }
    };
    hosts.restart(args.line.seed)?;
    let mut client = Program::start(&hosts, End::Client, paths.len(), &args.program, output())?;
    let code = client.wait()?;
    let (counts, host_dropped) = hosts.counts()?;
    if let Some(server) = &mut server {
        server.end()?;
    }
    let rows = report::rows(paths, &counts, host_dropped);
    if leaves_text {
        report::tell(paths, &rows, &counts, host_dropped, hosts.device);
    }
    json.write(&rows)?;
    Ok(code)
}
