//! Messages, which travel on streams.

mod control;
mod ioctl;
mod kind;
mod marks;
mod run;
mod seen;
mod utilities;

pub use control::Control;
pub use ioctl::{CopyRequest, Credentials, IocAck, IocData, IocNak, Ioctl, IoctlArgument};
pub use kind::{Flush, Kind, Passed, Signal};
pub use marks::Marks;
pub(crate) use run::Credit;
pub use run::{Record, RecordLayout, Run, RunMessages};
pub use seen::Seen;
pub use utilities::{allocb, copyb, dupb, esballoc, testb};

use bytes::Bytes;
use tpi::{NotificationKind, Primitive, RecvInfo, SendInfo, Which};

use crate::Chain;

/// A message on its way up or down a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The type, with the content that belongs to it.
    pub kind: Kind,
    /// The priority band: 0 is normal, higher bands pass lower ones. High-priority types pass all bands.
    pub band: u8,
    /// Marks of the head, such as the end of a record, and of the flow control of the receive window.
    pub marks: Marks,
    /// User data; empty for most control messages.
    pub data: Chain,
}

/// The properties of a message of user data that [`SendInfo`] and [`RecvInfo`] have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserData {
    /// Its association.
    pub association: Which,
    /// Its stream.
    pub stream: u16,
    /// Its payload protocol identifier.
    pub ppid: u32,
    /// Whether the record continues in the next message.
    pub more: bool,
}

impl Message {
    /// Returns a message of this type in the normal band, with no marks and no data.
    #[inline]
    pub fn new(kind: Kind) -> Self {
        Self::with_data(kind, Chain::new())
    }

    /// Returns a message of this type in the normal band, with no marks.
    #[inline]
    pub fn with_data(kind: Kind, data: Chain) -> Self {
        Self { kind, band: 0, marks: Marks::NONE, data }
    }

    /// Returns an `M_DATA`.
    #[inline]
    pub fn data(data: impl Into<Chain>) -> Self {
        Self::with_data(Kind::Data, data.into())
    }

    /// Returns an `M_PROTO` without data.
    #[inline]
    pub fn proto(primitive: Primitive) -> Self {
        Self::new(Kind::Proto(primitive.into()))
    }

    /// Returns an `M_PCPROTO` without data.
    #[inline]
    pub fn pc_proto(primitive: Primitive) -> Self {
        Self::new(Kind::PcProto(primitive.into()))
    }

    /// Returns a `T_OPTDATA_REQ` with its data, as a write sends it down.
    #[inline]
    pub fn optdata_req(association: Which, info: SendInfo, data: Bytes) -> Self {
        let primitive = Primitive::OptdataReq { association, info };
        Self::with_data(Kind::Proto(Control::Tpi(primitive)), Chain::from(data))
    }

    /// Returns a `T_OPTDATA_IND` with its data, as a provider sends it up.
    #[inline]
    pub fn optdata_ind(association: Which, info: RecvInfo, data: Chain) -> Self {
        Self::with_data(Kind::Proto(Control::Tpi(Primitive::OptdataInd { association, info })), data)
    }

    /// Returns the message in this band.
    #[inline]
    #[must_use]
    pub fn in_band(mut self, band: u8) -> Self {
        self.band = band;
        self
    }

    /// Returns the message with these marks added.
    #[inline]
    #[must_use]
    pub fn marked(mut self, marks: Marks) -> Self {
        self.marks |= marks;
        self
    }

    /// Returns the properties of user data that both directions have in common; `None` for other messages. Data without
    /// options has the default description.
    pub fn user_data(&self) -> Option<UserData> {
        self.kind.described(user_data_of)
    }

    /// Returns the association whose open record has no part behind this message: the association begins again or ends, or the
    /// rest of the record does not arrive. In the last case also returns the stream of the record.
    pub(crate) fn cut_record(&self) -> Option<(Which, Option<u16>)> {
        self.kind.described(|primitive| Some(cut_record_of(primitive))).flatten()
    }

    /// Returns the description of user data on its way down; `None` for other messages. Data without options has the default
    /// description.
    pub fn send_info(&self) -> Option<SendInfo> {
        self.kind.send_info()
    }

    /// Returns the description of user data on its way up; `None` for other messages. Data without options has the default
    /// description.
    pub fn recv_info(&self) -> Option<RecvInfo> {
        self.kind.recv_info()
    }

    /// Decodes a control part that was put as bytes, for a module or driver that speaks the transport interface. Bytes
    /// that are no primitive stay. User data that came up so has no part of the receive window, and does not get one.
    #[must_use]
    pub fn decoded(mut self) -> Self {
        let (Kind::Proto(control) | Kind::PcProto(control)) = &mut self.kind else { return self };
        let Control::Raw(bytes) = &*control else { return self };
        if let Ok(primitive) = Primitive::decode(bytes) {
            *control = Control::Tpi(primitive);
            self.marks |= Marks::CREDITED;
        }
        self
    }

    /// Returns the rank of the message: messages of a higher rank come first.
    #[inline]
    pub fn rank(&self) -> u16 {
        if self.kind.is_high_priority() { HIGH_PRIORITY } else { u16::from(self.band) }
    }

    /// Returns the weight of the message on a queue: its data and its raw control part. An empty message weighs one byte, so that
    /// a flood of them also fills the queue.
    #[inline]
    pub fn weight_bytes(&self) -> usize {
        let control_bytes = match &self.kind {
            Kind::Proto(Control::Raw(bytes)) | Kind::PcProto(Control::Raw(bytes)) => bytes.len(),
            _ => 0,
        };
        self.data.len().max(1) + control_bytes
    }

    /// Returns the receive window that reading the message gives back.
    #[inline]
    pub(crate) fn receive_credit(&self) -> Option<Credit> {
        if self.marks.contains(Marks::CREDITED) {
            return None;
        }
        let (association, bytes) = match &self.kind {
            Kind::Data => (Which::Only, self.data.len()),
            Kind::Run(run) => return Some(run.credit()),
            Kind::Proto(Control::Tpi(primitive)) => match primitive {
                Primitive::OptdataInd { association, .. } => (*association, self.data.len()),
                Primitive::DataInd { .. } | Primitive::ExdataInd { .. } => (Which::Only, self.data.len()),
                // A notification takes room of the receive buffer, too, with data or without.
                Primitive::NotificationInd(notification) => (notification.association, self.weight_bytes()),
                Primitive::OrdrelInd { association } => (*association, self.weight_bytes()),
                // A second confirmation, with data, reports the restart of a peer.
                Primitive::ConnCon { association, .. } if !self.data.is_empty() => {
                    (*association, self.weight_bytes())
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(Credit { association, bytes, charges: self.charges() })
    }

    /// Returns the number of messages that it stands for.
    #[inline]
    pub(crate) fn messages(&self) -> usize {
        match &self.kind {
            Kind::Run(run) => run.messages(),
            _ => 1,
        }
    }

    /// Returns the number of messages with user data that it stands for, and their bytes. A primitive without user data, such as
    /// the confirmation of a connection, is none.
    #[inline]
    pub(crate) fn user_messages(&self) -> (usize, usize) {
        let is_user_data = match &self.kind {
            Kind::Run(run) => return (run.messages(), run.credit().bytes),
            Kind::Data => true,
            Kind::Proto(control @ Control::Raw(_)) | Kind::PcProto(control @ Control::Raw(_)) => {
                control.is_empty() || !self.data.is_empty()
            }
            Kind::Proto(control) | Kind::PcProto(control) => control.carries_user_data(),
            _ => false,
        };
        if is_user_data { (1, self.data.len()) } else { (0, 0) }
    }

    /// Returns the charge for the message beyond its data.
    #[inline]
    pub(crate) fn charges(&self) -> usize {
        usize::from(!self.marks.contains(Marks::OF_RUN))
    }
}

fn user_data_of(primitive: &Primitive) -> Option<UserData> {
    match primitive {
        Primitive::OptdataReq { association, info } => {
            let SendInfo { stream, ppid, more, .. } = *info;
            Some(UserData { association: *association, stream, ppid, more })
        }
        Primitive::OptdataInd { association, info } => {
            let RecvInfo { stream, ppid, more, .. } = *info;
            Some(UserData { association: *association, stream, ppid, more })
        }
        Primitive::DataReq { more }
        | Primitive::ExdataReq { more }
        | Primitive::DataInd { more }
        | Primitive::ExdataInd { more } => Some(UserData { more: *more, ..UserData::default() }),
        _ => None,
    }
}

fn cut_record_of(primitive: &Primitive) -> Option<(Which, Option<u16>)> {
    match primitive {
        // The second one of an association reports that the peer has restarted.
        Primitive::ConnCon { association, .. }
        | Primitive::DisconReq { association, .. }
        | Primitive::DisconInd { association, .. }
        | Primitive::OrdrelReq { association }
        | Primitive::OrdrelInd { association } => Some((*association, None)),
        Primitive::NotificationInd(notification) => match notification.kind {
            NotificationKind::PartialDeliveryAborted { stream, .. } => {
                Some((notification.association, Some(stream)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The rank of high-priority messages, above every band.
pub(crate) const HIGH_PRIORITY: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every message is moved a few times on its way, so its size affects speed.
    #[test]
    fn a_message_stays_small() {
        assert!(size_of::<Message>() <= 80, "{} bytes", size_of::<Message>());
    }
}
