//! Checks of processes: descriptors, the shim, a daemon.

use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};
use swiftwater_daemon::{DaemonAddress, Description, NoDaemon, sockets_max};

use super::Finding;
use super::trial::TrialError;
use crate::daemon::stop::explain;

/// Limit on descriptors below which servers of ordinary size are refused sockets.
const DESCRIPTORS_FEW: u64 = 4096;

/// Checks the limit on descriptors, which the daemon raises as far as it may. A daemon that runs already has its own.
pub(super) fn descriptors(daemon_runs: bool) -> Finding {
    let limit = getrlimit(Resource::Nofile);
    of_limits(limit.current, limit.maximum, daemon_runs)
}

fn of_limits(current: Option<u64>, maximum: Option<u64>, daemon_runs: bool) -> Finding {
    const CHECK: &str = "descriptors";
    let Some(maximum) = maximum else { return Finding::ok(CHECK, "no limit for the daemon") };
    let sockets = sockets_max(usize::try_from(maximum).unwrap_or(usize::MAX));
    let current = current.map_or("no limit".into(), |current| current.to_string());
    let found =
        format!("{current} for a program, {maximum} for a daemon that it starts: some {sockets} sockets");
    if maximum >= DESCRIPTORS_FEW {
        return Finding::ok(CHECK, found);
    }
    let advice =
        "raise the hard limit: `LimitNOFILE=` of the service, or `nofile` in /etc/security/limits.conf";
    match sockets {
        0 if !daemon_runs => Finding::fails(CHECK, found, advice),
        _ => Finding::note(CHECK, found, advice),
    }
}

/// Checks the location of the shim.
pub(super) fn shim(found: &Result<PathBuf, String>) -> Finding {
    const CHECK: &str = "shim";
    match found {
        Ok(file) => Finding::ok(CHECK, file.display().to_string()),
        Err(error) => Finding::fails(CHECK, "programs cannot load it", error),
    }
}

/// Checks whether programs get SCTP sockets from the shim.
pub(super) fn preload(tried: Result<&'static str, TrialError>) -> Finding {
    const CHECK: &str = "preload";
    match tried {
        Ok(found) => Finding::ok(CHECK, found),
        Err(TrialError::Daemon(error)) => Finding::fails(CHECK, error, "solve this first, then try again"),
        Err(TrialError::Program(error)) => Finding::fails(
            CHECK,
            error,
            "the dynamic linker must load the shim: both of the same C library (glibc), LD_PRELOAD not filtered, the file readable on a file system that permits execution",
        ),
    }
}

/// Checks the daemon of this network namespace.
pub(super) fn daemon(place: &DaemonAddress, answer: Result<Description, NoDaemon>) -> Finding {
    const CHECK: &str = "daemon";
    let ours = env!("CARGO_PKG_VERSION");
    match answer {
        Ok(daemon) if daemon.version == ours => {
            let Description { process, version, carries, .. } = daemon;
            Finding::ok(CHECK, format!("process {process} at {place}, version {version}: {carries}"))
        }
        Ok(Description { process, version, .. }) => Finding::note(
            CHECK,
            format!("process {process} at {place} is of version {version}, this command of {ours}"),
            "end it when its programs have ended: the next `swiftwater run` starts one of this version",
        ),
        Err(NoDaemon::Absent) => Finding::ok(CHECK, format!("none at {place}; `swiftwater run` starts one")),
        Err(error) => Finding::fails(
            CHECK,
            format!("at {place}: {}", explain(place, &error)),
            "end it, or choose another place: SWIFTWATER_DAEMON=@NAME names one for `swiftwater run`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn few_descriptors_are_noted() {
        assert_eq!(of_limits(Some(1024), Some(524_288), false).state, State::Ok);
        let finding = of_limits(Some(256), Some(1024), false);
        assert!(finding.state == State::Note && finding.found.contains("some 118 sockets"), "{finding:?}");
        assert_eq!(of_limits(None, None, false).state, State::Ok);
        assert_eq!(of_limits(Some(16), Some(16), false).state, State::Fails);
        assert_eq!(
            of_limits(Some(16), Some(16), true).state,
            State::Note,
            "the daemon that runs has its own limit"
        );
    }

    #[test]
    fn a_daemon_is_joined_started_or_of_no_use() {
        let place = DaemonAddress::from("@here");
        let of = |version: &str| Description {
            process: 7,
            version: version.into(),
            on_demand: true,
            carries: "SCTP".into(),
        };
        assert_eq!(daemon(&place, Ok(of(env!("CARGO_PKG_VERSION")))).state, State::Ok);
        let finding = daemon(&place, Ok(of("0.0.1")));
        assert!(finding.state == State::Note && finding.found.contains("version 0.0.1"), "{finding:?}");
        assert_eq!(daemon(&place, Err(NoDaemon::Absent)).state, State::Ok);
        assert_eq!(daemon(&place, Err(NoDaemon::OtherVersion)).state, State::Fails);
        assert_eq!(daemon(&place, Err(NoDaemon::Stranger { user: 7 })).state, State::Fails);
    }
}
