//! `swiftwater doctor`: checks what this host allows, and suggests remedies.
//!
//! Each check is a function that returns a [`Finding`]. Checks try the feature where that is possible, and otherwise read `/proc`
//! and `/etc`. They change nothing: they load no module and raise no limit, and the daemon that is started for the trial ends
//! with it.

mod files;
mod kernel;
mod laboratory;
mod network;
mod process;
mod trial;

use clap::Args;
use serde::Serialize;
use swiftwater_daemon::DaemonAddress;

use crate::failure::Failure;
use crate::output::JsonArgs;
use crate::{host, program, run};
use files::Files;
use trial::Trial;

/// Checks of this host.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is `ok`, `note` (it works, and could do more or be quicker) or `fails`, with what to do about it below. \
The exit status is 1 if something fails: then `swiftwater run` cannot give programs SCTP sockets here.

Nothing is changed. The trial of the shim makes an association on loopback, with a daemon of its own, or with the \
running one where none can be started. The trial of the laboratory makes two hosts and a line, which go with it.

Examples:
  swiftwater doctor                                        what this host allows
  swiftwater doctor --json | jq '.[] | select(.state != \"ok\")'
  swiftwater doctor > /dev/null && swiftwater run -- PROGRAM")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub json: JsonArgs,
    /// Run one of the trials, in a process of its own.
    #[arg(long, hide = true, value_enum)]
    pub trial: Option<Trial>,
}

/// Result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// No action is necessary.
    Ok,
    /// It works, but could be better or faster.
    Note,
    /// Programs get no SCTP sockets until this is fixed.
    Fails,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, state: State::Ok, found: found.into(), advice: None }
    }

    fn note(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { check, state: State::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn fails(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { check, state: State::Fails, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Examines the host and prints the findings. Fails if a finding does.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(trial) = args.trial {
        return Ok(trial.run()?);
    }
    let mut json = args.json.open()?;
    let findings = examine();
    json.write_beside(&text(&findings), &findings)?;
    match findings.iter().filter(|finding| finding.state == State::Fails).count() {
        0 => Ok(()),
        count => {
            Err(format!("programs get no SCTP sockets here: {count} of {} checks fail", findings.len())
                .into())
        }
    }
}

fn examine() -> Vec<Finding> {
    let files = Files::of_this_host();
    let place = DaemonAddress::from_environment();
    let daemon = place.describe();
    let shim = run::find_shim();
    let running = daemon.is_ok().then_some(&place);
    let mut findings = vec![
        kernel::release(&files),
        kernel::sctp(&files),
        kernel::user_namespaces(&files, trial::in_namespaces()),
        laboratory::laboratory(trial::in_laboratory(), program::is_installed(laboratory::IPERF3)),
        network::raw_ip(network::open_raw_socket()),
        network::udp_port(daemon.as_ref().ok(), network::bind_udp_port()),
        network::loopback(host::check_loopback()),
        network::offload(network::can_segment(), network::can_gather()),
        network::buffers(&files),
        process::descriptors(daemon.is_ok()),
        process::shim(&shim),
    ];
    // The trial needs loopback.
    let shim = shim.ok().filter(|_| host::check_loopback().is_ok());
    findings.extend(shim.map(|shim| process::preload(trial::preloaded(&shim, running))));
    findings.push(process::daemon(&place, daemon));
    findings
}

fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { check, state, found, advice } in findings {
        let state = match state {
            State::Ok => "ok",
            State::Note => "note",
            State::Fails => "fails",
        };
        out += &format!("{state:<6} {check:<16} {found}\n");
        for line in advice.iter().flat_map(|advice| advice.lines()) {
            out += &format!("{:<24}{line}\n", "");
        }
    }
    out
}
