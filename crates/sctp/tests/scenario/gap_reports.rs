//! Gap blocks: what the receiver reports, and how the sender reacts (RFC 9260 §3.3.4, §6.2.1).

use std::time::Duration;

use sctp::SendInfo;
use sctp_wire::chunk::{DataFlags, NrSackBuilder};

use lab::packets::sack_of;
use lab::script::Peer;

#[test]
fn blocks_grow_join_and_vanish() {
    let mut peer = Peer::established(1);
    for (n, sack) in [
        (2, "SACK -1 gap 3-3"),
        (4, "SACK -1 gap 3-3 gap 5-5"),
        (6, "SACK -1 gap 3-3 gap 5-5 gap 7-7"),
        (5, "SACK -1 gap 3-3 gap 5-7"),
        (3, "SACK -1 gap 3-7"),
        (0, "SACK 0 gap 2-6"),
        (1, "SACK 6"),
    ] {
        peer.sends().data(n).go();
        peer.expects(sack);
    }
    assert_eq!(peer.app.contents().concat(), [0, 1, 2, 3, 4, 5, 6]);
}

/// draft-natarajan-tsvwg-sctp-nrsack §4: only who has listed the extension sends and takes NR-SACKs.
#[test]
fn an_nr_sack_that_was_not_agreed_acknowledges_nothing() {
    let mut peer = Peer::established(12);
    peer.app_sends(SendInfo::default(), "x");
    peer.expects("DATA 0");
    let sack = |p: &Peer, out: &mut Vec<u8>| {
        let cum_tsn = p.endpoint_tsn(0);
        NrSackBuilder { cum_tsn, a_rwnd: 100_000, nr_gap_blocks: &[], duplicates: &[] }.write(out);
    };
    peer.sends().chunk(sack).go();
    peer.waits(Duration::from_secs(2));
    peer.expects("DATA 0");
}

#[test]
fn blocks_that_do_not_fit_a_packet_are_left_out() {
    let mut peer = Peer::established(2);
    for n in 0..1000 {
        peer.sends().data(1 + 2 * n).go();
    }
    let sack = (0..1000).map(|_| sack_of(&peer.hears()).unwrap()).last().unwrap();
    assert_eq!(sack.gaps.len(), (1472 - 12 - 16) / 4);
    assert_eq!(sack.gaps[..2], [(2, 2), (4, 4)]);
    // RFC 9260 §6.2: as many of them as fit, so that duplicates take no room from them.
    peer.sends().data(1).data(3).go();
    let sack = sack_of(&peer.hears()).unwrap();
    assert_eq!((sack.gaps.len(), sack.duplicates.len()), ((1472 - 12 - 16) / 4, 0));
}

#[test]
fn a_block_that_reaches_beyond_16_bits_is_reported_as_far_as_it_can_be() {
    let mut peer = Peer::established(3);
    peer.app.keeps_bytes = false;
    for first in (1..70_001).step_by(1000) {
        let mut packet = peer.sends();
        for n in first..first + 1000 {
            packet = packet.data_with(DataFlags { unordered: true, ..DataFlags::WHOLE }, n, 0, 0, &[0]);
        }
        packet.go();
    }
    let mut last = None;
    for _ in 0..70 {
        last = sack_of(&peer.hears());
    }
    assert_eq!(last.unwrap().gaps, [(2, u16::MAX)]);
    peer.sends().data_with(DataFlags { unordered: true, ..DataFlags::WHOLE }, 0, 0, 0, &[0]).go();
    let after = sack_of(&peer.hears()).unwrap();
    assert!(after.gaps.is_empty(), "{after:?}");
}

fn sends_three(seed: u8) -> Peer {
    let mut peer = Peer::established(seed);
    for n in 0..3 {
        peer.app_sends(SendInfo::default(), vec![n; 100]);
        peer.expects(&format!("DATA {n}"));
    }
    peer
}

#[test]
fn gap_acknowledged_chunks_are_kept_until_the_cumulative_number_passes_them() {
    let mut peer = sends_three(4);
    peer.sends().sack(-1, &[(2, 3)]).go();
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!(statistics.outstanding_bytes, 100);
    assert_eq!(statistics.send_buffered_bytes, 3 * (100 + 64));
    peer.sends().sack(2, &[]).go();
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!((statistics.outstanding_bytes, statistics.send_buffered_bytes), (0, 0));
}

#[test]
fn a_peer_that_takes_back_what_it_reported_gets_it_again() {
    // RFC 9260 §6.2.1 D iii: only the cumulative number is a promise.
    let mut peer = sends_three(5);
    peer.sends().sack(-1, &[(2, 3)]).go();
    peer.sends().sack(0, &[]).go();
    peer.waits(Duration::from_millis(900));
    // A chunk sent before one that has arrived is late; the others depend on the timer.
    peer.expects("DATA 1");
    peer.waits(Duration::from_millis(200));
    peer.expects("DATA 1, DATA 2");
    peer.sends().sack(2, &[]).go();
    peer.waits(Duration::from_secs(5));
    peer.expects_nothing();
}

#[test]
fn an_old_sack_takes_nothing_back_for_long() {
    let mut peer = sends_three(6);
    peer.sends().sack(0, &[]).go();
    peer.sends().sack(-1, &[(2, 3)]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 200);
    peer.sends().sack(0, &[(2, 2)]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 100);
    peer.sends().sack(2, &[]).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes, 0);
}

fn outstanding_bytes(peer: &Peer) -> u64 {
    peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes
}

#[test]
fn repeated_reneging_counts_ten_times_a_second() {
    let mut peer = sends_three(7);
    for _ in 0..3 {
        peer.sends().sack(-1, &[(2, 3)]).go();
        assert_eq!(outstanding_bytes(&peer), 100);
        peer.sends().sack(-1, &[]).go();
        assert_eq!(outstanding_bytes(&peer), 300);
        // Each SACK would change the state of all chunks.
        peer.sends().sack(-1, &[(2, 3)]).go();
        peer.sends().sack(-1, &[]).go();
        assert_eq!(outstanding_bytes(&peer), 100);
        peer.waits(Duration::from_millis(100));
    }
}

#[test]
fn the_first_chunk_is_taken_back_at_any_time() {
    let mut peer = sends_three(8);
    peer.sends().sack(-1, &[(2, 3)]).go();
    peer.sends().sack(-1, &[]).go();
    peer.sends().sack(-1, &[(2, 3)]).go();
    // The peer reports the first chunk, which it reported missing in between.
    peer.sends().sack(0, &[(1, 2)]).go();
    assert_eq!(outstanding_bytes(&peer), 0);
    peer.sends().sack(0, &[]).go();
    assert_eq!(outstanding_bytes(&peer), 100);
    peer.waits(Duration::from_millis(1500));
    peer.expects("DATA 1");
    peer.sends().sack(1, &[]).go();
    assert_eq!(outstanding_bytes(&peer), 100);
    peer.waits(Duration::from_millis(1500));
    peer.expects("DATA 2");
    peer.sends().sack(2, &[]).go();
    assert_eq!(outstanding_bytes(&peer), 0);
}
