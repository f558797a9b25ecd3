//! Counts the associations that each listener has accepted, in all and from each source prefix.
//!
//! Prefixes are counted for each listener, so that no listener uses up the limit of a prefix at another. Peers on this
//! host count as one prefix, whichever of its addresses they use, but those that send through this endpoint count by the memory
//! that they share with other associations of their user.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::identifiers::{AssociationId, ListenerId};
use crate::receive_pool::ReceivePool;
use crate::source_prefix::SourcePrefix;

/// The limit that prevents an association from being accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AtLimit {
    Listener,
    Prefix,
}

/// Maximum numbers of associations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) listener_max: usize,
    pub(super) prefix_max: usize,
}

/// The peers with which a new one shares a limit at a listener.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The network of a remote peer.
    Prefix(SourcePrefix),
    /// This host.
    ThisHost,
    /// The associations of this endpoint that share a pool of memory: the peer is one of them.
    Pool(ReceivePool),
}

impl Source {
    /// Returns the source of a peer at this address of another host.
    pub(super) fn remote(address: IpAddr) -> Source {
        Source::Prefix(SourcePrefix::of(address))
    }

    fn key(&self) -> SourceKey {
        match self {
            Source::Prefix(prefix) => SourceKey::Prefix(*prefix),
            Source::ThisHost => SourceKey::ThisHost,
            Source::Pool(pool) => SourceKey::Pool(pool.id()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum SourceKey {
    Prefix(SourcePrefix),
    ThisHost,
    Pool(usize),
}

/// The listener and the source of an accepted association.
type Origin = (ListenerId, SourceKey);

/// Counts the associations that were accepted and have not ended.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// The source keeps the number of a pool from other pools.
    origins: HashMap<AssociationId, (ListenerId, Source)>,
    by_listener: HashMap<ListenerId, usize>,
    by_source: HashMap<Origin, usize>,
}

impl Admissions {
    /// Returns the limit that one more association of this listener from this source would exceed.
    pub(super) fn limit(&self, listener: ListenerId, source: &Source, limits: Limits) -> Option<AtLimit> {
        let of_listener = self.by_listener.get(&listener).copied().unwrap_or_default();
        let of_source = self.by_source.get(&(listener, source.key())).copied().unwrap_or_default();
        if of_listener >= limits.listener_max {
            Some(AtLimit::Listener)
        } else if of_source >= limits.prefix_max {
            Some(AtLimit::Prefix)
        } else {
            None
        }
    }

    /// Counts an accepted association.
    pub(super) fn enter(&mut self, id: AssociationId, listener: ListenerId, source: Source) {
        *self.by_listener.entry(listener).or_default() += 1;
        *self.by_source.entry((listener, source.key())).or_default() += 1;
        self.origins.insert(id, (listener, source));
    }

    /// Removes an association from the counts, if it was counted: outgoing ones are not.
    pub(super) fn leave(&mut self, id: AssociationId) {
        if let Some((listener, source)) = self.origins.remove(&id) {
            decrement(&mut self.by_listener, listener);
            decrement(&mut self.by_source, (listener, source.key()));
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

#[cfg(test)]
mod tests {
    use super::*;

    const LISTENER: ListenerId = ListenerId(1);
    const OTHER_LISTENER: ListenerId = ListenerId(2);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns the limit that one more association from `source` would exceed.
    fn limit(
        admissions: &Admissions,
        listener: ListenerId,
        source: &str,
        maxima: (usize, usize),
    ) -> Option<AtLimit> {
        let limits = Limits { listener_max: maxima.0, prefix_max: maxima.1 };
        admissions.limit(listener, &Source::remote(ip(source)), limits)
    }

    #[test]
    fn associations_count_for_their_listener_until_they_end() {
        let mut admissions = Admissions::default();
        for n in 0..3 {
            assert_eq!(limit(&admissions, LISTENER, "10.0.0.1", (3, 9)), None, "{n} of 3");
            admissions.enter(AssociationId::new(n, n), LISTENER, Source::ThisHost);
        }
        assert_eq!(limit(&admissions, LISTENER, "10.0.0.1", (3, 9)), Some(AtLimit::Listener));
        assert_eq!(limit(&admissions, OTHER_LISTENER, "10.0.0.1", (3, 9)), None, "it has its own");
        admissions.leave(AssociationId::new(1, 1));
        assert_eq!(limit(&admissions, LISTENER, "10.0.0.1", (3, 9)), None);
        assert_eq!(limit(&admissions, LISTENER, "10.0.0.1", (2, 9)), Some(AtLimit::Listener), "two are left");
    }

    #[test]
    fn associations_count_for_their_prefix_until_they_end() {
        let mut admissions = Admissions::default();
        for n in 0..3 {
            assert_eq!(limit(&admissions, LISTENER, "10.0.0.9", (9, 3)), None, "{n} of 3");
            admissions.enter(AssociationId::new(n, n), LISTENER, Source::remote(ip(&format!("10.0.0.{n}"))));
        }
        assert_eq!(limit(&admissions, LISTENER, "10.0.0.9", (9, 3)), Some(AtLimit::Prefix));
        assert_eq!(limit(&admissions, LISTENER, "10.0.1.9", (9, 3)), None, "another network");
        assert_eq!(limit(&admissions, OTHER_LISTENER, "10.0.0.9", (9, 3)), None, "another listener");
        admissions.leave(AssociationId::new(0, 0));
        assert_eq!(limit(&admissions, LISTENER, "10.0.0.9", (9, 3)), None);
        assert_eq!(limit(&admissions, LISTENER, "10.0.0.9", (9, 2)), Some(AtLimit::Prefix), "two are left");
    }

    #[test]
    fn peers_on_this_host_are_one_prefix() {
        let mut admissions = Admissions::default();
        (0..3).for_each(|n| admissions.enter(AssociationId::new(n, n), LISTENER, Source::ThisHost));
        let limits = Limits { listener_max: 9, prefix_max: 3 };
        assert_eq!(admissions.limit(LISTENER, &Source::ThisHost, limits), Some(AtLimit::Prefix));
        assert_eq!(admissions.limit(OTHER_LISTENER, &Source::ThisHost, limits), None);
        assert_eq!(
            limit(&admissions, LISTENER, "127.0.0.1", (9, 3)),
            None,
            "another host says that it is there"
        );
        admissions.leave(AssociationId::new(2, 2));
        assert_eq!(admissions.limit(LISTENER, &Source::ThisHost, limits), None);
    }

    #[test]
    fn peers_that_send_through_this_endpoint_count_by_their_user() {
        let mut admissions = Admissions::default();
        let [one, other] = [1, 2].map(|_| Source::Pool(ReceivePool::with_limit(1)));
        (0..3).for_each(|n| admissions.enter(AssociationId::new(n, n), LISTENER, one.clone()));
        let limits = Limits { listener_max: 9, prefix_max: 3 };
        let limit = |admissions: &Admissions, source| admissions.limit(LISTENER, source, limits);
        assert_eq!(limit(&admissions, &one), Some(AtLimit::Prefix));
        assert_eq!([&other, &Source::ThisHost].map(|source| limit(&admissions, source)), [None; 2]);
        admissions.leave(AssociationId::new(2, 2));
        assert_eq!(limit(&admissions, &one), None);
    }

    #[test]
    fn nothing_is_kept_of_associations_that_have_ended() {
        let mut admissions = Admissions::default();
        for n in 0..100 {
            admissions.enter(
                AssociationId::new(n, n),
                ListenerId(n),
                Source::remote(IpAddr::from([10, 0, n as u8, 1])),
            );
        }
        // An outgoing association was never counted.
        admissions.leave(AssociationId::new(100, 100));
        assert_eq!((admissions.by_listener.len(), admissions.by_source.len()), (100, 100));
        for n in 0..100 {
            admissions.leave(AssociationId::new(n, n));
        }
        assert!(admissions.origins.is_empty(), "a remote peer chooses how many there are");
        assert!(admissions.by_listener.is_empty() && admissions.by_source.is_empty());
    }
}
