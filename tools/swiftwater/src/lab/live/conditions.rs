//! Restrictions of this host, and transports that it lacks.

use std::io;

use netns::{Host, private};

use super::Settings;
use super::plan::{self, Series, Tool};
use super::selection::cells;
use crate::lab::args::LiveName;
use crate::lab::line::limits;
use crate::program::is_installed;
use crate::run::find_shim_for_itself;
use crate::sockets;

/// Program of the series `sctp-sockets`.
const IPERF3: &str = "iperf3";

/// Conditions of live experiments on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::lab) struct Conditions {
    /// Restrictions, a sentence each.
    pub(in crate::lab) limits: Vec<String>,
    /// Series that this host lacks.
    missing: Vec<Missing>,
}

/// A series that this host lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Missing {
    series: &'static str,
    reason: String,
}

impl Conditions {
    /// Tries what the selected measurements of these experiments need.
    pub(in crate::lab) fn find(experiments: &[LiveName], settings: &Settings<'_>) -> Self {
        let mut missing: Vec<Missing> = Vec::new();
        let plans = experiments.iter().flat_map(|&name| plan::plans(name));
        for cell in plans.flat_map(|plan| cells(&plan, settings)) {
            for series in cell.all_series() {
                if missing.iter().all(|one| one.series != series.name)
                    && let Err(error) = try_series(series, try_mptcp_paths)
                {
                    missing.push(Missing { series: series.name, reason: error.to_string() });
                }
            }
        }
        // Without lines, an experiment runs outside of namespaces and without an emulator.
        let limits = if private::is_inside() { limits::all() } else { Vec::new() };
        Conditions { limits, missing }
    }

    /// Returns whether this host has what a series needs.
    pub(super) fn permit(&self, series: Series) -> bool {
        self.missing.iter().all(|one| one.series != series.name)
    }

    /// Returns a sentence for each series that is left out.
    pub(in crate::lab) fn left_out(&self) -> Vec<String> {
        self.missing.iter().map(|one| format!("without {}: {}", one.series, one.reason)).collect()
    }
}

/// Opens a socket as the series needs it, or looks for the program that it needs, and configures the paths of MPTCP.
fn try_series(series: Series, try_mptcp_paths: fn() -> io::Result<()>) -> io::Result<()> {
    let words = match series.tool {
        Tool::Iperf3 if is_installed(IPERF3) => {
            return find_shim_for_itself().map(drop).map_err(io::Error::other);
        }
        Tool::Iperf3 => return Err(io::Error::other(format!("{IPERF3} is not installed"))),
        Tool::Perf(words) => words,
    };
    let value =
        |option| words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1).copied());
    let protocol = match value("--proto") {
        Some("tcp") => None,
        Some("mptcp") => Some(sockets::MPTCP),
        // Our SCTP needs nothing of the kernel but UDP.
        _ => return Ok(()),
    };
    sockets::offers(protocol, value("--congestion"))?;
    if protocol == Some(sockets::MPTCP) { try_mptcp_paths() } else { Ok(()) }
}

/// Configures MPTCP on a host of its own, as for a measurement. On loopback there are no paths to configure.
fn try_mptcp_paths() -> io::Result<()> {
    if !private::is_inside() {
        return Ok(());
    }
    let configured = Host::new().and_then(|host| host.ip("mptcp limits set subflows 1 add_addr_accepted 1"));
    configured.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings<'_> =
        Settings { seconds: None, case: "", repeat: None, quick: false, full: false, seed: 1 };

    fn series(words: &'static [&'static str]) -> Series {
        Series { name: "tried", tool: Tool::Perf(words), paths: 1, alone: "tried" }
    }

    #[test]
    fn a_transport_that_the_kernel_lacks_is_named_with_the_reason() {
        let try_series = |words| super::try_series(series(words), || Ok(()));
        try_series(&["--proto", "tcp", "--congestion", "reno"]).expect("every kernel has it");
        try_series(&["--mode", "message"]).expect("it needs nothing of the kernel");
        let error = try_series(&["--proto", "tcp", "--congestion", "no-such"]).expect_err("none has it");
        let said = error.to_string();
        assert!(said.contains("congestion control `no-such`") && said.contains("modprobe"), "{said}");
    }

    #[test]
    fn mptcp_whose_paths_cannot_be_configured_is_missing_from_the_start() {
        let refuse = || Err(io::Error::other("`ip mptcp` is unknown"));
        if sockets::offers(Some(sockets::MPTCP), Some("cubic")).is_ok() {
            let error = try_series(plan::MPTCP, refuse).expect_err("it has no paths");
            assert_eq!(error.to_string(), "`ip mptcp` is unknown");
        }
        try_series(series(&["--proto", "tcp", "--congestion", "reno"]), refuse).expect("it needs one path");
    }

    #[test]
    fn a_series_that_is_missing_is_left_out() {
        let missing = vec![Missing { series: "tried", reason: "the kernel has no such protocol".into() }];
        let conditions = Conditions { limits: Vec::new(), missing };
        assert!(!conditions.permit(series(&[])) && Conditions::default().permit(series(&[])));
        assert_eq!(conditions.left_out(), ["without tried: the kernel has no such protocol"]);
    }

    #[test]
    fn our_transports_need_nothing_of_the_kernel() {
        let conditions = Conditions::find(&[LiveName::Lossy], &Settings { case: "sctp-", ..SETTINGS });
        assert_eq!(conditions, Conditions::default());
    }
}
