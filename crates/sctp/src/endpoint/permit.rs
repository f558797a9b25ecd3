//! Admission of messages to the send queue of an association.

use sctp_message::SendInfo;

use crate::error::SendError;
use crate::identifiers::AssociationId;
use crate::outbound::Block;
use crate::time::Time;

use super::Endpoint;

/// The answer to [`Endpoint::admit`].
#[derive(Debug)]
pub enum Admission<'a> {
    /// The message is valid and there is room for it.
    Granted(Permit<'a>),
    /// There is no room. [`Event::Writable`](crate::Event::Writable) tells when the buffer is at most half full.
    Full,
    /// The message can never be sent: the reason.
    Fail(SendError),
}

/// The right to queue one message, which was checked when the permit was granted. While the permit lives nothing else can
/// happen to the endpoint, so nothing is checked again.
#[derive(Debug)]
#[must_use]
pub struct Permit<'a> {
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) id: AssociationId,
    pub(crate) info: &'a SendInfo,
    pub(crate) bytes: usize,
    pub(crate) is_idle: bool,
    pub(crate) copies: bool,
}

impl Permit<'_> {
    /// Returns whether no data is in flight, so that the message leaves at once.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Returns whether the bytes of the message are copied in any case, so that a slice serves as well as a block.
    #[inline]
    pub fn copies(&self) -> bool {
        self.copies
    }

    /// Queues the message, given as blocks of as many bytes in total as the permit was asked for. The message leaves with a later
    /// `poll_transmit`. Its lifetime begins `now`.
    #[inline]
    pub fn send(self, now: Time, blocks: impl IntoIterator<Item = impl Block>) {
        self.endpoint.queue_message(now, self.id, self.info, self.bytes, blocks);
    }
}
