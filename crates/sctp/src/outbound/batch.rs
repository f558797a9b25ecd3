//! Short messages that are written before the association is asked to take them.

use sctp_message::SendInfo;
use sctp_wire::chunk::DataHeader;

use super::blocks::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Block};
use super::is_short;
use super::run::wire_bytes;
use super::short::Short;
use crate::config::MESSAGE_OVERHEAD_BYTES;

/// Limit for what a batch takes of the send buffer.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// Short messages for one association, in wire form. [`Endpoint::send_batch`](crate::Endpoint::send_batch) queues all of them at
/// the cost of one.
///
/// ```
/// use sctp::{Batch, SendInfo};
///
/// let mut batch = Batch::new();
/// assert!(batch.push(&SendInfo::default(), b"one"));
/// assert!(batch.push(&SendInfo { stream: 2, ..SendInfo::default() }, b"two"));
/// assert!(!batch.push(&SendInfo::default(), &[0; 5000]), "a long message gains nothing");
/// assert_eq!((batch.messages(), batch.data_bytes()), (2, 6));
/// assert_eq!(batch.first().map(|(info, message)| (info.stream, message)), Some((0, &b"one"[..])));
/// ```
#[derive(Debug, Default)]
pub struct Batch {
    short: Short,
    /// Size of the block that the association gave for the messages; 0 if they lie in memory that the batch has allocated.
    block_bytes: usize,
    data_bytes: usize,
    /// The stream with the highest number.
    stream_max: u16,
    message_bytes_max: usize,
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of messages.
    #[inline]
    pub fn messages(&self) -> usize {
        self.short.messages
    }

    /// Returns the bytes of all messages.
    #[inline]
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Returns whether it has no messages.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.short.messages == 0
    }

    /// Returns the description that an association accepts only if it accepts that of each message: the highest stream, and the
    /// length of the longest message.
    pub(crate) fn most_demanding(&self) -> (SendInfo, usize) {
        (SendInfo { stream: self.stream_max, ..SendInfo::default() }, self.message_bytes_max)
    }

    /// Returns what the messages take of the send buffer.
    #[inline]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.data_bytes + self.short.messages * MESSAGE_OVERHEAD_BYTES
    }

    /// Appends a message. Returns false if the message must be sent by itself: it is empty, not short, a part of a record, or has
    /// a lifetime; or after the batch: the batch is full, or its messages have another context or path.
    #[inline]
    #[must_use]
    pub fn push(&mut self, info: &SendInfo, message: &[u8]) -> bool {
        let bytes = message.len();
        if !is_short(info, bytes) || bytes == 0 || self.buffered_bytes() >= BATCH_BYTES_MAX {
            return false;
        }
        let (context, path) = (info.context, info.path);
        if self.is_empty() {
            (self.short.context, self.short.path) = (context, path);
        } else if (self.short.context, self.short.path) != (context, path) {
            return false;
        }
        self.data_bytes += bytes;
        self.stream_max = self.stream_max.max(info.stream);
        self.message_bytes_max = self.message_bytes_max.max(bytes);
        let wire = wire_bytes(bytes);
        if self.short.wire.capacity() - self.short.wire.len() < wire {
            self.grow(wire);
        }
        self.short.push(info, bytes, [message]);
        true
    }

    /// Moves the messages to memory of the batch that has room for `bytes` more.
    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.short.wire.reserve(bytes);
        (self.short.charge, self.block_bytes) = (None, 0);
    }

    /// Returns the first message.
    pub fn first(&self) -> Option<(SendInfo, &[u8])> {
        let (header, message) = self.short.iter().next()?;
        let DataHeader { flags, stream, ppid, .. } = header;
        let info = SendInfo {
            stream: stream.0,
            ppid: ppid.0,
            unordered: flags.unordered,
            immediate: flags.immediate,
            context: self.short.context,
            path: self.short.path,
            ..SendInfo::default()
        };
        Some((info, message))
    }

    /// Removes the first message.
    pub fn drop_first(&mut self) {
        if let Some(header) = self.short.drop_first() {
            self.data_bytes -= header.payload_bytes;
        }
        if self.is_empty() {
            return self.clear();
        }
        (self.stream_max, self.message_bytes_max) = (0, 0);
        for (header, message) in self.short.iter() {
            self.stream_max = self.stream_max.max(header.stream.0);
            self.message_bytes_max = self.message_bytes_max.max(message.len());
        }
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.short.wire.clear();
        (self.short.messages, self.data_bytes) = (0, 0);
        (self.stream_max, self.message_bytes_max) = (0, 0);
    }

    /// Removes all messages and returns them.
    pub(super) fn take(&mut self) -> Short {
        let Short { messages, context, path, .. } = self.short;
        let (wire, charge) = (self.short.wire.split(), self.short.charge.clone());
        self.clear();
        Short { wire, charge, messages, context, path }
    }

    /// Exchanges the block if it has less room than the messages took that were just removed: `bytes` in wire form.
    pub(super) fn renew_block(&mut self, bytes: usize, exchange: impl FnOnce(Block, usize) -> Block) {
        if self.short.wire.capacity() < bytes {
            let spent = Block {
                wire: std::mem::take(&mut self.short.wire),
                charge: self.short.charge.take(),
                bytes: self.block_bytes,
            };
            let bytes = bytes.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).next_power_of_two();
            let block = exchange(spent, bytes);
            (self.short.wire, self.short.charge, self.block_bytes) = (block.wire, block.charge, block.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use sctp_message::PathId;

    use super::*;

    #[test]
    fn messages_that_need_their_own_send_are_refused() {
        let plain = SendInfo::default();
        let mut batch = Batch::new();
        for (info, bytes) in [
            (plain, 0),
            (plain, 2048),
            (SendInfo { more: true, ..plain }, 5),
            (SendInfo { lifetime: Some(std::time::Duration::from_secs(1).into()), ..plain }, 5),
        ] {
            assert!(!batch.push(&info, &vec![1; bytes]), "{info:?} {bytes}");
        }
        assert!(batch.push(&plain, b"first"));
        assert!(!batch.push(&SendInfo { context: 1, ..plain }, b"other context"));
        assert!(!batch.push(&SendInfo { path: Some(PathId(1)), ..plain }, b"other path"));
        assert!(batch.push(&SendInfo { stream: 7, ppid: 9, unordered: true, ..plain }, b"second"));
        assert_eq!((batch.messages(), batch.stream_max, batch.message_bytes_max), (2, 7, 6));
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let mut batch = Batch::new();
        let named = SendInfo { path: Some(PathId(3)), context: 8, ..SendInfo::default() };
        let infos = [(1, false, true), (2, true, false)].map(|(stream, unordered, immediate)| SendInfo {
            stream,
            unordered,
            immediate,
            ppid: 40 + u32::from(stream),
            ..named
        });
        assert!(batch.push(&infos[0], b"one") && batch.push(&infos[1], b"three"));
        assert_eq!(batch.first(), Some((infos[0], &b"one"[..])));
        batch.drop_first();
        assert_eq!((batch.messages(), batch.data_bytes()), (1, 5));
        assert_eq!(batch.first(), Some((infos[1], &b"three"[..])));
        batch.drop_first();
        assert!(batch.is_empty() && batch.first().is_none() && batch.data_bytes() == 0);
    }

    #[test]
    fn a_message_that_was_dropped_has_no_share_in_the_limits() {
        let mut batch = Batch::new();
        for (stream, bytes) in [(9, 100), (3, 40), (5, 7)] {
            assert!(batch.push(&SendInfo { stream, ..SendInfo::default() }, &vec![1; bytes]));
        }
        batch.drop_first();
        assert_eq!((batch.stream_max, batch.message_bytes_max), (5, 40));
    }

    #[test]
    fn a_batch_has_a_limit() {
        let mut batch = Batch::new();
        while batch.push(&SendInfo::default(), b"0123456789abcdef") {}
        assert_eq!(batch.messages(), BATCH_BYTES_MAX.div_ceil(16 + MESSAGE_OVERHEAD_BYTES));
        let taken = batch.take();
        assert_eq!(taken.wire.len(), taken.messages * 32);
        assert!(batch.is_empty() && batch.push(&SendInfo::default(), b"again"));
    }
}
