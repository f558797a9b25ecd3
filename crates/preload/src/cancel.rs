//! Cancellation of threads (`pthread_cancel`).
//!
//! The calls of the C library that block are cancellation points, and so are ours: each looks for a request when it begins, and
//! waits in a call of the C library, which acts on a request that comes meanwhile. The C library then unwinds the stack through
//! our frames. Unwinding of this kind may pass frames of Rust only where nothing is left to drop, so no frame holds a lock or a
//! value with a destructor while it waits. What a frame must still give back, [`undoing`] tells the C library.
//!
//! All other system calls of the shim go past the C library, and are no cancellation points.

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

/// Ends this thread if that was asked for.
pub(crate) fn point() {
    // SAFETY: the caller has nothing to drop.
    unsafe { pthread_testcancel() }
}

/// Calls `f`, and `undo` if the thread is cancelled meanwhile. Neither may hold anything to drop.
pub(crate) fn undoing<T, U: FnMut()>(mut undo: U, f: impl FnOnce() -> T) -> T {
    extern "C" fn run<U: FnMut()>(undo: *mut c_void) {
        // SAFETY: it is the closure that stands in the frame below, whose memory is there until the unwinding has passed it.
        unsafe { (*undo.cast::<U>())() }
    }
    let mut buffer = MaybeUninit::uninit();
    // SAFETY: buffer and closure live until the buffer is taken back, or until the frame has gone and `run` with it.
    unsafe { _pthread_cleanup_push(&raw mut buffer, run::<U>, (&raw mut undo).cast()) };
    let returned = f();
    // SAFETY: it is the one that was pushed last.
    unsafe { _pthread_cleanup_pop(&raw mut buffer, 0) };
    returned
}

/// Calls `f`, which must not be cancelled: `setsockopt` and `getsockopt` are no cancellation points.
pub(crate) fn disabled<T>(f: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: the place may be written.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let returned = f();
    let mut disabled = 0;
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(before, &raw mut disabled) };
    returned
}
