//! Settings that change during the association (RFC 6458 §8.1), and those that affect an idle one.

use std::net::IpAddr;
use std::time::Duration;

use sctp::{AssociationConfig, PathError, PathOptions, PathStatistics, SendInfo};
use sctp_wire::chunk::{Heartbeat, Shutdown};

use lab::packets::{data_of, has};
use lab::script::{Peer, plain};
use lab::{A, B, TwoHosts};

use crate::several_paths::{SECOND, answers, with_two_paths};

fn set(peer: &mut Peer, config: AssociationConfig) {
    peer.endpoint.set_config(peer.now, peer.id, &config, &mut peer.app);
    peer.collect_output();
}

fn set_path(peer: &mut Peer, address: Option<IpAddr>, options: PathOptions) -> Result<(), PathError> {
    let outcome = peer.endpoint.set_path(peer.now, peer.id, address, &options, &mut peer.app);
    peer.collect_output();
    outcome
}

fn paths(peer: &Peer) -> Vec<PathStatistics> {
    peer.endpoint.statistics(peer.id).unwrap().paths
}

#[test]
fn a_sack_waits_for_as_many_packets_and_as_long_as_was_set() {
    let mut peer = Peer::established(1);
    for n in 0..8 {
        peer.sends().data(n).go();
        peer.expects(&format!("SACK {n}"));
    }
    let delay = Duration::from_millis(50);
    set(&mut peer, AssociationConfig { sack_delay: delay, sack_frequency: 3, ..plain() });
    for n in 8..10 {
        peer.sends().data(n).go();
        peer.expects_nothing();
    }
    peer.sends().data(10).go();
    peer.expects("SACK 10");
    peer.sends().data(11).go();
    peer.waits(delay - Duration::from_nanos(1));
    peer.expects_nothing();
    peer.waits(Duration::from_nanos(1));
    peer.expects("SACK 11");
    set(&mut peer, AssociationConfig { sack_frequency: 1, ..plain() });
    peer.sends().data(12).go();
    peer.expects("SACK 12");
}

#[test]
fn fragments_are_as_long_as_was_set() {
    let mut peer = Peer::established(2);
    set(&mut peer, AssociationConfig { fragment_bytes_max: Some(500), ..plain() });
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().fragmentation_point_bytes, 500);
    peer.app_sends(SendInfo::default(), vec![7; 1100]);
    let mut lengths = Vec::new();
    while let Some(packet) = peer.hears_maybe() {
        lengths.extend(data_of(&packet).iter().map(|data| data.payload.len()));
    }
    assert_eq!(lengths, [500, 500, 100]);
}

#[test]
fn a_view_shows_the_options_in_effect_on_each_path() {
    let mut peer = with_two_paths(3);
    let (interval, delay) = (Duration::from_secs(7), Duration::from_millis(90));
    let change = PathOptions {
        heartbeats: Some(false),
        heartbeat_interval: Some(interval),
        retries_max: Some(2),
        potentially_failed_retries_max: Some(1),
        mtu_discovery: Some(false),
        ip_mtu_bytes: Some(900),
        sack_delay: Some(delay),
        dscp: Some(10),
        ..PathOptions::default()
    };
    set_path(&mut peer, Some(SECOND), change.clone()).unwrap();
    let view = peer.endpoint.association(peer.id).unwrap();
    let second = view.path_to(SECOND).unwrap();
    let udp_port = Some(second.remote().port());
    assert_eq!(second.options(), PathOptions { udp_port, ..change });
    let first = view.primary().options();
    assert!(first.heartbeats == Some(true) && first.retries_max == Some(5) && first.dscp.is_none());
    assert_eq!(view.paths().map(|path| path.remote().ip()).collect::<Vec<_>>()[1], SECOND);
    assert!(view.path_to([192, 0, 2, 1].into()).is_none());
}

#[test]
fn a_view_and_the_statistics_agree() {
    let mut peer = Peer::established(4);
    let view = |peer: &Peer| {
        let view = peer.endpoint.association(peer.id).unwrap();
        let known = peer.endpoint.statistics(peer.id).unwrap();
        assert_eq!(view.state(), known.state);
        assert_eq!(view.ports(), (known.local_port, known.peer_port));
        assert_eq!((view.streams_out(), view.streams_in()), (known.streams_out, known.streams_in));
        assert_eq!(view.fragmentation_point_bytes() as u64, known.fragmentation_point_bytes);
        assert_eq!(view.peer_window_bytes() as u64, known.peer_window_bytes);
        assert_eq!(view.unread_bytes() as u64, known.receive_buffered_bytes);
        assert_eq!(view.primary().remote(), known.paths[known.primary].remote);
        assert_eq!(view.primary().ip_mtu_bytes(), known.paths[known.primary].ip_mtu_bytes);
        view.is_send_buffer_empty()
    };
    assert!(view(&peer));
    peer.app_sends(SendInfo::default(), vec![7; 100]);
    assert!(!view(&peer), "the message is not acknowledged");
    peer.hears_maybe().expect("the message");
    peer.sends().sack(0, &[]).go();
    assert!(view(&peer));
}

#[test]
fn without_delay_a_message_leaves_while_another_is_outstanding() {
    for nodelay in [false, true] {
        let mut peer = Peer::established(3);
        set(&mut peer, AssociationConfig { nodelay, ..plain() });
        peer.app_sends(SendInfo::default(), &b"one"[..]);
        peer.expects("DATA 0");
        let id = peer.id;
        peer.endpoint
            .send(peer.now, id, &SendInfo::default(), 3, [bytes::Bytes::from_static(b"two")])
            .unwrap();
        assert_eq!(peer.endpoint.transmit_due(), nodelay);
    }
}

#[test]
fn an_acknowledgement_sets_no_more_free_than_a_burst() {
    let mut hosts = TwoHosts::new(4);
    let (a, _) = hosts.establish();
    hosts.send_all(A, a, (0..400).map(|_| (SendInfo::default(), bytes::Bytes::from(vec![1; 1400]))));
    hosts.run_until("half has arrived", Duration::from_secs(20), |hosts| {
        hosts.node(B).app.messages.len() > 200
    });
    let wide = hosts.statistics(A, a).paths[0].in_flight_bytes;
    assert!(wide > 12 * 1460, "{wide}");
    let config = AssociationConfig { burst_packets_max: Some(2), ..AssociationConfig::default() };
    let now = hosts.now();
    let node = hosts.node_mut(A);
    node.endpoint.set_config(now, a, &config, &mut node.app);
    let from = hosts.sent.len();
    hosts.run_until("all has arrived", Duration::from_secs(20), |hosts| {
        hosts.node(B).app.messages.len() == 400
    });
    let mut by_instant = std::collections::HashMap::new();
    for packet in hosts.sent[from..].iter().filter(|packet| packet.by == A) {
        *by_instant.entry(packet.at).or_insert(0) += data_of(&packet.packet).len();
    }
    let most = by_instant.values().max().copied().unwrap();
    assert!((1..=3).contains(&most), "{most} packets at once");
}

#[test]
fn a_path_begins_with_as_many_packets_as_the_user_asks_for() {
    for (packets, expected) in [(Some(10), 10), (Some(1000), 64), (Some(0), 1)] {
        let mut peer =
            Peer::established_with(4, AssociationConfig { initial_window_packets: packets, ..plain() });
        let cwnd_bytes = paths(&peer)[0].cwnd_bytes;
        assert_eq!(cwnd_bytes, expected * (paths(&peer)[0].mtu_bytes - 12), "{packets:?}");
        set(&mut peer, AssociationConfig { initial_window_packets: Some(3), dscp: 8, ..plain() });
        assert_eq!(
            paths(&peer)[0].cwnd_bytes,
            cwnd_bytes,
            "another queue begins with the window of the handshake"
        );
    }
}

#[test]
fn timeouts_keep_to_limits_that_change() {
    let mut peer = Peer::established(5);
    let rto = |peer: &Peer| paths(peer)[0].rto;
    assert_eq!(rto(&peer), Duration::from_secs(1));
    let mut config = plain();
    (config.rto.min, config.rto.max) = (Duration::from_millis(200), Duration::from_millis(300));
    set(&mut peer, config.clone());
    assert_eq!(rto(&peer), Duration::from_millis(300), "the longest that is allowed now");
    config.rto.min = Duration::from_millis(300);
    set(&mut peer, config);
    peer.app_sends(SendInfo::default(), &b"?"[..]);
    peer.expects("DATA 0");
    peer.sends().sack(0, &[]).go();
    assert_eq!(rto(&peer), Duration::from_millis(300), "the shortest");
}

#[test]
fn the_peer_has_the_udp_port_that_was_set_until_it_sends_from_another() {
    let mut peer = Peer::established(11);
    let at_first = peer.address.port();
    set_path(&mut peer, None, PathOptions { udp_port: Some(4321), ..PathOptions::default() }).unwrap();
    peer.app_sends(SendInfo::default(), &b"?"[..]);
    assert_eq!(peer.hears_on().0.port(), 4321);
    peer.sends().sack(0, &[]).go();
    peer.app_sends(SendInfo::default(), &b"?"[..]);
    assert_eq!(peer.hears_on().0.port(), at_first);
}

#[test]
fn one_path_is_not_probed_and_the_other_is() {
    let mut peer = with_two_paths(6);
    let off = PathOptions { heartbeats: Some(false), ..PathOptions::default() };
    set_path(&mut peer, Some(SECOND), off).unwrap();
    assert_eq!(paths(&peer).iter().map(|path| path.heartbeats).collect::<Vec<_>>(), [true, false]);
    let home = peer.address.ip();
    for _ in 0..4 {
        peer.waits(Duration::from_secs(33));
        while peer.is_heard() {
            assert_eq!(answers(&mut peer).ip(), home);
        }
    }
}

#[test]
fn a_probe_leaves_when_it_is_asked_for() {
    let mut peer = with_two_paths(7);
    let now = PathOptions { heartbeat_now: true, ..PathOptions::default() };
    set_path(&mut peer, Some(SECOND), now.clone()).unwrap();
    assert_eq!(answers(&mut peer).ip(), SECOND);
    peer.expects_nothing();
    set_path(&mut peer, None, now).unwrap();
    answers(&mut peer);
    answers(&mut peer);
    peer.expects_nothing();
}

#[test]
fn an_interval_counts_from_now_on() {
    let mut peer = Peer::established_with(8, AssociationConfig { heartbeat_interval: None, ..plain() });
    peer.waits(Duration::from_secs(600));
    peer.expects_nothing();
    let on = PathOptions {
        heartbeats: Some(true),
        heartbeat_interval: Some(Duration::from_secs(5)),
        ..PathOptions::default()
    };
    set_path(&mut peer, None, on).unwrap();
    peer.waits(Duration::from_secs(7));
    assert!(has(&peer.hears(), Heartbeat::KIND));
}

#[test]
fn options_of_one_path_stay_when_others_change() {
    let mut peer = with_two_paths(9);
    set_path(&mut peer, Some(SECOND), PathOptions { retries_max: Some(2), ..PathOptions::default() })
        .unwrap();
    let retries = |peer: &Peer| paths(peer).iter().map(|path| path.retries_max).collect::<Vec<_>>();
    set(&mut peer, AssociationConfig { nodelay: true, ..AssociationConfig::default() });
    assert_eq!(retries(&peer), [5, 2]);
    set(&mut peer, AssociationConfig { path_retries_max: 7, ..AssociationConfig::default() });
    assert_eq!(retries(&peer), [7, 7]);
}

#[test]
fn a_path_with_a_fixed_mtu_is_not_searched() {
    let mut peer = Peer::established(10);
    let fixed = PathOptions { mtu_discovery: Some(false), ip_mtu_bytes: Some(728), ..PathOptions::default() };
    set_path(&mut peer, None, fixed).unwrap();
    assert_eq!((paths(&peer)[0].mtu_bytes, paths(&peer)[0].mtu_state), (700, sctp::MtuState::Disabled));
    peer.app_sends(SendInfo::default(), vec![7; 2000]);
    let mut longest = 0;
    while let Some(packet) = peer.hears_maybe() {
        longest = longest.max(packet.len());
    }
    assert_eq!(longest, 700);
}

#[test]
fn there_is_no_setting_for_an_address_of_somebody_else() {
    let mut peer = Peer::established(11);
    let nobody: IpAddr = "192.0.2.1".parse().unwrap();
    let refused = set_path(&mut peer, Some(nobody), PathOptions::default());
    assert_eq!(refused, Err(PathError::NoSuchPath { address: nobody }));
}

#[test]
fn negotiated_options_stay() {
    let mut peer = Peer::established(12);
    let streams = peer.endpoint.statistics(peer.id).unwrap().streams_out;
    set(&mut peer, AssociationConfig { streams_out: 99, ecn: false, trace: true, ..plain() });
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().streams_out, streams);
    assert_eq!(peer.endpoint.config(peer.id).unwrap().streams_out, plain().streams_out);
}

#[test]
fn a_writer_that_waits_for_room_goes_on_in_a_larger_buffer() {
    let mut hosts = TwoHosts::new(13);
    let small = AssociationConfig {
        send_buffer_bytes: 10_000,
        send_buffer_tuned_bytes: 0,
        ..AssociationConfig::default()
    };
    let (a, _) = hosts.establish_with(small.clone(), small.clone());
    hosts.cut();
    hosts.send_all(A, a, (0..20).map(|_| (SendInfo::default(), bytes::Bytes::from(vec![1; 1000]))));
    assert!(!hosts.all_admitted(A));
    let now = hosts.now();
    let node = hosts.node_mut(A);
    let config = AssociationConfig { send_buffer_bytes: 100_000, ..small };
    node.endpoint.set_config(now, a, &config, &mut node.app);
    hosts.exchange();
    assert!(hosts.all_admitted(A));
}

#[test]
fn an_idle_association_is_shut_down_if_that_was_asked_for() {
    let patience = Duration::from_secs(20);
    let config = AssociationConfig { autoclose: Some(patience), heartbeat_interval: None, ..plain() };
    let mut peer = Peer::established_with(14, config);
    peer.waits(Duration::from_secs(19));
    peer.expects_nothing();
    // Each packet received or sent restarts it.
    peer.sends().data(0).go();
    peer.expects("SACK 0");
    peer.waits(Duration::from_secs(19));
    peer.app_sends(SendInfo::default(), &b"still here"[..]);
    peer.expects("DATA 0");
    peer.sends().sack(0, &[]).go();
    peer.waits(patience - Duration::from_nanos(1));
    peer.expects_nothing();
    peer.waits(Duration::from_nanos(1));
    assert!(has(&peer.hears(), Shutdown::KIND));
}

#[test]
fn an_association_that_nothing_ends_has_no_timer_for_it() {
    let mut peer = Peer::established_with(15, AssociationConfig { heartbeat_interval: None, ..plain() });
    peer.collect_output();
    assert_eq!(peer.endpoint.poll_timeout(), None);
}

#[test]
fn options_that_the_handshake_has_used_are_reported_as_they_are_in_force() {
    let mut peer = Peer::established_with(31, AssociationConfig::default());
    let sack_delay = Duration::from_millis(10);
    set(
        &mut peer,
        AssociationConfig {
            init_retries_max: 1,
            adaptation_indication: 7,
            prompt_parts: false,
            sack_delay,
            ..AssociationConfig::default()
        },
    );
    let in_force = peer.endpoint.config(peer.id).unwrap();
    assert_eq!((in_force.init_retries_max, in_force.adaptation_indication), (8, 0));
    assert_eq!((in_force.prompt_parts, in_force.sack_delay), (true, sack_delay));
}
