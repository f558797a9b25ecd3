//! Configuration of endpoints and associations: plain structs whose fields document their defaults.

use std::net::IpAddr;
use std::time::Duration;

use crate::congestion::{Algorithm, Coupling};
use crate::error::by_name;
use crate::receive_pool::ReceivePool;
use crate::send_pool::SendPool;
use crate::timeout_pacer::TimeoutPacer;

pub use crate::receive_buffer::{OVERHEAD_FREE_BYTES, RECEIVED_OVERHEAD_BYTES, RESTARTS_BYTES};

/// Protection of packets against corruption.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// CRC32C in every packet, checked on receipt (RFC 9260 §6.8).
    #[default]
    Crc32c,
    /// No checksum: packets contain zero, and received checksums are ignored. For measurements over loopback, never for
    /// networks.
    None,
}

/// Retransmission timeout limits (RFC 9260 §16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtoConfig {
    /// RTO.Initial. Default: 1 s.
    pub initial: Duration,
    /// RTO.Min. Default: 1 s.
    pub min: Duration,
    /// RTO.Max. Default: 60 s.
    pub max: Duration,
}

impl Default for RtoConfig {
    fn default() -> Self {
        RtoConfig {
            initial: Duration::from_secs(1),
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
        }
    }
}

/// Whether new data leaves on all paths at once (`SCTP_CMT_ON_OFF`). RFC 9260 §6.4 uses only the primary path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Multipath {
    /// Use only the primary path.
    Off,
    /// Use all paths if the peer requests this in the handshake, too, and if a path leaves this host. On one host all
    /// paths share the processor, and one path carries as much as several. Every Swiftwater endpoint with this setting
    /// requests it.
    #[default]
    Agreed,
    /// Use all paths, whether or not the peer supports this. A peer without support sends more SACKs than necessary,
    /// and reordering may cost it more.
    Always,
}

impl Multipath {
    /// All values.
    pub const ALL: [Multipath; 3] = [Multipath::Off, Multipath::Agreed, Multipath::Always];

    /// Returns the name that [`FromStr`](std::str::FromStr) parses.
    pub fn name(self) -> &'static str {
        match self {
            Multipath::Off => "off",
            Multipath::Agreed => "agreed",
            Multipath::Always => "always",
        }
    }
}

by_name!(Multipath, "no such use of several paths: choose off, agreed or always");

/// Configuration of an association. Changes of fields marked *fixed* have no effect once the association is up;
/// [`Endpoint::set_config`](crate::Endpoint::set_config) changes all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociationConfig {
    /// Addresses of the endpoint that the association uses: it lists these addresses, sends from them, and accepts
    /// packets to them. An unspecified address stands for all of its family. *Fixed*. Default: empty, which stands for
    /// all addresses.
    pub local_addresses: Vec<IpAddr>,
    /// Number of outbound streams to request (`sinit_num_ostreams`). *Fixed*. Default: 10.
    pub streams_out: u16,
    /// Maximum number of inbound streams (`sinit_max_instreams`). Unused streams cost nothing. *Fixed*. Default:
    /// 65,535.
    pub streams_in_max: u16,
    /// Send buffer (`SO_SNDBUF`): payload and [`MESSAGE_OVERHEAD_BYTES`] for each message, until acknowledged. Default:
    /// 1 MiB.
    pub send_buffer_bytes: usize,
    /// Size up to which the send buffer grows automatically, to hold two congestion windows; a size up to
    /// `send_buffer_bytes` keeps the buffer as it is. Default: 64 MiB.
    pub send_buffer_tuned_bytes: usize,
    /// Receive buffer (`SO_RCVBUF`): the largest advertised window. It holds the payload until the reader takes it.
    /// Beyond [`OVERHEAD_FREE_BYTES`], each message also counts with [`RECEIVED_OVERHEAD_BYTES`], and each
    /// [run](crate::ReceivedRun) with its charges. Default: 1 MiB.
    pub receive_buffer_bytes: usize,
    /// Size up to which the receive buffer grows automatically, to hold what the reader takes in a few round trips; a
    /// size up to `receive_buffer_bytes` keeps the buffer as it is. Default: 64 MiB.
    pub receive_buffer_tuned_bytes: usize,
    /// Memory for received data that this association shares with others; the pool bounds all of them together.
    /// *Fixed*. Default: `None`, so that only the receive buffer bounds the association.
    pub receive_pool: Option<ReceivePool>,
    /// Memory for messages to send that this association shares with others: it bounds how far each of them may fill its send
    /// buffer. *Fixed*. Default: `None`, so that only the send buffer bounds the association.
    pub send_pool: Option<SendPool>,
    /// Paces the retransmission timers, heartbeats and window probes of this association together with those of others.
    /// *Fixed*. Default: `None`, so that each timer expires at its time.
    pub timeout_pacer: Option<TimeoutPacer>,
    /// Maximum length of a message to send. Default: 16 MiB.
    pub message_bytes_max: usize,
    /// Number of waiting bytes of an incomplete message from which the message is delivered in parts
    /// (`SCTP_PARTIAL_DELIVERY_POINT`), at most half of the receive buffer. Parts after the first are due from an eighth of this
    /// size. Default: 512 KiB.
    pub partial_delivery_bytes: usize,
    /// Maximum payload of one DATA chunk (`SCTP_MAXSEG`); longer messages are fragmented. Default: `None`, as much as
    /// fits a packet.
    pub fragment_bytes_max: Option<usize>,
    /// Whether every message is sent at once, even if it is short and data is outstanding (`SCTP_NODELAY`). Default:
    /// false.
    pub nodelay: bool,
    /// Congestion control of each path, unless it is coupled. *Fixed*. Default: CUBIC.
    pub congestion: Algorithm,
    /// Congestion control that the paths share, instead of `congestion`. *Fixed*. Default: one for each path.
    pub coupling: Coupling,
    /// Whether new data leaves on all paths at once. *Fixed*. Default: if the peer agrees.
    pub multipath: Multipath,
    /// Maximum number of packets that one acknowledgement may release at once (Max.Burst, RFC 9260 §6.1 D;
    /// `SCTP_MAX_BURST`). Default: `None`, so that only the pacer limits bursts.
    pub burst_packets_max: Option<u32>,
    /// Number of full packets that a path may have in flight before its first acknowledgement, 1 to
    /// [`INITIAL_WINDOW_PACKETS_MAX`]; other numbers count as the nearest of these. TCP and QUIC begin with 10 (RFC 6928,
    /// RFC 9002). *Fixed*. Default: `None`, the 4404 bytes of RFC 9260 §7.2.1.
    pub initial_window_packets: Option<u32>,
    /// Whether probes find the maximum packet length of each path (RFC 8899; `SPP_PMTUD_ENABLE`). Otherwise
    /// `path_mtu_bytes` is the packet length, and routers may fragment packets. Default: true.
    pub path_mtu_discovery: bool,
    /// Maximum length of IP packets, including the headers of IP and UDP, if `path_mtu_discovery` is off
    /// (`spp_pathmtu`); at least 512 bytes. Default: `None`, the maximum of the link.
    pub path_mtu_bytes: Option<usize>,
    /// Limits of the retransmission timeout.
    pub rto: RtoConfig,
    /// Whether congested routers may mark packets instead of dropping them, if the peer supports this
    /// (draft-stewart-tsvwg-sctpecn). *Fixed*. Default: true.
    pub ecn: bool,
    /// Differentiated services codepoint of packets, 0 to 63 (RFC 2474; the upper six bits of `spp_dscp`). Default: 0.
    pub dscp: u8,
    /// Whether the association sends and accepts NR-SACKs, if the peer supports them
    /// (draft-natarajan-tsvwg-sctp-nrsack). An NR-SACK tells the sender which chunks beyond a gap the receiver keeps,
    /// so that the send buffer releases them. *Fixed*. Default: true.
    pub nr_sack: bool,
    /// Whether the available part of a message is delivered as soon as its sender has no more of it for now. Only a
    /// Swiftwater peer reports this, by the I bit. *Fixed*. Default: true.
    pub prompt_parts: bool,
    /// Whether tail loss probes are sent two round trips after the end of an unanswered burst (RFC 8985 §7); otherwise
    /// T3, which takes at least a second, detects its loss. Default: true.
    pub tail_loss_probes: bool,
    /// HB.interval; `None` disables heartbeats on confirmed paths. Default: 30 s.
    pub heartbeat_interval: Option<Duration>,
    /// Maximum number of unconfirmed paths that are probed within one RTO (HB.Max.Burst). Default: 1.
    pub heartbeat_burst_max: u32,
    /// Maximum delay of a SACK (SACK.Delay). Default: 200 ms.
    pub sack_delay: Duration,
    /// Number of packets with data after which a SACK is sent at once (`sack_freq` of `SCTP_DELAYED_SACK`). Default: 2.
    pub sack_frequency: u32,
    /// Max.Init.Retransmits. *Fixed*. Default: 8.
    pub init_retries_max: u32,
    /// Association.Max.Retrans. Default: 10.
    pub association_retries_max: u32,
    /// Path.Max.Retrans. Default: 5.
    pub path_retries_max: u32,
    /// PotentiallyFailed.Max.Retrans (RFC 7829). From `path_retries_max` on, the state does not exist. Default: 0, so
    /// that the first timeout moves data to another path, if there is one.
    pub potentially_failed_retries_max: u32,
    /// Whether data leaves a path that has been silent for longer than a round trip, if another path is active, and
    /// whether heartbeats probe a silent path that is the only one. Otherwise data waits for T3. Default: true.
    pub early_failover: bool,
    /// Valid.Cookie.Life. *Fixed*. Default: 60 s.
    pub cookie_life: Duration,
    /// Time without data after which an association is shut down (`SCTP_AUTOCLOSE`). Default: `None`, never.
    pub autoclose: Option<Duration>,
    /// Adaptation layer indication to send to the peer (RFC 5061 §4.2.6; `SCTP_ADAPTATION_LAYER`). *Fixed*. Default: 0,
    /// which sends none.
    pub adaptation_indication: u32,
    /// Whether the user gets events that require no action: changes of paths, undelivered messages, an empty send
    /// buffer (RFC 6458 §6.1). Default: false.
    pub events: bool,
    /// Whether an empty send buffer is among these events; a dialogue causes one for each message. Default: true.
    pub sender_dry_events: bool,
    /// Whether undelivered messages are among these events. Default: true.
    pub send_failed_events: bool,
    /// For listeners: whether to refuse a peer with ABORT when the listener takes no more associations
    /// ([`Host::takes_association`](crate::Host::takes_association), RFC 9260 §5.1), at its INIT or at its COOKIE ECHO.
    /// Otherwise the COOKIE ECHO stays unanswered until the listener takes one. Default: false.
    pub refuse_beyond_backlog: bool,
    /// For listeners: maximum number of associations, waiting or accepted; further peers are refused with ABORT.
    /// Default: 65,536.
    pub listener_associations_max: usize,
    /// For listeners: whether other listeners with this option may have the same addresses and port. The peer's address
    /// and port select the listener of a new association, as with `SO_REUSEPORT`. Default: false.
    pub shares_port: bool,
    /// For listeners: whether to refuse a peer whose address and SCTP port another peer of the same local port has,
    /// through another UDP port. A user that knows its peers by address would take one of them for the other. Default:
    /// false, so that peers behind one address translator may use the same SCTP port.
    pub distinct_peers: bool,
    /// Whether to record the events of the association for [`Endpoint::poll_trace`](crate::Endpoint::poll_trace).
    /// *Fixed*. Default: false.
    pub trace: bool,
}

impl AssociationConfig {
    /// Returns these options with the *fixed* ones of `in_force`, an association that has begun its handshake.
    pub(crate) fn with_fixed_of(self, in_force: &AssociationConfig) -> Self {
        let fixed = in_force.clone();
        AssociationConfig {
            local_addresses: fixed.local_addresses,
            streams_out: fixed.streams_out,
            streams_in_max: fixed.streams_in_max,
            receive_pool: fixed.receive_pool,
            send_pool: fixed.send_pool,
            timeout_pacer: fixed.timeout_pacer,
            congestion: fixed.congestion,
            coupling: fixed.coupling,
            multipath: fixed.multipath,
            initial_window_packets: fixed.initial_window_packets,
            ecn: fixed.ecn,
            nr_sack: fixed.nr_sack,
            prompt_parts: fixed.prompt_parts,
            init_retries_max: fixed.init_retries_max,
            cookie_life: fixed.cookie_life,
            adaptation_indication: fixed.adaptation_indication,
            trace: fixed.trace,
            ..self
        }
    }
}

impl Default for AssociationConfig {
    fn default() -> Self {
        AssociationConfig {
            local_addresses: Vec::new(),
            streams_out: 10,
            streams_in_max: u16::MAX,
            send_buffer_bytes: 1 << 20,
            send_buffer_tuned_bytes: 64 << 20,
            receive_buffer_bytes: 1 << 20,
            receive_buffer_tuned_bytes: 64 << 20,
            receive_pool: None,
            send_pool: None,
            timeout_pacer: None,
            message_bytes_max: 16 << 20,
            partial_delivery_bytes: 512 << 10,
            fragment_bytes_max: None,
            nodelay: false,
            congestion: Algorithm::default(),
            coupling: Coupling::default(),
            multipath: Multipath::default(),
            burst_packets_max: None,
            initial_window_packets: None,
            path_mtu_discovery: true,
            path_mtu_bytes: None,
            rto: RtoConfig::default(),
            ecn: true,
            dscp: 0,
            nr_sack: true,
            prompt_parts: true,
            tail_loss_probes: true,
            heartbeat_interval: Some(HEARTBEAT_INTERVAL),
            heartbeat_burst_max: 1,
            sack_delay: Duration::from_millis(200),
            sack_frequency: 2,
            init_retries_max: 8,
            association_retries_max: 10,
            path_retries_max: 5,
            potentially_failed_retries_max: 0,
            early_failover: true,
            cookie_life: Duration::from_secs(60),
            autoclose: None,
            adaptation_indication: 0,
            events: false,
            sender_dry_events: true,
            send_failed_events: true,
            refuse_beyond_backlog: false,
            listener_associations_max: 65_536,
            shares_port: false,
            distinct_peers: false,
            trace: false,
        }
    }
}

/// Changes to one path of an association, or to all of them (SCTP_PEER_ADDR_PARAMS). `None` leaves a setting unchanged.
///
/// ```
/// # use sctp::PathOptions;
/// let quiet = PathOptions { heartbeats: Some(false), ..Default::default() };
/// assert_eq!(quiet.retries_max, None, "and stays as it is");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// Whether heartbeats probe the path while it is idle (`SPP_HB_ENABLE`, `SPP_HB_DISABLE`).
    pub heartbeats: Option<bool>,
    /// HB.interval (`spp_hbinterval`).
    pub heartbeat_interval: Option<Duration>,
    /// Send a heartbeat now (`SPP_HB_DEMAND`).
    pub heartbeat_now: bool,
    /// Path.Max.Retrans (`spp_pathmaxrxt`).
    pub retries_max: Option<u32>,
    /// PotentiallyFailed.Max.Retrans (`spt_pathpfthld`).
    pub potentially_failed_retries_max: Option<u32>,
    /// Whether probes find the maximum packet length of the path (`SPP_PMTUD_ENABLE`, `SPP_PMTUD_DISABLE`).
    pub mtu_discovery: Option<bool>,
    /// Maximum length of IP packets, including the headers of IP and UDP, without such probes (`spp_pathmtu`). It is
    /// limited to the range from 512 bytes to the maximum of the link.
    pub ip_mtu_bytes: Option<usize>,
    /// Maximum delay of a SACK for data that arrives on this path (`spp_sackdelay`).
    pub sack_delay: Option<Duration>,
    /// The peer's UDP encapsulation port on this path (`SCTP_REMOTE_UDP_ENCAPS_PORT`), until its packets come from
    /// another port (RFC 6951 §5.4).
    pub udp_port: Option<u16>,
    /// Differentiated services codepoint of packets on this path, instead of that of the association (`spp_dscp`).
    pub dscp: Option<u8>,
}

/// Configuration of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Protection of packets; both ends must use the same.
    pub checksum: Checksum,
    /// Number of this shard, which is in the low [`EndpointConfig::shard_bits`] bits of every verification tag of this
    /// endpoint. Default: 0.
    pub shard: u32,
    /// Number of low bits of a tag that contain the shard, 0 to 8. Default: 0.
    pub shard_bits: u32,
    /// Whether other programs receive packets for the same addresses, as with raw IP. A packet out of the blue for a
    /// port without listener may then belong to them, and is not answered with ABORT. Default: false.
    pub shares_host: bool,
    /// Maximum number of associations of each listener with peers of one source prefix (the first 24 bits of an IPv4
    /// address, 56 of an IPv6 address); further peers are refused with ABORT. Peers on this host count as one prefix,
    /// but those of this endpoint by their [`ReceivePool`], if they have one. Default: 16,384.
    pub prefix_associations_max: usize,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            checksum: Checksum::default(),
            shard: 0,
            shard_bits: 0,
            shares_host: false,
            prefix_associations_max: 16_384,
        }
    }
}

/// The largest differentiated services codepoint.
pub const DSCP_MAX: u8 = 63;

/// Largest number of packets in [`AssociationConfig::initial_window_packets`].
pub const INITIAL_WINDOW_PACKETS_MAX: u32 = 64;
/// HB.interval (RFC 9260 §16).
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Overhead of a message in a send buffer beyond its payload, so that the buffer bounds the number of short messages.
pub const MESSAGE_OVERHEAD_BYTES: usize = 64;
/// Minimum receive window that an INIT may advertise (RFC 9260 §3.3.2).
pub const RECEIVE_WINDOW_BYTES_MIN: usize = 1500;
/// Maximum number of separate gaps that the receiver keeps. A chunk that would open another one is dropped, and the
/// peer retransmits it.
pub const GAP_RANGES_MAX: usize = 4096;
/// Maximum number of duplicate TSNs in one SACK.
pub const DUPLICATES_MAX: usize = 32;
/// Maximum number of control chunks of one association that wait to be sent.
pub const CONTROL_CHUNKS_MAX: usize = 16;
/// Maximum number of replies outside associations that wait to be sent.
pub const REPLIES_MAX: usize = 256;
/// Maximum number of addresses that are kept from an INIT or INIT ACK.
pub const PEER_ADDRESSES_MAX: usize = 16;
/// Memory that an association takes for each further address of its peer, as owners of associations count it.
pub const PATH_BYTES: usize = 1536;
/// Memory of each further local address of an association, for each address of its peer, as owners of associations count it:
/// where several associations have one address of a peer, an index finds them by their local addresses.
pub const OWNER_BYTES: usize = 52;
/// Maximum number of parameters of an INIT or INIT ACK that are looked at. More than 187 addresses, 8 bytes each, do not fit into
/// 1,500 bytes.
pub const PARAMETERS_MAX: usize = 256;
/// Maximum length of a state cookie that is echoed.
pub const COOKIE_BYTES_MAX: usize = 8192;
/// Maximum extension of a cookie's lifetime at the request of the peer (RFC 9260 §5.2.6).
pub const COOKIE_INCREMENT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the part of this file between two texts.
    fn part<'a>(source: &'a str, begin: &str, end: &str) -> &'a str {
        let (_, rest) = source.split_once(begin).expect("the part begins");
        rest.split_once(end).expect("the part ends").0
    }

    #[test]
    fn the_options_documented_as_fixed_stay() {
        let source = include_str!("config.rs");
        let (mut documented, mut doc) = (Vec::new(), String::new());
        for line in part(source, "pub struct AssociationConfig {", "\n}").lines() {
            match line.trim().strip_prefix("pub ").and_then(|field| field.split_once(':')) {
                Some((field, _)) => {
                    if std::mem::take(&mut doc).contains("*Fixed*") {
                        documented.push(field);
                    }
                }
                None => doc.push_str(line),
            }
        }
        let kept = part(source, "let fixed = in_force.clone();", "..self");
        let kept: Vec<&str> =
            kept.lines().filter_map(|line| line.trim().split_once(": fixed.")).map(|f| f.0).collect();
        assert_eq!(kept, documented);
        assert!(kept.len() > 10);
    }

    #[test]
    fn every_name_of_multipath_is_understood_and_named_in_the_advice() {
        let error = "on".parse::<Multipath>().expect_err("it does not say toward whom");
        for multipath in Multipath::ALL {
            assert_eq!(multipath.to_string().parse(), Ok(multipath));
            assert!(error.to_string().contains(multipath.name()));
        }
    }
}
