//! The state of a path and its error counter (RFC 9260 §8.2, RFC 7829): one decides about the other.

use super::PathSettings;
use crate::path_state::PathState;

/// Maximum number of errors of a path that still counts as answering: a timeout alone may be a loss.
const ERRORS_OF_ANSWERING_MAX: u32 = 1;

#[derive(Debug)]
pub(super) struct Reachability {
    state: PathState,
    /// Consecutive timeouts and unanswered heartbeats.
    errors: u32,
}

impl Default for Reachability {
    fn default() -> Self {
        Reachability { state: PathState::Unconfirmed, errors: 0 }
    }
}

impl Reachability {
    #[inline]
    pub(super) fn state(&self) -> PathState {
        self.state
    }

    pub(super) fn errors(&self) -> u32 {
        self.errors
    }

    /// Returns whether the peer has answered here lately.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.state, PathState::Active | PathState::Suspected)
            && self.errors <= ERRORS_OF_ANSWERING_MAX
    }

    /// Returns whether the path has exceeded Path.Max.Retrans.
    pub(super) fn retries_exceeded(&self, settings: &PathSettings) -> bool {
        self.errors > settings.retries_max
    }

    /// Confirms the address: the user has named it, or the handshake has passed there (RFC 9260 §5.4).
    pub(super) fn confirm(&mut self) {
        self.state = PathState::Active;
    }

    /// Handles a packet that was not answered. Returns the state to which the path falls by that. It is potentially failed only
    /// if data has another path (`has_other`).
    pub(super) fn on_unanswered(&mut self, settings: &PathSettings, has_other: bool) -> Option<PathState> {
        self.errors += 1;
        if !self.state.is_usable() {
            return None;
        }
        let failed = self.retries_exceeded(settings);
        let may_have_failed = has_other && self.errors > settings.potentially_failed_retries_max;
        self.state = match (failed, may_have_failed) {
            (true, _) => PathState::Inactive,
            (false, true) => PathState::PotentiallyFailed,
            (false, false) => return None,
        };
        Some(self.state)
    }

    /// Handles silence that has lasted too long.
    pub(super) fn suspect(&mut self) {
        self.state = PathState::Suspected;
    }

    /// Handles a sign that the path works, or an answer although data avoids it: the state stays.
    #[inline]
    pub(super) fn on_sign_of_life(&mut self) {
        self.errors = 0;
    }

    /// Handles an answer: the path is active from now on. Returns its previous state.
    pub(super) fn on_answer(&mut self) -> PathState {
        self.errors = 0;
        std::mem::replace(&mut self.state, PathState::Active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AssociationConfig;

    fn falls(has_other: bool) -> Vec<Option<PathState>> {
        let settings = PathSettings {
            retries_max: 2,
            potentially_failed_retries_max: 0,
            ..PathSettings::new(&AssociationConfig::default())
        };
        let mut path = Reachability::default();
        path.confirm();
        (0..4).map(|_| path.on_unanswered(&settings, has_other)).collect()
    }

    #[test]
    fn a_path_falls_from_state_to_state_and_the_only_one_is_not_potentially_failed() {
        let (failed, potentially) = (Some(PathState::Inactive), Some(PathState::PotentiallyFailed));
        assert_eq!(falls(true), [potentially, potentially, failed, None]);
        assert_eq!(falls(false), [None, None, failed, None]);
    }

    #[test]
    fn a_sign_of_life_clears_the_errors_and_an_answer_the_state_too() {
        let settings = PathSettings::new(&AssociationConfig::default());
        let mut path = Reachability::default();
        path.confirm();
        path.suspect();
        assert_eq!(path.on_unanswered(&settings, false), None);
        path.on_sign_of_life();
        assert_eq!((path.state(), path.errors()), (PathState::Suspected, 0));
        path.on_unanswered(&settings, false);
        assert_eq!(path.on_answer(), PathState::Suspected);
        assert_eq!((path.state(), path.errors()), (PathState::Active, 0));
    }
}
