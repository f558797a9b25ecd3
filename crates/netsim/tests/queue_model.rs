//! Compares the queue of a pipe to a model that is slow and simple.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use netsim::{DropReason, Pipe, PipeConfig, Verdict};
use proptest::prelude::*;

/// Every packet that was ever taken, and when its last bit left, in fractions of a nanosecond.
struct Model {
    rate_bits_per_s: u128,
    queue_bytes: usize,
    queue_packets: usize,
    taken: Vec<(u128, usize)>,
}

impl Model {
    /// Times are in units of 1 / rate nanoseconds, so that every packet takes a whole number of them.
    fn offer(&mut self, now_ns: u64, bytes: usize) -> Option<u64> {
        let now = u128::from(now_ns) * self.rate_bits_per_s;
        // A packet stays until the clock has passed the nanosecond in which it leaves.
        let gone_ns = |left: u128| left / self.rate_bits_per_s;
        let waiting: Vec<usize> = self
            .taken
            .iter()
            .filter(|(left, _)| gone_ns(*left) > u128::from(now_ns))
            .map(|(_, bytes)| *bytes)
            .collect();
        let waiting_bytes: usize = waiting.iter().sum();
        let fits = waiting_bytes + bytes <= self.queue_bytes && waiting.len() < self.queue_packets;
        if !fits && !waiting.is_empty() {
            return None;
        }
        // The clock counts whole nanoseconds: a line that was busy until within this one continues there.
        let busy = self.taken.last().map_or(0, |(left, _)| *left);
        let start = if gone_ns(busy) < u128::from(now_ns) { now } else { busy };
        let left = start + bytes as u128 * 8 * 1_000_000_000;
        self.taken.push((left, bytes));
        Some(gone_ns(left) as u64)
    }

    fn waiting_bytes(&self, now_ns: u64) -> usize {
        let waits = |left: u128| left / self.rate_bits_per_s > u128::from(now_ns);
        self.taken.iter().filter(|(left, _)| waits(*left)).map(|(_, bytes)| bytes).sum()
    }
}

proptest! {
    #[test]
    fn a_pipe_does_what_the_model_says(
        rate_bits_per_s in prop_oneof![1_000u64..100_000, 1_000_000u64..10_000_000_000],
        queue_bytes in prop_oneof![Just(usize::MAX / 2), 0usize..20_000],
        queue_packets in prop_oneof![Just(usize::MAX), 0usize..12],
        packets in prop::collection::vec((0u64..3_000_000, 0usize..3_000), 1..120),
        scale in 0u64..200,
    ) {
        let config = PipeConfig {
            rate_bits_per_s: Some(rate_bits_per_s),
            queue_bytes,
            queue_packets,
            ..PipeConfig::default()
        };
        let mut pipe = Pipe::new(&config, 0);
        let mut model =
            Model { rate_bits_per_s: rate_bits_per_s.into(), queue_bytes, queue_packets, taken: Vec::new() };
        let mut now_ns = 0;
        for (gap_ns, bytes) in packets {
            // Many gaps are far shorter than a packet takes, so that queues form at every rate.
            now_ns += gap_ns * scale / 100;
            let verdict = match pipe.offer(now_ns, bytes) {
                Verdict::Deliver(passage) => Some(passage.at_ns),
                Verdict::Drop(reason) => {
                    prop_assert_eq!(reason, DropReason::Queue);
                    None
                }
            };
            prop_assert_eq!(verdict, model.offer(now_ns, bytes));
            prop_assert_eq!(pipe.queued_bytes(now_ns), model.waiting_bytes(now_ns));
            prop_assert_eq!(pipe.queued_bytes(now_ns + 777_777), model.waiting_bytes(now_ns + 777_777));
        }
    }
}
