//! A module that injects faults.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::arguments;
use crate::Which;
use crate::identifiers::Side;
use crate::message::{Kind, Marks, Message};
use crate::module::{Module, ModuleInfo, Q};
use crate::queue::{QueueInfo, SERVED_MAX};
use crate::timers::TimerId;

/// Drops, delays and duplicates messages of user data (`filter`), all that match the arguments or a random part of them. A seed
/// makes the choice repeatable. All messages of a record share one fate.
///
/// Arguments: `drop=P` and `duplicate=P`, probabilities; `delay=MS`; `ppid=N` and `stream=N` select messages; `way=down`, `up` or
/// `both` (default `down`); `seed=N` (default 1). Messages are duplicated on their way down only: upward, a duplicate would
/// return receive window that was never occupied. No filter duplicates the duplicates of another one.
#[derive(Debug)]
pub struct Filter {
    drop: f64,
    duplicate: f64,
    delay: Duration,
    ppid: Option<u32>,
    stream: Option<u16>,
    down: bool,
    up: bool,
    random: u64,
    /// Records that are not complete yet, by direction, association and stream: whether their messages are dropped.
    open_records: BTreeMap<(usize, Which, u16), bool>,
    /// The messages that wait, down and up.
    delayed: [Delayed; 2],
    dropped: u64,
    duplicated: u64,
}

/// The messages at the end of one of the queues whose timers run. Those in front are due, and wait for room.
#[derive(Debug, Default)]
struct Delayed {
    /// The oldest first.
    timers: VecDeque<TimerId>,
}

impl Delayed {
    /// Handles the expiry of a timer: its message is due. Returns false if that is gone.
    fn on_timer(&mut self, timer: TimerId) -> bool {
        // The oldest timers expire first.
        let place = self.timers.iter().position(|other| *other == timer);
        place.is_some_and(|place| self.timers.remove(place).is_some())
    }

    /// Forgets the oldest messages until only `messages` are left. Returns their timers.
    fn forget_all_but(&mut self, messages: usize) -> impl Iterator<Item = TimerId> {
        let gone = self.timers.len().saturating_sub(messages);
        self.timers.drain(..gone)
    }
}

/// Fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    Drop,
    Twice,
}

impl Filter {
    /// Bytes that may wait in each direction before their sender must wait.
    const HIWAT_BYTES: usize = 1024 * 1024;

    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut filter = Self {
            drop: 0.0,
            duplicate: 0.0,
            delay: Duration::ZERO,
            ppid: None,
            stream: None,
            down: true,
            up: false,
            random: 1,
            open_records: BTreeMap::new(),
            delayed: Default::default(),
            dropped: 0,
            duplicated: 0,
        };
        for word in words {
            match arguments::split(word)? {
                ("drop", value) => filter.drop = arguments::probability("drop", value)?,
                ("duplicate", value) => filter.duplicate = arguments::probability("duplicate", value)?,
                ("delay", value) => filter.delay = arguments::milliseconds("delay", value)?,
                ("ppid", value) => filter.ppid = Some(arguments::number("ppid", value)?),
                ("stream", value) => filter.stream = Some(arguments::number("stream", value)?),
                ("seed", value) => filter.random = arguments::number("seed", value)?,
                ("way", "down") => (filter.down, filter.up) = (true, false),
                ("way", "up") => (filter.down, filter.up) = (false, true),
                ("way", "both") => (filter.down, filter.up) = (true, true),
                _ => {
                    return Err(format!(
                        "{word} is not one of drop=, duplicate=, delay=, ppid=, stream=, seed=, way=down|up|both"
                    ));
                }
            }
        }
        Ok(filter)
    }

    /// Returns a number from 0 to 1 (SplitMix64).
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns whether the arguments select a message.
    fn chooses(&self, side: Side, m: &Message) -> bool {
        let way = if side == Side::Write { self.down } else { self.up };
        way && m.user_data().is_some_and(|info| {
            self.ppid.is_none_or(|ppid| ppid == info.ppid)
                && self.stream.is_none_or(|stream| stream == info.stream)
        })
    }

    fn fate(&mut self, side: Side, m: &Message) -> Fate {
        let Some(info) = m.user_data() else { return Fate::Pass };
        let record = (direction(side), info.association, info.stream);
        let begun = self.open_records.get(&record).copied();
        let drops = begun.unwrap_or_else(|| self.chance() < self.drop);
        if info.more {
            self.open_records.insert(record, drops);
        } else {
            self.open_records.remove(&record);
        }
        let may_duplicate = side == Side::Write && !m.marks.intersects(Marks::DUPLICATE);
        let is_whole = begun.is_none() && !info.more;
        match drops {
            true => Fate::Drop,
            false if is_whole && may_duplicate && self.chance() < self.duplicate => Fate::Twice,
            false => Fate::Pass,
        }
    }

    /// Forgets the open records that this message cuts: no further part of them will come.
    fn forget_cut_records(&mut self, side: Side, m: &Message) {
        let Some((association, stream)) = m.cut_record() else { return };
        let (first, last) = stream.map_or((0, u16::MAX), |stream| (stream, stream));
        let cut = (direction(side), association, first)..=(direction(side), association, last);
        while let Some((&record, _)) = self.open_records.range(cut.clone()).next() {
            self.open_records.remove(&record);
        }
    }

    fn put(&mut self, q: &mut Q<'_>, m: Message) {
        self.forget_cut_records(q.side(), &m);
        if !self.chooses(q.side(), &m) {
            return if m.kind.is_high_priority() { q.putnext(m) } else { self.send(q, m, Duration::ZERO) };
        }
        match self.fate(q.side(), &m) {
            Fate::Drop => {
                self.dropped += 1;
                q.freemsg(m);
            }
            Fate::Twice => {
                self.duplicated += 1;
                let duplicate = m.dupmsg().marked(Marks::DUPLICATE);
                self.send(q, m, self.delay);
                self.send(q, duplicate, self.delay);
            }
            Fate::Pass => self.send(q, m, self.delay),
        }
    }

    /// Sends a message on after a delay, or once there is room. Messages without a delay keep their place behind delayed ones.
    fn send(&mut self, q: &mut Q<'_>, m: Message, delay: Duration) {
        let delayed = &mut self.delayed[direction(q.side())];
        if !delay.is_zero() || !delayed.timers.is_empty() {
            q.putq(m);
            delayed.timers.push_back(q.timeout(self.delay));
        } else if q.queue().is_empty() && q.canputnext(m.band) {
            q.putnext(m);
        } else {
            q.putq(m);
            // The service procedure leaves delayed messages on the queue, which then does not enable it.
            q.qenable();
        }
    }

    /// Handles `M_FLUSH`: the timers of discarded messages must not let later ones go early.
    fn flush(&mut self, q: &mut Q<'_>, m: Message) {
        q.pass(m);
        for side in [Side::Write, Side::Read] {
            let messages = if q.side() == side { q.queue().len() } else { q.other().queue().len() };
            for timer in self.delayed[direction(side)].forget_all_but(messages) {
                q.untimeout(timer);
            }
        }
    }

    fn serve(&mut self, q: &mut Q<'_>) {
        let delayed = self.delayed[direction(q.side())].timers.len();
        for _ in 0..SERVED_MAX {
            if q.queue().len() <= delayed {
                return;
            }
            let Some(m) = q.getq() else { return };
            if !m.kind.is_high_priority() && !q.canputnext(m.band) {
                return q.putbq(m);
            }
            q.putnext(m);
        }
        q.qenable();
    }
}

/// Returns the index of a direction.
fn direction(side: Side) -> usize {
    usize::from(side == Side::Read)
}

impl Module for Filter {
    fn name(&self) -> &str {
        "filter"
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("dropped", self.dropped), ("duplicated", self.duplicated)]
    }

    fn info(&self) -> ModuleInfo {
        let served = QueueInfo::served(Self::HIWAT_BYTES, Self::HIWAT_BYTES / 2);
        ModuleInfo { read: served, write: served }
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        if matches!(m.kind, Kind::Flush(_)) { self.flush(q, m) } else { self.put(q, m) }
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        if matches!(m.kind, Kind::Flush(_)) { self.flush(q, m) } else { self.put(q, m) }
    }

    fn wsrv(&mut self, q: &mut Q<'_>) {
        self.serve(q);
    }

    fn rsrv(&mut self, q: &mut Q<'_>) {
        self.serve(q);
    }

    fn timeout(&mut self, q: &mut Q<'_>, timer: TimerId) {
        if self.delayed[direction(q.side())].on_timer(timer) {
            self.serve(q);
        }
    }
}
