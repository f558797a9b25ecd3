//! Messages: what travels on a stream.

use crate::{Chain, Errno, HeadOptions};
use bytes::Bytes;
use std::ops::{BitOr, BitOrAssign};
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

/// The kinds of messages, `M_DATA` to `M_SIG`.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `M_DATA`: data with nothing said about it.
    Data,
    /// `M_PROTO`: a primitive of the transport interface, perhaps with data.
    Proto(Primitive),
    /// `M_PCPROTO`: the same with high priority.
    PcProto(Primitive),
    /// `M_FLUSH`: throw away what is queued.
    Flush(Flush),
    /// `M_IOCTL`: a request to a module or the driver.
    Ioctl(Ioctl),
    /// `M_IOCACK`: the request was carried out.
    IocAck(IocAck),
    /// `M_IOCNAK`: the request was refused.
    IocNak(IocNak),
    /// `M_ERROR`: from now on reading or writing fails. `None` leaves one as it is, `Errno(0)` ends the failing.
    Error {
        /// What reads report.
        read: Option<Errno>,
        /// What writes report.
        write: Option<Errno>,
    },
    /// `M_HANGUP`: nothing more comes up, and nothing can go down.
    Hangup,
    /// `M_SETOPTS`: change the options of the stream head.
    Setopts(Box<HeadOptions>),
    /// `M_SIG`: a signal for the reader, in its place among the data.
    Sig(Signal),
}

/// What an `M_FLUSH` throws away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// `FLUSHR`: what is queued on its way up.
    pub read: bool,
    /// `FLUSHW`: what is queued on its way down.
    pub write: bool,
    /// `FLUSHBAND`: only messages of this band.
    pub band: Option<u8>,
    /// Messages of every kind (`FLUSHALL`), or only those with user data (`FLUSHDATA`).
    pub all: bool,
}

impl Flush {
    /// All that is queued on its way up.
    pub const READ: Self = Self { read: true, write: false, band: None, all: true };
    /// All that is queued on its way down.
    pub const WRITE: Self = Self { read: false, write: true, band: None, all: true };
    /// All that is queued, both ways.
    pub const BOTH: Self = Self { read: true, write: true, band: None, all: true };
}

/// A request to a module or the driver (`I_STR`). Its argument is the data of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl {
    /// What to do.
    pub command: u32,
    /// Names the request in its answer.
    pub id: u32,
}

/// The answer to a request that was carried out. The data of the message goes back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocAck {
    /// Which request.
    pub id: u32,
    /// What the call returns.
    pub value: i32,
}

/// The answer to a request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IocNak {
    /// Which request.
    pub id: u32,
    /// Why.
    pub errno: Errno,
}

/// The number of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(pub i32);

/// Marks of a message: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// `MSGMARK`: the message is marked for the reader, as the place of urgent data.
    pub const MARK: Self = Self(1);
    /// `MSGMARKNEXT`: the next message will be marked.
    pub const MARK_NEXT: Self = Self(2);
    /// `MSGNOTMARKNEXT`: the next message will not be marked.
    pub const NOT_MARK_NEXT: Self = Self(4);
    /// `MSGDELIM`: the message ends a record.
    pub const DELIMITER: Self = Self(8);
    /// `MSGNOLOOP`: the stream head does not send a flush back down.
    pub const NO_LOOP: Self = Self(16);

    /// Whether every mark of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// This set without the marks of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Marks {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Marks {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Kind {
    /// Whether messages of this kind pass all others and ignore flow control (`QPCTL` and above).
    #[inline]
    pub fn is_high_priority(&self) -> bool {
        match self {
            Self::Data | Self::Proto(_) | Self::Ioctl(_) | Self::Setopts(_) | Self::Sig(_) => false,
            Self::PcProto(_)
            | Self::Flush(_)
            | Self::IocAck(_)
            | Self::IocNak(_)
            | Self::Error { .. }
            | Self::Hangup => true,
        }
    }

    /// Whether `FLUSHDATA` throws messages of this kind away.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Self::Data | Self::Proto(_) | Self::PcProto(_))
    }
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
        Self::new(Kind::Proto(primitive))
    }

    /// `M_PCPROTO` without data.
    #[inline]
    pub fn pc_proto(primitive: Primitive) -> Self {
        Self::new(Kind::PcProto(primitive))
    }

    /// `T_OPTDATA_REQ` with its data: what a write sends down.
    #[inline]
    pub fn optdata_req(info: TransferInfo, data: Bytes) -> Self {
        Self::with_data(Kind::Proto(Primitive::OptdataReq(info)), Chain::from(data))
    }

    /// `T_OPTDATA_IND` with its data: what a provider sends up.
    #[inline]
    pub fn optdata_ind(info: TransferInfo, data: Chain) -> Self {
        Self::with_data(Kind::Proto(Primitive::OptdataInd(info)), data)
    }

    /// The same message in this band.
    #[inline]
    #[must_use]
    pub fn in_band(mut self, band: u8) -> Self {
        self.band = band;
        self
    }

    /// The same message with these marks as well.
    #[inline]
    #[must_use]
    pub fn marked(mut self, marks: Marks) -> Self {
        self.marks |= marks;
        self
    }

    /// Its place among others: messages of a higher rank come first.
    #[inline]
    pub fn rank(&self) -> u16 {
        if self.kind.is_high_priority() { HIGH_PRIORITY } else { u16::from(self.band) }
    }

    /// What the message counts for on a queue. One without data counts for one byte, so that a flood of them ends too.
    #[inline]
    pub fn weight_bytes(&self) -> usize {
        self.data.len().max(1)
    }

    /// The association and size of user data on its way up: what its reader gives back as receive window.
    #[inline]
    pub(crate) fn receive_credit(&self) -> Option<(u32, usize)> {
        match &self.kind {
            Kind::Proto(Primitive::OptdataInd(info)) => Some((info.association, self.data.len())),
            Kind::Proto(Primitive::DataInd { .. } | Primitive::ExdataInd { .. }) | Kind::Data => {
                Some((0, self.data.len()))
            }
            // It takes room of the receive buffer, too, with data or without.
            Kind::Proto(Primitive::NotificationInd(notification)) => {
                Some((notification.transfer.association, self.weight_bytes()))
            }
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
