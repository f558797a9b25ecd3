//! Runs: messages of user data that are one entry on a queue.

use crate::{Chain, Marks, Message, RecvInfo};
use bytes::Bytes;
use std::ops::Range;

/// Layout of a driver's messages that come together: parses the first record of the bytes; `None` if there is none.
pub type RecordLayout = fn(&[u8]) -> Option<Record>;

/// A message in its driver's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The description of the message.
    pub info: RecvInfo,
    /// Place of its data.
    pub data: Range<usize>,
    /// Place of the next record.
    pub bytes: usize,
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
    fn pass(&mut self, record: &Record, rest: &mut Chain) {
        rest.advance(record.bytes);
        self.messages -= 1;
        self.data_bytes = self.data_bytes.saturating_sub(record.data.len() as u32);
    }

    /// Copies the first message to `out`, if it fits, and removes it from `rest`. Returns its length and information.
    #[inline]
    pub(crate) fn read(&mut self, rest: &mut Chain, out: &mut [u8]) -> Option<(Record, Credit)> {
        let block = rest.blocks().first()?;
        let record = (self.layout)(block)?;
        let out = out.get_mut(..record.data.len())?;
        out.copy_from_slice(block.get(record.data.clone())?);
        self.pass(&record, rest);
        self.unreported_bytes += record.data.len() as u32;
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
        let record = (self.layout)(block)?;
        let data = Chain::from(block.slice(record.data.clone()));
        self.pass(&record, rest);
        Some(Message::optdata_ind(self.association, record.info, data).marked(Marks::OF_RUN))
    }
}

/// Compares the descriptions of two runs; the layout follows from the block.
impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        (self.association, self.messages, self.data_bytes, self.charges)
            == (other.association, other.messages, other.data_bytes, other.charges)
    }
}
