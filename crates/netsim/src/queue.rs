//! The queue of packets that wait to leave a pipe.

use std::collections::VecDeque;

/// Packets that leave at the same time.
#[derive(Clone, Copy, Debug)]
struct Departure {
    at_ns: u64,
    bytes: usize,
    packets: usize,
}

/// The packets that wait, with the one that is leaving, in the order in which they leave.
///
/// Packets that are lost with the queue when the line goes down leave at that time: a flood of them takes the memory of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Departure>,
    bytes: usize,
    packets: usize,
}

impl Queue {
    /// Forgets the packets that have left by `now_ns`.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        while let Some(next) = self.waiting.front().filter(|departure| departure.at_ns <= now_ns) {
            self.bytes -= next.bytes;
            self.packets -= next.packets;
            self.waiting.pop_front();
        }
    }

    /// Returns whether a packet of `bytes` fits; if nothing waits, any does.
    pub(crate) fn has_room(&self, bytes: usize, bytes_max: usize, packets_max: usize) -> bool {
        self.waiting.is_empty()
            || (self.packets < packets_max
                && bytes_max.checked_sub(self.bytes).is_some_and(|room| bytes <= room))
    }

    /// Appends a packet that leaves at `departure_ns`, not before those that wait already.
    pub(crate) fn push(&mut self, departure_ns: u64, bytes: usize) {
        match self.waiting.back_mut() {
            Some(last) if last.at_ns == departure_ns => {
                last.bytes += bytes;
                last.packets += 1;
            }
            _ => self.waiting.push_back(Departure { at_ns: departure_ns, bytes, packets: 1 }),
        }
        self.packets += 1;
        // No bound is above what can be counted, so the sum is not either.
        self.bytes += bytes;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Returns the number of times at which packets leave.
    #[cfg(test)]
    pub(crate) fn departures(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of bytes and packets that wait at `now_ns`, which is not before the last packet came.
    pub(crate) fn waiting_at(&self, now_ns: u64) -> (usize, usize) {
        let gone = self.waiting.partition_point(|departure| departure.at_ns <= now_ns);
        self.waiting.range(..gone).fold((self.bytes, self.packets), |(bytes, packets), departure| {
            (bytes - departure.bytes, packets - departure.packets)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_leave_at_the_same_time_are_counted_and_take_the_memory_of_one() {
        let mut queue = Queue::default();
        queue.push(10, 1500);
        (0..1000).for_each(|_| queue.push(20, 28));
        assert_eq!((queue.bytes(), queue.packets(), queue.waiting.len()), (29_500, 1001, 2));
        assert!(!queue.has_room(28, usize::MAX, 1001) && queue.has_room(28, usize::MAX, 1002));
        assert_eq!(
            [9, 10, 20].map(|now_ns| queue.waiting_at(now_ns)),
            [(29_500, 1001), (28_000, 1000), (0, 0)]
        );
        queue.expire(10);
        assert_eq!((queue.bytes(), queue.packets()), (28_000, 1000));
        queue.expire(20);
        assert_eq!((queue.bytes(), queue.packets(), queue.waiting.len()), (0, 0, 0));
    }
}
