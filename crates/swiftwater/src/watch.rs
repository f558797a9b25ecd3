//! Polling of sockets, and the wake-up that ends a poll from inside the perimeter.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use smallvec::SmallVec;

/// Somebody who may sleep on the sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleeper {
    /// A thread of the user.
    Leader,
    /// The task that drives an async runtime.
    Task,
    Background,
}

impl Sleeper {
    /// In the order in which they are relied upon.
    pub(crate) const ALL: [Sleeper; 3] = [Sleeper::Leader, Sleeper::Task, Sleeper::Background];
}

/// The sockets of a shard for those who outlive it: the background thread and the task. They hold no socket
/// open, so the ports are free as soon as the shard is gone.
pub(crate) struct Watch {
    epoll: Epoll,
    /// Each sleeper has a kick of its own, so that nobody takes the one that was meant for another.
    leader: EventFd,
    background: EventFd,
    #[cfg(feature = "tokio")]
    pub(crate) task: tokio::sync::Notify,
}

impl Watch {
    pub(crate) fn new(sockets: &[OwnedFd]) -> io::Result<Self> {
        let event = || EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let watch = Watch {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            leader: event()?,
            background: event()?,
            #[cfg(feature = "tokio")]
            task: tokio::sync::Notify::new(),
        };
        for (i, socket) in sockets.iter().enumerate() {
            watch.epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, i as u64))?;
        }
        Ok(watch)
    }

    /// Waits for room to send, too, or no more.
    pub(crate) fn for_room(&self, sockets: &[OwnedFd], room: bool) {
        let events = if room { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        for (i, socket) in sockets.iter().enumerate() {
            // A descriptor that was added can be modified.
            let _ = self.epoll.modify(socket, &mut EpollEvent::new(events, i as u64));
        }
    }

    pub(crate) fn kick(&self, who: Sleeper) {
        // A full counter is a kick, too.
        match who {
            Sleeper::Leader => drop(self.leader.write(1)),
            Sleeper::Background => drop(self.background.write(1)),
            Sleeper::Task => {
                #[cfg(feature = "tokio")]
                self.task.notify_one();
            }
        }
    }

    /// Sleeps as the leader, who holds the sockets and polls them directly.
    pub(crate) fn lead(&self, sockets: &[OwnedFd], until: Option<Instant>, room: bool) {
        let events = if room { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        sleep(sockets.iter().map(|socket| (socket.as_fd(), events)), &self.leader, until);
    }

    /// Whether a socket wants attention now.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        ppoll(&mut fds, Some(TimeSpec::from(std::time::Duration::ZERO)), None).is_ok_and(|ready| ready > 0)
    }

    /// Sleeps as the background thread.
    pub(crate) fn stand_by(&self, until: Option<Instant>) {
        sleep([(self.epoll.0.as_fd(), PollFlags::POLLIN)].into_iter(), &self.background, until);
    }
}

/// The descriptor that is readable when a socket wants attention.
impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }
}

fn sleep<'a>(
    sockets: impl Iterator<Item = (BorrowedFd<'a>, PollFlags)>,
    kick: &'a EventFd,
    until: Option<Instant>,
) {
    let mut fds: SmallVec<[PollFd<'_>; 4]> = sockets.map(|(fd, events)| PollFd::new(fd, events)).collect();
    fds.push(PollFd::new(kick.as_fd(), PollFlags::POLLIN));
    let timeout = until.map(|at| TimeSpec::from(at.saturating_duration_since(Instant::now())));
    // An interrupted or failed poll is a look too early, no more.
    let _ = ppoll(&mut fds, timeout, None);
    if fds.last().and_then(PollFd::revents).is_some_and(|r| r.contains(PollFlags::POLLIN)) {
        let _ = kick.read();
    }
}
