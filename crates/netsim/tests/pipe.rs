//! A single pipe.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use netsim::{DropReason, Loss, Pipe, PipeConfig, Verdict};

fn at(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Deliver(passage) => passage.at_ns,
        other => panic!("dropped: {other:?}"),
    }
}

fn line(rate_bits_per_s: u64, delay_ms: u64) -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(rate_bits_per_s),
        delay: Duration::from_millis(delay_ms),
        ..PipeConfig::default()
    }
}

fn losses(config: &PipeConfig, seed: u64, packets: usize) -> Vec<bool> {
    let mut pipe = Pipe::new(config, seed);
    (0..packets).map(|n| matches!(pipe.offer(n as u64, 100), Verdict::Drop(DropReason::Loss))).collect()
}

#[test]
fn a_packet_takes_its_length_and_the_delay() {
    let mut pipe = Pipe::new(&line(8_000_000, 10), 0);
    // 1,000 bytes at 1 byte a microsecond.
    assert_eq!(at(pipe.offer(0, 1000)), 11_000_000);
    assert_eq!(at(pipe.offer(50_000_000, 500)), 60_500_000);
}

#[test]
fn packets_wait_for_those_before_them() {
    let mut pipe = Pipe::new(&line(8_000_000, 0), 0);
    assert_eq!(at(pipe.offer(0, 1000)), 1_000_000);
    assert_eq!(at(pipe.offer(0, 1000)), 2_000_000);
    assert_eq!(at(pipe.offer(500_000, 1000)), 3_000_000);
    assert_eq!(pipe.queued_bytes(500_000), 3000);
    assert_eq!(pipe.queued_bytes(2_500_000), 1000);
    assert_eq!(pipe.queued_bytes(3_000_000), 0);
}

#[test]
fn the_rate_is_exact_over_many_packets() {
    // 7 bytes at 3 Mbit/s take 18,666.67 ns: rounding each packet would be 0.3 s off in the end.
    let mut pipe = Pipe::new(&line(3_000_000, 0), 0);
    let last = (0..450_000).map(|_| at(pipe.offer(0, 7))).last().unwrap();
    assert_eq!(last, 450_000 * 7 * 8 * 1_000_000_000 / 3_000_000);
}

#[test]
fn no_rate_is_no_wait() {
    let config = PipeConfig { delay: Duration::from_nanos(5), queue_bytes: 0, ..PipeConfig::default() };
    let mut pipe = Pipe::new(&config, 0);
    for _ in 0..10 {
        assert_eq!(at(pipe.offer(7, 1_000_000)), 12);
    }
}

#[test]
fn the_queue_is_bounded_and_drops_what_comes_last() {
    let config = PipeConfig { queue_bytes: 3000, ..line(8_000_000, 0) };
    let mut pipe = Pipe::new(&config, 0);
    for _ in 0..3 {
        at(pipe.offer(0, 1000));
    }
    assert_eq!(pipe.offer(0, 1), Verdict::Drop(DropReason::Queue));
    // A millisecond later the first packet has left, and there is room for one more.
    assert_eq!(at(pipe.offer(1_000_000, 1000)), 4_000_000);
    assert_eq!(pipe.offer(1_000_000, 1), Verdict::Drop(DropReason::Queue));
    let stats = pipe.stats();
    assert_eq!((stats.packets_offered, stats.packets_delivered, stats.packets_overflowed), (6, 4, 2));
    assert_eq!((stats.bytes_delivered, stats.queue_bytes_max), (4000, 3000));
}

#[test]
fn a_packet_larger_than_the_queue_passes_when_nothing_waits() {
    let config = PipeConfig { queue_bytes: 100, ..line(8_000_000, 0) };
    let mut pipe = Pipe::new(&config, 0);
    assert_eq!(at(pipe.offer(0, 1500)), 1_500_000);
    assert_eq!(pipe.offer(0, 1), Verdict::Drop(DropReason::Queue));
    assert_eq!(pipe.offer(0, 0), Verdict::Drop(DropReason::Queue));
}

#[test]
fn random_loss_is_the_seed_s() {
    let config = PipeConfig { loss: Loss::Random { probability: 0.1 }, ..PipeConfig::default() };
    let first = losses(&config, 42, 10_000);
    assert_eq!(first, losses(&config, 42, 10_000));
    assert_ne!(first, losses(&config, 43, 10_000));
    let lost = first.iter().filter(|lost| **lost).count();
    assert!((900..1100).contains(&lost), "{lost}");
}

#[test]
fn random_loss_does_not_depend_on_the_queue() {
    let loss = Loss::Random { probability: 0.3 };
    let free = PipeConfig { loss: loss.clone(), ..PipeConfig::default() };
    let full = PipeConfig { loss, queue_bytes: 1, ..line(8, 0) };
    assert_eq!(losses(&free, 5, 1000), losses(&full, 5, 1000));
}

#[test]
fn scripted_loss_takes_the_packets_it_names() {
    let config = PipeConfig { loss: Loss::scripted([0, 2, 3]), ..PipeConfig::default() };
    assert_eq!(losses(&config, 0, 6), [true, false, true, true, false, false]);
}

#[test]
fn a_script_counts_from_when_it_is_set() {
    let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    for _ in 0..5 {
        at(pipe.offer(0, 1));
    }
    pipe.set_loss(Loss::scripted([1]));
    at(pipe.offer(0, 1));
    assert_eq!(pipe.offer(0, 1), Verdict::Drop(DropReason::Loss));
    at(pipe.offer(0, 1));
}

#[test]
fn a_line_can_be_cut_and_mended() {
    let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    pipe.set_loss(Loss::Always);
    assert_eq!(pipe.offer(0, 1), Verdict::Drop(DropReason::Loss));
    pipe.set_loss(Loss::Never);
    at(pipe.offer(1, 1));
}

#[test]
fn a_line_can_change_its_rate_and_delay() {
    let mut pipe = Pipe::new(&line(8_000_000, 1), 0);
    assert_eq!(at(pipe.offer(0, 1000)), 2_000_000);
    pipe.set_rate(Some(16_000_000));
    pipe.set_delay(Duration::from_millis(3));
    assert_eq!(at(pipe.offer(1_000_000, 1000)), 4_500_000);
}

#[test]
fn extremes_do_not_overflow() {
    let config = PipeConfig {
        rate_bits_per_s: Some(0),
        delay: Duration::MAX,
        queue_bytes: usize::MAX,
        ..PipeConfig::default()
    };
    let mut pipe = Pipe::new(&config, 0);
    assert_eq!(at(pipe.offer(u64::MAX, usize::MAX)), u64::MAX);
    let mut pipe = Pipe::new(&line(u64::MAX, 0), 0);
    assert_eq!(at(pipe.offer(5, 1500)), 5);
}
