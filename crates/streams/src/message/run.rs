//! Runs: messages of user data that stand on a queue as one.

use crate::{Chain, Marks, Message, TransferInfo};
use bytes::Bytes;
use std::ops::Range;

/// How a driver's messages lie in memory when several come together: reads the first of the bytes. `None` where there is none.
pub type RecordLayout = fn(&[u8]) -> Option<Record>;

/// A message in the memory of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What travels with it, but for the association.
    pub info: TransferInfo,
    /// Where its data lies.
    pub data: Range<usize>,
    /// Where the next record begins.
    pub bytes: usize,
}

/// Messages of user data that lie one behind the other in one block, as records of their driver. They stand as one on the read
/// queue of the head, and nowhere else: modules and readers see single messages.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The association that they came from.
    pub association: u32,
    /// How many are left.
    pub messages: u32,
    /// Bytes of data in them.
    pub data_bytes: u32,
    /// What the driver charges beside the data, and wants back with the last message
    /// ([`Driver::consumed`](crate::Driver::consumed)).
    pub charges: u32,
    /// Bytes that the reader has taken and the driver has not heard of.
    pub(crate) unreported_bytes: u32,
    /// How they lie in their block.
    pub(crate) layout: RecordLayout,
}

/// Room in the receive window that goes back to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) association: u32,
    pub(crate) bytes: usize,
    pub(crate) charges: usize,
}

/// The driver hears of what was read of a run when it has come to so much, and at the end.
const REPORTED_BYTES: u32 = 1024;

impl Run {
    /// Describes so many messages with so much data, which lie as `layout` says.
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

    /// Returns what the driver gets back when all that is left is thrown away.
    pub(crate) fn credit(&self) -> Credit {
        Credit {
            association: self.association,
            bytes: (self.data_bytes + self.unreported_bytes) as usize,
            charges: self.charges as usize,
        }
    }

    /// Takes the first message, which is `record`, off `rest`.
    #[inline]
    fn pass(&mut self, record: &Record, rest: &mut Chain) {
        rest.advance(record.bytes);
        self.messages -= 1;
        self.data_bytes = self.data_bytes.saturating_sub(record.data.len() as u32);
    }

    /// Copies the first message to `out`, if that holds it, and takes it off `rest`. Returns its length and what is known of it.
    #[inline]
    pub(crate) fn read(&mut self, rest: &mut Chain, out: &mut [u8]) -> Option<(Record, Credit)> {
        let block = rest.blocks().first()?;
        let mut record = (self.layout)(block)?;
        let out = out.get_mut(..record.data.len())?;
        out.copy_from_slice(block.get(record.data.clone())?);
        record.info.association = self.association;
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

    /// Takes the first message off `rest` as one of its own, which has no charge. `None`: nothing is left.
    pub(crate) fn split(&mut self, rest: &mut Chain) -> Option<Message> {
        let block: &Bytes = rest.blocks().first()?;
        let mut record = (self.layout)(block)?;
        let data = Chain::from(block.slice(record.data.clone()));
        record.info.association = self.association;
        self.pass(&record, rest);
        Some(Message::optdata_ind(record.info, data).marked(Marks::OF_RUN))
    }
}

/// Two runs are equal if they say the same; the block says how they lie.
impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        (self.association, self.messages, self.data_bytes, self.charges)
            == (other.association, other.messages, other.data_bytes, other.charges)
    }
}
