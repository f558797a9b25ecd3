//! The rule for which messages an association can send.

use sctp_message::SendInfo;

use crate::error::SendError;

/// The limits of an association for each of its messages. A message that asks for admission, one that goes
/// into a stage, and one that a caller collects before the association sees it are all checked by these.
///
/// ```
/// use sctp::{MessageLimits, SendError, SendInfo};
///
/// let limits = MessageLimits { streams: 2, message_bytes_max: 100 };
/// let on_stream = |stream| SendInfo { stream, ..SendInfo::default() };
/// assert_eq!(limits.check(&on_stream(1), 100), Ok(()));
/// assert_eq!(limits.check(&on_stream(2), 100), Err(SendError::NoSuchStream { stream: 2, streams: 2 }));
/// assert_eq!(limits.check(&on_stream(1), 101), Err(SendError::TooLong { bytes: 101, limit_bytes: 100 }));
/// assert_eq!(limits.check(&on_stream(1), 0), Err(SendError::Empty));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// The number of outbound streams.
    pub streams: u16,
    /// Maximum size of a message.
    pub message_bytes_max: usize,
}

impl MessageLimits {
    /// Checks whether a message of `bytes` can be sent, whether or not there is room for it.
    ///
    /// # Errors
    ///
    /// The stream does not exist, or the message is too long or empty.
    #[inline]
    pub fn check(self, info: &SendInfo, bytes: usize) -> Result<(), SendError> {
        let MessageLimits { streams, message_bytes_max: limit_bytes } = self;
        if info.stream >= streams {
            return Err(SendError::NoSuchStream { stream: info.stream, streams });
        }
        if bytes > limit_bytes {
            return Err(SendError::TooLong { bytes, limit_bytes });
        }
        if bytes == 0 {
            return Err(SendError::Empty);
        }
        Ok(())
    }
}
