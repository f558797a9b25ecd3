//! The scheduler: lists the service procedures to run, and the messages on their way between procedures.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::head::readiness::Woken;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::memory::{MemoryWaits, StreamMemory};
use crate::message::{Credit, Message};
use crate::queue::Queue;
use crate::shares::{PutOff, Shares};
use crate::timers::Timers;

/// A message for the put procedure of a queue.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) at: QueueRef,
    pub(crate) message: Message,
}

/// A call of a driver that waits until the driver can be called.
#[derive(Debug)]
pub(crate) enum DriverCall {
    Put {
        stream: StreamId,
        message: Message,
    },
    /// For the driver that the stream is linked under.
    LowerPut {
        stream: StreamId,
        message: Message,
    },
    Consumed {
        stream: StreamId,
        credit: Credit,
    },
    /// Ends the link of the stream; its user gets the message.
    EndLink {
        stream: StreamId,
        message: Option<Message>,
    },
}

/// Work of service procedures and timers in one step of the executive: their calls, and the messages that they take from queues.
/// Then the owner does other work before the next step.
pub(crate) const STEP_WORK_MAX: usize = 256;

/// Number of messages of a queue whose move counts as a piece of work: some kilobytes.
const MOVED_PER_WORK: usize = 64;
/// Number of bytes that are copied or unpacked as one more piece of work: 1 to 2 µs.
const BYTES_PER_WORK: usize = 8 * 1024;

/// The work lists of one executive. All are first in, first out.
#[derive(Debug)]
pub(crate) struct Scheduler {
    run_queue: VecDeque<QueueRef>,
    /// The message on its way to the next procedure: nearly every procedure sends on one message or none. It stays here until a
    /// procedure takes it, so that it is moved seldom. Messages in `posts` come later.
    current: Option<Post>,
    posts: VecDeque<Post>,
    /// A module looks at the message in `current`.
    is_shown: bool,
    driver_calls: VecDeque<DriverCall>,
    /// Streams whose interest became ready.
    wakeups: VecDeque<StreamId>,
    /// Streams whose head holds coalesced bytes; some may have sent them meanwhile.
    coalescing: VecDeque<StreamId>,
    /// Waiters that were woken.
    woken: Vec<Woken>,
    /// Programs that are due a signal.
    signals: VecDeque<(StreamId, u64)>,
    /// Number of closed streams whose messages are still on their way down.
    draining: usize,
    /// Those of them that may end now: one of their write queues has run empty since the last look, or their head has failed.
    /// A stream may be here more than once, and may have ended.
    drained: VecDeque<StreamId>,
    /// Work of the current step.
    work: usize,
    /// The shares of the work in a round, and what was put off.
    shares: Shares,
    /// The next work is one that was put off, if there is any.
    is_turn_of_put_off: bool,
    /// The last step has left service procedures enabled.
    is_behind: bool,
    pub(crate) timers: Timers,
    pub(crate) memory: MemoryWaits,
}

impl Scheduler {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            run_queue: VecDeque::new(),
            current: None,
            posts: VecDeque::new(),
            is_shown: false,
            driver_calls: VecDeque::new(),
            wakeups: VecDeque::new(),
            coalescing: VecDeque::new(),
            woken: Vec::new(),
            signals: VecDeque::new(),
            draining: 0,
            drained: VecDeque::new(),
            work: 0,
            shares: Shares::default(),
            is_turn_of_put_off: false,
            is_behind: false,
            timers: Timers::new(now),
            memory: MemoryWaits::default(),
        }
    }

    /// Enables a service procedure (`qenable`). A queue is in the run queue at most once.
    #[inline]
    pub(crate) fn qenable(&mut self, queue: &mut Queue, at: QueueRef) {
        if queue.mark_enabled() {
            self.run_queue.push_back(at);
        }
    }

    /// Enables the service of a stream head: on the write side it sends coalesced bytes, on the read side it checks for waiting
    /// senders below.
    pub(crate) fn enable_head(&mut self, stream: StreamId, side: Side) {
        self.run_queue.push_back(QueueRef { stream, place: Place::Head, side });
    }

    /// Takes the next work: by turns a service procedure that was enabled, and work that was put off. Returns whether it was put
    /// off before.
    #[inline]
    pub(crate) fn next_work(&mut self) -> Option<(PutOff, bool)> {
        if self.shares.is_behind() {
            return self.next_of_both();
        }
        self.run_queue.pop_front().map(|at| (PutOff::Service(at), false))
    }

    #[cold]
    fn next_of_both(&mut self) -> Option<(PutOff, bool)> {
        self.is_turn_of_put_off = !self.is_turn_of_put_off;
        let first = if self.is_turn_of_put_off { self.shares.next() } else { None };
        let enabled = || self.run_queue.pop_front().map(|at| (PutOff::Service(at), false));
        let next = first.map(|work| (work, true)).or_else(enabled);
        next.or_else(|| self.shares.next().map(|work| (work, true)))
    }

    /// Begins a round.
    pub(crate) fn begin_round(&mut self) {
        self.shares.begin_round();
    }

    /// Puts work on a stream with this memory off if there was too much in this round. Returns whether it was put off.
    pub(crate) fn put_off(&mut self, memory: &Arc<dyn StreamMemory>, work: PutOff) -> bool {
        self.shares.put_off(memory, work)
    }

    /// Counts the work since the step had done `before` for the streams with this memory.
    pub(crate) fn count_share(&mut self, memory: &Arc<dyn StreamMemory>, before: usize) {
        self.shares.count(memory, self.work - before);
    }

    /// Returns the work of this step.
    pub(crate) fn work(&self) -> usize {
        self.work
    }

    #[inline]
    pub(crate) fn is_runnable(&self) -> bool {
        !self.run_queue.is_empty() || self.memory.is_due()
    }

    /// Begins a step.
    #[inline]
    pub(crate) fn begin_step(&mut self) {
        self.work = 0;
    }

    /// Counts the call of a service procedure or of a timer's, or a message that one takes from a queue.
    #[inline]
    pub(crate) fn count_work(&mut self) {
        self.work += 1;
    }

    /// Counts that so many bytes were copied, or made from fewer.
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.work += bytes / BYTES_PER_WORK;
    }

    /// Counts that a message was taken from the middle of a queue, and that this has moved so many others.
    pub(crate) fn count_removal(&mut self, moved: usize) {
        self.work += 1;
        self.count_moved(moved);
    }

    /// Counts that so many messages were moved or discarded.
    pub(crate) fn count_moved(&mut self, messages: usize) {
        self.work += messages / MOVED_PER_WORK;
    }

    /// Returns whether the step has had its part of work.
    #[inline]
    pub(crate) fn is_step_over(&self) -> bool {
        self.work >= STEP_WORK_MAX
    }

    /// Notes whether the last step has left service procedures enabled that have had no turn.
    #[inline]
    pub(crate) fn set_behind(&mut self, is_behind: bool) {
        self.is_behind = is_behind;
    }

    /// Returns whether the last step has left work.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind || self.shares.is_behind()
    }

    /// Sends a message on its way. Compiled into its callers: a call would cost as much as all else that a module does.
    #[inline(always)]
    pub(crate) fn post(&mut self, at: QueueRef, message: Message) {
        if self.is_quiet() {
            self.current = Some(Post { at, message });
        } else {
            self.post_behind(Post { at, message });
        }
    }

    /// Sends a message behind those on their way.
    #[cold]
    fn post_behind(&mut self, post: Post) {
        self.posts.extend(self.current.take());
        self.posts.push_back(post);
    }

    /// Returns whether no message is on its way.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.current.is_none() && self.posts.is_empty()
    }

    /// Returns the next queue of the current message.
    #[inline]
    pub(crate) fn current_at(&self) -> Option<QueueRef> {
        self.current.as_ref().map(|current| current.at)
    }

    /// Returns the time and the current message, for a module to look at until [`Scheduler::end_show`].
    #[inline]
    pub(crate) fn begin_show(&mut self) -> Option<(Instant, &Message)> {
        let current = self.current.as_ref()?;
        self.is_shown = true;
        Some((self.timers.now(), &current.message))
    }

    #[inline]
    pub(crate) fn end_show(&mut self) {
        self.is_shown = false;
    }

    /// Discards the message that a module was shown when it panicked.
    #[cold]
    pub(crate) fn discard_shown(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            self.current = None;
        }
    }

    /// Sends the current message on to `place`, behind those that wait: its module has sent these on before.
    #[inline]
    pub(crate) fn forward_current(&mut self, place: Place) {
        if let Some(current) = &mut self.current {
            current.at.place = place;
        }
        if !self.posts.is_empty() {
            self.posts.extend(self.current.take());
        }
    }

    /// Takes the current message.
    #[inline(always)]
    pub(crate) fn take_current(&mut self) -> Option<Post> {
        self.current.take()
    }

    /// Makes the first waiting message the current one if there is none. Returns its next queue.
    #[inline]
    pub(crate) fn next_current(&mut self) -> Option<QueueRef> {
        if self.current.is_none() {
            self.current = self.posts.pop_front();
        }
        self.current_at()
    }

    /// Appends a call of a driver to those that wait.
    #[inline]
    pub(crate) fn defer(&mut self, call: DriverCall) {
        self.driver_calls.push_back(call);
    }

    /// Returns the receive window of a discarded message to the driver of its stream.
    pub(crate) fn return_credit(&mut self, stream: StreamId, m: &Message) {
        if let Some(credit) = m.receive_credit()
            && credit.bytes > 0
        {
            self.defer(DriverCall::Consumed { stream, credit });
        }
    }

    #[inline]
    pub(crate) fn has_driver_calls(&self) -> bool {
        !self.driver_calls.is_empty()
    }

    #[inline]
    pub(crate) fn next_driver_call(&mut self) -> Option<DriverCall> {
        self.driver_calls.pop_front()
    }

    /// Lists a stream whose interest became ready.
    #[inline]
    pub(crate) fn list_wakeup(&mut self, stream: StreamId) {
        self.wakeups.push_back(stream);
    }

    #[inline]
    pub(crate) fn next_wakeup(&mut self) -> Option<StreamId> {
        self.wakeups.pop_front()
    }

    #[inline]
    pub(crate) fn has_wakeups(&self) -> bool {
        !self.wakeups.is_empty()
    }

    /// Lists a stream whose head holds coalesced bytes.
    pub(crate) fn list_coalescing(&mut self, stream: StreamId) {
        self.coalescing.push_back(stream);
    }

    pub(crate) fn next_coalescing(&mut self) -> Option<StreamId> {
        self.coalescing.pop_front()
    }

    #[inline]
    pub(crate) fn coalescing(&self) -> usize {
        self.coalescing.len()
    }

    /// Lists a waiter that was woken.
    pub(crate) fn list_woken(&mut self, woken: Woken) {
        self.woken.push(woken);
    }

    /// Appends the waiters that were woken, and forgets them.
    pub(crate) fn take_woken(&mut self, woken: &mut Vec<Woken>) {
        woken.append(&mut self.woken);
    }

    /// Lists a program that is due a signal.
    pub(crate) fn list_signal(&mut self, stream: StreamId, program: u64) {
        self.signals.push_back((stream, program));
    }

    pub(crate) fn next_signal(&mut self) -> Option<(StreamId, u64)> {
        self.signals.pop_front()
    }

    /// Forgets the signals of a stream, or those of one of its programs.
    pub(crate) fn forget_signals(&mut self, stream: StreamId, program: Option<u64>) {
        self.signals.retain(|(s, other)| *s != stream || program.is_some_and(|program| program != *other));
    }

    /// Counts a closed stream whose messages are still on their way down.
    pub(crate) fn on_draining_began(&mut self) {
        self.draining += 1;
    }

    /// Counts the end of such a stream.
    pub(crate) fn on_draining_ended(&mut self) {
        self.draining -= 1;
    }

    /// Returns the number of closed streams whose messages are still on their way down.
    #[inline]
    pub(crate) fn draining(&self) -> usize {
        self.draining
    }

    /// Lists a closed stream that may end now.
    #[cold]
    pub(crate) fn list_drained(&mut self, stream: StreamId) {
        self.drained.push_back(stream);
    }

    pub(crate) fn next_drained(&mut self) -> Option<StreamId> {
        self.drained.pop_front()
    }

    /// Returns whether a closed stream may end now.
    #[inline]
    pub(crate) fn has_drained(&self) -> bool {
        !self.drained.is_empty()
    }

    /// Returns whether every posted message and every call of a driver has been delivered.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.is_quiet() && self.driver_calls.is_empty()
    }
}
