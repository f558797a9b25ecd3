//! Records as they lie in a channel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use channel_protocol::bundle;
use channel_protocol::record::{Header, Kind, RECORD_BYTES_MAX};
use rustix::io::Errno;

use crate::users::closer::{self, Closer, ReceivedDescriptor};
use crate::users::thread_time::ThreadTime;

/// A record as it lies in a pair, or the messages of a bundle as they lie in the receive ring.
pub(crate) struct RawRecord {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<ReceivedDescriptor>,
    /// Whether the bytes lay in a receive ring. They may not fit in a pair.
    pub(super) is_bundle: bool,
}

impl RawRecord {
    /// Takes the first record from the program's end of a pair, with the closer and the time of the pair. Returns `EAGAIN`
    /// if there is none.
    pub(super) fn take(
        program_end: BorrowedFd<'_>,
        closer: &Arc<Closer>,
        time: &ThreadTime,
    ) -> Result<RawRecord, Errno> {
        let mut bytes = vec![0; RECORD_BYTES_MAX];
        let received = closer::receive(program_end, &mut bytes, closer, time)?;
        if received.bytes == 0 {
            return Err(Errno::AGAIN);
        }
        bytes.truncate(received.bytes);
        bytes.shrink_to_fit();
        Ok(RawRecord { bytes, descriptors: received.descriptors, is_bundle: false })
    }

    /// Returns the offset and the header of each message.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (usize, Header)> {
        bundle::messages(&self.bytes)
    }

    pub(crate) fn is_size_hint(&self) -> bool {
        self.messages().any(|(_, header)| header.kind == Kind::SizeHint)
    }

    /// Returns whether the content of the message is in a memfd.
    pub(crate) fn is_long(&self) -> bool {
        !self.descriptors.is_empty()
    }

    /// Removes messages that were read from the front. Ignores an offset at which no message begins.
    pub(crate) fn cut_front(&mut self, bytes: usize) {
        if bundle::begins_at(&self.bytes, bytes) {
            self.bytes.drain(..bytes);
        }
    }

    /// Splits the record after its first message; returns the following messages.
    pub(crate) fn split_off_rest(&mut self) -> Option<RawRecord> {
        let (second, _) = self.messages().nth(1)?;
        let bytes = self.bytes.split_off(second);
        Some(RawRecord { bytes, descriptors: Vec::new(), is_bundle: self.is_bundle })
    }
}

#[cfg(test)]
mod tests {
    use channel_protocol::record::HEADER_BYTES;

    use super::*;

    #[test]
    fn a_record_is_cut_where_a_message_begins_and_nowhere_else() {
        let message = |text: &[u8]| {
            let header = Header { bytes: text.len() as u32, ..Header::new(Kind::Data) };
            [&header.encode()[..], text].concat()
        };
        let whole = [message(b"one"), message(b"second")].concat();
        let cut = |at: usize| {
            let mut record = RawRecord { bytes: whole.clone(), descriptors: Vec::new(), is_bundle: true };
            record.cut_front(at);
            record.bytes
        };
        assert_eq!(cut(HEADER_BYTES + 3), message(b"second"));
        // A sharer of the socket may have written any offset into the page.
        for at in [0, 1, HEADER_BYTES, HEADER_BYTES + 4, whole.len(), whole.len() + 1, usize::MAX] {
            assert_eq!(cut(at), whole, "{at}");
        }
    }
}
