//! Order within a stream, no order between streams or for unordered messages (RFC 9260 §6.5, §6.6).

use std::time::Duration;

use sctp::{AssociationConfig, SendError, SendInfo};
use sctp_wire::chunk::DataFlags;

use lab::packets::data_of;
use lab::script::Peer;
use lab::{A, B, Fate, TwoHosts};

const SOON: Duration = Duration::from_secs(10);

fn on(stream: u16) -> SendInfo {
    SendInfo { stream, ..SendInfo::default() }
}

/// Drops the first transmission of the message `payload`.
fn lose_once(payload: &'static [u8]) -> impl FnMut(&bytes::Bytes) -> Fate + Send + 'static {
    let mut lost = false;
    move |packet| {
        if !lost && data_of(packet).iter().any(|d| d.payload == payload) {
            lost = true;
            return Fate::Drop;
        }
        Fate::Pass
    }
}

#[test]
fn a_gap_in_one_stream_does_not_hold_up_another() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish();
    hosts.tap(A, lose_once(b"first of 0"));
    for (stream, message) in [(0, "first of 0"), (0, "second of 0"), (1, "first of 1"), (1, "second of 1")] {
        hosts.send(A, a, on(stream), message);
        hosts.run_for(Duration::from_millis(1));
    }
    hosts.run_until("all arrived", SOON, |hosts| hosts.node(B).app.messages.len() == 4);
    let text: Vec<_> = hosts.app(B).contents().into_iter().map(|m| String::from_utf8(m).unwrap()).collect();
    assert_eq!(text, ["first of 1", "second of 1", "first of 0", "second of 0"]);
}

#[test]
fn unordered_messages_pass_a_gap() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish();
    hosts.tap(A, lose_once(b"one"));
    for message in ["one", "two", "three"] {
        hosts.send(A, a, SendInfo { unordered: true, ..on(3) }, message);
        hosts.run_for(Duration::from_millis(1));
    }
    hosts.run_until("all arrived", SOON, |hosts| hosts.node(B).app.messages.len() == 3);
    assert_eq!(hosts.app(B).contents(), [&b"two"[..], b"three", b"one"]);
    assert!(hosts.app(B).messages.iter().all(|m| m.info.unordered && m.info.stream == 3));
}

#[test]
fn ordered_and_unordered_messages_of_a_stream_do_not_touch_each_other() {
    let mut peer = Peer::established(3);
    let unordered = DataFlags { unordered: true, ..DataFlags::WHOLE };
    peer.sends().data_with(DataFlags::WHOLE, 1, 0, 1, b"second").go();
    // The stream sequence number of an unordered message has no meaning.
    peer.sends().data_with(unordered, 2, 0, 0, b"unordered").go();
    peer.sends().data_with(unordered, 3, 0, 9, b"unordered too").go();
    assert_eq!(peer.app.contents(), [&b"unordered"[..], b"unordered too"]);
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, b"first").go();
    assert_eq!(peer.app.contents()[2..], [&b"first"[..], b"second"]);
}

#[test]
fn stream_sequence_numbers_wrap() {
    let mut hosts = TwoHosts::new(4);
    let config = AssociationConfig { send_buffer_bytes: 16 << 20, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(config.clone(), config);
    let count = 70_000u32;
    hosts.send_all(A, a, (0..count).map(|n| (on(0), n.to_be_bytes().to_vec().into())));
    hosts.run_until("all arrived", Duration::from_secs(60), |hosts| {
        hosts.node(B).app.messages.len() == count as usize
    });
    assert!((0..count).zip(&hosts.app(B).messages).all(|(n, m)| m.bytes == n.to_be_bytes()));
    assert_eq!(hosts.app(B).messages.last().unwrap().info.ssn, (count - 1) as u16);
}

#[test]
fn many_streams_carry_their_own_numbers() {
    let mut hosts = TwoHosts::new(5);
    let config = AssociationConfig { streams_out: 2000, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(config.clone(), config);
    let sent: Vec<(u16, u16)> = (0..3).flat_map(|ssn| (0..2000).map(move |stream| (stream, ssn))).collect();
    hosts.send_all(A, a, sent.iter().map(|&(stream, _)| (on(stream), vec![1].into())));
    hosts.run_until("all arrived", SOON, |hosts| hosts.node(B).app.messages.len() == sent.len());
    let got: Vec<_> = hosts.app(B).messages.iter().map(|m| (m.info.stream, m.info.ssn)).collect();
    assert_eq!(got, sent);
}

#[test]
fn the_smaller_number_of_streams_wins_and_others_are_refused() {
    let mut hosts = TwoHosts::new(6);
    let wide = AssociationConfig { streams_out: 100, streams_in_max: 7, ..AssociationConfig::default() };
    let narrow = AssociationConfig { streams_out: 20, streams_in_max: 5, ..AssociationConfig::default() };
    let (a, b) = hosts.establish_with(wide, narrow);
    let streams = |hosts: &TwoHosts, node, id| {
        let s = hosts.statistics(node, id);
        (s.streams_out, s.streams_in)
    };
    assert_eq!(streams(&hosts, A, a), (5, 7));
    assert_eq!(streams(&hosts, B, b), (7, 5));
    let now = hosts.now();
    let refused = hosts.node_mut(A).endpoint.send(now, a, &on(5), 1, [vec![1].into()]);
    assert_eq!(refused, Err(SendError::NoSuchStream { stream: 5, streams: 5 }));
}

#[test]
fn data_on_a_stream_that_is_not_there_is_acknowledged_and_reported() {
    // RFC 9260 §6.5.
    let mut peer = Peer::established(7);
    peer.sends().data_with(DataFlags::WHOLE, 0, 10, 0, b"where?").go();
    peer.expects("ERROR, SACK 0");
    assert!(peer.app.messages.is_empty());
    peer.sends().data_with(DataFlags::WHOLE, 1, 9, 0, b"here").go();
    assert_eq!(peer.app.contents(), [b"here"]);
}

#[test]
fn a_missing_chunk_for_a_stream_that_is_not_there_closes_its_gap() {
    let mut peer = Peer::established(9);
    peer.sends().data_with(DataFlags::WHOLE, 1, 0, 0, b"after").go();
    peer.expects("SACK -1 gap 2-2");
    peer.sends().data_with(DataFlags::WHOLE, 0, 10, 0, b"where?").go();
    peer.expects("ERROR, SACK 1");
    peer.sends().data_with(DataFlags::WHOLE, 2, 0, 1, b"next").go();
    peer.expects("SACK 2");
    assert_eq!(peer.app.contents(), [&b"after"[..], b"next"]);
}

#[test]
fn two_messages_of_one_number_leave_nothing_behind() {
    let mut peer = Peer::established(10);
    let held = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().receive_buffered_bytes;
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 1, b"second").go();
    let waiting = held(&peer);
    for n in 1..100 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, 1, b"another second").go();
        assert_eq!(held(&peer), waiting, "what is thrown away is not held");
    }
    peer.sends().data_with(DataFlags::WHOLE, 100, 0, 0, b"first").go();
    assert_eq!(peer.app.contents(), [&b"first"[..], b"second"]);
    assert_eq!((held(&peer), peer.endpoint.statistics(peer.id).unwrap().messages_discarded), (0, 99));
}

#[test]
fn the_last_of_65535_streams_is_a_stream_like_any_other() {
    let mut hosts = TwoHosts::new(11);
    let config = AssociationConfig { streams_out: u16::MAX, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(config.clone(), config);
    let sent: Vec<(u16, u16)> =
        (0..3).flat_map(|ssn| [65_534, 0, 64, 63, 40_000].map(|stream| (stream, ssn))).collect();
    hosts.send_all(A, a, sent.iter().map(|&(stream, _)| (on(stream), vec![1].into())));
    hosts.run_until("all arrived", SOON, |hosts| hosts.node(B).app.messages.len() == sent.len());
    let got: Vec<_> = hosts.app(B).messages.iter().map(|m| (m.info.stream, m.info.ssn)).collect();
    assert_eq!(got, sent);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let mut hosts = TwoHosts::new(8);
    let config = AssociationConfig { message_bytes_max: 1000, ..AssociationConfig::default() };
    let (a, _) = hosts.establish_with(config.clone(), config);
    let now = hosts.now();
    let endpoint = &mut hosts.node_mut(A).endpoint;
    assert_eq!(endpoint.send(now, a, &on(0), 0, []), Err(SendError::Empty));
    let long = SendError::TooLong { bytes: 1001, limit_bytes: 1000 };
    assert_eq!(endpoint.send(now, a, &on(0), 1001, [vec![0; 1001].into()]), Err(long));
    assert_eq!(endpoint.send(now, a, &on(0), 1000, [vec![0; 1000].into()]), Ok(()));
}
