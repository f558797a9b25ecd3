//! Reports the last close of sockets that programs have shut down.
//!
//! The daemon's end of a pair hangs up when the program closes its end, and also when that is shut down in both
//! directions and stays open. The kernel tells the two apart by an event of inotify for the program's end: its last
//! descriptor was closed, in whatever process.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::sync::watch;

use crate::system::descriptor_io::register;
use crate::system::lock::lock;
use crate::users::user_permits::{Permit, UserPermits};

/// Where the kernel says how many events it keeps for a reader.
const EVENTS_MAX_FILE: &str = "/proc/sys/fs/inotify/max_queued_events";
/// The number of events that the kernel keeps unless an administrator has changed it.
const EVENTS_MAX: usize = 16384;
/// Events of one watch: the close, and its removal.
const EVENTS_OF_WATCH: usize = 2;
const BUFFER_BYTES: usize = 4096;

/// All watches of a daemon.
pub(crate) struct CloseWatches {
    /// `None` if the kernel has no inotify, or its user has too many. Nothing can be watched then.
    inotify: Option<OwnedFd>,
    watched: Mutex<HashMap<i32, watch::Sender<bool>>>,
    permits: Arc<UserPermits>,
}

/// The watch of one socket, until dropped.
pub(crate) struct CloseWatch {
    watches: Arc<CloseWatches>,
    number: i32,
    is_closed: watch::Receiver<bool>,
    permit: Permit,
}

impl CloseWatches {
    pub(crate) fn new() -> Arc<CloseWatches> {
        let kept = std::fs::read_to_string(EVENTS_MAX_FILE).ok().and_then(|text| text.trim().parse().ok());
        let max = kept.unwrap_or(EVENTS_MAX) / EVENTS_OF_WATCH;
        Arc::new(CloseWatches {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
            watched: Mutex::default(),
            permits: UserPermits::new(max, max),
        })
    }

    /// Watches a socket of this user by one of its descriptors, which the caller may close afterwards. If there are too
    /// many watches, the oldest one of the user with the most reports a close.
    pub(crate) fn watch(
        self: &Arc<Self>,
        descriptor: BorrowedFd<'_>,
        user: u32,
    ) -> Result<CloseWatch, Errno> {
        let inotify = self.inotify.as_ref().ok_or(Errno::NOSYS)?;
        let permit = self.permits.take(user).ok_or(Errno::NOSPC)?;
        let path = Path::new("/proc/self/fd").join(descriptor.as_raw_fd().to_string());
        let number = inotify::add_watch(inotify, &path, WatchFlags::CLOSE)?;
        let (sender, is_closed) = watch::channel(false);
        self.watched().insert(number, sender);
        Ok(CloseWatch { watches: Arc::clone(self), number, is_closed, permit })
    }

    /// Reports closes for ever.
    pub(crate) async fn run(&self) {
        let Some(inotify) = &self.inotify else { return };
        let Ok(registered) = register(inotify.as_fd(), Interest::READABLE) else { return };
        // This fails only when the runtime has ended.
        while let Ok(mut ready) = registered.readable().await {
            // An event that comes meanwhile makes it ready again.
            ready.clear_ready();
            self.report(inotify);
        }
    }

    /// Reports the closes that have happened.
    fn report(&self, inotify: &OwnedFd) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // Which events are missing is unknown. A socket that is forgotten too early harms less than one
                // that is kept for ever.
                self.watched().values().for_each(|watched| {
                    watched.send_replace(true);
                });
            } else if event.events().intersects(ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE) {
                self.report_closed(event.wd());
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<i32, watch::Sender<bool>>> {
        lock(&self.watched)
    }

    fn report_closed(&self, number: i32) {
        if let Some(watched) = self.watched().get(&number) {
            watched.send_replace(true);
        }
    }
}

impl CloseWatch {
    /// Returns whether the socket has been closed.
    pub(crate) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Waits until the socket is closed.
    pub(crate) async fn closed(&self) {
        let mut is_closed = self.is_closed.clone();
        tokio::select! {
            // The watches exist as long as this one.
            _ = is_closed.wait_for(|closed| *closed) => {}
            () = self.permit.lost() => self.watches.report_closed(self.number),
        }
    }
}

impl Drop for CloseWatch {
    fn drop(&mut self) {
        self.watches.watched().remove(&self.number);
        if let Some(inotify) = &self.watches.inotify {
            // This fails only if the kernel has removed the watch.
            let _ = inotify::remove_watch(inotify, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

    use super::*;
    use crate::testing::soon;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_is_closed_with_its_last_descriptor() {
        let watches = CloseWatches::new();
        tokio::task::spawn_local({
            let watches = Arc::clone(&watches);
            async move { watches.run().await }
        });
        let ((ours, theirs), (_other_peer, other)) = (pair(), pair());
        let watch = watches.watch(theirs.as_fd(), 1).expect("room");
        let other_watch = watches.watch(other.as_fd(), 1).expect("room");
        let copy = theirs.try_clone().expect("a copy");
        shutdown(&theirs, Shutdown::Both).expect("it is open");
        drop((theirs, ours));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!watch.is_closed(), "a copy is open");
        drop(copy);
        soon(watch.closed()).await;
        assert!(watch.is_closed() && !other_watch.is_closed());
        drop((watch, other_watch));
        assert!(watches.watched().is_empty());
    }

    #[tokio::test(flavor = "local")]
    async fn a_watch_beyond_the_limit_ends_the_oldest_of_the_user_with_the_most() {
        let watches = Arc::new(CloseWatches {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
            watched: Mutex::default(),
            permits: UserPermits::new(2, 2),
        });
        let pairs = [pair(), pair(), pair()];
        let watch = |pair: usize, user| watches.watch(pairs[pair].0.as_fd(), user).expect("room");
        let (first, second, _of_another) = (watch(0, 1), watch(1, 1), watch(2, 2));
        soon(first.closed()).await;
        assert!(first.is_closed() && !second.is_closed());
    }
}
