//! Parameters of INIT and INIT ACK, accepted and refused (RFC 9260 §3.2.1, §3.2.2, §3.3.2, §3.3.3, §5.1, §5.1.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sctp::config::{COOKIE_BYTES_MAX, PEER_ADDRESSES_MAX};
use sctp::{AssociationConfig, CloseReason, Event};
use sctp_wire::cause::Cause;
use sctp_wire::chunk::{Chunk, CookieAck, CookieEcho, DataFlags, Init, InitAck};
use sctp_wire::parameter::{
    HostName, Ipv4, Ipv6, KindList, Parameter, Parameters, StateCookie, SupportedAddressTypes, Unknown,
};

use lab::packets::{each_chunk, header};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};

/// The peer sends an INIT with these parameters.
fn says_init(peer: &mut Peer, parameters: &[u8]) {
    let parameters = Parameters::new(parameters);
    peer.sends().tag(0).chunk(|p, out| Init { parameters: parameters.clone(), ..p.init() }.write(out)).go();
}

/// The peer sends an INIT ACK with these parameters, changed.
fn says_init_ack(peer: &mut Peer, parameters: &[u8], change: impl FnOnce(&mut InitAck<'_>)) {
    let parameters = Parameters::new(parameters);
    peer.sends()
        .chunk(|p, out| {
            let Init { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, .. } = p.init();
            let mut ack =
                InitAck { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters };
            change(&mut ack);
            ack.write(out);
        })
        .go();
}

fn cookie() -> Vec<u8> {
    let mut parameters = Vec::new();
    StateCookie { cookie: b"cookie" }.write(&mut parameters);
    parameters
}

/// Returns the causes of the ABORT or ERROR that the endpoint sends next, its tag and its T bit.
fn refusal(peer: &mut Peer) -> (String, u32, bool) {
    let packet = peer.hears();
    let mut text = String::new();
    each_chunk(&packet, |chunk| match chunk {
        Chunk::Abort(abort) => text.extend(abort.causes.clone().flatten().map(|c| name(&c))),
        other => panic!("an ABORT, not {other}"),
    });
    (text, header(&packet).verification_tag.0, packet[13] & 1 == 1)
}

fn name(cause: &Cause<'_>) -> String {
    match cause {
        Cause::UnresolvableAddress(c) => format!("unresolvable {}", c.parameter.len()),
        Cause::MissingMandatoryParameter(c) => format!("missing {}", c.kinds),
        Cause::InvalidMandatoryParameter(_) => "invalid".to_owned(),
        Cause::ProtocolViolation(_) => "violation".to_owned(),
        other => other.to_string(),
    }
}

/// Returns whether the association has ended by an ABORT with this cause to the peer.
fn ended_by(peer: &Peer, sent: u16) -> bool {
    peer.app
        .saw(|e| matches!(e, Event::Closed(CloseReason::ProtocolViolation { cause, .. }) if *cause == sent))
}

#[test]
fn a_host_name_is_refused_in_either_chunk() {
    // RFC 9260 §5.1.2 B.
    let mut parameters = Vec::new();
    HostName { host_name: b"peer.example\0" }.write(&mut parameters);
    let mut peer = Peer::new(1, AssociationConfig::default());
    says_init(&mut peer, &parameters);
    assert_eq!(refusal(&mut peer), ("unresolvable 17".into(), peer.tag, false));

    parameters.extend(cookie());
    let mut peer = Peer::connecting(2, AssociationConfig::default());
    peer.takes_init();
    says_init_ack(&mut peer, &parameters, |_| {});
    assert_eq!(refusal(&mut peer), ("unresolvable 17".into(), peer.tag, false));
    assert!(ended_by(&peer, 5));
}

#[test]
fn an_init_ack_without_a_cookie_is_told_what_is_missing() {
    let mut peer = Peer::connecting(3, AssociationConfig::default());
    peer.takes_init();
    says_init_ack(&mut peer, &[], |_| {});
    assert_eq!(refusal(&mut peer), ("missing 7".into(), peer.tag, false));
    assert!(ended_by(&peer, 2));
}

#[test]
fn an_init_ack_with_too_small_a_window_is_refused_and_changes_nothing() {
    // RFC 9260 §3.3.3.
    let mut peer = Peer::connecting(4, AssociationConfig::default());
    peer.takes_init();
    says_init_ack(&mut peer, &cookie(), |ack| ack.a_rwnd = 1499);
    assert_eq!(refusal(&mut peer), ("invalid".into(), peer.tag, false));
    assert!(peer.app.events.is_empty());
    peer.waits(Duration::from_secs(1));
    peer.takes_init();
    says_init_ack(&mut peer, &cookie(), |ack| ack.a_rwnd = 1500);
    peer.expects("COOKIE ECHO");
}

#[test]
fn only_an_init_ack_that_is_awaited_is_refused_for_its_window() {
    let mut peer = Peer::connecting(5, AssociationConfig::default());
    peer.takes_init();
    // These DATA bytes would be those of an INIT ACK with a tag and no window.
    peer.sends().data_with(DataFlags::WHOLE, 0, 0, 0, &[0; 8]).go();
    peer.expects_nothing();
    says_init_ack(&mut peer, &cookie(), |_| {});
    peer.expects("COOKIE ECHO");
    says_init_ack(&mut peer, &cookie(), |ack| ack.a_rwnd = 1499);
    peer.expects_nothing();
    assert_eq!(peer.endpoint.association_count(), 1);
}

#[test]
fn an_init_ack_without_streams_or_tag_ends_the_connect() {
    // RFC 9260 §3.3.3. Without a peer's tag, the answer has the tag of the peer's own packet.
    for change in 0..4 {
        let mut peer = Peer::connecting(5, AssociationConfig::default());
        peer.takes_init();
        says_init_ack(&mut peer, &cookie(), |ack| match change {
            0 => ack.outbound_streams = 0,
            1 => ack.inbound_streams = 0,
            2 => ack.initiate_tag.0 = 0,
            _ => (ack.initiate_tag.0, ack.a_rwnd) = (0, 1499),
        });
        let expected = match change {
            0 | 1 => ("invalid".into(), peer.tag, false),
            _ => (String::new(), peer.endpoint_tag, true),
        };
        assert_eq!(refusal(&mut peer), expected);
        peer.expects_nothing();
        assert!(ended_by(&peer, 7));
    }
}

#[test]
fn a_parameter_of_a_wrong_length_is_refused() {
    let mut parameters = Vec::new();
    Unknown { kind: Ipv4::KIND, value: &[10, 0, 0] }.write(&mut parameters);
    let mut peer = Peer::new(6, AssociationConfig::default());
    says_init(&mut peer, &parameters);
    assert_eq!(refusal(&mut peer), ("violation".into(), peer.tag, false));

    parameters.extend(cookie());
    let mut peer = Peer::connecting(16, AssociationConfig::default());
    peer.takes_init();
    says_init_ack(&mut peer, &parameters, |_| {});
    assert_eq!(refusal(&mut peer), ("violation".into(), peer.tag, false));
    assert!(ended_by(&peer, 13));
}

/// Returns two parameters of each of the four classes of unknown ones, and an address behind them.
fn unknown(first: u16) -> Vec<u8> {
    let mut parameters = Vec::new();
    Unknown { kind: first, value: b"what" }.write(&mut parameters);
    Ipv4 { address: SECOND }.write(&mut parameters);
    parameters
}

const SECOND: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 9);

#[test]
fn unknown_parameters_are_skipped_or_end_the_list_and_are_reported_or_not() {
    // RFC 9260 §3.2.1. The next address shows whether the rest of the list was processed.
    for (kind, reported, goes_on) in
        [(0x3fff, false, false), (0x7fff, true, false), (0xbfff, false, true), (0xffff, true, true)]
    {
        let mut peer = Peer::new(7, AssociationConfig::default());
        says_init(&mut peer, &unknown(kind));
        let packet = peer.hears();
        let mut kinds = Vec::new();
        let mut echo = Vec::new();
        each_chunk(&packet, |chunk| {
            let Chunk::InitAck(ack) = chunk else { panic!("{chunk}") };
            peer.endpoint_tag = ack.initiate_tag.0;
            for parameter in ack.parameters().flatten() {
                match parameter {
                    Parameter::UnrecognizedParameter(p) => kinds.push(p.parameter.to_vec()),
                    Parameter::StateCookie(p) => echo = p.cookie.to_vec(),
                    other => panic!("{other}"),
                }
            }
        });
        assert_eq!(kinds, if reported { vec![unknown(kind)[..8].to_vec()] } else { vec![] });
        peer.sends().chunk(|_, out| CookieEcho { cookie: &echo }.write(out)).go();
        let id = peer.app.events[0].id;
        let paths = peer.endpoint.peer_addresses(id).unwrap().0.len();
        assert_eq!(paths, if goes_on { 2 } else { 1 }, "{kind:x}");

        let mut peer = Peer::connecting(8, AssociationConfig::default());
        peer.takes_init();
        let mut parameters = cookie();
        parameters.extend(unknown(kind));
        says_init_ack(&mut peer, &parameters, |_| {});
        // RFC 9260 §3.2.2: the report follows the cookie in the packet.
        peer.expects(if reported { "COOKIE ECHO, ERROR" } else { "COOKIE ECHO" });
        let paths = peer.endpoint.peer_addresses(peer.id).unwrap().0.len();
        assert_eq!(paths, if goes_on { 2 } else { 1 }, "{kind:x}");
    }
}

/// Returns the addresses that the endpoint lists in its answer to an INIT with these parameters.
fn listed(own: &[IpAddr], parameters: &[u8]) -> Vec<IpAddr> {
    let mut peer = Peer::new(9, AssociationConfig::default());
    peer.endpoint.set_local_addresses(own.to_vec());
    says_init(&mut peer, parameters);
    let mut listed = Vec::new();
    each_chunk(&peer.hears(), |chunk| {
        let Chunk::InitAck(ack) = chunk else { panic!("{chunk}") };
        for parameter in ack.parameters().flatten() {
            match parameter {
                Parameter::Ipv4(p) => listed.push(IpAddr::V4(p.address)),
                Parameter::Ipv6(p) => listed.push(IpAddr::V6(p.address)),
                _ => {}
            }
        }
    });
    listed
}

#[test]
fn only_addresses_that_the_peer_can_use_are_listed() {
    // RFC 9260 §5.1.2.
    let v4 = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let v6 = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
    let kinds = |kinds: &[u16]| {
        let kinds: Vec<[u8; 2]> = kinds.iter().map(|kind| kind.to_be_bytes()).collect();
        let mut parameters = Vec::new();
        SupportedAddressTypes { kinds: KindList::new(&kinds) }.write(&mut parameters);
        parameters
    };
    assert_eq!(listed(&[v4, v6], &[]), [v4, v6]);
    assert_eq!(listed(&[v4, v6], &kinds(&[Ipv4::KIND])), [v4]);
    assert_eq!(listed(&[v4, v6], &kinds(&[Ipv4::KIND, Ipv6::KIND])), [v4, v6]);
    // A host name has no effect, and the peer can use the family of its own packets.
    assert_eq!(listed(&[v4, v6], &kinds(&[HostName::KIND])), [v4]);
    assert_eq!(listed(&[v4, v6], &kinds(&[Ipv6::KIND])), [v4, v6]);
    let mut both = kinds(&[Ipv4::KIND]);
    Ipv6 { address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9) }.write(&mut both);
    assert_eq!(listed(&[v4, v6], &both), [v4, v6]);
}

#[test]
fn addresses_of_a_kind_that_we_cannot_use_are_ignored() {
    let mut peer = Peer::new(10, AssociationConfig::default());
    peer.endpoint.set_local_addresses(vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))]);
    let mut parameters = Vec::new();
    Ipv6 { address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9) }.write(&mut parameters);
    Ipv4 { address: SECOND }.write(&mut parameters);
    says_init(&mut peer, &parameters);
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    let id = peer.app.events[0].id;
    let addresses: Vec<IpAddr> =
        peer.endpoint.peer_addresses(id).unwrap().0.iter().map(SocketAddr::ip).collect();
    assert_eq!(addresses, [peer.address.ip(), IpAddr::V4(SECOND)]);
}

#[test]
fn an_endpoint_of_one_kind_of_address_says_so() {
    let mut peer = Peer::new(11, AssociationConfig::default());
    peer.endpoint.set_local_addresses(vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))]);
    let config = Arc::new(AssociationConfig::default());
    peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, &[peer.address], config, &peer.app).unwrap();
    peer.collect_output();
    let mut parameters = Vec::new();
    each_chunk(&peer.hears(), |chunk| {
        let Chunk::Init(init) = chunk else { panic!("{chunk}") };
        parameters = init.parameters().flatten().map(|p| p.to_string()).collect();
    });
    // The last is padding (RFC 4820 §4).
    let others = [
        "ECN capable",
        "supported extensions 16",
        "multipath capable",
        "prompt parts",
        "parameter type=32773 value_bytes=88",
    ];
    assert_eq!(parameters[0], "supported address types 5");
    assert_eq!(parameters[1..], others);
}

#[test]
fn a_thousand_addresses_are_read_and_few_are_kept() {
    let mut parameters = Vec::new();
    for n in 0..1000u16 {
        let [high, low] = n.to_be_bytes();
        Ipv4 { address: Ipv4Addr::new(10, 1, high, low) }.write(&mut parameters);
    }
    let mut peer = Peer::new(12, AssociationConfig::default());
    says_init(&mut peer, &parameters);
    let cookie = peer.takes_init_ack();
    assert!(cookie.len() <= 50 + 5 * PEER_ADDRESSES_MAX + 32, "{}", cookie.len());
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    let id = peer.app.events[0].id;
    assert_eq!(peer.endpoint.peer_addresses(id).unwrap().0.len(), PEER_ADDRESSES_MAX);
}

/// Returns an endpoint that connects to two addresses of a peer, whose INIT ACK lists `list`.
fn connects_to_two(seed: u8, list: &[Ipv4Addr]) -> Peer {
    let mut peer = Peer::new(seed, AssociationConfig::default());
    let named = [peer.address, SocketAddr::new(IpAddr::V4(SECOND), peer.address.port())];
    let config = Arc::new(AssociationConfig::default());
    peer.id = peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, &named, config, &peer.app).unwrap();
    peer.collect_output();
    peer.takes_init();
    let mut parameters = cookie();
    for &address in list {
        Ipv4 { address }.write(&mut parameters);
    }
    says_init_ack(&mut peer, &parameters, |_| {});
    peer.expects("COOKIE ECHO");
    peer
}

#[test]
fn only_what_the_init_ack_lists_is_a_path() {
    // RFC 9260 §5.1.2 A and C.
    let peer = connects_to_two(13, &[]);
    assert_eq!(peer.endpoint.peer_addresses(peer.id).unwrap().0, [peer.address]);
    let peer = connects_to_two(14, &[Ipv4Addr::new(10, 0, 2, 9)]);
    assert_eq!(peer.endpoint.peer_addresses(peer.id).unwrap().0.len(), 2);
    let peer = connects_to_two(15, &[SECOND]);
    assert_eq!(peer.endpoint.peer_addresses(peer.id).unwrap().0.len(), 2);
}

#[test]
fn addresses_that_the_user_named_are_confirmed() {
    // RFC 9260 §5.4, 1; and the cookie is sent to all of it (§5.1).
    let mut peer = connects_to_two(16, &[SECOND, Ipv4Addr::new(10, 0, 2, 9)]);
    let active: Vec<bool> =
        peer.endpoint.statistics(peer.id).unwrap().paths.iter().map(|p| p.active).collect();
    assert_eq!(active, [true, true, false]);
    let mut went_to = Vec::new();
    for _ in 0..4 {
        peer.waits(Duration::from_secs(16));
        while let Some((to, _)) = peer.hears_on_maybe() {
            went_to.push(to.ip());
        }
    }
    assert!(went_to.contains(&IpAddr::V4(SECOND)) && went_to.contains(&peer.address.ip()), "{went_to:?}");
    assert!(!went_to.contains(&"10.0.2.9".parse().unwrap()), "nothing goes to what is not confirmed");
}

#[test]
fn of_the_addresses_that_a_user_names_the_first_ones_are_used() {
    let mut peer = Peer::new(41, AssociationConfig::default());
    let named: Vec<SocketAddr> = (1..=4 * PEER_ADDRESSES_MAX as u8)
        .map(|host| SocketAddr::from(([10, 0, 3, host], peer.address.port())))
        .collect();
    let config = Arc::new(AssociationConfig::default());
    let id = peer.endpoint.connect(peer.now, ENDPOINT_PORT, PEER_PORT, &named, config, &peer.app).unwrap();
    let (used, _) = peer.endpoint.peer_addresses(id).unwrap();
    assert_eq!(used, named[..PEER_ADDRESSES_MAX]);
}

#[test]
fn both_ends_have_the_smaller_numbers_of_streams() {
    let config = AssociationConfig { streams_out: 20, streams_in_max: 20, ..AssociationConfig::default() };
    let mut peer = Peer::connecting(40, config);
    peer.takes_init();
    // The peer allows and sends ten.
    peer.sends().init_ack(b"cookie").go();
    peer.expects("COOKIE ECHO");
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    assert!(peer.app.saw(|e| *e == Event::Connected { streams_out: 10, streams_in: 10 }));
}

/// Returns the numbers of outbound and inbound streams in an INIT or INIT ACK.
fn streams_of(packet: &bytes::Bytes) -> (u16, u16) {
    let mut streams = None;
    each_chunk(packet, |chunk| match chunk {
        Chunk::Init(init) => streams = Some((init.outbound_streams, init.inbound_streams)),
        Chunk::InitAck(ack) => streams = Some((ack.outbound_streams, ack.inbound_streams)),
        _ => {}
    });
    streams.expect("an INIT or an INIT ACK")
}

#[test]
fn there_is_a_stream_each_way_if_the_user_wants_none() {
    // RFC 9260 §3.3.2.
    let config = AssociationConfig { streams_out: 0, streams_in_max: 0, ..AssociationConfig::default() };
    let mut peer = Peer::new(42, config.clone());
    says_init(&mut peer, &[]);
    assert_eq!(streams_of(&peer.hears()), (1, 1));
    let mut peer = Peer::connecting(42, config);
    assert_eq!(streams_of(peer.will_hear().expect("an INIT")), (1, 1));
    peer.takes_init();
    peer.sends().init_ack(b"cookie").go();
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    assert!(peer.app.saw(|e| *e == Event::Connected { streams_out: 1, streams_in: 1 }));
}

#[test]
fn an_endpoint_uses_no_more_streams_than_its_user_wants() {
    let config = AssociationConfig { streams_out: 3, streams_in_max: 4, ..AssociationConfig::default() };
    let mut peer = Peer::connecting(43, config);
    peer.takes_init();
    peer.sends().init_ack(b"cookie").go();
    peer.sends().chunk(|_, out| CookieAck.write(out)).go();
    assert!(peer.app.saw(|e| *e == Event::Connected { streams_out: 3, streams_in: 4 }));
}

#[test]
fn the_handshake_measures_the_path_unless_a_packet_may_have_been_sent_twice() {
    // RFC 9260 §6.3.1 C5.
    let rto = AssociationConfig::default().rto.initial;
    let srtt = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().paths[0].srtt;
    for (time, measured) in [(rto / 5, Some(rto / 5)), (rto, None), (2 * rto, None)] {
        let mut peer = Peer::new(44, AssociationConfig::default());
        says_init(&mut peer, &[]);
        let cookie = peer.takes_init_ack();
        peer.waits(time);
        peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
        peer.id = peer.app.events[0].id;
        assert_eq!(srtt(&peer), measured, "{time:?}");
    }
    for (time, measured) in [(rto / 5, Some(rto / 5)), (rto + rto / 5, None)] {
        let mut peer = Peer::connecting(45, AssociationConfig::default());
        peer.waits(time);
        peer.takes_init();
        peer.sends().init_ack(b"cookie").go();
        peer.sends().chunk(|_, out| CookieAck.write(out)).go();
        assert_eq!(srtt(&peer), measured, "{time:?}");
    }
}

#[test]
fn a_cookie_that_is_too_long_is_none() {
    for (bytes, answer) in [(COOKIE_BYTES_MAX, "COOKIE ECHO"), (COOKIE_BYTES_MAX + 1, "ABORT")] {
        let mut peer = Peer::connecting(41, AssociationConfig::default());
        peer.takes_init();
        peer.sends().init_ack(&vec![7; bytes]).go();
        peer.expects(answer);
    }
}
