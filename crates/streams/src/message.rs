//! Messages: what travels on a stream.

mod control;
mod ioctl;
mod kind;
mod marks;
mod utilities;

pub use control::Control;
pub use ioctl::{CopyRequest, Credentials, IocAck, IocData, IocNak, Ioctl, IoctlArgument};
pub use kind::{Flush, Kind, Passed, Signal};
pub use marks::Marks;
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

    /// The association and size of user data on its way up: what its reader gives back as receive window.
    #[inline]
    pub(crate) fn receive_credit(&self) -> Option<(u32, usize)> {
        if self.marks.contains(Marks::CREDITED) {
            return None;
        }
        match &self.kind {
            Kind::Data => Some((0, self.data.len())),
            Kind::Proto(Control::Tpi(primitive)) => match primitive {
                Primitive::OptdataInd(info) => Some((info.association, self.data.len())),
                Primitive::DataInd { .. } | Primitive::ExdataInd { .. } => Some((0, self.data.len())),
                // It takes room of the receive buffer, too, with data or without.
                Primitive::NotificationInd(notification) => {
                    Some((notification.transfer.association, self.weight_bytes()))
                }
                _ => None,
            },
            _ => None,
        }
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
