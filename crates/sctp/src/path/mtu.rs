//! Path MTU discovery (RFC 8899, for SCTP §6.2): finds the maximum packet length by probes, never by data.
//!
//! A probe is a HEARTBEAT with a PAD chunk (RFC 4820). A path begins with [`BASE_BYTES`] and first tries the MTU of the link, so
//! that one round trip is enough if the whole path is like its first hop. If that probe is lost, common sizes on the Internet
//! follow in rising order.
//!
//! A peer on the same link is not behind a router, so packets to it begin with the MTU of the interface. More than 1,500 bytes of
//! IP are probed there, too: interfaces of one link often disagree about longer packets, and a chunk that was cut for a length
//! that does not arrive is lost for good.
//!
//! The search has no timer of its own. It continues when a full packet is sent, so it causes no wake-ups, and an association with
//! short messages sends no probes. A probe counts as lost only if a later packet has arrived: a path that is down tells nothing
//! about sizes.
//!
//! Until a size is verified, routers may fragment packets. They may also fragment chunks that exceed a reduced MTU, because a
//! chunk with a TSN cannot be divided any more.

use std::time::Duration;

use sctp_wire::packet::HEADER_BYTES;

use crate::packet_number::PacketNumber;
use crate::path_hints::PathHints;
use crate::statistics::MtuState;
use crate::time::Time;
use crate::trace::LossReason;

/// BASE_PLPMTU (RFC 8899 §5.1.2): nearly every path supports this size, and every IPv6 path.
pub(crate) const BASE_BYTES: usize = 1200;
/// MIN_PLPMTU: on a path with a smaller MTU, routers fragment packets.
pub(crate) const MTU_BYTES_MIN: usize = 512;
/// MAX_PROBES: number of lost probes after which a size counts as too long, and of long packets lost in a row after which the
/// path counts as a black hole.
const LOSSES_MAX: u32 = 3;
/// Minimum PROBE_TIMER (RFC 8899 §5.1.1).
const PROBE_TIME_MIN: Duration = Duration::from_secs(1);
/// PMTU_RAISE_TIMER: time after which a search that ended below the MTU of the link is repeated.
const RAISE_TIME: Duration = Duration::from_secs(600);
/// MTUs of common links and tunnels (RFC 1191 §7.1, and later ones).
const IP_BYTES: [usize; 17] =
    [576, 1006, 1280, 1360, 1400, 1420, 1440, 1450, 1476, 1492, 1500, 2002, 4352, 8166, 9000, 17_914, 32_000];
/// The most likely path MTU if the link itself has a larger one.
const ETHERNET_BYTES: usize = 1500;

/// Minimum IP packet length that can be set as the size in use (`spp_pathmtu`).
const FIXED_IP_BYTES_MIN: usize = 512;
/// Maximum length of headers that a link may report, so that each IP packet has room for SCTP: those of IPv4 with all options
/// (RFC 791 §3.1), and UDP.
const HEADER_BYTES_MAX: usize = 68;

/// An unanswered probe.
#[derive(Debug, Clone, Copy)]
struct SizeProbe {
    nonce: u64,
    bytes: usize,
    sent_at: Time,
    expires_at: Time,
    /// Number of the first packet with data sent after the probe.
    next_packet: PacketNumber,
    /// Whether a packet that was sent after the probe has arrived.
    is_overtaken: bool,
}

/// State of the discovery of the path's MTU.
#[derive(Debug)]
pub(crate) struct Discovery {
    is_enabled: bool,
    /// The size in use.
    size_bytes: usize,
    /// Whether packets of that size are known to arrive.
    is_verified: bool,
    /// Whether the whole path is known to have the MTU of the link.
    is_certain: bool,
    /// Maximum packet length of the link.
    max_bytes: usize,
    /// The smallest size that failed; above `max_bytes` while that was not tried.
    fails_bytes: usize,
    /// MTU reported by a router, which is tried next.
    reported_bytes: Option<usize>,
    /// Length of the headers that the link adds: IP, and UDP if there is one.
    header_bytes: usize,
    probe: Option<SizeProbe>,
    /// Number of lost probes of that size.
    lost_in_a_row: u32,
    /// Whether a probe is due.
    is_due: bool,
    /// Time when a search that has ended below the MTU of the link is repeated.
    raise_at: Option<Time>,
    /// The newest long packet that has arrived, and the number of later ones that were lost.
    newest_long: Option<PacketNumber>,
    long_lost: u32,
    probes_sent: u64,
    probes_lost: u64,
}

impl Discovery {
    /// Begins with the hints of the link. Without discovery, `fixed_ip_bytes` is the maximum length of IP packets, if it is set.
    pub(crate) fn new(hints: PathHints, enabled: bool, fixed_ip_bytes: Option<usize>) -> Self {
        // A multiple of four, so that padding can fill a packet exactly.
        let max_bytes = (hints.mtu_bytes & !3).max(MTU_BYTES_MIN);
        let is_certain = !hints.leaves_host;
        let header_bytes = hints.header_bytes.min(HEADER_BYTES_MAX);
        let begin_bytes = if hints.on_link { packet_bytes(ETHERNET_BYTES, header_bytes) } else { BASE_BYTES };
        let size_bytes = if enabled && !is_certain { begin_bytes.min(max_bytes) } else { max_bytes };
        let mut discovery = Discovery {
            is_enabled: enabled,
            size_bytes,
            // A size that counts as verified without a probe is the first that a black hole refutes.
            is_verified: enabled && (is_certain || hints.on_link),
            is_certain,
            max_bytes,
            fails_bytes: max_bytes + 4,
            reported_bytes: None,
            header_bytes,
            probe: None,
            lost_in_a_row: 0,
            is_due: false,
            raise_at: None,
            newest_long: None,
            long_lost: 0,
            probes_sent: 0,
            probes_lost: 0,
        };
        if let Some(ip_bytes) = fixed_ip_bytes.filter(|_| !enabled) {
            discovery.size_bytes = discovery.fixed_bytes(ip_bytes);
        }
        discovery
    }

    pub(crate) fn probes_sent(&self) -> u64 {
        self.probes_sent
    }

    pub(crate) fn probes_lost(&self) -> u64 {
        self.probes_lost
    }

    /// Returns whether discovery is enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Enables discovery, or disables it and keeps one size: that of IP packets of `fixed_ip_bytes`, or the one in use.
    pub(crate) fn set_enabled(&mut self, enabled: bool, fixed_ip_bytes: Option<usize>) {
        if enabled && !self.is_enabled {
            self.begin_anew(BASE_BYTES, self.max_bytes + 4);
        } else if !enabled {
            let size_bytes = fixed_ip_bytes.map_or(self.size_bytes, |ip_bytes| self.fixed_bytes(ip_bytes));
            self.begin_anew(self.max_bytes, self.max_bytes + 4);
            self.size_bytes = size_bytes;
        }
        (self.is_enabled, self.is_due) = (enabled, false);
    }

    /// Returns the size of packets that fit IP packets of `ip_bytes`, and the link.
    fn fixed_bytes(&self, ip_bytes: usize) -> usize {
        packet_bytes(ip_bytes.max(FIXED_IP_BYTES_MIN), self.header_bytes).min(self.max_bytes)
    }

    /// Returns the length of an IP packet that carries a packet of the size in use.
    pub(crate) fn ip_bytes(&self) -> usize {
        self.size_bytes + self.header_bytes
    }

    /// Returns the size in use.
    #[inline]
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Returns a size that arrives if any packet does.
    #[inline]
    pub(crate) fn safe_bytes(&self) -> usize {
        if self.searches() { self.size_bytes.min(BASE_BYTES) } else { self.size_bytes }
    }

    /// Returns whether routers may fragment a packet of this length.
    #[inline]
    pub(crate) fn may_fragment(&self, bytes: usize) -> bool {
        !self.is_verified || bytes > self.size_bytes
    }

    /// Returns whether a packet with this many bytes of chunks is longer than the base and must not be fragmented, so that a
    /// black hole would drop it.
    #[inline]
    pub(crate) fn is_long(&self, chunks_bytes: usize) -> bool {
        let bytes = HEADER_BYTES + chunks_bytes;
        bytes > BASE_BYTES && !self.may_fragment(bytes)
    }

    /// Returns the state as defined by RFC 8899 §5.2.
    pub(crate) fn state(&self) -> MtuState {
        if !self.is_enabled {
            MtuState::Disabled
        } else if self.size_bytes < BASE_BYTES.min(self.max_bytes) {
            MtuState::Error
        } else if !self.is_verified {
            MtuState::Base
        } else if self.next_size().is_some() {
            MtuState::Searching
        } else {
            MtuState::SearchComplete
        }
    }

    /// Returns whether a probe is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Handles a full packet that was sent: longer packets would be useful.
    #[inline]
    pub(crate) fn on_full_packet(&mut self, now: Time) {
        if self.is_enabled && !(self.is_verified && self.size_bytes == self.max_bytes) {
            self.resume_search(now);
        }
    }

    #[cold]
    fn resume_search(&mut self, now: Time) {
        if self.raise_at.take_if(|at| *at <= now).is_some() {
            self.fails_bytes = self.max_bytes + 4;
        }
        if let Some(probe) = self.probe.take_if(|probe| probe.expires_at <= now) {
            self.on_probe_expired(now, probe);
        }
        self.is_due = self.probe.is_none() && self.next_size().is_some();
    }

    /// Takes the due probe, which is sent before data packet `next_packet`; returns its length. `None`: there is nothing left to
    /// discover.
    pub(crate) fn take_probe(
        &mut self,
        now: Time,
        nonce: u64,
        next_packet: PacketNumber,
        rto: Duration,
    ) -> Option<usize> {
        self.is_due = false;
        let bytes = self.next_size()?;
        let expires_at = now + rto.max(PROBE_TIME_MIN);
        self.probe =
            Some(SizeProbe { nonce, bytes, sent_at: now, expires_at, next_packet, is_overtaken: false });
        self.probes_sent += 1;
        Some(bytes)
    }

    /// Postpones a probe that cannot be sent now.
    pub(crate) fn put_off(&mut self) {
        self.is_due = false;
    }

    /// Ignores earlier probes, because the path was silent and answers again.
    pub(crate) fn on_silence_ended(&mut self) {
        self.probe = None;
    }

    /// Handles a HEARTBEAT ACK. Returns when the HEARTBEAT was sent, if it was a probe.
    pub(crate) fn on_answer(&mut self, now: Time, info: &[u8]) -> Option<Time> {
        let probe = self.probe.take_if(|probe| probe.nonce.to_be_bytes() == info)?;
        self.size_bytes = self.size_bytes.max(probe.bytes);
        self.is_verified = true;
        (self.lost_in_a_row, self.long_lost) = (0, 0);
        self.plan(now);
        Some(probe.sent_at)
    }

    /// Handles the arrival of data packets: the newest of them, and whether it was long.
    pub(crate) fn on_arrival(&mut self, packet: PacketNumber, is_long: bool) {
        if let Some(probe) = &mut self.probe {
            probe.is_overtaken |= !probe.next_packet.is_after(packet);
        }
        if is_long && self.newest_long.is_none_or(|newest| packet.is_after(newest)) {
            self.newest_long = Some(packet);
            self.long_lost = 0;
        }
        if let Some(newest) = &mut self.newest_long {
            newest.follow(packet);
        }
    }

    /// Handles the loss of a data packet with this many bytes of chunks. Returns whether the path is a black hole for long
    /// packets, and begins again (RFC 8899 §4.3). Three such losses suffice, or a timeout, after which the window is small
    /// anyway: if the cause was another, one round trip restores the old size.
    pub(crate) fn on_lost(&mut self, packet: PacketNumber, chunks_bytes: usize, reason: LossReason) -> bool {
        if !self.searches()
            || !self.is_long(chunks_bytes)
            || self.newest_long.is_some_and(|newest| !packet.is_after(newest))
        {
            return false;
        }
        self.long_lost += 1;
        if self.long_lost < LOSSES_MAX && reason != LossReason::Timeout {
            return false;
        }
        self.begin_anew(BASE_BYTES, self.max_bytes + 4);
        true
    }

    /// Begins again, as after a timeout, because the path did not answer long packets in flight while other paths work.
    pub(crate) fn on_silence(&mut self) -> bool {
        let doubtful = self.searches() && self.is_verified;
        if doubtful {
            self.begin_anew(BASE_BYTES, self.max_bytes + 4);
        }
        doubtful
    }

    /// Handles the report of a router that forwards none of our packets over `bytes` (RFC 8899 §4.6.2). Returns false if the
    /// report changes nothing, or is not credible.
    pub(crate) fn on_too_big(&mut self, now: Time, bytes: usize) -> bool {
        // A value below the minimum of every host is not credible.
        let bytes = (bytes & !3).max(MTU_BYTES_MIN);
        if !self.is_enabled {
            return false;
        }
        if bytes < self.size_bytes {
            let size = if bytes < BASE_BYTES { bytes } else { BASE_BYTES };
            self.begin_anew(size, bytes + 4);
        } else if self.probe.is_some_and(|probe| bytes < probe.bytes) {
            self.probe = None;
            self.lost_in_a_row = 0;
            self.fails_bytes = self.fails_bytes.min(bytes + 4);
        } else {
            return false;
        }
        self.reported_bytes = Some(bytes);
        self.plan(now);
        true
    }

    /// Returns whether a larger size remains to be probed.
    #[inline]
    fn searches(&self) -> bool {
        self.is_enabled && !self.is_certain
    }

    /// Begins again with `size_bytes`, because longer packets no longer arrive.
    fn begin_anew(&mut self, size_bytes: usize, fails_bytes: usize) {
        self.size_bytes = self.size_bytes.min(size_bytes);
        self.fails_bytes = fails_bytes;
        // The path no longer supports the MTU of the link.
        (self.is_certain, self.is_verified) = (false, false);
        (self.probe, self.raise_at, self.reported_bytes) = (None, None, None);
        (self.newest_long, self.long_lost, self.lost_in_a_row) = (None, 0, 0);
    }

    /// Plans the next probe, or ends the search.
    fn plan(&mut self, now: Time) {
        self.is_due = self.next_size().is_some();
        let ended_early = !self.is_due && self.size_bytes < self.max_bytes;
        self.raise_at = ended_early.then(|| now + RAISE_TIME);
    }

    /// Handles a probe that was not answered in time.
    fn on_probe_expired(&mut self, now: Time, probe: SizeProbe) {
        if !probe.is_overtaken {
            return;
        }
        self.probes_lost += 1;
        self.lost_in_a_row += 1;
        if self.lost_in_a_row < LOSSES_MAX {
            return;
        }
        self.lost_in_a_row = 0;
        self.fails_bytes = self.fails_bytes.min(probe.bytes);
        if probe.bytes <= self.size_bytes {
            self.size_bytes = MTU_BYTES_MIN.min(self.size_bytes);
        }
        self.plan(now);
    }

    /// Returns the next size to probe, if any.
    fn next_size(&self) -> Option<usize> {
        if self.fails_bytes > self.max_bytes {
            return (!self.is_verified || self.size_bytes < self.max_bytes).then_some(self.max_bytes);
        }
        let open = |bytes: &usize| (self.size_bytes + 1..self.fails_bytes).contains(bytes);
        let packet_bytes = |ip_bytes: usize| packet_bytes(ip_bytes, self.header_bytes);
        let ethernet =
            Some(packet_bytes(ETHERNET_BYTES)).filter(|_| self.max_bytes > packet_bytes(ETHERNET_BYTES));
        self.reported_bytes
            .filter(open)
            .or(ethernet.filter(open))
            .or_else(|| IP_BYTES.into_iter().map(packet_bytes).find(open))
            .or_else(|| (!self.is_verified && self.size_bytes < self.fails_bytes).then_some(self.size_bytes))
    }
}

/// Returns the length of the longest packet that fits an IP packet of `ip_bytes` behind headers of `header_bytes`.
const fn packet_bytes(ip_bytes: usize, header_bytes: usize) -> usize {
    (ip_bytes - header_bytes) & !3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_black_hole_is_found_however_many_short_packets_have_arrived_since_a_long_one() {
        let hints = PathHints { mtu_bytes: 1480, leaves_host: true, on_link: true, ..PathHints::default() };
        let mut discovery = Discovery::new(hints, true, None);
        discovery.on_arrival(PacketNumber::new(1), true);
        (1..6).for_each(|n| discovery.on_arrival(PacketNumber::new(n << 29), false));
        assert!(discovery.on_lost(PacketNumber::new((5 << 29) + 1), 1400, LossReason::Timeout));
    }
}
