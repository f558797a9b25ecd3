//! Both sides connect to each other at once: the result is one association (RFC 9260 §5.2.1, §5.2.4 B and D).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use sctp::{AssociationConfig, CloseReason, Event, SendInfo};
use sctp_wire::chunk::{CookieAck, CookieEcho, Error, Init};
use sctp_wire::parameter::{Ipv4, Parameters};

use lab::packets::{header, kinds};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, App, B, Fate, PORT_A, PORT_B, Simulation, TwoHosts, line};

const SOON: Duration = Duration::from_secs(30);

fn connected(hosts: &TwoHosts, node: usize) -> bool {
    hosts.node(node).app.saw(|e| matches!(e, Event::Connected { .. }))
}

fn talk(hosts: &mut TwoHosts) {
    assert_eq!([A, B].map(|n| hosts.node(n).endpoint.association_count()), [1, 1], "{}", hosts.log());
    for (node, text) in [(A, "from A"), (B, "from B")] {
        let id = hosts.app(node).events.last().unwrap().id;
        hosts.send(node, id, SendInfo::default(), text);
    }
    hosts
        .run_until("both heard", SOON, |hosts| [A, B].iter().all(|&n| hosts.node(n).app.messages.len() == 1));
    assert_eq!(hosts.app(A).contents(), [b"from B"]);
    let id = hosts.app(A).events.last().unwrap().id;
    hosts.shutdown(A, id);
    hosts.run_until("both are closed", SOON, |hosts| {
        [A, B].iter().all(|&n| hosts.closed(n) == Some(CloseReason::Shutdown))
    });
}

#[test]
fn two_inits_that_cross_make_one_association() {
    let mut hosts = TwoHosts::new(1);
    hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.connect(B, (PORT_B, PORT_A), AssociationConfig::default());
    hosts.run_until("both are up", SOON, |hosts| connected(hosts, A) && connected(hosts, B));
    hosts.run_for(SOON);
    talk(&mut hosts);
}

#[test]
fn they_may_cross_at_any_distance() {
    for delay_us in (0..60_000).step_by(2_500) {
        let mut hosts = TwoHosts::new(delay_us);
        hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
        hosts.run_for(Duration::from_micros(delay_us));
        // Once A's INIT was refused, no collision is possible.
        if hosts.closed(A).is_some() || delay_us > 10_000 {
            break;
        }
        hosts.connect(B, (PORT_B, PORT_A), AssociationConfig::default());
        hosts.run_until("both are up", SOON, |hosts| connected(hosts, A) && connected(hosts, B));
        hosts.run_for(SOON);
        talk(&mut hosts);
    }
}

#[test]
fn they_may_cross_with_a_listener_on_either_side() {
    for delay_us in (0..45_000).step_by(1_500) {
        let mut hosts = TwoHosts::new(1000 + delay_us);
        hosts.listen(AssociationConfig::default());
        hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
        hosts.run_for(Duration::from_micros(delay_us));
        let remote = hosts.node(A).address;
        let now = hosts.now();
        let node = hosts.node_mut(B);
        let config = AssociationConfig::default().into();
        // B has taken A's association if the cookie arrived first.
        let own = node.endpoint.connect(now, PORT_B, PORT_A, &[remote], config, &node.app);
        assert_eq!(own.is_err(), hosts.is_up(B));
        hosts.run_until("both are up", SOON, |hosts| hosts.is_up(A) && hosts.is_up(B));
        hosts.run_for(SOON);
        talk(&mut hosts);
    }
}

#[test]
fn lost_packets_do_not_matter() {
    for lost in 0..12u32 {
        let mut hosts = TwoHosts::new(2000 + u64::from(lost));
        for node in [A, B] {
            let mut number = 0;
            hosts.tap(node, move |_| {
                number += 1;
                // Each combination of the first packets of both sides.
                let mask = if node == A { lost % 4 } else { lost / 4 };
                if number <= 2 && mask >> (number - 1) & 1 == 1 { Fate::Drop } else { Fate::Pass }
            });
        }
        hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
        hosts.connect(B, (PORT_B, PORT_A), AssociationConfig::default());
        hosts.run_until("both are up", SOON, |hosts| connected(hosts, A) && connected(hosts, B));
        hosts.run_for(SOON);
        talk(&mut hosts);
    }
}

/// The peer sends an INIT that lists these addresses.
fn says_init(peer: &mut Peer, addresses: &[Ipv4Addr]) {
    let mut parameters = Vec::new();
    for &address in addresses {
        Ipv4 { address }.write(&mut parameters);
    }
    let parameters = Parameters::new(&parameters);
    peer.sends().tag(0).chunk(|p, out| Init { parameters: parameters.clone(), ..p.init() }.write(out)).go();
}

/// Returns an endpoint that connects and is up, a peer that has sent an INIT with its second tag meanwhile, and the
/// cookie for that.
fn connected_under_the_first_tag(seed: u8) -> (Peer, Vec<u8>) {
    let mut peer = Peer::connecting(seed, AssociationConfig::default());
    peer.takes_init();
    let (own, first) = (peer.endpoint_tag, peer.tag);
    peer.tag = first + 1;
    says_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    assert_eq!(peer.endpoint_tag, own, "the tag of the INIT, unchanged");
    // The answer to the endpoint's INIT has another tag, and arrives first.
    peer.tag = first;
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    assert!(peer.app.saw(|e| matches!(e, Event::Connected { .. })));
    (peer, cookie)
}

#[test]
fn a_second_tag_of_the_peer_replaces_the_first_even_when_the_association_is_up() {
    // RFC 9260 §5.2.4 B.
    let (mut peer, cookie) = connected_under_the_first_tag(1);
    let first = peer.tag;
    peer.tag = first + 1;
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    let answer = peer.hears();
    assert_eq!(header(&answer).verification_tag.0, first + 1);
    peer.sends().data(0).go();
    let answer = peer.hears();
    assert_eq!(header(&answer).verification_tag.0, first + 1);
    assert_eq!((peer.app.contents(), peer.app.events.len()), (vec![vec![0]], 1));
}

#[test]
fn a_second_tag_of_the_peer_is_not_believed_once_data_has_passed_under_the_first() {
    for acknowledged in [true, false] {
        let (mut peer, cookie) = connected_under_the_first_tag(1);
        peer.id = peer.app.events[0].id;
        if acknowledged {
            peer.app_sends(SendInfo::default(), &b"one"[..]);
            peer.expects("DATA 0");
            peer.sends().sack(0, &[]).go();
        } else {
            peer.sends().data(0).go();
            peer.expects("SACK 0");
        }
        peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
        peer.expects_nothing();
        assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
        peer.app_sends(SendInfo::default(), &b"two"[..]);
        assert_eq!(header(&peer.hears()).verification_tag.0, peer.tag);
    }
}

#[test]
fn a_cookie_with_a_second_tag_of_the_peer_is_refused_when_it_is_stale() {
    // RFC 9260 §5.2.4, 3: age does not matter only if both tags match.
    let (mut peer, cookie) = connected_under_the_first_tag(8);
    let first = peer.tag;
    peer.waits(AssociationConfig::default().cookie_life + Duration::from_secs(1));
    while peer.hears_maybe().is_some() {}
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    let answer = peer.hears();
    assert_eq!((kinds(&answer), header(&answer).verification_tag.0), (vec![Error::KIND], first + 1));
    peer.expects_nothing();
    peer.sends().data(0).go();
    assert_eq!(header(&peer.hears()).verification_tag.0, first, "the association keeps the first tag");
}

#[test]
fn an_init_in_cookie_wait_is_answered_at_an_address_that_the_user_named() {
    // RFC 9260 §5.2.1, 1 and 2.
    let (named, other) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(192, 0, 2, 1));
    let mut peer = Peer::connecting(2, AssociationConfig::default());
    peer.takes_init();
    let own = peer.endpoint_tag;
    peer.address.set_ip(IpAddr::V4(other));
    says_init(&mut peer, &[named, other]);
    let (to, _) = peer.hears_on();
    assert_eq!(to.ip(), named);
    // An INIT that names no such address belongs to no association.
    says_init(&mut peer, &[other]);
    peer.expects("INIT ACK");
    assert_ne!(peer.endpoint.association_count(), 0);
    peer.address.set_ip(IpAddr::V4(named));
    says_init(&mut peer, &[named, other]);
    peer.takes_init_ack();
    assert_eq!(peer.endpoint_tag, own);
}

#[test]
fn an_init_in_cookie_echoed_must_not_add_addresses() {
    // RFC 9260 §5.2.1.
    let mut peer = Peer::connecting(3, AssociationConfig::default());
    peer.takes_init();
    let own = peer.endpoint_tag;
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    says_init(&mut peer, &[Ipv4Addr::new(192, 0, 2, 1)]);
    peer.expects("ABORT");
    says_init(&mut peer, &[Ipv4Addr::new(10, 0, 0, 9)]);
    let cookie = peer.takes_init_ack();
    assert_eq!(peer.endpoint_tag, own, "the tag of the INIT, unchanged");
    // That cookie ends the handshake (§5.2.4 D).
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    assert!(peer.app.saw(|e| matches!(e, Event::Connected { .. })));
}

#[test]
fn a_cookie_from_another_address_of_the_peer_makes_no_second_association() {
    // The endpoint has begun to connect since it answered the peer's INIT. The cookie has neither tag of that
    // association, a combination that RFC 9260 §5.2.4 discards, whatever its source.
    let second = Ipv4Addr::new(10, 0, 1, 9);
    let mut peer = Peer::new(7, AssociationConfig::default());
    says_init(&mut peer, &[Ipv4Addr::new(10, 0, 0, 9), second]);
    let cookie = peer.takes_init_ack();
    let config = Arc::new(AssociationConfig::default());
    let own = peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, &[peer.address], config, &peer.app);
    assert!(own.is_ok());
    peer.collect_output();
    peer.expects("INIT");
    peer.address.set_ip(IpAddr::V4(second));
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
}

#[test]
fn setup_chunks_mean_nothing_where_they_do_not_belong() {
    // RFC 9260 §5.2.3, §5.2.5.
    let mut peer = Peer::connected(4);
    peer.sends().init_ack(b"another").go();
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().chunks_discarded, 2);
    let mut peer = Peer::connecting(5, AssociationConfig::default());
    peer.takes_init();
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    peer.expects_nothing();
    assert!(peer.app.events.is_empty());
    // Also in COOKIE-ECHOED.
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().init_ack(b"another").go();
    peer.expects_nothing();
}

#[test]
fn a_connect_to_where_an_association_is_fails_at_once() {
    let mut peer = Peer::connected(6);
    let config = Arc::new(AssociationConfig::default());
    let again = peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, &[peer.address], config, &peer.app);
    assert_eq!(again, Err(sctp::ConnectError::Exists));
}

/// Each host has two addresses and tells the other one of them; the other address is in the INIT that it answered.
#[test]
fn two_inits_that_cross_bring_all_addresses() {
    let mut simulation: Simulation<App> = Simulation::new(1);
    let address = |net, host| IpAddr::V4(Ipv4Addr::new(10, net, 0, host));
    for host in [1, 2] {
        simulation.add_host(&[address(0, host), address(1, host)], App::default());
    }
    for (from, to) in [(1, 2), (2, 1)] {
        let pipe = simulation.network.add_pipe(&line());
        for (i, j) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            simulation.route(address(i, from), address(j, to), &[pipe]);
        }
    }
    let a = simulation.connect(A, B, (PORT_A, PORT_B), AssociationConfig::default());
    let b = simulation.connect(B, A, (PORT_B, PORT_A), AssociationConfig::default());
    simulation.run_for(Duration::from_secs(60));
    for (host, id) in [(A, a), (B, b)] {
        let statistics = simulation.statistics(host, id);
        assert_eq!(statistics.paths.iter().filter(|path| path.active).count(), 2, "host {host}");
    }
}
