//! Binding: ports, families, and errors that say what to do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::common::{bind, config};
use links::{BindError, Link, UdpEncap, UdpEncapConfig};

#[test]
fn a_port_in_use_says_which_and_what_to_do() {
    let first = bind("127.0.0.1");
    let address = first.local_addresses()[0];
    let Err(error) = UdpEncap::bind(&UdpEncapConfig { port: address.port(), ..config("127.0.0.1") }) else {
        panic!("two links have one port");
    };
    assert!(matches!(error, BindError::AddressInUse { address: taken } if taken == address));
    let text = error.to_string();
    assert!(text.contains(&address.port().to_string()) && text.contains("/udp:PORT"), "{text}");
}

#[test]
fn an_address_of_another_host_says_so() {
    let Err(error) = UdpEncap::bind(&config("192.0.2.123")) else { panic!("bound another host's address") };
    assert!(matches!(error, BindError::AddressNotAvailable { .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.123"));
}

#[test]
fn links_may_share_a_port_when_both_say_so() {
    let shared = UdpEncapConfig { reuse_port: true, ..config("127.0.0.1") };
    let first = UdpEncap::bind(&shared).unwrap();
    let port = first.local_addresses()[0].port();
    let second = UdpEncap::bind(&UdpEncapConfig { port, ..shared }).unwrap();
    assert_eq!(first.local_addresses(), second.local_addresses());
}

#[test]
fn no_address_means_all_of_both_families() {
    let link = UdpEncap::bind(&UdpEncapConfig { port: 0, ..UdpEncapConfig::default() }).unwrap();
    let [address] = link.local_addresses()[..] else { panic!("one socket for both families") };
    assert!(address.ip().is_unspecified());
}

#[test]
fn both_wildcards_get_a_socket_each() {
    let config = UdpEncapConfig {
        addresses: vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        port: 0,
        ..UdpEncapConfig::default()
    };
    let link = UdpEncap::bind(&config).unwrap();
    let bound = link.local_addresses();
    assert_eq!(bound.iter().map(|address| address.ip()).collect::<Vec<_>>(), config.addresses);
    assert_eq!(bound[0].port(), bound[1].port());
}

#[test]
fn an_address_given_twice_is_bound_once() {
    let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    let config = UdpEncapConfig {
        addresses: vec![Ipv4Addr::LOCALHOST.into(), mapped, Ipv4Addr::LOCALHOST.into()],
        port: 0,
        ..UdpEncapConfig::default()
    };
    assert_eq!(UdpEncap::bind(&config).unwrap().local_addresses().len(), 1);
}

#[test]
fn a_link_gives_its_port_back() {
    let link = bind("127.0.0.1");
    let address = link.local_addresses()[0];
    drop(link);
    UdpSocket::bind(address).unwrap();
}
