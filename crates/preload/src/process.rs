//! Child processes that stay hidden from the program, and the signals that must not reach its handlers in them.
//!
//! A child that sends no signal when it ends disturbs no program that waits for any child, or that handles `SIGCHLD`.

use std::ptr;

use libc::c_int;

use crate::errno::check;
use crate::system_call::system_call;

/// Size of the kernel's signal sets, which are masks of 64 bits.
const SIGNAL_SET_BYTES: usize = size_of::<u64>();

/// Forks a child that sends no signal when it ends, and that a wait for any child does not find. The C library does not know of
/// it. Returns the child's number in this process, and 0 in the child; `None` if there is no room for a child.
pub(crate) fn fork() -> Option<c_int> {
    // SAFETY: the child runs in a copy of the memory, and only makes system calls.
    let child = unsafe { system_call!(libc::SYS_clone, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) };
    check(child).ok().map(|child| child as c_int)
}

/// Waits until a child of [`fork`] has ended.
pub(crate) fn await_end(child: c_int) {
    let (status, usage): (*mut c_int, *mut libc::rusage) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call writes nothing.
    unsafe { system_call!(libc::SYS_wait4, child, status, libc::__WALL, usage) };
}

/// Blocks all signals of this thread until this is dropped, also those that the C library keeps to itself. Contains the mask from
/// before.
pub(crate) struct AllSignalsBlocked(u64);

impl AllSignalsBlocked {
    pub(crate) fn new() -> AllSignalsBlocked {
        let mut before = 0;
        set_mask(&u64::MAX, Some(&mut before));
        AllSignalsBlocked(before)
    }
}

impl Drop for AllSignalsBlocked {
    fn drop(&mut self) {
        set_mask(&self.0, None);
    }
}

/// Lets all signals reach this thread.
pub(crate) fn unblock_all_signals() {
    set_mask(&0, None);
}

fn set_mask(mask: &u64, before: Option<&mut u64>) {
    let before = before.map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the kernel's mask has 64 bits.
    unsafe {
        system_call!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            ptr::from_ref(mask),
            before,
            SIGNAL_SET_BYTES,
        )
    };
}
