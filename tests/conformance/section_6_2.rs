//! Acknowledgement on reception of DATA (RFC 9260 §6.2).

use std::time::Duration;

use bytes::Bytes;
use lab::Reading;
use lab::packets::{build, kinds, sack_of, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{Admission, Arrival, AssociationConfig, SendError, SendInfo};
use sctp_wire::chunk::{Abort, DataFlags};

use crate::peers::{FIRST, LAST, MIDDLE, UNORDERED, ended, established, ignores, quiet, settled, statistics};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "6.2" {
        MUST "acknowledge each valid DATA chunk inside the window" => shown(received_data_is_acknowledged_in_a_sack, Silent, Deaf);
        MUST "drop new DATA beyond the largest TSN while the window is 0" => deviates(data_far_beyond_the_window_is_dropped_and_not_acknowledged, Value, Silent; "in-order DATA is taken up to twice the buffer, and DATA beyond a gap up to half of it more");
        SHOULD "drop the largest TSN that waits for order and take a lower one, while the window is 0" => deviates(a_chunk_that_fills_a_gap_is_taken_though_the_window_is_closed, Silent, Deaf; "the lower one is taken, and nothing is dropped for it until twice the buffer is held");
        MUST "answer a dropped chunk by a SACK at once" => shown_by(data_far_beyond_the_window_is_dropped_and_not_acknowledged, Silent);
        MUST_NOT "report a dropped chunk as received" => shown_by(data_far_beyond_the_window_is_dropped_and_not_acknowledged, Value);
        MUST "avoid the silly window syndrome when advertising the window" => shown(a_window_that_opens_is_announced_in_quarters, Twice, Value);
        SHOULD "follow the delayed acknowledgements of RFC 5681" => shown(every_second_packet_is_acknowledged_and_none_waits_longer_than_200_ms, Late, Silent);
        SHOULD "acknowledge every second packet at least, and within 200 ms" => shown_by(every_second_packet_is_acknowledged_and_none_waits_longer_than_200_ms, Late, Silent, Talkative);
        RULE "a packet that arrives with others is acknowledged with them" => deviates(packets_that_arrive_together_are_acknowledged_together, Silent, Twice, Value; "one SACK answers all packets that one call of the link brings");
        MUST_NOT "be more aggressive in sending SACKs" => shown(one_packet_never_brings_two_sacks, Twice, Talkative);
        MUST_NOT "send more than one SACK for a packet, but for window updates" => shown_by(one_packet_never_brings_two_sacks, Twice, Talkative);
        SHOULD "send SACKs to tell of a window that opens" => shown_by(a_window_that_opens_is_announced_in_quarters, Silent);
        MUST "avoid a large number of window updates" => shown_by(a_window_that_opens_is_announced_in_quarters, Twice, Talkative);
        MUST_NOT "let SACK.Delay be more than 500 ms" => shown(no_sack_is_delayed_by_more_than_half_a_second, Silent, Talkative);
        MUST_NOT "raise SACK.Delay above 500 ms by configuration" => shown_by(no_sack_is_delayed_by_more_than_half_a_second, Silent, Talkative);
        MUST "acknowledge in SACKs unless the application has shut down" => shown_by(received_data_is_acknowledged_in_a_sack, Kind);
        MUST "the Cumulative TSN Ack is that of the last DATA received in sequence" => shown_by(received_data_is_acknowledged_in_a_sack, Value);
        MUST "report as many gaps as fit a packet" => shown(as_many_gaps_are_reported_as_fit_a_packet, Value, Length);
        SHOULD "acknowledge DATA out of order by SACK, not by SHUTDOWN" => shown(out_of_order_data_is_acknowledged_by_sack_while_shutting_down, Missing, Value);
        SHOULD "answer the I bit by a SACK at once" => shown(the_i_bit_is_answered_at_once, Late, Silent);
        MUST "answer a packet with nothing but duplicates by a SACK at once" => shown(a_duplicate_is_answered_and_reported_at_once, Late, Silent);
        SHOULD "report duplicates in the SACK" => shown_by(a_duplicate_is_answered_and_reported_at_once, Value);
        SHOULD "tell the peer in time that it may send more, or less" => shown_by(a_window_that_opens_is_announced_in_quarters, Silent, Value);
        SHOULD_NOT "widen a_rwnd before room was made" => shown(the_window_is_the_room_that_is_left, Value);
        SHOULD_NOT "widen a_rwnd while fragments wait" => shown_by(the_window_is_the_room_that_is_left, Value);
        SHOULD "put the window of the moment into a SACK" => shown_by(the_window_is_the_room_that_is_left, Value);
        SHOULD "remember that what was acknowledged cumulatively does not come again" => shown(reported_data_is_not_dropped_for_later_data, Value, Deaf);
        MUST_NOT "report dropped DATA in gap blocks" => shown(data_dropped_for_a_lower_tsn_is_reported_no_more, Value);
        SHOULD "count dropped DATA when a_rwnd is calculated" => shown_by(data_dropped_for_a_lower_tsn_is_reported_no_more, Value);
        SHOULD_NOT "revoke a SACK and discard data" => shown_by(reported_data_is_not_dropped_for_later_data, Value);
        SHOULD "consider that the sender suffers from dropped DATA" => shown_by(a_chunk_that_fills_a_gap_is_taken_though_the_window_is_closed, Value);
        SHOULD "answer DATA without user data by ABORT with the cause No User Data" => shown(a_chunk_without_data_ends_the_association, Silent, Kind, Value);
        SHOULD_NOT "send DATA without user data" => shown(an_empty_message_is_refused, Talkative);
    }
}

const SACK_DELAY: Duration = Duration::from_millis(200);
const TICK: Duration = Duration::from_nanos(1);

fn small_buffer(bytes: usize) -> AssociationConfig {
    AssociationConfig { receive_buffer_bytes: bytes, ..quiet() }
}

/// Returns a peer of an endpoint with a small buffer whose application does not read, after the first SACKs without delay.
fn full(stage: &Stage, bytes: usize) -> Peer {
    let mut peer = stage.established_with(small_buffer(bytes));
    peer.app.set_reading(Reading::Never);
    peer
}

fn window(peer: &mut Peer) -> u32 {
    sack_of(&peer.hears()).expect("a SACK").a_rwnd
}

fn received_data_is_acknowledged_in_a_sack(stage: &Stage) {
    let mut peer = established(stage);
    for n in [0, 1, 2, 5, 4, 7] {
        peer.sends().data(n).go();
        peer.waits(SACK_DELAY);
    }
    for sack in ["SACK 0", "SACK 1", "SACK 2", "SACK 2 gap 3-3", "SACK 2 gap 2-3", "SACK 2 gap 2-3 gap 5-5"] {
        peer.expects(sack);
    }
    peer.sends().data(3).data(6).go();
    peer.expects("SACK 7");
}

fn data_far_beyond_the_window_is_dropped_and_not_acknowledged(stage: &Stage) {
    let mut peer = full(stage, 10_000);
    let mut taken = 0;
    // We promise 10,000 bytes and take up to twice that.
    for n in 0..40 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[0; 1000]).go();
        if peer.app.messages.len() == n as usize + 1 {
            peer.waits(SACK_DELAY);
        }
        let sack = sack_of(&peer.hears()).expect("a SACK");
        assert!(sack.gaps.is_empty());
        assert!(n < 9 || sack.a_rwnd == 0);
        if peer.app.messages.len() == n as usize + 1 {
            taken = n + 1;
            assert_eq!(sack.cum_tsn, peer.app.messages[n as usize].info.tsn);
        } else {
            assert_eq!(
                sack.cum_tsn,
                peer.app.messages.last().expect("a message").info.tsn,
                "as if it had not come"
            );
        }
    }
    assert!((10..=20).contains(&taken), "{taken}");
    assert_eq!(statistics(&peer).data_chunks_dropped, u64::from(40 - taken));
}

fn a_chunk_that_fills_a_gap_is_taken_though_the_window_is_closed(stage: &Stage) {
    let mut peer = full(stage, 10_000);
    for n in 1..=15 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[0; 1000]).go();
        ignores(&mut peer);
    }
    peer.sends().data_with(DataFlags::WHOLE, 16, 0, 16, &[0; 1000]).go();
    assert_eq!(window(&mut peer), 0);
    assert_eq!(statistics(&peer).data_chunks_dropped, 1, "beyond the gap nothing more is taken");
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, &[0; 1000]).go();
    peer.expects("SACK 15");
    assert_eq!(peer.app.messages.len(), 16);
}

fn data_dropped_for_a_lower_tsn_is_reported_no_more(stage: &Stage) {
    let mut peer = full(stage, 10_000);
    // All but TSN 8 of more than twice the buffer.
    for n in (9..=22).chain(0..8) {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[0; 1000]).go();
    }
    ignores(&mut peer);
    peer.sends().data_with(DataFlags::WHOLE, 8, 0, 8, &[0; 1000]).go();
    let sack = sack_of(&peer.hears()).expect("a SACK");
    let first = peer.app.messages[0].info.tsn;
    let (kept, last) = (peer.app.messages.len() as u32, sack.cum_tsn.wrapping_sub(first));
    assert!(sack.gaps.is_empty() && (9..22).contains(&kept), "{sack:?}, {kept} messages");
    assert_eq!((last + 1, sack.a_rwnd), (kept, 0));
    // Only unread data takes room.
    peer.app.set_reading(Reading::AtOnce);
    peer.app.read(&mut peer.endpoint);
    peer.collect_output();
    assert_eq!(window(&mut peer), 10_000);
    for n in kept..=22 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[0; 1000]).go();
    }
    assert_eq!(peer.app.messages.len(), 23, "what was dropped is taken when it comes again");
}

fn a_window_that_opens_is_announced_in_quarters(stage: &Stage) {
    let mut peer = full(stage, 40_000);
    for n in 0..36 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[0; 1000]).go();
    }
    peer.waits(SACK_DELAY);
    ignores(&mut peer);
    let mut updates = Vec::new();
    for read in 1..=36 {
        peer.app.read_one(&mut peer.endpoint);
        peer.collect_output();
        while let Some(packet) = peer.hears_maybe() {
            updates.push((read, sack_of(&packet).expect("a SACK").a_rwnd));
        }
    }
    assert!((3..=4).contains(&updates.len()), "{updates:?}");
    assert!(updates.windows(2).all(|w| w[1].1 >= w[0].1 + 10_000), "{updates:?}");
    assert!(updates[0].0 <= 11, "the first as soon as a quarter is free");
}

fn every_second_packet_is_acknowledged_and_none_waits_longer_than_200_ms(stage: &Stage) {
    let mut peer = settled(stage);
    peer.sends().data(8).go();
    peer.waits(SACK_DELAY - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("SACK 8");
    for n in [9, 11, 13] {
        peer.sends().data(n).go();
        peer.expects_nothing();
        peer.sends().data(n + 1).go();
        peer.expects(&format!("SACK {}", n + 1));
    }
    // Fewer than one SACK for every second chunk.
    peer.sends().data(15).data(16).data(17).go();
    peer.expects_nothing();
}

fn packets_that_arrive_together_are_acknowledged_together(stage: &Stage) {
    let mut peer = settled(stage);
    let mut batch = Vec::new();
    let mut length = 0;
    let tsn = peer.init().initial_tsn.0;
    for n in 8..18 {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            write_data(DataFlags::WHOLE, tsn.wrapping_add(n), 0, n as u16, b"part", out);
        });
        length = packet.len();
        batch.extend_from_slice(&packet);
    }
    let bytes = batch.into();
    let arrival = Arrival {
        remote: peer.address,
        local: None,
        marked: false,
        in_memory: false,
        segment_bytes: length,
        shared: &[],
        bytes: &bytes,
    };
    peer.endpoint.handle_batch(peer.now, &arrival, &mut peer.app);
    peer.collect_output();
    peer.expects("SACK 17");
    peer.expects_nothing();
}

fn one_packet_never_brings_two_sacks(stage: &Stage) {
    let mut peer = settled(stage);
    peer.sends().data(3).data(9).data(9).data(11).data(8).data(3).data(20).go();
    peer.hears();
    peer.expects_nothing();
    peer.waits(Duration::from_secs(1));
    peer.expects_nothing();
}

fn no_sack_is_delayed_by_more_than_half_a_second(stage: &Stage) {
    let config = AssociationConfig { sack_delay: Duration::from_secs(5), ..quiet() };
    let mut peer = stage.established_with(config);
    for n in 0..8 {
        peer.sends().data(n).go();
    }
    ignores(&mut peer);
    peer.sends().data(8).go();
    peer.expects_nothing();
    peer.waits(Duration::from_millis(500));
    peer.expects("SACK 8");
}

pub(crate) fn as_many_gaps_are_reported_as_fit_a_packet(stage: &Stage) {
    let mut peer = Peer::established_with(1, quiet());
    for n in 1..=500 {
        peer.sends().data_with(UNORDERED, 2 * n, 0, 0, b"x").go();
        ignores(&mut peer);
    }
    let mut peer = stage.play(peer);
    peer.sends().data(2).data(4).go();
    let packet = peer.hears();
    peer.expects_nothing();
    let sack = sack_of(&packet).expect("a SACK");
    assert!((1465..=1472).contains(&packet.len()), "{}", packet.len());
    assert_eq!(sack.gaps.len(), (1472 - 12 - 16) / 4);
    assert_eq!(sack.gaps[0], (3, 3));
    assert!(sack.gaps.windows(2).all(|w| w[1].0 == w[0].0 + 2));
}

fn out_of_order_data_is_acknowledged_by_sack_while_shutting_down(stage: &Stage) {
    let mut peer = established(stage);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.sends().data(3).go();
    peer.expects("SHUTDOWN -1, SACK -1 gap 4-4");
}

fn the_i_bit_is_answered_at_once(stage: &Stage) {
    let mut peer = settled(stage);
    let immediate = DataFlags { immediate: true, ..DataFlags::WHOLE };
    peer.sends().data_with(immediate, 8, 0, 8, b"!").go();
    peer.expects("SACK 8");
    peer.sends().data_with(immediate, 9, 0, 9, b"!").data(10).go();
    peer.expects("SACK 10");
}

fn a_duplicate_is_answered_and_reported_at_once(stage: &Stage) {
    let mut peer = settled(stage);
    peer.sends().data(7).go();
    peer.expects("SACK 7 dup 7");
    peer.sends().data(3).data(3).go();
    peer.expects("SACK 7 dup 3 dup 3");
    peer.sends().data(9).go();
    peer.expects("SACK 7 gap 2-2");
    peer.sends().data(9).go();
    peer.expects("SACK 7 gap 2-2 dup 9");
}

fn the_window_is_the_room_that_is_left(stage: &Stage) {
    let mut peer = full(stage, 100_000);
    let mut last = 100_000;
    for n in 0..20 {
        let flags = if n == 0 { FIRST } else { MIDDLE };
        peer.sends().data_with(flags, n, 0, 0, &[0; 1000]).go();
        if let Some(sack) = peer.hears_maybe().and_then(|p| sack_of(&p)) {
            assert!(sack.a_rwnd < last, "fragments that wait take room");
            assert!(sack.a_rwnd <= 100_000 - 1000 * (n + 1));
            last = sack.a_rwnd;
        }
    }
    peer.sends().data_with(LAST, 20, 0, 0, &[0; 1000]).go();
    peer.waits(SACK_DELAY);
    assert!(window(&mut peer) <= 79_000, "delivered, but not read");
    peer.app.read_one(&mut peer.endpoint);
    peer.sends().data(20).go();
    assert_eq!(window(&mut peer), 100_000);
}

fn reported_data_is_not_dropped_for_later_data(stage: &Stage) {
    let mut peer = full(stage, 10_000);
    for n in 2..=40 {
        peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[0; 1000]).go();
    }
    let mut reported = 0;
    while let Some(packet) = peer.hears_maybe() {
        let sack = sack_of(&packet).expect("a SACK");
        assert_eq!(sack.gaps.len(), 1);
        assert!(sack.gaps[0].0 == 3 && sack.gaps[0].1 >= reported, "no gap report is taken back");
        reported = sack.gaps[0].1;
    }
    peer.sends().data(0).data(1).go();
    let sack = sack_of(&peer.hears()).expect("a SACK");
    assert_eq!(peer.app.messages.len(), usize::from(reported));
    assert_eq!(sack.cum_tsn, peer.app.messages.last().expect("a message").info.tsn);
}

fn a_chunk_without_data_ends_the_association(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, b"").go();
    let packet = peer.hears();
    assert_eq!(kinds(&packet), [Abort::KIND]);
    let tsn = peer.init().initial_tsn.0.to_be_bytes();
    assert_eq!((&packet[16..20], &packet[20..24]), (&[0, 9, 0, 8][..], &tsn[..]));
    assert!(ended(&peer).is_some());
}

fn an_empty_message_is_refused(stage: &Stage) {
    let mut peer = established(stage);
    let info = SendInfo::default();
    assert!(matches!(peer.endpoint.admit(peer.id, &info, 0), Admission::Fail(SendError::Empty)));
    assert_eq!(peer.endpoint.send(peer.now, peer.id, &info, 0, [Bytes::new()]), Err(SendError::Empty));
    peer.collect_output();
    peer.expects_nothing();
}
