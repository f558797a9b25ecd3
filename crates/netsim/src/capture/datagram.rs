//! The headers that a packet of the network would have.

use std::net::{IpAddr, SocketAddr};

use crate::Ecn;

const IPV4_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const HOP_LIMIT: u8 = 64;
const PROTOCOL_UDP: u8 = 17;

/// Appends a UDP datagram (RFC 768) in IPv4 (RFC 791 §3.1) or IPv6 (RFC 8200 §3). Returns false if the payload had to be cut.
pub(super) fn write(from: SocketAddr, to: SocketAddr, ecn: Ecn, payload: &[u8], out: &mut Vec<u8>) -> bool {
    let addresses = Addresses::of(from.ip(), to.ip());
    // Length fields have 16 bits; that of IPv4 counts its header as well.
    let longest = match addresses {
        Addresses::V4(_) => usize::from(u16::MAX) - IPV4_HEADER_BYTES - UDP_HEADER_BYTES,
        Addresses::V6(_) => usize::from(u16::MAX) - UDP_HEADER_BYTES,
    };
    let carried = &payload[..payload.len().min(longest)];
    let udp_bytes = (UDP_HEADER_BYTES + carried.len()) as u16;
    match &addresses {
        Addresses::V4(addresses) => {
            let start = out.len();
            let total_bytes = udp_bytes + IPV4_HEADER_BYTES as u16;
            out.extend_from_slice(&[0x45, ecn.bits()]);
            out.extend_from_slice(&total_bytes.to_be_bytes());
            // Do not fragment, and then an identification means nothing (RFC 6864 §4).
            out.extend_from_slice(&[0, 0, 0x40, 0, HOP_LIMIT, PROTOCOL_UDP, 0, 0]);
            out.extend_from_slice(addresses);
            let checksum = Checksum::default().add(&out[start..]).finish();
            out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        Addresses::V6(addresses) => {
            // The traffic class lies across the first two octets.
            out.extend_from_slice(&[0x60, ecn.bits() << 4, 0, 0]);
            out.extend_from_slice(&udp_bytes.to_be_bytes());
            out.extend_from_slice(&[PROTOCOL_UDP, HOP_LIMIT]);
            out.extend_from_slice(addresses);
        }
    }
    let mut header = [0; UDP_HEADER_BYTES];
    for (field, value) in header.chunks_exact_mut(2).zip([from.port(), to.port(), udp_bytes, 0]) {
        field.copy_from_slice(&value.to_be_bytes());
    }
    let checksum = Checksum::default()
        .add(addresses.bytes())
        .add(&[0, PROTOCOL_UDP])
        .add(&udp_bytes.to_be_bytes())
        .add(&header)
        .add(carried)
        .finish();
    // RFC 768: a sum of zero is sent as all ones, because zero says that there is none.
    let checksum = if checksum == 0 { u16::MAX } else { checksum };
    header[6..].copy_from_slice(&checksum.to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(carried);
    carried.len() == payload.len()
}

/// Source and destination, one behind the other.
enum Addresses {
    V4([u8; 8]),
    V6([u8; 32]),
}

impl Addresses {
    fn of(from: IpAddr, to: IpAddr) -> Self {
        if let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) {
            let mut both = [0; 8];
            both[..4].copy_from_slice(&from.octets());
            both[4..].copy_from_slice(&to.octets());
            return Addresses::V4(both);
        }
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let mut both = [0; 32];
        both[..16].copy_from_slice(&octets(from));
        both[16..].copy_from_slice(&octets(to));
        Addresses::V6(both)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Addresses::V4(both) => both,
            Addresses::V6(both) => both,
        }
    }
}

/// The checksum of the Internet (RFC 1071) over pieces, all but the last of even length.
#[derive(Default)]
struct Checksum {
    sum: u64,
}

impl Checksum {
    fn add(mut self, bytes: &[u8]) -> Self {
        let (pairs, last) = bytes.as_chunks::<2>();
        self.sum += pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>();
        self.sum += last.first().map_or(0, |byte| u64::from(*byte) << 8);
        self
    }

    fn finish(self) -> u16 {
        let mut sum = self.sum;
        while sum > u64::from(u16::MAX) {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_example() {
        // RFC 1071 §3: the sum of these words is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Checksum::default().add(&bytes).finish(), !0xddf2);
    }

    #[test]
    fn a_datagram_of_no_checksum_says_all_ones() {
        // The payload is what brings the sum to all ones, whose complement is zero.
        let (from, to) = (SocketAddr::from(([0, 0, 0, 0], 0)), SocketAddr::from(([0, 0, 0, 0], 0)));
        let rest = u16::MAX - (u16::from(PROTOCOL_UDP) + 10 + 10);
        let mut out = Vec::new();
        assert!(write(from, to, Ecn::NotCapable, &rest.to_be_bytes(), &mut out));
        assert_eq!(out[26..28], [0xff, 0xff]);
    }

    #[test]
    fn contents_longer_than_a_datagram_are_cut() {
        for (address, longest) in [("10.0.0.1:1", 65_507), ("[fd00::1]:1", 65_527)] {
            let address: SocketAddr = address.parse().unwrap();
            let mut out = Vec::new();
            assert!(write(address, address, Ecn::Ect0, &vec![1; longest], &mut out));
            let whole = out.len();
            out.clear();
            assert!(!write(address, address, Ecn::Ect0, &vec![1; longest + 1], &mut out));
            assert_eq!(out.len(), whole);
        }
    }
}
