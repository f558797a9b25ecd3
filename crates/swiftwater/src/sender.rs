//! Sending many short messages for the cost of one entry into the stack.

use std::time::Instant;

use sctp::{Batch, SendInfo};
use streams::Interest;

use crate::association::Association;
use crate::error::SendError;
use crate::pace::Pace;
use crate::socket::{GivenUp, Patience};

/// The messages of a sender that the stack does not have yet.
#[derive(Debug, Default)]
pub(crate) struct Fed {
    pub(crate) batch: Batch,
    pace: Pace,
}

impl Fed {
    /// Notes that a message was appended. Returns whether the first has waited long enough.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.pace.overdue()
    }

    /// Notes that the stack has taken messages, or drops those that it will never take.
    pub(crate) fn after_writing(
        &mut self,
        written: Result<Result<(), SendError>, GivenUp>,
    ) -> Result<(), SendError> {
        self.pace.flushed(Instant::now(), false);
        let written = written.map_err(SendError::from).and_then(|written| written);
        written.inspect_err(|_| self.batch.clear())
    }
}

/// Sends many short messages on an association; made by [`Association::sender`].
///
/// A sender collects messages, and enters the stack once for many. They leave when their packets are full, on
/// [`Sender::flush`], when the sender is dropped, and, while others follow, after about 50 µs. So a program that pauses
/// calls `flush` first: messages wait in the sender until then, and not in the stack, which knows nothing of them.
///
/// It pays for a stream of messages under 2 KB, and the more the shorter they are; [`Association::send`] serves well for
/// all others. Long messages, and those with a lifetime, leave by themselves, in their place.
///
/// ```
/// use swiftwater::{Association, Listener, SendInfo};
///
/// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
/// let client = Association::connect(listener.local_address())?;
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
    fed: Fed,
}

impl Sender {
    pub(crate) fn new(association: Association) -> Self {
        Sender { association, fed: Fed::default() }
    }

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
        self.association.check(message.len(), info)?;
        self.association.feed(&mut self.fed, message, info)
    }

    /// Sends what was fed; waits while the send buffer is full.
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
    /// Appends a message to those that were fed; hands them over if that is due.
    #[inline]
    pub(crate) fn feed(&self, fed: &mut Fed, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        if !fed.batch.push(info, message) {
            return self.feed_later(fed, message, info);
        }
        if fed.is_due() {
            self.hand_over(fed)?;
            self.flush();
        }
        Ok(())
    }

    /// Hands over what was fed, and then feeds or sends a message.
    #[cold]
    fn feed_later(&self, fed: &mut Fed, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.hand_over(fed)?;
        if fed.batch.push(info, message) {
            return Ok(());
        }
        self.shared.socket.write(0, info, message, Patience::Forever)
    }

    /// Gives the stack what was fed, which leaves as after [`Association::send`].
    pub(crate) fn hand_over(&self, fed: &mut Fed) -> Result<(), SendError> {
        let socket = &self.shared.socket;
        while !fed.batch.is_empty() {
            let written = socket.until(Interest::WRITABLE, Patience::Forever, |inner| {
                socket.try_write_batch(inner, 0, &mut fed.batch)
            });
            fed.after_writing(written)?;
        }
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The end of the association is told to whoever uses it next.
        let _ended = self.flush();
    }
}
