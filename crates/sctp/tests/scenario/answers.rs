//! Length and number of answers to strangers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sctp::{AssociationConfig, BatchLimits, Endpoint, EndpointConfig, ExpectedPackets};
use sctp_wire::cause::Causes;
use sctp_wire::chunk::{Abort, Chunk, CookieEcho, DataFlags, Init, InitAck, ShutdownAck};
use sctp_wire::packet::HEADER_BYTES;
use sctp_wire::parameter::{Ipv4, Parameter, Parameters, Unknown};

use lab::packets::{build, each_chunk, kinds, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::{A, B, PORT_A, PORT_B, TwoHosts};

/// Limit of the bytes of an answer to a stranger, as a multiple of the bytes that it answers.
const AMPLIFICATION_MAX: usize = 3;
const HERE: [u8; 4] = [10, 0, 0, 9];

/// Returns a peer whose endpoint has this many addresses of each family.
fn with_addresses(count: u8) -> Peer {
    let mut peer =
        Peer::new(1, AssociationConfig { adaptation_indication: 7, ..AssociationConfig::default() });
    let of_both = |n| [IpAddr::from([10, 1, 0, n]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n.into()])];
    peer.endpoint.set_local_addresses((1..=count).flat_map(of_both).collect());
    peer
}

/// Bytes of a packet with its IP and UDP headers.
fn on_the_wire(remote: SocketAddr, packet: &Bytes) -> usize {
    let ip = if remote.is_ipv4() { 20 } else { 40 };
    ip + if remote.port() == 0 { 0 } else { 8 } + packet.len()
}

/// Returns the answer to a packet, after a check of its length.
fn answer(peer: &mut Peer, from: SocketAddr, packet: &Bytes) -> Bytes {
    peer.sends_raw(from, packet);
    let answer = peer.hears();
    let (asked, given) = (on_the_wire(from, packet), on_the_wire(from, &answer));
    assert!(given <= AMPLIFICATION_MAX * asked, "{given} bytes for {asked}: {:?}", kinds(&answer));
    answer
}

fn init_with(peer: &Peer, port: u16, parameters: &[u8]) -> Bytes {
    let init = Init { parameters: Parameters::new(parameters), ..peer.init() };
    build(PEER_PORT, port, 0, |out| init.write(out))
}

fn addresses_in(packet: &Bytes) -> usize {
    let mut count = 0;
    each_chunk(packet, |chunk| {
        if let Chunk::InitAck(ack) = chunk {
            let is_address = |p: &Parameter<'_>| matches!(p, Parameter::Ipv4(_) | Parameter::Ipv6(_));
            count = ack.parameters().flatten().filter(is_address).count();
        }
    });
    count
}

#[test]
fn no_init_ack_has_more_than_three_times_the_bytes_of_its_init() {
    let sources =
        [SocketAddr::from((HERE, 9899)), SocketAddr::from((HERE, 0)), "[fd00::9]:9899".parse().unwrap()];
    for from in sources {
        let mut peer = with_addresses(16);
        let bare = init_with(&peer, ENDPOINT_PORT, &[]);
        assert_eq!(kinds(&answer(&mut peer, from, &bare)), [InitAck::KIND]);
        // Each unknown parameter of four bytes is reported in a parameter of eight.
        let mut parameters = Vec::new();
        for _ in 0..20 {
            Unknown { kind: 0xc123, value: &[] }.write(&mut parameters);
        }
        let unknown = init_with(&peer, ENDPOINT_PORT, &parameters);
        answer(&mut peer, from, &unknown);
        let mut parameters = Vec::new();
        for n in 0..16 {
            Ipv4 { address: [10, 2, 0, n].into() }.write(&mut parameters);
        }
        let listing = init_with(&peer, ENDPOINT_PORT, &parameters);
        answer(&mut peer, from, &listing);
    }
}

#[test]
fn an_init_that_is_long_enough_is_told_all_addresses() {
    let mut peer = with_addresses(8);
    let from = SocketAddr::from((HERE, 9899));
    let bare = init_with(&peer, ENDPOINT_PORT, &[]);
    let told = addresses_in(&answer(&mut peer, from, &bare));
    assert!(told < 16, "{told}");
    let mut padding = Vec::new();
    Unknown { kind: 0x8005, value: &[0; 124] }.write(&mut padding);
    let padded = init_with(&peer, ENDPOINT_PORT, &padding);
    assert_eq!(addresses_in(&answer(&mut peer, from, &padded)), 16);
}

#[test]
fn our_own_init_is_long_enough_for_sixteen_addresses() {
    let mut hosts = TwoHosts::new(1);
    hosts.connect(A, (PORT_A, PORT_B), AssociationConfig::default());
    hosts.run_for(Duration::from_millis(1));
    let init = hosts.sent.iter().find(|sent| kinds(&sent.packet) == [Init::KIND]).unwrap().packet.clone();
    assert_eq!(init.len(), 160);
    // The peer reports that it can use IPv4 alone.
    let mut peer = with_addresses(16);
    let to_the_listener = lab::packets::resealed({
        let mut bytes = init.to_vec();
        bytes[2..4].copy_from_slice(&ENDPOINT_PORT.to_be_bytes());
        bytes
    });
    assert_eq!(addresses_in(&answer(&mut peer, SocketAddr::from((HERE, 9899)), &to_the_listener)), 16);
    assert_eq!(hosts.node(B).endpoint.association_count(), 0);
}

#[test]
fn no_other_answer_has_more_than_three_times_the_bytes_of_what_it_answers() {
    let from = SocketAddr::from((HERE, 0));
    let life = Duration::from_millis(100);
    let config =
        AssociationConfig { cookie_life: life, listener_associations_max: 1, ..AssociationConfig::default() };
    let mut peer = Peer::new(1, config);
    let nobody_listens = init_with(&peer, ENDPOINT_PORT + 1, &[]);
    answer(&mut peer, from, &nobody_listens);
    let no_streams = Init { outbound_streams: 0, ..peer.init() };
    let bad_field = build(PEER_PORT, ENDPOINT_PORT, 0, |out| no_streams.write(out));
    answer(&mut peer, from, &bad_field);
    // A host name instead of an address, and a parameter that ends too early.
    for parameter in [&[0, 11, 0, 8, b'n', b'a', b'm', b'e'][..], &[0, 5, 0, 5, 1, 0, 0, 0]] {
        let bad_parameter = init_with(&peer, ENDPOINT_PORT, parameter);
        answer(&mut peer, from, &bad_parameter);
    }
    let out_of_the_blue = build(PEER_PORT, ENDPOINT_PORT, 99, |_| {});
    peer.sends_raw(from, &out_of_the_blue);
    peer.expects_nothing();
    for write in
        [&|out: &mut Vec<u8>| write_data(DataFlags::WHOLE, 1, 0, 0, b"?", out) as _, &|out: &mut Vec<u8>| {
            ShutdownAck.write(out) as _
        }] as [&dyn Fn(&mut Vec<u8>); 2]
    {
        answer(&mut peer, from, &build(PEER_PORT, ENDPOINT_PORT, 99, write));
    }
    let bare = init_with(&peer, ENDPOINT_PORT, &[]);
    peer.sends_raw(from, &bare);
    let cookie = peer.takes_init_ack();
    let echo =
        build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| CookieEcho { cookie: &cookie }.write(out));
    peer.waits(life * 2);
    answer(&mut peer, from, &echo);
}

#[test]
fn a_flood_out_of_the_blue_leaves_the_abort_for_who_connects_to_nobody() {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let mut answers = 0;
    for n in 0..100_000u32 {
        let from = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 9899));
        let stray =
            build(PEER_PORT, ENDPOINT_PORT, n | 1, |out| write_data(DataFlags::WHOLE, 1, 0, 0, b"?", out));
        peer.sends_raw(from, &stray);
        answers += u32::from(peer.hears_maybe().is_some());
    }
    assert!(answers <= 2_000, "{answers}");
    let statistics = peer.endpoint.endpoint_statistics();
    assert_eq!(statistics.answers_withheld, u64::from(100_000 - answers));
    let nobody_listens = init_with(&peer, ENDPOINT_PORT + 1, &[]);
    peer.sends_raw(peer.address, &nobody_listens);
    peer.expects("ABORT");
}

#[test]
fn a_flood_of_strays_of_any_kind_makes_the_endpoint_name_its_tags() {
    let garbage = |out: &mut Vec<u8>| out.extend_from_slice(&[0xff; 16]);
    let data = |out: &mut Vec<u8>| write_data(DataFlags::WHOLE, 1, 0, 0, b"?", out);
    let abort = |out: &mut Vec<u8>| Abort { reflected_tag: false, causes: Causes::new(&[]) }.write(out);
    for write in [&garbage as &dyn Fn(&mut Vec<u8>), &data, &abort] {
        for from_the_peer in [false, true] {
            let mut peer = Peer::established(1);
            let from = if from_the_peer { peer.address } else { SocketAddr::from(([10, 0, 0, 8], 9899)) };
            for n in 0..300u32 {
                assert_eq!(peer.endpoint.poll_expected(peer.now).is_some(), n == 200, "{n}");
                let stray = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag ^ (n + 1), write);
                peer.sends_raw(from, &stray);
                while peer.hears_maybe().is_some() {}
            }
        }
    }
}

#[test]
fn a_packet_without_a_chunk_is_malformed_and_a_stray_unless_its_tag_is_right() {
    for is_right in [true, false] {
        let mut peer = Peer::established(1);
        for _ in 0..300 {
            let tag = peer.endpoint_tag ^ u32::from(!is_right);
            let packet = build(PEER_PORT, ENDPOINT_PORT, tag, |out| out.extend_from_slice(&[0xff; 16]));
            peer.sends_raw(peer.address, &packet);
        }
        peer.expects_nothing();
        assert_eq!(peer.endpoint.endpoint_statistics().malformed, 300);
        assert_eq!(peer.endpoint.poll_expected(peer.now).is_none(), is_right);
    }
}

/// Sends the endpoint packets until it names those that it expects.
fn expected_in_a_flood(peer: &mut Peer, stray: impl Fn(u32) -> Bytes) -> ExpectedPackets {
    for n in 1..=200 {
        assert_eq!(peer.endpoint.poll_expected(peer.now), None, "{n} is no flood");
        peer.sends_raw(SocketAddr::from((HERE, 9899)), &stray(n));
        while peer.hears_maybe().is_some() {}
    }
    peer.endpoint.poll_expected(peer.now).expect("a flood")
}

#[test]
fn an_endpoint_in_a_flood_names_the_tags_of_all_its_associations() {
    let mut peer = Peer::established(1);
    let tag = peer.endpoint_tag;
    let stray =
        |n| build(PEER_PORT, ENDPOINT_PORT, tag ^ n, |out| write_data(DataFlags::WHOLE, 1, 0, 0, b"?", out));
    let expected = expected_in_a_flood(&mut peer, stray);
    assert_eq!(expected.tags, Some(vec![tag]));
    peer.app_shuts_down();
    peer.waits(Duration::from_secs(60));
    let everything = ExpectedPackets::default();
    assert_eq!(peer.endpoint.poll_expected(peer.now), Some(everything), "the flood is over");
}

#[test]
fn an_endpoint_in_a_flood_of_inits_for_closed_ports_names_the_ports_in_use() {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let closed = |peer: &Peer, n| init_with(peer, ENDPOINT_PORT + n as u16, &[]);
    let inits: Vec<Bytes> = (0..=200).map(|n| closed(&peer, n)).collect();
    let expected = expected_in_a_flood(&mut peer, |n| inits[n as usize].clone());
    assert_eq!(expected.init_ports, Some(vec![ENDPOINT_PORT]));
    for port in [9, 7, 11, 8, 10] {
        peer.endpoint.listen(port, AssociationConfig::default()).expect("a free port");
    }
    // A peer may send an INIT to the port from which an association was begun.
    let remotes = [SocketAddr::from((HERE, 9899))];
    for peer_port in [9, 10] {
        let config = Arc::new(AssociationConfig::default());
        let begun = peer.endpoint.connect(peer.now, 49_200, peer_port, &remotes, config, &peer.app);
        begun.expect("another peer");
    }
    peer.waits(Duration::from_millis(2));
    let expected = peer.endpoint.poll_expected(peer.now).expect("other ports");
    assert_eq!(expected.init_ports, Some(vec![7, 8, 9, 10, 11, ENDPOINT_PORT, 49_200]));
}

/// A filter of the kernel has room for 128 ports and 1,024 tags.
#[test]
fn an_endpoint_in_a_flood_names_neither_ports_nor_tags_if_there_are_too_many() {
    for (count, names_ports, names_tags) in [(127, true, true), (128, false, true), (1025, false, false)] {
        let mut peer = Peer::new(1, AssociationConfig::default());
        let remotes = [SocketAddr::from((HERE, 9899))];
        for port in (1000..).take(count) {
            let config = Arc::new(AssociationConfig::default());
            peer.endpoint.connect(peer.now, port, 9, &remotes, config, &peer.app).expect("another port");
        }
        let closed = |n| init_with(&peer, 40_000 + n as u16, &[]);
        let inits: Vec<Bytes> = (0..=200).map(closed).collect();
        let expected = expected_in_a_flood(&mut peer, |n| inits[n as usize].clone());
        assert_eq!((expected.init_ports.is_some(), expected.tags.is_some()), (names_ports, names_tags));
    }
}

#[test]
fn inits_for_ports_in_use_are_no_strays() {
    // The endpoint listens at one port, and connects from another.
    const CONNECTED: u16 = 49_200;
    for (port, are_strays) in [
        (ENDPOINT_PORT - 1, true),
        (ENDPOINT_PORT, false),
        (ENDPOINT_PORT + 1, true),
        (CONNECTED - 1, true),
        (CONNECTED, false),
        (CONNECTED + 1, true),
    ] {
        let mut peer = Peer::new(1, AssociationConfig::default());
        let config = Arc::new(AssociationConfig::default());
        let remotes = [SocketAddr::from(([10, 0, 0, 8], 9899))];
        peer.endpoint.connect(peer.now, CONNECTED, 9, &remotes, config, &peer.app).expect("a free port");
        let init = init_with(&peer, port, &[]);
        for _ in 0..1000 {
            peer.sends_raw(SocketAddr::from((HERE, 9899)), &init);
            while peer.hears_maybe().is_some() {}
        }
        assert_eq!(peer.endpoint.poll_expected(peer.now).is_some(), are_strays, "{port}");
    }
}

#[test]
fn an_endpoint_in_a_flood_of_forged_cookies_names_the_mark_of_its_own() {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let forged =
        |n: u32| build(PEER_PORT, ENDPOINT_PORT, n, |out| CookieEcho { cookie: &[n as u8; 87] }.write(out));
    let mark = expected_in_a_flood(&mut peer, forged).cookies.expect("a mark");
    let init = init_with(&peer, ENDPOINT_PORT, &[]);
    peer.sends_raw(peer.address, &init);
    let cookie = peer.takes_init_ack();
    // A link computes the mark in the same way (`links::CookieMark`).
    let computed = (peer.endpoint_tag ^ mark.mask).wrapping_mul(mark.factor);
    assert_eq!(cookie[..4], computed.to_be_bytes());
}

#[test]
fn a_link_that_cannot_take_the_tags_is_told_the_ports_and_the_mark() {
    let mut peer = Peer::established(1);
    let tag = peer.endpoint_tag;
    let stray =
        |n| build(PEER_PORT, ENDPOINT_PORT, tag ^ n, |out| write_data(DataFlags::WHOLE, 1, 0, 0, b"?", out));
    let with_tags = expected_in_a_flood(&mut peer, stray);
    peer.endpoint.expected_tags_refused(peer.now);
    let without = ExpectedPackets { tags: None, ..with_tags };
    assert_eq!(peer.endpoint.poll_expected(peer.now), Some(without));
}

/// Fails unless a flood of one packet gets answers, no more than the budget has, and the rest is counted.
fn assert_answered_within_the_budget(peer: &mut Peer, packet: &Bytes) {
    let mut answers = 0;
    for _ in 0..20_000 {
        peer.sends_raw(peer.address, packet);
        answers += u32::from(peer.hears_maybe().is_some());
    }
    assert!((1..=10_100).contains(&answers), "{answers}");
    assert_eq!(peer.endpoint.endpoint_statistics().answers_withheld, u64::from(20_000 - answers));
}

#[test]
fn a_flood_of_one_stale_cookie_is_answered_within_the_budget() {
    let life = Duration::from_millis(100);
    let mut peer = Peer::new(1, AssociationConfig { cookie_life: life, ..AssociationConfig::default() });
    let init = init_with(&peer, ENDPOINT_PORT, &[]);
    peer.sends_raw(peer.address, &init);
    let cookie = peer.takes_init_ack();
    let echo =
        build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| CookieEcho { cookie: &cookie }.write(out));
    peer.waits(life * 2);
    assert_answered_within_the_budget(&mut peer, &echo);
}

#[test]
fn a_flood_of_one_cookie_for_a_closed_listener_is_answered_within_the_budget() {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let port = ENDPOINT_PORT + 1;
    let listener = peer.endpoint.listen(port, AssociationConfig::default()).expect("a free port");
    let init = init_with(&peer, port, &[]);
    peer.sends_raw(peer.address, &init);
    let cookie = peer.takes_init_ack();
    peer.endpoint.unlisten(listener);
    let echo = build(PEER_PORT, port, peer.endpoint_tag, |out| CookieEcho { cookie: &cookie }.write(out));
    assert_answered_within_the_budget(&mut peer, &echo);
}

#[test]
fn a_flood_of_shutdown_acks_is_answered_within_the_budget() {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let mut answers = 0;
    for n in 0..20_000 {
        let stray = build(PEER_PORT, ENDPOINT_PORT, n | 1, |out| ShutdownAck.write(out));
        peer.sends_raw(peer.address, &stray);
        answers += u32::from(peer.hears_maybe().is_some());
    }
    assert!((1..=2_000).contains(&answers), "{answers}");
    assert_eq!(peer.endpoint.endpoint_statistics().answers_withheld, u64::from(20_000 - answers));
}

#[test]
fn in_a_flood_from_everywhere_networks_of_earlier_peers_are_answered() {
    let mut peer = Peer::established(1);
    let init = init_with(&peer, ENDPOINT_PORT, &[]);
    let mut is_answered = |address: [u8; 4]| {
        peer.sends_raw(SocketAddr::from((address, 9899)), &init);
        peer.hears_maybe().is_some()
    };
    let answers = (0..5_000u16).filter(|n| is_answered([10, 1 + (n >> 8) as u8, *n as u8, 1])).count();
    assert_eq!(answers, 2_500 - 1, "the peer has had one");
    assert!(!is_answered([10, 200, 0, 1]), "nobody has come from there");
    assert!(is_answered([10, 0, 0, 77]), "a neighbour of the peer");
}

#[test]
fn the_checksum_of_a_stray_packet_is_looked_at_only_before_an_answer() {
    let mut peer = Peer::new(1, AssociationConfig::default());
    let from = peer.address;
    let broken = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = build(PEER_PORT, ENDPOINT_PORT, 99, write).to_vec();
        bytes[8] ^= 1;
        Bytes::from(bytes)
    };
    let data = broken(&|out| write_data(DataFlags::WHOLE, 1, 0, 0, b"?", out));
    for packet in [&data, &broken(&|out| ShutdownAck.write(out))] {
        peer.sends_raw(from, packet);
        peer.expects_nothing();
    }
    assert_eq!(peer.endpoint.endpoint_statistics().checksum_errors, 2);
    // An ABORT is never answered.
    peer.sends_raw(
        from,
        &broken(&|out| Abort { reflected_tag: false, causes: Causes::default() }.write(out)),
    );
    peer.expects_nothing();
    assert_eq!(peer.endpoint.endpoint_statistics().checksum_errors, 2);
    // Nothing is answered when the budget is used up.
    while peer.endpoint.endpoint_statistics().answers_withheld == 0 {
        peer.sends_raw(from, &data);
        peer.expects_nothing();
    }
    let before = peer.endpoint.endpoint_statistics();
    peer.sends_raw(from, &data);
    let after = peer.endpoint.endpoint_statistics();
    assert_eq!(after.checksum_errors, before.checksum_errors);
    assert_eq!(after.out_of_the_blue, before.out_of_the_blue + 1);
    assert_eq!(after.answers_withheld, before.answers_withheld + 1);
}

#[test]
fn answers_do_not_push_out_the_last_words_of_an_association() {
    let mut endpoint =
        Endpoint::new(EndpointConfig::default(), [1; 32], BatchLimits { segments_max: 1, bytes_max: 1500 });
    let mut peer = Peer::established(1);
    std::mem::swap(&mut endpoint, &mut peer.endpoint);
    for n in 0..2_500 {
        let from = SocketAddr::from(([10, 1, 0, 1], 9899));
        let init = build(1 + n, ENDPOINT_PORT, 0, |out| peer.init().write(out));
        endpoint.handle_datagram(peer.now, from, None, &init, &mut peer.app);
    }
    endpoint.abort(peer.now, peer.id, b"", &mut peer.app);
    let mut buffer = sctp::TransmitBuffer::new();
    let first = endpoint.poll_transmit(peer.now, sctp::Scope::All, &mut buffer).unwrap();
    assert_eq!(first.remote, peer.address);
    assert!(buffer.to_vec().len() > HEADER_BYTES);
    assert_eq!(endpoint.endpoint_statistics().replies_dropped, 2_500 - sctp::config::REPLIES_MAX as u64);
}
