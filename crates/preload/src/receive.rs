//! Receiving.
//!
//! A short read would drop the rest of a record. So the shim peeks at a record that may be longer than the program's buffer, and
//! removes it once its last byte has been read; until then the page says how far it was read, and the kernel's peek offset stands
//! there. The page also says how long records may be, and whether they may hold several messages (see [`bundle`]). All this
//! happens under the lock of the page, which nobody holds while waiting.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

use carrier::record::{Flags, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX};
use carrier::status_page::{PeerShut, State};
use libc::{c_int, iovec};

use crate::bundle;
use crate::cancel;
use crate::descriptor::Descriptor;
use crate::form;
use crate::lock::{self, Held, Patience};
use crate::message::{Message, count};
use crate::pages::Pages;
use crate::self_connect;
use crate::sleep::{asleep, with_copy};
use crate::system::{self, Buffers, Errno, Result};
use crate::table;
use crate::waiting;

/// Number of parts of a program's buffer up to which the list of parts fits on the stack.
const PARTS: usize = 16;

const END: Message = Message { bytes: 0, header: None, whole: false };

/// Receives into `place`; waits as the descriptor and the flags require.
pub(crate) fn receive(
    fd: RawFd,
    descriptor: &Descriptor,
    place: Buffers<'_>,
    flags: c_int,
) -> Result<Message> {
    cancel::point();
    match receive_now(fd, descriptor, place, flags) {
        // The time limit of a call that waits has passed by now.
        Err(Errno(libc::EAGAIN)) if self_connect::something_came() => {
            receive_now(fd, descriptor, place, flags | libc::MSG_DONTWAIT)
        }
        result => result,
    }
}

fn receive_now(fd: RawFd, descriptor: &Descriptor, place: Buffers<'_>, flags: c_int) -> Result<Message> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // Nothing is ever put there.
        return Err(Errno(libc::EAGAIN));
    }
    let page = descriptor.pages();
    let waits = || system::waits(fd, flags);
    match page.status.state() {
        State::Listening => return Err(Errno(libc::ENOTCONN)),
        State::Connecting if !waits() => return Err(Errno(libc::EAGAIN)),
        State::Connecting => waiting::await_connection(fd, descriptor)?,
        _ => {}
    }
    // A message for which the program has no room stays.
    let flags = if place.bytes() == 0 { flags | libc::MSG_PEEK } else { flags };
    let ordinary = page.status.state() == State::Connected && page.sharers.shut_writing.load(Relaxed) == 0;
    let patience = Patience::of_receive(fd, flags);
    if ordinary
        && !bundle::is_begun(page)
        && descriptor.expects_to_wait()
        && let Some(copy) = await_message(fd, descriptor, flags, &patience)?
    {
        return with_copy(copy, |fd| receive_now(fd, descriptor, place, flags));
    }
    loop {
        // The order matters: the last message is in the carrier before the page says that nothing will come.
        let silent =
            page.status.state() == State::OneToMany && page.status.associations.load(Acquire) == 0 && waits();
        let lost = page.status.state() == State::Lost;
        let peer_shut = page.status.peer_shut.load(Acquire) == PeerShut::Both as u32;
        match take(fd, descriptor, place, flags, &patience) {
            Err(lock::TIMED_OUT) => return Err(Errno(libc::EAGAIN)),
            Err(Errno(libc::EAGAIN)) if silent => return Err(Errno(libc::ENOTCONN)),
            Err(Errno(libc::EAGAIN)) if peer_shut => return Ok(END),
            Err(Errno(libc::EAGAIN)) if page.status.state() == State::Idle => {
                return Err(Errno(match page.take_error() {
                    0 if waits() => libc::ENOTCONN,
                    0 => libc::EAGAIN,
                    error => error,
                }));
            }
            Err(Errno(libc::ENOTCONN)) if !waits() => return Err(Errno(libc::EAGAIN)),
            Err(Errno(libc::EAGAIN)) => {}
            result => return result,
        }
        if page.sharers.shut_writing.load(Relaxed) != 0 && waits() {
            if lost {
                return end(fd, page);
            }
            if let Some(copy) = asleep(fd, descriptor, || waiting::await_news(fd))? {
                return with_copy(copy, |fd| receive_now(fd, descriptor, place, flags));
            }
            continue;
        }
        if let Some(copy) = await_message(fd, descriptor, flags, &patience)? {
            return with_copy(copy, |fd| receive_now(fd, descriptor, place, flags));
        }
        descriptor.has_waited();
    }
}

/// Sleeps until there may be a message; returns what [`asleep`] returns.
///
/// A record wakes one of the threads that sleep in a receive, and all that poll. It may hold messages for several, so only one
/// thread of all sharers sleeps in a receive, and the others poll.
///
/// A call that waits again, because another one has taken the message, waits for the rest of its time: a receive would begin anew.
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
    let page = descriptor.pages();
    if bundle::is_begun(page) {
        return bundle::header(fd, descriptor).map(Some);
    }
    if page.sharers.consumed.load(Relaxed) > 0 { Ok(page.sharers.front()) } else { peek(fd) }
}

/// Returns the header of the record at the front, after removing records that only announce others.
fn peek(fd: RawFd) -> Result<Option<Header>> {
    loop {
        match measure(fd) {
            Ok((Some(Header { kind: Kind::SizeHint, .. }), _)) => {
                system::discard(fd)?;
                await_noticed(fd)?;
            }
            Ok((header, _)) => return Ok(header),
            Err(Errno(libc::EAGAIN)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Takes the next message, or a part of it.
fn take(
    fd: RawFd,
    descriptor: &Descriptor,
    place: Buffers<'_>,
    flags: c_int,
    patience: &Patience,
) -> Result<Message> {
    let _held = hold(fd, descriptor.pages(), patience)?;
    take_held(fd, descriptor, place, flags)
}

/// Takes the next message, or a part of it. The caller holds the lock.
pub(crate) fn take_held(
    fd: RawFd,
    descriptor: &Descriptor,
    place: Buffers<'_>,
    flags: c_int,
) -> Result<Message> {
    let page = descriptor.pages();
    let consumed = page.sharers.consumed.load(Relaxed);
    let front = if consumed > 0 && !bundle::is_begun(page) { page.sharers.front() } else { None };
    let found = match front {
        Some(header) => Found::Record(look_on(fd, header, consumed as usize, place)?),
        None => find(fd, descriptor, place, flags)?,
    };
    let Look { header, before, bytes } = match found {
        Found::Record(look) => look,
        Found::Taken(message) => return Ok(message),
        Found::End => return end(fd, page),
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
        count(page, &header);
        if before > 0 {
            page.sharers.consumed.store(0, Relaxed);
            if in_record {
                system::set_peek_offset(fd, -1)?;
            }
        }
    } else {
        if before == 0 {
            page.sharers.set_front(&header);
        }
        page.sharers.consumed.store(until as u32, Relaxed);
        if in_record && before == 0 {
            system::set_peek_offset(fd, peek_offset(until as u32))?;
        }
    }
    Ok(Message { bytes, header: Some(header), whole: whole && header.flags.contains(Flags::END) })
}

/// Takes the read lock and makes the carrier bring records.
pub(crate) fn hold<'a>(fd: RawFd, page: Pages<'a>, patience: &Patience) -> Result<Held<'a>> {
    let held = hold_any_form(fd, page, patience)?;
    if page.status.plain.load(Acquire) != 0 {
        form::to_records(fd)?;
    }
    Ok(held)
}

/// Takes the read lock, whatever the form of the content.
pub(crate) fn hold_any_form<'a>(fd: RawFd, page: Pages<'a>, patience: &Patience) -> Result<Held<'a>> {
    let held = lock::hold(&page.sharers.lock, patience)?;
    if held.inherited {
        recover(fd, page);
        form::let_go(fd, page);
    }
    Ok(held)
}

/// Makes the page agree with the carrier after the previous holder of the lock died, or did not learn the outcome of a request,
/// and may have stopped half-way.
pub(crate) fn recover(fd: RawFd, page: Pages<'_>) {
    page.sharers.bundles_taken.fetch_add(1, Relaxed);
    // A carrier always accepts the option.
    let _ = system::set_peek_offset(fd, -1);
    let (consumed, bundle_bytes) =
        (page.sharers.consumed.load(Relaxed), page.sharers.bundle_bytes.load(Relaxed) as usize);
    if consumed == 0 && bundle_bytes == 0 {
        return;
    }
    let (header, bytes) = measure(fd).unwrap_or((None, 0));
    let noted = header.filter(|_| header == page.sharers.front());
    if noted.is_some() && bundle_bytes == bytes {
        return;
    }
    let is_first = bundle_bytes == 0 || page.sharers.bundle_at.load(Relaxed) == 0;
    page.sharers.bundle_bytes.store(0, Relaxed);
    match noted.filter(|_| is_first) {
        Some(header) if header.flags.contains(Flags::IN_MEMFD) => {}
        // The rest of the bundle, if there was one, was peeled off.
        Some(header) if HEADER_BYTES + header.bytes as usize == bytes => {
            let _ = system::set_peek_offset(fd, peek_offset(consumed));
        }
        // The record was removed.
        _ => page.sharers.consumed.store(0, Relaxed),
    }
}

/// Returns the kernel's peek offset for a message that was read this far. A sharer may have written any number: beyond the
/// record, the kernel finds nothing; a negative one makes it peek from the beginning.
pub(crate) fn peek_offset(consumed: u32) -> c_int {
    consumed.wrapping_add(HEADER_BYTES as u32) as c_int
}

/// Returns the header of the record at the kernel's peek offset, and the record's length.
pub(crate) fn measure(fd: RawFd) -> Result<(Option<Header>, usize)> {
    let mut bytes = [0; HEADER_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the destination is writable.
    let received = unsafe { system::receive::<0>(fd, &[Buffers::of(&mut bytes)], flags) }?;
    Ok((Header::parse(&bytes), received.bytes))
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
fn find(fd: RawFd, descriptor: &Descriptor, place: Buffers<'_>, flags: c_int) -> Result<Found> {
    let page = descriptor.pages();
    loop {
        if bundle::is_begun(page) || page.status.bundles.load(Acquire) != 0 && bundle::begin(fd, descriptor)?
        {
            let peeks = flags & libc::MSG_PEEK != 0;
            return bundle::take(fd, descriptor, place, peeks).map(Found::Taken);
        }
        let longest = page.status.longest.load(Acquire) as usize;
        let fits = longest <= place.bytes().min(PAYLOAD_BYTES_MAX) && flags & libc::MSG_PEEK == 0;
        let (bytes, header) = if fits { take_whole(fd, place)? } else { look(fd, place)? };
        match header {
            None => return Ok(Found::End),
            // The page describes the records that follow this one by now.
            Some(Header { kind: Kind::SizeHint, .. }) => {
                if !fits {
                    system::discard(fd)?;
                }
                await_noticed(fd)?;
            }
            Some(header) if fits => {
                count(page, &header);
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

/// Removes a record that is no longer than `place` and returns its number of bytes. No header means the end.
fn take_whole(fd: RawFd, place: Buffers<'_>) -> Result<(usize, Option<Header>)> {
    let mut bytes = [0; HEADER_BYTES];
    let received = with_header(&mut bytes, place, Direction::In, |iov| {
        // SAFETY: the header and the program's buffer are writable.
        unsafe { system::receive::<0>(fd, iov, libc::MSG_DONTWAIT) }
    })?;
    match received.bytes {
        0 => Ok((0, None)),
        all => parse(&bytes).map(|header| (all - HEADER_BYTES, Some(header))),
    }
}

/// Peeks at a record that nobody has begun to read and returns the number of bytes in `place`. No header means the end.
fn look(fd: RawFd, place: Buffers<'_>) -> Result<(usize, Option<Header>)> {
    let mut bytes = [0; HEADER_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let received = with_header(&mut bytes, place, Direction::In, |iov| {
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
            true => unsafe { system::read_at(memfd, place, 0) }?,
            false => place.bytes().min(header.bytes as usize),
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
fn look_on(fd: RawFd, header: Header, before: usize, place: Buffers<'_>) -> Result<Look> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    if !header.flags.contains(Flags::IN_MEMFD) {
        // SAFETY: the program's buffer is writable.
        let received = unsafe { system::receive::<0>(fd, place.as_slice(), flags) }?;
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
    let bytes = unsafe { system::read_at(memfd, place, before) };
    system::close(memfd);
    Ok(Look { header, before, bytes: bytes? })
}

/// Returns the end, or the reason for which there is none.
fn end(fd: RawFd, page: Pages<'_>) -> Result<Message> {
    match page.take_error() {
        0 => {}
        error => return Err(Errno(error)),
    }
    match page.status.state() {
        State::Ended => Ok(END),
        _ if page.sharers.shut_reading.load(Relaxed) != 0 => Ok(END),
        _ if page.status.peer_shut.load(Acquire) == PeerShut::Both as u32 => Ok(END),
        State::Lost => Err(Errno(libc::ENOTCONN)),
        _ if !system::is_hung_up(fd) => Ok(END),
        // The daemon has died.
        _ => Err(Errno(libc::ECONNRESET)),
    }
}

/// The way of the bytes of a program's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// Calls `f` with a list that has the header in front of the program's buffer.
pub(crate) fn with_header<T>(
    header: &mut [u8],
    place: Buffers<'_>,
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    let parts = place.as_slice();
    if let Some(room) = PARTS.checked_sub(parts.len()) {
        let mut iov = [Buffers::of(&mut []); PARTS + 1];
        iov[0] = Buffers::of(header);
        iov[1..=parts.len()].copy_from_slice(parts);
        f(&iov[..=PARTS - room])
    } else {
        with_header_and_many(header, parts, direction, f)
    }
}

/// Number of parts that the kernel takes in one call.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;
/// Largest length of the shortest pair of neighbours among parts that are one too many: all but the last are together shorter than
/// a payload, and each of them is in at most two pairs.
const PAIR_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX / (PARTS_MAX - 2) + 1;

/// As [`with_header`], for an unusual number of parts. The list lies on the stack, because a send waits in `f` and may be
/// cancelled there.
#[cold]
#[inline(never)]
fn with_header_and_many<T>(
    header: &mut [u8],
    parts: &[iovec],
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    let mut iov = [Buffers::of(&mut []); PARTS_MAX + 1];
    iov[0] = Buffers::of(header);
    let (mut count, mut bytes) = (1, 0_usize);
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        // A record has nothing for the parts behind its longest payload.
        if bytes >= PAYLOAD_BYTES_MAX {
            break;
        }
        iov[count] = *part;
        count += 1;
        bytes = bytes.saturating_add(part.iov_len);
    }
    if count <= PARTS_MAX { f(&iov[..count]) } else { with_a_pair_joined(&mut iov, direction, f) }
}

/// Calls `f` with a list in which the shortest two neighbours are one part: with the header there was one part too many. Memory
/// of the program that is not there raises SIGSEGV where it is in these two.
fn with_a_pair_joined<T>(
    iov: &mut [iovec; PARTS_MAX + 1],
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    let pair_bytes = |at: &usize| iov[*at].iov_len.saturating_add(iov[at + 1].iov_len);
    let can_join = |at: &usize| iov[*at..=at + 1].iter().all(|part| system::can_be_bytes(part.iov_base));
    let shortest = (1..PARTS_MAX).filter(can_join).min_by_key(pair_bytes);
    let Some(at) = shortest.filter(|at| pair_bytes(at) <= PAIR_BYTES_MAX) else {
        // The kernel refuses the list.
        return f(iov);
    };
    let pair = [iov[at], iov[at + 1]];
    let mut joined = [0_u8; PAIR_BYTES_MAX];
    let (first, second) = joined.split_at_mut(pair[0].iov_len);
    // Bytes that the kernel does not write go back unchanged.
    // SAFETY: the program has lent the memory, and `joined` has room for both parts.
    unsafe {
        first.as_mut_ptr().copy_from_nonoverlapping(pair[0].iov_base.cast(), pair[0].iov_len);
        second.as_mut_ptr().copy_from_nonoverlapping(pair[1].iov_base.cast(), pair[1].iov_len);
    }
    iov[at] = Buffers::of(&mut joined[..pair[0].iov_len + pair[1].iov_len]);
    iov.copy_within(at + 2.., at + 1);
    let done = f(&iov[..PARTS_MAX]);
    if direction == Direction::In {
        let (first, second) = joined.split_at(pair[0].iov_len);
        // SAFETY: as above, and the program has lent the memory to be written.
        unsafe {
            pair[0].iov_base.cast::<u8>().copy_from_nonoverlapping(first.as_ptr(), pair[0].iov_len);
            pair[1].iov_base.cast::<u8>().copy_from_nonoverlapping(second.as_ptr(), pair[1].iov_len);
        }
    }
    done
}
