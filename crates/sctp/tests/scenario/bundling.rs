//! Several chunks in a packet (RFC 9260 §6.10) and packets in a batch.

use std::time::Duration;

use bytes::Bytes;
use sctp::{Admission, AssociationConfig, AssociationId, PathHints, Scope, SendInfo, TransmitBuffer};
use sctp_wire::chunk::{CookieAck, Data, HeartbeatAck, Pad, Sack};

use lab::packets::{data_of, kinds};
use lab::script::Peer;
use lab::{A, App, B, Fate, PORT_B, TwoHosts};

#[test]
fn small_messages_share_a_packet() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish();
    let before = hosts.sent.len();
    // The first leaves at once, the rest wait for each other.
    hosts.send_all(A, a, (0..61).map(|n| (SendInfo::default(), vec![n; 8].into())));
    hosts.run_for(Duration::from_secs(1));
    let packets: Vec<_> = hosts.sent[before..].iter().filter(|s| s.by == A).collect();
    let counts: Vec<_> = packets.iter().map(|s| data_of(&s.packet).len()).collect();
    // 1472 - 12 bytes take 60 chunks of 24.
    assert_eq!(counts, [60, 1]);
    assert_eq!(hosts.app(B).messages.len(), 61);
}

#[test]
fn an_acknowledgement_rides_on_data() {
    let mut peer = Peer::established(2);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    for n in 1..8 {
        peer.sends().data(n).go();
        let _ = peer.hears();
    }
    // From here on the peer delays SACKs.
    peer.sends().data(8).go();
    peer.expects_nothing();
    peer.app_sends(SendInfo::default(), &b"hello"[..]);
    peer.expects("SACK 8, DATA 0");
    peer.waits(Duration::from_millis(300));
    peer.expects_nothing();
}

#[test]
fn the_cookie_ack_comes_first() {
    let mut hosts = TwoHosts::new(3);
    hosts.establish();
    let ack = hosts.sent.iter().find(|s| kinds(&s.packet).contains(&CookieAck::KIND)).unwrap();
    assert_eq!(kinds(&ack.packet)[0], CookieAck::KIND);
}

#[test]
fn waiting_data_leaves_when_the_window_opens() {
    let mut peer = Peer::established(4);
    assert!(
        matches!(peer.endpoint.admit(peer.id, &SendInfo::default(), 10), Admission::Granted(permit) if permit.is_idle())
    );
    peer.app_sends(SendInfo::default(), vec![0; 10]);
    peer.expects("DATA 0");
    assert!(
        matches!(peer.endpoint.admit(peer.id, &SendInfo::default(), 10), Admission::Granted(permit) if !permit.is_idle())
    );
}

#[test]
fn only_full_batches_are_due_while_something_is_outstanding() {
    let mut peer = Peer::established(5);
    let mut buffer = TransmitBuffer::new();
    peer.app_sends(SendInfo::default(), vec![0; 10]);
    peer.expects("DATA 0");
    let info = SendInfo::default();
    peer.endpoint.send(peer.now, peer.id, &info, 10, [vec![1; 10].into()]).unwrap();
    assert!(!peer.endpoint.transmit_due());
    assert!(peer.endpoint.transmit_waits());
    assert_eq!(peer.endpoint.poll_transmit(peer.now, Scope::Due, &mut buffer), None);
    // The acknowledgement of the outstanding data releases it.
    peer.sends().sack(0, &[]).go();
    peer.expects("DATA 1");
    assert!(!peer.endpoint.transmit_waits());
}

/// A peer that has closed its window, and for which a message waits.
fn without_window(seed: u8) -> Peer {
    let mut peer = Peer::established(seed);
    peer.app_sends(SendInfo::default(), vec![0; 10]);
    peer.expects("DATA 0");
    peer.sends().sack_with(0, 0, &[]).go();
    peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 10, [vec![1; 10].into()]).unwrap();
    assert!(!peer.endpoint.transmit_waits(), "only an event releases it");
    peer.collect_output();
    peer.expects_nothing();
    peer
}

#[test]
fn a_flush_does_not_look_at_data_that_waits_for_a_window() {
    let mut peer = without_window(9);
    // An acknowledgement that leaves the window closed is such an event; the next flush looks once.
    peer.sends().sack_with(0, 0, &[]).go();
    peer.expects_nothing();
    assert!(!peer.endpoint.transmit_waits());
    // So is a message.
    let info = SendInfo::default();
    peer.endpoint.send(peer.now, peer.id, &info, 10, [vec![2; 10].into()]).unwrap();
    assert!(peer.endpoint.transmit_waits());
    peer.collect_output();
    peer.expects_nothing();
    assert!(!peer.endpoint.transmit_waits());
    peer.sends().sack_with(0, 1000, &[]).go();
    peer.expects("DATA 1, DATA 2");
}

#[test]
fn data_that_waits_for_a_window_leaves_with_the_probe() {
    let mut peer = without_window(10);
    peer.waits(Duration::from_secs(3));
    peer.expects("DATA 1");
    assert!(!peer.endpoint.transmit_waits());
}

#[test]
fn an_association_that_ends_leaves_the_others_their_places_in_the_queue() {
    const ASSOCIATIONS: u16 = 3;
    for ended in 0..ASSOCIATIONS {
        let mut hosts = TwoHosts::new(11);
        hosts.listen(AssociationConfig::default());
        let ids: Vec<_> = (0..ASSOCIATIONS)
            .map(|i| hosts.connect(A, (6000 + i, PORT_B), AssociationConfig::default()))
            .collect();
        hosts.run_for(Duration::from_secs(1));
        let (now, info) = (hosts.now(), SendInfo::default());
        let endpoint = &mut hosts.node_mut(A).endpoint;
        let mut buffer = TransmitBuffer::new();
        for id in &ids {
            // The first one is outstanding, and the second one waits for more to bundle.
            endpoint.send(now, *id, &info, 10, [vec![0; 10].into()]).unwrap();
            assert!(endpoint.poll_transmit(now, Scope::Due, &mut buffer).is_some());
            endpoint.send(now, *id, &info, 10, [vec![1; 10].into()]).unwrap();
            assert!(endpoint.poll_transmit(now, Scope::Due, &mut buffer).is_none());
        }
        endpoint.abort(now, ids[usize::from(ended)], b"", &mut App::default());
        assert!(endpoint.poll_transmit(now, Scope::Due, &mut buffer).is_some(), "the ABORT");
        for _ in 1..ASSOCIATIONS {
            assert!(endpoint.poll_transmit(now, Scope::All, &mut buffer).is_some());
        }
        assert!(endpoint.poll_transmit(now, Scope::All, &mut buffer).is_none());
        assert!(!endpoint.transmit_waits());
    }
}

#[test]
fn a_full_packet_is_due_beside_a_single_outstanding_one() {
    let mut peer = Peer::established(6);
    peer.app_sends(SendInfo::default(), vec![0; 10]);
    peer.expects("DATA 0");
    let send = |peer: &mut Peer| {
        let info = SendInfo::default();
        peer.endpoint.send(peer.now, peer.id, &info, 1000, [vec![1; 1000].into()]).unwrap();
    };
    // The peer delays the SACK of a single packet: less than a packet of data waits for it, more does not.
    send(&mut peer);
    assert!(!peer.endpoint.transmit_due());
    send(&mut peer);
    assert!(peer.endpoint.transmit_due());
}

#[test]
fn packets_of_a_batch_have_one_length() {
    let mut hosts = TwoHosts::new(6);
    let (a, _) = hosts.establish();
    // Sizes that leave odd remainders in their packets.
    hosts.send_all(
        A,
        a,
        (0..3000u32).map(|n| (SendInfo::default(), vec![0; 1 + n as usize * 7 % 900].into())),
    );
    hosts.run_until("all arrived", Duration::from_secs(20), |hosts| hosts.node(B).app.messages.len() == 3000);
    // `TwoHosts` cuts batches at the segment length, so a packet of another length would not have parsed. Padding filled
    // packets whose rest was too short for a chunk.
    let padded = hosts.sent.iter().filter(|s| kinds(&s.packet).contains(&Pad::KIND)).count();
    assert!(padded > 0);
    for sent in hosts.sent.iter().filter(|s| s.by == A) {
        let kinds = kinds(&sent.packet);
        assert!(kinds.iter().rev().skip(1).all(|k| *k != Pad::KIND), "padding ends a packet: {kinds:?}");
        assert!(kinds.iter().skip(1).all(|k| *k != Sack::KIND || !kinds.contains(&Data::KIND)));
    }
}

/// Sends messages of odd lengths to a peer that is not known to be Swiftwater; the first host's packets meet `fate`.
fn to_another_implementation(fate: fn(&Bytes) -> Fate) -> (TwoHosts, AssociationId) {
    let mut hosts = TwoHosts::new(7);
    // The core probes packets that are longer than the first.
    for node in [A, B] {
        let hints = hosts.app(node).hints;
        hosts.app(node).hints = PathHints { mtu_bytes: 1472, leaves_host: true, ..hints };
    }
    let other = AssociationConfig { prompt_parts: false, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(AssociationConfig::default(), other);
    hosts.tap(A, fate);
    for round in 1..=2 {
        hosts.send_all(
            A,
            a,
            (0..3000_u32).map(|n| (SendInfo::default(), vec![0; 1 + n as usize * 7 % 900].into())),
        );
        let all = round * 3000;
        hosts.run_until("all arrived", Duration::from_secs(20), |hosts| {
            hosts.node(B).app.messages.len() == all
        });
    }
    (hosts, a)
}

fn has_padded_data(packet: &Bytes) -> bool {
    let kinds = kinds(packet);
    kinds.contains(&Pad::KIND) && kinds.contains(&Data::KIND)
}

#[test]
fn data_is_padded_once_a_peer_has_answered_a_padded_probe() {
    let (hosts, _) = to_another_implementation(|_| Fate::Pass);
    let answered =
        hosts.sent.iter().position(|s| s.by == B && kinds(&s.packet).contains(&HeartbeatAck::KIND));
    let padded = hosts.sent.iter().position(|s| s.by == A && has_padded_data(&s.packet));
    assert!(answered.is_some() && padded > answered, "{answered:?} {padded:?}");
}

/// Some peers discard a packet with an unknown chunk.
#[test]
fn a_peer_that_discards_packets_with_pad_loses_no_data() {
    let (hosts, a) = to_another_implementation(|packet| match kinds(packet).contains(&Pad::KIND) {
        true => Fate::Drop,
        false => Fate::Pass,
    });
    assert_eq!(hosts.statistics(A, a).data_chunks_retransmitted, 0);
    assert!(!hosts.sent.iter().any(|s| has_padded_data(&s.packet)));
}
