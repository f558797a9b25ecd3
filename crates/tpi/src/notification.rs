//! Events of an association for which the interface has no primitive (RFC 6458 §6.1).

use crate::{SendInfo, Which};
use std::net::IpAddr;

/// An event of an association: a `T_OPTDATA_IND` with an additional option that describes the event. Data that was sent
/// or received with the event is the data of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The association.
    pub association: Which,
    /// The event.
    pub kind: NotificationKind,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationKind {
    /// The state of a peer's address has changed.
    PathChanged {
        /// The address.
        address: IpAddr,
        /// The new state of the address.
        change: PathChange,
        /// The cause of the change.
        reason: PathReason,
    },
    /// The peer reports an error; the data of the message is the content of the error cause.
    RemoteError {
        /// The code of the error cause.
        cause: u16,
    },
    /// A message, or a fragment of one, was not delivered; the data of the notification is its bytes.
    SendFailed {
        /// Stream, payload protocol identifier, order and context of the message; the other fields are unset.
        info: SendInfo,
        /// Whether the bytes were transmitted at least once.
        was_sent: bool,
        /// Whether these bytes begin the message.
        beginning: bool,
        /// Whether these bytes end the message.
        ending: bool,
        /// The error cause that ended the association; 0 for none.
        cause: u16,
    },
    /// The peer has acknowledged everything that was sent.
    SenderDry,
    /// The peer's adaptation layer indication.
    Adaptation {
        /// The indication, which only the layer above SCTP interprets.
        indication: u32,
    },
    /// The rest of a partially delivered message will not arrive.
    PartialDeliveryAborted {
        /// The stream of the message.
        stream: u16,
        /// The stream sequence number of the message.
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

            /// Returns the value with this number, if one exists.
            pub fn from_number(number: u32) -> Option<Self> {
                match number { $($value => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

numbered! {
    /// State changes of a peer's address (RFC 6458 §6.1.2).
    PathChange {
        /// The address answers again.
        Available = 0,
        /// The address has not answered within the permitted number of retransmissions.
        Unreachable = 1,
        /// The peer has removed the address.
        Removed = 2,
        /// The address has become the primary address: new data goes there.
        MadePrimary = 3,
        /// The address is confirmed to belong to the peer (RFC 9260 §5.4).
        Confirmed = 4,
    }
}

numbered! {
    /// Cause of a state change of an address.
    PathReason {
        /// Too many transmissions to the address were not answered.
        Unanswered = 0,
        /// The peer acknowledged data that was sent to the address.
        Acknowledged = 1,
        /// The peer answered a heartbeat.
        Heartbeat = 2,
        /// The user requested the change.
        Requested = 3,
    }
}
