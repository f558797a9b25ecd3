//! The page as the daemon sees it: a memfd that it maps, and writes field by field.
//!
//! Programs have descriptors of the memfd, and one of them may hold the lock of its inode for as long as it likes. So the daemon's
//! thread makes no call that waits for this lock once a program may have the memfd: it neither writes to the descriptor, nor
//! allocates or frees its memory, nor seals it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use carrier::page::{
    ENTRIES, Entry, FIELDS_BYTES, PAGE_BYTES, Page as Layout, PeerShut, State, Subscriptions,
};
use carrier::record::MESSAGE_BYTES_MAX;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use shared_memory::Mapping;

use crate::channel::style::Style;
use crate::users::budget::{Account, Charge};

pub(crate) struct SharedPage {
    memory: Arc<Memory>,
    /// Which entries are in use.
    entries: Mutex<Vec<bool>>,
    /// No message may be longer, whatever the program has set: the memory of its user has no room for it. 0: any may be.
    room_bytes: u32,
}

/// An entry of an association in the page of its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryIndex(usize);

/// The memfd of a page, where the daemon has mapped it, and what its user is charged for it.
struct Memory {
    memfd: OwnedFd,
    mapping: Mapping,
    bytes: usize,
    /// None once the memory was given back.
    charge: Mutex<Option<Charge>>,
}

/// The memory of a page that nobody uses any more, whoever still has its memfd.
pub(crate) struct LeftPage(Arc<Memory>);

impl LeftPage {
    /// Gives the memory back to the system, which waits for the lock of the inode. Returns a page whose program has shut both
    /// directions down, with its fields: the program may go on asking what has become of the socket. They are charged to nobody.
    pub(crate) fn empty(self) -> Option<LeftPage> {
        let stays = self.is_shut_both_ways();
        self.give_back(if stays { FIELDS_BYTES } else { 0 });
        drop(self.0.charge.lock().unwrap_or_else(PoisonError::into_inner).take());
        stays.then_some(self)
    }

    /// Gives all memory back, which waits for the lock of the inode.
    pub(crate) fn empty_wholly(self) {
        self.give_back(0);
    }

    /// Gives the memory behind so many bytes back.
    fn give_back(&self, first: usize) {
        let bytes = self.0.bytes - first;
        if bytes > 0 {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // What cannot be given back stays until the memfd is closed.
            let _ = fallocate(&self.0.memfd, flags, first as u64, bytes as u64);
        }
    }

    /// Returns whether nothing goes through the carrier any more, although the program may still have the socket: it writes no
    /// more, and reads no more or has been told the end.
    fn is_shut_both_ways(&self) -> bool {
        let field = |at: u64| self.0.mapping.load(at as usize);
        let (shut_reading, shut_writing) = (field(Layout::SHUT_AT), field(Layout::SHUT_AT + 4));
        shut_writing != 0 && (shut_reading != 0 || field(Layout::PEER_SHUT_AT) == PeerShut::Both as u32)
    }
}

impl SharedPage {
    /// Returns what is to be emptied once the socket is closed, where waiting for a program keeps nobody else waiting.
    pub(crate) fn left(&self) -> LeftPage {
        LeftPage(Arc::clone(&self.memory))
    }

    /// Makes a page for a socket that takes messages of so many bytes. `NOBUFS`: its user has no memory left for that.
    pub(crate) fn new(
        v6: bool,
        style: Style,
        state: State,
        message_bytes_max: usize,
        account: &Arc<Account>,
    ) -> Result<SharedPage, Errno> {
        let bytes = if style == Style::OneToMany { PAGE_BYTES } else { FIELDS_BYTES };
        let charge = account.take(bytes).ok_or(Errno::NOBUFS)?;
        let memfd = memfd_create("swiftwater-page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, bytes as u64)?;
        // No process that maps it must find that another has cut it.
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::new(&memfd, bytes)?;
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

    /// Enters an association. `None`: there is no room; the daemon is asked about this one.
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

    /// The association of an entry is up.
    pub(crate) fn set_entry_streams_out(&self, EntryIndex(index): EntryIndex, streams_out: u16) {
        self.write(Layout::entry_streams_out_at(index), &u32::from(streams_out).to_ne_bytes());
    }

    /// Says that the peer of an entry's association has shut it down.
    pub(crate) fn set_entry_peer_shut(&self, EntryIndex(index): EntryIndex) {
        self.write(Layout::entry_streams_out_at(index), &Entry::PEER_SHUT.to_ne_bytes());
    }

    /// The stream of messages of which the program says nothing, to one association or the only one.
    pub(crate) fn set_default_stream(&self, place: Option<EntryIndex>, stream: u16) {
        let at = place
            .map_or(Layout::DEFAULT_STREAM_AT, |EntryIndex(index)| Layout::entry_default_stream_at(index));
        self.write(at, &u32::from(stream).to_ne_bytes());
    }

    /// Bytes that an association has taken of what was sent, all in all, modulo 2^32.
    pub(crate) fn set_passed_on(&self, EntryIndex(index): EntryIndex, bytes: u32) {
        self.write(Layout::entry_passed_on_at(index), &bytes.to_ne_bytes());
    }

    /// The association of an entry is gone.
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

    /// How many messages were read, as the sharers say.
    pub(crate) fn data_taken(&self) -> u32 {
        self.read(Layout::DATA_TAKEN_AT)
    }

    /// How many records with a memfd were read, as the sharers say.
    pub(crate) fn long_taken(&self) -> u32 {
        self.read(Layout::LONG_TAKEN_AT)
    }

    /// Whether one of the sharers reads at this moment.
    pub(crate) fn is_being_read(&self) -> bool {
        self.read(Layout::LOCK_AT) != 0
    }

    /// How many associations something may come of.
    pub(crate) fn set_associations(&self, count: usize) {
        self.write(Layout::ASSOCIATIONS_AT, &(count as u32).to_ne_bytes());
    }

    pub(crate) fn clear_error(&self) {
        self.write(Layout::ERROR_AT, &0_i32.to_ne_bytes());
    }

    /// No message may be longer: it is not to be cut. 0: any may be that there is memory for.
    pub(crate) fn set_fragmentation_limit(&self, bytes: u32) {
        let limits = [bytes, self.room_bytes];
        let least = limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(0);
        self.write(Layout::FRAGMENTATION_LIMIT_AT, &least.to_ne_bytes());
    }

    pub(crate) fn set_subscriptions(&self, wants: Subscriptions) {
        self.write(Layout::SUBSCRIPTIONS_AT, &wants.0.to_ne_bytes());
    }

    pub(crate) fn set_local(&self, local: &SocketAddr) {
        self.write(Layout::LOCAL_AT, &Layout::encode_peer(local));
    }

    /// Returns whether the program has been told the end of what it reads.
    pub(crate) fn is_end_told(&self) -> bool {
        self.read(Layout::PEER_SHUT_AT) == PeerShut::Both as u32
    }

    /// Says how far the peer has shut the association down.
    pub(crate) fn set_peer_shut(&self, peer_shut: PeerShut) {
        self.write(Layout::PEER_SHUT_AT, &(peer_shut as u32).to_ne_bytes());
    }

    pub(crate) fn set_longest(&self, bytes: u32) {
        self.write(Layout::LONGEST_AT, &bytes.to_ne_bytes());
    }

    /// Whether a record may hold several messages.
    pub(crate) fn set_bundles(&self, bundles: bool) {
        self.write(Layout::BUNDLES_AT, &u32::from(bundles).to_ne_bytes());
    }

    /// Says whether the carrier holds plain content.
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
        // One that has shut both directions down keeps the least that there is.
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
        // So does one that writes no more and has been told the end.
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
        assert_eq!(account.charged_bytes(), FIELDS_BYTES);
        let many = page(Style::OneToMany, &account).expect("room");
        assert_eq!(page(Style::OneToMany, &account).err(), Some(Errno::NOBUFS));
        let left = many.left();
        drop((few, many));
        assert_eq!(account.charged_bytes(), PAGE_BYTES, "a program may have it");
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
        assert_eq!(rustix::io::pwrite(&sharer, &[1], FIELDS_BYTES as u64), Err(Errno::PERM));
        assert_eq!(ftruncate(&sharer, PAGE_BYTES as u64), Err(Errno::PERM));
    }
}
