//! Receiving many short messages for the cost of one entry into the stack.

use bytes::Bytes;
use sctp::RecvInfo;
use streams::{Interest, Kind, Message as Block, RunMessages};

use crate::association::{Association, SharedAssociation};
use crate::error::RecvError;
use crate::message::{Message, from_block};
use crate::socket::{Found, Wait, check_restart};

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

    /// Returns the bytes if they are contiguous, as in every message that arrived in one packet.
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
pub(crate) struct TakenMessages {
    /// The messages that arrived in one packet.
    run: Option<RunMessages>,
    /// A message that arrived alone.
    single: Option<Message>,
    is_lent: bool,
}

impl TakenMessages {
    /// Replaces the messages, all of them lent before, by those of a block.
    pub(crate) fn put(&mut self, block: Block) {
        *self = TakenMessages::default();
        match &block.kind {
            Kind::Run(run) => {
                let bytes = block.data.blocks().first().cloned().unwrap_or_default();
                self.run = Some(RunMessages::new(run, bytes));
            }
            _ => self.single = Some(from_block(block)),
        }
    }

    /// Takes the next message, or all of one packet. Returns false at the end of the stream.
    #[cold]
    pub(crate) fn refill(&mut self, association: &SharedAssociation, wait: Wait) -> Result<bool, RecvError> {
        let socket = &association.socket;
        loop {
            match socket.until(Interest::READABLE, wait, |inner| socket.try_getrun(inner))?? {
                Found::Data(block) => {
                    self.put(block);
                    return Ok(true);
                }
                Found::Primitive(primitive, text) => check_restart(&primitive, &text)?,
                Found::End => return association.ended().map(|()| false),
            }
        }
    }

    /// Returns whether a message remains to lend.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        match &self.run {
            Some(run) => !run.is_empty(),
            None => self.single.is_some() && !self.is_lent,
        }
    }

    /// Lends the next message.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<MessageRef<'_>> {
        if let Some(run) = &mut self.run {
            let mut info = RecvInfo::default();
            let data = run.next(&mut info)?;
            return Some(MessageRef { info, data: Data::Slice(data) });
        }
        self.is_lent = true;
        let single = self.single.as_ref()?;
        Some(MessageRef { info: single.info, data: Data::Blocks(single.data.blocks()) })
    }
}

/// Receives many short messages on an association; made by [`Association::reader`].
///
/// A reader takes the messages of a packet together, and lends them one by one without a copy. It saves time for many
/// messages under 2 KB, the more the shorter they are; for others it costs as much as [`Association::recv`].
///
/// The receive block of a packet stays in memory until the reader takes the next packet.
///
/// Other clones of the association do not receive the messages that a reader has taken. Dropping the reader discards
/// those that it has not lent yet. [`Sender`](crate::Sender) has an example.
#[derive(Debug)]
pub struct Reader {
    association: Association,
    taken: TakenMessages,
}

impl Reader {
    /// Receives the next message; waits for it. Returns `None` when the peer has shut down and everything was read.
    ///
    /// Long messages come in parts ([`RecvInfo::more`](crate::RecvInfo::more)), as with [`Association::recv`].
    ///
    /// # Errors
    ///
    /// The association was aborted or lost.
    #[inline]
    pub fn recv(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_within(Wait::Forever)
    }

    /// Receives the next message without waiting, if one is available.
    ///
    /// # Errors
    ///
    /// Fails as [`Reader::recv`] does, or with [`RecvError::WouldBlock`].
    pub fn try_recv(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        self.recv_within(Wait::None)
    }

    #[inline]
    fn recv_within(&mut self, wait: Wait) -> Result<Option<MessageRef<'_>>, RecvError> {
        if !self.taken.has_next() && !self.taken.refill(&self.association.shared, wait)? {
            return Ok(None);
        }
        Ok(self.taken.next())
    }
}

impl Association {
    /// Returns a handle that receives many short messages at the cost of one; see [`Reader`].
    pub fn reader(&self) -> Reader {
        Reader { association: self.clone(), taken: TakenMessages::default() }
    }
}
