//! Transmission of DATA: windows, probes of a closed one, timers (RFC 9260 §6.1).

use std::time::Duration;

use lab::packets::data_of;
use lab::script::Peer;
use sctp::{Admission, AssociationConfig, SendInfo};

use crate::peers::{
    ended, established, ignores, outstanding, path, path_changes, quiet, settled, statistics, writes,
    writes_together,
};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "6.1" {
        MUST "apply the rules A to E to all transmissions" => shown(nothing_new_leaves_beyond_the_congestion_window, Silent, Talkative, Deaf);
        MUST_NOT "A: send new DATA for which the peer has no room, but for window probes" => shown(nothing_new_leaves_beyond_the_peers_window, Silent, Talkative, Deaf);
        MUST "A: send a window probe only when the congestion window allows it" => shown(no_probe_leaves_beyond_the_congestion_window, Talkative);
        SHOULD "A: send a window probe only when nothing is outstanding" => shown(no_probe_leaves_while_data_is_outstanding, Talkative, Silent);
        MUST "A: support window probes" => shown(a_closed_window_is_probed, Silent, Kind);
        SHOULD_NOT "A: count a window probe as an error while the peer answers" => shown(probes_that_are_answered_are_no_errors, Silent);
        SHOULD "A: send the first probe after 1 RTO, the others ever more rarely" => shown(probes_come_ever_more_rarely, Silent, Talkative);
        SHOULD "A: adjust the congestion window as section 7.2.1 says, whatever is probed" => shown(probes_leave_the_congestion_window_alone, Silent);
        MUST "A: avoid the silly window syndrome when sending" => shown(a_message_is_not_cut_to_a_silly_window, Silent, Talkative);
        MUST_NOT "B: send new DATA with cwnd + PMDCS - 1 bytes or more outstanding" => shown_by(nothing_new_leaves_beyond_the_congestion_window, Talkative);
        SHOULD "B: exceed cwnd by up to PMDCS - 1 bytes" => shown_by(nothing_new_leaves_beyond_the_congestion_window, Silent);
        MUST "B: exceed cwnd by one packet only" => shown_by(nothing_new_leaves_beyond_the_congestion_window, Talkative);
        MUST "C: retransmit lost DATA before new DATA" => shown(lost_data_leaves_before_new_data, Silent, Talkative, Deaf);
        SHOULD "D: limit bursts by Max.Burst" => deviates(a_burst_is_spread_over_the_round_trip, Talkative, Silent; "packets are paced; what a millisecond of the rate brings leaves together, two packets at least");
        SHOULD_NOT "D: change cwnd permanently to limit a burst" => shown_by(a_burst_is_spread_over_the_round_trip, Talkative);
        SHOULD "bundle a SACK that waits with DATA" => shown(a_sack_that_waits_rides_with_data, Missing, Silent);
        MUST "with a full window, take messages but send no DATA until something is acknowledged" => shown(a_full_window_holds_back_what_is_taken, Talkative, Deaf);
        MUST "start T3-rtx with a transmission if it does not run" => shown(the_timer_starts_with_the_first_chunk, Silent, Late);
        MUST "restart T3-rtx when the earliest outstanding chunk is sent again" => shown(the_timer_starts_anew_with_the_earliest_chunk, Silent);
        MUST_NOT "restart T3-rtx with any other transmission" => shown(the_timer_does_not_start_anew_with_other_chunks, Silent, Late);
        SHOULD "set T3-rtx as sections 6.3.2 and 6.3.3 say" => shown(the_timer_follows_the_rto, Silent, Talkative);
        MUST_NOT "use a TSN more than 2^31 - 1 above the beginning of the window" => shown(no_more_chunks_are_outstanding_than_numbers_allow, Talkative, Silent);
        MUST_NOT "have more than 2^16 - 1 ordered messages of a stream in the window" => shown_by(no_more_chunks_are_outstanding_than_numbers_allow, Talkative);
    }
}

const RTO: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_nanos(1);

/// The endpoint sends its next probe, and the peer answers that its window is still closed.
fn refuses_a_probe(peer: &mut Peer) {
    let next = peer.endpoint.poll_timeout().expect("a timer runs");
    peer.waits(next.saturating_since(peer.now));
    peer.expects("DATA 0");
    peer.expects_nothing();
    peer.sends().sack_with(-1, 0, &[]).go();
}

/// Returns a peer that has closed its window before anything was sent.
fn closed(stage: &Stage, config: AssociationConfig) -> Peer {
    let mut peer = stage.established_with(config);
    peer.sends().sack_with(-1, 0, &[]).go();
    writes(&mut peer, 100);
    peer.expects_nothing();
    peer
}

pub(crate) fn nothing_new_leaves_beyond_the_congestion_window(stage: &Stage) {
    let mut peer = established(stage);
    assert_eq!(path(&peer, peer.address.ip()).cwnd_bytes, 4404);
    // 1416 bytes with header: three of them are below 4404, four of them above.
    writes_together(&mut peer, 12, 1400);
    for n in 0..4 {
        peer.expects(&format!("DATA {n}"));
    }
    peer.expects_nothing();
    peer.sends().sack(0, &[]).go();
    // Three are in flight still, and cwnd has grown by one.
    peer.expects("DATA 4");
    peer.expects("DATA 5");
    peer.expects_nothing();
}

fn nothing_new_leaves_beyond_the_peers_window(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().sack_with(-1, 250, &[]).go();
    for _ in 0..5 {
        writes(&mut peer, 100);
    }
    peer.expects("DATA 0");
    peer.expects("DATA 1");
    peer.expects_nothing();
    peer.sends().sack_with(0, 250, &[]).go();
    peer.expects("DATA 2");
    peer.expects_nothing();
    peer.sends().sack_with(2, 1000, &[]).go();
    peer.expects("DATA 3, DATA 4");
}

fn no_probe_leaves_beyond_the_congestion_window(stage: &Stage) {
    let mut peer = established(stage);
    for _ in 0..12 {
        writes(&mut peer, 1400);
    }
    ignores(&mut peer);
    for _ in 0..10 {
        peer.sends().sack_with(-1, 0, &[]).go();
        peer.waits(RTO / 2);
        while let Some(packet) = peer.hears_maybe() {
            let newest = peer.endpoint_tsn(3);
            assert!(
                data_of(&packet).iter().all(|d| newest.0.wrapping_sub(d.tsn) < 4),
                "nothing but DATA 0 to 3"
            );
        }
    }
}

fn no_probe_leaves_while_data_is_outstanding(stage: &Stage) {
    let mut peer = outstanding(stage, 2);
    writes(&mut peer, 100);
    peer.expects("DATA 2");
    peer.sends().sack_with(0, 0, &[]).go();
    writes(&mut peer, 100);
    peer.expects_nothing();
    // The timer retransmits data, and sends no new data.
    peer.waits(RTO);
    peer.expects("DATA 1, DATA 2");
    peer.sends().sack_with(2, 0, &[]).go();
    peer.expects_nothing();
    peer.waits(RTO * 2);
    peer.expects("DATA 3");
}

fn a_closed_window_is_probed(stage: &Stage) {
    let mut peer = closed(stage, quiet());
    writes(&mut peer, 100);
    peer.waits(RTO);
    peer.expects("DATA 0");
    peer.expects_nothing();
    // The peer takes the probe, and the window is open again: the update had been lost.
    peer.sends().sack_with(0, 1000, &[]).go();
    peer.expects("DATA 1");
}

fn probes_that_are_answered_are_no_errors(stage: &Stage) {
    let config = AssociationConfig { association_retries_max: 2, path_retries_max: 1, ..quiet() };
    let mut peer = closed(stage, config);
    for _ in 0..12 {
        refuses_a_probe(&mut peer);
    }
    assert_eq!((ended(&peer), path_changes(&peer, peer.address.ip(), false)), (None, 0));
}

fn probes_come_ever_more_rarely(stage: &Stage) {
    let mut peer = closed(stage, quiet());
    peer.waits(RTO - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("DATA 0");
    for seconds in [1, 2, 4, 8, 16] {
        peer.sends().sack_with(-1, 0, &[]).go();
        peer.waits(RTO * seconds - TICK);
        peer.expects_nothing();
        peer.waits(TICK);
        peer.expects("DATA 0");
    }
}

fn probes_leave_the_congestion_window_alone(stage: &Stage) {
    let mut peer = closed(stage, quiet());
    let home = peer.address.ip();
    let before = path(&peer, home).cwnd_bytes;
    for _ in 0..5 {
        refuses_a_probe(&mut peer);
    }
    assert_eq!(path(&peer, home).cwnd_bytes, before);
}

fn a_message_is_not_cut_to_a_silly_window(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().sack_with(-1, 300, &[]).go();
    writes(&mut peer, 1000);
    peer.waits(RTO - TICK);
    peer.expects_nothing();
    peer.sends().sack_with(-1, 2000, &[]).go();
    assert_eq!(data_of(&peer.hears())[0].payload.len(), 1000);
}

fn lost_data_leaves_before_new_data(stage: &Stage) {
    let mut peer = established(stage);
    writes_together(&mut peer, 8, 1400);
    for n in 0..4 {
        peer.expects(&format!("DATA {n}"));
    }
    peer.waits(RTO);
    for n in 0..8 {
        peer.expects(&format!("DATA {n}"));
        peer.sends().sack(n, &[]).go();
    }
    peer.expects_nothing();
}

fn a_burst_is_spread_over_the_round_trip(stage: &Stage) {
    let mut peer = established(stage);
    for n in 0..8 {
        writes(&mut peer, 100);
        peer.expects(&format!("DATA {n}"));
        peer.waits(Duration::from_millis(100));
        peer.sends().sack(n, &[]).go();
    }
    let home = peer.address.ip();
    let cwnd = path(&peer, home).cwnd_bytes;
    for _ in 0..8 {
        writes(&mut peer, 1400);
    }
    // The window allows four.
    for n in 8..11 {
        peer.expects(&format!("DATA {n}"));
    }
    peer.expects_nothing();
    peer.waits(Duration::from_millis(100));
    peer.expects("DATA 11");
    peer.expects_nothing();
    assert_eq!(path(&peer, home).cwnd_bytes, cwnd);
}

fn a_sack_that_waits_rides_with_data(stage: &Stage) {
    let mut peer = settled(stage);
    peer.sends().data(8).go();
    peer.expects_nothing();
    writes(&mut peer, 100);
    peer.expects("SACK 8, DATA 0");
    peer.waits(Duration::from_millis(300));
    peer.expects_nothing();
}

fn a_full_window_holds_back_what_is_taken(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().sack_with(-1, 100, &[]).go();
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    for _ in 0..10 {
        assert!(
            matches!(peer.endpoint.admit(peer.id, &SendInfo::default(), 100), Admission::Granted(permit) if !permit.is_idle())
        );
        writes(&mut peer, 100);
    }
    peer.waits(RTO / 2);
    peer.expects_nothing();
    peer.sends().sack_with(0, 100, &[]).go();
    peer.expects("DATA 1");
    peer.expects_nothing();
}

fn the_timer_starts_with_the_first_chunk(stage: &Stage) {
    let mut peer = established(stage);
    peer.waits(RTO * 5);
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    peer.waits(RTO - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("DATA 0");
}

fn the_timer_starts_anew_with_the_earliest_chunk(stage: &Stage) {
    let mut peer = outstanding(stage, 4);
    peer.waits(RTO / 4);
    peer.sends().sack(-1, &[(2, 4)]).go();
    peer.expects("DATA 0");
    peer.waits(RTO - TICK);
    peer.expects_nothing();
    assert_eq!(statistics(&peer).timeouts, 0);
    peer.waits(TICK);
    peer.expects("DATA 0");
}

fn the_timer_does_not_start_anew_with_other_chunks(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    peer.waits(RTO * 3 / 4);
    writes(&mut peer, 100);
    peer.expects("DATA 1");
    peer.waits(RTO / 4 - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("DATA 0, DATA 1");
}

fn the_timer_follows_the_rto(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    for seconds in [1, 2, 4, 8, 16] {
        peer.waits(RTO * seconds - TICK);
        peer.expects_nothing();
        peer.waits(TICK);
        peer.expects("DATA 0");
    }
    assert_eq!(path(&peer, peer.address.ip()).rto, RTO * 32);
}

fn no_more_chunks_are_outstanding_than_numbers_allow(stage: &Stage) {
    // All data has arrived except for the first chunk.
    let mut peer = Peer::established_with(1, quiet());
    let limit = 65_535;
    writes_together(&mut peer, limit, 1);
    while statistics(&peer).data_chunks_sent < limit as u64 {
        let sent = statistics(&peer).data_chunks_sent as u16;
        peer.sends().sack(-1, &[(2, sent)]).go();
        ignores(&mut peer);
        peer.waits(Duration::from_millis(1));
        assert!(statistics(&peer).data_chunks_sent > u64::from(sent), "it goes on at {sent}");
    }
    let mut peer = stage.play(peer);
    ignores(&mut peer);
    writes(&mut peer, 1);
    peer.expects_nothing();
    peer.sends().sack(limit as i32 - 1, &[]).go();
    peer.expects(&format!("DATA {limit}"));
}
