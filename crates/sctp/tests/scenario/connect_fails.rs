//! Connecting fails: no answer, a refusal by the host, or an ICMP message.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationConfig, CloseReason, ConnectError, Event, SendInfo, Unreachable};
use sctp_wire::cause::InvalidStreamIdentifier;
use sctp_wire::chunk::{Abort, CookieAck, Init, InitAck, Shutdown, ShutdownAck};
use sctp_wire::packet::HEADER_BYTES;

use lab::packets::{build, kinds};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, B, PORT_A, PORT_B, TwoHosts};

#[test]
fn init_is_retried_with_doubled_timeouts_and_then_given_up() {
    let mut hosts = TwoHosts::new(1);
    hosts.cut();
    hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.run_until("A gave up", Duration::from_secs(600), |hosts| hosts.closed(A).is_some());
    assert_eq!(hosts.closed(A), Some(CloseReason::NoAnswer));
    // Max.Init.Retransmits is 8 and RTO.Max 60 s.
    let times: Vec<_> = hosts.sent.iter().map(|s| s.at.as_nanos() / 1_000_000_000).collect();
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    assert!(hosts.sent.iter().all(|s| kinds(&s.packet) == [Init::KIND]));
    assert_eq!(hosts.now().as_nanos() / 1_000_000_000, 243);
    assert_eq!(hosts.node(A).endpoint.association_count(), 0);
}

#[test]
fn a_port_without_a_listener_refuses() {
    let mut hosts = TwoHosts::new(2);
    let id = hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.run_until("A gave up", Duration::from_secs(1), |hosts| hosts.closed(A).is_some());
    assert_eq!(hosts.closed(A), Some(CloseReason::Refused));
    assert_eq!(hosts.app(A).events[0].id, id);
    let answer = &hosts.sent[1].packet;
    assert_eq!(kinds(answer), [Abort::KIND]);
    // RFC 9260 §8.4, 3: the tag of the INIT, not reflected.
    assert_eq!(answer[HEADER_BYTES + 1] & 1, 0);
    assert_eq!(hosts.node(B).endpoint.association_count(), 0);
    assert_eq!(hosts.sent.len(), 2);
}

#[test]
fn an_unreachable_port_fails_the_connect_at_once() {
    for (why, reason) in
        [(Unreachable::Port, CloseReason::Refused), (Unreachable::Host, CloseReason::Unreachable)]
    {
        let mut peer = Peer::connecting(3, AssociationConfig::default());
        let init = peer.hears();
        peer.endpoint.handle_unreachable(peer.now, peer.address, why, &init, &mut peer.app);
        assert!(peer.app.saw(|e| *e == Event::Closed(reason.clone())));
        assert_eq!(peer.endpoint.association_count(), 0);
        peer.collect_output();
        peer.expects_nothing();
    }
}

/// Returns an endpoint that connects to a peer with these known addresses.
fn connecting_to(seed: u8, addresses: &[SocketAddr]) -> Peer {
    let mut peer = Peer::new(seed, AssociationConfig::default());
    let config = AssociationConfig::default().into();
    let id = peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, addresses, config, &peer.app);
    peer.id = id.unwrap();
    peer.collect_output();
    peer
}

#[test]
fn where_one_address_cannot_be_reached_the_next_is_asked_at_once() {
    let addresses = [1, 2, 3].map(|n| SocketAddr::from(([10, 0, n, 9], 9899)));
    let mut peer = connecting_to(11, &addresses);
    let start = peer.now;
    let (to, first) = peer.hears_on();
    assert_eq!(to, addresses[0]);
    peer.endpoint.handle_unreachable(peer.now, to, Unreachable::Host, &first, &mut peer.app);
    peer.collect_output();
    let (to, second) = peer.hears_on();
    assert_eq!((to, kinds(&second)), (addresses[1], vec![Init::KIND]));
    // A report that comes twice changes nothing.
    peer.endpoint.handle_unreachable(peer.now, addresses[0], Unreachable::Host, &first, &mut peer.app);
    peer.collect_output();
    peer.expects_nothing();
    // One of an address that is not asked now saves the attempt there.
    peer.endpoint.handle_unreachable(peer.now, addresses[2], Unreachable::Port, &first, &mut peer.app);
    peer.collect_output();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.peer_addresses(peer.id).unwrap().0, [addresses[1]]);
    assert_eq!(peer.now, start);
    // T1 runs from the last INIT, and takes the only address that is left.
    peer.waits(Duration::from_secs(1));
    assert_eq!(peer.hears_on().0, addresses[1]);
    peer.endpoint.handle_unreachable(peer.now, addresses[1], Unreachable::Port, &second, &mut peer.app);
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Refused)));
}

#[test]
fn an_address_that_is_reached_connects_after_one_that_is_not() {
    let home = Peer::new(12, AssociationConfig::default()).address;
    let mut peer = connecting_to(12, &[SocketAddr::from(([10, 0, 7, 7], 9899)), home]);
    let (to, init) = peer.hears_on();
    peer.endpoint.handle_unreachable(peer.now, to, Unreachable::Host, &init, &mut peer.app);
    peer.collect_output();
    peer.takes_init();
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    assert!(peer.app.saw(|e| matches!(e, Event::Connected { .. })));
}

#[test]
fn a_short_quote_is_enough_if_it_shows_the_tag() {
    let mut peer = Peer::connecting(4, AssociationConfig::default());
    let init = peer.hears();
    // Header, chunk header and initiate tag: what RFC 9260 §10 asks for.
    let quote = init.slice(..HEADER_BYTES + 8);
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Port, &quote, &mut peer.app);
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Refused)));
}

#[test]
fn a_quote_that_is_not_ours_changes_nothing() {
    let mut peer = Peer::connecting(5, AssociationConfig::default());
    let init = peer.hears();
    let mut wrong_tag = init.to_vec();
    wrong_tag[HEADER_BYTES + 4] ^= 1;
    let mut other_chunk = init.to_vec();
    other_chunk[HEADER_BYTES] = InitAck::KIND;
    let quotes = [
        Bytes::from(wrong_tag),
        Bytes::from(other_chunk),
        // Too short to show the initiate tag.
        init.slice(..HEADER_BYTES + 7),
        init.slice(..HEADER_BYTES),
        init.slice(..4),
        Bytes::new(),
        // The quoted tag is unknown.
        build(ENDPOINT_PORT, PEER_PORT, 77, |out| out.extend_from_slice(&[10, 0, 0, 4])),
        // The quoted packet belongs to no connect.
        build(ENDPOINT_PORT, PEER_PORT, 0, |out| out.extend_from_slice(&[10, 0, 0, 4])),
    ];
    for quote in quotes {
        peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Port, &quote, &mut peer.app);
        assert!(peer.app.events.is_empty(), "{quote:?}");
    }
}

#[test]
fn a_returned_cookie_echo_ends_the_connect_if_it_bears_the_tag() {
    let mut peer = Peer::connecting(6, AssociationConfig::default());
    peer.takes_init();
    peer.sends().init_ack(b"a cookie that is a little longer than the quote will be").go();
    let echo = peer.hears();
    let mut wrong = echo.to_vec();
    wrong[4] ^= 1;
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Port, &wrong, &mut peer.app);
    assert!(peer.app.events.is_empty());
    let quote = echo.slice(..HEADER_BYTES + 8);
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Port, &quote, &mut peer.app);
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Refused)));
}

#[test]
fn an_association_that_is_up_outlives_an_unreachable_port() {
    let mut peer = Peer::connected(7);
    peer.app_sends(sctp::SendInfo::default(), &b"hello"[..]);
    let data = peer.hears();
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Port, &data, &mut peer.app);
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.sends().sack(0, &[]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 0);
}

#[test]
fn an_unreachable_port_ends_the_wait_for_a_shutdown_complete() {
    let mut peer = Peer::established(13);
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    let ack = peer.hears();
    assert_eq!(kinds(&ack), [ShutdownAck::KIND]);
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Port, &ack, &mut peer.app);
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Shutdown)));
}

#[test]
fn a_host_that_does_not_speak_the_protocol_ends_even_an_association_that_is_up() {
    // RFC 9260 §10, ICMP8; a wrong tag has no effect (ICMP6).
    let mut peer = Peer::connected(9);
    peer.app_sends(sctp::SendInfo::default(), &b"hello"[..]);
    let data = peer.hears();
    let mut wrong = data.to_vec();
    wrong[7] ^= 1;
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Protocol, &wrong, &mut peer.app);
    // T3 detects an unreachable host (ICMP9).
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Host, &data, &mut peer.app);
    assert_eq!(peer.endpoint.association_count(), 1);
    assert_eq!(peer.endpoint.endpoint_statistics().reports_ignored, 2);
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Protocol, &data, &mut peer.app);
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::NoProtocol)));
    peer.collect_output();
    peer.expects_nothing();

    let mut peer = Peer::connecting(10, AssociationConfig::default());
    let init = peer.hears();
    peer.endpoint.handle_unreachable(peer.now, peer.address, Unreachable::Protocol, &init, &mut peer.app);
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Refused)));
}

#[test]
fn the_same_ports_cannot_be_connected_twice() {
    let mut peer = Peer::connecting(8, AssociationConfig::default());
    let again = peer.endpoint.connect(
        peer.now,
        ENDPOINT_PORT,
        PEER_PORT,
        &[peer.address],
        AssociationConfig::default().into(),
        &peer.app,
    );
    assert_eq!(again, Err(ConnectError::Exists));
    let nowhere = peer.endpoint.connect(peer.now, 1, 1, &[], AssociationConfig::default().into(), &peer.app);
    assert_eq!(nowhere, Err(ConnectError::NoAddress));
}

#[test]
fn messages_for_streams_that_the_peer_does_not_allow_fail_alone() {
    // RFC 9260 §5.1.1.
    let mut hosts = TwoHosts::new(9);
    hosts.listen(AssociationConfig { streams_in_max: 2, ..AssociationConfig::default() });
    let id = hosts.connect(
        A,
        (PORT_A, PORT_B),
        AssociationConfig { events: true, ..AssociationConfig::default() },
    );
    let lifetime = Some(Duration::from_secs(60).into());
    let long = Bytes::from(vec![7; 20_000]);
    for (stream, lifetime, more, message) in [
        (1, None, false, Bytes::from_static(b"one")),
        (9, None, false, Bytes::from_static(b"nine")),
        (0, None, false, Bytes::from_static(b"zero")),
        (9, lifetime, false, Bytes::from_static(b"mortal")),
        (1, lifetime, false, Bytes::from_static(b"mortal one")),
        (2, None, false, long.clone()),
        (1, None, false, long.clone()),
        (3, None, true, Bytes::from_static(b"the first part of a record")),
    ] {
        hosts.send(A, id, SendInfo { stream, lifetime, more, ..SendInfo::default() }, message);
    }
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.closed(A), None);
    let arrived = hosts.node(B).app.messages.iter().map(|message| message.bytes.to_vec());
    assert_eq!(arrived.collect::<Vec<_>>(), [&b"one"[..], b"zero", b"mortal one", &long]);
    let failed = hosts.node(A).app.events.iter().filter_map(|happened| match &happened.event {
        Event::SendFailed(failure) => Some((failure.info.stream, failure.was_sent, failure.cause)),
        _ => None,
    });
    let mut failed: Vec<_> = failed.collect();
    failed.dedup();
    assert_eq!(failed, [9, 2, 3].map(|stream| (stream, false, InvalidStreamIdentifier::KIND)));
    // The record has gone with its stream, so another stream may send.
    hosts.send(A, id, SendInfo { stream: 1, ..SendInfo::default() }, "later");
    hosts.run_for(Duration::from_secs(100));
    assert_eq!(hosts.node(B).app.messages.len(), 5);
}
