//! How many associations a listener has taken, and how many of them have come from each source prefix.
//!
//! Prefixes are counted for each listener, so that no listener takes a prefix from others. Peers on this host have no prefix: all of
//! them share the addresses of the host, and whoever runs them there can be limited otherwise.

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

/// Where an association that was taken belongs. `None`: its peer is on this host.
type Origin = (ListenerId, Option<SourcePrefix>);

/// Counts the associations that were taken and have not ended.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    origins: HashMap<AssociationId, Origin>,
    by_listener: HashMap<ListenerId, usize>,
    by_prefix: HashMap<(ListenerId, SourcePrefix), usize>,
}

impl Admissions {
    /// Returns the limit that one more association of this listener from this address would exceed. The limit of a prefix
    /// concerns only peers on other hosts.
    pub(super) fn limit(&self, listener: ListenerId, source: IpAddr, limits: Limits) -> Option<AtLimit> {
        let of_listener = self.by_listener.get(&listener).copied().unwrap_or_default();
        let prefix = (listener, SourcePrefix::of(source));
        let of_prefix = self.by_prefix.get(&prefix).copied().unwrap_or_default();
        if of_listener >= limits.listener_max {
            Some(AtLimit::Listener)
        } else if of_prefix >= limits.prefix_max {
            Some(AtLimit::Prefix)
        } else {
            None
        }
    }

    /// Counts an association that was taken; `source` is `None` if its peer is on this host.
    pub(super) fn enter(&mut self, id: AssociationId, listener: ListenerId, source: Option<IpAddr>) {
        let prefix = source.map(SourcePrefix::of);
        self.origins.insert(id, (listener, prefix));
        *self.by_listener.entry(listener).or_default() += 1;
        if let Some(prefix) = prefix {
            *self.by_prefix.entry((listener, prefix)).or_default() += 1;
        }
    }

    /// Counts an association no more. Those that we asked for are not counted.
    pub(super) fn leave(&mut self, id: AssociationId) {
        if let Some((listener, prefix)) = self.origins.remove(&id) {
            decrement(&mut self.by_listener, listener);
            if let Some(prefix) = prefix {
                decrement(&mut self.by_prefix, (listener, prefix));
            }
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
