//! Parameters of paths (`SCTP_PEER_ADDR_PARAMS`, RFC 6458 §8.1.12).

use std::time::Duration;

use swiftwater::PathOptions;

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

/// The values of a `struct sctp_paddrparams`: those in effect, or those that a program sets. In the latter zero changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathParameters {
    pub(crate) heartbeat_interval_ms: u32,
    pub(crate) retries_max: u16,
    /// The longest IP packet; 0 if not set.
    pub(crate) mtu_bytes: u32,
    pub(crate) sack_delay_ms: u32,
    /// `SPP_` flags: each pair says whether a feature is on or off.
    pub(crate) flags: u32,
    pub(crate) flow_label: u32,
    pub(crate) dscp: u8,
}

impl PathParameters {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Sets one of two opposite flags, if `asked` contains one of them.
    pub(super) fn set_flags(&mut self, pair: u32, asked: u32) {
        if asked & pair != 0 {
            self.flags = self.flags & !pair | asked & pair;
        }
    }

    /// Sets the delay of SACKs, and switches it on; 0 leaves both unchanged.
    pub(super) fn merge_sack_delay(&mut self, delay_ms: u32) {
        if delay_ms > 0 {
            self.sack_delay_ms = delay_ms;
            self.set_flags(flags::SACKDELAY, flags::SACKDELAY_ENABLE);
        }
    }

    /// Sets the limit of retransmissions; 0 leaves it unchanged.
    pub(super) fn merge_retries_max(&mut self, retries_max: u16) {
        self.retries_max = if retries_max == 0 { self.retries_max } else { retries_max };
    }

    /// Returns whether one of the pairs of flags has both.
    pub(crate) fn contradicts(&self) -> bool {
        [flags::HB, flags::PMTUD, flags::SACKDELAY].iter().any(|pair| self.flags & pair == *pair)
    }

    /// Returns the interval of heartbeats, if it changes.
    fn new_interval_ms(&self) -> Option<u32> {
        let zero = self.has(flags::HB_TIME_IS_ZERO).then_some(0);
        let interval = zero.or(Some(self.heartbeat_interval_ms).filter(|ms| *ms > 0));
        interval.filter(|_| self.has(flags::HB_ENABLE))
    }

    /// Returns the MTU, if it changes.
    fn new_mtu_bytes(&self) -> Option<u32> {
        Some(self.mtu_bytes).filter(|bytes| *bytes > 0 && self.has(flags::PMTUD_DISABLE))
    }

    /// Returns the delay of SACKs, if it changes.
    fn new_sack_delay_ms(&self) -> Option<u32> {
        Some(self.sack_delay_ms).filter(|ms| *ms > 0 && self.has(flags::SACKDELAY_ENABLE))
    }

    /// Returns the values without a flow label: a path between IPv4 addresses has none.
    #[must_use]
    pub(crate) fn without_flow_label(self) -> PathParameters {
        PathParameters { flags: self.flags & !flags::IPV6_FLOWLABEL, ..self }
    }

    /// Applies the values that a program sets.
    pub(super) fn merge(&mut self, asked: &PathParameters) {
        self.heartbeat_interval_ms = asked.new_interval_ms().unwrap_or(self.heartbeat_interval_ms);
        self.mtu_bytes = asked.new_mtu_bytes().unwrap_or(self.mtu_bytes);
        self.sack_delay_ms = asked.new_sack_delay_ms().unwrap_or(self.sack_delay_ms);
        self.merge_retries_max(asked.retries_max);
        for pair in [flags::HB, flags::PMTUD, flags::SACKDELAY] {
            self.set_flags(pair, asked.flags);
        }
        if asked.has(flags::IPV6_FLOWLABEL) {
            self.flow_label = asked.flow_label & 0xf_ffff;
            self.flags |= flags::IPV6_FLOWLABEL;
        }
        if asked.has(flags::DSCP) {
            self.dscp = asked.dscp & 0xfc;
            self.flags |= flags::DSCP;
        }
    }

    /// Returns the values that a program sets, as changes of a path.
    pub(crate) fn changes(&self) -> PathOptions {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let switched = |on: u32, pair: u32| self.has(pair).then(|| self.has(on));
        PathOptions {
            heartbeats: switched(flags::HB_ENABLE, flags::HB),
            heartbeat_interval: self.new_interval_ms().map(ms),
            heartbeat_now: self.has(flags::HB_DEMAND),
            retries_max: Some(self.retries_max.into()).filter(|retries| *retries > 0),
            mtu_discovery: switched(flags::PMTUD_ENABLE, flags::PMTUD),
            ip_mtu_bytes: self.new_mtu_bytes().map(|bytes| bytes as usize),
            sack_delay: match self.has(flags::SACKDELAY_DISABLE) {
                true => Some(Duration::ZERO),
                false => self.new_sack_delay_ms().map(ms),
            },
            dscp: self.has(flags::DSCP).then_some(self.dscp >> 2),
            ..PathOptions::default()
        }
    }

    /// Returns the values in effect on a path with these options of its own.
    #[must_use]
    pub(crate) fn on_path(mut self, path: &PathOptions) -> PathParameters {
        let on = |on, yes, no| if on { yes } else { no };
        if let Some(interval) = path.heartbeat_interval {
            self.heartbeat_interval_ms = millis(interval);
        }
        if let Some(retries) = path.retries_max {
            self.retries_max = u16::try_from(retries).unwrap_or(u16::MAX);
        }
        if let Some(delay) = path.sack_delay.filter(|delay| !delay.is_zero()) {
            self.sack_delay_ms = millis(delay);
        }
        if let Some(bytes) = path.ip_mtu_bytes {
            self.mtu_bytes = mtu_as_seen(bytes);
        }
        if let Some(dscp) = path.dscp {
            self.dscp = dscp << 2;
            self.flags |= flags::DSCP;
        }
        if let Some(heartbeats) = path.heartbeats {
            self.set_flags(flags::HB, on(heartbeats, flags::HB_ENABLE, flags::HB_DISABLE));
        }
        if let Some(discovers) = path.mtu_discovery {
            self.set_flags(flags::PMTUD, on(discovers, flags::PMTUD_ENABLE, flags::PMTUD_DISABLE));
        }
        self
    }
}

/// Returns a time in milliseconds, as C structures have it.
pub(crate) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Returns the MTU of a path as programs see it: the length of IP packets (RFC 6458 §8.1.12).
pub(crate) fn mtu_as_seen(ip_mtu_bytes: usize) -> u32 {
    u32::try_from(ip_mtu_bytes).unwrap_or(u32::MAX)
}
