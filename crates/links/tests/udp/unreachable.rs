//! ICMP errors reach the sink, and only the sink.

use std::net::{SocketAddr, UdpSocket};

use crate::common::{Kept, bind, pattern, receive_until, send};
use links::{Link, UdpEncap, UdpEncapConfig, UnreachableReason};

/// Returns an address without a listener.
fn deserted(ip: &str) -> SocketAddr {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
}

fn reported(link: &mut UdpEncap, ip: &str) {
    let remote = deserted(ip);
    send(link, remote, 1452, b"anybody there?");
    let mut kept = Kept::default();
    receive_until(link, &mut kept, |kept| !kept.unreachable.is_empty());
    let report = &kept.unreachable[0];
    assert_eq!(report.remote, remote);
    assert_eq!(report.reason, UnreachableReason::Port);
    assert_eq!(&report.quoted[..], b"anybody there?");
    assert!(kept.datagrams.is_empty());
}

#[test]
fn a_port_that_nobody_has_is_reported() {
    for ip in ["127.0.0.1", "::1"] {
        reported(&mut bind(ip), ip);
    }
}

#[test]
fn a_dual_stack_socket_reports_both_families() {
    let mut link = UdpEncap::bind(&UdpEncapConfig { port: 0, ..UdpEncapConfig::default() }).unwrap();
    reported(&mut link, "127.0.0.1");
    reported(&mut link, "::1");
    assert_eq!(link.stats().icmp_reports, 2);
}

#[test]
fn an_error_of_one_peer_fails_no_send_to_another() {
    let (mut link, mut server) = (bind("127.0.0.1"), bind("127.0.0.1"));
    let (remote, nobody) = (server.local_addresses()[0], deserted("127.0.0.1"));
    for number in 0..20u8 {
        send(&mut link, nobody, 1452, b"lost");
        send(&mut link, remote, 1452, &[number]);
    }
    let mut kept = Kept::default();
    receive_until(&mut server, &mut kept, |kept| kept.datagrams.len() == 20);
    assert_eq!(kept.singles().concat(), (0..20).collect::<Vec<u8>>());
    let mut kept = Kept::default();
    receive_until(&mut link, &mut kept, |kept| kept.unreachable.len() == 20);
    assert!(kept.unreachable.iter().all(|report| report.remote == nobody));
    assert_eq!(link.stats().send_failed, 0);
}

#[test]
fn an_error_hides_no_datagram_that_waits() {
    let (mut link, mut peer) = (bind("127.0.0.1"), bind("127.0.0.1"));
    send(&mut peer, link.local_addresses()[0], 1452, b"waiting");
    send(&mut link, deserted("127.0.0.1"), 1452, b"lost");
    let mut kept = Kept::default();
    receive_until(&mut link, &mut kept, |kept| kept.datagrams.len() + kept.unreachable.len() == 2);
    assert_eq!(kept.singles(), [b"waiting"]);
    assert_eq!(kept.unreachable[0].reason, UnreachableReason::Port);
}

#[test]
fn a_batch_to_nobody_is_reported_too() {
    let mut link = bind("127.0.0.1");
    let remote = deserted("127.0.0.1");
    let payload = pattern(14_520);
    send(&mut link, remote, 1452, &payload);
    let mut kept = Kept::default();
    receive_until(&mut link, &mut kept, |kept| !kept.unreachable.is_empty());
    assert_eq!(kept.unreachable[0].remote, remote);
    assert!(payload.starts_with(&kept.unreachable[0].quoted));
}
