//! The scheduler: lists the service procedures to run, and the messages on their way between procedures.

use crate::head::readiness::Woken;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::message::{Credit, Message};
use crate::queue::Queue;
use crate::timers::Timers;
use std::collections::VecDeque;
use std::time::Instant;

/// A message for the put procedure of a queue.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) at: QueueRef,
    pub(crate) message: Message,
}

/// Work for a driver that waits until the driver can be called.
#[derive(Debug)]
pub(crate) enum Errand {
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

/// The work lists of one executive. All are first in, first out.
#[derive(Debug)]
pub(crate) struct Scheduler {
    run_queue: VecDeque<QueueRef>,
    /// The message that is carried from one procedure to the next: nearly every procedure sends on one message or none. It stays
    /// here until it is handed to a procedure, so that it is moved seldom. Messages in `posts` come later.
    hop: Option<Post>,
    posts: VecDeque<Post>,
    /// A module looks at the message in `hop`.
    is_shown: bool,
    errands: VecDeque<Errand>,
    /// Streams whose interest became ready.
    pub(crate) wakeups: Vec<StreamId>,
    /// Streams whose head holds coalesced bytes; some may have sent them meanwhile.
    pub(crate) coalescing: Vec<StreamId>,
    /// Waiters that were woken.
    pub(crate) woken: Vec<Woken>,
    /// Programs that are due a signal.
    pub(crate) signals: VecDeque<(StreamId, u64)>,
    /// Streams that are closed once their drivers' queues are empty.
    pub(crate) draining: Vec<StreamId>,
    pub(crate) timers: Timers,
}

impl Scheduler {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            run_queue: VecDeque::new(),
            hop: None,
            posts: VecDeque::new(),
            is_shown: false,
            errands: VecDeque::new(),
            wakeups: Vec::new(),
            coalescing: Vec::new(),
            woken: Vec::new(),
            signals: VecDeque::new(),
            draining: Vec::new(),
            timers: Timers::new(now),
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

    #[inline]
    pub(crate) fn next_to_run(&mut self) -> Option<QueueRef> {
        self.run_queue.pop_front()
    }

    #[inline]
    pub(crate) fn is_runnable(&self) -> bool {
        !self.run_queue.is_empty()
    }

    /// Sends a message on its way. Compiled into its callers: a call would cost as much as all else that a module does.
    #[inline(always)]
    pub(crate) fn post(&mut self, at: QueueRef, message: Message) {
        if self.is_quiet() {
            self.hop = Some(Post { at, message });
        } else {
            self.post_behind(Post { at, message });
        }
    }

    /// Sends a message behind those on their way.
    #[cold]
    fn post_behind(&mut self, post: Post) {
        self.posts.extend(self.hop.take());
        self.posts.push_back(post);
    }

    /// Returns whether no message is on its way.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.hop.is_none() && self.posts.is_empty()
    }

    /// Returns the next queue of the message that is carried.
    #[inline]
    pub(crate) fn hop_at(&self) -> Option<QueueRef> {
        self.hop.as_ref().map(|hop| hop.at)
    }

    /// Returns the message that is carried, for a module to look at until [`Scheduler::end_show`], and the time.
    #[inline]
    pub(crate) fn begin_show(&mut self) -> Option<(Instant, &Message)> {
        let hop = self.hop.as_ref()?;
        self.is_shown = true;
        Some((self.timers.now(), &hop.message))
    }

    #[inline]
    pub(crate) fn end_show(&mut self) {
        self.is_shown = false;
    }

    /// Discards the message that a module was shown when it panicked.
    #[cold]
    pub(crate) fn discard_shown(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            self.hop = None;
        }
    }

    /// Sends the message that is carried on, behind those that wait: these were sent on by its module before.
    #[inline]
    pub(crate) fn hop_to(&mut self, place: Place) {
        if let Some(hop) = &mut self.hop {
            hop.at.place = place;
        }
        if !self.posts.is_empty() {
            self.posts.extend(self.hop.take());
        }
    }

    /// Takes the message that is carried.
    #[inline(always)]
    pub(crate) fn take_hop(&mut self) -> Option<Post> {
        self.hop.take()
    }

    /// Begins to carry the first message on its way. Returns its next queue.
    #[inline]
    pub(crate) fn next_hop(&mut self) -> Option<QueueRef> {
        if self.hop.is_none() {
            self.hop = self.posts.pop_front();
        }
        self.hop_at()
    }

    #[inline]
    pub(crate) fn send(&mut self, errand: Errand) {
        self.errands.push_back(errand);
    }

    /// Returns the receive window of a discarded message to the driver of its stream.
    pub(crate) fn return_credit(&mut self, stream: StreamId, m: &Message) {
        if let Some(credit) = m.receive_credit()
            && credit.bytes > 0
        {
            self.send(Errand::Consumed { stream, credit });
        }
    }

    #[inline]
    pub(crate) fn has_errands(&self) -> bool {
        !self.errands.is_empty()
    }

    #[inline]
    pub(crate) fn next_errand(&mut self) -> Option<Errand> {
        self.errands.pop_front()
    }

    /// Returns whether every posted or sent message has been delivered.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.is_quiet() && self.errands.is_empty()
    }
}
