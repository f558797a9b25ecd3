//! Interfaces for this project's daemon only. They may change or go at any time.
//!
//! The daemon relays what it receives to programs, whose reading it sees, and polls more than these sockets. That is so
//! close to the stack that a crate below both would have to export the perimeter, the sockets and the streams of this one; so
//! it lies here, and outside the documentation.

pub use crate::busy_poll::BusyPoll;
use crate::socket::Patience;
use crate::{Message, Received, RecvError, SharedAssociation};
pub use sctp::{POOL_RESERVED_PART, ReceiveBudget};

/// Receives the next message or event if it has been taken from the sockets already: it makes no system call, and does not
/// flush what was sent.
///
/// # Errors
///
/// As [`Association::try_next`](SharedAssociation::try_next).
pub fn next_at_hand(association: &SharedAssociation) -> Result<Option<Received>, RecvError> {
    association.next_with(Patience::NoLook)
}

/// Keeps messages of this many bytes and more charged to the receive window when they are received, until
/// [`release_window`].
pub fn hold_window_from(association: &SharedAssociation, bytes: usize) {
    association.hold_window_from(bytes);
}

/// Releases receive window that [`hold_window_from`] has kept: [`window_bytes`] for each message.
pub fn release_window(association: &SharedAssociation, bytes: usize) {
    association.release_window(bytes);
}

/// Returns what a message takes of the receive window until it is received.
pub fn window_bytes(message: &Message) -> usize {
    crate::message::window_bytes(&message.data)
}
