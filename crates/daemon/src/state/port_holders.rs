//! The sockets that hold one SCTP port, found by the addresses at which they hold it.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound::{Excluded, Included};

/// The addresses that a socket is bound to: a list, or the unspecified address, which stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// In ascending order.
    ips: Vec<IpAddr>,
    /// `IPV6_V6ONLY`: the unspecified IPv6 address does not cover IPv4 addresses.
    v6_only: bool,
}

impl Scope {
    pub(crate) fn new(mut ips: Vec<IpAddr>, v6_only: bool) -> Self {
        ips.sort_unstable();
        Scope { ips, v6_only }
    }

    pub(crate) fn covers(&self, ip: IpAddr) -> bool {
        let mut unspecified = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].into_iter();
        self.contains(ip) || unspecified.any(|all| self.stands_for(all, ip) && self.contains(all))
    }

    fn contains(&self, ip: IpAddr) -> bool {
        self.ips.binary_search(&ip).is_ok()
    }

    /// Returns whether the unspecified address `all` covers `ip`.
    fn stands_for(&self, all: IpAddr, ip: IpAddr) -> bool {
        all.is_ipv6() == ip.is_ipv6() || (all.is_ipv6() && !self.v6_only)
    }

    /// Returns the places at which a holder of this scope is entered.
    fn entered_at(&self) -> impl Iterator<Item = Place> {
        // IPv4 addresses come first.
        let families = self.ips.first().into_iter().chain(self.ips.last()).map(|ip| Place::family_of(*ip));
        let covers_both = !self.v6_only && self.contains(Ipv6Addr::UNSPECIFIED.into());
        let listed = self.ips.iter().map(|ip| Place::Listed(*ip));
        listed.chain(families).chain(covers_both.then_some(Place::BothFamilies))
    }

    /// Returns the places at which all holders are entered whose addresses overlap with this scope, and no others.
    fn overlapped_at(&self) -> impl Iterator<Item = Place> {
        self.ips.iter().flat_map(|&ip| {
            let places = match (ip, ip.is_unspecified()) {
                (IpAddr::V4(_), false) => {
                    [Some(Place::Listed(ip)), Some(Place::ALL_IPV4), Some(Place::BothFamilies)]
                }
                (IpAddr::V4(_), true) => [Some(Place::AnyIpv4), Some(Place::BothFamilies), None],
                (IpAddr::V6(_), false) => [Some(Place::Listed(ip)), Some(Place::ALL_IPV6), None],
                (IpAddr::V6(_), true) => {
                    [Some(Place::AnyIpv6), (!self.v6_only).then_some(Place::AnyIpv4), None]
                }
            };
            places.into_iter().flatten()
        })
    }
}

/// The sockets with which a socket shares its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sharing {
    /// Shared with sockets that do not listen: `SO_REUSEADDR` was set before the bind.
    pub(crate) address: bool,
    /// Shared with sockets of this user, even if they listen: `SO_REUSEPORT` was set before the bind.
    pub(crate) port_of_user: Option<u32>,
}

/// One socket's hold on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) scope: Scope,
    pub(super) sharing: Sharing,
    pub(super) listens: bool,
}

impl Holding {
    /// Returns the sockets with which this one shares the port now.
    fn shares_with(&self) -> Sharing {
        Sharing { address: self.sharing.address && !self.listens, ..self.sharing }
    }
}

/// A place in the index of holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Holders that list this address, which may be an unspecified one.
    Listed(IpAddr),
    /// Holders that list any IPv4 address.
    AnyIpv4,
    /// Holders that list any IPv6 address.
    AnyIpv6,
    /// Holders that list the unspecified IPv6 address, and cover IPv4 by it.
    BothFamilies,
}

impl Place {
    /// Holders that list the unspecified IPv4 address.
    const ALL_IPV4: Place = Place::Listed(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    /// Holders that list the unspecified IPv6 address.
    const ALL_IPV6: Place = Place::Listed(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

    fn family_of(ip: IpAddr) -> Place {
        if ip.is_ipv4() { Place::AnyIpv4 } else { Place::AnyIpv6 }
    }
}

/// A socket at a place. The order puts sockets together that share the port alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    place: Place,
    shares_with: Sharing,
    socket: u64,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        #[cfg(test)]
        tests::COMPARISONS.with(|count| count.set(count.get() + 1));
        let key = |entry: &Entry| (entry.place, entry.shares_with, entry.socket);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The holders of a port.
///
/// A user may let thousands of sockets hold a port at many addresses each. So the index finds those that exclude a newcomer by a
/// few searches for each of its addresses, however many others there are.
#[derive(Debug, Default)]
pub(super) struct Holders {
    holdings: HashMap<u64, Holding>,
    /// An entry for each socket and place.
    index: BTreeSet<Entry>,
}

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.holdings.is_empty()
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.holdings.len()
    }

    pub(super) fn get(&self, socket: u64) -> Option<&Holding> {
        self.holdings.get(&socket)
    }

    /// Enters a socket, or changes its holding.
    pub(super) fn insert(&mut self, socket: u64, holding: Holding) {
        self.remove(socket);
        self.index.extend(entries(socket, &holding));
        self.holdings.insert(socket, holding);
    }

    pub(super) fn remove(&mut self, socket: u64) -> Option<Holding> {
        let holding = self.holdings.remove(&socket)?;
        entries(socket, &holding).for_each(|entry| {
            self.index.remove(&entry);
        });
        Some(holding)
    }

    /// Returns the sockets that exclude another one: they share neither addresses nor the port with it, and their addresses
    /// overlap. A socket occurs once for each place.
    pub(super) fn excluding(&self, newcomer: &Holding) -> impl Iterator<Item = u64> {
        let own = newcomer.shares_with();
        newcomer.scope.overlapped_at().flat_map(move |place| {
            let unshared = self.except_of_user(place, false, own.port_of_user);
            let shared = (!own.address).then(|| self.except_of_user(place, true, own.port_of_user));
            unshared.chain(shared.into_iter().flatten())
        })
    }

    /// Returns the sockets at a place that share their addresses, or do not, without those that share the port with this user.
    fn except_of_user(&self, place: Place, address: bool, user: Option<u32>) -> impl Iterator<Item = u64> {
        let entry =
            |port_of_user, socket| Entry { place, shares_with: Sharing { address, port_of_user }, socket };
        let (first, last) = (entry(None, 0), entry(Some(u32::MAX), u64::MAX));
        let before = user.map_or(Included(last), |_| Excluded(entry(user, 0)));
        let after = user.map(|_| (Excluded(entry(user, u64::MAX)), Included(last)));
        let after = after.into_iter().flat_map(|after| self.index.range(after));
        self.index.range((Included(first), before)).chain(after).map(|entry| entry.socket)
    }
}

/// Returns the entries of a socket. Some occur several times.
fn entries(socket: u64, holding: &Holding) -> impl Iterator<Item = Entry> {
    let shares_with = holding.shares_with();
    holding.scope.entered_at().map(move |place| Entry { place, shares_with, socket })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// Number of comparisons of entries.
        pub(super) static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    /// The rule without an index: returns whether one of two sockets excludes the other.
    fn exclude(one: &Holding, other: &Holding) -> bool {
        let (a, b) = (one.sharing, other.sharing);
        let share_address = a.address && b.address && !one.listens && !other.listens;
        let share_port = a.port_of_user.is_some() && a.port_of_user == b.port_of_user;
        let covered = |by: &Scope, all: &Scope| all.ips.iter().any(|ip| by.covers(*ip));
        let overlap = covered(&one.scope, &other.scope) || covered(&other.scope, &one.scope);
        !share_address && !share_port && overlap
    }

    fn holding() -> impl Strategy<Value = Holding> {
        let ips = ["0.0.0.0", "::", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
        let ip = proptest::sample::select(ips.map(|ip| ip.parse::<IpAddr>().expect("an address")).to_vec());
        let user = proptest::option::of(proptest::sample::select(vec![0, 1, 2, u32::MAX]));
        (proptest::collection::vec(ip, 1..4), any::<[bool; 3]>(), user).prop_map(
            |(ips, [v6_only, address, listens], port_of_user)| Holding {
                scope: Scope::new(ips, v6_only),
                sharing: Sharing { address, port_of_user },
                listens,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn the_index_finds_the_holders_that_a_comparison_with_each_finds(
            steps in proptest::collection::vec((0..12_u64, proptest::option::of(holding())), 0..24),
            newcomers in proptest::collection::vec(holding(), 1..16),
        ) {
            let (mut holders, mut known) = (Holders::default(), BTreeMap::new());
            for (socket, holding) in steps {
                match holding {
                    Some(holding) => {
                        holders.insert(socket, holding.clone());
                        known.insert(socket, holding);
                    }
                    None => prop_assert_eq!(holders.remove(socket), known.remove(&socket)),
                }
            }
            for newcomer in newcomers {
                let found: BTreeSet<u64> = holders.excluding(&newcomer).collect();
                let compared = known.iter().filter(|(_, other)| exclude(other, &newcomer));
                prop_assert_eq!(found, compared.map(|(socket, _)| *socket).collect::<BTreeSet<u64>>());
            }
            for (socket, holding) in known {
                prop_assert_eq!(holders.remove(socket), Some(holding));
            }
            prop_assert!(holders.is_empty() && holders.index.is_empty());
        }
    }

    #[test]
    fn a_bind_beside_thousands_of_holders_costs_little_more_than_beside_a_few() {
        /// As many as a socket may have.
        const ADDRESSES: u8 = 32;
        let shared = Sharing { address: true, port_of_user: None };
        let at = |net: u8, sharing| {
            let ips = (0..ADDRESSES).map(|host| IpAddr::from([127, net, 0, host])).collect();
            Holding { scope: Scope::new(ips, false), sharing, listens: false }
        };
        let mut holders = Holders::default();
        let mut cost_beside = |count: u64| {
            (holders.count() as u64..count).for_each(|socket| holders.insert(socket, at(1, shared)));
            COMPARISONS.set(0);
            for (newcomer, conflicts) in [
                (at(2, Sharing::default()), false),
                (at(1, shared), false),
                (at(1, Sharing::default()), true),
            ] {
                assert_eq!(holders.excluding(&newcomer).next().is_some(), conflicts);
                holders.insert(u64::MAX, newcomer.clone());
                assert_eq!(holders.remove(u64::MAX), Some(newcomer));
            }
            COMPARISONS.get()
        };
        let (few, many) = (cost_beside(4), cost_beside(4_000));
        assert!(many < 8 * few, "{few} comparisons beside 4 holders, {many} beside 4,000");
    }
}
