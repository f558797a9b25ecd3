//! Probes find the MTU of a path, and nothing is lost when it shrinks (RFC 8899).

use std::time::Duration;

use bytes::Bytes;
use netsim::{Loss, PipeConfig};
use sctp::{
    AssociationConfig, AssociationId, MtuState, PathHints, PathOptions, PathStatistics, SendInfo, Time,
    Unreachable,
};
use sctp_wire::Packet;
use sctp_wire::chunk::{Data, Heartbeat, HeartbeatAck, Pad, RawChunk};

use lab::packets::{build, has, kinds};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer, plain};
use lab::wire::LOWER_HEADER_BYTES;
use lab::{A, B, TwoHosts, line};

const ROUND_TRIP: Duration = Duration::from_millis(20);
/// RTO.Initial (RFC 9260 §16).
const INITIAL_RTO: Duration = Duration::from_secs(1);

/// Returns the SCTP packet that fills an IP packet.
const fn packet_bytes(ip_bytes: usize) -> usize {
    ip_bytes - LOWER_HEADER_BYTES
}

/// Returns two hosts whose links take `link` bytes, and a line between them that takes `path`.
fn hosts(seed: u64, link: usize, path: Option<usize>) -> TwoHosts {
    let mut hosts = TwoHosts::with_line(seed, &PipeConfig { mtu_bytes: path, ..line() });
    for node in [A, B] {
        let mtu_bytes = packet_bytes(link);
        hosts.app(node).hints = PathHints { mtu_bytes, leaves_host: true, ..hosts.app(node).hints };
    }
    hosts
}

fn establish(hosts: &mut TwoHosts) -> AssociationId {
    hosts.establish().0
}

/// The line takes packets of that length from now on.
fn set_path(hosts: &mut TwoHosts, mtu_bytes: usize, reports_too_big: bool) {
    for pipe in [hosts.links[0].there, hosts.links[0].back] {
        let config = hosts.network.pipe(pipe).config().clone();
        let config = PipeConfig { mtu_bytes: Some(mtu_bytes), reports_too_big, ..config };
        hosts.network.pipe_mut(pipe).set_config(config);
    }
}

fn slow_down(hosts: &mut TwoHosts) {
    let there = hosts.links[0].there;
    hosts.network.pipe_mut(there).set_rate(Some(1_000_000));
}

fn path(hosts: &TwoHosts, id: AssociationId) -> PathStatistics {
    hosts.statistics(A, id).paths[0].clone()
}

/// Returns numbered messages of all kinds of lengths, `bytes` in total.
fn messages(bytes: usize) -> Vec<Bytes> {
    let mut left = bytes;
    let mut all = Vec::new();
    while left > 0 {
        let number = all.len() as u64;
        let length = (number * 7919 % 20_000 + 8) as usize;
        let message: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(length).collect();
        left = left.saturating_sub(length);
        all.push(message.into());
    }
    all
}

/// Sends that much, with an event in the middle, and checks that everything arrives once and in order.
fn transfer(hosts: &mut TwoHosts, id: AssociationId, bytes: usize, midway: impl FnOnce(&mut TwoHosts)) {
    let before = hosts.node(B).app.messages.len();
    let sent = messages(bytes);
    hosts.send_all(A, id, sent.iter().map(|message| (SendInfo::default(), message.clone())));
    let half = before + sent.len() / 2;
    hosts.run_until("half is there", Duration::from_secs(300), |hosts| {
        hosts.node(B).app.messages.len() >= half
    });
    midway(hosts);
    let all = before + sent.len();
    hosts
        .run_until("all is there", Duration::from_secs(300), |hosts| hosts.node(B).app.messages.len() >= all);
    hosts.run_for(Duration::from_secs(5));
    let got = hosts.node(B).app.messages[before..].iter().map(|message| &message.bytes[..]);
    assert!(got.eq(sent.iter().map(|message| &message[..])), "every message, once, in order");
}

/// Returns the longest time between two messages that arrived from then on.
fn longest_gap(hosts: &TwoHosts, from: Time) -> Duration {
    let times = hosts.node(B).app.messages.iter().map(|message| message.at).filter(|at| *at >= from);
    let mut before = from;
    times.map(|at| at.saturating_since(std::mem::replace(&mut before, at))).max().unwrap_or_default()
}

fn is_probe(packet: &[u8]) -> bool {
    kinds(packet) == [Heartbeat::KIND, Pad::KIND]
}

#[test]
fn a_path_like_its_first_hop_is_known_after_one_round_trip() {
    let mut hosts = hosts(1, 1500, Some(1500));
    let id = establish(&mut hosts);
    assert_eq!((path(&hosts, id).mtu_bytes, path(&hosts, id).mtu_state), (1200, MtuState::Base));
    let start = hosts.now();
    transfer(&mut hosts, id, 1_000_000, |_| {});
    let by_a = || hosts.sent.iter().filter(|sent| sent.by == A);
    let full = by_a().find(|sent| has(&sent.packet, Data::KIND) && sent.packet.len() == 1472).unwrap();
    assert!(full.at.saturating_since(start) < ROUND_TRIP + ROUND_TRIP / 2, "{:?}", full.at);
    let path = path(&hosts, id);
    assert_eq!((path.mtu_bytes, path.mtu_state), (1472, MtuState::SearchComplete));
    assert_eq!((path.mtu_probes_sent, path.mtu_probes_lost, path.packets_lost), (1, 0, 0));
    assert_eq!(by_a().filter(|sent| is_probe(&sent.packet)).count(), 1);
}

/// Returns two hosts on one link, whose interfaces take `interface` bytes and which takes `link`.
fn neighbours(seed: u64, interface: usize, link: usize) -> TwoHosts {
    let mut hosts = hosts(seed, interface, Some(link));
    for node in [A, B] {
        hosts.app(node).hints.on_link = true;
    }
    hosts
}

#[test]
fn packets_to_a_neighbour_fill_the_interface_from_the_first() {
    // The endpoint first probes lengths above that of Ethernet.
    for (interface, first, probes) in [(1500, 1500, 0), (1280, 1280, 0), (1000, 1000, 0), (9000, 1500, 1)] {
        let mut hosts = neighbours(13, interface, interface);
        let id = establish(&mut hosts);
        hosts.sent.clear();
        transfer(&mut hosts, id, 1_000_000, |_| {});
        let data = hosts.sent.iter().filter(|sent| sent.by == A && has(&sent.packet, Data::KIND));
        let lengths: Vec<_> = data.map(|sent| sent.packet.len()).collect();
        assert_eq!(lengths[1], packet_bytes(first), "the second is full, interface {interface}");
        let path = path(&hosts, id);
        assert_eq!((path.mtu_bytes, path.mtu_probes_sent), (packet_bytes(interface), probes));
        assert_eq!((path.mtu_state, path.packets_lost), (MtuState::SearchComplete, 0));
    }
}

#[test]
fn a_link_that_takes_less_than_its_interfaces_is_noticed() {
    for (interface, link, found) in
        [(1500, 1400, 1400), (1500, 1280, 1280), (9000, 1400, 1400), (9000, 1500, 1500)]
    {
        let mut hosts = neighbours(14, interface, link);
        slow_down(&mut hosts);
        let id = establish(&mut hosts);
        transfer(&mut hosts, id, 3_000_000, |_| {});
        let path = path(&hosts, id);
        assert_eq!(path.mtu_bytes, packet_bytes(found), "{interface} over {link}");
        // Only the first flight is lost.
        assert!(path.packets_lost <= 4, "{interface} over {link}: {} lost", path.packets_lost);
    }
}

/// Chunks cut for a length that does not arrive are sent again in packets that routers may fragment.
#[test]
fn a_black_hole_for_full_packets_stalls_nothing_for_longer_than_a_timeout() {
    for link in [1280, 1400] {
        let mut hosts = neighbours(15, 1500, link);
        let id = establish(&mut hosts);
        let start = hosts.now();
        transfer(&mut hosts, id, 300_000, |_| {});
        let gap = longest_gap(&hosts, start);
        assert!(gap < INITIAL_RTO + 2 * ROUND_TRIP, "{link}: {gap:?}");
        assert!(path(&hosts, id).timeouts <= 1 && path(&hosts, id).active, "{link}");
    }
}

#[test]
fn the_mtu_of_a_path_is_found_whatever_that_of_the_link() {
    let cases = [
        (1500, 1400, 1400),
        (1500, 1280, 1280),
        (1500, 1492, 1492),
        (9000, 9000, 9000),
        (9000, 1500, 1500),
        (9000, 1400, 1400),
        (65_535, 9000, 9000),
        (1280, 1500, 1280),
        // Between two common lengths, the lower one.
        (1500, 1430, 1420),
    ];
    for (link, route, found) in cases {
        for reports in [false, true] {
            let mut hosts = hosts(2, link, Some(route));
            set_path(&mut hosts, route, reports);
            slow_down(&mut hosts);
            let id = establish(&mut hosts);
            transfer(&mut hosts, id, 3_000_000, |_| {});
            let path = path(&hosts, id);
            // A router's report is exact.
            let found = if reports { route.min(link) } else { found };
            let expected = (packet_bytes(found) & !3, MtuState::SearchComplete);
            assert_eq!((path.mtu_bytes, path.mtu_state), expected, "{link} and {route}, reports: {reports}");
            assert_eq!((path.packets_lost, path.timeouts), (0, 0), "{link} and {route}");
        }
    }
}

#[test]
fn a_path_that_does_not_even_take_the_base_still_carries_everything() {
    for reports in [false, true] {
        let mut hosts = hosts(3, 1500, Some(1006));
        set_path(&mut hosts, 1006, reports);
        slow_down(&mut hosts);
        let id = establish(&mut hosts);
        transfer(&mut hosts, id, 3_000_000, |_| {});
        let path = path(&hosts, id);
        assert_eq!((path.mtu_bytes, path.mtu_state), (976, MtuState::Error), "reports: {reports}");
        assert_eq!((path.packets_lost, path.timeouts), (0, 0));
    }
}

#[test]
fn a_path_may_shrink_in_the_midst_of_a_transfer() {
    for (before, after) in [(1500, 1400), (1500, 1280), (9000, 1500), (9000, 1400), (1500, 1006)] {
        for reports in [true, false] {
            let mut hosts = hosts(4, before, Some(before));
            let id = establish(&mut hosts);
            let mut shrunk_at = Time::ZERO;
            transfer(&mut hosts, id, 4_000_000, |hosts| {
                assert_eq!(path(hosts, id).mtu_bytes, packet_bytes(before));
                set_path(hosts, after, reports);
                shrunk_at = hosts.now();
            });
            let case = format!("{before} to {after}, reports: {reports}");
            let gap = longest_gap(&hosts, shrunk_at);
            // Without a report, the end of the flight is probed after two round trips, and its answer tells the rest.
            let limit = if reports { 3 * ROUND_TRIP } else { 8 * ROUND_TRIP };
            assert!(gap < limit, "{gap:?} for {case}");
            let path = path(&hosts, id);
            // Packets of an unverified length may be fragmented.
            let fits = path.mtu_bytes <= packet_bytes(after) || path.mtu_state == MtuState::Base;
            assert!(fits, "{case}: {path:?}");
            if reports {
                assert_eq!((path.mtu_bytes, path.timeouts), (packet_bytes(after) & !3, 0), "{case}");
            }
        }
    }
}

#[test]
fn a_report_costs_no_congestion_window() {
    let mut hosts = hosts(5, 1500, Some(1500));
    let id = establish(&mut hosts);
    transfer(&mut hosts, id, 4_000_000, |hosts| set_path(hosts, 1400, true));
    let statistics = hosts.statistics(A, id);
    assert_eq!((statistics.timeouts, statistics.fast_recoveries), (0, 0));
}

#[test]
fn a_path_that_grows_again_is_used_after_ten_minutes() {
    let mut hosts = hosts(6, 1500, Some(1500));
    let id = establish(&mut hosts);
    transfer(&mut hosts, id, 1_000_000, |hosts| set_path(hosts, 1400, true));
    assert_eq!(path(&hosts, id).mtu_bytes, 1372);
    set_path(&mut hosts, 1500, true);
    hosts.run_for(Duration::from_secs(500));
    transfer(&mut hosts, id, 1_000_000, |_| {});
    assert_eq!(path(&hosts, id).mtu_bytes, 1372);
    hosts.run_for(Duration::from_secs(100));
    transfer(&mut hosts, id, 1_000_000, |_| {});
    assert_eq!((path(&hosts, id).mtu_bytes, path(&hosts, id).mtu_state), (1472, MtuState::SearchComplete));
}

#[test]
fn lost_probes_are_sent_again() {
    for seed in 0..20 {
        let mut hosts = hosts(seed, 1500, Some(1500));
        slow_down(&mut hosts);
        for pipe in [hosts.links[0].there, hosts.links[0].back] {
            hosts.network.pipe_mut(pipe).set_loss(Loss::Random { probability: 0.1 });
        }
        let id = establish(&mut hosts);
        transfer(&mut hosts, id, 500_000, |_| {});
        let path = path(&hosts, id);
        assert!(path.mtu_bytes == 1472 || path.mtu_probes_lost >= 3, "seed {seed}: {path:?}");
        assert!(path.mtu_bytes >= 1200, "seed {seed}: {path:?}");
    }
}

#[test]
fn an_outage_says_nothing_of_sizes() {
    let mut hosts = hosts(7, 1500, Some(1500));
    let id = establish(&mut hosts);
    transfer(&mut hosts, id, 4_000_000, |hosts| {
        hosts.cut();
        hosts.run_for(Duration::from_secs(10));
        hosts.untap(A);
        hosts.untap(B);
    });
    let path = path(&hosts, id);
    assert!(path.timeouts > 0);
    assert_eq!((path.mtu_bytes, path.mtu_state, path.mtu_probes_lost), (1472, MtuState::SearchComplete, 0));
}

#[test]
fn short_messages_need_no_probes() {
    let mut hosts = hosts(8, 1500, Some(1500));
    let id = establish(&mut hosts);
    for _ in 0..100 {
        hosts.send(A, id, SendInfo::default(), vec![1; 500]);
        hosts.run_for(Duration::from_millis(100));
    }
    assert_eq!(path(&hosts, id).mtu_probes_sent, 0);
}

#[test]
fn the_search_wakes_nobody() {
    // The search has not ended when the data does, and runs again after it has ended below what the link takes.
    for bytes in [20_000, 2_000_000] {
        let mut hosts = hosts(9, 9000, Some(1400));
        slow_down(&mut hosts);
        let config = AssociationConfig { heartbeat_interval: None, ..AssociationConfig::default() };
        let (id, _) = hosts.establish_with(config.clone(), config);
        transfer(&mut hosts, id, bytes, |_| {});
        hosts.run_for(Duration::from_secs(10));
        let quiet = hosts.sent.len();
        assert_eq!(hosts.node(A).endpoint.poll_timeout(), None);
        hosts.run_for(Duration::from_secs(3600));
        assert_eq!(hosts.sent.len(), quiet);
    }
}

#[test]
fn without_discovery_packets_have_the_size_of_the_link_and_may_be_cut() {
    let mut hosts = hosts(10, 1500, Some(1400));
    set_path(&mut hosts, 1400, true);
    let config = AssociationConfig { path_mtu_discovery: false, ..AssociationConfig::default() };
    let (id, _) = hosts.establish_with(config.clone(), config);
    transfer(&mut hosts, id, 1_000_000, |_| {});
    let path = path(&hosts, id);
    assert_eq!((path.mtu_bytes, path.mtu_state), (1472, MtuState::Disabled));
    assert_eq!((path.mtu_probes_sent, path.packets_lost), (0, 0));
    assert_eq!(hosts.network.pipe(hosts.links[0].there).stats().packets_too_big, 0);
}

#[test]
fn where_the_link_is_the_whole_way_nothing_is_probed() {
    let mut hosts = TwoHosts::new(11);
    let id = establish(&mut hosts);
    transfer(&mut hosts, id, 1_000_000, |_| {});
    let path = path(&hosts, id);
    assert_eq!((path.mtu_bytes, path.mtu_state), (1472, MtuState::SearchComplete));
    assert_eq!(path.mtu_probes_sent, 0);
}

/// The headers before SCTP: IPv4 and IPv6, directly and with UDP.
const HEADERS_BYTES: [usize; 4] = [20, 28, 40, 48];

/// Returns the longest IP packet of a large message, on links with headers of that length.
fn longest_ip_packet(hosts: &mut TwoHosts, id: AssociationId, header_bytes: usize) -> usize {
    hosts.sent.clear();
    hosts.send(A, id, SendInfo::default(), vec![7; 10_000]);
    hosts.run_for(Duration::from_secs(1));
    hosts.sent.iter().filter(|sent| sent.by == A).map(|sent| sent.packet.len() + header_bytes).max().unwrap()
}

fn lab_with_headers(header_bytes: usize) -> TwoHosts {
    let mut hosts = TwoHosts::new(12);
    for node in [A, B] {
        let mtu_bytes = (1500 - header_bytes) & !3;
        hosts.app(node).hints =
            PathHints { mtu_bytes, header_bytes, leaves_host: true, ..hosts.app(node).hints };
    }
    hosts
}

#[test]
fn a_fixed_mtu_counts_the_headers_of_the_link() {
    for header_bytes in HEADERS_BYTES {
        // Less than 512 bytes count as 512, and more than the link takes counts as what the link takes.
        for (set, longest) in [(1400, 1400), (1003, 1000), (513, 512), (100, 512), (9000, 1500)] {
            let mut hosts = lab_with_headers(header_bytes);
            let id = establish(&mut hosts);
            let options =
                PathOptions { mtu_discovery: Some(false), ip_mtu_bytes: Some(set), ..PathOptions::default() };
            let (now, node) = (hosts.now(), hosts.node_mut(A));
            node.endpoint.set_path(now, id, None, &options, &mut node.app).unwrap();
            assert_eq!(
                longest_ip_packet(&mut hosts, id, header_bytes),
                longest,
                "{set}, headers {header_bytes}"
            );
            assert_eq!(path(&hosts, id).ip_mtu_bytes, longest);
        }
    }
}

#[test]
fn a_fixed_mtu_of_the_settings_holds_from_the_first_packet() {
    for header_bytes in HEADERS_BYTES {
        let mut hosts = lab_with_headers(header_bytes);
        let config = AssociationConfig {
            path_mtu_discovery: false,
            path_mtu_bytes: Some(1000),
            ..AssociationConfig::default()
        };
        let (id, _) = hosts.establish_with(config.clone(), config);
        assert_eq!(path(&hosts, id).ip_mtu_bytes, 1000, "headers {header_bytes}");
        assert_eq!(longest_ip_packet(&mut hosts, id, header_bytes), 1000, "headers {header_bytes}");
    }
}

#[test]
fn sizes_that_are_tried_fill_ip_packets_whatever_the_headers_are() {
    for header_bytes in HEADERS_BYTES {
        let mut hosts = lab_with_headers(header_bytes);
        let id = establish(&mut hosts);
        transfer(&mut hosts, id, 1_000_000, |_| {});
        assert_eq!((path(&hosts, id).ip_mtu_bytes, path(&hosts, id).mtu_probes_lost), (1500, 0));
    }
}

/// Returns an endpoint with data in flight in full packets of 1472 bytes, and one of them.
fn script(seed: u8) -> (Peer, Bytes) {
    let mut peer = Peer::established(seed);
    peer.app_sends(SendInfo::default(), vec![7; 1444]);
    let quote = peer.hears();
    assert_eq!(quote.len(), 1472);
    (peer, quote)
}

fn mtu(peer: &Peer) -> usize {
    peer.endpoint.statistics(peer.id).unwrap().paths[0].mtu_bytes
}

fn reports(peer: &mut Peer, mtu_bytes: usize, quote: &[u8]) {
    let why = Unreachable::TooBig { mtu_bytes };
    peer.endpoint.handle_unreachable(peer.now, peer.address, why, quote, &mut peer.app);
    peer.collect_output();
}

#[test]
fn a_report_is_believed_if_it_quotes_our_tag_and_ports() {
    let (mut peer, quote) = script(1);
    for at in [1, 3, 4, 7] {
        // Source port, destination port, and both ends of the tag.
        let mut forged = quote.to_vec();
        forged[at] ^= 1;
        reports(&mut peer, 1372, &forged);
        assert_eq!(mtu(&peer), 1472, "byte {at}");
    }
    for length in [0, 4, 7, 11] {
        reports(&mut peer, 1372, &quote[..length]);
        assert_eq!(mtu(&peer), 1472, "{length} bytes quoted");
    }
    let ignored = peer.endpoint.endpoint_statistics().reports_ignored;
    assert_eq!(ignored, 8);
    // Not below the minimum of any path, nor above the present length.
    reports(&mut peer, 1500, &quote);
    assert_eq!((mtu(&peer), peer.endpoint.endpoint_statistics().reports_ignored), (1472, 9));
    reports(&mut peer, 68, &quote);
    assert_eq!(mtu(&peer), 512);
}

#[test]
fn a_report_brings_the_base_and_a_probe_of_what_it_says() {
    let (mut peer, quote) = script(2);
    reports(&mut peer, 1372, &quote);
    assert_eq!(mtu(&peer), 1200);
    // The packet that the router dropped is sent again at once, alone; then the reported length is probed.
    peer.expects("DATA 0");
    let probe = peer.hears();
    assert!(is_probe(&probe) && probe.len() == 1372, "{:?}", kinds(&probe));
    peer.expects_nothing();
    answers(&mut peer, &probe);
    assert_eq!(mtu(&peer), 1372);
    peer.expects_nothing();
}

/// The peer answers the HEARTBEAT in a packet.
fn answers(peer: &mut Peer, packet: &[u8]) {
    let packet = Packet::parse(packet).unwrap();
    let heartbeat: RawChunk<'_> =
        packet.chunks().map(|raw| raw.unwrap()).find(|raw| raw.kind == Heartbeat::KIND).unwrap();
    let tag = peer.endpoint_tag;
    let ack = build(PEER_PORT, ENDPOINT_PORT, tag, |out| HeartbeatAck::write_copy(&heartbeat, out));
    peer.sends_raw(peer.address, &ack);
}

#[test]
fn a_probe_is_a_heartbeat_that_fills_its_packet() {
    let mut peer = Peer::new(3, plain());
    peer.app.hints.leaves_host = true;
    let mut peer = connect(peer);
    peer.app_sends(SendInfo::default(), vec![7; 3000]);
    let data: Vec<_> = (0..3).map(|_| peer.hears().len()).collect();
    assert_eq!(data[..2], [1200, 1200]);
    let probe = peer.hears();
    assert!(is_probe(&probe) && probe.len() == 1472);
    peer.expects_nothing();
    answers(&mut peer, &probe);
    assert_eq!(mtu(&peer), 1472);
    // A repeated or unexpected answer changes nothing.
    answers(&mut peer, &probe);
    peer.sends().sack(2, &[]).go();
    peer.app_sends(SendInfo::default(), vec![7; 3000]);
    assert_eq!(peer.hears().len(), 1472);
}

fn connect(mut peer: Peer) -> Peer {
    use sctp_wire::chunk::CookieEcho;
    peer.sends().tag(0).chunk(|p, out| p.init().write(out)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer
}
