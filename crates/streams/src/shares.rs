//! What the modules on the streams of one owner do in a round, before the executive's owner has done other work.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::identifiers::QueueRef;
use crate::memory::StreamMemory;
use crate::timers::TimerKey;

/// Work of service procedures and timers in a round, on all streams that share one memory. The last procedure may exceed it.
pub(crate) const SHARE_WORK_MAX: usize = 256;

/// Work that was put off to a later round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PutOff {
    Service(QueueRef),
    Timer(TimerKey),
}

/// The shares of all memories, if the executive's owner begins rounds. One share has no part in the work of others, however much
/// waits for it.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    has_rounds: bool,
    /// Those with work in this round, or put off.
    by_memory: HashMap<usize, Share>,
    /// The memories with work that was put off, in turn.
    line: VecDeque<usize>,
}

/// The work on the streams that share one memory.
#[derive(Debug)]
struct Share {
    /// What was done in this round.
    work: usize,
    /// First in, first out.
    put_off: VecDeque<PutOff>,
    /// Keeps the number of the memory from other memory.
    _memory: Arc<dyn StreamMemory>,
}

impl Shares {
    /// Begins a round.
    pub(crate) fn begin_round(&mut self) {
        self.has_rounds = true;
        self.by_memory.retain(|_, share| {
            share.work = 0;
            !share.put_off.is_empty()
        });
    }

    /// Puts work off if the streams with this memory have had their share of the round, or if earlier work of theirs waits.
    /// Returns whether it was put off.
    pub(crate) fn put_off(&mut self, memory: &Arc<dyn StreamMemory>, work: PutOff) -> bool {
        let Some(share) = self.by_memory.get_mut(&memory.id()) else { return false };
        if share.put_off.is_empty() {
            if share.work < SHARE_WORK_MAX {
                return false;
            }
            self.line.push_back(memory.id());
        }
        share.put_off.push_back(work);
        true
    }

    /// Takes the next work of a share that is not used up, shares in turn.
    pub(crate) fn next(&mut self) -> Option<PutOff> {
        for _ in 0..self.line.len() {
            let id = self.line.pop_front()?;
            let Some(share) = self.by_memory.get_mut(&id) else { continue };
            let next = if share.work < SHARE_WORK_MAX { share.put_off.pop_front() } else { None };
            if !share.put_off.is_empty() {
                self.line.push_back(id);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Counts work on a stream with this memory.
    pub(crate) fn count(&mut self, memory: &Arc<dyn StreamMemory>, work: usize) {
        memory.count_work(work);
        if self.has_rounds {
            let share = || Share { work: 0, put_off: VecDeque::new(), _memory: Arc::clone(memory) };
            self.by_memory.entry(memory.id()).or_insert_with(share).work += work;
        }
    }

    /// Returns whether work was put off.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.line.is_empty()
    }
}
