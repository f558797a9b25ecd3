//! Waiting for events that only the daemon sees: the end of setup, and that of an association, also after a close.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use channel_protocol::request::SocketRequest;
use channel_protocol::status_page::State;
use libc::c_int;

use crate::ask::{self, send_request};
use crate::cancel;
use crate::descriptor::Descriptor;
use crate::system::{self, Errno, Result};
use crate::table::{self, Entry};

/// Maximum time between the ends of two descriptors of a process that has been killed.
const HANGUP_WAIT: libc::timespec = libc::timespec { tv_sec: 10, tv_nsec: 0 };

/// Waits until the pair polls writable, which it does once setup has succeeded or failed.
pub(crate) fn await_connection(fd: RawFd, descriptor: &Descriptor) -> Result<()> {
    let [events] = system::await_events([fd], libc::POLLOUT, system::send_timeout(fd))?;
    if events == 0 {
        return Err(Errno(libc::EINPROGRESS));
    }
    // The error stays pending, as in the kernel.
    match descriptor.pages().pending_error() {
        0 if events & libc::POLLHUP != 0 && descriptor.pages().status.state() == State::Connecting => {
            Err(Errno(error_without_daemon(State::Connecting)))
        }
        0 => Ok(()),
        error => Err(Errno(error)),
    }
}

/// Waits until there is something to read, or the association has ended and the pair has all that the program gets of it; the
/// pair does not report that end to a side that has shut it down itself. Returns whether the association has ended. Fails with
/// ENOBUFS if the daemon cannot tell that end, because the user has too many requests that wait.
pub(crate) fn await_news(fd: RawFd) -> Result<bool> {
    let connection = send_request(&SocketRequest::AwaitEnd, fd)?;
    let wait = || system::await_events([fd, connection], libc::POLLIN, system::receive_timeout(fd));
    let events = cancel::undoing(|| system::close(connection), wait);
    let has_ended = match events {
        Ok([0, 0]) => Err(Errno(libc::EAGAIN)),
        Ok([0, _]) => match ask::receive_done(connection) {
            Err(Errno(libc::ENETDOWN)) => await_hangup(fd).map(|()| false),
            done => done.map(|()| true),
        },
        // What the pair has comes first, whatever the answer is.
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    };
    system::close(connection);
    has_ended
}

/// Waits until the pair of a daemon that has ended says so, too: the kernel closes one descriptor after the other.
fn await_hangup(fd: RawFd) -> Result<()> {
    let [events] = system::await_events([fd], libc::POLLIN, Some(HANGUP_WAIT))?;
    if events == 0 { Err(Errno(libc::ENETDOWN)) } else { Ok(()) }
}

/// A socket that waits for the end of its association when its last descriptor is closed (`SO_LINGER` with a time).
#[derive(Clone, Copy)]
pub(crate) struct Lingering {
    cookie: u64,
    time: Duration,
}

impl Lingering {
    /// Returns the socket of a number that is about to be closed, if it lingers.
    pub(crate) fn at(fd: RawFd) -> Option<Lingering> {
        if !table::is_known(fd) {
            return None;
        }
        let Entry::Socket(descriptor) = table::look_up(fd) else { return None };
        let seconds = descriptor.pages().status.linger_s.load(Relaxed);
        let cookie = if seconds > 0 { system::cookie(fd).ok() } else { None }?;
        Some(Lingering { cookie, time: Duration::from_secs(seconds.into()) })
    }

    /// Waits after the close; returns at once if it was not the last one. A cancellation point.
    pub(crate) fn wait(self) {
        ask::linger(self.cookie, self.time);
    }
}

/// Returns the error of a socket whose daemon has died in this state: an association is lost, and a socket without one finds the
/// network down, as requests do. An association that had ended before lost nothing.
pub(crate) fn error_without_daemon(state: State) -> c_int {
    match state {
        State::Ended | State::Lost => 0,
        State::Connected | State::OneToMany | State::OneToManyListening => libc::ECONNRESET,
        State::Idle | State::Connecting | State::Listening => libc::ENETDOWN,
    }
}
