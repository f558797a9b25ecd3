//! The primitives: requests and responses go down, indications, confirmations and acknowledgements go up.

use crate::{Addresses, Errno, Notification, RecvInfo, SendInfo, TError};
use std::fmt;

/// One primitive of the transport interface.
///
/// The data transfer primitives are small and own nothing; what is large stands behind a box, so that a message stays
/// small on its way through the queues. User data is not part of a primitive: it travels in the same message.
/// Where a primitive has an `association`, 0 stands for the only one of a one-to-one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// `T_DATA_REQ`: send normal data.
    DataReq {
        /// The record goes on in the next primitive.
        more: bool,
    },
    /// `T_DATA_IND`: normal data arrived.
    DataInd {
        /// The record goes on in the next primitive.
        more: bool,
    },
    /// `T_EXDATA_REQ`: send expedited data.
    ExdataReq {
        /// The record goes on in the next primitive.
        more: bool,
    },
    /// `T_EXDATA_IND`: expedited data arrived.
    ExdataInd {
        /// The record goes on in the next primitive.
        more: bool,
    },
    /// `T_OPTDATA_REQ`: send data with its stream and other properties.
    OptdataReq {
        /// Which association.
        association: u32,
        /// Its stream and other properties.
        info: SendInfo,
    },
    /// `T_OPTDATA_IND`: data with its stream and other properties arrived.
    OptdataInd {
        /// Which association.
        association: u32,
        /// Its stream and other properties.
        info: RecvInfo,
    },
    /// `T_OPTDATA_IND` that says what happened to an association.
    NotificationInd(Box<Notification>),
    /// `T_UNITDATA_REQ`: send a datagram.
    UnitdataReq(Box<Unitdata<SendInfo>>),
    /// `T_UNITDATA_IND`: a datagram arrived.
    UnitdataInd(Box<Unitdata<RecvInfo>>),
    /// `T_UDERROR_IND`: a datagram could not be sent.
    UderrorInd {
        /// Where the datagram was to go.
        unitdata: Box<Unitdata<SendInfo>>,
        /// What went wrong, a number of the provider's.
        error: u32,
    },
    /// `T_INFO_REQ`: say what the provider can do.
    InfoReq,
    /// `T_INFO_ACK`: what the provider can do.
    InfoAck(Box<Info>),
    /// `T_BIND_REQ`: take these local addresses.
    BindReq {
        /// The addresses; an empty list and port 0 leave the choice to the provider.
        addresses: Box<Addresses>,
        /// How many connect indications may wait; 0 for an endpoint that does not listen.
        backlog: u32,
    },
    /// `T_BIND_ACK`: the endpoint is bound.
    BindAck {
        /// The addresses that it is bound to.
        addresses: Box<Addresses>,
        /// How many connect indications may wait.
        backlog: u32,
    },
    /// `T_UNBIND_REQ`: give up the local addresses.
    UnbindReq,
    /// `T_OK_ACK`: a request was carried out.
    OkAck {
        /// Which request.
        primitive: PrimitiveCode,
    },
    /// `T_ERROR_ACK`: a request was refused and has changed nothing.
    ErrorAck {
        /// Which request.
        primitive: PrimitiveCode,
        /// Why.
        t_error: TError,
        /// The system's reason, with [`TError::System`].
        errno: Errno,
    },
    /// `T_CONN_REQ`: connect to these addresses of one peer.
    ConnReq {
        /// The peer's addresses.
        addresses: Box<Addresses>,
    },
    /// `T_CONN_CON`: the connection is there.
    ConnCon {
        /// The peer's addresses.
        addresses: Box<Addresses>,
        /// The new association.
        association: u32,
        /// How many streams we may send on.
        outbound_streams: u16,
        /// How many streams the peer may send on.
        inbound_streams: u16,
    },
    /// `T_CONN_IND`: a peer wants to connect.
    ConnInd {
        /// The peer's addresses.
        addresses: Box<Addresses>,
        /// Names this indication in the answer.
        sequence: u32,
    },
    /// `T_CONN_RES`: accept a connect indication.
    ConnRes {
        /// Which indication.
        sequence: u32,
        /// The endpoint that takes the connection, as the provider numbers them.
        acceptor: u32,
    },
    /// `T_DISCON_REQ`: refuse a connect indication or abort a connection.
    DisconReq {
        /// Which indication, when one is refused; 0 otherwise.
        sequence: u32,
        /// Goes to the peer as the reason.
        reason: u32,
        /// Which connection is aborted.
        association: u32,
    },
    /// `T_DISCON_IND`: a connection is gone or could not be made.
    DisconInd {
        /// Why: an [`Errno`] as the provider chose it.
        reason: u32,
        /// The indication that is withdrawn by this; 0 otherwise.
        sequence: u32,
        /// Which connection.
        association: u32,
        /// The error cause that ended it (RFC 9260 §3.3.10); 0 for none.
        cause: u16,
    },
    /// `T_ORDREL_REQ`: no more data will be sent; deliver what was.
    OrdrelReq {
        /// Which connection.
        association: u32,
    },
    /// `T_ORDREL_IND`: the peer sends no more data.
    OrdrelInd {
        /// Which connection.
        association: u32,
    },
    /// `T_OPTMGMT_REQ`: look up or change options.
    OptmgmtReq(Box<Optmgmt>),
    /// `T_OPTMGMT_ACK`: the options.
    OptmgmtAck(Box<Optmgmt>),
    /// `T_ADDR_REQ`: say both ends' addresses.
    AddrReq,
    /// `T_ADDR_ACK`: both ends' addresses.
    AddrAck {
        /// Ours.
        local: Box<Addresses>,
        /// The peer's; empty where there is no connection.
        remote: Box<Addresses>,
    },
    /// `T_CAPABILITY_REQ`: say what is asked for in `bits`.
    CapabilityReq {
        /// [`Primitive::CAPABILITY_INFO`], [`Primitive::CAPABILITY_ACCEPTOR`].
        bits: u32,
    },
    /// `T_CAPABILITY_ACK`: what was asked for.
    CapabilityAck {
        /// Which of the following say something.
        bits: u32,
        /// What the provider can do.
        info: Box<Info>,
        /// The number of this endpoint for [`Primitive::ConnRes`].
        acceptor: u32,
    },
}

/// The address and options of a datagram, whose `I` is [`SendInfo`] on its way down and [`RecvInfo`] on its way up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unitdata<I> {
    /// Where it goes to, or came from.
    pub addresses: Addresses,
    /// Its properties.
    pub info: I,
}

/// The options of one option management request or answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Optmgmt {
    /// What to do, or what was done: the `MGMT_flags` of the interface (`T_NEGOTIATE` and others).
    pub flags: u32,
    /// The options, as a list of `t_opthdr` with values.
    pub options: Vec<u8>,
}

/// What a provider can do (`T_INFO_ACK`). Sizes in bytes; -1 has no limit, -2 does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Largest record.
    pub tsdu_bytes: i32,
    /// Largest expedited record.
    pub etsdu_bytes: i32,
    /// Most data with a connect primitive.
    pub connect_data_bytes: i32,
    /// Most data with a disconnect primitive.
    pub disconnect_data_bytes: i32,
    /// Largest address.
    pub address_bytes: i32,
    /// Largest block of options.
    pub options_bytes: i32,
    /// Largest piece of data in one primitive.
    pub tidu_bytes: i32,
    /// 1 connection mode, 2 the same with orderly release, 3 connectionless.
    pub service: u32,
    /// The state of the endpoint (`TS_*`).
    pub state: u32,
    /// 1 where a record of no bytes can be sent, 2 where the connection may go on after an expedited record.
    pub provider_flags: u32,
}

macro_rules! codes {
    ($($variant:ident = $value:literal, $name:literal;)*) => {
        /// Which primitive: the `PRIM_type` numbers of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum PrimitiveCode { $(#[doc = concat!("`", $name, "`")] $variant = $value,)* }

        impl PrimitiveCode {
            /// All values, in numeric order.
            pub const ALL: &'static [PrimitiveCode] = &[$(PrimitiveCode::$variant,)*];

            /// The primitive with the number `value`, if there is one.
            pub fn from_number(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }

            /// Returns whether a transport user sends the primitive; the provider sends the others.
            pub fn is_of_user(self) -> bool {
                self.name().ends_with("_REQ") || self == Self::ConnRes
            }

            /// The name in the interface's headers.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

codes! {
    ConnReq = 0, "T_CONN_REQ";
    ConnRes = 1, "T_CONN_RES";
    DisconReq = 2, "T_DISCON_REQ";
    DataReq = 3, "T_DATA_REQ";
    ExdataReq = 4, "T_EXDATA_REQ";
    InfoReq = 5, "T_INFO_REQ";
    BindReq = 6, "T_BIND_REQ";
    UnbindReq = 7, "T_UNBIND_REQ";
    UnitdataReq = 8, "T_UNITDATA_REQ";
    OptmgmtReq = 9, "T_OPTMGMT_REQ";
    OrdrelReq = 10, "T_ORDREL_REQ";
    ConnInd = 11, "T_CONN_IND";
    ConnCon = 12, "T_CONN_CON";
    DisconInd = 13, "T_DISCON_IND";
    DataInd = 14, "T_DATA_IND";
    ExdataInd = 15, "T_EXDATA_IND";
    InfoAck = 16, "T_INFO_ACK";
    BindAck = 17, "T_BIND_ACK";
    ErrorAck = 18, "T_ERROR_ACK";
    OkAck = 19, "T_OK_ACK";
    UnitdataInd = 20, "T_UNITDATA_IND";
    UderrorInd = 21, "T_UDERROR_IND";
    OptmgmtAck = 22, "T_OPTMGMT_ACK";
    OrdrelInd = 23, "T_ORDREL_IND";
    OptdataReq = 24, "T_OPTDATA_REQ";
    AddrReq = 25, "T_ADDR_REQ";
    OptdataInd = 26, "T_OPTDATA_IND";
    AddrAck = 27, "T_ADDR_ACK";
    CapabilityReq = 28, "T_CAPABILITY_REQ";
    CapabilityAck = 29, "T_CAPABILITY_ACK";
}

impl fmt::Display for PrimitiveCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Primitive {
    /// In `bits` of a capability primitive: the provider's [`Info`].
    pub const CAPABILITY_INFO: u32 = 1;
    /// In `bits` of a capability primitive: the number of the endpoint for accepting.
    pub const CAPABILITY_ACCEPTOR: u32 = 2;

    /// Returns whether the primitive carries user data on its way up.
    pub fn carries_user_data(&self) -> bool {
        matches!(self, Self::OptdataInd { .. } | Self::DataInd { .. } | Self::ExdataInd { .. })
    }

    /// Which primitive this is.
    pub fn code(&self) -> PrimitiveCode {
        match self {
            Self::DataReq { .. } => PrimitiveCode::DataReq,
            Self::DataInd { .. } => PrimitiveCode::DataInd,
            Self::ExdataReq { .. } => PrimitiveCode::ExdataReq,
            Self::ExdataInd { .. } => PrimitiveCode::ExdataInd,
            Self::OptdataReq { .. } => PrimitiveCode::OptdataReq,
            Self::OptdataInd { .. } | Self::NotificationInd(_) => PrimitiveCode::OptdataInd,
            Self::UnitdataReq(_) => PrimitiveCode::UnitdataReq,
            Self::UnitdataInd(_) => PrimitiveCode::UnitdataInd,
            Self::UderrorInd { .. } => PrimitiveCode::UderrorInd,
            Self::InfoReq => PrimitiveCode::InfoReq,
            Self::InfoAck(_) => PrimitiveCode::InfoAck,
            Self::BindReq { .. } => PrimitiveCode::BindReq,
            Self::BindAck { .. } => PrimitiveCode::BindAck,
            Self::UnbindReq => PrimitiveCode::UnbindReq,
            Self::OkAck { .. } => PrimitiveCode::OkAck,
            Self::ErrorAck { .. } => PrimitiveCode::ErrorAck,
            Self::ConnReq { .. } => PrimitiveCode::ConnReq,
            Self::ConnCon { .. } => PrimitiveCode::ConnCon,
            Self::ConnInd { .. } => PrimitiveCode::ConnInd,
            Self::ConnRes { .. } => PrimitiveCode::ConnRes,
            Self::DisconReq { .. } => PrimitiveCode::DisconReq,
            Self::DisconInd { .. } => PrimitiveCode::DisconInd,
            Self::OrdrelReq { .. } => PrimitiveCode::OrdrelReq,
            Self::OrdrelInd { .. } => PrimitiveCode::OrdrelInd,
            Self::OptmgmtReq(_) => PrimitiveCode::OptmgmtReq,
            Self::OptmgmtAck(_) => PrimitiveCode::OptmgmtAck,
            Self::AddrReq => PrimitiveCode::AddrReq,
            Self::AddrAck { .. } => PrimitiveCode::AddrAck,
            Self::CapabilityReq { .. } => PrimitiveCode::CapabilityReq,
            Self::CapabilityAck { .. } => PrimitiveCode::CapabilityAck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every message carries a primitive through every queue: its size is part of the speed.
    #[test]
    fn a_primitive_stays_small() {
        assert!(size_of::<Primitive>() <= 32, "{} bytes", size_of::<Primitive>());
    }
}
