//! The end of a send queue, lent to the caller that fills it.

use bytes::Bytes;
use lab::packets::data_of;
use lab::script::Peer;
use sctp::{AssociationConfig, Batch, Lifetime, PathId, SendInfo, Stage, Staged};

fn sends_alone(peer: &mut Peer, message: &'static [u8]) {
    let info = SendInfo::default();
    peer.endpoint.send(peer.now, peer.id, &info, message.len(), [Bytes::from_static(message)]).unwrap();
}

/// Returns stream, stream sequence number and first byte of each message in the packets that arrive now.
fn heard(peer: &mut Peer) -> Vec<(u16, u16, u8)> {
    peer.collect_output();
    let mut heard = Vec::new();
    while let Some((_, packet)) = peer.hears_on_maybe() {
        heard.extend(data_of(&packet).iter().map(|data| (data.stream, data.ssn, data.payload[0])));
    }
    heard
}

/// Returns a peer whose endpoint has a small message in flight and another that waits, and its stage.
fn staging(config: AssociationConfig) -> (Peer, Stage) {
    let mut peer = Peer::established_with(1, config);
    sends_alone(&mut peer, b"a");
    assert_eq!(heard(&mut peer), [(0, 0, b'a')]);
    sends_alone(&mut peer, b"b");
    let stage = peer.endpoint.lend_stage(peer.id).expect("it waits for company");
    (peer, stage)
}

#[test]
fn staged_messages_keep_their_place_and_count() {
    let (mut peer, mut stage) = staging(AssociationConfig::default());
    assert_eq!(stage.push(&SendInfo::stream(1), b"c"), Staged::Yes);
    assert_eq!(stage.push(&SendInfo::default(), b"ddd"), Staged::Yes);
    assert_eq!((stage.messages(), stage.data_bytes()), (2, 4));
    peer.endpoint.return_stage(stage);
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!((statistics.messages_sent, statistics.bytes_sent), (4, 6));
    sends_alone(&mut peer, b"e");
    let mut batch = Batch::new();
    assert!(batch.push(&SendInfo::default(), b"f"));
    assert_eq!(peer.endpoint.send_batch(peer.id, &mut batch), Ok(true));
    let expected = [(0, 1, b'b'), (1, 0, b'c'), (0, 2, b'd'), (0, 3, b'e'), (0, 4, b'f')];
    assert_eq!(heard(&mut peer), expected);
}

#[test]
fn a_stage_takes_what_its_association_would_and_nothing_else() {
    let plain = SendInfo::default();
    let config = AssociationConfig { streams_out: 2, message_bytes_max: 100, ..AssociationConfig::default() };
    let (mut peer, mut stage) = staging(config);
    for (info, bytes) in [
        (plain, 0),
        (plain, 101),
        (SendInfo::stream(2), 5),
        (SendInfo { more: true, ..plain }, 5),
        (SendInfo { context: 1, ..plain }, 5),
        (SendInfo { path: Some(PathId(0)), ..plain }, 5),
        (SendInfo { lifetime: Lifetime::from_ms(9), ..plain }, 5),
    ] {
        assert_eq!(stage.push(&info, &vec![7; bytes]), Staged::No, "{info:?} {bytes}");
    }
    assert_eq!(stage.push(&SendInfo { stream: 1, unordered: true, ppid: 3, ..plain }, b"c"), Staged::Yes);
    assert_eq!(stage.messages(), 1);
    peer.endpoint.return_stage(stage);
    assert_eq!(heard(&mut peer).len(), 2);
}

#[test]
fn a_stage_is_full_where_the_send_buffer_is() {
    let config = AssociationConfig {
        send_buffer_bytes: 1000,
        send_buffer_tuned_bytes: 1000,
        ..AssociationConfig::default()
    };
    let (mut peer, mut stage) = staging(config);
    while stage.push(&SendInfo::default(), &[7; 16]) == Staged::Yes {}
    let messages = stage.messages();
    peer.endpoint.return_stage(stage);
    let buffered_bytes = peer.endpoint.statistics(peer.id).unwrap().send_buffered_bytes;
    // Each message takes 64 bytes in addition.
    assert!((1000 - 80..=1000).contains(&buffered_bytes), "{buffered_bytes}");
    assert_eq!(heard(&mut peer).len(), 1 + messages);
}

#[test]
fn a_stage_says_when_a_packet_is_full() {
    let (mut peer, mut stage) = staging(AssociationConfig::default());
    let mut due = Staged::Yes;
    while due == Staged::Yes {
        assert!(!peer.endpoint.transmit_due());
        due = stage.push(&SendInfo::default(), &[7; 48]);
    }
    assert_eq!(due, Staged::Due);
    peer.endpoint.return_stage(stage);
    assert!(peer.endpoint.transmit_due());
    assert!(peer.endpoint.lend_stage(peer.id).is_none(), "it must transmit first");
}

#[test]
fn there_is_no_stage_where_a_message_would_leave_at_once_or_never() {
    let mut idle = Peer::established(1);
    assert!(idle.endpoint.lend_stage(idle.id).is_none());
    sends_alone(&mut idle, b"a");
    assert!(idle.endpoint.lend_stage(idle.id).is_none(), "nothing is in flight");

    let (mut closing, stage) = staging(AssociationConfig::default());
    closing.endpoint.return_stage(stage);
    closing.endpoint.shutdown(closing.now, closing.id, &mut closing.app);
    assert!(closing.endpoint.lend_stage(closing.id).is_none(), "it closes");

    let (mut open, stage) = staging(AssociationConfig::default());
    open.endpoint.return_stage(stage);
    let begun = SendInfo { more: true, ..SendInfo::default() };
    open.endpoint.send(open.now, open.id, &begun, 5, [Bytes::from_static(b"begun")]).unwrap();
    assert!(open.endpoint.lend_stage(open.id).is_none(), "a record is open");
}
