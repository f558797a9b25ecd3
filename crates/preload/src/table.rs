//! Which descriptors are ours.
//!
//! This is a cache of what the daemon says. When a number is seen for the first time, and it is a socket of the kind that carriers
//! are whose peer has a carrier's name, the daemon is asked. The name alone proves nothing: anybody may have one of that form.
//! An entry dies when its number is closed or becomes something else.
//!
//! A child of `vfork` runs in its parent's memory with descriptors of its own: what it closes or moves changes nothing here.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32};

use carrier::name::CarrierName;

use crate::descriptor::Descriptor;
use crate::system::Errno;
use crate::{setup, system};

const CHUNK: usize = 1024;
/// Descriptors from here on are asked about each time. No process has as many without asking for it.
const CHUNKS: usize = 1024;

/// What is known of one number.
struct Entry {
    /// Threads that look at `what` at this moment.
    looking: AtomicU32,
    /// Null: nothing. [`foreign`]: not ours. Otherwise an `Arc` of the descriptor.
    what: AtomicPtr<Descriptor>,
}

static TABLE: [AtomicPtr<Entry>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
/// The process whose memory this is.
static OWNER: AtomicI32 = AtomicI32::new(0);
static NOT_OURS: u8 = 0;

fn foreign() -> *mut Descriptor {
    (&raw const NOT_OURS).cast_mut().cast()
}

/// The descriptor, if it is ours.
pub(crate) fn find(fd: RawFd) -> Option<Arc<Descriptor>> {
    let entry = entry(fd)?;
    entry.looking.fetch_add(1, SeqCst);
    let what = entry.what.load(SeqCst);
    let found = match what {
        _ if what.is_null() || what == foreign() => None,
        ours => {
            // SAFETY: it came from `Arc::into_raw`, and whoever takes it out lets it live while somebody looks.
            unsafe {
                Arc::increment_strong_count(ours);
                Some(Arc::from_raw(ours))
            }
        }
    };
    entry.looking.fetch_sub(1, SeqCst);
    if what.is_null() { recognise(fd, entry) } else { found }
}

/// A number that nothing is known of: a new one, or one that came from elsewhere.
#[cold]
fn recognise(fd: RawFd, entry: &Entry) -> Option<Arc<Descriptor>> {
    // SAFETY: an address of zeros is one.
    let mut place = unsafe { std::mem::zeroed() };
    let may_be_ours =
        system::abstract_peer(fd, &mut place).is_some_and(CarrierName::is_one) && system::is_seqpacket(fd);
    let attached = if may_be_ours { setup::attach(fd) } else { Err(Errno(libc::ENOTSOCK)) };
    let descriptor = match attached {
        Ok(descriptor) => Some(Arc::new(descriptor)),
        Err(error) if is_for_good(error) => None,
        // The daemon could not say; the next call asks again.
        Err(_) => return None,
    };
    let what = descriptor.clone().map_or(foreign(), |ours| Arc::into_raw(ours).cast_mut());
    if entry.what.compare_exchange(ptr::null_mut(), what, AcqRel, Acquire).is_err() && what != foreign() {
        // SAFETY: it was made above, and nobody has seen it.
        unsafe { Arc::decrement_strong_count(what) };
    }
    descriptor
}

/// Returns whether what the daemon has said of a descriptor stays so.
fn is_for_good(error: Errno) -> bool {
    let Errno(error) = error;
    [libc::ENOTSOCK, libc::ENETDOWN, libc::EPROTO, libc::EPROTONOSUPPORT].contains(&error)
}

/// Whether the number is known to be ours, in a process whose memory this is.
pub(crate) fn is_known(fd: RawFd) -> bool {
    let what = entry(fd).map(|entry| entry.what.load(Acquire));
    what.is_some_and(|what| !what.is_null() && what != foreign())
        && OWNER.load(Relaxed) == system::process_id()
}

/// The number is this from now on.
pub(crate) fn set(fd: RawFd, descriptor: &Arc<Descriptor>) {
    replace(fd, || Arc::into_raw(Arc::clone(descriptor)).cast_mut());
}

/// Nothing is known of the number any more.
pub(crate) fn forget(fd: RawFd) {
    replace(fd, ptr::null_mut);
}

/// The same for all numbers from `first` to `last`.
pub(crate) fn forget_range(first: u32, last: u32) {
    let (first, last) = (first as usize, (last as usize).min(CHUNK * CHUNKS - 1));
    for n in (first / CHUNK..=last / CHUNK).filter(|n| !TABLE[*n].load(Acquire).is_null()) {
        let known = (n * CHUNK).max(first)..=(n * CHUNK + CHUNK - 1).min(last);
        let known = known.filter_map(|number| RawFd::try_from(number).ok());
        known.filter(|fd| entry(*fd).is_some_and(|e| !e.what.load(Acquire).is_null())).for_each(forget);
    }
}

/// One number has become another of the same descriptor.
pub(crate) fn copy(from: RawFd, to: RawFd) {
    match find(from) {
        Some(descriptor) => set(to, &descriptor),
        None => forget(to),
    }
}

fn replace(fd: RawFd, new: impl FnOnce() -> *mut Descriptor) {
    let is_borrowed = OWNER.load(Relaxed) != system::process_id();
    let Some(entry) = (!is_borrowed).then(|| entry(fd)).flatten() else { return };
    let old = entry.what.swap(new(), SeqCst);
    if old.is_null() || old == foreign() {
        return;
    }
    // Who looked before the swap is about to count itself in. Should one never come back, as after a `fork` in the middle,
    // a page stays mapped.
    for _ in 0..1000 {
        if entry.looking.load(SeqCst) == 0 {
            // SAFETY: it came from `Arc::into_raw`, and nobody finds it any more.
            return unsafe { Arc::decrement_strong_count(old) };
        }
        std::hint::spin_loop();
    }
}

fn entry(fd: RawFd) -> Option<&'static Entry> {
    let number = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(number / CHUNK)?;
    let mut entries = chunk.load(Acquire);
    if entries.is_null() {
        entries = make(chunk)?;
    }
    // SAFETY: a chunk has this many entries and is never freed.
    Some(unsafe { &*entries.add(number % CHUNK) })
}

#[cold]
fn make(chunk: &AtomicPtr<Entry>) -> Option<*mut Entry> {
    let bytes = CHUNK * size_of::<Entry>();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping at a place that the kernel chooses touches nothing. Its zeros are entries of which nothing is known.
    let fresh = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
    if fresh == libc::MAP_FAILED {
        return None;
    }
    own();
    match chunk.compare_exchange(ptr::null_mut(), fresh.cast(), AcqRel, Acquire) {
        Ok(_) => Some(fresh.cast()),
        Err(theirs) => {
            // SAFETY: it was mapped above, and nobody has seen it.
            unsafe { libc::munmap(fresh, bytes) };
            Some(theirs)
        }
    }
}

/// Notes whose memory this is, now and in children of `fork`. Children of `vfork` run no such handlers.
fn own() {
    extern "C" fn in_child() {
        OWNER.store(system::process_id(), Relaxed);
        system::forget_thread_id();
    }
    if OWNER.swap(system::process_id(), Relaxed) == 0 {
        // SAFETY: the handler touches one atomic and one number of the thread.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}
