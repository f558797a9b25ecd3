//! The sockets that hold each SCTP port.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;

/// Ports for sockets that bind to port 0: the same range as the kernel's.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;
/// Maximum number of these that one user may have opened, three quarters: the others always get some, without
/// which they could not connect.
const EPHEMERAL_OF_USER_MAX: usize = (*EPHEMERAL.end() - *EPHEMERAL.start()) as usize / 4 * 3;

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

    fn overlaps(&self, other: &Scope) -> bool {
        other.ips.iter().any(|ip| self.covers(*ip)) || self.ips.iter().any(|ip| other.covers(*ip))
    }

    /// Returns whether the unspecified address `all` covers `ip`.
    fn stands_for(&self, all: IpAddr, ip: IpAddr) -> bool {
        all.is_ipv6() == ip.is_ipv6() || (all.is_ipv6() && !self.v6_only)
    }
}

/// One socket's hold on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding {
    socket: u64,
    scope: Scope,
    sharing: Sharing,
    listens: bool,
}

/// The sockets with which a socket shares its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// Shared with sockets that do not listen: `SO_REUSEADDR` was set before the bind.
    pub(crate) address: bool,
    /// Shared with sockets of this user, even if they listen: `SO_REUSEPORT` was set before the bind.
    pub(crate) port_of_user: Option<u32>,
}

/// A bound port.
#[derive(Debug)]
struct Port {
    /// The user whose socket was bound to the port first.
    opener: u32,
    /// At least one.
    holdings: Vec<Holding>,
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
    next: u16,
    /// Only root may bind ports below this.
    unprivileged_from: u16,
}

impl Ports {
    /// Returns an empty table. Ephemeral ports are assigned from a random start, which programs cannot guess.
    pub(crate) fn new(random: u16, unprivileged_from: u16) -> Self {
        Ports { next: random, unprivileged_from, ..Ports::default() }
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
        let wanted = Holding { socket, scope, sharing, listens: false };
        match self.held.get_mut(&port) {
            Some(held) if held.holdings.iter().any(|other| conflict(other, &wanted)) => {
                return Err(Errno::ADDRINUSE);
            }
            Some(held) => held.holdings.push(wanted),
            None => {
                if EPHEMERAL.contains(&port) {
                    self.may_open(user).ok_or(Errno::ADDRINUSE)?;
                    *self.ephemeral_of_users.entry(user).or_default() += 1;
                }
                self.held.insert(port, Port { opener: user, holdings: vec![wanted] });
            }
        }
        Ok(port)
    }

    /// Changes the addresses at which a socket has a port.
    ///
    /// # Errors
    ///
    /// Another socket has the port at one of these addresses and does not share it, or listens there.
    pub(crate) fn rebind(&mut self, socket: u64, scope: &Scope, port: u16) -> Result<(), Errno> {
        let holders = &mut self.held.get_mut(&port).ok_or(Errno::INVAL)?.holdings;
        let mine = holders.iter().position(|holding| holding.socket == socket).ok_or(Errno::INVAL)?;
        let wanted = Holding { scope: scope.clone(), ..holders[mine].clone() };
        let mut others = holders.iter().filter(|other| other.socket != socket);
        if others.any(|other| conflict(other, &wanted)) {
            return Err(Errno::ADDRINUSE);
        }
        holders[mine] = wanted;
        Ok(())
    }

    /// Records whether the socket listens on its port.
    pub(crate) fn set_listens(&mut self, socket: u64, port: u16, listens: bool) {
        let holders = self.held.get_mut(&port).into_iter().flat_map(|held| &mut held.holdings);
        let mine = holders.filter(|holding| holding.socket == socket);
        mine.for_each(|holding| holding.listens = listens);
    }

    /// Returns the sockets that have a port.
    pub(crate) fn holders(&self, port: u16) -> impl Iterator<Item = u64> {
        self.holdings(port).map(|holding| holding.socket)
    }

    /// Returns whether the socket shares its port with listeners of its user.
    pub(crate) fn is_shared(&self, socket: u64, port: u16) -> bool {
        let mut mine = self.holdings(port).filter(|holding| holding.socket == socket);
        mine.any(|holding| holding.sharing.port_of_user.is_some())
    }

    /// Releases the port of a socket.
    pub(crate) fn release(&mut self, socket: u64, port: u16) {
        let Some(held) = self.held.get_mut(&port) else { return };
        held.holdings.retain(|holding| holding.socket != socket);
        if held.holdings.is_empty() {
            let opener = held.opener;
            self.held.remove(&port);
            if EPHEMERAL.contains(&port) {
                self.release_ephemeral(opener);
            }
        }
    }

    fn holdings(&self, port: u16) -> impl Iterator<Item = &Holding> {
        self.held.get(&port).into_iter().flat_map(|held| &held.holdings)
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
        // A user who has its share is told so without a search.
        self.may_open(user)?;
        let count = EPHEMERAL.end() - EPHEMERAL.start() + 1;
        let first = self.next;
        let mut candidates = (0..count)
            .map(|n| EPHEMERAL.start() + (u32::from(first) + u32::from(n)).rem_euclid(count.into()) as u16);
        let port = candidates.find(|port| !self.held.contains_key(port))?;
        self.next = port - EPHEMERAL.start() + 1;
        Some(port)
    }
}

fn conflict(one: &Holding, other: &Holding) -> bool {
    let (a, b) = (one.sharing, other.sharing);
    let share_address = a.address && b.address && !one.listens && !other.listens;
    let share_port = a.port_of_user.is_some() && a.port_of_user == b.port_of_user;
    !share_address && !share_port && one.scope.overlaps(&other.scope)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let v4 = "192.0.2.1".parse().expect("an address");
        assert!(at("::").covers(v4) && at("0.0.0.0").covers(v4) && !alone.covers(v4));
    }

    #[test]
    fn addresses_are_added_where_nobody_else_has_the_port() {
        let mut ports = Ports::new(0, 1024);
        let both =
            Scope::new(["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().expect("an address")).into(), false);
        assert_eq!(ports.bind(Holder { socket: 1, user: 1 }, at("127.0.0.1"), 7, ALONE), Ok(7));
        assert_eq!(ports.rebind(1, &both, 7), Ok(()));
        assert_eq!(
            ports.bind(Holder { socket: 2, user: 1 }, at("127.0.0.2"), 7, ALONE),
            Err(Errno::ADDRINUSE)
        );
        assert_eq!(ports.bind(Holder { socket: 2, user: 1 }, at("127.0.0.3"), 7, ALONE), Ok(7));
        assert_eq!(ports.rebind(2, &both, 7), Err(Errno::ADDRINUSE));
    }

    #[test]
    fn free_ports_differ_until_there_is_none() {
        let mut ports = Ports::new(65_000, 1024);
        // A user for each ten thousand.
        let mut bind = |n: u16| {
            ports.bind(Holder { socket: n.into(), user: u32::from(n / 10_000) }, at("0.0.0.0"), 0, ALONE)
        };
        let all: std::collections::HashSet<u16> = EPHEMERAL.map(|n| bind(n).expect("one is free")).collect();
        assert_eq!(all.len(), EPHEMERAL.count());
        assert_eq!(bind(0), Err(Errno::ADDRINUSE));
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
        let free = EPHEMERAL.rev().find(|port| ports.holders(*port).count() == 0).expect("a quarter is");
        assert_eq!(bind(&mut ports, 1, 0), Err(Errno::ADDRINUSE));
        assert_eq!(bind(&mut ports, 1, free), Err(Errno::ADDRINUSE), "by its number");
        assert!(bind(&mut ports, 1, 7).is_ok(), "another port");
        assert!(bind(&mut ports, 2, 0).is_ok() && bind(&mut ports, 2, free).is_ok(), "another user");
        own.iter().take(1).for_each(|(socket, port)| ports.release(*socket, *port));
        assert!(bind(&mut ports, 1, 0).is_ok(), "one was given back");
    }
}
