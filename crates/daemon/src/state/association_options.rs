//! Options of an association. A new association starts with those that its socket has for future ones.

use std::time::Duration;

use channel_protocol::abi::{SCTP_ABORT, SCTP_EOF, SCTP_UNORDERED};
use channel_protocol::record::{Flags, Header};
use swiftwater::AssociationOptions;

use super::notification_type::NotificationType;
use super::path_parameters::{PathParameters, flags};

/// The options of an association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssocOptions {
    rto: RtoInfo,
    retries_max: u16,
    cookie_life_ms: u32,
    sack_frequency: u32,
    path: PathParameters,
    potentially_failed_after: u16,
    /// `spt_pathcpthld`: stored without effect, since this stack does not abandon a failed primary path for good.
    primary_left_after: u16,
    /// `SCTP_CONTEXT`: a number that accompanies received messages.
    context: u32,
    /// `SCTP_MAXSEG`; 0: as much as fits a packet.
    segment_bytes_max: u32,
    /// `SCTP_MAX_BURST`, if set: stored without effect, since packets are paced.
    burst_max: Option<u32>,
    sending: Sending,
    /// `SCTP_DEFAULT_PRINFO`: the policy of partial reliability and its number, stored without effect.
    policy: (u16, u32),
    /// The subscribed notifications: one bit for each kind, by its distance from the first.
    subscriptions: u16,
    scheduler: u32,
    stream_resets: u32,
    /// `SCTP_EXPOSE_POTENTIALLY_FAILED_STATE`: 0 unset, 1 disabled, 2 enabled.
    exposes_failing: u32,
    encapsulation_port: u16,
    probe_interval_ms: u32,
}

/// `struct sctp_rtoinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RtoInfo {
    pub(crate) initial_ms: u32,
    pub(crate) max_ms: u32,
    pub(crate) min_ms: u32,
}

/// Defaults of messages that are sent without ancillary data (`SCTP_DEFAULT_SNDINFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) stream: u16,
    /// `SCTP_UNORDERED` and others.
    pub(crate) flags: u16,
    /// The payload protocol identifier, whose bytes are sent unchanged.
    pub(crate) ppid: u32,
    pub(crate) context: u32,
    pub(crate) lifetime_ms: u32,
}

impl Sending {
    /// Returns the flags of a record that correspond to `flags`.
    fn flags(self) -> impl IntoIterator<Item = Flags> {
        let all =
            [(SCTP_UNORDERED, Flags::UNORDERED), (SCTP_ABORT, Flags::ABORT), (SCTP_EOF, Flags::SHUTDOWN)];
        all.into_iter().filter(move |(flag, _)| self.flags & flag != 0).map(|(_, flag)| flag)
    }

    /// Returns the header of a message to which the program has given nothing, with these parameters.
    pub(crate) fn complete(self, header: Header) -> Header {
        Header {
            flags: self.flags().into_iter().fold(header.flags.without(Flags::BY_DEFAULT), Flags::with),
            stream: self.stream,
            // Programs give the PPID in network byte order.
            ppid: u32::from_be(self.ppid),
            context: self.context,
            lifetime_ms: self.lifetime_ms,
            ..header
        }
    }
}

impl Default for AssocOptions {
    /// Returns the initial values of Linux.
    fn default() -> Self {
        AssocOptions {
            rto: RtoInfo { initial_ms: 3000, max_ms: 60_000, min_ms: 1000 },
            retries_max: 10,
            cookie_life_ms: 60_000,
            sack_frequency: 2,
            path: PathParameters {
                heartbeat_interval_ms: 30_000,
                retries_max: 5,
                sack_delay_ms: 200,
                flags: flags::HB_ENABLE | flags::PMTUD_ENABLE | flags::SACKDELAY_ENABLE,
                ..PathParameters::default()
            },
            potentially_failed_after: 0,
            primary_left_after: u16::MAX,
            context: 0,
            segment_bytes_max: 0,
            burst_max: None,
            sending: Sending::default(),
            policy: (0, 0),
            subscriptions: 0,
            scheduler: 0,
            stream_resets: 0,
            exposes_failing: 0,
            encapsulation_port: 0,
            probe_interval_ms: 0,
        }
    }
}

/// Timeouts, retransmission limits and SACKs.
impl AssocOptions {
    pub(crate) fn rto(&self) -> RtoInfo {
        self.rto
    }

    pub(crate) fn set_rto(&mut self, rto: RtoInfo) {
        self.rto = rto;
    }

    pub(crate) fn retries_max(&self) -> u16 {
        self.retries_max
    }

    pub(crate) fn cookie_life_ms(&self) -> u32 {
        self.cookie_life_ms
    }

    /// Sets `SCTP_ASSOCINFO`. Zero leaves a value unchanged.
    pub(crate) fn merge_limits(&mut self, retries_max: u16, cookie_life_ms: u32) {
        self.retries_max = if retries_max == 0 { self.retries_max } else { retries_max };
        self.cookie_life_ms = if cookie_life_ms == 0 { self.cookie_life_ms } else { cookie_life_ms };
    }

    /// Returns the delay of SACKs in milliseconds and their frequency; 0 and 1 if they are not delayed.
    pub(crate) fn sack(&self) -> (u32, u32) {
        match self.path.has(flags::SACKDELAY_ENABLE) {
            true => (self.path.sack_delay_ms, self.sack_frequency),
            false => (0, 1),
        }
    }

    /// Sets `SCTP_DELAYED_SACK`. Zero leaves a value unchanged; a frequency of 1 disables the delay.
    pub(crate) fn merge_sack(&mut self, delay_ms: u32, frequency: u32) {
        self.path.merge_sack_delay(delay_ms);
        match frequency {
            0 => {}
            1 => self.path.set_flags(flags::SACKDELAY, flags::SACKDELAY_DISABLE),
            _ => {
                self.sack_frequency = frequency;
                self.path.set_flags(flags::SACKDELAY, flags::SACKDELAY_ENABLE);
            }
        }
    }
}

/// Paths.
impl AssocOptions {
    /// Returns the parameters of paths that have no own ones.
    pub(crate) fn path(&self) -> PathParameters {
        self.path
    }

    /// Sets `SCTP_PEER_ADDR_PARAMS`.
    pub(crate) fn merge_path(&mut self, asked: &PathParameters) {
        self.path.merge(asked);
    }

    pub(crate) fn potentially_failed_after(&self) -> u16 {
        self.potentially_failed_after
    }

    pub(crate) fn primary_left_after(&self) -> u16 {
        self.primary_left_after
    }

    /// Sets `SCTP_PEER_ADDR_THLDS`; with `primary_left_after` the second version. A limit of zero retransmissions leaves it
    /// unchanged.
    pub(crate) fn merge_thresholds(
        &mut self,
        path_retries_max: u16,
        potentially_failed_after: u16,
        primary_left_after: Option<u16>,
    ) {
        self.path.merge_retries_max(path_retries_max);
        self.potentially_failed_after = potentially_failed_after;
        self.primary_left_after = primary_left_after.unwrap_or(self.primary_left_after);
    }

    pub(crate) fn encapsulation_port(&self) -> u16 {
        self.encapsulation_port
    }

    pub(crate) fn set_encapsulation_port(&mut self, port: u16) {
        self.encapsulation_port = port;
    }

    /// Returns the UDP port of future peers if the daemon's port is `own`; `None` if SCTP is not carried by UDP.
    pub(crate) fn peer_udp_port(&self, own: u16) -> Option<u16> {
        match (own, self.encapsulation_port) {
            (0, _) => None,
            // 0 requests SCTP directly over IP, which this link cannot carry, so our own port applies.
            (own, 0) => Some(own),
            (_, port) => Some(port),
        }
    }

    pub(crate) fn probe_interval_ms(&self) -> u32 {
        self.probe_interval_ms
    }

    pub(crate) fn set_probe_interval_ms(&mut self, interval_ms: u32) {
        self.probe_interval_ms = interval_ms;
    }

    pub(crate) fn exposes_failing(&self) -> u32 {
        self.exposes_failing
    }

    pub(crate) fn set_exposes_failing(&mut self, exposes: u32) {
        self.exposes_failing = exposes;
    }
}

/// Messages and notifications.
impl AssocOptions {
    pub(crate) fn sending(&self) -> Sending {
        self.sending
    }

    pub(crate) fn set_sending(&mut self, sending: Sending) {
        self.sending = sending;
    }

    pub(crate) fn context(&self) -> u32 {
        self.context
    }

    pub(crate) fn set_context(&mut self, context: u32) {
        self.context = context;
    }

    pub(crate) fn segment_bytes_max(&self) -> u32 {
        self.segment_bytes_max
    }

    pub(crate) fn set_segment_bytes_max(&mut self, bytes: u32) {
        self.segment_bytes_max = bytes;
    }

    pub(crate) fn burst_max(&self) -> Option<u32> {
        self.burst_max
    }

    pub(crate) fn set_burst_max(&mut self, packets: u32) {
        self.burst_max = Some(packets);
    }

    pub(crate) fn policy(&self) -> (u16, u32) {
        self.policy
    }

    pub(crate) fn set_policy(&mut self, policy: u16, number: u32) {
        self.policy = (policy, number);
    }

    pub(crate) fn scheduler(&self) -> u32 {
        self.scheduler
    }

    pub(crate) fn set_scheduler(&mut self, scheduler: u32) {
        self.scheduler = scheduler;
    }

    pub(crate) fn stream_resets(&self) -> u32 {
        self.stream_resets
    }

    pub(crate) fn set_stream_resets(&mut self, resets: u32) {
        self.stream_resets = resets;
    }

    /// Returns whether the program has subscribed to notifications of this kind.
    pub(crate) fn subscribes(&self, kind: usize) -> bool {
        self.subscriptions & 1 << kind != 0
    }

    pub(crate) fn subscribe(&mut self, kind: usize, on: bool) {
        self.subscriptions = self.subscriptions & !(1 << kind) | u16::from(on) << kind;
    }

    /// Subscribes to the notifications to which other options subscribe, and to no others.
    pub(crate) fn subscribe_as(&mut self, other: &AssocOptions) {
        self.subscriptions = other.subscriptions;
    }
}

impl AssocOptions {
    /// Returns the stack's options of an association; those that this type lacks come from `rest`.
    pub(crate) fn over(&self, rest: AssociationOptions) -> AssociationOptions {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let (_, sack_frequency) = self.sack();
        let mut options = rest;
        options.rto_initial = ms(self.rto.initial_ms);
        options.rto_min = ms(self.rto.min_ms);
        options.rto_max = ms(self.rto.max_ms);
        options.association_retries_max = self.retries_max.into();
        options.cookie_life = ms(self.cookie_life_ms);
        options.sack_delay = ms(self.path.sack_delay_ms);
        options.sack_frequency = sack_frequency;
        options.heartbeat_interval =
            self.path.has(flags::HB_ENABLE).then(|| ms(self.path.heartbeat_interval_ms));
        options.path_retries_max = self.path.retries_max.into();
        options.potentially_failed_retries_max = self.potentially_failed_after.into();
        options.path_mtu_discovery = self.path.has(flags::PMTUD_ENABLE);
        options.path_mtu_bytes = Some(self.path.mtu_bytes as usize).filter(|bytes| *bytes > 0);
        options.fragment_bytes_max = Some(self.segment_bytes_max as usize).filter(|bytes| *bytes > 0);
        options.burst_packets_max = self.burst_max.filter(|packets| *packets > 0);
        options.sender_dry_events = self.subscribes(NotificationType::SenderDry.subscription());
        options.send_failed_events = [NotificationType::SendFailed, NotificationType::SendFailedEvent]
            .iter()
            .any(|kind| self.subscribes(kind.subscription()));
        if self.path.has(flags::DSCP) {
            options.dscp = self.path.dscp >> 2;
        }
        options
    }
}
