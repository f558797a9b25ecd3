//! Addresses: consecutive `sockaddr_in` and `sockaddr_in6`, as `sctp_bindx` and `sctp_connectx` pack them (RFC 6458
//! §9). An entry of family 0 contains the UDP port that carries SCTP to the other entries (RFC 6951).

use super::DecodeError;
use crate::Addresses;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const UNSPECIFIED: u16 = 0;
pub(super) const INET: u16 = 2;
pub(super) const INET6: u16 = 10;

/// The sizes of the entries after family and port.
const UNSPECIFIED_REST_BYTES: usize = 4;
const INET_REST_BYTES: usize = 12;

pub(super) fn encode(addresses: &Addresses) -> Vec<u8> {
    let mut out = Vec::new();
    let mut start = |family: u16, port: u16, rest: &[&[u8]]| {
        out.extend(family.to_ne_bytes());
        out.extend(port.to_be_bytes());
        rest.iter().for_each(|part| out.extend(*part));
    };
    for address in &addresses.list {
        match address {
            SocketAddr::V4(v4) => start(INET, v4.port(), &[&v4.ip().octets(), &[0; 8]]),
            SocketAddr::V6(v6) => start(
                INET6,
                v6.port(),
                &[&v6.flowinfo().to_be_bytes(), &v6.ip().octets(), &v6.scope_id().to_ne_bytes()],
            ),
        }
    }
    if let Some(port) = addresses.encapsulation_port {
        start(UNSPECIFIED, port, &[&[0; UNSPECIFIED_REST_BYTES]]);
    }
    out
}

pub(super) fn decode(mut bytes: &[u8]) -> Result<Addresses, DecodeError> {
    let mut addresses = Addresses::default();
    while !bytes.is_empty() {
        let family = u16::from_ne_bytes(take(&mut bytes)?);
        let port = u16::from_be_bytes(take(&mut bytes)?);
        match family {
            UNSPECIFIED => {
                take::<UNSPECIFIED_REST_BYTES>(&mut bytes)?;
                addresses.encapsulation_port = Some(port);
            }
            INET => {
                let rest: [u8; INET_REST_BYTES] = take(&mut bytes)?;
                let [a, b, c, d, ..] = rest;
                addresses.list.push(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port).into());
            }
            INET6 => {
                let flowinfo = u32::from_be_bytes(take(&mut bytes)?);
                let ip = Ipv6Addr::from(take::<16>(&mut bytes)?);
                let scope_id = u32::from_ne_bytes(take(&mut bytes)?);
                addresses.list.push(SocketAddrV6::new(ip, port, flowinfo, scope_id).into());
            }
            _ => return Err(DecodeError::BadAddress),
        }
    }
    Ok(addresses)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (first, rest) = bytes.split_first_chunk().ok_or(DecodeError::BadAddress)?;
    *bytes = rest;
    Ok(*first)
}
