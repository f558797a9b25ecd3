//! The reader's knowledge of the records in its pair.

/// The reader's knowledge of the records in its pair. A reader takes a message without peeking first if the message cannot be
/// longer than its buffer and no bundles are announced.
#[derive(Clone, Copy, Default)]
pub(super) struct Announced {
    /// Length of the longest message so far, also of those in bundles: once records were taken out and put back, it may lie in
    /// the pair alone.
    pub(super) longest: u32,
    /// Number of times that `longest` has grown.
    size_hints: u32,
    /// Whether records may be bundles.
    pub(super) bundles: bool,
    /// Messages put alone since the last bundle.
    pub(super) alone: u32,
    /// Number of messages put when the sharers' page was asked last how many were read.
    pub(super) asked: Option<u32>,
}

/// Number of size hints with exact lengths. Later size hints round up to a power of two, so that few are sent.
const EXACT_SIZE_HINTS_MAX: u32 = 8;
/// Interval, in messages put alone, at which the daemon announces that no more bundles come, if the program has read everything.
pub(super) const ALONE_MAX: u32 = 64;

impl Announced {
    /// Returns the announcement due before a message of this length; `None` if an earlier message was as long.
    pub(super) fn hint_for_longer(&self, bytes: u32) -> Option<Announced> {
        let exact = self.size_hints < EXACT_SIZE_HINTS_MAX;
        let longest = if exact { bytes } else { bytes.next_power_of_two() };
        (bytes > self.longest).then_some(Announced { longest, size_hints: self.size_hints + 1, ..*self })
    }

    /// Returns the announcement due before a bundle; `None` if the reader expects bundles already.
    pub(super) fn hint_for_bundle(&mut self) -> Option<Announced> {
        (self.alone, self.asked) = (0, None);
        (!self.bundles).then_some(Announced { bundles: true, ..*self })
    }
}
