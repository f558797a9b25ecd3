//! Packets out of the blue and verification tags (RFC 9260 §8.4, §8.5).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use lab::packets::{build, header, kinds, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer, Say};
use sctp::{CloseReason, SendInfo};
use sctp_wire::Tsn;
use sctp_wire::cause::{Cause, NoUserData, StaleCookie};
use sctp_wire::chunk::{Abort, DataFlags, Init, ShutdownComplete};

use crate::peers::{Chunks, ended, established, outstanding, quiet, statistics};
use crate::rules::rules;
use crate::stage::Stage;

rules! {
    in "8.4" {
        SHOULD "discard a packet out of the blue from or to a group of hosts" => shown(a_packet_from_or_to_a_group_is_discarded, Silent);
        MUST "discard a packet out of the blue with ABORT silently" => shown(an_abort_out_of_the_blue_is_met_with_silence, Talkative);
        SHOULD "process an INIT with tag 0 as section 5.1 says" => shown(an_init_out_of_the_blue_is_answered, Silent, Kind);
        MUST "the ABORT that answers an INIT has its Initiate Tag as tag, and no T bit" => shown(an_init_that_cannot_be_taken_is_aborted_with_its_own_tag, Tag, Flags);
        MUST "process a COOKIE ECHO that comes first as section 5.1 says" => shown(a_cookie_echo_out_of_the_blue_is_judged_by_its_cookie, Silent, Talkative);
        SHOULD "answer SHUTDOWN ACK by SHUTDOWN COMPLETE" => shown(a_shutdown_ack_out_of_the_blue_is_completed_with_its_own_tag, Silent, Kind);
        MUST "that SHUTDOWN COMPLETE has the tag of the SHUTDOWN ACK and the T bit" => shown_by(a_shutdown_ack_out_of_the_blue_is_completed_with_its_own_tag, Tag, Flags);
        SHOULD "discard SHUTDOWN COMPLETE silently" => shown(a_shutdown_complete_out_of_the_blue_is_met_with_silence, Talkative);
        SHOULD "discard COOKIE ACK and a Stale Cookie error silently" => shown(the_answers_of_a_handshake_out_of_the_blue_are_met_with_silence, Talkative);
        SHOULD "answer anything else out of the blue by ABORT" => shown(anything_else_out_of_the_blue_is_aborted_with_its_own_tag, Silent, Kind);
        MUST "that ABORT has the tag of the packet and the T bit" => shown_by(anything_else_out_of_the_blue_is_aborted_with_its_own_tag, Tag, Flags);
        MUST "discard the packet then and do nothing more" => shown_by(anything_else_out_of_the_blue_is_aborted_with_its_own_tag, Talkative, Twice);
    }
    in "8.5" {
        MUST "send packets with the Initiate Tag of the peer" => shown(every_packet_but_the_init_carries_the_peers_tag, Tag);
        MUST "check that the tag of a packet is our own" => shown(a_packet_with_another_tag_is_discarded, Deaf);
        MUST "discard a packet with another tag silently and do nothing more with it" => shown_by(a_packet_with_another_tag_is_discarded, Talkative);
    }
    in "8.5.1" {
        MUST "A: send INIT with tag 0" => shown_by(every_packet_but_the_init_carries_the_peers_tag, Tag);
        SHOULD "A: verify that a packet with tag 0 has only an INIT" => shown(tag_zero_is_for_a_lone_init, Talkative);
        MUST "A: discard such a packet with anything else silently" => shown_by(tag_zero_is_for_a_lone_init, Talkative);
        MUST "B: send ABORT with the tag of the peer if it is known" => shown(an_abort_carries_the_peers_tag_where_it_is_known, Tag, Flags);
        MUST "B: follow section 8.4 for an ABORT that answers a packet out of the blue" => shown_by(an_abort_carries_the_peers_tag_where_it_is_known, Tag, Flags);
        MUST "B: accept ABORT with our tag and no T bit, or with the peer's tag and the T bit" => shown(an_abort_counts_with_the_right_tag_only, Deaf);
        MUST "B: discard ABORT with another tag silently" => shown_by(an_abort_counts_with_the_right_tag_only, Talkative);
        MUST "C: SHUTDOWN COMPLETE has the tag of the peer and no T bit while the association is known" => shown(a_shutdown_complete_carries_the_peers_tag_or_reflects_it, Tag, Flags);
        MUST "C: without an association, it has the tag of the SHUTDOWN ACK and the T bit" => shown_by(a_shutdown_complete_carries_the_peers_tag_or_reflects_it, Tag, Flags);
        MUST "C: discard SHUTDOWN COMPLETE with another tag silently" => shown(a_shutdown_complete_counts_with_the_right_tag_only, Deaf, Talkative);
        MUST "C: ignore SHUTDOWN COMPLETE in another state than SHUTDOWN-ACK-SENT" => shown(a_shutdown_complete_counts_in_its_state_only, Talkative, Silent);
        MUST "D: send COOKIE ECHO with the Initiate Tag of the INIT ACK" => shown_by(every_packet_but_the_init_carries_the_peers_tag, Tag);
        SHOULD "E: treat SHUTDOWN ACK in COOKIE-WAIT and COOKIE-ECHOED as out of the blue" => shown(a_shutdown_ack_while_connecting_is_out_of_the_blue, Silent, Tag, Flags);
    }
}

const TAG: u32 = 0x1234_5678;
const RTO: Duration = Duration::from_secs(1);

/// Returns the answer to a packet out of the blue.
fn out_of_the_blue(stage: &Stage, say: impl FnOnce(Say<'_>) -> Say<'_>) -> Option<Bytes> {
    let mut peer = stage.listening_with(quiet());
    say(peer.sends().tag(TAG)).go();
    assert_eq!(peer.endpoint.association_count(), 0);
    let answer = peer.hears_maybe();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.poll_timeout(), None, "nothing is remembered");
    answer
}

fn a_packet_from_or_to_a_group_is_discarded(stage: &Stage) {
    let data = build(PEER_PORT, ENDPOINT_PORT, TAG, |out| {
        write_data(DataFlags::WHOLE, 1, 0, 0, b"?", out);
    });
    let host: IpAddr = [10, 0, 0, 9].into();
    let group: IpAddr = [224, 0, 0, 1].into();
    let everybody: IpAddr = [255, 255, 255, 255].into();
    for (source, destination, answered) in
        [(host, host, true), (group, host, false), (host, group, false), (host, everybody, false)]
    {
        let mut peer = stage.listening_with(quiet());
        let source = SocketAddr::new(source, 9899);
        peer.endpoint.handle_datagram(peer.now, source, Some(destination), &data, &mut peer.app);
        peer.collect_output();
        assert_eq!(peer.hears_maybe().is_some(), answered, "{source} to {destination}");
    }
}

fn an_abort_out_of_the_blue_is_met_with_silence(stage: &Stage) {
    assert_eq!(out_of_the_blue(stage, |say| say.abort(false)), None);
    assert_eq!(out_of_the_blue(stage, |say| say.abort(true)), None);
    assert_eq!(out_of_the_blue(stage, |say| say.shutdown_ack().abort(true)), None);
    assert_eq!(out_of_the_blue(stage, |say| say.data(0).abort(false)), None);
}

fn an_init_out_of_the_blue_is_answered(stage: &Stage) {
    let mut peer = stage.listening_with(quiet());
    peer.sends().tag(0).init().go();
    peer.expects("INIT ACK");
}

fn an_init_that_cannot_be_taken_is_aborted_with_its_own_tag(stage: &Stage) {
    let mut peer = stage.listening_with(quiet());
    // That port has no listener; and an INIT without streams.
    let nowhere = build(PEER_PORT, ENDPOINT_PORT + 1, 0, |out| peer.init().write(out));
    let init = Init { outbound_streams: 0, ..peer.init() };
    let nothing = build(PEER_PORT, ENDPOINT_PORT, 0, |out| init.write(out));
    for packet in [nowhere, nothing] {
        let address = peer.address;
        peer.sends_raw(address, &packet);
        let answer = peer.hears();
        assert_eq!(kinds(&answer), [Abort::KIND]);
        assert_eq!((header(&answer).verification_tag.0, answer[13] & 1), (peer.tag, 0));
    }
}

fn a_cookie_echo_out_of_the_blue_is_judged_by_its_cookie(stage: &Stage) {
    let mut peer = stage.listening_with(quiet());
    peer.sends().tag(0).init().go();
    let cookie = peer.takes_init_ack();
    peer.sends().cookie_echo(b"not one of ours").go();
    peer.expects_nothing();
    peer.sends().cookie_echo(&cookie).data(0).go();
    peer.expects("COOKIE ACK, SACK 0");
    assert_eq!(peer.endpoint.association_count(), 1);
}

fn a_shutdown_ack_out_of_the_blue_is_completed_with_its_own_tag(stage: &Stage) {
    let answer = out_of_the_blue(stage, |say| say.shutdown_ack()).expect("an answer");
    assert_eq!(kinds(&answer), [ShutdownComplete::KIND]);
    assert_eq!((header(&answer).verification_tag.0, answer[13] & 1), (TAG, 1));
}

fn a_shutdown_complete_out_of_the_blue_is_met_with_silence(stage: &Stage) {
    assert_eq!(out_of_the_blue(stage, |say| say.shutdown_complete(false)), None);
    assert_eq!(out_of_the_blue(stage, |say| say.shutdown_complete(true)), None);
}

fn the_answers_of_a_handshake_out_of_the_blue_are_met_with_silence(stage: &Stage) {
    assert_eq!(out_of_the_blue(stage, |say| say.cookie_ack()), None);
    let stale = Cause::StaleCookie(StaleCookie { staleness_us: 1 });
    assert_eq!(out_of_the_blue(stage, |say| say.error(&stale)), None);
}

fn anything_else_out_of_the_blue_is_aborted_with_its_own_tag(stage: &Stage) {
    let user = Cause::NoUserData(NoUserData { tsn: Tsn(1) });
    let answers = [
        out_of_the_blue(stage, |say| say.data(0)),
        out_of_the_blue(stage, |say| say.data(0).data(1).heartbeat(b"?")),
        out_of_the_blue(stage, |say| say.sack(0, &[])),
        out_of_the_blue(stage, |say| say.heartbeat(b"?")),
        out_of_the_blue(stage, |say| say.heartbeat_ack(b"?")),
        out_of_the_blue(stage, |say| say.shutdown(0)),
        out_of_the_blue(stage, |say| say.init_ack(b"cookie")),
        out_of_the_blue(stage, |say| say.error(&user)),
        // An unknown chunk that asks to stop without a report. The packet is still out of the blue.
        out_of_the_blue(stage, |say| say.chunk(|_, out| out.extend_from_slice(&[63, 0, 0, 4]))),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let answer = answer.unwrap_or_else(|| panic!("packet {number} is answered"));
        assert_eq!(kinds(&answer), [Abort::KIND]);
        assert_eq!((header(&answer).verification_tag.0, answer[13] & 1), (TAG, 1));
    }
}

fn every_packet_but_the_init_carries_the_peers_tag(stage: &Stage) {
    let mut peer = stage.connecting_with(quiet());
    let tag_of = |peer: &mut Peer, chunk: u8| {
        let packet = peer.hears();
        assert_eq!(kinds(&packet)[0], chunk);
        header(&packet).verification_tag.0
    };
    assert_eq!(tag_of(&mut peer, 1), 0, "INIT");
    peer.waits(RTO);
    peer.takes_init();
    peer.sends().init_ack(b"cookie").go();
    let tag = peer.tag;
    assert_eq!(tag_of(&mut peer, 10), tag, "COOKIE ECHO");
    peer.sends().cookie_ack().go();
    peer.app_sends(SendInfo::default(), &b"hello"[..]);
    assert_eq!(tag_of(&mut peer, 0), tag, "DATA");
    peer.sends().sack(0, &[]).data(0).go();
    assert_eq!(tag_of(&mut peer, 3), tag, "SACK");
    peer.sends().heartbeat(b"?").go();
    assert_eq!(tag_of(&mut peer, 5), tag, "HEARTBEAT ACK");
    peer.app_shuts_down();
    assert_eq!(tag_of(&mut peer, 7), tag, "SHUTDOWN");
    peer.sends().shutdown_ack().go();
    assert_eq!(tag_of(&mut peer, 14), tag, "SHUTDOWN COMPLETE");
}

fn a_packet_with_another_tag_is_discarded(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    let right = peer.endpoint_tag;
    for tag in [right ^ 1, right.wrapping_add(1), peer.tag, 0] {
        peer.sends().tag(tag).data(0).go();
        peer.sends().tag(tag).sack(0, &[]).go();
        peer.sends().tag(tag).heartbeat(b"?").go();
        peer.sends().tag(tag).shutdown(0).go();
        peer.expects_nothing();
    }
    assert!(peer.app.messages.is_empty());
    assert_eq!(statistics(&peer).outstanding_bytes, 100);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

fn tag_zero_is_for_a_lone_init(stage: &Stage) {
    let mut peer = stage.listening_with(quiet());
    peer.sends().tag(0).init().data(0).go();
    peer.sends().tag(0).init().init().go();
    peer.sends().tag(5).init().go();
    peer.expects_nothing();
    let mut peer = established(stage);
    peer.sends().tag(0).data(0).go();
    peer.sends().tag(0).shutdown(-1).go();
    peer.sends().tag(0).heartbeat(b"?").init().go();
    peer.expects_nothing();
    assert_eq!((peer.app.messages.len(), peer.endpoint.association_count()), (0, 1));
}

fn an_abort_carries_the_peers_tag_where_it_is_known(stage: &Stage) {
    let mut peer = established(stage);
    peer.endpoint.abort(peer.now, peer.id, b"", &mut peer.app);
    peer.collect_output();
    let packet = peer.hears();
    assert_eq!((header(&packet).verification_tag.0, packet[13] & 1), (peer.tag, 0));
    // Now the peer's packets are out of the blue.
    peer.sends().data(0).go();
    let packet = peer.hears();
    assert_eq!((header(&packet).verification_tag.0, packet[13] & 1), (peer.endpoint_tag, 1));
}

fn an_abort_counts_with_the_right_tag_only(stage: &Stage) {
    for (own_tag, reflected, counts) in
        [(true, false, true), (false, true, true), (true, true, false), (false, false, false)]
    {
        let mut peer = established(stage);
        let tag = if own_tag { peer.endpoint_tag } else { peer.tag };
        peer.sends().tag(tag).abort(reflected).go();
        peer.expects_nothing();
        assert_eq!(ended(&peer).is_some(), counts);
    }
}

fn a_shutdown_complete_carries_the_peers_tag_or_reflects_it(stage: &Stage) {
    let mut peer = established(stage);
    peer.app_shuts_down();
    peer.expects("SHUTDOWN -1");
    peer.sends().shutdown_ack().go();
    let packet = peer.hears();
    assert_eq!((header(&packet).verification_tag.0, packet[13] & 1), (peer.tag, 0));
    peer.sends().shutdown_ack().go();
    let packet = peer.hears();
    assert_eq!((header(&packet).verification_tag.0, packet[13] & 1), (peer.endpoint_tag, 1));
}

fn a_shutdown_complete_counts_with_the_right_tag_only(stage: &Stage) {
    for (own_tag, reflected, counts) in
        [(true, false, true), (false, true, true), (true, true, false), (false, false, false)]
    {
        let mut peer = established(stage);
        peer.sends().shutdown(-1).go();
        peer.expects("SHUTDOWN ACK");
        let tag = if own_tag { peer.endpoint_tag } else { peer.tag };
        peer.sends().tag(tag).shutdown_complete(reflected).go();
        peer.expects_nothing();
        assert_eq!(ended(&peer), counts.then_some(CloseReason::Shutdown));
    }
}

fn a_shutdown_complete_counts_in_its_state_only(stage: &Stage) {
    let mut peer = outstanding(stage, 1);
    peer.sends().shutdown_complete(false).go();
    peer.app_shuts_down();
    peer.sends().shutdown_complete(false).go();
    peer.sends().sack(0, &[]).go();
    peer.expects("SHUTDOWN -1");
    peer.sends().shutdown_complete(false).go();
    let tag = peer.tag;
    peer.sends().tag(tag).shutdown_complete(true).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
}

fn a_shutdown_ack_while_connecting_is_out_of_the_blue(stage: &Stage) {
    for echoed in [false, true] {
        let mut peer = stage.connecting_with(quiet());
        peer.takes_init();
        if echoed {
            peer.sends().init_ack(b"cookie").go();
            peer.expects("COOKIE ECHO");
        }
        for tag in [TAG, peer.endpoint_tag] {
            peer.sends().tag(tag).shutdown_ack().go();
            let packet = peer.hears();
            assert_eq!(kinds(&packet), [ShutdownComplete::KIND]);
            assert_eq!((header(&packet).verification_tag.0, packet[13] & 1), (tag, 1));
        }
        assert_eq!(peer.endpoint.association_count(), 1);
    }
}
