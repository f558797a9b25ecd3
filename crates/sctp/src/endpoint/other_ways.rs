//! Peers that have the address and the SCTP port of another one, and another UDP port
//! (draft-tuexen-tsvwg-sctp-udp-encaps-cons-03 §4.4).

use std::collections::VecDeque;

use super::{AssociationId, Endpoint, PeerKey};
use crate::event::Host;
use crate::time::Time;

/// Maximum number of associations that are aborted at once because a peer that sends through this endpoint has the address and
/// the SCTP port of theirs. Any number of UDP ports may have claimed these.
const ABORTED_MAX: usize = 16;
/// Maximum number of such peers for which timers abort the others.
const PENDING_MAX: usize = 64;

/// The peers that send through this endpoint and whose address and SCTP port others still have.
#[derive(Debug, Default)]
pub(super) struct OtherWays {
    /// Since when, and which peers: each one once.
    pending: VecDeque<(Time, PeerKey)>,
}

impl OtherWays {
    /// Returns the time at which the endpoint aborts more of them.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.pending.front().map(|(since, _)| *since)
    }

    fn is_pending(&self, key: PeerKey) -> bool {
        self.pending.iter().any(|(_, other)| *other == key)
    }
}

impl Endpoint {
    /// Returns the associations that have this peer, but through another UDP port.
    pub(super) fn known_elsewhere(&self, key: PeerKey) -> impl Iterator<Item = AssociationId> {
        let all = self.by_peer.range(key.with_any_udp_port());
        all.filter(move |(other, _)| other.remote.port() != key.remote.port())
            .flat_map(|(_, owners)| owners.iter())
    }

    /// Aborts associations with a peer on this host that does not send through this endpoint, and has the address and the
    /// SCTP port of one that does. This endpoint alone knows who owns its ports. If there are many, timers abort the others.
    /// Returns false, and aborts none, if timers have too much to abort for other peers.
    pub(super) fn abort_other_ways<H: Host + ?Sized>(
        &mut self,
        now: Time,
        key: PeerKey,
        host: &mut H,
    ) -> bool {
        let is_pending = self.other_ways.is_pending(key);
        let has_room = is_pending || self.other_ways.pending.len() < PENDING_MAX;
        if !has_room && self.known_elsewhere(key).nth(ABORTED_MAX).is_some() {
            return false;
        }
        if self.abort_some_other_ways(now, key, host) && !is_pending {
            self.other_ways.pending.push_back((now, key));
        }
        true
    }

    /// Continues to abort what [`Endpoint::abort_other_ways`] has left.
    pub(super) fn abort_pending_other_ways<H: Host + ?Sized>(&mut self, now: Time, host: &mut H) {
        let Some((since, key)) = self.other_ways.pending.pop_front() else { return };
        if self.abort_some_other_ways(now, key, host) {
            self.other_ways.pending.push_front((since, key));
        }
    }

    /// Returns whether more are left.
    fn abort_some_other_ways<H: Host + ?Sized>(&mut self, now: Time, key: PeerKey, host: &mut H) -> bool {
        let others: Vec<AssociationId> = self.known_elsewhere(key).take(ABORTED_MAX).collect();
        for id in others {
            self.abort(now, id, b"another peer has this address and port", host);
        }
        self.known_elsewhere(key).next().is_some()
    }
}
