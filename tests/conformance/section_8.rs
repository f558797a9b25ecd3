//! Fault management: endpoint, paths, heartbeats (RFC 9260 §8.1 to §8.3).

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use lab::packets::{build, data_of, has};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{AssociationConfig, CloseReason};
use sctp_wire::chunk::Heartbeat;

use crate::peers::{
    Chunks, SECOND, THIRD, answers_heartbeat, ended, established, from, heartbeat_info, ignores, multihomed,
    outstanding, path, path_changes, patient, quiet, silent_until_timeouts, statistics, writes,
};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "8.1" {
        SHOULD "count consecutive retransmissions to all addresses of the peer, and unanswered HEARTBEATs on the path in use" => shown(retransmissions_to_every_address_count_together, Silent, Elsewhere);
        RULE "an unanswered HEARTBEAT on the path in use counts" => shown(unanswered_heartbeats_on_the_path_in_use_count, Silent);
        SHOULD_NOT "count unanswered HEARTBEATs on other paths" => shown(unanswered_heartbeats_on_a_path_not_in_use_do_not_count, Silent);
        SHALL "beyond Association.Max.Retrans, give the peer up and stop transmitting" => shown(a_peer_that_answers_no_retransmission_is_given_up, Talkative);
        SHOULD "report that the peer was given up" => shown_by(a_peer_that_answers_no_retransmission_is_given_up, Talkative);
        MUST "reset the count when DATA is acknowledged" => shown(an_acknowledgement_starts_the_count_anew, Deaf);
        SHOULD "reset the count when a HEARTBEAT ACK comes" => shown(an_answered_heartbeat_starts_the_count_anew, Deaf);
    }
    in "8.2" {
        SHOULD "keep an error counter for each address" => shown(an_address_that_does_not_answer_is_given_up_alone, Silent, Elsewhere);
        SHOULD "mark an address inactive beyond Path.Max.Retrans, and notify the application" => shown_by(an_address_that_does_not_answer_is_given_up_alone, Silent, Elsewhere);
        SHOULD "clear the counter of an address when its DATA is acknowledged" => shown(an_acknowledgement_clears_the_count_of_its_address, Deaf);
        RULE "an address whose DATA is acknowledged becomes active again, and the application hears of it" => shown(an_acknowledgement_makes_its_address_active_again, Deaf);
        SHOULD "use only one of several active addresses when the primary is inactive" => shown(one_address_takes_over_from_a_primary_that_failed, Elsewhere);
    }
    in "8.3" {
        SHOULD "send HEARTBEATs to idle addresses" => shown(every_idle_address_is_probed_about_every_interval, Silent, Kind);
        MUST "answer HEARTBEAT while the association is up" => shown(a_heartbeat_is_answered_while_the_association_is_up, Silent, Kind);
        RULE "answer HEARTBEAT in COOKIE-ECHOED" => shown(a_heartbeat_is_answered_in_cookie_echoed, Silent);
        RULE "send no HEARTBEAT after SHUTDOWN or SHUTDOWN ACK" => shown(no_heartbeat_is_sent_once_the_end_has_begun, Bundled);
        SHOULD "count each HEARTBEAT that is not answered within one RTO" => shown(an_address_is_probed_on_after_it_was_given_up, Silent);
        SHOULD "mark an address inactive beyond Path.Max.Retrans unanswered HEARTBEATs, and report it" => shown_by(an_address_is_probed_on_after_it_was_given_up, Silent);
        SHOULD "go on sending HEARTBEATs to an inactive address, and stop counting" => shown_by(an_address_is_probed_on_after_it_was_given_up, Silent, Elsewhere);
        SHOULD "put the time and the destination address into the Heartbeat Information" => deviates(a_heartbeat_carries_a_number_that_nobody_can_guess, Value; "it is a random number of 64 bits, under which the sender keeps time and address");
        SHOULD "clear the counter whenever a HEARTBEAT ACK comes (where each HEARTBEAT is counted when it is sent)" => not_applicable("a HEARTBEAT is counted when it was not answered");
        SHOULD "answer HEARTBEAT at once with all of its content unchanged" => shown(a_heartbeat_ack_is_a_copy_of_its_heartbeat, Silent);
        SHOULD "on HEARTBEAT ACK, clear the counter of its address and mark it active" => shown(an_answered_heartbeat_makes_its_address_active_again, Deaf);
        SHOULD "report an address that became active by HEARTBEAT ACK" => shown_by(an_answered_heartbeat_makes_its_address_active_again, Deaf);
        SHOULD "on HEARTBEAT ACK, clear the count of the association" => shown_by(an_answered_heartbeat_starts_the_count_anew, Deaf);
        SHOULD "measure the round trip by HEARTBEAT ACK" => shown(an_answered_heartbeat_measures_the_round_trip, Deaf, Value);
        RECOMMENDED "send HEARTBEATs every RTO + HB.interval, give or take half of the RTO" => shown_by(every_idle_address_is_probed_about_every_interval, Silent, Talkative);
        RECOMMENDED "double the RTO in that when the HEARTBEAT before was not answered" => shown(unanswered_heartbeats_come_ever_more_rarely, Talkative);
        SHOULD "send one HEARTBEAT at a time" => shown(heartbeats_to_idle_addresses_do_not_leave_together, Twice);
        SHOULD "consider that a long HB.interval finds a lost ABORT late" => not_applicable("advice for those who set HB.interval");
    }
}

const RTO: Duration = Duration::from_secs(1);

/// Settings with few retries and no heartbeats.
fn impatient(association_retries_max: u32, path_retries_max: u32) -> AssociationConfig {
    AssociationConfig { association_retries_max, path_retries_max, ..quiet() }
}

/// Lets time pass; `sees` gets each packet that the endpoint sends, with its destination.
fn watches(peer: &mut Peer, time: Duration, mut sees: impl FnMut(&mut Peer, SocketAddr, &Bytes)) {
    let end = peer.now + time;
    while let Some(at) = peer.endpoint.poll_timeout().filter(|at| *at <= end) {
        peer.waits(at.saturating_since(peer.now));
        while let Some((to, packet)) = peer.hears_on_maybe() {
            sees(peer, to, &packet);
        }
    }
    peer.waits(end.saturating_since(peer.now));
}

fn a_peer_that_answers_no_retransmission_is_given_up(stage: &Stage) {
    let mut peer = stage.established_with(impatient(3, 5));
    writes(&mut peer, 100);
    assert!(silent_until_timeouts(&mut peer, 3));
    assert_eq!(ended(&peer), None);
    assert!(!silent_until_timeouts(&mut peer, 4), "one more than Association.Max.Retrans");
    assert_eq!(ended(&peer), Some(CloseReason::Timeout));
    ignores(&mut peer);
    peer.waits(Duration::from_secs(200));
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn retransmissions_to_every_address_count_together(stage: &Stage) {
    let mut peer = multihomed(stage, impatient(4, 1), &[SECOND]);
    writes(&mut peer, 100);
    let mut used = vec![peer.hears_on().0.ip()];
    for timeouts in 1..=4 {
        assert!(silent_until_timeouts(&mut peer, timeouts));
        used.push(peer.hears_on().0.ip());
    }
    used.sort();
    used.dedup();
    assert_eq!(used, [peer.address.ip(), SECOND]);
    assert!(!silent_until_timeouts(&mut peer, 5));
    assert_eq!(ended(&peer), Some(CloseReason::Timeout));
}

fn unanswered_heartbeats_on_the_path_in_use_count(stage: &Stage) {
    let config = AssociationConfig { association_retries_max: 3, ..AssociationConfig::default() };
    let mut peer = stage.established_with(config);
    let mut heartbeats = 0;
    watches(&mut peer, Duration::from_secs(600), |_, _, packet| {
        heartbeats += u32::from(has(packet, Heartbeat::KIND));
    });
    assert_eq!((heartbeats, ended(&peer)), (4, Some(CloseReason::Timeout)));
}

fn unanswered_heartbeats_on_a_path_not_in_use_do_not_count(stage: &Stage) {
    let config = AssociationConfig { association_retries_max: 3, ..AssociationConfig::default() };
    let mut peer = multihomed(stage, config, &[SECOND]);
    let mut unanswered = 0;
    let mut last = peer.now;
    watches(&mut peer, Duration::from_secs(3600), |peer, to, packet| {
        if to.ip() == SECOND {
            unanswered += 1;
        } else {
            assert!(answers_heartbeat(peer, to, packet));
            assert!(peer.now - last < Duration::from_secs(32), "the path in use answers all the time");
            last = peer.now;
        }
    });
    assert!(unanswered > 20);
    assert!(!path(&peer, SECOND).active);
    assert_eq!(ended(&peer), None);
}

fn an_acknowledgement_starts_the_count_anew(stage: &Stage) {
    let mut peer = stage.established_with(impatient(3, 5));
    for n in 0..5 {
        writes(&mut peer, 100);
        assert!(silent_until_timeouts(&mut peer, 3 * (n + 1)));
        peer.sends().sack(n as i32, &[]).go();
    }
    assert_eq!((ended(&peer), statistics(&peer).timeouts), (None, 15));
}

fn an_answered_heartbeat_starts_the_count_anew(stage: &Stage) {
    let config = AssociationConfig { association_retries_max: 3, ..AssociationConfig::default() };
    let mut peer = stage.established_with(config);
    let mut heartbeats = 0;
    watches(&mut peer, Duration::from_secs(3600), |peer, to, packet| {
        heartbeats += 1;
        if heartbeats % 4 == 0 {
            assert!(answers_heartbeat(peer, to, packet));
        }
    });
    assert!(heartbeats > 50);
    assert_eq!(ended(&peer), None);
}

fn an_address_that_does_not_answer_is_given_up_alone(stage: &Stage) {
    let mut peer = multihomed(stage, impatient(10, 2), &[SECOND]);
    let home = peer.address.ip();
    writes(&mut peer, 100);
    // Data that times out goes to the other address, so each of them fails in turn.
    assert!(silent_until_timeouts(&mut peer, 4));
    assert_eq!((path(&peer, home).errors, path(&peer, SECOND).errors), (2, 2));
    assert!(silent_until_timeouts(&mut peer, 5), "one more than Path.Max.Retrans");
    assert_eq!((path(&peer, home).active, path(&peer, SECOND).active), (false, true));
    assert_eq!(peer.hears_on().0.ip(), SECOND);
    assert_eq!(path_changes(&peer, home, false), 1);
    assert_eq!(path_changes(&peer, SECOND, false), 0);
}

fn an_acknowledgement_clears_the_count_of_its_address(stage: &Stage) {
    let mut peer = stage.established_with(impatient(10, 2));
    let home = peer.address.ip();
    for n in 0..4 {
        writes(&mut peer, 100);
        assert!(silent_until_timeouts(&mut peer, 2 * (n + 1)));
        peer.sends().sack(n as i32, &[]).go();
    }
    assert_eq!(path_changes(&peer, home, false), 0);
}

fn an_acknowledgement_makes_its_address_active_again(stage: &Stage) {
    let mut peer = stage.established_with(impatient(10, 2));
    let home = peer.address.ip();
    writes(&mut peer, 100);
    assert!(silent_until_timeouts(&mut peer, 3));
    assert!(!path(&peer, home).active);
    peer.sends().sack(0, &[]).go();
    assert!(path(&peer, home).active);
    assert_eq!(path_changes(&peer, home, true), 1);
}

fn one_address_takes_over_from_a_primary_that_failed(stage: &Stage) {
    let mut peer = multihomed(stage, impatient(10, 1), &[SECOND, THIRD]);
    let home = peer.address.ip();
    writes(&mut peer, 100);
    while path(&peer, home).active {
        let timeouts = statistics(&peer).timeouts;
        assert!(silent_until_timeouts(&mut peer, timeouts + 1));
    }
    peer.sends().sack(0, &[]).go();
    ignores(&mut peer);
    // The acknowledgement may have come for another address; the next packets show which one is used.
    let mut used = Vec::new();
    for n in 1..10 {
        writes(&mut peer, 100);
        let (to, packet) = peer.hears_on();
        assert_eq!(data_of(&packet).len(), 1);
        used.push(to.ip());
        from(&mut peer, to.ip(), |peer| peer.sends().sack(n, &[]).go());
    }
    used.dedup();
    assert_eq!(used.len(), 1, "{used:?}");
}

fn every_idle_address_is_probed_about_every_interval(stage: &Stage) {
    let mut peer = multihomed(stage, AssociationConfig::default(), &[SECOND]);
    let home = peer.address.ip();
    let mut times = vec![(home, peer.now), (SECOND, peer.now)];
    watches(&mut peer, Duration::from_secs(3600), |peer, to, packet| {
        assert!(answers_heartbeat(peer, to, packet));
        times.push((to.ip(), peer.now));
    });
    for address in [home, SECOND] {
        let times: Vec<_> = times.iter().filter(|t| t.0 == address).map(|t| t.1).collect();
        assert!(times.len() > 100);
        let steps: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let allowed = Duration::from_secs(30) + RTO / 2..=Duration::from_secs(30) + RTO * 3 / 2;
        assert!(steps.iter().all(|step| allowed.contains(step)), "{steps:?}");
        let spread = steps.iter().max().zip(steps.iter().min()).map(|(max, min)| *max - *min);
        assert!(spread > Some(RTO / 2), "they are jittered: {spread:?}");
    }
}

fn unanswered_heartbeats_come_ever_more_rarely(stage: &Stage) {
    let config = AssociationConfig {
        heartbeat_interval: Some(Duration::from_secs(1)),
        association_retries_max: 100,
        ..AssociationConfig::default()
    };
    let mut peer = stage.established_with(config);
    let mut times = vec![peer.now];
    watches(&mut peer, Duration::from_secs(300), |peer, _, _| times.push(peer.now));
    let steps: Vec<_> = times.windows(2).map(|w| (w[1] - w[0]).as_secs()).collect();
    // HB.interval, the time for an answer, and the RTO that has doubled, give or take half of it.
    for (step, rto) in steps.iter().skip(1).zip([1u64, 2, 4, 8, 16]) {
        assert!((1 + 2 * rto / 2..=1 + rto + 3 * rto).contains(step), "{step} s at {rto}: {steps:?}");
    }
}

fn a_heartbeat_is_answered_while_the_association_is_up(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().heartbeat(b"1").go();
    peer.expects("HEARTBEAT ACK");
    writes(&mut peer, 100);
    peer.expects("DATA 0");
    peer.app_shuts_down();
    peer.sends().heartbeat(b"2").go();
    peer.expects("HEARTBEAT ACK");
    let mut peer = outstanding(stage, 1);
    peer.sends().shutdown(-1).heartbeat(b"3").go();
    peer.expects("HEARTBEAT ACK");
}

fn a_heartbeat_is_answered_in_cookie_echoed(stage: &Stage) {
    let mut peer = stage.connecting_with(quiet());
    peer.takes_init();
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().heartbeat(b"0").go();
    peer.expects("HEARTBEAT ACK");
}

fn no_heartbeat_is_sent_once_the_end_has_begun(stage: &Stage) {
    let config = AssociationConfig {
        heartbeat_interval: Some(Duration::from_millis(100)),
        ..AssociationConfig::default()
    };
    let mut peer = stage.established_with(config);
    peer.app_shuts_down();
    watches(&mut peer, Duration::from_secs(100), |_, _, packet| assert!(!has(packet, Heartbeat::KIND)));
    assert_eq!(peer.endpoint.association_count(), 1);
}

fn an_address_is_probed_on_after_it_was_given_up(stage: &Stage) {
    let config = AssociationConfig { path_retries_max: 2, ..patient() };
    let mut peer = multihomed(stage, config, &[SECOND]);
    let mut unanswered = 0;
    watches(&mut peer, Duration::from_secs(1800), |peer, to, packet| {
        if to.ip() == SECOND {
            assert_eq!(path_changes(peer, SECOND, false), usize::from(unanswered > 2));
            unanswered += 1;
        } else {
            answers_heartbeat(peer, to, packet);
        }
    });
    assert!(unanswered > 10, "{unanswered}");
    assert_eq!(path_changes(&peer, SECOND, false), 1);
}

fn a_heartbeat_carries_a_number_that_nobody_can_guess(stage: &Stage) {
    let mut peer = multihomed(stage, AssociationConfig::default(), &[SECOND]);
    let mut seen = Vec::new();
    watches(&mut peer, Duration::from_secs(600), |peer, to, packet| {
        let info = heartbeat_info(packet).expect("a HEARTBEAT");
        assert_eq!(info.len(), 8);
        seen.push(info);
        answers_heartbeat(peer, to, packet);
    });
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert!(count > 30 && seen.len() == count);
}

fn a_heartbeat_ack_is_a_copy_of_its_heartbeat(stage: &Stage) {
    let mut peer = established(stage);
    let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
        // The information, an unknown parameter of odd length, and its padding.
        out.extend_from_slice(&[4, 0, 0, 21, 0, 1, 0, 8, 1, 2, 3, 4, 0x80, 9, 0, 9, 5, 6, 7, 8, 9, 0, 0, 0]);
    });
    let address = peer.address;
    peer.sends_raw(address, &packet);
    let answer = peer.hears();
    assert_eq!(answer[12..16], [5, 0, 0, 21]);
    assert_eq!(answer[16..], packet[16..]);
}

fn an_answered_heartbeat_makes_its_address_active_again(stage: &Stage) {
    let config = AssociationConfig { path_retries_max: 2, ..patient() };
    let mut peer = multihomed(stage, config, &[SECOND]);
    let answering = Cell::new(false);
    let see = |peer: &mut Peer, to: SocketAddr, packet: &Bytes| {
        if to.ip() != SECOND || answering.get() {
            answers_heartbeat(peer, to, packet);
        }
    };
    watches(&mut peer, Duration::from_secs(300), see);
    assert_eq!((path(&peer, SECOND).active, path_changes(&peer, SECOND, true)), (false, 1));
    answering.set(true);
    watches(&mut peer, Duration::from_secs(300), see);
    assert_eq!((path(&peer, SECOND).active, path_changes(&peer, SECOND, true)), (true, 2));
    // The count begins at zero again: two more without an answer are not enough.
    answering.set(false);
    let mut missed = 0;
    watches(&mut peer, Duration::from_secs(100), |peer, to, packet| {
        if to.ip() != SECOND || missed == 2 {
            answers_heartbeat(peer, to, packet);
        } else {
            missed += 1;
        }
    });
    assert_eq!((path(&peer, SECOND).active, missed), (true, 2));
}

fn an_answered_heartbeat_measures_the_round_trip(stage: &Stage) {
    let mut peer = stage.established();
    let home = peer.address.ip();
    let before = path(&peer, home).srtt.expect("the handshake was measured");
    let mut done = false;
    watches(&mut peer, Duration::from_secs(32), |peer, to, packet| {
        if !std::mem::replace(&mut done, true) {
            peer.waits(Duration::from_millis(70));
            assert!(answers_heartbeat(peer, to, packet));
        }
    });
    assert_eq!(path(&peer, home).srtt, Some(before * 7 / 8 + Duration::from_millis(70) / 8));
}

fn heartbeats_to_idle_addresses_do_not_leave_together(stage: &Stage) {
    let mut peer = multihomed(stage, AssociationConfig::default(), &[SECOND, THIRD]);
    let mut times = Vec::new();
    watches(&mut peer, Duration::from_secs(3600), |peer, to, packet| {
        times.push(peer.now);
        answers_heartbeat(peer, to, packet);
    });
    let count = times.len();
    times.dedup();
    assert!(count > 300);
    assert_eq!(times.len(), count);
}
