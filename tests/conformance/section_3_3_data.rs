//! DATA (RFC 9260 §3.3.1).

use std::time::Duration;

use lab::packets::{DataSeen, data_of};
use lab::script::Peer;
use sctp::{SendError, SendInfo};
use sctp_wire::chunk::{Abort, Data, DataFlags};

use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{causes, half, only_chunk, sends_chunk, word};

rules! {
    in "3.3.1" {
        MUST "use the format of the DATA chunk" => shown(a_data_chunk_has_its_format, Value, Kind);
        MUST "ignore the stream sequence number of unordered DATA" => shown(unordered_data_has_no_sequence_number, Deaf);
        MUST "deliver unordered messages without an attempt to reorder them" => shown(unordered_messages_are_delivered_as_they_come, Deaf);
        MUST "every fragment of an unordered message has the U bit" => shown(fragments_of_unordered_messages_are_unordered, Flags);
        MUST "user data is longer than 0" => shown(an_empty_message_is_not_sent, Talkative);
        RULE "DATA without user data ends the association" => shown(data_without_data_ends_the_association, Silent, Kind, Value);
        MUST "fragments of a message have one stream sequence number" => shown(fragments_share_sequence_number_and_protocol, Value);
        MUST "send the payload protocol identifier in every fragment" => shown_by(fragments_share_sequence_number_and_protocol, Value);
        MUST "pad the data with zeros to 4 bytes" => shown(data_is_padded_with_zeros, Padding);
        MUST_NOT "count the padding in the Length" => shown_by(data_is_padded_with_zeros, Length);
        MUST_NOT "pad with more than 3 bytes" => shown_by(data_is_padded_with_zeros, Length);
        MUST "an unfragmented message has the B and the E bit" => shown(an_unfragmented_message_is_beginning_and_end, Flags);
        RULE "only the first fragment has the B bit, only the last the E bit" => shown(first_and_last_fragment_say_so, Flags);
        MUST "the TSNs of the fragments of a message are strictly sequential" => shown(fragments_have_sequential_tsns, Value);
        SHOULD "TSNs of DATA chunks are strictly sequential" => shown(messages_have_sequential_tsns, Value, Silent);
        RULE "the I bit asks for a SACK at once (RFC 7053)" => shown(the_immediate_bit_is_answered_at_once, Late, Silent);
    }
}

fn a_data_chunk_has_its_format(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo { stream: 3, ppid: 0x0a0b_0c0d, ..SendInfo::default() }, &b"payload!"[..]);
    let data = only_chunk(&peer.hears());
    assert_eq!((data.kind, data.flags & 7), (Data::KIND, 3));
    assert_eq!(word(&data.value, 0), peer.endpoint_tsn(0).0);
    assert_eq!((half(&data.value, 4), half(&data.value, 6)), (3, 0), "stream and sequence number");
    assert_eq!(word(&data.value, 8), 0x0a0b_0c0d);
    assert_eq!(data.value[12..], *b"payload!");
}

fn unordered_data_has_no_sequence_number(stage: &Stage) {
    let mut peer = stage.established();
    peer.sends().data_with(unordered(DataFlags::WHOLE), 0, 0, 777, b"unordered").go();
    peer.sends().data_with(DataFlags::WHOLE, 1, 0, 0, b"ordered").go();
    assert_eq!(peer.app.contents(), [&b"unordered"[..], b"ordered"]);
}

fn unordered_messages_are_delivered_as_they_come(stage: &Stage) {
    let mut peer = stage.established();
    for number in [2, 1, 0] {
        peer.sends().data_with(unordered(DataFlags::WHOLE), number, 0, 0, &[number as u8]).go();
        assert_eq!(peer.app.messages.last().map(|m| m.bytes.clone()), Some(vec![number as u8]));
    }
    assert_eq!(peer.app.contents(), [[2], [1], [0]]);
}

fn fragments_of_unordered_messages_are_unordered(stage: &Stage) {
    let fragments = fragments(&mut stage.established(), SendInfo { unordered: true, ..SendInfo::default() });
    assert!(fragments.iter().all(|data| data.flags.unordered), "{fragments:?}");
}

fn an_empty_message_is_not_sent(stage: &Stage) {
    let mut peer = stage.established();
    assert_eq!(peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 0, []), Err(SendError::Empty));
    peer.waits(Duration::from_secs(1));
    peer.expects_nothing();
}

fn data_without_data_ends_the_association(stage: &Stage) {
    let mut peer = stage.established();
    let tsn = peer.init().initial_tsn.0.to_be_bytes();
    sends_chunk(&mut peer, Data::KIND, 3, &[&tsn[..], &[0; 8]].concat());
    let abort = only_chunk(&peer.hears());
    assert_eq!((abort.kind, causes(&abort)), (Abort::KIND, vec![(9, tsn.to_vec())]), "No User Data");
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn fragments_share_sequence_number_and_protocol(stage: &Stage) {
    let mut peer = stage.established();
    let info = SendInfo { stream: 1, ppid: 0x1234_5678, ..SendInfo::default() };
    peer.app_sends(info, &b"the first"[..]);
    peer.hears();
    peer.sends().sack(0, &[]).go();
    peer.app_sends(info, vec![0; 3000]);
    for _ in 0..3 {
        let data = only_chunk(&peer.hears());
        assert_eq!((half(&data.value, 4), half(&data.value, 6)), (1, 1), "stream and sequence number");
        assert_eq!(word(&data.value, 8), 0x1234_5678);
    }
}

fn data_is_padded_with_zeros(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), vec![0xff; 5]);
    let packet = peer.hears();
    assert_eq!((half(&packet, 14), packet.len()), (16 + 5, 12 + 16 + 8));
    assert_eq!(packet[12 + 16 + 5..], [0; 3]);
}

fn an_unfragmented_message_is_beginning_and_end(stage: &Stage) {
    let mut peer = stage.established();
    peer.app_sends(SendInfo::default(), &b"whole"[..]);
    let data = data_of(&peer.hears()).remove(0);
    assert!(data.flags.beginning && data.flags.ending);
}

fn first_and_last_fragment_say_so(stage: &Stage) {
    let fragments = fragments(&mut stage.established(), SendInfo::default());
    let bits: Vec<_> = fragments.iter().map(|data| (data.flags.beginning, data.flags.ending)).collect();
    assert_eq!(bits, [(true, false), (false, false), (false, true)]);
}

fn fragments_have_sequential_tsns(stage: &Stage) {
    let mut peer = stage.established();
    let fragments = fragments(&mut peer, SendInfo::default());
    for (number, data) in (0..).zip(&fragments) {
        assert_eq!(data.tsn, peer.endpoint_tsn(number).0);
    }
}

fn messages_have_sequential_tsns(stage: &Stage) {
    let mut peer = stage.established();
    for number in 0..4 {
        peer.app_sends(SendInfo { stream: number as u16, ..SendInfo::default() }, &b"message"[..]);
        peer.expects(&format!("DATA {number}"));
        peer.sends().sack(number, &[]).go();
    }
}

fn the_immediate_bit_is_answered_at_once(stage: &Stage) {
    let mut peer = stage.established();
    // The first packets of an association are all answered at once.
    for number in 0..20 {
        peer.sends().data(number).go();
        peer.waits(Duration::from_secs(1));
        peer.hears();
    }
    peer.sends().data(20).go();
    peer.expects_nothing();
    peer.waits(Duration::from_secs(1));
    peer.expects("SACK 20");
    peer.sends().data_with(DataFlags { immediate: true, ..DataFlags::WHOLE }, 21, 0, 21, b"now").go();
    peer.expects("SACK 21");
}

fn unordered(flags: DataFlags) -> DataFlags {
    DataFlags { unordered: true, ..flags }
}

/// Returns the three chunks of a message that does not fit into two.
fn fragments(peer: &mut Peer, info: SendInfo) -> Vec<DataSeen> {
    peer.app_sends(info, vec![0; 3000]);
    let fragments: Vec<_> = (0..3).flat_map(|_| data_of(&peer.hears())).collect();
    assert_eq!(fragments.len(), 3);
    assert_eq!(fragments.iter().map(|data| data.payload.len()).sum::<usize>(), 3000);
    fragments
}
