//! Losses, routes and packet sizes (RFC 9260 §7.2.3 to §7.3).

use std::net::IpAddr;
use std::time::Duration;

use lab::packets::{build, data_of};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{AssociationConfig, PathHints};

use crate::peers::{
    Chunks, SECOND, grown, heartbeat_info, ignores, multihomed, narrows, path, quiet, statistics, writes,
    writes_together,
};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "7.2.3" {
        SHOULD "on a loss: ssthresh = max(cwnd / 2, 4 PMDCS), cwnd = ssthresh" => shown(a_loss_halves_the_window, Deaf, Silent);
        RULE "on a loss, cwnd limits what is in flight at once" => deviates(the_repair_follows_what_arrives, Silent; "while a loss is repaired, what leaves is in proportion to what arrives (RFC 6937)");
        SHOULD "on expiry of T3-rtx: ssthresh = max(cwnd / 2, 4 PMDCS), cwnd = PMDCS, one packet in flight" => shown(a_timeout_starts_over, Silent, Talkative);
        RULE "a reduction stays" => deviates(a_timeout_that_was_too_quick_is_taken_back, Deaf, Silent; "it is taken back when what was given up turns out to have arrived (RFC 5682, RFC 3708)");
    }
    in "7.2.4" {
        SHOULD "send a SACK for each packet with data while there is a gap" => shown_by(crate::section_6_5::a_gap_is_reported_at_once_and_with_each_packet, Late, Silent);
        SHOULD "wait for three reports that a TSN is missing" => shown_by(crate::section_6_5::three_reports_make_a_chunk_lost, Silent, Talkative);
        RULE "fewer reports do not make a chunk lost" => deviates(late_data_counts_as_lost, Deaf, Silent; "it is lost, too, when it is later than what was sent after it by a quarter of a round trip (RFC 8985)");
        SHOULD "count reports by the highest TSN newly acknowledged" => deviates(packets_are_counted_in_the_order_of_transmission, Silent; "packets are counted in the order of transmission, so that a retransmission can be found lost, too");
        SHOULD "retransmit one packet whatever cwnd is, without delay" => shown(the_first_repair_ignores_the_window, Silent, Late);
        SHOULD_NOT "reduce cwnd again while a loss is repaired" => shown(one_window_is_halved_once, Deaf);
        MUST "apply the growth that a SACK earns before the reduction that it causes" => deviates(a_reduction_is_of_the_window_before_the_sack, Deaf; "the window is halved as it was before the SACK, which is less");
    }
    in "7.2.5" {
        MUST "start congestion control anew when conditions have changed" => deviates_by(the_window_stays_with_another_source_address, Silent; "another source address does not start it anew");
    }
    in "7.2.5.1" {
        MUST "start congestion control anew when another DSCP changes the queue" => shown(another_codepoint_starts_the_window_anew, Silent, Talkative);
    }
    in "7.2.5.2" {
        MUST "start congestion control anew when the route changes, as by another source address" => deviates(the_window_stays_with_another_source_address, Silent, Kind; "the window stays, and losses tell if the route is worse");
    }
    in "7.3" {
        SHOULD "discover the path MTU, for each address" => shown(the_path_mtu_is_found_by_probes, Length, Silent);
        MUST "keep the path MTU of each address apart" => shown(each_path_has_an_mtu_of_its_own, Length);
        SHOULD "track the Association Maximum DATA Chunk Size" => shown_by(crate::section_6::chunks_fit_the_narrowest_path, Length);
        SHOULD "use it to fragment messages" => shown_by(crate::section_6::chunks_fit_the_narrowest_path, Length);
    }
}

const MS: Duration = Duration::from_millis(1);
const RTO: Duration = Duration::from_secs(1);
const FULL_BYTES: usize = 1444;
const PACKET_BYTES: usize = 1472;

fn cwnd(peer: &Peer) -> usize {
    path(peer, peer.address.ip()).cwnd_bytes
}

fn ssthresh(peer: &Peer) -> Option<usize> {
    path(peer, peer.address.ip()).ssthresh_bytes
}

/// Returns a peer with a window of that many packets, which are all in flight, and the number of the first.
fn in_full_flight(stage: &Stage, packets: usize) -> (Peer, i32) {
    let (mut peer, next) = grown(stage, packets);
    writes_together(&mut peer, 3 * packets, FULL_BYTES);
    peer.waits(MS);
    assert!(path(&peer, peer.address.ip()).in_flight_bytes >= cwnd(&peer));
    (peer, next)
}

/// Returns the numbers of the chunks that the endpoint has sent.
fn numbers(peer: &mut Peer) -> Vec<i32> {
    let first = peer.endpoint_tsn(0).0;
    let packets = std::iter::from_fn(|| peer.hears_maybe());
    packets.flat_map(|packet| data_of(&packet)).map(|d| d.tsn.wrapping_sub(first) as i32).collect()
}

fn a_loss_halves_the_window(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    let before = cwnd(&peer);
    ignores(&mut peer);
    peer.sends().sack(next - 1, &[(2, 4)]).go();
    assert_eq!(numbers(&mut peer)[0], next);
    assert_eq!((cwnd(&peer), ssthresh(&peer)), (before / 2, Some(before / 2)));
    // Never less than four packets.
    let mut peer = stage.established_with(quiet());
    writes_together(&mut peer, 20, FULL_BYTES);
    peer.waits(MS);
    ignores(&mut peer);
    peer.sends().sack(-1, &[(2, 4)]).go();
    assert_eq!(numbers(&mut peer)[0], 0);
    assert!((4 * 1460..=4 * PACKET_BYTES).contains(&cwnd(&peer)));
}

fn the_repair_follows_what_arrives(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    let flight = numbers(&mut peer).len();
    // Each SACK reports one packet more: one leaves for every second that arrives.
    let mut sent = 0;
    for end in 4..flight as u16 {
        peer.sends().sack(next - 1, &[(2, end)]).go();
        let now = numbers(&mut peer).len();
        assert!(now <= 2);
        sent += now;
    }
    assert_eq!(sent, flight / 2 - 1);
}

fn a_timeout_starts_over(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    let before = cwnd(&peer);
    ignores(&mut peer);
    peer.waits(RTO);
    peer.expects(&format!("DATA {next}"));
    peer.expects_nothing();
    assert_eq!(ssthresh(&peer), Some(before / 2));
    assert!(cwnd(&peer) <= PACKET_BYTES);
    assert_eq!(statistics(&peer).outstanding_bytes, FULL_BYTES as u64);
}

fn a_timeout_that_was_too_quick_is_taken_back(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    let before = cwnd(&peer);
    let last = numbers(&mut peer).pop().expect("DATA");
    peer.waits(RTO);
    assert_eq!(numbers(&mut peer), [next]);
    // The answer to the very first transmission arrives now.
    peer.sends().sack(last, &[]).go();
    assert!(cwnd(&peer) >= before);
    assert_eq!(statistics(&peer).reductions_undone, 1);
}

fn late_data_counts_as_lost(stage: &Stage) {
    let mut peer = stage.established_with(quiet());
    for n in 0..6 {
        writes(&mut peer, 100);
        peer.expects(&format!("DATA {n}"));
        peer.waits(MS * 100);
        peer.sends().sack(n, &[]).go();
    }
    for n in 6..8 {
        writes(&mut peer, 100);
        peer.expects(&format!("DATA {n}"));
    }
    peer.waits(MS * 100);
    // A single report.
    peer.sends().sack(5, &[(2, 2)]).go();
    peer.expects_nothing();
    peer.waits(MS * 30);
    peer.expects("DATA 6");
    assert_eq!(statistics(&peer).timeouts, 0);
}

fn packets_are_counted_in_the_order_of_transmission(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    ignores(&mut peer);
    peer.sends().sack(next - 1, &[(2, 4)]).go();
    assert_eq!(numbers(&mut peer)[0], next);
    // The retransmission is lost, too; a packet sent after it arrives.
    for _ in 0..20 {
        peer.waits(MS);
        let sent = statistics(&peer).data_chunks_sent as i32;
        peer.sends().sack(next - 1, &[(2, (sent - next) as u16)]).go();
        if numbers(&mut peer).contains(&next) {
            assert_eq!(statistics(&peer).timeouts, 0);
            return;
        }
    }
    panic!("DATA {next} goes again");
}

fn the_first_repair_ignores_the_window(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    ignores(&mut peer);
    peer.sends().sack(next - 1, &[(2, 4)]).go();
    let in_flight = path(&peer, peer.address.ip()).in_flight_bytes;
    assert!(in_flight > cwnd(&peer), "the window was halved");
    peer.expects(&format!("DATA {next}"));
}

fn one_window_is_halved_once(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    let before = cwnd(&peer);
    // First one chunk is lost, then another one of the same window.
    peer.sends().sack(next - 1, &[(2, 4)]).go();
    assert_eq!(cwnd(&peer), before / 2);
    peer.sends().sack(next - 1, &[(2, 6), (8, 12)]).go();
    assert_eq!(cwnd(&peer), before / 2);
    assert_eq!(statistics(&peer).fast_recoveries, 1);
    assert!(numbers(&mut peer).contains(&next));
}

fn a_reduction_is_of_the_window_before_the_sack(stage: &Stage) {
    let (mut peer, next) = in_full_flight(stage, 20);
    let before = cwnd(&peer);
    // Three chunks arrive, the next one is lost.
    peer.sends().sack(next + 2, &[(2, 4)]).go();
    assert_eq!(cwnd(&peer), before / 2);
}

fn the_window_stays_with_another_source_address(stage: &Stage) {
    let (mut peer, _) = grown(stage, 20);
    let before = cwnd(&peer);
    let hears = |peer: &mut Peer, local: [u8; 4]| {
        let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
            out.extend_from_slice(&[4, 0, 0, 8, 0, 1, 0, 4]);
        });
        let local = Some(IpAddr::from(local));
        peer.endpoint.handle_datagram(peer.now, peer.address, local, &packet, &mut peer.app);
        peer.collect_output();
        peer.expects("HEARTBEAT ACK");
    };
    hears(&mut peer, [10, 0, 0, 1]);
    hears(&mut peer, [10, 0, 0, 2]);
    assert_eq!(cwnd(&peer), before);
}

fn another_codepoint_starts_the_window_anew(stage: &Stage) {
    let (mut peer, next) = grown(stage, 20);
    let config = AssociationConfig { dscp: 46, ..quiet() };
    peer.endpoint.set_config(peer.now, peer.id, &config, &mut peer.app);
    assert_eq!(cwnd(&peer), 4404);
    writes_together(&mut peer, 20, 1444);
    peer.waits(Duration::from_millis(1));
    for number in next..next + 4 {
        peer.expects(&format!("DATA {number}"));
    }
    peer.expects_nothing();
}

fn the_path_mtu_is_found_by_probes(stage: &Stage) {
    let mut peer = stage.listening_with(quiet());
    peer.app.hints = PathHints { leaves_host: true, ..peer.app.hints };
    peer.sends().tag(0).init().go();
    let cookie = peer.takes_init_ack();
    peer.sends().cookie_echo(&cookie).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    writes(&mut peer, 1500);
    assert_eq!(peer.hears().len(), 1200);
    peer.expects("DATA 1");
    // A HEARTBEAT as long as the link takes (RFC 8899 §6.2).
    let probe = peer.hears();
    assert_eq!(probe.len(), 1472);
    let info = heartbeat_info(&probe).expect("a HEARTBEAT");
    peer.sends().heartbeat_ack(&info).go();
    let home = peer.address.ip();
    assert_eq!(path(&peer, home).mtu_bytes, 1472);
    peer.sends().sack(1, &[]).go();
    writes(&mut peer, 3000);
    assert_eq!(peer.hears().len(), 1472);
}

fn each_path_has_an_mtu_of_its_own(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    let home = peer.address.ip();
    narrows(&mut peer, home, 1000);
    assert_eq!((path(&peer, home).mtu_bytes, path(&peer, SECOND).mtu_bytes), (1000, 1472));
    writes(&mut peer, 3000);
    let first = peer.hears();
    assert!((990..=1000).contains(&first.len()), "{}", first.len());
    // Impossible reports have no effect.
    narrows(&mut peer, SECOND, 100);
    assert!(path(&peer, SECOND).mtu_bytes >= 512);
}
