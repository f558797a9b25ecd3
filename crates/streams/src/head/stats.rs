//! Counters of a stream head.

/// Counters of one stream head since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadStats {
    /// Accepted writes, each one message of the program.
    pub messages_written: u64,
    /// Bytes in these writes.
    pub bytes_written: u64,
    /// Messages of coalesced writes that went down.
    pub messages_coalesced: u64,
    /// Messages with user data that were read to their end. Primitives without user data, and notifications, are none.
    pub messages_read: u64,
    /// Bytes of user data that were read.
    pub bytes_read: u64,
    /// Writes that had to wait.
    pub writes_blocked: u64,
    /// Wake-ups that the owner of the executive has taken.
    pub wakeups: u64,
}
