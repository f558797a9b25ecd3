//! Sources of data of an association.

use std::time::Duration;

use sctp::Time;

/// Size up to which small pieces of a stream are gathered, as in the stream head.
const GATHERED_BYTES_MAX: usize = 32 << 10;

/// The data that an association sends, and its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// No data.
    #[default]
    Silent,
    /// A file in messages of one size; the last may be shorter.
    File {
        /// Remaining bytes.
        left_bytes: u64,
        /// Size of a message.
        message_bytes: usize,
    },
    /// Endless messages.
    Endless {
        /// Size of a message.
        message_bytes: usize,
        /// Time of the end.
        until: Time,
    },
    /// One endless message, written in pieces of one size; they are gathered as in a stream head.
    Stream {
        /// Size of a piece.
        piece_bytes: usize,
        /// Time of the end.
        until: Time,
    },
    /// Bursts of messages at regular intervals.
    Bursts {
        /// Remaining bursts.
        left: u64,
        /// Time of the next burst.
        next: Time,
        /// Interval between bursts.
        every: Duration,
        /// Number of messages in a burst.
        messages: u32,
        /// Messages of this burst that wait to be sent.
        waiting: u32,
        /// Size of a message.
        message_bytes: usize,
    },
    /// Requests, each after the answer to the one before.
    Requests {
        /// Remaining requests.
        left: u64,
        /// Size of a request.
        message_bytes: usize,
        /// Whether an answer is outstanding.
        waiting: bool,
    },
    /// An answer to each received message.
    Answers {
        /// Size of an answer.
        message_bytes: usize,
        /// Answers that wait to be sent.
        waiting: u64,
    },
}

impl Source {
    /// Returns a file in messages of `message_bytes`.
    pub fn file(bytes: u64, message_bytes: usize) -> Self {
        Source::File { left_bytes: bytes, message_bytes: message_bytes.max(1) }
    }

    /// Returns bursts of messages, the first at `first`.
    pub fn bursts(bursts: u64, first: Time, every: Duration, messages: u32, message_bytes: usize) -> Self {
        Source::Bursts { left: bursts, next: first, every, messages, waiting: 0, message_bytes }
    }

    /// Returns requests, one after the other.
    pub fn requests(requests: u64, message_bytes: usize) -> Self {
        Source::Requests { left: requests, message_bytes, waiting: false }
    }

    /// Returns answers to requests.
    pub fn answers_of(message_bytes: usize) -> Self {
        Source::Answers { message_bytes, waiting: 0 }
    }

    /// Returns the length of the message to send now.
    pub(super) fn next(&mut self, now: Time) -> Option<usize> {
        match self {
            Source::Silent => None,
            Source::File { left_bytes, message_bytes } => {
                let bytes = usize::try_from(*left_bytes).unwrap_or(usize::MAX).min(*message_bytes);
                (bytes > 0).then_some(bytes)
            }
            Source::Endless { message_bytes, until } => (now < *until).then_some(*message_bytes),
            Source::Stream { piece_bytes, until } => (now < *until).then_some(gathered_bytes(*piece_bytes)),
            Source::Bursts { left, next, every, messages, waiting, message_bytes } => {
                if *left > 0 && *next <= now {
                    *left -= 1;
                    *next = *next + *every;
                    *waiting += *messages;
                }
                (*waiting > 0).then_some(*message_bytes)
            }
            Source::Requests { left, message_bytes, waiting } => {
                (*left > 0 && !*waiting).then_some(*message_bytes)
            }
            Source::Answers { message_bytes, waiting } => (*waiting > 0).then_some(*message_bytes),
        }
    }

    /// Records that the message was accepted.
    pub(super) fn took(&mut self, bytes: usize) {
        match self {
            Source::Silent | Source::Endless { .. } | Source::Stream { .. } => {}
            Source::File { left_bytes, .. } => *left_bytes -= bytes as u64,
            Source::Bursts { waiting, .. } => *waiting -= 1,
            Source::Requests { left, waiting, .. } => (*left, *waiting) = (*left - 1, true),
            Source::Answers { waiting, .. } => *waiting -= 1,
        }
    }

    /// Handles a received message.
    pub(super) fn heard(&mut self) {
        match self {
            Source::Requests { waiting, .. } => *waiting = false,
            Source::Answers { waiting, .. } => *waiting += 1,
            _ => {}
        }
    }

    /// Returns whether the next message continues.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Source::Stream { .. })
    }

    /// Returns whether the source waits for messages.
    pub(super) fn answers(&self) -> bool {
        matches!(self, Source::Requests { .. } | Source::Answers { .. })
    }

    /// Returns the time at which the source sends without an event.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Source::Bursts { left, next, .. } if *left > 0 => Some(*next),
            _ => None,
        }
    }
}

/// Returns the bytes that reach the stack at once from a stream that is written in pieces of this size.
fn gathered_bytes(piece_bytes: usize) -> usize {
    let piece_bytes = piece_bytes.max(1);
    (GATHERED_BYTES_MAX / piece_bytes).max(1) * piece_bytes
}
