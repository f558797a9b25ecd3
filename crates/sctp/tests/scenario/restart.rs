//! A peer that crashed and returns with the same addresses and ports (RFC 9260 §5.2.2, §5.2.4 A), and the rest of
//! table 12: the effect of a cookie on an existing association.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use sctp::config::RtoConfig;
use sctp::{
    AssociationConfig, BatchLimits, CloseReason, Endpoint, EndpointConfig, Event, ReceivePool, Restart,
    SendInfo,
};
use sctp_wire::cause::Cause;
use sctp_wire::chunk::{Chunk, CookieEcho, DataFlags, HeartbeatAck, Init, Shutdown, ShutdownComplete};
use sctp_wire::parameter::{Ipv4, Parameter, Parameters};

use lab::bounds::assert_bounded;
use lab::packets::{build, each_chunk, header, kinds, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, B, PORT_A, PORT_B, Reading, TwoHosts};

const SOON: Duration = Duration::from_secs(30);

fn restarted(peer: &Peer) -> Option<u64> {
    peer.app.events.iter().find_map(|e| match e.event {
        Event::Restarted(restart) => Some(restart.unacknowledged_bytes),
        _ => None,
    })
}

/// The peer returns with a new tag and asks for a cookie.
fn asks_again(peer: &mut Peer) -> Vec<u8> {
    peer.tag = peer.tag.wrapping_add(1);
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    peer.takes_init_ack()
}

fn echoes(peer: &mut Peer, cookie: &[u8]) {
    peer.sends().chunk(|_, out| CookieEcho { cookie }.write(out)).go();
}

#[test]
fn a_client_that_crashed_connects_again() {
    let mut hosts = TwoHosts::new(1);
    let (a, b) = hosts.establish();
    hosts.send(A, a, SendInfo::default(), &b"before"[..]);
    hosts.send(B, b, SendInfo::default(), &b"lost"[..]);
    hosts.run_for(Duration::from_secs(1));
    hosts.reboot(A);
    hosts.app(A).events.clear();
    let again = hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.run_until("A is up again", SOON, |hosts| hosts.is_up(A));
    assert_eq!((hosts.closed(B), hosts.node(B).endpoint.association_count()), (None, 1));
    let restarted = Event::Restarted(Restart { streams_out: 10, streams_in: 10, unacknowledged_bytes: 0 });
    assert!(hosts.app(B).saw(|e| *e == restarted), "the user of the same association is told");
    hosts.send(A, again, SendInfo::default(), &b"after"[..]);
    hosts.send(B, b, SendInfo::default(), &b"answer"[..]);
    hosts.run_until("both heard", SOON, |hosts| {
        hosts.node(B).app.messages.last().is_some_and(|m| m.bytes == b"after")
            && hosts.node(A).app.messages.last().is_some_and(|m| m.bytes == b"answer")
    });
    assert_eq!(hosts.app(B).messages.last().unwrap().info.ssn, 0, "numbers begin again");
}

#[test]
fn a_peer_that_asks_again_with_its_tag_has_not_restarted() {
    let mut peer = Peer::established(33);
    let old_tag = peer.endpoint_tag;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    echoes(&mut peer, &cookie);
    peer.expects_nothing();
    assert_eq!((restarted(&peer), peer.endpoint.endpoint_statistics().cookie_errors), (None, 1));
    peer.endpoint_tag = old_tag;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn data_that_the_old_peer_had_not_acknowledged_is_reported() {
    let mut peer = Peer::established(5);
    for n in 0..3 {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        peer.expects(&format!("DATA {n}"));
    }
    peer.sends().sack(0, &[]).go();
    let cookie = asks_again(&mut peer);
    assert_eq!(restarted(&peer), None, "an INIT alone changes nothing");
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    peer.expects_nothing();
    assert_eq!(restarted(&peer), Some(2 * (100 + 64)));
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!(
        (statistics.send_buffered_bytes, statistics.outstanding_bytes, statistics.restarts),
        (0, 0, 1)
    );
    // TSNs and stream sequence numbers begin anew in both directions.
    peer.app_sends(SendInfo::default(), vec![9]);
    peer.expects("DATA 0");
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    assert_eq!(peer.app.contents(), [[0]]);
}

#[test]
fn nothing_of_the_old_peer_is_mixed_with_the_new_one() {
    let mut peer = Peer::established(6);
    let first = DataFlags { ending: false, ..DataFlags::WHOLE };
    let last = DataFlags { beginning: false, ..DataFlags::WHOLE };
    // Half a message, and one that waits for another.
    peer.sends().data_with(first, 0, 0, 0, b"half").go();
    peer.sends().data_with(DataFlags::WHOLE, 2, 1, 5, b"early").go();
    while peer.hears_maybe().is_some() {}
    let (old_tag, cookie) = (peer.endpoint_tag, asks_again(&mut peer));
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().receive_buffered_bytes, 0);
    // The old tag is not valid any more.
    let new_tag = std::mem::replace(&mut peer.endpoint_tag, old_tag);
    peer.sends().data_with(last, 1, 0, 0, b"half").go();
    peer.endpoint_tag = new_tag;
    assert!(peer.app.messages.is_empty());
    while peer.hears_maybe().is_some() {}
    peer.sends().data_with(DataFlags::WHOLE, 0, 1, 0, b"new").go();
    peer.expects("SACK 0");
    assert_eq!(peer.app.contents(), [b"new"]);
}

#[test]
fn data_with_the_cookie_of_a_restart_is_taken() {
    let mut peer = Peer::established(7);
    let cookie = asks_again(&mut peer);
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
    assert_eq!(peer.app.contents(), [[0]]);
    // A repeated cookie belongs to the association in its present state (table 12, D).
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().restarts, 1);
}

#[test]
fn a_restart_finds_an_association_that_was_shutting_down() {
    // The user has shut down. The endpoint tells the new peer at once, whether or not the old one had shut down, too.
    for by_both in [false, true] {
        let mut peer = Peer::established(8);
        peer.app_sends(SendInfo::default(), vec![1]);
        peer.expects("DATA 0");
        peer.app_shuts_down();
        if by_both {
            peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
        }
        let cookie = asks_again(&mut peer);
        echoes(&mut peer, &cookie);
        peer.expects("COOKIE ACK, SHUTDOWN -1");
        assert_eq!(restarted(&peer), Some(65));
    }
}

#[test]
fn restarts_do_not_prolong_a_shutdown() {
    let mut peer = Peer::established(18);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    let (began, t5) = (peer.now, 5 * RtoConfig::default().max);
    while !peer.app.saw(|e| matches!(e, Event::Closed(_))) {
        let cookie = asks_again(&mut peer);
        echoes(&mut peer, &cookie);
        peer.waits(Duration::from_secs(5));
        while peer.hears_maybe().is_some() {}
        assert!(peer.now <= began + t5 + Duration::from_secs(5), "T5 has expired");
    }
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Timeout)));
}

#[test]
fn a_restart_that_meets_a_shutdown_ack_waits_for_its_end() {
    // RFC 9260 §5.2.4 A. The cookie is from before the shutdown.
    let mut peer = Peer::established(9);
    let (old_tag, old_endpoint_tag) = (peer.tag, peer.endpoint_tag);
    let cum_tsn = peer.endpoint_tsn(-1);
    let cookie = asks_again(&mut peer);
    let (new_tag, new_endpoint_tag) = (peer.tag, peer.endpoint_tag);
    (peer.tag, peer.endpoint_tag) = (old_tag, old_endpoint_tag);
    peer.sends().chunk(|_, out| Shutdown { cum_tsn }.write(out)).go();
    peer.expects("SHUTDOWN ACK");
    (peer.tag, peer.endpoint_tag) = (new_tag, new_endpoint_tag);
    echoes(&mut peer, &cookie);
    let answer = peer.hears();
    assert_eq!(header(&answer).verification_tag.0, old_tag);
    let mut said = Vec::new();
    each_chunk(&answer, |chunk| match chunk {
        Chunk::ShutdownAck(_) => said.push("SHUTDOWN ACK"),
        Chunk::Error(error) => {
            let cause = error.causes.clone().flatten().next();
            assert!(matches!(cause, Some(Cause::CookieReceivedWhileShuttingDown(_))));
            said.push("ERROR");
        }
        other => panic!("{other}"),
    });
    assert_eq!(said, ["SHUTDOWN ACK", "ERROR"]);
    assert_eq!(restarted(&peer), None);
    // The peer answers unknown packets with the tag that it saw.
    peer.sends().tag(old_tag).chunk(|_, out| ShutdownComplete { reflected_tag: true }.write(out)).go();
    assert_eq!(peer.endpoint.association_count(), 0);
}

#[test]
fn an_init_that_adds_addresses_is_refused() {
    // RFC 9260 §5.2.2.
    let known = Ipv4Addr::new(10, 0, 0, 9);
    let [new, other] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    let mut peer = Peer::established(10);
    let mut parameters = Vec::new();
    for address in [known, new, other] {
        Ipv4 { address }.write(&mut parameters);
    }
    let old = peer.tag;
    peer.tag += 1;
    peer.sends()
        .tag(0)
        .chunk(|p, out| {
            let mut init = p.init();
            init.parameters = Parameters::new(&parameters);
            init.write(out);
        })
        .go();
    let answer = peer.hears();
    assert_eq!((header(&answer).verification_tag.0, answer[13] & 1), (peer.tag, 0));
    let mut named = Vec::new();
    each_chunk(&answer, |chunk| {
        let Chunk::Abort(abort) = chunk else { panic!("{chunk}") };
        for cause in abort.causes.clone().flatten() {
            let Cause::RestartWithNewAddresses(cause) = cause else { panic!("{cause}") };
            named.extend(cause.addresses.flatten().map(|p| p.to_string()));
        }
    });
    assert_eq!(named, [new, other].map(|address| Parameter::from(Ipv4 { address }).to_string()));
    assert_eq!(peer.endpoint.endpoint_statistics().restarts_refused, 1);
    peer.tag = old;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn an_init_from_elsewhere_that_names_the_peers_address_adds_its_own() {
    // RFC 9260 §5.1.2 D: it belongs to the association whose address it names.
    let mut peer = Peer::established(11);
    let mut parameters = Vec::new();
    Ipv4 { address: Ipv4Addr::new(10, 0, 0, 9) }.write(&mut parameters);
    peer.address.set_ip(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    peer.sends()
        .tag(0)
        .chunk(|p, out| {
            let mut init = p.init();
            init.parameters = Parameters::new(&parameters);
            init.write(out);
        })
        .go();
    peer.expects("ABORT");
    assert_eq!(peer.endpoint.association_count(), 1);
}

#[test]
fn an_init_with_another_port_is_another_association() {
    // RFC 9260 §9.2, note.
    let mut peer = Peer::established(12);
    let init = peer.init();
    let packet =
        lab::packets::build(lab::script::PEER_PORT + 1, lab::script::ENDPOINT_PORT, 0, |out| init.write(out));
    peer.sends_raw(peer.address, &packet);
    peer.expects("INIT ACK");
}

#[test]
fn a_server_that_crashed_refuses_what_it_has_forgotten() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish();
    hosts.reboot(B);
    hosts.app(B).events.clear();
    hosts.send(A, a, SendInfo::default(), &b"still there?"[..]);
    hosts.run_until("A was told", SOON, |hosts| hosts.closed(A).is_some());
    assert!(matches!(hosts.closed(A), Some(sctp::CloseReason::PeerAborted { .. })));
    assert_eq!(hosts.node(B).endpoint.association_count(), 0);
}

#[test]
fn an_init_alone_ends_nothing() {
    let mut peer = Peer::established(3);
    let (old_tag, old_tsn) = (peer.endpoint_tag, peer.endpoint_tsn(0));
    for _ in 0..100 {
        let _ = asks_again(&mut peer);
        assert_ne!(peer.endpoint_tag, old_tag, "a new tag for what may be a restart");
        assert_ne!(peer.endpoint_tsn(0), old_tsn, "packets of the old peer acknowledge nothing new");
    }
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.tag -= 100;
    peer.endpoint_tag = old_tag;
    peer.sends().data(0).go();
    assert_eq!(peer.app.contents(), [[0]]);
}

#[test]
fn a_link_that_steers_strays_away_is_told_the_tag_of_a_restart() {
    let mut peer = Peer::established(18);
    let (tag, old_tag) = (peer.tag, peer.endpoint_tag);
    for n in 1..=200 {
        peer.sends().tag(old_tag ^ n).data(0).go();
    }
    let expected = peer.endpoint.poll_expected(peer.now).expect("a flood");
    assert_eq!(expected.tags, Some(vec![old_tag]));
    let cookie = asks_again(&mut peer);
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    assert_ne!((peer.tag, peer.endpoint_tag), (tag, old_tag));
    peer.waits(Duration::from_millis(2));
    let expected = peer.endpoint.poll_expected(peer.now).expect("another tag");
    assert_eq!(expected.tags, Some(vec![peer.endpoint_tag]));
}

#[test]
fn a_peer_that_restarts_without_one_of_its_addresses_has_it_no_more() {
    let (first, second) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 1, 9));
    let mut peer = Peer::new(19, AssociationConfig::default());
    let mut parameters = Vec::new();
    for address in [first, second] {
        Ipv4 { address }.write(&mut parameters);
    }
    let parameters = Parameters::new(&parameters);
    peer.sends().tag(0).chunk(|p, out| Init { parameters: parameters.clone(), ..p.init() }.write(out)).go();
    let cookie = peer.takes_init_ack();
    echoes(&mut peer, &cookie);
    peer.waits(Duration::from_secs(1));
    while let Some((to, packet)) = peer.hears_on_maybe() {
        peer.address.set_ip(to.ip());
        each_chunk(&packet, |chunk| {
            if let Chunk::Heartbeat(heartbeat) = chunk {
                peer.sends().chunk(|_, out| HeartbeatAck { info: heartbeat.info }.write(out)).go();
            }
        });
    }
    peer.address.set_ip(first.into());
    let cookie = asks_again(&mut peer);
    echoes(&mut peer, &cookie);
    assert_eq!(peer.endpoint.statistics(peer.app.events[0].id).unwrap().restarts, 1);
    while peer.hears_maybe().is_some() {}
    peer.address.set_ip(second.into());
    let cookie = asks_again(&mut peer);
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    assert_eq!(peer.endpoint.association_count(), 2, "a peer of its own");
}

#[test]
fn a_restart_needs_a_cookie_that_knows_of_the_association() {
    // The cookie is from before the association: no tags match, and it has no tie-tags. Table 12 has no such row.
    let mut peer = Peer::new(4, AssociationConfig::default());
    let tag = peer.tag;
    let early = asks_again(&mut peer);
    let early_tag = peer.endpoint_tag;
    peer.tag = tag;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    peer.sends().tag(early_tag).chunk(|_, out| CookieEcho { cookie: &early }.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
    assert!(!peer.app.saw(|e| matches!(e, Event::Closed(_) | Event::Restarted(_))));
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
}

#[test]
fn a_cookie_with_an_old_tag_of_ours_came_too_late() {
    // Table 12, C: the peer's tag is right, ours is not.
    let mut peer = Peer::new(13, AssociationConfig::default());
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let early = peer.takes_init_ack();
    let early_tag = peer.endpoint_tag;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer.sends().tag(early_tag).chunk(|_, out| CookieEcho { cookie: &early }.write(out)).data(0).go();
    peer.expects_nothing();
    assert!(peer.app.messages.is_empty() && restarted(&peer).is_none());
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn a_second_restart_does_not_work_with_the_cookie_of_the_first() {
    let mut peer = Peer::established(14);
    let first = asks_again(&mut peer);
    let (first_tag, first_endpoint_tag) = (peer.tag, peer.endpoint_tag);
    let second = asks_again(&mut peer);
    echoes(&mut peer, &second);
    peer.expects("COOKIE ACK");
    let now = (peer.tag, peer.endpoint_tag);
    (peer.tag, peer.endpoint_tag) = (first_tag, first_endpoint_tag);
    // Its tie-tags name an association that has ended.
    echoes(&mut peer, &first);
    peer.expects_nothing();
    (peer.tag, peer.endpoint_tag) = now;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().restarts, 1);
}

#[test]
fn a_restart_whose_tag_another_association_has_taken_meanwhile_is_refused() {
    let mut peer = Peer::new(17, AssociationConfig::default());
    // One bit of a tag is random: beside one association all INITs get the same tag.
    let config = EndpointConfig { shard_bits: 31, shard: 1, ..EndpointConfig::default() };
    peer.endpoint = Endpoint::new(config, [17; 32], BatchLimits { segments_max: 1, bytes_max: 1500 });
    peer.endpoint.listen(ENDPOINT_PORT, AssociationConfig::default()).unwrap();
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    echoes(&mut peer, &cookie);
    peer.expects("COOKIE ACK");
    let (tag, endpoint_tag) = (peer.tag, peer.endpoint_tag);
    let restart = asks_again(&mut peer);
    let given = peer.endpoint_tag;
    let says = |peer: &mut Peer, tag, write: &dyn Fn(&Peer, &mut Vec<u8>)| {
        let packet = build(PEER_PORT + 1, ENDPOINT_PORT, tag, |out| write(peer, out));
        peer.sends_raw(peer.address, &packet);
    };
    says(&mut peer, 0, &|peer, out| peer.init().write(out));
    let other = peer.takes_init_ack();
    assert_eq!(peer.endpoint_tag, given);
    says(&mut peer, given, &|_, out| CookieEcho { cookie: &other }.write(out));
    peer.expects("COOKIE ACK");
    echoes(&mut peer, &restart);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.endpoint_statistics().cookie_errors, 1);
    assert_eq!(restarted(&peer), None);
    // Each still has its own tag.
    let tsn = peer.init().initial_tsn.0;
    says(&mut peer, given, &|_, out| write_data(DataFlags::WHOLE, tsn, 0, 0, b"other", out));
    (peer.tag, peer.endpoint_tag) = (tag, endpoint_tag);
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, b"first").go();
    assert_eq!(peer.app.contents(), [&b"other"[..], b"first"]);
}

#[test]
fn a_restart_wakes_a_user_who_waited_for_room() {
    let config = AssociationConfig { send_buffer_bytes: 1000, ..AssociationConfig::default() };
    let mut peer = Peer::established_with(15, config);
    peer.app_sends(SendInfo::default(), vec![1; 900]);
    let id = peer.id;
    assert!(matches!(peer.endpoint.admit(id, &SendInfo::default(), 900), sctp::Admission::Full));
    let _ = peer.hears();
    let cookie = asks_again(&mut peer);
    echoes(&mut peer, &cookie);
    assert!(peer.app.saw(|e| *e == Event::Writable));
    assert!(!matches!(peer.endpoint.admit(id, &SendInfo::default(), 900), sctp::Admission::Full));
    assert_eq!(kinds(&peer.hears()), [sctp_wire::chunk::CookieAck::KIND]);
}

/// A user that writes and never reads, and a peer that restarts repeatedly: the data that returns must not accumulate.
#[test]
fn a_restart_waits_while_the_user_has_not_read_what_came_back_with_earlier_ones() {
    let buffer_bytes = 100_000;
    let config = AssociationConfig {
        events: true,
        send_buffer_bytes: buffer_bytes,
        receive_buffer_bytes: buffer_bytes,
        ..lab::script::plain()
    };
    let mut peer = Peer::established_with(16, config.clone());
    peer.app.set_reading(Reading::Never);
    let held = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().receive_buffered_bytes as usize;
    for _ in 0..20 {
        let id = peer.id;
        while !matches!(peer.endpoint.admit(id, &SendInfo::default(), 1000), sctp::Admission::Full) {
            peer.app_sends(SendInfo::default(), vec![1; 1000]);
        }
        while peer.hears_maybe().is_some() {}
        let (cookie, now) = (asks_again(&mut peer), peer.now);
        echoes(&mut peer, &cookie);
        // The endpoint also handles the work that earlier steps have left.
        peer.endpoint.handle_timeout(now, &mut peer.app);
        assert_bounded(&peer.endpoint.statistics(peer.id).unwrap(), &config);
    }
    let restarts = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().restarts;
    let before = restarts(&peer);
    assert!((2..5).contains(&before), "{before} restarts filled {} bytes", held(&peer));
    while peer.hears_maybe().is_some() {}
    let cookie = asks_again(&mut peer);
    echoes(&mut peer, &cookie);
    assert_eq!(restarts(&peer), before);
    peer.app.set_reading(Reading::AtOnce);
    peer.app.read(&mut peer.endpoint);
    echoes(&mut peer, &cookie);
    assert_eq!((restarts(&peer), held(&peer)), (before + 1, 0));
}

/// A user that does not read, and a peer that restarts repeatedly: the reports must not accumulate, with optional events or
/// without.
#[test]
fn restarts_wait_while_the_user_has_not_read_of_many_earlier_ones() {
    for events in [false, true] {
        let config = AssociationConfig { events, receive_buffer_bytes: 20_000, ..lab::script::plain() };
        let mut peer = Peer::new(20, config.clone());
        let limits = BatchLimits { segments_max: 1, bytes_max: 1500 };
        peer.endpoint = Endpoint::new(EndpointConfig::default(), [20; 32], limits);
        peer.endpoint.listen(ENDPOINT_PORT, config.clone()).unwrap();
        let cookie = asks_again(&mut peer);
        echoes(&mut peer, &cookie);
        peer.id = peer.app.events[0].id;
        peer.app.set_reading(Reading::Never);
        let statistics = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap();
        let tries = |peer: &mut Peer| {
            while peer.hears_maybe().is_some() {}
            peer.waits(Duration::from_millis(1));
            let before = statistics(peer).restarts;
            let cookie = asks_again(peer);
            echoes(peer, &cookie);
            statistics(peer).restarts > before
        };
        while tries(&mut peer) {
            // Each peer shuts down, too, and waits for data.
            peer.app_sends(SendInfo::default(), vec![1]);
            peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
            assert_bounded(&statistics(&peer), &config);
        }
        let before = statistics(&peer).restarts;
        assert!((100..1500).contains(&before), "{before} restarts");
        let told = |is: fn(&Event) -> bool| peer.app.events.iter().filter(|e| is(&e.event)).count() as u64;
        assert_eq!(told(|e| matches!(e, Event::Restarted(_))), before);
        assert_eq!(told(|e| *e == Event::PeerShutdown), before);
        peer.app.set_reading(Reading::AtOnce);
        peer.app.read(&mut peer.endpoint);
        assert_eq!(statistics(&peer).receive_buffered_bytes, 0);
        assert!(tries(&mut peer));
    }
}

#[test]
fn a_peer_that_has_filled_the_buffer_can_restart_while_the_user_does_not_read() {
    for (payload_bytes, receive_buffer_bytes) in [(1, 2000), (1, 100_000), (1000, 2000), (1000, 100_000)] {
        let config = AssociationConfig { receive_buffer_bytes, ..lab::script::plain() };
        let mut peer = Peer::established_with(21, config);
        peer.app.set_reading(Reading::Never);
        let dropped = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().data_chunks_dropped;
        for n in 0.. {
            peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &vec![1; payload_bytes]).go();
            while peer.hears_maybe().is_some() {}
            if dropped(&peer) > 0 {
                break;
            }
        }
        let messages = peer.app.messages.len();
        let cookie = asks_again(&mut peer);
        echoes(&mut peer, &cookie);
        peer.expects("COOKIE ACK");
        assert_eq!(restarted(&peer), Some(0), "{payload_bytes} bytes in each message");
        peer.app.set_reading(Reading::AtOnce);
        peer.app.read(&mut peer.endpoint);
        peer.sends().data(0).go();
        assert_eq!(peer.app.messages.len(), messages + 1);
    }
}

#[test]
fn a_restart_waits_for_memory_that_associations_share() {
    let pool = ReceivePool::with_limit(100_000);
    let config = AssociationConfig { receive_pool: Some(pool.clone()), ..lab::script::plain() };
    let mut peer = Peer::established_with(22, config);
    peer.app.set_reading(Reading::Never);
    // The other associations have all of it.
    let others = pool.charge(100_000).unwrap();
    let restarts = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().restarts;
    for _ in 0..100 {
        let cookie = asks_again(&mut peer);
        echoes(&mut peer, &cookie);
        while peer.hears_maybe().is_some() {}
    }
    let before = restarts(&peer);
    assert!(
        (3..20).contains(&before),
        "{before} restarts within the memory of an association without the pool"
    );
    drop(others);
    let cookie = asks_again(&mut peer);
    echoes(&mut peer, &cookie);
    assert_eq!(restarts(&peer), before + 1);
    assert!(!pool.has(100_000), "unread reports are charged");
    peer.app.set_reading(Reading::AtOnce);
    peer.app.read(&mut peer.endpoint);
    assert!(pool.has(100_000));
}
