//! One shard: the executive behind its perimeter, and who waits for the network.
//!
//! One lock guards the executive, the protocol core and the link (the STREAMS perimeter); it is never held
//! while a thread sleeps. Work is done by the thread that asks for it:
//!
//! - A **sender** hands its message down. *Flush rule:* what is queued leaves when nothing is outstanding, when
//!   a batch or the window is full, when the thread blocks, or 50 µs after the first unsent message.
//! - A thread that must **wait** becomes the *leader*: it polls the sockets for everybody and hands out what
//!   arrives. The others are followers, each asleep until what it waits for is there; see [`crate::waiting`].
//! - When no thread waits, the **background** thread sees to the sockets, 1 ms after the last sign of life;
//!   see [`crate::background`].

use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use streams::{DriverId, Executive, FlushScope, StreamId};

use crate::background::Background;
use crate::busy_poll::BusyPoll;
use crate::options::StackOptions;
use crate::perimeter::Entered;
use crate::waiting::{Poller, Waiting};
use crate::watch::{Sleeper, Watch};

/// The longest that a message waits for others to share its packet with.
const FLUSH_AFTER: Duration = Duration::from_micros(50);
/// A busy sender looks at the clock this often within [`FLUSH_AFTER`].
const CLOCK_LOOKS: u32 = 4;
/// A busy sender looks at the clock at least once for so many messages.
const CLOCK_STRIDE_MAX: u32 = 64;

/// Receives in one go, so that a flood does not keep the perimeter closed for ever.
const RECEIVES_MAX: usize = 4;

/// Rounds in which packets that came back in memory are answered in one go, before others have their turn.
const TURNS_MAX: usize = 8;

/// State that the lock guards.
pub(crate) struct Inner {
    pub(crate) executive: Executive,
    pub(crate) driver: DriverId,
    pub(crate) poller: Poller,
    /// Moves whenever a thread of the user does something; the background thread watches it.
    pub(crate) activity: u64,
    /// A task of an async runtime polls the sockets while no thread does.
    pub(crate) has_task: bool,
    /// Such a task has failed: its runtime lacks what it needs.
    #[cfg(feature = "tokio")]
    pub(crate) task_failed: bool,
    pub(crate) waiting: Waiting,
    /// Duplicates of the link's sockets, to poll while the perimeter is open.
    pub(crate) sockets: Arc<[OwnedFd]>,
    pace: Pace,
    /// The sockets had more the last time: try them before sleeping.
    pub(crate) arrivals_likely: bool,
    /// Arrivals were taken since the last send that transmitted.
    looked: bool,
    pub(crate) busy_poll: BusyPoll,
    /// Why nothing could be received the last time.
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
    pub(crate) watch: Arc<Watch>,
    background: Background,
    /// How long one who waits looks before it sleeps.
    pub(crate) busy_poll: Duration,
}

/// The part that the handles of a user share. With the last one the sockets are closed at once, if nothing is left to do, though
/// others may look at the shard at that moment.
pub(crate) struct Hold(Arc<Shard>);

impl Shard {
    pub(crate) fn start(
        executive: Executive,
        driver: DriverId,
        options: &StackOptions,
    ) -> io::Result<Arc<Hold>> {
        let mut sockets = Ok(Vec::new());
        executive.descriptors(&mut |fd, _| match (&mut sockets, fd.try_clone_to_owned()) {
            (Ok(all), Ok(fd)) => all.push(fd),
            (_, Err(error)) => sockets = Err(error),
            (Err(_), _) => {}
        });
        let sockets: Arc<[OwnedFd]> = sockets?.into();
        let watch = Arc::new(Watch::new(&sockets)?);
        let shard = Arc::new(Shard {
            inner: Mutex::new(Inner {
                executive,
                driver,
                poller: Poller::None,
                activity: 0,
                has_task: false,
                #[cfg(feature = "tokio")]
                task_failed: false,
                waiting: Waiting::new(Arc::clone(&watch)),
                sockets,
                pace: Pace::default(),
                arrivals_likely: false,
                looked: false,
                busy_poll: BusyPoll::default(),
                fault: None,
                open_streams: 0,
            }),
            watch,
            background: Background::default(),
            busy_poll: options.busy_poll,
        });
        shard.background.start(&shard)?;
        Ok(Arc::new(Hold(shard)))
    }

    /// Enters the perimeter. A panic inside it was contained (see [`crate::fault`]), or changed nothing.
    #[inline]
    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered::new(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows a message that was handed down: transmits if the flush rule says so.
    #[inline]
    pub(crate) fn after_send(&self, inner: &mut Inner) {
        inner.activity += 1;
        if inner.poller == Poller::Background {
            inner.waiting.kick(Sleeper::Background);
        }
        if inner.executive.flush_due() {
            inner.flush(false);
            // SACKs come before the next decision to send, unless somebody has just looked for them.
            if !std::mem::take(&mut inner.looked) {
                inner.take_arrivals();
            }
        } else if inner.pace.overdue() {
            inner.flush(true);
        } else if inner.poller != Poller::Background {
            // The thread that polls the sockets sleeps: it does not see what is left unsent here.
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

    /// Follows a request to the provider, for stream `s` if it is for one: what it gives to send leaves, and those whom it
    /// concerns are woken.
    pub(crate) fn after_command(&self, inner: &mut Inner, s: Option<StreamId>) {
        inner.activity += 1;
        inner.guarded(s, |inner| inner.executive.run());
        inner.flush(true);
        inner.wake();
        self.background.arm();
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }
}

impl Inner {
    /// Transmits what is due, or everything that waits.
    pub(crate) fn flush(&mut self, everything: bool) {
        if self.pace.unsent_since.is_none() && !self.executive.has_unsent() && !self.executive.has_arrivals()
        {
            // The call may have started a timer.
            return self.mind_deadline();
        }
        self.guarded(None, |inner| inner.flush_now(everything));
    }

    fn flush_now(&mut self, everything: bool) {
        let now = Instant::now();
        self.executive.set_now(now);
        let scope = if everything { FlushScope::All } else { FlushScope::Due };
        self.executive.flush(now, scope);
        let waits = !everything && self.executive.has_unsent();
        self.pace.flushed(now, waits);
        if self.executive.has_arrivals() {
            // Packets to ourselves are there already.
            self.take_arrivals_now();
        } else {
            self.mind_deadline();
        }
    }

    /// Takes what has arrived, lets time act, answers, and wakes whom it concerns.
    pub(crate) fn take_arrivals(&mut self) {
        self.guarded(None, Inner::take_arrivals_now);
    }

    fn take_arrivals_now(&mut self) {
        self.looked = true;
        for turn in 1..=TURNS_MAX {
            let now = self.take_turn();
            // Answers to ourselves come before timers: where this process has waited for the processor, a timer that has
            // expired meanwhile would take for lost what lies here.
            if turn < TURNS_MAX && self.executive.has_arrivals() {
                continue;
            }
            self.let_time_act(now);
            if !self.executive.has_arrivals() {
                break;
            }
        }
        self.wake();
        self.mind_deadline();
    }

    /// Takes what has arrived and answers it. Returns when this began.
    fn take_turn(&mut self) -> Instant {
        let now = Instant::now();
        self.executive.set_now(now);
        for _ in 0..RECEIVES_MAX {
            let received = self.executive.receive(now);
            self.arrivals_likely = matches!(received, Ok(true));
            self.fault = received.err().map(|error| error.to_string());
            if !self.arrivals_likely {
                break;
            }
        }
        self.answer(now);
        now
    }

    /// Acts on timers that have expired.
    fn let_time_act(&mut self, now: Instant) {
        if self.executive.deadline().is_some_and(|at| at <= now) {
            self.executive.timeout(now);
            self.answer(now);
        }
    }

    fn answer(&mut self, now: Instant) {
        self.executive.run();
        if self.executive.flush_due() {
            self.executive.flush(now, FlushScope::Due);
        }
    }
}

impl Inner {
    /// Whether a message waits for others to share its packet with.
    pub(crate) fn has_unsent(&self) -> bool {
        self.pace.unsent_since.is_some()
    }

    /// Whether one has been waiting for longer than the flush rule allows.
    pub(crate) fn unsent_is_old(&self) -> bool {
        self.pace.unsent_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER)
    }

    /// Whether nothing is left to do: no stream is open and no association is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.open_streams == 0 && !self.executive.is_busy()
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

    /// Notes that all that was due has left; `waits` says whether something else waits on.
    fn flushed(&mut self, now: Instant, waits: bool) {
        if let Some(since) = self.unsent_since.take()
            && self.sent > 0
        {
            let elapsed = now.duration_since(since).max(Duration::from_nanos(1));
            let looks_apart = FLUSH_AFTER / CLOCK_LOOKS;
            let stride = looks_apart.as_nanos() * u128::from(self.sent) / elapsed.as_nanos();
            self.stride = u32::try_from(stride).unwrap_or(CLOCK_STRIDE_MAX).min(CLOCK_STRIDE_MAX);
        }
        self.unsent_since = waits.then_some(now);
        self.sent = 0;
        self.until_look = 0;
    }
}

impl Inner {
    /// Closes the sockets. Nobody uses the shard any more.
    pub(crate) fn dispose(&mut self) {
        self.executive = Executive::new(Instant::now());
        self.sockets = Arc::new([]);
    }
}

impl Hold {
    #[cfg(feature = "tokio")]
    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.0
    }
}

impl Deref for Hold {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut inner = self.0.enter();
        if inner.is_idle() {
            inner.dispose();
        } else {
            // Accepted messages are still delivered: the background thread sees to it.
            self.0.background.keep(Arc::clone(&self.0));
            inner.waiting.kick(Sleeper::Background);
            inner.waiting.kick(Sleeper::Task);
            self.0.background.arm();
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.watch.kick(Sleeper::Background);
        self.watch.kick(Sleeper::Task);
        self.background.wake();
    }
}
