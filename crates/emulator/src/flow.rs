//! Flows of packets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

const V4_PROTOCOL: usize = 9;
const V4_FRAGMENT: Range<usize> = 6..8;
/// Mask of a fragment's offset, without its flags.
const V4_FRAGMENT_OFFSET: u16 = 0x1fff;
const V4_SOURCE: Range<usize> = 12..16;
const V4_DESTINATION: Range<usize> = 16..20;
const V6_NEXT_HEADER: usize = 6;
const V6_SOURCE: Range<usize> = 8..24;
const V6_DESTINATION: Range<usize> = 24..40;
pub(crate) const V6_HEADER_BYTES: usize = 40;
/// Extension headers that may stand before the transport header (RFC 8200 §4, RFC 4302 §2).
const V6_HOP_BY_HOP: u8 = 0;
const V6_ROUTING: u8 = 43;
const V6_FRAGMENT: u8 = 44;
const V6_AUTHENTICATION: u8 = 51;
const V6_DESTINATION_OPTIONS: u8 = 60;
const V6_FRAGMENT_BYTES: usize = 8;
/// Limit for the extension headers that are skipped.
const V6_EXTENSIONS_MAX: usize = 8;

/// A flow: packets of one protocol from one address and port to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// The number of the protocol in the IP header.
    pub protocol: u8,
    /// Address and port of the sender; the port is 0 for a protocol without ports.
    pub from: (IpAddr, u16),
    /// Address and port of the receiver.
    pub to: (IpAddr, u16),
}

impl FlowKey {
    /// Returns the flow of an IP packet, or `None` for bytes that are no IP packet.
    ///
    /// ```
    /// assert_eq!(emulator::FlowKey::of(&[0; 40]), None);
    /// ```
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let address = |range: Range<usize>| {
                    let octets: [u8; 4] = packet.get(range)?.try_into().ok()?;
                    Some(IpAddr::from(Ipv4Addr::from(octets)))
                };
                let fragment = packet.get(V4_FRAGMENT)?;
                let first = u16::from_be_bytes([fragment[0], fragment[1]]) & V4_FRAGMENT_OFFSET == 0;
                let transport_at = usize::from(packet[0] & 0xf) * 4;
                let ends = [address(V4_SOURCE)?, address(V4_DESTINATION)?];
                Some(Self::with_ports(packet, packet[V4_PROTOCOL], ends, first.then_some(transport_at)))
            }
            6 => {
                let address = |range: Range<usize>| {
                    let octets: [u8; 16] = packet.get(range)?.try_into().ok()?;
                    Some(IpAddr::from(Ipv6Addr::from(octets)))
                };
                let ends = [address(V6_SOURCE)?, address(V6_DESTINATION)?];
                let (protocol, transport_at) = v6_transport(packet);
                Some(Self::with_ports(packet, protocol, ends, transport_at))
            }
            _ => None,
        }
    }

    fn with_ports(packet: &[u8], protocol: u8, [from, to]: [IpAddr; 2], transport_at: Option<usize>) -> Self {
        let port = |at: usize| {
            let at = transport_at.filter(|_| [TCP, UDP, SCTP].contains(&protocol))? + at;
            packet.get(at..at + 2).map(|port| u16::from_be_bytes([port[0], port[1]]))
        };
        FlowKey { protocol, from: (from, port(0).unwrap_or(0)), to: (to, port(2).unwrap_or(0)) }
    }
}

/// Returns the protocol behind the extension headers of a complete IPv6 header, and the offset of its own header. That is missing
/// in later fragments; in a packet that ends before, the protocol is the last one named.
fn v6_transport(packet: &[u8]) -> (u8, Option<usize>) {
    let (mut protocol, mut at) = (packet[V6_NEXT_HEADER], V6_HEADER_BYTES);
    for _ in 0..V6_EXTENSIONS_MAX {
        let Some(&[next, length, high, low]) = packet.get(at..at + 4) else { return (protocol, None) };
        let bytes = match protocol {
            V6_HOP_BY_HOP | V6_ROUTING | V6_DESTINATION_OPTIONS => (usize::from(length) + 1) * 8,
            V6_AUTHENTICATION => (usize::from(length) + 2) * 4,
            // The offset stands above three bits of flags.
            V6_FRAGMENT if u16::from_be_bytes([high, low]) >> 3 != 0 => return (next, None),
            V6_FRAGMENT => V6_FRAGMENT_BYTES,
            _ => break,
        };
        (protocol, at) = (next, at + bytes);
    }
    (protocol, Some(at))
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            1 | 58 => f.write_str("ICMP")?,
            TCP => f.write_str("TCP")?,
            UDP => f.write_str("UDP")?,
            SCTP => f.write_str("SCTP")?,
            other => write!(f, "IP protocol {other}")?,
        }
        let end = |(address, port): (IpAddr, u16)| match port {
            0 => address.to_string(),
            port => std::net::SocketAddr::new(address, port).to_string(),
        };
        write!(f, " {} to {}", end(self.from), end(self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, fragment: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 24, 0, 0, 0, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
        packet[V4_FRAGMENT].copy_from_slice(&fragment.to_be_bytes());
        packet.extend([0x13, 0x89, 0, 80]);
        packet
    }

    #[test]
    fn flows_have_the_names_that_people_know() {
        let name = |packet: &[u8]| FlowKey::of(packet).map(|flow| flow.to_string());
        assert_eq!(name(&v4(TCP, 0x4000)).as_deref(), Some("TCP 198.18.0.1:5001 to 198.18.0.2:80"));
        assert_eq!(name(&v4(1, 0)).as_deref(), Some("ICMP 198.18.0.1 to 198.18.0.2"));
        assert_eq!(name(&v4(UDP, 185)).as_deref(), Some("UDP 198.18.0.1 to 198.18.0.2"), "a later fragment");
        let mut v6 = vec![0; 44];
        (v6[0], v6[V6_NEXT_HEADER], v6[43]) = (0x60, SCTP, 9);
        assert_eq!(name(&v6).as_deref(), Some("SCTP :: to [::]:9"));
    }

    #[test]
    fn the_flow_of_ipv6_is_that_behind_its_extension_headers() {
        let packet = |first: u8, extensions: &[&[u8]]| {
            let mut packet = vec![0; V6_HEADER_BYTES];
            (packet[0], packet[V6_NEXT_HEADER]) = (0x60, first);
            extensions.iter().for_each(|extension| packet.extend_from_slice(extension));
            packet.extend([0x13, 0x89, 0, 80]);
            packet
        };
        let ports = |packet: &[u8]| FlowKey::of(packet).map(|flow| (flow.protocol, flow.from.1, flow.to.1));
        let hop_by_hop = [V6_DESTINATION_OPTIONS, 0, 0, 0, 0, 0, 0, 0];
        let options = [V6_FRAGMENT, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (first, later) = ([TCP, 0, 0, 1, 0, 0, 0, 9], [TCP, 0, 0, 8, 0, 0, 0, 9]);
        let whole = packet(V6_HOP_BY_HOP, &[&hop_by_hop, &options, &first]);
        assert_eq!(ports(&whole), Some((TCP, 5001, 80)));
        assert_eq!(ports(&packet(V6_FRAGMENT, &[&later])), Some((TCP, 0, 0)), "a later fragment");
        let authentication = [UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(ports(&packet(V6_AUTHENTICATION, &[&authentication])), Some((UDP, 5001, 80)));
        let endless = packet(V6_ROUTING, &[&[V6_ROUTING, 0, 0, 0, 0, 0, 0, 0][..]; V6_EXTENSIONS_MAX + 1]);
        assert_eq!(ports(&endless), Some((V6_ROUTING, 0, 0)));
        for length in V6_HEADER_BYTES..whole.len() - 4 {
            assert_eq!(
                ports(&whole[..length]).map(|(_, from, to)| (from, to)),
                Some((0, 0)),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn a_packet_that_is_cut_anywhere_has_no_flow_or_no_ports() {
        let packet = v4(TCP, 0);
        for length in 0..packet.len() {
            let flow = FlowKey::of(&packet[..length]);
            assert_eq!(flow.is_some(), length >= 20, "{length} bytes");
            assert!(flow.is_none_or(|flow| length >= 22 || flow.from.1 == 0));
        }
    }
}
