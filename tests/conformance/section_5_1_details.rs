//! Streams, addresses and cookies of the handshake (RFC 9260 §5.1.1, §5.1.2, §5.1.3, §5.1.5).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lab::packets::{build, data_of, kinds};
use lab::script::{ENDPOINT_PORT, Peer};
use sctp::{AssociationConfig, Event, SendError, SendInfo};
use sctp_wire::chunk::{Abort, CookieAck, CookieEcho, Error, Heartbeat, Init, InitAck};

use crate::rules::rules;
use crate::section_3_3_control::{a_cookie_is_small, the_cookie_ack_comes_first};
use crate::section_3_3_init::{an_init_with_a_host_name_is_aborted, an_init_without_addresses_has_one};
use crate::section_5_1::{an_init_ack_goes_where_the_init_came_from, later_data_is_acknowledged_by_and_by};
use crate::stage::Stage;
use crate::words::{
    causes, half, only_chunk, parameter, parameter_kinds, sends_chunk, sends_init, sends_init_ack_like,
};

rules! {
    in "5.1.1" {
        MUST "say in INIT and INIT ACK how many streams are wanted and allowed" => shown(init_and_init_ack_count_streams, Value);
        MUST "compare the peer's numbers with one's own" => shown(no_more_streams_than_the_peer_allows, Value, Deaf);
        MUST "use as many outbound streams as the peer allows" => shown_by(no_more_streams_than_the_peer_allows, Value, Deaf);
        MUST "streams go from 0 to min(local OS, remote MIS) - 1" => shown(the_last_stream_is_usable_and_no_other, Value, Silent);
    }
    in "5.1.2" {
        MUST "A: take the source address alone if none is listed" => shown_by(an_init_without_addresses_has_one, Elsewhere, Deaf);
        MUST "B: send ABORT at once if a host name is listed" => shown_by(an_init_with_a_host_name_is_aborted, Kind, Silent);
        SHOULD "B: send it to the source address of the packet" => shown(a_refusal_goes_to_the_source_address, Elsewhere);
        MUST "C: record the listed addresses and the source address" => shown(listed_addresses_become_paths, Elsewhere, Silent);
        SHOULD "C: use only these addresses" => shown_by(listed_addresses_become_paths, Elsewhere, Talkative);
        MUST "D: an INIT belongs to an association if any address in it identifies that" => shown(an_init_belongs_to_the_association_of_its_addresses, Kind);
        MUST "send INIT ACK to the source address of the INIT" => shown_by(an_init_ack_goes_where_the_init_came_from, Elsewhere);
        MUST "an endpoint with one address family uses all addresses of that family" => not_applicable("the core knows both families");
        SHOULD_NOT "such an endpoint answers the other family with an error" => not_applicable("the core knows both families");
        SHOULD "take the family that an INIT uses as supported, whatever it lists" => shown(the_family_of_the_init_is_supported, Silent, Elsewhere);
        SHOULD_NOT "answer such an INIT with an error" => shown_by(the_family_of_the_init_is_supported, Kind, Talkative);
    }
    in "5.1.3" {
        MUST "a cookie has a MAC" => shown(every_byte_of_a_cookie_is_protected, Talkative, Value);
        SHOULD "a cookie has its time of creation, its life, ports, tags and all that it takes" => shown(a_cookie_knows_time_tags_and_ports, Silent, Talkative);
        SHOULD "the MAC is a good one" => shown_by(every_byte_of_a_cookie_is_protected, Talkative, Value);
        SHOULD "the key is random" => shown(a_cookie_of_another_endpoint_is_nothing, Talkative);
        SHOULD "the key changes reasonably often" => shown(a_cookie_with_an_old_key_is_dropped, Talkative);
        RULE "a fresh cookie is good whenever the key changes" => shown(a_fresh_cookie_is_good_at_any_hour, Silent, Value);
        MUST_NOT "a cookie that is not encrypted contains what should not be shared" => shown(a_cookie_tells_no_tags_of_the_association, Silent);
        SHOULD "the cookie is as small as possible" => shown_by(a_cookie_is_small, Length);
    }
    in "5.1.5" {
        MUST "drop a COOKIE ECHO silently whose key is gone" => shown_by(a_cookie_with_an_old_key_is_dropped, Talkative);
        MUST "drop the packet with its DATA silently if the MAC is wrong" => shown(data_with_a_forged_cookie_is_dropped, Talkative);
        MUST "drop it silently if ports or tag are not those of the cookie" => shown(a_cookie_is_good_for_its_ports_and_tag_alone, Talkative);
        SHOULD "drop a packet with an expired cookie and its DATA" => shown(an_expired_cookie_brings_no_data, Kind, Talkative);
        MUST "answer it with ERROR and the cause Stale Cookie" => shown_by(an_expired_cookie_brings_no_data, Value, Silent);
        MUST "COOKIE ACK is the first chunk of its packet" => shown_by(the_cookie_ack_comes_first, Order);
        SHOULD "acknowledge DATA with the COOKIE ECHO at once, and later DATA as §6.2 says" => shown_by(later_data_is_acknowledged_by_and_by, Talkative, Silent);
        MUST "COOKIE ACK comes before a SACK" => shown_by(the_cookie_ack_comes_first, Order);
        SHOULD "follow §5.2 if the association exists" => shown(a_repeated_cookie_makes_no_second_association, Silent, Kind);
    }
}

fn init_and_init_ack_count_streams(stage: &Stage) {
    let config = AssociationConfig { streams_out: 5, streams_in_max: 9, ..AssociationConfig::default() };
    let init = only_chunk(&stage.connecting_with(config.clone()).hears());
    assert_eq!((half(&init.value, 8), half(&init.value, 10)), (5, 9));
    let mut peer = stage.listening_with(config);
    sends_init(&mut peer, &[]);
    let init_ack = only_chunk(&peer.hears());
    assert_eq!((half(&init_ack.value, 8), half(&init_ack.value, 10)), (5, 9));
}

/// The endpoint wants ten streams, and the peer allows three.
fn with_three_streams(stage: &Stage) -> Peer {
    let mut peer = stage.connecting();
    peer.takes_init();
    sends_init_ack_like(&mut peer, &[], |init| Init { inbound_streams: 3, outbound_streams: 4, ..init });
    peer.expects("COOKIE ECHO");
    sends_chunk(&mut peer, CookieAck::KIND, 0, &[]);
    peer
}

fn no_more_streams_than_the_peer_allows(stage: &Stage) {
    let mut peer = with_three_streams(stage);
    assert!(peer.app.saw(|event| *event == Event::Connected { streams_out: 3, streams_in: 4 }));
    peer.app_sends(SendInfo { stream: 2, ..SendInfo::default() }, &b"on the last one"[..]);
    assert_eq!(data_of(&peer.hears())[0].stream, 2);
}

fn the_last_stream_is_usable_and_no_other(stage: &Stage) {
    let mut peer = with_three_streams(stage);
    let on = |stream| SendInfo { stream, ..SendInfo::default() };
    let message = || [b"message"[..].into()];
    let beyond = peer.endpoint.send(peer.now, peer.id, &on(3), 7, message());
    assert_eq!(beyond, Err(SendError::NoSuchStream { stream: 3, streams: 3 }));
    for (number, stream) in (0..).zip([0, 1, 2]) {
        peer.app_sends(on(stream), &b"message"[..]);
        assert_eq!(data_of(&peer.hears())[0].stream, stream);
        peer.sends().sack(number, &[]).go();
    }
}

fn a_refusal_goes_to_the_source_address(stage: &Stage) {
    let mut peer = stage.listening();
    peer.address = SocketAddr::from(([10, 0, 7, 7], 7777));
    sends_init(&mut peer, &[parameter(5, &[10, 0, 8, 8]), parameter(11, b"peer.example\0")].concat());
    let (to, packet) = peer.hears_on();
    assert_eq!((to, kinds(&packet)), (peer.address, vec![Abort::KIND]));
}

fn listed_addresses_become_paths(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[parameter(5, &[10, 0, 1, 9]), parameter(6, &[0xfd; 16])].concat());
    let cookie = peer.takes_init_ack();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    // One address after the other is probed.
    peer.waits(Duration::from_secs(1));
    let mut expected = [peer.address.ip(), IpAddr::from([10, 0, 1, 9]), IpAddr::from([0xfd_u8; 16])];
    let mut reached = Vec::new();
    while let Some((to, packet)) = peer.hears_on_maybe() {
        let kind = if to == peer.address { CookieAck::KIND } else { Heartbeat::KIND };
        assert_eq!(kinds(&packet), [kind]);
        reached.push(to.ip());
    }
    expected.sort_unstable();
    reached.sort_unstable();
    assert_eq!(reached, expected);
}

fn an_init_belongs_to_the_association_of_its_addresses(stage: &Stage) {
    let mut peer = stage.established();
    let known = peer.address;
    peer.address = SocketAddr::from(([10, 0, 7, 7], 9899));
    sends_init(&mut peer, &parameter(5, &[10, 0, 0, 9]));
    // The new address would be added to the association (RFC 9260 §5.2.2).
    let packet = peer.hears();
    assert_eq!(kinds(&packet), [Abort::KIND]);
    peer.address = known;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

fn the_family_of_the_init_is_supported(stage: &Stage) {
    let mut peer = stage.listening();
    // The packet comes over IPv4 and lists IPv6.
    sends_init(&mut peer, &parameter(12, &[0, 6]));
    let (to, packet) = peer.hears_on();
    assert_eq!((to, kinds(&packet)), (peer.address, vec![InitAck::KIND]));
    assert_eq!(parameter_kinds(&only_chunk(&packet)), [7]);
    peer.expects_nothing();
}

fn every_byte_of_a_cookie_is_protected(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    for at in 0..cookie.len() {
        let mut forged = cookie.clone();
        forged[at] ^= 0x10;
        sends_chunk(&mut peer, CookieEcho::KIND, 0, &forged);
        peer.expects_nothing();
    }
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
}

fn a_cookie_knows_time_tags_and_ports(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    peer.waits(Duration::from_secs(59));
    peer.expects_nothing();
    let echo = |out: &mut Vec<u8>| CookieEcho { cookie: &cookie }.write(out);
    peer.sends_raw(peer.address, &build(4999, ENDPOINT_PORT, peer.endpoint_tag, echo));
    peer.expects_nothing();
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

fn a_cookie_of_another_endpoint_is_nothing(stage: &Stage) {
    let mut other = stage.play(Peer::new(2, AssociationConfig::default()));
    sends_init(&mut other, &[]);
    let cookie = other.takes_init_ack();
    let mut peer = stage.listening();
    peer.endpoint_tag = other.endpoint_tag;
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn a_cookie_with_an_old_key_is_dropped(stage: &Stage) {
    let config = AssociationConfig { cookie_life: Duration::from_secs(7200), ..AssociationConfig::default() };
    let mut peer = stage.listening_with(config);
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    // The cookie would be valid for two hours, but its key is not.
    peer.waits(Duration::from_secs(3600));
    sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn a_fresh_cookie_is_good_at_any_hour(stage: &Stage) {
    for minutes in [0, 9, 10, 59, 61, 600] {
        let mut peer = stage.listening();
        peer.now = peer.now + Duration::from_secs(60 * minutes);
        sends_init(&mut peer, &[]);
        let cookie = peer.takes_init_ack();
        peer.now = peer.now + Duration::from_secs(59);
        sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
        peer.expects("COOKIE ACK");
    }
}

fn a_cookie_tells_no_tags_of_the_association(stage: &Stage) {
    let mut peer = stage.established();
    let tags = [peer.endpoint_tag.to_be_bytes(), peer.tag.to_be_bytes()];
    // An attacker that sends an INIT in the peer's name learns nothing that would let it act for the association.
    peer.tag ^= 1;
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    assert!(cookie.windows(4).all(|four| !tags.iter().any(|tag| tag == four)), "{cookie:x?}");
}

fn data_with_a_forged_cookie_is_dropped(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let mut cookie = peer.takes_init_ack();
    cookie[20] ^= 1;
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    peer.expects_nothing();
    assert!(peer.app.messages.is_empty());
}

fn a_cookie_is_good_for_its_ports_and_tag_alone(stage: &Stage) {
    let mut peer = stage.listening();
    peer.endpoint.listen(5002, AssociationConfig::default()).expect("the port is free");
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    let tag = peer.endpoint_tag;
    for (source, destination, tag) in [(4999, 5001, tag), (5000, 5002, tag), (5000, 5001, tag ^ 1)] {
        let packet = build(source, destination, tag, |out| CookieEcho { cookie: &cookie }.write(out));
        peer.sends_raw(peer.address, &packet);
        peer.expects_nothing();
    }
    assert_eq!(peer.endpoint.association_count(), 0);
}

fn an_expired_cookie_brings_no_data(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    peer.waits(Duration::from_millis(61_500));
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).data(0).go();
    let error = only_chunk(&peer.hears());
    let stale = vec![(3, 1_500_000_u32.to_be_bytes().to_vec())];
    assert_eq!((error.kind, causes(&error)), (Error::KIND, stale));
    peer.expects_nothing();
    assert!(peer.app.messages.is_empty() && peer.endpoint.association_count() == 0);
}

fn a_repeated_cookie_makes_no_second_association(stage: &Stage) {
    let mut peer = stage.listening();
    sends_init(&mut peer, &[]);
    let cookie = peer.takes_init_ack();
    for _ in 0..3 {
        sends_chunk(&mut peer, CookieEcho::KIND, 0, &cookie);
        peer.expects("COOKIE ACK");
    }
    assert_eq!(peer.endpoint.association_count(), 1);
}
