//! The states of a path (RFC 9260 §8.2, RFC 7829).

use crate::error::by_name;

/// Whether a path may carry data (RFC 9260 §5.4, §8.2, RFC 7829).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathState {
    /// The peer has not yet confirmed the address.
    Unconfirmed,
    /// In use.
    Active,
    /// The path has just stopped answering. Data takes other paths until it answers, if any is active.
    Suspected,
    /// PotentiallyFailed.Max.Retrans attempts were not answered (RFC 7829). Data takes other paths.
    PotentiallyFailed,
    /// Path.Max.Retrans attempts were not answered.
    Inactive,
}

impl PathState {
    /// All states.
    pub const ALL: [PathState; 5] = [
        PathState::Unconfirmed,
        PathState::Active,
        PathState::Suspected,
        PathState::PotentiallyFailed,
        PathState::Inactive,
    ];

    /// Returns the name of the state in reports and traces, which [`FromStr`](std::str::FromStr) parses.
    pub fn name(self) -> &'static str {
        match self {
            PathState::Unconfirmed => "unconfirmed",
            PathState::Active => "active",
            PathState::Suspected => "suspected",
            PathState::PotentiallyFailed => "potentially_failed",
            PathState::Inactive => "inactive",
        }
    }

    /// Returns whether the user sees the path as reachable. [`Event::PathChanged`](crate::Event::PathChanged) does not report
    /// potential failures (RFC 7829 §7.3).
    pub fn is_usable(self) -> bool {
        matches!(self, PathState::Active | PathState::Suspected | PathState::PotentiallyFailed)
    }

    /// Returns the order of preference for data while no path is active: the lowest comes first.
    pub(crate) fn rank(self) -> u8 {
        match self {
            PathState::Active => 0,
            PathState::Suspected => 1,
            PathState::PotentiallyFailed => 2,
            PathState::Inactive => 3,
            PathState::Unconfirmed => 4,
        }
    }
}

by_name!(PathState, "no such state of a path");
