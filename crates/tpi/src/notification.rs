//! What happens to an association beyond what the interface has primitives for (RFC 6458 §6.1).

use crate::SendInfo;
use std::net::IpAddr;

/// Something that happened to an association: a `T_OPTDATA_IND` with one more option that says what it was. What was sent or
/// received with it is the data of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The association.
    pub association: u32,
    /// What happened.
    pub what: Notice,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something became of an address of the peer.
    PathChanged {
        /// The address.
        address: IpAddr,
        /// What became of it.
        change: PathChange,
        /// Why.
        reason: PathReason,
    },
    /// The peer reports an error; the data is what it says.
    RemoteError {
        /// The code of the error cause.
        cause: u16,
    },
    /// A message, or a piece of it, was not delivered; the data is its bytes.
    SendFailed {
        /// How the message was sent; stream, identifier, order and context only.
        info: SendInfo,
        /// It left at least once.
        was_sent: bool,
        /// The message begins with it.
        beginning: bool,
        /// The message ends with it.
        ending: bool,
        /// The error cause that ended the association; 0 for none.
        cause: u16,
    },
    /// Everything that was sent is acknowledged.
    SenderDry,
    /// What the peer says of the layer above.
    Adaptation {
        /// Its meaning is that layer's.
        indication: u32,
    },
    /// The rest of a message that was delivered in part will not come.
    PartialDeliveryAborted {
        /// Its stream.
        stream: u16,
        /// Its stream sequence number.
        ssn: u16,
    },
}

macro_rules! numbered {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $value,)* }

        impl $name {
            /// All values, in numeric order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The one with this number, if there is one.
            pub fn from_number(number: u32) -> Option<Self> {
                match number { $($value => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

numbered! {
    /// What becomes of an address of the peer (RFC 6458 §6.1.2).
    PathChange {
        /// It answers again.
        Available = 0,
        /// It has not answered for too long.
        Unreachable = 1,
        /// It is the peer's no more.
        Removed = 2,
        /// New data goes there from now on.
        MadePrimary = 3,
        /// It is shown that it is the peer's (RFC 9260 §5.4).
        Confirmed = 4,
    }
}

numbered! {
    /// Why something became of an address.
    PathReason {
        /// Too much that was sent there has not been answered.
        Unanswered = 0,
        /// What was sent there was acknowledged.
        Acknowledged = 1,
        /// A heartbeat was answered.
        Heartbeat = 2,
        /// The user wants it so.
        Requested = 3,
    }
}
