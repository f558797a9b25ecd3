//! What can be set for each association. A new one begins with what its socket has for those to come.

use std::time::Duration;

use carrier::record::Flags;
use swiftwater::{AssociationOptions, PathStatistics};

use crate::notify::Type;

/// `spp_flags`.
pub(super) mod flags {
    pub(in crate::options) const HB_ENABLE: u32 = 1;
    pub(in crate::options) const HB_DISABLE: u32 = 1 << 1;
    pub(in crate::options) const HB_DEMAND: u32 = 1 << 2;
    pub(in crate::options) const PMTUD_ENABLE: u32 = 1 << 3;
    pub(in crate::options) const PMTUD_DISABLE: u32 = 1 << 4;
    pub(in crate::options) const SACKDELAY_ENABLE: u32 = 1 << 5;
    pub(in crate::options) const SACKDELAY_DISABLE: u32 = 1 << 6;
    pub(in crate::options) const HB_TIME_IS_ZERO: u32 = 1 << 7;
    pub(in crate::options) const IPV6_FLOWLABEL: u32 = 1 << 8;
    pub(in crate::options) const DSCP: u32 = 1 << 9;

    pub(in crate::options) const HB: u32 = HB_ENABLE | HB_DISABLE;
    pub(in crate::options) const PMTUD: u32 = PMTUD_ENABLE | PMTUD_DISABLE;
    pub(in crate::options) const SACKDELAY: u32 = SACKDELAY_ENABLE | SACKDELAY_DISABLE;
}

/// `sinfo_flags`.
pub(super) const UNORDERED: u16 = 1;
pub(super) const ADDR_OVER: u16 = 1 << 1;
pub(super) const ABORT: u16 = 1 << 2;
pub(super) const EOF: u16 = 1 << 9;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    pub(super) rto_initial_ms: u32,
    pub(super) rto_max_ms: u32,
    pub(super) rto_min_ms: u32,
    pub(super) retries_max: u16,
    pub(super) cookie_life_ms: u32,
    pub(super) sack_delay_ms: u32,
    pub(super) sack_frequency: u32,
    pub(super) heartbeat_interval_ms: u32,
    pub(super) path_retries_max: u16,
    pub(super) potentially_failed_after: u16,
    /// `spt_pathcpthld`: a primary path that fails is not left for good here, so this is only kept.
    pub(super) primary_left_after: u16,
    /// The longest IP packet; 0: it was not set.
    pub(super) path_mtu: u32,
    /// `SPP_` flags that say what is on and off.
    pub(super) path_flags: u32,
    pub(super) flow_label: u32,
    pub(super) dscp: u8,
    /// `SCTP_CONTEXT`: comes with what is received.
    pub(crate) context: u32,
    /// `SCTP_MAXSEG`; 0: as much as fits.
    pub(super) segment_bytes_max: u32,
    /// `SCTP_MAX_BURST`, if it was set: the pacer does what it is for.
    pub(super) burst_max: Option<u32>,
    pub(crate) sending: Sending,
    pub(super) policy: (u16, u32),
    /// Which notifications are wanted, by their distance from the first.
    pub(super) subscriptions: u16,
    pub(super) scheduler: u32,
    pub(super) stream_resets: u32,
    /// `SCTP_EXPOSE_POTENTIALLY_FAILED_STATE`: 0 as ever, 1 not, 2 it is.
    pub(super) exposes_failing: u32,
    pub(super) encapsulation_port: u16,
    pub(super) probe_interval_ms: u32,
}

/// What holds for a message of which nothing is said (`SCTP_DEFAULT_SNDINFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) stream: u16,
    /// `SCTP_UNORDERED` and others.
    pub(crate) flags: u16,
    /// The bytes as they travel.
    pub(crate) ppid: u32,
    pub(crate) context: u32,
    pub(crate) lifetime_ms: u32,
}

impl Sending {
    /// The same for a record.
    pub(crate) fn flags(self) -> impl IntoIterator<Item = Flags> {
        let all = [(UNORDERED, Flags::UNORDERED), (ABORT, Flags::ABORT), (EOF, Flags::SHUTDOWN)];
        all.into_iter().filter(move |(flag, _)| self.flags & flag != 0).map(|(_, flag)| flag)
    }
}

impl Default for Tuning {
    /// What Linux begins with.
    fn default() -> Self {
        Tuning {
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

impl Tuning {
    pub(super) fn has(&self, flag: u32) -> bool {
        self.path_flags & flag != 0
    }

    /// Sets one of two flags that say the opposite, if one is asked for.
    pub(super) fn set_flags(&mut self, pair: u32, asked: u32) {
        if asked & pair != 0 {
            self.path_flags = self.path_flags & !pair | asked & pair;
        }
    }

    /// Whether notifications of this kind are wanted.
    pub(crate) fn subscribes(&self, kind: usize) -> bool {
        self.subscriptions & 1 << kind != 0
    }

    pub(super) fn subscribe(&mut self, kind: usize, on: bool) {
        self.subscriptions = self.subscriptions & !(1 << kind) | u16::from(on) << kind;
    }

    /// Returns the options of an association that this stands for, with `rest` for those that it does not name.
    pub(super) fn options(&self, rest: AssociationOptions) -> AssociationOptions {
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
            sender_dry_events: self.subscribes(Type::SenderDry.subscription()),
            dscp: if self.has(flags::DSCP) { self.dscp >> 2 } else { rest.dscp },
            ..rest
        }
    }

    /// The UDP port of peers to be, of a host that uses this one itself. `None`: no UDP carries SCTP there.
    pub(crate) fn peer_udp_port(&self, own: u16) -> Option<u16> {
        match (own, self.encapsulation_port) {
            (0, _) => None,
            // SCTP directly in IP is another link's.
            (own, 0) => Some(own),
            (_, port) => Some(port),
        }
    }
}

/// Returns the MTU of a path as programs know it: the length of IP packets (RFC 6458 §8.1.12).
pub(super) fn path_mtu(path: &PathStatistics) -> u32 {
    u32::try_from(path.ip_mtu_bytes).unwrap_or(u32::MAX)
}
