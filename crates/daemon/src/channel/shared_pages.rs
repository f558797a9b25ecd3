//! The daemon's view of the two pages of a socket: the status page, which only the daemon writes, with the receive ring behind
//! it, and the sharers' page.
//!
//! Programs have a descriptor of the status page for reading, and one of the sharers' page for reading and writing.
//! A program can make every access to the sharers' page wait without limit, by the lock of the inode or by punching
//! holes. So the daemon's thread never touches this page. A thread of the socket's user reads it ([`Memory::look`]),
//! and the daemon's thread uses the values that this thread has read last.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Header, MESSAGE_BYTES_MAX};
use channel_protocol::sharers_page::{ReadSoFar, SHARERS_BYTES};
use channel_protocol::status_page::{
    ENTRIES, Entry, FIELDS_BYTES, PAGE_BYTES, PeerShut, RING_AT, STATUS_BYTES, State, StatusPage as Layout,
    Subscriptions,
};
use ring::ReaderWords;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec, pread};
use shared_memory::{OwnedMapping, Pins};

use crate::channel::style::Style;
use crate::system::addresses::Family;
use crate::system::journal::{Cause, log};
use crate::system::lock::lock;
use crate::users::budget::{Account, Charge};
use crate::users::worker::{Job, Worker};

/// The two pages of a socket, as the daemon's thread uses them. Only their [`Memory`] goes to other threads.
pub(crate) struct SharedPages {
    memory: Arc<Memory>,
    /// Whether each entry is in use.
    entries: RefCell<Vec<bool>>,
    /// Number of errors that were set.
    errors: Cell<u32>,
    /// Whether the memory is left to be emptied: what is written after that would fill it again.
    is_left: Cell<bool>,
    /// Maximum message length that the memory of the user permits, whatever the program has set; 0 for no limit.
    room_bytes: u32,
}

/// Charge for a socket beyond its status page: the memory of a closed socket may stay pinned while that of another one is in use.
const PINNED_BYTES: usize = 4096;

/// The index of an association's entry in the page of its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryIndex(usize);

/// The memory of the two pages, and the charge to its user. The daemon's thread and a thread of the socket's user share it.
pub(crate) struct Memory {
    status: OwnedMapping,
    sharers: OwnedFd,
    /// The content of the sharers' page when it was read last.
    known: Mutex<ReadSoFar>,
    /// A reading of the sharers' page that has not begun: all who ask meanwhile wait for it.
    reading: Mutex<Option<Arc<Job<()>>>>,
    /// `None` once the memory was returned.
    charge: Mutex<Option<Charge>>,
    /// The charge for the memory of the receive ring, if it has any.
    ring_charge: Mutex<Option<Charge>>,
}

impl Memory {
    /// Returns the words that the reader of the program's ring writes.
    pub(crate) fn reader_words(&self) -> &ReaderWords {
        self.status.words_u64().try_into().expect("the page begins with these words")
    }

    /// Shows which ring the daemon reads.
    pub(super) fn set_ring_number(&self, number: u32) {
        self.status.store(Layout::RING_NUMBER_AT as usize, &number.to_ne_bytes());
    }

    /// Makes the system provide memory of the receive ring, which is charged; waits for programs. Returns false if there is none.
    pub(super) fn grow_ring(&self, range: Range<usize>, charge: Charge) -> bool {
        if self.status.allocate(RING_AT + range.start..RING_AT + range.end).is_err() {
            return false;
        }
        match &mut *lock(&self.ring_charge) {
            Some(before) => before.join(charge),
            none => *none = Some(charge),
        }
        true
    }

    /// Writes bytes to the receive ring.
    pub(super) fn write_ring(&self, at: usize, bytes: &[u8]) {
        self.status.write(RING_AT + at, bytes);
    }

    /// Reads bytes of the receive ring by a system call.
    pub(super) fn read_ring(&self, at: usize, place: &mut [u8]) -> Result<(), Errno> {
        self.status.read(RING_AT + at, place)
    }

    /// Returns the memory of the receive ring to the system; waits for programs.
    pub(super) fn empty_ring(&self) {
        self.status.discard_from(RING_AT);
        drop(lock(&self.ring_charge).take());
    }

    /// Makes a thread read the sharers' page. One reading may be under way and one may wait, however often this is called.
    pub(super) fn begin_reading(self: &Arc<Self>, worker: &Worker) -> Arc<Job<()>> {
        let mut reading = lock(&self.reading);
        let job = reading.take().unwrap_or_else(|| {
            let memory = Arc::clone(self);
            Job::begin(worker, move || {
                drop(lock(&memory.reading).take());
                memory.look();
            })
        });
        *reading = Some(Arc::clone(&job));
        job
    }

    /// Reads the sharers' page; waits for programs.
    fn look(&self) {
        let mut bytes = [0; ReadSoFar::BYTES];
        // The page has as many bytes, and nothing is wrong with the memory.
        if pread(&self.sharers, &mut bytes, 0) == Ok(bytes.len()) {
            *lock(&self.known) = ReadSoFar::parse(&bytes);
        }
    }

    /// Returns what the sharers' page said when it was read last.
    fn known(&self) -> ReadSoFar {
        *lock(&self.known)
    }
}

/// The pages of a closed socket. Programs may still have them.
pub(crate) struct LeftPages(Arc<Memory>);

impl LeftPages {
    /// Returns the memory to the system; waits for programs.
    pub(crate) fn empty(self) {
        self.0.status.empty();
        drop(lock(&self.0.charge).take());
        drop(lock(&self.0.ring_charge).take());
    }
}

impl SharedPages {
    /// Closes the pages, and returns their memory. A thread of the user empties it, because a program can delay that. Later
    /// writes to the pages have no effect.
    pub(crate) fn close(&self) -> LeftPages {
        self.is_left.set(true);
        LeftPages(Arc::clone(&self.memory))
    }

    /// Creates the pages of a socket that takes messages up to this length. `NOBUFS`: its user has no memory left.
    pub(crate) fn new(
        family: Family,
        style: Style,
        state: State,
        message_bytes_max: usize,
        account: &Arc<Account>,
        pins: &Arc<Pins>,
    ) -> Result<SharedPages, Errno> {
        let charge = account.take(Self::bytes_of(style)).ok_or(Errno::NOBUFS)?;
        let bytes = Self::status_bytes(style);
        let (ring, words) = (RING_AT..STATUS_BYTES, size_of::<ReaderWords>() / 8);
        let status = OwnedMapping::with_bytes("swiftwater-status", bytes, words, ring, pins)?;
        let sharers = memfd_create("swiftwater-sharers", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&sharers, SHARERS_BYTES as u64)?;
        // A process that maps the page must not find it truncated by another process.
        fcntl_add_seals(&sharers, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let room_bytes = if message_bytes_max < MESSAGE_BYTES_MAX { message_bytes_max as u32 } else { 0 };
        let (known, reading, charge) = (Mutex::default(), Mutex::default(), Mutex::new(Some(charge)));
        let ring_charge = Mutex::default();
        let memory = Arc::new(Memory { status, sharers, known, reading, charge, ring_charge });
        let pages = SharedPages {
            memory,
            entries: RefCell::default(),
            errors: Cell::default(),
            is_left: Cell::new(false),
            room_bytes,
        };
        let identity =
            [u32::from(channel_protocol::VERSION), family as u32, style.socket_type()].map(u32::to_ne_bytes);
        pages.write(Layout::IDENTITY_AT, identity.as_flattened());
        pages.set_fragmentation_limit(0);
        pages.set_state(state);
        Ok(pages)
    }

    fn status_bytes(style: Style) -> usize {
        if style == Style::OneToMany { PAGE_BYTES } else { FIELDS_BYTES }
    }

    /// Returns the memory that is charged for the pages of a socket.
    pub(crate) fn bytes_of(style: Style) -> usize {
        Self::status_bytes(style) + PINNED_BYTES
    }

    /// Checks that this process can have pages. Warns if they cannot be pinned.
    pub(crate) fn check() -> Result<(), Errno> {
        let pins = Arc::new(Pins::new(1));
        let page = OwnedMapping::new("swiftwater-status", FIELDS_BYTES, 0, &pins)?;
        page.for_reading()?;
        if pins.are_forbidden() {
            log(
                Cause::Daemon,
                format_args!(
                    "vmsplice is forbidden here, so that a program of another user can delay this daemon (MADV_COLLAPSE)"
                ),
            );
        }
        Ok(())
    }

    /// Returns the memory of the pages.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Returns descriptors for a program: of the status page for reading, and of the sharers' page.
    pub(crate) fn descriptors(&self) -> Result<[OwnedFd; 2], Errno> {
        Ok([self.memory.status.for_reading()?, fcntl_dupfd_cloexec(&self.memory.sharers, 0)?])
    }

    /// Adds an entry for an association. `None`: all entries are in use, so the sharers ask the daemon about this association.
    pub(crate) fn enter(&self, assoc_id: AssocId, streams_out: u16, peer: &SocketAddr) -> Option<EntryIndex> {
        let mut entries = self.entries.borrow_mut();
        let index = match entries.iter().position(|used| !used) {
            Some(free) => free,
            None if entries.len() < ENTRIES => {
                entries.push(false);
                entries.len() - 1
            }
            None => return None,
        };
        entries[index] = true;
        self.write(Layout::entry_at(index), &Entry::encode(assoc_id, streams_out, peer));
        self.write(Layout::ENTRIES_USED_AT, &(entries.len() as u32).to_ne_bytes());
        Some(EntryIndex(index))
    }

    /// Sets the number of outbound streams of an entry's association, which is up.
    pub(crate) fn set_entry_streams_out(&self, EntryIndex(index): EntryIndex, streams_out: u16) {
        self.write(Layout::entry_streams_out_at(index), &u32::from(streams_out).to_ne_bytes());
    }

    /// Shows that the peer has shut down an entry's association.
    pub(crate) fn set_entry_peer_shut(&self, EntryIndex(index): EntryIndex) {
        self.write(Layout::entry_streams_out_at(index), &Entry::PEER_SHUT.to_ne_bytes());
    }

    /// Sets the default stream of an entry's association.
    pub(crate) fn set_entry_default_stream(&self, EntryIndex(index): EntryIndex, stream: u16) {
        self.write(Layout::entry_default_stream_at(index), &u32::from(stream).to_ne_bytes());
    }

    /// Sets the default attributes of messages to the only association.
    pub(crate) fn set_defaults(&self, defaults: &Header) {
        let Header { stream, flags, ppid, context, lifetime_ms, .. } = *defaults;
        let words = [stream.into(), flags.number(), ppid, context, lifetime_ms].map(u32::to_ne_bytes);
        self.write(Layout::DEFAULT_STREAM_AT, words.as_flattened());
    }

    /// Sets the number of sent bytes that an association has taken, modulo 2^32.
    pub(crate) fn set_passed_on(&self, EntryIndex(index): EntryIndex, bytes: u32) {
        self.write(Layout::entry_passed_on_at(index), &bytes.to_ne_bytes());
    }

    /// Frees the entry of an association that has ended.
    pub(crate) fn leave(&self, EntryIndex(index): EntryIndex) {
        self.write(Layout::entry_at(index), &0_u32.to_ne_bytes());
        self.entries.borrow_mut()[index] = false;
    }

    pub(crate) fn set_state(&self, state: State) {
        self.write(Layout::STATE_AT, &(state as u32).to_ne_bytes());
    }

    pub(crate) fn set_error(&self, error: Errno) {
        self.write(Layout::ERROR_AT, &error.raw_os_error().to_ne_bytes());
        let errors = self.errors.get().wrapping_add(1);
        self.errors.set(errors);
        self.write(Layout::ERRORS_AT, &errors.to_ne_bytes());
    }

    /// Returns how far the sharers had read when their page was read last
    /// ([`Endpoint::read_page`](crate::channel::endpoint::Endpoint::read_page)).
    pub(crate) fn read_so_far(&self) -> ReadSoFar {
        self.memory.known()
    }

    /// Sets the number of associations from which data may come.
    pub(crate) fn set_associations(&self, count: usize) {
        self.write(Layout::ASSOCIATIONS_AT, &(count as u32).to_ne_bytes());
    }

    pub(crate) fn clear_error(&self) {
        self.write(Layout::ERROR_AT, &0_i32.to_ne_bytes());
    }

    /// Sets the length above which messages would be fragmented, if the program disables fragmentation; 0 for no limit but
    /// memory.
    pub(crate) fn set_fragmentation_limit(&self, bytes: u32) {
        let limits = [bytes, self.room_bytes];
        let least = limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(0);
        self.write(Layout::FRAGMENTATION_LIMIT_AT, &least.to_ne_bytes());
    }

    pub(crate) fn set_subscriptions(&self, subscriptions: Subscriptions) {
        self.write(Layout::SUBSCRIPTIONS_AT, &subscriptions.0.to_ne_bytes());
    }

    pub(crate) fn set_local(&self, local: &SocketAddr) {
        self.write(Layout::LOCAL_AT, &Layout::encode_peer(local));
    }

    /// Shows how far the peer has shut the association down.
    pub(crate) fn set_peer_shut(&self, peer_shut: PeerShut) {
        self.write(Layout::PEER_SHUT_AT, &(peer_shut as u32).to_ne_bytes());
    }

    /// Sets the time that the last close waits.
    pub(crate) fn set_linger(&self, seconds: u32) {
        self.write(Layout::LINGER_AT, &seconds.to_ne_bytes());
    }

    pub(crate) fn set_longest(&self, bytes: u32) {
        self.write(Layout::LONGEST_AT, &bytes.to_ne_bytes());
    }

    /// Shows whether a record may hold several messages.
    pub(crate) fn set_bundles(&self, bundles: bool) {
        self.write(Layout::BUNDLES_AT, &u32::from(bundles).to_ne_bytes());
    }

    /// Shows whether the pair holds plain content.
    pub(crate) fn set_plain(&self, plain: bool) {
        self.write(Layout::PLAIN_AT, &u32::from(plain).to_ne_bytes());
    }

    pub(crate) fn set_peer(&self, peer: &SocketAddr, streams_out: u16) {
        self.write(Layout::PEER_AT, &Layout::encode_peer(peer));
        self.write(Layout::STREAMS_OUT_AT, &u32::from(streams_out).to_ne_bytes());
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        if !self.is_left.get() {
            self.memory.status.store(at as usize, bytes);
        }
    }
}

#[cfg(test)]
impl SharedPages {
    /// Writes words of the sharers' page as a program does.
    pub(crate) fn write_as_sharer(&self, at: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        rustix::io::pwrite(&self.memory.sharers, &bytes, at).expect("a page");
        self.memory.look();
    }

    /// Returns a field of the status page.
    pub(crate) fn field(&self, at: u64) -> u32 {
        self.memory.status.load(at as usize)
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;
    use crate::users::budget::{Budget, ByteLimits};

    fn account() -> Arc<Account> {
        Budget::new(ByteLimits { user_bytes: 2 * PAGE_BYTES, all_bytes: 1 << 30 }).account(1)
    }

    fn pages(style: Style, account: &Arc<Account>) -> Result<SharedPages, Errno> {
        SharedPages::new(Family::V4, style, State::Idle, MESSAGE_BYTES_MAX, account, &Arc::new(Pins::new(1)))
    }

    #[test]
    fn a_program_that_keeps_a_page_keeps_no_memory() {
        let pages = pages(Style::OneToMany, &account()).expect("a memfd");
        let [kept, _sharers] = pages.descriptors().expect("descriptors");
        let blocks = || fstat(&kept).expect("it is open").st_blocks;
        assert!(blocks() > 0);
        let entry = pages.enter(AssocId::FIRST, 1, &([192, 0, 2, 1], 7).into()).expect("a free entry");
        pages.close().empty();
        assert_eq!(blocks(), 0);
        // The association that the program has left ends later.
        pages.set_passed_on(entry, 1);
        pages.leave(entry);
        assert_eq!(blocks(), 0);
    }

    #[test]
    fn a_page_is_charged_until_it_is_emptied() {
        let account = account();
        let few = pages(Style::OneToOne, &account).expect("room");
        assert_eq!(account.charged_bytes(), FIELDS_BYTES + PINNED_BYTES);
        let many = pages(Style::OneToMany, &account).expect("room");
        assert_eq!(pages(Style::OneToMany, &account).err(), Some(Errno::NOBUFS));
        let left = many.close();
        drop((few, many));
        assert_eq!(account.charged_bytes(), PAGE_BYTES + PINNED_BYTES, "a program may have it");
        left.empty();
        assert_eq!(account.charged_bytes(), 0);
    }

    #[test]
    fn a_sharer_cannot_change_the_length_of_a_page() {
        let pages = pages(Style::PeeledOff, &account()).expect("room");
        let [status, sharers] = pages.descriptors().expect("descriptors");
        assert_eq!(rustix::io::pwrite(&status, &[1], 0), Err(Errno::BADF));
        assert_eq!(rustix::io::pwrite(&sharers, &[1], SHARERS_BYTES as u64), Err(Errno::PERM));
        for bytes in [0, PAGE_BYTES as u64] {
            assert_eq!(ftruncate(&sharers, bytes), Err(Errno::PERM));
        }
        // A seal against writing would keep the others from it.
        assert_eq!(fcntl_add_seals(&sharers, SealFlags::FUTURE_WRITE), Err(Errno::PERM));
    }

    #[test]
    fn the_memory_of_a_ring_is_charged_until_it_is_returned() {
        let account = Budget::new(ByteLimits { user_bytes: 1 << 30, all_bytes: 1 << 30 }).account(1);
        let pages = pages(Style::OneToOne, &account).expect("room");
        let [kept, _sharers] = pages.descriptors().expect("descriptors");
        let seen = || (account.charged_bytes(), fstat(&kept).expect("it is open").st_blocks);
        let before = seen();
        let grow = |range: Range<usize>| {
            let charge = account.take(range.len()).expect("room");
            assert!(pages.memory.grow_ring(range, charge));
        };
        grow(0..8192);
        grow(8192..12_288);
        pages.memory.write_ring(0, &[1; 12_288]);
        assert_eq!(account.charged_bytes(), before.0 + 12_288);
        pages.memory.empty_ring();
        assert_eq!(seen(), before);
        grow(0..4096);
        pages.close().empty();
        assert_eq!(seen(), (0, 0));
    }

    #[test]
    fn a_new_page_says_what_the_socket_is() {
        let pages = pages(Style::OneToMany, &account()).expect("room");
        assert_eq!(pages.field(Layout::IDENTITY_AT), u32::from(channel_protocol::VERSION));
        assert_eq!(pages.field(Layout::IDENTITY_AT + 4), Family::V4 as u32);
        assert_eq!(pages.field(Layout::STATE_AT), State::Idle as u32);
        pages.set_state(State::OneToManyListening);
        assert_eq!(pages.field(Layout::STATE_AT), State::OneToManyListening as u32);
    }

    #[test]
    fn the_fragmentation_limit_is_the_least_that_is_set() {
        let limit_of = |message_bytes_max, set: Option<u32>| {
            let (state, pins) = (State::Idle, Arc::new(Pins::new(1)));
            let style = Style::OneToOne;
            let pages = SharedPages::new(Family::V4, style, state, message_bytes_max, &account(), &pins);
            let pages = pages.expect("room");
            if let Some(bytes) = set {
                pages.set_fragmentation_limit(bytes);
            }
            pages.field(Layout::FRAGMENTATION_LIMIT_AT)
        };
        for (set, limit) in [(None, 1000), (Some(0), 1000), (Some(10), 10), (Some(1001), 1000)] {
            assert_eq!(limit_of(1000, set), limit, "{set:?}");
        }
        assert_eq!([None, Some(10)].map(|set| limit_of(MESSAGE_BYTES_MAX, set)), [0, 10]);
    }

    #[test]
    fn the_fields_of_a_page_show_what_was_set() {
        let pages = pages(Style::OneToMany, &account()).expect("room");
        let peer = ([192, 0, 2, 1], 7).into();
        let (first, second) =
            (pages.enter(AssocId::new(3), 4, &peer), pages.enter(AssocId::new(4), 4, &peer));
        let (Some(first), Some(second)) = (first, second) else { panic!("there are free entries") };
        assert_eq!(pages.field(Layout::entry_at(first.0)), 3);
        pages.set_entry_streams_out(first, 5);
        assert_eq!(pages.field(Layout::entry_streams_out_at(first.0)), 5);
        pages.set_entry_peer_shut(first);
        assert_eq!(pages.field(Layout::entry_streams_out_at(first.0)), Entry::PEER_SHUT);
        pages.set_entry_default_stream(first, 6);
        assert_eq!(pages.field(Layout::entry_default_stream_at(first.0)), 6);
        pages.set_passed_on(first, 7);
        assert_eq!(pages.field(Layout::entry_passed_on_at(first.0)), 7);
        pages.leave(first);
        assert_eq!([first, second].map(|entry| pages.field(Layout::entry_at(entry.0))), [0, 4]);
        pages.set_associations(8);
        pages.set_subscriptions(Subscriptions(9));
        pages.set_peer_shut(PeerShut::Both);
        pages.set_linger(10);
        pages.set_longest(11);
        pages.set_bundles(true);
        pages.set_plain(true);
        pages.set_peer(&peer, 12);
        for (at, value) in [
            (Layout::ASSOCIATIONS_AT, 8),
            (Layout::SUBSCRIPTIONS_AT, 9),
            (Layout::PEER_SHUT_AT, PeerShut::Both as u32),
            (Layout::LINGER_AT, 10),
            (Layout::LONGEST_AT, 11),
            (Layout::BUNDLES_AT, 1),
            (Layout::PLAIN_AT, 1),
            (Layout::STREAMS_OUT_AT, 12),
        ] {
            assert_eq!(pages.field(at), value, "at {at}");
        }
    }

    #[test]
    fn a_page_has_a_limited_number_of_entries() {
        let pages = pages(Style::OneToMany, &account()).expect("room");
        let mut enter = || pages.enter(AssocId::FIRST, 1, &([192, 0, 2, 1], 7).into());
        let entered: Vec<EntryIndex> = std::iter::from_fn(&mut enter).take(ENTRIES + 1).collect();
        assert_eq!((entered.len(), enter().is_some()), (ENTRIES, false));
        assert_eq!(pages.field(Layout::ENTRIES_USED_AT), ENTRIES as u32);
    }

    #[test]
    fn each_error_is_counted() {
        let pages = pages(Style::OneToOne, &account()).expect("room");
        let error = || (pages.field(Layout::ERROR_AT), pages.field(Layout::ERRORS_AT));
        assert_eq!(error(), (0, 0));
        pages.set_error(Errno::CONNREFUSED);
        assert_eq!(error(), (Errno::CONNREFUSED.raw_os_error() as u32, 1));
        pages.clear_error();
        assert_eq!(error(), (0, 1));
        pages.set_error(Errno::CONNRESET);
        assert_eq!(error(), (Errno::CONNRESET.raw_os_error() as u32, 2));
    }
}
