//! Output of the core towards the user: messages and events.

use std::net::SocketAddr;

use bytes::Bytes;
use sctp_message::{RecvInfo, SendInfo};

use crate::error::CloseReason;
use crate::identifiers::{AssociationId, ListenerId};
use crate::path_hints::PathHints;
use crate::receive_pool::ReceiveCharge;
use crate::received_run::ReceivedRun;

/// The bytes of a received message, one block for each DATA chunk it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// It came in one chunk.
    One(Bytes),
    /// It came in several.
    Many(Vec<Bytes>),
}

impl Payload {
    /// Returns the blocks in order.
    pub fn blocks(&self) -> &[Bytes] {
        match self {
            Payload::One(block) => std::slice::from_ref(block),
            Payload::Many(blocks) => blocks,
        }
    }

    /// Returns all bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.blocks().concat()
    }
}

/// An event of an association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A peer's association came up on a listening port.
    Accepted {
        /// The listener that the association belongs to.
        listener: ListenerId,
        /// The listening port.
        port: u16,
        /// The address that it came from; the port is the peer's SCTP port.
        peer: SocketAddr,
    },
    /// The association that we asked for is up.
    Connected {
        /// Outbound streams after negotiation.
        streams_out: u16,
        /// Inbound streams after negotiation.
        streams_in: u16,
    },
    /// A send buffer that had been full is at most half full.
    Writable,
    /// The peer has shut down: nothing more will come.
    PeerShutdown,
    /// The peer has lost its memory and connected again; the association goes on as a new one (RFC 9260 §11.2.7).
    /// Streams and their numbers begin anew, and a record that was being delivered in parts ends here, unfinished.
    Restarted {
        /// Outbound streams after negotiation.
        streams_out: u16,
        /// Inbound streams after negotiation.
        streams_in: u16,
        /// Unacknowledged bytes of the association with the old peer, as the send buffer counts them. They are lost.
        unacknowledged_bytes: u64,
    },
    /// The peer reports an error in what it was sent; the association goes on (RFC 9260 §11.2.6). Only with
    /// [`AssociationConfig::events`](crate::AssociationConfig::events), as all that follow but the last.
    RemoteError {
        /// The code of the first cause that it names (RFC 9260 §3.3.10).
        cause: u16,
        /// Information in the cause.
        information: Bytes,
    },
    /// A path became usable, or was given up. One that has just fallen silent is neither (RFC 7829 §7.3): statistics show it.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
        /// New state of the path.
        change: PathChange,
        /// Why.
        reason: PathReason,
    },
    /// The peer's adaptation layer indication, received in the handshake (RFC 5061 §4.2.6).
    AdaptationIndication(u32),
    /// Everything that was sent is acknowledged, or discarded.
    SenderDry,
    /// The association is lost. Events for the undelivered messages follow, and then the end.
    Lost {
        /// Why.
        reason: CloseReason,
        /// The error causes of the peer's ABORT as they came, if it sent one.
        information: Bytes,
    },
    /// A message, or a piece of it, was not delivered as far as is known, with pieces as DATA chunks have them. When an
    /// association is lost, all that it owes comes back so.
    SendFailed(SendFailure),
    /// The rest of a message that was delivered in part will not come.
    PartialDeliveryAborted {
        /// Its stream.
        stream: u16,
        /// Its number in the stream.
        ssn: u16,
    },
    /// The association is gone; its identifier may be used again after this event.
    Closed(CloseReason),
}

/// An undelivered message, or the piece of it that one DATA chunk carried, or would have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendFailure {
    /// The information that it was sent with.
    pub info: SendInfo,
    /// Its bytes.
    pub data: Bytes,
    /// It left at least once.
    pub was_sent: bool,
    /// The message begins with it.
    pub beginning: bool,
    /// The message ends with it.
    pub ending: bool,
    /// The error cause that has ended the association (RFC 9260 §3.3.10); 0 for none.
    pub cause: u16,
}

impl SendFailure {
    /// Cuts a message that was never sent into the pieces in which it would have left.
    pub(crate) fn cut(self, piece_bytes_max: usize) -> impl Iterator<Item = SendFailure> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let mut piece = rest.take()?;
            if piece.data.len() > piece_bytes_max {
                let data = piece.data.split_off(piece_bytes_max);
                rest = Some(SendFailure { data, beginning: false, ..piece.clone() });
                piece.ending = false;
            }
            Some(piece)
        })
    }
}

impl Event {
    /// Returns the room that the event takes in the receive buffer until it is read and given back with
    /// [`Endpoint::consumed`](crate::Endpoint::consumed), as for a whole message. An event without content counts for one byte,
    /// so that a flood of them ends, too. `None`: it takes nothing.
    pub fn receive_credit(&self) -> Option<usize> {
        match self {
            Event::RemoteError { information, .. } => Some(information.len().max(1)),
            Event::SendFailed(failure) => Some(failure.data.len().max(1)),
            Event::PathChanged { .. }
            | Event::AdaptationIndication(_)
            | Event::SenderDry
            | Event::PartialDeliveryAborted { .. } => Some(1),
            Event::Accepted { .. }
            | Event::Connected { .. }
            | Event::Writable
            | Event::PeerShutdown
            | Event::Restarted { .. }
            | Event::Lost { .. }
            | Event::Closed(_) => None,
        }
    }
}

/// Change of an address of the peer (RFC 6458 §6.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathChange {
    /// It answers again.
    Available,
    /// It has not answered for too long.
    Unreachable,
    /// New data goes there from now on.
    MadePrimary,
    /// It is shown that it is the peer's (RFC 9260 §5.4).
    Confirmed,
}

/// Why something became of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathReason {
    /// Too much that was sent there has not been answered.
    Unanswered,
    /// The peer has acknowledged data that was sent there.
    Acknowledged,
    /// A heartbeat was answered.
    Heartbeat,
    /// The user wants it so.
    Requested,
}

/// The surroundings of the core. The core hands messages and events over while it handles input; nothing waits in between.
pub trait Host {
    /// Delivers a message, or a part of one if `info.more`.
    fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: Payload);
    /// Returns whether this reader takes messages together, with [`Host::run`].
    fn takes_runs(&self, _id: AssociationId) -> bool {
        false
    }
    /// Delivers messages together; called only if the reader accepts runs.
    fn run(&mut self, _id: AssociationId, _run: ReceivedRun) {}
    /// Reports an event.
    fn event(&mut self, id: AssociationId, event: Event);
    /// Returns whether one more association of a listener can be taken. If not, its COOKIE ECHO is not answered, and the peer
    /// sends it again.
    fn takes_association(&self, _listener: ListenerId) -> bool {
        true
    }
    /// Takes over what the messages of an association are charged that the reader has not taken, just before its
    /// [`Event::Closed`]: the messages outlive the association. Dropping the charge gives it back to the pool. Not called for an
    /// association without a pool.
    fn keep_charge(&mut self, _id: AssociationId, _charge: ReceiveCharge) {}
    /// Returns the link's knowledge of the way to an address.
    fn path_hints(&self, remote: SocketAddr) -> PathHints;
    /// Returns memory for the parts of a message, if there is some from an earlier [`Payload::Many`].
    fn spare(&mut self) -> Vec<Bytes> {
        Vec::new()
    }
    /// Joins the parts of a short message in one block. A host that keeps memory for that saves an allocation.
    fn join(&mut self, parts: &[Bytes]) -> Bytes {
        parts.concat().into()
    }
}
