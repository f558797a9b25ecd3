//! The guard of a shard's lock, which a thread holds inside the perimeter.
//!
//! A waker is foreign code. When it is woken or dropped, it may run or drop a future that enters this very perimeter.
//! So both happen only after the thread has left the perimeter.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use super::Inner;

/// The perimeter, entered. Leaving it wakes the notified tasks.
pub(crate) struct Entered<'a> {
    /// Present until the drop, which leaves the perimeter before it wakes tasks.
    guard: Option<MutexGuard<'a, Inner>>,
}

/// Wakers to wake or drop after the thread has left the perimeter; dropping this does both.
#[cfg(feature = "tokio")]
#[derive(Default)]
pub(super) struct DeferredWakers {
    pub(super) wake: Vec<std::task::Waker>,
    pub(super) drop: Vec<std::task::Waker>,
}

#[cfg(feature = "tokio")]
impl Drop for DeferredWakers {
    fn drop(&mut self) {
        self.wake.drain(..).for_each(std::task::Waker::wake);
    }
}

impl<'a> Entered<'a> {
    #[inline]
    pub(crate) fn new(guard: MutexGuard<'a, Inner>) -> Self {
        Entered { guard: Some(guard) }
    }
}

impl Deref for Entered<'_> {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        self.guard.as_ref().expect("the drop alone takes it")
    }
}

impl DerefMut for Entered<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner {
        self.guard.as_mut().expect("the drop alone takes it")
    }
}

#[cfg(feature = "tokio")]
impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        let deferred = self.waiting.take_deferred();
        drop(self.guard.take());
        if let Some(deferred) = deferred {
            wake(deferred);
        }
    }
}

/// Wakes and drops wakers, outside the perimeter.
#[cfg(feature = "tokio")]
#[cold]
fn wake(deferred: Box<DeferredWakers>) {
    drop(deferred);
}
