//! Packets of strangers have sockets of their own, and no other program can share the port.

use std::net::{SocketAddr, UdpSocket};

use links::{BindError, CookieMark, Expected, Link, LinkStats, UdpEncap, UdpEncapConfig};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, sockopt};

use crate::common::{Kept, config, receive_until};

/// Descriptors of a link with one address: its socket for peers, and one for all sockets for strangers.
const DESCRIPTORS: usize = 2;
const INIT: u8 = 1;
const COOKIE_ECHO: u8 = 10;

/// Returns a packet with a verification tag that begins with DATA.
fn packet(tag: u32) -> Vec<u8> {
    chunk(tag, 0)
}

fn chunk(tag: u32, chunk_type: u8) -> Vec<u8> {
    [&[1, 2, 3, 4][..], &tag.to_be_bytes(), &[0; 4], &[chunk_type, 0, 0, 4]].concat()
}

fn tags(tags: &[u32]) -> Expected<'_> {
    Expected { tags: Some(tags), ..Expected::default() }
}

fn apart(ip: &str) -> UdpEncap {
    UdpEncap::bind(&UdpEncapConfig { strangers_apart: true, ..config(ip) }).unwrap()
}

fn descriptors(link: &impl Link) -> usize {
    let mut count = 0;
    link.descriptors(&mut |_| count += 1);
    count
}

/// Sends this many packets with each tag, and receives until all have arrived.
fn all_arrive(link: &mut UdpEncap, tags: &[u32], each: usize) {
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).unwrap();
    for tag in tags {
        for _ in 0..each {
            from.send_to(&packet(*tag), to).unwrap();
        }
    }
    let mut kept = Kept::default();
    receive_until(link, &mut kept, |kept| {
        let singles = kept.singles();
        tags.iter().all(|tag| singles.iter().filter(|one| **one == packet(*tag)).count() >= each)
    });
}

#[test]
fn strangers_and_peers_arrive_from_sockets_of_their_own() {
    for ip in ["127.0.0.1", "::1"] {
        let mut link = apart(ip);
        assert_eq!(descriptors(&link), DESCRIPTORS, "{ip}");
        assert_eq!(link.local_addresses().len(), 1, "{ip}");
        all_arrive(&mut link, &[0, 7], 3);
    }
}

#[test]
fn a_flood_of_strangers_takes_no_room_from_peers() {
    let mut link = apart("127.0.0.1");
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..20_000 {
        from.send_to(&packet(0), to).unwrap();
    }
    all_arrive(&mut link, &[7], 100);
    let LinkStats { datagrams_received: received, receive_overflows: dropped, .. } = link.stats();
    assert!(received < 10_000, "{received} of 20,000 strangers waited in the small buffer");
    assert_eq!(received + dropped, 20_000 + 100, "every packet is counted");
}

#[test]
fn packets_of_strangers_lie_in_no_block_of_peers() {
    let mut link = apart("127.0.0.1");
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    let init = [packet(0), vec![7; 4_000]].concat();
    let mut kept = Kept::default();
    for round in 1..=20 {
        for _ in 0..50 {
            from.send_to(&init, to).unwrap();
        }
        receive_until(&mut link, &mut kept, |kept| kept.singles().len() >= 50 * round);
    }
    assert!(kept.singles().iter().all(|packet| **packet == init));
    let LinkStats { blocks_allocated, blocks_reused, .. } = link.stats();
    assert_eq!((blocks_allocated, blocks_reused), (1, 0), "of 4 MB");
}

#[test]
fn strays_take_no_room_from_peers_once_the_tags_of_peers_are_known() {
    let mut link = apart("127.0.0.1");
    assert!(link.set_expected(tags(&[7, 9])));
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..20_000 {
        from.send_to(&packet(1000 + n), to).unwrap();
    }
    all_arrive(&mut link, &[7, 9, 0], 100);
    let received = link.stats().datagrams_received;
    assert!(received < 5_000, "{received} of 20,000 strays waited in the smallest buffer");
    // The link reads packets with an unexpected tag all the same.
    all_arrive(&mut link, &[5], 3);
    assert!(link.set_expected(Expected::default()));
    all_arrive(&mut link, &[7, 9, 11], 100);
}

#[test]
fn a_flood_of_cookies_takes_no_room_from_peers_and_inits() {
    let mut link = apart("127.0.0.1");
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..20_000 {
        from.send_to(&chunk(1000 + n, COOKIE_ECHO), to).unwrap();
    }
    all_arrive(&mut link, &[7, 0], 100);
    let received = link.stats().datagrams_received;
    assert!(received < 10_000, "{received} of 20,000 cookies waited in a buffer of their own");
}

/// Floods the link with packets that it must not expect, and returns how many it received before those of peers and of new peers
/// that came behind them.
fn received_of_a_flood(link: &mut UdpEncap, unexpected: impl Fn(u32) -> Vec<u8>, behind: &[Vec<u8>]) -> u64 {
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind(SocketAddr::new(to.ip(), 0)).unwrap();
    for n in 0..20_000 {
        from.send_to(&unexpected(n), to).unwrap();
    }
    for packet in behind {
        for _ in 0..100 {
            from.send_to(packet, to).unwrap();
        }
    }
    let mut kept = Kept::default();
    receive_until(link, &mut kept, |kept| {
        let singles = kept.singles();
        behind.iter().all(|packet| singles.iter().filter(|one| *one == packet).count() == 100)
    });
    link.stats().datagrams_received
}

#[test]
fn inits_for_closed_ports_take_no_room_from_those_for_open_ones() {
    for ip in ["127.0.0.1", "::1"] {
        let mut link = apart(ip);
        assert!(link.set_expected(Expected { init_ports: Some(&[80, 0x0304]), ..tags(&[7]) }));
        let closed = |_| [&[1, 2, 0, 81][..], &chunk(0, INIT)[4..]].concat();
        let received = received_of_a_flood(&mut link, closed, &[chunk(0, INIT), packet(7)]);
        assert!(received < 5_000, "{ip}: {received} of 20,000 strays waited in the smallest buffer");
    }
}

#[test]
fn cookies_without_the_mark_take_no_room_from_others() {
    for ip in ["127.0.0.1", "::1"] {
        let mut link = apart(ip);
        let mark = CookieMark { mask: 77, factor: 0x9e37_79b1 };
        assert!(link.set_expected(Expected { cookies: Some(mark), ..tags(&[7]) }));
        let cookie =
            |tag: u32, mark: u32| [&chunk(tag, COOKIE_ECHO)[..], &mark.to_be_bytes(), &[9; 83]].concat();
        let forged = |n| cookie(1000 + n, n);
        let behind = [cookie(3, mark.of(3)), cookie(7, mark.of(7)), packet(7)];
        let received = received_of_a_flood(&mut link, forged, &behind);
        assert!(received < 5_000, "{ip}: {received} of 20,000 strays waited in the smallest buffer");
    }
}

/// Sends INITs from a socket until the link thins them, and returns their number.
fn flood_until_thinned(link: &mut UdpEncap, from: &UdpSocket, to: SocketAddr) -> u64 {
    let mut kept = Kept::default();
    for round in 0..20_000 {
        for _ in 0..64 {
            from.send_to(&chunk(0, INIT), to).unwrap();
        }
        link.receive(&mut kept).unwrap();
        kept.datagrams.clear();
        if link.stats().receive_thinned > 0 {
            return 64 * round;
        }
    }
    panic!("a million packets of one source are not thinned");
}

#[test]
fn a_flood_from_one_prefix_is_thinned_and_every_init_of_others_arrives() {
    for (at, flooding, flooded) in [("127.0.0.1", "127.0.1.1", "127.0.0.1"), ("::", "::1", "::1")] {
        let mut link = apart(at);
        let port = link.local_addresses()[0].port();
        let bound = |ip: &str| UdpSocket::bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
        let (from, to) = (bound(flooding), SocketAddr::new(flooded.parse().unwrap(), port));
        flood_until_thinned(&mut link, &from, to);
        let others = ["127.0.2.1", "127.0.3.1", "127.0.4.1"].map(bound);
        let of = |other: &UdpSocket, kept: &Kept| {
            let address = other.local_addr().unwrap();
            kept.datagrams.iter().filter(|datagrams| datagrams.remote == address).count()
        };
        let mut kept = Kept::default();
        for _ in 0..500 {
            for _ in 0..30 {
                from.send_to(&chunk(0, INIT), to).unwrap();
            }
            for other in &others {
                other.send_to(&chunk(0, INIT), SocketAddr::new([127, 0, 0, 1].into(), port)).unwrap();
            }
            link.receive(&mut kept).unwrap();
        }
        // One of them shares the flood's bucket in one of 170 runs; two do in one of 60,000.
        let whole = |kept: &Kept| others.iter().filter(|other| of(other, kept) == 500).count() >= 2;
        receive_until(&mut link, &mut kept, whole);
    }
}

#[test]
fn a_prefix_is_received_from_again_when_its_flood_is_over() {
    let mut link = apart("127.0.0.1");
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind("127.0.1.1:0").unwrap();
    flood_until_thinned(&mut link, &from, to);
    let mut kept = Kept::default();
    // No packet comes meanwhile, so only the link's own timer can end the filter.
    loop {
        assert!(is_ready(&link, PollTimeout::from(10_000_u16)), "nothing wakes the poller");
        link.receive(&mut kept).unwrap();
        if !is_ready(&link, PollTimeout::from(1_000_u16)) {
            break;
        }
    }
    kept.datagrams.clear();
    for _ in 0..500 {
        from.send_to(&chunk(0, INIT), to).unwrap();
    }
    receive_until(&mut link, &mut kept, |kept| kept.datagrams.len() >= 500);
}

#[test]
fn strays_are_thinned_in_a_flood_and_packets_with_known_tags_are_not() {
    let mut link = apart("127.0.0.1");
    assert!(link.set_expected(tags(&[7])));
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind("127.0.1.1:0").unwrap();
    let mut kept = Kept::default();
    for n in 0..1_000_000_u32 {
        from.send_to(&packet(1000 + n), to).unwrap();
        if n % 16 == 0 {
            link.receive(&mut kept).unwrap();
            kept.datagrams.clear();
        }
        if link.stats().receive_thinned > 0 {
            return all_arrive(&mut link, &[7], 500);
        }
    }
    panic!("a million strays are not thinned");
}

#[test]
fn more_tags_than_a_program_holds_are_refused_and_nothing_is_a_stray() {
    let mut link = apart("127.0.0.1");
    assert!(link.set_expected(tags(&[7])));
    let too_many: Vec<u32> = (1..=5_000).collect();
    assert!(!link.set_expected(tags(&too_many)));
    all_arrive(&mut link, &[9_999], 200);
    let alone = UdpEncap::bind(&config("127.0.0.1")).map(|mut link| link.set_expected(tags(&[7])));
    assert!(!alone.unwrap(), "without sockets for strangers");
}

#[test]
fn a_receive_takes_a_bounded_number_of_strangers() {
    let mut link = apart("127.0.0.1");
    let to = link.local_addresses()[0];
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..200 {
        from.send_to(&packet(0), to).unwrap();
    }
    let mut kept = Kept::default();
    assert!(link.receive(&mut kept).unwrap(), "there is more");
    assert_eq!(kept.singles().len(), 128);
}

/// Returns whether a descriptor of the link is ready within this time.
fn is_ready(link: &impl Link, timeout: PollTimeout) -> bool {
    let mut fds = Vec::new();
    link.descriptors(&mut |fd| fds.push(PollFd::new(fd, PollFlags::POLLIN)));
    poll(&mut fds, timeout).unwrap() > 0
}

#[test]
fn a_descriptor_is_ready_while_packets_of_strangers_wait() {
    let mut link = apart("127.0.0.1");
    for _ in 0..3 {
        assert!(!is_ready(&link, PollTimeout::ZERO), "nothing waits");
        all_arrive(&mut link, &[0], 1);
    }
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    from.send_to(&packet(0), link.local_addresses()[0]).unwrap();
    for _ in 0..3 {
        assert!(is_ready(&link, PollTimeout::from(10_000_u16)), "polling takes nothing");
    }
}

#[test]
fn packets_behind_a_flood_make_a_descriptor_ready() {
    let mut link = apart("127.0.0.1");
    all_arrive(&mut link, &[0], 300);
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut kept = Kept::default();
    for sent in 1..=3 {
        from.send_to(&chunk(0, 1), link.local_addresses()[0]).unwrap();
        while kept.singles().len() < sent {
            assert!(is_ready(&link, PollTimeout::from(10_000_u16)), "packet {sent} waits for ever");
            link.receive(&mut kept).unwrap();
        }
    }
}

#[test]
fn a_long_packet_of_a_stranger_arrives_whole() {
    let mut link = apart("127.0.0.1");
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    let long = [packet(0), vec![7; 40_000]].concat();
    from.send_to(&long, link.local_addresses()[0]).unwrap();
    let mut kept = Kept::default();
    receive_until(&mut link, &mut kept, |kept| !kept.datagrams.is_empty());
    assert!(kept.singles() == [long]);
}

#[test]
fn no_other_program_gets_the_port() {
    for ip in ["127.0.0.1", "::1"] {
        let link = apart(ip);
        let address = link.local_addresses()[0];
        let again = UdpEncapConfig { port: address.port(), strangers_apart: true, ..config(ip) };
        let shared = UdpEncapConfig { reuse_port: true, strangers_apart: false, ..again.clone() };
        for config in [again, shared] {
            let error = UdpEncap::bind(&config).err().expect("a second link on the port");
            assert!(matches!(error, BindError::AddressInUse { .. }), "{error}");
        }
        let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let third = socket::socket(family, SockType::Datagram, SockFlag::empty(), None).unwrap();
        setsockopt(&third, sockopt::ReusePort, &true).unwrap();
        let bound = socket::bind(std::os::fd::AsRawFd::as_raw_fd(&third), &SockaddrStorage::from(address));
        assert_eq!(bound, Err(nix::errno::Errno::EADDRINUSE));
    }
}

#[test]
fn a_port_in_use_is_refused_with_a_socket_for_strangers_too() {
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let config = UdpEncapConfig { port, strangers_apart: true, ..config("127.0.0.1") };
    assert!(matches!(UdpEncap::bind(&config), Err(BindError::AddressInUse { .. })));
}

#[test]
fn several_addresses_and_both_families_have_a_socket_each() {
    let addresses = ["127.0.0.1", "127.0.0.2", "::1"].map(|ip| ip.parse().unwrap());
    let config =
        UdpEncapConfig { addresses: addresses.to_vec(), strangers_apart: true, port: 0, ..config("::1") };
    let link = UdpEncap::bind(&config).unwrap();
    assert_eq!((descriptors(&link), link.local_addresses().len()), (3 + 1, 3));
    let wildcard = UdpEncapConfig { addresses: Vec::new(), ..config };
    assert_eq!(descriptors(&UdpEncap::bind(&wildcard).unwrap()), DESCRIPTORS);
}

#[test]
fn links_that_share_a_port_have_no_sockets_for_strangers() {
    let config = UdpEncapConfig { reuse_port: true, strangers_apart: true, ..config("127.0.0.1") };
    assert_eq!(descriptors(&UdpEncap::bind(&config).unwrap()), 1);
}

#[test]
fn many_answers_leave_in_one_call() {
    let mut link = apart("127.0.0.1");
    let receivers: Vec<_> = (0..10).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let bytes = packet(9);
    let slices = [std::io::IoSlice::new(&bytes)];
    let transmits: Vec<_> = receivers
        .iter()
        .map(|receiver| links::Transmit {
            remote: receiver.local_addr().unwrap(),
            local: None,
            traffic_class: 0,
            may_fragment: true,
            segment_bytes: bytes.len(),
            slices: &slices,
        })
        .collect();
    link.transmit_answers(&transmits);
    let mut buffer = [0; 64];
    for receiver in &receivers {
        assert_eq!(receiver.recv(&mut buffer).unwrap(), bytes.len());
    }
    let stats = link.stats();
    assert_eq!((stats.batches_sent, stats.datagrams_sent), (1, 10));
}
