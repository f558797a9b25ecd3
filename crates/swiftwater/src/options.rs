//! What can be set, in one struct.

use std::net::IpAddr;
use std::time::Duration;

pub use sctp::Checksum;

use crate::trace::TraceSink;
use crate::{CongestionControl, Coupling, Multipath};

/// What carries SCTP packets. Both ends of an association need the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// UDP (RFC 6951): the quickest, since kernels segment UDP, and it needs no privilege.
    #[default]
    Udp,
    /// IP itself, protocol 132 (RFC 9260 §3), for peers that speak only that. It needs the capability `CAP_NET_RAW`.
    Raw,
    /// IP itself where that is permitted, otherwise UDP. [`Stack::link`](crate::Stack::link) says which it is,
    /// [`Stack::advice`](crate::Stack::advice) why.
    Auto,
}

/// Settings of a [`Stack`](crate::Stack) and of every association on it.
///
/// Those of an association that its handshake is not about can be changed while it lives:
/// [`Association::set_options`](crate::Association::set_options).
///
/// ```
/// let options = swiftwater::Options { streams_out: 64, ..Default::default() };
/// assert_eq!(options.receive_buffer_bytes, 1 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Outbound streams to ask for (`sinit_num_ostreams`). Default 10.
    pub streams_out: u16,
    /// Most inbound streams to allow (`sinit_max_instreams`). Default 65,535.
    pub streams_in_max: u16,
    /// Send buffer (`SO_SNDBUF`): payload and 64 bytes a message, until acknowledged. Default 1 MiB.
    pub send_buffer_bytes: usize,
    /// How large the send buffer may grow by itself, to hold what is on its way over a fast and long path; 0 leaves it as it
    /// is set. Default 64 MiB.
    pub send_buffer_tuned_bytes: usize,
    /// Receive buffer (`SO_RCVBUF`): the largest window, counted the same way. Default 1 MiB.
    pub receive_buffer_bytes: usize,
    /// How large the receive buffer may grow by itself, to hold what a reader takes in a few round trips; 0 leaves it as it is
    /// set. Default 64 MiB.
    pub receive_buffer_tuned_bytes: usize,
    /// Longest message that a send takes. Default 16 MiB.
    pub message_bytes_max: usize,
    /// A message still arriving is handed on in parts once this much of it waits
    /// (`SCTP_PARTIAL_DELIVERY_POINT`), at most half of the receive buffer. Default 512 KiB.
    pub partial_delivery_bytes: usize,
    /// Congestion control of every path, where it is not coupled. Default CUBIC.
    pub congestion: CongestionControl,
    /// Whether new data leaves on all paths at once (`SCTP_CMT_ON_OFF`). Default: if the peer wants it, too, and is
    /// not on the same host.
    pub multipath: Multipath,
    /// Whether the paths of an association have one congestion control together, in place of `congestion`, so that they take
    /// of a bottleneck that they share about what one would. Default: one each.
    pub coupling: Coupling,
    /// Routers may mark packets instead of dropping them, if the peer agrees (ECN). Default true.
    pub ecn: bool,
    /// The differentiated services codepoint of packets (RFC 2474), 0 to 63. Default 0.
    pub dscp: u8,
    /// The end of a burst is probed after two round trips without an answer, instead of waiting for RTO.Min
    /// (RFC 8985 §7). Default true.
    pub tail_loss_probes: bool,
    /// Most payload in one DATA chunk (`SCTP_MAXSEG`); longer messages are cut. Default: as much as a packet takes.
    pub fragment_bytes_max: Option<usize>,
    /// Most packets that an acknowledgement may set free at once (`SCTP_MAX_BURST`). Default: the pacer sees to that.
    pub burst_packets_max: Option<u32>,
    /// Send every message at once (`SCTP_NODELAY`). Otherwise messages that follow each other within 50 µs
    /// while data is outstanding share packets and system calls. Default false.
    pub nodelay: bool,
    /// How long a call that must wait looks at the sockets before it sleeps, as long as that pays: a dialogue
    /// with a quick peer is then answered without a wake-up, at the price of processor time. Zero always sleeps
    /// at once. Default 50 µs.
    pub busy_poll: Duration,
    /// What carries SCTP packets. Default UDP.
    pub link: LinkKind,
    /// The local UDP port, where UDP carries SCTP. Default (`None`): 9899 for those who listen, any free one for those who connect.
    pub udp_port: Option<u16>,
    /// Local addresses to bind, one socket each. Default: all of the host's.
    ///
    /// The peer is told all of them that mean this host to it, too: no loopback or link-local address beyond the host and
    /// the link, no private IPv4 address where the peer has a public one, unless public ones are among these, too. Each path
    /// leaves from one: the same address on
    /// the same host, otherwise that of the route to the peer's address.
    ///
    /// With [`Stack::with_options`](crate::Stack::with_options) they restrict what is opened through it to some of the
    /// stack's addresses: the peer is told these alone, what leaves comes from these, and what comes to another is not for
    /// it. So several listeners may share a port. `0.0.0.0` and `::` then stand for all of their family.
    pub local_addresses: Vec<IpAddr>,
    /// Bind each socket to the interface that has its address: what leaves from the address leaves there, whatever the
    /// routes say. One that is taken out and put in again is found when something leaves there, if the program has
    /// CAP_NET_RAW by then. Default false.
    pub bind_interfaces: bool,
    /// Packets from this stack to itself stay in memory: they pass no interface, so that captures and packet filters do not
    /// see them. Without effect where `bind_interfaces` is set. Default false.
    pub hairpin: bool,
    /// The largest IP packet to send, such as 1500; the interface's MTU where that is smaller. Default: the interface's.
    pub mtu_bytes: Option<usize>,
    /// Find out by probes what the whole way to a peer takes, up to that (RFC 8899; `SPP_PMTUD_ENABLE`). Without it packets
    /// have that size, as `spp_pathmtu` wants it, and routers may cut them. Default true.
    pub path_mtu_discovery: bool,
    /// Packet protection. Default CRC32C; anything else is for measurements on loopback.
    pub checksum: Checksum,
    /// RTO.Initial. Default 1 s.
    pub rto_initial: Duration,
    /// RTO.Min. Default 1 s.
    pub rto_min: Duration,
    /// RTO.Max. Default 60 s.
    pub rto_max: Duration,
    /// HB.interval; `None` sends no heartbeats. They find out which paths live, and keep the mappings of NATs alive. Default
    /// 30 s.
    pub heartbeat_interval: Option<Duration>,
    /// Delay of a SACK that waits for more packets. Default 200 ms.
    pub sack_delay: Duration,
    /// After how many packets with data a SACK leaves at once (`sack_freq` of `SCTP_DELAYED_SACK`). Default 2.
    pub sack_frequency: u32,
    /// Max.Init.Retransmits. Default 8.
    pub init_retries_max: u32,
    /// Association.Max.Retrans. Default 10.
    pub association_retries_max: u32,
    /// Path.Max.Retrans. Default 5.
    pub path_retries_max: u32,
    /// PotentiallyFailed.Max.Retrans (RFC 7829). Default 0: the first timeout makes data go to other paths, if there are some.
    pub potentially_failed_retries_max: u32,
    /// Whether data leaves a path that has fallen silent for longer than a round trip takes, while another path is active.
    /// Default on.
    pub path_suspicion: bool,
    /// Valid.Cookie.Life. Default 60 s.
    pub cookie_life: Duration,
    /// An association on which no data has passed for so long is shut down (`SCTP_AUTOCLOSE`). Default: never.
    pub autoclose: Option<Duration>,
    /// Associations that may wait to be accepted. Default 128.
    pub backlog: u32,
    /// Most associations that a listener or a one-to-many endpoint may have at a time, those included that wait; one more is
    /// refused with ABORT. Default 65,536.
    pub listener_associations_max: usize,
    /// Most associations that each listener of the stack may have at a time with peers of one source prefix, the first 24 bits
    /// of an IPv4 address or 56 of an IPv6 address; one more is refused with ABORT. Peers on this host do not count. Default
    /// 16,384.
    pub prefix_associations_max: usize,
    /// What the peer is told of the layer above, whose meaning is that layer's (`SCTP_ADAPTATION_LAYER`, RFC 5061 §4.2.6). Default
    /// 0, which says nothing.
    pub adaptation_indication: u32,
    /// Whether peers are refused while so many wait, as by the sockets of Linux. Default: they wait, and try again.
    pub refuse_beyond_backlog: bool,
    /// Whether [`Association::next`](crate::Association::next) gives the events of an association in their place among its
    /// messages, and [`Endpoint::recv`](crate::Endpoint::recv) all of them: see [`Event`](crate::Event). Default false, at
    /// no cost.
    pub events: bool,
    /// Whether [`Event::SenderDry`](crate::Event::SenderDry) is among them; a dialogue has one for each message. Default true.
    pub sender_dry_events: bool,
    /// Where to tell what every association does; see [`crate::trace`]. Default: nowhere, at no cost.
    pub trace: Option<TraceSink>,
}

impl Default for Options {
    fn default() -> Self {
        let association = sctp::AssociationConfig::default();
        Options {
            streams_out: association.streams_out,
            streams_in_max: association.streams_in_max,
            send_buffer_bytes: association.send_buffer_bytes,
            send_buffer_tuned_bytes: association.send_buffer_tuned_bytes,
            receive_buffer_bytes: association.receive_buffer_bytes,
            receive_buffer_tuned_bytes: association.receive_buffer_tuned_bytes,
            message_bytes_max: association.message_bytes_max,
            partial_delivery_bytes: association.partial_delivery_bytes,
            congestion: association.congestion,
            multipath: association.multipath,
            coupling: association.coupling,
            ecn: association.ecn,
            dscp: association.dscp,
            tail_loss_probes: association.tail_loss_probes,
            fragment_bytes_max: association.fragment_bytes_max,
            burst_packets_max: association.burst_packets_max,
            nodelay: association.nodelay,
            busy_poll: Duration::from_micros(50),
            link: LinkKind::Udp,
            udp_port: None,
            local_addresses: Vec::new(),
            bind_interfaces: false,
            hairpin: false,
            mtu_bytes: None,
            path_mtu_discovery: association.path_mtu_discovery,
            checksum: Checksum::Crc32c,
            rto_initial: association.rto.initial,
            rto_min: association.rto.min,
            rto_max: association.rto.max,
            heartbeat_interval: association.heartbeat_interval,
            sack_delay: association.sack_delay,
            sack_frequency: association.sack_frequency,
            init_retries_max: association.init_retries_max,
            association_retries_max: association.association_retries_max,
            path_retries_max: association.path_retries_max,
            potentially_failed_retries_max: association.potentially_failed_retries_max,
            path_suspicion: association.path_suspicion,
            cookie_life: association.cookie_life,
            autoclose: association.autoclose,
            backlog: 128,
            adaptation_indication: 0,
            listener_associations_max: association.listener_associations_max,
            prefix_associations_max: sctp::EndpointConfig::default().prefix_associations_max,
            refuse_beyond_backlog: false,
            events: false,
            sender_dry_events: true,
            trace: None,
        }
    }
}

impl Options {
    /// What a part of the sockets is used with: their addresses are those of the stack.
    pub(crate) fn restricted_config(&self) -> sctp::AssociationConfig {
        let local_addresses = self.local_addresses.clone();
        sctp::AssociationConfig { local_addresses, ..self.association_config() }
    }

    pub(crate) fn association_config(&self) -> sctp::AssociationConfig {
        sctp::AssociationConfig {
            streams_out: self.streams_out.max(1),
            streams_in_max: self.streams_in_max.max(1),
            send_buffer_bytes: self.send_buffer_bytes.max(1),
            receive_buffer_bytes: self.receive_buffer_bytes.max(sctp::config::RECEIVE_WINDOW_BYTES_MIN),
            send_buffer_tuned_bytes: self.send_buffer_tuned_bytes,
            receive_buffer_tuned_bytes: self.receive_buffer_tuned_bytes,
            message_bytes_max: self.message_bytes_max,
            partial_delivery_bytes: self.partial_delivery_bytes.max(1),
            fragment_bytes_max: self.fragment_bytes_max.map(|bytes| bytes.max(1)),
            nodelay: self.nodelay,
            congestion: self.congestion,
            multipath: self.multipath,
            burst_packets_max: self.burst_packets_max,
            coupling: self.coupling,
            ecn: self.ecn,
            dscp: self.dscp.min(sctp::config::DSCP_MAX),
            path_mtu_discovery: self.path_mtu_discovery,
            tail_loss_probes: self.tail_loss_probes,
            rto: sctp::config::RtoConfig {
                initial: self.rto_initial,
                min: self.rto_min,
                max: self.rto_max.max(self.rto_min),
            },
            heartbeat_interval: self.heartbeat_interval,
            sack_delay: self.sack_delay,
            sack_frequency: self.sack_frequency.max(1),
            init_retries_max: self.init_retries_max,
            association_retries_max: self.association_retries_max,
            path_retries_max: self.path_retries_max,
            potentially_failed_retries_max: self.potentially_failed_retries_max,
            path_suspicion: self.path_suspicion,
            cookie_life: self.cookie_life,
            autoclose: self.autoclose,
            adaptation_indication: self.adaptation_indication,
            events: self.events,
            sender_dry_events: self.sender_dry_events,
            refuse_beyond_backlog: self.refuse_beyond_backlog,
            listener_associations_max: self.listener_associations_max,
            trace: self.trace.is_some(),
            ..sctp::AssociationConfig::default()
        }
    }
}
