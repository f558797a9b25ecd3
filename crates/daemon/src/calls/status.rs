//! The status of the daemon: its sockets, their associations, and the paths of these.

use std::net::{IpAddr, SocketAddr};

use channel_protocol::assoc_id::AssocId;
use channel_protocol::status_page::State;
use serde::{Deserialize, Serialize};
use swiftwater::tokio::{Association, Stack};
use swiftwater::{
    AssociationState, LinkKind, PathState, PathStatistics, StackStatistics, Statistics, internals,
};

use crate::channel::style::Style;
use crate::state::association::SocketAssociation;
use crate::state::closed_socket::ClosedSocket;
use crate::state::closed_sockets::LeftAssociation;
use crate::state::socket::Socket;

/// The description of a daemon that has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The daemon's process identifier. A service manager may hold the daemon's socket.
    pub process: i32,
    /// The daemon's version.
    pub version: String,
    /// Whether the daemon exits when idle, so that programs may start the next one.
    pub on_demand: bool,
    /// Description of the link that carries SCTP.
    pub carries: String,
}

/// A part of an answer. The associations of a socket follow that socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    Daemon(DaemonStatus),
    Socket(SocketStatus),
    Association(AssociationStatus),
    /// The end of a complete answer, with the numbers of items left out of a long one.
    End {
        sockets_omitted: usize,
        associations_omitted: usize,
    },
}

/// The sockets that a user may see: its own; for root, all.
#[derive(Clone, Debug)]
pub struct Status {
    /// The daemon.
    pub daemon: DaemonStatus,
    /// The sockets, in the order in which they were opened: those of programs, and then those that were closed while they had
    /// associations.
    pub sockets: Vec<SocketReport>,
    /// Number of sockets left out of a very long answer.
    pub sockets_omitted: usize,
    /// Number of associations of `sockets` left out of a very long answer.
    pub associations_omitted: usize,
}

/// A socket with its associations.
#[derive(Clone, Debug)]
pub struct SocketReport {
    /// The socket.
    pub socket: SocketStatus,
    /// Its associations.
    pub associations: Vec<AssociationStatus>,
}

/// The daemon and its users.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// The version of the daemon.
    pub version: String,
    /// The daemon's process identifier.
    pub process: u32,
    /// Description of the link that carries SCTP.
    pub carries: String,
    /// Its counters, for root and the user of the daemon.
    pub counters: Option<DaemonCounters>,
    /// The resources of each user.
    pub users: Vec<UserStatus>,
}

/// Counters of all SCTP in the daemon, since its start: those of the endpoint and those of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonCounters {
    /// Associations that are up now.
    pub established: u64,
    /// Associations that a program of the daemon requested and that came up.
    pub connected: u64,
    /// Associations that peers have set up.
    pub accepted: u64,
    /// Associations that either side aborted.
    pub aborted: u64,
    /// Associations that were shut down with everything delivered.
    pub shut_down: u64,
    /// SCTP packets sent.
    pub packets_sent: u64,
    /// SCTP packets received, valid or invalid.
    pub packets_received: u64,
    /// Datagrams that were too short or malformed.
    pub malformed: u64,
    /// Packets with a wrong checksum.
    pub checksum_errors: u64,
    /// Packets without association.
    pub out_of_the_blue: u64,
    /// Packets whose verification tag is not that of their association.
    pub tag_errors: u64,
    /// Invalid state cookies.
    pub cookie_errors: u64,
    /// INITs answered.
    pub inits_received: u64,
    /// Answers to strangers withheld by the budget that bounds the cost of floods.
    pub answers_withheld: u64,
    /// Handshakes left unanswered for lack of room; the peer repeats them.
    pub accepts_put_off: u64,
    /// Associations refused by the limit of their listener.
    pub refused_at_listener_limit: u64,
    /// Associations refused by the limit of their source prefix.
    pub refused_at_prefix_limit: u64,
    /// Replies dropped because too many waited to be sent.
    pub replies_dropped: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams between two programs of the daemon, which stay in memory; they count as sent and as received, too.
    pub datagrams_turned_back: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full, and over UDP those of
    /// `receive_thinned`, too.
    pub receive_overflows: u64,
    /// Datagrams of floods that the kernel dropped by a filter. An estimate.
    pub receive_thinned: u64,
    /// Datagrams dropped by the link: empty, truncated, or from an unknown address family.
    pub receive_discarded: u64,
    /// Sends that found the send buffer full, and are repeated.
    pub send_blocked: u64,
    /// Datagrams that the kernel did not take: a full queue of the device, or too big.
    pub send_lost: u64,
    /// Sends that the system refused: no route, a filter, or a source address that is gone.
    pub send_failed: u64,
    /// Datagrams that exceeded the MTU of their path.
    pub too_big: u64,
    /// ICMP reports about the daemon's datagrams.
    pub icmp_reports: u64,
}

impl From<StackStatistics> for DaemonCounters {
    fn from(StackStatistics { endpoint, link, .. }: StackStatistics) -> Self {
        DaemonCounters {
            established: endpoint.established,
            connected: endpoint.connected,
            accepted: endpoint.accepted,
            aborted: endpoint.aborted,
            shut_down: endpoint.shut_down,
            packets_sent: endpoint.packets_sent,
            packets_received: endpoint.packets_received,
            malformed: endpoint.malformed,
            checksum_errors: endpoint.checksum_errors,
            out_of_the_blue: endpoint.out_of_the_blue,
            tag_errors: endpoint.tag_errors,
            cookie_errors: endpoint.cookie_errors,
            inits_received: endpoint.inits_received,
            answers_withheld: endpoint.answers_withheld,
            accepts_put_off: endpoint.accepts_put_off,
            refused_at_listener_limit: endpoint.refused_at_listener_limit,
            refused_at_prefix_limit: endpoint.refused_at_prefix_limit,
            replies_dropped: endpoint.replies_dropped,
            datagrams_received: link.datagrams_received,
            datagrams_sent: link.datagrams_sent,
            datagrams_turned_back: link.datagrams_turned_back,
            receive_overflows: link.receive_overflows,
            receive_thinned: link.receive_thinned,
            receive_discarded: link.receive_discarded,
            send_blocked: link.send_blocked,
            send_lost: link.send_lost,
            send_failed: link.send_failed,
            too_big: link.too_big,
            icmp_reports: link.icmp_reports,
        }
    }
}

/// The resources of the daemon that the programs of one user occupy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user.
    pub user: u32,
    /// Memory for messages that were sent and not acknowledged, including the overhead of each message.
    pub sent_bytes: usize,
    /// Limit of `sent_bytes` (`--user-memory`).
    pub sent_limit_bytes: usize,
    /// Number of times that a socket had to wait for memory.
    pub sent_waits: u64,
    /// Memory for data that the user's associations have received and its programs have not read. It is charged in
    /// steps.
    pub received_bytes: usize,
    /// Limit of `received_bytes` (`--user-receive-memory`).
    pub received_limit_bytes: usize,
    /// Memory for the pages that the user's sockets share with their programs.
    pub page_bytes: usize,
    /// Limit of `page_bytes` (`--user-page-memory`).
    pub page_limit_bytes: usize,
    /// Memory for long messages that the user's programs have not read.
    pub unread_bytes: usize,
    /// Limit of `unread_bytes` (`--user-unread-memory`).
    pub unread_limit_bytes: usize,
    /// Number of times that a long message had to wait for such memory.
    pub unread_waits: u64,
    /// Number of associations of one-to-many sockets, and of closed sockets.
    pub associations: usize,
    /// Limit of `associations` (`--user-associations`).
    pub associations_limit: usize,
    /// Number of associations that were refused, or aborted after their sockets were closed, because the user had the maximum, or
    /// no memory.
    pub associations_refused: u64,
}

/// The style of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SocketStyle {
    /// `SOCK_STREAM`: one association, or a listener.
    OneToOne,
    /// `SOCK_STREAM` of a program that takes it for a socket of TCP.
    Tcp,
    /// `SOCK_SEQPACKET`: any number of associations.
    OneToMany,
    /// One association, peeled off from a one-to-many socket.
    PeeledOff,
}

impl From<Style> for SocketStyle {
    fn from(style: Style) -> SocketStyle {
        match style {
            Style::OneToOne => SocketStyle::OneToOne,
            Style::TcpStream => SocketStyle::Tcp,
            Style::OneToMany => SocketStyle::OneToMany,
            Style::PeeledOff => SocketStyle::PeeledOff,
        }
    }
}

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SocketState {
    /// Neither connected nor listening.
    Idle,
    /// One-to-many and not listening: the socket sends messages, and may have associations.
    Open,
    /// Peers can set up associations.
    Listening,
    /// The association is being set up.
    Connecting,
    /// The association is up.
    Connected,
    /// One of both ends has shut the association down, and it has ended.
    Ended,
    /// The association was aborted or lost.
    Lost,
    /// The program has closed the socket, and its associations are being shut down: what was sent is still delivered.
    Closed,
}

/// One socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketStatus {
    /// The number of the socket, unique in the daemon.
    pub number: u64,
    /// The style.
    pub style: SocketStyle,
    /// The state.
    pub state: SocketState,
    /// The user that opened the socket, or the listener that accepted it.
    pub user: u32,
    /// The process that opened it.
    pub process: i32,
    /// The bound addresses; empty if the socket is not bound.
    pub local: Vec<SocketAddr>,
    /// The peer, if the socket has only one.
    pub peer: Option<SocketAddr>,
    /// Bytes that the program has sent and the daemon has not read, including a header for each message.
    pub carrier_bytes: u64,
}

/// How far an association has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AssociationPhase {
    /// It is being set up, in COOKIE-WAIT or COOKIE-ECHOED.
    SettingUp,
    /// It is up, or has been, and is in this state.
    Up(#[serde(with = "by_name")] AssociationState),
}

impl AssociationPhase {
    /// Returns `setting-up`, or the name of the state in RFC 9260 §4.
    pub fn name(self) -> &'static str {
        match self {
            AssociationPhase::SettingUp => "setting-up",
            AssociationPhase::Up(state) => state.name(),
        }
    }
}

/// Writes and reads a value by its name: the protocol core names its states, but does not depend on serde.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// One association.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AssociationStatus {
    /// The association's number, as programs know it (`sctp_assoc_t`).
    pub id: u32,
    /// The association's state.
    pub state: AssociationPhase,
    /// The local addresses.
    pub local: Vec<SocketAddr>,
    /// The address by which the program knows the peer.
    pub peer: SocketAddr,
    /// Bytes received that the program has not taken.
    pub receive_queue_bytes: u64,
    /// Bytes that the peer has not acknowledged.
    pub send_queue_bytes: u64,
    /// The peer's receive window.
    pub peer_window_bytes: u64,
    /// Number of outbound streams.
    pub streams_out: u16,
    /// Number of inbound streams.
    pub streams_in: u16,
    /// Messages sent since the association was set up, as are all counts below.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Bytes of messages sent.
    pub bytes_sent: u64,
    /// Bytes of messages received.
    pub bytes_received: u64,
    /// DATA chunks that were retransmitted.
    pub retransmissions: u64,
    /// The association's paths.
    pub paths: Vec<PathStatus>,
}

/// One path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathStatus {
    /// The local address, if it is always the same.
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Whether this is the primary path.
    pub primary: bool,
    /// The state of the path.
    #[serde(with = "by_name")]
    pub state: PathState,
    /// The size of the largest packet.
    pub mtu_bytes: usize,
    /// The congestion window.
    pub cwnd_bytes: usize,
    /// Bytes in flight.
    pub in_flight_bytes: usize,
    /// The smoothed round-trip time, once measured.
    pub srtt_us: Option<u64>,
    /// The retransmission time-out.
    pub rto_ms: u64,
    /// The pacing rate, if packets are paced.
    pub pacing_bytes_per_s: Option<u64>,
    /// Packets sent, of any kind.
    pub packets_sent: u64,
    /// Packets received, of any kind.
    pub packets_received: u64,
    /// Packets with data that were lost.
    pub packets_lost: u64,
}

/// Returns the status of a socket.
pub(super) fn of_socket(socket: &Socket) -> SocketStatus {
    let state = match socket.state() {
        State::Idle => SocketState::Idle,
        State::OneToMany => SocketState::Open,
        State::Listening | State::OneToManyListening => SocketState::Listening,
        State::Connecting => SocketState::Connecting,
        State::Connected => SocketState::Connected,
        // The page shows `Lost` for other ends, too, which a program reads as an error.
        State::Ended | State::Lost if socket.was_lost() => SocketState::Lost,
        State::Ended | State::Lost => SocketState::Ended,
    };
    // The filler that keeps a pair from polling writable is not data of the program.
    let is_filled = matches!(socket.state(), State::Listening | State::Connecting);
    let carrier_bytes = if is_filled { 0 } else { socket.channel().waiting_bytes() };
    SocketStatus {
        number: socket.number(),
        style: socket.style().into(),
        state,
        user: socket.owner().user,
        process: socket.owner().process,
        local: socket.addresses().all_local(),
        peer: socket.addresses().peer(),
        carrier_bytes,
    }
}

/// Returns the status of a socket that its program has closed.
pub(super) fn of_closed_socket(socket: &ClosedSocket) -> SocketStatus {
    SocketStatus {
        number: socket.number,
        style: socket.style.into(),
        state: SocketState::Closed,
        user: socket.owner.user,
        process: socket.owner.process,
        local: socket.local.clone(),
        peer: socket.peer,
        carrier_bytes: 0,
    }
}

/// Returns the status of an association of a closed socket; `None` if it has ended.
pub(super) fn of_left_association(stack: &Stack, left: &LeftAssociation) -> Option<AssociationStatus> {
    let (known, local) = internals::described(stack, left.stack_id)?;
    let is_open = known.state != AssociationState::Closed;
    is_open.then(|| described(left.id, left.peer, AssociationPhase::Up(known.state), &known, &local))
}

/// Returns the status of an association; `None` if it has ended and only its socket is left.
pub(super) fn of_association(assoc: &SocketAssociation) -> Option<AssociationStatus> {
    let association = assoc.stack_association();
    let known: Statistics = association.and_then(|association| association.statistics()).unwrap_or_default();
    let local = association.map(|association| association.local_ips()).unwrap_or_default();
    if association.is_some() && known.state == AssociationState::Closed {
        return None;
    }
    // Until the association is up, the executive does not show it.
    let state = association.map_or(AssociationPhase::SettingUp, |_| AssociationPhase::Up(known.state));
    Some(described(assoc.id(), assoc.peer(), state, &known, &local))
}

fn described(
    id: AssocId,
    peer: SocketAddr,
    state: AssociationPhase,
    known: &Statistics,
    local: &[IpAddr],
) -> AssociationStatus {
    AssociationStatus {
        id: id.get(),
        state,
        local: local.iter().map(|ip| SocketAddr::new(*ip, known.local_port)).collect(),
        peer,
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
    }
}

/// Returns the counts of the messages that the driver of a stream has carried.
pub(super) fn driver_counts(association: &Association) -> [(&'static str, u64); 4] {
    let known = association.statistics().unwrap_or_default();
    [
        ("messages sent", known.messages_sent),
        ("bytes sent", known.bytes_sent),
        ("messages received", known.messages_received),
        ("bytes received", known.bytes_received),
    ]
}

fn of_path(path: &PathStatistics, primary: bool) -> PathStatus {
    PathStatus {
        local: path.local,
        remote: path.remote,
        primary,
        state: path.state,
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

/// Returns a description of the link that carries SCTP.
pub(crate) fn describe_link(stack: &Stack) -> String {
    match stack.link() {
        LinkKind::Raw => "SCTP directly over IP".into(),
        LinkKind::Udp | LinkKind::Auto => format!("SCTP in UDP, port {}", stack.udp_port()),
    }
}

/// Returns the daemon's description of itself.
pub(crate) fn describe(stack: &Stack, on_demand: bool) -> Description {
    Description {
        process: std::process::id().cast_signed(),
        version: env!("CARGO_PKG_VERSION").into(),
        on_demand,
        carries: describe_link(stack),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::channel::daemon_end;
    use crate::state::association_options::AssocOptions;
    use crate::testing::{connected_socket, opened, registry, until};

    #[tokio::test(flavor = "local")]
    async fn an_association_is_described_from_its_setup_to_its_end() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let (socket, peer) = connected_socket(&registry, &listener).await;
        let assoc = socket.associations().first().expect("its only one");
        let state = |assoc: &SocketAssociation| of_association(assoc).map(|status| status.state);
        assert_eq!(state(&assoc), Some(AssociationPhase::Up(AssociationState::Established)));
        drop(peer);
        until("it has ended", || assoc.has_ended()).await;
        assert_eq!(state(&assoc), None);
        let begun = SocketAssociation::new(assoc.id().next(), assoc.peer(), AssocOptions::default());
        assert_eq!(state(&begun), Some(AssociationPhase::SettingUp));
    }

    #[tokio::test(flavor = "local")]
    async fn only_what_a_program_has_sent_waits_in_a_pair() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let seen = |socket: &Socket| {
            let status = of_socket(socket);
            (status.state, status.carrier_bytes > 0)
        };
        daemon_end::fill(std::os::fd::AsFd::as_fd(&program_end)).expect("it is filled");
        let peer = ([192, 0, 2, 1], 7).into();
        let assoc = Rc::new(SocketAssociation::new(AssocId::FIRST, peer, AssocOptions::default()));
        socket.on_connecting(&assoc, None);
        assert_eq!(seen(&socket), (SocketState::Connecting, false));
        socket.on_connected(1);
        assert_eq!(seen(&socket), (SocketState::Connected, true));
        let listener = Arc::new(registry.stack().listen(7).expect("a free port"));
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        daemon_end::fill(std::os::fd::AsFd::as_fd(&program_end)).expect("it is filled");
        registry.on_listening(&socket, &listener);
        assert_eq!(seen(&socket), (SocketState::Listening, false));
    }

    #[test]
    fn states_are_written_and_read_by_their_names() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct States(#[serde(with = "by_name")] AssociationState, #[serde(with = "by_name")] PathState);
        for (association, path) in AssociationState::ALL.into_iter().zip(PathState::ALL.into_iter().cycle()) {
            let written = serde_json::to_string(&States(association, path)).expect("JSON");
            assert_eq!(written, format!(r#"["{}","{}"]"#, association.name(), path.name()));
            let read: States = serde_json::from_str(&written).expect("the names");
            assert_eq!(read, States(association, path));
        }
        let error = serde_json::from_str::<States>(r#"["UP","active"]"#).expect_err("no such name");
        assert!(error.to_string().starts_with("no such state of an association"), "{error}");
    }
}
