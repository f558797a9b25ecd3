//! The end of an association's send queue, lent to the caller that fills it.

use super::message_limits::MessageLimits;
use super::run::wire_bytes;
use super::short::Short;
use super::{COPIED_BYTES_MAX, SHORT_BYTES_MAX, is_copied};
use crate::config::MESSAGE_OVERHEAD_BYTES;
use crate::identifiers::AssociationId;
use sctp_message::SendInfo;

/// The place where the short messages of one association wait, lent by [`Endpoint::lend_stage`](crate::Endpoint::lend_stage).
/// Messages that it takes are admitted: it knows the room in the send buffer and what else the association would check.
///
/// Nothing may be asked of the association until [`Endpoint::return_stage`](crate::Endpoint::return_stage), except that its
/// reader has taken bytes: the association does not know the messages before.
#[derive(Debug)]
pub struct Stage {
    id: AssociationId,
    short: Short,
    limits: StageLimits,
    /// Number of messages, and their wire bytes, that waited when the stage was lent.
    waited: (usize, usize),
    /// Room in the send buffer when the stage was lent.
    room_bytes: usize,
}

/// The checks that an association makes when it admits a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageLimits {
    /// Room in the send buffer.
    pub(super) room_bytes: usize,
    /// Wire bytes to append until the messages are to leave.
    pub(super) due_from_bytes: usize,
    /// Maximum size of a message that is copied to the others that wait.
    pub(super) copied_bytes_max: usize,
    pub(super) messages: MessageLimits,
}

/// The outcome of a message at a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staged {
    /// The stage did not take the message, which must be sent by [`Endpoint::admit`](crate::Endpoint::admit) after the stage is
    /// returned.
    No,
    /// The stage has taken the message.
    Yes,
    /// The stage has taken the message, and the messages are to leave: return the stage.
    Due,
}

impl Stage {
    pub(super) fn new(id: AssociationId, short: Short, limits: StageLimits) -> Self {
        let waited = (short.messages, short.wire.len());
        let limits =
            StageLimits { due_from_bytes: limits.due_from_bytes.saturating_add(short.wire.len()), ..limits };
        Stage { id, short, limits, waited, room_bytes: limits.room_bytes }
    }

    /// Maximum size of a message that any association stages: those with small packets stage shorter ones
    /// ([`Endpoint::copied_bytes_max`](crate::Endpoint::copied_bytes_max)).
    pub const MESSAGE_BYTES_MAX: usize = COPIED_BYTES_MAX;
    /// Maximum size of a message that every association stages.
    pub const SHORT_BYTES_MAX: usize = SHORT_BYTES_MAX;

    /// Returns whether a message of `bytes` can be staged at all.
    #[inline]
    pub fn takes(info: &SendInfo, bytes: usize) -> bool {
        is_copied(info, bytes, COPIED_BYTES_MAX)
    }

    /// Returns whether [`Stage::push`] would take a message of `bytes`.
    #[inline]
    pub fn fits(&self, info: &SendInfo, bytes: usize) -> bool {
        let Stage { short, limits, .. } = self;
        is_copied(info, bytes, limits.copied_bytes_max)
            && limits.messages.check(info, bytes).is_ok()
            && bytes + MESSAGE_OVERHEAD_BYTES <= limits.room_bytes
            && wire_bytes(bytes) <= short.wire.capacity() - short.wire.len()
            && info.context == short.context
            && info.path == short.path
    }

    /// Appends a message if the association would take it at once.
    #[inline]
    #[must_use]
    pub fn push(&mut self, info: &SendInfo, message: &[u8]) -> Staged {
        let bytes = message.len();
        if !self.fits(info, bytes) {
            return Staged::No;
        }
        let (short, limits) = (&mut self.short, &mut self.limits);
        short.push(info, bytes, [message]);
        limits.room_bytes -= bytes + MESSAGE_OVERHEAD_BYTES;
        if short.wire.len() < limits.due_from_bytes { Staged::Yes } else { Staged::Due }
    }

    /// Returns the number of messages that were appended.
    #[inline]
    pub fn messages(&self) -> usize {
        self.short.messages - self.waited.0
    }

    /// Returns the bytes of the messages that were appended.
    #[inline]
    pub fn data_bytes(&self) -> usize {
        self.buffered_bytes() - self.messages() * MESSAGE_OVERHEAD_BYTES
    }

    #[inline]
    pub(crate) fn id(&self) -> AssociationId {
        self.id
    }

    /// Returns what the messages that were appended take of the send buffer.
    #[inline]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.room_bytes - self.limits.room_bytes
    }

    /// Returns all messages, and the wire bytes of those that were appended.
    #[inline]
    pub(super) fn into_short(self) -> (Short, usize) {
        let appended_bytes = self.short.wire.len() - self.waited.1;
        (self.short, appended_bytes)
    }
}
