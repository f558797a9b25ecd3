//! The table of descriptors: which of them are SCTP sockets of the daemon.
//!
//! It caches the daemon's answers about numbers, which [`recognition`](crate::recognition) asks for. An entry ends when
//! its number is closed or reused.
//!
//! A child of `vfork` runs in its parent's memory with descriptors of its own: the calls by which it closes or moves descriptors
//! change nothing here. A child that has a copy of the memory owns the copy, however it was made (`fork`, `_Fork`,
//! `clone`, a system call); the kernel tells the two apart ([`owner`]).

use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32};

use crate::descriptor::Descriptor;
use crate::system::{self, Result};
use crate::{lock, mapping};

const CHUNK: usize = 1024;
/// Number of chunks. The shim takes descriptors beyond them for files of others; no process has as many, unless the system's
/// limit (`fs.nr_open`) was raised.
const CHUNKS: usize = 1024;

/// The place of one number in the table.
struct Slot {
    /// Number of threads that look at `what` at this moment.
    looking: AtomicU32,
    /// Null: unknown. [`foreign`]: not an SCTP socket. [`lent`]: a copy for threads whose number was closed. Any other: a
    /// boxed `Arc` of the descriptor. Leak checkers want a pointer to the beginning of an allocation, and `Arc::into_raw`
    /// points into the middle of one.
    what: AtomicPtr<SharedDescriptor>,
}

type SharedDescriptor = Arc<Descriptor>;

static TABLE: [AtomicPtr<Slot>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
/// Where the process that owns this memory is named: in a page that the kernel clears in each child which gets a copy of
/// the memory. Null as long as no number is known.
static OWNER: AtomicPtr<AtomicI32> = AtomicPtr::new(ptr::null_mut());
/// Its address is even, unlike that of [`lent`].
static NO_SOCKET: u64 = 0;

fn foreign() -> *mut SharedDescriptor {
    (&raw const NO_SOCKET).cast_mut().cast()
}

/// Returns the mark of a copy that was lent to the sleepers of this descriptor. It is an odd address, which is only compared.
fn lent(descriptor: &Descriptor) -> *mut SharedDescriptor {
    ptr::from_ref(descriptor).cast_mut().cast::<SharedDescriptor>().map_addr(|address| address | 1)
}

fn is_lent(what: *mut SharedDescriptor) -> bool {
    what.addr() & 1 == 1
}

/// Returns whether this is a boxed descriptor.
fn is_descriptor(what: *mut SharedDescriptor) -> bool {
    !what.is_null() && what != foreign() && !is_lent(what)
}

/// The entry of a number.
pub(crate) enum Entry {
    /// An SCTP descriptor.
    Socket(Arc<Descriptor>),
    /// Not an SCTP socket, or beyond the table, or a copy that the program does not know.
    Foreign,
    /// The shim has not asked the daemon yet.
    Unknown,
}

/// Returns the entry of a number.
pub(crate) fn look_up(fd: RawFd) -> Entry {
    let Some(slot) = slot(fd) else { return Entry::Foreign };
    slot.looking.fetch_add(1, SeqCst);
    let found = match slot.what.load(SeqCst) {
        what if what.is_null() => Entry::Unknown,
        what if !is_descriptor(what) => Entry::Foreign,
        // SAFETY: the pointer came from `Box::into_raw`, and `replace` keeps it alive while a thread looks.
        descriptor => Entry::Socket(unsafe { Arc::clone(&*descriptor) }),
    };
    slot.looking.fetch_sub(1, SeqCst);
    found
}

/// Enters the daemon's answer about an unknown number: its descriptor, or that it is not an SCTP socket. If the number is
/// known by now, this changes nothing.
pub(crate) fn learn(fd: RawFd, descriptor: Option<&Arc<Descriptor>>) {
    let Some(slot) = slot(fd) else { return };
    let what = descriptor.map_or(foreign(), boxed);
    if slot.what.compare_exchange(ptr::null_mut(), what, AcqRel, Acquire).is_err() && what != foreign() {
        // SAFETY: the box was made above, and no other thread has seen it.
        drop(unsafe { Box::from_raw(what) });
    }
}

/// Returns a new entry that refers to a descriptor.
fn boxed(descriptor: &SharedDescriptor) -> *mut SharedDescriptor {
    let boxed = Box::into_raw(Box::new(Arc::clone(descriptor)));
    tell_leak_sanitizer(boxed);
    boxed
}

/// Returns whether the number is known as an SCTP socket, in the process that owns this memory.
pub(crate) fn is_known(fd: RawFd) -> bool {
    let what = slot(fd).map(|slot| slot.what.load(Acquire));
    what.is_some_and(is_descriptor) && owner() == system::process_id()
}

/// Returns whether the number is this descriptor's, or a copy that was lent to its sleepers. Numbers beyond the table are
/// what the caller takes them for.
pub(crate) fn is(fd: RawFd, descriptor: &Descriptor) -> bool {
    let Some(slot) = slot(fd) else { return true };
    slot.looking.fetch_add(1, SeqCst);
    let what = slot.what.load(SeqCst);
    // SAFETY: the pointer came from `Box::into_raw`, and `replace` keeps it alive while a thread looks.
    let is_its_own = || is_descriptor(what) && unsafe { ptr::eq(Arc::as_ptr(&*what), descriptor) };
    let is = what == lent(descriptor) || is_its_own();
    slot.looking.fetch_sub(1, SeqCst);
    is
}

/// Returns whether any number is known as an SCTP socket.
pub(crate) fn is_any_known() -> bool {
    let chunks = TABLE.iter().enumerate().filter(|(_, chunk)| !chunk.load(Acquire).is_null());
    chunks.flat_map(|(n, _)| n * CHUNK..(n + 1) * CHUNK).any(|fd| is_known(fd as RawFd))
}

/// Returns whether a number can be entered.
pub(crate) fn has_slot(fd: RawFd) -> bool {
    slot(fd).is_some()
}

/// Enters a number as this descriptor.
pub(crate) fn set(fd: RawFd, descriptor: &Arc<Descriptor>) {
    replace(fd, || boxed(descriptor));
}

/// Enters a number as a copy of an SCTP descriptor, or forgets it.
pub(crate) fn set_copy(fd: RawFd, of: Option<&Arc<Descriptor>>) {
    match of {
        Some(descriptor) => set(fd, descriptor),
        None => forget(fd),
    }
}

/// Tells LeakSanitizer about a descriptor that only the table refers to: it does not search mapped memory.
fn tell_leak_sanitizer(boxed: *const SharedDescriptor) {
    static IGNORE: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if !LOOKED.swap(true, AcqRel) {
        // SAFETY: the name is NUL-terminated.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__lsan_ignore_object".as_ptr()) };
        IGNORE.store(found, Relaxed);
    }
    let ignore = IGNORE.load(Relaxed);
    if !ignore.is_null() {
        // SAFETY: the symbol is the function of this name, which takes a pointer into an allocation.
        unsafe {
            let ignore: unsafe extern "C" fn(*const libc::c_void) = std::mem::transmute(ignore);
            ignore(boxed.cast());
        }
    }
}

/// Forgets a number that is about to be closed. Threads that sleep there continue with a copy.
pub(crate) fn close(fd: RawFd) {
    let known = is_known(fd).then(|| look_up(fd));
    let keep = || {
        if let Some(Entry::Socket(descriptor)) = &known {
            keep(fd, descriptor);
        }
    };
    keep();
    forget(fd);
    // A thread that has begun to sleep between the two found the number as it was.
    keep();
}

/// Lends a copy of a pair, which has this number and may lose it, if threads sleep on it and have no copy yet.
fn keep(fd: RawFd, descriptor: &Descriptor) {
    let sleepers = &descriptor.sleepers;
    if !sleepers.need_copy() {
        return;
    }
    // Without a free descriptor, the threads find the number closed.
    if let Ok(copy) = lend(fd, descriptor)
        && !sleepers.take(copy)
    {
        take_back(copy);
    }
}

/// Returns a number of a pair that stays while the calling thread, which is counted among the sleepers, waits on it.
pub(crate) fn lasting(fd: RawFd, descriptor: &Descriptor) -> RawFd {
    keep(fd, descriptor);
    descriptor.sleepers.copy().unwrap_or(fd)
}

/// Makes a copy of a pair for threads whose own number was closed. The program does not know the copy.
pub(crate) fn lend(fd: RawFd, descriptor: &Descriptor) -> Result<RawFd> {
    system::hidden_copy(fd).inspect(|copy| replace(*copy, || lent(descriptor)))
}

/// Closes a copy that was lent, unless the program has closed it with all numbers that it does not know.
pub(crate) fn take_back(copy: RawFd) {
    let unmark = |slot: &Slot| {
        let what = slot.what.load(Acquire);
        is_lent(what) && slot.what.compare_exchange(what, ptr::null_mut(), AcqRel, Relaxed).is_ok()
    };
    if slot(copy).is_none_or(unmark) {
        system::close(copy);
    }
}

/// Forgets a number.
pub(crate) fn forget(fd: RawFd) {
    replace(fd, ptr::null_mut);
}

/// Forgets all numbers that are about to be closed, from `first` to `last`.
pub(crate) fn close_range(first: u32, last: u32) {
    let (first, last) = (first as usize, (last as usize).min(CHUNK * CHUNKS - 1));
    for n in (first / CHUNK..=last / CHUNK).filter(|n| !TABLE[*n].load(Acquire).is_null()) {
        let known = (n * CHUNK).max(first)..=(n * CHUNK + CHUNK - 1).min(last);
        let known = known.filter_map(|number| RawFd::try_from(number).ok());
        known.filter(|fd| slot(*fd).is_some_and(|e| !e.what.load(Acquire).is_null())).for_each(close);
    }
}

fn replace(fd: RawFd, new: impl FnOnce() -> *mut SharedDescriptor) {
    let Some(slot) = slot(fd).filter(|_| owner() == system::process_id()) else { return };
    let old = slot.what.swap(new(), SeqCst);
    if !is_descriptor(old) {
        return;
    }
    // A thread that looked before the swap is about to count itself in. If it never does, as after a `fork` at that moment, a
    // page stays mapped.
    for _ in 0..1000 {
        if slot.looking.load(SeqCst) == 0 {
            // SAFETY: the pointer came from `Box::into_raw`, and no thread can find it any more.
            return drop(unsafe { Box::from_raw(old) });
        }
        std::hint::spin_loop();
    }
}

fn slot(fd: RawFd) -> Option<&'static Slot> {
    owner();
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
fn make(chunk: &AtomicPtr<Slot>) -> Option<*mut Slot> {
    let bytes = CHUNK * size_of::<Slot>();
    own()?;
    let mapping = mapping::map_private(bytes).ok()?;
    let fresh: *mut Slot = mapping.address().as_ptr().cast();
    match chunk.compare_exchange(ptr::null_mut(), fresh, AcqRel, Acquire) {
        Ok(_) => {
            mapping.release();
            Some(fresh)
        }
        Err(other) => Some(other),
    }
}

/// Returns the process that owns this memory, or 0 as long as no number is known. A process that finds no owner there has
/// got a copy of its parent's memory, and owns the copy.
fn owner() -> i32 {
    // SAFETY: the page is never unmapped.
    match unsafe { OWNER.load(Acquire).as_ref() } {
        None => 0,
        Some(owner) => match owner.load(Acquire) {
            0 => adopt(owner),
            process => process,
        },
    }
}

/// Makes this process the owner of the memory of its parent that it has got a copy of, and returns it.
#[cold]
fn adopt(owner: &AtomicI32) -> i32 {
    let process = system::process_id();
    owner.store(process, Release);
    lock::forget_thread();
    forget_sleepers();
    process
}

/// Makes this process the owner of its memory, if none is.
fn own() -> Option<()> {
    extern "C" fn in_child() {
        // SAFETY: the page is never unmapped.
        if let Some(owner) = unsafe { OWNER.load(Acquire).as_ref() } {
            adopt(owner);
        }
    }
    if !OWNER.load(Acquire).is_null() {
        return Some(());
    }
    let page = mapping::map_private(size_of::<AtomicI32>()).ok()?;
    mapping::clear_in_copies(page.address(), size_of::<AtomicI32>());
    let owner: *mut AtomicI32 = page.address().as_ptr().cast();
    // SAFETY: the memory is mapped, has the size of the number, and is page-aligned.
    unsafe { (*owner).store(system::process_id(), Relaxed) };
    if OWNER.compare_exchange(ptr::null_mut(), owner, AcqRel, Acquire).is_err() {
        return Some(());
    }
    page.release();
    // A child of `fork` must not keep the copies of its parent's threads until it calls the shim.
    // SAFETY: the handler touches atomics and what is known of its thread, and closes descriptors.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    Some(())
}

/// Forgets the threads of the parent that sleep on descriptors, and closes their copies, in a child of `fork`, which
/// has none of these threads.
fn forget_sleepers() {
    let chunks = TABLE.iter().enumerate().map(|(n, chunk)| (n, chunk.load(Acquire)));
    for (n, entries) in chunks.filter(|(_, entries)| !entries.is_null()) {
        for (number, at) in (n * CHUNK..).zip(0..CHUNK) {
            // SAFETY: a chunk has this many entries and is never freed.
            let what = unsafe { &*entries.add(at) }.what.load(Acquire);
            if is_lent(what) {
                take_back(number as RawFd);
            } else if is_descriptor(what) {
                // SAFETY: the pointer came from `Box::into_raw`, and the only thread of this process is here.
                unsafe { &*what }.sleepers.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::descriptor;

    /// The process has one table, so these tests run one at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    fn descriptor() -> Arc<Descriptor> {
        // The first look makes this process the owner.
        assert!(find(CHUNK as RawFd).is_none());
        Arc::new(Descriptor::map(descriptor::tests::files()).expect("pages of this version"))
    }

    fn find(fd: RawFd) -> Option<Arc<Descriptor>> {
        if let Entry::Socket(descriptor) = look_up(fd) { Some(descriptor) } else { None }
    }

    fn is_at(fd: RawFd, descriptor: &Arc<Descriptor>) -> bool {
        let found = find(fd).is_some_and(|found| Arc::ptr_eq(&found, descriptor));
        assert_eq!(found, is_known(fd), "{fd}");
        found
    }

    #[test]
    fn a_number_is_ours_until_it_is_closed_or_becomes_something_else() {
        let _alone = ALONE.lock();
        let (one, other) = (descriptor(), descriptor());
        // No test process has as many descriptors: these numbers are free.
        let (first, second, never) = (500_000, 501_234, 502_345);
        assert!(find(first).is_none() && !is_known(first));
        set(first, &one);
        assert!(is_at(first, &one) && !is_known(second));
        set_copy(second, find(first).as_ref());
        assert!(is_at(second, &one) && is_at(first, &one));
        assert_eq!(Arc::strong_count(&one), 3, "one for each number");
        set(second, &other);
        assert!(is_at(second, &other));
        set_copy(second, find(never).as_ref());
        assert!(find(second).is_none() && !is_known(second));
        forget(first);
        assert!(find(first).is_none() && !is_known(first));
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 1), "what is replaced is freed");
    }

    #[test]
    fn a_range_of_numbers_is_forgotten_and_no_other() {
        let _alone = ALONE.lock();
        let one = descriptor();
        let base = 600 * CHUNK as RawFd;
        let numbers = [0, 1023, 1024, 1500, 2047, 2048, 4095, 4096].map(|n| base + n);
        let known = || numbers.map(|fd| is_at(fd, &one));
        assert_eq!(known(), [false; 8]);
        numbers.iter().for_each(|fd| set(*fd, &one));
        assert_eq!(known(), [true; 8]);
        close_range((base + 1024) as u32, (base + 2048) as u32);
        assert_eq!(known(), [true, true, false, false, false, false, true, true]);
        close_range((base + 4096) as u32, u32::MAX);
        assert_eq!(known(), [true, true, false, false, false, false, true, false]);
        close_range(0, (base + 4095) as u32);
        assert_eq!(known(), [false; 8]);
        assert_eq!(Arc::strong_count(&one), 1);
    }

    #[test]
    fn numbers_beyond_the_table_are_not_kept() {
        let _alone = ALONE.lock();
        let one = descriptor();
        for fd in [(CHUNK * CHUNKS) as RawFd, RawFd::MAX, -1] {
            set(fd, &one);
            assert!(!has_slot(fd) && find(fd).is_none() && !is_known(fd), "{fd}");
        }
        let last = (CHUNK * CHUNKS - 1) as RawFd;
        assert!(has_slot(last));
        assert!(find(last).is_none());
        set(last, &one);
        assert!(is_at(last, &one));
        forget(last);
        assert_eq!(Arc::strong_count(&one), 1);
    }

    #[test]
    fn a_child_that_borrows_the_memory_changes_nothing() {
        let _alone = ALONE.lock();
        let (one, fd) = (descriptor(), 700_000);
        set(fd, &one);
        // SAFETY: the page is never unmapped.
        let owner = unsafe { &*OWNER.load(Acquire) };
        let parent = owner.swap(1, Relaxed);
        assert!(!is_known(fd));
        forget(fd);
        close_range(0, u32::MAX);
        owner.store(parent, Relaxed);
        assert!(is_at(fd, &one));
        forget(fd);
    }

    #[test]
    fn a_copy_is_lent_until_it_is_taken_back() {
        let _alone = ALONE.lock();
        let (one, other) = (descriptor(), descriptor());
        let file = std::fs::File::open("/dev/null").expect("a file");
        let lend = || lend(std::os::fd::AsRawFd::as_raw_fd(&file), &one).expect("a free number");
        let copy = lend();
        assert!(is(copy, &one) && !is(copy, &other) && !is_known(copy));
        assert!(matches!(look_up(copy), Entry::Foreign));
        take_back(copy);
        assert!(!is(copy, &one) && !system::try_close(copy), "it was closed");
        // The program closes the number, which becomes another file.
        let copy = lend();
        close(copy);
        take_back(copy);
        assert!(!is(copy, &one) && system::try_close(copy), "it is no socket any more");
    }

    #[test]
    fn a_child_has_no_sleepers_and_no_copies_for_them() {
        let _alone = ALONE.lock();
        let (one, fd) = (descriptor(), 720_000);
        set(fd, &one);
        one.sleepers.begin();
        let file = std::fs::File::open("/dev/null").expect("a file");
        let copy = lend(std::os::fd::AsRawFd::as_raw_fd(&file), &one).expect("a free number");
        assert!(one.sleepers.take(copy));
        forget_sleepers();
        assert!(one.sleepers.copy().is_none() && !one.sleepers.need_copy());
        assert!(!is(copy, &one) && !system::try_close(copy), "it was closed");
        assert_eq!(one.sleepers.end(), None, "a thread that has forked in the handler of a signal");
        assert!(is_at(fd, &one));
        forget(fd);
    }

    #[test]
    fn an_answer_is_entered_once() {
        let _alone = ALONE.lock();
        let (one, other, fd) = (descriptor(), descriptor(), 710_000);
        learn(fd, Some(&one));
        learn(fd, Some(&other));
        learn(fd, None);
        assert!(is_at(fd, &one));
        assert_eq!(Arc::strong_count(&other), 1, "what came too late is freed");
        forget(fd);
        learn(fd, None);
        assert!(matches!(look_up(fd), Entry::Foreign));
        forget(fd);
        assert!(matches!(look_up(fd), Entry::Unknown));
    }
}
