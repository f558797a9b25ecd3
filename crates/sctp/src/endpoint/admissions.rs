//! How many associations a listener has taken, and how many have come from each source prefix.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::identifiers::{AssociationId, ListenerId};
use crate::source_prefix::SourcePrefix;

/// The limit that keeps an association from being taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AtLimit {
    Listener,
    Prefix,
}

/// How many associations there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) listener_max: usize,
    pub(super) prefix_max: usize,
}

/// Where an association that was taken belongs.
type Origin = (ListenerId, SourcePrefix);

/// Counts the associations that were taken and have not ended.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    origins: HashMap<AssociationId, Origin>,
    by_listener: HashMap<ListenerId, usize>,
    by_prefix: HashMap<SourcePrefix, usize>,
}

impl Admissions {
    /// Returns the limit that one more association of this listener from this address would exceed.
    pub(super) fn limit(&self, listener: ListenerId, source: IpAddr, limits: Limits) -> Option<AtLimit> {
        let of_listener = self.by_listener.get(&listener).copied().unwrap_or_default();
        let of_prefix = self.by_prefix.get(&SourcePrefix::of(source)).copied().unwrap_or_default();
        if of_listener >= limits.listener_max {
            Some(AtLimit::Listener)
        } else if of_prefix >= limits.prefix_max {
            Some(AtLimit::Prefix)
        } else {
            None
        }
    }

    /// Counts an association that was taken.
    pub(super) fn enter(&mut self, id: AssociationId, listener: ListenerId, source: IpAddr) {
        let prefix = SourcePrefix::of(source);
        self.origins.insert(id, (listener, prefix));
        *self.by_listener.entry(listener).or_default() += 1;
        *self.by_prefix.entry(prefix).or_default() += 1;
    }

    /// Counts an association no more. Those that we asked for are not counted.
    pub(super) fn leave(&mut self, id: AssociationId) {
        if let Some((listener, prefix)) = self.origins.remove(&id) {
            decrement(&mut self.by_listener, listener);
            decrement(&mut self.by_prefix, prefix);
        }
    }
}

fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let std::collections::hash_map::Entry::Occupied(mut entry) = counts.entry(key) {
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}
