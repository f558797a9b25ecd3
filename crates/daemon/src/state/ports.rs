//! The sockets that hold each SCTP port.

use std::collections::{BTreeSet, HashMap};

use rustix::io::Errno;

use super::port_holders::{Holders, Holding, Role, Scope, Sharing};

/// Ports for sockets that bind to port 0: the same range as the kernel's.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;
/// Maximum number of these that one user may have opened, three quarters: the others always get some, without
/// which they could not connect.
const EPHEMERAL_OF_USER_MAX: usize = (*EPHEMERAL.end() - *EPHEMERAL.start()) as usize / 4 * 3;

/// A bound port.
#[derive(Debug)]
struct Port {
    /// The user whose socket was bound to the port first.
    opener: u32,
    /// At least one.
    holders: Holders,
    /// The sockets that hold the port with another one, by that one's number.
    heirs: HashMap<u64, Heirs>,
}

/// The sockets with associations of another one: accepted or peeled off.
#[derive(Debug, Default)]
struct Heirs {
    /// At least one.
    sockets: BTreeSet<u64>,
    /// The addresses of the other one, if the heirs hold the port at more of them.
    scope_of_other: Option<Scope>,
}

/// A socket that binds a port, and its user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) socket: u64,
    pub(crate) user: u32,
}

/// All bound ports.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    held: HashMap<u16, Port>,
    /// Number of ports of the ephemeral range that each user has opened.
    ephemeral_of_users: HashMap<u32, usize>,
    /// The free ports of that range.
    free: BTreeSet<u16>,
    /// Where the search for the next one begins.
    next: u16,
    /// Only root may bind ports below this.
    unprivileged_from: u16,
}

impl Ports {
    /// Returns an empty table. Ephemeral ports are assigned from a random start, which programs cannot guess.
    pub(crate) fn new(random: u16, unprivileged_from: u16) -> Self {
        let next = EPHEMERAL.start() + random % EPHEMERAL.len() as u16;
        Ports { free: EPHEMERAL.collect(), next, unprivileged_from, ..Ports::default() }
    }

    /// Returns whether only root may bind this port.
    pub(crate) fn is_privileged(&self, port: u16) -> bool {
        (1..self.unprivileged_from).contains(&port)
    }

    /// Binds a socket of a user to a port, or to a free one if `port` is 0; returns the port.
    ///
    /// # Errors
    ///
    /// Another socket has the port and does not share it, or listens on it; or the user has its share of the ephemeral ports.
    pub(crate) fn bind(
        &mut self,
        Holder { socket, user }: Holder,
        scope: Scope,
        port: u16,
        sharing: Sharing,
    ) -> Result<u16, Errno> {
        let port = match port {
            0 => self.free(user).ok_or(Errno::ADDRINUSE)?,
            port => port,
        };
        let wanted = Holding { scope, sharing, user, role: Role::Bound };
        match self.held.get_mut(&port) {
            Some(held) if held.holders.excluding(&wanted).next().is_some() => return Err(Errno::ADDRINUSE),
            Some(held) => held.holders.insert(socket, wanted),
            None => {
                if EPHEMERAL.contains(&port) {
                    self.may_open(user).ok_or(Errno::ADDRINUSE)?;
                    *self.ephemeral_of_users.entry(user).or_default() += 1;
                    self.free.remove(&port);
                }
                let mut holders = Holders::default();
                holders.insert(socket, wanted);
                self.held.insert(port, Port { opener: user, holders, heirs: HashMap::new() });
            }
        }
        Ok(port)
    }

    /// Changes the addresses at which a socket has a port. `added` are those that it has not had before: others were free when it
    /// got them. Its heirs keep those that it gives up.
    ///
    /// # Errors
    ///
    /// `ADDRINUSE`: another socket has the port at one of the added addresses and does not share it, or listens there. `NOBUFS`:
    /// there are too many addresses with those of the heirs.
    pub(crate) fn rebind(
        &mut self,
        socket: u64,
        scope: Scope,
        added: Option<Scope>,
        port: u16,
    ) -> Result<(), Errno> {
        let Port { holders, heirs, .. } = self.held.get_mut(&port).ok_or(Errno::INVAL)?;
        let own = holders.get(socket).ok_or(Errno::INVAL)?;
        let heirs = heirs.get_mut(&socket);
        let with_heirs = heirs.as_ref().map(|_| scope.with(&own.scope).ok_or(Errno::NOBUFS)).transpose()?;
        let at = |scope| Holding { scope, ..own.clone() };
        let (wanted, added) = (at(with_heirs.unwrap_or_else(|| scope.clone())), added.map(at));
        if added.is_some_and(|added| holders.excluding(&added).any(|other| other != socket)) {
            return Err(Errno::ADDRINUSE);
        }
        if let Some(heirs) = heirs {
            heirs.scope_of_other = Some(scope);
        }
        holders.insert(socket, wanted);
        Ok(())
    }

    /// Returns sockets that keep another one from these addresses of a port, `count` at most.
    pub(crate) fn excluding(
        &self,
        Holder { socket, user }: Holder,
        scope: Scope,
        port: u16,
        sharing: Sharing,
        count: usize,
    ) -> Vec<u64> {
        let Some(Port { holders, heirs, .. }) = self.held.get(&port) else { return Vec::new() };
        let own = holders.get(socket);
        let (sharing, role) = own.map_or((sharing, Role::Bound), |own| (own.sharing, own.role));
        let is_left = |other| holders.get(other).is_some_and(|other| other.role == Role::Heirs);
        let mut found = Vec::new();
        for other in holders.excluding(&Holding { scope, sharing, user, role }) {
            let heirs = heirs.get(&other).filter(|_| is_left(other));
            let itself = heirs.is_none().then_some(other);
            let sockets = heirs.into_iter().flat_map(|heirs| &heirs.sockets).copied().chain(itself);
            for other in sockets.filter(|other| *other != socket).take(count) {
                if !found.contains(&other) {
                    found.push(other);
                }
            }
            if found.len() >= count {
                found.truncate(count);
                break;
            }
        }
        found
    }

    /// Lets a socket with an association of another one, `from`, hold the port with that one, at its addresses, also when that
    /// one has released it.
    pub(crate) fn inherit(&mut self, heir: u64, from: u64, port: u16) {
        let Some(Port { holders, heirs, .. }) = self.held.get_mut(&port) else { return };
        if holders.get(from).is_some() {
            heirs.entry(from).or_default().sockets.insert(heir);
        }
    }

    /// Records whether the socket listens on its port.
    pub(crate) fn set_listens(&mut self, socket: u64, port: u16, listens: bool) {
        let Some(Port { holders, .. }) = self.held.get_mut(&port) else { return };
        if let Some(own) = holders.get(socket) {
            let role = if listens { Role::Listener } else { Role::Bound };
            let changed = Holding { role, ..own.clone() };
            holders.insert(socket, changed);
        }
    }

    /// Returns the number of sockets that have a port.
    #[cfg(test)]
    pub(crate) fn count(&self, port: u16) -> usize {
        self.held.get(&port).map_or(0, |held| held.holders.count())
    }

    /// Returns whether the socket shares its port with listeners of its user.
    pub(crate) fn is_shared(&self, socket: u64, port: u16) -> bool {
        let own = self.held.get(&port).and_then(|held| held.holders.get(socket));
        own.is_some_and(|own| own.sharing.port_of_user.is_some())
    }

    /// Releases the port of a bound socket. Its heirs keep it.
    pub(crate) fn release(&mut self, socket: u64, port: u16) {
        let Some(Port { holders, heirs, .. }) = self.held.get_mut(&port) else { return };
        if let Some(own) = holders.remove(socket)
            && heirs.contains_key(&socket)
        {
            holders.insert(socket, Holding { role: Role::Heirs, ..own });
        }
        self.remove_if_unheld(port);
    }

    /// Releases the port that a socket holds with another one, `from`.
    pub(crate) fn release_inherited(&mut self, heir: u64, from: u64, port: u16) {
        let Some(Port { holders, heirs, .. }) = self.held.get_mut(&port) else { return };
        let Some(with) = heirs.get_mut(&from) else { return };
        with.sockets.remove(&heir);
        if !with.sockets.is_empty() {
            return;
        }
        let scope_of_other = heirs.remove(&from).and_then(|with| with.scope_of_other);
        match (holders.remove(from), scope_of_other) {
            (Some(Holding { role: Role::Heirs, .. }) | None, _) => self.remove_if_unheld(port),
            (Some(own), None) => holders.insert(from, own),
            (Some(own), Some(scope)) => holders.insert(from, Holding { scope, ..own }),
        }
    }

    fn remove_if_unheld(&mut self, port: u16) {
        let Some(held) = self.held.get(&port) else { return };
        if held.holders.is_empty() {
            let opener = held.opener;
            self.held.remove(&port);
            if EPHEMERAL.contains(&port) {
                self.release_ephemeral(opener);
                self.free.insert(port);
            }
        }
    }

    /// Returns `None` if the user has opened its share of the ephemeral ports.
    fn may_open(&self, user: u32) -> Option<()> {
        let count = self.ephemeral_of_users.get(&user).copied().unwrap_or_default();
        (count < EPHEMERAL_OF_USER_MAX).then_some(())
    }

    fn release_ephemeral(&mut self, user: u32) {
        if let Some(count) = self.ephemeral_of_users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.ephemeral_of_users.remove(&user);
            }
        }
    }

    /// Returns a free port for a user that may open one more.
    fn free(&mut self, user: u32) -> Option<u16> {
        self.may_open(user)?;
        let port = self.free.range(self.next..).next().or_else(|| self.free.first()).copied()?;
        self.next = port + 1;
        Some(port)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::state::port_holders::ADDRESSES_MAX;

    const ALONE: Sharing = Sharing { address: false, port_of_user: None };
    const SHARED: Sharing = Sharing { address: true, port_of_user: None };

    fn at(ip: &str) -> Scope {
        Scope::new(vec![ip.parse().expect("an address")], false)
    }

    #[test]
    fn a_port_has_one_holder_unless_all_share_it() {
        let mut ports = Ports::new(0, 1024);
        assert_eq!(ports.bind(Holder { socket: 1, user: 1 }, at("0.0.0.0"), 7, ALONE), Ok(7));
        assert_eq!(
            ports.bind(Holder { socket: 2, user: 1 }, at("127.0.0.1"), 7, SHARED),
            Err(Errno::ADDRINUSE)
        );
        ports.release(1, 7);
        assert_eq!(ports.bind(Holder { socket: 2, user: 1 }, at("127.0.0.1"), 7, SHARED), Ok(7));
        assert_eq!(ports.bind(Holder { socket: 3, user: 1 }, at("127.0.0.1"), 7, SHARED), Ok(7));
        assert_eq!(
            ports.bind(Holder { socket: 4, user: 1 }, at("127.0.0.2"), 7, ALONE),
            Ok(7),
            "another address"
        );
        ports.set_listens(2, 7, true);
        assert_eq!(
            ports.bind(Holder { socket: 5, user: 1 }, at("127.0.0.1"), 7, SHARED),
            Err(Errno::ADDRINUSE),
            "one listens"
        );
    }

    #[test]
    fn listeners_of_one_user_share_a_port() {
        let mut ports = Ports::new(0, 1024);
        let of = |user| Sharing { address: true, port_of_user: Some(user) };
        assert_eq!(ports.bind(Holder { socket: 1, user: 1 }, at("0.0.0.0"), 7, of(1)), Ok(7));
        ports.set_listens(1, 7, true);
        assert_eq!(ports.bind(Holder { socket: 2, user: 1 }, at("127.0.0.1"), 7, of(1)), Ok(7));
        assert_eq!(
            ports.bind(Holder { socket: 3, user: 1 }, at("127.0.0.1"), 7, of(2)),
            Err(Errno::ADDRINUSE),
            "another user"
        );
        assert_eq!(
            ports.bind(Holder { socket: 3, user: 1 }, at("127.0.0.1"), 7, SHARED),
            Err(Errno::ADDRINUSE),
            "one listens"
        );
        assert!(ports.is_shared(2, 7) && !ports.is_shared(3, 7));
    }

    #[test]
    fn both_families_are_one_unless_a_socket_wants_ipv6_alone() {
        let mut ports = Ports::new(0, 1024);
        let alone = Scope::new(vec!["::".parse().expect("an address")], true);
        assert_eq!(ports.bind(Holder { socket: 1, user: 1 }, at("0.0.0.0"), 7, ALONE), Ok(7));
        assert_eq!(ports.bind(Holder { socket: 2, user: 1 }, at("::"), 7, ALONE), Err(Errno::ADDRINUSE));
        assert_eq!(ports.bind(Holder { socket: 3, user: 1 }, alone.clone(), 7, ALONE), Ok(7));
        ports.release(1, 7);
        ports.release(3, 7);
        assert_eq!(ports.bind(Holder { socket: 2, user: 1 }, at("::"), 7, ALONE), Ok(7));
        for taken in ["0.0.0.0", "127.0.0.1", "::1"] {
            let bound = ports.bind(Holder { socket: 1, user: 1 }, at(taken), 7, ALONE);
            assert_eq!(bound, Err(Errno::ADDRINUSE), "{taken}");
        }
        let v4 = "192.0.2.1".parse().expect("an address");
        assert!(at("::").covers(v4) && at("0.0.0.0").covers(v4) && !alone.covers(v4));
    }

    #[test]
    fn addresses_are_added_where_nobody_else_has_the_port() {
        let mut ports = Ports::new(0, 1024);
        let both =
            Scope::new(["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().expect("an address")).into(), false);
        assert_eq!(ports.bind(Holder { socket: 1, user: 1 }, at("127.0.0.1"), 7, ALONE), Ok(7));
        assert_eq!(ports.rebind(1, both.clone(), Some(at("127.0.0.2")), 7), Ok(()));
        assert_eq!(
            ports.bind(Holder { socket: 2, user: 1 }, at("127.0.0.2"), 7, ALONE),
            Err(Errno::ADDRINUSE)
        );
        assert_eq!(ports.bind(Holder { socket: 2, user: 1 }, at("127.0.0.3"), 7, ALONE), Ok(7));
        assert_eq!(ports.rebind(2, both, Some(at("127.0.0.1")), 7), Err(Errno::ADDRINUSE));
    }

    #[test]
    fn as_many_sockets_that_exclude_another_are_found_as_are_wanted() {
        let mut ports = Ports::new(0, 1024);
        for (socket, ip) in [(1, "127.0.0.1"), (2, "127.0.0.2"), (3, "127.0.0.3")] {
            assert_eq!(ports.bind(Holder { socket, user: 1 }, at(ip), 7, ALONE), Ok(7));
        }
        let newcomer = Holder { socket: 9, user: 2 };
        let found = |count| ports.excluding(newcomer, at("0.0.0.0"), 7, ALONE, count);
        assert_eq!([1, 2, 3, 4].map(|count| found(count).len()), [1, 2, 3, 3]);
    }

    #[test]
    fn heirs_hold_the_port_of_a_socket_that_has_released_it() {
        for sharing in [ALONE, SHARED, Sharing { address: false, port_of_user: Some(1) }] {
            let mut ports = Ports::new(0, 1024);
            assert_eq!(ports.bind(Holder { socket: 1, user: 1 }, at("127.0.0.1"), 7, sharing), Ok(7));
            ports.set_listens(1, 7, true);
            [2, 3].into_iter().for_each(|heir| ports.inherit(heir, 1, 7));
            ports.release(1, 7);
            let can_bind = |ports: &mut Ports, user, ip, sharing| {
                let done = ports.bind(Holder { socket: 9, user }, at(ip), 7, sharing);
                done.is_ok().then(|| ports.release(9, 7)).is_some()
            };
            for heir in [2, 3] {
                let shares_address = sharing.address;
                assert!(!can_bind(&mut ports, 1, "0.0.0.0", ALONE), "{sharing:?}");
                assert_eq!(can_bind(&mut ports, 1, "0.0.0.0", SHARED), shares_address, "{sharing:?}");
                let port_of_user = Sharing { address: false, port_of_user: Some(1) };
                assert_eq!(can_bind(&mut ports, 1, "0.0.0.0", port_of_user), sharing == port_of_user);
                assert!(!can_bind(&mut ports, 2, "0.0.0.0", SHARED), "{sharing:?}: another user");
                assert!(can_bind(&mut ports, 2, "127.0.0.2", ALONE), "{sharing:?}: other addresses");
                let newcomer = Holder { socket: 9, user: 2 };
                let excluding = ports.excluding(newcomer, at("127.0.0.1"), 7, ALONE, 16);
                assert_eq!(excluding, (heir..=3).collect::<Vec<_>>());
                assert_eq!(ports.excluding(newcomer, at("127.0.0.1"), 7, ALONE, 1), [heir]);
                ports.release_inherited(heir, 1, 7);
            }
            assert!(can_bind(&mut ports, 2, "0.0.0.0", ALONE), "{sharing:?}: none is left");
            assert!(ports.held.is_empty());
        }
    }

    #[test]
    fn heirs_hold_the_addresses_that_a_socket_gives_up() {
        let mut ports = Ports::new(0, 1024);
        let host = |host: u8| IpAddr::from([127, 0, 0, host]);
        let all = |hosts: std::ops::RangeInclusive<u8>| Scope::new(hosts.map(host).collect(), false);
        assert_eq!(ports.bind(Holder { socket: 1, user: 1 }, all(1..=2), 7, ALONE), Ok(7));
        ports.inherit(2, 1, 7);
        assert_eq!(ports.rebind(1, all(1..=1), None, 7), Ok(()));
        let bind = |ports: &mut Ports, socket, ip| ports.bind(Holder { socket, user: 2 }, at(ip), 7, SHARED);
        assert_eq!(bind(&mut ports, 9, "127.0.0.2"), Err(Errno::ADDRINUSE));
        let most = ADDRESSES_MAX as u8;
        let beyond = (all(3..=most + 1), Some(all(3..=most + 1)));
        assert_eq!(ports.rebind(1, beyond.0, beyond.1, 7), Err(Errno::NOBUFS), "31 with the 2 of the heir");
        ports.release_inherited(2, 1, 7);
        assert_eq!(bind(&mut ports, 9, "127.0.0.2"), Ok(7));
        assert_eq!(bind(&mut ports, 8, "127.0.0.1"), Err(Errno::ADDRINUSE));
        ports.release(1, 7);
        ports.release(9, 7);
        assert!(ports.held.is_empty());
    }

    #[test]
    fn addresses_that_a_socket_has_are_not_compared_again() {
        let mut ports = Ports::new(0, 1024);
        let shared = Sharing { address: true, port_of_user: None };
        let all =
            |hosts: &[&str]| Scope::new(hosts.iter().map(|ip| ip.parse().expect("one")).collect(), false);
        for socket in [1, 2] {
            assert_eq!(ports.bind(Holder { socket, user: 1 }, at("127.0.0.1"), 7, shared), Ok(7));
        }
        // From now on the first one shares nothing.
        ports.set_listens(1, 7, true);
        let (two, three) = (all(&["127.0.0.1", "127.0.0.2"]), all(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]));
        assert_eq!(ports.rebind(1, three, Some(all(&["127.0.0.2", "127.0.0.3"])), 7), Ok(()));
        assert_eq!(ports.rebind(1, two.clone(), None, 7), Ok(()));
        assert_eq!(ports.rebind(2, two, Some(at("127.0.0.2")), 7), Err(Errno::ADDRINUSE));
    }

    #[test]
    fn free_ports_differ_until_there_is_none() {
        let mut ports = Ports::new(65_000, 1024);
        // A user for each ten thousand.
        let bind = |ports: &mut Ports, n: u16| {
            ports.bind(Holder { socket: n.into(), user: u32::from(n / 10_000) }, at("0.0.0.0"), 0, ALONE)
        };
        let all: HashMap<u16, u16> =
            EPHEMERAL.map(|n| (bind(&mut ports, n).expect("one is free"), n)).collect();
        assert_eq!(all.len(), EPHEMERAL.count());
        assert_eq!(bind(&mut ports, 0), Err(Errno::ADDRINUSE));
        for port in [50_000, *EPHEMERAL.end(), *EPHEMERAL.start()] {
            ports.release(all[&port].into(), port);
            assert_eq!(bind(&mut ports, all[&port]), Ok(port), "the only free one");
        }
    }

    #[test]
    fn one_user_leaves_ephemeral_ports_to_others() {
        let mut ports = Ports::new(0, 1024);
        let mut sockets = 0..;
        let mut bind = |ports: &mut Ports, user: u32, port| {
            let socket = sockets.next().expect("numbers");
            ports.bind(Holder { socket, user }, at("0.0.0.0"), port, ALONE).map(|port| (socket, port))
        };
        let own: Vec<_> = (0..EPHEMERAL_OF_USER_MAX).map(|_| bind(&mut ports, 1, 0).expect("free")).collect();
        let free = EPHEMERAL.rev().find(|port| ports.count(*port) == 0).expect("a quarter is");
        assert_eq!(bind(&mut ports, 1, 0), Err(Errno::ADDRINUSE));
        assert_eq!(bind(&mut ports, 1, free), Err(Errno::ADDRINUSE), "by its number");
        assert!(bind(&mut ports, 1, 7).is_ok(), "another port");
        assert!(bind(&mut ports, 2, 0).is_ok() && bind(&mut ports, 2, free).is_ok(), "another user");
        own.iter().take(1).for_each(|(socket, port)| ports.release(*socket, *port));
        let last = bind(&mut ports, 1, 0).expect("one was given back");
        assert_eq!(bind(&mut ports, 1, 0), Err(Errno::ADDRINUSE), "and no more");
        own.iter().skip(1).chain([&last]).for_each(|(socket, port)| ports.release(*socket, *port));
        assert!(!ports.ephemeral_of_users.contains_key(&1), "a user without ports takes no memory");
    }
}
