//! Waiting: who sleeps on the sockets for everybody, and who sleeps until it is told.
//!
//! At most one thread of the user polls the sockets, the *leader*. The background thread and the task that
//! drives an async runtime poll, too, while no thread does. Whoever polls has left the perimeter, so what
//! concerns it meanwhile must end its sleep: a message for it that another thread took in, or a timer that
//! was started and is due before it meant to wake up.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Instant;

use smallvec::SmallVec;
use streams::{Interest, StreamId};

use crate::perimeter::Entered;
use crate::shard::{Inner, Shard};
use crate::watch::{Sleeper, Watch};

/// The thread that polls the sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Poller {
    None,
    /// A thread of the user.
    Leader,
    Background,
    /// A task of an async runtime. It cannot be relied upon by a thread that sleeps: the task may be due to
    /// run on that very thread.
    Task,
}

/// A sleep on the sockets.
#[derive(Clone, Copy)]
struct Sleep {
    /// The stream and the events that the sleeper itself waits for.
    purpose: Option<(StreamId, Interest)>,
    until: Option<Instant>,
    kicked: bool,
}

/// Everybody who sleeps.
pub(crate) struct Waiting {
    watch: Arc<Watch>,
    sleeps: [Option<Sleep>; Sleeper::ALL.len()],
    by_stream: HashMap<StreamId, SmallVec<[Waiter; 1]>>,
    next_ticket: u64,
    /// The watch looks for room to send, too.
    watches_room: bool,
    /// A scratch list of streams that have become ready.
    ready: Vec<StreamId>,
    #[cfg(feature = "tokio")]
    outside: Outside,
}

/// Wakers to be woken or dropped once the perimeter has been left; dropping this does it.
#[cfg(feature = "tokio")]
#[derive(Default)]
pub(crate) struct Outside {
    wake: Vec<std::task::Waker>,
    drop: Vec<std::task::Waker>,
}

#[cfg(feature = "tokio")]
impl Drop for Outside {
    fn drop(&mut self) {
        self.wake.drain(..).for_each(std::task::Waker::wake);
    }
}

/// Names one registration of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u64);

/// Somebody who waits for a stream until it is told.
struct Waiter {
    ticket: Ticket,
    interest: Interest,
    who: Who,
}

pub(crate) enum Who {
    Thread(Thread),
    #[cfg(feature = "tokio")]
    Task(std::task::Waker),
}

impl Who {
    fn as_thread(&self) -> Option<&Thread> {
        match self {
            Who::Thread(thread) => Some(thread),
            #[cfg(feature = "tokio")]
            Who::Task(_) => None,
        }
    }
}

impl Waiting {
    pub(crate) fn new(watch: Arc<Watch>) -> Self {
        Waiting {
            watch,
            sleeps: [None; Sleeper::ALL.len()],
            by_stream: HashMap::new(),
            next_ticket: 0,
            watches_room: false,
            ready: Vec::new(),
            #[cfg(feature = "tokio")]
            outside: Outside::default(),
        }
    }

    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn has_outside(&self) -> bool {
        !self.outside.wake.is_empty() || !self.outside.drop.is_empty()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn take_outside(&mut self) -> Outside {
        std::mem::take(&mut self.outside)
    }

    /// Ends a sleep on the sockets.
    pub(crate) fn kick(&mut self, who: Sleeper) {
        if let Some(sleep) = &mut self.sleeps[who as usize]
            && !std::mem::replace(&mut sleep.kicked, true)
        {
            self.watch.kick(who);
        }
    }

    /// Returns the events that all waiters of a stream want together.
    fn wanted(&self, s: StreamId) -> Interest {
        let sleepers = self.sleeps.iter().flatten().filter(|sleep| !sleep.kicked);
        let theirs = sleepers.filter_map(|sleep| sleep.purpose).filter(|(other, _)| *other == s);
        let waiters = self.by_stream.get(&s).into_iter().flatten().map(|waiter| waiter.interest);
        theirs.map(|(_, interest)| interest).chain(waiters).fold(Interest::NONE, |all, one| all | one)
    }

    fn remove(&mut self, s: StreamId, ticket: Ticket) {
        let Some(waiters) = self.by_stream.get_mut(&s) else { return };
        if let Some(at) = waiters.iter().position(|waiter| waiter.ticket == ticket) {
            match waiters.swap_remove(at).who {
                Who::Thread(_) => {}
                #[cfg(feature = "tokio")]
                Who::Task(waker) => self.outside.drop.push(waker),
            }
        }
        if waiters.is_empty() {
            self.by_stream.remove(&s);
        }
    }

    /// Tells those who wait for any of `ready`.
    fn tell(&mut self, s: StreamId, ready: Interest) {
        if let Some(waiters) = self.by_stream.get_mut(&s) {
            let mut i = 0;
            while i < waiters.len() {
                if waiters[i].interest.intersects(ready) {
                    match waiters.swap_remove(i).who {
                        Who::Thread(thread) => thread.unpark(),
                        #[cfg(feature = "tokio")]
                        Who::Task(waker) => self.outside.wake.push(waker),
                    }
                } else {
                    i += 1;
                }
            }
            if waiters.is_empty() {
                self.by_stream.remove(&s);
            }
        }
        for who in Sleeper::ALL {
            if let Some(Sleep { purpose: Some((for_stream, interest)), .. }) = self.sleeps[who as usize]
                && for_stream == s
                && interest.intersects(ready)
            {
                self.kick(who);
            }
        }
    }
}

impl Inner {
    /// Registers somebody who is to be told when `s` is ready.
    pub(crate) fn register(&mut self, s: StreamId, interest: Interest, who: Who) -> Ticket {
        let ticket = Ticket(self.waiting.next_ticket);
        self.waiting.next_ticket += 1;
        self.waiting.by_stream.entry(s).or_default().push(Waiter { ticket, interest, who });
        self.want(s);
        // Should it be there already, this tells it.
        self.wake();
        ticket
    }

    pub(crate) fn unregister(&mut self, s: StreamId, ticket: Ticket) {
        self.waiting.remove(s, ticket);
    }

    /// Lets the head of a stream know what is waited for.
    fn want(&mut self, s: StreamId) {
        let wanted = self.waiting.wanted(s);
        if wanted != Interest::NONE {
            self.executive.want(s, wanted);
        }
    }

    /// The streams are gone: everybody who waits looks again.
    pub(crate) fn tell_everybody(&mut self) {
        let all: Vec<StreamId> = self.waiting.by_stream.keys().copied().collect();
        for s in all {
            self.waiting.tell(s, Interest::READABLE | Interest::WRITABLE);
        }
        for who in Sleeper::ALL {
            self.waiting.kick(who);
        }
    }

    /// Wakes those whose streams have become ready.
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
            self.waiting.tell(s, what);
            // Somebody else may have taken what was there: who waits on is listed again.
            self.want(s);
        }
        self.waiting.ready = ready;
    }

    /// Whether a reader or writer of `s` would find something to do.
    pub(crate) fn is_ready(&mut self, s: StreamId, interest: Interest) -> bool {
        self.readiness(s).intersects(interest)
    }

    fn readiness(&mut self, s: StreamId) -> Interest {
        let ready = self.executive.poll(s);
        match ready.error || ready.hangup {
            true => Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY,
            false => ready.interest(),
        }
    }

    /// A timer may have been started: whoever sleeps on the sockets must not sleep past it.
    #[inline]
    pub(crate) fn mind_deadline(&mut self) {
        if let Some(who) = Sleeper::ALL.into_iter().find(|who| self.waiting.sleeps[*who as usize].is_some()) {
            self.mind_deadline_of(who);
        }
    }

    fn mind_deadline_of(&mut self, who: Sleeper) {
        let (Some(deadline), Some(sleep)) = (self.next_look(), self.waiting.sleeps[who as usize]) else {
            return;
        };
        if sleep.until.is_none_or(|until| deadline < until) {
            self.waiting.kick(who);
        }
    }

    /// When somebody is to look again, whatever the sockets say.
    fn next_look(&self) -> Option<Instant> {
        match self.executive.has_arrivals() {
            true => Some(Instant::now()),
            false => self.executive.deadline(),
        }
    }

    /// Notes that somebody goes to sleep on the sockets; says until when.
    fn fall_asleep(
        &mut self,
        who: Sleeper,
        purpose: Option<(StreamId, Interest)>,
        deadline: Option<Instant>,
    ) -> Option<Instant> {
        let until = [self.next_look(), deadline].into_iter().flatten().min();
        self.waiting.sleeps[who as usize] = Some(Sleep { purpose, until, kicked: false });
        if let Some((s, _)) = purpose {
            self.want(s);
            // Should it be there already, this ends the sleep before it begins.
            self.wake();
        }
        until
    }

    /// Whether the link has refused a batch and waits for room.
    pub(crate) fn is_refused(&self) -> bool {
        let mut refused = false;
        self.executive.descriptors(&mut |_, interest| refused |= interest.intersects(Interest::WRITABLE));
        refused
    }

    pub(crate) fn wake_up(&mut self, who: Sleeper) {
        self.waiting.sleeps[who as usize] = None;
    }

    /// One of the threads that wait takes the lead, if there is one.
    fn hand_over_lead(&mut self) {
        let mut waiters = self.waiting.by_stream.values().flatten();
        if let Some(thread) = waiters.find_map(|waiter| waiter.who.as_thread()) {
            thread.unpark();
        }
    }
}

impl Shard {
    /// Waits until something may have changed for stream `s`; the caller looks again and comes back, or leaves by
    /// [`Shard::after_wait`]. False: the deadline has passed.
    pub(crate) fn wait<'a>(
        &'a self,
        mut inner: Entered<'a>,
        s: StreamId,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> (Entered<'a>, bool) {
        inner.activity += 1;
        // A thread that blocks sends first what it has queued.
        inner.flush(true);
        if inner.arrivals_likely {
            // Sleeping costs more than a look.
            inner.take_arrivals();
            if inner.is_ready(s, interest) {
                return (inner, true);
            }
        }
        if inner.poller != Poller::Leader && inner.busy_poll.is_worth_it() {
            let ready;
            (inner, ready) = self.look(inner, s, interest);
            if ready {
                return (inner, true);
            }
        }
        match inner.poller {
            Poller::Leader => return self.follow(inner, s, interest, deadline),
            Poller::Background => inner.waiting.kick(Sleeper::Background),
            Poller::None | Poller::Task => {}
        }
        inner.poller = Poller::Leader;
        let (mut inner, in_time) = self.lead(inner, (s, interest), deadline);
        inner.poller = if inner.has_task { Poller::Task } else { Poller::None };
        let ready = inner.is_ready(s, interest);
        (inner, in_time || ready)
    }

    /// Follows the last [`Shard::wait`] of a call, whatever ended it. The lead may be free, or offered to this thread, which
    /// goes away: another that waits takes it, or the background thread.
    pub(crate) fn after_wait(&self, inner: &mut Inner) {
        if matches!(inner.poller, Poller::None | Poller::Task) {
            inner.hand_over_lead();
        }
        self.background().arm();
    }

    /// Looks at the sockets for a moment. The perimeter is open between two looks.
    fn look<'a>(&'a self, mut inner: Entered<'a>, s: StreamId, interest: Interest) -> (Entered<'a>, bool) {
        let began = Instant::now();
        let limit = self.busy_poll * inner.busy_poll.patience();
        while began.elapsed() < limit {
            inner.take_arrivals();
            if inner.is_ready(s, interest) {
                // A packet that came while another thread ran on this processor would have come without busy polling, too.
                if began.elapsed() < limit {
                    inner.busy_poll.paid();
                } else {
                    inner.busy_poll.was_in_vain();
                }
                return (inner, true);
            }
            drop(inner);
            std::hint::spin_loop();
            inner = self.enter();
        }
        inner.busy_poll.was_in_vain();
        // Another may have taken it in while the perimeter was open.
        let ready = inner.is_ready(s, interest);
        (inner, ready)
    }

    /// Sleeps on the sockets once and handles what woke it.
    fn lead<'a>(
        &'a self,
        mut inner: Entered<'a>,
        purpose: (StreamId, Interest),
        deadline: Option<Instant>,
    ) -> (Entered<'a>, bool) {
        let until = inner.fall_asleep(Sleeper::Leader, Some(purpose), deadline);
        let room = inner.is_refused();
        let sockets = Arc::clone(&inner.sockets);
        drop(inner);
        self.watch.lead(&sockets, until, room);
        let mut inner = self.enter();
        inner.wake_up(Sleeper::Leader);
        inner.take_arrivals();
        let in_time = deadline.is_none_or(|d| Instant::now() < d);
        (inner, in_time)
    }

    /// One who holds no stream goes to sleep on the [`Watch`], outside the perimeter; says until when.
    pub(crate) fn stand_by(&self, inner: &mut Inner, who: Sleeper) -> Option<Instant> {
        let room = inner.is_refused();
        if room != inner.waiting.watches_room {
            inner.waiting.watches_room = room;
            self.watch.for_room(&inner.sockets, room);
        }
        inner.fall_asleep(who, None, None)
    }

    /// Handles what woke one who stood by.
    pub(crate) fn resume(&self, inner: &mut Inner, who: Sleeper) {
        inner.wake_up(who);
        inner.take_arrivals();
    }

    /// Sleeps until the thread that polls has something for `s`.
    fn follow<'a>(
        &'a self,
        mut inner: Entered<'a>,
        s: StreamId,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> (Entered<'a>, bool) {
        let ticket = inner.register(s, interest, Who::Thread(std::thread::current()));
        drop(inner);
        match deadline {
            None => std::thread::park(),
            Some(d) => std::thread::park_timeout(d.saturating_duration_since(Instant::now())),
        }
        let mut inner = self.enter();
        inner.unregister(s, ticket);
        let ready = inner.is_ready(s, interest);
        let in_time = ready || deadline.is_none_or(|d| Instant::now() < d);
        (inner, in_time)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::socket::{Patience, Socket, Style};
    use crate::{Stack, StackOptions};

    /// Waits until the shard is as `is` wants it.
    fn until(socket: &Socket, is: impl Fn(&Inner) -> bool) {
        while !is(&socket.shard.enter()) {
            thread::yield_now();
        }
    }

    fn leads(inner: &Inner, socket: &Socket) -> bool {
        let sleep = inner.waiting.sleeps[Sleeper::Leader as usize];
        sleep.and_then(|sleep| sleep.purpose).is_some_and(|(s, _)| s == socket.stream)
    }

    #[test]
    fn a_leader_that_leaves_before_its_stream_is_ready_hands_the_lead_on() {
        let options = StackOptions {
            udp_port: Some(0),
            local_addresses: vec!["127.0.0.1".parse().expect("an address")],
            ..StackOptions::default()
        };
        let stack = Stack::bind(&options).expect("a free port");
        let sockets = [(); 2].map(|()| Socket::open(&stack.shard, Style::OneToMany).expect("room"));
        let done = [(); 2].map(|()| AtomicBool::new(false));
        let wait = |number: usize| {
            let attempt = |_: &mut Inner| done[number].load(Ordering::Relaxed).then_some(());
            sockets[number].until(Interest::READABLE, Patience::Forever, attempt)
        };
        thread::scope(|scope| {
            scope.spawn(|| wait(0));
            until(&sockets[0], |inner| leads(inner, &sockets[0]));
            scope.spawn(|| wait(1));
            until(&sockets[1], |inner| inner.waiting.by_stream.contains_key(&sockets[1].stream));
            // Its attempt comes to a result although nothing is there to be read.
            done[0].store(true, Ordering::Relaxed);
            sockets[0].shard.enter().waiting.kick(Sleeper::Leader);
            until(&sockets[1], |inner| leads(inner, &sockets[1]));
            done[1].store(true, Ordering::Relaxed);
            sockets[1].shard.enter().waiting.kick(Sleeper::Leader);
        });
    }
}
