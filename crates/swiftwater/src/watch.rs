//! Polls the sockets; another thread can end a poll from inside the perimeter.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use smallvec::SmallVec;

/// A poller that may sleep on the sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleeper {
    /// A thread of the program.
    Leader,
    /// The task that drives an async runtime.
    Task,
    Background,
}

impl Sleeper {
    /// All pollers, in the order of their reliability.
    pub(crate) const ALL: [Sleeper; 3] = [Sleeper::Leader, Sleeper::Task, Sleeper::Background];
}

/// The sockets of a shard, for the background thread and the task, which may outlive it. The watch does not keep the
/// sockets open, so the ports are free as soon as the shard is dropped.
pub(crate) struct Watch {
    epoll: Epoll,
    /// Each sleeper has its own event descriptor, so none takes a wake-up that was meant for another.
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

    /// Starts or stops waiting for room to send.
    pub(crate) fn for_room(&self, sockets: &[OwnedFd], room: bool) {
        let events = if room { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        for (i, socket) in sockets.iter().enumerate() {
            // Modifying a registered descriptor cannot fail.
            let _ = self.epoll.modify(socket, &mut EpollEvent::new(events, i as u64));
        }
    }

    pub(crate) fn interrupt(&self, who: Sleeper) {
        // A full counter wakes the sleeper, too.
        match who {
            Sleeper::Leader => drop(self.leader.write(1)),
            Sleeper::Background => drop(self.background.write(1)),
            Sleeper::Task => {
                #[cfg(feature = "tokio")]
                self.task.notify_one();
            }
        }
    }

    /// Sleeps as the leader, which holds the sockets and polls them directly.
    pub(crate) fn wait_as_leader(&self, sockets: &[OwnedFd], until: Option<Instant>, room: bool) {
        let events = if room { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        sleep(sockets.iter().map(|socket| (socket.as_fd(), events)), &self.leader, until);
    }

    /// Returns whether a socket is ready now.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        ppoll(&mut fds, Some(TimeSpec::from(std::time::Duration::ZERO)), None).is_ok_and(|ready| ready > 0)
    }

    /// Sleeps as the background thread.
    pub(crate) fn wait_as_background(&self, until: Option<Instant>) {
        sleep([(self.epoll.0.as_fd(), PollFlags::POLLIN)].into_iter(), &self.background, until);
    }
}

/// The descriptor becomes readable when a socket is ready.
impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }
}

fn sleep<'a>(
    sockets: impl Iterator<Item = (BorrowedFd<'a>, PollFlags)>,
    interrupt: &'a EventFd,
    until: Option<Instant>,
) {
    let mut fds: SmallVec<[PollFd<'_>; 4]> = sockets.map(|(fd, events)| PollFd::new(fd, events)).collect();
    fds.push(PollFd::new(interrupt.as_fd(), PollFlags::POLLIN));
    let timeout = until.map(|at| TimeSpec::from(at.saturating_duration_since(Instant::now())));
    // An interrupted or failed poll merely returns too early.
    let _ = ppoll(&mut fds, timeout, None);
    if fds.last().and_then(PollFd::revents).is_some_and(|r| r.contains(PollFlags::POLLIN)) {
        let _ = interrupt.read();
    }
}
