//! The associations with one peer, found by their local addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::identifiers::AssociationId;
use crate::local_addresses::LocalAddresses;

/// Number of associations with one peer, at different local addresses, that a search through all addresses of a family looks at.
const LOOKED_AT_MAX: usize = 64;

/// The associations with one peer. No two of them share a local address.
#[derive(Debug)]
pub(super) enum Owners {
    One(AssociationId),
    Several(Box<Index>),
}

/// The owner of each local address. The unspecified address stands for all addresses of its family.
#[derive(Debug, Default)]
pub(super) struct Index {
    ipv4: BTreeMap<Ipv4Addr, AssociationId>,
    ipv6: BTreeMap<Ipv6Addr, AssociationId>,
    ids: BTreeSet<AssociationId>,
}

impl Owners {
    /// Returns the associations.
    pub(super) fn iter(&self) -> impl Iterator<Item = AssociationId> + '_ {
        let (one, several) = match self {
            Owners::One(id) => (Some(*id), None),
            Owners::Several(index) => (None, Some(index.ids.iter().copied())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Adds an association that shares no local address with the others. `local_of` returns the addresses of one.
    pub(super) fn insert<'a>(
        &mut self,
        id: AssociationId,
        local: &LocalAddresses,
        local_of: impl FnOnce(AssociationId) -> Option<&'a LocalAddresses>,
    ) {
        if let Owners::One(first) = *self {
            let mut index = Box::<Index>::default();
            if let Some(local) = local_of(first) {
                index.insert(first, local);
            }
            *self = Owners::Several(index);
        }
        if let Owners::Several(index) = self {
            index.insert(id, local);
        }
    }

    /// Removes an association with these local addresses. Returns whether none is left.
    pub(super) fn remove(&mut self, id: AssociationId, local: &LocalAddresses) -> bool {
        match self {
            Owners::One(one) => *one == id,
            Owners::Several(index) => {
                index.remove(id, local);
                index.ids.is_empty()
            }
        }
    }

    /// Returns an association that uses one of these local addresses and `counts`, any one of several. `local_of` returns the
    /// addresses of one.
    pub(super) fn overlapping<'a>(
        &self,
        local: &LocalAddresses,
        local_of: impl FnOnce(AssociationId) -> Option<&'a LocalAddresses>,
        counts: impl Fn(AssociationId) -> bool,
    ) -> Option<AssociationId> {
        match self {
            Owners::One(id) => {
                Some(*id).filter(|id| counts(*id) && local_of(*id).is_some_and(|other| other.overlap(local)))
            }
            Owners::Several(index) => {
                places(local).find_map(|place| index.all_at(place).take(LOOKED_AT_MAX).find(|id| counts(*id)))
            }
        }
    }

    /// Returns the association that receives packets at this local address. If the destination of a packet is not known, this is
    /// any one of several.
    pub(super) fn serving<'a>(
        &self,
        local: Option<IpAddr>,
        local_of: impl FnOnce(AssociationId) -> Option<&'a LocalAddresses>,
    ) -> Option<AssociationId> {
        match self {
            Owners::One(id) => Some(*id).filter(|id| local_of(*id).is_some_and(|own| own.serve(local))),
            Owners::Several(index) => match local {
                Some(local) => index.at(local.to_canonical()),
                None => index.ids.first().copied(),
            },
        }
    }
}

impl Index {
    fn insert(&mut self, id: AssociationId, local: &LocalAddresses) {
        self.ids.insert(id);
        for place in places(local) {
            match place {
                IpAddr::V4(ip) => self.ipv4.insert(ip, id),
                IpAddr::V6(ip) => self.ipv6.insert(ip, id),
            };
        }
    }

    fn remove(&mut self, id: AssociationId, local: &LocalAddresses) {
        if !self.ids.remove(&id) {
            return;
        }
        for place in places(local) {
            match place {
                IpAddr::V4(ip) => self.ipv4.remove(&ip),
                IpAddr::V6(ip) => self.ipv6.remove(&ip),
            };
        }
    }

    fn at(&self, ip: IpAddr) -> Option<AssociationId> {
        let owner = match ip {
            IpAddr::V4(ip) => self.ipv4.get(&Ipv4Addr::UNSPECIFIED).or_else(|| self.ipv4.get(&ip)),
            IpAddr::V6(ip) => self.ipv6.get(&Ipv6Addr::UNSPECIFIED).or_else(|| self.ipv6.get(&ip)),
        };
        owner.copied()
    }

    /// Returns the associations that share this place.
    fn all_at(&self, place: IpAddr) -> impl Iterator<Item = AssociationId> + '_ {
        let of_ipv4 = (place == Ipv4Addr::UNSPECIFIED).then(|| self.ipv4.values());
        let of_ipv6 = (place == Ipv6Addr::UNSPECIFIED).then(|| self.ipv6.values());
        let of_family = of_ipv4.into_iter().flatten().chain(of_ipv6.into_iter().flatten()).copied();
        let of_one = if place.is_unspecified() { None } else { self.at(place) };
        of_family.chain(of_one)
    }
}

/// Returns the places in the index of an association with these addresses.
fn places(local: &LocalAddresses) -> impl Iterator<Item = IpAddr> + '_ {
    const ALL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let scope = local.scope();
    let scope = if scope.is_empty() { &ALL[..] } else { scope };
    scope.iter().map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
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

    #[test]
    fn an_association_that_does_not_count_hides_no_other() {
        let ips = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().expect("an address"));
        let at = |ips: &[IpAddr]| LocalAddresses::new(ips, &Arc::default());
        let [first, second] = [1, 2].map(|n| AssociationId::new(n, n));
        let of_first = at(&ips[..1]);
        let mut owners = Owners::One(first);
        owners.insert(second, &at(&ips[1..]), |_| Some(&of_first));
        for local in [at(&ips), at(&[])] {
            for only in [first, second] {
                assert_eq!(owners.overlapping(&local, |_| None, |id| id == only), Some(only));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn the_index_finds_the_associations_that_a_comparison_with_each_finds(
            steps in proptest::collection::vec((0..6_u32, proptest::option::of(local())), 0..24),
        ) {
            let mut known = BTreeMap::<AssociationId, LocalAddresses>::new();
            let mut owners = None::<Owners>;
            let looked_at = Cell::new(0);
            for (n, local) in steps {
                let id = AssociationId::new(n, n);
                if let Some(earlier) = known.remove(&id)
                    && let Some(left) = &mut owners
                    && left.remove(id, &earlier)
                {
                    owners = None;
                }
                let Some(local) = local else { continue };
                let local_of = |id: AssociationId| {
                    looked_at.set(looked_at.get() + 1);
                    known.get(&id)
                };
                let overlapping = owners.as_ref().and_then(|owners| owners.overlapping(&local, local_of, |_| true));
                let overlap = overlapping.is_some();
                prop_assert_eq!(overlap, known.values().any(|other| other.overlap(&local)));
                prop_assert!(overlapping.is_none_or(|id| known[&id].overlap(&local)));
                let destination = local.scope().first().copied();
                let found = owners.as_ref().and_then(|owners| owners.serving(destination, local_of));
                let serving: Vec<_> = known.iter().filter(|(_, own)| own.serve(destination)).map(|(id, _)| *id).collect();
                prop_assert_eq!(found, serving.first().copied());
                if !overlap {
                    match &mut owners {
                        Some(owners) => owners.insert(id, &local, local_of),
                        None => owners = Some(Owners::One(id)),
                    }
                    known.insert(id, local);
                }
                prop_assert!(looked_at.replace(0) <= 3, "each call looks at one association at most");
                let listed: Vec<_> = owners.iter().flat_map(Owners::iter).collect();
                prop_assert_eq!(listed, known.keys().copied().collect::<Vec<_>>());
            }
            prop_assert_eq!(owners.is_none(), known.is_empty());
        }
    }
}
