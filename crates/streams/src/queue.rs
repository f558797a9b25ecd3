//! Queues: messages in order of priority, with the water marks that make flow control.

use crate::message::{Credit, HIGH_PRIORITY, Kind, Record};
use crate::{Chain, Flush, Message, TransferInfo};
use bytes::BytesMut;
use std::collections::VecDeque;

/// Messages that have to wait are copied into blocks of this size, or of their own where they are longer. A queue is read from
/// its front, so that no more than one block is held by what is left of it.
const DETACHED_BLOCK_BYTES: usize = 16 * 1024;
/// How often a service procedure may run in one turn of the scheduler.
const RUNS_MAX: u32 = 100_000;
/// A queue that holds so much more than its high mark is flooded: whoever fills it heeds no flow control. Drivers that bound what
/// they send up by a window of their own stay below.
const FLOODED_BYTES: usize = 256 * 1024 * 1024;
/// A queue that has run empty keeps room for at most this many messages.
const KEPT_MESSAGES_MAX: usize = 256;

/// The marks of a queue and whether it has a service procedure (`module_info` and `qinit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// At or above this the queue is full.
    pub hiwat_bytes: usize,
    /// A full queue has room again when it has fallen to this.
    pub lowat_bytes: usize,
    /// Whether there is a service procedure: flow control looks only at queues that have one.
    pub service: bool,
}

impl QueueInfo {
    /// A queue that messages only pass by.
    pub const PASS: Self = Self { hiwat_bytes: 0, lowat_bytes: 0, service: false };

    /// A queue with a service procedure and these marks.
    pub const fn served(hiwat_bytes: usize, lowat_bytes: usize) -> Self {
        Self { hiwat_bytes, lowat_bytes, service: true }
    }
}

/// One queue of a module, driver or stream head.
///
/// Messages stand in order of rank: high priority, then bands from 255 down to 0, first in first out within a rank.
/// Each band is flow-controlled for itself; what has high priority counts in band 0 and ignores flow control.
/// An empty queue that was never used holds no memory.
#[derive(Debug)]
pub struct Queue {
    messages: VecDeque<Message>,
    /// The data of so many messages at the end may lie in memory that others share.
    attached: usize,
    normal: Level,
    /// Band 1 is at index 0. As long as only band 0 is used there are none.
    bands: Vec<Level>,
    service: bool,
    /// QENAB: the queue stands in the run queue.
    enabled: bool,
    /// QWANTR: the service procedure found the queue empty, so that the next message must enable it.
    want_read: bool,
    /// QNOENB: `putq` does not enable the service procedure.
    no_enable: bool,
    /// How often the service procedure ran in which turn of the scheduler.
    runs: (u32, u32),
}

/// Flow control of one band.
#[derive(Debug)]
struct Level {
    count_bytes: usize,
    hiwat_bytes: usize,
    lowat_bytes: usize,
    /// QFULL: the high mark was reached, and the low mark not yet again.
    full: bool,
    /// QWANTW: somebody was told that the queue is full and waits.
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
    /// An empty queue.
    pub fn new(info: QueueInfo) -> Self {
        Self {
            messages: VecDeque::new(),
            attached: 0,
            normal: Level::new(info.hiwat_bytes, info.lowat_bytes),
            bands: Vec::new(),
            service: info.service,
            enabled: false,
            want_read: true,
            no_enable: false,
            runs: (0, 0),
        }
    }

    /// Puts a message in its place behind those of its rank. True: the service procedure is to be enabled.
    #[inline]
    #[must_use = "the caller enables the service procedure"]
    pub fn putq(&mut self, m: Message) -> bool {
        let rank = m.rank();
        self.level(rank).add(m.weight_bytes());
        if rank == 0 {
            self.messages.push_back(m);
            self.attached += 1;
        } else {
            let place = self.messages.partition_point(|other| other.rank() >= rank);
            self.insert(place, m);
        }
        // A message of a higher band may pass what made the service procedure stop.
        rank == HIGH_PRIORITY || (!self.no_enable && (self.want_read || rank > 0))
    }

    /// Puts user data in the normal band, for a queue without a service procedure.
    #[inline]
    pub(crate) fn putq_data(&mut self, info: &TransferInfo, data: Chain) {
        self.normal.add(data.len().max(1));
        self.messages.push_back(Message::optdata_ind(*info, data));
        self.attached += 1;
    }

    fn insert(&mut self, place: usize, m: Message) {
        self.messages.insert(place, m);
        self.attached = (self.attached + 1).max(self.messages.len() - place);
    }

    #[inline]
    fn after_pop(&mut self) {
        if self.attached > self.messages.len() {
            self.attached = self.messages.len();
        } else if self.messages.is_empty() {
            // The last of those that had to wait: no more came meanwhile.
            self.trim_burst();
        }
    }

    /// Copies the data of messages that came since the last call out of the memory that they share with others.
    pub(crate) fn detach(&mut self) {
        let from = self.messages.len() - self.attached;
        self.attached = 0;
        let mut left_bytes: usize = self.messages.range(from..).map(|m| m.data.len()).sum();
        let mut room = BytesMut::new();
        for m in self.messages.range_mut(from..).filter(|m| !m.data.is_empty()) {
            let bytes = m.data.len();
            if room.capacity() < bytes {
                room = BytesMut::with_capacity(left_bytes.min(DETACHED_BLOCK_BYTES).max(bytes));
            }
            m.data.move_into(&mut room);
            left_bytes -= bytes;
        }
    }

    /// Whether it is empty and has room for more messages than an empty queue is to keep.
    pub(crate) fn is_bulky(&self) -> bool {
        self.messages.is_empty() && self.messages.capacity() > KEPT_MESSAGES_MAX
    }

    /// Puts a message back before those of its rank. True: the service procedure is to be enabled.
    #[must_use = "the caller enables the service procedure"]
    pub fn putbq(&mut self, m: Message) -> bool {
        let rank = m.rank();
        self.level(rank).add(m.weight_bytes());
        let place = self.messages.partition_point(|other| other.rank() > rank);
        self.insert(place, m);
        rank == HIGH_PRIORITY || (!self.no_enable && self.want_read)
    }

    /// Takes the first message. Afterwards [`Queue::relieved`] says whether somebody who waits has room again.
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

    /// Drops the first message where it lies.
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

    /// Copies the first message of a run at the front to `out` and drops it. Returns what it was, and what goes back to the
    /// driver. `None`: it is longer than `out`.
    #[inline]
    pub(crate) fn read_run(&mut self, out: &mut [u8]) -> Option<(Record, Credit)> {
        let front = self.messages.front_mut()?;
        let Kind::Run(run) = &mut front.kind else { return None };
        let (record, credit) = run.read(&mut front.data, out)?;
        let is_spent = run.messages == 0;
        self.normal.remove(record.bytes);
        if is_spent {
            drop(self.messages.pop_front());
            self.want_read = false;
            self.after_pop();
        }
        Some((record, credit))
    }

    /// Makes the first message of a run at the front one of its own, which stands before the rest. Returns what goes back to the
    /// driver when nothing is left of the run.
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
        let is_spent = run.messages == 0 || single.is_none();
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

    /// Whether a message of this band may be put here. If not, the wish is remembered.
    #[inline]
    pub fn canput(&mut self, band: u8) -> bool {
        match band {
            0 => self.normal.canput(),
            _ => self.bands.get_mut(usize::from(band) - 1).is_none_or(Level::canput),
        }
    }

    /// Whether there is room again for somebody whose wish was remembered. True once for each wish.
    #[inline]
    pub fn relieved(&mut self) -> bool {
        let normal = self.normal.relieved();
        if self.bands.is_empty() {
            normal
        } else {
            self.bands.iter_mut().fold(normal, |r, b| b.relieved() | r)
        }
    }

    /// Takes away what `flush` names and hands each message to `freed`.
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
    }

    /// Takes the message at this place out of the queue (`rmvq`).
    pub fn rmvq(&mut self, place: usize) -> Option<Message> {
        let m = self.messages.remove(place)?;
        self.attached = self.attached.min(self.messages.len());
        self.level(m.rank()).remove(m.weight_bytes());
        Some(m)
    }

    /// Puts a message before the one at `place`, or at the end (`insq`). True: the service procedure must be enabled.
    ///
    /// # Errors
    ///
    /// The message comes back where the queue would no longer stand in order of priority.
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

    /// The first message.
    #[inline]
    pub fn front(&self) -> Option<&Message> {
        self.messages.front()
    }

    /// All messages in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// Takes the first `n` bytes of the first message away, which keeps at least one.
    pub(crate) fn advance_front(&mut self, n: usize) -> Option<&mut Message> {
        let rank = self.messages.front()?.rank();
        self.level(rank).remove(n);
        let m = self.messages.front_mut()?;
        m.data.advance(n);
        Some(m)
    }

    /// Returns how many messages are queued (`qsize`).
    #[inline]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns how many messages wait for their reader: a run stands for several.
    pub(crate) fn messages(&self) -> usize {
        self.messages.iter().map(Message::messages).sum()
    }

    /// Whether no message is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many bytes of this band are queued.
    pub fn count_bytes(&self, band: u8) -> usize {
        self.level_if_used(band).map_or(0, |level| level.count_bytes)
    }

    /// Whether this band has reached its high mark and not yet fallen to its low mark again. Remembers nothing.
    #[inline]
    pub fn is_full(&self, band: u8) -> bool {
        match band {
            0 => self.normal.full,
            _ => self.level_if_used(band).is_some_and(|level| level.full),
        }
    }

    /// Whether somebody fills the queue without heeding flow control.
    #[inline]
    pub(crate) fn is_flooded(&self) -> bool {
        self.normal.count_bytes >= self.normal.hiwat_bytes.saturating_add(FLOODED_BYTES)
    }

    /// Whether a band above 0 that was used has room (`POLLWRBAND`).
    pub(crate) fn has_room_in_a_band(&self) -> bool {
        self.bands.iter().any(|level| level.used && !level.full)
    }

    /// Whether `ahead_bytes` that are on their way would fill the queue.
    #[inline]
    pub(crate) fn would_fill(&self, band: u8, ahead_bytes: usize) -> bool {
        let level = self.level_if_used(band).unwrap_or(&self.normal);
        let count_bytes = if band == 0 { level.count_bytes } else { self.count_bytes(band) };
        ahead_bytes > 0 && count_bytes + ahead_bytes >= level.hiwat_bytes
    }

    /// The high and the low mark of this band.
    pub fn marks(&self, band: u8) -> (usize, usize) {
        let level = self.level_if_used(band).unwrap_or(&self.normal);
        (level.hiwat_bytes, level.lowat_bytes)
    }

    /// Sets the high and the low mark of this band (`strqset`). The queue may become full or get room by this.
    pub fn set_marks(&mut self, band: u8, hiwat_bytes: usize, lowat_bytes: usize) {
        let level = self.level(u16::from(band));
        level.hiwat_bytes = hiwat_bytes;
        level.lowat_bytes = lowat_bytes;
        level.used = true;
        level.full = level.count_bytes >= hiwat_bytes || (level.full && level.count_bytes > lowat_bytes);
    }

    /// Whether there is a service procedure.
    #[inline]
    pub fn has_service(&self) -> bool {
        self.service
    }

    /// From now on `putq` does not enable the service procedure, except for messages of high priority.
    pub fn noenable(&mut self) {
        self.no_enable = true;
    }

    /// Ends what [`Queue::noenable`] began.
    pub fn enableok(&mut self) {
        self.no_enable = false;
    }

    /// Marks the queue as standing in the run queue. False: it stood there already.
    #[inline]
    pub(crate) fn mark_enabled(&mut self) -> bool {
        !std::mem::replace(&mut self.enabled, true)
    }

    /// Counts a run of the service procedure. True: it has run too often in this turn, because it enables itself for ever.
    pub(crate) fn runs_too_often(&mut self, turn: u32) -> bool {
        if self.runs.0 != turn {
            self.runs = (turn, 0);
        }
        self.runs.1 += 1;
        self.runs.1 > RUNS_MAX
    }

    /// The opposite of [`Queue::mark_enabled`]. False: it did not stand there.
    #[inline]
    pub(crate) fn clear_enabled(&mut self) -> bool {
        std::mem::replace(&mut self.enabled, false)
    }

    /// Gives memory back that an earlier burst needed. An empty queue keeps room for `kept` messages.
    pub(crate) fn trim(&mut self, kept: usize) {
        if self.messages.is_empty() {
            self.messages.shrink_to(kept);
        }
    }

    /// Gives memory of a burst back, but keeps some room, because the queue will be used again soon.
    pub(crate) fn trim_burst(&mut self) {
        self.trim(KEPT_MESSAGES_MAX);
    }

    #[inline]
    fn level(&mut self, rank: u16) -> &mut Level {
        if rank == 0 || rank == HIGH_PRIORITY { &mut self.normal } else { self.band_level(rank) }
    }

    /// The level of a band above 0, which comes to be when it is first used, with the marks of band 0.
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
    /// What is on its way up.
    pub read: Queue,
    /// What is on its way down.
    pub write: Queue,
}

/// The way that a queue or message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Up, to the reader.
    Read,
    /// Down, to the driver.
    Write,
}

impl Side {
    /// The other way.
    #[inline]
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}

impl QueuePair {
    /// Two empty queues.
    pub fn new(read: QueueInfo, write: QueueInfo) -> Self {
        Self { read: Queue::new(read), write: Queue::new(write) }
    }

    /// The queue of one side.
    #[inline]
    pub fn side(&mut self, side: Side) -> &mut Queue {
        match side {
            Side::Read => &mut self.read,
            Side::Write => &mut self.write,
        }
    }
}
