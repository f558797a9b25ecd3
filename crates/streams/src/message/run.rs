//! Runs: messages of user data that are one entry on a queue.

use crate::{Chain, Marks, Message, RecvInfo};
use bytes::Bytes;
use std::num::NonZeroU32;
use std::ops::Range;

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

/// Messages of user data that follow each other in one block, as records of their driver. They are one entry on the read queue of
/// the head, and nowhere else: modules see single messages, and so do readers, unless they ask for runs
/// ([`Executive::getrun`](crate::Executive::getrun)).
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The association of the messages.
    pub association: u32,
    /// Number of remaining messages.
    pub messages: u32,
    /// Bytes of data in these messages.
    pub data_bytes: u32,
    /// The driver's charge beyond the data, which returns with the last message ([`Driver::consumed`](crate::Driver::consumed)).
    pub charges: u32,
    /// Bytes that the reader has taken and that were not reported to the driver yet.
    pub(crate) unreported_bytes: u32,
    /// Layout of the records.
    pub(crate) layout: RecordLayout,
}

/// Receive window that returns to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) association: u32,
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
        association: u32,
        messages: usize,
        data_bytes: usize,
        charges: usize,
        layout: RecordLayout,
    ) -> Self {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Run {
            association,
            messages: short(messages),
            data_bytes: short(data_bytes),
            charges: short(charges),
            unreported_bytes: 0,
            layout,
        }
    }

    /// Returns the layout of the records.
    pub fn layout(&self) -> RecordLayout {
        self.layout
    }

    /// Returns the credit of all that is left.
    pub(crate) fn credit(&self) -> Credit {
        Credit {
            association: self.association,
            bytes: (self.data_bytes + self.unreported_bytes) as usize,
            charges: self.charges as usize,
        }
    }

    /// Removes the first message, which is `record`, from `rest`.
    #[inline]
    fn pass(&mut self, record: Record, rest: &mut Chain) {
        rest.advance(record.bytes());
        self.messages -= 1;
        self.data_bytes = self.data_bytes.saturating_sub(record.data_bytes);
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
        let record = (self.layout)(block, info)?;
        let out = out.get_mut(..record.data().len())?;
        out.copy_from_slice(block.get(record.data())?);
        self.pass(record, rest);
        self.unreported_bytes += record.data_bytes;
        let mut credit = Credit { association: self.association, ..Credit::default() };
        if self.messages == 0 || self.unreported_bytes >= REPORTED_BYTES {
            credit.bytes = std::mem::take(&mut self.unreported_bytes) as usize;
        }
        if self.messages == 0 {
            credit.charges = std::mem::take(&mut self.charges) as usize;
        }
        Some((record, credit))
    }

    /// Splits the first message off `rest` as one of its own, without a charge; `None` if nothing is left.
    pub(crate) fn split(&mut self, rest: &mut Chain) -> Option<Message> {
        let block: &Bytes = rest.blocks().first()?;
        let mut info = RecvInfo::default();
        let record = (self.layout)(block, &mut info)?;
        let data = Chain::from(block.slice(record.data()));
        self.pass(record, rest);
        Some(Message::optdata_ind(self.association, info, data).marked(Marks::OF_RUN))
    }
}

/// Compares the descriptions of two runs; the layout follows from the block.
impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        (self.association, self.messages, self.data_bytes, self.charges)
            == (other.association, other.messages, other.data_bytes, other.charges)
    }
}
