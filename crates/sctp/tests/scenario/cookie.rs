//! The state cookie on a bad line: lost, duplicated, late, forged, replayed (RFC 9260 §5.1, §5.2).

use std::net::SocketAddr;
use std::time::Duration;

use sctp::{AssociationConfig, BatchLimits, CloseReason, Endpoint, EndpointConfig, Event, SendInfo};
use sctp_wire::cause::{Cause, Causes, StaleCookie};
use sctp_wire::chunk::{Chunk, CookieAck, CookieEcho, DataFlags, Error, Init, InitAck};
use sctp_wire::parameter::{CookiePreservative, Parameter, Parameters};

use lab::packets::{build, each_chunk, has, kinds, resealed, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, B, Fate, PORT_A, PORT_B, TwoHosts};

const SOON: Duration = Duration::from_secs(10);

/// Drops the first packet that has a chunk of `kind`.
fn drop_first(kind: u8) -> impl FnMut(&bytes::Bytes) -> Fate + Send + 'static {
    let mut dropped = false;
    move |packet| {
        if !dropped && has(packet, kind) {
            dropped = true;
            return Fate::Drop;
        }
        Fate::Pass
    }
}

/// Returns whether a message passes both ways.
fn talks(hosts: &mut TwoHosts) {
    let (a, b) = (hosts.app(A).events[0].id, hosts.accepted(B));
    hosts.send(A, a, SendInfo::default(), &b"question"[..]);
    hosts.send(B, b, SendInfo::default(), &b"answer"[..]);
    hosts.run_until("both heard", SOON, |hosts| {
        !hosts.node(A).app.messages.is_empty() && !hosts.node(B).app.messages.is_empty()
    });
}

#[test]
fn a_lost_cookie_echo_is_sent_again() {
    let mut hosts = TwoHosts::new(1);
    hosts.tap(A, drop_first(CookieEcho::KIND));
    hosts.establish();
    talks(&mut hosts);
}

#[test]
fn a_lost_cookie_ack_is_asked_for_again() {
    let mut hosts = TwoHosts::new(2);
    hosts.tap(B, drop_first(CookieAck::KIND));
    hosts.establish();
    // B has answered the same cookie twice and has one association.
    assert_eq!(hosts.sent.iter().filter(|s| has(&s.packet, CookieAck::KIND)).count(), 2);
    assert_eq!(hosts.node(B).endpoint.association_count(), 1);
    talks(&mut hosts);
}

#[test]
fn a_lost_init_ack_is_asked_for_again() {
    let mut hosts = TwoHosts::new(3);
    hosts.tap(B, drop_first(InitAck::KIND));
    hosts.establish();
    talks(&mut hosts);
}

#[test]
fn a_doubled_cookie_echo_makes_one_association() {
    let mut hosts = TwoHosts::new(4);
    hosts.tap(A, |packet| if has(packet, CookieEcho::KIND) { Fate::Twice } else { Fate::Pass });
    hosts.establish();
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.node(B).endpoint.association_count(), 1);
    assert_eq!(hosts.app(B).events.len(), 1);
    talks(&mut hosts);
}

#[test]
fn an_init_ack_that_comes_twice_changes_nothing() {
    let mut hosts = TwoHosts::new(5);
    hosts.tap(B, |packet| if has(packet, InitAck::KIND) { Fate::Twice } else { Fate::Pass });
    hosts.establish();
    talks(&mut hosts);
}

#[test]
fn a_stale_cookie_is_asked_for_again_with_a_longer_life() {
    // RFC 9260 §5.2.6, 3.
    let mut hosts = TwoHosts::new(6);
    hosts.listen(AssociationConfig {
        cookie_life: Duration::from_millis(500),
        ..AssociationConfig::default()
    });
    hosts.tap(A, |packet| {
        if has(packet, CookieEcho::KIND) { Fate::Delay(Duration::from_millis(700)) } else { Fate::Pass }
    });
    let a = hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.run_until("A is up", SOON, |hosts| hosts.is_up(A));
    assert_eq!(hosts.node(B).endpoint.endpoint_statistics().cookie_errors, 1);
    let increments: Vec<Option<u32>> =
        hosts.sent.iter().filter(|s| has(&s.packet, Init::KIND)).map(|s| increment_ms(&s.packet)).collect();
    // The exchange took 720 ms.
    assert_eq!(increments, [None, Some(1720)]);
    hosts.untap(A);
    hosts.send(A, a, SendInfo::default(), &b"after all"[..]);
    hosts.run_until("B heard", SOON, |hosts| !hosts.node(B).app.messages.is_empty());
}

/// Returns the lifetime increment that an INIT asks for its cookie.
fn increment_ms(packet: &[u8]) -> Option<u32> {
    let mut found = None;
    each_chunk(packet, |chunk| {
        if let Chunk::Init(init) = chunk {
            found = init.parameters().flatten().find_map(|p| match p {
                Parameter::CookiePreservative(p) => Some(p.increment_ms),
                _ => None,
            });
        }
    });
    found
}

#[test]
fn a_peer_that_finds_every_cookie_stale_is_given_up() {
    let config = AssociationConfig { init_retries_max: 3, ..AssociationConfig::default() };
    let mut peer = Peer::connecting(13, config);
    for _ in 0..4 {
        assert!(!peer.app.saw(|e| matches!(e, Event::Closed(_))));
        peer.takes_init();
        peer.sends().init_ack(b"cookie").go();
        peer.expects("COOKIE ECHO");
        peer.sends().chunk(|_, out| stale_cookie(out)).go();
    }
    peer.expects_nothing();
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::NoAnswer)));
}

#[test]
fn a_report_of_a_stale_cookie_means_nothing_once_the_association_is_up() {
    let mut peer = Peer::connected(14);
    peer.sends().chunk(|_, out| stale_cookie(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().chunks_discarded, 1);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

fn stale_cookie(out: &mut Vec<u8>) {
    let mut causes = Vec::new();
    Cause::StaleCookie(StaleCookie { staleness_us: 1 }).write(&mut causes);
    Error { causes: Causes::new(&causes) }.write(out);
}

#[test]
fn a_wish_for_a_longer_life_is_granted_within_limits() {
    // RFC 9260 §3.3.2.1.3. The lifetime is 60 s, and no request adds more than 10 s.
    for (wish_ms, late_ms, good) in
        [(0, 60_001, false), (5000, 64_999, true), (5000, 65_001, false), (3_600_000, 70_001, false)]
    {
        let mut peer = Peer::new(15, AssociationConfig::default());
        let mut parameters = Vec::new();
        CookiePreservative { increment_ms: wish_ms }.write(&mut parameters);
        peer.sends()
            .tag(0)
            .chunk(|p, out| {
                let mut init = p.init();
                init.parameters = Parameters::new(&parameters);
                init.write(out);
            })
            .go();
        let cookie = peer.takes_init_ack();
        peer.waits(Duration::from_millis(late_ms));
        peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
        peer.expects(if good { "COOKIE ACK" } else { "ERROR" });
    }
}

#[test]
fn a_cookie_sealed_just_before_the_keys_change_opens_just_after() {
    let mut peer = Peer::new(16, AssociationConfig::default());
    // Keys change every ten minutes; the clock of the script began at one second.
    peer.waits(Duration::from_secs(598));
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.waits(Duration::from_secs(2));
    // Another INIT makes the endpoint use the new key.
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let _ = peer.hears();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
}

#[test]
fn an_old_cookie_of_an_association_that_is_up_is_acknowledged() {
    // RFC 9260 §5.2.4, 3: if both tags match, age does not matter.
    let mut hosts = TwoHosts::new(7);
    let config =
        AssociationConfig { cookie_life: Duration::from_millis(1500), ..AssociationConfig::default() };
    let mut acks_dropped = 0;
    hosts.tap(B, move |packet| {
        if has(packet, CookieAck::KIND) && acks_dropped < 2 {
            acks_dropped += 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    hosts.establish_with(AssociationConfig::default(), config);
    talks(&mut hosts);
}

#[test]
fn an_old_cookie_with_the_peers_tag_alone_is_reported_as_stale() {
    let life = Duration::from_millis(100);
    let mut peer = Peer::new(19, AssociationConfig { cookie_life: life, ..AssociationConfig::default() });
    // Each INIT ACK has a tag of its own; the association has the second.
    let mut asks = || {
        peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
        (peer.takes_init_ack(), peer.endpoint_tag)
    };
    let ((first, first_tag), (second, _)) = (asks(), asks());
    peer.sends().chunk(|_, out| CookieEcho { cookie: &second }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.waits(life * 2);
    peer.sends().tag(first_tag).chunk(|_, out| CookieEcho { cookie: &first }.write(out)).go();
    assert_eq!(kinds(&peer.hears()), [Error::KIND]);
}

#[test]
fn a_forged_cookie_makes_nothing() {
    let mut hosts = TwoHosts::new(8);
    hosts.listen(AssociationConfig::default());
    hosts.tap(A, |packet| {
        if !has(packet, CookieEcho::KIND) {
            return Fate::Pass;
        }
        let mut bytes = packet.to_vec();
        bytes[60] ^= 1;
        Fate::Replace(resealed(bytes))
    });
    hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.run_for(Duration::from_secs(5));
    assert_eq!(hosts.node(B).endpoint.association_count(), 0);
    assert!(hosts.node(B).endpoint.endpoint_statistics().cookie_errors > 1);
    assert!(hosts.sent.iter().all(|s| s.by == A || kinds(&s.packet) == [InitAck::KIND]), "{}", hosts.log());
}

#[test]
fn a_cookie_is_good_only_for_the_address_that_asked_for_it() {
    let mut peer = Peer::new(9, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    let honest = peer.address;
    peer.address = SocketAddr::from(([192, 0, 2, 1], 9899));
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
    peer.address = honest;
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
}

#[test]
fn a_cookie_is_good_only_for_the_sctp_port_that_asked_for_it() {
    let mut peer = Peer::new(15, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    let echo_from = |peer: &mut Peer, port| {
        let packet = build(port, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            CookieEcho { cookie: &cookie }.write(out);
        });
        peer.sends_raw(peer.address, &packet);
    };
    echo_from(&mut peer, PEER_PORT + 1);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
    echo_from(&mut peer, PEER_PORT);
    peer.expects("COOKIE ACK");
}

#[test]
fn a_cookie_is_good_only_with_its_tag_and_at_the_port_that_was_asked() {
    let mut peer = Peer::new(17, AssociationConfig::default());
    peer.endpoint.listen(ENDPOINT_PORT + 1, AssociationConfig::default()).unwrap();
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    let tag = peer.endpoint_tag;
    let echo_to = |peer: &mut Peer, port, tag| {
        let packet = build(PEER_PORT, port, tag, |out| CookieEcho { cookie: &cookie }.write(out));
        peer.sends_raw(peer.address, &packet);
    };
    for (port, tag) in [(ENDPOINT_PORT, tag ^ 1), (ENDPOINT_PORT + 1, tag)] {
        echo_to(&mut peer, port, tag);
        peer.expects_nothing();
        assert_eq!(peer.endpoint.association_count(), 0);
    }
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 2);
    echo_to(&mut peer, ENDPOINT_PORT, tag);
    peer.expects("COOKIE ACK");
}

#[test]
fn of_two_peers_that_were_given_the_same_tag_only_the_first_is_accepted() {
    let mut peer = Peer::new(16, AssociationConfig::default());
    // One bit of the tag is random, so that the endpoint draws the same tag for several peers.
    let config = EndpointConfig { shard_bits: 31, shard: 1, ..EndpointConfig::default() };
    peer.endpoint = Endpoint::new(config, [16; 32], BatchLimits { segments_max: 1, bytes_max: 1500 });
    peer.endpoint.listen(ENDPOINT_PORT, AssociationConfig::default()).unwrap();
    let mut asked = Vec::new();
    for port in 1..=3 {
        let packet = build(port, ENDPOINT_PORT, 0, |out| peer.init().write(out));
        peer.sends_raw(peer.address, &packet);
        let cookie = peer.takes_init_ack();
        asked.push((port, peer.endpoint_tag, cookie));
    }
    let echo = |peer: &mut Peer, (port, tag, cookie): &(u16, u32, Vec<u8>)| {
        let packet = build(*port, ENDPOINT_PORT, *tag, |out| CookieEcho { cookie }.write(out));
        peer.sends_raw(peer.address, &packet);
    };
    let same = |a: &&(u16, u32, Vec<u8>), b: &&(u16, u32, Vec<u8>)| a.0 != b.0 && a.1 == b.1;
    let first = asked.iter().find(|a| asked.iter().any(|b| same(a, &b))).unwrap();
    let second = asked.iter().find(|b| same(&first, b)).unwrap();
    echo(&mut peer, first);
    peer.expects("COOKIE ACK");
    echo(&mut peer, second);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
    // The first still has the tag.
    let data = build(first.0, ENDPOINT_PORT, first.1, |out| {
        write_data(DataFlags::WHOLE, peer.init().initial_tsn.0, 0, 0, b"mine", out);
    });
    peer.sends_raw(peer.address, &data);
    assert_eq!(peer.app.contents(), [b"mine"]);
}

#[test]
fn a_cookie_echoed_from_another_udp_port_makes_no_second_association() {
    let mut peer = Peer::new(10, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    // A NAT on the way has forgotten the first port (RFC 6951 §5.4).
    peer.address.set_port(40_000);
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.id = peer.app.events[0].id;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn data_may_come_with_the_cookie() {
    let mut peer = Peer::new(11, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
    assert_eq!(peer.app.contents(), [[0]]);
}

#[test]
fn data_may_come_with_a_cookie_that_comes_again() {
    let mut peer = Peer::new(12, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 0);
}

#[test]
fn a_listener_that_refuses_beyond_its_backlog_does_so_only_while_that_is_full() {
    let config = AssociationConfig { refuse_beyond_backlog: true, ..AssociationConfig::default() };
    let mut peer = Peer::new(20, config);
    peer.app.takes_associations = false;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    peer.expects("ABORT");
    peer.app.takes_associations = true;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    let echo = |peer: &mut Peer| peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.app.takes_associations = false;
    echo(&mut peer);
    peer.expects("ABORT");
    assert_eq!(peer.endpoint.endpoint_statistics().accepts_put_off, 0);
    peer.app.takes_associations = true;
    echo(&mut peer);
    peer.expects("COOKIE ACK");
}

#[test]
fn a_listener_that_does_not_refuse_puts_the_last_step_off_until_its_backlog_has_room() {
    let mut peer = Peer::new(21, AssociationConfig::default());
    peer.app.takes_associations = false;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    let echo = |peer: &mut Peer| peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    echo(&mut peer);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.endpoint_statistics().accepts_put_off, 1);
    peer.app.takes_associations = true;
    echo(&mut peer);
    peer.expects("COOKIE ACK");
}

#[test]
fn an_init_ack_without_a_cookie_is_refused() {
    let mut peer = Peer::connecting(12, AssociationConfig::default());
    peer.takes_init();
    let init = peer.init();
    peer.sends()
        .chunk(|_, out| {
            InitAck {
                initiate_tag: init.initiate_tag,
                a_rwnd: init.a_rwnd,
                outbound_streams: 1,
                inbound_streams: 1,
                initial_tsn: init.initial_tsn,
                parameters: init.parameters(),
            }
            .write(out);
        })
        .go();
    peer.expects("ABORT");
    assert!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::ProtocolViolation { .. }))));
    assert_eq!(peer.endpoint.association_count(), 0);
}
