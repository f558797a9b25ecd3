//! Options that can change during an association (RFC 6458 §8.1).

use std::net::IpAddr;
use std::sync::Arc;

use sctp_message::PathId;

use super::{Association, Context, State};
use crate::config::{AssociationConfig, HEARTBEAT_INTERVAL, PathOptions};
use crate::error::PathError;
use crate::event::{Event, Host};
use crate::path::Path;
use crate::path_state::PathState;

impl Association {
    /// Applies options, except those that the handshake has used. Changed options are applied to all paths; otherwise options of
    /// single paths stay.
    pub(crate) fn set_config<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        config: &AssociationConfig,
    ) {
        let old = Arc::clone(&self.config);
        let new = config.clone().with_fixed_of(&old);
        if new == *old {
            return;
        }
        if self.outbound.set_config(&new) {
            cx.host.event(self.id, Event::Writable);
        }
        if let Some(inbound) = self.inbound.as_mut() {
            inbound.set_config(&new);
        }
        for path in &mut self.paths {
            path.change_rto_limits(&old.rto, &new.rto);
        }
        let changes = changes(&old, &new);
        let codepoints = self.codepoints();
        self.config = Arc::new(new);
        self.change_paths(cx, None, &changes);
        self.restart_congestion(&codepoints);
        self.set_burst(old.burst_packets_max);
    }

    fn set_burst(&mut self, before: Option<u32>) {
        let packets_max = self.config.burst_packets_max;
        if packets_max != before {
            for path in &mut self.paths {
                path.set_burst(packets_max);
            }
        }
    }

    /// Changes the options of one path, or of all current and future paths.
    pub(crate) fn set_path<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        address: Option<IpAddr>,
        options: &PathOptions,
    ) -> Result<(), PathError> {
        let path_id = address.map(|address| self.path_at(address)).transpose()?;
        let codepoints = self.codepoints();
        if path_id.is_none() {
            take_defaults(Arc::make_mut(&mut self.config), options);
        }
        self.change_paths(cx, path_id, options);
        self.restart_congestion(&codepoints);
        Ok(())
    }

    /// Returns the path to an address of the peer.
    pub(crate) fn path_at(&self, address: IpAddr) -> Result<PathId, PathError> {
        let address = address.to_canonical();
        let path = self.paths.iter().find(|path| path.remote().ip().to_canonical() == address);
        path.map(Path::id).ok_or(PathError::NoSuchPath { address })
    }

    /// Restarts the congestion control of paths whose codepoint has changed (RFC 9260 §7.2.5.1): packets with another codepoint
    /// may use other queues, whose state is unknown.
    fn restart_congestion(&mut self, before: &[u8]) {
        for (path_id, before) in self.paths.ids().zip(before) {
            if self.dscp(path_id) != *before {
                self.paths[path_id].restart_congestion(&self.config);
            }
        }
    }

    fn codepoints(&self) -> Vec<u8> {
        self.paths.ids().map(|path_id| self.dscp(path_id)).collect()
    }

    /// Returns the codepoint of packets on a path.
    #[inline]
    pub(super) fn dscp(&self, path_id: PathId) -> u8 {
        self.paths[path_id].settings().dscp.unwrap_or(self.config.dscp)
    }

    fn change_paths<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        only: Option<PathId>,
        options: &PathOptions,
    ) {
        for path_id in self.paths.ids() {
            if only.is_none_or(|only| only == path_id) {
                self.paths[path_id].set_options(options);
                self.change_port(path_id, options);
                self.change_heartbeats(cx, path_id, options);
            }
        }
    }

    fn change_port(&mut self, path_id: PathId, options: &PathOptions) {
        if let Some(port) = options.udp_port {
            self.paths.set_remote_port(path_id, port);
        }
    }

    /// Applies changed options of heartbeats. No path is probed before the association is up (RFC 9260 §8.3), nor while T2 probes
    /// the peer.
    fn change_heartbeats<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: PathId,
        options: &PathOptions,
    ) {
        let asks = matches!(
            self.state,
            State::Established | State::ShutdownPending { .. } | State::ShutdownReceived { .. }
        );
        if !asks {
            return;
        }
        let path = &mut self.paths[path_id];
        if options.heartbeat_now {
            path.schedule_heartbeat(None);
            let heartbeat = self.heartbeat(cx, path_id);
            return self.push_control(heartbeat);
        }
        // A path that is unconfirmed, or has just failed, is probed whatever the option says.
        let is_confirmed = matches!(path.state(), PathState::Active | PathState::Inactive);
        let changed = options.heartbeats.is_some() || options.heartbeat_interval.is_some();
        if is_confirmed && changed && path.answer_by().is_none() {
            self.schedule_heartbeat(cx, path_id);
        }
    }
}

/// Returns the changes that concern paths.
fn changes(old: &AssociationConfig, new: &AssociationConfig) -> PathOptions {
    let interval = |config: &AssociationConfig| config.heartbeat_interval;
    PathOptions {
        heartbeats: changed(interval(old).is_some(), interval(new).is_some()),
        heartbeat_interval: changed(interval(old), interval(new)).flatten(),
        heartbeat_now: false,
        retries_max: changed(old.path_retries_max, new.path_retries_max),
        potentially_failed_retries_max: changed(
            old.potentially_failed_retries_max,
            new.potentially_failed_retries_max,
        ),
        mtu_discovery: changed(old.path_mtu_discovery, new.path_mtu_discovery),
        ip_mtu_bytes: changed(old.path_mtu_bytes, new.path_mtu_bytes).flatten(),
        sack_delay: changed(old.sack_delay, new.sack_delay),
        udp_port: None,
        dscp: None,
    }
}

/// Returns the new value if it differs.
fn changed<T: PartialEq>(old: T, new: T) -> Option<T> {
    (old != new).then_some(new)
}

/// Applies the options to future paths, too.
fn take_defaults(config: &mut AssociationConfig, options: &PathOptions) {
    let interval = options.heartbeat_interval.or(config.heartbeat_interval).unwrap_or(HEARTBEAT_INTERVAL);
    let heartbeats = options.heartbeats.unwrap_or(config.heartbeat_interval.is_some());
    config.heartbeat_interval = heartbeats.then_some(interval);
    let PathOptions {
        retries_max,
        potentially_failed_retries_max,
        mtu_discovery,
        ip_mtu_bytes,
        sack_delay,
        dscp,
        ..
    } = *options;
    config.path_retries_max = retries_max.unwrap_or(config.path_retries_max);
    config.potentially_failed_retries_max =
        potentially_failed_retries_max.unwrap_or(config.potentially_failed_retries_max);
    config.path_mtu_discovery = mtu_discovery.unwrap_or(config.path_mtu_discovery);
    config.path_mtu_bytes = ip_mtu_bytes.or(config.path_mtu_bytes);
    config.sack_delay = sack_delay.unwrap_or(config.sack_delay);
    config.dscp = dscp.unwrap_or(config.dscp);
}
