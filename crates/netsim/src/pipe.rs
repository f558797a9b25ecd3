//! One direction of a line: loss, a bounded queue, a rate and a delay.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Loss;
use crate::random::Random;

const NS_PER_S: u128 = 1_000_000_000;

/// What a pipe is like.
#[derive(Clone, Debug, PartialEq)]
pub struct PipeConfig {
    /// How fast packets leave; `None` (the default) is at once, and then nothing queues.
    pub rate_bits_per_s: Option<u64>,
    /// How long a packet travels after it left. Default 0.
    pub delay: Duration,
    /// Bytes that fit into the queue, with the packet that is leaving. A packet that does not fit is dropped
    /// (drop-tail); one that finds the queue empty always fits. Default: no bound.
    pub queue_bytes: usize,
    /// What is lost. Default: nothing.
    pub loss: Loss,
}

impl Default for PipeConfig {
    fn default() -> Self {
        PipeConfig {
            rate_bits_per_s: None,
            delay: Duration::ZERO,
            queue_bytes: usize::MAX,
            loss: Loss::Never,
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It arrives at the far end.
    Deliver {
        /// When its last bit is there.
        at_ns: u64,
    },
    /// It does not.
    Drop(DropReason),
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The pipe's loss took it.
    Loss,
    /// The queue was full.
    Queue,
}

/// What a pipe has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStats {
    /// Packets offered.
    pub packets_offered: u64,
    /// Packets that arrive.
    pub packets_delivered: u64,
    /// Bytes that arrive.
    pub bytes_delivered: u64,
    /// Packets lost.
    pub packets_lost: u64,
    /// Packets dropped because the queue was full.
    pub packets_overflowed: u64,
    /// The most bytes that ever waited.
    pub queue_bytes_max: usize,
}

/// One direction of a line. It decides what becomes of a packet from its size and the time alone.
#[derive(Clone, Debug)]
pub struct Pipe {
    config: PipeConfig,
    random: Random,
    /// Packets offered since the loss was set.
    number: u64,
    /// When each packet in the queue has left, and its bytes; the oldest first.
    queue: VecDeque<(u64, usize)>,
    queued_bytes: usize,
    /// When the last packet will have left, in nanoseconds and a fraction in units of 1 / rate.
    busy_until_ns: u64,
    busy_until_fraction: u64,
    stats: PipeStats,
}

impl Pipe {
    /// A pipe whose chances come from `seed`.
    pub fn new(config: &PipeConfig, seed: u64) -> Self {
        Self::with_random(config, Random::new(seed, 0))
    }

    pub(crate) fn with_random(config: &PipeConfig, random: Random) -> Self {
        Pipe {
            config: config.clone(),
            random,
            number: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            busy_until_ns: 0,
            busy_until_fraction: 0,
            stats: PipeStats::default(),
        }
    }

    /// A packet of `bytes` comes to the near end. `now_ns` never goes back.
    pub fn offer(&mut self, now_ns: u64, bytes: usize) -> Verdict {
        let number = self.number;
        self.number += 1;
        self.stats.packets_offered += 1;
        if self.config.loss.loses(number, &mut self.random) {
            self.stats.packets_lost += 1;
            return Verdict::Drop(DropReason::Loss);
        }
        let Some(left_ns) = self.enqueue(now_ns, bytes) else {
            self.stats.packets_overflowed += 1;
            return Verdict::Drop(DropReason::Queue);
        };
        self.stats.packets_delivered += 1;
        self.stats.bytes_delivered += bytes as u64;
        let delay_ns = u64::try_from(self.config.delay.as_nanos()).unwrap_or(u64::MAX);
        Verdict::Deliver { at_ns: left_ns.saturating_add(delay_ns) }
    }

    /// Loses packets in another way from now on; scripted numbers count from here.
    pub fn set_loss(&mut self, loss: Loss) {
        self.config.loss = loss;
        self.number = 0;
    }

    /// Changes the rate for the packets still to come.
    pub fn set_rate(&mut self, rate_bits_per_s: Option<u64>) {
        self.config.rate_bits_per_s = rate_bits_per_s;
        self.busy_until_fraction = 0;
    }

    /// Changes the delay for the packets still to come. A shorter one can let them overtake those on the way.
    pub fn set_delay(&mut self, delay: Duration) {
        self.config.delay = delay;
    }

    /// What the pipe is like.
    pub fn config(&self) -> &PipeConfig {
        &self.config
    }

    /// Bytes that wait at `now_ns`, with the packet that is leaving.
    pub fn queued_bytes(&self, now_ns: u64) -> usize {
        self.queue.iter().filter(|(left_ns, _)| *left_ns > now_ns).map(|(_, bytes)| bytes).sum()
    }

    /// What the pipe has counted.
    pub fn stats(&self) -> PipeStats {
        self.stats
    }

    /// When the packet will have left, or `None` if it does not fit.
    fn enqueue(&mut self, now_ns: u64, bytes: usize) -> Option<u64> {
        while let Some((left_ns, bytes)) = self.queue.front().copied()
            && left_ns <= now_ns
        {
            self.queued_bytes -= bytes;
            self.queue.pop_front();
        }
        if !self.queue.is_empty() && bytes > self.config.queue_bytes.saturating_sub(self.queued_bytes) {
            return None;
        }
        let left_ns = self.leave(now_ns, bytes);
        if left_ns > now_ns {
            self.queue.push_back((left_ns, bytes));
            self.queued_bytes += bytes;
            self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queued_bytes);
        }
        Some(left_ns)
    }

    /// Appends a packet to what is leaving. The fraction is carried along, so that the rate is exact over any run of
    /// packets.
    fn leave(&mut self, now_ns: u64, bytes: usize) -> u64 {
        if self.busy_until_ns < now_ns {
            (self.busy_until_ns, self.busy_until_fraction) = (now_ns, 0);
        }
        if let Some(rate) = self.config.rate_bits_per_s {
            // A pipe of rate 0 would hold its packets for ever, and 1 bit/s is as good as that.
            let rate = u128::from(rate.max(1));
            let bit_ns = bytes as u128 * 8 * NS_PER_S + u128::from(self.busy_until_fraction);
            let taken_ns = u64::try_from(bit_ns / rate).unwrap_or(u64::MAX);
            self.busy_until_ns = self.busy_until_ns.saturating_add(taken_ns);
            self.busy_until_fraction = (bit_ns % rate) as u64;
        }
        self.busy_until_ns
    }
}
