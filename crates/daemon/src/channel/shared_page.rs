//! The daemon's view of the shared page: a memfd that it maps and writes field by field.
//!
//! Programs have descriptors of the memfd, and any of them may hold the lock of its inode without limit. So once a program may
//! have the memfd, the daemon's thread makes no call that waits for this lock: it neither writes to the descriptor, nor allocates
//! or frees the memory, nor seals it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use carrier::record::MESSAGE_BYTES_MAX;
use carrier::shared_page::{
    ENTRIES, Entry, FIELDS_BYTES, PAGE_BYTES, PeerShut, SharedPage as Layout, State, Subscriptions,
};
use ring::Ring;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use shared_memory::Mapping;

use crate::channel::style::Style;
use crate::users::budget::{Account, Charge};

pub(crate) struct SharedPage {
    memory: Arc<Memory>,
    /// Whether each entry is in use.
    entries: Mutex<Vec<bool>>,
    /// Maximum message length that the memory of the user permits, whatever the program has set; 0 for no limit.
    room_bytes: u32,
}

/// The beginning of a ring, which is never returned: a page of the system with the control words.
const RING_KEPT_BYTES: usize = 4096;

/// The index of an association's entry in the page of its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryIndex(usize);

/// The memfd of a page and a ring, its mapping, and the charge to its user.
pub(crate) struct Memory {
    memfd: OwnedFd,
    mapping: Mapping,
    /// Number of bytes of the page, in front of the ring.
    bytes: usize,
    /// `None` once the memory was returned.
    charge: Mutex<Option<Charge>>,
}

impl Memory {
    /// Returns the ring through which the program sends.
    pub(crate) fn ring(&self) -> Ring<'_> {
        let words = self.mapping.long_words().try_into();
        Ring::new(words.expect("the mapping has as many words as a ring"))
    }

    /// Returns the memory of the ring, apart from its beginning, to the system; waits for the lock of the inode.
    pub(super) fn return_ring(&self) {
        self.return_memory(self.bytes + RING_KEPT_BYTES);
    }

    /// Returns the memory beyond the first `first` bytes.
    fn return_memory(&self, first: usize) {
        let bytes = self.bytes + ring::BYTES - first;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Memory that cannot be returned stays until the memfd is closed.
        let _ = fallocate(&self.memfd, flags, first as u64, bytes as u64);
    }
}

/// The page of a closed socket. Programs may still have its memfd.
pub(crate) struct LeftPage(Arc<Memory>);

impl LeftPage {
    /// Returns the memory to the system; waits for the lock of the inode. Returns a page whose program has shut down both
    /// directions: its fields stay, uncharged, because the program may still ask for the state of the socket.
    pub(crate) fn empty(self) -> Option<LeftPage> {
        let stays = self.is_shut_both_ways();
        self.0.return_memory(if stays { FIELDS_BYTES } else { 0 });
        drop(self.0.charge.lock().unwrap_or_else(PoisonError::into_inner).take());
        stays.then_some(self)
    }

    /// Returns all memory to the system; waits for the lock of the inode.
    pub(crate) fn empty_wholly(self) {
        self.0.return_memory(0);
    }

    /// Returns whether the carrier is out of use, although the program may still have the socket: the program has shut down
    /// writing, and has shut down reading or been told the end.
    fn is_shut_both_ways(&self) -> bool {
        let field = |at: u64| self.0.mapping.load(at as usize);
        let (shut_reading, shut_writing) = (field(Layout::SHUT_AT), field(Layout::SHUT_AT + 4));
        shut_writing != 0 && (shut_reading != 0 || field(Layout::PEER_SHUT_AT) == PeerShut::Both as u32)
    }
}

impl SharedPage {
    /// Returns the memory of the page, for a thread that may wait for programs to empty once the socket is closed.
    pub(crate) fn left(&self) -> LeftPage {
        LeftPage(Arc::clone(&self.memory))
    }

    /// Creates the page of a socket that takes messages up to this length. `NOBUFS`: its user has no memory left.
    pub(crate) fn new(
        v6: bool,
        style: Style,
        state: State,
        message_bytes_max: usize,
        account: &Arc<Account>,
    ) -> Result<SharedPage, Errno> {
        let bytes = if style == Style::OneToMany { PAGE_BYTES } else { FIELDS_BYTES };
        let charge = account.take(bytes + RING_KEPT_BYTES).ok_or(Errno::NOBUFS)?;
        let memfd = memfd_create("swiftwater-page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, (bytes + ring::BYTES) as u64)?;
        // A process that maps the page must not find it truncated by another process.
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::with_long_words(&memfd, bytes, ring::WORDS)?;
        let room_bytes = if message_bytes_max < MESSAGE_BYTES_MAX { message_bytes_max as u32 } else { 0 };
        let memory = Arc::new(Memory { memfd, mapping, bytes, charge: Mutex::new(Some(charge)) });
        let page = SharedPage { memory, entries: Mutex::default(), room_bytes };
        let family = if v6 { AF_INET6 } else { AF_INET };
        let identity = [u32::from(carrier::VERSION), family, style.socket_type()].map(u32::to_ne_bytes);
        page.write(Layout::IDENTITY_AT, identity.as_flattened());
        page.set_fragmentation_limit(0);
        page.set_state(state);
        Ok(page)
    }

    /// Returns the memory of the page and the ring.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// Adds an entry for an association. `None`: all entries are in use, so the sharers ask the daemon about this association.
    pub(crate) fn enter(&self, association: u32, streams_out: u16, peer: &SocketAddr) -> Option<EntryIndex> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match entries.iter().position(|used| !used) {
            Some(free) => free,
            None if entries.len() < ENTRIES => {
                entries.push(false);
                entries.len() - 1
            }
            None => return None,
        };
        entries[index] = true;
        self.write(Layout::entry_at(index), &Entry::encode(association, streams_out, peer));
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

    /// Sets the default stream of an entry's association, or of the only association.
    pub(crate) fn set_default_stream(&self, entry: Option<EntryIndex>, stream: u16) {
        let at = entry
            .map_or(Layout::DEFAULT_STREAM_AT, |EntryIndex(index)| Layout::entry_default_stream_at(index));
        self.write(at, &u32::from(stream).to_ne_bytes());
    }

    /// Sets the number of sent bytes that an association has taken, modulo 2^32.
    pub(crate) fn set_passed_on(&self, EntryIndex(index): EntryIndex, bytes: u32) {
        self.write(Layout::entry_passed_on_at(index), &bytes.to_ne_bytes());
    }

    /// Frees the entry of an association that has ended.
    pub(crate) fn leave(&self, EntryIndex(index): EntryIndex) {
        self.write(Layout::entry_at(index), &0_u32.to_ne_bytes());
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries[index] = false;
    }

    pub(crate) fn set_state(&self, state: State) {
        self.write(Layout::STATE_AT, &(state as u32).to_ne_bytes());
    }

    pub(crate) fn set_error(&self, error: Errno) {
        self.write(Layout::ERROR_AT, &error.raw_os_error().to_ne_bytes());
    }

    /// Returns the number of messages read, according to the sharers.
    pub(crate) fn data_taken(&self) -> u32 {
        self.read(Layout::DATA_TAKEN_AT)
    }

    /// Returns the number of records with a memfd that were read, according to the sharers.
    pub(crate) fn long_taken(&self) -> u32 {
        self.read(Layout::LONG_TAKEN_AT)
    }

    /// Returns whether a sharer is reading at this moment.
    pub(crate) fn is_being_read(&self) -> bool {
        self.read(Layout::LOCK_AT) != 0
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

    /// Returns whether the program has been told that no more messages follow.
    pub(crate) fn is_end_told(&self) -> bool {
        self.read(Layout::PEER_SHUT_AT) == PeerShut::Both as u32
    }

    /// Shows how far the peer has shut the association down.
    pub(crate) fn set_peer_shut(&self, peer_shut: PeerShut) {
        self.write(Layout::PEER_SHUT_AT, &(peer_shut as u32).to_ne_bytes());
    }

    pub(crate) fn set_longest(&self, bytes: u32) {
        self.write(Layout::LONGEST_AT, &bytes.to_ne_bytes());
    }

    /// Shows whether a record may hold several messages.
    pub(crate) fn set_bundles(&self, bundles: bool) {
        self.write(Layout::BUNDLES_AT, &u32::from(bundles).to_ne_bytes());
    }

    /// Shows whether the carrier holds plain content.
    pub(crate) fn set_plain(&self, plain: bool) {
        self.write(Layout::PLAIN_AT, &u32::from(plain).to_ne_bytes());
    }

    pub(crate) fn set_peer(&self, peer: &SocketAddr, streams_out: u16) {
        self.write(Layout::PEER_AT, &Layout::encode_peer(peer));
        self.write(Layout::STREAMS_OUT_AT, &u32::from(streams_out).to_ne_bytes());
    }

    fn read(&self, at: u64) -> u32 {
        self.memory.mapping.load(at as usize)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.mapping.store(at as usize, bytes);
    }
}

impl AsFd for SharedPage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.memfd.as_fd()
    }
}

const AF_INET: u32 = rustix::net::AddressFamily::INET.as_raw() as u32;
const AF_INET6: u32 = rustix::net::AddressFamily::INET6.as_raw() as u32;

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;
    use crate::users::budget::{Budget, Limits};

    fn account() -> Arc<Account> {
        Budget::new(Limits { user_bytes: 2 * PAGE_BYTES, all_bytes: 1 << 30 }).account(1)
    }

    fn page(style: Style, account: &Arc<Account>) -> Result<SharedPage, Errno> {
        SharedPage::new(false, style, State::Idle, MESSAGE_BYTES_MAX, account)
    }

    #[test]
    fn a_program_that_keeps_a_page_keeps_no_memory() {
        let page = page(Style::OneToMany, &account()).expect("a memfd");
        let kept = page.as_fd().try_clone_to_owned().expect("a copy");
        let blocks = || fstat(&kept).expect("it is open").st_blocks;
        assert!(blocks() > 0);
        assert!(page.left().empty().is_none());
        assert_eq!((blocks(), page.data_taken()), (0, 0));
        // A program that has shut down both directions keeps the fields only.
        page.write(Layout::SHUT_AT, &[1, 0, 0, 0, 1, 0, 0, 0]);
        page.write(PAGE_BYTES as u64 - 4, &[1; 4]);
        let left = page.left().empty().expect("it may be asked");
        assert_eq!(blocks() * 512, FIELDS_BYTES as i64);
        assert_eq!(
            (page.read(Layout::SHUT_AT), page.read(PAGE_BYTES as u64 - 4)),
            (u32::from_ne_bytes([1, 0, 0, 0]), 0)
        );
        left.empty_wholly();
        assert_eq!(blocks(), 0);
        // A program that has shut down writing and has been told the end keeps them, too.
        page.write(Layout::SHUT_AT + 4, &[1, 0, 0, 0]);
        page.set_peer_shut(PeerShut::Writing);
        assert!(page.left().empty().is_none());
        page.write(Layout::SHUT_AT + 4, &[1, 0, 0, 0]);
        page.set_peer_shut(PeerShut::Both);
        assert!(page.left().empty().is_some());
    }

    #[test]
    fn a_page_is_charged_until_it_is_emptied() {
        let account = account();
        let few = page(Style::OneToOne, &account).expect("room");
        assert_eq!(account.charged_bytes(), FIELDS_BYTES + RING_KEPT_BYTES);
        let many = page(Style::OneToMany, &account).expect("room");
        assert_eq!(page(Style::OneToMany, &account).err(), Some(Errno::NOBUFS));
        let left = many.left();
        drop((few, many));
        assert_eq!(account.charged_bytes(), PAGE_BYTES + RING_KEPT_BYTES, "a program may have it");
        left.empty();
        assert_eq!(account.charged_bytes(), 0);
        let shut = page(Style::OneToOne, &account).expect("room");
        shut.write(Layout::SHUT_AT, &[1, 0, 0, 0, 1, 0, 0, 0]);
        let _left = shut.left().empty().expect("it may be asked");
        assert_eq!(account.charged_bytes(), 0);
    }

    #[test]
    fn a_sharer_cannot_make_a_page_larger() {
        let page = page(Style::PeeledOff, &account()).expect("room");
        let sharer = page.as_fd().try_clone_to_owned().expect("a copy");
        assert_eq!(rustix::io::pwrite(&sharer, &[1], (FIELDS_BYTES + ring::BYTES) as u64), Err(Errno::PERM));
        assert_eq!(ftruncate(&sharer, PAGE_BYTES as u64), Err(Errno::PERM));
    }
}
