//! What happens to an association, in its place among the messages (RFC 6458 §6.1).

use std::net::IpAddr;

use bytes::Bytes;
use streams::Chain;
use tpi::{Notice, Notification, Primitive};
pub use tpi::{PathChange, PathReason};

use crate::error::Loss;
use crate::message::{Message, SendInfo, to_bytes, to_text};

/// A message, or an event in its place among the messages.
#[derive(Clone, Debug)]
pub enum Received {
    /// A message.
    Message(Message),
    /// Something happened to an association.
    Event(Event),
}

/// What happens to an association. The first four and the last come always, the others with
/// [`AssociationOptions::events`](crate::AssociationOptions::events).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It is up (`SCTP_COMM_UP`).
    Up,
    /// The peer has lost its memory and connected again (`SCTP_RESTART`). The association goes on as a new one; the text says
    /// what is lost.
    Restarted(String),
    /// The peer sends no more (`SCTP_SHUTDOWN_EVENT`).
    PeerShutdown,
    /// It is gone (`SCTP_COMM_LOST`), and what was not delivered follows; `None` if both sides have shut down
    /// (`SCTP_SHUTDOWN_COMP`).
    Down(Option<Loss>),
    /// Something became of an address of the peer (`SCTP_PEER_ADDR_CHANGE`).
    PathChanged {
        /// The address.
        address: IpAddr,
        /// What became of it.
        change: PathChange,
        /// Why.
        reason: PathReason,
    },
    /// The peer reports an error in what it was sent; the association goes on (`SCTP_REMOTE_ERROR`).
    RemoteError {
        /// The cause's code (RFC 9260 §3.3.10).
        cause: u16,
        /// What the cause says, without its header.
        information: Bytes,
    },
    /// A message, or the piece of it that one DATA chunk carried or would have carried, was not delivered as far as is known
    /// (`SCTP_SEND_FAILED_EVENT`).
    SendFailed {
        /// What it was sent with.
        info: SendInfo,
        /// Its bytes.
        data: Bytes,
        /// It left this host at least once (`SCTP_DATA_SENT`); otherwise it was never sent (`SCTP_DATA_UNSENT`).
        was_sent: bool,
        /// The message begins here.
        beginning: bool,
        /// The message ends here.
        ending: bool,
        /// The error cause that has ended the association (RFC 9260 §3.3.10); 0 if there was none.
        cause: u16,
    },
    /// Everything that was sent is acknowledged (`SCTP_SENDER_DRY_EVENT`).
    SenderDry,
    /// What the peer says of the layer above (`SCTP_ADAPTATION_INDICATION`, RFC 5061 §4.2.6).
    AdaptationIndication(u32),
    /// The rest of a message that was delivered in part will not come (`SCTP_PARTIAL_DELIVERY_EVENT`).
    PartialDeliveryAborted {
        /// Its stream.
        stream: u16,
        /// Its number in the stream.
        ssn: u16,
    },
}

impl Event {
    /// The event that a primitive is, and the association that it happened to.
    pub(crate) fn of(primitive: &Primitive, text: &Chain) -> Option<(u32, Event)> {
        match primitive {
            Primitive::ConnCon { association, .. } if text.is_empty() => Some((*association, Event::Up)),
            Primitive::ConnCon { association, .. } => Some((*association, Event::Restarted(to_text(text)))),
            Primitive::OrdrelInd { association } => Some((*association, Event::PeerShutdown)),
            Primitive::DisconInd { association, reason, cause, .. } => {
                Some((*association, Event::Down(Loss::of(*reason, *cause, text))))
            }
            Primitive::NotificationInd(notification) => {
                Some((notification.transfer.association, Event::of_notification(notification, text)))
            }
            _ => None,
        }
    }

    fn of_notification(notification: &Notification, data: &Chain) -> Event {
        let transfer = &notification.transfer;
        match notification.what {
            Notice::PathChanged { address, change, reason } => Event::PathChanged { address, change, reason },
            Notice::RemoteError { cause } => Event::RemoteError { cause, information: to_bytes(data) },
            Notice::SendFailed { was_sent, beginning, ending, cause } => Event::SendFailed {
                info: SendInfo::returned(transfer),
                data: to_bytes(data),
                was_sent,
                beginning,
                ending,
                cause,
            },
            Notice::SenderDry => Event::SenderDry,
            Notice::Adaptation { indication } => Event::AdaptationIndication(indication),
            Notice::PartialDeliveryAborted => {
                Event::PartialDeliveryAborted { stream: transfer.stream, ssn: transfer.ssn }
            }
        }
    }
}
