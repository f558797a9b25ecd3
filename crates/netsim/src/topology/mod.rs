//! Networks of many hosts.
//!
//! Each builder adds hosts, pipes and routes to a [`Network`], which may have others already. All hosts of a topology
//! reach each other: there is a route for every pair of addresses. Addresses are made up (10.0.0.0/8 or fd00::/8), a
//! different one for each interface of each host; there are enough for 65,535 hosts.
//!
//! # Examples
//!
//! Ten senders and ten receivers with one bottleneck between them:
//!
//! ```
//! use std::time::Duration;
//! use netsim::topology::Dumbbell;
//! use netsim::{Network, PipeConfig};
//!
//! let access = PipeConfig { delay: Duration::from_millis(1), ..PipeConfig::default() };
//! let bottleneck = PipeConfig {
//!     rate_bits_per_s: Some(100_000_000),
//!     delay: Duration::from_millis(20),
//!     queue_bytes: 500_000,
//!     ..PipeConfig::default()
//! };
//! let mut network = Network::new(1);
//! let dumbbell = Dumbbell::build(&mut network, 10, &access, &bottleneck);
//! for (left, right) in dumbbell.left.iter().zip(&dumbbell.right) {
//!     network.send(0, left.socket(0, 9899), right.socket(0, 9899), 1250, "hello");
//! }
//! // 0.1 ms each to leave the bottleneck, and 22 ms to travel.
//! let mut last_ns = 0;
//! while let Some(now_ns) = network.next_event_ns() {
//!     while let Some(delivery) = network.deliver(now_ns) {
//!         last_ns = delivery.at_ns;
//!     }
//! }
//! assert_eq!(last_ns, 23_000_000);
//! ```

mod random;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub use random::{RandomLimits, RandomTopology, Shape};

use crate::{HostId, Network, Payload, PipeConfig, PipeId};

/// The most interfaces of a host, so that each has an address of its own.
pub const INTERFACES_MAX: usize = 250;

/// A host of a topology.
///
/// # Examples
///
/// ```
/// use netsim::topology::Paths;
/// use netsim::{Network, PipeConfig};
///
/// let mut network = Network::<()>::new(0);
/// let paths = Paths::build(&mut network, &[PipeConfig::default(), PipeConfig::default()]);
/// assert_eq!(paths.a.addresses.len(), 2);
/// assert_eq!(paths.a.socket(1, 9899).to_string(), "10.2.0.1:9899");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The identifier of the host in the network.
    pub host: HostId,
    /// The addresses of the host, one for each interface.
    pub addresses: Vec<IpAddr>,
    /// The source addresses for some destinations: pairs of destination and source. See [`source`](Self::source).
    pub sources: Vec<(IpAddr, IpAddr)>,
}

impl Site {
    /// Returns a port of an interface.
    ///
    /// # Panics
    ///
    /// The host has no such interface.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use netsim::topology::Star;
    /// let star = Star::build(&mut Network::<()>::new(0), 3, &PipeConfig::default());
    /// assert_eq!(star.sites[2].socket(0, 80).to_string(), "10.1.0.3:80");
    /// ```
    pub fn socket(&self, interface: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses[interface], port)
    }

    /// Returns the address from which its packets to another address are sent: that of the interface by which they leave.
    ///
    /// # Panics
    ///
    /// The host has no address.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig};
    /// # use netsim::topology::Paths;
    /// let configs = [PipeConfig::default(), PipeConfig::default()];
    /// let Paths { a, b, .. } = Paths::build(&mut Network::<()>::new(0), &configs);
    /// assert_eq!(a.source(b.addresses[1]), a.addresses[1]);
    /// ```
    pub fn source(&self, to: IpAddr) -> IpAddr {
        let source = self.sources.iter().find(|(destination, _)| *destination == to);
        source.map_or(self.addresses[0], |(_, source)| *source)
    }
}

/// Both directions of a line between two places.
///
/// # Examples
///
/// ```
/// use netsim::topology::Line;
/// use netsim::{Network, PipeConfig};
///
/// let mut network = Network::<()>::new(0);
/// let line = Line::build(&mut network, 2, &PipeConfig::default());
/// assert_ne!(line.links[0].there, line.links[0].back);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// From the first to the second: outward from a host, along a line, from left to right.
    pub there: PipeId,
    /// The other way.
    pub back: PipeId,
}

/// Hosts in a row; those between pass on what is for others.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use netsim::topology::Line;
/// use netsim::{Network, PipeConfig};
///
/// let hop = PipeConfig { delay: Duration::from_millis(3), ..PipeConfig::default() };
/// let mut network = Network::new(0);
/// let line = Line::build(&mut network, 4, &hop);
/// network.send(0, line.sites[0].socket(0, 1), line.sites[3].socket(0, 1), 100, ());
/// while network.in_flight() > 0 {
///     let now_ns = network.next_event_ns().expect("one is on the way");
///     if let Some(delivery) = network.deliver(now_ns) {
///         assert_eq!(delivery.at_ns, 9_000_000);
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The hosts.
    pub sites: Vec<Site>,
    /// The lines between each and the next.
    pub links: Vec<Link>,
}

impl Line {
    /// Builds a row of `hosts` with equal lines between them.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig, topology::Line};
    /// let line = Line::build(&mut Network::<()>::new(0), 4, &PipeConfig::default());
    /// assert_eq!((line.sites.len(), line.links.len()), (4, 3));
    /// ```
    pub fn build<P: Payload>(network: &mut Network<P>, hosts: usize, hop: &PipeConfig) -> Self {
        Self::lay(network, Family::V4, hosts, &mut || hop.clone())
    }

    fn lay<P: Payload>(
        network: &mut Network<P>,
        family: Family,
        hosts: usize,
        hop: &mut dyn FnMut() -> PipeConfig,
    ) -> Self {
        let sites = add_sites(network, family, hosts, 1);
        let links: Vec<Link> = (1..hosts).map(|_| add_link(network, hop)).collect();
        for (near, a) in sites.iter().enumerate() {
            for (far, b) in sites.iter().enumerate().skip(near + 1) {
                let there: Vec<PipeId> = links[near..far].iter().map(|link| link.there).collect();
                let back: Vec<PipeId> = links[near..far].iter().rev().map(|link| link.back).collect();
                network.set_route(a.addresses[0], b.addresses[0], &there);
                network.set_route(b.addresses[0], a.addresses[0], &back);
            }
        }
        Line { sites, links }
    }
}

/// Hosts around a hub that costs nothing.
///
/// # Examples
///
/// ```
/// use netsim::topology::Star;
/// use netsim::{Network, PipeConfig};
///
/// let mut network = Network::new(0);
/// let spoke = PipeConfig { rate_bits_per_s: Some(8_000_000), ..PipeConfig::default() };
/// let star = Star::build(&mut network, 5, &spoke);
/// // Everybody sends to the first, whose own spoke they share.
/// for site in &star.sites[1..] {
///     network.send(0, site.socket(0, 1), star.sites[0].socket(0, 1), 1000, ());
/// }
/// while let Some(now_ns) = network.next_event_ns() {
///     network.deliver(now_ns);
/// }
/// assert_eq!(network.pipe(star.spokes[0].back).stats().queue_packets_max, 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Star {
    /// The hosts.
    pub sites: Vec<Site>,
    /// The line of each to the hub.
    pub spokes: Vec<Link>,
}

impl Star {
    /// Builds a star of `hosts` with equal lines.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig, topology::Star};
    /// let star = Star::build(&mut Network::<()>::new(0), 5, &PipeConfig::default());
    /// assert_eq!((star.sites.len(), star.spokes.len()), (5, 5));
    /// ```
    pub fn build<P: Payload>(network: &mut Network<P>, hosts: usize, spoke: &PipeConfig) -> Self {
        Self::lay(network, Family::V4, hosts, &mut || spoke.clone())
    }

    fn lay<P: Payload>(
        network: &mut Network<P>,
        family: Family,
        hosts: usize,
        spoke: &mut dyn FnMut() -> PipeConfig,
    ) -> Self {
        let sites = add_sites(network, family, hosts, 1);
        let spokes: Vec<Link> = sites.iter().map(|_| add_link(network, spoke)).collect();
        join(network, (&sites, &spokes), (&sites, &spokes), &[]);
        Star { sites, spokes }
    }
}

/// Two groups of hosts and one line between them that all share. Hosts of one group reach each other past it.
///
/// # Examples
///
/// See [the module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumbbell {
    /// The hosts of one side.
    pub left: Vec<Site>,
    /// The hosts of the other.
    pub right: Vec<Site>,
    /// The lines of the left hosts to the bottleneck.
    pub left_access: Vec<Link>,
    /// The lines of the right hosts to the bottleneck.
    pub right_access: Vec<Link>,
    /// The line that is shared: there is from left to right.
    pub bottleneck: Link,
}

impl Dumbbell {
    /// Builds two groups of `pairs` hosts each.
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig, topology::Dumbbell};
    /// let config = PipeConfig::default();
    /// let dumbbell = Dumbbell::build(&mut Network::<()>::new(0), 3, &config, &config);
    /// assert_eq!((dumbbell.left.len(), dumbbell.right.len()), (3, 3));
    /// ```
    pub fn build<P: Payload>(
        network: &mut Network<P>,
        pairs: usize,
        access: &PipeConfig,
        bottleneck: &PipeConfig,
    ) -> Self {
        Self::lay(network, Family::V4, pairs, &mut || access.clone(), &mut || bottleneck.clone())
    }

    fn lay<P: Payload>(
        network: &mut Network<P>,
        family: Family,
        pairs: usize,
        access: &mut dyn FnMut() -> PipeConfig,
        bottleneck: &mut dyn FnMut() -> PipeConfig,
    ) -> Self {
        let left = add_sites(network, family, pairs, 1);
        let right = add_sites(network, family, pairs, 1);
        let left_access: Vec<Link> = left.iter().map(|_| add_link(network, access)).collect();
        let right_access: Vec<Link> = right.iter().map(|_| add_link(network, access)).collect();
        let bottleneck = add_link(network, bottleneck);
        let (lefts, rights) = ((&left[..], &left_access[..]), (&right[..], &right_access[..]));
        join(network, lefts, rights, &[bottleneck.there]);
        join(network, rights, lefts, &[bottleneck.back]);
        join(network, lefts, lefts, &[]);
        join(network, rights, rights, &[]);
        Dumbbell { left, right, left_access, right_access, bottleneck }
    }
}

/// Two hosts with several interfaces, and a line between each interface of the one and the same of the other.
///
/// Where a packet is sent to decides which line it takes, whichever address it comes from, as the routing table of a
/// host would have it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use netsim::topology::Paths;
/// use netsim::{Loss, Network, PipeConfig};
///
/// let quick = PipeConfig { delay: Duration::from_millis(5), ..PipeConfig::default() };
/// let slow = PipeConfig { delay: Duration::from_millis(80), ..PipeConfig::default() };
/// let mut network = Network::<Vec<u8>>::new(0);
/// let paths = Paths::build(&mut network, &[quick, slow]);
/// // The quick one fails.
/// network.pipe_mut(paths.links[0].there).set_loss(Loss::Always);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// One host.
    pub a: Site,
    /// The other.
    pub b: Site,
    /// The lines: there is from `a` to `b`.
    pub links: Vec<Link>,
}

impl Paths {
    /// Builds two hosts with a path for each of these.
    ///
    /// # Panics
    ///
    /// There are more than [`INTERFACES_MAX`].
    ///
    /// ```
    /// # use netsim::{Network, PipeConfig, topology::Paths};
    /// let paths = Paths::build(&mut Network::<()>::new(0), &[PipeConfig::default()]);
    /// assert_eq!(paths.links.len(), 1);
    /// ```
    pub fn build<P: Payload>(network: &mut Network<P>, paths: &[PipeConfig]) -> Self {
        // Each configuration is asked for twice: there and back.
        let mut configs = paths.iter().flat_map(|config| [config, config]);
        let mut next = || configs.next().cloned().unwrap_or_default();
        Self::lay(network, Family::V4, paths.len(), &mut next)
    }

    fn lay<P: Payload>(
        network: &mut Network<P>,
        family: Family,
        paths: usize,
        path: &mut dyn FnMut() -> PipeConfig,
    ) -> Self {
        let (mut a, mut b) = (add_site(network, family, paths), add_site(network, family, paths));
        a.sources = b.addresses.iter().copied().zip(a.addresses.iter().copied()).collect();
        b.sources = a.addresses.iter().copied().zip(b.addresses.iter().copied()).collect();
        let links: Vec<Link> = (0..paths).map(|_| add_link(network, path)).collect();
        for (of_a, of_b) in (0..paths).flat_map(|of_a| (0..paths).map(move |of_b| (of_a, of_b))) {
            network.set_route(a.addresses[of_a], b.addresses[of_b], &[links[of_b].there]);
            network.set_route(b.addresses[of_b], a.addresses[of_a], &[links[of_a].back]);
        }
        Paths { a, b, links }
    }
}

/// Address family of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Returns a host with addresses that no other host of the network has from here.
fn add_site<P: Payload>(network: &mut Network<P>, family: Family, interfaces: usize) -> Site {
    assert!(interfaces <= INTERFACES_MAX, "a host has at most {INTERFACES_MAX} interfaces");
    let number = u16::try_from(network.hosts_len() + 1).ok();
    let number =
        number.unwrap_or_else(|| panic!("a network has at most {} hosts with made-up addresses", u16::MAX));
    let [high, low] = number.to_be_bytes();
    // Hosts and interfaces count from 1.
    let address = |interface: usize| match family {
        Family::V4 => IpAddr::from([10, interface as u8 + 1, high, low]),
        Family::V6 => Ipv6Addr::new(0xfd00, interface as u16 + 1, 0, 0, 0, 0, 0, number).into(),
    };
    let addresses: Vec<IpAddr> = (0..interfaces).map(address).collect();
    Site { host: network.add_host(&addresses), addresses, sources: Vec::new() }
}

fn add_sites<P: Payload>(
    network: &mut Network<P>,
    family: Family,
    hosts: usize,
    interfaces: usize,
) -> Vec<Site> {
    (0..hosts).map(|_| add_site(network, family, interfaces)).collect()
}

fn add_link<P: Payload>(network: &mut Network<P>, config: &mut dyn FnMut() -> PipeConfig) -> Link {
    Link { there: network.add_pipe(&config()), back: network.add_pipe(&config()) }
}

/// Routes from each of some hosts to each of others: out to the middle, through it, and in to the host.
fn join<P: Payload>(
    network: &mut Network<P>,
    from: (&[Site], &[Link]),
    to: (&[Site], &[Link]),
    middle: &[PipeId],
) {
    for (a, out) in from.0.iter().zip(from.1) {
        for (b, into) in to.0.iter().zip(to.1).filter(|(b, _)| b.host != a.host) {
            let route: Vec<PipeId> = [&[out.there], middle, &[into.back]].concat();
            network.set_route(a.addresses[0], b.addresses[0], &route);
        }
    }
}
