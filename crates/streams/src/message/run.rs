//! Runs: messages of user data that are one entry on a queue.

use std::num::NonZeroU32;
use std::ops::Range;

use bytes::Bytes;

use crate::{Chain, Marks, Message, RecvInfo, Which};

/// Layout of a driver's messages that come together: parses the first record of the bytes and describes its message; `None` if
/// there is none.
///
/// The description is written where the reader wants it: it has many small fields, so each copy of it just after it was written
/// would wait for all of them.
pub type RecordLayout = fn(&[u8], &mut RecvInfo) -> Option<Record>;

/// Place of a message in its driver's memory. It fits two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    data_at: u32,
    data_bytes: u32,
    bytes: NonZeroU32,
}

impl Record {
    /// Returns a record of `bytes`, with the message at `data`; `None` if it is empty or longer than 4 GB.
    #[inline]
    pub fn new(data: Range<usize>, bytes: usize) -> Option<Self> {
        Some(Record {
            data_at: data.start.try_into().ok()?,
            data_bytes: data.len().try_into().ok()?,
            bytes: NonZeroU32::new(bytes.try_into().ok()?)?,
        })
    }

    /// Returns the place of the message.
    #[inline]
    pub fn data(self) -> Range<usize> {
        self.data_at as usize..self.data_at as usize + self.data_bytes as usize
    }

    /// Returns the length of the record, behind which the next one begins.
    #[inline]
    pub fn bytes(self) -> usize {
        self.bytes.get() as usize
    }
}

/// The messages that remain of a run, as records of their driver: how many there are, and how to tell them apart.
#[derive(Clone, Copy, Debug)]
struct Records {
    layout: RecordLayout,
    messages: u32,
    data_bytes: u32,
}

impl Records {
    /// Parses the first record of `rest`, where the remaining messages begin, and describes its message.
    #[inline]
    fn first(&self, rest: &[u8], info: &mut RecvInfo) -> Option<Record> {
        if self.messages == 0 { None } else { (self.layout)(rest, info) }
    }

    /// Notes that the first message, which is `record`, was removed.
    #[inline]
    fn pass(&mut self, record: Record) {
        self.messages -= 1;
        self.data_bytes = self.data_bytes.saturating_sub(record.data_bytes);
    }
}

/// Messages of user data that follow each other in one block, as records of their driver. They are one entry on the read queue of
/// the head, and nowhere else: modules see single messages, and so do readers, unless they ask for runs
/// ([`Executive::getrun`](crate::Executive::getrun)).
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The association of the messages.
    pub association: Which,
    records: Records,
    /// The driver's charge beyond the data, which returns with the last message ([`Driver::consumed`](crate::Driver::consumed)).
    charges: u32,
    /// Bytes that the reader has taken and that were not reported to the driver yet.
    unreported_bytes: u32,
}

/// Receive window that returns to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) association: Which,
    pub(crate) bytes: usize,
    pub(crate) charges: usize,
}

impl Credit {
    pub(crate) fn add(&mut self, more: Credit) {
        self.bytes += more.bytes;
        self.charges += more.charges;
    }
}

/// Number of bytes read of a run after which the driver is told; it is also told at the end.
const REPORTED_BYTES: u32 = 1024;

impl Run {
    /// Describes this many messages with this much data in the given layout.
    pub fn new(
        association: Which,
        messages: usize,
        data_bytes: usize,
        charges: usize,
        layout: RecordLayout,
    ) -> Self {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Run {
            association,
            records: Records { layout, messages: short(messages), data_bytes: short(data_bytes) },
            charges: short(charges),
            unreported_bytes: 0,
        }
    }

    /// Returns the number of remaining messages.
    #[inline]
    pub fn messages(&self) -> usize {
        self.records.messages as usize
    }

    /// Returns the credit of all that is left.
    pub(crate) fn credit(&self) -> Credit {
        Credit {
            association: self.association,
            bytes: (self.records.data_bytes + self.unreported_bytes) as usize,
            charges: self.charges as usize,
        }
    }

    /// Removes the first message, which is `record`, from `rest`.
    #[inline]
    fn pass(&mut self, record: Record, rest: &mut Chain) {
        rest.advance(record.bytes());
        self.records.pass(record);
    }

    /// Copies the first message to `out`, if it fits, and its description to `info`, and removes it from `rest`. Returns
    /// its place and the credit for the driver.
    #[inline]
    pub(crate) fn read(
        &mut self,
        rest: &mut Chain,
        out: &mut [u8],
        info: &mut RecvInfo,
    ) -> Option<(Record, Credit)> {
        let block = rest.blocks().first()?;
        let record = self.records.first(block, info)?;
        let out = out.get_mut(..record.data().len())?;
        out.copy_from_slice(block.get(record.data())?);
        self.pass(record, rest);
        self.unreported_bytes += record.data_bytes;
        let mut credit = Credit { association: self.association, ..Credit::default() };
        if self.records.messages == 0 || self.unreported_bytes >= REPORTED_BYTES {
            credit.bytes = std::mem::take(&mut self.unreported_bytes) as usize;
        }
        if self.records.messages == 0 {
            credit.charges = std::mem::take(&mut self.charges) as usize;
        }
        Some((record, credit))
    }

    /// Splits the first message off `rest` as one of its own, without a charge; `None` if nothing is left.
    pub(crate) fn split(&mut self, rest: &mut Chain) -> Option<Message> {
        let block: &Bytes = rest.blocks().first()?;
        let mut info = RecvInfo::default();
        let record = self.records.first(block, &mut info)?;
        let data = Chain::from(block.slice(record.data()));
        self.pass(record, rest);
        Some(Message::optdata_ind(self.association, info, data).marked(Marks::OF_RUN))
    }
}

/// Compares the descriptions of two runs; the layout follows from the block.
impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        let key = |run: &Run| (run.association, run.records.messages, run.records.data_bytes, run.charges);
        key(self) == key(other)
    }
}

/// The messages of a run that was taken from the head whole, in their block. The messages leave it one by one; a clone shares the
/// block and keeps its own.
#[derive(Clone, Debug)]
pub struct RunMessages {
    block: Bytes,
    /// Offset of the first message in the block.
    at: usize,
    records: Records,
}

impl RunMessages {
    /// Returns the messages of a run, whose records are in `block`.
    pub fn new(run: &Run, block: Bytes) -> Self {
        RunMessages { block, at: 0, records: run.records }
    }

    /// Returns the number of messages.
    #[inline]
    pub fn len(&self) -> usize {
        self.records.messages as usize
    }

    /// Returns whether no message is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records.messages == 0
    }

    /// Returns the number of bytes of all messages.
    pub fn data_bytes(&self) -> usize {
        self.records.data_bytes as usize
    }

    /// Returns the number of bytes that the messages keep in memory, with those that were removed.
    pub fn block_bytes(&self) -> usize {
        self.block.len()
    }

    /// Copies the messages that are left into a block of their own.
    pub fn copy_out(&mut self) {
        self.block = Bytes::copy_from_slice(self.block.get(self.at..).unwrap_or_default());
        self.at = 0;
    }

    /// Removes the first message and lends its bytes; writes its description to `info`. Returns `None` if no message is left. If
    /// the first message cannot be told apart, all are removed.
    #[inline]
    pub fn next(&mut self, info: &mut RecvInfo) -> Option<&[u8]> {
        let data = self.remove_first(info)?;
        self.block.get(data)
    }

    /// Removes the first message and returns its bytes, which share the block; otherwise does what [`next`](Self::next) does.
    pub fn next_bytes(&mut self, info: &mut RecvInfo) -> Option<Bytes> {
        let data = self.remove_first(info)?;
        Some(self.block.slice(data))
    }

    /// Passes the first message to `take`, and removes it if that returns true. Returns whether it was removed.
    #[inline]
    pub fn next_if(&mut self, take: impl FnOnce(&RecvInfo, &[u8]) -> bool) -> bool {
        let mut info = RecvInfo::default();
        let Some((record, data)) = self.first(&mut info) else { return false };
        let is_taken = self.block.get(data).is_some_and(|data| take(&info, data));
        if is_taken {
            self.pass(record);
        }
        is_taken
    }

    /// Returns the first record and the range of its data in the block.
    #[inline]
    fn first(&self, info: &mut RecvInfo) -> Option<(Record, Range<usize>)> {
        let record = self.records.first(self.block.get(self.at..)?, info)?;
        let data = record.data();
        Some((record, self.at + data.start..self.at + data.end))
    }

    #[inline]
    fn remove_first(&mut self, info: &mut RecvInfo) -> Option<Range<usize>> {
        let Some((record, data)) = self.first(info).filter(|(_, data)| data.end <= self.block.len()) else {
            (self.records.messages, self.records.data_bytes) = (0, 0);
            return None;
        };
        self.pass(record);
        Some(data)
    }

    #[inline]
    fn pass(&mut self, record: Record) {
        self.at += record.bytes();
        self.records.pass(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a record: the length of its data in one byte, and the data. A length of 255 is malformed.
    fn layout(bytes: &[u8], info: &mut RecvInfo) -> Option<Record> {
        let data_bytes = usize::from(*bytes.first().filter(|length| **length != 255)?);
        info.stream = data_bytes as u16;
        Record::new(1..1 + data_bytes, 1 + data_bytes)
    }

    fn messages(block: &'static [u8], count: usize, data_bytes: usize) -> RunMessages {
        RunMessages::new(&Run::new(Which::Only, count, data_bytes, 0, layout), Bytes::from_static(block))
    }

    #[test]
    fn messages_leave_a_run_one_by_one() {
        let mut run = messages(b"\x03one\x00\x05threerest", 3, 8);
        let mut info = RecvInfo::default();
        assert!(!run.next_if(|info, data| info.stream != 3 || data != b"one"));
        assert_eq!((run.next(&mut info), info.stream), (Some(&b"one"[..]), 3));
        assert_eq!((run.len(), run.data_bytes()), (2, 5));
        let mut other = run.clone();
        assert!(run.next_if(|_, data| data.is_empty()));
        assert_eq!(
            (run.next_bytes(&mut info), run.next(&mut info)),
            (Some(Bytes::from_static(b"three")), None)
        );
        assert!(run.is_empty() && !run.next_if(|_, _| true));
        assert_eq!((other.len(), other.next(&mut info).map(<[u8]>::len)), (2, Some(0)));
    }

    #[test]
    fn messages_that_are_left_are_copied_without_those_that_were_removed() {
        let mut run = messages(b"\x03one\x00\x05three", 3, 8);
        let mut info = RecvInfo::default();
        assert!(run.next_if(|_, data| data == b"one"));
        let block = run.block.as_ptr();
        run.copy_out();
        assert_eq!((run.len(), run.data_bytes(), run.block_bytes()), (2, 5, 7));
        assert_ne!(run.block.as_ptr(), block.wrapping_add(4));
        assert_eq!(run.next(&mut info), Some(&b""[..]));
        assert_eq!(run.next(&mut info), Some(&b"three"[..]));
        run.copy_out();
        assert_eq!((run.is_empty(), run.next(&mut info)), (true, None));
    }

    #[test]
    fn a_run_whose_messages_cannot_be_told_apart_ends() {
        for block in [&b"\xff"[..], b"\x05four", b""] {
            let mut run = messages(block, 2, 10);
            assert_eq!(run.next(&mut RecvInfo::default()), None);
            assert!(run.is_empty() && run.data_bytes() == 0);
        }
    }
}
