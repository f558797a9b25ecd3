//! Helpers of the tests of the UDP link: a link on loopback.

use std::net::{IpAddr, SocketAddr};

use links::{Link, UdpEncap, UdpEncapConfig};

pub(crate) use crate::shared::*;

pub(crate) fn config(ip: &str) -> UdpEncapConfig {
    UdpEncapConfig { addresses: vec![ip.parse().unwrap()], port: 0, ..UdpEncapConfig::default() }
}

pub(crate) fn bind(ip: &str) -> UdpEncap {
    UdpEncap::bind(&config(ip)).unwrap()
}

/// Returns the address under which `link` is reached at `ip`.
pub(crate) fn address(link: &UdpEncap, ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), link.local_addresses()[0].port())
}

/// Returns bytes whose values depend on their positions.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|position| (position * 7 + position / 251) as u8).collect()
}
