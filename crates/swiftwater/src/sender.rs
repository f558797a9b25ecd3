//! Sending many short messages for the cost of one entry into the stack.

use std::time::Instant;

use sctp::{Batch, SendInfo};
use streams::{Interest, Which};

use crate::association::Association;
use crate::error::SendError;
use crate::flush_delay::FlushDelay;
use crate::socket::Wait;

/// The messages of a sender that it has not handed over to the stack yet.
#[derive(Debug, Default)]
pub(crate) struct FedMessages {
    pub(crate) batch: Batch,
    flush_delay: FlushDelay,
    /// The first message has waited long enough.
    pub(crate) is_due: bool,
}

impl FedMessages {
    /// Records that a message was appended.
    #[inline]
    pub(crate) fn on_appended(&mut self) {
        self.is_due = self.flush_delay.on_send();
    }

    /// Records that the stack has taken messages; after an error drops the messages that it refuses.
    pub(crate) fn on_written(
        &mut self,
        written: Result<Result<(), SendError>, impl Into<SendError>>,
    ) -> Result<(), SendError> {
        self.flush_delay.on_flushed(Instant::now(), false);
        self.is_due = false;
        let written = written.map_err(Into::into).and_then(|written| written);
        written.inspect_err(|_| self.batch.clear())
    }
}

/// Sends many short messages on an association; made by [`Association::sender`].
///
/// A sender collects messages, and enters the stack once for many. It transmits them when their packets are full, on
/// [`Sender::flush`], when the sender is dropped, and, while other messages follow, after about 50 µs. A program that
/// pauses must call `flush` first: until then the messages wait in the sender, which has no timer.
///
/// A sender saves time for many messages under 2 KB, the more the shorter they are; use [`Association::send`] for
/// others. The sender does not collect long messages and those with a lifetime: it sends them at once, in order.
///
/// ```
/// use swiftwater::{Association, Listener, SendInfo};
///
/// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
/// let client = Association::connect(listener.address())?;
/// let (server, _) = listener.accept()?;
/// let mut sender = client.sender();
/// for number in 0..1000_u32 {
///     sender.feed(&number.to_be_bytes())?;
/// }
/// sender.feed_with(b"on another stream", &SendInfo { stream: 1, ..SendInfo::default() })?;
/// sender.flush()?;
///
/// let mut reader = server.reader();
/// let mut count = 0;
/// while let Some(message) = reader.recv()? {
///     if message.info.stream == 1 {
///         break;
///     }
///     assert_eq!(message.as_slice(), Some(&u32::to_be_bytes(count)[..]));
///     count += 1;
/// }
/// assert_eq!(count, 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sender {
    association: Association,
    fed: FedMessages,
}

impl Sender {
    /// Appends a message for stream 0; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// The message is empty or too long, or the association is closed. Messages that were fed and not flushed may be lost
    /// then.
    #[inline]
    pub fn feed(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.feed_with(message, &SendInfo::default())
    }

    /// Appends a message with the properties in `info`; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// Fails as [`Sender::feed`] does, or because the stream does not exist.
    #[inline]
    pub fn feed_with(&mut self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.association.shared.check_collected(message.len(), info)?;
        self.association.feed(&mut self.fed, message, info)
    }

    /// Sends the collected messages; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// The association is closed.
    pub fn flush(&mut self) -> Result<(), SendError> {
        self.association.hand_over(&mut self.fed)?;
        self.association.flush();
        Ok(())
    }
}

impl Association {
    /// Returns a handle that sends many short messages at the cost of one; see [`Sender`].
    pub fn sender(&self) -> Sender {
        Sender { association: self.clone(), fed: FedMessages::default() }
    }

    /// Sends messages in order with the properties in `info`; waits while the send buffer is full.
    ///
    /// The call enters the stack once for many messages, which pays for short ones. For messages that arise one by one,
    /// use a [`Sender`], or call [`Association::send`], which lets them share packets as well.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener, SendInfo};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// client.send_many(&[b"one", b"two", b"three"], &SendInfo::default())?;
    /// client.shutdown()?;
    /// let mut messages = Vec::new();
    /// while server.recv_many(&mut messages, 100)? > 0 {}
    /// let texts: Vec<_> = messages.iter().map(|message| message.to_vec()).collect();
    /// assert_eq!(texts.concat(), b"onetwothree");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Association::send_with`] does. If one of the messages is empty or too long, none is sent.
    pub fn send_many(&self, messages: &[&[u8]], info: &SendInfo) -> Result<(), SendError> {
        self.shared.check_all(messages, info)?;
        let mut fed = FedMessages::default();
        messages.iter().try_for_each(|message| self.feed(&mut fed, message, info))?;
        self.hand_over(&mut fed)
    }

    /// Appends a message to the collected ones; hands them over when the first has waited long enough.
    #[inline]
    fn feed(&self, fed: &mut FedMessages, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        if !fed.batch.push(info, message) {
            return self.feed_slow(fed, message, info);
        }
        fed.on_appended();
        if fed.is_due {
            self.hand_over(fed)?;
            self.flush();
        }
        Ok(())
    }

    /// Hands the collected messages over, and then appends or sends one.
    #[cold]
    fn feed_slow(&self, fed: &mut FedMessages, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.hand_over(fed)?;
        if fed.batch.push(info, message) {
            fed.on_appended();
            return Ok(());
        }
        self.shared.socket.write(Which::Only, info, message, Wait::Forever)
    }

    /// Hands the collected messages over to the stack, which transmits them as after [`Association::send`].
    fn hand_over(&self, fed: &mut FedMessages) -> Result<(), SendError> {
        let socket = &self.shared.socket;
        while !fed.batch.is_empty() {
            let written = socket.until(Interest::WRITABLE, Wait::Forever, |inner| {
                socket.try_write_batch(inner, Which::Only, &mut fed.batch)
            });
            fed.on_written(written)?;
        }
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The next call on the association reports that it has ended.
        let _ended = self.flush();
    }
}
