//! The peer's window, round-trip times and the retransmission timer (RFC 9260 §6.2.1, §6.3).

use std::time::Duration;

use lab::packets::data_of;
use lab::script::Peer;
use sctp::AssociationConfig;
use sctp::config::RtoConfig;

use crate::peers::{SECOND, established, ignores, multihomed, outstanding, path, quiet, statistics, writes};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "6.2.1" {
        SHOULD "calculate the window of the peer by the rules A to D" => shown(the_window_is_what_the_peer_said_less_what_is_on_the_way, Deaf, Silent);
        RULE "A: it begins as the INIT or INIT ACK says; B: what is sent takes from it" => shown_by(the_window_is_what_the_peer_said_less_what_is_on_the_way, Silent);
        RULE "C: DATA marked for retransmission gives back" => shown(abandoned_data_leaves_the_window, Silent);
        RULE "D i: a SACK with an older Cumulative TSN Ack is dropped" => shown(an_old_sack_is_dropped, Deaf, Talkative);
        RULE "D ii: a_rwnd less what is outstanding is the window" => shown_by(the_window_is_what_the_peer_said_less_what_is_on_the_way, Deaf);
        RULE "D iii: what is no longer reported counts one miss indication and T3-rtx runs" => deviates(reneged_data_is_in_flight_again, Deaf, Silent; "it counts as in flight again, which T3-rtx watches; there are no miss indications");
    }
    in "6.3.1" {
        RULE "C1: RTO.Initial before the first measurement" => shown(the_rto_begins_as_configured, Silent, Late);
        RULE "C2: SRTT = R, RTTVAR = R / 2, RTO = SRTT + 4 RTTVAR" => shown(the_first_measurement_sets_the_rto, Silent, Deaf);
        RULE "C3: later measurements weigh an eighth and a quarter" => shown(later_measurements_are_weighed, Silent, Deaf);
        MUST "C4: measure once each round trip" => shown(every_round_trip_is_measured, Silent, Deaf);
        SHOULD "C4: measure no more than once each round trip" => deviates(each_sack_is_a_measurement, Deaf; "each SACK is measured that acknowledges what was sent once");
        SHOULD "C4: adjust RTO.Alpha and RTO.Beta where measurements come more often" => deviates_by(each_sack_is_a_measurement, Deaf; "they are not adjusted: one SACK stands for a receive batch, and RTO.Min is a second");
        MUST_NOT "C5: measure by chunks that were sent twice" => shown(data_sent_twice_is_not_measured, Silent);
        SHOULD "C5: measure by a chunk only if none with a lower TSN was sent again since" => deviates(a_gap_report_is_a_measurement, Deaf, Silent; "a gap report tells which packet has arrived, whatever was sent again before it");
        RULE "C6: the RTO is RTO.Min at least" => shown(the_rto_is_within_its_bounds, Silent, Deaf);
        RULE "C7: the RTO is RTO.Max at most" => shown_by(the_rto_is_within_its_bounds, Silent, Deaf);
    }
    in "6.3.2" {
        RULE "R1: T3-rtx starts with the RTO as it was doubled" => shown(the_doubled_rto_holds_for_new_data, Silent, Talkative);
        RULE "R2: T3-rtx stops when all is acknowledged" => shown(the_timer_stops_when_all_is_acknowledged, Deaf, Talkative);
        RULE "R3: T3-rtx starts anew when the earliest chunk is acknowledged" => shown(the_timer_starts_anew_when_the_earliest_chunk_arrives, Deaf, Silent);
        RULE "R4: T3-rtx runs for what is reported no more" => shown_by(reneged_data_is_in_flight_again, Silent);
    }
    in "6.3.3" {
        RULE "E1: on expiry, cwnd is one packet" => shown(a_timeout_leaves_one_packet_in_flight, Talkative, Silent);
        RULE "E2: on expiry, the RTO doubles up to RTO.Max" => shown(the_rto_doubles_up_to_its_maximum, Silent, Talkative);
        RULE "E3: on expiry, the earliest chunks that fit one packet are sent again" => shown(a_timeout_brings_the_earliest_chunks_in_one_packet, Silent, Missing);
        RULE "the end of a burst is sent again by T3-rtx" => deviates(the_end_of_a_burst_is_probed, Silent, Talkative; "a probe goes before T3-rtx, two round trips after the last packet");
        SHOULD "E4: use the RTO of the address that the retransmission goes to" => shown(the_timer_follows_the_address_in_use, Silent);
        SHOULD "mark what did not fit for retransmission and send it as cwnd allows" => shown_by(a_timeout_leaves_one_packet_in_flight, Silent, Deaf);
        RULE "F1: timers of an address that is not used any more go on" => shown_by(the_timer_follows_the_address_in_use, Silent);
    }
}

const MS: Duration = Duration::from_millis(1);
const RTO: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_nanos(1);

/// Returns the endpoint's estimate of the peer's window.
fn room(peer: &Peer) -> u64 {
    statistics(peer).peer_window_bytes
}

fn rto(peer: &Peer) -> Duration {
    path(peer, peer.address.ip()).rto
}

/// Returns smoothed round-trip time and its variation.
fn srtt(peer: &Peer) -> (Option<Duration>, Option<Duration>) {
    let path = path(peer, peer.address.ip());
    (path.srtt, path.rttvar)
}

/// Returns a peer whose handshake gives no round-trip time: its COOKIE ACK answers the second COOKIE ECHO.
fn unmeasured(stage: &Stage, config: AssociationConfig) -> Peer {
    let initial = config.rto.initial;
    let mut peer = stage.connecting_with(config);
    peer.waits(initial);
    peer.takes_init();
    ignores(&mut peer);
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.waits(initial * 2);
    peer.expects("COOKIE ECHO");
    peer.sends().chunk(|_, out| out.extend_from_slice(&[11, 0, 0, 4])).go();
    assert_eq!(srtt(&peer), (None, None));
    peer
}

/// The endpoint sends message `number`, and the peer acknowledges it after `time`.
fn exchanges(peer: &mut Peer, number: i32, time: Duration) {
    writes(peer, 100);
    peer.expects(&format!("DATA {number}"));
    peer.waits(time);
    peer.sends().sack(number, &[]).go();
}

fn the_window_is_what_the_peer_said_less_what_is_on_the_way(stage: &Stage) {
    let mut peer = established(stage);
    assert_eq!(room(&peer), 100_000);
    for n in 0..4 {
        writes(&mut peer, 1000);
        peer.expects(&format!("DATA {n}"));
    }
    assert_eq!(room(&peer), 96_000);
    peer.sends().sack_with(0, 50_000, &[]).go();
    assert_eq!(room(&peer), 47_000);
    peer.sends().sack_with(0, 50_000, &[(3, 3)]).go();
    assert_eq!(room(&peer), 48_000);
    peer.sends().sack_with(3, 20_000, &[]).go();
    assert_eq!(room(&peer), 20_000);
}

fn abandoned_data_leaves_the_window(stage: &Stage) {
    let mut peer = established(stage);
    for n in 0..4 {
        writes(&mut peer, 1400);
        peer.expects(&format!("DATA {n}"));
    }
    assert_eq!(room(&peer), 94_400);
    peer.waits(RTO);
    peer.expects("DATA 0");
    assert_eq!(room(&peer), 98_600, "only DATA 0 is on the way");
}

fn an_old_sack_is_dropped(stage: &Stage) {
    let mut peer = outstanding(stage, 4);
    peer.sends().sack_with(2, 30_000, &[]).go();
    let before = statistics(&peer);
    for old in [1, 0, -1] {
        peer.sends().sack_with(old, 5, &[(1, 4)]).go();
    }
    let after = statistics(&peer);
    assert_eq!(after.peer_window_bytes, before.peer_window_bytes);
    assert_eq!((after.outstanding_bytes, before.outstanding_bytes), (100, 100));
    peer.expects_nothing();
}

fn reneged_data_is_in_flight_again(stage: &Stage) {
    let mut peer = outstanding(stage, 3);
    peer.sends().sack(-1, &[(2, 3)]).go();
    assert_eq!(statistics(&peer).outstanding_bytes, 100);
    peer.sends().sack(0, &[]).go();
    assert_eq!(statistics(&peer).outstanding_bytes, 200);
    peer.waits(RTO * 2);
    let again: Vec<u32> =
        std::iter::from_fn(|| peer.hears_maybe()).flat_map(|p| data_of(&p)).map(|d| d.tsn).collect();
    assert!(again.contains(&peer.endpoint_tsn(1).0) && again.contains(&peer.endpoint_tsn(2).0));
}

fn the_rto_begins_as_configured(stage: &Stage) {
    let rto = RtoConfig { initial: RTO * 3, ..RtoConfig::default() };
    let mut peer = unmeasured(stage, AssociationConfig { rto, ..quiet() });
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    peer.waits(RTO * 3 - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("DATA 0");
}

fn the_first_measurement_sets_the_rto(stage: &Stage) {
    let mut peer = unmeasured(stage, quiet());
    exchanges(&mut peer, 0, 800 * MS);
    assert_eq!(srtt(&peer), (Some(800 * MS), Some(400 * MS)));
    assert_eq!(rto(&peer), 2400 * MS);
}

fn later_measurements_are_weighed(stage: &Stage) {
    let mut peer = unmeasured(stage, quiet());
    exchanges(&mut peer, 0, 800 * MS);
    exchanges(&mut peer, 1, 400 * MS);
    assert_eq!(srtt(&peer), (Some(750 * MS), Some(400 * MS)));
    exchanges(&mut peer, 2, 750 * MS);
    assert_eq!(srtt(&peer), (Some(750 * MS), Some(300 * MS)));
    assert_eq!(rto(&peer), 1950 * MS);
}

fn every_round_trip_is_measured(stage: &Stage) {
    let mut peer = unmeasured(stage, quiet());
    let mut seen = Vec::new();
    for n in 0..6 {
        exchanges(&mut peer, n, 100 * MS * (n as u32 + 1));
        seen.push(srtt(&peer));
    }
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

fn each_sack_is_a_measurement(stage: &Stage) {
    let mut peer = unmeasured(stage, quiet());
    for n in 0..3 {
        writes(&mut peer, 100);
        peer.expects(&format!("DATA {n}"));
    }
    let mut seen = Vec::new();
    for n in 0..3 {
        peer.waits(100 * MS);
        peer.sends().sack(n, &[]).go();
        seen.push(srtt(&peer).0);
    }
    seen.dedup();
    assert_eq!(seen.len(), 3, "three measurements of one window");
}

fn data_sent_twice_is_not_measured(stage: &Stage) {
    let mut peer = unmeasured(stage, quiet());
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    peer.waits(RTO);
    peer.expects("DATA 0");
    peer.waits(70 * MS);
    peer.sends().sack(0, &[]).go();
    assert_eq!(srtt(&peer), (None, None));
    assert_eq!(rto(&peer), RTO * 2);
}

fn a_gap_report_is_a_measurement(stage: &Stage) {
    let mut peer = unmeasured(stage, quiet());
    for n in 0..5 {
        writes(&mut peer, 100);
        peer.expects(&format!("DATA {n}"));
    }
    peer.waits(40 * MS);
    peer.sends().sack(-1, &[(2, 4)]).go();
    peer.expects("DATA 0");
    assert_eq!(srtt(&peer).0, Some(40 * MS));
    peer.waits(8 * MS);
    peer.sends().sack(-1, &[(2, 5)]).go();
    assert_eq!(srtt(&peer).0, Some(41 * MS));
}

fn the_rto_is_within_its_bounds(stage: &Stage) {
    let rto_config = RtoConfig { initial: RTO, min: 500 * MS, max: 1500 * MS };
    let mut peer = unmeasured(stage, AssociationConfig { rto: rto_config, ..quiet() });
    exchanges(&mut peer, 0, MS);
    assert_eq!(rto(&peer), 500 * MS);
    exchanges(&mut peer, 1, 490 * MS);
    writes(&mut peer, 100);
    peer.expects("DATA 2");
    for _ in 0..3 {
        peer.waits(1500 * MS);
        peer.expects("DATA 2");
        ignores(&mut peer);
    }
    assert_eq!(rto(&peer), 1500 * MS);
}

fn the_doubled_rto_holds_for_new_data(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    peer.waits(RTO);
    peer.expects("DATA 0");
    peer.sends().sack(0, &[]).go();
    writes(&mut peer, 100);
    peer.expects("DATA 1");
    peer.waits(RTO * 2 - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("DATA 1");
}

fn the_timer_stops_when_all_is_acknowledged(stage: &Stage) {
    let mut peer = outstanding(stage, 2);
    peer.waits(RTO / 2);
    peer.sends().sack(1, &[]).go();
    peer.waits(RTO * 100);
    peer.expects_nothing();
    assert_eq!(statistics(&peer).timeouts, 0);
}

fn the_timer_starts_anew_when_the_earliest_chunk_arrives(stage: &Stage) {
    let mut peer = outstanding(stage, 2);
    peer.waits(RTO / 4);
    peer.sends().sack(0, &[]).go();
    let rto = rto(&peer);
    peer.waits(rto - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("DATA 1");
}

pub(crate) fn a_timeout_leaves_one_packet_in_flight(stage: &Stage) {
    let mut peer = established(stage);
    for n in 0..4 {
        writes(&mut peer, 1400);
        peer.expects(&format!("DATA {n}"));
    }
    peer.waits(RTO);
    peer.expects("DATA 0");
    peer.expects_nothing();
    assert!(path(&peer, peer.address.ip()).cwnd_bytes <= 1472);
    for n in 1..4 {
        peer.sends().sack(n - 1, &[]).go();
        peer.expects(&format!("DATA {n}"));
    }
}

fn the_rto_doubles_up_to_its_maximum(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(rto(&peer), RTO * seconds);
        peer.waits(RTO * seconds - TICK);
        peer.expects_nothing();
        peer.waits(TICK);
        peer.expects("DATA 0");
    }
}

fn a_timeout_brings_the_earliest_chunks_in_one_packet(stage: &Stage) {
    let mut peer = established(stage);
    for n in 0..5 {
        writes(&mut peer, 600);
        peer.expects(&format!("DATA {n}"));
    }
    peer.waits(RTO);
    peer.expects("DATA 0, DATA 1");
    peer.expects_nothing();
}

fn the_end_of_a_burst_is_probed(stage: &Stage) {
    let config = AssociationConfig { tail_loss_probes: true, ..quiet() };
    let mut peer = unmeasured(stage, config);
    for n in 0..6 {
        exchanges(&mut peer, n, 50 * MS);
    }
    for n in 6..9 {
        writes(&mut peer, 100);
        peer.expects(&format!("DATA {n}"));
    }
    peer.waits(100 * MS - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("DATA 8");
    assert_eq!(statistics(&peer).timeouts, 0);
}

fn the_timer_follows_the_address_in_use(stage: &Stage) {
    let rto = RtoConfig { initial: RTO * 3, min: 100 * MS, max: RTO * 60 };
    let config = AssociationConfig { rto, path_retries_max: 0, ..quiet() };
    let mut peer = multihomed(stage, config, &[SECOND]);
    let home = peer.address.ip();
    let quick = path(&peer, SECOND).rto;
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    peer.waits(path(&peer, home).rto);
    assert_eq!(path(&peer, home).rto, quick * 2, "it has doubled");
    let (to, packet) = peer.hears_on();
    assert_eq!((to.ip(), data_of(&packet).len()), (SECOND, 1));
    peer.waits(quick - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    assert_eq!(statistics(&peer).timeouts, 2);
    peer.expects("DATA 0");
}
