//! Mutexes whose holders do not panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. The state is consistent even if a holder has panicked: no holder calls foreign code.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
