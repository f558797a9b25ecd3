//! Kinds of sockets.

use channel_protocol::status_page::State;
use rustix::net::SocketType;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `SOCK_STREAM`: one association, or a listener.
    OneToOne,
    /// As `OneToOne`, for a program that takes it for a socket of TCP: a failed setup and the end of the association are
    /// ends of the content, whoever has caused them.
    TcpStream,
    /// `SOCK_SEQPACKET`: any number of associations.
    OneToMany,
    /// One association, peeled off from a one-to-many socket.
    PeeledOff,
}

impl Style {
    pub(crate) fn socket_type(self) -> u32 {
        match self {
            Style::OneToOne | Style::TcpStream => SocketType::STREAM.as_raw(),
            Style::OneToMany | Style::PeeledOff => SocketType::SEQPACKET.as_raw(),
        }
    }

    /// Returns whether the socket is of type `SOCK_STREAM`.
    pub(crate) fn is_one_to_one(self) -> bool {
        matches!(self, Style::OneToOne | Style::TcpStream)
    }

    /// Returns the state of a new socket.
    pub(crate) fn initial_state(self) -> State {
        if self == Style::OneToMany { State::OneToMany } else { State::Idle }
    }
}
