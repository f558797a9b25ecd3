//! SHUTDOWN from either side, from both at once, with data in flight, and with lost packets (RFC 9260 §9.2).

use std::time::Duration;

use sctp::config::RtoConfig;
use sctp::{
    Admission, AssociationConfig, AssociationId, AssociationState, CloseReason, Event, SendError, SendInfo,
};
use sctp_wire::chunk::{Abort, CookieAck, Data, DataFlags, Shutdown, ShutdownAck, ShutdownComplete};

use lab::packets::{has, kinds};
use lab::script::Peer;
use lab::{A, B, Fate, PORT_A, PORT_B, TwoHosts};

const SOON: Duration = Duration::from_secs(60);

fn both_closed(hosts: &TwoHosts) -> bool {
    [A, B].iter().all(|&n| hosts.closed(n) == Some(CloseReason::Shutdown))
        && [A, B].iter().all(|&n| hosts.node(n).endpoint.association_count() == 0)
}

fn state_of(hosts: &TwoHosts, id: AssociationId) -> Option<AssociationState> {
    let mut associations = hosts.node(A).endpoint.associations();
    associations.find_map(|(other, state)| (other == id).then_some(state))
}

#[test]
fn three_packets_end_an_idle_association_from_either_side() {
    for side in [A, B] {
        let mut hosts = TwoHosts::new(1);
        let (a, b) = hosts.establish();
        let before = hosts.sent.len();
        hosts.shutdown(side, [a, b][side]);
        hosts.run_until("both are closed", SOON, both_closed);
        let ladder: Vec<_> = hosts.sent[before..].iter().map(|s| (s.by, kinds(&s.packet))).collect();
        assert_eq!(
            ladder,
            [
                (side, vec![Shutdown::KIND]),
                (1 - side, vec![ShutdownAck::KIND]),
                (side, vec![ShutdownComplete::KIND]),
            ]
        );
        assert!(hosts.app(1 - side).saw(|e| *e == Event::PeerShutdown));
    }
}

#[test]
fn the_identifier_of_an_ended_association_names_no_other() {
    let mut hosts = TwoHosts::new(1);
    let (old, _) = hosts.establish();
    hosts.shutdown(A, old);
    hosts.run_until("both are closed", SOON, both_closed);

    let new = hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    assert_eq!((old.index(), new.index()), (0, 0), "the place in the tables is used again");
    hosts.run_until("the next one is up", SOON, |hosts| {
        state_of(hosts, new) == Some(AssociationState::Established)
    });
    hosts.abort(A, old, b"not this one");
    hosts.shutdown(A, old);
    let endpoint = &mut hosts.node_mut(A).endpoint;
    assert!(matches!(endpoint.admit(old, &SendInfo::default(), 1), Admission::Fail(SendError::Closed)));
    assert!(endpoint.statistics(old).is_none());
    assert_eq!(state_of(&hosts, new), Some(AssociationState::Established));
}

#[test]
fn everything_that_was_taken_is_delivered_first() {
    let mut hosts = TwoHosts::new(2);
    let (a, b) = hosts.establish();
    hosts.send_all(A, a, (0..800).map(|n| (SendInfo::default(), vec![n as u8; 900].into())));
    assert!(hosts.all_admitted(A));
    hosts.shutdown(A, a);
    // B still sends its queued data, but accepts no more once it has received the SHUTDOWN.
    hosts.send_all(B, b, (0..800).map(|n| (SendInfo::default(), vec![n as u8; 900].into())));
    let info = SendInfo::default();
    let admission = hosts.node_mut(A).endpoint.admit(a, &info, 1);
    assert!(matches!(admission, Admission::Fail(SendError::Closed)));
    hosts.run_until("both are closed", SOON, both_closed);
    assert_eq!(hosts.app(B).messages.len(), 800);
    assert_eq!(hosts.app(A).messages.len(), 800);
}

#[test]
fn data_of_the_peer_goes_on_after_our_shutdown() {
    let mut hosts = TwoHosts::new(3);
    let config = AssociationConfig { send_buffer_bytes: 8 << 20, ..AssociationConfig::default() };
    let (a, b) = hosts.establish_with(config.clone(), config);
    hosts.send_all(B, b, (0..3000).map(|n| (SendInfo::default(), vec![n as u8; 1000].into())));
    hosts.run_for(Duration::from_millis(30));
    hosts.shutdown(A, a);
    hosts.run_until("both are closed", SOON, both_closed);
    assert_eq!(hosts.app(A).messages.len(), 3000);
}

#[test]
fn both_shut_down_at_once() {
    let mut hosts = TwoHosts::new(4);
    let (a, b) = hosts.establish();
    hosts.shutdown(A, a);
    hosts.shutdown(B, b);
    hosts.run_until("both are closed", SOON, both_closed);
}

#[test]
fn every_packet_of_the_end_may_be_lost() {
    for kind in [Shutdown::KIND, ShutdownAck::KIND, ShutdownComplete::KIND] {
        let mut hosts = TwoHosts::new(5);
        let (a, _) = hosts.establish();
        for node in [A, B] {
            let mut lost = 0;
            hosts.tap(node, move |packet| {
                if lost < 2 && has(packet, kind) {
                    lost += 1;
                    return Fate::Drop;
                }
                Fate::Pass
            });
        }
        hosts.shutdown(A, a);
        hosts.run_until("both are closed", SOON, both_closed);
    }
}

#[test]
fn a_peer_that_vanished_is_given_up() {
    let mut hosts = TwoHosts::new(6);
    // T5 leaves time for all attempts.
    let rto = RtoConfig { max: Duration::from_secs(400), ..RtoConfig::default() };
    let config = AssociationConfig { rto, association_retries_max: 8, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(config.clone(), config);
    hosts.cut();
    hosts.shutdown(A, a);
    hosts.run_until("A gave up", Duration::from_secs(1000), |hosts| hosts.closed(A).is_some());
    assert_eq!(hosts.closed(A), Some(CloseReason::Timeout));
    let shutdowns = hosts.sent.iter().filter(|s| has(&s.packet, Shutdown::KIND)).count();
    assert_eq!(shutdowns, 9, "Association.Max.Retrans is 8");
    hosts.exchange();
    let last = hosts.sent.iter().rfind(|sent| sent.by == A).expect("something was sent");
    assert_eq!(lab::packets::kinds(&last.packet), [sctp_wire::chunk::Abort::KIND]);
}

#[test]
fn a_peer_that_answers_for_ever_and_never_ends_is_aborted() {
    // RFC 9260 §9.2: T5-shutdown-guard is five times RTO.Max.
    let mut peer = Peer::established(17);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    let mut said = Vec::new();
    for _ in 0..400 {
        peer.waits(Duration::from_millis(750));
        peer.sends().chunk(|_, out| sctp_wire::chunk::Heartbeat { info: b"here" }.write(out)).go();
        while let Some(packet) = peer.hears_maybe() {
            said.extend(lab::packets::kinds(&packet));
        }
        if peer.app.saw(|e| matches!(e, Event::Closed(_))) {
            break;
        }
    }
    assert_eq!(said.last(), Some(&sctp_wire::chunk::Abort::KIND));
    assert!(!said.contains(&Shutdown::KIND), "each packet of the peer gave it more time");
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Timeout)));
    assert_eq!(peer.now, sctp::Time::from_nanos(301_000_000_000));
}

#[test]
fn a_peer_that_refuses_what_fitted_its_window_while_the_association_ends_is_aborted() {
    let t5 = 5 * RtoConfig::default().max;
    let mut peer = Peer::established(19);
    for n in 0..3 {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        peer.expects(&format!("DATA {n}"));
    }
    peer.sends().sack_with(-1, 0, &[]).go();
    peer.app_shuts_down();
    let began = peer.now;
    let mut retransmissions = 0;
    while !peer.app.saw(|e| matches!(e, Event::Closed(_))) {
        peer.waits(Duration::from_millis(500));
        if peer.hears_maybe().is_some_and(|packet| has(&packet, Data::KIND)) {
            retransmissions += 1;
            peer.sends().sack_with(-1, 0, &[]).go();
        }
        assert!(peer.now <= began + t5 + Duration::from_secs(1), "T5 has expired");
    }
    assert!(peer.now >= began + t5, "{retransmissions} retransmissions");
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Timeout)));
}

#[test]
fn a_peer_that_takes_acknowledgements_back_while_the_association_ends_is_aborted() {
    let t5 = 5 * RtoConfig::default().max;
    let mut peer = Peer::established(20);
    for n in 0..3 {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        peer.expects(&format!("DATA {n}"));
    }
    peer.app_shuts_down();
    let began = peer.now;
    for turn in 0.. {
        let gaps: &[(u16, u16)] = if turn % 2 == 0 { &[(2, 3)] } else { &[] };
        peer.sends().sack(-1, gaps).go();
        peer.waits(Duration::from_secs(2));
        while peer.hears_maybe().is_some() {}
        if peer.app.saw(|e| matches!(e, Event::Closed(_))) {
            break;
        }
        assert!(peer.now <= began + t5 + Duration::from_secs(2), "T5 has expired");
    }
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Timeout)));
}

#[test]
fn a_peer_that_keeps_its_window_closed_while_the_association_ends_is_aborted() {
    let t5 = 5 * RtoConfig::default().max;
    for shut_by_peer in [false, true] {
        let mut peer = Peer::established(18);
        peer.app_sends(SendInfo::default(), vec![0; 100]);
        peer.expects("DATA 0");
        peer.sends().sack_with(0, 0, &[]).go();
        for n in 1..4 {
            peer.app_sends(SendInfo::default(), vec![n; 100]);
        }
        match shut_by_peer {
            true => peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(0) }.write(out)).go(),
            false => peer.app_shuts_down(),
        }
        // The peer takes the first probe, after some time, and then answers each, but has no room.
        let (mut acknowledged, mut progress_at, mut probes) = (0, peer.now, 0);
        while !peer.app.saw(|e| matches!(e, Event::Closed(_))) {
            peer.waits(Duration::from_millis(500));
            let packet = peer.hears_maybe();
            if packet.is_some_and(|packet| has(&packet, Data::KIND)) {
                probes += 1;
                if acknowledged == 0 && probes == 3 {
                    (acknowledged, progress_at) = (1, peer.now);
                }
                peer.sends().sack_with(acknowledged, 0, &[]).go();
            }
            assert!(peer.now <= progress_at + t5 + Duration::from_secs(1), "T5 has expired");
        }
        assert!(peer.now >= progress_at + t5, "{probes} probes");
        assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Timeout)));
    }
}

#[test]
fn data_after_shutdown_is_answered_at_once_with_shutdown() {
    let mut peer = Peer::established(7);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    for n in 0..12 {
        // RFC 9260 §9.2: immediately, and with T2 started anew.
        peer.waits(Duration::from_millis(900));
        peer.sends().data(n).go();
        peer.expects(&format!("SHUTDOWN {n}, SACK {n}"));
    }
    peer.sends().data(13).go();
    peer.expects("SHUTDOWN 11, SACK 11 gap 2-2");
    peer.sends().data(12).go();
    peer.expects("SHUTDOWN 13, SACK 13");
    peer.sends().data(12).go();
    peer.expects("SHUTDOWN 13, SACK 13 dup 12");
    assert_eq!(peer.app.messages.len(), 14);
    peer.sends().chunk(|_, out| ShutdownAck.write(out)).go();
    peer.expects("SHUTDOWN COMPLETE");
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Shutdown)));
}

#[test]
fn a_peer_that_sends_for_long_after_our_shutdown_is_not_given_up() {
    let config = AssociationConfig { heartbeat_interval: None, ..AssociationConfig::default() };
    let mut peer = Peer::established_with(8, config);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    for n in 0..40 {
        // Longer than T2, which expires and is retried; the next data clears the count.
        peer.waits(Duration::from_millis(1500));
        peer.expects(&if n == 0 { "SHUTDOWN -1".to_owned() } else { format!("SHUTDOWN {}", n - 1) });
        peer.sends().data(n).go();
        peer.expects(&format!("SHUTDOWN {n}, SACK {n}"));
    }
    assert_eq!(peer.endpoint.association_count(), 1);
}

#[test]
fn a_shutdown_acknowledges_as_a_sack_does() {
    let mut peer = Peer::established(9);
    peer.app_sends(SendInfo::default(), &b"hello"[..]);
    peer.expects("DATA 0");
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    assert!(peer.app.saw(|e| *e == Event::PeerShutdown));
    peer.expects_nothing();
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(0) }.write(out)).go();
    peer.expects("SHUTDOWN ACK");
    peer.sends().chunk(|_, out| ShutdownComplete { reflected_tag: false }.write(out)).go();
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Shutdown)));
    peer.expects_nothing();
}

#[test]
fn a_shutdown_that_acknowledges_what_was_not_sent_ends_the_association() {
    let mut peer = Peer::established(21);
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(0) }.write(out)).go();
    peer.expects("ABORT");
    assert!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::ProtocolViolation { .. }))));
}

#[test]
fn the_user_learns_of_a_shutdown_that_meets_its_own() {
    let mut peer = Peer::established(22);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    peer.expects("SHUTDOWN ACK");
    assert!(peer.app.saw(|e| *e == Event::PeerShutdown));
}

#[test]
fn a_shutdown_complete_before_the_acknowledgement_is_discarded() {
    let mut peer = Peer::established(23);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.sends().chunk(|_, out| ShutdownComplete { reflected_tag: false }.write(out)).go();
    assert_eq!(peer.endpoint.association_count(), 1);
}

#[test]
fn a_shutdown_ack_is_repeated_until_it_is_answered() {
    let mut peer = Peer::established(24);
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    for wait in [0, 1, 2, 4] {
        peer.waits(Duration::from_secs(wait));
        peer.expects("SHUTDOWN ACK");
        peer.expects_nothing();
    }
}

#[test]
fn a_shutdown_that_is_wanted_before_the_association_is_up_follows_its_data() {
    for is_echoed in [false, true] {
        let mut peer = Peer::connecting(25, lab::script::plain());
        peer.takes_init();
        if !is_echoed {
            peer.app_sends(SendInfo::default(), &b"x"[..]);
            peer.app_shuts_down();
        }
        peer.sends().init_ack(b"cookie").go();
        if is_echoed {
            peer.app_shuts_down();
        }
        while peer.hears_maybe().is_some() {}
        peer.sends().chunk(|_, out| CookieAck.write(out)).go();
        if !is_echoed {
            peer.sends().sack(0, &[]).go();
        }
        let packets = std::iter::from_fn(|| peer.hears_maybe());
        assert_eq!(packets.filter(|packet| has(packet, Shutdown::KIND)).count(), 1, "{is_echoed}");
    }
}

#[test]
fn an_abort_with_a_format_error_is_discarded() {
    // RFC 9260 §3.3.7: a cause of a length less than that of its header.
    let mut peer = Peer::established(26);
    peer.sends().chunk(|_, out| out.extend_from_slice(&[Abort::KIND, 0, 0, 8, 0, 12, 0, 3])).go();
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.sends().chunk(|_, out| out.extend_from_slice(&[Abort::KIND, 0, 0, 8, 0, 12, 0, 4])).go();
    assert_eq!(peer.endpoint.association_count(), 0);
}

#[test]
fn only_the_first_shutdown_of_a_packet_acknowledges() {
    let mut peer = Peer::established(5);
    peer.app_sends(SendInfo::default(), vec![0; 100]);
    peer.expects("DATA 0");
    let shutdown =
        |number| move |p: &Peer, out: &mut Vec<u8>| Shutdown { cum_tsn: p.endpoint_tsn(number) }.write(out);
    peer.sends().chunk(shutdown(-1)).chunk(shutdown(0)).go();
    peer.expects_nothing();
    peer.sends().chunk(shutdown(0)).go();
    peer.expects("SHUTDOWN ACK");
}

#[test]
fn a_shutdown_says_nothing_of_the_window() {
    let mut peer = Peer::established(6);
    peer.app_sends(SendInfo::default(), vec![0; 100]);
    peer.expects("DATA 0");
    peer.sends().sack_with(0, 0, &[]).go();
    peer.app_sends(SendInfo::default(), vec![1; 100]);
    peer.waits(Duration::from_millis(1000));
    peer.expects("DATA 1");
    // The peer has no room for the probe, and then shuts the association down.
    peer.sends().sack_with(0, 0, &[]).go();
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(0) }.write(out)).go();
    peer.expects_nothing();
}

#[test]
fn no_message_is_taken_after_the_shutdown_of_the_peer() {
    // RFC 9260 §9.2.
    let mut peer = Peer::established(17);
    peer.app_sends(SendInfo::default(), &b"hello"[..]);
    peer.expects("DATA 0");
    for acknowledged in [-1, 0] {
        peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(acknowledged) }.write(out)).go();
        let sent = peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 4, [b"late"[..].into()]);
        assert_eq!(sent, Err(SendError::PeerShutdown), "{acknowledged}");
    }
    peer.expects("SHUTDOWN ACK");
    peer.expects_nothing();
}

#[test]
fn the_rest_of_what_was_accepted_is_sent_after_the_shutdown_of_the_peer() {
    let mut peer = Peer::established(18);
    let set_has_upper_data = |peer: &mut Peer, has_upper_data| {
        peer.endpoint.set_has_upper_data(peer.now, peer.id, has_upper_data, &mut peer.app);
    };
    set_has_upper_data(&mut peer, true);
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    peer.expects_nothing();
    peer.app_sends(SendInfo::default(), &b"rest"[..]);
    peer.expects("DATA 0");
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(0) }.write(out)).go();
    peer.expects_nothing();
    set_has_upper_data(&mut peer, false);
    let sent = peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 4, [b"late"[..].into()]);
    assert_eq!(sent, Err(SendError::PeerShutdown));
    peer.collect_output();
    peer.expects("SHUTDOWN ACK");
}

#[test]
fn an_init_meets_an_end_that_is_not_complete() {
    // RFC 9260 §9.2: the SHUTDOWN COMPLETE was lost and the peer connects again.
    let mut peer = Peer::established(10);
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    peer.expects("SHUTDOWN ACK");
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    peer.expects("SHUTDOWN ACK");
    assert_eq!(peer.endpoint.association_count(), 1);
}

#[test]
fn a_connect_meets_a_peer_that_is_still_ending_the_last_one() {
    // RFC 9260 §8.5.1 E: SHUTDOWN ACK in COOKIE-WAIT is out of the blue.
    let mut peer = Peer::connecting(11, AssociationConfig::default());
    peer.takes_init();
    peer.sends().tag(4711).chunk(|_, out| ShutdownAck.write(out)).go();
    let answer = peer.hears();
    assert_eq!(kinds(&answer), [ShutdownComplete::KIND]);
    assert_eq!((answer[13] & 1, &answer[4..8]), (1, &4711u32.to_be_bytes()[..]));
    peer.waits(Duration::from_secs(1));
    peer.expects("INIT");
}

#[test]
fn an_abort_where_only_the_last_packet_is_missing_is_the_orderly_end() {
    let mut peer = Peer::established(14);
    peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
    peer.expects("SHUTDOWN ACK");
    // The peer has forgotten the association and answers the next SHUTDOWN ACK or anything else out of the blue.
    let tag = peer.tag;
    peer.sends()
        .tag(tag)
        .chunk(|_, out| Abort { reflected_tag: true, causes: Default::default() }.write(out))
        .go();
    assert!(peer.app.saw(|e| *e == Event::Closed(CloseReason::Shutdown)));
}

#[test]
fn nothing_but_t2_asks_while_the_association_ends() {
    let config = AssociationConfig {
        heartbeat_interval: Some(Duration::from_millis(100)),
        ..AssociationConfig::default()
    };
    let mut peer = Peer::established_with(15, config);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.waits(Duration::from_millis(2900));
    peer.expects("SHUTDOWN -1");
    peer.expects_nothing();
}

#[test]
fn stray_packets_of_the_end_change_nothing() {
    let mut peer = Peer::established(12);
    peer.sends().chunk(|_, out| ShutdownComplete { reflected_tag: false }.write(out)).go();
    peer.sends().chunk(|_, out| ShutdownAck.write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, b"still here").go();
    assert_eq!(peer.app.contents(), [b"still here"]);
}

#[test]
fn a_shutdown_before_the_association_is_up_comes_after_the_data() {
    let mut hosts = TwoHosts::new(13);
    hosts.listen(AssociationConfig::default());
    let a = hosts.connect(A, (lab::PORT_A, lab::PORT_B), AssociationConfig::default());
    hosts.send(A, a, SendInfo::default(), &b"and gone"[..]);
    hosts.shutdown(A, a);
    hosts.run_until("both are closed", SOON, both_closed);
    assert_eq!(hosts.app(B).contents(), [b"and gone"]);
}
