//! Builds notifications (RFC 6458 §6.1) as the C structures that programs read.
//!
//! A notification is built if the program is subscribed to it when the event happens.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Flags, Header, Kind};
use swiftwater::{ConnectError, Event, Lifetime, Loss, PathChange, SendInfo};

use crate::state::association::SocketAssociation;
use crate::state::inbound_queue::ToProgram;
use crate::state::notification_type::NotificationType;
use crate::state::socket::Socket;
use crate::system::addresses;

/// `sac_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum AssociationChange {
    Up = 0,
    Lost = 1,
    Restarted = 2,
    ShutDown = 3,
    CannotStart = 4,
}

/// `pdapi_indication`.
const PARTIAL_DELIVERY_ABORTED: u32 = 0;
/// `ssf_flags`: the message left this host at least once.
const DATA_SENT: u16 = 1;
/// `auth_indication`: the peer does not support authentication; neither does this implementation.
const NO_AUTHENTICATION: u32 = 2;
/// Flags of a DATA chunk (RFC 9260 §3.3.1), which the kernel puts where `sinfo_flags` would be.
const CHUNK_ENDS: u16 = 1;
const CHUNK_BEGINS: u16 = 2;
const CHUNK_UNORDERED: u16 = 4;

/// Returns the notifications of an event that the program is subscribed to: some events have two kinds.
pub(crate) fn of(socket: &Socket, assoc: &SocketAssociation, event: &Event) -> Vec<ToProgram> {
    let wanted = kinds(event).iter().filter(|kind| assoc.wants(**kind));
    wanted.filter_map(|kind| build(socket, assoc, event, *kind)).collect()
}

/// The kinds of notifications that report a message which was not sent.
pub(super) const OF_UNSENT: [NotificationType; 2] =
    [NotificationType::SendFailed, NotificationType::SendFailedEvent];

/// Returns the kinds of notifications that report an event.
fn kinds(event: &Event) -> &'static [NotificationType] {
    match event {
        Event::Up => &[NotificationType::AssociationChange, NotificationType::Authentication],
        Event::Restarted(_) | Event::Down(_) => &[NotificationType::AssociationChange],
        Event::PeerShutdown => &[NotificationType::Shutdown],
        Event::PathChanged { .. } => &[NotificationType::PeerAddressChange],
        Event::RemoteError { .. } => &[NotificationType::RemoteError],
        Event::SendFailed { .. } => &OF_UNSENT,
        Event::SenderDry => &[NotificationType::SenderDry],
        Event::AdaptationIndication(_) => &[NotificationType::AdaptationIndication],
        Event::PartialDeliveryAborted { .. } => &[NotificationType::PartialDelivery],
        _ => &[],
    }
}

/// The cause of a message for a stream that the peer has not granted (RFC 9260 §3.3.10.1).
pub(crate) const INVALID_STREAM: u16 = 1;

/// The cause of an association that the program has aborted (RFC 9260 §3.3.10.12).
pub(crate) const USER_ABORT: u16 = 12;

/// Returns the cause of the ABORT that ended the setup of an association, sent by either side; 0 for none.
pub(crate) fn cause_of(error: &ConnectError) -> u16 {
    match error {
        ConnectError::Lost(loss) => loss.cause,
        _ => 0,
    }
}

/// Returns the notification that an association could not be set up, if the program is subscribed to it. The cause is 0 for none.
pub(crate) fn cannot_start(assoc: &SocketAssociation, cause: u16) -> Option<ToProgram> {
    let change = AssociationChange::CannotStart;
    assoc
        .wants(NotificationType::AssociationChange)
        .then(|| association_change(assoc, change, cause, (0, 0)).finish(assoc))
}

fn build(
    socket: &Socket,
    assoc: &SocketAssociation,
    event: &Event,
    kind: NotificationType,
) -> Option<ToProgram> {
    let begins = |state| association_change(assoc, state, 0, assoc.streams()).finish(assoc);
    Some(match event {
        Event::Up if kind == NotificationType::Authentication => {
            Notification::new(kind).u32(0).u32(NO_AUTHENTICATION).assoc_id(assoc.notified_id()).finish(assoc)
        }
        Event::Up => begins(AssociationChange::Up),
        Event::Restarted(_) => begins(AssociationChange::Restarted),
        Event::Down(None) => association_change(assoc, AssociationChange::ShutDown, 0, (0, 0)).finish(assoc),
        Event::Down(Some(loss)) => lost(assoc, loss),
        Event::PeerShutdown | Event::SenderDry => {
            Notification::new(kind).assoc_id(assoc.notified_id()).finish(assoc)
        }
        Event::PathChanged { address, change, .. } => path_change(socket, assoc, *address, *change)?,
        Event::RemoteError { cause, information } => Notification::new(kind)
            .bytes(&cause.to_be_bytes())
            .u16(0)
            .assoc_id(assoc.notified_id())
            .bytes(information)
            .finish(assoc),
        Event::AdaptationIndication(indication) => {
            Notification::new(kind).u32(*indication).assoc_id(assoc.notified_id()).finish(assoc)
        }
        Event::PartialDeliveryAborted { stream, ssn } => Notification::new(kind)
            .u32(PARTIAL_DELIVERY_ABORTED)
            .assoc_id(assoc.notified_id())
            .u32((*stream).into())
            .u32((*ssn).into())
            .finish(assoc),
        Event::SendFailed { info, data, was_sent, beginning, ending, cause } => {
            let set = |on: bool, flag| if on { flag } else { 0 };
            let flags = set(info.unordered, CHUNK_UNORDERED)
                | set(*beginning, CHUNK_BEGINS)
                | set(*ending, CHUNK_ENDS);
            Failed { info, data, flags, was_sent: *was_sent, cause: *cause }.build(assoc, kind)
        }
        _ => return None,
    })
}

/// Builds a `struct sctp_assoc_change`; its `sac_error` is in network byte order.
fn association_change(
    assoc: &SocketAssociation,
    state: AssociationChange,
    cause: u16,
    streams: (u16, u16),
) -> Notification {
    let mut new = Notification::new(NotificationType::AssociationChange);
    new.u16(state as u16).u16(cause.to_be()).u16(streams.0).u16(streams.1).assoc_id(assoc.notified_id());
    new
}

/// Builds the notification of a lost association, with the cause and the information of the loss.
fn lost(assoc: &SocketAssociation, loss: &Loss) -> ToProgram {
    association_change(assoc, AssociationChange::Lost, loss.cause, (0, 0))
        .bytes(&loss.information)
        .finish(assoc)
}

/// Builds a `struct sctp_paddr_change`.
fn path_change(
    socket: &Socket,
    assoc: &SocketAssociation,
    address: IpAddr,
    change: PathChange,
) -> Option<ToProgram> {
    const SOCKADDR_STORAGE_BYTES: usize = 128;
    let state = match change {
        PathChange::Available => 0,
        PathChange::Unreachable => 1,
        PathChange::Removed => 2,
        PathChange::MadePrimary => 4,
        PathChange::Confirmed => 5,
        _ => return None,
    };
    let mut place = Vec::with_capacity(SOCKADDR_STORAGE_BYTES);
    let address = SocketAddr::new(address, assoc.peer().port());
    let view = socket.view();
    addresses::append(&mut place, view.of(address));
    place.resize(SOCKADDR_STORAGE_BYTES, 0);
    let mut notification = Notification::new(NotificationType::PeerAddressChange);
    Some(notification.bytes(&place).u32(state).u32(0).assoc_id(assoc.notified_id()).finish(assoc))
}

/// A message, or a part of one, that was not delivered.
struct Failed<'a> {
    info: &'a SendInfo,
    data: &'a [u8],
    flags: u16,
    was_sent: bool,
    cause: u16,
}

impl Failed<'_> {
    /// Builds a `struct sctp_send_failed` or a `struct sctp_send_failed_event`.
    fn build(&self, assoc: &SocketAssociation, kind: NotificationType) -> ToProgram {
        let mut notification = Notification::with_flags(kind, if self.was_sent { DATA_SENT } else { 0 });
        notification.u32(self.cause.to_be().into());
        let flags = self.flags;
        let ppid = self.info.ppid.to_be();
        match kind {
            NotificationType::SendFailed => {
                let lifetime = self.info.lifetime.map_or(0, Lifetime::ms);
                notification.u16(self.info.stream).u16(0).u16(flags).u16(0);
                notification.u32(ppid).u32(self.info.context).u32(lifetime).u32(0).u32(0);
            }
            _ => {
                notification.u16(self.info.stream).u16(flags).u32(ppid).u32(self.info.context);
            }
        }
        notification
            .assoc_id(assoc.notified_id())
            .assoc_id(assoc.notified_id())
            .bytes(self.data)
            .finish(assoc)
    }
}

/// A notification under construction; [`Notification::finish`] writes the length.
struct Notification {
    bytes: Vec<u8>,
}

impl Notification {
    fn new(kind: NotificationType) -> Self {
        Notification::with_flags(kind, 0)
    }

    fn with_flags(kind: NotificationType, flags: u16) -> Self {
        let mut new = Notification { bytes: Vec::with_capacity(64) };
        new.u16(kind as u16).u16(flags).u32(0);
        new
    }

    fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_ne_bytes())
    }

    fn assoc_id(&mut self, id: AssocId) -> &mut Self {
        self.u32(id.get())
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn finish(&mut self, assoc: &SocketAssociation) -> ToProgram {
        let bytes = self.bytes.len() as u32;
        self.bytes[4..8].copy_from_slice(&bytes.to_ne_bytes());
        let header = Header {
            bytes,
            flags: Flags::END,
            assoc_id: assoc.id(),
            address: Some(assoc.peer()),
            ..Header::new(Kind::Notification)
        };
        ToProgram::Notification(header, Bytes::from(std::mem::take(&mut self.bytes)))
    }
}
