//! Options of an association.

use std::net::IpAddr;
use std::time::Duration;

use sctp::config::{DSCP_MAX, INITIAL_WINDOW_PACKETS_MAX, RECEIVE_WINDOW_BYTES_MIN, RtoConfig};
use sctp::{AssociationConfig, ReceivePool, SendPool, TimeoutPacer};

use super::ListenerOptions;
use crate::error::OptionsError;
use crate::{CongestionControl, Coupling, Multipath};

/// Options of an association, with the names of RFC 9260 and RFC 6458 beside them.
///
/// These options are given when an association is set up
/// ([`StackOptions::association`](crate::StackOptions::association),
/// [`Stack::with_options`](crate::Stack::with_options)) or for associations that a listener accepts. Most can be
/// changed while the association lives, with [`Association::set_options`](crate::Association::set_options), which
/// refuses changes of options that the handshake has negotiated. The latter are marked *fixed*.
///
/// Each option has a method `with_...` that returns the options with this one set; the fields can be set as well.
///
/// ```
/// # use std::time::Duration;
/// use swiftwater::AssociationOptions;
///
/// let mut options = AssociationOptions::default()
///     .with_streams_out(64)
///     .with_heartbeat_interval(Duration::from_secs(5));
/// options.nodelay = true;
/// assert_eq!(options.receive_buffer_bytes, 1 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssociationOptions {
    /// Number of outbound streams to request (`sinit_num_ostreams`); 0 counts as 1. *Fixed*. Default: 10.
    pub streams_out: u16,
    /// Maximum number of inbound streams (`sinit_max_instreams`); 0 counts as 1. *Fixed*. Default: 65,535.
    pub streams_in_max: u16,
    /// Send buffer (`SO_SNDBUF`) in bytes: payload and 64 bytes for each message, until acknowledged. Default: 1 MiB.
    pub send_buffer_bytes: usize,
    /// Size in bytes up to which the send buffer grows automatically, to hold the data in flight over a fast and long
    /// path; 0 keeps it at `send_buffer_bytes`. Default: 64 MiB.
    pub send_buffer_bytes_max: usize,
    /// Receive buffer (`SO_RCVBUF`) in bytes: the largest receiver window, counted like the send buffer. Default: 1
    /// MiB.
    pub receive_buffer_bytes: usize,
    /// Size in bytes up to which the receive buffer grows automatically, to hold the data that a reader takes in a few
    /// round trips; 0 keeps it at `receive_buffer_bytes`. Default: 64 MiB.
    pub receive_buffer_bytes_max: usize,
    /// Memory for received data that associations share: all associations with copies of one pool together hold at most
    /// the size of the pool until the program receives the data, plus 2,048 bytes each. The receive buffer bounds each
    /// of them, too. *Fixed*. Default: none.
    ///
    /// ```
    /// use swiftwater::{AssociationOptions, ReceivePool, SendPool};
    ///
    /// let options = AssociationOptions::default()
    ///     .with_receive_pool(ReceivePool::with_limit(64 << 20))
    ///     .with_send_pool(SendPool::with_limit(64 << 20));
    /// assert_eq!(options.clone().receive_pool, options.receive_pool, "both share the memory");
    /// ```
    pub receive_pool: Option<ReceivePool>,
    /// Memory for messages to send that associations share: as it fills, each association with a copy of the pool may fill its
    /// send buffer no further than what is free besides a quarter of the pool, and up to 64 KiB. Short messages are charged with
    /// the blocks that they are copied into, others with their length, until they are acknowledged or given up. *Fixed*. Default:
    /// none.
    pub send_pool: Option<SendPool>,
    /// Maximum length of a sent message in bytes; longer messages fail with
    /// [`SendError::TooLong`](crate::SendError::TooLong). Default: 16 MiB.
    pub message_bytes_max: usize,
    /// A message that is still arriving is delivered in parts once this many bytes of it wait
    /// (`SCTP_PARTIAL_DELIVERY_POINT`), at most half of [`receive_buffer_bytes`](AssociationOptions::receive_buffer_bytes),
    /// whatever the buffer grows to. [`RecvInfo::more`](crate::RecvInfo::more) marks each part but the last; those after the
    /// first are at least an eighth of that size. To receive messages of 16 MiB whole, set this to 16 MiB, and
    /// `receive_buffer_bytes` to 32 MiB. Default: 512 KiB.
    pub partial_delivery_bytes: usize,
    /// Congestion control of every path (RFC 9260 §7) unless it is coupled. *Fixed*. Default: CUBIC.
    pub congestion: CongestionControl,
    /// Whether new data leaves on all paths at once (`SCTP_CMT_ON_OFF`). *Fixed*. Default: yes if the peer requests it,
    /// too, and is not on the same host.
    pub multipath: Multipath,
    /// Whether the paths of an association share one congestion control, instead of `congestion`, so that together they
    /// take about as much of a shared bottleneck as one path would. *Fixed*. Default: one for each path.
    pub coupling: Coupling,
    /// Whether routers may mark packets instead of dropping them, if the peer agrees (ECN, RFC 9260 Appendix A). *Fixed*.
    /// Default: true.
    pub ecn: bool,
    /// The differentiated services codepoint of packets (RFC 2474), 0 to 63. Default: 0.
    pub dscp: u8,
    /// Whether the end of a burst is probed after two round trips without an answer, instead of waiting for RTO.Min
    /// (RFC 8985 §7). Default: true.
    pub tail_loss_probes: bool,
    /// Maximum payload in bytes of one DATA chunk (`SCTP_MAXSEG`); longer messages are fragmented. Default: as much as
    /// fits a packet.
    pub fragment_bytes_max: Option<usize>,
    /// Maximum number of packets that one SACK may release at once (Max.Burst, RFC 9260 §6.1; `SCTP_MAX_BURST`).
    /// Default: no limit but that of the pacer.
    pub burst_packets_max: Option<u32>,
    /// Number of full packets that each path may have in flight before its first acknowledgement, 1 to
    /// [`INITIAL_WINDOW_PACKETS_MAX`]; other numbers count as the nearest of these. TCP and QUIC begin with 10 (RFC 6928,
    /// RFC 9002), which RFC 9260 does not allow: use it where the lines are known. *Fixed*. Default: 4404 bytes, about
    /// three packets (RFC 9260 §7.2.1).
    pub initial_window_packets: Option<u32>,
    /// Send every message at once (`SCTP_NODELAY`). Otherwise messages within 50 µs share packets and system calls
    /// while data is outstanding. Default: false.
    pub nodelay: bool,
    /// Whether probes find the largest packet for each path, up to the MTU of the interface (RFC 8899;
    /// `SPP_PMTUD_ENABLE`). Otherwise `path_mtu_bytes` is the limit, and routers may fragment packets. Default: true.
    pub path_mtu_discovery: bool,
    /// The longest IP packet, including the headers of IP and UDP, if `path_mtu_discovery` is off (`spp_pathmtu`); 512
    /// bytes at least. Default: the MTU of the interface.
    pub path_mtu_bytes: Option<usize>,
    /// RTO.Initial (RFC 9260 §16; `srto_initial`). Default: 1 s.
    pub rto_initial: Duration,
    /// RTO.Min (`srto_min`). Default: 1 s.
    pub rto_min: Duration,
    /// RTO.Max (`srto_max`). Default: 60 s.
    pub rto_max: Duration,
    /// HB.interval (`spp_hbinterval`); `None` disables HEARTBEATs. HEARTBEATs detect which paths work, and keep the
    /// mappings of NATs alive. Default: 30 s.
    pub heartbeat_interval: Option<Duration>,
    /// Delay of a SACK that waits for more packets (RFC 9260 §6.2; `sack_delay` of `SCTP_DELAYED_SACK`). Default: 200 ms.
    pub sack_delay: Duration,
    /// Number of packets with DATA after which a SACK leaves at once (`sack_freq` of `SCTP_DELAYED_SACK`). Default: 2.
    pub sack_frequency: u32,
    /// Max.Init.Retransmits (`sinit_max_attempts`). *Fixed*. Default: 8.
    pub init_retries_max: u32,
    /// Association.Max.Retrans (`sasoc_asocmaxrxt`). Default: 10.
    pub association_retries_max: u32,
    /// Path.Max.Retrans (`spp_pathmaxrxt`). Default: 5.
    pub path_retries_max: u32,
    /// PotentiallyFailed.Max.Retrans (RFC 7829 §3; `spt_pathpfthld`). Default: 0: the first timeout moves data to
    /// another path, if there is one.
    pub potentially_failed_retries_max: u32,
    /// Whether data leaves a path that has been silent for longer than a round trip, while another path is active,
    /// before T3-rtx expires; and whether heartbeats probe a silent path that has no alternative. Default: true.
    pub early_failover: bool,
    /// Valid.Cookie.Life of the cookies that a listener sends (`sasoc_cookie_life`). *Fixed*. Default: 60 s.
    pub cookie_life: Duration,
    /// Shuts down an association on which no data has passed for this time (`SCTP_AUTOCLOSE`). Default: never.
    pub autoclose: Option<Duration>,
    /// Adaptation code point to send to the peer (`SCTP_ADAPTATION_LAYER`, RFC 5061 §4.2.6). *Fixed*. Default: 0, which
    /// sends none.
    pub adaptation_indication: u32,
    /// Whether [`Association::recv_any`](crate::Association::recv_any) returns the events of an association in order with its
    /// messages, and [`Endpoint::recv`](crate::Endpoint::recv) all kinds of events: see [`Event`](crate::Event).
    /// Default: false, at no cost.
    pub events: bool,
    /// Whether [`Event::SenderDry`](crate::Event::SenderDry) is among the events (`SCTP_SENDER_DRY_EVENT`); a dialogue
    /// has one for each message. Default: true.
    pub sender_dry_events: bool,
    /// Whether [`Event::SendFailed`](crate::Event::SendFailed) is among the events (`SCTP_SEND_FAILED_EVENT`). Default: true.
    pub send_failed_events: bool,
    /// Paces the retransmission timers, heartbeats and window probes of all associations with a copy: together they have so
    /// many in a time, and further ones wait, a second at most. *Fixed*. Only the daemon sets it. Default: none.
    pub(crate) timeout_pacer: Option<TimeoutPacer>,
}

impl Default for AssociationOptions {
    fn default() -> Self {
        AssociationOptions::of(&AssociationConfig::default())
    }
}

setters! {
    AssociationOptions:
    with_streams_out(streams_out: u16),
    with_streams_in_max(streams_in_max: u16),
    with_send_buffer_bytes(send_buffer_bytes: usize),
    with_send_buffer_bytes_max(send_buffer_bytes_max: usize),
    with_receive_buffer_bytes(receive_buffer_bytes: usize),
    with_receive_buffer_bytes_max(receive_buffer_bytes_max: usize),
    with_receive_pool(receive_pool: impl Into<Option<ReceivePool>>),
    with_send_pool(send_pool: impl Into<Option<SendPool>>),
    with_message_bytes_max(message_bytes_max: usize),
    with_partial_delivery_bytes(partial_delivery_bytes: usize),
    with_congestion(congestion: CongestionControl),
    with_multipath(multipath: Multipath),
    with_coupling(coupling: Coupling),
    with_ecn(ecn: bool),
    with_dscp(dscp: u8),
    with_tail_loss_probes(tail_loss_probes: bool),
    with_fragment_bytes_max(fragment_bytes_max: impl Into<Option<usize>>),
    with_burst_packets_max(burst_packets_max: impl Into<Option<u32>>),
    with_initial_window_packets(initial_window_packets: impl Into<Option<u32>>),
    with_nodelay(nodelay: bool),
    with_path_mtu_discovery(path_mtu_discovery: bool),
    with_path_mtu_bytes(path_mtu_bytes: impl Into<Option<usize>>),
    with_rto_initial(rto_initial: Duration),
    with_rto_min(rto_min: Duration),
    with_rto_max(rto_max: Duration),
    with_heartbeat_interval(heartbeat_interval: impl Into<Option<Duration>>),
    with_sack_delay(sack_delay: Duration),
    with_sack_frequency(sack_frequency: u32),
    with_init_retries_max(init_retries_max: u32),
    with_association_retries_max(association_retries_max: u32),
    with_path_retries_max(path_retries_max: u32),
    with_potentially_failed_retries_max(potentially_failed_retries_max: u32),
    with_early_failover(early_failover: bool),
    with_cookie_life(cookie_life: Duration),
    with_autoclose(autoclose: impl Into<Option<Duration>>),
    with_adaptation_indication(adaptation_indication: u32),
    with_events(events: bool),
    with_sender_dry_events(sender_dry_events: bool),
    with_send_failed_events(send_failed_events: bool),
}

impl AssociationOptions {
    /// Returns these options with the *fixed* ones of `other`. If `other` are the options of an association,
    /// [`Association::set_options`](crate::Association::set_options) accepts the result.
    ///
    /// ```
    /// # use swiftwater::AssociationOptions;
    /// let profile = AssociationOptions::default().with_streams_out(64).with_nodelay(true);
    /// let current = AssociationOptions::default();
    /// let wanted = profile.with_fixed_of(&current);
    /// assert_eq!((wanted.streams_out, wanted.nodelay), (10, true));
    /// ```
    #[must_use]
    pub fn with_fixed_of(self, other: &AssociationOptions) -> AssociationOptions {
        AssociationOptions {
            streams_out: other.streams_out,
            streams_in_max: other.streams_in_max,
            congestion: other.congestion,
            multipath: other.multipath,
            initial_window_packets: other.initial_window_packets,
            coupling: other.coupling,
            ecn: other.ecn,
            init_retries_max: other.init_retries_max,
            receive_pool: other.receive_pool.clone(),
            send_pool: other.send_pool.clone(),
            timeout_pacer: other.timeout_pacer.clone(),
            cookie_life: other.cookie_life,
            adaptation_indication: other.adaptation_indication,
            ..self
        }
    }

    /// Returns an error that names the first *fixed* option in which these options differ from `current`.
    pub(crate) fn check_fixed(&self, current: &AssociationOptions) -> Result<(), OptionsError> {
        let same = [
            ("streams_out", self.streams_out.max(1) == current.streams_out),
            ("streams_in_max", self.streams_in_max.max(1) == current.streams_in_max),
            ("congestion", self.congestion == current.congestion),
            ("multipath", self.multipath == current.multipath),
            ("initial_window_packets", self.initial_window() == current.initial_window_packets),
            ("coupling", self.coupling == current.coupling),
            ("ecn", self.ecn == current.ecn),
            ("init_retries_max", self.init_retries_max == current.init_retries_max),
            ("receive_pool", self.receive_pool == current.receive_pool),
            ("send_pool", self.send_pool == current.send_pool),
            ("timeout_pacer", self.timeout_pacer == current.timeout_pacer),
            ("cookie_life", self.cookie_life == current.cookie_life),
            ("adaptation_indication", self.adaptation_indication == current.adaptation_indication),
        ];
        match same.into_iter().find(|(_, is_same)| !is_same) {
            Some((option, _)) => Err(OptionsError::Fixed { option }),
            None => Ok(()),
        }
    }

    /// Returns the packets of the initial window that are in force.
    fn initial_window(&self) -> Option<u32> {
        self.initial_window_packets.map(|packets| packets.clamp(1, INITIAL_WINDOW_PACKETS_MAX))
    }

    /// Returns the options that correspond to the core's configuration.
    pub(crate) fn of(config: &AssociationConfig) -> Self {
        AssociationOptions {
            streams_out: config.streams_out,
            streams_in_max: config.streams_in_max,
            send_buffer_bytes: config.send_buffer_bytes,
            send_buffer_bytes_max: config.send_buffer_tuned_bytes,
            receive_buffer_bytes: config.receive_buffer_bytes,
            receive_buffer_bytes_max: config.receive_buffer_tuned_bytes,
            receive_pool: config.receive_pool.clone(),
            send_pool: config.send_pool.clone(),
            timeout_pacer: config.timeout_pacer.clone(),
            message_bytes_max: config.message_bytes_max,
            partial_delivery_bytes: config.partial_delivery_bytes,
            congestion: config.congestion,
            multipath: config.multipath,
            coupling: config.coupling,
            ecn: config.ecn,
            dscp: config.dscp,
            tail_loss_probes: config.tail_loss_probes,
            fragment_bytes_max: config.fragment_bytes_max,
            burst_packets_max: config.burst_packets_max,
            initial_window_packets: config.initial_window_packets,
            nodelay: config.nodelay,
            path_mtu_discovery: config.path_mtu_discovery,
            path_mtu_bytes: config.path_mtu_bytes,
            rto_initial: config.rto.initial,
            rto_min: config.rto.min,
            rto_max: config.rto.max,
            heartbeat_interval: config.heartbeat_interval,
            sack_delay: config.sack_delay,
            sack_frequency: config.sack_frequency,
            init_retries_max: config.init_retries_max,
            association_retries_max: config.association_retries_max,
            path_retries_max: config.path_retries_max,
            potentially_failed_retries_max: config.potentially_failed_retries_max,
            early_failover: config.early_failover,
            cookie_life: config.cookie_life,
            autoclose: config.autoclose,
            adaptation_indication: config.adaptation_indication,
            events: config.events,
            sender_dry_events: config.sender_dry_events,
            send_failed_events: config.send_failed_events,
        }
    }

    /// Returns the core's configuration of associations with these options and of a listener with `listener`,
    /// restricted to `local_addresses` unless that list is empty.
    pub(crate) fn config(
        &self,
        listener: &ListenerOptions,
        local_addresses: &[IpAddr],
        trace: bool,
    ) -> AssociationConfig {
        AssociationConfig {
            local_addresses: local_addresses.to_vec(),
            streams_out: self.streams_out.max(1),
            streams_in_max: self.streams_in_max.max(1),
            send_buffer_bytes: self.send_buffer_bytes.max(1),
            receive_buffer_bytes: self.receive_buffer_bytes.max(RECEIVE_WINDOW_BYTES_MIN),
            send_buffer_tuned_bytes: self.send_buffer_bytes_max,
            receive_buffer_tuned_bytes: self.receive_buffer_bytes_max,
            receive_pool: self.receive_pool.clone(),
            send_pool: self.send_pool.clone(),
            timeout_pacer: self.timeout_pacer.clone(),
            message_bytes_max: self.message_bytes_max,
            partial_delivery_bytes: self.partial_delivery_bytes.max(1),
            fragment_bytes_max: self.fragment_bytes_max.map(|bytes| bytes.max(1)),
            nodelay: self.nodelay,
            congestion: self.congestion,
            multipath: self.multipath,
            burst_packets_max: self.burst_packets_max,
            initial_window_packets: self.initial_window(),
            coupling: self.coupling,
            ecn: self.ecn,
            dscp: self.dscp.min(DSCP_MAX),
            path_mtu_discovery: self.path_mtu_discovery,
            path_mtu_bytes: self.path_mtu_bytes,
            tail_loss_probes: self.tail_loss_probes,
            rto: RtoConfig {
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
            early_failover: self.early_failover,
            cookie_life: self.cookie_life,
            autoclose: self.autoclose,
            adaptation_indication: self.adaptation_indication,
            events: self.events,
            sender_dry_events: self.sender_dry_events,
            send_failed_events: self.send_failed_events,
            refuse_beyond_backlog: listener.refuse_beyond_backlog,
            listener_associations_max: listener.associations_max,
            shares_port: listener.shares_port,
            distinct_peers: listener.distinct_peers,
            trace,
            ..AssociationConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static POOL: LazyLock<ReceivePool> = LazyLock::new(|| ReceivePool::with_limit(1 << 20));
    static SENT: LazyLock<SendPool> = LazyLock::new(|| SendPool::with_limit(1 << 20));
    static PACER: LazyLock<TimeoutPacer> = LazyLock::new(|| TimeoutPacer::new(Duration::from_millis(1), 2));

    /// Returns options that all differ from the defaults.
    fn unusual() -> AssociationOptions {
        AssociationOptions {
            streams_out: 3,
            streams_in_max: 4,
            send_buffer_bytes: 5000,
            send_buffer_bytes_max: 6000,
            receive_buffer_bytes: 7000,
            receive_buffer_bytes_max: 8000,
            receive_pool: Some(POOL.clone()),
            send_pool: Some(SENT.clone()),
            timeout_pacer: Some(PACER.clone()),
            message_bytes_max: 900,
            partial_delivery_bytes: 1000,
            congestion: CongestionControl::NewReno,
            multipath: Multipath::Always,
            coupling: Coupling::Balia,
            ecn: false,
            dscp: 10,
            tail_loss_probes: false,
            fragment_bytes_max: Some(1100),
            burst_packets_max: Some(12),
            initial_window_packets: Some(10),
            nodelay: true,
            path_mtu_discovery: false,
            path_mtu_bytes: Some(1400),
            rto_initial: Duration::from_secs(13),
            rto_min: Duration::from_secs(14),
            rto_max: Duration::from_secs(15),
            heartbeat_interval: None,
            sack_delay: Duration::from_millis(16),
            sack_frequency: 17,
            init_retries_max: 18,
            association_retries_max: 19,
            path_retries_max: 20,
            potentially_failed_retries_max: 21,
            early_failover: false,
            cookie_life: Duration::from_secs(22),
            autoclose: Some(Duration::from_secs(23)),
            adaptation_indication: 24,
            events: true,
            sender_dry_events: false,
            send_failed_events: false,
        }
    }

    #[test]
    fn the_core_takes_each_option() {
        let config = unusual().config(&ListenerOptions::default(), &[], false);
        assert_eq!(AssociationOptions::of(&config), unusual());
    }

    #[test]
    fn the_options_of_an_association_have_the_initial_window_that_is_in_force() {
        for (packets, in_force) in
            [(0, 1), (1, 1), (64, 64), (65, INITIAL_WINDOW_PACKETS_MAX), (u32::MAX, 64)]
        {
            let wanted = AssociationOptions { initial_window_packets: Some(packets), ..Default::default() };
            let current = AssociationOptions::of(&wanted.config(&ListenerOptions::default(), &[], false));
            assert_eq!(current.initial_window_packets, Some(in_force), "{packets}");
            assert_eq!(wanted.check_fixed(&current), Ok(()), "{packets} again");
        }
    }

    #[test]
    fn with_the_fixed_options_of_another_no_difference_is_refused() {
        let current = AssociationOptions::default();
        assert!(unusual().check_fixed(&current).is_err());
        assert_eq!(unusual().with_fixed_of(&current).check_fixed(&current), Ok(()));
    }
}
