//! Addresses that a peer lists although it does not have them, lists twice or by the thousand, or that mean another host to us
//! (RFC 9260 §5.1.2, §5.4).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use sctp::config::{PARAMETERS_MAX, PEER_ADDRESSES_MAX};
use sctp::{AssociationConfig, Event, Multipath, PathState, SendInfo, Unreachable};
use sctp_wire::cause::Causes;
use sctp_wire::chunk::{Abort, Chunk, CookieEcho, Heartbeat, HeartbeatAck, Init, InitAck, ShutdownComplete};
use sctp_wire::parameter::{Ipv4, Parameter, Parameters, StateCookie, Unknown};

use lab::packets::{each_chunk, kinds};
use lab::script::Peer;

use crate::several_paths::{answers, established, established_at};

/// A host without any association with us.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 9, 9));

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|address| address.parse().unwrap()).collect()
}

fn remotes(peer: &Peer) -> Vec<IpAddr> {
    let (remotes, _) = peer.endpoint.peer_addresses(peer.id).unwrap();
    remotes.iter().map(SocketAddr::ip).collect()
}

fn ignored(peer: &Peer) -> u64 {
    peer.endpoint.endpoint_statistics().addresses_ignored
}

#[test]
fn a_stranger_whom_the_peer_lists_gets_heartbeats_and_nothing_else() {
    for multipath in [Multipath::Off, Multipath::Always] {
        let config =
            AssociationConfig { multipath, association_retries_max: 100, ..AssociationConfig::default() };
        let mut peer = established(1, config, &[STRANGER]);
        peer.expects("COOKIE ACK");
        // The peer itself falls silent, too, so that the sender would take any other path.
        for _ in 0..10 {
            peer.app_sends(SendInfo::default(), vec![0; 1000]);
        }
        let mut heartbeats = 0;
        for _ in 0..600 {
            peer.waits(Duration::from_secs(1));
            while let Some((to, packet)) = peer.hears_on_maybe() {
                if to.ip() == STRANGER {
                    assert_eq!(kinds(&packet), [Heartbeat::KIND]);
                    heartbeats += 1;
                }
            }
        }
        let paths = peer.endpoint.statistics(peer.id).unwrap().paths;
        assert_eq!(paths[1].state, PathState::Unconfirmed);
        // Path.Max.Retrans + 1 heartbeats within RTOs, which double, then one in each interval.
        assert!((6..=25).contains(&heartbeats), "{heartbeats}");
    }
}

/// Answers as a host does that gets a HEARTBEAT without an association (RFC 9260 §8.4).
fn says_no(peer: &mut Peer) {
    let tag = peer.tag;
    peer.sends().tag(tag).chunk(|_, out| write_abort(out)).go();
    peer.sends().tag(tag).chunk(|_, out| ShutdownComplete { reflected_tag: true }.write(out)).go();
}

fn write_abort(out: &mut Vec<u8>) {
    Abort { reflected_tag: true, causes: Causes::new(&[]) }.write(out);
}

#[test]
fn a_stranger_who_answers_speaks_for_nobody() {
    let mut peer = established(4, AssociationConfig::default(), &[STRANGER]);
    peer.expects("COOKIE ACK");
    peer.waits(Duration::ZERO);
    let (to, heartbeat) = peer.hears_on();
    assert_eq!(to.ip(), STRANGER);
    let home = std::mem::replace(&mut peer.address, to);
    says_no(&mut peer);
    for why in [Unreachable::Protocol, Unreachable::Port, Unreachable::Host] {
        peer.endpoint.handle_unreachable(peer.now, to, why, &heartbeat, &mut peer.app);
    }
    assert_eq!(peer.endpoint.association_count(), 1);
    assert_eq!(peer.endpoint.endpoint_statistics().reports_ignored, 3);
    // The peer itself would be heard at this address once it has confirmed it, and at its first one.
    for at in [to, home] {
        let mut peer = established(4, AssociationConfig::default(), &[STRANGER]);
        peer.expects("COOKIE ACK");
        peer.waits(Duration::ZERO);
        answers(&mut peer);
        peer.address = at;
        says_no(&mut peer);
        assert_eq!(peer.endpoint.association_count(), 0, "{at}");
    }
}

#[test]
fn a_stranger_whom_a_peer_lists_has_associations_of_its_own() {
    // RFC 5062 §2: a peer cannot take an address by listing it.
    let mut peer = established(5, AssociationConfig::default(), &[STRANGER]);
    peer.expects("COOKIE ACK");
    let (first, home, tag) = (peer.endpoint_tag, peer.address, peer.tag);
    peer.address.set_ip(STRANGER);
    peer.tag = 77;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    assert_eq!(peer.endpoint.association_count(), 2);
    assert!(!peer.app.saw(|e| matches!(e, Event::Restarted(_))));
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    (peer.address, peer.tag, peer.endpoint_tag) = (home, tag, first);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn an_address_that_is_listed_twice_is_one_path() {
    let own = Peer::new(2, AssociationConfig::default()).address.ip();
    let list = [STRANGER, own, STRANGER, own, STRANGER];
    let peer = established(2, AssociationConfig::default(), &list);
    assert_eq!((remotes(&peer), ignored(&peer)), (vec![own, STRANGER], 3));
    // An IPv4-mapped IPv6 address is the same as the IPv4 address.
    let mapped = addresses(&["::ffff:10.0.9.9", "10.0.9.9"]);
    let peer = established(3, AssociationConfig::default(), &mapped);
    assert_eq!((remotes(&peer), ignored(&peer)), (vec![own, STRANGER], 1));
}

#[test]
fn addresses_that_mean_another_host_to_us_are_left_out() {
    let cases = [
        // The source of the peer's packets, the addresses that it lists, and those that remain.
        ("203.0.113.5", addresses(&["192.168.1.5", "10.1.2.3", "172.20.0.1", "198.51.100.7"]), 1),
        ("192.168.1.5", addresses(&["10.1.2.3", "203.0.113.5", "169.254.1.1", "127.0.0.1"]), 2),
        ("169.254.1.1", addresses(&["169.254.1.2", "192.168.1.5", "127.0.0.1"]), 2),
        ("203.0.113.5", addresses(&["fe80::1", "2001:db8::5", "fd00::5", "::1"]), 2),
        ("2001:db8::5", addresses(&["192.168.1.5", "169.254.1.1", "fe80::2", "fd00::5"]), 2),
        ("127.0.0.1", addresses(&["127.0.0.2", "::1", "192.168.1.5"]), 3),
    ];
    let remain = |ours: &[&str], source: &str, list: &[IpAddr]| {
        let mut peer = Peer::new(10, AssociationConfig::default());
        peer.endpoint.set_local_addresses(addresses(ours));
        peer.address.set_ip(source.parse().unwrap());
        let peer = established_at(peer, list);
        assert_eq!(ignored(&peer), (list.len() + 1 - remotes(&peer).len()) as u64, "{source}");
        remotes(&peer).len() - 1
    };
    for (source, list, expected) in &cases {
        for ours in [&["192.168.1.1", "2001:db8::1"][..], &["198.51.100.1", "2001:db8::1"]] {
            assert_eq!(remain(ours, source, list), *expected, "{source}: {list:?}");
        }
    }
    // We are in both networks ourselves.
    let (source, list, _) = &cases[0];
    assert_eq!(remain(&["198.51.100.1", "192.168.1.1"], source, list), 4);
}

#[test]
fn many_addresses_are_sixteen() {
    // The state cookie is the last parameter that the endpoint examines.
    const LISTED: usize = PARAMETERS_MAX - 1;
    let list: Vec<IpAddr> =
        (0..LISTED as u16).map(|n| IpAddr::from([10, 9, (n >> 8) as u8, n as u8])).collect();
    let peer = established(20, AssociationConfig::default(), &list);
    assert_eq!(remotes(&peer).len(), PEER_ADDRESSES_MAX);
    assert_eq!(ignored(&peer), (LISTED - (PEER_ADDRESSES_MAX - 1)) as u64);
    // The server that we connect to lists such addresses.
    let mut parameters = Vec::new();
    for address in &list {
        if let IpAddr::V4(address) = *address {
            Ipv4 { address }.write(&mut parameters);
        }
    }
    StateCookie { cookie: b"cookie" }.write(&mut parameters);
    let mut peer = Peer::connecting(21, AssociationConfig::default());
    peer.takes_init();
    peer.sends()
        .chunk(|p, out| {
            let init = p.init();
            InitAck {
                initiate_tag: init.initiate_tag,
                a_rwnd: init.a_rwnd,
                outbound_streams: init.outbound_streams,
                inbound_streams: init.inbound_streams,
                initial_tsn: init.initial_tsn,
                parameters: Parameters::new(&parameters),
            }
            .write(out);
        })
        .go();
    peer.expects("COOKIE ECHO");
    assert_eq!(remotes(&peer).len(), PEER_ADDRESSES_MAX);
}

#[test]
fn unconfirmed_addresses_are_asked_one_by_one_however_many_there_are() {
    let list: Vec<IpAddr> = (1..=15u8).map(|n| IpAddr::from([10, 9, 0, n])).collect();
    let mut peer = established(22, AssociationConfig::default(), &list);
    peer.expects("COOKIE ACK");
    let mut heartbeats = 0;
    for _ in 0..10 {
        peer.waits(Duration::from_secs(1));
        while let Some((_, packet)) = peer.hears_on_maybe() {
            each_chunk(&packet, |chunk| heartbeats += u32::from(matches!(chunk, Chunk::Heartbeat(_))));
        }
    }
    // HB.Max.Burst is 1, and an unanswered heartbeat is repeated.
    assert!(heartbeats <= 22, "{heartbeats}");
}

#[test]
fn an_address_that_answers_late_is_used_then() {
    let mut peer = established(23, AssociationConfig::default(), &[STRANGER]);
    peer.expects("COOKIE ACK");
    let state = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().paths[1].state;
    // The peer lives, but only at its first address.
    for _ in 0..200 {
        peer.waits(Duration::from_secs(1));
        while let Some((to, packet)) = peer.hears_on_maybe() {
            each_chunk(&packet, |chunk| {
                if let Chunk::Heartbeat(heartbeat) = chunk
                    && to.ip() != STRANGER
                {
                    peer.sends().chunk(|_, out| HeartbeatAck { info: heartbeat.info }.write(out)).go();
                }
            });
        }
    }
    assert_eq!(state(&peer), PathState::Unconfirmed);
    // The longest RTO for the last answer, HB.interval, and up to one and a half of that RTO.
    for _ in 0..180 {
        peer.waits(Duration::from_secs(1));
        if peer.is_heard() {
            answers(&mut peer);
        }
    }
    assert_eq!(state(&peer), PathState::Active);
}

/// Returns the addresses that an endpoint at these addresses lists to a peer at `remote`: in its INIT, and in its INIT ACK.
fn listed_to(remote: &str, ours: &[IpAddr]) -> [Vec<IpAddr>; 2] {
    let ours_in = |packet: &[u8]| {
        let mut list = Vec::new();
        each_chunk(packet, |chunk| {
            let parameters = match chunk {
                Chunk::Init(init) => init.parameters(),
                Chunk::InitAck(ack) => ack.parameters(),
                other => panic!("a chunk of the setup, not {other}"),
            };
            list.extend(parameters.flatten().filter_map(|parameter| match parameter {
                Parameter::Ipv4(p) => Some(IpAddr::V4(p.address)),
                Parameter::Ipv6(p) => Some(IpAddr::V6(p.address)),
                _ => None,
            }));
        });
        list
    };
    let peer = || {
        let mut peer = Peer::new(30, AssociationConfig::default());
        peer.address.set_ip(remote.parse().unwrap());
        peer.endpoint.set_local_addresses(ours.to_vec());
        peer
    };
    let (mut client, mut server) = (peer(), peer());
    let config = AssociationConfig::default().into();
    client.endpoint.connect(client.now, 5000, 5001, &[client.address], config, &client.app).unwrap();
    client.collect_output();
    // An INIT that is long enough for an answer with all of them.
    let mut padding = Vec::new();
    Unknown { kind: 0x8005, value: &[0; 124] }.write(&mut padding);
    let parameters = Parameters::new(&padding);
    server.sends().tag(0).chunk(|p, out| Init { parameters, ..p.init() }.write(out)).go();
    [ours_in(&client.hears()), ours_in(&server.hears())]
}

#[test]
fn a_peer_is_told_of_no_address_that_means_another_host_to_it() {
    let names = ["127.0.0.1", "169.254.1.1", "192.168.1.5", "203.0.113.5", "::1", "fe80::5", "2001:db8::5"];
    let ours = addresses(&names);
    let cases: [(&str, &[usize]); 6] = [
        ("127.0.0.2", &[0, 1, 2, 3, 4, 5, 6]),
        ("::1", &[0, 1, 2, 3, 4, 5, 6]),
        ("169.254.7.7", &[1, 2, 3, 6]),
        ("10.7.7.7", &[2, 3, 6]),
        // A host in both networks may have a peer in both.
        ("198.51.100.7", &[2, 3, 6]),
        ("2001:db8::7", &[2, 3, 6]),
    ];
    for (remote, expected) in cases {
        let expected: Vec<IpAddr> = expected.iter().map(|&n| ours[n]).collect();
        for (listed, chunk) in listed_to(remote, &ours).iter().zip(["INIT", "INIT ACK"]) {
            assert_eq!(*listed, expected, "{chunk} to {remote}");
        }
    }
    // Behind a NAT.
    let ours = addresses(&["192.168.1.5", "10.1.2.5", "2001:db8::5"]);
    let listed = listed_to("198.51.100.7", &ours);
    assert!(listed.iter().all(|list| *list == ours[2..]), "{listed:?}");
}
