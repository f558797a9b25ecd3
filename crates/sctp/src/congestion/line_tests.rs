//! What each controller makes of a line, against what its publication says.

use std::slice;
use std::time::Duration;

use super::line::{Line, PACKET_BYTES, World};
use super::{Algorithm, Coupling};

/// What part of a line one sender has between two times, in seconds.
fn share(line: &Line, algorithm: Algorithm, from_s: u64, to_s: u64) -> f64 {
    let mut world = World::new(line.clone(), &[algorithm], Duration::ZERO);
    world.shares(Duration::from_secs(from_s), Duration::from_secs(to_s))[0]
}

/// Jain's index: 1 if all have the same, 1/n if one has everything.
fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|s| s * s).sum::<f64>())
}

#[test]
fn each_fills_a_line_whose_queue_holds_a_round_trip() {
    for algorithm in Algorithm::ALL {
        let share = share(&Line::new(30, 100, 1.0, 0), algorithm, 0, 60);
        assert!(share > 0.95, "{algorithm} has {share}");
    }
}

#[test]
fn cubic_fills_a_long_fat_line_with_a_short_queue() {
    let share = share(&Line::new(1000, 120, 0.1, 0), Algorithm::Cubic, 5, 20);
    assert!(share > 0.85, "{share}");
}

#[test]
fn the_windows_under_random_loss_are_those_of_the_response_functions() {
    // RFC 9438 §5.2: the average window of AIMD that loses half and of CUBIC where Reno is not slower than its function is
    // √(3 / (2 p)) packets.
    let line = Line::new(100, 50, 1.0, 10_000);
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let share = share(&line, algorithm, 10, 210);
        let window = share * line.bits_per_s as f64 / 8.0 * line.rtt.as_secs_f64() / PACKET_BYTES as f64;
        let predicted = (1.5_f64 / 0.01).sqrt();
        assert!((window / predicted - 1.0).abs() < 0.15, "{algorithm} {window} and not {predicted} packets");
    }
}

#[test]
fn bbr_does_not_mind_one_percent_of_loss() {
    let share = share(&Line::new(100, 50, 1.0, 10_000), Algorithm::Bbr, 0, 40);
    assert!(share > 0.8, "{share}");
}

#[test]
fn two_senders_share() {
    for algorithm in Algorithm::ALL {
        let start_apart = Duration::from_millis(137);
        let mut world = World::new(Line::new(50, 40, 1.0, 0), &[algorithm; 2], start_apart);
        let shares = world.shares(Duration::from_secs(30), Duration::from_secs(90));
        assert!(shares.iter().sum::<f64>() > 0.95, "{algorithm} {shares:?}");
        assert!(fairness(&shares) > 0.9, "{algorithm} {shares:?}");
    }
}

#[test]
fn slow_start_ends_before_it_overruns_the_queue() {
    // A slow start that ends with the first loss drops nearly as much as the queue holds: it has twice what fits in flight
    // before it hears of that.
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let line = Line::new(100, 100, 1.0, 0);
        let mut world = World::new(line.clone(), &[algorithm], Duration::ZERO);
        world.run_until(Duration::from_secs(4));
        let queue_packets = line.queue_bytes / PACKET_BYTES as u64;
        assert!(
            world.lines[0].dropped < queue_packets / 10,
            "{algorithm} {} {queue_packets}",
            world.lines[0].dropped
        );
    }
}

#[test]
fn a_pause_costs_no_more_than_the_way_back() {
    // Ten seconds of data, a pause of three, and on: within two seconds the line is full again.
    for algorithm in Algorithm::ALL {
        let mut world = World::new(Line::new(50, 40, 1.0, 0), &[algorithm], Duration::ZERO);
        world.run_until(Duration::from_secs(10));
        world.senders[0].packets_left = Some(0);
        world.run_until(Duration::from_secs(13));
        for _ in 0..4 {
            world.senders[0].controller.on_idle();
        }
        world.senders[0].packets_left = None;
        let share = world.shares(Duration::from_secs(15), Duration::from_secs(20))[0];
        assert!(share > 0.9, "{algorithm} has {share}");
    }
}

/// What each of the paths of an association over these lines has of its line, and each NewReno beside them.
fn coupled_shares(lines: &[Line], coupling: Coupling, paths: &[usize], others: &[usize]) -> Vec<f64> {
    let apart = Duration::from_millis(137);
    let mut world = World::coupled(lines.to_vec(), coupling, paths, others, apart);
    world.shares(Duration::from_secs(30), Duration::from_secs(230))
}

#[test]
fn coupled_paths_over_one_line_take_about_what_one_flow_takes() {
    // Queue in round trips, and random loss.
    for (queue_bdp, loss_ppm) in [(1.0, 0), (0.25, 0), (1.0, 10_000)] {
        let line = Line::new(20, 20, queue_bdp, loss_ppm);
        // What two paths have together by what NewReno has.
        let ratio = |coupling| {
            let shares = coupled_shares(slice::from_ref(&line), coupling, &[0, 0], &[0]);
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

/// What an association with a path over each of two lines, both with a queue of a round trip, has of the two together and of
/// the faster one alone.
fn of_both_and_of_the_faster(coupling: Coupling, lines: [(u64, u64); 2]) -> (f64, f64) {
    let rates = lines.map(|(mbit_per_s, _)| mbit_per_s as f64);
    let lines = lines.map(|(mbit_per_s, rtt_ms)| Line::new(mbit_per_s, rtt_ms, 1.0, 0));
    let shares = coupled_shares(&lines, coupling, &[0, 1], &[]);
    let sum = shares[0] * rates[0] + shares[1] * rates[1];
    (sum / (rates[0] + rates[1]), sum / rates[0].max(rates[1]))
}

#[test]
fn paths_over_two_lines_use_both() {
    for lines in [[(20, 20), (20, 20)], [(50, 10), (5, 10)], [(20, 20), (20, 200)]] {
        let (of_both, _) = of_both_and_of_the_faster(Coupling::Balia, lines);
        assert!(of_both > 0.95, "{lines:?} {of_both}");
        // Its losses halve the whole association, so it never fills two equal lines.
        let (_, of_faster) = of_both_and_of_the_faster(Coupling::ResourcePooling, lines);
        assert!(of_faster > 0.98, "{lines:?} {of_faster}");
    }
}

#[test]
fn what_is_congested_on_one_line_moves_to_the_other() {
    // Three others on the first line: each path for itself has a quarter of it.
    let of_first = |coupling| {
        let lines = [(); 2].map(|()| Line::new(20, 20, 1.0, 0));
        let shares = coupled_shares(&lines, coupling, &[0, 1], &[0, 0, 0]);
        assert!(shares[1] > 0.95, "{coupling} {shares:?}");
        shares[0]
    };
    assert!(of_first(Coupling::None) > 0.2);
    for coupling in [Coupling::ResourcePooling, Coupling::Balia] {
        let share = of_first(coupling);
        assert!(share < 0.12, "{coupling} {share}");
    }
}
