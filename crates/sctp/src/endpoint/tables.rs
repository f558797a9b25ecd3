//! The tables in which the endpoint finds associations: by verification tag, and by the peer's addresses.

use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::rand_core::RngCore;
use sctp_wire::VerificationTag;
use smallvec::SmallVec;

use super::owners::Owners;
use super::{Endpoint, PeerKey};
use crate::association::Association;
use crate::identifiers::AssociationId;
use crate::local_addresses::LocalAddresses;

impl Endpoint {
    pub(super) fn insert(&mut self, association: Association) {
        let id = association.id();
        self.by_tag.insert(association.identity().local_tag, id);
        self.strays.on_tags_changed();
        self.associations.insert(association);
        self.register(id);
    }

    /// Registers the current addresses of an association, and removes its earlier ones. An unconfirmed address is not registered,
    /// because it may belong to another host: a packet from there without one of our tags must not find this association.
    pub(super) fn register(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get(id) else { return };
        let remotes: Vec<SocketAddr> = association.confirmed_remotes().collect();
        self.unregister_except(id, &remotes);
        let Some((association, registered)) = self.associations.get_with_registered(id) else { return };
        let identity = association.identity();
        let local_of = |id| self.associations.get(id).map(Association::local);
        let mut added: SmallVec<[SocketAddr; 1]> = SmallVec::new();
        for remote in remotes {
            if registered.contains(&remote) {
                continue;
            }
            let key = PeerKey { remote, local_port: identity.local_port, peer_port: identity.peer_port };
            match self.by_peer.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(Owners::One(id));
                }
                Entry::Occupied(mut entry) => {
                    if entry.get().overlapping(association.local(), local_of, |_| true).is_some() {
                        continue;
                    }
                    entry.get_mut().insert(id, association.local(), local_of);
                }
            }
            added.push(remote);
        }
        self.associations.note_registered(id, &added);
    }

    /// Returns up to `max` associations with this peer.
    pub(super) fn with_peer(
        &self,
        key: &PeerKey,
        max: usize,
    ) -> impl Iterator<Item = (AssociationId, &Association)> {
        let ids = self.by_peer.get(key).into_iter().flat_map(Owners::iter).take(max);
        ids.filter_map(|id| Some((id, self.associations.get(id)?)))
    }

    /// Returns whether an association with this peer uses one of these local addresses.
    pub(super) fn is_taken(&self, key: &PeerKey, local: &LocalAddresses) -> bool {
        let local_of = |id| self.associations.get(id).map(Association::local);
        self.by_peer.get(key).is_some_and(|owners| owners.overlapping(local, local_of, |_| true).is_some())
    }

    /// Returns the association with this peer that receives packets at this local address.
    pub(super) fn owner(&self, key: &PeerKey, local: Option<IpAddr>) -> Option<AssociationId> {
        let local_of = |id| self.associations.get(id).map(Association::local);
        self.by_peer.get(key)?.serving(local, local_of)
    }

    pub(super) fn unregister(&mut self, id: AssociationId) {
        self.unregister_except(id, &[]);
    }

    /// Removes the registered addresses of an association that are not among `kept`.
    fn unregister_except(&mut self, id: AssociationId, kept: &[SocketAddr]) {
        let outdated = self.associations.take_registered_except(id, kept);
        let Some(association) = self.associations.get(id) else { return };
        let identity = association.identity();
        for remote in outdated {
            let key = PeerKey { remote, local_port: identity.local_port, peer_port: identity.peer_port };
            if let Entry::Occupied(mut entry) = self.by_peer.entry(key)
                && entry.get_mut().remove(id, association.local())
            {
                entry.remove();
            }
        }
    }

    /// Takes an association that has ended out of the tables in which packets find it, and sends its final packet. Removes it if
    /// nothing of it remains to be reported.
    pub(super) fn leave(&mut self, id: AssociationId) {
        self.take_from_tables(id);
        let Some(association) = self.associations.get_mut(id) else { return };
        let final_packet = association.take_final_packet(self.config.checksum);
        let tracer = association.take_tracer();
        let is_left = association.has_given_up();
        self.associations.dequeue(id);
        if let Some(packet) = final_packet {
            self.push_final_packet(packet);
        }
        self.keep_trace(id, tracer);
        match is_left {
            true => self.associations.arm(id),
            false => drop(self.forget(id)),
        }
    }

    fn take_from_tables(&mut self, id: AssociationId) {
        self.unregister(id);
        let Some(association) = self.associations.get(id) else { return };
        let tag = association.identity().local_tag;
        if self.by_tag.get(&tag) == Some(&id) {
            self.by_tag.remove(&tag);
            self.strays.on_tags_changed();
        }
        self.admissions.leave(id);
        self.last = None;
    }

    /// Removes an association.
    pub(super) fn forget(&mut self, id: AssociationId) -> Association {
        self.take_from_tables(id);
        let association = self.associations.remove(id);
        association.add_final_counts_to(&mut self.statistics);
        association
    }

    /// Returns a verification tag that no association has; its low bits name the shard.
    pub(super) fn new_tag(&mut self) -> VerificationTag {
        let mask = (1u32 << self.config.shard_bits) - 1;
        loop {
            let tag = VerificationTag((self.random.next_u32() & !mask) | (self.config.shard & mask));
            if tag.0 != 0 && !self.by_tag.contains_key(&tag) {
                return tag;
            }
        }
    }

    /// Checks that each verification tag in the table is that of an association, and panics if not.
    #[cfg(feature = "testing")]
    pub(super) fn assert_tags(&self) {
        for (&tag, &id) in &self.by_tag {
            let association = self.associations.get(id);
            assert_eq!(association.map(|a| a.identity().local_tag), Some(tag), "the tag of {id:?}");
        }
    }
}
