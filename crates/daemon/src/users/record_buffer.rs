//! Records of a recording module that wait for a slower reader.

use std::sync::{Mutex, MutexGuard};

use crate::system::lock::lock;

/// A buffer of records with a fixed size. The module never waits: records without room are dropped and counted.
#[derive(Debug)]
pub(crate) struct RecordBuffer {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<u8>,
    lost: u64,
    /// The reader takes no more records.
    is_closed: bool,
}

impl RecordBuffer {
    pub(crate) fn new(bytes_max: usize) -> RecordBuffer {
        RecordBuffer { bytes_max, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes a record in pieces; returns whether there was room. Calls `wake` if no other record waits: behind others the reader
    /// finds this one without being woken.
    pub(crate) fn take(&self, pieces: &[&[u8]], wake: impl FnOnce()) -> bool {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut state = self.state();
        if state.is_closed || state.records.len() + bytes > self.bytes_max {
            state.lost += 1;
            return false;
        }
        let is_first = state.records.is_empty();
        pieces.iter().for_each(|piece| state.records.extend_from_slice(piece));
        drop(state);
        if is_first {
            wake();
        }
        true
    }

    /// Moves all waiting records to `records`, whose memory the buffer uses from now on. Returns whether there are any.
    pub(crate) fn drain(&self, records: &mut Vec<u8>) -> bool {
        records.clear();
        std::mem::swap(&mut self.state().records, records);
        !records.is_empty()
    }

    /// Records that the reader takes no more.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
    }

    /// Returns whether the reader takes no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Returns the number of records that were dropped.
    pub(crate) fn lost(&self) -> u64 {
        self.state().lost
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_reader_is_woken_for_the_first_record_and_others_without_room_are_counted() {
        let (buffer, woken) = (RecordBuffer::new(8), Cell::new(0));
        let take = |pieces: &[&[u8]]| buffer.take(pieces, || woken.set(woken.get() + 1));
        assert_eq!((take(&[b"ab", b"cd"]), take(&[b"efgh"]), take(&[b"i"])), (true, true, false));
        let mut records = b"old".to_vec();
        assert!(buffer.drain(&mut records));
        assert_eq!((&records[..], woken.get(), buffer.lost()), (&b"abcdefgh"[..], 1, 1));
        assert!(take(&[b"ijkl"]));
        buffer.close();
        assert_eq!((take(&[b"m"]), woken.get(), buffer.lost()), (false, 2, 2));
        assert!(buffer.drain(&mut records) && !buffer.drain(&mut records));
    }
}
