//! The kernel's socket addresses as bytes: `struct sockaddr_in` and `struct sockaddr_in6`.
//!
//! Fields are written and read one by one, so that no pointer is cast.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, SockaddrStorage};

const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();
const FAMILY: std::ops::Range<usize> = 0..2;
const PORT: std::ops::Range<usize> = 2..4;
const V4_ADDRESS: std::ops::Range<usize> = 4..8;
const V6_ADDRESS: std::ops::Range<usize> = 8..24;
const V6_SCOPE: std::ops::Range<usize> = 24..28;

/// A socket address as the kernel reads and writes it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct RawAddress {
    bytes: [u8; V6_BYTES],
    pub(crate) len: usize,
}

impl RawAddress {
    /// Returns room for an address of either family.
    pub(crate) const fn empty() -> Self {
        RawAddress { bytes: [0; V6_BYTES], len: V6_BYTES }
    }

    /// Encodes `address` for a socket of the given family: an IPv6 socket takes IPv4 addresses in mapped form.
    pub(crate) fn encode(address: SocketAddr, ipv6_socket: bool) -> Self {
        match address {
            SocketAddr::V4(v4) if !ipv6_socket => Self::encode_v4(v4),
            SocketAddr::V4(v4) => {
                Self::encode_v6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0))
            }
            SocketAddr::V6(v6) => Self::encode_v6(v6),
        }
    }

    fn encode_v4(address: SocketAddrV4) -> Self {
        let mut raw = RawAddress { bytes: [0; V6_BYTES], len: V4_BYTES };
        raw.bytes[FAMILY].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        raw.bytes[PORT].copy_from_slice(&address.port().to_be_bytes());
        raw.bytes[V4_ADDRESS].copy_from_slice(&address.ip().octets());
        raw
    }

    fn encode_v6(address: SocketAddrV6) -> Self {
        let mut raw = RawAddress { bytes: [0; V6_BYTES], len: V6_BYTES };
        raw.bytes[FAMILY].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        raw.bytes[PORT].copy_from_slice(&address.port().to_be_bytes());
        raw.bytes[V6_ADDRESS].copy_from_slice(&address.ip().octets());
        raw.bytes[V6_SCOPE].copy_from_slice(&address.scope_id().to_ne_bytes());
        raw
    }

    /// Returns the address; a mapped IPv4 address becomes an IPv4 address. `None` for any other family.
    pub(crate) fn decode(&self) -> Option<SocketAddr> {
        decode(self.bytes.get(..self.len)?)
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    pub(crate) const CAPACITY: usize = V6_BYTES;
}

/// Reads a socket address from its bytes.
pub(crate) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(field(bytes, FAMILY)?);
    let port = u16::from_be_bytes(field(bytes, PORT)?);
    if family == libc::AF_INET as u16 {
        let ip = Ipv4Addr::from(field::<4>(bytes, V4_ADDRESS)?);
        return Some(SocketAddr::new(IpAddr::V4(ip), port));
    }
    if family != libc::AF_INET6 as u16 {
        return None;
    }
    let ip = Ipv6Addr::from(field::<16>(bytes, V6_ADDRESS)?);
    if let Some(v4) = ip.to_ipv4_mapped() {
        return Some(SocketAddr::new(IpAddr::V4(v4), port));
    }
    // The flow label differs between packets and does not identify the sender.
    Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, u32::from_ne_bytes(field(bytes, V6_SCOPE)?))))
}

fn field<const N: usize>(bytes: &[u8], range: std::ops::Range<usize>) -> Option<[u8; N]> {
    bytes.get(range)?.try_into().ok()
}

/// Returns the address of a socket.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    let name: SockaddrStorage = socket::getsockname(fd.as_raw_fd())?;
    if let Some(v4) = name.as_sockaddr_in() {
        return Ok(SocketAddr::V4((*v4).into()));
    }
    name.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())).ok_or(Errno::EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(address: &str, ipv6_socket: bool) {
        let address: SocketAddr = address.parse().unwrap();
        assert_eq!(RawAddress::encode(address, ipv6_socket).decode(), Some(address));
    }

    #[test]
    fn encoded_addresses_decode_to_themselves() {
        round_trip("192.0.2.1:9899", false);
        round_trip("192.0.2.1:9899", true);
        round_trip("[2001:db8::1]:1", true);
        round_trip("[fe80::1%7]:65535", true);
    }

    #[test]
    fn an_ipv4_address_is_mapped_on_an_ipv6_socket() {
        let raw = RawAddress::encode("192.0.2.1:9899".parse().unwrap(), true);
        assert_eq!(raw.len, V6_BYTES);
        assert_eq!(&raw.bytes[V6_ADDRESS], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    }

    #[test]
    fn other_bytes_are_no_address() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0; 28]), None);
        assert_eq!(decode(&RawAddress::encode("[::1]:5".parse().unwrap(), true).bytes[..20]), None);
    }
}
