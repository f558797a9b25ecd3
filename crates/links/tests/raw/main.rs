//! The raw IP link on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/mod.rs"]
mod shared;
mod strangers;

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use links::{BindError, Link, RawIp, RawIpConfig, Transmit, UnreachableReason};
use shared::{Kept, receive, receive_until, send};

const OUR_PORT: u16 = 5001;
/// A raw socket with one address receives all packets to it, and a socket for all addresses receives everything.
static ALONE: Mutex<()> = Mutex::new(());

/// Excludes the other tests.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(ips: &[&str]) -> RawIpConfig {
    RawIpConfig { addresses: ips.iter().map(|ip| ip.parse().unwrap()).collect(), ..RawIpConfig::default() }
}

/// Returns a link that listens on a port; `None` if this user may not have one and the test run does not require it.
fn listen(ips: &[&str], port: u16) -> Option<RawIp> {
    match RawIp::bind(&config(ips)) {
        Ok(mut link) => {
            link.set_ports(&[port]).unwrap();
            Some(link)
        }
        Err(error @ BindError::RawNotPermitted { .. }) => {
            assert!(std::env::var("SWIFTWATER_REQUIRE_TOOLS").is_err(), "{error}");
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 0)
}

/// Returns a packet for a port; no other field matters to a link.
fn packet(port: u16, bytes: usize, fill: u8) -> Vec<u8> {
    let mut packet = vec![fill; bytes];
    packet[2..4].copy_from_slice(&port.to_be_bytes());
    packet
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn packets_arrive_without_their_ip_header_over_both_families() {
    let _alone = alone();
    for ip in ["127.0.0.1", "::1"] {
        let (Some(mut from), Some(mut to)) = (listen(&[ip], 7), listen(&[ip], OUR_PORT)) else { return };
        let batch: Vec<u8> = (0..5u8).flat_map(|n| packet(OUR_PORT, 1000, n)).collect();
        let slices = [IoSlice::new(&batch[..1500]), IoSlice::new(&batch[1500..4800])];
        let transmit = Transmit {
            remote: at(ip),
            local: None,
            traffic_class: 2,
            may_fragment: false,
            segment_bytes: 1000,
            slices: &slices,
        };
        from.transmit(&transmit).unwrap();
        let mut kept = Kept::default();
        receive_until(&mut to, &mut kept, |kept| kept.datagrams.len() == 5);
        assert_eq!(kept.singles().concat(), batch[..4800]);
        assert!(kept.datagrams.iter().all(|datagrams| datagrams.remote == at(ip)
            && datagrams.local == ip.parse::<IpAddr>().unwrap()
            && datagrams.ecn == 2));
        assert_eq!((from.stats().batches_sent, from.stats().datagrams_sent), (1, 5));
        assert_eq!(to.stats().datagrams_received, 5);
    }
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn only_packets_for_its_ports_reach_a_link() {
    let _alone = alone();
    for ip in ["127.0.0.1", "::1"] {
        let (Some(mut from), Some(mut to)) = (listen(&[ip], 7), listen(&[ip], OUR_PORT)) else { return };
        for port in [OUR_PORT + 1, 0, OUR_PORT] {
            send(&mut from, at(ip), 100, &packet(port, 100, 1));
        }
        // Too short to have a port.
        send(&mut from, at(ip), 3, b"hey");
        to.set_ports(&[OUR_PORT + 1]).unwrap();
        send(&mut from, at(ip), 100, &packet(OUR_PORT, 100, 2));
        send(&mut from, at(ip), 100, &packet(OUR_PORT + 1, 100, 3));
        let mut kept = Kept::default();
        receive_until(&mut to, &mut kept, |kept| kept.datagrams.len() == 2);
        assert_eq!(kept.singles(), [packet(OUR_PORT, 100, 1), packet(OUR_PORT + 1, 100, 3)]);
        assert_eq!(to.stats().receive_discarded, 0);
    }
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn large_packets_among_small_ones_arrive_whole() {
    let _alone = alone();
    for ip in ["127.0.0.1", "::1"] {
        let (Some(mut from), Some(mut to)) = (listen(&[ip], 7), listen(&[ip], OUR_PORT)) else { return };
        let largest = from.path_info(at(ip)).mtu_bytes;
        assert!(largest > 65_000, "{largest}");
        let sizes = [12, largest, 1500, 9000, largest, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 2048, 2049];
        for (fill, bytes) in sizes.into_iter().enumerate() {
            send(&mut from, at(ip), bytes, &packet(OUR_PORT, bytes, fill as u8));
        }
        let mut kept = Kept::default();
        receive_until(&mut to, &mut kept, |kept| kept.datagrams.len() == sizes.len());
        for (fill, (bytes, got)) in sizes.into_iter().zip(kept.singles()).enumerate() {
            assert_eq!(got, packet(OUR_PORT, bytes, fill as u8), "{bytes} bytes");
        }
        assert_eq!(to.stats().receive_discarded, 0);
    }
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn more_packets_than_a_system_call_takes_are_sent_all_the_same() {
    let _alone = alone();
    let ip = "127.0.0.1";
    let (Some(mut from), Some(mut to)) = (listen(&[ip], 7), listen(&[ip], OUR_PORT)) else { return };
    let batch: Vec<u8> = (0..150u8).flat_map(|n| packet(OUR_PORT, 100, n)).collect();
    send(&mut from, at(ip), 100, &batch);
    let mut kept = Kept::default();
    receive_until(&mut to, &mut kept, |kept| kept.datagrams.len() == 150);
    assert_eq!(kept.singles().concat(), batch);
    assert_eq!(from.stats().batches_sent, 3);
    // Each call received many packets, and not each in its own block.
    let stats = to.stats();
    assert!(stats.batches_received < 20 && stats.blocks_allocated <= 2, "{stats:?}");
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn the_source_address_is_the_one_asked_for() {
    let _alone = alone();
    let locals = ["127.0.0.1", "127.0.0.2"];
    let (Some(mut each), Some(mut any)) = (listen(&locals, 7), listen(&[], 7)) else { return };
    let Some(mut to) = listen(&["127.0.0.3"], OUR_PORT) else { return };
    assert_eq!(any.local_addresses()[0], at("0.0.0.0"));
    for link in [&mut each, &mut any] {
        for local in locals {
            let payload = packet(OUR_PORT, 20, 0);
            let (remote, local) = (at("127.0.0.3"), local.parse().unwrap());
            let slices = [IoSlice::new(&payload)];
            let transmit = Transmit {
                remote,
                local: Some(local),
                traffic_class: 0,
                may_fragment: false,
                segment_bytes: 20,
                slices: &slices,
            };
            link.transmit(&transmit).unwrap();
            let mut kept = Kept::default();
            receive(&mut to, &mut kept);
            assert_eq!(kept.datagrams[0].remote.ip(), local);
        }
    }
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn a_host_without_the_protocol_is_reported() {
    let _alone = alone();
    if links::kernel_speaks_sctp() {
        return println!("skipped: the kernel has the protocol");
    }
    let Some(mut from) = listen(&["127.0.0.1"], 7) else { return };
    let sent = packet(OUR_PORT, 100, 9);
    send(&mut from, at("127.0.0.77"), 100, &sent);
    let mut kept = Kept::default();
    receive_until(&mut from, &mut kept, |kept| !kept.unreachable.is_empty());
    let report = &kept.unreachable[0];
    assert_eq!((report.remote, report.reason), (at("127.0.0.77"), UnreachableReason::Protocol));
    assert!(report.quoted.len() >= 8, "the ports and the tag must be there: {:?}", report.quoted);
    assert_eq!(&report.quoted[..], &sent[..report.quoted.len()]);
}

#[test]
#[ignore = "needs CAP_NET_RAW: ./test --all"]
fn errors_name_the_address() {
    let _alone = alone();
    for (ips, named) in [(&["192.0.2.7"][..], "192.0.2.7"), (&["127.0.0.1", "127.0.0.1"], "127.0.0.1")] {
        let Err(error) = RawIp::bind(&config(ips)) else { panic!("bound {ips:?}") };
        assert!(error.to_string().contains(named), "{error}");
    }
}
