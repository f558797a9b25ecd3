//! SCTP over UDP over IPv4 (RFC 6951), as bytes for a raw socket.

use std::net::Ipv4Addr;

use super::arena::VICTIM;

pub(super) const IP_HEADER_BYTES: usize = 20;
pub(super) const UDP_HEADER_BYTES: usize = 8;
const TTL: u8 = 64;
const UDP: u8 = 17;

/// Returns an SCTP packet to the victim with IPv4 and UDP headers. The kernel fills in the checksum of IP; that of UDP is
/// not used, as IPv4 permits, since SCTP has its own.
pub(super) fn encapsulate(source: Ipv4Addr, source_port: u16, port: u16, sctp: &[u8]) -> Vec<u8> {
    let udp_bytes = (UDP_HEADER_BYTES + sctp.len()) as u16;
    let ip_bytes = IP_HEADER_BYTES as u16 + udp_bytes;
    let mut out = Vec::with_capacity(usize::from(ip_bytes));
    // Version and header length, no service class.
    out.extend_from_slice(&[0x45, 0]);
    out.extend_from_slice(&ip_bytes.to_be_bytes());
    // Identification, fragments.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[TTL, UDP, 0, 0]);
    out.extend_from_slice(&source.octets());
    out.extend_from_slice(&VICTIM.octets());
    for field in [source_port, port, udp_bytes, 0] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(sctp);
    out
}
