//! Options of an association. A new association starts with those that its socket has for future ones.

use std::time::Duration;

use carrier::record::{Flags, Header};
use swiftwater::AssociationOptions;

use super::notification_type::NotificationType;

/// `spp_flags`.
pub(crate) mod flags {
    pub(crate) const HB_ENABLE: u32 = 1;
    pub(crate) const HB_DISABLE: u32 = 1 << 1;
    pub(crate) const HB_DEMAND: u32 = 1 << 2;
    pub(crate) const PMTUD_ENABLE: u32 = 1 << 3;
    pub(crate) const PMTUD_DISABLE: u32 = 1 << 4;
    pub(crate) const SACKDELAY_ENABLE: u32 = 1 << 5;
    pub(crate) const SACKDELAY_DISABLE: u32 = 1 << 6;
    pub(crate) const HB_TIME_IS_ZERO: u32 = 1 << 7;
    pub(crate) const IPV6_FLOWLABEL: u32 = 1 << 8;
    pub(crate) const DSCP: u32 = 1 << 9;

    pub(crate) const HB: u32 = HB_ENABLE | HB_DISABLE;
    pub(crate) const PMTUD: u32 = PMTUD_ENABLE | PMTUD_DISABLE;
    pub(crate) const SACKDELAY: u32 = SACKDELAY_ENABLE | SACKDELAY_DISABLE;
}

/// `sinfo_flags`.
pub(crate) const UNORDERED: u16 = 1;
pub(crate) const ADDR_OVER: u16 = 1 << 1;
pub(crate) const ABORT: u16 = 1 << 2;
pub(crate) const EOF: u16 = 1 << 9;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssocOptions {
    pub(crate) rto_initial_ms: u32,
    pub(crate) rto_max_ms: u32,
    pub(crate) rto_min_ms: u32,
    pub(crate) retries_max: u16,
    pub(crate) cookie_life_ms: u32,
    pub(crate) sack_delay_ms: u32,
    pub(crate) sack_frequency: u32,
    pub(crate) heartbeat_interval_ms: u32,
    pub(crate) path_retries_max: u16,
    pub(crate) potentially_failed_after: u16,
    /// `spt_pathcpthld`: stored without effect, since this stack does not abandon a failed primary path for good.
    pub(crate) primary_left_after: u16,
    /// The longest IP packet; 0 if not set.
    pub(crate) path_mtu: u32,
    /// `SPP_` flags: each pair says whether a feature is on or off.
    pub(crate) path_flags: u32,
    pub(crate) flow_label: u32,
    pub(crate) dscp: u8,
    /// `SCTP_CONTEXT`: a number that accompanies received messages.
    pub(crate) context: u32,
    /// `SCTP_MAXSEG`; 0: as much as fits a packet.
    pub(crate) segment_bytes_max: u32,
    /// `SCTP_MAX_BURST`, if set: stored without effect, since packets are paced.
    pub(crate) burst_max: Option<u32>,
    pub(crate) sending: Sending,
    pub(crate) policy: (u16, u32),
    /// The subscribed notifications: one bit for each kind, by its distance from the first.
    pub(crate) subscriptions: u16,
    pub(crate) scheduler: u32,
    pub(crate) stream_resets: u32,
    /// `SCTP_EXPOSE_POTENTIALLY_FAILED_STATE`: 0 unset, 1 disabled, 2 enabled.
    pub(crate) exposes_failing: u32,
    pub(crate) encapsulation_port: u16,
    pub(crate) probe_interval_ms: u32,
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
        let all = [(UNORDERED, Flags::UNORDERED), (ABORT, Flags::ABORT), (EOF, Flags::SHUTDOWN)];
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
            rto_initial_ms: 3000,
            rto_max_ms: 60_000,
            rto_min_ms: 1000,
            retries_max: 10,
            cookie_life_ms: 60_000,
            sack_delay_ms: 200,
            sack_frequency: 2,
            heartbeat_interval_ms: 30_000,
            path_retries_max: 5,
            potentially_failed_after: 0,
            primary_left_after: u16::MAX,
            path_mtu: 0,
            path_flags: flags::HB_ENABLE | flags::PMTUD_ENABLE | flags::SACKDELAY_ENABLE,
            flow_label: 0,
            dscp: 0,
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

impl AssocOptions {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.path_flags & flag != 0
    }

    /// Sets one of two opposite flags, if `asked` contains one of them.
    pub(crate) fn set_flags(&mut self, pair: u32, asked: u32) {
        if asked & pair != 0 {
            self.path_flags = self.path_flags & !pair | asked & pair;
        }
    }

    /// Returns whether the program has subscribed to notifications of this kind.
    pub(crate) fn subscribes(&self, kind: usize) -> bool {
        self.subscriptions & 1 << kind != 0
    }

    pub(crate) fn subscribe(&mut self, kind: usize, on: bool) {
        self.subscriptions = self.subscriptions & !(1 << kind) | u16::from(on) << kind;
    }

    /// Returns the stack's options of an association; those that this type lacks come from `rest`.
    pub(crate) fn over(&self, rest: AssociationOptions) -> AssociationOptions {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let delays = self.has(flags::SACKDELAY_ENABLE);
        AssociationOptions {
            rto_initial: ms(self.rto_initial_ms),
            rto_min: ms(self.rto_min_ms),
            rto_max: ms(self.rto_max_ms),
            association_retries_max: self.retries_max.into(),
            cookie_life: ms(self.cookie_life_ms),
            sack_delay: ms(self.sack_delay_ms),
            sack_frequency: if delays { self.sack_frequency } else { 1 },
            heartbeat_interval: self.has(flags::HB_ENABLE).then(|| ms(self.heartbeat_interval_ms)),
            path_retries_max: self.path_retries_max.into(),
            potentially_failed_retries_max: self.potentially_failed_after.into(),
            path_mtu_discovery: self.has(flags::PMTUD_ENABLE),
            path_mtu_bytes: Some(self.path_mtu as usize).filter(|bytes| *bytes > 0),
            fragment_bytes_max: Some(self.segment_bytes_max as usize).filter(|bytes| *bytes > 0),
            burst_packets_max: self.burst_max.filter(|packets| *packets > 0),
            sender_dry_events: self.subscribes(NotificationType::SenderDry.subscription()),
            send_failed_events: [NotificationType::SendFailed, NotificationType::SendFailedEvent]
                .iter()
                .any(|kind| self.subscribes(kind.subscription())),
            dscp: if self.has(flags::DSCP) { self.dscp >> 2 } else { rest.dscp },
            ..rest
        }
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
}

/// Returns the MTU of a path as programs see it: the length of IP packets (RFC 6458 §8.1.12).
pub(crate) fn mtu_as_seen(ip_mtu_bytes: usize) -> u32 {
    u32::try_from(ip_mtu_bytes).unwrap_or(u32::MAX)
}
