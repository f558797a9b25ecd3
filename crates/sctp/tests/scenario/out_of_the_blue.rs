//! Packets that belong to no association (RFC 9260 §8.4), and verification tags that do not fit (§8.5).

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use sctp::{
    AssociationConfig, BatchLimits, CloseReason, Endpoint, EndpointConfig, Event, Scope, Time, TransmitBuffer,
};
use sctp_wire::cause::{Cause, Causes, StaleCookie};
use sctp_wire::chunk::{
    Abort, CookieAck, CookieEcho, Error, Heartbeat, Init, InitAck, Shutdown, ShutdownAck, ShutdownComplete,
};
use sctp_wire::parameter::Parameters;
use sctp_wire::{Tsn, VerificationTag};

use lab::App;
use lab::packets::{build, header, kinds, write_data, write_sack};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};

const TAG: u32 = 0x1234_5678;

fn stale_cookie(out: &mut Vec<u8>) {
    let mut causes = Vec::new();
    Cause::StaleCookie(StaleCookie { staleness_us: 1 }).write(&mut causes);
    Error { causes: Causes::new(&causes) }.write(out);
}

fn abort(reflected_tag: bool) -> impl Fn(&mut Vec<u8>) {
    move |out| Abort { reflected_tag, causes: Causes::default() }.write(out)
}

fn data(out: &mut Vec<u8>) {
    write_data(sctp_wire::chunk::DataFlags::WHOLE, 1, 0, 0, b"?", out);
}

type Write = &'static dyn Fn(&mut Vec<u8>);

/// Returns the answer to a packet out of the blue.
fn answer(write: impl FnOnce(&mut Vec<u8>)) -> Option<Bytes> {
    answer_to(SocketAddr::from(([10, 0, 0, 9], 9899)), write)
}

fn answer_to(from: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) -> Option<Bytes> {
    let mut peer = Peer::new(1, AssociationConfig::default());
    peer.sends_raw(from, &build(PEER_PORT, ENDPOINT_PORT, TAG, write));
    assert_eq!(peer.endpoint.association_count(), 0);
    peer.hears_maybe()
}

#[test]
fn packets_for_another_program_get_no_answer_without_a_listener() {
    let config = EndpointConfig { shares_host: true, ..EndpointConfig::default() };
    let mut endpoint = Endpoint::new(config, [1; 32], BatchLimits { segments_max: 1, bytes_max: 1500 });
    endpoint.listen(ENDPOINT_PORT, AssociationConfig::default()).unwrap();
    let (mut app, mut buffer) = (App::default(), TransmitBuffer::new());
    let mut is_answered = |port, tag, write: Write| {
        let from = SocketAddr::from(([10, 0, 0, 9], 0));
        endpoint.handle_datagram(Time::ZERO, from, None, &build(PEER_PORT, port, tag, write), &mut app);
        endpoint.poll_transmit(Time::ZERO, Scope::All, &mut buffer).is_some()
    };
    let init: Write = &|out| {
        let (initiate_tag, initial_tsn) = (VerificationTag(TAG), Tsn(1));
        let (outbound_streams, inbound_streams, a_rwnd) = (1, 1, 10_000);
        let parameters = Parameters::new(&[]);
        Init { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters }.write(out);
    };
    for (tag, write) in [(TAG, &data as Write), (0, init)] {
        assert!(is_answered(ENDPOINT_PORT, tag, write));
        assert!(!is_answered(ENDPOINT_PORT + 1, tag, write));
    }
    // A peer that asks for the end of an association that is gone gets it, which harms nobody.
    assert!(is_answered(ENDPOINT_PORT + 1, TAG, &|out| ShutdownAck.write(out)));
}

#[test]
fn an_abort_is_met_with_silence_wherever_it_stands() {
    assert_eq!(answer(abort(false)), None);
    assert_eq!(answer(abort(true)), None);
    assert_eq!(
        answer(|out| {
            data(out);
            abort(false)(out);
        }),
        None
    );
}

#[test]
fn packets_that_end_a_handshake_or_an_association_get_no_answer() {
    assert_eq!(answer(|out| ShutdownComplete { reflected_tag: false }.write(out)), None);
    assert_eq!(answer(|out| CookieAck.write(out)), None);
    assert_eq!(answer(stale_cookie), None);
    assert_eq!(answer(|out| CookieEcho { cookie: b"not one of ours" }.write(out)), None);
}

#[test]
fn a_cookie_that_is_not_the_first_chunk_is_out_of_the_blue() {
    // RFC 9260 §8.4, 4 and 8.
    let answer = answer(|out| {
        data(out);
        CookieEcho { cookie: b"not one of ours" }.write(out);
    });
    assert_eq!(kinds(&answer.unwrap()), [Abort::KIND]);
}

#[test]
fn tag_zero_and_port_zero_are_met_with_silence() {
    // RFC 9260 §8.5.1 A and §3.1.
    let packets: [Write; 4] =
        [&data, &|out| CookieAck.write(out), &|out| CookieEcho { cookie: b"a cookie" }.write(out), &|out| {
            Heartbeat { info: b"?" }.write(out)
        }];
    for write in packets {
        for (source, destination, tag) in
            [(PEER_PORT, ENDPOINT_PORT, 0), (0, ENDPOINT_PORT, TAG), (PEER_PORT, 0, TAG)]
        {
            let mut peer = Peer::new(9, AssociationConfig::default());
            peer.sends_raw(peer.address, &build(source, destination, tag, write));
            peer.expects_nothing();
            let statistics = peer.endpoint.endpoint_statistics();
            assert_eq!(statistics.tag_errors + statistics.malformed, 1);
        }
    }
}

#[test]
fn a_shutdown_ack_for_a_connect_is_completed_as_out_of_the_blue() {
    // RFC 9260 §8.5.1 E, §9.2: our tag or not, the handshake goes on.
    for own in [true, false] {
        let mut peer = Peer::connecting(10, AssociationConfig::default());
        peer.takes_init();
        let tag = if own { peer.endpoint_tag } else { TAG };
        peer.sends().tag(tag).chunk(|_, out| ShutdownAck.write(out)).go();
        let answer = peer.hears();
        assert_eq!((kinds(&answer), answer[13] & 1), (vec![ShutdownComplete::KIND], 1));
        assert_eq!(header(&answer).verification_tag.0, tag);
        peer.sends().init_ack(b"cookie").go();
        peer.expects("COOKIE ECHO");
        peer.sends().tag(tag).chunk(|_, out| ShutdownAck.write(out)).go();
        peer.expects("SHUTDOWN COMPLETE T");
        peer.sends().chunk(|_, out| CookieAck.write(out)).go();
        assert!(peer.app.saw(|e| matches!(e, Event::Connected { .. })));
    }
}

#[test]
fn a_shutdown_ack_is_completed_with_its_own_tag() {
    let answer = answer(|out| ShutdownAck.write(out)).unwrap();
    assert_eq!(kinds(&answer), [ShutdownComplete::KIND]);
    assert_eq!((header(&answer).verification_tag.0, answer[13] & 1), (TAG, 1));
}

#[test]
fn a_shutdown_ack_without_a_tag_is_completed_unless_its_sender_is_a_peer() {
    let packet = build(PEER_PORT, ENDPOINT_PORT, 0, |out| ShutdownAck.write(out));
    let mut stranger = Peer::new(1, AssociationConfig::default());
    stranger.sends_raw(stranger.address, &packet);
    let answer = stranger.hears();
    assert_eq!(kinds(&answer), [ShutdownComplete::KIND]);
    assert_eq!((header(&answer).verification_tag.0, answer[13] & 1), (0, 1));
    // RFC 9260 §8.5.1 E: an established association discards it.
    let mut peer = Peer::established(2);
    peer.sends_raw(peer.address, &packet);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.endpoint_statistics().tag_errors, 1);
}

#[test]
fn anything_else_is_aborted_with_its_own_tag() {
    let packets: [Write; 8] = [
        &data,
        // The same bytes in an ERROR would report a stale cookie, which gets no answer.
        &|out| write_data(sctp_wire::chunk::DataFlags::WHOLE, 0x0003_0008, 0, 0, b"?", out),
        &|out| write_sack(1, 1, &[], out),
        &|out| Heartbeat { info: b"?" }.write(out),
        &|out| Shutdown { cum_tsn: Tsn(1) }.write(out),
        &|out| Error { causes: Causes::default() }.write(out),
        &|out| {
            let init = Peer::new(1, AssociationConfig::default()).init();
            InitAck {
                initiate_tag: init.initiate_tag,
                a_rwnd: init.a_rwnd,
                outbound_streams: 1,
                inbound_streams: 1,
                initial_tsn: init.initial_tsn,
                parameters: init.parameters(),
            }
            .write(out);
        },
        // An unknown chunk that asks to stop without a report. The packet is still out of the blue.
        &|out| out.extend_from_slice(&[63, 0, 0, 4]),
    ];
    for write in packets {
        let answer = answer(write).unwrap();
        assert_eq!(kinds(&answer), [Abort::KIND]);
        assert_eq!((header(&answer).verification_tag.0, answer[13] & 1), (TAG, 1));
        let back = header(&answer);
        assert_eq!((back.source_port, back.destination_port), (ENDPOINT_PORT, PEER_PORT));
    }
}

#[test]
fn groups_of_hosts_are_not_answered() {
    let home = IpAddr::from([10, 0, 0, 9]);
    let is_answered = |from, local, tag, write: Write| {
        let mut peer = Peer::new(1, AssociationConfig::default());
        let packet = build(PEER_PORT, ENDPOINT_PORT, tag, write);
        let from = SocketAddr::new(from, 9899);
        peer.endpoint.handle_datagram(peer.now, from, Some(local), &packet, &mut peer.app);
        peer.collect_output();
        peer.is_heard()
    };
    let init: Write = &|out| Peer::new(1, AssociationConfig::default()).init().write(out);
    for (tag, write) in [(TAG, &data as Write), (0, init)] {
        assert!(is_answered(home, home, tag, write));
        for group in ["224.0.0.1", "255.255.255.255", "0.0.0.0", "ff02::1", "::", "::ffff:224.0.0.1"] {
            let group = group.parse().unwrap();
            assert!(!is_answered(group, home, tag, write), "from {group}, tag {tag}");
            assert!(!is_answered(home, group, tag, write), "to {group}, tag {tag}");
        }
    }
}

#[test]
fn an_init_that_is_not_as_it_must_be_is_refused_or_dropped() {
    let mut peer = Peer::new(2, AssociationConfig::default());
    // With a tag, or with another chunk.
    peer.sends().tag(5).chunk(|p, out| p.init().write(out)).go();
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).chunk(|_, out| data(out)).go();
    peer.sends().tag(0).chunk(|_, out| data(out)).chunk(|p, out| p.init().write(out)).go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.endpoint_statistics().tag_errors, 3);
    // With values that are not permitted (RFC 9260 §3.3.2).
    for change in 0..3 {
        peer.sends()
            .tag(0)
            .chunk(|p, out| {
                let mut init = p.init();
                match change {
                    0 => init.outbound_streams = 0,
                    1 => init.inbound_streams = 0,
                    _ => init.a_rwnd = 1499,
                }
                init.write(out);
            })
            .go();
        let answer = peer.hears();
        assert_eq!((kinds(&answer), answer[13] & 1), (vec![Abort::KIND], 0));
        assert_eq!(header(&answer).verification_tag.0, peer.tag);
    }
    peer.sends()
        .tag(0)
        .chunk(|p, out| {
            let mut init = p.init();
            init.initiate_tag.0 = 0;
            init.write(out);
        })
        .go();
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 0);
    let statistics = peer.endpoint.endpoint_statistics();
    assert_eq!((statistics.malformed, statistics.inits_received), (4, 0));
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    peer.expects("INIT ACK");
    assert_eq!(peer.endpoint.endpoint_statistics().inits_received, 1);
}

#[test]
fn a_wrong_tag_is_dropped_in_silence() {
    let mut peer = Peer::established(3);
    let (own, theirs) = (peer.endpoint_tag, peer.tag);
    let before = peer.endpoint.statistics(peer.id);
    for tag in [0, own ^ 1, own.swap_bytes(), theirs] {
        peer.sends().tag(tag).data(0).go();
        peer.sends().tag(tag).chunk(|_, out| abort(false)(out)).go();
        peer.sends().tag(tag).chunk(|_, out| ShutdownAck.write(out)).go();
        peer.sends().tag(tag).chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
        peer.sends().tag(tag).sack(-1, &[]).go();
        peer.sends().tag(tag).chunk(|_, out| Heartbeat { info: b"?" }.write(out)).go();
    }
    peer.expects_nothing();
    assert_eq!(peer.endpoint.endpoint_statistics().tag_errors, 24);
    assert_eq!(peer.endpoint.statistics(peer.id), before);
    assert!(peer.app.messages.is_empty());
}

#[test]
fn an_abort_counts_with_our_tag_or_with_the_peers_own_reflected() {
    for (reflected, own, counts) in
        [(false, true, true), (true, false, true), (true, true, false), (false, false, false)]
    {
        let mut peer = Peer::established(4);
        let tag = if own { peer.endpoint_tag } else { peer.tag };
        peer.sends().tag(tag).chunk(|_, out| abort(reflected)(out)).go();
        peer.expects_nothing();
        assert_eq!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::PeerAborted { .. }))), counts);
        let discarded = peer.endpoint.statistics(peer.id).map(|statistics| statistics.chunks_discarded);
        assert_eq!(discarded, (!counts).then_some(u64::from(own)));
    }
}

#[test]
fn the_reserved_flags_of_an_abort_have_no_meaning() {
    // RFC 9260 §3.3.7.
    let mut peer = Peer::established(32);
    let tag = peer.tag;
    let with_all_flags = |out: &mut Vec<u8>| {
        let at = out.len();
        abort(true)(out);
        out[at + 1] = 0xff;
    };
    peer.sends().tag(tag).chunk(|_, out| with_all_flags(out)).go();
    assert_eq!(peer.endpoint.association_count(), 0);
}

#[test]
fn a_shutdown_complete_counts_with_our_tag_or_with_the_peers_own_reflected() {
    for (reflected, own, counts) in
        [(false, true, true), (true, false, true), (true, true, false), (false, false, false)]
    {
        let mut peer = Peer::established(5);
        peer.sends().chunk(|p, out| Shutdown { cum_tsn: p.endpoint_tsn(-1) }.write(out)).go();
        peer.expects("SHUTDOWN ACK");
        let tag = if own { peer.endpoint_tag } else { peer.tag };
        peer.sends().tag(tag).chunk(|_, out| ShutdownComplete { reflected_tag: reflected }.write(out)).go();
        assert_eq!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::Shutdown))), counts);
    }
}

#[test]
fn a_connect_cannot_be_refused_by_someone_who_does_not_know_the_tag() {
    let mut peer = Peer::connecting(6, AssociationConfig::default());
    peer.takes_init();
    let tag = peer.endpoint_tag;
    for (tag, reflected) in [(0, true), (0, false), (tag ^ 1, false), (tag ^ 1, true), (tag, true)] {
        peer.sends().tag(tag).chunk(|_, out| abort(reflected)(out)).go();
        assert_eq!(peer.endpoint.association_count(), 1, "tag {tag:x}, T {reflected}");
    }
    peer.sends().tag(tag).chunk(|_, out| abort(false)(out)).go();
    assert!(peer.app.saw(|e| matches!(e, Event::Closed(CloseReason::Refused))));
}

#[test]
fn another_address_does_not_speak_for_the_peer() {
    let mut peer = Peer::established(7);
    peer.address = SocketAddr::from(([192, 0, 2, 7], 9899));
    peer.sends().data(0).go();
    peer.sends().chunk(|_, out| abort(false)(out)).go();
    assert!(peer.app.messages.is_empty());
    assert_eq!(peer.endpoint.association_count(), 1);
    assert_eq!(peer.endpoint.endpoint_statistics().tag_errors, 2);
}

#[test]
fn a_peer_whose_udp_port_changed_is_followed() {
    // RFC 6951 §5.4.
    let mut peer = Peer::established(8);
    peer.address.set_port(12_345);
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    let (addresses, port) = peer.endpoint.peer_addresses(peer.id).unwrap();
    assert_eq!((addresses, port), (vec![peer.address], PEER_PORT));
    // An ABORT with the reflected tag finds it there.
    let tag = peer.tag;
    peer.sends().tag(tag).chunk(|_, out| abort(true)(out)).go();
    assert_eq!(peer.endpoint.association_count(), 0);
}

#[test]
fn a_packet_with_the_right_tag_and_another_sctp_port_is_not_the_peer_s() {
    let mut peer = Peer::established(30);
    for (errors, (from, to)) in
        [(PEER_PORT + 1, ENDPOINT_PORT), (PEER_PORT, ENDPOINT_PORT + 1)].into_iter().enumerate()
    {
        let abort = build(from, to, peer.endpoint_tag, abort(false));
        peer.sends_raw(peer.address, &abort);
        assert_eq!(peer.endpoint.association_count(), 1);
        assert_eq!(peer.endpoint.endpoint_statistics().tag_errors, errors as u64 + 1);
    }
    peer.sends().data(0).go();
    peer.expects("SACK 0");
}

#[test]
fn nobody_has_port_0() {
    // RFC 9260 §3.1. An INIT would be answered.
    let init = |out: &mut Vec<u8>| {
        let (initial_tsn, parameters) = (Tsn(1), Parameters::default());
        let (outbound_streams, inbound_streams) = (1, 1);
        let initiate_tag = VerificationTag(7);
        let init =
            Init { initiate_tag, a_rwnd: 5000, outbound_streams, inbound_streams, initial_tsn, parameters };
        init.write(out);
    };
    let mut peer = Peer::new(31, AssociationConfig::default());
    for (source, destination) in [(0, ENDPOINT_PORT), (PEER_PORT, 0), (0, 0)] {
        peer.sends_raw(peer.address, &build(source, destination, 0, init));
        assert_eq!(peer.hears_maybe(), None);
    }
    assert_eq!(peer.endpoint.endpoint_statistics().malformed, 3);
    peer.sends_raw(peer.address, &build(PEER_PORT, ENDPOINT_PORT, 0, init));
    assert!(peer.hears_maybe().is_some());
}
