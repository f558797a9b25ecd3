//! The functions of the C library that the shim replaces.
//!
//! A call on a foreign descriptor goes to the next function of its name, which may belong to another library that was put before
//! the C library. The shim's own calls go to the C library ([`c_library`]): a program that links with `libswiftwater` and also
//! runs under `swiftwater run` has two shims, and the next function is that of the second one. The program's calls reach the shim
//! that comes first in the link order. The second shim sees only the calls that the first passes on: those on foreign
//! descriptors, and those that close or copy a descriptor, which keep its table right.

use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use libc::{
    FILE, c_char, c_int, c_uint, c_ulong, c_void, iovec, mmsghdr, msghdr, pid_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};

use crate::errno::Errno;

macro_rules! functions_of {
    ($library:expr; $($name:ident($($argument:ident: $type:ty),*) -> $returned:ty;)*) => {$(
        /// # Safety
        ///
        /// The caller meets the requirements of the C function of this name.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $returned {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let mut found = FOUND.load(Relaxed);
            if found.is_null() {
                // SAFETY: the name is NUL-terminated.
                found = unsafe { libc::dlsym($library, concat!(stringify!($name), "\0").as_ptr().cast()) };
                FOUND.store(found, Relaxed);
            }
            if found.is_null() {
                Errno(libc::ENOSYS).set();
                return -1;
            }
            // SAFETY: the symbol is the function of this name, which takes these arguments.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($type),*) -> $returned = std::mem::transmute(found);
                function($($argument),*)
            }
        }
    )*};
}

functions_of! {
    libc::RTLD_NEXT;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
    accept(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t, flags: c_int) -> c_int;
    getsockname(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    write(fd: c_int, content: *const c_void, bytes: size_t) -> ssize_t;
    readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    send(fd: c_int, content: *const c_void, bytes: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, content: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr, to_bytes: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(to: c_int, from: c_int, offset: *mut i64, bytes: size_t) -> ssize_t;
    splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, bytes: size_t, flags: c_uint) -> ssize_t;
    preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: i64, flags: c_int) -> ssize_t;
    pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: i64, flags: c_int) -> ssize_t;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fclose(file: *mut FILE) -> c_int;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawn(child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawnp(child: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
    __read_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t;
    __recv_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk(fd: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t;
}

/// The C library's functions, for the shim's own calls and descriptors. Those that wait are cancellation points.
pub(crate) mod c_library {
    use std::ptr;
    use std::sync::atomic::AtomicPtr;
    use std::sync::atomic::Ordering::Relaxed;

    use libc::{c_int, c_void, msghdr, size_t, sockaddr, socklen_t, ssize_t};

    use crate::errno::Errno;

    functions_of! {
        handle();
        recvfrom(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t;
        recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
        sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
        shutdown(fd: c_int, how: c_int) -> c_int;
    }

    /// Returns the handle of glibc for `dlsym`; with another C library, the handle of all libraries that follow.
    fn handle() -> *mut c_void {
        // SAFETY: the name is NUL-terminated. A loaded library is not loaded again, and stays.
        let found = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if found.is_null() { libc::RTLD_NEXT } else { found }
    }
}

/// # Safety
///
/// The caller meets the requirements of `closefrom(3)`.
pub(crate) unsafe fn closefrom(first: c_int) {
    // SAFETY: the name is NUL-terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"closefrom".as_ptr()) };
    if !found.is_null() {
        // SAFETY: the symbol is the function of this name, which takes this argument.
        unsafe {
            let function: unsafe extern "C-unwind" fn(c_int) = std::mem::transmute(found);
            function(first);
        }
    }
}

/// Defines functions that return a stream, which are looked up at each call.
macro_rules! functions_of_streams {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        ///
        /// The caller meets the requirements of the C function of this name.
        pub(crate) unsafe fn $name($($argument: $type),*) -> *mut FILE {
            // SAFETY: the name is NUL-terminated.
            let found = unsafe { libc::dlsym(libc::RTLD_NEXT, concat!(stringify!($name), "\0").as_ptr().cast()) };
            if found.is_null() {
                return ptr::null_mut();
            }
            // SAFETY: the symbol is the function of this name, which takes these arguments.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($type),*) -> *mut FILE = std::mem::transmute(found);
                function($($argument),*)
            }
        }
    )*};
}

functions_of_streams! {
    fdopen(fd: c_int, mode: *const c_char);
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE);
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE);
}
