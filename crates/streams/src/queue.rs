//! Queues: messages in order of priority, with the water marks of flow control.

use std::collections::VecDeque;

use crate::detached_blocks::DetachedBlocks;
use crate::identifiers::Side;
use crate::message::{Control, Credit, HIGH_PRIORITY, Kind, Marks, Record};
use crate::{Chain, Flush, Message, Primitive, RecvInfo, Which};

/// Number of messages that a service procedure of the modules and drivers here takes before it enables its queue again, and
/// returns.
pub const SERVED_MAX: usize = 64;
/// Number of times that a service procedure may run in one turn of the scheduler.
const RUNS_MAX: u32 = 100_000;
/// Excess over the high-water mark at which a queue is flooded: its sender ignores flow control. Drivers that bound the messages
/// they send up by a window of their own stay below.
const FLOODED_BYTES: usize = 256 * 1024 * 1024;
/// Number of messages at which a queue is flooded, however short they are: each takes memory of its own. The largest
/// receive buffer holds a third of them.
const FLOODED_MESSAGES: usize = 2 * 1024 * 1024;
/// Number of messages at which a queue with a service procedure is full, however short they are: each takes far more memory and
/// time than its bytes. It has room again at half of that.
pub const QUEUED_MESSAGES_MAX: usize = 4096;
/// Number of messages that an empty queue keeps room for.
const KEPT_MESSAGES_MAX: usize = 256;
/// Number of messages that an empty queue of a module keeps room for. Messages seldom wait there, and nobody is charged for the
/// room.
const KEPT_BY_MODULE_MAX: usize = 4;

/// The marks of a queue and whether it has a service procedure (`module_info` and `qinit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// High-water mark: at or above it the queue is full.
    pub hiwat_bytes: usize,
    /// Low-water mark: a full queue has room again at or below it.
    pub lowat_bytes: usize,
    /// Whether the queue has a service procedure: flow control looks only at such queues.
    pub service: bool,
}

impl QueueInfo {
    /// A queue without service procedure: messages pass by it.
    pub const PASS: Self = Self { hiwat_bytes: 0, lowat_bytes: 0, service: false };

    /// Returns a queue with a service procedure and these marks.
    pub const fn served(hiwat_bytes: usize, lowat_bytes: usize) -> Self {
        Self { hiwat_bytes, lowat_bytes, service: true }
    }
}

/// One queue of a module, driver or stream head.
///
/// Messages are in order of rank: high priority, then bands from 255 down to 0, first in first out within a rank. Each band has
/// its own flow control; high-priority messages count in band 0 and ignore flow control. An empty queue that was never used holds
/// no memory.
#[derive(Debug)]
pub struct Queue {
    messages: VecDeque<Message>,
    /// Number of messages that it keeps room for while it is empty.
    kept_messages: usize,
    /// Number of messages at the end whose data may lie in shared memory.
    attached: usize,
    normal: Level,
    /// Band 1 is at index 0. Empty as long as only band 0 is used.
    bands: Vec<Level>,
    service: bool,
    /// The queue has reached [`QUEUED_MESSAGES_MAX`] and not yet fallen to half of it again: all its bands are full.
    crowded: bool,
    /// QENAB: the queue is in the run queue.
    enabled: bool,
    /// QWANTR: the service procedure found the queue empty, so the next message must enable it.
    want_read: bool,
    /// QNOENB: `putq` does not enable the service procedure.
    no_enable: bool,
    /// Number of runs of the service procedure, and the scheduler's turn they belong to.
    runs: (u32, u32),
}

/// Flow control of one band.
#[derive(Debug)]
struct Level {
    count_bytes: usize,
    hiwat_bytes: usize,
    lowat_bytes: usize,
    /// QFULL: the level has reached the high mark and not yet fallen to the low mark again.
    full: bool,
    /// QWANTW: a sender found the queue full and waits.
    want_write: bool,
    /// A message of this band was queued, or its marks were set.
    used: bool,
}

impl Level {
    fn new(hiwat_bytes: usize, lowat_bytes: usize) -> Self {
        Self { count_bytes: 0, hiwat_bytes, lowat_bytes, full: false, want_write: false, used: false }
    }

    #[inline]
    fn add(&mut self, bytes: usize) {
        self.count_bytes += bytes;
        self.used = true;
        if self.count_bytes >= self.hiwat_bytes {
            self.full = true;
        }
    }

    #[inline]
    fn remove(&mut self, bytes: usize) {
        self.count_bytes -= bytes;
        if self.count_bytes <= self.lowat_bytes {
            self.full = false;
        }
    }

    #[inline]
    fn canput(&mut self) -> bool {
        self.want_write |= self.full;
        !self.full
    }

    #[inline]
    fn relieved(&mut self) -> bool {
        let relieved = self.want_write && !self.full;
        self.want_write &= !relieved;
        relieved
    }
}

impl Queue {
    /// Returns an empty queue.
    pub fn new(info: QueueInfo) -> Self {
        Self {
            messages: VecDeque::new(),
            kept_messages: KEPT_MESSAGES_MAX,
            attached: 0,
            normal: Level::new(info.hiwat_bytes, info.lowat_bytes),
            bands: Vec::new(),
            service: info.service,
            crowded: false,
            enabled: false,
            want_read: true,
            no_enable: false,
            runs: (0, 0),
        }
    }

    /// Queues a message behind those of its rank. Returns whether the service procedure must be enabled.
    #[inline]
    #[must_use = "the caller enables the service procedure"]
    pub fn putq(&mut self, m: Message) -> bool {
        let rank = m.rank();
        self.level(rank).add(m.weight_bytes());
        if rank == 0 {
            self.messages.push_back(m);
            self.attached += 1;
            self.note_length();
        } else {
            let place = self.messages.partition_point(|other| other.rank() >= rank);
            self.insert(place, m);
        }
        // A message of a higher band may pass the one that made the service procedure stop.
        rank == HIGH_PRIORITY || (!self.no_enable && (self.want_read || rank > 0))
    }

    /// Puts user data in the normal band, for a queue without a service procedure.
    #[inline]
    pub(crate) fn putq_data(&mut self, association: Which, info: &RecvInfo, data: Chain) {
        self.normal.add(data.len().max(1));
        self.messages.push_back(Message::optdata_ind(association, *info, data));
        self.attached += 1;
    }

    fn insert(&mut self, place: usize, m: Message) {
        self.messages.insert(place, m);
        self.attached = (self.attached + 1).max(self.messages.len() - place);
        self.note_length();
    }

    /// Notes whether the queue holds too many messages.
    #[inline]
    fn note_length(&mut self) {
        let messages = self.messages.len();
        if messages >= QUEUED_MESSAGES_MAX {
            self.crowded = self.service;
        } else if messages <= QUEUED_MESSAGES_MAX / 2 {
            self.crowded = false;
        }
    }

    #[inline]
    fn after_pop(&mut self) {
        self.note_length();
        let is_new = self.attached > self.messages.len();
        if is_new {
            self.attached = self.messages.len();
        }
        // A queue that has run empty, and has got no message since the last pause; that of a module whenever it has run empty.
        if self.messages.is_empty() && (!is_new || self.kept_messages == KEPT_BY_MODULE_MAX) {
            self.trim_burst();
        }
    }

    /// Copies the data of messages that came since the last call out of shared memory. Messages that leave the queue from its
    /// front share `blocks`; without them each gets a block of its own.
    pub(crate) fn detach(&mut self, blocks: Option<&mut DetachedBlocks>) {
        let from = self.messages.len() - self.attached;
        self.attached = 0;
        let is_copied = |m: &Message| !m.data.is_empty() && !m.marks.contains(Marks::CHARGED);
        let Some(blocks) = blocks else {
            let copied = self.messages.range_mut(from..).filter(|m| is_copied(m));
            return copied.for_each(|m| m.data.copy_out());
        };
        let copied = self.messages.range(from..).filter(|m| is_copied(m));
        let mut left_bytes: usize = copied.map(|m| m.data.len()).sum();
        for m in self.messages.range_mut(from..).filter(|m| is_copied(m)) {
            let bytes = m.data.len();
            m.data.move_into(blocks.room(bytes, left_bytes));
            left_bytes -= bytes;
        }
        blocks.end_queue();
    }

    /// Returns whether the queue is empty and keeps room for more messages than an empty queue should.
    pub(crate) fn is_bulky(&self) -> bool {
        self.messages.is_empty() && self.has_room_of_burst()
    }

    /// Returns whether the queue has room for more messages than an empty queue should.
    #[inline]
    pub(crate) fn has_room_of_burst(&self) -> bool {
        self.messages.capacity() > self.kept_messages
    }

    /// Puts back a message before those of its rank. Returns whether the service procedure must be enabled.
    #[must_use = "the caller enables the service procedure"]
    pub fn putbq(&mut self, m: Message) -> bool {
        let rank = m.rank();
        self.level(rank).add(m.weight_bytes());
        let place = self.messages.partition_point(|other| other.rank() > rank);
        self.insert(place, m);
        rank == HIGH_PRIORITY || (!self.no_enable && self.want_read)
    }

    /// Takes the first message. Afterwards [`Queue::relieved`] returns whether a waiting sender has room again.
    #[inline]
    pub fn getq(&mut self) -> Option<Message> {
        let Some(m) = self.messages.pop_front() else {
            self.want_read = true;
            return None;
        };
        self.want_read = false;
        self.after_pop();
        self.level(m.rank()).remove(m.weight_bytes());
        Some(m)
    }

    /// Drops the first message in place.
    #[inline]
    pub(crate) fn drop_front(&mut self) {
        let Some(front) = self.messages.front() else { return };
        let (rank, weight_bytes) = (front.rank(), front.weight_bytes());
        drop(self.messages.pop_front());
        self.want_read = false;
        self.after_pop();
        self.level(rank).remove(weight_bytes);
    }

    /// Returns whether the first message is a run.
    #[inline]
    pub(crate) fn begins_with_run(&self) -> bool {
        matches!(self.messages.front(), Some(Message { kind: Kind::Run(_), .. }))
    }

    /// Copies the first message of a run at the front to `out` and drops it. Returns the message's information, and the credit
    /// for the driver; `None` if the message is longer than `out`.
    #[inline]
    pub(crate) fn read_run(&mut self, out: &mut [u8], info: &mut RecvInfo) -> Option<(Record, Credit)> {
        let front = self.messages.front_mut()?;
        let Kind::Run(run) = &mut front.kind else { return None };
        let (record, credit) = run.read(&mut front.data, out, info)?;
        let is_spent = run.messages() == 0;
        self.normal.remove(record.bytes());
        if is_spent {
            drop(self.messages.pop_front());
            self.want_read = false;
            self.after_pop();
        }
        Some((record, credit))
    }

    /// Copies the first message to `out`, and its description to `info`, and drops it, if it is user data in one block, in the
    /// normal band, and not longer than `out`. Returns its length, and the credit for the driver.
    #[inline]
    pub(crate) fn read_data(&mut self, out: &mut [u8], info: &mut RecvInfo) -> Option<(usize, Credit)> {
        let front = self.messages.front()?;
        let Message { kind, band: 0, marks, data } = front else { return None };
        let Kind::Proto(Control::Tpi(Primitive::OptdataInd { association, info: found })) = kind else {
            return None;
        };
        let [block] = data.blocks() else { return None };
        let bytes = block.len();
        out.get_mut(..bytes)?.copy_from_slice(block);
        *info = *found;
        let credited = marks.contains(Marks::CREDITED);
        let (credit_bytes, charges) = if credited { (0, 0) } else { (bytes, front.charges()) };
        let credit = Credit { association: *association, bytes: credit_bytes, charges };
        if let Some(Message { kind, .. }) = self.messages.pop_front() {
            // A description owns no memory, and its drop would look through all types.
            std::mem::forget(kind);
        }
        self.want_read = false;
        self.after_pop();
        self.normal.remove(bytes);
        Some((bytes, credit))
    }

    /// Splits the first message off a run at the front, so that it stands before the rest. Returns the credit for the driver when
    /// nothing is left of the run.
    #[cold]
    pub(crate) fn split_run(&mut self) -> Option<Credit> {
        let mut m = self.messages.pop_front()?;
        let Kind::Run(mut run) = m.kind else {
            self.messages.push_front(m);
            return None;
        };
        let was_bytes = m.data.len().max(1);
        let is_attached = self.attached > self.messages.len();
        self.normal.remove(was_bytes);
        let single = run.split(&mut m.data);
        let is_spent = run.messages() == 0 || single.is_none();
        if !is_spent {
            m.kind = Kind::Run(run);
            self.normal.add(m.weight_bytes());
            self.messages.push_front(m);
        }
        if let Some(single) = single {
            self.normal.add(single.weight_bytes());
            self.messages.push_front(single);
        }
        self.attached = if is_attached { self.messages.len() } else { self.attached };
        is_spent.then(|| run.credit())
    }

    /// Returns whether a message of this band may be queued. If not, the queue remembers the caller.
    #[inline]
    pub fn canput(&mut self, band: u8) -> bool {
        if self.crowded {
            self.level(u16::from(band)).want_write = true;
            return false;
        }
        match band {
            0 => self.normal.canput(),
            _ => self.bands.get_mut(usize::from(band) - 1).is_none_or(Level::canput),
        }
    }

    /// Returns whether there is room again for a remembered sender; true once for each.
    #[inline]
    pub fn relieved(&mut self) -> bool {
        if self.crowded {
            return false;
        }
        let normal = self.normal.relieved();
        if self.bands.is_empty() {
            normal
        } else {
            self.bands.iter_mut().fold(normal, |r, b| b.relieved() | r)
        }
    }

    /// Removes the messages that `flush` selects and passes each to `freed`.
    pub fn flushq(&mut self, flush: &Flush, mut freed: impl FnMut(Message)) {
        let goes = |m: &Message| {
            (flush.all || m.kind.is_data()) && flush.band.is_none_or(|b| m.rank() == u16::from(b))
        };
        for _ in 0..self.messages.len() {
            let Some(m) = self.messages.pop_front() else { break };
            if goes(&m) {
                self.level(m.rank()).remove(m.weight_bytes());
                freed(m);
            } else {
                self.messages.push_back(m);
            }
        }
        self.attached = self.attached.min(self.messages.len());
        self.note_length();
    }

    /// Returns the number of messages that the removal of the one at this position moves: those in front of it or behind it,
    /// whichever are fewer.
    pub(crate) fn cost_of_rmvq(&self, place: usize) -> usize {
        place.min(self.messages.len().saturating_sub(place))
    }

    /// Removes the message at this position (`rmvq`).
    pub fn rmvq(&mut self, place: usize) -> Option<Message> {
        let m = self.messages.remove(place)?;
        self.attached = self.attached.min(self.messages.len());
        self.note_length();
        self.level(m.rank()).remove(m.weight_bytes());
        Some(m)
    }

    /// Inserts a message before the one at `place`, or at the end (`insq`). Returns whether the service procedure must be
    /// enabled.
    ///
    /// # Errors
    ///
    /// Returns the message if the queue would no longer be in order of priority.
    pub fn insq(&mut self, place: usize, m: Message) -> Result<bool, Message> {
        let rank = m.rank();
        let before = place.checked_sub(1).and_then(|before| self.messages.get(before));
        let behind = self.messages.get(place);
        let fits = place <= self.messages.len()
            && before.is_none_or(|before| before.rank() >= rank)
            && behind.is_none_or(|behind| behind.rank() <= rank);
        if !fits {
            return Err(m);
        }
        self.level(rank).add(m.weight_bytes());
        self.insert(place, m);
        Ok(rank == HIGH_PRIORITY || (!self.no_enable && self.want_read))
    }

    /// Returns the first message.
    #[inline]
    pub fn front(&self) -> Option<&Message> {
        self.messages.front()
    }

    /// Returns all messages in order.
    pub fn iter(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// Removes the first `n` bytes of the first message, which keeps at least one.
    pub(crate) fn advance_front(&mut self, n: usize) -> Option<&mut Message> {
        let rank = self.messages.front()?.rank();
        self.level(rank).remove(n);
        let m = self.messages.front_mut()?;
        m.data.advance(n);
        Some(m)
    }

    /// Returns the number of entries (`qsize`).
    #[inline]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of messages that wait for their reader: a run counts its messages.
    pub(crate) fn messages(&self) -> usize {
        self.messages.iter().map(Message::messages).sum()
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the number of bytes queued in this band.
    pub fn count_bytes(&self, band: u8) -> usize {
        self.level_if_used(band).map_or(0, |level| level.count_bytes)
    }

    /// Returns whether this band has reached its high mark, or the queue [`QUEUED_MESSAGES_MAX`], and not yet fallen to its low
    /// mark again. Remembers no caller.
    #[inline]
    pub fn is_full(&self, band: u8) -> bool {
        self.crowded
            || match band {
                0 => self.normal.full,
                _ => self.level_if_used(band).is_some_and(|level| level.full),
            }
    }

    /// Returns whether a sender fills the queue without regard to flow control.
    #[inline]
    pub(crate) fn is_flooded(&self) -> bool {
        let in_bands: usize = self.bands.iter().map(|level| level.count_bytes).sum();
        self.normal.count_bytes + in_bands >= self.normal.hiwat_bytes.saturating_add(FLOODED_BYTES)
            || self.messages.len() >= FLOODED_MESSAGES
    }

    /// Returns whether a band above 0 that was used has room (`POLLWRBAND`).
    pub(crate) fn has_room_in_a_band(&self) -> bool {
        !self.crowded && self.bands.iter().any(|level| level.used && !level.full)
    }

    /// Returns whether `ahead_bytes` on their way would fill the queue.
    #[inline]
    pub(crate) fn would_fill(&self, band: u8, ahead_bytes: usize) -> bool {
        let level = self.level_if_used(band).unwrap_or(&self.normal);
        let count_bytes = if band == 0 { level.count_bytes } else { self.count_bytes(band) };
        ahead_bytes > 0 && count_bytes + ahead_bytes >= level.hiwat_bytes
    }

    /// Returns the high and the low mark of this band.
    pub fn marks(&self, band: u8) -> (usize, usize) {
        let level = self.level_if_used(band).unwrap_or(&self.normal);
        (level.hiwat_bytes, level.lowat_bytes)
    }

    /// Sets the high and the low mark of this band (`strqset`). The queue may become full or get room.
    pub fn set_marks(&mut self, band: u8, hiwat_bytes: usize, lowat_bytes: usize) {
        let level = self.level(u16::from(band));
        level.hiwat_bytes = hiwat_bytes;
        level.lowat_bytes = lowat_bytes;
        level.used = true;
        level.full = level.count_bytes >= hiwat_bytes || (level.full && level.count_bytes > lowat_bytes);
    }

    /// Returns whether the queue has a service procedure.
    #[inline]
    pub fn has_service(&self) -> bool {
        self.service
    }

    /// Gives the queue a service procedure that `putq` enables.
    pub(crate) fn begin_service(&mut self) {
        self.service = true;
        self.no_enable = false;
    }

    /// Stops `putq` from enabling the service procedure, except for high-priority messages.
    pub fn noenable(&mut self) {
        self.no_enable = true;
    }

    /// Undoes [`Queue::noenable`].
    pub fn enableok(&mut self) {
        self.no_enable = false;
    }

    /// Marks the queue as being in the run queue. Returns false if it was already.
    #[inline]
    pub(crate) fn mark_enabled(&mut self) -> bool {
        !std::mem::replace(&mut self.enabled, true)
    }

    /// Counts a run of the service procedure. Returns whether it has run too often in this turn, because it enables itself for
    /// ever: a turn ends when no service procedure is enabled, or something new comes to the stream.
    pub(crate) fn runs_too_often(&mut self, turn: u32) -> bool {
        if self.runs.0 != turn {
            self.runs = (turn, 0);
        }
        self.runs.1 += 1;
        self.runs.1 > RUNS_MAX
    }

    /// Marks the queue as not being in the run queue. Returns false if it was not.
    #[inline]
    pub(crate) fn clear_enabled(&mut self) -> bool {
        std::mem::replace(&mut self.enabled, false)
    }

    /// Frees memory that an earlier burst needed. An empty queue keeps room for `kept` messages.
    pub(crate) fn trim(&mut self, kept: usize) {
        if self.messages.is_empty() {
            self.messages.shrink_to(kept);
        }
    }

    /// Frees memory of a burst, but keeps some room, because the queue will be used again soon.
    pub(crate) fn trim_burst(&mut self) {
        self.trim(self.kept_messages);
    }

    #[inline]
    fn level(&mut self, rank: u16) -> &mut Level {
        if rank == 0 || rank == HIGH_PRIORITY { &mut self.normal } else { self.band_level(rank) }
    }

    /// Returns the level of a band above 0, which is created on first use with the marks of band 0.
    fn band_level(&mut self, band: u16) -> &mut Level {
        let index = usize::from(band) - 1;
        let (hiwat_bytes, lowat_bytes) = (self.normal.hiwat_bytes, self.normal.lowat_bytes);
        if self.bands.len() <= index {
            self.bands.resize_with(index + 1, || Level::new(hiwat_bytes, lowat_bytes));
        }
        &mut self.bands[index]
    }

    fn level_if_used(&self, band: u8) -> Option<&Level> {
        if band == 0 { Some(&self.normal) } else { self.bands.get(usize::from(band) - 1) }
    }
}

/// The two queues of a module or driver.
#[derive(Debug)]
pub struct QueuePair {
    /// Messages on their way up.
    pub read: Queue,
    /// Messages on their way down.
    pub write: Queue,
}

impl QueuePair {
    /// Returns two empty queues.
    pub fn new(read: QueueInfo, write: QueueInfo) -> Self {
        Self { read: Queue::new(read), write: Queue::new(write) }
    }

    /// Returns two empty queues of a module.
    pub(crate) fn of_module(read: QueueInfo, write: QueueInfo) -> Self {
        let mut queues = Self::new(read, write);
        queues.read.kept_messages = KEPT_BY_MODULE_MAX;
        queues.write.kept_messages = KEPT_BY_MODULE_MAX;
        queues
    }

    /// Returns the queue of one side.
    #[inline]
    pub fn side(&mut self, side: Side) -> &mut Queue {
        match side {
            Side::Read => &mut self.read,
            Side::Write => &mut self.write,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_queue_of_a_module_that_has_run_empty_keeps_little_room() {
        let of_module = QueuePair::of_module(QueueInfo::PASS, QueueInfo::PASS);
        for mut queue in [of_module.read, of_module.write] {
            for _ in 0..1000 {
                let _ = queue.putq(Message::data(vec![7]));
            }
            while queue.getq().is_some() {}
            assert_eq!(queue.messages.capacity(), KEPT_BY_MODULE_MAX);
        }
    }

    /// Returns a queue of a module with messages in one block, copied with blocks to share or without.
    fn copied(blocks: Option<&mut DetachedBlocks>) -> Queue {
        let mut queue = QueuePair::of_module(QueueInfo::PASS, QueueInfo::PASS).read;
        let block = Bytes::from(vec![7; 3000]);
        for at in [0, 1000, 2000] {
            let _ = queue.putq(Message::data(block.slice(at..at + 1000)));
        }
        queue.attached = 3;
        queue.detach(blocks);
        queue
    }

    #[test]
    fn messages_that_may_leave_from_the_middle_share_no_block() {
        let is_alone = |m: &Message| matches!(m.data.blocks(), [one] if one.is_unique() && one.len() == 1000);
        assert!(copied(None).iter().all(is_alone));
        assert!(!copied(Some(&mut DetachedBlocks::default())).iter().all(is_alone));
    }
}
