//! Memory for the data that modules make, and the queues that wait for it.
//!
//! A driver tells the memory of a stream ([`Cx::set_memory`](crate::Cx::set_memory)), and a module charges it for the data that
//! it makes ([`Q::charge`](crate::Q::charge)). Several streams may share one memory, also streams of other executives.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;

use crate::identifiers::{QueueRef, Side, StreamId};

/// The memory that the data of a stream's modules is charged to. The executive knows no users: its owner counts.
///
/// Data on its way up may be refused, and waits then. Data on its way down takes the place of data that the module frees, so it
/// is charged whatever the limit.
pub trait StreamMemory: fmt::Debug + Send + Sync {
    /// Returns a number that other memory for data on its way up does not have.
    fn id(&self) -> usize;
    /// Charges bytes on their way up, or returns false.
    fn take_read(&self, bytes: usize) -> bool;
    /// Returns memory of [`StreamMemory::take_read`].
    fn release_read(&self, bytes: usize);
    /// Charges bytes on their way down.
    fn charge_write(&self, bytes: usize);
    /// Returns memory of [`StreamMemory::charge_write`].
    fn release_write(&self, bytes: usize);
    /// Charges bytes that a module keeps as long as it is pushed, or returns `None`. Dropping the charge returns them.
    fn take_state(&self, bytes: usize) -> Option<StateCharge>;
    /// Counts work that modules do on streams with this memory: calls of service procedures and of timers, and the messages that
    /// these take from queues.
    fn count_work(&self, _work: usize) {}
    /// Calls `notify` once when memory for data on its way up is released, from any thread. A call too many does no harm.
    fn when_released(&self, notify: Weak<Notify>);
}

/// Memory that is charged for the state of a module, until this is dropped.
pub type StateCharge = Box<dyn fmt::Debug + Send>;

/// A function that memory calls when some is released.
pub type Notify = dyn Fn() + Send + Sync;

/// Memory that is charged for data that a module makes, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    /// Without memory, nothing is counted.
    memory: Option<Arc<dyn StreamMemory>>,
    side: Side,
    bytes: usize,
}

/// Data with its charge.
struct Charged<T, C> {
    content: T,
    _charge: C,
}

impl<T: AsRef<[u8]>, C> AsRef<[u8]> for Charged<T, C> {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

/// Returns `content`, and keeps `charge` as long as any part of the content exists.
pub fn charged(content: impl AsRef<[u8]> + Send + 'static, charge: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Charged { content, _charge: charge })
}

impl Charge {
    /// Cost of a message in addition to its bytes, wherever it waits.
    const COST_BYTES: usize = 256;

    pub(crate) fn cost_of(bytes: usize) -> usize {
        bytes + Self::COST_BYTES
    }

    /// Returns the charge for `bytes` that the memory has counted.
    pub(crate) fn counted(memory: Option<Arc<dyn StreamMemory>>, side: Side, bytes: usize) -> Self {
        Self { memory, side, bytes }
    }

    /// Returns `content`, which stays charged as long as any part of it exists. A message with it on its way up has the mark
    /// [`Marks::CHARGED`](crate::Marks::CHARGED).
    pub fn on(self, content: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        charged(content, self)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Some(memory) = &self.memory else { return };
        match self.side {
            Side::Read => memory.release_read(self.bytes),
            Side::Write => memory.release_write(self.bytes),
        }
    }
}

/// A queue of a module, with the serial number of the module.
pub(crate) type Waiter = (QueueRef, u32);

/// A module by its stream and serial number. Only its queue for reading waits.
type Member = (StreamId, u32);

fn member((at, serial): Waiter) -> Member {
    (at.stream, serial)
}

/// The queues whose modules wait for memory. Those that share memory wait in line: when some is released, the service procedure
/// of the first one runs, and then that of the next, until one finds too little.
#[derive(Debug, Default)]
pub(crate) struct MemoryWaits {
    lines: HashMap<usize, Line>,
    /// The queue of each line that has left it for a try. No other one leaves the line before its service procedure has run,
    /// which may be put off to a later round.
    trying: HashMap<usize, Waiter>,
    signal: Arc<Signal>,
}

/// The queues that wait for the same memory, in order. A queue joins or leaves without a search, however many wait.
struct Line {
    queues: BTreeMap<i64, Waiter>,
    places: HashMap<Member, i64>,
    /// The first queue is to try again.
    is_due: Arc<AtomicBool>,
    notify: Arc<Notify>,
    /// Keeps the number of the memory from other memory.
    _memory: Arc<dyn StreamMemory>,
}

/// Tells the owner of the executive that a line is due.
#[derive(Default)]
struct Signal {
    is_given: AtomicBool,
    owner: OnceLock<Box<Notify>>,
}

impl Signal {
    fn give(&self) {
        if !self.is_given.swap(true, SeqCst)
            && let Some(owner) = self.owner.get()
        {
            owner();
        }
    }
}

impl Line {
    fn new(memory: Arc<dyn StreamMemory>, signal: &Arc<Signal>) -> Self {
        let is_due = Arc::new(AtomicBool::new(false));
        let (due, signal) = (Arc::clone(&is_due), Arc::clone(signal));
        let notify = Arc::new(move || {
            due.store(true, SeqCst);
            signal.give();
        });
        Self { queues: BTreeMap::new(), places: HashMap::new(), is_due, notify, _memory: memory }
    }

    /// Adds a queue behind the others. Returns false if it is in the line already.
    fn push_back(&mut self, waiter: Waiter) -> bool {
        let place = self.queues.last_key_value().map_or(0, |(last, _)| last + 1);
        self.insert(place, waiter)
    }

    /// Adds a queue before the others. Returns false if it is in the line already.
    fn push_front(&mut self, waiter: Waiter) -> bool {
        let place = self.queues.first_key_value().map_or(0, |(first, _)| first - 1);
        self.insert(place, waiter)
    }

    fn insert(&mut self, place: i64, waiter: Waiter) -> bool {
        let Entry::Vacant(vacant) = self.places.entry(member(waiter)) else { return false };
        vacant.insert(place);
        self.queues.insert(place, waiter);
        true
    }

    fn pop_front(&mut self) -> Option<Waiter> {
        let (_, waiter) = self.queues.pop_first()?;
        self.places.remove(&member(waiter));
        Some(waiter)
    }

    /// Removes a queue. Returns whether it was in the line.
    fn remove(&mut self, member: Member) -> bool {
        let Some(place) = self.places.remove(&member) else { return false };
        self.queues.remove(&place).is_some()
    }
}

impl MemoryWaits {
    /// Sets the function that is called, from any thread, when queues are to try again. The owner then runs the executive.
    pub(crate) fn set_owner(&mut self, owner: Box<Notify>) {
        // The first one stays.
        let _ = self.signal.owner.set(owner);
    }

    /// Charges bytes on their way up. If that fails, the queue waits in line.
    pub(crate) fn take(&mut self, memory: &Arc<dyn StreamMemory>, waiter: Waiter, bytes: usize) -> bool {
        let id = memory.id();
        let is_trying = self.trying.get(&id) == Some(&waiter);
        if !is_trying
            && let Some(line) = self.lines.get_mut(&id)
            && !line.queues.is_empty()
        {
            if line.push_back(waiter) {
                // Those in front may be gone, and no release may follow.
                (line.notify)();
            }
            return false;
        }
        if memory.take_read(bytes) {
            return true;
        }
        if is_trying {
            self.trying.remove(&id);
        }
        let line = self.lines.entry(id).or_insert_with(|| Line::new(Arc::clone(memory), &self.signal));
        line.is_due.store(false, SeqCst);
        memory.when_released(Arc::downgrade(&line.notify));
        // Memory may have been released before it knew of the line.
        let is_taken = memory.take_read(bytes);
        if !is_taken {
            line.push_front(waiter);
        }
        is_taken
    }

    /// Forgets the queue of a module that is gone.
    pub(crate) fn forget(&mut self, stream: StreamId, serial: u32) {
        for (id, line) in &mut self.lines {
            let is_trying = self.trying.get(id).is_some_and(|waiter| member(*waiter) == (stream, serial));
            if is_trying {
                self.trying.remove(id);
            }
            if line.remove((stream, serial)) || is_trying {
                // The next one may need less.
                (line.notify)();
            }
        }
    }

    /// Returns whether a queue may have to try again.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.signal.is_given.load(SeqCst)
    }

    /// Ends the try of a queue whose service procedure has run, or does not run.
    pub(crate) fn end_try(&mut self, at: QueueRef) {
        let tries = self.trying.len();
        self.trying.retain(|_, (trying, _)| *trying != at);
        if self.trying.len() < tries {
            // The next one in the line may be due.
            self.signal.is_given.store(true, SeqCst);
        }
    }

    /// Takes the next queue that is to try again from its line, if no other one of the line has yet to try.
    pub(crate) fn next_due(&mut self) -> Option<Waiter> {
        if !self.signal.is_given.swap(false, SeqCst) {
            return None;
        }
        let trying = &mut self.trying;
        self.lines.retain(|id, line| !line.queues.is_empty() || trying.contains_key(id));
        let may_try =
            |id, line: &Line| line.is_due.load(SeqCst) && !line.queues.is_empty() && !trying.contains_key(id);
        let (id, line) = self.lines.iter_mut().find(|(id, line)| may_try(id, line))?;
        let waiter = line.pop_front()?;
        trying.insert(*id, waiter);
        // The others in the line, and other lines, come next.
        self.signal.is_given.store(true, SeqCst);
        Some(waiter)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("queues", &self.queues)
            .field("is_due", &self.is_due)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("is_given", &self.is_given).finish_non_exhaustive()
    }
}
