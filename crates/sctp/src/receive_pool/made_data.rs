//! Data that is made of received data, and those who wait for memory for it.

use std::fmt;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// A function that a [`ReceiveBudget`](super::ReceiveBudget) calls when memory is released.
pub type Notify = dyn Fn() + Send + Sync;

/// The data that was made of received data, such as decompressed messages, in one [`ReceiveBudget`](super::ReceiveBudget): it
/// takes more memory than the receive windows count. While there is none, some may be made whatever the limit, so that received
/// data which fills the memory does not wait for itself.
#[derive(Debug, Default)]
pub struct MadeData {
    bytes: AtomicUsize,
    /// Those who wait until memory is released.
    pub waiting: ReleaseWaiters,
}

impl MadeData {
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, SeqCst);
    }

    /// Counts bytes if they are the first ones.
    pub(super) fn begin(&self, bytes: usize) -> bool {
        self.bytes.compare_exchange(0, bytes, SeqCst, SeqCst).is_ok()
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, SeqCst);
    }
}

/// Those who wait until memory is released. Each is told once.
#[derive(Default)]
pub struct ReleaseWaiters {
    list: Mutex<Vec<Weak<Notify>>>,
    /// Number of waiters in the list.
    count: AtomicUsize,
}

impl ReleaseWaiters {
    /// Adds a waiter, unless it waits already. Afterwards the caller checks whether memory was released before.
    pub fn add(&self, notify: Weak<Notify>) {
        let mut list = self.list();
        list.retain(|other| other.strong_count() > 0 && !Weak::ptr_eq(other, &notify));
        list.push(notify);
        self.count.store(list.len(), SeqCst);
    }

    /// Tells all waiters that memory was released.
    #[inline]
    pub fn notify(&self) {
        // Either the waiter in the list is seen here, or it sees what was released before.
        if self.count.load(SeqCst) > 0 {
            self.notify_all();
        }
    }

    #[cold]
    fn notify_all(&self) {
        let mut list = self.list();
        self.count.store(0, Relaxed);
        let waiting = std::mem::take(&mut *list);
        drop(list);
        waiting.iter().filter_map(Weak::upgrade).for_each(|notify| notify());
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<Notify>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReleaseWaiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseWaiters").field("count", &self.count).finish_non_exhaustive()
    }
}
