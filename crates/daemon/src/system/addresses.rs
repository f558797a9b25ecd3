//! Addresses of sockets: checks, the form in which a program sees them, and lists of C structures.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::io::Errno;

/// The family of a socket, numbered as in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Family {
    V4 = AF_INET,
    V6 = AF_INET6,
}

const AF_INET: u16 = rustix::net::AddressFamily::INET.as_raw();
const AF_INET6: u16 = rustix::net::AddressFamily::INET6.as_raw();
const SOCKADDR_IN_BYTES: usize = 16;
const SOCKADDR_IN6_BYTES: usize = 28;

impl Family {
    /// Returns the family of an address.
    pub(crate) fn of(ip: IpAddr) -> Family {
        if ip.is_ipv6() { Family::V6 } else { Family::V4 }
    }
}

/// Checks the family of an address: an IPv6 socket also accepts IPv4 addresses, mapped or not, unless it is `v6_only`.
pub(crate) fn check_family(family: Family, v6_only: bool, address: SocketAddr) -> Result<(), Errno> {
    let is_accepted = match family {
        Family::V4 => address.is_ipv4(),
        Family::V6 => !v6_only || address.ip().to_canonical().is_ipv6(),
    };
    if is_accepted { Ok(()) } else { Err(Errno::INVAL) }
}

/// Checks that a peer can have this address, whose family the socket accepts, and returns its IP address.
pub(crate) fn check_peer(peer: SocketAddr) -> Result<IpAddr, Errno> {
    let ip = peer.ip().to_canonical();
    match ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
        true => Err(Errno::INVAL),
        // No socket listens on port 0.
        false if peer.port() == 0 => Err(Errno::CONNREFUSED),
        // Packets to it would need a scope, which the endpoint's addresses do not have.
        false if matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) => Err(Errno::HOSTUNREACH),
        false => Ok(ip),
    }
}

/// Checks that an address is local to this host, or unspecified.
pub(crate) fn check_local(ip: IpAddr) -> Result<(), Errno> {
    if ip.is_unspecified() {
        return Ok(());
    }
    // Where no route leads to it, only the address itself shows what it is.
    if ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
        return Err(Errno::ADDRNOTAVAIL);
    }
    let bound = UdpSocket::bind((ip, 0)).map_err(|_| Errno::ADDRNOTAVAIL)?;
    // The broadcast address of a network can be bound, but a send to it is not permitted.
    let is_broadcast = bound.connect((ip, 9)).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if is_broadcast { Err(Errno::ADDRNOTAVAIL) } else { Ok(()) }
}

pub(crate) fn unspecified(family: Family) -> SocketAddr {
    match family {
        Family::V4 => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        Family::V6 => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

/// Returns an address in the form of the socket's family: an IPv6 socket has IPv4 addresses in mapped form.
pub(crate) fn as_seen(family: Family, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if family == Family::V6 && ip.is_unspecified() => {
            SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port())
        }
        IpAddr::V4(ip) if family == Family::V6 => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// The form in which a program sees the addresses of its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) family: Family,
    /// Whether IPv4 addresses are never mapped, not even for an IPv6 socket.
    pub(crate) own_v4: bool,
}

impl View {
    pub(crate) fn of(self, address: SocketAddr) -> SocketAddr {
        let seen = as_seen(self.family, address);
        match seen.ip().to_canonical() {
            IpAddr::V4(ip) if self.own_v4 => SocketAddr::new(ip.into(), seen.port()),
            _ => seen,
        }
    }
}

/// Returns the source address of the route to a host.
pub(crate) fn local_toward(host: IpAddr) -> Option<IpAddr> {
    let probe = UdpSocket::bind(unspecified(Family::of(host))).ok()?;
    probe.connect((host, 9)).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Parses consecutive addresses, each a `struct sockaddr_in` or `struct sockaddr_in6`.
pub(crate) fn parse_list(mut bytes: &[u8]) -> Result<Vec<SocketAddr>, Errno> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let (address, rest) = parse(bytes)?;
        list.push(address);
        bytes = rest;
    }
    Ok(list)
}

/// Parses one `struct sockaddr`; returns it and the bytes that follow.
pub(crate) fn parse(bytes: &[u8]) -> Result<(SocketAddr, &[u8]), Errno> {
    let (family, _) = bytes.split_first_chunk().ok_or(Errno::INVAL)?;
    match u16::from_ne_bytes(*family) {
        AF_INET => {
            let (address, rest) = bytes.split_at_checked(SOCKADDR_IN_BYTES).ok_or(Errno::INVAL)?;
            let ip: [u8; 4] = field(address, 4)?;
            Ok((SocketAddr::new(ip.into(), u16::from_be_bytes(field(address, 2)?)), rest))
        }
        AF_INET6 => {
            let (address, rest) = bytes.split_at_checked(SOCKADDR_IN6_BYTES).ok_or(Errno::INVAL)?;
            let ip = Ipv6Addr::from(field::<16>(address, 8)?);
            let scope = u32::from_ne_bytes(field(address, 24)?);
            let port = u16::from_be_bytes(field(address, 2)?);
            Ok((channel_protocol::address::v6(ip, port, scope), rest))
        }
        _ => Err(Errno::INVAL),
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Errno> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(Errno::INVAL)
}

/// Appends a `struct sockaddr` to a list.
pub(crate) fn append(list: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(v4) => {
            list.extend(AF_INET.to_ne_bytes());
            list.extend(v4.port().to_be_bytes());
            list.extend(v4.ip().octets());
            list.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            list.extend(AF_INET6.to_ne_bytes());
            list.extend(v6.port().to_be_bytes());
            list.extend(0_u32.to_ne_bytes());
            list.extend(v6.ip().octets());
            list.extend(v6.scope_id().to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_ipv4_addresses_in_the_form_that_it_wants() {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        for (family, own_v4, address, told) in [
            (Family::V4, false, "192.0.2.1:7", "192.0.2.1:7"),
            (Family::V6, false, "192.0.2.1:7", "[::ffff:192.0.2.1]:7"),
            (Family::V6, true, "192.0.2.1:7", "192.0.2.1:7"),
            (Family::V6, true, "[::ffff:192.0.2.1]:7", "192.0.2.1:7"),
            (Family::V6, true, "[fe80::1%3]:7", "[fe80::1%3]:7"),
            (Family::V6, true, "0.0.0.0:7", "[::]:7"),
        ] {
            assert_eq!(View { family, own_v4 }.of(parse(address)), parse(told));
        }
    }

    #[test]
    fn a_socket_accepts_addresses_of_its_families() {
        let accepted = |family, v6_only| {
            ["192.0.2.1:7", "0.0.0.0:7", "[::ffff:192.0.2.1]:7", "[2001:db8::1]:7", "[::]:7"]
                .map(|text| check_family(family, v6_only, text.parse().expect("an address")).is_ok())
        };
        assert_eq!(accepted(Family::V4, false), [true, true, false, false, false]);
        assert_eq!(accepted(Family::V6, false), [true; 5]);
        assert_eq!(accepted(Family::V6, true), [false, false, false, true, true]);
    }

    /// The answer must not depend on the routes of the host.
    #[test]
    fn addresses_of_groups_and_of_other_hosts_are_not_local() {
        let is_local = |ip: &str| check_local(ip.parse().expect("an address"));
        for ip in ["255.255.255.255", "224.0.0.1", "ff02::1", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(is_local(ip), Err(Errno::ADDRNOTAVAIL), "{ip}");
        }
        assert_eq!((is_local("127.0.0.1"), is_local("0.0.0.0")), (Ok(()), Ok(())));
    }

    #[test]
    fn peers_have_addresses_that_packets_can_be_sent_to() {
        let check = |text: &str| check_peer(text.parse().expect("an address"));
        assert_eq!(check("[::ffff:192.0.2.1]:7"), Ok([192, 0, 2, 1].into()));
        assert_eq!([check("224.0.0.1:7"), check("[::]:7")], [Err(Errno::INVAL); 2]);
        assert_eq!(check("192.0.2.1:0"), Err(Errno::CONNREFUSED));
        assert_eq!([check("[fe80::1%3]:7"), check("[fe80::1]:7")], [Err(Errno::HOSTUNREACH); 2]);
    }

    #[test]
    fn lists_survive_the_way() {
        let list =
            ["192.0.2.1:7", "[2001:db8::1]:7", "[fe80::1%3]:9"].map(|text| text.parse().expect("an address"));
        let mut bytes = Vec::new();
        list.into_iter().for_each(|address| append(&mut bytes, address));
        assert_eq!(bytes.len(), 16 + 2 * 28);
        assert_eq!(parse_list(&bytes), Ok(list.to_vec()));
        assert_eq!(parse_list(&bytes[..bytes.len() - 1]), Err(Errno::INVAL));
        assert_eq!(parse_list(&[9; 16]), Err(Errno::INVAL), "an unknown family");
    }
}
