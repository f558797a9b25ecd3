//! Cancellation of threads (`pthread_cancel`).
//!
//! The blocking calls of the C library are cancellation points, and so are those of the shim: each checks for a cancellation
//! request when it begins, and waits inside a call of the C library, which acts on a request that arrives meanwhile. The C
//! library then unwinds the stack through our frames. This unwinding may pass Rust frames only where nothing is left to drop,
//! so no frame holds a lock or a value with a destructor while it waits. [`undoing`] registers with the C library whatever a
//! frame must still give back.
//!
//! A signal handler may also leave a call by `longjmp(3)`, at any point. The C library then runs what [`undoing`] has
//! registered in the frames that the jump leaves, and no destructor.
//!
//! The shim's other system calls bypass the C library and are no cancellation points.

use std::mem::MaybeUninit;

use libc::{c_int, c_void};

/// `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct Buffer {
    routine: extern "C" fn(*mut c_void),
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Buffer,
}

unsafe extern "C-unwind" {
    fn _pthread_cleanup_push(
        buffer: *mut MaybeUninit<Buffer>,
        routine: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut MaybeUninit<Buffer>, execute: c_int);
    fn pthread_testcancel();
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Ends this thread if its cancellation was requested.
pub(crate) fn point() {
    // SAFETY: the caller has nothing to drop.
    unsafe { pthread_testcancel() }
}

/// Calls `f`, and `undo` if meanwhile the thread is cancelled or a signal handler jumps out of `f`. Neither may hold a value with
/// a destructor.
pub(crate) fn undoing<T, U: FnMut()>(mut undo: U, f: impl FnOnce() -> T) -> T {
    extern "C" fn run<U: FnMut()>(undo: *mut c_void) {
        // SAFETY: `undo` is the closure in the frame below, whose memory stays valid until the unwinding has passed it.
        unsafe { (*undo.cast::<U>())() }
    }
    let mut buffer = MaybeUninit::uninit();
    // SAFETY: buffer and closure live until the buffer is popped, or until unwinding has run `run` and left the frame.
    unsafe { _pthread_cleanup_push(&raw mut buffer, run::<U>, (&raw mut undo).cast()) };
    let returned = f();
    // SAFETY: this buffer was pushed last.
    unsafe { _pthread_cleanup_pop(&raw mut buffer, 0) };
    returned
}

/// Calls `f` with cancellation disabled: `setsockopt` and `getsockopt` are no cancellation points.
pub(crate) fn disabled<T>(f: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: the destination is writable.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let returned = f();
    let mut disabled = 0;
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(before, &raw mut disabled) };
    returned
}
