//! Messages that arrive together in a packet and are delivered together.

use std::time::Duration;

use bytes::Bytes;
use sctp::config::RECEIVED_OVERHEAD_BYTES;
use sctp::{AssociationConfig, SendInfo};
use sctp_wire::chunk::DataFlags;

use lab::script::Peer;
use lab::{A, B, Fate, Reading, TwoHosts};

fn message(number: usize) -> Bytes {
    vec![number as u8; 1 + number % 40].into()
}

#[test]
fn a_reader_of_runs_gets_what_was_sent_with_and_without_loss() {
    for loss_every in [0, 7, 50] {
        let mut hosts = TwoHosts::new(loss_every);
        // More than there are stream sequence numbers.
        let count = 70_000;
        hosts.node_mut(A).endpoint.set_initial_tsn(0u32.wrapping_sub(3000));
        let (a, b) = hosts.establish();
        hosts.app(B).takes_runs = true;
        let mut packets = 0;
        hosts.tap(A, move |_| {
            packets += 1;
            if loss_every > 0 && packets % loss_every == 0 { Fate::Drop } else { Fate::Pass }
        });
        let info =
            |n: usize| SendInfo { stream: (n / 100 % 3) as u16, ppid: n as u32, ..SendInfo::default() };
        hosts.send_all(A, a, (0..count).map(|n| (info(n), message(n))));
        let all = |hosts: &TwoHosts| hosts.node(B).app.messages.len() == count;
        hosts.run_until("all arrived", Duration::from_secs(600), all);
        let mut next = [0, 100, 200];
        for m in &hosts.app(B).messages {
            let (stream, n) = (usize::from(m.info.stream), m.info.ppid as usize);
            assert_eq!((n, &m.bytes[..]), (next[stream], &message(n)[..]), "in the order of its stream");
            next[stream] = if n % 100 == 99 { n + 201 } else { n + 1 };
        }
        assert_eq!(hosts.statistics(B, b).receive_buffered_bytes, 0, "all was given back");
    }
}

#[test]
fn a_run_is_charged_less_than_its_messages() {
    let mut hosts = TwoHosts::new(1);
    let (a, b) = hosts.establish();
    hosts.app(B).takes_runs = true;
    hosts.app(B).set_reading(Reading::Never);
    let (count, bytes) = (61, 8);
    // The first leaves at once; 60 chunks of 24 bytes fill a packet.
    hosts.send_all(A, a, (0..count).map(|_| (SendInfo::default(), vec![0; bytes].into())));
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.node(B).app.messages.len(), count);
    let headers = (60 - 1) * 16_usize;
    let charges = 1 + 1 + headers.div_ceil(RECEIVED_OVERHEAD_BYTES);
    let held = hosts.statistics(B, b).receive_buffered_bytes as usize;
    assert_eq!(held, count * bytes + charges * RECEIVED_OVERHEAD_BYTES);
    hosts.app(B).set_reading(Reading::AtOnce);
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.statistics(B, b).receive_buffered_bytes, 0);
}

#[test]
fn a_sender_at_full_speed_loses_nothing_to_a_reader_that_stops() {
    for bytes in [16, 100, 1000] {
        let mut hosts = TwoHosts::new(bytes as u64);
        let config = AssociationConfig { receive_buffer_tuned_bytes: 0, ..AssociationConfig::default() };
        let (a, b) = hosts.establish_with(AssociationConfig::default(), config);
        hosts.app(B).takes_runs = true;
        hosts.app(B).set_reading(Reading::Never);
        hosts.send_all(A, a, (0..100_000).map(|_| (SendInfo::default(), vec![0; bytes].into())));
        hosts.run_for(Duration::from_secs(3));
        let statistics = hosts.statistics(B, b);
        assert!(statistics.messages_received < 100_000, "the window has closed");
        assert_eq!(statistics.data_chunks_dropped, 0, "messages of {bytes}");
    }
}

#[test]
fn messages_without_room_as_a_run_arrive_one_by_one() {
    let mut hosts = TwoHosts::new(5);
    let config = AssociationConfig {
        receive_buffer_bytes: 2000,
        receive_buffer_tuned_bytes: 0,
        ..AssociationConfig::default()
    };
    let (a, b) = hosts.establish_with(AssociationConfig::default(), config);
    hosts.app(B).takes_runs = true;
    hosts.app(B).set_reading(Reading::Every(Duration::from_micros(500)));
    let count = 5000;
    hosts.send_all(A, a, (0..count).map(|n| (SendInfo::default(), message(n))));
    hosts
        .run_until("all arrived", Duration::from_secs(60), |hosts| hosts.node(B).app.messages.len() == count);
    assert!((0..count).zip(&hosts.app(B).messages).all(|(n, m)| m.bytes == message(n)));
    hosts.app(B).set_reading(Reading::AtOnce);
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.statistics(B, b).receive_buffered_bytes, 0);
}

#[test]
fn a_run_ends_where_the_packet_turns_odd() {
    const WHOLE: DataFlags = DataFlags::WHOLE;
    const UNORDERED: DataFlags = DataFlags { unordered: true, ..WHOLE };
    const FIRST: DataFlags = DataFlags { ending: false, ..WHOLE };
    const LAST: DataFlags = DataFlags { beginning: false, ..WHOLE };
    let mut peer = Peer::established(2);
    peer.app.takes_runs = true;
    peer.sends()
        .data_with(WHOLE, 0, 0, 0, b"a")
        .data_with(WHOLE, 1, 0, 1, b"b")
        .data_with(WHOLE, 2, 1, 0, b"c")
        .data_with(UNORDERED, 3, 0, 0, b"d")
        .data_with(WHOLE, 4, 0, 2, b"e")
        .data_with(WHOLE, 5, 0, 3, b"f")
        .data_with(FIRST, 6, 0, 4, b"g")
        .data_with(LAST, 7, 0, 4, b"h")
        .data_with(WHOLE, 8, 0, 6, b"k")
        .data_with(WHOLE, 9, 0, 5, b"i")
        // A duplicate, and a message of a stream that does not exist.
        .data_with(WHOLE, 9, 0, 5, b"i")
        .data_with(WHOLE, 10, 60_000, 0, b"?")
        .data_with(WHOLE, 12, 0, 8, b"m")
        .data_with(WHOLE, 13, 0, 9, b"n")
        .go();
    peer.sends().data_with(WHOLE, 11, 0, 7, b"l").data_with(WHOLE, 14, 0, 10, b"o").go();
    let texts: Vec<_> = peer.app.contents().into_iter().map(|m| String::from_utf8(m).unwrap()).collect();
    assert_eq!(texts.concat(), "abcdefghiklmno");
    let tsns: Vec<_> =
        peer.app.messages.iter().map(|m| m.info.tsn.wrapping_sub(peer.app.messages[0].info.tsn)).collect();
    assert_eq!(tsns, [0, 1, 2, 3, 4, 5, 6, 9, 8, 11, 12, 13, 14]);
}
