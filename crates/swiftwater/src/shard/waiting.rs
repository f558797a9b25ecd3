//! Waiting: one thread sleeps on the sockets for all others, which sleep until they are notified.
//!
//! At most one thread of the program polls the sockets, the *leader*. The background thread and the task that drives an
//! async runtime also poll, while no thread does. A poller has left the perimeter. So an event that concerns it must
//! end its sleep: another thread has taken in a message for it, or has started a timer that expires before the poller
//! would wake up.

mod by_stream;
mod leader;
mod leading_for_others;

use std::sync::Arc;
use std::thread::Thread;
use std::time::Instant;

use smallvec::SmallVec;
use streams::{Interest, StreamId};

use self::by_stream::ByStream;
use self::leading_for_others::LeadingForOthers;
use super::Inner;
#[cfg(feature = "tokio")]
use super::perimeter::DeferredWakers;
use crate::watch::{Sleeper, Watch};

/// The interest of those who wait for a condition of the whole stack. It never comes from their stream, which is unbound and gets
/// no message.
pub(crate) const OBSERVER_INTEREST: Interest = Interest::PRIORITY;

/// A sleep on the sockets.
#[derive(Clone, Copy)]
struct Sleep {
    /// The stream and the events that the sleeper itself waits for, if any.
    purpose: Option<(StreamId, Interest)>,
    until: Option<Instant>,
    interrupted: bool,
}

/// All sleepers and waiters.
pub(crate) struct Waiting {
    watch: Arc<Watch>,
    sleeps: [Option<Sleep>; Sleeper::ALL.len()],
    by_stream: ByStream<SmallVec<[Waiter; 1]>>,
    next_ticket: u64,
    /// Streams whose waiters are notified after all work in the perimeter.
    observers: SmallVec<[StreamId; 1]>,
    /// Whether the watch also waits for room to send.
    watches_room: bool,
    leading_for_others: LeadingForOthers,
    /// A reusable list of streams that have become ready.
    ready: Vec<StreamId>,
    #[cfg(feature = "tokio")]
    deferred: Option<Box<DeferredWakers>>,
}

/// Identifies one registration of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u64);

/// A thread or task that waits for a stream until it is notified.
struct Waiter {
    ticket: Ticket,
    interest: Interest,
    target: WakeTarget,
}

/// The thread or task that a notification wakes.
pub(crate) enum WakeTarget {
    Thread(Thread),
    /// A thread that leaves the lead to others: see [`LeadingForOthers`].
    SteppedDown(Thread),
    #[cfg(feature = "tokio")]
    Task(std::task::Waker),
}

/// Returns what waiters of a stream wait for: all of it holds once the stream has failed or was hung up.
fn of_failed() -> Interest {
    let ends = Interest::POPPABLE | Interest::READ_HANGUP;
    Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY | ends
}

impl WakeTarget {
    /// Returns the thread, if it may become the leader.
    fn as_next_leader(&self) -> Option<&Thread> {
        match self {
            WakeTarget::Thread(thread) => Some(thread),
            WakeTarget::SteppedDown(_) => None,
            #[cfg(feature = "tokio")]
            WakeTarget::Task(_) => None,
        }
    }
}

impl Waiting {
    pub(crate) fn new(watch: Arc<Watch>) -> Self {
        Waiting {
            watch,
            sleeps: [None; Sleeper::ALL.len()],
            by_stream: ByStream::default(),
            next_ticket: 0,
            observers: SmallVec::new(),
            watches_room: false,
            leading_for_others: LeadingForOthers::default(),
            ready: Vec::new(),
            #[cfg(feature = "tokio")]
            deferred: None,
        }
    }

    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn take_deferred(&mut self) -> Option<Box<DeferredWakers>> {
        self.deferred.take()
    }

    /// Ends a sleep on the sockets.
    pub(crate) fn interrupt(&mut self, sleeper: Sleeper) {
        if let Some(sleep) = &mut self.sleeps[sleeper as usize]
            && !std::mem::replace(&mut sleep.interrupted, true)
        {
            self.watch.interrupt(sleeper);
        }
    }

    /// Returns the union of the events that all waiters of a stream wait for.
    fn wanted(&self, s: StreamId) -> Interest {
        let sleepers = self.sleeps.iter().flatten().filter(|sleep| !sleep.interrupted);
        let sleeping = sleepers.filter_map(|sleep| sleep.purpose).filter(|(other, _)| *other == s);
        let waiters = self.by_stream.get(&s).into_iter().flatten().map(|waiter| waiter.interest);
        sleeping.map(|(_, interest)| interest).chain(waiters).fold(Interest::NONE, |all, one| all | one)
    }

    fn remove(&mut self, s: StreamId, ticket: Ticket) {
        let Some(waiters) = self.by_stream.get_mut(&s) else { return };
        if let Some(at) = waiters.iter().position(|waiter| waiter.ticket == ticket) {
            match waiters.swap_remove(at).target {
                WakeTarget::Thread(_) | WakeTarget::SteppedDown(_) => {}
                #[cfg(feature = "tokio")]
                WakeTarget::Task(waker) => self.deferred.get_or_insert_default().drop.push(waker),
            }
        }
        if waiters.is_empty() {
            self.by_stream.remove(&s);
        }
    }

    /// Notifies the threads and tasks that wait for any event in `ready`.
    fn notify(&mut self, s: StreamId, ready: Interest) {
        if let Some(waiters) = self.by_stream.get_mut(&s) {
            let mut i = 0;
            while i < waiters.len() {
                if waiters[i].interest.intersects(ready) {
                    match waiters.swap_remove(i).target {
                        WakeTarget::Thread(thread) | WakeTarget::SteppedDown(thread) => thread.unpark(),
                        #[cfg(feature = "tokio")]
                        WakeTarget::Task(waker) => self.deferred.get_or_insert_default().wake.push(waker),
                    }
                } else {
                    i += 1;
                }
            }
            if waiters.is_empty() {
                self.by_stream.remove(&s);
            }
        }
        for sleeper in Sleeper::ALL {
            if let Some(Sleep { purpose: Some((for_stream, interest)), .. }) = self.sleeps[sleeper as usize]
                && for_stream == s
                && interest.intersects(ready)
            {
                self.interrupt(sleeper);
            }
        }
    }
}

impl Inner {
    /// Registers a thread or task for a notification when `s` is ready.
    pub(crate) fn register(&mut self, s: StreamId, interest: Interest, target: WakeTarget) -> Ticket {
        let ticket = Ticket(self.waiting.next_ticket);
        self.waiting.next_ticket += 1;
        self.waiting.by_stream.entry(s).or_default().push(Waiter { ticket, interest, target });
        self.want(s);
        // If the event is there already, this notifies the waiter.
        self.wake();
        ticket
    }

    pub(crate) fn unregister(&mut self, s: StreamId, ticket: Ticket) {
        self.waiting.remove(s, ticket);
    }

    /// Tells the head of a stream which events are waited for.
    fn want(&mut self, s: StreamId) {
        let wanted = self.waiting.wanted(s);
        if wanted != Interest::NONE {
            self.executive.want(s, wanted);
        }
    }

    /// Notifies the waiters of `s` after all work in the perimeter from now on.
    pub(crate) fn observe(&mut self, s: StreamId) {
        self.waiting.observers.push(s);
    }

    pub(crate) fn unobserve(&mut self, s: StreamId) {
        self.waiting.observers.retain(|observer| *observer != s);
    }

    /// Notifies the waiters of observing streams, since there was work in the perimeter.
    #[inline]
    pub(super) fn notify_observers(&mut self) {
        if !self.waiting.observers.is_empty() {
            for s in self.waiting.observers.clone() {
                self.waiting.notify(s, OBSERVER_INTEREST);
            }
        }
    }

    /// Notifies all waiters, after a fault has closed the streams.
    pub(crate) fn notify_all(&mut self) {
        let all: Vec<StreamId> = self.waiting.by_stream.keys().copied().collect();
        for s in all {
            self.waiting.notify(s, of_failed());
        }
        for sleeper in Sleeper::ALL {
            self.waiting.interrupt(sleeper);
        }
    }

    /// Wakes the waiters of streams that have become ready.
    #[inline]
    pub(crate) fn wake(&mut self) {
        if self.executive.has_wakeups() {
            self.wake_ready();
        }
    }

    fn wake_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.waiting.ready);
        self.executive.take_wakeups(&mut ready);
        for s in ready.drain(..) {
            let what = self.readiness(s);
            self.waiting.notify(s, what);
            // Another thread may have taken the message, so the remaining waiters are listed again.
            self.want(s);
        }
        self.waiting.ready = ready;
    }

    /// Returns whether `s` is ready for one of these events.
    pub(crate) fn is_ready(&mut self, s: StreamId, interest: Interest) -> bool {
        self.readiness(s).intersects(interest)
    }

    fn readiness(&mut self, s: StreamId) -> Interest {
        let ready = self.executive.poll(s);
        match ready.error || ready.hangup {
            true => of_failed(),
            false => ready.interest(),
        }
    }

    /// Ends a sleep on the sockets that would outlast a newly started timer.
    #[inline]
    pub(crate) fn shorten_sleep(&mut self) {
        if let Some(sleeper) =
            Sleeper::ALL.into_iter().find(|sleeper| self.waiting.sleeps[*sleeper as usize].is_some())
        {
            self.shorten_sleep_of(sleeper);
        }
    }

    fn shorten_sleep_of(&mut self, sleeper: Sleeper) {
        let (Some(deadline), Some(sleep)) = (self.next_service(), self.waiting.sleeps[sleeper as usize])
        else {
            return;
        };
        if sleep.until.is_none_or(|until| deadline < until) {
            self.waiting.interrupt(sleeper);
        }
    }

    /// Returns when the sockets must be served again, even without an event.
    fn next_service(&self) -> Option<Instant> {
        match self.executive.has_arrivals() {
            true => Some(Instant::now()),
            false => self.executive.deadline(),
        }
    }

    /// Records that a poller goes to sleep on the sockets; returns how long it may sleep.
    fn begin_sleep(
        &mut self,
        sleeper: Sleeper,
        purpose: Option<(StreamId, Interest)>,
        deadline: Option<Instant>,
    ) -> Option<Instant> {
        let until = [self.next_service(), deadline].into_iter().flatten().min();
        self.waiting.sleeps[sleeper as usize] = Some(Sleep { purpose, until, interrupted: false });
        if let Some((s, _)) = purpose {
            self.want(s);
            // If the event is there already, this ends the sleep before it begins.
            self.wake();
        }
        until
    }

    /// Returns whether the link has refused a batch and waits for room.
    pub(crate) fn is_refused(&self) -> bool {
        let mut refused = false;
        self.executive.descriptors(&mut |_, interest| refused |= interest.intersects(Interest::WRITABLE));
        refused
    }

    fn end_sleep(&mut self, sleeper: Sleeper) {
        self.waiting.sleeps[sleeper as usize] = None;
    }

    /// Prepares a wait for `s`: lets modules send on what they had no room for, sends the queued messages, and takes arrivals if
    /// some are likely, which is cheaper than sleeping. Returns whether this may have ended the wait.
    pub(crate) fn before_wait(&mut self, s: StreamId, interest: Interest) -> bool {
        self.activity += 1;
        let serves = self.executive.is_runnable();
        if serves {
            // The reader has made room for a module, or the writer has given it a message: no packet need follow.
            self.guarded(None, |inner| inner.executive.at(Instant::now()).run());
        }
        self.flush(true);
        if self.is_observer(s) {
            // Its stream does not tell whether arrivals have ended its wait. They end the sleep that follows.
            return serves;
        }
        let takes = self.arrivals.are_likely();
        if takes {
            self.take_arrivals();
        }
        (serves || takes) && self.is_ready(s, interest)
    }

    /// Returns whether the waiters of `s` wait for a condition of the whole stack.
    fn is_observer(&self, s: StreamId) -> bool {
        self.waiting.observers.contains(&s)
    }

    /// Wakes one of the waiting threads, if any, to become the leader.
    fn hand_over_lead(&mut self) {
        let mut waiters = self.waiting.by_stream.values().flatten();
        if let Some(thread) = waiters.find_map(|waiter| waiter.target.as_next_leader()) {
            thread.unpark();
        }
    }
}

/// The task of an async runtime that polls the sockets.
#[cfg(feature = "tokio")]
impl Inner {
    pub(crate) fn has_task(&self) -> bool {
        self.poller.has_task()
    }

    /// Returns whether an earlier task has failed, as in a runtime without timers: the next would fail, too.
    pub(crate) fn has_task_failed(&self) -> bool {
        self.poller.has_task_failed()
    }

    /// Records that a task polls the sockets from now on while no thread does.
    pub(crate) fn on_task_started(&mut self) {
        if self.poller.on_task_started() {
            self.waiting.interrupt(Sleeper::Background);
        }
    }

    /// Records that the task has ended, and whether it failed.
    pub(crate) fn on_task_ended(&mut self, failed: bool) {
        self.poller.on_task_ended(failed);
        self.end_sleep(Sleeper::Task);
    }
}
