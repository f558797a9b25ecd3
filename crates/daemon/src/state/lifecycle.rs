//! The state of a socket, from its opening to the end of its association.

use std::cell::Cell;
use std::rc::Rc;

use channel_protocol::status_page::{PeerShut, State};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::channel::shared_pages::SharedPages;

/// The state of a socket. Each change is shown in the status page, too.
pub(super) struct Lifecycle {
    state: Cell<State>,
    /// How far the peer of the only association has shut it down. Send queues of one-to-many sockets have this of theirs.
    peer_shut: Cell<PeerShut>,
    /// Whether the association was aborted or lost.
    was_lost: Cell<bool>,
    /// Notified when the association has ended.
    ended: Notify,
    pages: Rc<SharedPages>,
}

impl Lifecycle {
    /// Returns the state of a new socket, which these pages show already.
    pub(super) fn new(state: State, pages: Rc<SharedPages>) -> Lifecycle {
        Lifecycle {
            state: Cell::new(state),
            peer_shut: Cell::new(PeerShut::No),
            was_lost: Cell::new(false),
            ended: Notify::new(),
            pages,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state.get()
    }

    pub(super) fn peer_shut(&self) -> PeerShut {
        self.peer_shut.get()
    }

    pub(super) fn was_lost(&self) -> bool {
        self.was_lost.get()
    }

    /// Waits until the association has ended.
    pub(super) async fn association_ended(&self) {
        let ended = self.ended.notified();
        if !self.state().is_end() {
            ended.await;
        }
    }

    /// Changes the state.
    pub(super) fn change(&self, state: State) {
        let before = self.state.replace(state);
        debug_assert!(may_follow(before, state), "{state:?} does not follow {before:?}");
        self.pages.set_state(state);
        if state.is_end() {
            self.ended.notify_waiters();
        }
    }

    /// Records how far the peer has shut the association down.
    pub(super) fn on_peer_shut(&self, peer_shut: PeerShut) {
        self.peer_shut.set(peer_shut);
        self.pages.set_peer_shut(peer_shut);
    }

    /// Records that the association was aborted or lost. The state changes afterwards.
    pub(super) fn on_lost(&self, error: Errno) {
        self.was_lost.set(true);
        self.pages.set_error(error);
    }
}

/// Returns whether a socket in the state `before` may get the state `after`: the table in `docs/daemon.md`.
fn may_follow(before: State, after: State) -> bool {
    match after {
        State::Listening | State::Connecting => before == State::Idle,
        State::Idle => matches!(before, State::Listening | State::Connecting),
        State::OneToManyListening => before == State::OneToMany,
        State::OneToMany => before == State::OneToManyListening,
        State::Connected => before == State::Connecting,
        // An association that has ended before it was accepted is reported when it is handed over, and by its relay.
        State::Ended | State::Lost => matches!(before, State::Connected | State::Ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_follows_only_those_of_the_table() {
        use State::{Connected, Connecting, Ended, Idle, Listening, Lost, OneToMany, OneToManyListening};
        let table = [
            (Idle, &[Listening, Connecting][..]),
            (Listening, &[Idle]),
            (Connecting, &[Idle, Connected]),
            (Connected, &[Ended, Lost]),
            (Ended, &[Ended, Lost]),
            (Lost, &[]),
            (OneToMany, &[OneToManyListening]),
            (OneToManyListening, &[OneToMany]),
        ];
        for (before, expected) in table {
            for (after, _) in table {
                assert_eq!(
                    may_follow(before, after),
                    expected.contains(&after),
                    "{after:?} after {before:?}"
                );
            }
        }
    }
}
