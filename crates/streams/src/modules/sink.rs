//! Sinks for the records of modules that observe a stream.

/// Takes records without blocking: if it has no room for a record it takes none of it and returns false, and the record is lost.
pub trait RecordSink: Send {
    /// Takes a record, whose bytes are in these pieces one after the other, or none of it.
    fn take(&mut self, pieces: &[&[u8]]) -> bool;

    /// Returns whether no stream will ever read the records: the module has nothing left to do.
    fn is_closed(&self) -> bool {
        false
    }
}

impl<F: FnMut(&[&[u8]]) -> bool + Send> RecordSink for F {
    fn take(&mut self, pieces: &[&[u8]]) -> bool {
        self(pieces)
    }
}
