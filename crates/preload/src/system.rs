//! System calls. They go past the C library: its functions of these names are ours. Those that wait for others are the C
//! library's, which ends them when the thread is cancelled.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::time::Duration;

use libc::{c_int, c_long, c_void, iovec};

use crate::next::c_library;

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) fn last() -> Errno {
        // SAFETY: the C library keeps one for each thread.
        Errno(unsafe { *libc::__errno_location() })
    }

    pub(crate) fn set(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The first and the last bytes of the address space are nobody's: what points there, programs mean as no pointer.
const NOWHERE_BYTES: usize = 4096;

/// Whether a pointer of a program can be one. The kernel would find more out.
pub(crate) fn can_be<T>(pointer: *const T) -> bool {
    pointer.is_aligned() && can_be_bytes(pointer)
}

/// The same of a pointer that need not be aligned.
pub(crate) fn can_be_bytes<T>(pointer: *const T) -> bool {
    (NOWHERE_BYTES..usize::MAX - NOWHERE_BYTES).contains(&pointer.addr())
}

pub(crate) type Result<T> = std::result::Result<T, Errno>;

pub(crate) fn check(returned: c_long) -> Result<usize> {
    usize::try_from(returned).map_err(|_| Errno::last())
}

/// Memory that a program has lent for the time of a call. It may be read, and written by calls that receive.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a>(&'a [iovec]);

impl<'a> Buffers<'a> {
    /// # Safety
    ///
    /// Each describes memory of the program that lives as long as the call. Where it does not, the kernel says `EFAULT`:
    /// nothing here touches it but [`Buffers::write`].
    pub(crate) unsafe fn new(iov: &'a [iovec]) -> Self {
        Buffers(iov)
    }

    /// Memory of our own to write into.
    pub(crate) fn of(place: &mut [u8]) -> iovec {
        iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() }
    }

    /// Memory of our own to read from.
    pub(crate) fn from(bytes: &[u8]) -> iovec {
        iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    pub(crate) fn bytes(self) -> usize {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(part.iov_len))
    }

    pub(crate) fn as_slice(self) -> &'a [iovec] {
        self.0
    }

    /// Copies as much of `bytes` there as there is room for; says how much. Of what cannot be memory, it finds the worst.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<usize> {
        let mut rest = bytes;
        for part in self.0 {
            let count = part.iov_len.min(rest.len());
            if count == 0 {
                continue;
            }
            if !can_be_bytes(part.iov_base) {
                return Err(Errno(libc::EFAULT));
            }
            let (now, later) = rest.split_at(count);
            // SAFETY: the program has lent the memory.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), count) };
            rest = later;
        }
        Ok(bytes.len() - rest.len())
    }
}

/// Bytes of the kernel's signal sets; those of the C library are longer.
const SIGNAL_SET_BYTES: usize = 8;

/// One descriptor of a control message.
#[repr(C)]
struct Rights<const N: usize> {
    header: libc::cmsghdr,
    descriptors: [RawFd; N],
}

const EMPTY: libc::cmsghdr = libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 };
const RIGHTS_AT: usize = size_of::<libc::cmsghdr>();

/// What a receive found.
pub(crate) struct Received<const N: usize> {
    pub(crate) bytes: usize,
    /// Descriptors that came with it; -1 where there is none.
    pub(crate) descriptors: [RawFd; N],
    /// There was no room in the process' table for one.
    pub(crate) descriptors_lost: bool,
}

/// `recvmsg` into `iov`, with at most `N` descriptors.
///
/// # Safety
///
/// `iov` describes memory that may be written.
pub(crate) unsafe fn receive<const N: usize>(fd: RawFd, iov: &[iovec], flags: c_int) -> Result<Received<N>> {
    let call = |message: &mut libc::msghdr, flags: c_int| {
        // SAFETY: all that the message describes may be written.
        unsafe { c_library::syscall()(libc::SYS_recvmsg, fd, ptr::from_mut(message), flags) }
    };
    // SAFETY: as the caller says.
    unsafe { receive_by(call, iov, flags) }
}

/// [`receive`], for as long as it takes: a cancellation point.
///
/// # Safety
///
/// As [`receive`].
pub(crate) unsafe fn await_message<const N: usize>(
    fd: RawFd,
    iov: &[iovec],
    flags: c_int,
) -> Result<Received<N>> {
    let call = |message: &mut libc::msghdr, flags: c_int| {
        // SAFETY: all that the message describes may be written.
        unsafe { c_library::recvmsg(fd, message, flags) as c_long }
    };
    // SAFETY: as the caller says.
    unsafe { receive_by(call, iov, flags) }
}

/// # Safety
///
/// `iov` describes memory that may be written.
unsafe fn receive_by<const N: usize>(
    call: impl FnOnce(&mut libc::msghdr, c_int) -> c_long,
    iov: &[iovec],
    flags: c_int,
) -> Result<Received<N>> {
    let mut control = Rights { header: EMPTY, descriptors: [-1; N] };
    // SAFETY: a msghdr of zeros names nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov.as_ptr().cast_mut();
    message.msg_iovlen = iov.len();
    if N > 0 {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = RIGHTS_AT + N * size_of::<RawFd>();
    }
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    let bytes = check(call(&mut message, flags))?;
    let descriptors_lost = N > 0 && message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(Received { bytes, descriptors: control.descriptors, descriptors_lost })
}

/// `sendmsg` of `iov`, with a descriptor.
pub(crate) fn send(fd: RawFd, iov: Buffers<'_>, descriptor: Option<RawFd>, flags: c_int) -> Result<usize> {
    let call = |message: &libc::msghdr| {
        // SAFETY: all that the message describes may be read.
        unsafe { c_library::syscall()(libc::SYS_sendmsg, fd, ptr::from_ref(message), flags) }
    };
    send_by(call, iov, descriptor)
}

/// [`send`], for as long as it takes: a cancellation point.
pub(crate) fn send_waiting(
    fd: RawFd,
    iov: Buffers<'_>,
    descriptor: Option<RawFd>,
    flags: c_int,
) -> Result<usize> {
    let call = |message: &libc::msghdr| {
        // SAFETY: all that the message describes may be read.
        unsafe { c_library::sendmsg(fd, message, flags) as c_long }
    };
    send_by(call, iov, descriptor)
}

fn send_by(
    call: impl FnOnce(&libc::msghdr) -> c_long,
    iov: Buffers<'_>,
    descriptor: Option<RawFd>,
) -> Result<usize> {
    let mut control = Rights::<1> {
        header: libc::cmsghdr {
            cmsg_len: RIGHTS_AT + size_of::<RawFd>(),
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        },
        descriptors: [descriptor.unwrap_or(-1)],
    };
    // SAFETY: a msghdr of zeros names nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov.0.as_ptr().cast_mut();
    message.msg_iovlen = iov.0.len();
    if descriptor.is_some() {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = RIGHTS_AT + size_of::<RawFd>();
    }
    check(call(&message))
}

/// Takes the record at the front away.
pub(crate) fn discard(fd: RawFd) -> Result<()> {
    let (nowhere, flags): (*mut c_void, _) = (ptr::null_mut(), libc::MSG_DONTWAIT);
    // SAFETY: nothing is written to a buffer of no bytes.
    check(unsafe { c_library::syscall()(libc::SYS_recvfrom, fd, nowhere, 0_usize, flags, nowhere, nowhere) })
        .map(drop)
}

/// Waits for a record, unless the flags have `MSG_DONTWAIT`, as the descriptor wants it: with its mode, its time limit, its
/// signals. A cancellation point.
pub(crate) fn await_record(fd: RawFd, flags: c_int) -> Result<()> {
    let flags = libc::MSG_PEEK | flags & libc::MSG_DONTWAIT;
    // SAFETY: nothing is written to a buffer of no bytes.
    let looked =
        unsafe { c_library::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
    check(looked as c_long).map(drop)
}

/// Memory that is zero, and of this process alone.
pub(crate) fn map_private(bytes: usize) -> Result<NonNull<c_void>> {
    map_anonymous(bytes, libc::MAP_PRIVATE)
}

fn map_anonymous(bytes: usize, sharing: c_int) -> Result<NonNull<c_void>> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS);
    // SAFETY: a mapping at a place that the kernel chooses touches nothing.
    let place = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    let failed = Errno::last();
    NonNull::new(place).filter(|_| place != libc::MAP_FAILED).ok_or(failed)
}

/// Maps a file that may be shorter than `bytes`: what is beyond its end is zero, and of this process alone.
pub(crate) fn map_padded(bytes: usize, file: RawFd) -> Result<NonNull<c_void>> {
    let length = file_bytes(file)?.min(bytes);
    let place = map_private(bytes)?;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: the file takes the place of the beginning of a mapping that nobody refers to yet.
    let mapped = unsafe { libc::mmap(place.as_ptr(), length, access, flags, file, 0) };
    if mapped == libc::MAP_FAILED {
        let failed = Errno::last();
        // SAFETY: it was mapped just now, and nobody refers to it.
        unsafe { unmap(place, bytes) };
        return Err(failed);
    }
    Ok(place)
}

fn file_bytes(file: RawFd) -> Result<usize> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the status is written, as far as the call succeeds.
    check(unsafe { libc::fstat(file, status.as_mut_ptr()) }.into())?;
    // SAFETY: the call has succeeded.
    let status = unsafe { status.assume_init() };
    usize::try_from(status.st_size).map_err(|_| Errno(libc::EINVAL))
}

/// Memory that is zero, and shared with children.
pub(crate) fn map_shared(bytes: usize) -> Result<NonNull<c_void>> {
    map_anonymous(bytes, libc::MAP_SHARED)
}

/// # Safety
///
/// It was mapped with this size, and nobody refers to it any more.
pub(crate) unsafe fn unmap(place: NonNull<c_void>, bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(place.as_ptr(), bytes) };
}

pub(crate) fn set_peek_offset(fd: RawFd, offset: c_int) -> Result<()> {
    let bytes = size_of::<c_int>();
    // SAFETY: the value is read.
    let done = unsafe {
        c_library::syscall()(
            libc::SYS_setsockopt,
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            &raw const offset,
            bytes,
        )
    };
    check(done).map(drop)
}

pub(crate) fn close(fd: RawFd) {
    // SAFETY: the descriptor is ours to close.
    unsafe { c_library::syscall()(libc::SYS_close, fd) };
}

/// The events of a descriptor once one of `events` has come, or the time is over.
pub(crate) fn poll(fd: RawFd, events: i16, mut timeout: libc::timespec) -> Result<i16> {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let no_mask: *const c_void = ptr::null();
    // SAFETY: one entry and a time, both of which the kernel may write.
    check(unsafe {
        let (entry, timeout) = (&raw mut entry, &raw mut timeout);
        c_library::syscall()(libc::SYS_ppoll, entry, 1_usize, timeout, no_mask, SIGNAL_SET_BYTES)
    })?;
    Ok(entry.revents)
}

/// Returns whether there was such a descriptor to close.
pub(crate) fn try_close(fd: RawFd) -> bool {
    // SAFETY: it takes no memory.
    unsafe { c_library::syscall()(libc::SYS_close, fd) == 0 }
}

/// Returns how many descriptors this process may have.
pub(crate) fn descriptors_max() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place may be written.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Waits until one of `events` has come to one of the descriptors, or the time is over; returns what has come to each. A
/// cancellation point.
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
    // SAFETY: as many entries, which may be written, and a time or none.
    check(unsafe { ppoll(entries.as_mut_ptr(), N as libc::nfds_t, timeout, ptr::null()) }.into())?;
    Ok(entries.map(|entry| entry.revents))
}

/// Signals of this thread, which come only where they are waited for.
pub(crate) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(crate) fn new() -> SignalsBlocked {
        // SAFETY: sets of zeros are empty ones, and both may be written.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            // With these arguments it does not fail.
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            SignalsBlocked(before)
        }
    }

    /// Waits for so long.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal was handled.
    pub(crate) fn await_one(&self, within: Duration) -> Result<()> {
        let mut time = timespec(within);
        let nothing: *mut libc::pollfd = ptr::null_mut();
        // SAFETY: the time may be written, and the set is read.
        let done = unsafe {
            c_library::syscall()(
                libc::SYS_ppoll,
                nothing,
                0,
                &raw mut time,
                &raw const self.0,
                SIGNAL_SET_BYTES,
            )
        };
        check(done).map(drop)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is read.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

pub(crate) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() }
}

/// Whether the other end of a carrier is gone, or both directions are shut.
pub(crate) fn is_hung_up(fd: RawFd) -> bool {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    poll(fd, 0, now).is_ok_and(|events| events & libc::POLLHUP != 0)
}

pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    // SAFETY: it takes no memory.
    let flags = check(unsafe { c_library::syscall()(libc::SYS_fcntl, fd, libc::F_GETFL, 0) });
    flags.is_ok_and(|flags| flags & libc::O_NONBLOCK as usize != 0)
}

/// The same descriptor under the lowest number that is free.
pub(crate) fn lowest(fd: RawFd) -> RawFd {
    // SAFETY: it takes no memory.
    let copy = check(unsafe { c_library::syscall()(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) });
    match copy.map(|copy| copy as RawFd) {
        Ok(lower) if lower < fd => {
            close(fd);
            lower
        }
        Ok(higher) => {
            close(higher);
            fd
        }
        Err(_) => fd,
    }
}

/// `ioctl` of a socket of this family, for what has nothing to do with one socket.
///
/// # Errors
///
/// As `ioctl(2)`; `EMFILE` where the process has no room for a socket.
pub(crate) fn control_of_family(family: u32, request: libc::c_ulong, argument: usize) -> Result<c_int> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: it takes no memory.
    let fd = check(unsafe { c_library::syscall()(libc::SYS_socket, family, kind, 0) })? as RawFd;
    // SAFETY: as the caller of `ioctl` says.
    let done = check(unsafe { c_library::syscall()(libc::SYS_ioctl, fd, request, argument) });
    close(fd);
    done.map(|done| done as c_int)
}

pub(crate) fn set_nonblocking(fd: RawFd) {
    // SAFETY: they take no memory.
    unsafe {
        let flags = c_library::syscall()(libc::SYS_fcntl, fd, libc::F_GETFL, 0);
        c_library::syscall()(libc::SYS_fcntl, fd, libc::F_SETFL, flags | c_long::from(libc::O_NONBLOCK));
    }
}

pub(crate) fn clear_close_on_exec(fd: RawFd) {
    // SAFETY: it takes no memory.
    unsafe { c_library::syscall()(libc::SYS_fcntl, fd, libc::F_SETFD, 0) };
}

/// `SO_SNDTIMEO` of a descriptor; `None` for no limit.
pub(crate) fn send_timeout(fd: RawFd) -> Option<libc::timespec> {
    time_limit(fd, libc::SO_SNDTIMEO)
}

/// `SO_RCVTIMEO` of a descriptor; `None` for no limit.
pub(crate) fn receive_timeout(fd: RawFd) -> Option<libc::timespec> {
    time_limit(fd, libc::SO_RCVTIMEO)
}

/// Gives what is received from one descriptor the time limit that another has for what it sends.
pub(crate) fn wait_no_longer_than_to_send(receiver: RawFd, sender: RawFd) {
    let Some(limit) = time_value(sender, libc::SO_SNDTIMEO) else { return };
    let bytes = size_of::<libc::timeval>();
    // SAFETY: the value is read.
    unsafe {
        let value = &raw const limit;
        c_library::syscall()(
            libc::SYS_setsockopt,
            receiver,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            value,
            bytes,
        )
    };
}

fn time_limit(fd: RawFd, name: c_int) -> Option<libc::timespec> {
    let value = time_value(fd, name)?;
    Some(libc::timespec { tv_sec: value.tv_sec, tv_nsec: value.tv_usec * 1000 })
}

/// A time limit, if there is one.
fn time_value(fd: RawFd, name: c_int) -> Option<libc::timeval> {
    let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut bytes = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the value has room for what it is said to have.
    let done = unsafe {
        c_library::syscall()(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, name, &raw mut value, &raw mut bytes)
    };
    (done == 0 && (value.tv_sec, value.tv_usec) != (0, 0)).then_some(value)
}

/// The name of the other end of an AF_UNIX socket, in the abstract namespace, if that is what the descriptor is.
pub(crate) fn abstract_peer(fd: RawFd, place: &mut libc::sockaddr_un) -> Option<&[u8]> {
    let mut bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address has room for what it is said to have.
    let done = unsafe { c_library::syscall()(libc::SYS_getpeername, fd, &raw mut *place, &raw mut bytes) };
    if done != 0 || c_int::from(place.sun_family) != libc::AF_UNIX {
        return None;
    }
    let name_bytes = (bytes as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    // SAFETY: c_char and u8 are alike.
    let name: &[u8; 108] = unsafe { &*(&raw const place.sun_path).cast() };
    name.get(..name_bytes)?.strip_prefix(b"\0")
}

/// Returns whether a socket keeps records apart and their order, as carriers do.
pub(crate) fn is_seqpacket(fd: RawFd) -> bool {
    let mut kind: c_int = 0;
    let mut bytes = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the value has room for what it is said to have.
    let done = unsafe {
        let value = &raw mut kind;
        c_library::syscall()(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_TYPE, value, &raw mut bytes)
    };
    done == 0 && kind == libc::SOCK_SEQPACKET
}

thread_local! {
    static THREAD_ID: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn thread_id() -> u32 {
    THREAD_ID.with(|known| {
        if known.get() == 0 {
            // SAFETY: it takes nothing.
            known.set(unsafe { c_library::syscall()(libc::SYS_gettid) as u32 });
        }
        known.get()
    })
}

/// In a child of `fork` the one thread is another than it was.
pub(crate) fn forget_thread_id() {
    THREAD_ID.set(0);
}

pub(crate) fn process_id() -> i32 {
    // The C library remembers it across vfork, so the kernel is asked.
    // SAFETY: it takes nothing.
    unsafe { c_library::syscall()(libc::SYS_getpid) as i32 }
}

/// An empty memfd that can be sealed.
pub(crate) fn memfd() -> Result<RawFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is read.
    let fd = unsafe { c_library::syscall()(libc::SYS_memfd_create, c"swiftwater-message".as_ptr(), flags) };
    check(fd).map(|fd| fd as RawFd)
}

/// Fills a memfd with the bytes of `content`, and seals it for good.
pub(crate) fn fill_and_seal(fd: RawFd, content: Buffers<'_>) -> Result<()> {
    fill(fd, content)?;
    seal(fd)
}

/// Leaves a memfd as it is for good.
pub(crate) fn seal(fd: RawFd) -> Result<()> {
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: it takes no memory.
    check(unsafe { c_library::syscall()(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, seals) }).map(drop)
}

fn fill(fd: RawFd, content: Buffers<'_>) -> Result<()> {
    for part in content.0 {
        let mut done = 0;
        while done < part.iov_len {
            let at = part.iov_base.cast::<u8>().wrapping_add(done);
            // SAFETY: the program has lent the memory.
            done += check(unsafe { c_library::syscall()(libc::SYS_write, fd, at, part.iov_len - done) })?;
        }
    }
    Ok(())
}

/// Reads a memfd from `offset` into `place`; says how many bytes.
///
/// # Safety
///
/// `place` describes memory that may be written.
pub(crate) unsafe fn read_at(fd: RawFd, place: Buffers<'_>, offset: usize) -> Result<usize> {
    let count = place.0.len().min(libc::UIO_MAXIOV as usize);
    // SAFETY: as the caller says.
    check(unsafe { c_library::syscall()(libc::SYS_preadv, fd, place.0.as_ptr(), count, offset, 0) })
}

/// Reads a file from `offset` on, whatever its position.
pub(crate) fn read_file(fd: RawFd, place: &mut [u8], offset: i64) -> Result<usize> {
    // SAFETY: the place may be written.
    check(unsafe { c_library::syscall()(libc::SYS_pread64, fd, place.as_mut_ptr(), place.len(), offset) })
}

/// The position of a file.
pub(crate) fn position(fd: RawFd) -> Result<i64> {
    // SAFETY: it takes no memory.
    let position = check(unsafe { c_library::syscall()(libc::SYS_lseek, fd, 0_i64, libc::SEEK_CUR) })?;
    Ok(position as i64)
}

pub(crate) fn set_position(fd: RawFd, position: i64) -> Result<()> {
    // SAFETY: it takes no memory.
    check(unsafe { c_library::syscall()(libc::SYS_lseek, fd, position, libc::SEEK_SET) }).map(drop)
}
