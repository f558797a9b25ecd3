//! The kernel's route to an address: its source address, its MTU, and whether it stays on this host.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use crate::interface::{bind_to_interface, interface_addresses, interface_of, loopback_interface};
use crate::neighbour::is_neighbour;
use crate::socket_address::local_address;
use crate::syscalls::{interface_mtu, option};

/// Maximum length of a datagram of any link: the maximum of UDP over IPv4 (RFC 791 §3.1: 65,535 with the IP and UDP headers).
pub(crate) const PACKET_BYTES_MAX: usize = 65_507;
/// MTU to assume without a route: every IPv6 link supports it (RFC 8200 §5).
const UNKNOWN_MTU_BYTES: usize = 1280;
/// Minimum credible MTU, which IPv4 guarantees (RFC 791 §3.1).
const MTU_BYTES_MIN: usize = 576;
const ROUTES_MAX: usize = 1024;
/// Lifetime of a cached route: a query costs some microseconds.
const ROUTE_LIFETIME: Duration = Duration::from_secs(10);

/// The route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// MTU of the interface where the route begins.
    pub(crate) mtu_bytes: usize,
    pub(crate) same_host: bool,
    /// Whether there is no router between the interface and the address.
    pub(crate) on_link: bool,
    /// The source address.
    pub(crate) source: Option<IpAddr>,
}

/// Recently used routes.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    known: HashMap<(IpAddr, Option<IpAddr>), (Instant, Route)>,
    /// The interfaces that sockets are bound to, by the address of the socket, which has no other route.
    interfaces: HashMap<IpAddr, String>,
}

impl Routes {
    pub(crate) fn new(interfaces: HashMap<IpAddr, String>) -> Self {
        Routes { known: HashMap::new(), interfaces }
    }

    /// Returns the route to `remote` from the address that its socket is bound to.
    pub(crate) fn lookup(&mut self, remote: SocketAddr, bound: Option<IpAddr>) -> Route {
        let now = Instant::now();
        if let Some((asked, route)) = self.known.get(&(remote.ip(), bound))
            && now.duration_since(*asked) < ROUTE_LIFETIME
        {
            return *route;
        }
        if self.known.len() >= ROUTES_MAX {
            self.known.clear();
        }
        let interface = bound.and_then(|bound| self.interfaces.get(&bound));
        let route = ask(remote, bound, interface.map(String::as_str));
        self.known.insert((remote.ip(), bound), (now, route));
        route
    }

    /// Removes a route that has changed.
    pub(crate) fn forget(&mut self, remote: IpAddr) {
        self.known.retain(|(known, _), _| *known != remote);
    }

    /// Removes all routes, because addresses have changed.
    pub(crate) fn forget_all(&mut self) {
        self.known.clear();
    }
}

/// Returns the length of the largest SCTP packet that fits an IP packet of `mtu_bytes`, with `encapsulation_bytes` of header
/// between them.
pub(crate) fn payload_bytes(mtu_bytes: usize, remote: IpAddr, encapsulation_bytes: usize) -> usize {
    let payload = mtu_bytes.max(MTU_BYTES_MIN) - header_bytes(remote, encapsulation_bytes);
    // RFC 9260 §3: the length of a packet is a multiple of 4.
    payload.min(PACKET_BYTES_MAX) & !3
}

/// Returns the length of all headers before SCTP: that of IP, without options, and `encapsulation_bytes`.
pub(crate) fn header_bytes(remote: IpAddr, encapsulation_bytes: usize) -> usize {
    let ip_header_bytes = if remote.is_ipv6() { 40 } else { 20 };
    ip_header_bytes + encapsulation_bytes
}

fn ask(remote: SocketAddr, bound: Option<IpAddr>, interface: Option<&str>) -> Route {
    let unknown = Route { mtu_bytes: UNKNOWN_MTU_BYTES, same_host: false, on_link: false, source: None };
    ask_kernel(remote, bound, interface).unwrap_or(unknown)
}

/// Asks the kernel for the route by connecting a UDP socket, which sends nothing.
fn ask_kernel(remote: SocketAddr, bound: Option<IpAddr>, interface: Option<&str>) -> Result<Route, Errno> {
    let family = if remote.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let fd = socket::socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    if let Some(interface) = interface {
        bind_to_interface(fd.as_fd(), interface)?;
    }
    if let Some(bound) = bound.filter(|ip| !ip.is_unspecified() && ip.is_ipv6() == remote.is_ipv6()) {
        socket::bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(bound, 0)))?;
    }
    // The route does not depend on the port, but 0 is not a port to connect to.
    let mut target = remote;
    target.set_port(remote.port().max(1));
    socket::connect(fd.as_raw_fd(), &SockaddrStorage::from(target))?;
    let source = local_address(fd.as_fd())?.ip();
    let same_host = is_same_host(remote.ip(), source);
    let interface = match interface {
        _ if same_host => loopback_interface(),
        Some(bound) => Some(bound.to_owned()),
        None => interface_of(source).map(|found| found.name),
    };
    let known = interface.and_then(|name| Some((interface_mtu(fd.as_fd(), &name).ok()?, name)));
    let (mtu_bytes, on_link) = match known {
        Some((mtu_bytes, name)) => (mtu_bytes, !same_host && is_neighbour(remote, source, &name, mtu_bytes)),
        None => (route_mtu(fd.as_fd(), remote)?, false),
    };
    Ok(Route { mtu_bytes, same_host, on_link, source: Some(source) })
}

/// Returns the kernel's MTU of the whole path, which any host can change: the kernel believes ICMP reports that name one of our
/// sockets, whatever else they quote. So this is only for paths whose interface is unknown.
fn route_mtu(fd: BorrowedFd<'_>, remote: SocketAddr) -> Result<usize, Errno> {
    let mtu = if remote.is_ipv6() {
        option(fd, libc::SOL_IPV6, libc::IPV6_MTU)?
    } else {
        option(fd, libc::SOL_IP, libc::IP_MTU)?
    };
    Ok(usize::try_from(mtu).unwrap_or(UNKNOWN_MTU_BYTES))
}

fn is_same_host(remote: IpAddr, source: IpAddr) -> bool {
    source == remote
        || remote.is_loopback()
        || source.is_loopback()
        || interface_addresses().is_ok_and(|own| own.contains(&remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_what_the_headers_leave() {
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "::1".parse().unwrap());
        assert_eq!(payload_bytes(1500, v4, 8), 1472);
        assert_eq!(payload_bytes(1500, v6, 8), 1452);
        assert_eq!(payload_bytes(65_536, v4, 8), 65_504);
        assert_eq!(payload_bytes(65_536, v6, 8), 65_488);
        assert_eq!(payload_bytes(usize::MAX, v4, 8), 65_504);
        assert_eq!(payload_bytes(0, v4, 8), 548);
        assert_eq!(payload_bytes(1500, v4, 0), 1480);
        assert_eq!(payload_bytes(1500, v6, 0), 1460);
        let headers = [header_bytes(v4, 0), header_bytes(v4, 8), header_bytes(v6, 0), header_bytes(v6, 8)];
        assert_eq!(headers, [20, 28, 40, 48]);
    }

    #[test]
    fn loopback_is_this_host() {
        let route = Routes::default().lookup("127.0.0.1:9899".parse().unwrap(), None);
        assert!(route.same_host && route.mtu_bytes >= MTU_BYTES_MIN);
        let route = ask("127.0.0.1:9899".parse().unwrap(), Some("127.0.0.2".parse().unwrap()), None);
        assert!(route.same_host);
    }

    #[test]
    fn every_address_of_an_interface_is_this_host() {
        for ip in interface_addresses().unwrap() {
            if !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
                assert!(ask(SocketAddr::new(ip, 9899), None, None).same_host, "{ip}");
            }
        }
    }

    #[test]
    fn the_number_of_known_routes_is_bounded() {
        let mut routes = Routes::default();
        for n in 0..3000u32 {
            routes.lookup(SocketAddr::new(IpAddr::V4((0x7f00_0001 + n).into()), 1), None);
            assert!(routes.known.len() <= ROUTES_MAX);
        }
    }
}
