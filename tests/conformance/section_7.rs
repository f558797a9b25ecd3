//! Slow start and congestion avoidance (RFC 9260 §7.1 to §7.2.2), with the controller that follows them.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use lab::packets::data_of;
use lab::script::Peer;
use sctp::{PathHints, SendInfo};

use crate::peers::{
    Chunks, SECOND, established, from, grown, ignores, multihomed, path, quiet, statistics, take_off, writes,
    writes_together,
};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "7.1" {
        SHOULD "let the parameters of an address decay that is not used" => shown(the_window_of_a_silent_application_shrinks, Deaf);
    }
    in "7.2" {
        MUST "use slow start and congestion avoidance" => shown(slow_start_adds_what_was_acknowledged, Deaf);
        MUST_NOT "be more aggressive than these algorithms" => deviates(the_default_controller_is_cubic, Deaf; "CUBIC (RFC 9438) unless another one is chosen; the scripts of section 7 choose the one of RFC 9260");
        MUST "keep cwnd, ssthresh and partial_bytes_acked for each address of the peer" => shown(each_address_has_its_own_window, Deaf);
        SHOULD "count DATA chunks with their padding" => shown(padding_and_headers_are_counted, Deaf);
    }
    in "7.2.1" {
        MUST "cwnd begins at min(4 PMDCS, max(2 PMDCS, 4404))" => shown(the_window_begins_as_the_path_allows, Silent);
        RULE "cwnd begins at min(4 PMDCS, max(2 PMDCS, 4344)) for IPv6" => shown(the_window_of_an_ipv6_path_begins_lower, Silent);
        RULE "cwnd begins at 4404 bytes where packets are those of Ethernet" => shown(an_ethernet_window_begins_with_4404_bytes, Talkative, Silent);
        MUST "after a timeout, cwnd is one PMDCS at most, and one packet in flight until it is acknowledged" => shown(a_timeout_leaves_a_window_of_one_chunk, Silent);
        RULE "after a timeout, one packet is in flight until it is acknowledged" => shown_by(crate::section_6_3::a_timeout_leaves_one_packet_in_flight, Talkative);
        RULE "after a timeout, slow start doubles the window" => shown(slow_start_follows_a_timeout, Silent, Deaf);
        SHOULD "ssthresh begins arbitrarily high" => shown(there_is_no_threshold_at_first, Deaf);
        SHOULD "overbook cwnd by less than a packet" => shown_by(crate::section_6_1::nothing_new_leaves_beyond_the_congestion_window, Silent, Talkative);
        MUST "in slow start, grow only while cwnd is in full use and no loss is repaired" => shown(a_window_that_is_not_used_does_not_grow, Deaf);
        MUST_NOT "grow otherwise" => shown(a_window_under_repair_does_not_grow, Deaf);
        MUST "grow by what was acknowledged at most, and by L times PMDCS" => shown_by(slow_start_adds_what_was_acknowledged, Deaf);
        SHOULD "L is 1" => deviates(one_sack_may_earn_many_packets, Deaf; "there is no limit once a round-trip time is known to pace by");
        SHOULD "update the cwnd of the address that carried what was acknowledged" => shown_by(each_address_has_its_own_window, Deaf);
        SHOULD "halve cwnd once per RTO without transmission, down to 4 PMDCS" => shown_by(the_window_of_a_silent_application_shrinks, Deaf);
        SHOULD "set ssthresh to cwnd before that" => deviates(a_pause_does_not_lower_the_threshold, Silent; "it is raised to cwnd if it is lower, never lowered");
    }
    in "7.2.2" {
        SHOULD "beyond ssthresh, grow by PMDCS per round trip while cwnd is in full use" => shown(congestion_avoidance_adds_a_packet_for_each_window, Deaf);
        SHOULD "grow by PMDCS once per round trip" => shown_by(congestion_avoidance_adds_a_packet_for_each_window, Deaf);
        MUST_NOT "grow by more than PMDCS per round trip" => shown_by(congestion_avoidance_adds_a_packet_for_each_window, Deaf);
        SHOULD "halve cwnd once per RTO without transmission, beyond ssthresh, too" => shown(the_window_of_a_pause_shrinks_in_congestion_avoidance, Silent);
        RULE "partial_bytes_acked is 0 again when everything is acknowledged" => deviates(partial_bytes_outlive_an_empty_window, Deaf; "it is kept, or an application that pauses would never leave its window");
    }
}

const MS: Duration = Duration::from_millis(1);
const RTO: Duration = Duration::from_secs(1);
/// The payload of a chunk that fills an Ethernet packet, and the chunk: PMDCS.
const FULL_BYTES: usize = PMDCS_BYTES - 16;
const PMDCS_BYTES: usize = 1460;
/// PMDCS as the endpoint computes it: the packet.
const PACKET_BYTES: usize = 1472;

fn cwnd(peer: &Peer) -> usize {
    path(peer, peer.address.ip()).cwnd_bytes
}

fn ssthresh(peer: &Peer) -> Option<usize> {
    path(peer, peer.address.ip()).ssthresh_bytes
}

/// Returns an endpoint that listens on paths with packets of that size, and a peer that has connected.
fn on_a_path(stage: &Stage, mtu_bytes: usize) -> Peer {
    on_a_path_from(stage, [10, 0, 0, 9].into(), mtu_bytes)
}

fn on_a_path_from(stage: &Stage, remote: IpAddr, mtu_bytes: usize) -> Peer {
    let mut peer = stage.listening_with(quiet());
    peer.address.set_ip(remote);
    peer.app.hints = PathHints { mtu_bytes, ..peer.app.hints };
    peer.sends().tag(0).init().go();
    let cookie = peer.takes_init_ack();
    peer.sends().cookie_echo(&cookie).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer
}

/// The peer acknowledges exactly the data in flight, after a moment. Returns the number of chunks.
fn round(peer: &mut Peer, first: i32) -> i32 {
    peer.waits(MS);
    let mut next = first;
    while let Some(packet) = peer.hears_maybe() {
        next += data_of(&packet).len() as i32;
    }
    peer.sends().sack(next - 1, &[]).go();
    next
}

fn the_window_of_a_silent_application_shrinks(stage: &Stage) {
    let (mut peer, next) = grown(stage, 30);
    let before = cwnd(&peer);
    peer.waits(RTO * 3 / 2);
    take_off(&mut peer, next);
    assert_eq!(cwnd(&peer), before / 2);
    peer.waits(RTO * 50);
    take_off(&mut peer, next + 1);
    assert!((4 * PMDCS_BYTES..=4 * PACKET_BYTES).contains(&cwnd(&peer)));
}

fn slow_start_adds_what_was_acknowledged(stage: &Stage) {
    let mut peer = established(stage);
    writes_together(&mut peer, 40, FULL_BYTES);
    let mut window = 4404;
    for n in 0..8 {
        assert_eq!(cwnd(&peer), window);
        peer.sends().sack(n, &[]).go();
        window += PMDCS_BYTES;
    }
    assert_eq!(cwnd(&peer), window);
}

fn the_default_controller_is_cubic(stage: &Stage) {
    // After a loss, RFC 9260 keeps half of the window, RFC 9438 seven tenths.
    let config = sctp::AssociationConfig { congestion: Default::default(), ..quiet() };
    let mut peer = stage.established_with(config);
    writes_together(&mut peer, 200, FULL_BYTES);
    let mut next = 0;
    while cwnd(&peer) < 30 * PACKET_BYTES {
        next = round(&mut peer, next);
    }
    let before = cwnd(&peer);
    peer.waits(MS);
    peer.sends().sack(next - 1, &[(2, 20)]).go();
    assert!((before * 69 / 100..=before * 71 / 100).contains(&cwnd(&peer)), "{before} {}", cwnd(&peer));
}

fn each_address_has_its_own_window(stage: &Stage) {
    let mut peer = multihomed(stage, quiet(), &[SECOND]);
    let before = path(&peer, SECOND);
    writes_together(&mut peer, 20, FULL_BYTES);
    // From whatever address the SACK comes.
    from(&mut peer, SECOND, |peer| peer.sends().sack(1, &[]).go());
    let after = path(&peer, SECOND);
    assert_eq!(cwnd(&peer), 4404 + 2 * PMDCS_BYTES);
    assert_eq!((after.cwnd_bytes, after.ssthresh_bytes), (before.cwnd_bytes, before.ssthresh_bytes));
}

fn padding_and_headers_are_counted(stage: &Stage) {
    let mut peer = established(stage);
    // 1397 bytes: 16 of header and 3 of padding more.
    writes_together(&mut peer, 20, 1397);
    let in_flight = path(&peer, peer.address.ip()).in_flight_bytes;
    assert_eq!(in_flight, 4 * 1416);
    peer.sends().sack(0, &[]).go();
    assert_eq!(cwnd(&peer), 4404 + 1416);
}

fn the_window_begins_as_the_path_allows(stage: &Stage) {
    for (mtu_bytes, window) in [(1472, 4404), (600, 4 * 588), (9000, 2 * 8988)] {
        let peer = on_a_path(stage, mtu_bytes);
        assert_eq!(cwnd(&peer), window, "packets of {mtu_bytes} bytes");
    }
}

fn the_window_of_an_ipv6_path_begins_lower(stage: &Stage) {
    for (mtu_bytes, window) in [(1452, 4344), (600, 4 * 588), (9000, 2 * 8988)] {
        let peer = on_a_path_from(stage, Ipv6Addr::LOCALHOST.into(), mtu_bytes);
        assert_eq!(cwnd(&peer), window, "packets of {mtu_bytes} bytes");
    }
}

fn an_ethernet_window_begins_with_4404_bytes(stage: &Stage) {
    let mut peer = on_a_path(stage, 1472);
    assert_eq!(cwnd(&peer), 4404);
    writes_together(&mut peer, 20, FULL_BYTES);
    for n in 0..4 {
        peer.expects(&format!("DATA {n}"));
    }
    peer.expects_nothing();
}

fn a_timeout_leaves_a_window_of_one_chunk(stage: &Stage) {
    let mut peer = established(stage);
    writes_together(&mut peer, 20, FULL_BYTES);
    ignores(&mut peer);
    peer.waits(RTO);
    peer.expects("DATA 0");
    assert!(cwnd(&peer) <= PMDCS_BYTES, "{}", cwnd(&peer));
}

fn slow_start_follows_a_timeout(stage: &Stage) {
    let mut peer = established(stage);
    writes_together(&mut peer, 4, FULL_BYTES);
    ignores(&mut peer);
    peer.waits(RTO);
    peer.expects("DATA 0");
    peer.sends().sack(0, &[]).go();
    peer.expects("DATA 1");
    peer.expects("DATA 2");
}

fn there_is_no_threshold_at_first(stage: &Stage) {
    let mut peer = established(stage);
    writes_together(&mut peer, 200, FULL_BYTES);
    let mut next = 0;
    while cwnd(&peer) < 40 * PACKET_BYTES {
        assert_eq!(ssthresh(&peer), None);
        let before = cwnd(&peer);
        next = round(&mut peer, next);
        assert!(cwnd(&peer) > before, "slow start goes on");
    }
}

fn a_window_that_is_not_used_does_not_grow(stage: &Stage) {
    let mut peer = established(stage);
    for n in 0..20 {
        writes(&mut peer, 1000);
        peer.expects(&format!("DATA {n}"));
        peer.waits(MS);
        peer.sends().sack(n, &[]).go();
        assert_eq!(cwnd(&peer), 4404);
    }
    // The window grows as soon as it is in full use.
    writes_together(&mut peer, 20, FULL_BYTES);
    peer.sends().sack(20, &[]).go();
    assert!(cwnd(&peer) > 4404);
}

fn a_window_under_repair_does_not_grow(stage: &Stage) {
    let (mut peer, next) = grown(stage, 20);
    writes_together(&mut peer, 60, FULL_BYTES);
    peer.waits(MS);
    peer.sends().sack(next - 1, &[(2, 10)]).go();
    let halved = cwnd(&peer);
    for end in 11..15 {
        peer.sends().sack(next - 1, &[(2, end)]).go();
        assert_eq!(cwnd(&peer), halved);
    }
    assert_eq!(statistics(&peer).data_chunks_retransmitted, 1);
    // The retransmission arrives, but another chunk of that window is lost.
    peer.waits(MS);
    peer.sends().sack(next + 14, &[(2, 6)]).go();
    assert_eq!(cwnd(&peer), halved);
    // The exit point is reached.
    peer.waits(MS);
    let sent = statistics(&peer).data_chunks_sent as i32;
    peer.sends().sack(sent - 1, &[]).go();
    assert!(cwnd(&peer) > halved);
}

fn one_sack_may_earn_many_packets(stage: &Stage) {
    let (mut peer, next) = grown(stage, 20);
    let before = cwnd(&peer);
    writes_together(&mut peer, 60, FULL_BYTES);
    peer.waits(MS);
    peer.sends().sack(next + 7, &[]).go();
    assert_eq!(cwnd(&peer), before + 8 * PMDCS_BYTES);
}

fn a_pause_does_not_lower_the_threshold(stage: &Stage) {
    let (mut peer, next) = grown(stage, 30);
    peer.waits(RTO * 10);
    take_off(&mut peer, next);
    assert_eq!(ssthresh(&peer), None);
}

/// Returns a peer that has acknowledged a window with a loss, so that congestion avoidance continues from half of it, and the
/// number of the next chunk.
fn beyond_the_threshold(stage: &Stage) -> (Peer, i32) {
    let (mut peer, next) = grown(stage, 20);
    writes_together(&mut peer, 600, FULL_BYTES);
    peer.waits(MS);
    peer.sends().sack(next - 1, &[(2, 10)]).go();
    peer.waits(MS);
    let sent = statistics(&peer).data_chunks_sent as i32;
    peer.sends().sack(sent - 1, &[]).go();
    ignores(&mut peer);
    let mut acked = sent;
    for _ in 0..3 {
        peer.waits(MS);
        acked = statistics(&peer).data_chunks_sent as i32;
        peer.sends().sack(acked - 1, &[]).go();
        ignores(&mut peer);
    }
    assert!(Some(cwnd(&peer)) > ssthresh(&peer), "congestion avoidance");
    (peer, acked)
}

fn congestion_avoidance_adds_a_packet_for_each_window(stage: &Stage) {
    let (mut peer, _) = beyond_the_threshold(stage);
    let start = cwnd(&peer);
    for rounds in 1..=10 {
        let before = cwnd(&peer);
        peer.waits(MS);
        let sent = statistics(&peer).data_chunks_sent as i32;
        peer.sends().sack(sent - 1, &[]).go();
        ignores(&mut peer);
        assert!(cwnd(&peer) <= before + PACKET_BYTES);
        assert!(cwnd(&peer) + 3 * PACKET_BYTES >= start + rounds * PMDCS_BYTES, "about one for each round");
    }
}

fn the_window_of_a_pause_shrinks_in_congestion_avoidance(stage: &Stage) {
    let (mut peer, _) = beyond_the_threshold(stage);
    // All that waits is sent and acknowledged.
    while statistics(&peer).send_buffered_bytes > 0 {
        peer.waits(MS);
        let sent = statistics(&peer).data_chunks_sent as i32;
        peer.sends().sack(sent - 1, &[]).go();
        ignores(&mut peer);
    }
    let before = cwnd(&peer);
    let next = statistics(&peer).data_chunks_sent as i32;
    peer.waits(RTO * 3 / 2);
    take_off(&mut peer, next);
    assert!((before / 2..=(before / 2).max(4 * PACKET_BYTES)).contains(&cwnd(&peer)));
}

fn partial_bytes_outlive_an_empty_window(stage: &Stage) {
    let (mut peer, _) = beyond_the_threshold(stage);
    while statistics(&peer).send_buffered_bytes > 0 {
        peer.waits(MS);
        let sent = statistics(&peer).data_chunks_sent as i32;
        peer.sends().sack(sent - 1, &[]).go();
        ignores(&mut peer);
    }
    // Ten bursts of a window and a half: each leaves nothing outstanding, and the window grows all the same.
    let before = cwnd(&peer);
    for _ in 0..10 {
        let count = cwnd(&peer) * 3 / 2 / PMDCS_BYTES;
        for _ in 0..count {
            let message = [vec![0; FULL_BYTES].into()];
            peer.endpoint
                .send(peer.now, peer.id, &SendInfo::default(), FULL_BYTES, message)
                .expect("it is taken");
        }
        peer.collect_output();
        while statistics(&peer).send_buffered_bytes > 0 {
            peer.waits(MS);
            let sent = statistics(&peer).data_chunks_sent as i32;
            peer.sends().sack(sent - 1, &[]).go();
            ignores(&mut peer);
        }
    }
    assert!(cwnd(&peer) > before);
}
