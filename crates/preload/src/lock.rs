//! The lock for reading. It lies in the shared page, and holds among processes.
//!
//! It is a priority-inheriting futex: its word is the thread identifier of the holder, so the kernel passes it on when the
//! holder dies, and says so. Unlike a robust mutex of the C library it has no pointers in shared memory that another
//! process could bend.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::system::{Errno, Result, thread_id};

/// The lock, held.
pub(crate) struct Held<'a> {
    word: &'a AtomicU32,
    thread: u32,
    /// The holder before has died in the middle of something.
    pub(crate) inherited: bool,
}

/// Takes the lock.
///
/// # Errors
///
/// `EDEADLK`: this thread holds it, and what asks runs in a signal handler.
pub(crate) fn hold(word: &AtomicU32) -> Result<Held<'_>> {
    let thread = thread_id();
    let mut inherited = false;
    if word.compare_exchange(0, thread, Acquire, Relaxed).is_err() {
        inherited = wait(word, thread)?;
    }
    Ok(Held { word, thread, inherited })
}

#[cold]
fn wait(word: &AtomicU32, thread: u32) -> Result<bool> {
    loop {
        match futex(word, libc::FUTEX_LOCK_PI) {
            Ok(()) => {
                return Ok(word.fetch_and(!libc::FUTEX_OWNER_DIED, AcqRel) & libc::FUTEX_OWNER_DIED != 0);
            }
            Err(Errno(libc::EDEADLK)) => return Err(Errno(libc::EDEADLK)),
            // The holder has died while nobody waited.
            Err(Errno(libc::ESRCH)) => {
                let dead = word.load(Relaxed);
                let free = dead & libc::FUTEX_TID_MASK == 0;
                let mine = thread | dead & libc::FUTEX_WAITERS;
                if !free && word.compare_exchange(dead, mine, AcqRel, Relaxed).is_ok() {
                    return Ok(true);
                }
            }
            Err(_) => {}
        }
        if word.compare_exchange(0, thread, Acquire, Relaxed).is_ok() {
            return Ok(false);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.word.compare_exchange(self.thread, 0, Release, Relaxed).is_err() {
            // Somebody waits. It cannot fail: the word names this thread.
            let _ = futex(self.word, libc::FUTEX_UNLOCK_PI);
        }
    }
}

fn futex(word: &AtomicU32, operation: libc::c_int) -> Result<()> {
    let no_limit: *const libc::timespec = std::ptr::null();
    // SAFETY: the word lives as long as the call.
    match unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 0, no_limit) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_at_a_time() {
        let (word, mut count) = (AtomicU32::new(0), 0_u64);
        let place = std::sync::atomic::AtomicPtr::new(&raw mut count);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _held = hold(&word).expect("no deadlock");
                        // SAFETY: whoever holds the lock is alone.
                        unsafe { *place.load(Relaxed) += 1 };
                    }
                });
            }
        });
        assert_eq!((count, word.load(Relaxed)), (40_000, 0));
    }

    #[test]
    fn the_lock_of_a_dead_thread_is_inherited() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(hold(&word).expect("it is free")));
        });
        let held = hold(&word).expect("it is inherited");
        assert!(held.inherited);
        drop(held);
        assert!(!hold(&word).expect("it is free").inherited);
    }
}
