//! Events of an association, delivered in order with its messages (RFC 6458 §6.1).

use std::net::IpAddr;

use bytes::Bytes;
use sctp::SendInfo;
use streams::Chain;
use tpi::{Notification, NotificationKind, Primitive, Which};
pub use tpi::{PathChange, PathReason};

use crate::error::Loss;
use crate::message::{Message, to_bytes, to_text};

/// A message, or an event in order with the messages.
#[derive(Clone, Debug)]
pub enum Received {
    /// A message.
    Message(Message),
    /// An event of an association.
    Event(Event),
}

/// An event of an association: a notification (RFC 6458 §6.1).
///
/// An [`Endpoint`](crate::Endpoint) always delivers `Up`, `Restarted`, `PeerShutdown`, `Down` and
/// `PartialDeliveryAborted`, and the others with [`AssociationOptions::events`](crate::AssociationOptions::events).
/// [`Association::recv_any`](crate::Association::recv_any) delivers all of them with that option, and none without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The association is up (`SCTP_COMM_UP`).
    Up,
    /// The peer has restarted and has set the association up anew (`SCTP_RESTART`, RFC 9260 §5.2). The association
    /// continues with new sequence numbers; the text describes the loss.
    Restarted(String),
    /// The peer has shut down and sends no more (`SCTP_SHUTDOWN_EVENT`).
    PeerShutdown,
    /// The association has ended: `None` if both sides have shut down (`SCTP_SHUTDOWN_COMP`), otherwise the reason
    /// (`SCTP_COMM_LOST`), and `SendFailed` follows for messages that were not delivered.
    Down(Option<Loss>),
    /// The path to an address of the peer has changed (`SCTP_PEER_ADDR_CHANGE`).
    PathChanged {
        /// The peer's address.
        address: IpAddr,
        /// The new state of the path.
        change: PathChange,
        /// The reason of the change.
        reason: PathReason,
    },
    /// The peer has sent an ERROR chunk; the association continues (`SCTP_REMOTE_ERROR`).
    RemoteError {
        /// The cause's code (RFC 9260 §3.3.10).
        cause: u16,
        /// The content of the cause, without its header.
        information: Bytes,
    },
    /// A message was not delivered as far as this side knows (`SCTP_SEND_FAILED_EVENT`). A fragmented message is
    /// reported in pieces, one for each DATA chunk.
    SendFailed {
        /// Stream, payload protocol identifier, order and context of the message; the other fields are unset.
        info: SendInfo,
        /// The bytes of the piece.
        data: Bytes,
        /// Whether the piece was sent at least once (`SCTP_DATA_SENT`) or never (`SCTP_DATA_UNSENT`).
        was_sent: bool,
        /// Whether the message begins with this piece.
        beginning: bool,
        /// Whether the message ends with this piece.
        ending: bool,
        /// The error cause that ended the association (RFC 9260 §3.3.10), or 1 if the peer does not allow the stream of the
        /// message; 0 if there was none.
        cause: u16,
    },
    /// The peer has acknowledged all data that was sent (`SCTP_SENDER_DRY_EVENT`).
    SenderDry,
    /// The peer's adaptation code point (`SCTP_ADAPTATION_INDICATION`, RFC 5061 §4.2.6).
    AdaptationIndication(u32),
    /// The rest of a partially delivered message will not arrive (`SCTP_PARTIAL_DELIVERY_EVENT`).
    PartialDeliveryAborted {
        /// The stream of the message.
        stream: u16,
        /// The stream sequence number of the message.
        ssn: u16,
    },
}

impl Event {
    /// Returns the event of a primitive, and its association.
    pub(crate) fn of(primitive: &Primitive, text: &Chain) -> Option<(Which, Event)> {
        match primitive {
            Primitive::ConnCon { association, .. } if text.is_empty() => Some((*association, Event::Up)),
            Primitive::ConnCon { association, .. } => Some((*association, Event::Restarted(to_text(text)))),
            Primitive::OrdrelInd { association } => Some((*association, Event::PeerShutdown)),
            Primitive::DisconInd { association, reason, cause, .. } => {
                Some((*association, Event::Down(Loss::of(*reason, *cause, text))))
            }
            Primitive::NotificationInd(notification) => {
                Some((notification.association, Event::of_notification(notification, text)))
            }
            _ => None,
        }
    }

    fn of_notification(notification: &Notification, data: &Chain) -> Event {
        match notification.kind {
            NotificationKind::PathChanged { address, change, reason } => {
                Event::PathChanged { address, change, reason }
            }
            NotificationKind::RemoteError { cause } => {
                Event::RemoteError { cause, information: to_bytes(data) }
            }
            NotificationKind::SendFailed { info, was_sent, beginning, ending, cause } => {
                Event::SendFailed { info, data: to_bytes(data), was_sent, beginning, ending, cause }
            }
            NotificationKind::SenderDry => Event::SenderDry,
            NotificationKind::Adaptation { indication } => Event::AdaptationIndication(indication),
            NotificationKind::PartialDeliveryAborted { stream, ssn } => {
                Event::PartialDeliveryAborted { stream, ssn }
            }
        }
    }
}
