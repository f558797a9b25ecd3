//! Interfaces for this project's daemon only. They may change or disappear at any time.
//!
//! The daemon relays received messages to programs, sees when they read, and polls more than these sockets. A crate
//! below both that offered this would have to export the perimeter, the sockets and the streams of this crate. So these
//! interfaces are here, and not documented.

pub use crate::busy_poll::BusyPoll;
use crate::socket::Patience;
use crate::{Message, Received, RecvError, SharedAssociation};
pub use sctp::{POOL_RESERVED_PART, ReceiveBudget};

/// Receives the next message or event that was already taken from the sockets: makes no system call, and does not flush
/// sent messages.
///
/// # Errors
///
/// Fails as [`Association::try_next`](SharedAssociation::try_next) does.
pub fn next_at_hand(association: &SharedAssociation) -> Result<Option<Received>, RecvError> {
    association.next_with(Patience::NoLook)
}

/// Keeps received messages of at least this many bytes charged to the receive window until [`release_window`].
pub fn hold_window_from(association: &SharedAssociation, bytes: usize) {
    association.hold_window_from(bytes);
}

/// Releases receive window that [`hold_window_from`] has kept: [`window_bytes`] for each message.
pub fn release_window(association: &SharedAssociation, bytes: usize) {
    association.release_window(bytes);
}

/// Returns how much of the receive window a message occupies until it is received.
pub fn window_bytes(message: &Message) -> usize {
    crate::message::window_bytes(&message.data)
}
