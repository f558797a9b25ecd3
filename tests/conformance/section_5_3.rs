//! Tags, and the verification of paths (RFC 9260 §5.3.1, §5.4).

use std::net::SocketAddr;
use std::time::Duration;

use lab::packets::kinds;
use lab::script::Peer;
use sctp::{Event, PathChange, PathReason, SendInfo};
use sctp_wire::chunk::{Abort, CookieAck, CookieEcho, Heartbeat, HeartbeatAck};

use crate::rules::rules;
use crate::section_3_1::packets_carry_the_tag_of_the_peer;
use crate::section_3_3_control::a_path_is_verified_with_a_nonce;
use crate::section_3_3_init::tags_and_initial_tsns_differ;
use crate::stage::Stage;
use crate::words::{only_chunk, parameter, sends_chunk, sends_init, sends_init_ack};

rules! {
    in "5.3.1" {
        SHOULD "choose Initiate Tags from 1 to 2^32 - 1" => shown_by(tags_and_initial_tsns_differ, Value);
        MUST_NOT "change the verification tag during the life of an association" => shown_by(packets_carry_the_tag_of_the_peer, Tag);
        MUST "use a new tag when an association to the same peer is set up again" => shown(a_new_association_has_a_new_tag, Value, Silent);
    }
    in "5.4" {
        SHOULD "limit the HEARTBEATs of each RTO by HB.Max.Burst" => shown(unconfirmed_addresses_are_probed_one_by_one, Twice, Talkative);
        MUST_NOT "send other chunks to an unconfirmed address" => shown(only_heartbeats_go_to_an_unconfirmed_address, Elsewhere);
        RULE "probe unconfirmed addresses with a nonce of 64 bits" => shown_by(a_path_is_verified_with_a_nonce, Length, Silent);
        RULE "the nonce that comes back confirms the address that it went to" => shown(the_nonce_confirms_its_address, Value, Deaf);
        RULE "another nonce confirms nothing" => shown(another_nonce_confirms_nothing, Elsewhere);
        MUST "bundle a COOKIE ACK to an unconfirmed address with HEARTBEAT" => shown(a_cookie_ack_to_an_unconfirmed_address_brings_a_heartbeat, Elsewhere);
        MUST_NOT "send COOKIE ACK to an unconfirmed address without bundling" => shown_by(a_cookie_ack_to_an_unconfirmed_address_brings_a_heartbeat, Elsewhere);
        MUST "bundle a COOKIE ECHO to an unconfirmed address with HEARTBEAT, within the PMTU" => shown(a_cookie_echo_goes_to_the_address_of_the_init, Elsewhere);
        MUST_NOT "send COOKIE ECHO to an unconfirmed address otherwise" => shown_by(a_cookie_echo_goes_to_the_address_of_the_init, Elsewhere);
    }
}

/// Returns another address of the peer.
fn other() -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 9], 9899))
}

fn a_new_association_has_a_new_tag(stage: &Stage) {
    let mut peer = stage.established();
    let old = peer.endpoint_tag;
    sends_chunk(&mut peer, Abort::KIND, 0, &[]);
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events.last().expect("it was accepted").id;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    // Packets that are still on their way to the old association do not reach the new one.
    peer.sends().tag(old).data(1).go();
    peer.expects_nothing();
    assert_eq!(peer.app.messages.len(), 1);
}

/// The peer has listed these addresses and one more in its INIT, and the association is up.
fn accepted(stage: &Stage, addresses: &[[u8; 4]]) -> Peer {
    let mut peer = stage.listening();
    let listed: Vec<u8> = addresses.iter().flat_map(|address| parameter(5, address)).collect();
    sends_init(&mut peer, &listed);
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer
}

fn unconfirmed_addresses_are_probed_one_by_one(stage: &Stage) {
    let mut peer = accepted(stage, &[[10, 0, 1, 9], [10, 0, 2, 9], [10, 0, 3, 9]]);
    for _ in 0..3 {
        // HB.Max.Burst is 1 (§16), and the RTO 1 s.
        peer.waits(Duration::from_millis(900));
        let mut probes = 0;
        while peer.hears_maybe().is_some() {
            probes += 1;
        }
        assert!(probes <= 1, "{probes} heartbeats within 0.9 s");
        peer.waits(Duration::from_millis(100));
    }
}

fn only_heartbeats_go_to_an_unconfirmed_address(stage: &Stage) {
    let mut peer = accepted(stage, &[[10, 0, 1, 9]]);
    peer.app_sends(SendInfo::default(), vec![0; 3000]);
    // Nothing is acknowledged, so the endpoint retransmits everything, and the other address does not answer either.
    peer.waits(Duration::from_secs(20));
    let mut packets = 0;
    while let Some((to, packet)) = peer.hears_on_maybe() {
        assert!(to == peer.address || kinds(&packet) == [Heartbeat::KIND], "{packet:?} went to {to}");
        packets += 1;
    }
    assert!(packets > 5);
}

/// Returns the HEARTBEAT that went to the other address.
fn probe(peer: &mut Peer) -> Vec<u8> {
    peer.waits(Duration::from_millis(1));
    let (to, packet) = peer.hears_on();
    assert_eq!(to, other());
    let heartbeat = only_chunk(&packet);
    assert_eq!(heartbeat.kind, Heartbeat::KIND);
    heartbeat.value
}

fn is_confirmed(peer: &Peer) -> bool {
    let (change, reason) = (PathChange::Confirmed, PathReason::Heartbeat);
    peer.app.saw(|event| *event == Event::PathChanged { remote: other(), change, reason })
}

fn the_nonce_confirms_its_address(stage: &Stage) {
    let mut peer = accepted(stage, &[[10, 0, 1, 9]]);
    let info = probe(&mut peer);
    peer.address = other();
    sends_chunk(&mut peer, HeartbeatAck::KIND, 0, &info);
    assert!(is_confirmed(&peer));
}

fn another_nonce_confirms_nothing(stage: &Stage) {
    let mut peer = accepted(stage, &[[10, 0, 1, 9]]);
    let mut info = probe(&mut peer);
    *info.last_mut().expect("it has bytes") ^= 1;
    peer.address = other();
    sends_chunk(&mut peer, HeartbeatAck::KIND, 0, &info);
    assert!(!is_confirmed(&peer));
}

fn a_cookie_ack_to_an_unconfirmed_address_brings_a_heartbeat(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &parameter(5, &[10, 0, 1, 9]));
    let cookie = peer.takes_init_ack();
    peer.address = other();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    let (to, packet) = peer.hears_on();
    assert_eq!((to, kinds(&packet)), (other(), vec![CookieAck::KIND, Heartbeat::KIND]));
}

fn a_cookie_echo_goes_to_the_address_of_the_init(stage: &Stage) {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack(&mut peer, &parameter(5, &[10, 0, 1, 9]));
    for seconds in [1, 2, 4, 8] {
        let (to, packet) = peer.hears_on();
        assert_eq!((to, kinds(&packet)[0]), (peer.address, CookieEcho::KIND));
        peer.waits(Duration::from_secs(seconds));
    }
}
