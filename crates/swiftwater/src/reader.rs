//! Receiving many short messages for the cost of one entry into the stack.

use bytes::Bytes;
use sctp::RecvInfo;
use streams::{Interest, Kind, Message as Block, RecordLayout};

use crate::association::Association;
use crate::error::RecvError;
use crate::message::{Message, from_block};
use crate::socket::{Found, Patience, unless_restarted};

/// A received message that a reader lends.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef<'a> {
    /// The stream, payload protocol identifier and sequence numbers of the message.
    pub info: RecvInfo,
    data: Data<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Data<'a> {
    Slice(&'a [u8]),
    Blocks(&'a [Bytes]),
}

impl<'a> MessageRef<'a> {
    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self.data {
            Data::Slice(slice) => slice.len(),
            Data::Blocks(blocks) => blocks.iter().map(Bytes::len).sum(),
        }
    }

    /// Returns whether the message is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes if they lie together, as those of every message do that came in one packet.
    #[inline]
    pub fn as_slice(&self) -> Option<&'a [u8]> {
        match self.data {
            Data::Slice(slice) => Some(slice),
            Data::Blocks([block]) => Some(block),
            Data::Blocks(_) => None,
        }
    }

    /// Returns the bytes in the blocks in which they arrived.
    pub fn blocks(&self) -> impl Iterator<Item = &'a [u8]> {
        let (slice, blocks) = match self.data {
            Data::Slice(slice) => (Some(slice), [].as_slice()),
            Data::Blocks(blocks) => (None, blocks),
        };
        slice.into_iter().chain(blocks.iter().map(|block| &block[..]))
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.blocks().collect::<Vec<_>>().concat()
    }
}

/// The messages that a reader has taken and not yet lent.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The block of those that came together, its layout, and the place of the next.
    run: Option<(Bytes, RecordLayout)>,
    at: usize,
    /// Number of messages in the block that remain.
    left: u32,
    /// A message that came by itself.
    single: Option<Message>,
    is_lent: bool,
}

impl Taken {
    /// Takes the place of what was lent.
    pub(crate) fn put(&mut self, block: Block) {
        *self = Taken::default();
        match &block.kind {
            Kind::Run(run) => {
                let bytes = block.data.blocks().first().cloned().unwrap_or_default();
                (self.run, self.left) = (Some((bytes, run.layout())), run.messages);
            }
            _ => self.single = Some(from_block(block)),
        }
    }

    /// Returns whether a message is there to be lent.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        self.left > 0 || (self.single.is_some() && !self.is_lent)
    }

    /// Lends the next message.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<MessageRef<'_>> {
        if self.left > 0 {
            self.left -= 1;
            let (block, layout) = self.run.as_ref()?;
            let rest = block.get(self.at..)?;
            let record = layout(rest)?;
            self.at += record.bytes;
            return Some(MessageRef { info: record.info, data: Data::Slice(rest.get(record.data)?) });
        }
        self.is_lent = true;
        let single = self.single.as_ref()?;
        Some(MessageRef { info: single.info, data: Data::Blocks(single.data.blocks()) })
    }
}

/// Receives many short messages on an association; made by [`Association::reader`].
///
/// A reader takes the messages of a packet together, and lends them one by one without a copy. It pays for a stream of
/// messages under 2 KB, and the more the shorter they are; for all others it serves as [`Association::recv`] does.
///
/// Until its last message is replaced by the next, the packet's receive block stays in memory.
///
/// Messages that the reader has taken are gone from the association: other clones do not receive them, and those that
/// were not yet lent are lost with the reader. [`Sender`](crate::Sender) has an example.
#[derive(Debug)]
pub struct Reader {
    association: Association,
    taken: Taken,
}

impl Reader {
    pub(crate) fn new(association: Association) -> Self {
        Reader { association, taken: Taken::default() }
    }

    /// Receives the next message; waits for it. Returns `None` when the peer has shut down and everything was read.
    ///
    /// # Errors
    ///
    /// The association was aborted or lost.
    #[inline]
    pub fn recv(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_within(Patience::Forever)
    }

    /// Receives the next message without waiting, if one is available.
    ///
    /// # Errors
    ///
    /// Fails as [`Reader::recv`] does, or with [`RecvError::WouldBlock`].
    pub fn try_recv(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_within(Patience::None)
    }

    #[inline]
    fn recv_within(&mut self, patience: Patience) -> Result<Option<MessageRef<'_>>, RecvError> {
        if !self.taken.has_next() && !self.refill(patience)? {
            return Ok(None);
        }
        Ok(self.taken.next())
    }

    /// Takes what came next. Returns false at the end.
    #[cold]
    fn refill(&mut self, patience: Patience) -> Result<bool, RecvError> {
        let socket = &self.association.shared.socket;
        loop {
            match socket.until(Interest::READABLE, patience, |inner| socket.try_getrun(inner))?? {
                Found::Data(block) => {
                    self.taken.put(block);
                    return Ok(true);
                }
                Found::Primitive(primitive, text) => unless_restarted(&primitive, &text)?,
                Found::End => return self.association.ended().map(|()| false),
            }
        }
    }
}
