//! Checksum, fragmentation and bundling (RFC 9260 §6.8 to §6.10).

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use lab::packets::{DataSeen, build, data_of, kinds, sack_of};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{AssociationConfig, SendInfo};
use sctp_wire::Packet;
use sctp_wire::checksum::crc32c;
use sctp_wire::chunk::{DataFlags, Init, InitAck, ShutdownComplete};

use crate::peers::{
    Chunks, FIRST, LAST, MIDDLE, SECOND, established, ignores, multihomed, narrows, quiet, settled,
    statistics, writes,
};
use crate::rules::rules;
use crate::stage::Stage;
use crate::words::chunks;

rules! {
    in "6.8" {
        MUST "protect packets by a CRC32c" => shown(every_packet_has_its_checksum, Checksum);
        MUST "calculate it with the tag filled in and the checksum 0, and store it" => shown_by(every_packet_has_its_checksum, Checksum, Tag);
        MUST "check it first of all on receipt" => shown(a_packet_with_a_wrong_checksum_is_discarded, Talkative);
        MUST "treat a packet with a wrong checksum as invalid" => shown_by(a_packet_with_a_wrong_checksum_is_discarded, Talkative);
        SHOULD "hardware permits to verify it in software" => not_applicable("there is no hardware");
    }
    in "6.9" {
        MUST "support reassembly" => shown(fragments_in_any_order_become_the_message, Deaf);
        MUST "fragment a message that does not fit a packet" => shown(fragments_are_marked_and_numbered, Silent, Length);
        MUST "refuse long messages where fragmentation is not supported" => not_applicable("fragmentation is supported");
        MUST "refuse long messages where fragmentation is disabled" => not_applicable("fragmentation cannot be disabled");
        SHOULD "fragments are no larger than the Association Maximum DATA Chunk Size" => shown_by(crate::section_6::chunks_fit_the_narrowest_path, Length);
        MUST "use IP fragmentation where the path MTU shrank after a message was fragmented" => shown(a_fragment_is_not_cut_again, Silent, Length);
        MUST "consider the headers when fragmenting" => shown(packets_fill_the_path_and_no_more, Length);
        MUST "consider a SACK that is bundled when fragmenting" => shown_by(packets_fill_the_path_and_no_more, Length, Missing);
        MUST "1: break the message into a series of DATA chunks" => shown_by(fragments_are_marked_and_numbered, Silent, Value);
        SHOULD "1: chunks are no larger than the Association Maximum DATA Chunk Size" => shown_by(crate::section_6::chunks_fit_the_narrowest_path, Length);
        MUST "2: fragments have TSNs in sequence" => shown_by(fragments_are_marked_and_numbered, Value);
        MUST "2: every fragment of an unordered message has the U bit" => shown(fragments_of_an_unordered_message_say_so, Flags);
        MUST "3: the first fragment has the B bit, the last the E bit, the others none" => shown_by(fragments_are_marked_and_numbered, Flags);
        MUST "tell fragments by their B and E bits and put them together" => shown_by(fragments_in_any_order_become_the_message, Deaf);
        SHOULD "deliver a part of a message when the buffer runs out" => shown(a_message_larger_than_the_buffer_is_delivered_in_parts, Deaf);
    }
    in "6.10" {
        MUST "packets are no larger than the path MTU" => shown_by(packets_fill_the_path_and_no_more, Length);
        SHOULD "packets are no larger than the MTU of the primary path" => shown(packets_follow_the_primary_path, Length);
        MUST "control chunks come before DATA" => shown(control_chunks_stand_before_data, Order);
        MUST "DATA chunks stand in a packet in the order of their TSNs" => shown(data_stands_in_the_order_of_its_tsns, Order, Value);
        MUST_NOT "partial chunks" => shown(no_chunk_is_cut_off, Length);
        MUST "process chunks in their order" => shown(chunks_are_handled_in_their_order, Deaf, Silent);
        MUST "drop a partial chunk" => shown(a_partial_chunk_is_dropped, Talkative, Deaf);
        MUST_NOT "bundle INIT, INIT ACK or SHUTDOWN COMPLETE with anything" => shown(three_chunks_stand_alone, Bundled);
    }
}

const MTU_BYTES: usize = 1472;

/// Returns every packet that the endpoint has sent.
fn packets(peer: &mut Peer) -> Vec<Bytes> {
    std::iter::from_fn(|| peer.hears_maybe()).collect()
}

/// Returns every DATA chunk that the endpoint has sent.
fn data(peer: &mut Peer) -> Vec<DataSeen> {
    packets(peer).iter().flat_map(|packet| data_of(packet)).collect()
}

fn every_packet_has_its_checksum(stage: &Stage) {
    let mut peer = stage.connecting_with(quiet());
    let check = |peer: &mut Peer, tag: u32| {
        let packet = peer.hears();
        assert_eq!(packet[4..8], tag.to_be_bytes());
        let mut zeroed = packet.to_vec();
        zeroed[8..12].fill(0);
        // The checksum stands in the packet with its least significant byte first.
        assert_eq!(packet[8..12], crc32c(&zeroed).to_le_bytes());
    };
    check(&mut peer, 0);
    peer.waits(Duration::from_secs(1));
    peer.takes_init();
    let tag = peer.tag;
    peer.sends().init_ack(b"cookie").go();
    check(&mut peer, tag);
    peer.sends().cookie_ack().go();
    writes(&mut peer, 1301);
    check(&mut peer, tag);
    peer.sends().data(0).heartbeat(b"odd").go();
    check(&mut peer, tag);
}

fn a_packet_with_a_wrong_checksum_is_discarded(stage: &Stage) {
    let mut peer = established(stage);
    let address = peer.address;
    let tag = peer.endpoint_tag;
    let good = build(PEER_PORT, ENDPOINT_PORT, tag, |out| out.extend_from_slice(&[4, 0, 0, 8, 0, 1, 0, 4]));
    for byte in 0..good.len() {
        let mut bad = good.to_vec();
        bad[byte] ^= 0x20;
        peer.sends_raw(address, &bad.into());
        peer.expects_nothing();
    }
    assert_eq!(peer.endpoint.endpoint_statistics().checksum_errors, good.len() as u64);
    peer.sends_raw(address, &good);
    peer.expects("HEARTBEAT ACK");
}

fn fragments_in_any_order_become_the_message(stage: &Stage) {
    let parts: [(u32, DataFlags, &[u8]); 4] =
        [(0, FIRST, b"one "), (1, MIDDLE, b"two "), (2, MIDDLE, b"three "), (3, LAST, b"four")];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut peer = established(stage);
        for at in order {
            assert!(peer.app.messages.is_empty());
            let (number, flags, part) = parts[at];
            peer.sends().data_with(flags, number, 2, 0, part).go();
        }
        assert_eq!(peer.app.contents(), [b"one two three four"]);
    }
}

fn fragments_are_marked_and_numbered(stage: &Stage) {
    let mut peer = established(stage);
    let message: Vec<u8> = (0..5000u32).map(|n| (n / 7) as u8).collect();
    peer.app_sends(SendInfo { stream: 3, ..SendInfo::default() }, message.clone());
    let sent = data(&mut peer);
    assert!(sent.len() > 3);
    let last = sent.len() - 1;
    for (n, chunk) in sent.iter().enumerate() {
        assert_eq!(chunk.tsn, peer.endpoint_tsn(n as i32).0);
        assert_eq!((chunk.stream, chunk.ssn), (3, 0));
        assert_eq!((chunk.flags.beginning, chunk.flags.ending), (n == 0, n == last));
    }
    let together: Vec<u8> = sent.into_iter().flat_map(|chunk| chunk.payload).collect();
    assert_eq!(together, message);
}

fn a_fragment_is_not_cut_again(stage: &Stage) {
    let mut peer = established(stage);
    writes(&mut peer, 2000);
    let before = data(&mut peer);
    let home = peer.address.ip();
    narrows(&mut peer, home, 600);
    peer.waits(Duration::from_secs(1));
    let again = data(&mut peer);
    assert_eq!((again[0].tsn, again[0].payload.len()), (before[0].tsn, before[0].payload.len()));
}

fn packets_fill_the_path_and_no_more(stage: &Stage) {
    for (sack, bytes) in [(false, 4000), (true, 4000), (true, 1460 - 16), (false, 1460 - 16)] {
        let mut peer = settled(stage);
        peer.endpoint
            .send(peer.now, peer.id, &SendInfo::default(), bytes, [vec![0; bytes].into()])
            .expect("it is taken");
        if sack {
            peer.sends().data(8).go();
        } else {
            peer.collect_output();
        }
        let packets = packets(&mut peer);
        assert_eq!(sack_of(&packets[0]).is_some(), sack, "it rides along");
        assert!(packets.iter().all(|packet| packet.len() <= MTU_BYTES));
        assert!(packets[0].len() > MTU_BYTES - 4, "the first packet is full: {}", packets[0].len());
    }
}

fn fragments_of_an_unordered_message_say_so(stage: &Stage) {
    let mut peer = established(stage);
    peer.app_sends(SendInfo { unordered: true, ..SendInfo::default() }, vec![0; 4000]);
    let sent = data(&mut peer);
    assert!(sent.len() > 2 && sent.iter().all(|chunk| chunk.flags.unordered));
}

fn a_message_larger_than_the_buffer_is_delivered_in_parts(stage: &Stage) {
    let config = AssociationConfig { receive_buffer_bytes: 10_000, ..quiet() };
    let mut peer = stage.established_with(config);
    for number in 0..20 {
        let flags = [MIDDLE, FIRST, LAST][usize::from(number == 0) + 2 * usize::from(number == 19)];
        peer.sends().data_with(flags, number, 0, 0, &[number as u8; 1000]).go();
        ignores(&mut peer);
    }
    assert!(peer.app.messages.len() > 1);
    assert!(peer.app.messages[0].info.more);
    assert_eq!(peer.app.records().iter().map(Vec::len).collect::<Vec<_>>(), [20_000]);
}

fn packets_follow_the_primary_path(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    let home = peer.address.ip();
    narrows(&mut peer, home, 1000);
    for _ in 0..5 {
        writes(&mut peer, 700);
    }
    writes(&mut peer, 3000);
    let packets = packets(&mut peer);
    assert!(!packets.is_empty() && packets.iter().all(|packet| packet.len() <= 1000));
}

fn control_chunks_stand_before_data(stage: &Stage) {
    let mut peer = settled(stage);
    peer.endpoint
        .send(peer.now, peer.id, &SendInfo::default(), 50, [vec![0; 50].into()])
        .expect("it is taken");
    // An unknown chunk that asks for a report, a heartbeat, and data to acknowledge.
    peer.sends().chunk(|_, out| out.extend_from_slice(&[0xc1, 0, 0, 4])).heartbeat(b"?").data(8).go();
    let kinds = kinds(&peer.hears());
    assert_eq!(kinds.len(), 4);
    assert_eq!(kinds[3], 0, "DATA is last");
}

fn data_stands_in_the_order_of_its_tsns(stage: &Stage) {
    let mut peer = established(stage);
    let sends = |peer: &mut Peer, unordered: bool| {
        let info = SendInfo { unordered, ..SendInfo::default() };
        peer.endpoint.send(peer.now, peer.id, &info, 100, [vec![0; 100].into()]).expect("it is taken");
    };
    for n in 0..8 {
        sends(&mut peer, n % 3 == 1);
    }
    peer.collect_output();
    peer.expects("DATA 0, DATA 1, DATA 2, DATA 3, DATA 4, DATA 5, DATA 6, DATA 7");
    peer.sends().sack(0, &[(2, 2), (5, 5)]).go();
    ignores(&mut peer);
    peer.waits(Duration::from_secs(1));
    peer.expects("DATA 1, DATA 3, DATA 4, DATA 6, DATA 7");
}

fn no_chunk_is_cut_off(stage: &Stage) {
    let mut peer = established(stage);
    let mut left = 0;
    for bytes in [1, 2, 3, 1000, 900, 1441] {
        writes(&mut peer, bytes);
        left += bytes;
    }
    peer.sends().data(0).heartbeat(&[7; 999]).go();
    for packet in packets(&mut peer) {
        left -= data_of(&packet).iter().map(|chunk| chunk.payload.len()).sum::<usize>();
        let parsed = Packet::parse(&packet).expect("a packet");
        assert!(parsed.chunks().all(|raw| raw.is_ok()));
        let whole: usize = parsed.chunks().flatten().map(|raw| raw.whole.len().next_multiple_of(4)).sum();
        assert_eq!(packet.len(), 12 + whole, "chunks and padding fill the packet");
    }
    assert_eq!(left, 0, "all of it is there");
}

fn chunks_are_handled_in_their_order(stage: &Stage) {
    // DATA before SHUTDOWN is accepted, DATA after it is not.
    let mut peer = established(stage);
    writes(&mut peer, 100);
    ignores(&mut peer);
    peer.sends().data(0).shutdown(-1).data(1).go();
    ignores(&mut peer);
    assert_eq!(peer.app.messages.len(), 1);
    // Chunks before an ABORT are processed; chunks after it find no association.
    let mut peer = established(stage);
    peer.sends().data(0).abort(false).data(1).go();
    assert_eq!(peer.app.messages.len(), 1);
    // The answers come in the order of the requests.
    let mut peer = established(stage);
    peer.sends().heartbeat(b"1").heartbeat(b"2").heartbeat(b"3").go();
    let answers: Vec<u8> = chunks(&peer.hears()).iter().map(|chunk| chunk.value[4]).collect();
    assert_eq!(answers, *b"123");
}

fn a_partial_chunk_is_dropped(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    let tag = peer.endpoint_tag;
    let address: SocketAddr = peer.address;
    let initial = peer.init().initial_tsn.0;
    let whole = build(PEER_PORT, ENDPOINT_PORT, tag, |out| {
        lab::packets::write_data(DataFlags::WHOLE, initial.wrapping_add(1), 0, 1, &[1; 40], out);
    });
    for bytes in (16..whole.len()).step_by(4) {
        let partial = build(PEER_PORT, ENDPOINT_PORT, tag, |out| out.extend_from_slice(&whole[12..bytes]));
        peer.sends_raw(address, &partial);
        peer.expects_nothing();
    }
    assert_eq!((peer.app.messages.len(), statistics(&peer).data_chunks_received), (1, 1));
    peer.sends_raw(address, &whole);
    peer.expects("SACK 1");
}

fn three_chunks_stand_alone(stage: &Stage) {
    let mut peer = stage.connecting_with(quiet());
    writes(&mut peer, 100);
    assert_eq!(kinds(&peer.hears()), [Init::KIND]);
    let mut peer = stage.listening_with(quiet());
    peer.sends().tag(0).init().go();
    assert_eq!(kinds(&peer.hears()), [InitAck::KIND]);
    let mut peer = established(stage);
    peer.app_shuts_down();
    ignores(&mut peer);
    peer.sends().heartbeat(b"?").data(0).shutdown_ack().go();
    assert_eq!(kinds(&peer.hears()), [ShutdownComplete::KIND]);
    peer.expects_nothing();
}
