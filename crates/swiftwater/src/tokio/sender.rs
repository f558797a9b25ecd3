//! Senders for tasks.

use sctp::SendInfo;
use streams::{Interest, Which};

use super::Association;
use super::until::until;
use crate::error::SendError;
use crate::sender::FedMessages;
use crate::socket::Wait;

/// Sends many short messages on an association; [`swiftwater::Sender`](crate::Sender) for tasks.
///
/// A task that pauses calls [`Sender::flush`] first. Dropping a sender discards the messages that it still holds.
#[derive(Debug)]
pub struct Sender {
    association: Association,
    fed: FedMessages,
}

impl Sender {
    pub(super) fn new(association: Association) -> Self {
        Sender { association, fed: FedMessages::default() }
    }

    /// Appends a message for stream 0; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// The message is empty or too long, or the association is closed. Messages that were fed and not flushed may be lost
    /// then.
    pub async fn feed(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.feed_with(message, &SendInfo::default()).await
    }

    /// Appends a message with the properties in `info`; waits while the send buffer is full. If the future is dropped
    /// early, the message was not appended, unless it is one that a sender does not collect.
    ///
    /// # Errors
    ///
    /// Fails as [`Sender::feed`] does, or because the stream does not exist.
    pub async fn feed_with(&mut self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.association.shared.check_collected(message.len(), info)?;
        self.association.feed(&mut self.fed, message, info).await
    }

    /// Sends the collected messages; waits while the send buffer is full. If the future is dropped early, the rest stays in the
    /// sender.
    ///
    /// # Errors
    ///
    /// The association is closed.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        self.association.hand_over(&mut self.fed).await?;
        self.association.flush();
        Ok(())
    }
}

impl Association {
    /// Returns a handle that sends many short messages at the cost of one; see [`swiftwater::Sender`](crate::Sender).
    pub fn sender(&self) -> Sender {
        Sender::new(self.clone())
    }

    /// Appends a message to the collected ones, and hands them over if the first has waited long enough. Does not wait after the
    /// message was appended: if there is no room, the next call waits for it.
    pub(super) async fn feed(
        &self,
        fed: &mut FedMessages,
        message: &[u8],
        info: &SendInfo,
    ) -> Result<(), SendError> {
        if fed.is_due {
            self.hand_over(fed).await?;
            self.flush();
        }
        if fed.batch.push(info, message) {
            fed.on_appended();
            return if fed.is_due { self.try_hand_over(fed) } else { Ok(()) };
        }
        self.hand_over(fed).await?;
        if fed.batch.push(info, message) {
            fed.on_appended();
            return Ok(());
        }
        let socket = self.shared.socket();
        until(socket, Interest::WRITABLE, |inner| socket.try_write(inner, Which::Only, info, message)).await?
    }

    /// Hands the collected messages over to the stack, and transmits them, if there is room for them.
    fn try_hand_over(&self, fed: &mut FedMessages) -> Result<(), SendError> {
        let socket = self.shared.socket();
        let written = socket.until(Interest::WRITABLE, Wait::None, |inner| {
            socket.try_write_batch(inner, Which::Only, &mut fed.batch)
        });
        match written.map_err(SendError::from) {
            Err(SendError::WouldBlock) => return Ok(()),
            written => fed.on_written(written)?,
        }
        self.flush();
        Ok(())
    }

    /// Hands the collected messages over to the stack.
    pub(super) async fn hand_over(&self, fed: &mut FedMessages) -> Result<(), SendError> {
        let socket = self.shared.socket();
        while !fed.batch.is_empty() {
            let batch = &mut fed.batch;
            let written =
                until(socket, Interest::WRITABLE, |inner| socket.try_write_batch(inner, Which::Only, batch))
                    .await;
            fed.on_written(written)?;
        }
        Ok(())
    }
}
