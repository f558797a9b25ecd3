//! How each controller uses a bottleneck, compared with its publication.

use std::slice;
use std::time::Duration;

use super::test_network::{Bottleneck, PACKET_BYTES, TestNetwork};
use super::{Algorithm, Coupling};

/// Returns the share of a bottleneck that one sender has between two times, in seconds.
fn share(bottleneck: &Bottleneck, algorithm: Algorithm, from_s: u64, to_s: u64) -> f64 {
    let mut network = TestNetwork::new(bottleneck.clone(), &[algorithm], Duration::ZERO);
    network.shares(Duration::from_secs(from_s), Duration::from_secs(to_s))[0]
}

/// Returns Jain's index: 1 if all have the same, 1/n if one has everything.
fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|s| s * s).sum::<f64>())
}

#[test]
fn each_fills_a_line_whose_queue_holds_a_round_trip() {
    for algorithm in Algorithm::ALL {
        let share = share(&Bottleneck::new(30, 100, 1.0, 0), algorithm, 0, 60);
        assert!(share > 0.95, "{algorithm} has {share}");
    }
}

#[test]
fn cubic_fills_a_long_fat_line_with_a_short_queue() {
    let share = share(&Bottleneck::new(1000, 120, 0.1, 0), Algorithm::Cubic, 5, 20);
    assert!(share > 0.85, "{share}");
}

#[test]
fn the_windows_under_random_loss_are_those_of_the_response_functions() {
    // RFC 9438 §5.2: the average window of AIMD that loses half and of CUBIC where Reno is not slower than its function is
    // √(3 / (2 p)) packets.
    let bottleneck = Bottleneck::new(100, 50, 1.0, 10_000);
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let share = share(&bottleneck, algorithm, 10, 210);
        let window =
            share * bottleneck.bits_per_s as f64 / 8.0 * bottleneck.rtt.as_secs_f64() / PACKET_BYTES as f64;
        let predicted = (1.5_f64 / 0.01).sqrt();
        assert!((window / predicted - 1.0).abs() < 0.15, "{algorithm} {window} and not {predicted} packets");
    }
}

#[test]
fn bbr_does_not_mind_one_percent_of_loss() {
    let share = share(&Bottleneck::new(100, 50, 1.0, 10_000), Algorithm::Bbr, 0, 40);
    assert!(share > 0.8, "{share}");
}

#[test]
fn two_senders_share() {
    for algorithm in Algorithm::ALL {
        let start_apart = Duration::from_millis(137);
        let mut network = TestNetwork::new(Bottleneck::new(50, 40, 1.0, 0), &[algorithm; 2], start_apart);
        let shares = network.shares(Duration::from_secs(30), Duration::from_secs(90));
        assert!(shares.iter().sum::<f64>() > 0.95, "{algorithm} {shares:?}");
        assert!(fairness(&shares) > 0.9, "{algorithm} {shares:?}");
    }
}

#[test]
fn slow_start_ends_before_it_overruns_the_queue() {
    // A slow start that ends with the first loss drops nearly as much as the queue holds: it has twice what fits in flight
    // before it hears of that.
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let bottleneck = Bottleneck::new(100, 100, 1.0, 0);
        let mut network = TestNetwork::new(bottleneck.clone(), &[algorithm], Duration::ZERO);
        network.run_until(Duration::from_secs(4));
        let queue_packets = bottleneck.queue_bytes / PACKET_BYTES as u64;
        assert!(
            network.bottlenecks[0].dropped < queue_packets / 10,
            "{algorithm} {} {queue_packets}",
            network.bottlenecks[0].dropped
        );
    }
}

#[test]
fn a_pause_costs_no_more_than_the_way_back() {
    // Ten seconds of data, a pause of three, and on: within two seconds the bottleneck is full again.
    for algorithm in Algorithm::ALL {
        let mut network = TestNetwork::new(Bottleneck::new(50, 40, 1.0, 0), &[algorithm], Duration::ZERO);
        network.run_until(Duration::from_secs(10));
        network.senders[0].packets_left = Some(0);
        network.run_until(Duration::from_secs(13));
        for _ in 0..4 {
            network.senders[0].controller.on_idle();
        }
        network.senders[0].packets_left = None;
        let share = network.shares(Duration::from_secs(15), Duration::from_secs(20))[0];
        assert!(share > 0.9, "{algorithm} has {share}");
    }
}

/// Returns the share that each path of an association has of its bottleneck, and the share of the NewReno flow beside it.
fn coupled_shares(
    bottlenecks: &[Bottleneck],
    coupling: Coupling,
    paths: &[usize],
    others: &[usize],
) -> Vec<f64> {
    let apart = Duration::from_millis(137);
    let mut network = TestNetwork::coupled(bottlenecks.to_vec(), coupling, paths, others, apart);
    network.shares(Duration::from_secs(30), Duration::from_secs(230))
}

#[test]
fn coupled_paths_over_one_line_take_about_what_one_flow_takes() {
    // Queue in round trips, and random loss.
    for (queue_bdp, loss_ppm) in [(1.0, 0), (0.25, 0), (1.0, 10_000)] {
        let bottleneck = Bottleneck::new(20, 20, queue_bdp, loss_ppm);
        // Throughput of both paths, divided by that of NewReno.
        let ratio = |coupling| {
            let shares = coupled_shares(slice::from_ref(&bottleneck), coupling, &[0, 0], &[0]);
            (shares[0] + shares[1]) / shares[2]
        };
        let expected = [
            (Coupling::None, 1.9..2.1),
            (Coupling::ResourcePooling, 0.85..1.15),
            (Coupling::Balia, 0.95..1.25),
        ];
        for (coupling, expected) in expected {
            let ratio = ratio(coupling);
            assert!(expected.contains(&ratio), "{coupling} {queue_bdp} {loss_ppm}: {ratio}");
        }
    }
}

/// Returns the throughput of an association with a path over each of two bottlenecks, both with a queue of a round trip, as
/// shares of the two together and of the faster one alone.
fn of_both_and_of_the_faster(coupling: Coupling, bottlenecks: [(u64, u64); 2]) -> (f64, f64) {
    let rates = bottlenecks.map(|(mbit_per_s, _)| mbit_per_s as f64);
    let bottlenecks = bottlenecks.map(|(mbit_per_s, rtt_ms)| Bottleneck::new(mbit_per_s, rtt_ms, 1.0, 0));
    let shares = coupled_shares(&bottlenecks, coupling, &[0, 1], &[]);
    let sum = shares[0] * rates[0] + shares[1] * rates[1];
    (sum / (rates[0] + rates[1]), sum / rates[0].max(rates[1]))
}

#[test]
fn paths_over_two_lines_use_both() {
    for bottlenecks in [[(20, 20), (20, 20)], [(50, 10), (5, 10)], [(20, 20), (20, 200)]] {
        let (of_both, _) = of_both_and_of_the_faster(Coupling::Balia, bottlenecks);
        assert!(of_both > 0.95, "{bottlenecks:?} {of_both}");
        // Its losses halve the whole association, so it never fills two equal bottlenecks.
        let (_, of_faster) = of_both_and_of_the_faster(Coupling::ResourcePooling, bottlenecks);
        assert!(of_faster > 0.98, "{bottlenecks:?} {of_faster}");
    }
}

#[test]
fn traffic_of_a_congested_line_moves_to_the_other() {
    // Three others on the first bottleneck: each path for itself has a quarter of it.
    let of_first = |coupling| {
        let bottlenecks = [(); 2].map(|()| Bottleneck::new(20, 20, 1.0, 0));
        let shares = coupled_shares(&bottlenecks, coupling, &[0, 1], &[0, 0, 0]);
        assert!(shares[1] > 0.95, "{coupling} {shares:?}");
        shares[0]
    };
    assert!(of_first(Coupling::None) > 0.2);
    for coupling in [Coupling::ResourcePooling, Coupling::Balia] {
        let share = of_first(coupling);
        assert!(share < 0.12, "{coupling} {share}");
    }
}
