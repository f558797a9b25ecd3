//! Calls that receive.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use channel_protocol::record::{Header, Kind};
use channel_protocol::status_page::Subscriptions;
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::{each, messages_of, on_reading, parts_of_call, parts_of_message};
use crate::descriptor::Descriptor;
use crate::form::ReadError;
use crate::message::Message;
use crate::reader::Reader;
use crate::system::{Buffers, Destination, Errno, Result, can_be, can_be_bytes};
use crate::{address, ancillary, next, receive, recognition, self_connect, system, table, tcp};

/// Flag of a message that is a notification.
const MSG_NOTIFICATION: c_int = 0x8000;

/// # Safety
///
/// The program has lent the memory, to be written.
unsafe fn receive_into(
    fd: RawFd,
    descriptor: &Descriptor,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> Result<Message, ReadError> {
    // SAFETY: the caller guarantees it.
    let place = [unsafe { Destination::of_program(buffer, bytes) }];
    tcp::receive(fd, descriptor, Buffers::new(&place), flags)
}

/// Writes the address that a message came from, if the program passes a buffer for it.
///
/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)` for `from` and `bytes`.
unsafe fn tell(
    descriptor: &Descriptor,
    peer: SocketAddr,
    from: *mut sockaddr,
    bytes: *mut socklen_t,
) -> Result<()> {
    if from.is_null() {
        return Ok(());
    }
    // SAFETY: the caller guarantees it.
    unsafe { address::write(address::as_wanted(descriptor, peer), from, bytes) }
}

/// Stores the address of the sender of a received message for the program. The end of file has no header and no sender,
/// and TCP names none.
///
/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)` for `from` and `bytes`.
unsafe fn tell_sender(
    descriptor: &Descriptor,
    header: Option<&Header>,
    from: *mut sockaddr,
    bytes: *mut socklen_t,
) -> Result<()> {
    let Some(header) = header.filter(|_| !tcp::is_stream(descriptor)) else {
        if !from.is_null() && can_be(bytes) {
            // SAFETY: the caller guarantees it.
            unsafe { *bytes = 0 };
        }
        return Ok(());
    };
    match header.address.or_else(|| descriptor.pages().status.peer()) {
        // SAFETY: the caller guarantees it.
        Some(peer) => unsafe { tell(descriptor, peer, from, bytes) },
        None => Ok(()),
    }
}

/// # Safety
///
/// The caller meets the requirements of `read(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::read(fd, buffer, bytes) };
    on_reading(
        fd,
        |descriptor| match bytes {
            0 => Ok(0),
            // SAFETY: the caller guarantees it.
            _ => Ok(unsafe { receive_into(fd, descriptor, buffer, bytes, 0) }?.bytes as ssize_t),
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `read(2)`; the buffer has `room` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
) -> ssize_t {
    match bytes <= room && recognition::may_be_sctp_socket(fd) {
        // SAFETY: the caller guarantees it.
        true => unsafe { read(fd, buffer, bytes) },
        // SAFETY: the caller guarantees it.
        false => unsafe { next::__read_chk(fd, buffer, bytes, room) },
    }
}

/// # Safety
///
/// The caller meets the requirements of `readv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readv(fd: c_int, iov: *const iovec, parts: c_int) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::readv(fd, iov, parts) };
    on_reading(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let buffers = unsafe { Buffers::of_program(parts_of_call(iov, parts)?) };
            // The kernel's layer of files ends a call without room, unlike `recvmsg`.
            if buffers.bytes() == 0 {
                return Ok(0);
            }
            Ok(tcp::receive(fd, descriptor, buffers, 0)?.bytes as ssize_t)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `recv(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recv(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::recv(fd, buffer, bytes, flags) };
    on_reading(
        fd,
        // SAFETY: the caller guarantees it.
        |descriptor| Ok(unsafe { receive_into(fd, descriptor, buffer, bytes, flags) }?.bytes as ssize_t),
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `recv(2)`; the buffer has `room` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    match bytes <= room && recognition::may_be_sctp_socket(fd) {
        // SAFETY: the caller guarantees it.
        true => unsafe { recv(fd, buffer, bytes, flags) },
        // SAFETY: the caller guarantees it.
        false => unsafe { next::__recv_chk(fd, buffer, bytes, room, flags) },
    }
}

/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller guarantees it.
    let forward = || unsafe { next::recvfrom(fd, buffer, bytes, flags, from, from_bytes) };
    on_reading(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let message = unsafe { receive_into(fd, descriptor, buffer, bytes, flags) }?;
            // SAFETY: the caller guarantees it.
            unsafe { tell_sender(descriptor, message.header.as_ref(), from, from_bytes) }?;
            Ok(message.bytes as ssize_t)
        },
        forward,
    )
}

/// # Safety
///
/// The caller meets the requirements of `recvfrom(2)`; the buffer has `room` bytes.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> ssize_t {
    match bytes <= room && recognition::may_be_sctp_socket(fd) {
        // SAFETY: the caller guarantees it.
        true => unsafe { recvfrom(fd, buffer, bytes, flags, from, from_bytes) },
        // SAFETY: the caller guarantees it.
        false => unsafe { next::__recvfrom_chk(fd, buffer, bytes, room, flags, from, from_bytes) },
    }
}

/// # Safety
///
/// `message` meets the requirements of `recvmsg(2)`.
unsafe fn receive_message(
    fd: RawFd,
    descriptor: &Descriptor,
    message: &mut msghdr,
    flags: c_int,
) -> Result<ssize_t, ReadError> {
    // SAFETY: the caller guarantees it.
    let buffers = unsafe { Buffers::of_program(parts_of_message(message.msg_iov, message.msg_iovlen)?) };
    let received = receive::receive(fd, descriptor, buffers, flags)?;
    // SAFETY: the caller guarantees it.
    unsafe { describe(descriptor, message, received, flags, || receive::next(fd, descriptor)) }
        .map_err(ReadError::Errno)
}

/// Describes a received message to the program, and returns its number of bytes. `next` returns the header of the message behind.
///
/// # Safety
///
/// `message` meets the requirements of `recvmsg(2)`.
unsafe fn describe(
    descriptor: &Descriptor,
    message: &mut msghdr,
    received: Message,
    flags: c_int,
    next: impl FnOnce() -> Option<Header>,
) -> Result<ssize_t> {
    message.msg_flags = if received.whole && !tcp::is_stream(descriptor) { libc::MSG_EOR } else { 0 };
    let pages = descriptor.pages();
    let (name, bytes) = (message.msg_name.cast(), &raw mut message.msg_namelen);
    // SAFETY: the caller guarantees it.
    unsafe { tell_sender(descriptor, received.header.as_ref(), name, bytes) }?;
    let Some(header) = received.header else {
        message.msg_controllen = 0;
        return Ok(received.bytes as ssize_t);
    };
    let subscriptions = Subscriptions(pages.status.subscriptions.load(Relaxed));
    let peeks_on =
        subscriptions.contains(Subscriptions::NXTINFO) && received.whole && flags & libc::MSG_PEEK == 0;
    let next = if peeks_on { next() } else { None };
    // Of a notification, only what follows is described.
    let is_data = header.kind == Kind::Data;
    if !is_data {
        message.msg_flags |= MSG_NOTIFICATION;
    }
    let described = if is_data { subscriptions } else { Subscriptions::default() };
    // SAFETY: the caller guarantees it.
    unsafe { ancillary::write(message, &header, next.as_ref(), described) };
    Ok(received.bytes as ssize_t)
}

/// Messages that are received under one hold of the lock.
struct Batch<'a> {
    fd: RawFd,
    descriptor: &'a Descriptor,
    flags: c_int,
    /// The call has received none before.
    is_first: bool,
    /// Set to whether the last look has found nothing.
    is_empty: &'a Cell<bool>,
}

impl Batch<'_> {
    /// Receives messages that have come until `is_over` returns true behind one. Returns their number.
    ///
    /// # Safety
    ///
    /// The program has lent the messages, which meet the requirements of `recvmsg(2)`.
    unsafe fn receive(
        &self,
        messages: &mut [mmsghdr],
        is_over: impl Fn() -> bool,
    ) -> Result<usize, ReadError> {
        let mut received = 0;
        self.is_empty.set(false);
        let take_next = |reader: &Reader<'_>| {
            let Some(next) = messages.get_mut(received) else { return false };
            // SAFETY: the caller guarantees it.
            match unsafe { take_next(self.descriptor, &mut next.msg_hdr, self.flags, reader) } {
                Ok(Some(bytes)) => next.msg_len = bytes as c_uint,
                Ok(None) => return false,
                Err(Errno(error)) => {
                    self.is_empty.set(error == libc::EAGAIN && !reader.has_hint());
                    return false;
                }
            }
            received += 1;
            !is_over()
        };
        receive::receive_batch(self.fd, self.descriptor, self.flags, self.is_first, take_next)?;
        Ok(received)
    }
}

/// Takes the next message, and returns its number of bytes; `None` if that is for [`receive_message`].
///
/// # Safety
///
/// `message` meets the requirements of `recvmsg(2)`.
unsafe fn take_next(
    descriptor: &Descriptor,
    message: &mut msghdr,
    flags: c_int,
    reader: &Reader<'_>,
) -> Result<Option<ssize_t>> {
    // SAFETY: the caller guarantees it.
    let buffers = unsafe { Buffers::of_program(parts_of_message(message.msg_iov, message.msg_iovlen)?) };
    let has_bad_name = !message.msg_name.is_null()
        && (!can_be_bytes(message.msg_name) || message.msg_namelen.cast_signed() < 0);
    // A message for which the program has no room stays, and the one whose sender cannot be told fails the call.
    if buffers.bytes() == 0 || has_bad_name {
        return Ok(None);
    }
    let received = reader.take(buffers, flags)?;
    if received.header.is_none() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it.
    unsafe { describe(descriptor, message, received, flags, || reader.next()) }.map(Some)
}

/// Returns when a call that may take `limit` is over; `None` for no limit.
///
/// # Errors
///
/// `EINVAL`: the time is none.
fn end_of(limit: Option<&timespec>) -> Result<Option<Instant>> {
    let Some(limit) = limit else { return Ok(None) };
    let invalid = Errno(libc::EINVAL);
    let nanoseconds = u32::try_from(limit.tv_nsec).ok().filter(|part| *part < 1_000_000_000);
    let seconds = u64::try_from(limit.tv_sec).map_err(|_| invalid)?;
    Ok(Instant::now().checked_add(Duration::new(seconds, nanoseconds.ok_or(invalid)?)))
}

/// # Safety
///
/// The caller meets the requirements of `recvmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let forward = || {
        // SAFETY: the caller guarantees it.
        unsafe {
            let received = next::recvmsg(fd, message, flags);
            if received >= 0 && !message.is_null() {
                forget_handed_over(&*message);
            }
            received
        }
    };
    on_reading(
        fd,
        |descriptor| {
            if !can_be(message) {
                return Err(Errno(libc::EFAULT).into());
            }
            // SAFETY: the caller guarantees it.
            unsafe { receive_message(fd, descriptor, &mut *message, flags) }
        },
        forward,
    )
}

/// Forgets the descriptors that came over a foreign socket: their numbers may have meant others before.
///
/// # Safety
///
/// The message was received.
unsafe fn forget_handed_over(message: &msghdr) {
    // SAFETY: the macros stay within the length that the kernel has written.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(message);
        while !entry.is_null() {
            if ((*entry).cmsg_level, (*entry).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*entry).cmsg_len - size_of::<libc::cmsghdr>();
                let descriptors = libc::CMSG_DATA(entry).cast::<RawFd>();
                (0..bytes / size_of::<RawFd>())
                    .for_each(|n| table::forget(descriptors.add(n).read_unaligned()));
            }
            entry = libc::CMSG_NXTHDR(message, entry);
        }
    }
}

/// # Safety
///
/// The caller meets the requirements of `recvmmsg(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    number: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let forward = || {
        // SAFETY: the caller guarantees it.
        unsafe {
            let received = next::recvmmsg(fd, messages, number, flags, timeout);
            let headers = (0..usize::try_from(received).unwrap_or(0)).map(|n| &(*messages.add(n)).msg_hdr);
            headers.for_each(|message| forget_handed_over(message));
            received
        }
    };
    on_reading(
        fd,
        |descriptor| {
            // SAFETY: the caller guarantees it.
            let messages = unsafe { messages_of(messages, number) }?;
            if !timeout.is_null() && !can_be(timeout) {
                return Err(Errno(libc::EFAULT).into());
            }
            // SAFETY: the program has lent the time, to be written.
            let limit = unsafe { timeout.as_mut() };
            // SAFETY: the caller guarantees it.
            unsafe { receive_each(fd, descriptor, messages, flags, limit) }
        },
        forward,
    )
}

/// Receives messages into all of these places, or until `limit` is over when a message has come; stores the time that is left
/// there. Returns their number.
///
/// # Safety
///
/// The program has lent the messages, which meet the requirements of `recvmsg(2)`.
unsafe fn receive_each(
    fd: RawFd,
    descriptor: &Descriptor,
    messages: &mut [mmsghdr],
    flags: c_int,
    limit: Option<&mut timespec>,
) -> Result<c_int, ReadError> {
    let end = end_of(limit.as_deref())?;
    let left = Cell::new(Duration::MAX);
    // As in the kernel, the time counts behind each message, and ends no wait.
    let is_over = || {
        left.set(end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now())));
        left.get().is_zero()
    };
    let first_only = flags & libc::MSG_WAITFORONE != 0;
    let flags = flags & !libc::MSG_WAITFORONE;
    let flags_at = |n| if n > 0 && first_only { flags | libc::MSG_DONTWAIT } else { flags };
    // Whether the last look has found nothing.
    let is_empty = Cell::new(false);
    let is_done = |n| {
        // A program with both ends of an association may have sent more, which the daemon passes on first.
        let is_empty = || is_empty.get() && !system::waits(fd, flags_at(n)) && !self_connect::has_sent();
        n > 0 && (left.get().is_zero() || is_empty())
    };
    let received = each(
        messages,
        |n, some| {
            if is_done(n) {
                return Err(Errno(libc::EAGAIN).into());
            }
            let batch = Batch { fd, descriptor, flags: flags_at(n), is_first: n == 0, is_empty: &is_empty };
            // SAFETY: the caller guarantees it.
            unsafe { batch.receive(some, is_over) }
        },
        |n, message| {
            if is_done(n) {
                return Err(Errno(libc::EAGAIN).into());
            }
            // SAFETY: the caller guarantees it.
            let bytes = unsafe { receive_message(fd, descriptor, message, flags_at(n)) }?;
            // After a message, the end waits for the next call.
            if bytes == 0 && n > 0 {
                return Err(Errno(libc::EAGAIN).into());
            }
            is_over();
            Ok(bytes)
        },
    );
    if let (Some(limit), Ok(1..)) = (limit, &received) {
        *limit = system::timespec(left.get());
    }
    received
}

#[cfg(test)]
mod tests {
    use std::mem;

    use channel_protocol::record::Flags;
    use channel_protocol::status_page::{State, StatusPage};

    use super::*;
    use crate::descriptor;
    use crate::lock::tests::HOLDS;
    use crate::system::{Content, Source};

    /// Calls `f` with a socket whose pair has so many messages of one byte.
    fn with_messages(count: u8, f: impl FnOnce(RawFd, &Descriptor)) {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two numbers.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
        let header = Header { bytes: 1, flags: Flags::END, ..Header::new(Kind::Data) }.encode();
        for number in 0..count {
            let content = [number];
            let record = [Source::of(&header), Source::of(&content)];
            system::send(ends[1], Content::new(&record), None, 0).expect("a pair with room");
        }
        let files = descriptor::tests::files();
        descriptor::tests::set(files[0].raw(), StatusPage::STATE_AT, State::Connected as u32);
        f(ends[0], &Descriptor::map(files).expect("pages of this version"));
        ends.into_iter().for_each(system::close);
    }

    /// Receives into so many places, and returns the bytes that have come.
    fn receive(
        fd: RawFd,
        descriptor: &Descriptor,
        number: usize,
        flags: c_int,
        limit: Option<&mut timespec>,
    ) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0_u8; number];
        let mut parts: Vec<iovec> =
            bytes.iter_mut().map(|byte| iovec { iov_base: (&raw mut *byte).cast(), iov_len: 1 }).collect();
        let mut messages: Vec<mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: an all-zero header is valid and refers to nothing.
                let mut message: mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        // SAFETY: each message refers to its byte.
        let received = unsafe { receive_each(fd, descriptor, &mut messages, flags, limit) }?;
        bytes.truncate(usize::try_from(received).expect("a number"));
        Ok(bytes)
    }

    #[test]
    fn several_messages_are_received_under_one_hold_of_the_lock() {
        with_messages(32, |fd, descriptor| {
            let before = HOLDS.get();
            assert_eq!(receive(fd, descriptor, 40, libc::MSG_DONTWAIT, None), Ok((0..32).collect()));
            assert_eq!(HOLDS.get() - before, 1);
        });
    }

    #[test]
    fn a_call_that_waits_for_one_message_takes_those_that_have_come() {
        with_messages(100, |fd, descriptor| {
            let more = receive(fd, descriptor, 200, libc::MSG_WAITFORONE, None);
            assert_eq!(more, Ok((0..100).collect()), "more than under one hold of the lock");
        });
    }

    #[test]
    fn a_time_that_is_over_ends_the_call_behind_the_next_message() {
        with_messages(3, |fd, descriptor| {
            let mut none = timespec { tv_sec: 0, tv_nsec: 0 };
            assert_eq!(receive(fd, descriptor, 3, 0, Some(&mut none)), Ok(vec![0]));
            assert_eq!((none.tv_sec, none.tv_nsec), (0, 0));
            let mut enough = timespec { tv_sec: 1000, tv_nsec: 0 };
            assert_eq!(receive(fd, descriptor, 2, 0, Some(&mut enough)), Ok(vec![1, 2]));
            assert!((1..1000).contains(&enough.tv_sec), "the time that is left");
        });
    }

    #[test]
    fn a_time_that_is_none_fails_the_call() {
        with_messages(1, |fd, descriptor| {
            for (tv_sec, tv_nsec) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
                let mut limit = timespec { tv_sec, tv_nsec };
                let invalid = Err(ReadError::Errno(Errno(libc::EINVAL)));
                assert_eq!(receive(fd, descriptor, 1, 0, Some(&mut limit)), invalid);
                assert_eq!((limit.tv_sec, limit.tv_nsec), (tv_sec, tv_nsec));
            }
        });
    }
}
