//! Restrictions of this host, and transports that it lacks.

use std::io;

use netns::{Host, private};

use super::Settings;
use super::figures::Cell;
use super::plan::{self, Load, Plan, Series, Tool};
use super::selection::cells;
use crate::lab::args::LiveName;
use crate::lab::line::hosts::try_beside;
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
    /// Why the hosts cannot be joined beside the lines; `None` if they can.
    no_beside: Option<String>,
    /// Whether a selected measurement has a line that goes down.
    has_outages: bool,
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
        let mut has_outages = false;
        for plan in experiments.iter().flat_map(|&name| plan::plans(name)) {
            let cells = cells(&plan, settings);
            has_outages |= cells.iter().any(|cell| plan.goes_down(&cell.load, cell.series));
            for series in cells.iter().flat_map(Cell::all_series) {
                if missing.iter().all(|one| one.series != series.name)
                    && let Err(error) = try_series(series, try_mptcp_paths)
                {
                    missing.push(Missing { series: series.name, reason: error.to_string() });
                }
            }
        }
        // Without lines, an experiment runs outside of namespaces and without an emulator.
        let is_inside = private::is_inside();
        let no_beside = if is_inside { try_beside().err().map(|error| error.to_string()) } else { None };
        let mut limits = if is_inside { limits::all() } else { Vec::new() };
        limits.extend(no_beside.as_deref().map(beside_sentence));
        Conditions { limits, missing, no_beside, has_outages }
    }

    /// Returns whether the hosts can be joined beside the lines, for reports.
    pub(super) fn has_beside(&self) -> bool {
        self.no_beside.is_none()
    }

    /// Returns whether this host has what a series needs.
    pub(super) fn permit(&self, series: Series) -> bool {
        self.missing.iter().all(|one| one.series != series.name)
    }

    /// Returns whether this host can measure a load by a series: over a line that goes down no report would arrive in time.
    pub(super) fn permit_outages(&self, plan: &Plan, load: &Load, series: Series) -> bool {
        self.has_beside() || !plan.goes_down(load, series)
    }

    /// Returns a sentence for each series that is left out, and one for lines that go down if they are.
    pub(in crate::lab) fn left_out(&self) -> Vec<String> {
        let of_series = self.missing.iter().map(|one| format!("without {}: {}", one.series, one.reason));
        let outages = self
            .no_beside
            .as_ref()
            .filter(|_| self.has_outages)
            .map(|_| "without lines that go down: no report would arrive in time");
        of_series.chain(outages.map(str::to_owned)).collect()
    }
}

fn beside_sentence(reason: &str) -> String {
    format!(
        "there are no veth pairs ({reason}): reports of both ends travel over the first line, beside the data; load the kernel \
         module (modprobe veth) as root"
    )
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
        let conditions = Conditions { missing, ..Conditions::default() };
        assert!(!conditions.permit(series(&[])) && Conditions::default().permit(series(&[])));
        assert_eq!(conditions.left_out(), ["without tried: the kernel has no such protocol"]);
    }

    #[test]
    fn lines_that_go_down_are_left_out_where_reports_need_them() {
        let no_beside = Some("no module".to_owned());
        let without = Conditions { no_beside, has_outages: true, ..Conditions::default() };
        let permitted = |conditions: &Conditions, name| {
            let plan = plan::plans(name).swap_remove(0);
            plan.loads
                .iter()
                .map(|load| conditions.permit_outages(&plan, load, load.series[0]))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            permitted(&without, LiveName::Flapping),
            [true, true, false],
            "one network alone is always up"
        );
        assert_eq!(permitted(&Conditions::default(), LiveName::Flapping), [true; 3]);
        assert_eq!(permitted(&without, LiveName::Lossy), [true; 2]);
        assert_eq!(without.left_out(), ["without lines that go down: no report would arrive in time"]);
        assert!(beside_sentence("no module").contains("(no module)"));
    }

    #[test]
    fn our_transports_need_nothing_of_the_kernel() {
        let conditions = Conditions::find(&[LiveName::Lossy], &Settings { case: "sctp-", ..SETTINGS });
        assert_eq!(conditions, Conditions::default());
    }
}
