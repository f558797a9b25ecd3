//! The queue of packets that wait to leave a pipe.

use std::collections::VecDeque;

/// The packets that wait, with the one that is leaving, in the order in which they leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The departure time and the bytes of each packet.
    waiting: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Queue {
    /// Forgets the packets that have left by `now_ns`.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        while let Some((departure_ns, bytes)) = self.waiting.front().copied()
            && departure_ns <= now_ns
        {
            self.bytes -= bytes;
            self.waiting.pop_front();
        }
    }

    /// Returns whether a packet of `bytes` fits; if nothing waits, any does.
    pub(crate) fn has_room(&self, bytes: usize, bytes_max: usize, packets_max: usize) -> bool {
        self.waiting.is_empty()
            || (self.waiting.len() < packets_max
                && bytes_max.checked_sub(self.bytes).is_some_and(|room| bytes <= room))
    }

    /// Appends a packet that leaves at `departure_ns`, not before those that wait already.
    pub(crate) fn push(&mut self, departure_ns: u64, bytes: usize) {
        self.waiting.push_back((departure_ns, bytes));
        // No bound is above what can be counted, so the sum is not either.
        self.bytes += bytes;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn packets(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of bytes and packets that wait at `now_ns`, which is not before the last packet came.
    pub(crate) fn waiting_at(&self, now_ns: u64) -> (usize, usize) {
        let gone = self.waiting.partition_point(|(departure_ns, _)| *departure_ns <= now_ns);
        let gone_bytes: usize = self.waiting.range(..gone).map(|(_, bytes)| bytes).sum();
        (self.bytes - gone_bytes, self.waiting.len() - gone)
    }
}
