//! Associations and listeners that use some of the endpoint's addresses: they list and use these alone, and packets to other
//! addresses do not belong to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationConfig, ConnectError, Event, ListenerId, Scope, SendInfo, Statistics, TransmitBuffer};
use sctp_wire::chunk::{
    Abort, Chunk, CookieAck, CookieEcho, DataFlags, Heartbeat, HeartbeatAck, ShutdownAck,
};
use sctp_wire::parameter::Parameter;

use lab::packets::{build, each_chunk, has, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};

const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const PORT: u16 = ENDPOINT_PORT + 1;

fn at(addresses: &[IpAddr]) -> AssociationConfig {
    AssociationConfig { local_addresses: addresses.to_vec(), ..AssociationConfig::default() }
}

/// Returns a host with three addresses. No listener has [`PORT`].
fn host() -> Peer {
    let mut peer = Peer::new(1, AssociationConfig::default());
    peer.address = SocketAddr::from(([10, 0, 0, 9], 9899));
    peer.endpoint.set_local_addresses(vec![FIRST, SECOND, THIRD]);
    peer
}

/// Returns the answers to a packet to one of the host's addresses, and their sources.
fn answers(peer: &mut Peer, local: IpAddr, packet: &Bytes) -> Vec<(Option<IpAddr>, Bytes)> {
    let (now, from) = (peer.now, peer.address);
    peer.endpoint.handle_datagram(now, from, Some(local), packet, &mut peer.app);
    sends(peer)
}

fn sends(peer: &mut Peer) -> Vec<(Option<IpAddr>, Bytes)> {
    let (mut sent, mut buffer) = (Vec::new(), TransmitBuffer::new());
    while let Some(transmit) = peer.endpoint.poll_transmit(peer.now, Scope::All, &mut buffer) {
        sent.push((transmit.local, Bytes::from(buffer.to_vec())));
    }
    sent
}

fn init(peer: &Peer) -> Bytes {
    build(PEER_PORT, PORT, 0, |out| peer.init().write(out))
}

/// Returns the tag, cookie and addresses of an INIT ACK.
fn init_ack(packet: &Bytes) -> (u32, Vec<u8>, Vec<IpAddr>) {
    let (mut tag, mut cookie, mut listed) = (0, Vec::new(), Vec::new());
    each_chunk(packet, |chunk| {
        let Chunk::InitAck(ack) = chunk else { panic!("{chunk}") };
        tag = ack.initiate_tag.0;
        cookie = ack.parameters().flatten().find_map(state_cookie).expect("a cookie");
        listed = ack.parameters().flatten().filter_map(address).collect();
    });
    (tag, cookie, listed)
}

fn state_cookie(parameter: Parameter<'_>) -> Option<Vec<u8>> {
    match parameter {
        Parameter::StateCookie(p) => Some(p.cookie.to_vec()),
        _ => None,
    }
}

fn address(parameter: Parameter<'_>) -> Option<IpAddr> {
    match parameter {
        Parameter::Ipv4(p) => Some(p.address.into()),
        Parameter::Ipv6(p) => Some(p.address.into()),
        _ => None,
    }
}

/// The peer connects to an address. Returns its tag at the host, the listed addresses, and the listener that got it.
fn connects(peer: &mut Peer, local: IpAddr) -> (u32, Vec<IpAddr>, ListenerId) {
    let init = init(peer);
    let answer = answers(peer, local, &init);
    assert_eq!(answer[0].0, Some(local));
    let (tag, cookie, listed) = init_ack(&answer[0].1);
    let echo = build(PEER_PORT, PORT, tag, |out| CookieEcho { cookie: &cookie }.write(out));
    assert!(!has(&answers(peer, local, &echo)[0].1, Abort::KIND));
    let accepted = peer.app.events.iter().rev().find_map(|event| match event.event {
        Event::Accepted { listener, .. } => Some((event.id, listener)),
        _ => None,
    });
    let (id, listener) = accepted.expect("it was accepted");
    peer.id = id;
    (tag, listed, listener)
}

fn statistics(peer: &Peer) -> Statistics {
    peer.endpoint.statistics(peer.id).unwrap()
}

#[test]
fn a_listener_lists_its_addresses_and_no_others() {
    let mut peer = host();
    let listener = peer.endpoint.listen(PORT, at(&[THIRD, FIRST])).unwrap();
    let (_, listed, accepted) = connects(&mut peer, FIRST);
    assert_eq!((listed, accepted), (vec![THIRD, FIRST], listener));
    assert_eq!(peer.endpoint.local_addresses(peer.id), Some(vec![THIRD, FIRST]));
}

#[test]
fn a_listener_is_not_found_where_it_does_not_listen() {
    let mut peer = host();
    peer.endpoint.listen(PORT, at(&[FIRST])).unwrap();
    let init = init(&peer);
    let answer = answers(&mut peer, SECOND, &init);
    assert!(has(&answer[0].1, Abort::KIND), "{answer:?}");
    assert_eq!(answer[0].0, Some(SECOND));
}

#[test]
fn listeners_at_different_addresses_share_a_port() {
    let mut peer = host();
    let first = peer.endpoint.listen(PORT, at(&[FIRST])).unwrap();
    let others = peer.endpoint.listen(PORT, at(&[SECOND, THIRD])).unwrap();
    for taken in [at(&[FIRST]), at(&[THIRD]), at(&[]), at(&[Ipv4Addr::UNSPECIFIED.into()])] {
        assert_eq!(peer.endpoint.listen(PORT, taken), None);
    }
    assert_eq!(connects(&mut peer, THIRD).2, others);
    assert_eq!(connects(&mut peer, FIRST).2, first);
    assert_eq!(peer.endpoint.association_count(), 2, "one peer, and one port of it");
    peer.endpoint.unlisten(first);
    assert_eq!(peer.endpoint.free_port(&[], 0).map(|port| port == PORT), Some(false));
    assert!(peer.endpoint.listen(PORT, at(&[FIRST])).is_some());
}

#[test]
fn a_listener_moves_to_other_addresses() {
    let mut peer = host();
    let listener = peer.endpoint.listen(PORT, at(&[FIRST])).unwrap();
    peer.endpoint.listen(PORT, at(&[THIRD])).unwrap();
    assert!(!peer.endpoint.set_listener_config(listener, at(&[FIRST, THIRD])));
    assert!(peer.endpoint.set_listener_config(listener, at(&[FIRST, SECOND])));
    assert_eq!(connects(&mut peer, SECOND).2, listener);
}

#[test]
fn packets_to_an_address_of_others_are_out_of_the_blue() {
    let mut peer = host();
    peer.endpoint.listen(PORT, at(&[FIRST, SECOND])).unwrap();
    let (tag, ..) = connects(&mut peer, FIRST);
    let first = peer.init().initial_tsn.0;
    let data = |tsn: u32| {
        build(PEER_PORT, PORT, tag, |out| {
            write_data(DataFlags::WHOLE, tsn, 0, 0, b"x", out);
        })
    };
    let answer = answers(&mut peer, THIRD, &data(first));
    assert!(has(&answer[0].1, Abort::KIND), "{answer:?}");
    assert_eq!(statistics(&peer).data_chunks_received, 0);
    answers(&mut peer, SECOND, &data(first));
    assert_eq!(statistics(&peer).data_chunks_received, 1);
}

/// A network may take packets from one of our addresses on one line alone, so packets leave from the address where the peer's
/// arrive, and a probe of another one changes nothing.
#[test]
fn the_source_address_stays_while_packets_come_to_it() {
    let mut peer = host();
    peer.endpoint.listen(PORT, at(&[FIRST, SECOND])).unwrap();
    let (tag, ..) = connects(&mut peer, FIRST);
    let mut tsn = peer.init().initial_tsn.0;
    let mut sources = |peer: &mut Peer, local, is_probe| -> Vec<IpAddr> {
        let packet = build(PEER_PORT, PORT, tag, |out| match is_probe {
            true => Heartbeat { info: b"probe" }.write(out),
            false => write_data(DataFlags::WHOLE, tsn, 0, 0, b"x", out),
        });
        tsn += u32::from(!is_probe);
        let answers = answers(peer, local, &packet);
        answers.iter().map(|(source, _)| source.expect("a host with several addresses names one")).collect()
    };
    peer.now = peer.now + Duration::from_secs(20);
    assert_eq!(sources(&mut peer, SECOND, true), [SECOND], "the answer to a probe takes its way back");
    assert_eq!(
        sources(&mut peer, FIRST, false),
        [FIRST],
        "the first packet is acknowledged at once (RFC 9260 §6.2)"
    );
    assert_eq!(sources(&mut peer, SECOND, false), [FIRST], "a peer that uses both addresses");
    peer.now = peer.now + Duration::from_secs(1);
    assert_eq!(sources(&mut peer, SECOND, false), [SECOND], "a peer that has given the first address up");
}

#[test]
fn probes_of_another_address_and_their_answers_do_not_move_the_data_of_a_working_path() {
    let mut peer = host();
    peer.endpoint.listen(PORT, at(&[FIRST, SECOND])).unwrap();
    let (tag, ..) = connects(&mut peer, FIRST);
    let probe = build(PEER_PORT, PORT, tag, |out| Heartbeat { info: b"probe" }.write(out));
    let answer = build(PEER_PORT, PORT, tag, |out| HeartbeatAck { info: b"answer" }.write(out));
    let other = build(PEER_PORT, PORT, tag, |out| {
        write_data(DataFlags::WHOLE, peer.init().initial_tsn.0, 0, 0, b"x", out)
    });
    for (packet, source) in [(&probe, FIRST), (&answer, FIRST), (&other, SECOND)] {
        // Long after the last packet to the first address.
        peer.now = peer.now + Duration::from_secs(1);
        answers(&mut peer, SECOND, packet);
        peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 1, [Bytes::from_static(b"x")]).unwrap();
        let sources: Vec<_> = sends(&mut peer).into_iter().map(|(source, _)| source).collect();
        assert_eq!(sources, [Some(source)]);
    }
}

#[test]
fn an_association_of_one_address_leaves_that_of_another_in_peace() {
    let mut peer = host();
    peer.endpoint.listen(PORT, at(&[FIRST])).unwrap();
    peer.endpoint.listen(PORT, at(&[SECOND])).unwrap();
    let (tag, ..) = connects(&mut peer, FIRST);
    // An INIT of the same peer to the other listener begins another association, and an ABORT ends only that one.
    let (other, ..) = connects(&mut peer, SECOND);
    assert_ne!(tag, other);
    let peer_tag = peer.tag;
    let abort = build(PEER_PORT, PORT, peer_tag, |out| {
        Abort { reflected_tag: true, causes: Default::default() }.write(out)
    });
    answers(&mut peer, SECOND, &abort);
    assert_eq!(peer.endpoint.association_count(), 1);
    let ack = build(PEER_PORT, PORT, tag, |out| ShutdownAck.write(out));
    answers(&mut peer, FIRST, &ack);
    assert_eq!(peer.endpoint.local_addresses(sctp::AssociationId::FIRST), Some(vec![FIRST]));
}

/// A peer without one of our tags is found by the pair of addresses: its ABORT with the T bit ends one association.
#[test]
fn each_of_many_associations_of_one_peer_is_found_at_its_own_addresses() {
    let mut peer = host();
    let pair = |n: u8| [IpAddr::from([10, 0, 1, n]), IpAddr::from([10, 0, 2, n])];
    let ids = [1, 2, 3, 4, 5, 6, 7, 8].map(|n| {
        peer.endpoint.listen(PORT, at(&pair(n))).unwrap();
        connects(&mut peer, pair(n)[usize::from(n % 2)]);
        peer.id
    });
    let taken = |peer: &mut Peer, n| {
        let (to, config) = ([peer.address], Arc::new(at(&pair(n)[1..])));
        let connected = peer.endpoint.connect(peer.now, PORT, PEER_PORT, &to, config, &peer.app);
        connected.err() == Some(ConnectError::Exists)
    };
    let abort = build(PEER_PORT, PORT, peer.tag, |out| {
        Abort { reflected_tag: true, causes: Default::default() }.write(out)
    });
    for (n, id) in [5, 1, 8, 3, 2, 7, 4, 6].map(|n: u8| (n, ids[usize::from(n) - 1])) {
        assert!(taken(&mut peer, n));
        let before = peer.endpoint.association_count();
        answers(&mut peer, pair(n)[1], &abort);
        assert_eq!(peer.endpoint.association_count(), before - 1);
        assert!(peer.endpoint.associations().all(|(other, _)| other != id));
    }
    assert!(!taken(&mut peer, 5), "its addresses are free again");
}

#[test]
fn a_cookie_is_no_duplicate_at_an_address_that_its_association_does_not_use() {
    let mut peer = host();
    peer.endpoint.listen(PORT, at(&[FIRST])).unwrap();
    peer.endpoint.listen(PORT, at(&[SECOND])).unwrap();
    let init = init(&peer);
    let (tag, cookie, _) = init_ack(&answers(&mut peer, FIRST, &init)[0].1);
    let echo = build(PEER_PORT, PORT, tag, |out| CookieEcho { cookie: &cookie }.write(out));
    assert!(has(&answers(&mut peer, FIRST, &echo)[0].1, CookieAck::KIND));
    assert_eq!(answers(&mut peer, SECOND, &echo), []);
    assert_eq!(peer.endpoint.association_count(), 1);
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
    assert!(has(&answers(&mut peer, FIRST, &echo)[0].1, CookieAck::KIND));
}

#[test]
fn a_client_lists_its_addresses_and_sends_from_them() {
    let mut peer = host();
    let config = Arc::new(at(&[SECOND, THIRD]));
    let (now, to) = (peer.now, peer.address);
    let id = peer.endpoint.connect(now, PORT, PEER_PORT, &[to], Arc::clone(&config), &peer.app).unwrap();
    let sent = sends(&mut peer);
    let mut listed = Vec::new();
    each_chunk(&sent[0].1, |chunk| {
        let Chunk::Init(init) = chunk else { panic!("{chunk}") };
        listed = init.parameters().flatten().filter_map(address).collect();
    });
    assert_eq!((sent[0].0, listed), (Some(SECOND), vec![SECOND, THIRD]));
    assert_eq!(peer.endpoint.local_addresses(id), Some(vec![SECOND, THIRD]));
    // Equal ports from another address are another association; from one of these addresses they are not.
    let again = |peer: &mut Peer, local: &[IpAddr]| {
        peer.endpoint.connect(now, PORT, PEER_PORT, &[to], Arc::new(at(local)), &peer.app)
    };
    assert_eq!(again(&mut peer, &[THIRD]), Err(ConnectError::Exists));
    assert!(again(&mut peer, &[FIRST]).is_ok());
}

#[test]
fn no_address_of_ours_reaches_the_other_family() {
    let mut peer = host();
    let remote = "[fd00::9]:9899".parse().unwrap();
    let refused =
        peer.endpoint.connect(peer.now, PORT, PEER_PORT, &[remote], Arc::new(at(&[FIRST])), &peer.app);
    assert_eq!(refused, Err(ConnectError::NoSource));
}

/// The peer connects to an address through this UDP port.
fn connects_through(peer: &mut Peer, udp_port: u16, local: IpAddr) {
    peer.address.set_port(udp_port);
    connects(peer, local);
}

/// Another user may listen at another address with the same port, and at the peer's port.
#[test]
fn a_peer_of_a_listener_at_other_addresses_looks_like_no_other_one() {
    for is_own_endpoint in [true, false] {
        let mut peer = host();
        let distinct = AssociationConfig { distinct_peers: true, ..at(&[SECOND]) };
        for (port, config) in [(PORT, at(&[FIRST])), (PORT, distinct), (PEER_PORT, at(&[THIRD]))] {
            peer.endpoint.listen(port, config).unwrap();
        }
        connects_through(&mut peer, 9899, FIRST);
        peer.app.is_own_endpoint = is_own_endpoint;
        connects_through(&mut peer, 40_000, SECOND);
        assert_eq!(peer.endpoint.association_count(), 2);
        peer.app.is_own_endpoint = false;
        peer.address.set_port(40_001);
        let init = init(&peer);
        assert!(has(&answers(&mut peer, SECOND, &init)[0].1, Abort::KIND), "one of the listener does");
    }
}

#[test]
fn an_owner_of_its_port_takes_the_place_of_one_behind_many_at_other_addresses() {
    const OTHERS: u16 = 150;
    let mut peer = host();
    let distinct = AssociationConfig { distinct_peers: true, ..at(&[SECOND]) };
    for config in [at(&[FIRST]), distinct] {
        peer.endpoint.listen(PORT, config).unwrap();
    }
    connects_through(&mut peer, 50_000, SECOND);
    (0..OTHERS).for_each(|n| connects_through(&mut peer, 40_000 + n, FIRST));
    // Nobody knows whether one of so many is at the listener's address.
    peer.address.set_port(60_000);
    let init = init(&peer);
    assert!(has(&answers(&mut peer, SECOND, &init)[0].1, Abort::KIND));
    peer.app.is_own_endpoint = true;
    connects_through(&mut peer, 9899, SECOND);
    let mut steps = 0;
    while peer.endpoint.poll_timeout().is_some_and(|at| at <= peer.now) {
        assert_eq!(peer.endpoint.association_count(), usize::from(OTHERS) + 2, "in step {steps}");
        peer.endpoint.handle_timeout(peer.now, &mut peer.app);
        steps += 1;
    }
    assert_eq!((peer.endpoint.association_count(), steps), (usize::from(OTHERS) + 1, 2));
}

/// Another user may listen at the same address and port once that socket is closed, and at the peer's port.
#[test]
fn what_a_closed_socket_has_left_stays_beside_an_owner_of_the_peers_port() {
    let mut peer = host();
    let first = peer.endpoint.listen(PORT, at(&[FIRST])).unwrap();
    connects_through(&mut peer, 40_000, FIRST);
    peer.endpoint.orphan(peer.now, peer.id, Duration::from_secs(60), Box::new(()), &mut peer.app);
    peer.endpoint.unlisten(first);
    let distinct = AssociationConfig { distinct_peers: true, ..at(&[FIRST]) };
    peer.endpoint.listen(PORT, distinct).unwrap();
    peer.app.is_own_endpoint = true;
    connects_through(&mut peer, 9899, FIRST);
    assert_eq!(peer.endpoint.association_count(), 2);
}
