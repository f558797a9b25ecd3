//! One shard: the executive behind its perimeter, and who waits for the network.
//!
//! One lock guards the executive, the protocol core and the link (the STREAMS perimeter); it is never held
//! while a thread sleeps. Work is done by the thread that asks for it:
//!
//! - A **sender** hands its message down. *Flush rule:* what is queued leaves when nothing is outstanding, when
//!   a batch or the window is full, when the thread blocks, or 50 µs after the first unsent message.
//! - A thread that must **wait** becomes the *leader*: it polls the sockets for everybody and hands out what
//!   arrives. The others are followers, each asleep until what it waits for is there.
//! - When no thread waits, the **background** thread sees to the sockets, 1 ms after the last sign of life;
//!   see [`crate::background`].

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::Thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use smallvec::SmallVec;
use streams::{DriverId, Executive, FlushScope, Interest, StreamId};

use crate::background::Background;

/// The longest that a message waits for others to share its packet with.
const FLUSH_AFTER: Duration = Duration::from_micros(50);
/// A busy sender looks at the clock this often within [`FLUSH_AFTER`].
const CLOCK_LOOKS: u32 = 4;
/// A busy sender looks at the clock at least once for so many messages.
const CLOCK_STRIDE_MAX: u32 = 64;

/// Receives in one go, so that a flood does not keep the perimeter closed for ever.
const RECEIVES_MAX: usize = 4;

/// Who is asleep in `ppoll`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Poller {
    None,
    /// A thread of the user.
    Leader,
    Background,
    /// Tasks of an async runtime, which is told of readiness and never sleeps in a call of ours.
    Tasks,
}

/// Somebody who waits for a stream.
enum Waiter {
    Thread(Thread),
    Task(Waker),
}

/// What the lock guards.
pub(crate) struct Inner {
    pub(crate) executive: Executive,
    pub(crate) driver: DriverId,
    pub(crate) poller: Poller,
    /// Moves whenever a thread of the user does something; the background thread watches it.
    pub(crate) activity: u64,
    waiters: HashMap<StreamId, Vec<Waiter>>,
    woken: Vec<StreamId>,
    pace: Pace,
    /// The sockets had more the last time: try them before sleeping.
    arrivals_likely: bool,
    pub(crate) fault: Option<String>,
    pub(crate) open_streams: usize,
}

/// When a busy sender looks at the clock.
#[derive(Default)]
struct Pace {
    unsent_since: Option<Instant>,
    until_look: u32,
    stride: u32,
    sent: u32,
}

/// A set of sockets with everything that runs on them.
pub(crate) struct Shard {
    inner: Mutex<Inner>,
    /// Duplicates of the link's sockets, to poll while the perimeter is open.
    descriptors: Vec<OwnedFd>,
    kick: EventFd,
    background: Background,
    nodelay: bool,
}

impl Shard {
    pub(crate) fn start(executive: Executive, driver: DriverId, nodelay: bool) -> io::Result<Arc<Self>> {
        let mut descriptors = Ok(Vec::new());
        executive.descriptors(&mut |fd, _| match (&mut descriptors, fd.try_clone_to_owned()) {
            (Ok(all), Ok(fd)) => all.push(fd),
            (_, Err(error)) => descriptors = Err(error),
            (Err(_), _) => {}
        });
        let kick = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let shard = Arc::new(Shard {
            inner: Mutex::new(Inner {
                executive,
                driver,
                poller: Poller::None,
                activity: 0,
                waiters: HashMap::new(),
                woken: Vec::new(),
                pace: Pace::default(),
                arrivals_likely: false,
                fault: None,
                open_streams: 0,
            }),
            descriptors: descriptors?,
            kick,
            background: Background::default(),
            nodelay,
        });
        shard.background.start(&shard)?;
        Ok(shard)
    }

    /// Enters the perimeter. A panic inside it has failed one stream, not the rest: the state stays usable.
    #[inline]
    pub(crate) fn enter(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a message that was handed down: transmits if the flush rule says so.
    #[inline]
    pub(crate) fn after_send(&self, inner: &mut Inner) {
        inner.activity += 1;
        if inner.poller == Poller::Background {
            self.kick();
        }
        if inner.executive.flush_due() || self.nodelay {
            inner.flush(self.nodelay);
        } else if inner.pace.overdue() {
            inner.flush(true);
        } else if inner.poller == Poller::None {
            self.background.arm();
        }
    }

    /// Follows a message that was read: a window update leaves when it is due.
    #[inline]
    pub(crate) fn after_read(&self, inner: &mut Inner) {
        inner.activity += 1;
        if inner.executive.flush_due() {
            inner.flush(false);
        }
        if inner.poller == Poller::None {
            self.background.arm();
        }
    }

    /// Waits until something may have changed for stream `s`; the caller looks again and comes back.
    /// False: the deadline has passed.
    pub(crate) fn wait<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        s: StreamId,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Inner>, bool) {
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
        match inner.poller {
            Poller::Leader | Poller::Tasks => return self.follow(inner, s, interest, deadline),
            Poller::Background => self.kick(),
            Poller::None => {}
        }
        inner.poller = Poller::Leader;
        let (mut inner, in_time) = self.lead(inner, deadline);
        inner.poller = Poller::None;
        if inner.is_ready(s, interest) || !in_time {
            inner.hand_over_lead();
            self.background.arm();
        }
        (inner, in_time)
    }

    /// Sleeps on the sockets once and handles what woke it.
    pub(crate) fn lead<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Inner>, bool) {
        let due = [inner.executive.deadline(), deadline].into_iter().flatten().min();
        let mut write = false;
        inner.executive.descriptors(&mut |_, interest| write |= interest.intersects(Interest::WRITABLE));
        drop(inner);
        self.poll(due, write);
        let mut inner = self.enter();
        inner.take_arrivals();
        let in_time = deadline.is_none_or(|d| Instant::now() < d);
        (inner, in_time)
    }

    /// Sleeps until the thread that polls has something for `s`.
    fn follow<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        s: StreamId,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Inner>, bool) {
        inner.executive.want(s, interest);
        inner.waiters.entry(s).or_default().push(Waiter::Thread(std::thread::current()));
        drop(inner);
        match deadline {
            None => std::thread::park(),
            Some(d) => std::thread::park_timeout(d.saturating_duration_since(Instant::now())),
        }
        let mut inner = self.enter();
        let me = std::thread::current().id();
        if let Some(waiters) = inner.waiters.get_mut(&s) {
            waiters.retain(|w| !matches!(w, Waiter::Thread(t) if t.id() == me));
        }
        (inner, deadline.is_none_or(|d| Instant::now() < d))
    }

    /// Registers a task that waits for a stream.
    #[cfg(feature = "tokio")]
    pub(crate) fn wait_task(&self, inner: &mut Inner, s: StreamId, interest: Interest, waker: &Waker) {
        inner.activity += 1;
        inner.flush(true);
        inner.executive.want(s, interest);
        let waiters = inner.waiters.entry(s).or_default();
        if !waiters.iter().any(|w| matches!(w, Waiter::Task(t) if t.will_wake(waker))) {
            waiters.push(Waiter::Task(waker.clone()));
        }
    }

    fn poll(&self, due: Option<Instant>, write: bool) {
        let timeout = due.map(|at| TimeSpec::from(at.saturating_duration_since(Instant::now())));
        let events = if write { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let mut fds: SmallVec<[PollFd<'_>; 4]> = SmallVec::new();
        fds.push(PollFd::new(self.kick.as_fd(), PollFlags::POLLIN));
        fds.extend(self.descriptors.iter().map(|fd| PollFd::new(fd.as_fd(), events)));
        // An interrupted or failed poll is a look too early, no more.
        let _ = ppoll(&mut fds, timeout, None);
        if fds[0].revents().is_some_and(|r| r.contains(PollFlags::POLLIN)) {
            let _ = self.kick.read();
        }
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// Ends a sleep of the background thread on the sockets.
    fn kick(&self) {
        // A full counter is a kick, too.
        let _ = self.kick.write(1);
    }
}

impl Inner {
    /// Transmits what is due, or everything that waits, and handles what has arrived meanwhile: SACKs come before
    /// the next decision to send.
    pub(crate) fn flush(&mut self, everything: bool) {
        let now = Instant::now();
        let scope = if everything { FlushScope::All } else { FlushScope::Due };
        self.executive.flush(now, scope);
        self.pace.flushed(now);
        if !everything {
            self.receive(now);
        }
    }

    /// Takes what has arrived, lets time act, answers, and wakes whom it concerns.
    pub(crate) fn take_arrivals(&mut self) {
        let now = Instant::now();
        self.receive(now);
    }

    fn receive(&mut self, now: Instant) {
        for _ in 0..RECEIVES_MAX {
            match self.executive.receive(now) {
                Ok(more) if more => {}
                Ok(_) => {
                    self.arrivals_likely = false;
                    break;
                }
                Err(error) => {
                    self.fault = Some(error.to_string());
                    break;
                }
            }
        }
        if self.executive.deadline().is_some_and(|at| at <= now) {
            self.executive.timeout(now);
        }
        self.executive.run();
        if self.executive.flush_due() {
            self.executive.flush(now, FlushScope::Due);
        }
        self.wake();
    }

    /// Whether a reader or writer of `s` would find something to do.
    pub(crate) fn is_ready(&mut self, s: StreamId, interest: Interest) -> bool {
        let ready = self.executive.poll(s);
        ready.error || ready.hangup || ready.interest().intersects(interest)
    }

    /// Wakes those whose streams have become ready.
    pub(crate) fn wake(&mut self) {
        self.executive.take_wakeups(&mut self.woken);
        for s in self.woken.drain(..) {
            for waiter in self.waiters.remove(&s).into_iter().flatten() {
                waiter.wake();
            }
        }
    }

    /// The leader leaves: one of those who wait takes its place.
    fn hand_over_lead(&mut self) {
        let next = self.waiters.values().flatten().find_map(|w| match w {
            Waiter::Thread(thread) => Some(thread.clone()),
            Waiter::Task(_) => None,
        });
        if let Some(thread) = next {
            thread.unpark();
        }
    }
}

impl Inner {
    /// Whether a message has been waiting for longer than the flush rule allows.
    pub(crate) fn unsent_is_old(&self) -> bool {
        self.pace.unsent_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER)
    }

    /// Whether nothing can arrive and no timer runs: no stream is open and no association is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.open_streams == 0 && self.executive.deadline().is_none()
    }
}

impl Waiter {
    fn wake(self) {
        match self {
            Waiter::Thread(thread) => thread.unpark(),
            Waiter::Task(waker) => waker.wake(),
        }
    }
}

impl Pace {
    /// Whether the first unsent message has waited long enough. The clock is read for the first message of a
    /// batch and then a few times within [`FLUSH_AFTER`], as the rate of the last batch suggests.
    #[inline]
    fn overdue(&mut self) -> bool {
        self.sent += 1;
        if self.until_look > 0 {
            self.until_look -= 1;
            return false;
        }
        let now = Instant::now();
        let Some(since) = self.unsent_since else {
            self.unsent_since = Some(now);
            self.until_look = self.stride;
            return false;
        };
        self.until_look = self.stride;
        now.duration_since(since) >= FLUSH_AFTER
    }

    fn flushed(&mut self, now: Instant) {
        if let Some(since) = self.unsent_since.take()
            && self.sent > 0
        {
            let elapsed = now.duration_since(since).max(Duration::from_nanos(1));
            let looks_apart = FLUSH_AFTER / CLOCK_LOOKS;
            let stride = looks_apart.as_nanos() * u128::from(self.sent) / elapsed.as_nanos();
            self.stride = u32::try_from(stride).unwrap_or(CLOCK_STRIDE_MAX).min(CLOCK_STRIDE_MAX);
        }
        self.sent = 0;
        self.until_look = 0;
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.background.wake();
    }
}
