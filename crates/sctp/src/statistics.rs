//! Counters and measures, as plain structs that each layer fills.
//!
//! The names in brackets are those of the sockets API (RFC 6458: `sstat_` of `SCTP_STATUS`, `spinfo_` of
//! `SCTP_GET_PEER_ADDR_INFO`; `sas_` of Linux's `SCTP_GET_ASSOC_STATS`) and of the MIB (RFC 3873: `sctp...`). The
//! same as a table is in `docs/statistics.md`. Counters count from the beginning and never go back.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::path_state::PathState;
use crate::time::Time;

/// Which fields a struct of this file has. It grows when fields are added; a field keeps its meaning.
pub const STATISTICS_VERSION: u32 = 9;

/// Where an association stands (RFC 9260 §4; `sctpAssocState`, `sstat_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AssociationState {
    /// It is gone, or never was.
    #[default]
    Closed,
    /// INIT was sent.
    CookieWait,
    /// COOKIE ECHO was sent.
    CookieEchoed,
    /// Data flows both ways.
    Established,
    /// The user shut down; data of ours is still to be acknowledged.
    ShutdownPending,
    /// SHUTDOWN was sent.
    ShutdownSent,
    /// The peer shut down; data of ours is still to be acknowledged.
    ShutdownReceived,
    /// SHUTDOWN ACK was sent.
    ShutdownAckSent,
}

impl AssociationState {
    /// Returns the name of the state in RFC 9260 §4.
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

impl std::fmt::Display for AssociationState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Counters and measures of one association.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// [`STATISTICS_VERSION`] of who filled this.
    pub version: u32,
    /// Where the association stands (`sctpAssocState`, `sstat_state`).
    pub state: AssociationState,
    /// Our SCTP port (`sctpAssocLocalPort`).
    pub local_port: u16,
    /// The peer's SCTP port (`sctpAssocRemPort`).
    pub peer_port: u16,
    /// When it came up, once it has (`sctpAssocStartTime`).
    pub established_at: Option<Time>,
    /// Outbound streams after negotiation (`sctpAssocOutStreams`, `sstat_outstrms`).
    pub streams_out: u16,
    /// Inbound streams after negotiation (`sctpAssocInStreams`, `sstat_instrms`).
    pub streams_in: u16,
    /// Whether new data leaves on all paths at once (`SCTP_CMT_ON_OFF`): agreed with the peer, or always wanted.
    pub multipath: bool,
    /// Whether the peer and we tell each other what is kept for good beyond a gap (NR-SACK).
    pub nr_sack: bool,
    /// Timeouts and unanswered heartbeats in a row; more than [`Statistics::retries_max`] end the association.
    pub errors: u32,
    /// Association.Max.Retrans (`sctpAssocMaxRetr`).
    pub retries_max: u32,
    /// Messages taken from the user.
    pub messages_sent: u64,
    /// Messages (or parts) handed to the user.
    pub messages_received: u64,
    /// Payload bytes taken from the user.
    pub bytes_sent: u64,
    /// Payload bytes handed to the user.
    pub bytes_received: u64,
    /// Messages sent in several DATA chunks (`sctpFragUsrMsgs`).
    pub messages_fragmented: u64,
    /// Messages put together from several DATA chunks (`sctpReasmUsrMsgs`).
    pub messages_reassembled: u64,
    /// Packets sent (`sas_opackets`, `sctpOutSCTPPacks`).
    pub packets_sent: u64,
    /// Packets received (`sas_ipackets`, `sctpInSCTPPacks`).
    pub packets_received: u64,
    /// Chunks sent that are neither DATA nor PAD, SACKs among them (`sas_octrlchunks`, `sctpOutCtrlChunks`).
    pub control_chunks_sent: u64,
    /// Chunks received that are neither DATA nor PAD, SACKs among them (`sas_ictrlchunks`, `sctpInCtrlChunks`).
    pub control_chunks_received: u64,
    /// DATA chunks sent for the first time (`sas_oodchunks` + `sas_ouodchunks`).
    pub data_chunks_sent: u64,
    /// Those of them that are unordered (`sas_ouodchunks`, `sctpOutUnorderChunks`).
    pub unordered_chunks_sent: u64,
    /// DATA chunks sent again (`sas_rtxchunks`, `sctpAssocRtxChunks`).
    pub data_chunks_retransmitted: u64,
    /// DATA chunks received that were new (`sas_iodchunks` + `sas_iuodchunks`).
    pub data_chunks_received: u64,
    /// Those of them that are unordered (`sas_iuodchunks`, `sctpInUnorderChunks`).
    pub unordered_chunks_received: u64,
    /// DATA chunks received that did not have the next TSN (`sas_outofseqtsns`).
    pub out_of_sequence_received: u64,
    /// DATA chunks received twice (`sas_idupchunks`).
    pub duplicates_received: u64,
    /// Duplicates that the peer reported of what we sent.
    pub duplicates_reported: u64,
    /// DATA chunks dropped because the receive buffer was full.
    pub data_chunks_dropped: u64,
    /// Messages thrown away because another with their stream sequence number waits already.
    pub messages_discarded: u64,
    /// Messages that were not sent within their lifetime, and never were.
    pub messages_expired: u64,
    /// Chunks that are malformed or unknown, or mean nothing in the state in which they came.
    pub chunks_discarded: u64,
    /// Errors in the peer's packets that were not reported to it: too many, or too early.
    pub reports_dropped: u64,
    /// Events that the user was not told of, because too much waits to be read.
    pub events_dropped: u64,
    /// Control chunks of ours that were dropped because too many were waiting.
    pub control_chunks_dropped: u64,
    /// Times that the peer began anew (RFC 9260 §5.2.4 A).
    pub restarts: u64,
    /// SACKs sent (`sas_osacks`).
    pub sacks_sent: u64,
    /// SACKs received (`sas_isacks`).
    pub sacks_received: u64,
    /// Gap blocks in them (`sas_gapcnt`).
    pub gaps_received: u64,
    /// INIT or COOKIE ECHO was not answered in time (`sctpAssocT1expireds`).
    pub t1_timeouts: u64,
    /// SHUTDOWN or SHUTDOWN ACK was not answered in time (`sctpAssocT2expireds`).
    pub t2_timeouts: u64,
    /// Retransmission timeouts, T3-rtx, on all paths.
    pub timeouts: u64,
    /// Times that loss was repaired without a timeout.
    pub fast_recoveries: u64,
    /// Packets sent to find out about a tail that was not acknowledged (RFC 8985 §7), on all paths.
    pub tail_probes: u64,
    /// Reductions of the congestion window that were taken back, because nothing had been lost, on all paths.
    pub reductions_undone: u64,
    /// Packets that came with the mark of a congested router (RFC 3168).
    pub marked_packets_received: u64,
    /// Reductions of the congestion window because the peer had seen such marks.
    pub ecn_reductions: u64,
    /// The longest RTO that any path has had (`sas_maxrto`).
    pub rto_max: Duration,
    /// The path that had it (`sas_obs_rto_ipaddr`).
    pub rto_max_path: Option<SocketAddr>,
    /// Payload bytes outstanding now.
    pub outstanding_bytes: u64,
    /// DATA chunks not acknowledged now (`sstat_unackdata`).
    pub outstanding_chunks: u64,
    /// Send buffer in use now.
    pub send_buffered_bytes: u64,
    /// Receive buffer in use now: received, not read (`sstat_penddata` counts the same in chunks).
    pub receive_buffered_bytes: u64,
    /// Memory for gaps and for streams that were used. It takes no room of the receive buffer.
    pub receive_state_bytes: u64,
    /// The peer's window now (`sstat_rwnd`).
    pub peer_window_bytes: u64,
    /// A message longer than this is cut (`sstat_fragmentation_point`).
    pub fragmentation_point_bytes: u64,
    /// Index in [`Statistics::paths`] of the primary path (`sstat_primary`, `sctpAssocRemPrimAddr`).
    pub primary: usize,
    /// One entry a path.
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

/// Counters and measures of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatistics {
    /// The peer's address (`spinfo_address`, `sctpAssocRemAddr`); the port is the UDP encapsulation port.
    pub remote: SocketAddr,
    /// Our address at its other end, once a packet has come over it or the link has chosen one.
    pub local: Option<IpAddr>,
    /// Whether it is usable (`sctpAssocRemAddrActive`). One that has just failed still is, until it is given up.
    pub active: bool,
    /// State of the path in full (`spinfo_state`).
    pub state: PathState,
    /// Whether heartbeats are sent when nothing else is, once the association is up (`sctpAssocRemAddrHBActive`).
    pub heartbeats: bool,
    /// HB.interval, whether heartbeats are sent or not (`spp_hbinterval`).
    pub heartbeat_interval: Duration,
    /// Delay of a SACK for what comes on it and waits for more (`spp_sackdelay`).
    pub sack_delay: Duration,
    /// Its own differentiated services codepoint (`spp_dscp`). `None`: it has that of the association.
    pub dscp: Option<u8>,
    /// Largest SCTP packet.
    pub mtu_bytes: usize,
    /// The IP packet that carries it, with the headers of IP and UDP (`spinfo_mtu`, `spp_pathmtu`).
    pub ip_mtu_bytes: usize,
    /// Congestion window (`spinfo_cwnd`).
    pub cwnd_bytes: usize,
    /// Slow-start threshold, once there is one.
    pub ssthresh_bytes: Option<usize>,
    /// Bytes of DATA chunks in flight, headers included.
    pub in_flight_bytes: usize,
    /// How fast packets may leave, if something limits that.
    pub pacing_bytes_per_s: Option<u64>,
    /// The newest round-trip time, once measured.
    pub latest_rtt: Option<Duration>,
    /// Smoothed round-trip time, once measured (`spinfo_srtt`).
    pub srtt: Option<Duration>,
    /// Variation of the round-trip time, once measured.
    pub rttvar: Option<Duration>,
    /// The shortest round-trip time lately, once measured.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout (`spinfo_rto`, `sctpAssocRemAddrRTO`).
    pub rto: Duration,
    /// Timeouts and unanswered heartbeats in a row; more than [`PathStatistics::retries_max`] make the path inactive.
    pub errors: u32,
    /// Path.Max.Retrans (`sctpAssocRemAddrMaxPathRtx`).
    pub retries_max: u32,
    /// PotentiallyFailed.Max.Retrans (`spt_pathpfthld`).
    pub potentially_failed_retries_max: u32,
    /// Retransmission timeouts, T3-rtx (`sctpAssocRemAddrRtx`).
    pub timeouts: u64,
    /// Packets sent on it.
    pub packets_sent: u64,
    /// Packets received from it.
    pub packets_received: u64,
    /// Packets with DATA that counted as lost.
    pub packets_lost: u64,
    /// DATA chunks sent again on it.
    pub data_chunks_retransmitted: u64,
    /// Bytes of DATA chunks, headers included, that arrived over it.
    pub delivered_bytes: u64,
    /// Packets sent to find out about a tail that was not acknowledged (RFC 8985 §7).
    pub tail_probes: u64,
    /// Reductions of the window that were taken back, because nothing had been lost (RFC 5682, RFC 3708).
    pub reductions_undone: u64,
    /// Times that it fell silent while another path was active, so that data avoided it.
    pub suspicions: u64,
    /// How often it turned out to have been merely slow.
    pub suspicions_mistaken: u64,
    /// DATA chunks that were in flight on it then, and went again on other paths.
    pub data_chunks_given_back: u64,
    /// How far the search for the longest packet is.
    pub mtu_state: MtuState,
    /// Packets sent to find out whether the path takes their length.
    pub mtu_probes_sent: u64,
    /// Those of them that were lost while other packets arrived.
    pub mtu_probes_lost: u64,
}

/// How far the search for the longest packet that a path takes is (RFC 8899 §5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MtuState {
    /// There is no search: packets are as long as the link takes.
    #[default]
    Disabled,
    /// Packets have the size that nearly every path takes. Nothing was verified yet.
    Base,
    /// A size was verified, and longer ones are tried.
    Searching,
    /// The longest is found, until the link takes more, less comes through, or ten minutes have passed.
    SearchComplete,
    /// Not even the base comes through: packets are short, and routers may cut them.
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
    pub(crate) suspicions: u64,
    pub(crate) suspicions_mistaken: u64,
    pub(crate) data_chunks_given_back: u64,
}

/// Counters of an endpoint: of its associations, those that are gone included, and of packets without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointStatistics {
    /// [`STATISTICS_VERSION`] of who filled this.
    pub version: u32,
    /// Associations that are up now (`sctpCurrEstab`).
    pub established: u64,
    /// Associations that we asked for and that came up (`sctpActiveEstabs`).
    pub connected: u64,
    /// Associations accepted (`sctpPassiveEstabs`).
    pub accepted: u64,
    /// Associations that either side aborted (`sctpAborteds`).
    pub aborted: u64,
    /// Associations that were shut down with everything delivered (`sctpShutdowns`).
    pub shut_down: u64,
    /// Datagrams too short or malformed.
    pub malformed: u64,
    /// Packets with a wrong checksum (`sctpChecksumErrors`).
    pub checksum_errors: u64,
    /// Packets that belong to no association (`sctpOutOfBlues`).
    pub out_of_the_blue: u64,
    /// Packets with a verification tag that is not the association's.
    pub tag_errors: u64,
    /// State cookies that failed their check.
    pub cookie_errors: u64,
    /// Restarts refused because they would add addresses (RFC 9260 §5.2.2).
    pub restarts_refused: u64,
    /// Reports of the network that name no association of ours, or say nothing that changes one.
    pub reports_ignored: u64,
    /// Replies dropped because too many were waiting.
    pub replies_dropped: u64,
    /// Answers to strangers that were not given, so that floods cost little (`ARCHITECTURE.md`).
    pub answers_withheld: u64,
    /// Associations refused because their listener has as many as it may have.
    pub refused_at_listener_limit: u64,
    /// Associations refused because their source prefix has as many as it may have.
    pub refused_at_prefix_limit: u64,
    /// Addresses that peers listed and that are not used: of no host or of another one, named twice, or too many.
    pub addresses_ignored: u64,
    /// INITs answered.
    pub inits_received: u64,
    /// Handshakes left unanswered for lack of room; the peer asks again.
    pub accepts_put_off: u64,
    /// Packets sent (`sctpOutSCTPPacks`).
    pub packets_sent: u64,
    /// Packets received, good or bad (`sctpInSCTPPacks`).
    pub packets_received: u64,
    /// Chunks sent that are neither DATA nor PAD (`sctpOutCtrlChunks`).
    pub control_chunks_sent: u64,
    /// Chunks received that are neither DATA nor PAD (`sctpInCtrlChunks`).
    pub control_chunks_received: u64,
    /// Ordered DATA chunks sent, each once (`sctpOutOrderChunks`).
    pub ordered_chunks_sent: u64,
    /// Unordered DATA chunks sent, each once (`sctpOutUnorderChunks`).
    pub unordered_chunks_sent: u64,
    /// Ordered DATA chunks received, each once (`sctpInOrderChunks`).
    pub ordered_chunks_received: u64,
    /// Unordered DATA chunks received, each once (`sctpInUnorderChunks`).
    pub unordered_chunks_received: u64,
    /// Messages sent in several DATA chunks (`sctpFragUsrMsgs`).
    pub messages_fragmented: u64,
    /// Messages put together from several DATA chunks (`sctpReasmUsrMsgs`).
    pub messages_reassembled: u64,
}

impl EndpointStatistics {
    /// Adds what an association counted. Packets received are counted before their association is known.
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
