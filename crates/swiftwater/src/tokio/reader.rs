//! Readers for tasks.

use streams::Interest;

use super::Association;
use super::until::until;
use crate::error::RecvError;
use crate::reader::{MessageRef, TakenMessages};
use crate::socket::{Found, Wait, check_restart};

/// Receives many short messages on an association; [`swiftwater::Reader`](crate::Reader) for tasks.
#[derive(Debug)]
pub struct Reader {
    association: Association,
    taken: TakenMessages,
}

impl Reader {
    pub(super) fn new(association: Association) -> Self {
        Reader { association, taken: TakenMessages::default() }
    }

    /// Receives the next message; waits for it. Returns `None` when the peer has shut down and everything was read.
    /// Dropping the future loses no message.
    ///
    /// Long messages come in parts ([`RecvInfo::more`](crate::RecvInfo::more)), as with
    /// [`swiftwater::Association::recv`](crate::Association::recv).
    ///
    /// # Errors
    ///
    /// The association was aborted or lost.
    pub async fn recv(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        if !self.taken.has_next() && !self.refill().await? {
            return Ok(None);
        }
        Ok(self.taken.next())
    }

    /// Receives the next message without waiting, if one is available.
    ///
    /// # Errors
    ///
    /// Fails as [`Reader::recv`] does, or with [`RecvError::WouldBlock`].
    pub fn try_recv(&mut self) -> Result<Option<MessageRef<'_>>, RecvError> {
        if !self.taken.has_next() && !self.taken.refill(&self.association.shared, Wait::None)? {
            return Ok(None);
        }
        Ok(self.taken.next())
    }

    /// Takes the next message, or all of one packet. Returns false at the end of the stream.
    async fn refill(&mut self) -> Result<bool, RecvError> {
        let socket = self.association.shared.socket();
        loop {
            match until(socket, Interest::READABLE, |inner| socket.try_getrun(inner)).await?? {
                Found::Data(block) => {
                    self.taken.put(block);
                    return Ok(true);
                }
                Found::Primitive(primitive, text) => check_restart(&primitive, &text)?,
                Found::End => return self.association.shared.ended().map(|()| false),
            }
        }
    }
}

impl Association {
    /// Returns a handle that receives many short messages at the cost of one; see
    /// [`swiftwater::Reader`](crate::Reader).
    pub fn reader(&self) -> Reader {
        Reader::new(self.clone())
    }
}
