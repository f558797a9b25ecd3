//! Determines whether an address is on a link of this host, according to the kernel's routing table (rtnetlink, RTM_GETROUTE).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};

use crate::interface::interfaces;

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const MESSAGE_HEADER_BYTES: usize = 16;
/// `struct rtmsg`.
const ROUTE_HEADER_BYTES: usize = 12;
/// `struct rtattr`: length and type.
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Room for the answer, which has some 200 bytes.
const ANSWER_BYTES_MAX: usize = 4096;
/// A gateway of another family (`linux/rtnetlink.h`; not every C library of Rust's `libc` names it).
const RTA_VIA: u16 = 18;
/// An encapsulation by the route itself.
const RTA_ENCAP: u16 = 22;
/// The route's MTU among its metrics.
const RTAX_MTU: u16 = 2;

/// Returns whether packets from `source` to `remote` leave by `interface`, whose MTU is `mtu_bytes`, and pass no router.
///
/// Returns false if the kernel cannot be asked, if the route has a smaller MTU (possibly learned from an ICMP report), or if the
/// interface is one end of a tunnel or a line, because the network behind the other end is unknown.
pub(crate) fn is_neighbour(remote: SocketAddr, source: IpAddr, interface: &str, mtu_bytes: usize) -> bool {
    let Ok(index) = if_nametoindex(interface) else { return false };
    joins_a_link(interface)
        && ask(remote, source, index).ok().as_deref().and_then(Answer::parse).is_some_and(|answer| {
            answer.interface == Some(index)
                && !answer.passes_gateway
                && answer.mtu_bytes.is_none_or(|of_route| of_route >= mtu_bytes)
        })
}

/// Returns whether the interface resolves addresses of neighbours, as on an Ethernet.
fn joins_a_link(interface: &str) -> bool {
    let lonely = InterfaceFlags::IFF_POINTOPOINT | InterfaceFlags::IFF_NOARP | InterfaceFlags::IFF_LOOPBACK;
    let Ok(all) = interfaces() else { return false };
    let found = all.iter().find(|found| found.interface_name == interface);
    found.is_some_and(|found| !found.flags.intersects(lonely))
}

/// Requests the route of one packet. The kernel has answered when the request was sent.
fn ask(remote: SocketAddr, source: IpAddr, interface: u32) -> Result<Vec<u8>, Errno> {
    let fd = socket::socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    socket::send(fd.as_raw_fd(), &request(remote, source, interface), MsgFlags::empty())?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let bytes = socket::recv(fd.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    answer.truncate(bytes);
    Ok(answer)
}

/// Builds the request: headers, destination, source, and, for a destination that exists on each link, the interface.
fn request(remote: SocketAddr, source: IpAddr, interface: u32) -> Vec<u8> {
    let family = if remote.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET } as u8;
    let mut attributes = Vec::new();
    let mut add = |kind: u16, value: &[u8]| {
        attributes.extend(((ATTRIBUTE_HEADER_BYTES + value.len()) as u16).to_ne_bytes());
        attributes.extend(kind.to_ne_bytes());
        attributes.extend(value);
    };
    let mut add_address = |kind: u16, address: IpAddr| match address {
        IpAddr::V4(v4) => add(kind, &v4.octets()),
        IpAddr::V6(v6) => add(kind, &v6.octets()),
    };
    add_address(libc::RTA_DST, remote.ip());
    add_address(libc::RTA_SRC, source);
    if matches!(remote.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        add(libc::RTA_OIF, &interface.to_ne_bytes());
    }
    let length_bits = if remote.is_ipv6() { 128 } else { 32 };
    let mut message = Vec::with_capacity(MESSAGE_HEADER_BYTES + ROUTE_HEADER_BYTES + attributes.len());
    let bytes = (MESSAGE_HEADER_BYTES + ROUTE_HEADER_BYTES + attributes.len()) as u32;
    message.extend(bytes.to_ne_bytes());
    message.extend(libc::RTM_GETROUTE.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, length_bits, length_bits, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(attributes);
    message
}

/// Answer about the route.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    interface: Option<u32>,
    passes_gateway: bool,
    mtu_bytes: Option<usize>,
}

impl Answer {
    /// Parses an answer; `None` for other messages, such as an error.
    fn parse(message: &[u8]) -> Option<Self> {
        let bytes = number(message)? as usize;
        let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
        if kind != libc::RTM_NEWROUTE {
            return None;
        }
        let mut answer = Answer::default();
        for (kind, value) in attributes(message.get(MESSAGE_HEADER_BYTES + ROUTE_HEADER_BYTES..bytes)?) {
            match kind {
                libc::RTA_OIF => answer.interface = number(value),
                libc::RTA_GATEWAY | RTA_VIA | RTA_ENCAP => answer.passes_gateway = true,
                libc::RTA_METRICS => {
                    let mtu = attributes(value).find(|(kind, _)| *kind == RTAX_MTU);
                    answer.mtu_bytes = mtu.and_then(|(_, value)| number(value)).map(|mtu| mtu as usize);
                }
                _ => {}
            }
        }
        Some(answer)
    }
}

/// Returns the type and the value of each attribute.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let bytes = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(ATTRIBUTE_HEADER_BYTES..bytes)?;
        // Attributes begin at multiples of four.
        rest = rest.get(bytes.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Reads the number at the beginning.
fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = (ATTRIBUTE_HEADER_BYTES + value.len()) as u16;
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        let attributes = attributes.concat();
        let bytes = (MESSAGE_HEADER_BYTES + ROUTE_HEADER_BYTES + attributes.len()) as u32;
        [&bytes.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 22], &attributes].concat()
    }

    #[test]
    fn an_answer_tells_interface_gateway_and_mtu() {
        let oif = attribute(libc::RTA_OIF, &7u32.to_ne_bytes());
        let parse = |more: Vec<u8>| Answer::parse(&message(libc::RTM_NEWROUTE, &[oif.clone(), more]));
        let plain = Answer { interface: Some(7), ..Answer::default() };
        assert_eq!(parse(attribute(libc::RTA_PREFSRC, &[192, 0, 2, 1])), Some(plain));
        for gateway in [libc::RTA_GATEWAY, RTA_VIA, RTA_ENCAP] {
            assert!(parse(attribute(gateway, &[0; 7])).unwrap().passes_gateway, "{gateway}");
        }
        let mtu = attribute(RTAX_MTU, &1400u32.to_ne_bytes());
        let metrics = attribute(libc::RTA_METRICS, &[attribute(1, &[0; 4]), mtu].concat());
        assert_eq!(parse(metrics).unwrap().mtu_bytes, Some(1400));
    }

    #[test]
    fn other_messages_are_no_answer() {
        let answer = message(libc::RTM_NEWROUTE, &[attribute(libc::RTA_OIF, &7u32.to_ne_bytes())]);
        for end in 0..answer.len() {
            assert_eq!(Answer::parse(&answer[..end]), None, "{end} bytes");
        }
        assert_eq!(Answer::parse(&message(libc::NLMSG_ERROR as u16, &[])), None);
        // Lengths that do not hold.
        for length in [0u16, 3, 9, u16::MAX] {
            let mut broken = answer.clone();
            broken[28..30].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(Answer::parse(&broken), Some(Answer::default()), "{length}");
        }
    }
}
