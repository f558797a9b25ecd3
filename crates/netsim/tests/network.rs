//! Packets between hosts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netsim::{Delivery, DropReason, Ecn, Loss, Network, Payload, PipeConfig, SendOutcome};

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn port(last: u8) -> SocketAddr {
    SocketAddr::new(ip(last), 9899)
}

fn line(rate_bits_per_s: u64, delay_ms: u64) -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(rate_bits_per_s),
        delay: Duration::from_millis(delay_ms),
        ..PipeConfig::default()
    }
}

/// Lets time pass until no packet is on its way.
fn run<P: Payload>(network: &mut Network<P>) -> Vec<Delivery<P>> {
    let mut all = Vec::new();
    while let Some(now_ns) = network.next_event_ns() {
        while let Some(delivery) = network.deliver(now_ns) {
            all.push(delivery);
        }
    }
    all
}

#[test]
fn a_packet_arrives_where_it_was_sent() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    let host = network.add_host(&[ip(2), ip(3)]);
    network.connect(ip(1), ip(3), &line(8_000_000, 1));
    assert_eq!(network.send(100, port(1), port(3), 1000, "hello"), SendOutcome::Sent);
    assert_eq!(network.next_event_ns(), Some(2_000_100));
    assert_eq!(network.deliver(2_000_099), None);
    let delivery = Delivery {
        at_ns: 2_000_100,
        host,
        from: port(1),
        to: port(3),
        ecn: Ecn::NotCapable,
        corrupted: false,
        payload: "hello",
    };
    assert_eq!(network.deliver(2_000_100), Some(delivery));
    assert_eq!(network.next_event_ns(), None);
}

#[test]
fn packets_without_a_route_are_counted() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    assert_eq!(network.send(0, port(1), port(2), 1, ()), SendOutcome::NoRoute);
    network.connect(ip(1), ip(9), &PipeConfig::default());
    assert_eq!(network.send(0, port(1), port(9), 1, ()), SendOutcome::NoRoute);
    assert_eq!(network.stats().packets_unroutable, 2);
}

#[test]
fn the_directions_do_not_wait_for_each_other() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    network.connect(ip(1), ip(2), &line(8_000_000, 0));
    network.send(0, port(1), port(2), 1000, "there");
    network.send(0, port(2), port(1), 1000, "back");
    let arrived: Vec<_> = run(&mut network).into_iter().map(|d| (d.at_ns, d.payload)).collect();
    assert_eq!(arrived, [(1_000_000, "there"), (1_000_000, "back")]);
}

#[test]
fn a_route_passes_its_pipes_one_after_the_other() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    let fast = network.add_pipe(&line(80_000_000, 2));
    let slow = network.add_pipe(&PipeConfig { queue_bytes: 2000, ..line(8_000_000, 3) });
    network.set_route(ip(1), ip(2), &[fast, slow]);
    for number in 0..4 {
        assert_eq!(network.send(0, port(1), port(2), 1000, number), SendOutcome::Sent);
    }
    let arrived: Vec<_> = run(&mut network).into_iter().map(|d| (d.at_ns, d.payload)).collect();
    // The slow pipe's queue holds two; the third and fourth come while both are still there.
    assert_eq!(arrived, [(6_100_000, 0), (7_100_000, 1)]);
    assert_eq!(network.pipe(slow).stats().packets_overflowed, 2);
    assert_eq!(network.stats().packets_dropped, 2);
    assert_eq!(network.in_flight(), 0);
}

#[test]
fn routes_that_share_a_pipe_share_its_rate() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    network.add_host(&[ip(3)]);
    let shared = network.add_pipe(&line(8_000_000, 0));
    network.set_route(ip(1), ip(3), &[shared]);
    network.set_route(ip(2), ip(3), &[shared]);
    network.send(0, port(1), port(3), 1000, 1);
    network.send(0, port(2), port(3), 1000, 2);
    let arrived: Vec<_> = run(&mut network).into_iter().map(|d| (d.at_ns, d.payload)).collect();
    assert_eq!(arrived, [(1_000_000, 1), (2_000_000, 2)]);
}

#[test]
fn packets_of_one_instant_keep_their_order() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    network.set_route(ip(1), ip(2), &[]);
    for number in 0..100 {
        network.send(5, port(1), port(2), 1, number);
    }
    let arrived: Vec<_> = run(&mut network).into_iter().map(|d| d.payload).collect();
    assert_eq!(arrived, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_filter_loses_one_particular_packet() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    let (there, _) = network.connect(ip(1), ip(2), &PipeConfig::default());
    let mut dropped = false;
    network.set_filter(there, move |payload| *payload == "lose me" && !std::mem::replace(&mut dropped, true));
    assert_eq!(network.send(0, port(1), port(2), 1, "lose me"), SendOutcome::Filtered);
    assert_eq!(network.send(0, port(1), port(2), 1, "lose me"), SendOutcome::Sent);
    network.set_filter(there, |_| true);
    assert_eq!(network.send(0, port(1), port(2), 1, "anything"), SendOutcome::Filtered);
    network.clear_filter(there);
    assert_eq!(network.send(0, port(1), port(2), 1, "anything"), SendOutcome::Sent);
    assert_eq!(run(&mut network).len(), 2);
}

#[test]
fn a_cut_line_loses_what_is_sent_and_not_what_is_on_the_way() {
    let mut network = Network::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    let (there, _) = network.connect(ip(1), ip(2), &line(8_000_000, 5));
    network.send(0, port(1), port(2), 100, "before");
    network.pipe_mut(there).set_loss(Loss::Always);
    assert_eq!(network.send(1, port(1), port(2), 100, "during"), SendOutcome::Dropped(DropReason::Loss));
    network.pipe_mut(there).set_loss(Loss::Never);
    network.send(2, port(1), port(2), 100, "after");
    let arrived: Vec<_> = run(&mut network).into_iter().map(|d| d.payload).collect();
    assert_eq!(arrived, ["before", "after"]);
}

/// Returns a run of traffic both ways over a lossy line, as the numbers that arrived and when.
fn lossy_run(seed: u64) -> Vec<(u64, u32)> {
    let mut network = Network::new(seed);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(2)]);
    let config =
        PipeConfig { loss: Loss::Random { probability: 0.05 }, queue_bytes: 30_000, ..line(10_000_000, 20) };
    network.connect(ip(1), ip(2), &config);
    for number in 0..2000 {
        let now_ns = u64::from(number) * 700_000;
        network.send(now_ns, port(1), port(2), 1000, number);
        network.send(now_ns, port(2), port(1), 100, 10_000 + number);
    }
    run(&mut network).into_iter().map(|d| (d.at_ns, d.payload)).collect()
}

#[test]
fn a_seed_replays_a_run() {
    assert_eq!(lossy_run(3), lossy_run(3));
    assert_ne!(lossy_run(3), lossy_run(4));
}

#[test]
fn traffic_on_one_pipe_does_not_change_the_chances_of_another() {
    let lost = |other_traffic: bool| -> Vec<u32> {
        let mut network = Network::new(9);
        network.add_host(&[ip(1)]);
        network.add_host(&[ip(2)]);
        let config = PipeConfig { loss: Loss::Random { probability: 0.2 }, ..PipeConfig::default() };
        network.connect(ip(1), ip(2), &config);
        for number in 0..500 {
            network.send(u64::from(number), port(1), port(2), 1, number);
            if other_traffic {
                network.send(u64::from(number), port(2), port(1), 1, 1000);
            }
        }
        run(&mut network).into_iter().map(|d| d.payload).filter(|number| *number < 1000).collect()
    };
    assert_eq!(lost(true), lost(false));
}

#[test]
#[should_panic(expected = "two hosts")]
fn an_address_belongs_to_one_host() {
    let mut network = Network::<()>::new(0);
    network.add_host(&[ip(1)]);
    network.add_host(&[ip(1)]);
}
