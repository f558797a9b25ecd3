//! The primitives: requests and responses go down, indications, confirmations and acknowledgements go up.

use crate::{Addresses, Errno, Notification, RecvInfo, SendInfo, TError, Which};
use std::fmt;

/// One primitive of the transport interface.
///
/// The data transfer primitives are small and own nothing; large content is boxed, so a message stays small on its way
/// through the queues. User data is not part of a primitive: it travels in the same message. Where a primitive has an
/// `association`, [`Which`] describes how it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// `T_DATA_REQ`: send normal data.
    DataReq {
        /// Whether the record continues in the next primitive.
        more: bool,
    },
    /// `T_DATA_IND`: normal data arrived.
    DataInd {
        /// Whether the record continues in the next primitive.
        more: bool,
    },
    /// `T_EXDATA_REQ`: send expedited data.
    ExdataReq {
        /// Whether the record continues in the next primitive.
        more: bool,
    },
    /// `T_EXDATA_IND`: expedited data arrived.
    ExdataInd {
        /// Whether the record continues in the next primitive.
        more: bool,
    },
    /// `T_OPTDATA_REQ`: send data with its stream and other properties.
    OptdataReq {
        /// The association that sends the data.
        association: Which,
        /// Stream and other properties of the data.
        info: SendInfo,
    },
    /// `T_OPTDATA_IND`: data with its stream and other properties arrived.
    OptdataInd {
        /// The association that received the data.
        association: Which,
        /// Stream and other properties of the data.
        info: RecvInfo,
    },
    /// `T_OPTDATA_IND` that reports an event of an association.
    NotificationInd(Box<Notification>),
    /// `T_UNITDATA_REQ`: send a datagram.
    UnitdataReq(Box<Unitdata<SendInfo>>),
    /// `T_UNITDATA_IND`: a datagram arrived.
    UnitdataInd(Box<Unitdata<RecvInfo>>),
    /// `T_UDERROR_IND`: a datagram could not be sent.
    UderrorInd {
        /// Destination and properties of the datagram.
        unitdata: Box<Unitdata<SendInfo>>,
        /// The provider's number of the error.
        error: u32,
    },
    /// `T_INFO_REQ`: return the provider's capabilities.
    InfoReq,
    /// `T_INFO_ACK`: the provider's capabilities.
    InfoAck(Box<Info>),
    /// `T_BIND_REQ`: bind to these local addresses.
    BindReq {
        /// The addresses; an empty list and port 0 let the provider choose.
        addresses: Box<Addresses>,
        /// The number of connect indications that may wait; 0 for an endpoint that does not listen.
        backlog: u32,
    },
    /// `T_BIND_ACK`: the endpoint is bound.
    BindAck {
        /// The addresses of the endpoint.
        addresses: Box<Addresses>,
        /// The number of connect indications that may wait.
        backlog: u32,
    },
    /// `T_UNBIND_REQ`: release the local addresses.
    UnbindReq,
    /// `T_OK_ACK`: a request was carried out.
    OkAck {
        /// The acknowledged request.
        primitive: PrimitiveCode,
    },
    /// `T_ERROR_ACK`: a request was refused and has changed nothing.
    ErrorAck {
        /// The refused request.
        primitive: PrimitiveCode,
        /// The reason.
        t_error: TError,
        /// The system error number, with [`TError::System`].
        errno: Errno,
    },
    /// `T_CONN_REQ`: connect to these addresses of one peer.
    ConnReq {
        /// The peer's addresses.
        addresses: Box<Addresses>,
    },
    /// `T_CONN_CON`: the connection is established.
    ConnCon {
        /// The peer's addresses.
        addresses: Box<Addresses>,
        /// The new association.
        association: Which,
        /// The number of streams on which we may send.
        outbound_streams: u16,
        /// The number of streams on which the peer may send.
        inbound_streams: u16,
    },
    /// `T_CONN_IND`: a peer wants to connect.
    ConnInd {
        /// The peer's addresses.
        addresses: Box<Addresses>,
        /// Identifies this indication in the response.
        sequence: u32,
    },
    /// `T_CONN_RES`: accept a connect indication.
    ConnRes {
        /// The accepted indication.
        sequence: u32,
        /// The provider's number of the endpoint that takes the connection.
        acceptor: u32,
    },
    /// `T_DISCON_REQ`: refuse a connect indication or abort a connection.
    DisconReq {
        /// The refused indication; 0 if a connection is aborted.
        sequence: u32,
        /// The reason, which is sent to the peer.
        reason: u32,
        /// The aborted connection.
        association: Which,
    },
    /// `T_DISCON_IND`: a connection has ended or could not be established.
    DisconInd {
        /// The reason: an [`Errno`] that the provider chose.
        reason: u32,
        /// The connect indication that the provider withdraws; 0 if it withdraws none.
        sequence: u32,
        /// The connection that has ended.
        association: Which,
        /// The error cause that ended the connection (RFC 9260 §3.3.10); 0 for none.
        cause: u16,
    },
    /// `T_ORDREL_REQ`: no more data will be sent; deliver the data already sent.
    OrdrelReq {
        /// The connection to release.
        association: Which,
    },
    /// `T_ORDREL_IND`: the peer sends no more data.
    OrdrelInd {
        /// The connection that the peer releases.
        association: Which,
    },
    /// `T_OPTMGMT_REQ`: look up or change options.
    OptmgmtReq(Box<Optmgmt>),
    /// `T_OPTMGMT_ACK`: the options.
    OptmgmtAck(Box<Optmgmt>),
    /// `T_ADDR_REQ`: return the addresses of both ends.
    AddrReq,
    /// `T_ADDR_ACK`: the addresses of both ends.
    AddrAck {
        /// The local addresses.
        local: Box<Addresses>,
        /// The peer's addresses; empty without a connection.
        remote: Box<Addresses>,
    },
    /// `T_CAPABILITY_REQ`: return the information that `bits` selects.
    CapabilityReq {
        /// [`Primitive::CAPABILITY_INFO`], [`Primitive::CAPABILITY_ACCEPTOR`].
        bits: u32,
    },
    /// `T_CAPABILITY_ACK`: the requested information.
    CapabilityAck {
        /// Selects which of the following fields are valid.
        bits: u32,
        /// The provider's capabilities.
        info: Box<Info>,
        /// The number of this endpoint for [`Primitive::ConnRes`].
        acceptor: u32,
    },
}

/// The address and options of a datagram, whose `I` is [`SendInfo`] on its way down and [`RecvInfo`] on its way up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unitdata<I> {
    /// Destination on the way down, source on the way up.
    pub addresses: Addresses,
    /// Properties of the datagram.
    pub info: I,
}

/// The options of one option management request or answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Optmgmt {
    /// The requested or completed action: the `MGMT_flags` of the interface (`T_NEGOTIATE` and others).
    pub flags: u32,
    /// The options, as a list of `t_opthdr` with values.
    pub options: Vec<u8>,
}

/// A size in [`Info`] that has no limit.
pub const T_INFINITE: i32 = -1;
/// A size in [`Info`] of what the provider does not support.
pub const T_INVALID: i32 = -2;

/// Service in connection mode, in [`Info::service`].
pub const T_COTS: u32 = 1;
/// Service in connection mode with orderly release, in [`Info::service`].
pub const T_COTS_ORD: u32 = 2;
/// Service in connectionless mode, in [`Info::service`].
pub const T_CLTS: u32 = 3;

/// The capabilities of a provider (`T_INFO_ACK`). Sizes are in bytes, or [`T_INFINITE`] or [`T_INVALID`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Maximum size of a record.
    pub tsdu_bytes: i32,
    /// Maximum size of an expedited record.
    pub etsdu_bytes: i32,
    /// Maximum amount of data with a connect primitive.
    pub connect_data_bytes: i32,
    /// Maximum amount of data with a disconnect primitive.
    pub disconnect_data_bytes: i32,
    /// Maximum size of an address.
    pub address_bytes: i32,
    /// Maximum size of a list of options.
    pub options_bytes: i32,
    /// Maximum amount of data in one primitive.
    pub tidu_bytes: i32,
    /// [`T_COTS`], [`T_COTS_ORD`] or [`T_CLTS`].
    pub service: u32,
    /// The state of the endpoint (`TS_*`).
    pub state: u32,
    /// Bit 0: empty records can be sent. Bit 1: the connection may continue after an expedited record.
    pub provider_flags: u32,
}

macro_rules! codes {
    ($($variant:ident = $value:literal, $name:literal;)*) => {
        /// The kind of a primitive: the `PRIM_type` numbers of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum PrimitiveCode { $(#[doc = concat!("`", $name, "`")] $variant = $value,)* }

        impl PrimitiveCode {
            /// All values, in numeric order.
            pub const ALL: &'static [PrimitiveCode] = &[$(PrimitiveCode::$variant,)*];

            /// Returns the primitive with the number `value`, if one exists.
            pub fn from_number(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }

            /// Returns whether the transport user sends the primitive; the provider sends the others.
            pub fn is_of_user(self) -> bool {
                self.name().ends_with("_REQ") || self == Self::ConnRes
            }

            /// Returns the name in the interface's headers.
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

    /// Returns the number of the primitive.
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

    /// A message carries a primitive through every queue, so the size of the primitive affects speed.
    #[test]
    fn a_primitive_stays_small() {
        assert!(size_of::<Primitive>() <= 32, "{} bytes", size_of::<Primitive>());
    }
}
