//! Packets that others overtake.

use std::time::Duration;

/// Rule for the packets that others overtake.
///
/// # Examples
///
/// One packet in a hundred arrives after the three that were sent after it:
///
/// ```
/// use std::time::Duration;
/// use netsim::{PipeConfig, Reorder};
///
/// let reorder = Reorder::Behind { probability: 0.01, packets: 3, wait_max: Duration::from_millis(50) };
/// let config = PipeConfig { reorder, ..PipeConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reorder {
    /// No packet is overtaken.
    #[default]
    Never,
    /// Some packets travel longer, and packets that follow within that time overtake them.
    Late {
        /// Probability that a packet is late.
        probability: f64,
        /// The additional delay.
        by: Duration,
    },
    /// Some packets wait at the far end until others have passed.
    Behind {
        /// Probability that a packet waits.
        probability: f64,
        /// Number of packets that pass it. Packets that also wait do not count.
        packets: u32,
        /// Maximum wait; a packet that no other follows would otherwise wait forever.
        wait_max: Duration,
    },
}
