//! `syscall`: system calls by their numbers.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, c_long, c_uint, socklen_t};

use super::{descriptors, exec, files, receiving, sending, sockets};
use crate::system_call::system_call;
use crate::table;

/// Makes a system call by number. A call that may concern an SCTP descriptor goes to the function of its name, all others to
/// the kernel.
///
/// Each argument is one word, and there are as many as any call takes; arguments that the caller did not pass are not used.
///
/// # Safety
///
/// The caller meets the requirements of `syscall(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(clippy::too_many_arguments, reason = "a system call has as many")]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let fd = a as c_int;
    // SAFETY: the caller guarantees it; the arguments are those of the call.
    unsafe {
        match number {
            libc::SYS_read => receiving::read(fd, b as _, c) as c_long,
            libc::SYS_readv => receiving::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_preadv2 => files::preadv2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long,
            libc::SYS_recvfrom => receiving::recvfrom(fd, b as _, c, d as c_int, e as _, f as _) as c_long,
            libc::SYS_recvmsg => receiving::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvmmsg => receiving::recvmmsg(fd, b as _, c as c_uint, d as c_int, e as _).into(),
            libc::SYS_write => sending::write(fd, b as _, c) as c_long,
            libc::SYS_writev => sending::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_pwritev2 => files::pwritev2(fd, b as _, c as c_int, d as i64, f as c_int) as c_long,
            libc::SYS_sendto => sending::sendto(fd, b as _, c, d as c_int, e as _, f as socklen_t) as c_long,
            libc::SYS_sendmsg => sending::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmmsg => sending::sendmmsg(fd, b as _, c as c_uint, d as c_int).into(),
            libc::SYS_sendfile => files::sendfile(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => files::splice(fd, b as _, c as c_int, d as _, e, f as c_uint) as c_long,
            libc::SYS_socket => sockets::socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_bind => sockets::bind(fd, b as _, c as socklen_t).into(),
            libc::SYS_listen => sockets::listen(fd, b as c_int).into(),
            libc::SYS_connect => sockets::connect(fd, b as _, c as socklen_t).into(),
            libc::SYS_accept => sockets::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => sockets::accept4(fd, b as _, c as _, d as c_int).into(),
            libc::SYS_getsockname => sockets::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => sockets::getpeername(fd, b as _, c as _).into(),
            libc::SYS_getsockopt => sockets::getsockopt(fd, b as c_int, c as c_int, d as _, e as _).into(),
            libc::SYS_setsockopt => {
                sockets::setsockopt(fd, b as c_int, c as c_int, d as _, e as socklen_t).into()
            }
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int).into(),
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_execve => exec::execve(a as _, b as _, c as _).into(),
            libc::SYS_execveat => exec::execveat(fd, b as _, c as _, d as _, e as c_int).into(),
            libc::SYS_ioctl => descriptors::ioctl(fd, b as _, c).into(),
            libc::SYS_io_uring_setup => {
                warn_of_io_uring();
                system_call!(number, a, b)
            }
            _ => system_call!(number, a, b, c, d, e, f),
        }
    }
}

/// Warns once, if an SCTP socket is open, that the kernel performs io_uring requests without asking the shim.
fn warn_of_io_uring() {
    static SAID: AtomicBool = AtomicBool::new(false);
    const WARNING: &[u8] =
        b"swiftwater: this program uses io_uring, which takes its SCTP sockets for AF_UNIX sockets: what it \
          reads of them has headers (docs/sockets.md)\n";
    // Standard error may itself be such a socket.
    if table::is_any_known() && !table::is_known(libc::STDERR_FILENO) && !SAID.swap(true, Relaxed) {
        // SAFETY: the text is read.
        unsafe { system_call!(libc::SYS_write, libc::STDERR_FILENO, WARNING.as_ptr(), WARNING.len()) };
    }
}
