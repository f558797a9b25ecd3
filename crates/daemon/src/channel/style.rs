//! Kinds of sockets.

use carrier::page::State;
use rustix::net::SocketType;

/// What kind of socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `SOCK_STREAM`: one association, or a listener.
    OneToOne,
    /// `SOCK_SEQPACKET`: any number of associations.
    OneToMany,
    /// One association, which was one of a one-to-many socket.
    PeeledOff,
}

impl Style {
    pub(crate) fn socket_type(self) -> u32 {
        match self {
            Style::OneToOne => SocketType::STREAM.as_raw(),
            Style::OneToMany | Style::PeeledOff => SocketType::SEQPACKET.as_raw(),
        }
    }

    /// What a fresh socket is to the sharers.
    pub(crate) fn first_stage(self) -> State {
        if self == Style::OneToMany { State::OneToMany } else { State::Idle }
    }
}
