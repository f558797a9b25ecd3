//! Interfaces for this project's daemon only. They may change or disappear at any time.
//!
//! The daemon relays received messages to programs, sees when they read, and polls more than these sockets. A crate
//! below both that offered this would have to export the perimeter, the sockets and the streams of this crate. So these
//! interfaces are here, and not documented.

pub use crate::busy_poll::BusyPoll;
use crate::socket::Wait;
use crate::{Message, Received, RecvError, SendError, SendInfo, SharedAssociation, Stack};
use bytes::Bytes;
pub use sctp::{
    AssociationView, POOL_RESERVED_PART, PathView, ReceiveBudget, SEND_RESERVED_PART, SendBudget,
};

/// Receives the next message or event that was already taken from the sockets: makes no system call, and does not flush
/// sent messages.
///
/// # Errors
///
/// Fails as [`Association::try_next`](SharedAssociation::try_next) does.
pub fn next_at_hand(association: &SharedAssociation) -> Result<Option<Received>, RecvError> {
    association.next_with(Wait::NoPoll)
}

/// Sends one message without a copy of its bytes if the send buffer has room for it. Does not take in
/// arrivals to make room, so it makes no system call for that.
///
/// # Errors
///
/// Fails as [`Association::try_send`](SharedAssociation::try_send) does.
pub fn send_at_hand(
    association: &SharedAssociation,
    message: &Bytes,
    info: &SendInfo,
) -> Result<(), SendError> {
    association.send_bytes_with(message, info, Wait::NoPoll)
}

/// Ends sending (RFC 9260 §9.2) if the stream takes the request now.
///
/// # Errors
///
/// The association is already closed, or the call fails with [`SendError::WouldBlock`].
pub fn shutdown_at_hand(association: &SharedAssociation) -> Result<(), SendError> {
    association.shutdown_with(Wait::NoPoll)
}

/// Sets whether the caller has messages left that it has accepted from others and that wait for room. An association
/// whose peer shuts it down meanwhile takes them, and ends only when the caller has no more.
pub fn set_has_rest(association: &SharedAssociation, has_rest: bool) {
    association.set_has_rest(has_rest);
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

/// Reads what an association has negotiated, and its present condition; returns `None` once it has ended.
pub fn view<R>(association: &SharedAssociation, read: impl FnOnce(AssociationView<'_>) -> R) -> Option<R> {
    association.view(read)
}

/// Returns the number of batches of packets that the stack has sent or received so far. The daemon runs pending work until
/// this number no longer changes.
pub fn batches_moved(stack: &Stack) -> u64 {
    stack.with_driver(|driver| driver.batches_moved()).unwrap_or_default()
}
