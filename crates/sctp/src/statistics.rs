//! Counters and measurements: plain structs that each layer fills.
//!
//! Names in brackets are those of the sockets API (RFC 6458: `sstat_` of `SCTP_STATUS`, `spinfo_` of
//! `SCTP_GET_PEER_ADDR_INFO`; `sas_` of Linux's `SCTP_GET_ASSOC_STATS`) and of the MIB (RFC 3873: `sctp...`).
//! `docs/statistics.md` has them as a table. Counters start at zero and never decrease.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::error::by_name;
use crate::path_state::PathState;
use crate::time::Time;

/// Version of the structs in this file. It increases when fields are added; a field keeps its meaning.
pub const STATISTICS_VERSION: u32 = 9;

/// State of an association (RFC 9260 §4; `sctpAssocState`, `sstat_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AssociationState {
    /// The association has ended, or has never existed.
    #[default]
    Closed,
    /// INIT sent.
    CookieWait,
    /// COOKIE ECHO sent.
    CookieEchoed,
    /// Data flows in both directions.
    Established,
    /// The user has shut down; some of its data is unacknowledged.
    ShutdownPending,
    /// SHUTDOWN sent.
    ShutdownSent,
    /// The peer has shut down; some of our data is unacknowledged.
    ShutdownReceived,
    /// SHUTDOWN ACK sent.
    ShutdownAckSent,
}

impl AssociationState {
    /// All states.
    pub const ALL: [AssociationState; 8] = [
        AssociationState::Closed,
        AssociationState::CookieWait,
        AssociationState::CookieEchoed,
        AssociationState::Established,
        AssociationState::ShutdownPending,
        AssociationState::ShutdownSent,
        AssociationState::ShutdownReceived,
        AssociationState::ShutdownAckSent,
    ];

    /// Returns the name of the state in RFC 9260 §4, which [`FromStr`](std::str::FromStr) parses.
    pub fn name(self) -> &'static str {
        match self {
            AssociationState::Closed => "CLOSED",
            AssociationState::CookieWait => "COOKIE-WAIT",
            AssociationState::CookieEchoed => "COOKIE-ECHOED",
            AssociationState::Established => "ESTABLISHED",
            AssociationState::ShutdownPending => "SHUTDOWN-PENDING",
            AssociationState::ShutdownSent => "SHUTDOWN-SENT",
            AssociationState::ShutdownReceived => "SHUTDOWN-RECEIVED",
            AssociationState::ShutdownAckSent => "SHUTDOWN-ACK-SENT",
        }
    }
}

by_name!(AssociationState, "no such state of an association");

/// Counters and measurements of one association.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// [`STATISTICS_VERSION`] of the code that filled this struct.
    pub version: u32,
    /// State (`sctpAssocState`, `sstat_state`).
    pub state: AssociationState,
    /// Our SCTP port (`sctpAssocLocalPort`).
    pub local_port: u16,
    /// The peer's SCTP port (`sctpAssocRemPort`).
    pub peer_port: u16,
    /// Time when the association came up; `None` before (`sctpAssocStartTime`).
    pub established_at: Option<Time>,
    /// Outbound streams after negotiation (`sctpAssocOutStreams`, `sstat_outstrms`).
    pub streams_out: u16,
    /// Inbound streams after negotiation (`sctpAssocInStreams`, `sstat_instrms`).
    pub streams_in: u16,
    /// Whether new data leaves on all paths at once (`SCTP_CMT_ON_OFF`), by agreement with the peer or by
    /// configuration.
    pub multipath: bool,
    /// Whether both sides send NR-SACKs, which report the chunks beyond a gap that the receiver keeps.
    pub nr_sack: bool,
    /// Consecutive timeouts and unanswered heartbeats; more than [`Statistics::retries_max`] end the association.
    pub errors: u32,
    /// Association.Max.Retrans (`sctpAssocMaxRetr`).
    pub retries_max: u32,
    /// Messages accepted from the user.
    pub messages_sent: u64,
    /// Messages, or parts of messages, delivered to the user.
    pub messages_received: u64,
    /// Payload bytes accepted from the user.
    pub bytes_sent: u64,
    /// Payload bytes delivered to the user.
    pub bytes_received: u64,
    /// Messages sent in several DATA chunks (`sctpFragUsrMsgs`).
    pub messages_fragmented: u64,
    /// Messages reassembled from several DATA chunks (`sctpReasmUsrMsgs`).
    pub messages_reassembled: u64,
    /// Packets sent (`sas_opackets`, `sctpOutSCTPPacks`).
    pub packets_sent: u64,
    /// Packets received (`sas_ipackets`, `sctpInSCTPPacks`).
    pub packets_received: u64,
    /// Chunks sent other than DATA and PAD, including SACKs (`sas_octrlchunks`, `sctpOutCtrlChunks`).
    pub control_chunks_sent: u64,
    /// Chunks received other than DATA and PAD, including SACKs (`sas_ictrlchunks`, `sctpInCtrlChunks`).
    pub control_chunks_received: u64,
    /// DATA chunks sent for the first time (`sas_oodchunks` + `sas_ouodchunks`).
    pub data_chunks_sent: u64,
    /// Unordered chunks among these (`sas_ouodchunks`, `sctpOutUnorderChunks`).
    pub unordered_chunks_sent: u64,
    /// DATA chunks retransmitted (`sas_rtxchunks`, `sctpAssocRtxChunks`).
    pub data_chunks_retransmitted: u64,
    /// New DATA chunks received (`sas_iodchunks` + `sas_iuodchunks`).
    pub data_chunks_received: u64,
    /// Unordered chunks among these (`sas_iuodchunks`, `sctpInUnorderChunks`).
    pub unordered_chunks_received: u64,
    /// DATA chunks received with another than the next TSN (`sas_outofseqtsns`).
    pub out_of_sequence_received: u64,
    /// Duplicate DATA chunks received (`sas_idupchunks`).
    pub duplicates_received: u64,
    /// Duplicates of our chunks that the peer has reported.
    pub duplicates_reported: u64,
    /// DATA chunks dropped because the receive buffer was full.
    pub data_chunks_dropped: u64,
    /// Messages discarded because another one with the same stream sequence number waited already.
    pub messages_discarded: u64,
    /// Messages discarded because their lifetime ended before they were sent.
    pub messages_expired: u64,
    /// Chunks that are malformed, unknown, or not permitted in the state in which they arrived.
    pub chunks_discarded: u64,
    /// Errors in the peer's packets that were not reported to the peer: too many, or too early.
    pub reports_dropped: u64,
    /// Events dropped because too many were unread.
    pub events_dropped: u64,
    /// Control chunks dropped because too many waited to be sent.
    pub control_chunks_dropped: u64,
    /// Restarts of the peer (RFC 9260 §5.2.4 A).
    pub restarts: u64,
    /// SACKs sent (`sas_osacks`).
    pub sacks_sent: u64,
    /// SACKs received (`sas_isacks`).
    pub sacks_received: u64,
    /// Gap blocks in received SACKs (`sas_gapcnt`).
    pub gaps_received: u64,
    /// Timeouts of INIT or COOKIE ECHO (`sctpAssocT1expireds`).
    pub t1_timeouts: u64,
    /// Timeouts of SHUTDOWN or SHUTDOWN ACK (`sctpAssocT2expireds`).
    pub t2_timeouts: u64,
    /// Retransmission timeouts (T3-rtx) on all paths.
    pub timeouts: u64,
    /// Losses repaired without a timeout.
    pub fast_recoveries: u64,
    /// Tail loss probes on all paths (RFC 8985 §7).
    pub tail_probes: u64,
    /// Reductions of the congestion window that were undone because nothing had been lost, on all paths.
    pub reductions_undone: u64,
    /// Packets received with the mark of a congested router (RFC 3168).
    pub marked_packets_received: u64,
    /// Reductions of the congestion window because the peer had reported such marks.
    pub ecn_reductions: u64,
    /// The longest RTO of any path so far (`sas_maxrto`).
    pub rto_max: Duration,
    /// The path that had this RTO (`sas_obs_rto_ipaddr`).
    pub rto_max_path: Option<SocketAddr>,
    /// Payload bytes outstanding now.
    pub outstanding_bytes: u64,
    /// DATA chunks that are unacknowledged now (`sstat_unackdata`).
    pub outstanding_chunks: u64,
    /// Bytes in the send buffer now.
    pub send_buffered_bytes: u64,
    /// Bytes in the receive buffer now: received and unread (`sstat_penddata` counts chunks).
    pub receive_buffered_bytes: u64,
    /// Bytes of memory for gaps and for used streams, which are not part of the receive buffer.
    pub receive_state_bytes: u64,
    /// The peer's receive window now (`sstat_rwnd`).
    pub peer_window_bytes: u64,
    /// Length above which messages are fragmented (`sstat_fragmentation_point`).
    pub fragmentation_point_bytes: u64,
    /// Index of the primary path in [`Statistics::paths`] (`sstat_primary`, `sctpAssocRemPrimAddr`).
    pub primary: usize,
    /// The paths.
    pub paths: Vec<PathStatistics>,
}

impl Statistics {
    /// Returns the number of DATA chunks sent in order, each counted once (`sas_oodchunks`, `sctpOutOrderChunks`).
    pub fn ordered_chunks_sent(&self) -> u64 {
        self.data_chunks_sent - self.unordered_chunks_sent
    }

    /// Returns the number of DATA chunks received in order, each counted once (`sas_iodchunks`, `sctpInOrderChunks`).
    pub fn ordered_chunks_received(&self) -> u64 {
        self.data_chunks_received - self.unordered_chunks_received
    }
}

/// Counters and measurements of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStatistics {
    /// The peer's address (`spinfo_address`, `sctpAssocRemAddr`); the port is the UDP encapsulation port.
    pub remote: SocketAddr,
    /// The local address of the path, once a packet has arrived on the path or the link has chosen one.
    pub local: Option<IpAddr>,
    /// Whether the path is usable (`sctpAssocRemAddrActive`). A path that has just failed stays usable until it is
    /// inactive.
    pub active: bool,
    /// State of the path (`spinfo_state`).
    pub state: PathState,
    /// Whether heartbeats probe the path while it is idle, once the association is up (`sctpAssocRemAddrHBActive`).
    pub heartbeats: bool,
    /// HB.interval, even if heartbeats are off (`spp_hbinterval`).
    pub heartbeat_interval: Duration,
    /// Maximum delay of a SACK for data that arrives on this path (`spp_sackdelay`).
    pub sack_delay: Duration,
    /// Differentiated services codepoint of this path (`spp_dscp`); `None`: that of the association.
    pub dscp: Option<u8>,
    /// Maximum length of an SCTP packet.
    pub mtu_bytes: usize,
    /// Length of the IP packet around it, including the headers of IP and UDP (`spinfo_mtu`, `spp_pathmtu`).
    pub ip_mtu_bytes: usize,
    /// Congestion window (`spinfo_cwnd`).
    pub cwnd_bytes: usize,
    /// Slow-start threshold, once set.
    pub ssthresh_bytes: Option<usize>,
    /// Bytes of DATA chunks in flight, including headers.
    pub in_flight_bytes: usize,
    /// Pacing rate, if packets are paced.
    pub pacing_bytes_per_s: Option<u64>,
    /// The newest round-trip time, once measured.
    pub latest_rtt: Option<Duration>,
    /// Smoothed round-trip time, once measured (`spinfo_srtt`).
    pub srtt: Option<Duration>,
    /// Variation of the round-trip time, once measured.
    pub rttvar: Option<Duration>,
    /// The shortest recent round-trip time, once measured.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout (`spinfo_rto`, `sctpAssocRemAddrRTO`).
    pub rto: Duration,
    /// Consecutive timeouts and unanswered heartbeats; more than [`PathStatistics::retries_max`] make the path
    /// inactive.
    pub errors: u32,
    /// Path.Max.Retrans (`sctpAssocRemAddrMaxPathRtx`).
    pub retries_max: u32,
    /// PotentiallyFailed.Max.Retrans (`spt_pathpfthld`).
    pub potentially_failed_retries_max: u32,
    /// Retransmission timeouts (T3-rtx; `sctpAssocRemAddrRtx`).
    pub timeouts: u64,
    /// Packets sent on the path.
    pub packets_sent: u64,
    /// Packets received on the path.
    pub packets_received: u64,
    /// Packets with DATA that were declared lost.
    pub packets_lost: u64,
    /// DATA chunks retransmitted on the path.
    pub data_chunks_retransmitted: u64,
    /// Bytes of DATA chunks that the path has delivered, including headers.
    pub delivered_bytes: u64,
    /// Tail loss probes (RFC 8985 §7).
    pub tail_probes: u64,
    /// Reductions of the congestion window that were undone because nothing had been lost (RFC 5682, RFC 3708).
    pub reductions_undone: u64,
    /// Number of times that the path fell silent while another path was active, so that data avoided it.
    pub early_failovers: u64,
    /// Number of times that the path turned out to be merely slow.
    pub early_failovers_spurious: u64,
    /// DATA chunks in flight on the path at such times, which were sent again on other paths.
    pub data_chunks_rerouted: u64,
    /// State of the search for the longest packet.
    pub mtu_state: MtuState,
    /// Probes of the path MTU.
    pub mtu_probes_sent: u64,
    /// Probes among these that were lost while other packets arrived.
    pub mtu_probes_lost: u64,
}

/// State of the search for the longest packet of a path (RFC 8899 §5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MtuState {
    /// No search: packets are as long as the link permits.
    #[default]
    Disabled,
    /// Packets have the base size, which nearly every path supports. No size was verified yet.
    Base,
    /// A size was verified, and longer ones are probed.
    Searching,
    /// The longest size is in use, until the link permits more, the size no longer arrives, or ten minutes have passed.
    SearchComplete,
    /// The base size does not arrive: packets are shorter, and routers may fragment them.
    Error,
}

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounts {
    pub(crate) timeouts: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) packets_lost: u64,
    pub(crate) data_chunks_retransmitted: u64,
    pub(crate) tail_probes: u64,
    pub(crate) reductions_undone: u64,
    pub(crate) early_failovers: u64,
    pub(crate) early_failovers_spurious: u64,
    pub(crate) data_chunks_rerouted: u64,
}

/// Counters of an endpoint: of its associations, including ended ones, and of packets without association.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStatistics {
    /// [`STATISTICS_VERSION`] of the code that filled this struct.
    pub version: u32,
    /// Associations that are up now (`sctpCurrEstab`).
    pub established: u64,
    /// Associations that this side requested and that came up (`sctpActiveEstabs`).
    pub connected: u64,
    /// Associations accepted (`sctpPassiveEstabs`).
    pub accepted: u64,
    /// Associations that either side aborted (`sctpAborteds`).
    pub aborted: u64,
    /// Associations that were shut down with everything delivered (`sctpShutdowns`).
    pub shut_down: u64,
    /// Datagrams that are too short or malformed.
    pub malformed: u64,
    /// Packets with a wrong checksum (`sctpChecksumErrors`).
    pub checksum_errors: u64,
    /// Packets out of the blue: without association (`sctpOutOfBlues`).
    pub out_of_the_blue: u64,
    /// Packets whose verification tag is not that of their association.
    pub tag_errors: u64,
    /// Invalid state cookies.
    pub cookie_errors: u64,
    /// Restarts refused because they would add addresses (RFC 9260 §5.2.2).
    pub restarts_refused: u64,
    /// ICMP reports that concern no association, or change nothing.
    pub reports_ignored: u64,
    /// Replies dropped because too many waited to be sent.
    pub replies_dropped: u64,
    /// Answers to strangers withheld by the budget that bounds the cost of floods (`ARCHITECTURE.md`).
    pub answers_withheld: u64,
    /// Associations refused by the limit of their listener.
    pub refused_at_listener_limit: u64,
    /// Associations refused by the limit of their source prefix.
    pub refused_at_prefix_limit: u64,
    /// Addresses listed by peers and not used: not of one host, of another host, duplicate, or too many.
    pub addresses_ignored: u64,
    /// INITs answered.
    pub inits_received: u64,
    /// Handshakes left unanswered for lack of room; the peer repeats them.
    pub accepts_put_off: u64,
    /// Packets sent (`sctpOutSCTPPacks`).
    pub packets_sent: u64,
    /// Packets received, valid or invalid (`sctpInSCTPPacks`).
    pub packets_received: u64,
    /// Chunks sent other than DATA and PAD (`sctpOutCtrlChunks`).
    pub control_chunks_sent: u64,
    /// Chunks received other than DATA and PAD (`sctpInCtrlChunks`).
    pub control_chunks_received: u64,
    /// Ordered DATA chunks sent, each counted once (`sctpOutOrderChunks`).
    pub ordered_chunks_sent: u64,
    /// Unordered DATA chunks sent, each counted once (`sctpOutUnorderChunks`).
    pub unordered_chunks_sent: u64,
    /// Ordered DATA chunks received, each counted once (`sctpInOrderChunks`).
    pub ordered_chunks_received: u64,
    /// Unordered DATA chunks received, each counted once (`sctpInUnorderChunks`).
    pub unordered_chunks_received: u64,
    /// Messages sent in several DATA chunks (`sctpFragUsrMsgs`).
    pub messages_fragmented: u64,
    /// Messages reassembled from several DATA chunks (`sctpReasmUsrMsgs`).
    pub messages_reassembled: u64,
}

impl EndpointStatistics {
    /// Adds the counters of an association. The endpoint itself counts received packets, before their association is
    /// known.
    pub(crate) fn add(&mut self, of: &Statistics) {
        self.packets_sent += of.packets_sent;
        self.control_chunks_sent += of.control_chunks_sent;
        self.control_chunks_received += of.control_chunks_received;
        self.ordered_chunks_sent += of.ordered_chunks_sent();
        self.unordered_chunks_sent += of.unordered_chunks_sent;
        self.ordered_chunks_received += of.ordered_chunks_received();
        self.unordered_chunks_received += of.unordered_chunks_received;
        self.messages_fragmented += of.messages_fragmented;
        self.messages_reassembled += of.messages_reassembled;
    }
}
