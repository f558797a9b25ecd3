//! The listeners on one port, found by their addresses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::identifiers::ListenerId;
use crate::local_addresses::LocalAddresses;

/// A place in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// All listeners.
    Everywhere,
    /// Listeners that have all addresses, because they list none.
    Unrestricted,
    /// Listeners that list any address of this family.
    Ipv4,
    Ipv6,
    /// Listeners that list this address. Those that list an unspecified address list no other one of its family here.
    Listed(IpAddr),
}

impl Place {
    fn family_of(ip: IpAddr) -> Place {
        if ip.is_ipv4() { Place::Ipv4 } else { Place::Ipv6 }
    }

    /// Listeners that list all addresses of the family of `ip`.
    fn whole_family_of(ip: IpAddr) -> Place {
        Place::Listed(match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}

/// The listeners at a place.
#[derive(Debug, Default)]
struct Group {
    /// In ascending order.
    ids: Vec<ListenerId>,
    /// Number of these that do not share their port.
    alone: usize,
}

/// The listeners on one port.
#[derive(Debug, Default)]
pub(super) struct ListenerIndex {
    groups: HashMap<Place, Group>,
}

impl ListenerIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn insert(&mut self, id: ListenerId, local: &LocalAddresses, shares_port: bool) {
        for place in entered_at(local) {
            let group = self.groups.entry(place).or_default();
            if let Err(at) = group.ids.binary_search(&id) {
                group.ids.insert(at, id);
                group.alone += usize::from(!shares_port);
            }
        }
    }

    pub(super) fn remove(&mut self, id: ListenerId, local: &LocalAddresses, shares_port: bool) {
        for place in entered_at(local) {
            let Some(group) = self.groups.get_mut(&place) else { continue };
            if let Ok(at) = group.ids.binary_search(&id) {
                group.ids.remove(at);
                group.alone -= usize::from(!shares_port);
            }
            if group.ids.is_empty() {
                self.groups.remove(&place);
            }
        }
    }

    /// Returns whether a listener keeps another one from these addresses: they share an address, and not both share the port.
    pub(super) fn excludes(&self, local: &LocalAddresses, shares_port: bool) -> bool {
        let excludes = |group: &Group| if shares_port { group.alone > 0 } else { !group.ids.is_empty() };
        let excludes_at = |place| self.groups.get(&place).is_some_and(excludes);
        let mut scope = canonical(local).peekable();
        if scope.peek().is_none() {
            return excludes_at(Place::Everywhere);
        }
        excludes_at(Place::Unrestricted)
            || scope.any(|ip| match ip.is_unspecified() {
                true => excludes_at(Place::family_of(ip)),
                false => excludes_at(Place::Listed(ip)) || excludes_at(Place::whole_family_of(ip)),
            })
    }

    /// Returns the listeners at a local address. The destination of a packet is not always known.
    pub(super) fn serving(&self, local: Option<IpAddr>) -> Serving<'_> {
        let at = |place| self.groups.get(&place).map_or(&[][..], |group| &group.ids);
        let Some(local) = local.map(|local| local.to_canonical()) else {
            return Serving([at(Place::Everywhere), &[], &[]]);
        };
        let listed = if local.is_unspecified() { &[] } else { at(Place::Listed(local)) };
        Serving([at(Place::Unrestricted), at(Place::whole_family_of(local)), listed])
    }
}

/// The listeners that may accept an association, each once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving<'a>([&'a [ListenerId]; 3]);

impl Serving<'_> {
    pub(super) fn count(self) -> usize {
        self.0.iter().map(|ids| ids.len()).sum()
    }

    pub(super) fn nth(self, mut n: usize) -> Option<ListenerId> {
        for ids in self.0 {
            match ids.get(n) {
                Some(&id) => return Some(id),
                None => n -= ids.len(),
            }
        }
        None
    }
}

fn canonical(local: &LocalAddresses) -> impl Iterator<Item = IpAddr> {
    local.scope().iter().map(|ip| ip.to_canonical())
}

/// Returns the places of a listener with these addresses. Some occur several times.
fn entered_at(local: &LocalAddresses) -> impl Iterator<Item = Place> {
    let is_whole =
        |wanted: IpAddr| canonical(local).any(|ip| ip.is_unspecified() && ip.is_ipv4() == wanted.is_ipv4());
    let [whole_ipv4, whole_ipv6] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].map(is_whole);
    let unrestricted = local.scope().is_empty().then_some(Place::Unrestricted);
    let listed = canonical(local).flat_map(move |ip| {
        let is_whole = if ip.is_ipv4() { whole_ipv4 } else { whole_ipv6 };
        let own = if is_whole { Place::whole_family_of(ip) } else { Place::Listed(ip) };
        [own, Place::family_of(ip)]
    });
    [Place::Everywhere].into_iter().chain(unrestricted).chain(listed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn local() -> impl Strategy<Value = LocalAddresses> {
        let ips =
            ["0.0.0.0", "::", "192.0.2.1", "192.0.2.2", "::ffff:192.0.2.2", "2001:db8::1", "2001:db8::2"];
        let ip = proptest::sample::select(ips.map(|ip| ip.parse().expect("an address")).to_vec());
        let scope = proptest::collection::vec(ip, 0..4);
        scope.prop_map(|scope: Vec<IpAddr>| LocalAddresses::new(&scope, &Arc::default()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn the_index_finds_the_listeners_that_a_comparison_with_each_finds(
            steps in proptest::collection::vec((0..8_u32, proptest::option::of((local(), any::<bool>()))), 0..20),
            newcomers in proptest::collection::vec((local(), any::<bool>()), 1..12),
            packets in proptest::collection::vec(local(), 1..12),
        ) {
            let (mut index, mut known) = (ListenerIndex::default(), BTreeMap::new());
            for (id, listener) in steps {
                if let Some((local, shares_port)) = known.remove(&id) {
                    index.remove(ListenerId(id), &local, shares_port);
                }
                if let Some((local, shares_port)) = listener {
                    index.insert(ListenerId(id), &local, shares_port);
                    known.insert(id, (local, shares_port));
                }
            }
            for (local, shares_port) in newcomers {
                let excludes = |(other, shares): &(LocalAddresses, bool)| other.overlap(&local) && !(*shares && shares_port);
                prop_assert_eq!(index.excludes(&local, shares_port), known.values().any(excludes));
            }
            for destination in packets {
                let destination = destination.scope().first().copied();
                let serving = index.serving(destination);
                let mut found: Vec<_> = (0..serving.count()).map(|n| serving.nth(n)).collect();
                found.sort_unstable();
                let compared = known.iter().filter(|(_, (local, _))| local.serve(destination));
                prop_assert_eq!(found, compared.map(|(id, _)| Some(ListenerId(*id))).collect::<Vec<_>>());
                prop_assert_eq!(serving.nth(serving.count()), None);
            }
            for (id, (local, shares_port)) in known {
                index.remove(ListenerId(id), &local, shares_port);
            }
            prop_assert!(index.is_empty());
        }
    }
}
