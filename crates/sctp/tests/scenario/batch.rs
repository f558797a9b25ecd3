//! Short messages that are queued together.

use bytes::Bytes;
use lab::packets::data_of;
use lab::script::Peer;
use sctp::{Admission, AssociationConfig, Batch, FlushWhen, SendError, SendInfo, Staged};

fn batch_of(messages: &[(u16, &[u8])]) -> Batch {
    let mut batch = Batch::new();
    for &(stream, message) in messages {
        assert!(batch.push(&SendInfo { stream, ..SendInfo::default() }, message));
    }
    batch
}

fn sends_alone(peer: &mut Peer, message: &'static [u8]) {
    let info = SendInfo::default();
    peer.endpoint.send(peer.now, peer.id, &info, message.len(), [Bytes::from_static(message)]).unwrap();
}

/// Returns stream, stream sequence number and first byte of each message in the packets that arrive now.
fn heard(peer: &mut Peer) -> Vec<(u16, u16, u8)> {
    let mut heard = Vec::new();
    while let Some((_, packet)) = peer.hears_on_maybe() {
        heard.extend(data_of(&packet).iter().map(|data| (data.stream, data.ssn, data.payload[0])));
    }
    heard
}

#[test]
fn the_messages_of_a_batch_keep_their_place_among_others() {
    let mut peer = Peer::established(1);
    sends_alone(&mut peer, b"a");
    let mut batch = batch_of(&[(0, b"b"), (1, b"c"), (0, b"d")]);
    assert_eq!(peer.endpoint.send_batch(peer.id, &mut batch), Ok(true));
    assert!(batch.is_empty());
    sends_alone(&mut peer, b"e");
    peer.collect_output();
    let expected = [(0, 0, b'a'), (0, 1, b'b'), (1, 0, b'c'), (0, 2, b'd'), (0, 3, b'e')];
    assert_eq!(heard(&mut peer), expected);
}

#[test]
fn a_batch_with_a_wrong_message_is_refused_as_a_whole() {
    let config = AssociationConfig { streams_out: 2, message_bytes_max: 100, ..AssociationConfig::default() };
    let mut peer = Peer::established_with(2, config);
    let mut batch = batch_of(&[(0, b"good"), (2, b"no such stream")]);
    assert_eq!(
        peer.endpoint.send_batch(peer.id, &mut batch),
        Err(SendError::NoSuchStream { stream: 2, streams: 2 })
    );
    let mut batch = batch_of(&[(0, b"good"), (0, &[7; 101])]);
    assert_eq!(
        peer.endpoint.send_batch(peer.id, &mut batch),
        Err(SendError::TooLong { bytes: 101, limit_bytes: 100 })
    );
    assert_eq!(batch.messages(), 2);
    let begun = SendInfo { more: true, ..SendInfo::default() };
    peer.endpoint.send(peer.now, peer.id, &begun, 5, [Bytes::from_static(b"begun")]).unwrap();
    let mut batch = batch_of(&[(0, b"inside a record")]);
    assert_eq!(peer.endpoint.send_batch(peer.id, &mut batch), Err(SendError::RecordOpen { stream: 0 }));
    peer.collect_output();
    assert_eq!(heard(&mut peer), [(0, 0, b'b')], "the begun record alone");
}

#[test]
fn a_batch_waits_for_room_as_one() {
    let config = AssociationConfig {
        send_buffer_bytes: 1000,
        send_buffer_tuned_bytes: 1000,
        ..AssociationConfig::default()
    };
    let mut peer = Peer::established_with(3, config);
    sends_alone(&mut peer, b"first");
    let messages: Vec<(u16, &[u8])> = (0..20).map(|_| (0, &b"0123456789"[..])).collect();
    let mut batch = batch_of(&messages);
    assert_eq!(peer.endpoint.send_batch(peer.id, &mut batch), Ok(false), "20 messages take 1,480 bytes");
    assert_eq!(batch.messages(), 20);
    // A single message has room.
    let info = SendInfo::default();
    assert!(matches!(peer.endpoint.admit(peer.id, &info, 10), Admission::Granted(_)));
    // An empty buffer takes even a larger message.
    peer.collect_output();
    assert_eq!(heard(&mut peer).len(), 1);
    peer.sends().sack(0, &[]).go();
    assert_eq!(peer.endpoint.send_batch(peer.id, &mut batch), Ok(true));
    peer.collect_output();
    assert_eq!(heard(&mut peer).len(), 20);
}

#[test]
fn every_way_into_the_send_queue_refuses_the_same_messages() {
    let config = AssociationConfig { streams_out: 2, message_bytes_max: 100, ..AssociationConfig::default() };
    let mut peer = Peer::established_with(4, config);
    // Data in flight holds further messages back, so that there is a stage.
    sends_alone(&mut peer, b"a");
    peer.collect_output();
    sends_alone(&mut peer, b"b");
    let no_stream = SendError::NoSuchStream { stream: 2, streams: 2 };
    let too_long = SendError::TooLong { bytes: 101, limit_bytes: 100 };
    for (stream, bytes, refusal) in [
        (2, 100, Some(no_stream)),
        (1, 101, Some(too_long)),
        (1, 0, Some(SendError::Empty)),
        (1, 1, None),
        (1, 100, None),
    ] {
        let (info, message) = (SendInfo::stream(stream), vec![7; bytes]);
        let mut stage =
            peer.endpoint.lend_stage(peer.id, 1, FlushWhen::Rule).expect("it waits for the acknowledgement");
        let is_staged = stage.push(&info, &message) != Staged::No;
        peer.endpoint.return_stage(stage);
        assert_eq!(is_staged, refusal.is_none(), "{info:?} {bytes}");
        let admitted = match peer.endpoint.admit(peer.id, &info, bytes) {
            Admission::Granted(_) => None,
            Admission::Fail(error) => Some(error),
            Admission::Full => panic!("there is room"),
        };
        assert_eq!(admitted, refusal);
        let sent = peer.endpoint.send(peer.now, peer.id, &info, bytes, [Bytes::from(message.clone())]);
        assert_eq!(sent.err(), refusal);
        let mut batch = Batch::new();
        if batch.push(&info, &message) {
            assert_eq!(peer.endpoint.send_batch(peer.id, &mut batch).err(), refusal);
        } else {
            assert_eq!(refusal, Some(SendError::Empty), "it is sent by itself");
        }
    }
    peer.collect_output();
    peer.sends().sack(0, &[]).go();
    peer.collect_output();
    assert_eq!(heard(&mut peer).len(), 2 + 2 * 3, "none of the refused ones");
}
