//! Options of one path, which can change during an association (RFC 6458 §8.1.12).

use std::time::Duration;

use super::Path;
use crate::config::{AssociationConfig, HEARTBEAT_INTERVAL, PathOptions};

#[derive(Debug, Clone)]
pub(crate) struct PathSettings {
    /// Whether heartbeats probe the path while it is idle.
    pub(crate) heartbeats: bool,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) retries_max: u32,
    pub(crate) potentially_failed_retries_max: u32,
    pub(crate) sack_delay: Duration,
    pub(crate) burst_packets_max: Option<u32>,
    /// The DSCP of this path, if it differs from that of the association.
    pub(crate) dscp: Option<u8>,
}

impl PathSettings {
    pub(super) fn new(config: &AssociationConfig) -> Self {
        PathSettings {
            heartbeats: config.heartbeat_interval.is_some(),
            heartbeat_interval: config.heartbeat_interval.unwrap_or(HEARTBEAT_INTERVAL),
            retries_max: config.path_retries_max,
            potentially_failed_retries_max: config.potentially_failed_retries_max,
            sack_delay: config.sack_delay,
            burst_packets_max: config.burst_packets_max,
            dscp: None,
        }
    }

    /// Returns the idle time before the path is probed; `None` if it is not probed.
    pub(crate) fn heartbeat_interval(&self) -> Option<Duration> {
        self.heartbeats.then_some(self.heartbeat_interval)
    }
}

impl Path {
    /// Applies the options in `options`. The UDP port and an immediate heartbeat are not options of the path.
    pub(crate) fn set_options(&mut self, options: &PathOptions) {
        let settings = &mut self.settings;
        settings.heartbeats = options.heartbeats.unwrap_or(settings.heartbeats);
        settings.heartbeat_interval = options.heartbeat_interval.unwrap_or(settings.heartbeat_interval);
        settings.retries_max = options.retries_max.unwrap_or(settings.retries_max);
        settings.potentially_failed_retries_max =
            options.potentially_failed_retries_max.unwrap_or(settings.potentially_failed_retries_max);
        settings.sack_delay = options.sack_delay.unwrap_or(settings.sack_delay);
        settings.dscp = options.dscp.or(settings.dscp);
        let discovers = self.discovery.is_enabled();
        let discovery = options.mtu_discovery.unwrap_or(discovers);
        if discovery != discovers || (!discovery && options.ip_mtu_bytes.is_some()) {
            self.discovery.set_enabled(discovery, options.ip_mtu_bytes);
            self.set_mtu(self.discovery.size_bytes());
        }
    }

    /// Returns the options in effect; a DSCP only if the path has one of its own.
    pub(crate) fn options(&self) -> PathOptions {
        PathOptions {
            heartbeats: Some(self.settings.heartbeats),
            heartbeat_interval: Some(self.settings.heartbeat_interval),
            heartbeat_now: false,
            retries_max: Some(self.settings.retries_max),
            potentially_failed_retries_max: Some(self.settings.potentially_failed_retries_max),
            mtu_discovery: Some(self.discovery.is_enabled()),
            ip_mtu_bytes: Some(self.ip_mtu_bytes()),
            sack_delay: Some(self.settings.sack_delay),
            udp_port: Some(self.remote.port()),
            dscp: self.settings.dscp,
        }
    }

    /// Returns the maximum length of an IP packet, including the headers of IP and UDP.
    pub(crate) fn ip_mtu_bytes(&self) -> usize {
        self.discovery.ip_bytes()
    }

    /// Limits the number of packets in a burst (Max.Burst).
    pub(crate) fn set_burst(&mut self, packets_max: Option<u32>) {
        self.settings.burst_packets_max = packets_max;
        self.begin_burst();
    }
}
