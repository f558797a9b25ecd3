//! Output of the core to the user: messages and events.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use sctp_message::{RecvInfo, SendInfo};

use crate::error::CloseReason;
use crate::identifiers::{AssociationId, ListenerId};
use crate::path_hints::PathHints;
use crate::receive_pool::ReceiveCharge;
use crate::received_run::ReceivedRun;

/// The bytes of a received message: one block for each of its DATA chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The message was in one chunk.
    One(Bytes),
    /// The message was in several chunks.
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

    /// Returns all bytes in one block.
    pub fn to_vec(&self) -> Vec<u8> {
        self.blocks().concat()
    }
}

/// An event of an association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A listener has accepted the association of a peer.
    Accepted {
        /// The listener.
        listener: ListenerId,
        /// The port of the listener.
        port: u16,
        /// The address that the peer has connected from, with the peer's SCTP port.
        peer: SocketAddr,
        /// Number of the peer's addresses.
        addresses: usize,
        /// Numbers of outbound and of inbound streams after negotiation.
        streams: (u16, u16),
    },
    /// The association that this side requested is up.
    Connected {
        /// Number of outbound streams after negotiation.
        streams_out: u16,
        /// Number of inbound streams after negotiation.
        streams_in: u16,
    },
    /// The send buffer, which was full, is at most half full.
    Writable,
    /// The peer has shut down: no more messages follow.
    PeerShutdown,
    /// The peer has restarted and has set the association up anew (RFC 9260 §11.2.7). Streams and their sequence
    /// numbers begin anew. A record that was being delivered in parts remains incomplete.
    Restarted(Restart),
    /// The peer has reported an error cause in an ERROR; the association continues (RFC 9260 §11.2.6). Each of the first 32
    /// causes in a packet is an event. Reported only with [`AssociationConfig::events`](crate::AssociationConfig::events), as
    /// are all following events but the last two.
    RemoteError {
        /// Code of the error cause (RFC 9260 §3.3.10).
        cause: u16,
        /// Content of the error cause.
        information: Bytes,
    },
    /// A path became usable or inactive. The states between are not reported (RFC 7829 §7.3); statistics show them.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
        /// The new state of the path.
        change: PathChange,
        /// The reason of the change.
        reason: PathReason,
    },
    /// The peer's adaptation layer indication, which was in the handshake (RFC 5061 §4.2.6).
    AdaptationIndication(u32),
    /// Everything that was sent is acknowledged or discarded.
    SenderDry,
    /// A message, or the fragment of it in one DATA chunk, was not delivered as far as this side knows. When an
    /// association is lost, each unacknowledged message is reported.
    SendFailed(SendFailure),
    /// The rest of a message that was delivered in part will not arrive.
    PartialDeliveryAborted {
        /// The stream of the message.
        stream: u16,
        /// The stream sequence number of the message.
        ssn: u16,
    },
    /// The association was lost. Optional events for undelivered messages follow, and then [`Event::Closed`]: at once if there
    /// are few messages, otherwise in further calls of [`Endpoint::handle_timeout`](crate::Endpoint::handle_timeout).
    Lost {
        /// The reason of the loss.
        reason: CloseReason,
        /// The error causes of the peer's ABORT as received; empty without an ABORT.
        information: Bytes,
    },
    /// The association has ended.
    Closed(CloseReason),
}

/// The restart of a peer. Its `Display` describes the loss.
///
/// ```
/// # use sctp::Restart;
/// let restart = Restart { streams_out: 1, streams_in: 1, unacknowledged_bytes: 264 };
/// assert!(restart.to_string().contains("264 bytes of the send buffer"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restart {
    /// Number of outbound streams after negotiation.
    pub streams_out: u16,
    /// Number of inbound streams after negotiation.
    pub streams_in: u16,
    /// Unacknowledged bytes of the previous association, counted as in the send buffer. They are lost.
    pub unacknowledged_bytes: u64,
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.unacknowledged_bytes;
        write!(
            f,
            "the peer has restarted; {bytes} bytes of the send buffer were not acknowledged and are lost"
        )
    }
}

/// An undelivered message, or the fragment of it that one DATA chunk carried or would have carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendFailure {
    /// The description that the message was sent with.
    pub info: SendInfo,
    /// The bytes of the fragment.
    pub data: Bytes,
    /// Whether the fragment was sent at least once.
    pub was_sent: bool,
    /// Whether the message begins with this fragment.
    pub beginning: bool,
    /// Whether the message ends with this fragment.
    pub ending: bool,
    /// Code of the error cause that ended the association (RFC 9260 §3.3.10); 0 for none.
    pub cause: u16,
}

impl SendFailure {
    /// Cuts the first fragment that would have been sent off a message that was never sent. Returns it, and the rest.
    pub(crate) fn cut(mut self, piece_bytes_max: usize) -> (SendFailure, Option<SendFailure>) {
        if self.data.len() <= piece_bytes_max {
            return (self, None);
        }
        let data = self.data.split_off(piece_bytes_max);
        let rest = SendFailure { data, beginning: false, ..self.clone() };
        self.ending = false;
        (self, Some(rest))
    }
}

impl Event {
    /// Returns the room that the event occupies in the receive buffer until the user has read it and releases the room
    /// with [`Endpoint::consumed`](crate::Endpoint::consumed), as for a whole message. `None`: the event occupies no
    /// room, and each association reports it at most once. An event without content counts as one byte, so that the buffer bounds
    /// the number of such events, too; a restart counts as its text.
    pub fn receive_credit(&self) -> Option<usize> {
        match self {
            Event::RemoteError { information, .. } => Some(information.len().max(1)),
            Event::SendFailed(failure) => Some(failure.data.len().max(1)),
            Event::Restarted(restart) => Some(restart.to_string().len()),
            Event::PathChanged { .. }
            | Event::AdaptationIndication(_)
            | Event::SenderDry
            | Event::PeerShutdown
            | Event::PartialDeliveryAborted { .. } => Some(1),
            Event::Accepted { .. }
            | Event::Connected { .. }
            | Event::Writable
            | Event::Lost { .. }
            | Event::Closed(_) => None,
        }
    }
}

/// Change of an address of the peer (RFC 6458 §6.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathChange {
    /// The address answers again.
    Available,
    /// The address has not answered Path.Max.Retrans times.
    Unreachable,
    /// New data is sent to the address from now on.
    MadePrimary,
    /// The address is confirmed as the peer's (RFC 9260 §5.4).
    Confirmed,
}

/// Reason of a change of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathReason {
    /// Too many packets to the address were not answered.
    Unanswered,
    /// The peer has acknowledged data that was sent to the address.
    Acknowledged,
    /// The peer has answered a heartbeat.
    Heartbeat,
    /// The user has requested the change.
    Requested,
}

/// The environment of the core. The core delivers messages and events to it while it handles input, and queues none of
/// them.
pub trait Host {
    /// Delivers a message, or a part of one if `info.more` is set.
    fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: Payload);
    /// Returns whether the reader of this association accepts runs ([`Host::run`]).
    fn takes_runs(&self, _id: AssociationId) -> bool {
        false
    }
    /// Delivers a run of messages; called only if the reader accepts runs.
    fn run(&mut self, _id: AssociationId, _run: ReceivedRun) {}
    /// Reports an event.
    fn event(&mut self, id: AssociationId, event: Event);
    /// Returns whether a listener can take one more association, whose peer has this many addresses. Otherwise the peer's COOKIE
    /// ECHO is not answered, and the peer repeats it; a listener that refuses peers beyond its backlog answers with ABORT.
    fn takes_association(&self, _listener: ListenerId, _addresses: usize) -> bool {
        true
    }
    /// Takes over the charge of the association's messages that the user has not read yet, just before
    /// [`Event::Closed`]: the messages outlive the association. Dropping the charge returns the memory to the pool. Not
    /// called for an association without a pool.
    fn keep_charge(&mut self, _id: AssociationId, _charge: ReceiveCharge) {}
    /// Returns the link's knowledge of the path to an address.
    ///
    /// This may cost system calls, so packets of strangers alone do not lead to it.
    fn path_hints(&self, remote: SocketAddr) -> PathHints;
    /// Returns whether an address belongs to this host. Called for every INIT and every valid cookie.
    fn is_same_host(&self, address: IpAddr) -> bool {
        !self.path_hints(SocketAddr::new(address, 0)).leaves_host
    }
    /// Returns whether only this endpoint can send from an address: it is one of its own, with its own UDP port if the link
    /// encapsulates. Called for INITs and valid cookies.
    fn is_own_endpoint(&self, _remote: SocketAddr) -> bool {
        false
    }
    /// Returns memory for the blocks of a message, if memory of an earlier [`Payload::Many`] is available.
    fn spare(&mut self) -> Vec<Bytes> {
        Vec::new()
    }
    /// Joins the blocks of a short message. A host that reuses memory for this saves an allocation.
    fn join(&mut self, parts: &[Bytes]) -> Bytes {
        parts.concat().into()
    }
}
