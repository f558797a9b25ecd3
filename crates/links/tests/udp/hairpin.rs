//! Packets for ourselves return without the system, and all others leave as before.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::common::{Kept, address, config, hand_over, pattern, receive, send, wait};
use links::{Hairpin, Link, Transmit, UdpEncap, UdpEncapConfig};
use netns::{Host, HostError};

fn any() -> Hairpin<UdpEncap> {
    Hairpin::new(UdpEncap::bind(&UdpEncapConfig { port: 0, ..Default::default() }).unwrap())
}

fn at(link: &impl Link, ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), link.local_addresses()[0].port())
}

fn transmit(link: &mut impl Link, to: &str, local: &str) -> io::Result<()> {
    let remote = at(link, to);
    let slices = [IoSlice::new(b"from "), IoSlice::new(b"here")];
    let local = Some(local.parse().unwrap());
    let batch = Transmit {
        remote,
        local,
        traffic_class: 46 << 2 | 2,
        may_fragment: false,
        segment_bytes: 1452,
        slices: &slices,
    };
    hand_over(link, &batch)
}

fn turned_back(link: &impl Link) -> u64 {
    link.stats().datagrams_turned_back
}

#[test]
fn a_batch_for_ourselves_comes_back_as_it_was() {
    let mut link = any();
    let remote = at(&link, "127.0.0.1");
    let payload = pattern(5 * 1000 + 17);
    send(&mut link, remote, 1000, &payload);
    assert_eq!((link.held_bytes(), turned_back(&link)), (payload.len(), 6));
    let mut kept = Kept::default();
    assert!(!link.receive(&mut kept).unwrap());
    assert_eq!(link.held_bytes(), 0);
    let [back] = &kept.datagrams[..] else { panic!("{} batches", kept.datagrams.len()) };
    assert_eq!((back.remote, back.local, back.segment_bytes), (remote, remote.ip(), 1000));
    assert_eq!(&back.payload[..], &payload[..]);
    let stats = link.stats();
    assert_eq!((stats.datagrams_sent, stats.datagrams_received), (6, 6));
    assert_eq!((stats.batches_sent, stats.bytes_received), (1, payload.len() as u64));
}

#[test]
fn a_single_datagram_refers_to_the_blocks_of_its_sender() {
    let mut link = any();
    let remote = at(&link, "127.0.0.1");
    let (first, second) = (Bytes::from(pattern(900)), Bytes::from(pattern(700)));
    let slices = [&b"head"[..], &first, b"between", &second].map(IoSlice::new);
    let total_bytes = 4 + 900 + 7 + 700;
    for segment_bytes in [total_bytes, 1000] {
        let batch = Transmit {
            remote,
            local: None,
            traffic_class: 0,
            may_fragment: false,
            segment_bytes,
            slices: &slices,
        };
        link.turn_back(&batch, &[(1, &first), (3, &second)]).unwrap().unwrap();
        assert_eq!(link.held_bytes(), total_bytes);
        let mut kept = Kept::default();
        link.receive(&mut kept).unwrap();
        let back = &kept.datagrams[0];
        assert_eq!((back.total_bytes(), back.block_bytes), (total_bytes, total_bytes));
        assert_eq!(back.segment_bytes, segment_bytes);
        if segment_bytes == total_bytes {
            assert_eq!(&back.payload[..], b"headbetween");
            assert_eq!(back.shared, [(4, first.clone()), (11, second.clone())]);
            assert_eq!(back.shared[1].1.as_ptr(), second.as_ptr());
        } else {
            assert_eq!((back.payload.len(), back.shared.len()), (total_bytes, 0), "a batch is copied");
        }
    }
    assert_eq!(link.stats().datagrams_received, 3);
    assert_eq!(link.stats().bytes_received, 2 * total_bytes as u64);
}

#[test]
fn the_receiver_sees_what_the_kernel_would_show() {
    // Sends equal packets through a link that turns them back and one that does not.
    let (mut here, mut there) =
        (any(), UdpEncap::bind(&UdpEncapConfig { port: 0, ..Default::default() }).unwrap());
    for (to, local) in [("127.0.0.1", "127.0.0.9"), ("127.0.0.2", "127.0.0.1"), ("::1", "::1")] {
        let (mut kept, mut expected) = (Kept::default(), Kept::default());
        transmit(&mut here, to, local).unwrap();
        transmit(&mut there, to, local).unwrap();
        assert!(here.held_bytes() > 0, "{to}");
        here.receive(&mut kept).unwrap();
        receive(&mut there, &mut expected);
        let (back, expected) = (&kept.datagrams[0], &expected.datagrams[0]);
        assert_eq!(
            (back.remote.ip(), back.local, back.ecn),
            (expected.remote.ip(), expected.local, expected.ecn)
        );
        assert_eq!((back.segment_bytes, &back.payload), (expected.segment_bytes, &expected.payload));
        assert_eq!(back.remote.port(), here.local_addresses()[0].port());
    }
    // Where the kernel may choose the source address.
    for to in ["127.0.0.1", "127.0.0.2", "::1"] {
        let (mut kept, mut expected) = (Kept::default(), Kept::default());
        let (to_here, to_there) = (at(&here, to), at(&there, to));
        send(&mut here, to_here, 1452, b"from where?");
        send(&mut there, to_there, 1452, b"from where?");
        here.receive(&mut kept).unwrap();
        receive(&mut there, &mut expected);
        assert_eq!(kept.datagrams[0].remote.ip(), expected.datagrams[0].remote.ip(), "{to}");
    }
}

#[test]
fn every_address_of_an_interface_is_ours() {
    let mut link = any();
    for ip in links::interface_addresses().unwrap() {
        if matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            continue;
        }
        let (before, ip) = (turned_back(&link), ip.to_string());
        // An address of an interface that is down is not reached at all.
        let sent = transmit(&mut link, &ip, &ip);
        assert!(sent.is_err() || turned_back(&link) == before + 1, "{ip}");
    }
}

#[test]
#[ignore = "needs root and network namespaces: ./test --all"]
fn an_address_that_comes_later_is_ours_and_has_another_route() {
    const REPORTED_WITHIN: Duration = Duration::from_secs(20);

    let host = match Host::new() {
        Err(error @ HostError::Refused(_)) => {
            assert!(std::env::var("SWIFTWATER_REQUIRE_TOOLS").is_err(), "{error}");
            return println!("skipped: {error}");
        }
        host => host.unwrap(),
    };
    host.ip("link set lo up").unwrap();
    host.run(|| {
        let mut link = any();
        let remote = at(&link, "192.0.2.7");
        assert_eq!(link.path_info(remote).route_local, None, "no route leads there");
        host.ip("addr add 192.0.2.7/32 dev lo").unwrap();
        let deadline = Instant::now() + REPORTED_WITHIN;
        while !link.is_same_host(remote.ip()) {
            assert!(Instant::now() < deadline, "the kernel reports the address");
            std::thread::yield_now();
        }
        send(&mut link, remote, 1452, b"from here");
        assert_eq!(turned_back(&link), 1, "the link asks for the route again");
        let mut kept = Kept::default();
        link.receive(&mut kept).unwrap();
        assert_eq!(kept.datagrams[0].remote.ip(), remote.ip());
    })
    .unwrap();
}

#[test]
fn a_mapped_address_is_the_ipv4_address_in_it() {
    let mut link = any();
    transmit(&mut link, "::ffff:127.0.0.1", "::ffff:127.0.0.1").unwrap();
    let mut kept = Kept::default();
    link.receive(&mut kept).unwrap();
    assert_eq!(kept.datagrams[0].remote, at(&link, "127.0.0.1"));
}

#[test]
fn another_port_is_another_program() {
    let mut link = any();
    let mut other = UdpEncap::bind(&config("127.0.0.1")).unwrap();
    send(&mut link, address(&other, "127.0.0.1"), 1452, b"to another");
    assert_eq!((link.held_bytes(), turned_back(&link)), (0, 0));
    let mut kept = Kept::default();
    receive(&mut other, &mut kept);
    assert_eq!(&kept.datagrams[0].payload[..], b"to another");
    // The link receives its packets although none is held.
    send(&mut other, at(&link, "127.0.0.1"), 1452, b"and back");
    receive(&mut link, &mut kept);
    assert_eq!(&kept.datagrams[1].payload[..], b"and back");
}

#[test]
fn an_address_that_no_socket_of_ours_is_bound_to_is_left_to_the_kernel() {
    let mut link = Hairpin::new(UdpEncap::bind(&config("127.0.0.1")).unwrap());
    let elsewhere = at(&link, "127.0.0.2");
    send(&mut link, elsewhere, 1452, b"nobody");
    assert_eq!(turned_back(&link), 0);
    let mut kept = Kept::default();
    receive(&mut link, &mut kept);
    assert_eq!(kept.unreachable.len(), 1, "the kernel says that nobody is there");
}

#[test]
fn a_packet_to_the_same_port_of_another_host_is_not_turned_back() {
    // The unspecified address is every address of ours, and no other host's (RFC 5737, RFC 3849).
    let mut link = any();
    for elsewhere in ["192.0.2.77", "2001:db8::77"] {
        let remote = at(&link, elsewhere);
        let slices = [IoSlice::new(b"for another host")];
        let transmit = Transmit {
            remote,
            local: None,
            traffic_class: 0,
            may_fragment: false,
            segment_bytes: 1452,
            slices: &slices,
        };
        // It does not matter whether there is a route.
        let _ = hand_over(&mut link, &transmit);
        link.transmit_answers(&[transmit]);
        assert_eq!((link.held_bytes(), turned_back(&link)), (0, 0), "{elsewhere}");
    }
}

#[test]
fn answers_to_ourselves_are_turned_back_and_others_leave() {
    let mut link = any();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let slices = [IoSlice::new(b"answer")];
    let [here, there] = [at(&link, "127.0.0.1"), other.local_addr().unwrap()].map(|remote| Transmit {
        remote,
        local: None,
        traffic_class: 0,
        may_fragment: true,
        segment_bytes: 6,
        slices: &slices,
    });
    link.transmit_answers(&[here, there]);
    assert_eq!((link.held_bytes(), turned_back(&link)), (6, 1));
    let mut buffer = [0; 16];
    assert_eq!(other.recv(&mut buffer).unwrap(), 6);
}

#[test]
fn a_source_address_that_is_not_ours_is_an_error_as_before() {
    let mut link = any();
    transmit(&mut link, "127.0.0.1", "192.0.2.77").unwrap_err();
    assert_eq!(turned_back(&link), 0);
}

#[test]
fn held_packets_are_bounded_and_none_is_lost() {
    let mut link = any();
    let remote = at(&link, "127.0.0.1");
    let payload = pattern(60_000);
    let slices = [IoSlice::new(&payload)];
    let batch = Transmit {
        remote,
        local: None,
        traffic_class: 0,
        may_fragment: false,
        segment_bytes: 60_000,
        slices: &slices,
    };
    let taken = (0..1000).take_while(|_| hand_over(&mut link, &batch).is_ok()).count();
    assert!((2..100).contains(&taken), "{taken}");
    assert_eq!(hand_over(&mut link, &batch).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let mut kept = Kept::default();
    link.receive(&mut kept).unwrap();
    assert_eq!(kept.singles(), vec![payload.clone(); taken]);
    hand_over(&mut link, &batch).unwrap();
}

#[test]
fn a_link_that_sends_to_itself_all_the_time_still_hears_others() {
    let mut link = any();
    let mut other = UdpEncap::bind(&config("127.0.0.1")).unwrap();
    send(&mut other, at(&link, "127.0.0.1"), 1452, b"listen");
    wait(&link);
    let ours = at(&link, "127.0.0.1");
    let mut kept = Kept::default();
    for _ in 0..100 {
        send(&mut link, ours, 1452, b"to myself");
        link.receive(&mut kept).unwrap();
    }
    assert!(kept.singles().contains(&b"listen".to_vec()));
}
