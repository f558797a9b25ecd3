//! System calls about files and programs. Like those of `system`, they bypass the C library.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::RawFd;

use channel_protocol::name::PairName;
use libc::c_char;

use crate::errno::check;
use crate::system::{self, Result, Source};
use crate::system_call::system_call;

/// Returns whether a descriptor is a socket of the pairs' type and its peer has the name of a pair's end.
pub(crate) fn may_be_program_end(fd: RawFd) -> bool {
    // SAFETY: an all-zero address structure is valid.
    let mut address = unsafe { std::mem::zeroed() };
    system::abstract_peer(fd, &mut address).is_some_and(PairName::is_one) && system::is_seqpacket(fd)
}

/// Returns whether two descriptors are of one file or socket.
pub(crate) fn are_same(fd: RawFd, other: RawFd) -> bool {
    let key = |fd| status(fd).map(|status| (status.st_dev, status.st_ino));
    key(fd) == key(other)
}

/// Returns whether this process has as many free descriptors as a request and the pages of a socket take: three.
/// Tries with copies of `fd`.
pub(crate) fn has_free_descriptors(fd: RawFd) -> bool {
    let copies = [copy(fd), copy(fd), copy(fd)];
    copies.iter().flatten().for_each(|copy| system::close(*copy));
    copies.iter().all(Result::is_ok)
}

fn copy(fd: RawFd) -> Result<RawFd> {
    // SAFETY: the call takes no pointer.
    check(unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) }).map(|fd| fd as RawFd)
}

/// Returns whether the kernel closes a descriptor when a program is executed.
pub(crate) fn closes_on_exec(fd: RawFd) -> bool {
    // SAFETY: the call takes no pointer.
    let flags = check(unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_GETFD, 0) });
    flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC as usize != 0)
}

/// Replaces a descriptor by a file.
pub(crate) fn replace(fd: RawFd, file: RawFd) {
    // SAFETY: the call takes no pointer.
    unsafe { system_call!(libc::SYS_dup3, file, fd, 0) };
    system::close(file);
}

pub(crate) fn open_to_read(path: &CStr) -> Result<RawFd> {
    // Opening a pipe or a device must not block.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path is NUL-terminated.
    check(unsafe { system_call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) })
        .map(|fd| fd as RawFd)
}

pub(crate) fn status(fd: RawFd) -> Option<libc::stat> {
    // SAFETY: an all-zero status is valid, and the destination is writable.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut status) == 0).then_some(status)
    }
}

/// Returns whether a file has an extended attribute.
pub(crate) fn has_attribute(fd: RawFd, name: &CStr) -> bool {
    // SAFETY: the name is NUL-terminated, and the kernel writes nothing into an empty buffer.
    unsafe { libc::fgetxattr(fd, name.as_ptr(), std::ptr::null_mut(), 0) >= 0 }
}

/// Returns whether a path names an executable file.
pub(crate) fn may_execute(path: &CStr) -> bool {
    // SAFETY: the path is NUL-terminated, and the destination is writable.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        libc::stat(path.as_ptr(), &raw mut status) == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFREG
            && libc::access(path.as_ptr(), libc::X_OK) == 0
    }
}

/// Writes the path by which a process refers to the file of one of its descriptors.
pub(crate) fn path_of_descriptor(fd: RawFd, buffer: &mut [c_char; 32]) {
    let mut bytes = [0; 32];
    // A descriptor has at most ten digits.
    let _ = write!(&mut bytes[..31], "/proc/self/fd/{fd}");
    *buffer = bytes.map(|byte| byte.cast_signed() as c_char);
}

/// Writes to a file from an offset.
pub(crate) fn write_at(fd: RawFd, mut content: &[u8], mut at: usize) -> Result<()> {
    while !content.is_empty() {
        let (bytes, start) = (content.len(), content.as_ptr());
        // SAFETY: the content is read.
        let done = check(unsafe { system_call!(libc::SYS_pwrite64, fd, start, bytes, at) })?;
        content = &content[done..];
        at += done;
    }
    Ok(())
}

/// Writes all parts with one call.
pub(crate) fn write_together<const N: usize>(fd: RawFd, parts: [&[u8]; N]) {
    let parts = parts.map(Source::of);
    // An unread message may be lost.
    // SAFETY: the parts are read.
    unsafe { system_call!(libc::SYS_writev, fd, parts.as_ptr(), N) };
}
