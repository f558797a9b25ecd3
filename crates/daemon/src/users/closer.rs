//! Closes descriptors of programs without delaying other users.
//!
//! The owner of a descriptor decides how long its last close takes: a TCP socket waits for its peer (`SO_LINGER`), a
//! file of FUSE for its server, any socket for the holder of the lock of an epoll instance that watches it. So the
//! daemon's thread closes no descriptor of a program, and no socket of its own whose queue may contain such
//! descriptors. A separate thread closes them, one for each user and source: while one is stuck, requests of this
//! user fail, and no others.

mod received;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

pub(crate) use self::received::{
    End, Peeked, ReceivedDescriptor, ReceivedMessage, all_received, gone, peek, receive,
};
use crate::system::lock::lock;
use crate::users::descriptor_budget::{DescriptorBudget, DescriptorPermit};
use crate::users::division::{MESSAGE_DESCRIPTORS_MAX, Use};
use crate::users::thread_time::ThreadTime;
use crate::users::threads::{Threads, UserThreads};
use crate::users::worker::{WORKERS_MAX, Worker};

/// Time that a request waits for a closer that is stuck.
pub(crate) const STUCK_WAIT: Duration = Duration::from_secs(2);
/// Maximum number of descriptors that wait to be closed for one user and source.
const PENDING_MAX: usize = 2 * MESSAGE_DESCRIPTORS_MAX;
/// Number of waiting descriptors beyond which the daemon's thread closes itself what certainly does not block.
const BEHIND_AFTER: usize = MESSAGE_DESCRIPTORS_MAX;
/// Maximum time that an answer waits until the descriptor of its request is closed.
const CLOSE_WAIT: Duration = Duration::from_millis(50);

/// The source of descriptors. A program that was passed another user's socket may write into its pair; separate
/// sources keep this from affecting that user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Requests,
    Pairs,
}

impl Source {
    pub(crate) const ALL: [Source; 2] = [Source::Requests, Source::Pairs];

    /// Returns the use of descriptors from this source.
    fn descriptors(self) -> Use {
        match self {
            Source::Requests => Use::Requests,
            Source::Pairs => Use::FromPairs,
        }
    }
}

/// The closers of all users of a daemon, and their workers.
pub(crate) struct Closers {
    descriptors: Arc<DescriptorBudget>,
    threads: Arc<Threads>,
    users: Mutex<HashMap<u32, User>>,
}

/// The threads of a user, which end when nothing needs them, and the time that calls on its sockets take.
#[derive(Default)]
struct User {
    requests: Weak<UserThreads>,
    pairs: Weak<UserThreads>,
    worker: Weak<UserThreads>,
    time: Arc<ThreadTime>,
}

impl User {
    /// Returns whether nothing is lost if this is forgotten.
    fn is_idle(&self) -> bool {
        let all = [&self.requests, &self.pairs, &self.worker];
        let has_threads = all.iter().any(|threads| threads.strong_count() > 0);
        !has_threads && Arc::strong_count(&self.time) == 1 && self.time.is_idle()
    }
}

/// Closes the descriptors from one user and source.
pub(crate) struct Closer {
    user: u32,
    source: Source,
    descriptors: Arc<DescriptorBudget>,
    /// The thread that closes. There is one, so descriptors are closed in order.
    thread: Arc<UserThreads>,
    worker: Worker,
    /// The time that calls on sockets of the user take.
    time: Arc<ThreadTime>,
}

impl Closers {
    pub(crate) fn new(descriptors: Arc<DescriptorBudget>) -> Closers {
        Closers { descriptors, threads: Threads::new(), users: Mutex::default() }
    }

    /// Returns the closer for a user and source.
    pub(crate) fn of(&self, number: u32, source: Source) -> Arc<Closer> {
        let mut users = lock(&self.users);
        if !users.contains_key(&number) {
            users.retain(|_, user| !user.is_idle());
        }
        let user = users.entry(number).or_default();
        let thread = self.existing_or_new(
            match source {
                Source::Requests => &mut user.requests,
                Source::Pairs => &mut user.pairs,
            },
            1,
        );
        let worker = Worker::on(self.existing_or_new(&mut user.worker, WORKERS_MAX));
        let (descriptors, time) = (Arc::clone(&self.descriptors), Arc::clone(&user.time));
        Arc::new(Closer { user: number, source, descriptors, thread, worker, time })
    }

    fn existing_or_new(&self, known: &mut Weak<UserThreads>, threads_max: usize) -> Arc<UserThreads> {
        known.upgrade().unwrap_or_else(|| {
            let new = UserThreads::new(&self.threads, threads_max);
            *known = Arc::downgrade(&new);
            new
        })
    }
}

impl Closer {
    /// Takes ownership of a descriptor that a program may hold, too.
    pub(crate) fn take_over(self: &Arc<Self>, descriptor: OwnedFd) -> ReceivedDescriptor {
        self.take_over_for(self.source.descriptors(), descriptor)
    }

    fn take_over_for(self: &Arc<Self>, of: Use, descriptor: OwnedFd) -> ReceivedDescriptor {
        let permit = self.descriptors.count(of, self.user, 1);
        ReceivedDescriptor::new(descriptor, permit, Arc::clone(self))
    }

    /// Takes ownership of a connection on which the user sends a request.
    pub(crate) fn guard_connection(self: &Arc<Self>, socket: OwnedFd) -> End {
        End::new(self.take_over(socket), Arc::clone(&self.time))
    }

    /// Takes ownership of the daemon's end of a pair, whose other end programs share.
    pub(crate) fn guard_pair(self: &Arc<Self>, socket: OwnedFd) -> End {
        End::new(self.take_over_for(Use::Sockets, socket), Arc::new(ThreadTime::of_socket(&self.time)))
    }

    /// Returns the user whose descriptors are closed.
    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    /// Returns the time that calls on connections and sockets of the user take.
    pub(crate) fn time(&self) -> &ThreadTime {
        &self.time
    }

    /// Counts a descriptor of the daemon.
    pub(crate) fn count_descriptor(&self) -> DescriptorPermit {
        self.descriptors.count(self.source.descriptors(), self.user, 1)
    }

    /// Counts so many descriptors of a long message to a program, if the user may have them.
    pub(crate) fn count_long_message(&self, count: usize) -> Option<DescriptorPermit> {
        let has_room = self.descriptors.has(Use::LongMessages, self.user, count);
        has_room.then(|| self.descriptors.count(Use::LongMessages, self.user, count))
    }

    /// Waits until the user may have so many descriptors of a long message to a program.
    pub(crate) async fn room_for_long_message(&self, count: usize) {
        loop {
            let freed = self.descriptors.freed();
            if self.descriptors.has(Use::LongMessages, self.user, count) {
                return;
            }
            freed.await;
        }
    }

    /// Returns the threads of the same user for other work that may wait for a program.
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Returns whether a message with descriptors may be received.
    pub(crate) fn has_room(&self) -> bool {
        self.descriptors.has(self.source.descriptors(), self.user, 1) && self.thread.pending() <= PENDING_MAX
    }

    /// Waits until a message with descriptors may be received.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            let (less, freed) = (self.thread.finished(), self.descriptors.freed());
            // There may be room since.
            if self.has_room() {
                return;
            }
            tokio::select! {
                () = less => {}
                () = freed => {}
            }
        }
    }

    /// Returns whether the closer is stuck: a close has taken too long, or too many wait. A closer without a thread,
    /// because those of other users are stuck, is not: its descriptors wait as long as there is room for them.
    pub(crate) fn is_stuck(&self) -> bool {
        self.thread.pending() > PENDING_MAX || self.thread.is_late()
    }

    /// Returns whether more waits than the thread is going to close soon.
    pub(super) fn is_behind(&self) -> bool {
        self.is_stuck() || self.thread.pending() > BEHIND_AFTER
    }

    /// Waits until the closer is no longer stuck. Returns false if it still is after [`STUCK_WAIT`]. On a busy host, a
    /// closer looks stuck while its thread waits for the processor.
    pub(crate) async fn goes_on(&self) -> bool {
        let goes_on = async {
            loop {
                let less = self.thread.finished();
                if !self.is_stuck() {
                    return;
                }
                less.await;
            }
        };
        timeout(STUCK_WAIT, goes_on).await.is_ok()
    }

    /// Waits for a limited time until the closer has no work.
    pub(crate) async fn drained(&self) {
        let drained = async {
            loop {
                let less = self.thread.finished();
                if self.thread.pending() == 0 {
                    return;
                }
                less.await;
            }
        };
        // A stuck close harms only this user.
        let _ = timeout(CLOSE_WAIT, drained).await;
    }

    /// Closes a descriptor and frees its number, and then reports that to a task that waits for it.
    fn close(&self, descriptor: OwnedFd, number: DescriptorPermit, closed: Option<oneshot::Sender<()>>) {
        self.thread.run(move || {
            drop(descriptor);
            drop(number);
            // The waiting task may have been cancelled.
            let _ = closed.map(|closed| closed.send(()));
        });
    }

    /// Runs `work` on the closing thread, in place of a close that takes long.
    #[cfg(test)]
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.thread.run(work);
    }
}
