//! The perimeter of a shard, entered: the guard of its lock.
//!
//! A waker is somebody else's code. Woken or dropped, it may run or drop a future that enters this very perimeter, so
//! both wait until the perimeter has been left.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use crate::shard::Inner;
#[cfg(feature = "tokio")]
use crate::waiting::Outside;

/// Inside the perimeter. Leaving it wakes the tasks that were told.
pub(crate) struct Entered<'a> {
    guard: MutexGuard<'a, Inner>,
    /// Dropped after the guard, and run by that.
    #[cfg(feature = "tokio")]
    outside: Option<Outside>,
}

impl<'a> Entered<'a> {
    #[inline]
    pub(crate) fn new(guard: MutexGuard<'a, Inner>) -> Self {
        Entered {
            guard,
            #[cfg(feature = "tokio")]
            outside: None,
        }
    }
}

impl Deref for Entered<'_> {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        &self.guard
    }
}

impl DerefMut for Entered<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.guard
    }
}

#[cfg(feature = "tokio")]
impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.guard.waiting.has_outside() {
            self.outside = Some(self.guard.waiting.take_outside());
        }
    }
}
