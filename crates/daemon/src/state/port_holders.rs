//! The sockets that hold one SCTP port, found by the addresses at which they hold it.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound::{Excluded, Included};

/// Maximum number of addresses at which one socket holds a port. Every address of 127.0.0.0/8 is local, and each one takes time
/// when it is bound.
pub(crate) const ADDRESSES_MAX: usize = 32;

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

    /// Returns this scope with the addresses of another one; `None` if those are too many.
    pub(super) fn with(&self, other: &Scope) -> Option<Scope> {
        let others = other.ips.iter().filter(|ip| !self.contains(**ip));
        let ips: Vec<IpAddr> = self.ips.iter().chain(others).copied().collect();
        (ips.len() <= ADDRESSES_MAX).then(|| Scope::new(ips, self.v6_only))
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

/// What holds a port by the bind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The socket.
    Bound,
    /// The socket, which listens.
    Listener,
    /// Sockets with associations of that socket, which has released the port itself.
    Heirs,
}

/// One bind's hold on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) scope: Scope,
    pub(super) sharing: Sharing,
    pub(super) user: u32,
    pub(super) role: Role,
}

impl Holding {
    /// Returns the sockets with which this one shares the port now.
    fn shares_with(&self) -> SharesWith {
        let address = match self.role {
            _ if !self.sharing.address => AddressSharing::None,
            Role::Bound => AddressSharing::All,
            Role::Listener => AddressSharing::None,
            // The kernel shares the addresses with all users. But another user's socket would keep the packets of these
            // associations from their user's next server, or that server's from it.
            Role::Heirs => AddressSharing::OfUser(self.user),
        };
        SharesWith { address, port_of_user: self.sharing.port_of_user }
    }

    /// Returns the first and the last value of each group of holders with which a newcomer shares the port, in ascending order.
    fn compatible(&self) -> impl Iterator<Item = (SharesWith, SharesWith)> + Clone + use<> {
        let SharesWith { address: own_address, port_of_user: own_port } = self.shares_with();
        let groups = [AddressSharing::None, AddressSharing::OfUser(self.user), AddressSharing::All];
        groups.into_iter().filter_map(move |address| {
            let at = |port_of_user| SharesWith { address, port_of_user };
            let shares_address = own_address != AddressSharing::None && address != AddressSharing::None;
            match shares_address {
                true => Some((at(None), at(Some(u32::MAX)))),
                false => own_port.map(|user| (at(Some(user)), at(Some(user)))),
            }
        })
    }
}

/// The sockets with which a holder shares its port now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SharesWith {
    address: AddressSharing,
    /// The user with whose sockets it shares the port, even if they listen.
    port_of_user: Option<u32>,
}

impl SharesWith {
    const FIRST: SharesWith = SharesWith { address: AddressSharing::None, port_of_user: None };
    const LAST: SharesWith = SharesWith { address: AddressSharing::All, port_of_user: Some(u32::MAX) };
}

/// The users with whose sockets a holder shares its addresses, if those share theirs and do not listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AddressSharing {
    None,
    OfUser(u32),
    All,
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
    shares_with: SharesWith,
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
        let compatible = newcomer.compatible();
        newcomer.scope.overlapped_at().flat_map(move |place| self.except(place, compatible.clone()))
    }

    /// Returns the sockets at a place, without some groups of them.
    fn except(
        &self,
        place: Place,
        groups: impl Iterator<Item = (SharesWith, SharesWith)>,
    ) -> impl Iterator<Item = u64> {
        let first_of = move |shares_with| Entry { place, shares_with, socket: 0 };
        let last_of = move |shares_with| Entry { place, shares_with, socket: u64::MAX };
        let mut from = Some(Included(first_of(SharesWith::FIRST)));
        let ends =
            groups.map(move |(first, last)| (Excluded(first_of(first)), Some(Excluded(last_of(last)))));
        let ends = ends.chain([(Included(last_of(SharesWith::LAST)), None)]);
        ends.flat_map(move |(end, next)| {
            let begin = std::mem::replace(&mut from, next);
            begin.into_iter().flat_map(move |begin| self.index.range((begin, end))).map(|entry| entry.socket)
        })
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
        let listens = one.role == Role::Listener || other.role == Role::Listener;
        let of_heirs = one.role == Role::Heirs || other.role == Role::Heirs;
        let share_address = a.address && b.address && !listens && (one.user == other.user || !of_heirs);
        let share_port = a.port_of_user.is_some() && a.port_of_user == b.port_of_user;
        let covered = |by: &Scope, all: &Scope| all.ips.iter().any(|ip| by.covers(*ip));
        let overlap = covered(&one.scope, &other.scope) || covered(&other.scope, &one.scope);
        !share_address && !share_port && overlap
    }

    fn holding() -> impl Strategy<Value = Holding> {
        let ips = ["0.0.0.0", "::", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
        let ip = proptest::sample::select(ips.map(|ip| ip.parse::<IpAddr>().expect("an address")).to_vec());
        let user = proptest::sample::select(vec![0, 1, 2, u32::MAX]);
        let role = proptest::sample::select(vec![Role::Bound, Role::Listener, Role::Heirs]);
        (proptest::collection::vec(ip, 1..4), any::<[bool; 3]>(), user, role).prop_map(
            |(ips, [v6_only, address, port], user, role)| Holding {
                scope: Scope::new(ips, v6_only),
                sharing: Sharing { address, port_of_user: port.then_some(user) },
                user,
                role,
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
            for newcomer in newcomers.into_iter().filter(|newcomer| newcomer.role != Role::Heirs) {
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
        let shared = Sharing { address: true, port_of_user: None };
        let at = |net: u8, sharing| {
            let ips = (0..ADDRESSES_MAX as u8).map(|host| IpAddr::from([127, net, 0, host])).collect();
            Holding { scope: Scope::new(ips, false), sharing, user: 1, role: Role::Bound }
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
