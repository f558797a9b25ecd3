//! What a stream head counts.

/// Counters of one stream head, from its opening on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadStats {
    /// Writes that were taken, each one message of the program's.
    pub messages_written: u64,
    /// Bytes in them.
    pub bytes_written: u64,
    /// Messages of coalesced writes that went down.
    pub messages_coalesced: u64,
    /// Messages that were read to their end.
    pub messages_read: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Writes that were told to wait.
    pub writes_blocked: u64,
    /// Wake-ups that the owner of the executive has taken.
    pub wakeups: u64,
}
