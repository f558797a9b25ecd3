//! Kinds of sockets.

use carrier::status_page::State;
use rustix::net::SocketType;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `SOCK_STREAM`: one association, or a listener.
    OneToOne,
    /// `SOCK_SEQPACKET`: any number of associations.
    OneToMany,
    /// One association, peeled off from a one-to-many socket.
    PeeledOff,
}

impl Style {
    pub(crate) fn socket_type(self) -> u32 {
        match self {
            Style::OneToOne => SocketType::STREAM.as_raw(),
            Style::OneToMany | Style::PeeledOff => SocketType::SEQPACKET.as_raw(),
        }
    }

    /// Returns the state of a new socket.
    pub(crate) fn initial_state(self) -> State {
        if self == Style::OneToMany { State::OneToMany } else { State::Idle }
    }
}
