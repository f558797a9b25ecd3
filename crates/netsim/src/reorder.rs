//! Packets that others overtake.

use std::time::Duration;

/// Which packets others overtake.
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
    /// None.
    #[default]
    Never,
    /// Some travel longer; those that come within that time overtake them.
    Late {
        /// How likely a packet is late, from 0 to 1.
        probability: f64,
        /// By how much.
        by: Duration,
    },
    /// Some wait at the far end until others have passed.
    Behind {
        /// How likely a packet waits, from 0 to 1.
        probability: f64,
        /// How many pass it. Those that wait themselves do not count.
        packets: u32,
        /// How long it waits for them at most; a packet with nothing after it would otherwise wait for ever.
        wait_max: Duration,
    },
}
