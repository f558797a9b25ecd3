//! When acknowledgements leave (RFC 9260 §6.2, RFC 7053).

use std::time::Duration;

use sctp_wire::chunk::DataFlags;

use lab::script::Peer;

/// Returns a peer that has sent its first packets, which are acknowledged at once, and the number of the next chunk.
fn after_first_packets(seed: u8) -> (Peer, u32) {
    let mut peer = Peer::established(seed);
    for n in 0..8 {
        peer.sends().data(n).go();
        peer.expects(&format!("SACK {n}"));
    }
    (peer, 8)
}

#[test]
fn one_packet_waits_200_ms_for_another() {
    let (mut peer, n) = after_first_packets(1);
    peer.sends().data(n).go();
    peer.waits(Duration::from_nanos(199_999_999));
    peer.expects_nothing();
    peer.waits(Duration::from_nanos(1));
    peer.expects("SACK 8");
    peer.waits(Duration::from_secs(1));
    peer.expects_nothing();
}

#[test]
fn no_setting_makes_a_sack_wait_longer_than_half_a_second() {
    let config =
        sctp::AssociationConfig { sack_delay: Duration::from_secs(5), ..sctp::AssociationConfig::default() };
    let mut peer = Peer::established_with(10, config);
    for n in 0..8 {
        peer.sends().data(n).go();
        peer.expects(&format!("SACK {n}"));
    }
    peer.sends().data(8).go();
    peer.expects_nothing();
    peer.waits(Duration::from_millis(500));
    peer.expects("SACK 8");
}

#[test]
fn every_second_packet_is_acknowledged_at_once() {
    let (mut peer, n) = after_first_packets(2);
    for k in 0..5 {
        peer.sends().data(n + 2 * k).go();
        peer.waits(Duration::from_millis(10));
        peer.expects_nothing();
        peer.sends().data(n + 2 * k + 1).go();
        peer.expects(&format!("SACK {}", n + 2 * k + 1));
    }
}

#[test]
fn many_chunks_in_one_packet_are_one_packet() {
    let (mut peer, n) = after_first_packets(3);
    peer.sends().data(n).data(n + 1).data(n + 2).go();
    peer.expects_nothing();
    peer.waits(Duration::from_millis(200));
    peer.expects("SACK 10");
}

#[test]
fn two_packets_worth_of_bytes_are_acknowledged_at_once() {
    let (mut peer, n) = after_first_packets(4);
    peer.sends().data_with(DataFlags::WHOLE, n, 0, n as u16, &[0; 3000]).go();
    peer.expects("SACK 8");
}

#[test]
fn the_i_bit_asks_for_an_answer_at_once() {
    let (mut peer, n) = after_first_packets(5);
    let immediate = DataFlags { immediate: true, ..DataFlags::WHOLE };
    peer.sends().data_with(immediate, n, 0, n as u16, b"!").go();
    peer.expects("SACK 8");
}

#[test]
fn a_gap_is_reported_at_once_and_so_is_its_end() {
    let (mut peer, n) = after_first_packets(6);
    peer.sends().data(n + 1).go();
    peer.expects("SACK 7 gap 2-2");
    peer.sends().data(n + 2).go();
    peer.expects("SACK 7 gap 2-3");
    peer.sends().data(n).go();
    peer.expects("SACK 10");
    peer.sends().data(n + 3).go();
    peer.expects_nothing();
}

#[test]
fn a_duplicate_is_reported_at_once() {
    let (mut peer, n) = after_first_packets(7);
    peer.sends().data(n - 1).go();
    peer.expects("SACK 7 dup 7");
    peer.sends().data(n + 1).data(n + 1).go();
    peer.expects("SACK 7 gap 2-2 dup 9");
    peer.sends().data(3).data(3).data(n + 1).go();
    peer.expects("SACK 7 gap 2-2 dup 3 dup 3 dup 9");
}

#[cfg(feature = "testing")]
#[test]
fn timers_that_come_and_go_leave_few_entries() {
    // Each message starts the timer of a SACK; the next heartbeat has a timer, too.
    let (mut peer, n) = after_first_packets(9);
    for k in 0..400 {
        peer.sends().data(n + k).go();
        peer.waits(Duration::from_millis(250));
        while peer.hears_maybe().is_some() {}
        assert!(peer.endpoint.timer_entries() <= 4, "{} entries", peer.endpoint.timer_entries());
    }
}

#[test]
fn a_delayed_sack_that_rode_along_does_not_leave_again() {
    let (mut peer, n) = after_first_packets(8);
    peer.sends().data(n).go();
    peer.app_sends(sctp::SendInfo::default(), &b"x"[..]);
    peer.expects("SACK 8, DATA 0");
    peer.sends().sack(0, &[]).go();
    peer.waits(Duration::from_secs(1));
    peer.expects_nothing();
}
