//! The configuration of a pipe.

use std::time::Duration;

use crate::{Jitter, Loss, Reorder, Schedule, WhenDown};

/// Configuration of a pipe. The default is a line with no limit, no delay and no fault.
///
/// The effect of a fault on a packet depends on the seed, the pipe and the packet's number alone: switching one on does not
/// change the chances of another.
///
/// # Examples
///
/// A line of 30 Mbit/s and 50 ms that drops what does not fit into 400 KB, and loses one packet in a thousand:
///
/// ```
/// use std::time::Duration;
/// use netsim::{Loss, PipeConfig};
///
/// let config = PipeConfig {
///     rate_bits_per_s: Some(30_000_000),
///     delay: Duration::from_millis(50),
///     queue_bytes: 400_000,
///     loss: Loss::Random { probability: 0.001 },
///     ..PipeConfig::default()
/// };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PipeConfig {
    /// The rate at which packets leave; with `None` (the default) they leave at once, and none queue.
    pub rate_bits_per_s: Option<u64>,
    /// The propagation delay. Default 0.
    pub delay: Duration,
    /// Bytes that fit into the queue, with the packet that is leaving. A packet that does not fit is dropped
    /// (drop-tail); one that finds the queue empty always fits. Default: no bound.
    pub queue_bytes: usize,
    /// Packets that fit into the queue, with the one that is leaving. Default: no bound.
    pub queue_packets: usize,
    /// The longest packet that the line takes, headers included. A longer one that must stay whole is dropped before
    /// anything else happens to it; others are cut, at the price of a header a piece. Default: any.
    pub mtu_bytes: Option<usize>,
    /// Whether the sender of a packet that was too long is told (ICMP); see
    /// [`Network::too_big`](crate::Network::too_big). Default: no, such packets vanish in silence.
    pub reports_too_big: bool,
    /// A packet that finds more than this waiting is marked "congestion experienced" if its sender said that it
    /// understands marks (RFC 3168 §5). Default: nothing is marked.
    pub mark_above_bytes: Option<usize>,
    /// Packets that are lost. Default: none.
    pub loss: Loss,
    /// Packets that others overtake. Default: none.
    pub reorder: Reorder,
    /// Probability that a packet is duplicated. The copy comes right behind it and must find room in the queue
    /// too; no other fault meets it but the jitter. Default 0.
    pub duplicate_probability: f64,
    /// Probability that a packet is damaged. Default 0.
    pub corrupt_probability: f64,
    /// Number of adjacent bits of a damaged packet that are flipped, at a random place. Default 1.
    pub corrupt_bits: u32,
    /// The variation of the delay between packets. Default: none.
    pub jitter: Jitter,
    /// The times at which the line is up. Default: always.
    pub schedule: Schedule,
    /// Treatment of packets while the line is down. Default: they are lost.
    pub when_down: WhenDown,
}

impl Default for PipeConfig {
    fn default() -> Self {
        PipeConfig {
            rate_bits_per_s: None,
            delay: Duration::ZERO,
            queue_bytes: usize::MAX,
            queue_packets: usize::MAX,
            mtu_bytes: None,
            reports_too_big: false,
            mark_above_bytes: None,
            loss: Loss::Never,
            reorder: Reorder::Never,
            duplicate_probability: 0.0,
            corrupt_probability: 0.0,
            corrupt_bits: 1,
            jitter: Jitter::None,
            schedule: Schedule::AlwaysUp,
            when_down: WhenDown::Lose,
        }
    }
}
