//! Configuration, as plain structs with documented defaults.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::congestion::{Algorithm, Coupling};
use crate::error::UnknownName;
use crate::receive_pool::ReceivePool;

pub use crate::receive_buffer::{OVERHEAD_FREE_BYTES, RECEIVED_OVERHEAD_BYTES};

/// How packets are protected against corruption.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// CRC32C in every packet, checked on receipt (RFC 9260 §6.8).
    #[default]
    Crc32c,
    /// No checksum: zero is sent, nothing is checked. For measurements on loopback only, never for networks.
    None,
}

/// Retransmission timeout limits (RFC 9260 §16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtoConfig {
    /// RTO.Initial, 1 s.
    pub initial: Duration,
    /// RTO.Min, 1 s.
    pub min: Duration,
    /// RTO.Max, 60 s.
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

/// Whether new data leaves on all paths at once (SCTP_CMT_ON_OFF). RFC 9260 §6.4 has it on the primary path alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Multipath {
    /// On the primary path alone.
    Off,
    /// On all paths if the peer says in the handshake that it wants that, too, as every Swiftwater endpoint with this
    /// setting does, and if a path leaves this host: on one host all share the processor, and one carries as much alone.
    #[default]
    Agreed,
    /// On all paths, whatever the peer says. One that does not know of it acknowledges more often than it need, and what
    /// comes in another order may cost it more.
    Always,
}

impl Multipath {
    /// All of them.
    pub const ALL: [Multipath; 3] = [Multipath::Off, Multipath::Agreed, Multipath::Always];

    /// Returns the name that [`FromStr`] parses.
    pub fn name(self) -> &'static str {
        match self {
            Multipath::Off => "off",
            Multipath::Agreed => "agreed",
            Multipath::Always => "always",
        }
    }
}

impl fmt::Display for Multipath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Multipath {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let found = Multipath::ALL.into_iter().find(|m| m.name() == name);
        found.ok_or(UnknownName("no such use of several paths: choose off, agreed or always"))
    }
}

/// Settings of one association. Those that the handshake is about hold from then on; the others can be changed with
/// [`Endpoint::set_config`](crate::Endpoint::set_config).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociationConfig {
    /// Which of the endpoint's addresses it uses: it lists these, sends from these, and what comes to others is not for it. An
    /// unspecified one stands for all of its family. None: all.
    pub local_addresses: Vec<IpAddr>,
    /// Outbound streams to ask for (sinit_num_ostreams), 10.
    pub streams_out: u16,
    /// Most inbound streams to allow (sinit_max_instreams), 65,535. Unused streams cost nothing.
    pub streams_in_max: u16,
    /// Send buffer (SO_SNDBUF): payload plus [`MESSAGE_OVERHEAD_BYTES`] a message, from the call until it is acknowledged; 1 MiB.
    pub send_buffer_bytes: usize,
    /// How large the send buffer may grow by itself, to hold two congestion windows; at or below `send_buffer_bytes` it
    /// stays as it is. 64 MiB.
    pub send_buffer_tuned_bytes: usize,
    /// Receive buffer (SO_RCVBUF): the largest advertised window. Payload takes room in it until it is read, and beyond
    /// [`OVERHEAD_FREE_BYTES`] the [`RECEIVED_OVERHEAD_BYTES`] of each message do, too, or those of a [run](crate::ReceivedRun);
    /// 1 MiB.
    pub receive_buffer_bytes: usize,
    /// How large the receive buffer may grow by itself, to hold what the reader takes in a few round trips; at or below
    /// `receive_buffer_bytes` it stays as it is. 64 MiB.
    pub receive_buffer_tuned_bytes: usize,
    /// Memory for received data that this association shares with others, which bounds what all of them hold. It cannot be changed.
    /// `None`: the receive buffer alone bounds the association.
    pub receive_pool: Option<ReceivePool>,
    /// Longest message that `send` takes, 16 MiB.
    pub message_bytes_max: usize,
    /// A message that is still arriving is handed on in parts once this much of it waits (SCTP_PARTIAL_DELIVERY_POINT);
    /// at most half of the receive buffer counts. Its further parts are an eighth of that. 512 KiB.
    pub partial_delivery_bytes: usize,
    /// Most payload in one DATA chunk (SCTP_MAXSEG); longer messages are cut. `None`: as much as a packet takes.
    pub fragment_bytes_max: Option<usize>,
    /// Whether every message leaves at once (SCTP_NODELAY), however little it is and whatever is outstanding. No.
    pub nodelay: bool,
    /// Congestion control of every path, where it is not coupled.
    pub congestion: Algorithm,
    /// Whether the paths have one congestion control together, in place of `congestion`. `None`: one each.
    pub coupling: Coupling,
    /// Whether new data leaves on all paths at once.
    pub multipath: Multipath,
    /// Most packets that an acknowledgement may set free at once (Max.Burst, RFC 9260 §6.1 D; SCTP_MAX_BURST). `None`: the
    /// pacer sees to that.
    pub burst_packets_max: Option<u32>,
    /// Whether the longest packet that each path takes is found out by probes (RFC 8899; SPP_PMTUD_ENABLE). Otherwise packets
    /// are as long as `path_mtu_bytes` says, and routers may cut them. On.
    pub path_mtu_discovery: bool,
    /// The longest IP packet, with the headers of IP and UDP, where `path_mtu_discovery` is off (`spp_pathmtu`); 512 bytes at
    /// least. `None`: what the link takes.
    pub path_mtu_bytes: Option<usize>,
    /// Retransmission timeout limits.
    pub rto: RtoConfig,
    /// Whether packets may be marked by congested routers instead of being dropped (draft-stewart-tsvwg-sctpecn), if the
    /// peer can, too. On.
    pub ecn: bool,
    /// The differentiated services codepoint of packets, 0 to 63 (RFC 2474; the upper six bits of spp_dscp). Default: 0.
    pub dscp: u8,
    /// Whether the peer may tell us what it keeps for good, so that the send buffer is free before everything earlier has
    /// arrived (NR-SACK, draft-natarajan-tsvwg-sctp-nrsack), and hears the same of us if it wants. On.
    pub nr_sack: bool,
    /// Whether a part of a message is handed over as soon as its sender has no more of it for now, if the peer is one of ours and
    /// says by the I bit that this is so. On.
    pub prompt_parts: bool,
    /// Whether the end of a burst is probed after two round trips without an answer (RFC 8985 §7); otherwise it waits for
    /// T3, which takes a second at least. On.
    pub tail_loss_probes: bool,
    /// HB.interval, 30 s; `None` sends no heartbeats on confirmed paths.
    pub heartbeat_interval: Option<Duration>,
    /// Most unconfirmed paths that are probed in one RTO (HB.Max.Burst), 1.
    pub heartbeat_burst_max: u32,
    /// Delay of a SACK that waits for more packets (SACK.Delay), 200 ms.
    pub sack_delay: Duration,
    /// After how many packets with data a SACK leaves at once (sack_freq of SCTP_DELAYED_SACK), 2.
    pub sack_frequency: u32,
    /// Max.Init.Retransmits, 8.
    pub init_retries_max: u32,
    /// Association.Max.Retrans, 10.
    pub association_retries_max: u32,
    /// Path.Max.Retrans, 5.
    pub path_retries_max: u32,
    /// PotentiallyFailed.Max.Retrans (RFC 7829), 0: the first timeout makes data go to other paths, if there are some.
    /// From `path_retries_max` on there is no such state.
    pub potentially_failed_retries_max: u32,
    /// Whether data leaves a path that has fallen silent for longer than a round trip takes, while another path is active,
    /// and whether heartbeats ask a silent path that has no other beside it; otherwise data waits for T3. On.
    pub path_suspicion: bool,
    /// Valid.Cookie.Life, 60 s.
    pub cookie_life: Duration,
    /// An association on which no data has passed for so long is shut down (SCTP_AUTOCLOSE). `None`: never.
    pub autoclose: Option<Duration>,
    /// Adaptation layer indication for the peer (RFC 5061 §4.2.6; SCTP_ADAPTATION_LAYER). Default: 0, which sends none.
    pub adaptation_indication: u32,
    /// Whether the user hears of what it need not act upon, too: paths, messages that were not delivered, a send buffer that
    /// has run empty (RFC 6458 §6.1). No.
    pub events: bool,
    /// Whether a send buffer that has run empty is among them. In a dialogue that is one for each message. Yes.
    pub sender_dry_events: bool,
    /// Of a listener that takes no more associations ([`Host::takes_association`](crate::Host::takes_association)): whether it
    /// refuses who asks for one (RFC 9260 §5.1). Otherwise the last step is put off until it does.
    pub refuse_beyond_backlog: bool,
    /// Of a listener: most associations that it may have at a time, waiting or accepted; one more is refused with ABORT.
    /// 65,536.
    pub listener_associations_max: usize,
    /// Of a listener: others that set this may have the same addresses on the same port. New associations are spread over them
    /// by the peer's address and port, as with `SO_REUSEPORT`.
    pub shares_port: bool,
    /// Whether to record what the association does, for [`Endpoint::poll_trace`](crate::Endpoint::poll_trace); no.
    pub trace: bool,
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
            message_bytes_max: 16 << 20,
            partial_delivery_bytes: 512 << 10,
            fragment_bytes_max: None,
            nodelay: false,
            congestion: Algorithm::default(),
            coupling: Coupling::default(),
            multipath: Multipath::default(),
            burst_packets_max: None,
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
            path_suspicion: true,
            cookie_life: Duration::from_secs(60),
            autoclose: None,
            adaptation_indication: 0,
            events: false,
            sender_dry_events: true,
            refuse_beyond_backlog: false,
            listener_associations_max: 65_536,
            shares_port: false,
            trace: false,
        }
    }
}

/// Changes to one path of an association, or to all of them (SCTP_PEER_ADDR_PARAMS). `None` leaves a setting unchanged.
///
/// ```
/// let quiet = sctp::PathOptions { heartbeats: Some(false), ..Default::default() };
/// assert_eq!(quiet.retries_max, None, "and stays as it is");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// Whether it is probed while it is idle (SPP_HB_ENABLE, SPP_HB_DISABLE).
    pub heartbeats: Option<bool>,
    /// HB.interval (spp_hbinterval).
    pub heartbeat_interval: Option<Duration>,
    /// Probe it now (SPP_HB_DEMAND).
    pub heartbeat_now: bool,
    /// Path.Max.Retrans (spp_pathmaxrxt).
    pub retries_max: Option<u32>,
    /// PotentiallyFailed.Max.Retrans (spt_pathpfthld).
    pub potentially_failed_retries_max: Option<u32>,
    /// Whether the longest packet that it takes is found out by probes (SPP_PMTUD_ENABLE, SPP_PMTUD_DISABLE).
    pub mtu_discovery: Option<bool>,
    /// The longest IP packet, with the headers of IP and UDP, where it is not found out (spp_pathmtu). Less than 512 bytes count
    /// as 512, and more than the link takes as what it takes.
    pub ip_mtu_bytes: Option<usize>,
    /// Delay of a SACK for what comes on this path and waits for more (spp_sackdelay).
    pub sack_delay: Option<Duration>,
    /// The peer's UDP encapsulation port there (SCTP_REMOTE_UDP_ENCAPS_PORT), until its packets come from another (RFC 6951 §5.4).
    pub udp_port: Option<u16>,
    /// The codepoint of packets that leave there, whatever the association has (spp_dscp).
    pub dscp: Option<u8>,
}

/// Settings of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Packet protection; both ends must agree.
    pub checksum: Checksum,
    /// Low bits of every verification tag that we hand out name this shard; the number of bits is
    /// [`EndpointConfig::shard_bits`].
    pub shard: u32,
    /// How many low bits of the tag name the shard, 0 to 8.
    pub shard_bits: u32,
    /// Other programs receive packets for the same addresses, as with raw IP: what comes out of the blue for a port that
    /// nobody here listens on may be theirs, and is not answered with ABORT. Default false.
    pub shares_host: bool,
    /// Most associations that each listener may have at a time with peers of one source prefix (the first 24 bits of an IPv4
    /// address, 56 of an IPv6 address); one more is refused with ABORT. Peers on this host do not count. Default 16,384.
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
/// HB.interval (RFC 9260 §16).
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Overhead of a message in a send buffer beyond its payload, so that a million one-byte messages are not free.
pub const MESSAGE_OVERHEAD_BYTES: usize = 64;
/// Smallest receive window that RFC 9260 §3.3.2 allows to advertise in an INIT.
pub const RECEIVE_WINDOW_BYTES_MIN: usize = 1500;
/// Most separate gaps that the receiver keeps; a chunk that would open another is dropped and comes again.
pub const GAP_RANGES_MAX: usize = 4096;
/// Most duplicate TSNs reported in one SACK.
pub const DUPLICATES_MAX: usize = 32;
/// Most control chunks waiting to be sent by one association.
pub const CONTROL_CHUNKS_MAX: usize = 16;
/// Most replies without an association that wait to be sent.
pub const REPLIES_MAX: usize = 256;
/// Most addresses of a peer that are kept from an INIT or INIT ACK.
pub const PEER_ADDRESSES_MAX: usize = 16;
/// Longest state cookie that is echoed.
pub const COOKIE_BYTES_MAX: usize = 8192;
/// Most that the life of a cookie is lengthened because the peer asks for it (RFC 9260 §5.2.6).
pub const COOKIE_INCREMENT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_multipath_is_understood_and_named_in_the_advice() {
        let error = "on".parse::<Multipath>().expect_err("it does not say toward whom");
        for multipath in Multipath::ALL {
            assert_eq!(multipath.to_string().parse(), Ok(multipath));
            assert!(error.to_string().contains(multipath.name()));
        }
    }
}
