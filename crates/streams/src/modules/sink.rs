//! Where modules that look at a stream hand what they have seen.

/// Takes records. It returns at once: where it has no room for a record it takes none of it and returns false, and the record is
/// lost.
pub trait RecordSink: Send {
    /// Takes all of these bytes, or none.
    fn take(&mut self, bytes: &[u8]) -> bool;

    /// Returns whether nobody will ever read what it takes: its module has nothing left to do.
    fn is_closed(&self) -> bool {
        false
    }
}

impl<F: FnMut(&[u8]) -> bool + Send> RecordSink for F {
    fn take(&mut self, bytes: &[u8]) -> bool {
        self(bytes)
    }
}
