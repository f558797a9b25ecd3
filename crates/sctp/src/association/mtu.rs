//! Path MTU discovery of an association: probes, their answers, and reports of routers (RFC 8899 §6.2; `path/mtu.rs` contains the
//! search itself).

use std::net::SocketAddr;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::RngCore;
use sctp_message::PathId;
use sctp_wire::chunk::{DATA_HEADER_BYTES, Heartbeat, Pad};
use sctp_wire::packet::{self, HEADER_BYTES};

use super::{Association, BatchRules, State};
use crate::config::AssociationConfig;
use crate::path::{Path, Paths};
use crate::path_state::PathState;
use crate::time::Time;
use crate::trace::Probe;
use crate::transmit::{Transmit, TransmitBuffer};

/// Number of missing bytes below which a packet counts as full: no useful chunk would have fitted.
const FULL_LACKS_BYTES: usize = 64;

impl Association {
    /// Records the length of a packet with data that was sent on a path. If it was full, longer packets would be useful on each
    /// path that may carry the next one.
    #[inline]
    pub(super) fn note_packet_length(&mut self, now: Time, path_id: PathId, bytes: usize) {
        if bytes + FULL_LACKS_BYTES <= self.paths[path_id].mtu_bytes() {
            return;
        }
        for path in &mut self.paths {
            if path.state() == PathState::Active {
                self.probes_mtu |= path.on_full_packet(now);
            }
        }
    }

    /// Builds an MTU probe: a HEARTBEAT, and a PAD that fills the packet.
    #[cold]
    pub(super) fn poll_mtu_probe(
        &mut self,
        now: Time,
        rules: &BatchRules,
        random: &mut ChaCha12Rng,
        buffer: &mut TransmitBuffer,
    ) -> Option<Transmit> {
        let path_id = self.paths.iter().find(|path| path.mtu_probe_is_due()).map(Path::id);
        let Some(path_id) = path_id.filter(|_| self.probes_mtu) else {
            self.probes_mtu = false;
            return None;
        };
        let path = &mut self.paths[path_id];
        // In other states the peer does not answer any more, or it has forgotten the association and would answer with ABORT.
        let may = matches!(
            self.state,
            State::Established | State::ShutdownPending { .. } | State::ShutdownReceived { .. }
        );
        if !may || path.state() != PathState::Active {
            path.put_off_mtu_probe();
            self.probes_mtu = false;
            return None;
        }
        let nonce = random.next_u64();
        let bytes = path.take_mtu_probe(now, nonce)?;
        buffer.begin_packet();
        packet::write_header(&self.identity.header(), buffer.out());
        Heartbeat { info: &nonce.to_be_bytes() }.write(buffer.out());
        if let Some(pad) = Pad::filling(bytes - buffer.packet_bytes()) {
            pad.write(buffer.out());
        }
        buffer.end_packet(rules.checksum);
        self.statistics.packets_sent += 1;
        self.statistics.control_chunks_sent += 1;
        path.on_packet_sent();
        path.note_probe(now, Probe::PathMtu);
        let (remote, local, is_answering) = (path.remote(), path.local(), path.is_answering());
        if let Some(tracer) = &mut self.trace {
            tracer.packet_sent(now, path_id.index(), None, 0, buffer.last_packet());
        }
        Some(Transmit {
            remote,
            local,
            ecn_capable: false,
            dscp: self.dscp(path_id),
            may_fragment: false,
            is_answering,
            segment_bytes: bytes,
            total_bytes: bytes,
        })
    }

    /// Handles a HEARTBEAT ACK. Returns when the HEARTBEAT was sent, if it was an MTU probe.
    pub(super) fn handle_mtu_probe_ack(&mut self, now: Time, path_id: PathId, info: &[u8]) -> Option<Time> {
        let path = &mut self.paths[path_id];
        let sent_at = path.on_mtu_probe_acked(now, info)?;
        self.peer.on_padding_answered();
        self.probes_mtu |= path.mtu_probe_is_due();
        Some(sent_at)
    }

    /// Handles the report of a router on the path to `remote`, which quotes one of our packets, that it forwards none over
    /// `mtu_bytes`. Returns whether that changes anything.
    pub(crate) fn handle_too_big(&mut self, now: Time, remote: SocketAddr, mtu_bytes: usize) -> bool {
        let Some(path_id) = self.paths.to(remote.ip()) else { return false };
        let path = &mut self.paths[path_id];
        let Some(shorter) = path.on_packet_too_big(now, mtu_bytes) else { return false };
        if shorter {
            self.outbound.lose_long_packets(path);
        }
        self.probes_mtu |= path.mtu_probe_is_due();
        true
    }

    /// Returns the maximum payload of a DATA chunk (RFC 9260 §7.3, AMDCS).
    pub(super) fn fragmentation_point_bytes(&self) -> usize {
        payload_bytes_max(&self.paths, &self.config)
    }
}

/// Returns the payload of a DATA chunk that fills a packet of the path with the smallest MTU, so that the chunk can be
/// retransmitted on any other (RFC 9260 §7.3, AMDCS). Paths without data do not count: their MTU is discovered when they
/// carry data.
#[inline]
pub(super) fn payload_bytes_max(paths: &Paths, config: &AssociationConfig) -> usize {
    let in_use = paths.iter().filter(|path| path.takes_data());
    let narrowest = in_use.map(Path::mtu_bytes).min();
    let fits = narrowest.unwrap_or(paths[paths.primary()].mtu_bytes()) - HEADER_BYTES - DATA_HEADER_BYTES;
    config.fragment_bytes_max.map_or(fits, |bytes| fits.min(bytes))
}
