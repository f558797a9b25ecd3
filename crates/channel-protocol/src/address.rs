//! Socket addresses as bytes: a family, the port, the address, and for IPv6 the scope.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::bytes::{Reader, Writer};

pub(crate) const BYTES_MAX: usize = 1 + 2 + 16 + 4;

const V4: u8 = 4;
const V6: u8 = 6;

/// Returns an IPv6 address as a program names it. Only link-local addresses keep the scope: for others, programs leave garbage in
/// the field, which the kernel ignores, too.
#[must_use]
pub fn v6(ip: Ipv6Addr, port: u16, scope: u32) -> SocketAddr {
    SocketAddrV6::new(ip, port, 0, if ip.is_unicast_link_local() { scope } else { 0 }).into()
}

pub(crate) fn write(out: &mut Writer<'_>, address: &SocketAddr) {
    let version = if address.is_ipv4() { V4 } else { V6 };
    out.u8(version).u16(address.port());
    match address {
        SocketAddr::V4(a) => out.bytes(&a.ip().octets()),
        SocketAddr::V6(a) => out.bytes(&a.ip().octets()).u32(a.scope_id()),
    };
}

pub(crate) fn read(bytes: &mut Reader<'_>) -> Option<SocketAddr> {
    let version = bytes.u8()?;
    let port = bytes.u16()?;
    match version {
        V4 => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(bytes.array::<4>()?)), port)),
        V6 => {
            let ip = Ipv6Addr::from(bytes.array::<16>()?);
            Some(SocketAddrV6::new(ip, port, 0, bytes.u32()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_a_link_has_a_scope() {
        let scope = |ip: &str| v6(ip.parse().expect("an address"), 7, 3).to_string();
        assert_eq!((scope("::1"), scope("fe80::1")), ("[::1]:7".to_owned(), "[fe80::1%3]:7".to_owned()));
    }
}
