//! Peers that have the address and the SCTP port of another one, and another UDP port
//! (draft-tuexen-tsvwg-sctp-udp-encaps-cons-03 §4.4).

use std::collections::VecDeque;

use super::{AssociationId, Endpoint, PeerKey};
use crate::association::Association;
use crate::event::Host;
use crate::local_addresses::LocalAddresses;
use crate::time::Time;

/// Maximum number of associations that are aborted at once because a peer that sends through this endpoint has the address and
/// the SCTP port of theirs. Any number of UDP ports may have claimed these.
const ABORTED_MAX: usize = 16;
/// Maximum number of such peers for which timers abort the others.
const PENDING_MAX: usize = 64;
/// Maximum number of UDP ports of a peer that a search looks at. Their associations may all be at other local addresses.
pub(super) const LOOKED_AT_MAX: usize = 64;

/// The peers that send through this endpoint and whose address and SCTP port others still have.
#[derive(Debug, Default)]
pub(super) struct OtherWays {
    /// Each one once.
    pending: VecDeque<Pending>,
}

/// A peer that takes the place of others.
#[derive(Debug)]
struct Pending {
    since: Time,
    key: PeerKey,
    /// The addresses of the listener that has accepted the peer. Associations at other addresses are of no concern to its
    /// program, and may be those of other users.
    local: LocalAddresses,
    /// The UDP port of the others from which the search goes on.
    from: u16,
}

/// The result of a search for an association that has a peer through another UDP port.
pub(super) enum Elsewhere {
    Nowhere,
    At {
        udp_port: u16,
        id: AssociationId,
    },
    /// None was found before this UDP port, where the search has ended.
    NotBefore {
        udp_port: u16,
    },
}

impl OtherWays {
    /// Returns the time at which the endpoint aborts more of them.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.pending.front().map(|pending| pending.since)
    }

    fn is_pending(&self, key: PeerKey, local: &LocalAddresses) -> bool {
        self.pending.iter().any(|other| other.key == key && other.local.scope() == local.scope())
    }
}

impl Endpoint {
    /// Searches for an association at one of these local addresses that has this peer, but through another UDP port, `from` a UDP
    /// port on. Looks at as many UDP ports as there are `steps`, which it takes.
    pub(super) fn find_elsewhere(
        &self,
        key: PeerKey,
        local: &LocalAddresses,
        from: u16,
        steps: &mut usize,
    ) -> Elsewhere {
        // Without a user, nobody takes one peer for the other, and what is left is still to be delivered.
        let has_user = |id| self.associations.get(id).is_some_and(|of| !of.is_orphan());
        let local_of = |id| self.associations.get(id).map(Association::local);
        for (other, owners) in self.by_peer.range(key.with_udp_ports_from(from)) {
            let udp_port = other.remote.port();
            if udp_port == key.remote.port() {
                continue;
            }
            let Some(left) = steps.checked_sub(1) else { return Elsewhere::NotBefore { udp_port } };
            *steps = left;
            if let Some(id) = owners.overlapping(local, local_of, has_user) {
                return Elsewhere::At { udp_port, id };
            }
        }
        Elsewhere::Nowhere
    }

    /// Aborts associations with a peer on this host that does not send through this endpoint, and has the address and the SCTP
    /// port of one that does, at the `local` addresses of the listener that accepts this one. This endpoint alone knows who owns
    /// its ports. If there are many, timers abort the others. Returns false if timers have too much to abort for other peers.
    pub(super) fn abort_other_ways<H: Host + ?Sized>(
        &mut self,
        now: Time,
        key: PeerKey,
        local: &LocalAddresses,
        host: &mut H,
    ) -> bool {
        let mut of_peer = Pending { since: now, key, local: local.clone(), from: 0 };
        if !self.abort_some_other_ways(now, &mut of_peer, host) || self.other_ways.is_pending(key, local) {
            return true;
        }
        let has_room = self.other_ways.pending.len() < PENDING_MAX;
        if has_room {
            self.other_ways.pending.push_back(of_peer);
        }
        has_room
    }

    /// Continues to abort what [`Endpoint::abort_other_ways`] has left.
    pub(super) fn abort_pending_other_ways<H: Host + ?Sized>(&mut self, now: Time, host: &mut H) {
        let Some(mut pending) = self.other_ways.pending.pop_front() else { return };
        if self.abort_some_other_ways(now, &mut pending, host) {
            self.other_ways.pending.push_front(pending);
        }
    }

    /// Returns whether more may be left.
    fn abort_some_other_ways<H: Host + ?Sized>(
        &mut self,
        now: Time,
        of_peer: &mut Pending,
        host: &mut H,
    ) -> bool {
        let (mut aborted, mut steps) = (0, LOOKED_AT_MAX);
        loop {
            match self.find_elsewhere(of_peer.key, &of_peer.local, of_peer.from, &mut steps) {
                Elsewhere::Nowhere => return false,
                Elsewhere::At { udp_port, .. } if aborted == ABORTED_MAX => {
                    of_peer.from = udp_port;
                    return true;
                }
                Elsewhere::At { udp_port, id } => {
                    of_peer.from = udp_port;
                    aborted += 1;
                    self.abort(now, id, b"another peer has this address and port", host);
                }
                Elsewhere::NotBefore { udp_port } => {
                    of_peer.from = udp_port;
                    return true;
                }
            }
        }
    }
}
