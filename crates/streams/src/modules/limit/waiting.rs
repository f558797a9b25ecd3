//! The buckets of one direction, and the messages that wait for each.

use std::collections::VecDeque;

use crate::Message;
use crate::queue::Queue;

/// The buckets of one direction, and an index of the queue: the messages that wait for each bucket, in order. So the first of
/// them is found without a search among the others.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The messages on the queue, in its order.
    entries: VecDeque<Entry>,
    /// By the number of the bucket, up to the highest that was used.
    buckets: Vec<Bucket>,
    /// The messages without a bucket, in order. No message passes them, and they pass none.
    barriers: VecDeque<u32>,
    last_number: u32,
    /// The index is no longer that of the queue.
    is_stale: bool,
}

/// A message on the queue.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Later messages have higher numbers, from 1 up.
    number: u32,
    /// The next message that waits for the same bucket; 0 if there is none.
    next: u32,
}

/// A bucket, and the messages that wait for it.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// The time at which the next message may go, in nanoseconds since the module's beginning.
    next_ns: u64,
    /// The first and the last message that waits; 0 if none does.
    first: u32,
    last: u32,
}

/// A message that waits for a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The message before it that waits for the same bucket; 0 if there is none.
    before: u32,
    pub(super) number: u32,
    /// Place on the queue.
    pub(super) place: usize,
}

impl Waiting {
    /// Returns the memory of this many buckets.
    pub(super) const fn bytes_of(buckets: usize) -> usize {
        buckets * size_of::<Bucket>()
    }

    /// Returns when the next message of a bucket may go.
    pub(super) fn next_ns(&self, bucket: usize) -> u64 {
        self.buckets.get(bucket).map_or(0, |bucket| bucket.next_ns)
    }

    pub(super) fn set_next_ns(&mut self, bucket: usize, next_ns: u64) {
        self.bucket(bucket).next_ns = next_ns;
    }

    /// Notes that the queue has changed otherwise than by [`Waiting::push`] and the removals.
    pub(super) fn on_changed(&mut self) {
        self.is_stale = true;
    }

    /// Makes the index again if it is not that of the queue.
    pub(super) fn follow(&mut self, queue: &Queue, bucket_of: impl Fn(&Message) -> Option<usize>) {
        if !self.is_stale && self.entries.len() == queue.len() && self.last_number < u32::MAX {
            return;
        }
        self.is_stale = false;
        self.entries.clear();
        self.barriers.clear();
        self.last_number = 0;
        for bucket in &mut self.buckets {
            (bucket.first, bucket.last) = (0, 0);
        }
        for m in queue.iter() {
            self.push(bucket_of(m));
        }
    }

    /// Adds the message that comes last on the queue, with its bucket if it has one. Returns whether it is the first that waits
    /// for that.
    pub(super) fn push(&mut self, bucket: Option<usize>) -> bool {
        self.last_number += 1;
        let number = self.last_number;
        self.entries.push_back(Entry { number, next: 0 });
        let Some(bucket) = bucket else {
            self.barriers.push_back(number);
            return self.entries.len() == 1;
        };
        let before = std::mem::replace(&mut self.bucket(bucket).last, number);
        if before == 0 {
            self.bucket(bucket).first = number;
        } else if let Some(place) = self.place(before) {
            self.entries[place].next = number;
        }
        before == 0
    }

    /// Returns whether the first message on the queue has no bucket.
    pub(super) fn begins_with_barrier(&self) -> bool {
        let first = self.entries.front().map(|entry| entry.number);
        first.is_some() && first == self.barriers.front().copied()
    }

    /// Removes the first message on the queue, which has no bucket.
    pub(super) fn pop_barrier(&mut self) {
        self.entries.pop_front();
        self.barriers.pop_front();
        self.rest();
    }

    /// Returns the buckets that admit a message now, each with the number of its first message.
    pub(super) fn free(&self, now_ns: u64) -> impl Iterator<Item = (u32, usize)> {
        (0..self.buckets.len()).filter_map(move |bucket| self.free_one(bucket, now_ns))
    }

    /// Returns a bucket with the number of its first message, if it admits a message now.
    pub(super) fn free_one(&self, bucket: usize, now_ns: u64) -> Option<(u32, usize)> {
        let Bucket { next_ns, first, .. } = *self.buckets.get(bucket)?;
        (first != 0 && next_ns <= now_ns).then_some((first, bucket))
    }

    /// Returns the time at which one of the other buckets admits a message that waits.
    pub(super) fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let waiting = self.buckets.iter().filter(|bucket| bucket.first != 0);
        waiting.map(|bucket| bucket.next_ns).filter(|next| *next > now_ns).min()
    }

    /// Returns the first message that waits for a bucket.
    pub(super) fn first(&self, bucket: usize) -> Option<Found> {
        let number = self.buckets.get(bucket)?.first;
        self.found(0, number)
    }

    /// Returns the message behind this one that waits for the same bucket.
    pub(super) fn behind(&self, found: Found) -> Option<Found> {
        self.found(found.number, self.entries.get(found.place)?.next)
    }

    /// Returns the message with this number, if no message without a bucket is in front of it.
    fn found(&self, before: u32, number: u32) -> Option<Found> {
        #[cfg(test)]
        super::tests::LOOKED_AT.set(super::tests::LOOKED_AT.get() + 1);
        if number == 0 || self.barriers.front().is_some_and(|barrier| *barrier < number) {
            return None;
        }
        Some(Found { before, number, place: self.place(number)? })
    }

    /// Removes a message that waits for this bucket.
    pub(super) fn remove(&mut self, bucket: usize, found: Found) {
        let Some(Entry { next, .. }) = self.entries.remove(found.place) else { return };
        match self.place(found.before) {
            Some(before) => self.entries[before].next = next,
            None => self.bucket(bucket).first = next,
        }
        if next == 0 {
            self.bucket(bucket).last = found.before;
        }
        self.rest();
    }

    /// Frees memory once nothing waits.
    fn rest(&mut self) {
        if self.entries.is_empty() {
            (self.entries, self.barriers) = (VecDeque::new(), VecDeque::new());
            self.last_number = 0;
        }
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }

    fn bucket(&mut self, bucket: usize) -> &mut Bucket {
        if bucket >= self.buckets.len() {
            // No more memory than was charged: the number of all is a power of two.
            let buckets = (bucket + 1).next_power_of_two();
            self.buckets.reserve_exact(buckets - self.buckets.len());
            self.buckets.resize(buckets, Bucket::default());
        }
        &mut self.buckets[bucket]
    }
}
