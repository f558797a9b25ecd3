//! Receiving: waits until the descriptor has a message, and takes it by a [`Reader`].

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use carrier::record::Header;
use carrier::status_page::{PeerShut, State};
use libc::c_int;

use crate::cancel;
use crate::descriptor::Descriptor;
use crate::lock::{self, Patience};
use crate::message::{END, Message};
use crate::reader::{Reader, end};
use crate::self_connect;
use crate::sleep::{asleep, with_copy};
use crate::system::{self, Buffers, Errno, Result};
use crate::table;
use crate::waiting;

/// Receives into `buffers`; waits as the descriptor and the flags require.
pub(crate) fn receive(
    fd: RawFd,
    descriptor: &Descriptor,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Message> {
    cancel::point();
    match receive_now(fd, descriptor, buffers, flags) {
        // The time limit of a call that waits has passed by now.
        Err(Errno(libc::EAGAIN)) if self_connect::something_came() => {
            receive_now(fd, descriptor, buffers, flags | libc::MSG_DONTWAIT)
        }
        result => result,
    }
}

fn receive_now(fd: RawFd, descriptor: &Descriptor, buffers: Buffers<'_>, flags: c_int) -> Result<Message> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // Nothing is ever put there.
        return Err(Errno(libc::EAGAIN));
    }
    let pages = descriptor.pages();
    let waits = || system::waits(fd, flags);
    match pages.status.state() {
        State::Listening => return Err(Errno(libc::ENOTCONN)),
        State::Connecting if !waits() => return Err(Errno(libc::EAGAIN)),
        State::Connecting => waiting::await_connection(fd, descriptor)?,
        _ => {}
    }
    // A message for which the program has no room stays.
    let flags = if buffers.bytes() == 0 { flags | libc::MSG_PEEK } else { flags };
    let ordinary = pages.status.state() == State::Connected && !pages.sharers.is_writing_shut();
    let patience = Patience::of_receive(fd, flags);
    // The descriptor may be closed while the call sleeps; then it goes on with a copy of its own.
    let go_on_with = |copy| with_copy(copy, |fd| receive_now(fd, descriptor, buffers, flags));
    if ordinary
        && !pages.sharers.position().is_in_bundle()
        && descriptor.expects_to_wait()
        && let Some(copy) = await_message(fd, descriptor, flags, &patience)?
    {
        return go_on_with(copy);
    }
    loop {
        // The order matters: the last message is in the carrier before the status page says that nothing will come.
        let silent = pages.status.state() == State::OneToMany
            && pages.status.associations.load(Acquire) == 0
            && waits();
        let lost = pages.status.state() == State::Lost;
        let peer_shut = pages.status.peer_shut.load(Acquire) == PeerShut::Both as u32;
        match Reader::lock(fd, pages, &patience).and_then(|reader| reader.take(buffers, flags)) {
            Err(lock::TIMED_OUT) => return Err(Errno(libc::EAGAIN)),
            Err(Errno(libc::EAGAIN)) if silent => return Err(Errno(libc::ENOTCONN)),
            Err(Errno(libc::EAGAIN)) if peer_shut => return Ok(END),
            Err(Errno(libc::EAGAIN)) if pages.status.state() == State::Idle => {
                return Err(Errno(match pages.take_error() {
                    0 if waits() => libc::ENOTCONN,
                    0 => libc::EAGAIN,
                    error => error,
                }));
            }
            Err(Errno(libc::ENOTCONN)) if !waits() => return Err(Errno(libc::EAGAIN)),
            Err(Errno(libc::EAGAIN)) => {}
            result => return result,
        }
        if pages.sharers.is_writing_shut() && waits() {
            if lost {
                return end(fd, pages);
            }
            if let Some(copy) = asleep(fd, descriptor, || waiting::await_news(fd))? {
                return go_on_with(copy);
            }
            continue;
        }
        if let Some(copy) = await_message(fd, descriptor, flags, &patience)? {
            return go_on_with(copy);
        }
        descriptor.has_waited();
    }
}

/// Sleeps until there may be a message; returns the result of [`asleep`].
///
/// A record wakes one of the threads that sleep in a receive, and all that poll. It may hold messages for several, so only one
/// thread of all sharers sleeps in a receive, and the others poll.
///
/// A call that waits again, because another one has taken the message, waits for the rest of its time: a
/// receive would begin anew.
fn await_message(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    patience: &Patience,
) -> Result<Option<RawFd>> {
    let waits = system::waits(fd, flags);
    let left = if waits && patience.begin() { patience.left() } else { None };
    if left == Some(Duration::ZERO) {
        return Err(Errno(libc::EAGAIN));
    }
    let sharers = descriptor.pages().sharers;
    let is_alone = sharers.begin_wait();
    let leave = || sharers.end_wait();
    let slept = cancel::undoing(leave, || {
        asleep(fd, descriptor, || match is_alone && left.is_none() || !waits {
            true => system::await_record(fd, flags),
            // Each wake-up makes `poll` look the number up again, which may be another file's by then.
            false => system::await_record_among_others(table::lasting(fd, descriptor), left),
        })
    });
    leave();
    slept
}

/// Returns the number of bytes that the next call would return (`FIONREAD`).
pub(crate) fn available(fd: RawFd, descriptor: &Descriptor) -> Result<usize> {
    let pages = descriptor.pages();
    let reader = Reader::lock(fd, pages, &Patience::of_a_look()).map_err(lock::as_told)?;
    let consumed = pages.sharers.position().load().consumed();
    Ok(reader.front()?.map_or(0, |header| header.bytes.saturating_sub(consumed) as usize))
}

/// Returns the header of the next message, if no reader has begun that message.
pub(crate) fn next(fd: RawFd, descriptor: &Descriptor) -> Option<Header> {
    let pages = descriptor.pages();
    let reader = Reader::lock(fd, pages, &Patience::of_a_look()).ok()?;
    let is_begun = pages.sharers.position().load().consumed() > 0;
    if is_begun { None } else { reader.front().ok()? }
}
