//! Socket addresses as bytes: a family, the port, the address, and with IPv6 the scope.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::bytes::{Reader, Writer};

pub(crate) const BYTES_MAX: usize = 1 + 2 + 16 + 4;

const V4: u8 = 4;
const V6: u8 = 6;

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
