//! Streams, order and gaps (RFC 9260 §6.5 to §6.7).

use std::time::Duration;

use lab::packets::data_of;
use lab::script::Peer;
use sctp::{Admission, SendError, SendInfo};
use sctp_wire::chunk::{DataFlags, Error};

use crate::peers::{
    SECOND, UNORDERED, established, from, ignores, multihomed, outstanding, quiet, settled, statistics,
};
use crate::rules::rules;
use crate::stage::Stage;
use crate::words::{causes, chunks};

rules! {
    in "6.5" {
        MUST "send DATA on streams that exist" => shown(a_message_for_no_stream_is_refused, Talkative, Silent);
        SHOULD "acknowledge DATA for a stream that does not exist, report Invalid Stream Identifier at once, and discard it" => shown(data_for_no_stream_is_acknowledged_and_reported, Missing, Value, Silent);
        MUST "stream sequence numbers start from 0" => shown(each_stream_counts_its_ordered_messages_from_zero, Value);
        MUST "the stream sequence number goes up by 1 with each ordered message" => shown_by(each_stream_counts_its_ordered_messages_from_zero, Value);
        MUST "after 65535 it is 0" => shown(stream_sequence_numbers_wrap, Value);
        MUST_NOT "unordered messages do not change it" => shown(unordered_messages_do_not_count, Value, Flags);
    }
    in "6.6" {
        MUST "deliver ordered messages in the order of their stream sequence numbers" => shown(messages_of_a_stream_are_delivered_in_order, Deaf);
        MUST "hold what comes too early" => shown_by(messages_of_a_stream_are_delivered_in_order, Deaf);
        MUST "ignore the stream sequence number of unordered DATA" => shown(the_number_of_unordered_data_means_nothing, Deaf);
    }
    in "6.7" {
        SHOULD "report a gap by a SACK at once, and again with each packet that does not fill it" => shown(a_gap_is_reported_at_once_and_with_each_packet, Late, Silent, Value);
        SHOULD "send the SACK to the address that the last DATA came from" => shown(a_sack_goes_where_the_data_came_from, Elsewhere);
        MUST "forget what was acknowledged cumulatively" => shown(acknowledged_data_is_not_retransmitted, Talkative, Deaf);
        MUST "treat DATA that a gap report leaves out as missing" => shown(three_reports_make_a_chunk_lost, Silent);
        MUST "count the reports that a chunk is missing" => deviates_by(three_reports_make_a_chunk_lost, Silent, Talkative; "packets sent after it are counted that have arrived, and time (RFC 8985)");
        MUST "send one SACK only where more gaps exist than it can report" => shown_by(crate::section_6_2::as_many_gaps_are_reported_as_fit_a_packet, Twice);
        MUST "report gaps from the lowest TSN up" => shown_by(crate::section_6_2::as_many_gaps_are_reported_as_fit_a_packet, Value);
    }
}

fn on(stream: u16, unordered: bool) -> SendInfo {
    SendInfo { stream, unordered, ..SendInfo::default() }
}

fn a_message_for_no_stream_is_refused(stage: &Stage) {
    let mut peer = established(stage);
    let streams = statistics(&peer).streams_out;
    let none = SendError::NoSuchStream { stream: streams, streams };
    let info = on(streams, false);
    let admission = peer.endpoint.admit(peer.id, &info, 4);
    assert!(matches!(admission, Admission::Fail(error) if error == none));
    assert_eq!(peer.endpoint.send(peer.now, peer.id, &on(streams, false), 4, [vec![0; 4].into()]), Err(none));
    peer.collect_output();
    peer.expects_nothing();
    peer.app_sends(on(streams - 1, false), &b"last"[..]);
    peer.expects("DATA 0");
}

fn data_for_no_stream_is_acknowledged_and_reported(stage: &Stage) {
    let mut peer = settled(stage);
    let streams = statistics(&peer).streams_in;
    peer.sends().data_with(DataFlags::WHOLE, 8, streams, 0, b"?").go();
    let packet = peer.hears();
    let error = chunks(&packet).remove(0);
    assert_eq!(error.kind, Error::KIND);
    assert_eq!(causes(&error), [(1, [streams.to_be_bytes(), [0, 0]].concat())]);
    peer.waits(Duration::from_millis(200));
    if chunks(&packet).len() == 1 {
        peer.expects("SACK 8");
    }
    assert_eq!(peer.app.messages.len(), 8);
}

fn each_stream_counts_its_ordered_messages_from_zero(stage: &Stage) {
    let mut peer = established(stage);
    for (stream, ssn) in [(0, 0), (3, 0), (0, 1), (3, 1), (3, 2), (9, 0), (0, 2)] {
        peer.app_sends(on(stream, false), vec![0; 4]);
        let sent = data_of(&peer.hears()).remove(0);
        assert_eq!((sent.stream, sent.ssn), (stream, ssn));
    }
}

fn stream_sequence_numbers_wrap(stage: &Stage) {
    let mut peer = Peer::established_with(1, quiet());
    for n in 0..65_535 {
        peer.endpoint.send(peer.now, peer.id, &on(5, false), 1, [vec![0].into()]).expect("it is taken");
        if n % 50 == 49 || n == 65_534 {
            peer.collect_output();
            ignores(&mut peer);
            peer.sends().sack(n, &[]).go();
            ignores(&mut peer);
        }
    }
    assert_eq!(statistics(&peer).outstanding_bytes, 0);
    let mut peer = stage.play(peer);
    for ssn in [65_535, 0, 1] {
        peer.waits(Duration::from_millis(1));
        peer.app_sends(on(5, false), vec![0; 4]);
        assert_eq!(data_of(&peer.hears())[0].ssn, ssn);
    }
}

fn unordered_messages_do_not_count(stage: &Stage) {
    let mut peer = established(stage);
    for (unordered, ssn) in [(false, 0), (true, 0), (true, 0), (false, 1), (true, 0), (false, 2)] {
        peer.app_sends(on(1, unordered), vec![0; 4]);
        let sent = data_of(&peer.hears()).remove(0);
        assert_eq!(sent.flags.unordered, unordered);
        assert!(unordered || sent.ssn == ssn, "{sent:?}");
    }
}

fn messages_of_a_stream_are_delivered_in_order(stage: &Stage) {
    let mut peer = established(stage);
    let says = |peer: &mut Peer, number: u32, stream: u16, ssn: u16, payload: &[u8]| {
        peer.sends().data_with(DataFlags::WHOLE, number, stream, ssn, payload).go();
        peer.app.contents().concat()
    };
    assert_eq!(says(&mut peer, 2, 0, 2, b"c"), b"");
    // Another stream is not delayed.
    assert_eq!(says(&mut peer, 3, 4, 0, b"A"), b"A");
    assert_eq!(says(&mut peer, 1, 0, 1, b"b"), b"A");
    assert_eq!(says(&mut peer, 4, 4, 1, b"B"), b"AB");
    assert_eq!(says(&mut peer, 0, 0, 0, b"a"), b"ABabc");
}

fn the_number_of_unordered_data_means_nothing(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().data_with(UNORDERED, 5, 0, 4711, b"early").go();
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, b"first").go();
    peer.sends().data_with(UNORDERED, 1, 0, 0, b"again").go();
    peer.sends().data_with(DataFlags::WHOLE, 2, 0, 1, b"second").go();
    assert_eq!(peer.app.contents(), [&b"early"[..], b"first", b"again", b"second"]);
}

pub(crate) fn a_gap_is_reported_at_once_and_with_each_packet(stage: &Stage) {
    let mut peer = settled(stage);
    for (number, sack) in [
        (9, "SACK 7 gap 2-2"),
        (10, "SACK 7 gap 2-3"),
        (12, "SACK 7 gap 2-3 gap 5-5"),
        (8, "SACK 10 gap 2-2"),
        (13, "SACK 10 gap 2-3"),
        (11, "SACK 13"),
    ] {
        peer.sends().data(number).go();
        peer.expects(sack);
    }
    peer.sends().data(14).go();
    peer.expects_nothing();
}

fn a_sack_goes_where_the_data_came_from(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    let home = peer.address.ip();
    for (number, address) in [(0, home), (2, SECOND), (3, home), (4, SECOND), (1, SECOND)] {
        from(&mut peer, address, |peer| peer.sends().data(number).go());
        assert_eq!(peer.hears_on().0.ip(), address, "of DATA {number}");
    }
}

fn acknowledged_data_is_not_retransmitted(stage: &Stage) {
    let mut peer = outstanding(stage, 3);
    peer.sends().sack(1, &[]).go();
    assert_eq!(statistics(&peer).send_buffered_bytes, 164);
    peer.waits(Duration::from_secs(1));
    peer.expects("DATA 2");
    peer.sends().sack(2, &[]).go();
    assert_eq!(statistics(&peer).send_buffered_bytes, 0);
    // An old SACK changes nothing.
    peer.sends().sack(0, &[]).go();
    peer.waits(Duration::from_secs(100));
    peer.expects_nothing();
}

pub(crate) fn three_reports_make_a_chunk_lost(stage: &Stage) {
    let mut peer = outstanding(stage, 6);
    peer.sends().sack(0, &[(2, 2)]).go();
    peer.sends().sack(0, &[(2, 3)]).go();
    peer.expects_nothing();
    peer.sends().sack(0, &[(2, 4)]).go();
    peer.expects("DATA 1");
    peer.sends().sack(0, &[(2, 5)]).go();
    peer.expects_nothing();
}
