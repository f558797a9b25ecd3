//! Messages: what travels on a stream.

mod control;
mod ioctl;
mod kind;
mod marks;
mod run;
mod utilities;

pub use control::Control;
pub use ioctl::{CopyRequest, Credentials, IocAck, IocData, IocNak, Ioctl, IoctlArgument};
pub use kind::{Flush, Kind, Passed, Signal};
pub use marks::Marks;
pub(crate) use run::Credit;
pub use run::{Record, RecordLayout, Run};
pub use utilities::{allocb, copyb, dupb, esballoc};

use crate::Chain;
use bytes::Bytes;
use tpi::{Primitive, TransferInfo};

/// One message on its way up or down a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What the message is.
    pub kind: Kind,
    /// Its priority band: 0 is normal, higher bands pass lower ones. High-priority kinds pass all bands.
    pub band: u8,
    /// Marks of the message.
    pub marks: Marks,
    /// Its data.
    pub data: Chain,
}

impl Message {
    /// A message of this kind in the normal band, with no marks and no data.
    #[inline]
    pub fn new(kind: Kind) -> Self {
        Self::with_data(kind, Chain::new())
    }

    /// A message of this kind in the normal band, with no marks.
    #[inline]
    pub fn with_data(kind: Kind, data: Chain) -> Self {
        Self { kind, band: 0, marks: Marks::NONE, data }
    }

    /// `M_DATA`.
    #[inline]
    pub fn data(data: impl Into<Chain>) -> Self {
        Self::with_data(Kind::Data, data.into())
    }

    /// `M_PROTO` without data.
    #[inline]
    pub fn proto(primitive: Primitive) -> Self {
        Self::new(Kind::Proto(primitive.into()))
    }

    /// `M_PCPROTO` without data.
    #[inline]
    pub fn pc_proto(primitive: Primitive) -> Self {
        Self::new(Kind::PcProto(primitive.into()))
    }

    /// `T_OPTDATA_REQ` with its data: what a write sends down.
    #[inline]
    pub fn optdata_req(info: TransferInfo, data: Bytes) -> Self {
        Self::with_data(Kind::Proto(Control::Tpi(Primitive::OptdataReq(info))), Chain::from(data))
    }

    /// `T_OPTDATA_IND` with its data: what a provider sends up.
    #[inline]
    pub fn optdata_ind(info: TransferInfo, data: Chain) -> Self {
        Self::with_data(Kind::Proto(Control::Tpi(Primitive::OptdataInd(info))), data)
    }

    /// Returns the message in this band.
    #[inline]
    #[must_use]
    pub fn in_band(mut self, band: u8) -> Self {
        self.band = band;
        self
    }

    /// Returns the message with these marks as well.
    #[inline]
    #[must_use]
    pub fn marked(mut self, marks: Marks) -> Self {
        self.marks |= marks;
        self
    }

    /// Returns what is known of a message of user data; `None` for other messages. Plain data has nothing that is known.
    pub fn transfer(&self) -> Option<TransferInfo> {
        match &self.kind {
            Kind::Data => Some(TransferInfo::default()),
            Kind::Proto(Control::Tpi(Primitive::OptdataReq(info) | Primitive::OptdataInd(info))) => {
                Some(*info)
            }
            _ => None,
        }
    }

    /// Returns the place of the message among others: messages of a higher rank come first.
    #[inline]
    pub fn rank(&self) -> u16 {
        if self.kind.is_high_priority() { HIGH_PRIORITY } else { u16::from(self.band) }
    }

    /// Returns what the message counts for on a queue: its data and its raw control part. A message without data counts for
    /// one byte, so that a flood of them ends too.
    #[inline]
    pub fn weight_bytes(&self) -> usize {
        let control_bytes = match &self.kind {
            Kind::Proto(Control::Raw(bytes)) | Kind::PcProto(Control::Raw(bytes)) => bytes.len(),
            _ => 0,
        };
        self.data.len().max(1) + control_bytes
    }

    /// Returns what the reader of user data gives back as receive window.
    #[inline]
    pub(crate) fn receive_credit(&self) -> Option<Credit> {
        if self.marks.contains(Marks::CREDITED) {
            return None;
        }
        let (association, bytes) = match &self.kind {
            Kind::Data => (0, self.data.len()),
            Kind::Run(run) => return Some(run.credit()),
            Kind::Proto(Control::Tpi(primitive)) => match primitive {
                Primitive::OptdataInd(info) => (info.association, self.data.len()),
                Primitive::DataInd { .. } | Primitive::ExdataInd { .. } => (0, self.data.len()),
                // It takes room of the receive buffer, too, with data or without.
                Primitive::NotificationInd(notification) => {
                    (notification.transfer.association, self.weight_bytes())
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(Credit { association, bytes, charges: self.charges() })
    }

    /// Returns how many messages it stands for.
    #[inline]
    pub(crate) fn messages(&self) -> usize {
        match &self.kind {
            Kind::Run(run) => run.messages as usize,
            _ => 1,
        }
    }

    /// Returns what is charged for the message beside its data.
    #[inline]
    pub(crate) fn charges(&self) -> usize {
        usize::from(!self.marks.contains(Marks::OF_RUN))
    }
}

/// The rank of high-priority messages, above every band.
pub(crate) const HIGH_PRIORITY: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every message is moved a few times on its way: its size is part of the speed.
    #[test]
    fn a_message_stays_small() {
        assert!(size_of::<Message>() <= 80, "{} bytes", size_of::<Message>());
    }
}
