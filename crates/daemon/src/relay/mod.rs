//! The relay of messages between the channel of a socket and its associations.
//!
//! Outbound: the relay reads the channel only while the association has room, so that the kernel tells the program when it may
//! send. Inbound: the relay reads the association only while the channel has room, so that the peer's window closes when the
//! program is slow.
//!
//! Nothing here waits. A step of a direction moves the available messages, up to the limit of one turn, and returns the event
//! that the direction waits for. The tasks wait.

mod batching;
pub(crate) mod drain;
pub(crate) mod inbound;
pub(crate) mod notifications;
pub(crate) mod other_end;
pub(crate) mod outbound;
mod untaken_messages;

use swiftwater::tokio::Association;

/// The way in which a program has left its side of a socket.
#[derive(Debug)]
pub(crate) enum Departure {
    /// The program has shut down sending.
    HalfClosed,
    /// No process has the descriptor any more.
    Closed,
    /// No process has the descriptor any more, and a message was unread.
    Unread,
    /// It has sent a malformed record, or a descriptor: its associations must be aborted.
    Broken,
}

/// The reason in the ABORT when a program closes its socket with unread messages, or with `SO_LINGER` 0: none, as in the kernel.
pub(crate) const NO_REASON: &str = "";

/// The reason in the ABORT after a malformed record.
pub(crate) const BROKEN: &str = "the program has broken its socket";

pub(crate) fn abort(association: &Association, reason: impl AsRef<[u8]>) {
    association.abort(reason);
}

#[cfg(test)]
mod tests;
