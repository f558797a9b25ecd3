//! Binding: ports, families, and errors that state the remedy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::common::{Kept, bind, config, receive, send};
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
fn an_address_named_twice_is_an_error_that_names_it() {
    let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    let config = UdpEncapConfig {
        addresses: vec![Ipv4Addr::LOCALHOST.into(), mapped],
        port: 0,
        ..UdpEncapConfig::default()
    };
    let Err(error) = UdpEncap::bind(&config) else { panic!("bound 127.0.0.1 twice") };
    assert!(matches!(error, BindError::Duplicate { address } if address == Ipv4Addr::LOCALHOST), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[test]
fn a_socket_bound_to_its_interface_reaches_what_is_there() {
    let config = UdpEncapConfig { bind_interfaces: true, ..config("127.0.0.2") };
    let (mut from, mut to) = (UdpEncap::bind(&config).unwrap(), UdpEncap::bind(&config).unwrap());
    let remote = to.local_addresses()[0];
    assert!(from.path_info(remote).same_host);
    send(&mut from, remote, 100, b"over lo");
    let mut kept = Kept::default();
    receive(&mut to, &mut kept);
    assert_eq!(kept.singles(), [b"over lo"]);
}

#[test]
fn addresses_of_this_host_are_known_without_their_route() {
    let link = bind("127.0.0.1");
    for own in links::interface_addresses().unwrap() {
        assert!(link.is_same_host(own), "{own}");
    }
    assert!(
        link.is_same_host("127.0.0.9".parse().unwrap())
            && link.is_same_host("::ffff:127.0.0.1".parse().unwrap())
    );
    assert!(
        !link.is_same_host("192.0.2.1".parse().unwrap()) && !link.is_same_host("fe80::1".parse().unwrap())
    );
}

#[test]
fn each_way_begins_at_the_address_that_its_route_leaves_from() {
    let addresses = ["127.0.0.1", "127.0.0.2", "::1"].map(|ip| ip.parse().unwrap());
    let config = UdpEncapConfig { addresses: addresses.to_vec(), port: 0, ..UdpEncapConfig::default() };
    let link = UdpEncap::bind(&config).unwrap();
    let local = |remote: &str| link.path_info(remote.parse().unwrap()).local;
    assert_eq!(local("127.0.0.1:9"), Some(addresses[0]));
    assert_eq!(local("127.0.0.2:9"), Some(addresses[1]));
    assert_eq!(local("127.0.0.3:9"), Some(addresses[0]));
    assert_eq!(local("[::1]:9"), Some(addresses[2]));
    // One socket for all addresses: the kernel chooses.
    let any = UdpEncap::bind(&UdpEncapConfig { port: 0, ..UdpEncapConfig::default() }).unwrap();
    assert_eq!(any.path_info("127.0.0.1:9".parse().unwrap()).local, None);
}

#[test]
fn a_link_gives_its_port_back() {
    let link = bind("127.0.0.1");
    let address = link.local_addresses()[0];
    drop(link);
    UdpSocket::bind(address).unwrap();
}
