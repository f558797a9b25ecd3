//! Receiving.
//!
//! A short read would drop the rest of a record. So the shim peeks at a record that may be longer than the program's buffer, and
//! removes it once its last byte has been read; until then the sharers' page says how far it was read, and the kernel's
//! peek offset stands there. The status page says how long records may be, and whether they may hold several messages
//! (see [`bundle`]). All this happens under the read lock of the sharers' page, which nobody holds while waiting.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

use carrier::record::{Flags, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX};
use carrier::status_page::{PeerShut, State};
use libc::c_int;

use crate::bundle;
use crate::cancel;
use crate::descriptor::Descriptor;
use crate::form;
use crate::lock::{self, Held, Patience};
use crate::message::{self, Message, count};
use crate::pages::Pages;
use crate::parts::{Direction, with_header};
use crate::self_connect;
use crate::sleep::{asleep, with_copy};
use crate::system::{self, Buffers, Errno, Result};
use crate::table;
use crate::waiting;

const END: Message = Message { bytes: 0, header: None, whole: false };

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
    let ordinary = pages.status.state() == State::Connected && pages.sharers.shut_writing.load(Relaxed) == 0;
    let patience = Patience::of_receive(fd, flags);
    // The descriptor may be closed while the call sleeps; then it goes on with a copy of its own.
    let go_on_with = |copy| with_copy(copy, |fd| receive_now(fd, descriptor, buffers, flags));
    if ordinary
        && !bundle::is_begun(pages)
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
        match take(fd, descriptor, buffers, flags, &patience) {
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
        if pages.sharers.shut_writing.load(Relaxed) != 0 && waits() {
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
    let waiting = &descriptor.pages().sharers.readers_waiting;
    let is_alone = waiting.fetch_add(1, AcqRel) == 0;
    let leave = || {
        waiting.fetch_sub(1, AcqRel);
    };
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
    let _held = hold(fd, descriptor.pages(), &Patience::of_a_look()).map_err(lock::as_told)?;
    let consumed = descriptor.pages().sharers.consumed.load(Relaxed) as usize;
    let header = front(fd, descriptor)?;
    Ok(header.map_or(0, |header| (header.bytes as usize).saturating_sub(consumed)))
}

/// Returns the header of the next message, if nobody has begun to read that message.
pub(crate) fn next(fd: RawFd, descriptor: &Descriptor) -> Option<Header> {
    let _held = hold(fd, descriptor.pages(), &Patience::of_a_look()).ok()?;
    let is_begun = descriptor.pages().sharers.consumed.load(Relaxed) > 0;
    if is_begun { None } else { front(fd, descriptor).ok()? }
}

/// Returns the header of the message at the front. The caller holds the lock.
pub(crate) fn front(fd: RawFd, descriptor: &Descriptor) -> Result<Option<Header>> {
    let pages = descriptor.pages();
    if bundle::is_begun(pages) {
        return bundle::header(pages).map(Some);
    }
    if pages.sharers.consumed.load(Relaxed) > 0 { Ok(pages.sharers.front()) } else { peek(fd, pages) }
}

/// Returns the header of the first message in the record at the front, after removing records that only announce others.
fn peek(fd: RawFd, pages: Pages<'_>) -> Result<Option<Header>> {
    loop {
        match message::measure(fd) {
            Ok((Some(Header { kind: Kind::SizeHint, .. }), _)) => {
                system::discard(fd)?;
                await_noticed(fd)?;
            }
            Ok((Some(record), _)) => {
                return Ok(record.bundle().map_or(Some(record), |extent| bundle::first(pages, extent)));
            }
            Ok((None, _)) => return Ok(None),
            Err(Errno(libc::EAGAIN)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Takes the next message, or a part of it.
fn take(
    fd: RawFd,
    descriptor: &Descriptor,
    buffers: Buffers<'_>,
    flags: c_int,
    patience: &Patience,
) -> Result<Message> {
    let _held = hold(fd, descriptor.pages(), patience)?;
    take_held(fd, descriptor, buffers, flags)
}

/// Takes the next message, or a part of it. The caller holds the lock.
pub(crate) fn take_held(
    fd: RawFd,
    descriptor: &Descriptor,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Message> {
    let pages = descriptor.pages();
    let consumed = pages.sharers.consumed.load(Relaxed);
    let front = if consumed > 0 && !bundle::is_begun(pages) { pages.sharers.front() } else { None };
    let found = match front {
        Some(header) => Found::Record(look_on(fd, header, consumed as usize, buffers)?),
        None => find(fd, pages, buffers, flags)?,
    };
    let Look { header, before, bytes } = match found {
        Found::Record(look) => look,
        Found::Taken(message) => return Ok(message),
        Found::End => return end(fd, pages),
    };
    let until = before + bytes;
    let whole = until == header.bytes as usize;
    let in_record = !header.flags.contains(Flags::IN_MEMFD);
    if flags & libc::MSG_PEEK != 0 {
        // The kernel has moved its offset past the bytes that were peeked at.
        if in_record && before > 0 {
            system::set_peek_offset(fd, peek_offset(before as u32))?;
        }
    } else if whole {
        system::discard(fd)?;
        count(pages, &header);
        if before > 0 {
            pages.sharers.consumed.store(0, Relaxed);
            if in_record {
                system::set_peek_offset(fd, -1)?;
            }
        }
    } else {
        if before == 0 {
            pages.sharers.set_front(&header);
        }
        pages.sharers.consumed.store(until as u32, Relaxed);
        if in_record && before == 0 {
            system::set_peek_offset(fd, peek_offset(until as u32))?;
        }
    }
    Ok(Message { bytes, header: Some(header), whole: whole && header.flags.contains(Flags::END) })
}

/// Takes the read lock and makes the carrier bring records.
pub(crate) fn hold<'a>(fd: RawFd, pages: Pages<'a>, patience: &Patience) -> Result<Held<'a>> {
    let held = hold_any_form(fd, pages, patience)?;
    if pages.status.plain.load(Acquire) != 0 {
        form::to_records(fd)?;
    }
    Ok(held)
}

/// Takes the read lock, whatever the form of the content.
pub(crate) fn hold_any_form<'a>(fd: RawFd, pages: Pages<'a>, patience: &Patience) -> Result<Held<'a>> {
    let held = lock::hold(&pages.sharers.lock, patience)?;
    if held.inherited {
        recover(fd, pages);
        form::let_go(fd, pages);
    }
    Ok(held)
}

/// Makes the sharers' page agree with the carrier after the previous holder of the lock died, or did not learn the
/// outcome of a request, and may have stopped half-way.
pub(crate) fn recover(fd: RawFd, pages: Pages<'_>) {
    // A carrier always accepts the option.
    let _ = system::set_peek_offset(fd, -1);
    let (consumed, bundle_bytes) =
        (pages.sharers.consumed.load(Relaxed), pages.sharers.bundle_bytes.load(Relaxed) as usize);
    if consumed == 0 && bundle_bytes == 0 {
        return;
    }
    let (record, bytes) = message::measure(fd).unwrap_or((None, 0));
    let bundle = record.and_then(|record| record.bundle());
    let header = bundle.map_or(record, |extent| bundle::first(pages, extent));
    let noted = header.filter(|_| header == pages.sharers.front());
    if let Some(bundle) = bundle.filter(|bundle| noted.is_some() && bundle.bytes as usize == bundle_bytes) {
        // The daemon has put it back.
        pages.sharers.bundle_place.store(bundle.offset, Relaxed);
        return;
    }
    let is_first = bundle_bytes == 0 || pages.sharers.bundle_at.load(Relaxed) == 0;
    pages.sharers.bundle_bytes.store(0, Relaxed);
    match noted.filter(|_| is_first && bundle.is_none()) {
        Some(header) if header.flags.contains(Flags::IN_MEMFD) => {}
        // The rest of the bundle, if there was one, was peeled off.
        Some(header) if header.record_bytes() == bytes => {
            let _ = system::set_peek_offset(fd, peek_offset(consumed));
        }
        // The record was removed.
        _ => pages.sharers.consumed.store(0, Relaxed),
    }
}

/// Returns the kernel's peek offset for a message that was read this far. A sharer may have written any number: beyond the
/// record, the kernel finds nothing; a negative one makes it peek from the beginning.
pub(crate) fn peek_offset(consumed: u32) -> c_int {
    consumed.wrapping_add(HEADER_BYTES as u32) as c_int
}

/// The state of the front of the carrier.
enum Found {
    /// A record, which is still in the carrier.
    Record(Look),
    /// A message that has been removed, or was peeked at in a bundle.
    Taken(Message),
    /// Nothing, and nothing will come.
    End,
}

/// Finds a record that nobody has begun to read. A record that surely fits is removed at once.
fn find(fd: RawFd, pages: Pages<'_>, buffers: Buffers<'_>, flags: c_int) -> Result<Found> {
    loop {
        if bundle::is_begun(pages) || pages.status.bundles.load(Acquire) != 0 && bundle::begin(fd, pages)? {
            let peeks = flags & libc::MSG_PEEK != 0;
            return bundle::take(fd, pages, buffers, peeks).map(Found::Taken);
        }
        let longest = pages.status.longest.load(Acquire) as usize;
        let fits = longest <= buffers.bytes().min(PAYLOAD_BYTES_MAX) && flags & libc::MSG_PEEK == 0;
        let (bytes, header) = if fits { take_whole(fd, buffers)? } else { look(fd, buffers)? };
        match header {
            None => return Ok(Found::End),
            // The status page describes the records that follow this one by now.
            Some(Header { kind: Kind::SizeHint, .. }) => {
                if !fits {
                    system::discard(fd)?;
                }
                await_noticed(fd)?;
            }
            Some(header) if fits => {
                count(pages, &header);
                let whole = header.flags.contains(Flags::END);
                return Ok(Found::Taken(Message { bytes, header: Some(header), whole }));
            }
            Some(header) => return Ok(Found::Record(Look { header, before: 0, bytes })),
        }
    }
}

/// Waits for the message that the daemon sends directly after a size hint: a descriptor that polls readable must be readable.
fn await_noticed(fd: RawFd) -> Result<()> {
    let at_most = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    match system::poll(fd, libc::POLLIN, at_most) {
        // The kernel polls no descriptor where the limit on descriptors is 0.
        Ok(_) | Err(Errno(libc::EINTR | libc::EINVAL)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Result of peeking at the record at the front.
struct Look {
    header: Header,
    /// Number of bytes of the record that earlier calls have read.
    before: usize,
    /// Number of bytes that are in the program's buffer now.
    bytes: usize,
}

/// Removes a record that is no longer than `buffers` and returns its number of bytes. No header means the end.
fn take_whole(fd: RawFd, buffers: Buffers<'_>) -> Result<(usize, Option<Header>)> {
    let mut bytes = [0; HEADER_BYTES];
    let received = with_header(&mut bytes, buffers, Direction::In, |iov| {
        // SAFETY: the header and the program's buffer are writable.
        unsafe { system::receive::<0>(fd, iov, libc::MSG_DONTWAIT) }
    })?;
    match received.bytes {
        0 => Ok((0, None)),
        all => parse(&bytes).map(|header| (all - HEADER_BYTES, Some(header))),
    }
}

/// Peeks at a record that nobody has begun to read and returns the number of bytes in `buffers`. No header means the end.
fn look(fd: RawFd, buffers: Buffers<'_>) -> Result<(usize, Option<Header>)> {
    let mut bytes = [0; HEADER_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let received = with_header(&mut bytes, buffers, Direction::In, |iov| {
        // SAFETY: the header and the program's buffer are writable.
        unsafe { system::receive::<1>(fd, iov, flags) }
    })?;
    let [memfd] = received.descriptors;
    if received.bytes == 0 {
        return Ok((0, None));
    }
    let seen = parse(&bytes).and_then(|header| {
        let bytes = match header.flags.contains(Flags::IN_MEMFD) {
            true if memfd < 0 => return Err(Errno(libc::EMFILE)),
            // SAFETY: the program's buffer is writable.
            true => unsafe { system::read_at(memfd, buffers, 0) }?,
            false => buffers.bytes().min(header.bytes as usize),
        };
        Ok((bytes, Some(header)))
    });
    if memfd >= 0 {
        system::close(memfd);
    }
    seen
}

fn parse(record: &[u8; HEADER_BYTES]) -> Result<Header> {
    let for_us = |kind| matches!(kind, Kind::Data | Kind::Notification | Kind::SizeHint);
    Header::parse(record).filter(|header| for_us(header.kind)).ok_or(Errno(libc::EPROTO))
}

/// Peeks at the rest of a record.
fn look_on(fd: RawFd, header: Header, before: usize, buffers: Buffers<'_>) -> Result<Look> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    if !header.flags.contains(Flags::IN_MEMFD) {
        // SAFETY: the program's buffer is writable.
        let received = unsafe { system::receive::<0>(fd, buffers.as_slice(), flags) }?;
        return Ok(Look { header, before, bytes: received.bytes });
    }
    let mut again = [0; HEADER_BYTES];
    // SAFETY: the destination is writable.
    let received = unsafe { system::receive::<1>(fd, &[Buffers::of(&mut again)], flags) }?;
    let [memfd] = received.descriptors;
    if memfd < 0 {
        return Err(Errno(libc::EMFILE));
    }
    // SAFETY: the program's buffer is writable.
    let bytes = unsafe { system::read_at(memfd, buffers, before) };
    system::close(memfd);
    Ok(Look { header, before, bytes: bytes? })
}

/// Returns the end, or the reason for which there is none.
fn end(fd: RawFd, pages: Pages<'_>) -> Result<Message> {
    match pages.take_error() {
        0 => {}
        error => return Err(Errno(error)),
    }
    match pages.status.state() {
        State::Ended => Ok(END),
        _ if pages.sharers.shut_reading.load(Relaxed) != 0 => Ok(END),
        _ if pages.status.peer_shut.load(Acquire) == PeerShut::Both as u32 => Ok(END),
        State::Lost => Err(Errno(libc::ENOTCONN)),
        _ if !system::is_hung_up(fd) => Ok(END),
        // The daemon has died.
        _ => Err(Errno(libc::ECONNRESET)),
    }
}
