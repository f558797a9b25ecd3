//! The buckets of one direction, the messages that wait for each, and the records that some of them wait for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use crate::message::UserData;
use crate::module::Q;
use crate::queue::Queue;
use crate::{Message, Which};

/// The buckets of one direction, and an index of the queue: the messages that wait for each bucket, in order. So the first of
/// them is found without a search among the others.
///
/// A pass over the queue asks for one message after the other: [`Buckets::begin_pass`], then [`Buckets::next`] and
/// [`Buckets::on_sent`] in turns.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    /// The messages on the queue, in its order.
    entries: VecDeque<Entry>,
    /// By the number of the bucket, up to the highest that was used.
    buckets: Vec<Bucket>,
    /// The messages without a bucket, in order. No message passes them, and they pass none.
    barriers: VecDeque<u32>,
    /// The streams of records that were sent on in part, by association. Data on other streams waits for their ends.
    open_records: HashMap<Which, u16>,
    /// The buckets that admit a message in this pass, each with the number of its first message.
    free: BinaryHeap<Reverse<(u32, usize)>>,
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

/// A message that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The bucket for which it waits, if it has one.
    bucket: Option<usize>,
    /// The message before it that waits for the same bucket; 0 if there is none.
    before: u32,
    number: u32,
    /// Place on the queue.
    pub(super) place: usize,
}

impl Buckets {
    /// Number of waiting messages that others may pass.
    pub(super) const PASSED_MAX: usize = 1024;

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

    /// Notes that the queue has changed otherwise than by [`Buckets::push`] and [`Buckets::on_sent`].
    pub(super) fn on_changed(&mut self) {
        self.is_stale = true;
    }

    /// Notes a flush. If it `discards` messages of this direction, the ends of open records may be among them.
    pub(super) fn on_flush(&mut self, discards: bool) {
        self.on_changed();
        if discards {
            self.open_records.clear();
        }
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

    /// Returns whether a message that was queued last may go although others in front of it wait for the end of a record.
    pub(super) fn passes_held(&self, m: &Message) -> bool {
        !self.open_records.is_empty() && !m.user_data().is_some_and(|data| self.is_held(data))
    }

    /// Notes which record a message that was sent on, after a wait or at once, opens or ends. Returns whether it ends one.
    pub(super) fn note_record(&mut self, m: &Message) -> bool {
        match m.user_data() {
            Some(UserData { association, stream, more: true, .. }) => {
                self.open_records.insert(association, stream);
                false
            }
            Some(UserData { association, .. }) => self.open_records.remove(&association).is_some(),
            None => m.cut_record().is_some_and(|(association, stream)| self.end_record(association, stream)),
        }
    }

    /// Forgets the open record of an association, or only one on this stream. Returns whether there was one.
    fn end_record(&mut self, association: Which, stream: Option<u16>) -> bool {
        let open = self.open_records.get(&association);
        let is_meant = open.is_some_and(|open| stream.is_none_or(|stream| stream == *open));
        is_meant && self.open_records.remove(&association).is_some()
    }

    /// Returns whether user data waits for the end of a record.
    fn is_held(&self, data: UserData) -> bool {
        self.open_records.get(&data.association).is_some_and(|stream| *stream != data.stream)
    }

    /// Looks for the buckets that admit a message now.
    pub(super) fn begin_pass(&mut self, now_ns: u64) {
        let mut free = std::mem::take(&mut self.free).into_vec();
        free.clear();
        free.extend((0..self.buckets.len()).filter_map(|bucket| self.free_one(bucket, now_ns)));
        self.free = free.into();
    }

    /// Returns a bucket with the number of its first message, if it admits a message now.
    fn free_one(&self, bucket: usize, now_ns: u64) -> Option<Reverse<(u32, usize)>> {
        let Bucket { next_ns, first, .. } = *self.buckets.get(bucket)?;
        (first != 0 && next_ns <= now_ns).then_some(Reverse((first, bucket)))
    }

    /// Finds the next message that may go: in the order of the queue, as far as buckets and open records permit.
    pub(super) fn next(&mut self, q: &mut Q<'_>, now_ns: u64) -> Option<Found> {
        loop {
            let barrier = self.first_barrier();
            if let Some(found) = barrier.filter(|found| found.place == 0).or_else(|| self.next_free(q)) {
                return Some(found);
            }
            let barrier = barrier.filter(|barrier| self.is_behind_held(*barrier, now_ns))?;
            let cut = q.queue().iter().nth(barrier.place).and_then(Message::cut_record);
            match cut {
                // No part of the record comes any more, and what has waited for its end comes before this primitive.
                Some((association, None)) if self.end_record(association, None) => self.begin_pass(now_ns),
                _ => return Some(barrier),
            }
        }
    }

    /// Takes the bucket whose first message came before those of the others, and finds the first of its messages that no open
    /// record holds back.
    fn next_free(&mut self, q: &mut Q<'_>) -> Option<Found> {
        while let Some(Reverse((_, bucket))) = self.free.pop() {
            let mut next = self.first(bucket);
            while let Some(found) = next.filter(|found| found.place < Self::PASSED_MAX) {
                let data = q.queue().iter().nth(found.place).and_then(Message::user_data);
                if !data.is_some_and(|data| self.is_held(data)) {
                    return Some(found);
                }
                q.count_work();
                next = self.behind(found);
            }
        }
        None
    }

    /// Returns the first message without a bucket.
    fn first_barrier(&self) -> Option<Found> {
        let number = *self.barriers.front()?;
        Some(Found { bucket: None, before: 0, number, place: self.place(number)? })
    }

    /// Returns whether every message in front of this one waits for the end of a record, and not for time. That end can only come
    /// behind this message.
    fn is_behind_held(&self, barrier: Found, now_ns: u64) -> bool {
        let waits_for_time =
            |bucket: &Bucket| bucket.first != 0 && bucket.first < barrier.number && bucket.next_ns > now_ns;
        !self.open_records.is_empty()
            && barrier.place <= Self::PASSED_MAX
            && !self.buckets.iter().any(waits_for_time)
    }

    /// Notes that a message was sent on.
    pub(super) fn on_sent(&mut self, found: Found, m: &Message, now_ns: u64) {
        match found.bucket {
            Some(bucket) => self.remove(bucket, found),
            None => self.remove_barrier(found),
        }
        let has_ended = self.note_record(m);
        match found.bucket {
            Some(bucket) if !has_ended => self.free.extend(self.free_one(bucket, now_ns)),
            // Those behind it, or that have waited for the end of the record, may go.
            _ => self.begin_pass(now_ns),
        }
    }

    /// Returns the time at which one of the other buckets admits a message that waits.
    pub(super) fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let waiting = self.buckets.iter().filter(|bucket| bucket.first != 0);
        waiting.map(|bucket| bucket.next_ns).filter(|next| *next > now_ns).min()
    }

    /// Returns the first message that waits for a bucket.
    fn first(&self, bucket: usize) -> Option<Found> {
        let number = self.buckets.get(bucket)?.first;
        self.found(Some(bucket), 0, number)
    }

    /// Returns the message behind this one that waits for the same bucket.
    fn behind(&self, found: Found) -> Option<Found> {
        self.found(found.bucket, found.number, self.entries.get(found.place)?.next)
    }

    /// Returns the message with this number, if no message without a bucket is in front of it.
    fn found(&self, bucket: Option<usize>, before: u32, number: u32) -> Option<Found> {
        #[cfg(test)]
        super::tests::LOOKED_AT.set(super::tests::LOOKED_AT.get() + 1);
        if number == 0 || self.barriers.front().is_some_and(|barrier| *barrier < number) {
            return None;
        }
        Some(Found { bucket, before, number, place: self.place(number)? })
    }

    /// Removes the first message without a bucket.
    fn remove_barrier(&mut self, found: Found) {
        self.entries.remove(found.place);
        self.barriers.pop_front();
        self.free_idle_memory();
    }

    /// Removes a message that waits for this bucket.
    fn remove(&mut self, bucket: usize, found: Found) {
        let Some(Entry { next, .. }) = self.entries.remove(found.place) else { return };
        match self.place(found.before) {
            Some(before) => self.entries[before].next = next,
            None => self.bucket(bucket).first = next,
        }
        if next == 0 {
            self.bucket(bucket).last = found.before;
        }
        self.free_idle_memory();
    }

    /// Frees memory once nothing waits.
    fn free_idle_memory(&mut self) {
        if self.entries.is_empty() {
            (self.entries, self.barriers, self.free) = Default::default();
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
