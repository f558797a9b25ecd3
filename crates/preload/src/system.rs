//! System calls. They bypass the C library, because the shim replaces its functions of these names. Calls that wait for others go
//! through the C library, which ends them when the thread is cancelled.

mod messages;

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_long, c_void};

pub(crate) use crate::buffers::{Buffers, Content, Destination, Source, can_be, can_be_bytes};
use crate::errno::check;
pub(crate) use crate::errno::{Errno, Result};
use crate::next::c_library;
use crate::owned::Owned;
use crate::system_call::system_call;
pub(crate) use messages::{await_message, receive, send, send_waiting};

/// Size of the kernel's signal sets; those of the C library are longer.
const SIGNAL_SET_BYTES: usize = 8;

/// Removes the record at the front.
pub(crate) fn discard(fd: RawFd) -> Result<()> {
    let (nowhere, flags): (*mut c_void, _) = (ptr::null_mut(), libc::MSG_DONTWAIT);
    // SAFETY: the kernel writes nothing into an empty buffer.
    check(unsafe { system_call!(libc::SYS_recvfrom, fd, nowhere, 0_usize, flags, nowhere, nowhere) })
        .map(drop)
}

/// Waits for a record, unless the flags have `MSG_DONTWAIT`, subject to the descriptor's mode, time limit and signals. A
/// cancellation point.
pub(crate) fn await_record(fd: RawFd, flags: c_int) -> Result<()> {
    let flags = libc::MSG_PEEK | flags & libc::MSG_DONTWAIT;
    // SAFETY: the kernel writes nothing into an empty buffer.
    let looked =
        unsafe { c_library::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
    check(looked as c_long).map(drop)
}

/// Waits as [`await_record`] for a descriptor that blocks, and wakes for each record, whichever other threads wait, too.
///
/// `poll` is never restarted after a signal handler, and a receive is, where it has no time limit and the handler has
/// `SA_RESTART`. The kernel does not tell which handler has run, so all that the program has must have the flag.
///
/// The wait ends after `left`, the rest of the time limit; where that is `None`, the limit has just begun.
pub(crate) fn await_record_among_others(fd: RawFd, left: Option<Duration>) -> Result<()> {
    let limit = left.map(timespec).or_else(|| receive_timeout(fd));
    loop {
        match await_events([fd], libc::POLLIN, limit) {
            Ok([0]) => return Err(Errno(libc::EAGAIN)),
            Ok(_) => return Ok(()),
            Err(Errno(libc::EINTR)) if limit.is_none() && all_handlers_restart() => {}
            // The kernel polls no descriptor where the limit on descriptors is 0.
            Err(Errno(libc::EINVAL)) => return await_record(fd, 0),
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether all signal handlers of the program have `SA_RESTART`.
fn all_handlers_restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        // SAFETY: an all-zero sigaction is one, and the destination is writable.
        let (got, action) = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (libc::sigaction(signal, ptr::null(), &raw mut action), action)
        };
        // The C library keeps the signals of its own to itself.
        got != 0
            || matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
            || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Returns the size of the send buffer, which the kernel has doubled when it was set.
pub(crate) fn send_buffer(fd: RawFd) -> Result<c_int> {
    let mut value: c_int = 0;
    let mut bytes = size_of::<c_int>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_SNDBUF);
    // SAFETY: the value is as long as the length says.
    let done = unsafe { system_call!(libc::SYS_getsockopt, fd, level, name, &raw mut value, &raw mut bytes) };
    check(done).map(|_| value)
}

/// Sets the size of the send buffer.
pub(crate) fn set_send_buffer(fd: RawFd, bytes: c_int) -> Result<()> {
    let (level, name, length) = (libc::SOL_SOCKET, libc::SO_SNDBUF, size_of::<c_int>());
    // SAFETY: the value is read.
    let done = unsafe { system_call!(libc::SYS_setsockopt, fd, level, name, &raw const bytes, length) };
    check(done).map(drop)
}

/// Returns the length of all records that wait in a pair.
pub(crate) fn unread_bytes(fd: RawFd) -> Result<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: the destination is writable.
    check(unsafe { system_call!(libc::SYS_ioctl, fd, libc::FIONREAD, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

pub(crate) fn set_peek_offset(fd: RawFd, offset: c_int) -> Result<()> {
    let bytes = size_of::<c_int>();
    // SAFETY: the value is read.
    let done = unsafe {
        system_call!(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &raw const offset, bytes,)
    };
    check(done).map(drop)
}

pub(crate) fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor.
    unsafe { system_call!(libc::SYS_close, fd) };
}

/// Waits for one of `events` on a descriptor, at most for the timeout, and returns its events.
pub(crate) fn poll(fd: RawFd, events: i16, mut timeout: libc::timespec) -> Result<i16> {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let no_mask: *const c_void = ptr::null();
    // SAFETY: the kernel may write both the entry and the time.
    check(unsafe {
        let (entry, timeout) = (&raw mut entry, &raw mut timeout);
        system_call!(libc::SYS_ppoll, entry, 1_usize, timeout, no_mask, SIGNAL_SET_BYTES)
    })?;
    Ok(entry.revents)
}

/// Sleeps for `time`, or until a signal was handled.
pub(crate) fn sleep(time: Duration) {
    let mut time = timespec(time);
    let (nothing, no_mask): (*mut libc::pollfd, *const c_void) = (ptr::null_mut(), ptr::null());
    // SAFETY: the time is writable.
    unsafe { system_call!(libc::SYS_ppoll, nothing, 0, &raw mut time, no_mask, SIGNAL_SET_BYTES) };
}

/// Closes a descriptor; returns whether it was open.
pub(crate) fn try_close(fd: RawFd) -> bool {
    // SAFETY: the call takes no pointer.
    unsafe { system_call!(libc::SYS_close, fd) == 0 }
}

/// Returns the limit on descriptors of this process.
pub(crate) fn descriptors_max() -> usize {
    usize::try_from(limit(libc::RLIMIT_NOFILE).rlim_cur).unwrap_or(usize::MAX)
}

/// Returns the length of files from which a write raises `SIGXFSZ`.
pub(crate) fn file_bytes_max() -> usize {
    usize::try_from(limit(libc::RLIMIT_FSIZE).rlim_cur).unwrap_or(usize::MAX)
}

/// Raises a soft limit of this process to its hard limit.
pub(crate) fn raise_limit(resource: libc::__rlimit_resource_t) {
    let libc::rlimit { rlim_max, .. } = limit(resource);
    let raised = libc::rlimit { rlim_cur: rlim_max, rlim_max };
    // SAFETY: the limit is readable.
    unsafe { system_call!(libc::SYS_prlimit64, 0, resource, &raw const raised, 0) };
}

/// Returns a limit of this process.
fn limit(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the destination is writable.
    unsafe { system_call!(libc::SYS_prlimit64, 0, resource, 0, &raw mut limit) };
    limit
}

/// Waits until one of the descriptors has one of `events`, or the time is over; returns the events of each. A cancellation point.
pub(crate) fn await_events<const N: usize>(
    fds: [RawFd; N],
    events: i16,
    timeout: Option<libc::timespec>,
) -> Result<[i16; N]> {
    unsafe extern "C-unwind" {
        fn ppoll(
            entries: *mut libc::pollfd,
            count: libc::nfds_t,
            timeout: *const libc::timespec,
            mask: *const libc::sigset_t,
        ) -> c_int;
    }
    let mut entries = fds.map(|fd| libc::pollfd { fd, events, revents: 0 });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: that many writable entries, and a time or none.
    check(unsafe { ppoll(entries.as_mut_ptr(), N as libc::nfds_t, timeout, ptr::null()) }.into())?;
    Ok(entries.map(|entry| entry.revents))
}

/// Blocks the signals of this thread, so that they arrive only in [`SignalsBlocked::await_one`].
pub(crate) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        // SAFETY: all-zero sets are empty sets, and both are writable.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            // The call does not fail with these arguments.
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            SignalsBlocked(before)
        }
    }

    /// Waits for a signal, at most for `within`.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal was handled.
    pub(crate) fn await_one(&self, within: Duration) -> Result<()> {
        let mut time = timespec(within);
        let nothing: *mut libc::pollfd = ptr::null_mut();
        // SAFETY: the time is writable, and the set is readable.
        let done = unsafe {
            system_call!(libc::SYS_ppoll, nothing, 0, &raw mut time, &raw const self.0, SIGNAL_SET_BYTES,)
        };
        check(done).map(drop)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is readable.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Returns a time in the form of the kernel; one beyond its range is the longest.
pub(crate) fn timespec(time: Duration) -> libc::timespec {
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}

/// Returns whether the other end of a pair is gone, or both directions are shut down.
pub(crate) fn is_hung_up(fd: RawFd) -> bool {
    poll(fd, 0, timespec(Duration::ZERO)).is_ok_and(|events| events & libc::POLLHUP != 0)
}

/// Returns whether nothing more comes through a pair.
pub(crate) fn has_input_ended(fd: RawFd) -> bool {
    poll(fd, libc::POLLRDHUP, timespec(Duration::ZERO)).is_ok_and(|events| events & libc::POLLRDHUP != 0)
}

/// Returns whether there is something to read, or nothing more comes.
pub(crate) fn has_input(fd: RawFd) -> bool {
    poll(fd, libc::POLLIN, timespec(Duration::ZERO)).is_ok_and(|events| events != 0)
}

/// Returns whether a call with these flags may wait.
pub(crate) fn waits(fd: RawFd, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && !is_nonblocking(fd)
}

pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    // SAFETY: the call takes no pointer.
    let flags = check(unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_GETFL, 0) });
    flags.is_ok_and(|flags| flags & libc::O_NONBLOCK as usize != 0)
}

/// Moves a descriptor to the lowest free number.
pub(crate) fn at_lowest(descriptor: Owned) -> Owned {
    // SAFETY: the call takes no pointer.
    let copy = unsafe { system_call!(libc::SYS_fcntl, descriptor.raw(), libc::F_DUPFD_CLOEXEC, 0) };
    match Owned::new(copy as RawFd) {
        Some(lower) if lower.raw() < descriptor.raw() => lower,
        _ => descriptor,
    }
}

/// Copies a descriptor of the shim to a high number, which few programs depend on.
pub(crate) fn hidden_copy(fd: RawFd) -> Result<RawFd> {
    /// Below the limit of most processes, and of `select`.
    const FIRST: c_int = 512;
    // SAFETY: the call takes no pointer.
    let copy =
        |first: c_int| check(unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, first) });
    copy(FIRST).or_else(|_| copy(0)).map(|copy| copy as RawFd)
}

/// Makes an `ioctl` on a socket of this family, for requests that do not concern one socket.
///
/// # Errors
///
/// `EMFILE`: the process has no room for a socket.
///
/// # Safety
///
/// `argument` meets the requirements of `ioctl(2)` for this request: most requests write to the memory that it points to.
pub(crate) unsafe fn control_of_family(
    family: u32,
    request: libc::c_ulong,
    argument: usize,
) -> Result<c_int> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointer.
    let fd = check(unsafe { system_call!(libc::SYS_socket, family, kind, 0) })? as RawFd;
    // SAFETY: the caller guarantees it.
    let done = check(unsafe { system_call!(libc::SYS_ioctl, fd, request, argument) });
    close(fd);
    done.map(|done| done as c_int)
}

pub(crate) fn set_nonblocking(fd: RawFd) {
    // SAFETY: the calls take no pointers.
    unsafe {
        let flags = system_call!(libc::SYS_fcntl, fd, libc::F_GETFL, 0);
        system_call!(libc::SYS_fcntl, fd, libc::F_SETFL, flags | c_long::from(libc::O_NONBLOCK));
    }
}

pub(crate) fn clear_close_on_exec(fd: RawFd) {
    // SAFETY: the call takes no pointer.
    unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_SETFD, 0) };
}

/// Returns `SO_SNDTIMEO` of a descriptor; `None` for no limit.
pub(crate) fn send_timeout(fd: RawFd) -> Option<libc::timespec> {
    time_limit(fd, libc::SO_SNDTIMEO)
}

/// Returns `SO_RCVTIMEO` of a descriptor; `None` for no limit.
pub(crate) fn receive_timeout(fd: RawFd) -> Option<libc::timespec> {
    time_limit(fd, libc::SO_RCVTIMEO)
}

/// Sets `SO_RCVTIMEO` of one descriptor to `SO_SNDTIMEO` of another.
pub(crate) fn apply_send_timeout(receiver: RawFd, sender: RawFd) {
    if let Some(limit) = time_value(sender, libc::SO_SNDTIMEO) {
        set_time_value(receiver, libc::SO_RCVTIMEO, &limit);
    }
}

/// Sets `SO_SNDTIMEO`, which also limits a `connect`, to whole seconds.
pub(crate) fn set_send_timeout(fd: RawFd, limit: Duration) {
    let tv_sec = libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX);
    set_time_value(fd, libc::SO_SNDTIMEO, &libc::timeval { tv_sec, tv_usec: 0 });
}

fn set_time_value(fd: RawFd, name: c_int, limit: &libc::timeval) {
    let bytes = size_of::<libc::timeval>();
    // SAFETY: the value is readable.
    unsafe { system_call!(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, name, &raw const *limit, bytes) };
}

fn time_limit(fd: RawFd, name: c_int) -> Option<libc::timespec> {
    let value = time_value(fd, name)?;
    Some(libc::timespec { tv_sec: value.tv_sec, tv_nsec: value.tv_usec * 1000 })
}

/// Returns a time limit, if there is one.
fn time_value(fd: RawFd, name: c_int) -> Option<libc::timeval> {
    let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut bytes = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the value is as long as the length says.
    let done = unsafe {
        system_call!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, name, &raw mut value, &raw mut bytes)
    };
    (done == 0 && (value.tv_sec, value.tv_usec) != (0, 0)).then_some(value)
}

/// Returns the kernel's cookie of a socket.
pub(crate) fn cookie(fd: RawFd) -> Result<u64> {
    let mut cookie: u64 = 0;
    let mut bytes = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the value is as long as the length says.
    let done = unsafe {
        let value = &raw mut cookie;
        system_call!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_COOKIE, value, &raw mut bytes)
    };
    check(done).map(|_| cookie)
}

/// Returns the abstract name of the peer of an AF_UNIX socket; `None` for other descriptors and names.
pub(crate) fn abstract_peer(fd: RawFd, address: &mut libc::sockaddr_un) -> Option<&[u8]> {
    let mut bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is as long as the length says.
    let done = unsafe { system_call!(libc::SYS_getpeername, fd, &raw mut *address, &raw mut bytes) };
    if done != 0 || c_int::from(address.sun_family) != libc::AF_UNIX {
        return None;
    }
    let name_bytes = (bytes as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    // SAFETY: c_char and u8 have the same layout.
    let name: &[u8; 108] = unsafe { &*(&raw const address.sun_path).cast() };
    name.get(..name_bytes)?.strip_prefix(b"\0")
}

/// Returns whether a socket keeps record boundaries and order, as pairs do.
pub(crate) fn is_seqpacket(fd: RawFd) -> bool {
    let mut kind: c_int = 0;
    let mut bytes = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the value is as long as the length says.
    let done = unsafe {
        let value = &raw mut kind;
        system_call!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_TYPE, value, &raw mut bytes)
    };
    done == 0 && kind == libc::SOCK_SEQPACKET
}

thread_local! {
    static THREAD_ID: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn thread_id() -> u32 {
    THREAD_ID.with(|known| {
        if known.get() == 0 {
            // SAFETY: the call takes no argument.
            known.set(unsafe { system_call!(libc::SYS_gettid) as u32 });
        }
        known.get()
    })
}

/// Forgets the cached thread identifier, which is another in a child of `fork`.
pub(crate) fn forget_thread_id() {
    THREAD_ID.set(0);
}

pub(crate) fn process_id() -> i32 {
    // The C library caches the identifier across vfork, so the kernel is asked.
    // SAFETY: the call takes no argument.
    unsafe { system_call!(libc::SYS_getpid) as i32 }
}

/// Makes an empty memfd with this name that can be sealed.
pub(crate) fn memfd(name: &CStr) -> Result<Owned> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is readable.
    let fd = unsafe { system_call!(libc::SYS_memfd_create, name.as_ptr(), flags) };
    let fd = check(fd)? as RawFd;
    Owned::new(fd).ok_or(Errno(libc::EBADF))
}

/// Sets the length of a file.
pub(crate) fn set_length(fd: RawFd, bytes: usize) -> Result<()> {
    // SAFETY: the call takes no pointer.
    check(unsafe { system_call!(libc::SYS_ftruncate, fd, bytes) }).map(drop)
}

/// Seals a memfd: its size can no longer change, and only those who map it for writing now can change its content.
pub(crate) fn seal_mapped(fd: RawFd) -> Result<()> {
    let seals = libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the command takes a number.
    check(unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, seals) }).map(drop)
}

/// Fills a memfd with the bytes of `content` and seals it.
pub(crate) fn fill_and_seal(fd: RawFd, content: Content<'_>) -> Result<()> {
    fill(fd, content)?;
    seal(fd)
}

/// Seals a memfd: its content and size can no longer change.
pub(crate) fn seal(fd: RawFd) -> Result<()> {
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: the call takes no pointer.
    check(unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, seals) }).map(drop)
}

fn fill(fd: RawFd, content: Content<'_>) -> Result<()> {
    for part in content.as_iov() {
        let mut done = 0;
        while done < part.iov_len {
            let at = part.iov_base.cast::<u8>().wrapping_add(done);
            // SAFETY: the kernel reads memory of the content, or fails.
            done += check(unsafe { system_call!(libc::SYS_write, fd, at, part.iov_len - done) })?;
        }
    }
    Ok(())
}

/// Reads a memfd from `offset` and returns the number of bytes.
pub(crate) fn read_at(fd: RawFd, buffers: Buffers<'_>, offset: usize) -> Result<usize> {
    let count = buffers.as_iov().len().min(libc::UIO_MAXIOV as usize);
    // SAFETY: the kernel writes into memory of the buffers, or fails.
    check(unsafe { system_call!(libc::SYS_preadv, fd, buffers.as_iov().as_ptr(), count, offset, 0) })
}

/// Reads a file from `offset`, whatever its position.
pub(crate) fn read_file(fd: RawFd, buffer: &mut [u8], offset: i64) -> Result<usize> {
    // SAFETY: the destination is writable.
    check(unsafe { system_call!(libc::SYS_pread64, fd, buffer.as_mut_ptr(), buffer.len(), offset) })
}

/// Returns the position of a file.
pub(crate) fn position(fd: RawFd) -> Result<i64> {
    // SAFETY: the call takes no pointer.
    let position = check(unsafe { system_call!(libc::SYS_lseek, fd, 0_i64, libc::SEEK_CUR) })?;
    Ok(position as i64)
}

pub(crate) fn set_position(fd: RawFd, position: i64) -> Result<()> {
    // SAFETY: the call takes no pointer.
    check(unsafe { system_call!(libc::SYS_lseek, fd, position, libc::SEEK_SET) }).map(drop)
}
