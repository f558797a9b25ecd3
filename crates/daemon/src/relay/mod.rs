//! Messages between the channel of a socket and its associations.
//!
//! Down: the channel is read only while the association has room, so that the kernel tells the program when it may send.
//! Up: the association is read only while the channel has room, so that the peer's window closes when the program is slow.

mod batching;
pub(crate) mod drain;
pub(crate) mod inbound;
pub(crate) mod notifications;
pub(crate) mod outbound;

use bytes::Bytes;
use swiftwater::tokio::Association;

/// How a program has left its side of a socket.
pub(crate) enum Departure {
    /// It sends no more.
    HalfClosed,
    /// Nobody has the descriptor any more.
    Closed,
    /// Nobody has the descriptor any more, and a message was unread.
    Unread,
    /// What is on its way is to be lost, for this reason: the program asks for that, or has broken its channel.
    Abort(Bytes),
}

/// What the peer is told when a program closes its socket with something unread, or with `SO_LINGER` 0: as the kernel, nothing.
pub(crate) const NO_REASON: &str = "";

/// What the peer is told when a program has broken its channel.
const BROKEN: &[u8] = b"the program has broken its socket";

pub(crate) fn abort(association: &Association, reason: &str) {
    association.clone().abort(reason);
}
