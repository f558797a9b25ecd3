//! Limits of the associations of a listener and of a source prefix.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationConfig, BatchLimits, Endpoint, EndpointConfig, Event, Scope, TransmitBuffer};
use sctp_wire::cause::{Cause, NewEncapsulationPort, OutOfResource};
use sctp_wire::chunk::{Abort, Chunk, CookieAck, CookieEcho};
use sctp_wire::parameter::Parameter;

use lab::packets::{build, each_chunk, has, header};
use lab::script::{ENDPOINT_PORT, Peer};

/// Returns a peer whose endpoint has these limits.
fn limited(listener_max: usize, prefix_max: usize) -> Peer {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let config = EndpointConfig { prefix_associations_max: prefix_max, ..EndpointConfig::default() };
    peer.endpoint = Endpoint::new(config, [1; 32], BatchLimits { segments_max: 1, bytes_max: 1500 });
    let config =
        AssociationConfig { listener_associations_max: listener_max, ..AssociationConfig::default() };
    peer.endpoint.listen(ENDPOINT_PORT, config).unwrap();
    peer.app.hints.leaves_host = true;
    peer
}

fn address(last: [u8; 4]) -> SocketAddr {
    SocketAddr::from((last, 9899))
}

/// Sends an INIT and returns the cookie; `None` if the endpoint refused it for want of resources.
fn asks(peer: &mut Peer, from: SocketAddr, port: u16) -> Option<Vec<u8>> {
    let init = build(port, ENDPOINT_PORT, 0, |out| peer.init().write(out));
    peer.sends_raw(from, &init);
    if is_refused(peer) {
        peer.hears();
        return None;
    }
    Some(peer.takes_init_ack())
}

/// Returns whether the next packet is an ABORT for want of resources.
fn is_refused(peer: &Peer) -> bool {
    let packet = peer.will_hear().expect("an answer");
    let mut aborted = false;
    each_chunk(packet, |chunk| {
        if let Chunk::Abort(abort) = chunk {
            aborted = abort.causes.flatten().any(|cause| cause == Cause::OutOfResource(OutOfResource));
            assert_eq!(header(packet).verification_tag.0, peer.tag);
        }
    });
    aborted
}

fn echoes(peer: &mut Peer, from: SocketAddr, port: u16, cookie: &[u8]) {
    let tag = peer.endpoint_tag;
    peer.sends_raw(from, &build(port, ENDPOINT_PORT, tag, |out| CookieEcho { cookie }.write(out)));
}

/// Connects; returns false if the endpoint refused.
fn connects(peer: &mut Peer, from: SocketAddr, port: u16) -> bool {
    let Some(cookie) = asks(peer, from, port) else { return false };
    echoes(peer, from, port, &cookie);
    peer.expects("COOKIE ACK");
    true
}

#[test]
fn a_listener_takes_no_more_than_its_limit_and_others_are_not_concerned() {
    let mut peer = limited(2, 100);
    let other = AssociationConfig::default();
    peer.endpoint.listen(ENDPOINT_PORT + 1, other).unwrap();
    assert!(connects(&mut peer, address([10, 0, 0, 1]), 1));
    assert!(connects(&mut peer, address([10, 0, 1, 1]), 1));
    assert!(!connects(&mut peer, address([10, 0, 2, 1]), 1));
    assert_eq!(peer.endpoint.endpoint_statistics().refused_at_listener_limit, 1);
    let init = build(1, ENDPOINT_PORT + 1, 0, |out| peer.init().write(out));
    peer.sends_raw(address([10, 0, 2, 1]), &init);
    peer.takes_init_ack();
}

#[test]
fn a_prefix_has_no_more_than_its_limit_and_others_are_not_concerned() {
    let mut peer = limited(100, 2);
    assert!(connects(&mut peer, address([10, 0, 0, 1]), 1));
    assert!(connects(&mut peer, address([10, 0, 0, 2]), 1));
    assert!(!connects(&mut peer, address([10, 0, 0, 3]), 1));
    assert_eq!(peer.endpoint.endpoint_statistics().refused_at_prefix_limit, 1);
    assert!(connects(&mut peer, address([10, 0, 1, 1]), 1));
}

#[test]
fn a_listener_that_fills_a_prefix_leaves_it_to_other_listeners() {
    let mut peer = limited(100, 1);
    peer.endpoint.listen(ENDPOINT_PORT + 1, AssociationConfig::default()).unwrap();
    let from = address([10, 0, 0, 1]);
    assert!(connects(&mut peer, from, 1));
    assert!(!connects(&mut peer, from, 2));
    let init = build(2, ENDPOINT_PORT + 1, 0, |out| peer.init().write(out));
    peer.sends_raw(from, &init);
    peer.takes_init_ack();
}

#[test]
fn peers_on_this_host_count_as_one_prefix() {
    let mut peer = limited(100, 2);
    let from = address([127, 0, 0, 1]);
    peer.app.hints.leaves_host = false;
    assert!(connects(&mut peer, from, 1));
    assert!(connects(&mut peer, address([127, 0, 7, 1]), 1));
    assert!(!connects(&mut peer, address([127, 1, 0, 1]), 1));
    assert_eq!(peer.endpoint.endpoint_statistics().refused_at_prefix_limit, 1);
    // The first peer of another host with an address of that prefix has the whole limit.
    peer.app.hints.leaves_host = true;
    assert!(connects(&mut peer, from, 3));
    assert!(connects(&mut peer, from, 4));
    assert!(!connects(&mut peer, from, 5));
}

#[test]
fn cookies_that_were_given_before_the_limit_was_reached_are_refused_after_it() {
    let mut peer = limited(1, 100);
    let (first, second) = (address([10, 0, 0, 1]), address([10, 0, 1, 1]));
    let cookie = asks(&mut peer, second, 1).unwrap();
    let tag = peer.endpoint_tag;
    assert!(connects(&mut peer, first, 1));
    peer.endpoint_tag = tag;
    echoes(&mut peer, second, 1, &cookie);
    assert!(is_refused(&peer));
    assert_eq!(peer.endpoint.association_count(), 1);
}

#[test]
fn an_association_that_has_ended_makes_room() {
    let mut peer = limited(1, 1);
    let from = address([10, 0, 0, 1]);
    assert!(connects(&mut peer, from, 1));
    assert!(!connects(&mut peer, from, 2));
    let id = peer.app.events[0].id;
    peer.endpoint.abort(peer.now, id, b"", &mut peer.app);
    peer.collect_output();
    peer.expects("ABORT");
    assert!(connects(&mut peer, from, 2));
}

/// Sends an INIT, and a COOKIE ECHO if it is answered. Returns whether the association is set up; none of its answers waits.
fn connects_if_answered(peer: &mut Peer, from: SocketAddr, port: u16, buffer: &mut TransmitBuffer) -> bool {
    let init = build(port, ENDPOINT_PORT, 0, |out| peer.init().write(out));
    let mut exchange = |packet: &Bytes, answer: &mut dyn FnMut(Chunk<'_>)| {
        peer.endpoint.handle_datagram(peer.now, from, None, packet, &mut peer.app);
        while peer.endpoint.poll_transmit(peer.now, Scope::All, buffer).is_some() {
            each_chunk(&buffer.to_vec(), &mut *answer);
        }
    };
    let mut offer = None;
    exchange(&init, &mut |chunk| {
        if let Chunk::InitAck(ack) = chunk {
            offer = Some((ack.initiate_tag.0, ack.parameters().flatten().find_map(cookie_of).unwrap()));
        }
    });
    let Some((tag, cookie)) = offer else { return false };
    let echo = build(port, ENDPOINT_PORT, tag, |out| CookieEcho { cookie: &cookie }.write(out));
    let mut is_up = false;
    exchange(&echo, &mut |chunk| is_up |= matches!(chunk, Chunk::CookieAck(_)));
    assert!(is_up);
    true
}

#[test]
fn the_defaults_admit_ten_thousand_peers_behind_one_address() {
    let prefix_max = EndpointConfig::default().prefix_associations_max;
    let listener_max = AssociationConfig::default().listener_associations_max;
    let mut peer = limited(listener_max, prefix_max);
    let from = address([10, 0, 0, 1]);
    let mut buffer = TransmitBuffer::new();
    let (began, mut ports) = (peer.now, Vec::from_iter(1..=10_000));
    // All connect at once, and repeat their INIT as RFC 9260 says: RTO.Initial is 1 s, and doubles each time.
    for seconds in [0, 1, 3, 7] {
        peer.now = began + Duration::from_secs(seconds);
        ports.retain(|port| !connects_if_answered(&mut peer, from, *port, &mut buffer));
    }
    assert_eq!((ports.len(), peer.endpoint.association_count()), (0, 10_000));
}

fn cookie_of(parameter: Parameter<'_>) -> Option<Vec<u8>> {
    match parameter {
        Parameter::StateCookie(parameter) => Some(parameter.cookie.to_vec()),
        _ => None,
    }
}

/// Connects through a UDP port; returns false if the endpoint refused because of that port.
fn connects_through(peer: &mut Peer, udp_port: u16, port: u16) -> bool {
    connects_from(peer, SocketAddr::from(([10, 0, 0, 9], udp_port)), port)
}

/// Connects from an address; returns false if the endpoint refused because of the UDP port.
fn connects_from(peer: &mut Peer, from: SocketAddr, port: u16) -> bool {
    let init = build(port, ENDPOINT_PORT, 0, |out| peer.init().write(out));
    peer.sends_raw(from, &init);
    let mut refused = false;
    each_chunk(peer.will_hear().expect("an answer"), |chunk| {
        if let Chunk::Abort(abort) = chunk {
            let cause = NewEncapsulationPort { current_port: 0, new_port: from.port() };
            refused = abort.causes.flatten().any(|found| found == Cause::NewEncapsulationPort(cause));
            assert!(refused, "it has another reason");
        }
    });
    if refused {
        peer.hears();
        return false;
    }
    let cookie = peer.takes_init_ack();
    echoes(peer, from, port, &cookie);
    let heard: Vec<_> = std::iter::from_fn(|| peer.hears_maybe()).collect();
    assert!(heard.iter().any(|packet| has(packet, CookieAck::KIND)));
    true
}

/// A question about a path may cost system calls, which a flood of INITs from invented addresses must not cause.
#[test]
fn an_init_asks_nothing_about_the_path() {
    for distinct_peers in [true, false] {
        let mut peer = Peer::new(1, AssociationConfig { distinct_peers, ..AssociationConfig::default() });
        peer.app.hints.leaves_host = true;
        for (host, port) in [(9, 5000), (10, ENDPOINT_PORT)] {
            let from = SocketAddr::from(([10, 0, 0, host], 9899));
            let before = peer.app.path_questions.get();
            let cookie = asks(&mut peer, from, port).expect("an INIT ACK");
            assert_eq!(peer.app.path_questions.get(), before);
            echoes(&mut peer, from, port, &cookie);
            assert!(peer.app.path_questions.get() > before, "an association has a path");
            while peer.hears_maybe().is_some() {}
        }
    }
}

/// A user that knows its peers by address cannot tell apart two that differ in their UDP port alone.
#[test]
fn a_listener_for_distinct_peers_refuses_one_that_another_peer_looks_like() {
    for distinct_peers in [true, false] {
        let mut peer = Peer::new(1, AssociationConfig { distinct_peers, ..AssociationConfig::default() });
        peer.app.hints.leaves_host = true;
        assert!(connects_through(&mut peer, 9899, 5000));
        assert_eq!(connects_through(&mut peer, 40_000, 5000), !distinct_peers);
        assert!(connects_through(&mut peer, 40_000, 5002), "another SCTP port");
        assert_eq!(connects_through(&mut peer, 9899, 5002), !distinct_peers);
        // A port of a listener is refused from this host only, where the listener itself would use this endpoint.
        assert!(connects_through(&mut peer, 40_000, ENDPOINT_PORT), "from another host");
        peer.app.hints.leaves_host = false;
        assert_eq!(connects_through(&mut peer, 40_001, ENDPOINT_PORT), !distinct_peers);
        // One that sends through this endpoint owns its port, and takes the place of others.
        peer.app.is_own_endpoint = true;
        let before = peer.endpoint.association_count();
        assert!(connects_through(&mut peer, 40_002, 5000));
        assert_eq!(peer.endpoint.association_count() - before, usize::from(!distinct_peers));
    }
}

#[test]
fn an_ipv6_peer_that_another_one_looks_like_is_refused_as_well() {
    let mut peer = Peer::new(1, AssociationConfig { distinct_peers: true, ..AssociationConfig::default() });
    peer.app.hints.leaves_host = true;
    let through = |udp_port| SocketAddr::new("fd00::9".parse().unwrap(), udp_port);
    assert!(connects_from(&mut peer, through(9899), 5000));
    assert!(!connects_from(&mut peer, through(40_000), 5000));
}

/// A listener that takes peers which look alike may have thousands of associations with them.
#[test]
fn an_owner_of_its_port_takes_the_place_of_many_others_while_other_work_goes_on() {
    const OTHERS: u16 = 50;
    const AT_ONCE_MAX: usize = 16;
    let mut peer = Peer::new(1, AssociationConfig::default());
    for n in 0..OTHERS {
        assert!(connects_through(&mut peer, 40_000 + n, 5000));
    }
    assert!(connects_through(&mut peer, 40_000, 5002), "another SCTP port");
    let Event::Accepted { listener, .. } = peer.app.events[0].event else { panic!("it is accepted first") };
    let distinct = AssociationConfig { distinct_peers: true, ..AssociationConfig::default() };
    assert!(peer.endpoint.set_listener_config(listener, distinct));
    peer.app.is_own_endpoint = true;
    let owner = SocketAddr::from(([10, 0, 0, 9], 9899));
    let cookie = asks(&mut peer, owner, 5000).expect("an INIT ACK");
    echoes(&mut peer, owner, 5000, &cookie);
    let mut aborted = Vec::new();
    while {
        let heard = std::iter::from_fn(|| peer.hears_maybe());
        aborted.push(heard.filter(|packet| has(packet, Abort::KIND)).count());
        peer.endpoint.poll_timeout().is_some_and(|at| at <= peer.now)
    } {
        peer.endpoint.handle_timeout(peer.now, &mut peer.app);
        peer.collect_output();
    }
    assert!(aborted.iter().all(|&at_once| at_once <= AT_ONCE_MAX), "{aborted:?}");
    assert_eq!(aborted.iter().sum::<usize>(), usize::from(OTHERS));
    assert_eq!(
        peer.endpoint.association_count(),
        2,
        "the owner of the port, and the peer with another SCTP port"
    );
}

/// Each owner of a port with more others than are aborted at once waits in a list until all of them are.
#[test]
fn an_owner_of_its_port_repeats_its_cookie_while_too_many_others_are_being_aborted() {
    const AT_ONCE_MAX: u16 = 16;
    const OWNERS_MAX: u16 = 64;
    const PORTS: std::ops::RangeInclusive<u16> = 5000..=5000 + OWNERS_MAX;
    let mut peer = Peer::new(1, AssociationConfig::default());
    for port in PORTS {
        let others = AT_ONCE_MAX + 1;
        (0..others).for_each(|n| assert!(connects_through(&mut peer, 40_000 + n, port)));
        peer.now = peer.now + Duration::from_millis(10);
    }
    assert!(connects_through(&mut peer, 40_000, 4999));
    let Event::Accepted { listener, .. } = peer.app.events[0].event else { panic!("it is accepted first") };
    let distinct = AssociationConfig { distinct_peers: true, ..AssociationConfig::default() };
    assert!(peer.endpoint.set_listener_config(listener, distinct));
    peer.app.is_own_endpoint = true;
    let owner = SocketAddr::from(([10, 0, 0, 9], 9899));
    let owns = |peer: &mut Peer, port| {
        let cookie = asks(peer, owner, port).expect("an INIT ACK");
        echoes(peer, owner, port, &cookie);
        std::iter::from_fn(|| peer.hears_maybe()).any(|packet| has(&packet, CookieAck::KIND))
    };
    let up: Vec<u16> = PORTS.filter(|port| owns(&mut peer, *port)).collect();
    assert_eq!(up, PORTS.take(usize::from(OWNERS_MAX)).collect::<Vec<_>>());
    assert!(owns(&mut peer, 4999), "one with few others");
    assert_eq!(peer.endpoint.endpoint_statistics().accepts_put_off, 1);
    peer.endpoint.handle_timeout(peer.now, &mut peer.app);
    peer.collect_output();
    while peer.hears_maybe().is_some() {}
    assert!(owns(&mut peer, *PORTS.end()), "others are aborted by now");
}

/// A program beside this endpoint has bound a port that a listener of this endpoint has, too.
#[test]
fn a_listener_for_distinct_peers_refuses_the_port_of_a_listener_from_its_own_host() {
    for distinct_peers in [true, false] {
        let mut peer = Peer::new(1, AssociationConfig { distinct_peers, ..AssociationConfig::default() });
        assert!(connects_through(&mut peer, 9899, 5002), "no listener has this port");
        assert_eq!(connects_through(&mut peer, 9899, ENDPOINT_PORT), !distinct_peers);
        let refused = peer.endpoint.endpoint_statistics().restarts_refused;
        assert_eq!(refused, u64::from(distinct_peers));
    }
}

/// Both have their cookies before either is a peer.
#[test]
fn of_two_that_look_alike_a_listener_for_distinct_peers_takes_the_first_to_echo_its_cookie() {
    for distinct_peers in [true, false] {
        let mut peer = Peer::new(1, AssociationConfig { distinct_peers, ..AssociationConfig::default() });
        peer.app.hints.leaves_host = true;
        let asked = [9899, 40_000].map(|udp_port| {
            let from = SocketAddr::from(([10, 0, 0, 9], udp_port));
            let cookie = asks(&mut peer, from, 5000).expect("an INIT ACK");
            (from, peer.endpoint_tag, cookie)
        });
        let [first, second] = asked.map(|(from, tag, cookie)| {
            peer.endpoint_tag = tag;
            echoes(&mut peer, from, 5000, &cookie);
            peer.hears()
        });
        assert!(has(&first, CookieAck::KIND));
        assert_eq!(has(&second, CookieAck::KIND), !distinct_peers);
        let mut is_refused = false;
        each_chunk(&second, |chunk| {
            if let Chunk::Abort(abort) = chunk {
                let cause = NewEncapsulationPort { current_port: 0, new_port: 40_000 };
                is_refused = abort.causes.flatten().any(|found| found == Cause::NewEncapsulationPort(cause));
            }
        });
        assert_eq!(is_refused, distinct_peers);
        assert_eq!(peer.endpoint.association_count(), if distinct_peers { 1 } else { 2 });
    }
}
