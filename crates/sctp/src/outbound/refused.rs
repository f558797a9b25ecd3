//! Chunks that arrived and that the peer had no room to keep (RFC 9260 §6.2).
//!
//! A packet arrives whole or not at all. So a SACK that acknowledges only the first chunks of a packet, from a peer whose window
//! was nearly full, means that the peer has dropped the rest. Loss detection would wait for packets that left later, and new data
//! would take the room first.

use sctp_message::PathId;

use super::Outbound;
use crate::packet_number::PacketNumber;
use crate::path::Paths;

/// A packet whose first chunks the peer has kept, and no others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    path_id: PathId,
    packet: PacketNumber,
}

impl Outbound {
    /// Records a packet that the peer has not kept whole: a SACK without gaps acknowledges some of it, and not the rest. `packet`
    /// is the newest packet that the SACK acknowledges a part of.
    #[inline]
    pub(super) fn note_refused(&mut self, path_id: PathId, packet: PacketNumber) {
        if self.outstanding.gap_acked() == 0 && self.outstanding.begins_in_packet(path_id, packet) {
            self.refused = Some(Refused { path_id, packet });
        }
    }

    /// Retransmits the refused chunks, before new ones, once the peer's window holds all that is in flight. They are no sign of
    /// congestion.
    #[inline]
    pub(super) fn repeat_refused(&mut self, window_bytes: usize, paths: &mut Paths) {
        if let Some(refused) = self.refused
            && window_bytes >= self.outstanding.in_flight_payload_bytes()
        {
            self.refused = None;
            self.outstanding.nack_leading(&mut paths[refused.path_id], refused.packet);
        }
    }
}
