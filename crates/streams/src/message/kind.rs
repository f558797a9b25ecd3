//! The types of messages.

use std::time::Duration;

use tpi::{Primitive, RecvInfo, SendInfo};

use super::{Control, CopyRequest, Credentials, IocAck, IocData, IocNak, Ioctl, Run};
use crate::{Errno, HeadOptions, StreamId};

/// The types of messages: all of SVR4.2.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `M_DATA`: data without information about it.
    Data,
    /// `M_PROTO`: a control part, perhaps with data.
    Proto(Control),
    /// Several messages of user data that wait for their reader as one entry; only on the read queue of a head.
    Run(Run),
    /// `M_BREAK`: send a break. For terminals; passes through.
    Break,
    /// `M_PASSFP`: a reference for the reader at the other end of a pipe.
    PassFp(Passed),
    /// `M_EVENT`: an event in its place among the data. For terminals; passes through.
    Event,
    /// `M_SIG`: a signal for the reader, in its place among the data.
    Sig(Signal),
    /// `M_DELAY`: a pause between the messages before and behind it, on the way down.
    Delay(Duration),
    /// `M_CTL`: between neighbouring modules.
    Ctl,
    /// `M_IOCTL`: a request to a module or the driver.
    Ioctl(Box<Ioctl>),
    /// `M_SETOPTS`: change the options of the stream head.
    Setopts(Box<HeadOptions>),
    /// `M_RSE`: reserved; passes through.
    Rse,
    /// `M_PCPROTO`: a control part with high priority.
    PcProto(Control),
    /// `M_PCSIG`: a signal that does not wait for its place.
    PcSig(Signal),
    /// `M_READ`: a reader wants this many bytes and found none.
    Read {
        /// Number of bytes.
        bytes: usize,
    },
    /// `M_FLUSH`: discard queued messages.
    Flush(Flush),
    /// `M_STOP`: stop output.
    Stop,
    /// `M_START`: start output again.
    Start,
    /// `M_STOPI`: stop input.
    StopI,
    /// `M_STARTI`: start input again.
    StartI,
    /// `M_IOCACK`: the request was carried out.
    IocAck(IocAck),
    /// `M_IOCNAK`: the request was refused.
    IocNak(IocNak),
    /// `M_COPYIN`: the caller of an ioctl is asked for data.
    CopyIn(Box<CopyRequest>),
    /// `M_COPYOUT`: the caller of an ioctl is given data.
    CopyOut(Box<CopyRequest>),
    /// `M_IOCDATA`: the caller's answer to `M_COPYIN` or `M_COPYOUT`.
    IocData(Box<IocData>),
    /// `M_ERROR`: from now on reads or writes fail. `None` leaves a side as it is, `Errno(0)` clears its error.
    Error {
        /// Error of reads.
        read: Option<Errno>,
        /// Error of writes.
        write: Option<Errno>,
    },
    /// `M_HANGUP`: nothing more comes up, and nothing can go down.
    Hangup,
    /// `M_PCRSE`: reserved; passes through.
    PcRse,
}

/// The messages that an `M_FLUSH` discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// `FLUSHR`: those on their way up.
    pub read: bool,
    /// `FLUSHW`: those on their way down.
    pub write: bool,
    /// `FLUSHBAND`: only those of this band.
    pub band: Option<u8>,
    /// Messages of every type (`FLUSHALL`), or only those with user data (`FLUSHDATA`).
    pub all: bool,
}

impl Flush {
    /// All messages on their way up.
    pub const READ: Self = Self { read: true, write: false, band: None, all: true };
    /// All messages on their way down.
    pub const WRITE: Self = Self { read: false, write: true, band: None, all: true };
    /// All messages in both directions.
    pub const BOTH: Self = Self { read: true, write: true, band: None, all: true };
}

/// The number of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(pub i32);

impl Signal {
    /// `SIGPIPE`, by its number in Linux.
    pub const PIPE: Self = Self(13);
}

/// A reference that a program passes to the reader at the other end of a pipe (`strrecvfd`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Passed {
    /// Number of the object, which the owner of the executive keeps.
    pub number: u64,
    /// One end of a pipe that was made for this connection (`connld`), which the receiver closes. `None`: a program has passed
    /// the number.
    pub stream: Option<StreamId>,
    /// The user that passed it.
    pub credentials: Credentials,
}

impl Kind {
    /// Returns whether messages of this type pass all others and ignore flow control (`QPCTL` and above).
    #[inline]
    pub fn is_high_priority(&self) -> bool {
        match self {
            Self::Data
            | Self::Proto(_)
            | Self::Run(_)
            | Self::Break
            | Self::PassFp(_)
            | Self::Event
            | Self::Sig(_)
            | Self::Delay(_)
            | Self::Ctl
            | Self::Ioctl(_)
            | Self::Setopts(_)
            | Self::Rse => false,
            Self::PcProto(_)
            | Self::PcSig(_)
            | Self::Read { .. }
            | Self::Flush(_)
            | Self::Stop
            | Self::Start
            | Self::StopI
            | Self::StartI
            | Self::IocAck(_)
            | Self::IocNak(_)
            | Self::CopyIn(_)
            | Self::CopyOut(_)
            | Self::IocData(_)
            | Self::Error { .. }
            | Self::Hangup
            | Self::PcRse => true,
        }
    }

    /// Returns whether `FLUSHDATA` discards messages of this type (`datamsg`).
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Self::Data | Self::Proto(_) | Self::Run(_) | Self::PcProto(_) | Self::Delay(_))
    }

    /// Returns the name in the interface's headers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Data => "M_DATA",
            Self::Proto(_) | Self::Run(_) => "M_PROTO",
            Self::Break => "M_BREAK",
            Self::PassFp(_) => "M_PASSFP",
            Self::Event => "M_EVENT",
            Self::Sig(_) => "M_SIG",
            Self::Delay(_) => "M_DELAY",
            Self::Ctl => "M_CTL",
            Self::Ioctl(_) => "M_IOCTL",
            Self::Setopts(_) => "M_SETOPTS",
            Self::Rse => "M_RSE",
            Self::PcProto(_) => "M_PCPROTO",
            Self::PcSig(_) => "M_PCSIG",
            Self::Read { .. } => "M_READ",
            Self::Flush(_) => "M_FLUSH",
            Self::Stop => "M_STOP",
            Self::Start => "M_START",
            Self::StopI => "M_STOPI",
            Self::StartI => "M_STARTI",
            Self::IocAck(_) => "M_IOCACK",
            Self::IocNak(_) => "M_IOCNAK",
            Self::CopyIn(_) => "M_COPYIN",
            Self::CopyOut(_) => "M_COPYOUT",
            Self::IocData(_) => "M_IOCDATA",
            Self::Error { .. } => "M_ERROR",
            Self::Hangup => "M_HANGUP",
            Self::PcRse => "M_PCRSE",
        }
    }

    /// Returns the description of user data on its way down; `None` for other messages.
    pub(crate) fn send_info(&self) -> Option<SendInfo> {
        self.described(send_info_of)
    }

    /// Returns the description of user data on its way up; `None` for other messages.
    pub(crate) fn recv_info(&self) -> Option<RecvInfo> {
        self.described(recv_info_of)
    }

    /// Describes user data by its primitive, which is decoded if a program has put it as bytes.
    pub(crate) fn described<T: Default>(&self, of: impl Fn(&Primitive) -> Option<T>) -> Option<T> {
        match self {
            Self::Data => Some(T::default()),
            Self::Proto(Control::Tpi(primitive)) => of(primitive),
            Self::Proto(Control::Raw(bytes)) => of(&Primitive::decode(bytes).ok()?),
            _ => None,
        }
    }

    /// Returns the type in one word: the name of its primitive, or of the type.
    pub(crate) fn what(&self) -> &'static str {
        let primitive = match self {
            Self::Proto(control) | Self::PcProto(control) => control.code(),
            _ => None,
        };
        primitive.map_or(self.name(), |primitive| primitive.name())
    }
}

fn send_info_of(primitive: &Primitive) -> Option<SendInfo> {
    match *primitive {
        Primitive::OptdataReq { info, .. } => Some(info),
        Primitive::DataReq { more } => Some(SendInfo { more, ..SendInfo::default() }),
        Primitive::ExdataReq { more } => Some(SendInfo { more, unordered: true, ..SendInfo::default() }),
        _ => None,
    }
}

fn recv_info_of(primitive: &Primitive) -> Option<RecvInfo> {
    match *primitive {
        Primitive::OptdataInd { info, .. } => Some(info),
        Primitive::DataInd { more } => Some(RecvInfo { more, ..RecvInfo::default() }),
        Primitive::ExdataInd { more } => Some(RecvInfo { more, unordered: true, ..RecvInfo::default() }),
        _ => None,
    }
}
