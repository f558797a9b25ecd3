//! Records of unknown length: sent in parts (`more`) and delivered in parts (RFC 9260 §6.9).

use std::time::Duration;

use sctp::{AssociationConfig, SendError, SendInfo};
use sctp_wire::cause::Causes;
use sctp_wire::chunk::{Abort, CookieEcho, DataFlags, Init, Shutdown};
use sctp_wire::parameter::{Parameters, PrivateExtension};

use lab::script::Peer;
use lab::{A, B, Fate, TwoHosts};

const SOON: Duration = Duration::from_secs(60);

fn part(more: bool) -> SendInfo {
    SendInfo { more, ..SendInfo::default() }
}

#[test]
fn parts_of_a_record_are_one_message() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish();
    for (text, more) in [("one ", true), ("record", false), ("another", false)] {
        hosts.send(A, a, part(more), text);
    }
    hosts.run_until("both arrived", SOON, |hosts| hosts.node(B).app.records().len() == 2);
    assert_eq!(hosts.app(B).records(), [&b"one record"[..], b"another"]);
    assert_eq!(hosts.app(B).messages.last().unwrap().info.ssn, 1);
}

#[test]
fn the_parts_of_an_open_record_are_not_held_back() {
    let mut hosts = TwoHosts::new(7);
    let (a, _) = hosts.establish();
    for text in ["a line\n", "and another\n"] {
        hosts.send(A, a, part(true), text);
        hosts.run_for(Duration::from_millis(100));
        assert_eq!(hosts.app(B).messages.last().unwrap().bytes, text.as_bytes());
    }
    assert!(hosts.app(B).messages.iter().all(|m| m.info.more));
}

#[test]
fn a_record_in_parts_goes_on_across_packets_and_time() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish();
    let mut whole = Vec::new();
    for n in 0..300u32 {
        let bytes = vec![n as u8; 1 + n as usize * 13 % 3000];
        whole.extend_from_slice(&bytes);
        hosts.send(A, a, part(n < 299), bytes);
        if n % 10 == 0 {
            hosts.run_for(Duration::from_millis(5));
        }
    }
    hosts.run_until("it arrived", SOON, |hosts| {
        hosts.node(B).app.messages.last().is_some_and(|m| !m.info.more)
    });
    assert_eq!(hosts.app(B).contents().concat(), whole);
}

#[test]
fn an_endless_record_flows_through_small_buffers() {
    let config = AssociationConfig {
        receive_buffer_bytes: 30_000,
        send_buffer_bytes: 30_000,
        partial_delivery_bytes: 10_000,
        ..AssociationConfig::default()
    };
    for loss_every in [0, 11] {
        let mut hosts = TwoHosts::new(3);
        let (a, b) = hosts.establish_with(config.clone(), config.clone());
        let mut number = 0;
        hosts.tap(A, move |_| {
            number += 1;
            if loss_every > 0 && number % loss_every == 0 { Fate::Drop } else { Fate::Pass }
        });
        let bytes: Vec<u8> = (0..500_000).map(|n| (n / 7) as u8).collect();
        hosts.send_all(A, a, bytes.chunks(777).map(|c| (part(true), c.to_vec().into())));
        hosts.run_until("all parts were admitted", SOON, |hosts| hosts.all_admitted(A));
        hosts.run_for(Duration::from_secs(10));
        hosts.shutdown(A, a);
        hosts.run_until("B has heard the end", SOON, |hosts| hosts.closed(B).is_some());
        assert!(hosts.app(B).contents().concat() == bytes, "losing every {loss_every}th packet");
        assert!(hosts.app(B).messages.iter().all(|m| m.info.more && m.info.ssn == 0 && m.id == b));
        assert!(hosts.app(B).messages.len() > 10);
    }
}

#[test]
fn nothing_comes_between_the_parts_of_a_record() {
    let mut hosts = TwoHosts::new(4);
    let (a, _) = hosts.establish();
    hosts.send(A, a, part(true), "open");
    let now = hosts.now();
    let endpoint = &mut hosts.node_mut(A).endpoint;
    let other = SendInfo { stream: 1, ..SendInfo::default() };
    assert_eq!(endpoint.send(now, a, &other, 1, [vec![1].into()]), Err(SendError::RecordOpen { stream: 0 }));
    let unordered = SendInfo { unordered: true, ..SendInfo::default() };
    assert_eq!(
        endpoint.send(now, a, &unordered, 1, [vec![1].into()]),
        Err(SendError::RecordOpen { stream: 0 })
    );
    hosts.send(A, a, part(false), "ed");
    hosts.send(A, a, other, "next");
    hosts.run_for(SOON);
    assert_eq!(hosts.app(B).records(), [&b"opened"[..], b"next"]);
}

#[test]
fn a_long_message_begins_with_a_part_of_the_set_size_and_goes_on_in_eighths_of_it() {
    let mut hosts = TwoHosts::new(5);
    let config = AssociationConfig { partial_delivery_bytes: 50_000, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(AssociationConfig::default(), config);
    hosts.send(A, a, SendInfo { stream: 3, ppid: 9, ..SendInfo::default() }, vec![7; 400_000]);
    hosts.run_until("it arrived", SOON, |hosts| {
        hosts.node(B).app.messages.last().is_some_and(|m| !m.info.more)
    });
    let messages = &hosts.app(B).messages;
    let (parts, last) = messages.split_at(messages.len() - 1);
    assert!(last[0].bytes.len() < 10_000 && parts.iter().all(|m| m.info.more));
    assert!((50_000..55_000).contains(&parts[0].bytes.len()));
    assert!(parts[1..].iter().all(|m| (6_250..10_000).contains(&m.bytes.len())));
    assert!(messages.iter().all(|m| (m.info.stream, m.info.ssn, m.info.ppid) == (3, 0, 9)));
    assert_eq!(messages.iter().map(|m| m.bytes.len()).sum::<usize>(), 400_000);
}

#[test]
fn unordered_records_of_a_stream_do_not_mix() {
    // The first record is being delivered in parts when a second one of the same stream is complete.
    let config = AssociationConfig { partial_delivery_bytes: 2000, ..AssociationConfig::default() };
    let mut hosts = TwoHosts::new(6);
    let (a, _) = hosts.establish_with(AssociationConfig::default(), config);
    let unordered = SendInfo { unordered: true, ..SendInfo::default() };
    let mut number = 0;
    hosts.tap(A, move |_| {
        number += 1;
        if number == 7 { Fate::Drop } else { Fate::Pass }
    });
    hosts.send(A, a, unordered, vec![1; 20_000]);
    hosts.send(A, a, unordered, vec![2; 100]);
    hosts.run_until("both arrived", SOON, |hosts| {
        hosts.node(B).app.messages.iter().filter(|m| !m.info.more).count() == 2
    });
    let all = hosts.app(B).contents().concat();
    assert_eq!(all, [vec![1; 20_000], vec![2; 100]].concat(), "{:?}", hosts.log());
}

const BEGINNING: DataFlags = DataFlags { ending: false, ..DataFlags::WHOLE };
const MIDDLE: DataFlags = DataFlags { beginning: false, ..BEGINNING };
const ENDING: DataFlags = DataFlags { beginning: false, ..DataFlags::WHOLE };

/// The way in which a peer ends the association.
const ENDS: [fn(&mut Peer); 2] = [
    |peer| {
        peer.sends().chunk(|_, out| Abort { reflected_tag: false, causes: Causes::new(&[]) }.write(out)).go()
    },
    |peer| {
        let cum_tsn = peer.endpoint_tsn(-1);
        peer.sends().chunk(|_, out| Shutdown { cum_tsn }.write(out)).go();
    },
];

#[test]
fn a_message_without_its_end_is_not_delivered_when_the_peer_ends_the_association() {
    for (seed, end) in (20..).zip(ENDS) {
        let mut peer = Peer::established(seed);
        peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, b"whole").go();
        peer.sends().data_with(BEGINNING, 1, 0, 1, b"the beginning of a message, ").go();
        peer.sends().data_with(MIDDLE, 2, 0, 1, b"and the middle").go();
        end(&mut peer);
        assert_eq!(peer.app.contents(), [b"whole"], "nothing of the message that has no end");
    }
}

/// Returns a peer that offers prompt parts, as Swiftwater endpoints do.
fn with_prompt_parts(seed: u8) -> Peer {
    let mut parameters = Vec::new();
    PrivateExtension::PROMPT_PARTS.write(&mut parameters);
    let mut peer = Peer::new(seed, AssociationConfig::default());
    let (mut bytes, init) = (Vec::new(), Init { parameters: Parameters::new(&parameters), ..peer.init() });
    init.write(&mut bytes);
    peer.sends().tag(0).chunk(|_, out| out.extend_from_slice(&bytes)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer
}

/// Peers set the I bit on every chunk while they close (RFC 7053 §4), as usrsctp does.
#[test]
fn the_i_bit_of_other_peers_cuts_no_message() {
    let mut peer = Peer::established(30);
    let at_once = |flags: DataFlags| DataFlags { immediate: true, ..flags };
    peer.sends().data_with(at_once(BEGINNING), 0, 0, 0, b"one message ").go();
    peer.sends().data_with(at_once(MIDDLE), 1, 0, 0, b"of a peer ").go();
    assert!(peer.app.messages.is_empty());
    peer.sends().data_with(at_once(ENDING), 2, 0, 0, b"that closes").go();
    assert_eq!(peer.app.contents(), [b"one message of a peer that closes"]);
}

#[test]
fn the_rest_of_a_message_that_is_delivered_in_parts_is_delivered_when_the_peer_ends_the_association() {
    for (seed, end) in (22..).zip(ENDS) {
        let mut peer = with_prompt_parts(seed);
        let at_once = DataFlags { immediate: true, ..BEGINNING };
        peer.sends().data_with(at_once, 0, 0, 0, b"one part").go();
        peer.sends().data_with(MIDDLE, 1, 0, 0, b", another").go();
        end(&mut peer);
        assert_eq!(peer.app.contents(), [&b"one part"[..], b", another"]);
        assert!(peer.app.messages.iter().all(|message| message.info.more), "none of them is the end");
    }
}
