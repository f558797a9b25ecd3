//! What the daemon has: sockets, their associations, and the paths of these.

use std::net::{IpAddr, SocketAddr};

use carrier::page::State;
use serde::{Deserialize, Serialize};
use swiftwater::{AssociationState, LinkKind, PathState, PathStatistics, Stack, Statistics};

use crate::channel::style::Style;
use crate::state::association::SocketAssociation;
use crate::state::socket::Socket;

/// A part of an answer. Parts follow each other, the associations of a socket after that socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Without sockets.
    Daemon(Status),
    /// Without associations.
    Socket(SocketStatus),
    Association(AssociationStatus),
    /// Nothing is missing but what there is too much of.
    End {
        sockets_omitted: usize,
        associations_omitted: usize,
    },
}

/// The sockets that a user may see: its own, and for root all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The version of the daemon.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// What carries SCTP, in words.
    pub carries: String,
    /// What each user takes.
    pub users: Vec<UserStatus>,
    /// In the order in which they were opened.
    pub sockets: Vec<SocketStatus>,
    /// Sockets that are missing, since there are very many.
    pub sockets_omitted: usize,
    /// Associations that are missing among those of `sockets`, since there are very many.
    pub associations_omitted: usize,
}

/// What the programs of one user take of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user.
    pub user: u32,
    /// Memory for messages that were sent and not acknowledged, with what each message costs beside its bytes.
    pub sent_bytes: usize,
    /// The most that there may be (`--user-memory`).
    pub sent_limit_bytes: usize,
    /// How often a socket had to wait for memory.
    pub sent_waits: u64,
    /// Memory for what its associations have received and its programs have not read. It is taken in steps.
    pub received_bytes: usize,
    /// The most that there may be (`--user-receive-memory`).
    pub received_limit_bytes: usize,
    /// Memory for the pages that its sockets share with their programs.
    pub page_bytes: usize,
    /// The most that there may be (`--user-page-memory`).
    pub page_limit_bytes: usize,
    /// Memory for long messages that its programs have not read.
    pub unread_bytes: usize,
    /// The most that there may be (`--user-unread-memory`).
    pub unread_limit_bytes: usize,
    /// How often a long message had to wait for such memory.
    pub unread_waits: u64,
    /// Associations that peers have set up with one-to-many sockets.
    pub associations: usize,
    /// The most that there may be (`--user-associations`).
    pub associations_limit: usize,
    /// Associations that were aborted because the user or the socket had too many.
    pub associations_refused: u64,
}

/// One socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketStatus {
    /// Unique in the daemon.
    pub number: u64,
    /// `one-to-one`, `one-to-many` or `peeled-off`.
    pub style: String,
    /// `idle`, `listening`, `connecting`, `connected` or `ended`.
    pub state: String,
    /// Who has opened it, or the listener that accepted it.
    pub user: u32,
    /// The process of that moment.
    pub process: i32,
    /// Where it is bound; empty if it is not.
    pub local: Vec<SocketAddr>,
    /// Its one peer.
    pub peer: Option<SocketAddr>,
    /// Bytes that the program has sent and the daemon has not looked at, with a header each.
    pub carrier_bytes: u64,
    /// Its associations.
    pub associations: Vec<AssociationStatus>,
}

/// One association.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AssociationStatus {
    /// Its number, as programs know it (`sctp_assoc_t`).
    pub id: u32,
    /// Its state as RFC 9260 names it.
    pub state: String,
    /// Its own addresses.
    pub local: Vec<SocketAddr>,
    /// The address by which the program knows the peer.
    pub peer: SocketAddr,
    /// Bytes that have come and that the program has not taken.
    pub receive_queue_bytes: u64,
    /// Bytes that the peer has not acknowledged.
    pub send_queue_bytes: u64,
    /// What the peer has room for.
    pub peer_window_bytes: u64,
    /// Outbound streams.
    pub streams_out: u16,
    /// Inbound streams.
    pub streams_in: u16,
    /// Since it was set up, as all below.
    pub messages_sent: u64,
    /// Messages that have come.
    pub messages_received: u64,
    /// Of messages that were sent.
    pub bytes_sent: u64,
    /// Of messages that have come.
    pub bytes_received: u64,
    /// DATA chunks that were sent again.
    pub retransmissions: u64,
    /// Its paths.
    pub paths: Vec<PathStatus>,
}

/// One path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathStatus {
    /// From where, if it is one address.
    pub local: Option<IpAddr>,
    /// To where.
    pub remote: SocketAddr,
    /// Whether it is the primary one.
    pub primary: bool,
    /// `unconfirmed`, `active`, `suspected`, `potentially-failed` or `inactive`.
    pub state: String,
    /// Its largest packet.
    pub mtu_bytes: usize,
    /// The congestion window.
    pub cwnd_bytes: usize,
    /// Bytes that are on their way.
    pub in_flight_bytes: usize,
    /// The smoothed round-trip time, once measured.
    pub srtt_us: Option<u64>,
    /// The retransmission time-out.
    pub rto_ms: u64,
    /// The rate at which packets leave, where they are paced.
    pub pacing_bytes_per_s: Option<u64>,
    /// Packets with anything in them.
    pub packets_sent: u64,
    /// The same.
    pub packets_received: u64,
    /// Packets with data that were lost.
    pub packets_lost: u64,
}

/// Returns what is shown of it, without its associations.
pub(super) fn of_socket(socket: &Socket) -> SocketStatus {
    let inner = socket.lock();
    let style = match socket.style {
        Style::OneToOne => "one-to-one",
        Style::OneToMany => "one-to-many",
        Style::PeeledOff => "peeled-off",
    };
    let state = match inner.stage {
        State::Idle | State::Many => "idle",
        State::Listening | State::ManyListening => "listening",
        State::Connecting => "connecting",
        State::Connected => "connected",
        State::Ended | State::Lost => "ended",
    };
    // What fills a carrier so that it does not poll writable is nothing that the program has sent.
    let is_filled = matches!(inner.stage, State::Listening | State::Connecting);
    let carrier_bytes = if is_filled { 0 } else { socket.channel.endpoint.waiting_bytes() };
    SocketStatus {
        number: socket.number,
        style: style.into(),
        state: state.into(),
        user: socket.share.owner.user,
        process: socket.share.owner.process,
        local: inner.local_addresses(),
        peer: inner.peer,
        carrier_bytes,
        associations: Vec::new(),
    }
}

/// `None`: the association is gone, and only its socket is left.
pub(super) fn of_association(member: &SocketAssociation) -> Option<AssociationStatus> {
    let association = member.association();
    let known: Statistics = association.and_then(|association| association.statistics()).unwrap_or_default();
    let local = association.map(|association| association.local_addresses()).unwrap_or_default();
    if association.is_some() && known.state == AssociationState::Closed {
        return None;
    }
    Some(AssociationStatus {
        id: member.id,
        // Until it is up the executive has not shown it.
        state: if association.is_some() { known.state.name() } else { "COOKIE-WAIT" }.into(),
        local: local.into_iter().map(|ip| SocketAddr::new(ip, known.local_port)).collect(),
        peer: member.peer,
        receive_queue_bytes: known.receive_buffered_bytes,
        send_queue_bytes: known.send_buffered_bytes,
        peer_window_bytes: known.peer_window_bytes,
        streams_out: known.streams_out,
        streams_in: known.streams_in,
        messages_sent: known.messages_sent,
        messages_received: known.messages_received,
        bytes_sent: known.bytes_sent,
        bytes_received: known.bytes_received,
        retransmissions: known.data_chunks_retransmitted,
        paths: known.paths.iter().enumerate().map(|(n, path)| of_path(path, n == known.primary)).collect(),
    })
}

fn of_path(path: &PathStatistics, primary: bool) -> PathStatus {
    let state = match path.state {
        PathState::Unconfirmed => "unconfirmed",
        PathState::Active => "active",
        PathState::Suspected => "suspected",
        PathState::PotentiallyFailed => "potentially-failed",
        PathState::Inactive => "inactive",
    };
    PathStatus {
        local: path.local,
        remote: path.remote,
        primary,
        state: state.into(),
        mtu_bytes: path.mtu_bytes,
        cwnd_bytes: path.cwnd_bytes,
        in_flight_bytes: path.in_flight_bytes,
        srtt_us: path.srtt.map(|time| time.as_micros() as u64),
        rto_ms: path.rto.as_millis() as u64,
        pacing_bytes_per_s: path.pacing_bytes_per_s,
        packets_sent: path.packets_sent,
        packets_received: path.packets_received,
        packets_lost: path.packets_lost,
    }
}

/// Returns what carries SCTP, in words.
pub(crate) fn what_carries(stack: &Stack) -> String {
    match stack.link() {
        LinkKind::Raw => "SCTP directly over IP".into(),
        LinkKind::Udp | LinkKind::Auto => format!("SCTP in UDP, port {}", stack.udp_port()),
    }
}

/// Returns the answer to the question which daemon this is. It names the process since the socket may be a service manager's.
pub(crate) fn describe(stack: &Stack, on_demand: bool) -> String {
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    format!("{version}\n{process}\n{on_demand}\n{}", what_carries(stack))
}
