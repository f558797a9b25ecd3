//! Packets of strangers have raw sockets of their own. Each test is alone in a network namespace.

use std::net::IpAddr;

use links::{CookieMark, Expected, Link, RawIp, RawIpConfig, UnreachableReason};
use netns::{Host, HostError};

use crate::shared::{Kept, receive_until, send};
use crate::{OUR_PORT, at, config};

/// Descriptors of a link with one address: its socket for peers, and one for all sockets for strangers.
const DESCRIPTORS: usize = 2;
const DATA: u8 = 0;
const INIT: u8 = 1;
const COOKIE_ECHO: u8 = 10;
const PACKET_BYTES: usize = 16;
const FLOOD_PACKETS: u32 = 20_000;

fn packet(tag: u32, chunk_type: u8) -> Vec<u8> {
    let (from, to) = (7u16.to_be_bytes(), OUR_PORT.to_be_bytes());
    [&from[..], &to, &tag.to_be_bytes(), &[0; 4], &[chunk_type, 0, 0, 4]].concat()
}

fn tags(tags: &[u32]) -> Expected<'_> {
    Expected { tags: Some(tags), ..Expected::default() }
}

/// Runs `work` on a host of the test's own, where this user may make one.
fn on_a_host(work: impl FnOnce() + Send) {
    let host = match Host::new() {
        Err(error @ HostError::Refused(_)) => {
            assert!(std::env::var("SWIFTWATER_REQUIRE_TOOLS").is_err(), "{error}");
            return println!("skipped: {error}");
        }
        host => host.unwrap(),
    };
    host.ip("link set lo up").unwrap();
    host.run(work).unwrap();
}

/// Returns a sender, and a link at an address with sockets for strangers.
fn pair(ip: &str) -> (RawIp, RawIp) {
    let mut to = RawIp::bind(&RawIpConfig { strangers_apart: true, ..config(&[ip]) }).unwrap();
    to.set_ports(&[OUR_PORT]).unwrap();
    (RawIp::bind(&config(&[ip])).unwrap(), to)
}

fn descriptors(link: &RawIp) -> usize {
    let mut count = 0;
    link.descriptors(&mut |_| count += 1);
    count
}

/// Sends a flood of packets as long as `after`, then receives until 100 packets with a later tag are there.
fn passes_a_flood(
    (from, to): &mut (RawIp, RawIp),
    ip: &str,
    flood: impl Fn(u32) -> Vec<u8>,
    after: &[u8],
) -> u64 {
    let before = to.stats().datagrams_received;
    for n in 0..FLOOD_PACKETS {
        send(from, at(ip), after.len(), &flood(n));
    }
    send(from, at(ip), after.len(), &after.repeat(100));
    let mut kept = Kept::default();
    receive_until(to, &mut kept, |kept| kept.singles().iter().filter(|one| *one == after).count() == 100);
    to.stats().datagrams_received - before
}

#[test]
#[ignore = "needs CAP_NET_RAW and CAP_SYS_ADMIN: ./test --all"]
fn each_packet_arrives_once_from_the_socket_of_its_class() {
    on_a_host(|| {
        for ip in ["127.0.0.1", "::1"] {
            let (mut from, mut to) = pair(ip);
            assert_eq!((descriptors(&to), to.local_addresses().len()), (DESCRIPTORS, 1), "{ip}");
            let sent = [(0, 1), (7, DATA), (7, COOKIE_ECHO), (9, DATA)].map(|(tag, kind)| packet(tag, kind));
            for tags in [None, Some(&[7, 8][..])] {
                assert!(to.set_expected(Expected { tags, ..Expected::default() }));
                send(&mut from, at(ip), PACKET_BYTES, &sent.concat());
                let mut kept = Kept::default();
                receive_until(&mut to, &mut kept, |kept| kept.datagrams.len() >= sent.len());
                while to.receive(&mut kept).unwrap() {}
                let mut singles = kept.singles();
                singles.sort_unstable();
                let mut expected = sent.to_vec();
                expected.sort_unstable();
                assert_eq!(singles, expected, "{ip} {tags:?}");
                assert!(kept.datagrams.iter().all(|one| one.remote == at(ip)
                    && one.local == ip.parse::<IpAddr>().unwrap()
                    && one.ecn == 0));
            }
        }
    });
}

#[test]
#[ignore = "needs CAP_NET_RAW and CAP_SYS_ADMIN: ./test --all"]
fn a_flood_of_one_class_takes_no_room_from_the_others() {
    on_a_host(|| {
        for ip in ["127.0.0.1", "::1"] {
            // Each flood meets empty buffers.
            let inits = passes_a_flood(&mut pair(ip), ip, |_| packet(0, 1), &packet(7, DATA));
            assert!(inits < 10_000, "{inits} INITs waited");
            let cookie = |n| packet(1000 + n, COOKIE_ECHO);
            let cookies = passes_a_flood(&mut pair(ip), ip, cookie, &packet(0, 1));
            assert!(cookies < 10_000, "{cookies} cookies waited");
            let mut pair = pair(ip);
            assert!(pair.1.set_expected(tags(&[7, 9])));
            let strays = passes_a_flood(&mut pair, ip, |n| packet(1000 + n, DATA), &packet(9, DATA));
            assert!(strays < 5_000, "{strays} strays waited in the smallest buffer");
            let mark = CookieMark { mask: 77, factor: 0x9e37_79b1 };
            assert!(pair.1.set_expected(Expected { cookies: Some(mark), ..tags(&[7, 9]) }));
            let cookie =
                |tag: u32, mark: u32| [packet(tag, COOKIE_ECHO), mark.to_be_bytes().to_vec()].concat();
            let forged = passes_a_flood(&mut pair, ip, |n| cookie(1000 + n, n), &cookie(9, mark.of(9)));
            assert!(forged < 5_000, "{forged} cookies without the mark waited in the smallest buffer");
        }
    });
}

#[test]
#[ignore = "needs CAP_NET_RAW and CAP_SYS_ADMIN: ./test --all"]
fn a_flood_from_one_prefix_is_thinned_and_every_init_of_others_arrives() {
    on_a_host(|| {
        let ip = "127.0.0.1";
        let (_, mut to) = pair(ip);
        let bound = |ip: &str| RawIp::bind(&config(&[ip])).unwrap();
        let mut from = bound("127.0.1.1");
        let flood = |from: &mut RawIp| send(from, at(ip), PACKET_BYTES, &packet(0, INIT).repeat(60));
        let mut kept = Kept::default();
        let thinned = (0..20_000).any(|_| {
            flood(&mut from);
            to.receive(&mut kept).unwrap();
            kept.datagrams.clear();
            to.stats().receive_thinned > 0
        });
        assert!(thinned, "a million packets of one source are not thinned");
        // The port and the class count as before, also after a change of the ports.
        to.set_ports(&[OUR_PORT, 4000]).unwrap();
        let mut others = ["127.0.2.1", "127.0.3.1", "127.0.4.1"].map(|ip| (ip, bound(ip)));
        for _ in 0..500 {
            flood(&mut from);
            for (_, other) in &mut others {
                send(other, at(ip), PACKET_BYTES, &packet(0, INIT));
            }
            to.receive(&mut kept).unwrap();
        }
        let of = |ip: &str, kept: &Kept| kept.datagrams.iter().filter(|one| one.remote == at(ip)).count();
        // One of them shares the flood's bucket in one of 170 runs; two do in one of 60,000.
        let whole = |kept: &Kept| others.iter().filter(|(other, _)| of(other, kept) == 500).count() >= 2;
        receive_until(&mut to, &mut kept, whole);
    });
}

#[test]
#[ignore = "needs CAP_NET_RAW and CAP_SYS_ADMIN: ./test --all"]
fn more_tags_than_a_program_holds_are_refused_and_nothing_is_a_stray() {
    on_a_host(|| {
        let ip = "127.0.0.1";
        let (mut from, mut to) = pair(ip);
        assert!(to.set_expected(tags(&[7])));
        let too_many: Vec<u32> = (1..=5_000).collect();
        assert!(!to.set_expected(tags(&too_many)));
        // The buffer for strays does not hold as many.
        send(&mut from, at(ip), PACKET_BYTES, &packet(9_999, DATA).repeat(1000));
        let mut kept = Kept::default();
        receive_until(&mut to, &mut kept, |kept| kept.datagrams.len() == 1000);
        assert!(!from.set_expected(tags(&[7])), "without sockets for strangers");
    });
}

#[test]
#[ignore = "needs CAP_NET_RAW and CAP_SYS_ADMIN: ./test --all"]
fn a_long_packet_of_a_stranger_arrives_whole() {
    on_a_host(|| {
        for ip in ["127.0.0.1", "::1"] {
            let (mut from, mut to) = pair(ip);
            let long = [packet(0, 1), vec![7; 40_000]].concat();
            send(&mut from, at(ip), long.len(), &long);
            let mut kept = Kept::default();
            receive_until(&mut to, &mut kept, |kept| !kept.datagrams.is_empty());
            assert!(kept.singles() == [long], "{ip}");
        }
    });
}

#[test]
#[ignore = "needs CAP_NET_RAW and CAP_SYS_ADMIN: ./test --all"]
fn an_icmp_report_comes_once() {
    on_a_host(|| {
        if links::kernel_speaks_sctp() {
            return println!("skipped: the kernel has the protocol");
        }
        let (_, mut link) = pair("127.0.0.1");
        send(&mut link, at("127.0.0.77"), PACKET_BYTES, &packet(7, DATA));
        let mut kept = Kept::default();
        receive_until(&mut link, &mut kept, |kept| !kept.unreachable.is_empty());
        // After so many receives, the link reads every error queue.
        for _ in 0..200 {
            link.receive(&mut kept).unwrap();
        }
        assert_eq!(kept.unreachable.len(), 1);
        assert_eq!(kept.unreachable[0].reason, UnreachableReason::Protocol);
    });
}
