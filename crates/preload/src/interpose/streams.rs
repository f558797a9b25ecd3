//! Standard I/O. The C library reads and writes the descriptor of a stream by internal calls, which no shim sees. So a stream on
//! an SCTP descriptor is made by `fopencookie(3)`, which calls the shim.

use std::ptr;

use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};

use super::{descriptors, receiving, sending};
use crate::mapping::map_private;
use crate::system::Errno;
use crate::{next, recognition, table};

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C-unwind" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// Offset of a stream's descriptor (`_fileno` of `struct _IO_FILE`, unchanged since glibc 2.1). `fileno` reads it there; streams
/// of `fopencookie` have no descriptor of their own.
const FILENO_AT: usize = 112;
/// Offset of the pointer to a stream's state for wide characters (`_wide_data`, unchanged since glibc 2.1).
const WIDE_DATA_AT: usize = 160;
/// Size of memory that holds this state of any version.
const WIDE_DATA_BYTES: usize = 1024;
/// The pointer in streams of `fopencookie`, which have no such state.
const NO_WIDE_DATA: usize = usize::MAX;

unsafe extern "C-unwind" fn read(cookie: *mut c_void, buffer: *mut c_char, bytes: size_t) -> ssize_t {
    // SAFETY: the C library guarantees it.
    unsafe { receiving::read(cookie.addr() as c_int, buffer.cast(), bytes) }
}

/// Writes to the descriptor; `fopencookie` takes 0 bytes for an error.
unsafe extern "C-unwind" fn write(cookie: *mut c_void, content: *const c_char, bytes: size_t) -> ssize_t {
    // SAFETY: the C library guarantees it.
    unsafe { sending::write(cookie.addr() as c_int, content.cast(), bytes) }.max(0)
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream owns the descriptor.
    unsafe { descriptors::close(cookie.addr() as c_int) }
}

/// Opens a stream on an SCTP descriptor.
///
/// # Safety
///
/// `mode` is NUL-terminated.
unsafe fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = Functions { read, write, seek: None, close };
    // SAFETY: the caller guarantees it; a stream of the C library has its descriptor at this offset.
    unsafe {
        let stream = fopencookie(ptr::without_provenance_mut(fd as usize), mode, functions);
        if !stream.is_null() && cfg!(all(target_env = "gnu", target_pointer_width = "64")) {
            stream.byte_add(FILENO_AT).cast::<c_int>().write(fd);
        }
        stream
    }
}

/// # Safety
///
/// The caller meets the requirements of `fdopen(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    let before = Errno::last();
    let is_sctp = recognition::may_be_sctp_socket(fd);
    before.set();
    // SAFETY: the caller guarantees it.
    unsafe { if is_sctp { open(fd, mode) } else { next::fdopen(fd, mode) } }
}

/// Gives a stream of `fopencookie` a state for wide characters, which `freopen` expects. The C library never frees it, so it
/// is not allocated: no tool that looks for leaks takes it for one.
///
/// # Safety
///
/// `stream` is a stream of the C library.
unsafe fn add_wide_data(stream: *mut FILE) {
    if cfg!(all(target_env = "gnu", target_pointer_width = "64")) {
        // SAFETY: the caller guarantees it; a stream of the C library has this field at this offset.
        unsafe {
            let field = stream.byte_add(WIDE_DATA_AT).cast::<*mut c_void>();
            if field.read().addr() == NO_WIDE_DATA {
                // Without memory, wide characters fail as before.
                field.write(
                    map_private(WIDE_DATA_BYTES).map_or(ptr::null_mut(), |state| state.release().as_ptr()),
                );
            }
        }
    }
}

/// Opens another file on a stream. The C library writes what the stream has buffered, and replaces its descriptor by internal
/// calls: the number may be another file by now.
///
/// # Safety
///
/// `stream` is a stream, which `reopen` passes to the C library.
unsafe fn reopened(stream: *mut FILE, reopen: impl FnOnce() -> *mut FILE) -> *mut FILE {
    // SAFETY: the caller guarantees it.
    let fd = unsafe {
        add_wide_data(stream);
        libc::fileno(stream)
    };
    let reopened = reopen();
    let errno = Errno::last();
    table::forget(fd);
    errno.set();
    reopened
}

/// # Safety
///
/// The caller meets the requirements of `freopen(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller guarantees it.
    unsafe { reopened(stream, || next::freopen(path, mode, stream)) }
}

/// # Safety
///
/// The caller meets the requirements of `freopen(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller guarantees it.
    unsafe { reopened(stream, || next::freopen64(path, mode, stream)) }
}

/// Runs before `main`: a service may have inherited a socket as its standard input and output.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    unsafe extern "C" {
        static mut stdin: *mut FILE;
        static mut stdout: *mut FILE;
        static mut stderr: *mut FILE;
    }
    extern "C" fn replace_standard_streams() {
        // A program starts with errno 0 (C17 7.5), and a look at a file that is no socket sets it.
        let errno = Errno::last();
        let opened = |fd, mode: *const c_char, stream: *mut *mut FILE| {
            if !recognition::may_be_sctp_socket(fd) {
                return;
            }
            // SAFETY: the mode is NUL-terminated, and no other thread runs.
            unsafe {
                let opened = open(fd, mode);
                if !opened.is_null() {
                    stream.write(opened);
                }
            }
        };
        opened(0, c"r".as_ptr(), &raw mut stdin);
        opened(1, c"w".as_ptr(), &raw mut stdout);
        opened(2, c"w".as_ptr(), &raw mut stderr);
        if recognition::may_be_sctp_socket(2) {
            // SAFETY: nothing was written to the stream before.
            unsafe { libc::setvbuf(stderr, ptr::null_mut(), libc::_IONBF, 0) };
        }
        errno.set();
    }
    replace_standard_streams
};
