//! Termination of an association: ABORT and SHUTDOWN (RFC 9260 §9).

use std::time::Duration;

use lab::packets::{each_chunk, header, kinds};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use sctp::{Admission, CloseReason, Event, SendError, SendInfo};
use sctp_wire::cause::{Cause, Causes, UserInitiatedAbort};
use sctp_wire::chunk::{Abort, Chunk};

use crate::peers::{Chunks, ended, established, ignores, outstanding, quiet, statistics};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "9" {
        SHOULD "terminate the association when the endpoint exits from service" => shown(either_way_out_ends_the_association, Silent, Kind);
    }
    in "9.1" {
        MUST "an endpoint that aborts sends ABORT" => shown(an_abort_says_so_and_carries_no_data, Silent, Kind);
        MUST "ABORT carries the tag of the peer" => shown_by(an_abort_says_so_and_carries_no_data, Tag);
        MUST_NOT "bundle DATA with ABORT" => shown_by(an_abort_says_so_and_carries_no_data, Bundled, Talkative);
        SHOULD "an ABORT that the application wanted has the cause User-Initiated Abort" => shown_by(an_abort_says_so_and_carries_no_data, Value);
        MUST_NOT "answer a packet that contains ABORT" => shown(a_packet_with_an_abort_is_never_answered, Talkative);
        MUST "check the tag of an ABORT as section 8.5.1 says" => shown(an_abort_with_a_right_tag_ends_the_association, Deaf);
        MUST "remove the association when an ABORT comes" => shown_by(an_abort_with_a_right_tag_ends_the_association, Deaf, Talkative);
        SHOULD "report to the application that the peer has aborted" => shown_by(an_abort_with_a_right_tag_ends_the_association, Deaf);
        SHOULD "give the application the reason of a User-Initiated Abort" => shown(the_reason_of_an_abort_reaches_the_application, Deaf);
    }
    in "9.2" {
        SHOULD "start T2-shutdown with SHUTDOWN and enter SHUTDOWN-SENT" => shown(shutdown_is_sent_again_with_twice_the_time, Silent, Talkative);
        MUST "send SHUTDOWN again, with the last TSN, when T2-shutdown expires" => shown_by(shutdown_is_sent_again_with_twice_the_time, Silent, Value);
        MUST "follow section 6.3 for the time of T2-shutdown" => shown_by(shutdown_is_sent_again_with_twice_the_time, Late, Talkative);
        SHOULD "limit the repetitions of SHUTDOWN to Association.Max.Retrans" => shown(shutdown_is_not_repeated_for_ever, Talkative, Silent);
        SHOULD "destroy the TCB beyond that limit and report that the peer is unreachable" => shown_by(shutdown_is_not_repeated_for_ever, Talkative);
        SHOULD "clear the count and restart T2-shutdown when any packet of the peer comes" => shown(a_packet_of_the_peer_gives_it_more_time, Silent);
        MUST "ignore a shutdown of the application in SHUTDOWN-RECEIVED, and still answer SHUTDOWN" => shown(outstanding_data_is_finished_after_the_peers_shutdown, Talkative, Deaf);
        MUST "transmit what is outstanding after the SHUTDOWN of the peer, and take no new message" => shown_by(outstanding_data_is_finished_after_the_peers_shutdown, Silent, Deaf);
        MUST "in SHUTDOWN-SENT, answer each packet with DATA by SHUTDOWN at once and restart T2-shutdown" => shown(data_after_shutdown_is_answered_with_shutdown, Silent, Late, Value);
        MUST "send a SACK with that SHUTDOWN if there are gaps or duplicates" => shown(gaps_and_duplicates_after_shutdown_are_reported_in_a_sack, Missing, Value);
        SHOULD "abort when T5-shutdown-guard expires" => shown(a_shutdown_that_never_ends_is_aborted_by_the_guard, Silent);
        SHOULD "set T5-shutdown-guard to 5 times RTO.Max" => shown_by(a_shutdown_that_never_ends_is_aborted_by_the_guard, Silent);
        MUST "send SHUTDOWN ACK when nothing is outstanding, start T2-shutdown and enter SHUTDOWN-ACK-SENT" => shown(shutdown_ack_is_sent_again_with_twice_the_time, Silent, Kind);
        MUST "send SHUTDOWN ACK again when T2-shutdown expires" => shown_by(shutdown_ack_is_sent_again_with_twice_the_time, Silent, Late);
        SHOULD "limit the repetitions of SHUTDOWN ACK to Association.Max.Retrans" => shown(shutdown_ack_is_not_repeated_for_ever, Talkative, Silent);
        SHOULD "destroy the TCB beyond the limit of SHUTDOWN ACK and report that the peer is unreachable" => shown_by(shutdown_ack_is_not_repeated_for_ever, Talkative);
        MUST "on SHUTDOWN ACK stop T2-shutdown, send SHUTDOWN COMPLETE and remove the association" => shown(shutdown_ack_completes_the_shutdown, Silent, Tag, Flags, Talkative);
        SHOULD "discard SHUTDOWN COMPLETE in another state than SHUTDOWN-ACK-SENT" => shown(shutdown_complete_counts_only_where_it_is_waited_for, Talkative, Silent);
        SHOULD "in SHUTDOWN-ACK-SENT, SHUTDOWN COMPLETE stops T2-shutdown and ends the association" => shown(shutdown_complete_ends_the_association, Deaf, Talkative);
        SHOULD "begin the shutdown when all outstanding DATA is acknowledged" => shown(shutdown_waits_until_everything_is_acknowledged, Talkative, Silent);
        RULE "fill gaps in SHUTDOWN-PENDING" => shown(a_pending_shutdown_fills_gaps_first, Silent, Kind);
        SHOULD "reject new messages once the shutdown has begun on either side" => shown(no_message_is_taken_once_the_end_has_begun, Kind, Deaf);
        SHOULD "in SHUTDOWN-ACK-SENT, discard an INIT of the peer and send SHUTDOWN ACK again" => shown(an_init_meets_an_end_that_is_not_complete, Silent, Kind);
        SHOULD "answer SHUTDOWN ACK in COOKIE-WAIT and COOKIE-ECHOED by SHUTDOWN COMPLETE with its own tag" => shown(a_connect_meets_a_peer_that_is_still_ending_the_last_association, Tag, Flags, Bundled, Talkative);
        SHOULD "discard SHUTDOWN silently in COOKIE-WAIT and COOKIE-ECHOED" => shown(a_shutdown_before_the_association_is_up_is_discarded, Talkative);
        SHOULD "answer SHUTDOWN in SHUTDOWN-SENT by SHUTDOWN ACK at once and restart T2-shutdown" => shown(two_shutdowns_that_cross_are_both_acknowledged, Silent, Kind, Late);
        MUST "on SHUTDOWN ACK in SHUTDOWN-ACK-SENT, stop T2-shutdown, send SHUTDOWN COMPLETE and remove the association" => shown(two_shutdown_acks_that_cross_end_the_association, Silent, Kind);
    }
}

const RTO: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);

/// The endpoint has sent a SHUTDOWN.
fn shutdown_sent(stage: &Stage) -> Peer {
    let mut peer = established(stage);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer
}

/// The peer has sent a SHUTDOWN, and the endpoint has answered.
fn shutdown_ack_sent(stage: &Stage) -> Peer {
    let mut peer = established(stage);
    peer.sends().shutdown(-1).go();
    peer.expects("SHUTDOWN ACK");
    peer
}

/// The endpoint's application aborts.
fn app_aborts(peer: &mut Peer, reason: &[u8]) {
    peer.endpoint.abort(peer.now, peer.id, reason, &mut peer.app);
    peer.collect_output();
}

/// Returns whether the endpoint would take a message.
fn takes_messages(peer: &mut Peer) -> bool {
    match peer.endpoint.admit(peer.id, &SendInfo::default(), 1) {
        Admission::Fail(error) => {
            assert!(matches!(error, SendError::Closed | SendError::PeerShutdown));
            let sent = peer.endpoint.send(peer.now, peer.id, &SendInfo::default(), 1, [vec![1].into()]);
            assert_eq!(sent, Err(error));
            false
        }
        _ => true,
    }
}

fn either_way_out_ends_the_association(stage: &Stage) {
    for graceful in [true, false] {
        let mut peer = established(stage);
        if graceful {
            peer.app_shuts_down();
            peer.expects("SHUTDOWN -1");
            peer.sends().shutdown_ack().go();
            peer.expects("SHUTDOWN COMPLETE");
        } else {
            app_aborts(&mut peer, b"");
            peer.expects("ABORT");
        }
        assert!(ended(&peer).is_some());
        assert_eq!(peer.endpoint.association_count(), 0);
        assert_eq!(peer.endpoint.poll_timeout(), None, "no timer is left");
    }
}

fn an_abort_says_so_and_carries_no_data(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    // More data waits, and received data waits to be acknowledged.
    for _ in 0..20 {
        peer.endpoint
            .send(peer.now, peer.id, &SendInfo::default(), 1000, [vec![7; 1000].into()])
            .expect("it is taken");
    }
    app_aborts(&mut peer, b"out of coffee");
    let packet = peer.hears();
    assert_eq!(kinds(&packet), [Abort::KIND]);
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    each_chunk(&packet, |chunk| {
        let Chunk::Abort(abort) = chunk else { return };
        assert!(!abort.reflected_tag);
        let causes: Vec<_> = abort.causes.clone().flatten().collect();
        assert_eq!(causes, [Cause::UserInitiatedAbort(UserInitiatedAbort { reason: b"out of coffee" })]);
    });
    peer.expects_nothing();
}

fn a_packet_with_an_abort_is_never_answered(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().heartbeat(b"are you there").data(0).abort(false).go();
    peer.expects_nothing();
    // Out of the blue, and while connecting.
    peer.sends().abort(false).go();
    peer.sends().data(0).abort(true).go();
    peer.expects_nothing();
    let mut peer = stage.connecting_with(quiet());
    peer.takes_init();
    peer.sends().abort(false).go();
    peer.expects_nothing();
}

fn an_abort_with_a_right_tag_ends_the_association(stage: &Stage) {
    for (own_tag, reflected, counts) in
        [(true, false, true), (false, true, true), (true, true, false), (false, false, false)]
    {
        let mut peer = established(stage);
        let tag = if own_tag { peer.endpoint_tag } else { peer.tag };
        peer.sends().tag(tag).abort(reflected).go();
        assert_eq!(peer.endpoint.association_count(), usize::from(!counts));
        assert_eq!(
            ended(&peer),
            counts.then(|| CloseReason::PeerAborted { cause: None, text: String::new() })
        );
        peer.waits(Duration::from_secs(100));
        peer.expects_nothing();
    }
}

fn the_reason_of_an_abort_reaches_the_application(stage: &Stage) {
    let mut peer = established(stage);
    let mut causes = Vec::new();
    Cause::UserInitiatedAbort(UserInitiatedAbort { reason: b"moving house" }).write(&mut causes);
    let causes = Causes::new(&causes);
    peer.sends().chunk(|_, out| Abort { reflected_tag: false, causes }.write(out)).go();
    assert_eq!(
        ended(&peer),
        Some(CloseReason::PeerAborted { cause: Some(12), text: "moving house".to_owned() })
    );
}

fn shutdown_waits_until_everything_is_acknowledged(stage: &Stage) {
    let mut peer = outstanding(stage, 2);
    peer.app_shuts_down();
    peer.expects_nothing();
    peer.sends().sack(0, &[]).go();
    peer.expects_nothing();
    peer.sends().sack(1, &[]).go();
    peer.expects("SHUTDOWN -1");
}

fn a_pending_shutdown_fills_gaps_first(stage: &Stage) {
    let mut peer = outstanding(stage, 5);
    peer.app_shuts_down();
    peer.sends().sack(-1, &[(2, 5)]).go();
    peer.expects("DATA 0");
    peer.expects_nothing();
    peer.sends().sack(4, &[]).go();
    peer.expects("SHUTDOWN -1");
}

fn shutdown_is_sent_again_with_twice_the_time(stage: &Stage) {
    let mut peer = shutdown_sent(stage);
    for (seconds, number) in [(1, -1), (2, -1), (4, -1), (8, -1), (16, -1), (32, -1), (60, -1), (60, -1)] {
        peer.waits(RTO * seconds - TICK);
        peer.expects_nothing();
        peer.waits(TICK);
        peer.expects(&format!("SHUTDOWN {number}"));
    }
    // From now on the endpoint acknowledges the data that arrived in between.
    peer.sends().data(0).data(1).go();
    peer.expects("SHUTDOWN 1, SACK 1");
    peer.waits(RTO);
    peer.expects("SHUTDOWN 1");
}

fn shutdown_is_not_repeated_for_ever(stage: &Stage) {
    let mut config = quiet();
    config.association_retries_max = 3;
    let mut peer = stage.established_with(config);
    peer.app_shuts_down();
    for _ in 0..4 {
        peer.expects("SHUTDOWN -1");
        assert_eq!(ended(&peer), None);
        let next = peer.endpoint.poll_timeout().expect("T2 runs");
        peer.waits(next.saturating_since(peer.now));
    }
    peer.expects("ABORT");
    peer.expects_nothing();
    assert_eq!(ended(&peer), Some(CloseReason::Timeout));
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn a_packet_of_the_peer_gives_it_more_time(stage: &Stage) {
    for by_data in [true, false] {
        let mut config = quiet();
        config.association_retries_max = 2;
        let mut peer = stage.established_with(config);
        peer.app_shuts_down();
        peer.expects("SHUTDOWN -1");
        for n in 0..10 {
            peer.waits(RTO);
            peer.hears();
            peer.waits(RTO * 2);
            peer.hears();
            peer.waits(RTO * 4 - TICK);
            if by_data {
                peer.sends().data(n).go();
                peer.hears();
            } else {
                peer.sends().heartbeat(b"still sending").go();
                ignores(&mut peer);
            }
            assert_eq!(peer.endpoint.association_count(), 1);
        }
    }
}

fn outstanding_data_is_finished_after_the_peers_shutdown(stage: &Stage) {
    let mut peer = outstanding(stage, 5);
    peer.sends().shutdown(-1).go();
    peer.expects_nothing();
    assert!(peer.app.saw(|e| *e == Event::PeerShutdown));
    assert!(!takes_messages(&mut peer));
    peer.app_shuts_down();
    peer.expects_nothing();
    // Data continues as in section 6: a gap is filled, and each SHUTDOWN acknowledges.
    peer.sends().sack(-1, &[(2, 5)]).go();
    peer.expects("DATA 0");
    peer.sends().shutdown(-1).go();
    peer.expects_nothing();
    assert_eq!(statistics(&peer).outstanding_bytes, 100);
    peer.sends().shutdown(4).go();
    peer.expects("SHUTDOWN ACK");
}

fn data_after_shutdown_is_answered_with_shutdown(stage: &Stage) {
    let mut peer = shutdown_sent(stage);
    for n in 0..12 {
        peer.waits(RTO - TICK);
        peer.sends().data(n).go();
        peer.expects(&format!("SHUTDOWN {n}, SACK {n}"));
    }
    peer.waits(RTO - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("SHUTDOWN 11");
    assert_eq!(peer.app.messages.len(), 12);
}

fn gaps_and_duplicates_after_shutdown_are_reported_in_a_sack(stage: &Stage) {
    let mut peer = shutdown_sent(stage);
    peer.sends().data(1).go();
    peer.expects("SHUTDOWN -1, SACK -1 gap 2-2");
    peer.sends().data(0).go();
    peer.expects("SHUTDOWN 1, SACK 1");
    peer.sends().data(0).go();
    peer.expects("SHUTDOWN 1, SACK 1 dup 0");
}

fn shutdown_ack_is_sent_again_with_twice_the_time(stage: &Stage) {
    let mut peer = shutdown_ack_sent(stage);
    for seconds in [1, 2, 4, 8] {
        peer.waits(RTO * seconds - TICK);
        peer.expects_nothing();
        peer.waits(TICK);
        peer.expects("SHUTDOWN ACK");
    }
    peer.sends().shutdown_complete(false).go();
    assert_eq!(ended(&peer), Some(CloseReason::Shutdown));
}

fn shutdown_ack_is_not_repeated_for_ever(stage: &Stage) {
    let mut config = quiet();
    config.association_retries_max = 3;
    let mut peer = stage.established_with(config);
    peer.sends().shutdown(-1).go();
    for _ in 0..4 {
        peer.expects("SHUTDOWN ACK");
        assert_eq!(ended(&peer), None);
        let next = peer.endpoint.poll_timeout().expect("T2 runs");
        peer.waits(next.saturating_since(peer.now));
    }
    peer.expects("ABORT");
    peer.expects_nothing();
    assert_eq!(ended(&peer), Some(CloseReason::Timeout));
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn shutdown_ack_completes_the_shutdown(stage: &Stage) {
    let mut peer = shutdown_sent(stage);
    peer.sends().shutdown_ack().go();
    let packet = peer.hears();
    assert_eq!(header(&packet).verification_tag.0, peer.tag);
    assert_eq!(packet[13], 0, "the tag is the peer's, not reflected");
    assert_eq!(ended(&peer), Some(CloseReason::Shutdown));
    assert_eq!(peer.endpoint.association_count(), 0);
    peer.waits(Duration::from_secs(200));
    peer.expects_nothing();
}

fn shutdown_complete_counts_only_where_it_is_waited_for(stage: &Stage) {
    let mut peer = established(stage);
    peer.sends().shutdown_complete(false).go();
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.sends().shutdown_complete(false).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.waits(RTO);
    peer.expects("SHUTDOWN -1");
}

fn shutdown_complete_ends_the_association(stage: &Stage) {
    let mut peer = shutdown_ack_sent(stage);
    peer.sends().shutdown_complete(false).go();
    assert_eq!(ended(&peer), Some(CloseReason::Shutdown));
    assert_eq!(peer.endpoint.association_count(), 0);
    assert_eq!(peer.endpoint.poll_timeout(), None);
    peer.expects_nothing();
}

fn no_message_is_taken_once_the_end_has_begun(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    assert!(takes_messages(&mut peer));
    peer.app_shuts_down();
    assert!(!takes_messages(&mut peer), "SHUTDOWN-PENDING");
    peer.sends().sack(0, &[]).go();
    peer.expects("SHUTDOWN -1");
    assert!(!takes_messages(&mut peer), "SHUTDOWN-SENT");
    let mut peer = outstanding(stage, 1);
    peer.sends().shutdown(-1).go();
    assert!(!takes_messages(&mut peer), "SHUTDOWN-RECEIVED");
    peer.sends().sack(0, &[]).go();
    peer.expects("SHUTDOWN ACK");
    assert!(!takes_messages(&mut peer), "SHUTDOWN-ACK-SENT");
}

fn an_init_meets_an_end_that_is_not_complete(stage: &Stage) {
    let mut peer = shutdown_ack_sent(stage);
    peer.sends().tag(0).init().go();
    peer.expects("SHUTDOWN ACK");
    assert_eq!(peer.endpoint.association_count(), 1);
    // Another port is another association.
    let packet = lab::packets::build(PEER_PORT + 1, ENDPOINT_PORT, 0, |out| peer.init().write(out));
    let address = peer.address;
    peer.sends_raw(address, &packet);
    peer.expects("INIT ACK");
}

fn a_connect_meets_a_peer_that_is_still_ending_the_last_association(stage: &Stage) {
    for echoed in [false, true] {
        let mut peer = stage.connecting_with(quiet());
        peer.takes_init();
        if echoed {
            peer.sends().init_ack(b"cookie").go();
            peer.expects("COOKIE ECHO");
        }
        peer.sends().tag(4711).shutdown_ack().go();
        let answer = peer.hears();
        assert_eq!(header(&answer).verification_tag.0, 4711);
        assert_eq!(&answer[12..], [14, 1, 0, 4], "a SHUTDOWN COMPLETE alone, T bit set");
        // T1 continues as if nothing had happened.
        peer.waits(RTO - TICK);
        peer.expects_nothing();
        peer.waits(TICK);
        peer.expects(if echoed { "COOKIE ECHO" } else { "INIT" });
    }
}

fn a_shutdown_before_the_association_is_up_is_discarded(stage: &Stage) {
    let mut peer = stage.connecting_with(quiet());
    peer.takes_init();
    peer.sends().shutdown(-1).go();
    peer.expects_nothing();
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().shutdown(-1).go();
    peer.expects_nothing();
    peer.sends().cookie_ack().go();
    assert!(peer.app.saw(|e| matches!(e, Event::Connected { .. })));
    assert!(!peer.app.saw(|e| *e == Event::PeerShutdown));
}

fn two_shutdowns_that_cross_are_both_acknowledged(stage: &Stage) {
    let mut peer = shutdown_sent(stage);
    peer.waits(RTO - TICK);
    peer.sends().shutdown(-1).go();
    peer.expects("SHUTDOWN ACK");
    peer.waits(RTO - TICK);
    peer.expects_nothing();
    peer.waits(TICK);
    peer.expects("SHUTDOWN ACK");
    peer.sends().shutdown_complete(false).go();
    assert_eq!(ended(&peer), Some(CloseReason::Shutdown));
}

fn two_shutdown_acks_that_cross_end_the_association(stage: &Stage) {
    let mut peer = shutdown_ack_sent(stage);
    peer.sends().shutdown_ack().go();
    peer.expects("SHUTDOWN COMPLETE");
    assert_eq!(ended(&peer), Some(CloseReason::Shutdown));
    assert_eq!((peer.endpoint.association_count(), peer.endpoint.poll_timeout()), (0, None));
}

fn a_shutdown_that_never_ends_is_aborted_by_the_guard(stage: &Stage) {
    let mut peer = established(stage);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    for n in 0..299 {
        peer.waits(RTO / 2);
        peer.sends().data(n).go();
        ignores(&mut peer);
        peer.waits(RTO / 2);
    }
    assert_eq!(peer.endpoint.association_count(), 1);
    peer.waits(RTO * 2);
    // T2 may have expired before.
    let mut last = Vec::new();
    while let Some(packet) = peer.hears_maybe() {
        last = kinds(&packet);
    }
    assert_eq!(last, [Abort::KIND]);
    assert_eq!(peer.endpoint.association_count(), 0);
}
