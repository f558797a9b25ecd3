//! Random bytes, and real packets with changes: nothing panics, and the endpoint delivers only what was
//! sent.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use sctp::{AssociationConfig, SendInfo};
use sctp_wire::chunk::{CookieEcho, HeartbeatAck, Init};
use sctp_wire::parameter::Parameters;
use sctp_wire::{Tsn, VerificationTag};

use lab::packets::{build, resealed};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, B, Fate, PORT_A, PORT_B, TwoHosts};

/// A change of a packet.
#[derive(Clone, Debug)]
enum Change {
    Set(usize, u8),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, to)| Change::Set(at, to)),
        1 => any::<usize>().prop_map(Change::Cut),
        1 => (any::<usize>(), proptest::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, b)| Change::Insert(at, b)),
        1 => (any::<usize>(), 1usize..40).prop_map(|(at, n)| Change::Remove(at, n)),
        1 => Just(Change::Repeat),
    ]
}

fn apply(packet: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    for change in changes {
        let length = bytes.len().max(1);
        match change {
            Change::Set(at, to) => {
                if let Some(byte) = bytes.get_mut(at % length) {
                    *byte = *to;
                }
            }
            Change::Cut(at) => bytes.truncate(at % length),
            Change::Insert(at, what) => {
                let at = at % length;
                bytes.splice(at.min(bytes.len())..at.min(bytes.len()), what.iter().copied());
            }
            Change::Remove(at, count) => {
                let at = at % length;
                bytes.drain(at.min(bytes.len())..(at + count).min(bytes.len()));
            }
            Change::Repeat => bytes.extend_from_within(12.min(bytes.len())..),
        }
    }
    bytes
}

/// Chunks from a grammar, so that the input passes the first few checks.
fn chunks() -> impl Strategy<Value = Vec<u8>> {
    let chunk = (
        prop_oneof![0u8..16, any::<u8>()],
        any::<u8>(),
        proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), 0u8..8, any::<u8>()], 0..48),
        -2i32..3,
    );
    proptest::collection::vec(chunk, 1..6).prop_map(|chunks| {
        let mut out = Vec::new();
        for (kind, flags, value, lie) in chunks {
            let length = (value.len() as i32 + 4 + if lie.abs() == 2 { lie } else { 0 }) as u16;
            out.extend_from_slice(&[kind, flags]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&value);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    })
}

/// Keeps an endpoint busy in every state while `packets` arrive.
fn feed(state: u8, packets: &[(Vec<u8>, bool)]) {
    let mut peer = match state {
        0 => Peer::new(1, AssociationConfig::default()),
        1 => Peer::connecting(1, AssociationConfig::default()),
        2 => {
            let mut peer = Peer::connecting(1, AssociationConfig::default());
            peer.takes_init();
            peer.sends().init_ack(b"cookie").go();
            peer
        }
        3 => Peer::connected(1),
        _ => Peer::established(1),
    };
    let up = state >= 3;
    if up {
        for n in 0..5 {
            peer.app_sends(SendInfo::default(), vec![n; 50]);
        }
    }
    if state >= 5 {
        peer.app_shuts_down();
    }
    if state >= 6 {
        peer.sends().sack(4, &[]).go();
    }
    for (chunks, tagged) in packets {
        let tag = if *tagged { peer.endpoint_tag } else { 0 };
        let packet = build(PEER_PORT, ENDPOINT_PORT, tag, |out| out.extend_from_slice(chunks));
        let from = peer.address;
        peer.sends_raw(from, &packet);
        while peer.hears_maybe().is_some() {}
        peer.waits(Duration::from_millis(700));
    }
    peer.waits(Duration::from_secs(2000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let mut peer = Peer::established(1);
        let from = peer.address;
        for bytes in packets {
            peer.sends_raw(from, &Bytes::from(bytes.clone()));
            peer.sends_raw(from, &resealed(bytes));
        }
        prop_assert!(peer.app.messages.is_empty());
        prop_assert_eq!(peer.endpoint.association_count(), 1);
    }

    #[test]
    fn any_chunks_are_survived_in_every_state(state in 0u8..7, packets in proptest::collection::vec((chunks(), any::<bool>()), 1..12)) {
        feed(state, &packets);
    }

    /// An attacker on the path changes packets without a new checksum: the endpoint drops all of them.
    #[test]
    fn damage_never_reaches_the_reader(seed in any::<u64>(), damage in proptest::collection::vec((0u32..60, proptest::collection::vec(change(), 1..4)), 1..20)) {
        let mut hosts = TwoHosts::new(seed);
        let (a, b) = hosts.establish();
        for node in [A, B] {
            let damage = damage.clone();
            let mut number = 0;
            hosts.tap(node, move |packet| {
                number += 1;
                match damage.iter().find(|(n, _)| *n == number) {
                    Some((_, changes)) => Fate::Replace(apply(packet, changes).into()),
                    None => Fate::Pass,
                }
            });
        }
        let message = |n: u32| Bytes::from(n.to_be_bytes().repeat(1 + n as usize * 17 % 700));
        for (node, id) in [(A, a), (B, b)] {
            hosts.send_all(node, id, (0..60).map(|n| (SendInfo::default(), message(n))));
        }
        hosts.run_until("all arrived", Duration::from_secs(600), |hosts| {
            [A, B].iter().all(|&n| hosts.node(n).app.messages.len() == 60)
        });
        for node in [A, B] {
            prop_assert!((0..60).zip(&hosts.app(node).messages).all(|(n, m)| m.bytes == message(n)));
        }
    }

    /// An attacker that has seen real packets, but not the tags, sends changed ones with a good checksum.
    #[test]
    fn forged_packets_without_the_tag_change_nothing(seed in any::<u64>(), forgeries in proptest::collection::vec((0usize..200, proptest::collection::vec(change(), 0..4), 1u32..), 1..30)) {
        let mut hosts = TwoHosts::new(seed);
        let (a, _) = hosts.establish();
        hosts.send_all(A, a, (0..200u32).map(|n| (SendInfo::default(), n.to_be_bytes().to_vec().into())));
        let (from_a, from_b) = (hosts.node(A).address, hosts.node(B).address);
        for (which, changes, tag_change) in forgeries {
            let sent = hosts.sent[which % hosts.sent.len()].clone();
            let mut bytes = apply(&sent.packet, &changes);
            if bytes.len() >= 12 {
                // Never the right tag, neither ours nor the peer's.
                let tag = u32::from_be_bytes(sent.packet[4..8].try_into().unwrap()) ^ tag_change;
                bytes[4..8].copy_from_slice(&tag.to_be_bytes());
            }
            let (to, from) = if sent.by == A { (B, from_a) } else { (A, from_b) };
            // A cookie is its own proof, and an INIT needs no tag: other tests replay those.
            if bytes.get(12).is_some_and(|kind| *kind != CookieEcho::KIND && *kind != Init::KIND) {
                hosts.inject(to, from, &resealed(bytes));
            }
            hosts.run_for(Duration::from_millis(3));
        }
        hosts.run_until("all arrived", Duration::from_secs(60), |hosts| hosts.node(B).app.messages.len() == 200);
        prop_assert!((0..200u32).zip(&hosts.app(B).messages).all(|(n, m)| m.bytes == n.to_be_bytes()));
        prop_assert_eq!((hosts.closed(A), hosts.closed(B)), (None, None));
    }

    /// An honest peer, and an attacker that records its packets and replays old ones.
    #[test]
    fn replayed_packets_change_nothing(seed in any::<u64>(), replays in proptest::collection::vec(any::<usize>(), 1..60)) {
        let mut hosts = TwoHosts::new(seed);
        let (a, b) = hosts.establish();
        for (node, id) in [(A, a), (B, b)] {
            hosts.send_all(node, id, (0..300u32).map(|n| (SendInfo::default(), n.to_be_bytes().repeat(100).into())));
        }
        let addresses = [hosts.node(A).address, hosts.node(B).address];
        for which in replays {
            let sent = hosts.sent[which % hosts.sent.len()].clone();
            hosts.inject(1 - sent.by, addresses[sent.by], &sent.packet);
            hosts.run_for(Duration::from_millis(3));
        }
        hosts.run_until("all arrived", Duration::from_secs(60), |hosts| {
            [A, B].iter().all(|&n| hosts.node(n).app.messages.len() == 300)
        });
        for node in [A, B] {
            prop_assert!((0..300u32).zip(&hosts.app(node).messages).all(|(n, m)| m.bytes == n.to_be_bytes().repeat(100)));
            prop_assert_eq!(hosts.closed(node), None);
        }
    }

    /// INITs of any content, answered or not, leave no state behind.
    #[test]
    fn any_init_leaves_no_state(tag in any::<u32>(), window in any::<u32>(), streams in any::<(u16, u16)>(), tsn in any::<u32>(), parameters in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut peer = Peer::new(1, AssociationConfig::default());
        peer.sends().tag(0).chunk(|_, out| {
            Init {
                initiate_tag: VerificationTag(tag),
                a_rwnd: window,
                outbound_streams: streams.0,
                inbound_streams: streams.1,
                initial_tsn: Tsn(tsn),
                parameters: Parameters::new(&parameters),
            }
            .write(out);
        }).go();
        prop_assert_eq!(peer.endpoint.association_count(), 0);
        prop_assert_eq!(peer.endpoint.poll_timeout(), None);
        if let Some(answer) = peer.hears_maybe() {
            prop_assert!(answer.len() <= 1472, "{} bytes", answer.len());
        }
        prop_assert!(peer.hears_maybe().is_none());
    }
}

#[test]
fn a_long_answer_to_a_heartbeat_is_not_believed() {
    let mut peer = Peer::established(2);
    peer.sends().chunk(|_, out| HeartbeatAck { info: &[0; 1400] }.write(out)).go();
    peer.expects_nothing();
}

#[test]
fn truncating_every_packet_of_a_run_everywhere_is_survived() {
    let mut hosts = TwoHosts::new(3);
    let (a, _) = hosts.establish();
    hosts.send(A, a, SendInfo::default(), vec![1; 3000]);
    hosts.run_for(Duration::from_secs(1));
    hosts.shutdown(A, a);
    hosts.run_for(Duration::from_secs(1));
    let sent = hosts.sent.clone();
    let mut other = TwoHosts::new(3);
    other.listen(AssociationConfig::default());
    other.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    let addresses = [other.node(A).address, other.node(B).address];
    for packet in &sent {
        for length in 0..packet.packet.len().min(120) {
            let cut = resealed(packet.packet[..length].to_vec());
            other.inject(1 - packet.by, addresses[packet.by], &cut);
        }
        other.inject(1 - packet.by, addresses[packet.by], &packet.packet);
    }
}
