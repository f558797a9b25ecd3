//! The counters of a pipe.

/// Counters of a pipe.
///
/// Every packet and accepted copy ends in one of five counters: `packets_offered + packets_duplicated` is
/// `packets_delivered + packets_lost + packets_overflowed + packets_down + packets_too_big`.
///
/// # Examples
///
/// ```
/// # use netsim::{Loss, Pipe, PipeConfig};
/// let mut pipe = Pipe::new(&PipeConfig { loss: Loss::scripted([1]), ..PipeConfig::default() }, 0);
/// for now_ns in 0..3 {
///     pipe.offer(now_ns, 100);
/// }
/// assert_eq!((pipe.stats().packets_delivered, pipe.stats().packets_lost), (2, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStats {
    /// Packets offered.
    pub packets_offered: u64,
    /// Packets that arrive, with copies.
    pub packets_delivered: u64,
    /// Bytes that arrive, with copies.
    pub bytes_delivered: u64,
    /// Packets lost.
    pub packets_lost: u64,
    /// Packets dropped because the queue was full.
    pub packets_overflowed: u64,
    /// Packets lost because the line was down, or went down while they waited.
    pub packets_down: u64,
    /// Packets longer than the line takes that must stay whole.
    pub packets_too_big: u64,
    /// Copies made and accepted.
    pub packets_duplicated: u64,
    /// Copies for which there was no room, or that would have been on the line while it was down. No other counter has them.
    pub copies_dropped: u64,
    /// Packets damaged.
    pub packets_corrupted: u64,
    /// Packets that were made late or to wait behind others.
    pub packets_reordered: u64,
    /// Packets marked "congestion experienced".
    pub packets_marked: u64,
    /// The most bytes that ever waited.
    pub queue_bytes_max: usize,
    /// The most packets that ever waited.
    pub queue_packets_max: usize,
}
