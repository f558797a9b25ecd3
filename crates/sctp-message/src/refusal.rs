//! The reasons why a message is refused.

use std::fmt;

/// Reason why a message was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The association has ended or is closing.
    Closed,
    /// The peer has shut the association down (RFC 9260 §9.2).
    PeerShutdown,
    /// The association has no such outbound stream.
    NoSuchStream {
        /// The requested stream.
        stream: u16,
        /// The number of outbound streams.
        streams: u16,
    },
    /// The message is longer than the limit.
    TooLong {
        /// The length of the message.
        bytes: usize,
        /// The limit (`message_bytes_max`).
        limit_bytes: usize,
    },
    /// The message is empty (RFC 9260 §3.3.1: a DATA chunk has at least one byte).
    Empty,
    /// A record is being sent in parts on another stream. No other message may come between its parts.
    RecordOpen {
        /// The stream of the open record.
        stream: u16,
    },
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Closed => {
                f.write_str("the association is closed or closing; connect again to send more")
            }
            SendError::PeerShutdown => f.write_str(
                "the peer has shut the association down and takes no more; connect again to send more",
            ),
            SendError::NoSuchStream { stream, streams } => write!(
                f,
                "stream {stream} does not exist: this association has outbound streams 0 to {}; ask for more with streams_out before connecting",
                streams.saturating_sub(1)
            ),
            SendError::TooLong { bytes, limit_bytes } => write!(
                f,
                "a message of {bytes} bytes is over the limit of {limit_bytes}; split it or raise message_bytes_max"
            ),
            SendError::RecordOpen { stream } => write!(
                f,
                "a record is still open on stream {stream}; end it with a message that has no `more` before sending another"
            ),
            SendError::Empty => f.write_str("a message must have at least one byte (RFC 9260 §3.3.1)"),
        }
    }
}

impl std::error::Error for SendError {}
