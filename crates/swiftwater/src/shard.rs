//! One shard: the executive behind its perimeter, and the rules for sending and receiving.
//!
//! One lock guards the executive, the protocol core and the link (the STREAMS perimeter); it is never held while a thread sleeps.
//! Work is done by the thread that asks for it:
//!
//! - A **sender** hands its message down. Queued data is transmitted when the core says so (the *flush rule*, see
//!   [`FlushWhen`](sctp::FlushWhen)), when the thread blocks, or 50 µs after the first unsent message.
//! - A thread that must **wait** becomes the *leader*: it polls the sockets for all threads and distributes what
//!   arrives. The other threads are followers, each asleep until its stream is ready; see [`waiting`].
//! - When no thread waits, the **background** thread serves the sockets, 1 ms after the last activity; see
//!   [`background`].

mod arrivals;
mod background;
mod fault;
mod perimeter;
mod poller;
mod waiting;

use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use providers::SctpDriver;
use streams::{DriverId, Executive, FlushScope, StreamId};

use self::arrivals::Arrivals;
use self::background::Background;
pub(crate) use self::perimeter::Entered;
use self::poller::{Poller, PollerState};
pub(crate) use self::waiting::OBSERVER_INTEREST;
use self::waiting::Waiting;
#[cfg(feature = "tokio")]
pub(crate) use self::waiting::{Ticket, WakeTarget};
use crate::busy_poll::BusyPoll;
use crate::flush_delay::FlushDelay;
use crate::options::StackOptions;
use crate::staged::{StagedExecutive, Written};
use crate::watch::{Sleeper, Watch};

/// State that the lock guards.
pub(crate) struct Inner {
    pub(crate) executive: StagedExecutive,
    poller: PollerState,
    arrivals: Arrivals,
    /// Incremented at each call of a thread of the program; the background thread compares it.
    activity: u64,
    waiting: Waiting,
    /// Duplicates of the link's sockets, to poll while the perimeter is open.
    sockets: Arc<[OwnedFd]>,
    flush_delay: FlushDelay,
    busy_poll: BusyPoll,
    open_streams: usize,
}

/// A set of sockets with everything that runs on them.
pub(crate) struct Shard {
    inner: Mutex<Inner>,
    pub(crate) watch: Arc<Watch>,
    background: Background,
    busy_poll_max: Duration,
}

/// The owner that the program's handles share. Dropping the last handle closes the sockets at once if no work is left, even
/// if other threads have the shard locked at that moment.
pub(crate) struct ShardOwner(Arc<Shard>);

impl Shard {
    pub(crate) fn start(
        executive: Executive,
        driver: DriverId,
        options: &StackOptions,
    ) -> io::Result<Arc<ShardOwner>> {
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
                executive: StagedExecutive::new(executive, driver),
                poller: PollerState::new(),
                arrivals: Arrivals::default(),
                activity: 0,
                waiting: Waiting::new(Arc::clone(&watch)),
                sockets,
                flush_delay: FlushDelay::default(),
                busy_poll: BusyPoll::default(),
                open_streams: 0,
            }),
            watch,
            background: Background::default(),
            busy_poll_max: options.busy_poll,
        });
        let weak = Arc::downgrade(&shard);
        let tell = move || {
            if let Some(shard) = weak.upgrade() {
                shard.on_memory_released();
            }
        };
        shard.enter().executive.with_messages_queued().set_memory_notify(Box::new(tell));
        shard.background.start(&shard)?;
        shard.background.arm();
        Ok(Arc::new(ShardOwner(shard)))
    }

    /// Enters the perimeter. A poisoned lock is safe: a panic inside was either contained (see [`fault`]) or changed nothing.
    #[inline]
    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered::new(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes the sending of a message: transmits if the core is due to, or a message has waited long enough.
    #[inline]
    pub(crate) fn after_send(&self, inner: &mut Inner, written: Written) {
        inner.activity += 1;
        if inner.poller.current() == Poller::Background {
            inner.waiting.interrupt(Sleeper::Background);
        }
        if written == Written::MayBeDue && inner.executive.flush_due() {
            inner.flush(false);
            // The sender reads SACKs before its next decision to send, unless a thread has just taken arrivals.
            if !inner.arrivals.take_arrived() {
                inner.take_arrivals();
            }
        } else if inner.flush_delay.on_send() {
            inner.flush(true);
        } else if inner.poller.current() != Poller::Background {
            // The thread that polls the sockets sleeps, and does not see the unsent message.
            self.background.arm();
        }
    }

    /// Completes the reading of a message: transmits a window update if one is due.
    #[inline]
    pub(crate) fn after_read(&self, inner: &mut Inner) {
        inner.activity += 1;
        if inner.executive.flush_due() {
            inner.flush(false);
        }
        if inner.poller.current() == Poller::None {
            self.background.arm();
        }
    }

    /// Completes a request to the provider, on behalf of stream `s` if there is one: transmits the resulting packets
    /// and wakes the affected waiters.
    pub(crate) fn after_command(&self, inner: &mut Inner, s: Option<StreamId>) {
        inner.activity += 1;
        inner.guarded(s, |inner| inner.executive.at(Instant::now()).run());
        inner.flush(true);
        inner.wake();
        inner.notify_observers();
        self.background.arm();
    }

    /// Arms the background thread: nothing polls the sockets, or a message is unsent.
    pub(crate) fn arm_background(&self) {
        self.background.arm();
    }

    /// Ensures that the executive runs soon, since a module waits for memory that was released. The caller may be inside the
    /// perimeter, or not.
    fn on_memory_released(&self) {
        Sleeper::ALL.into_iter().for_each(|sleeper| self.watch.interrupt(sleeper));
        self.background.arm();
    }

    /// Calls the provider. Returns `None` if a fault has closed the stack.
    pub(crate) fn with_driver<R>(&self, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
        let mut inner = self.enter();
        inner.guarded(None, |inner| inner.executive.provider(f)).flatten()
    }
}

impl Inner {
    /// Transmits the data that is due, or all queued data.
    pub(crate) fn flush(&mut self, everything: bool) {
        if !self.flush_delay.has_unsent() && !self.executive.has_unsent() && !self.executive.has_arrivals() {
            // The call may have started a timer.
            return self.shorten_sleep();
        }
        self.guarded(None, |inner| inner.flush_now(everything));
    }

    fn flush_now(&mut self, everything: bool) {
        let now = Instant::now();
        let scope = if everything { FlushScope::All } else { FlushScope::Due };
        self.executive.with_messages_queued().flush(now, scope);
        let waits = !everything && self.executive.has_unsent();
        self.flush_delay.on_flushed(now, waits);
        if self.executive.has_arrivals() {
            // Packets to this stack itself have already arrived.
            self.take_arrivals_from(now);
        } else {
            self.shorten_sleep();
        }
    }

    /// Returns whether a message waits for others to share its packet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.flush_delay.has_unsent()
    }

    /// Returns whether a message has waited longer than the flush rule permits.
    pub(crate) fn is_unsent_old(&self) -> bool {
        self.flush_delay.is_unsent_old()
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn has_open_streams(&self) -> bool {
        self.open_streams > 0
    }

    /// Returns why the link has failed, if the last receive did.
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        let error = self.arrivals.take_error()?;
        Some(format!("the link has failed: {error}"))
    }

    /// Opens a stream; `None` if the system lacks resources or a fault has closed the stack.
    pub(crate) fn open_stream(&mut self) -> Option<StreamId> {
        let opened = self.guarded(None, |inner| inner.executive.open());
        let stream = opened.and_then(Result::ok)?;
        self.open_streams += 1;
        Some(stream)
    }

    pub(crate) fn close_stream(&mut self, s: StreamId) {
        self.guarded(Some(s), |inner| inner.executive.at(Instant::now()).close(s));
        self.open_streams -= 1;
        self.wake();
    }

    /// Returns whether no work is left: no stream is open and no association exists.
    pub(crate) fn is_idle(&self) -> bool {
        self.open_streams == 0 && !self.executive.is_busy()
    }

    /// Closes the sockets of a shard that nothing uses any more.
    pub(crate) fn dispose(&mut self) {
        self.executive.dispose();
        self.sockets = Arc::new([]);
    }
}

impl ShardOwner {
    #[cfg(feature = "tokio")]
    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.0
    }
}

impl Deref for ShardOwner {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.0
    }
}

impl Drop for ShardOwner {
    fn drop(&mut self) {
        let mut inner = self.0.enter();
        if inner.is_idle() {
            inner.dispose();
        } else {
            // The background thread keeps the shard until it has delivered the accepted messages.
            self.0.background.keep(Arc::clone(&self.0));
            inner.waiting.interrupt(Sleeper::Background);
            inner.waiting.interrupt(Sleeper::Task);
            self.0.background.arm();
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.watch.interrupt(Sleeper::Background);
        self.watch.interrupt(Sleeper::Task);
        self.background.wake();
    }
}
