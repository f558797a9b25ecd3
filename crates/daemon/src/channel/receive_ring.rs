//! The receive ring: memory of a socket that the daemon writes and its programs map for reading. Messages of a bundle lie there
//! one after the other, and a record in the pair says where ([`Kind::Bundle`](channel_protocol::record::Kind::Bundle)). A long
//! message is a bundle of its own, which may begin behind others and end beyond their part of the ring.
//!
//! A bundle keeps its place until the program has taken its record out of the pair. The kernel tells how many of these records
//! are left: it counts the memory of all unread records, and each record of a bundle takes the same. So nothing that a program
//! writes decides what the daemon overwrites, and a reader that dies or stops keeps only the places of its own socket.
//!
//! The ring has memory as far as bundles have been written since it was empty, and returns all of it when it was empty for
//! [`IDLE_TIME`]. The user of the socket is charged for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use channel_protocol::record::{HEADER_BYTES, Header, Kind, RECORD_BYTES_MAX, SHARED_BYTES_MAX};
use channel_protocol::status_page::{RING_BYTES, RING_SHARED_BYTES};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use tokio::sync::Notify;

use super::shared_pages::Memory;
use crate::system::lock::lock;
use crate::users::budget::Account;
use crate::users::worker::Worker;

/// The memory grows in steps of this size.
const STEP_BYTES: usize = 64 * 1024;
/// Time without a bundle after which an empty ring returns its memory.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(2);

/// The receive ring of a socket. The thread that takes records back uses it, too.
pub(crate) struct ReceiveRing {
    memory: Arc<Memory>,
    /// The account of received data.
    account: Arc<Account>,
    state: Mutex<State>,
    /// Notified when a thread has asked the system for memory.
    grown: Notify,
}

#[derive(Default)]
struct State {
    /// Number of bytes from the beginning that have memory.
    provided: usize,
    /// The end of the last bundle.
    end: usize,
    /// Size of the bundle for which a place was looked for last.
    wanted: usize,
    /// The places of the bundles whose records may be in the pair, the oldest first.
    unread: VecDeque<Range<usize>>,
    /// Number of bundles so far, modulo 2^64.
    bundles: u64,
    /// Whether a task waits until the ring is idle.
    is_watched: bool,
    /// Whether a thread asks the system for memory.
    is_growing: bool,
    /// Whether the system has refused memory since the ring was empty.
    cannot_grow: bool,
    /// Whether a thread returns the memory to the system.
    is_returning: bool,
}

/// The outcome of looking for a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Free memory.
    Free(Range<usize>),
    /// The program must read first.
    Full,
    /// A thread asks the system for more memory.
    Growing,
    /// The ring has no memory: a thread returns it or asks for it, the system has refused it, or the user of the socket has
    /// none left.
    NoMemory,
}

/// Returns the memory that the kernel counts for the record of a bundle. If it does not say, the ring is reused only once all
/// records were read.
fn record_cost_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    let measure = || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, _other) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).ok()?;
        rustix::net::send(&one, &Header::new(Kind::Bundle).encode(), SendFlags::DONTWAIT).ok()?;
        links::unreceived_bytes(one.as_fd()).ok().filter(|bytes| *bytes >= HEADER_BYTES)
    };
    *BYTES.get_or_init(|| measure().unwrap_or(1))
}

impl ReceiveRing {
    /// Returns the ring in the memory of a socket, which is charged to this account.
    pub(crate) fn new(memory: Arc<Memory>, account: Arc<Account>) -> ReceiveRing {
        ReceiveRing { memory, account, state: Mutex::default(), grown: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns a free place for a bundle of at least so many bytes. The kernel counts `unread_bytes` of memory for the unread
    /// records in the pair. A thread that may wait for programs asks the system for more memory.
    pub(super) fn place(self: &Arc<Self>, bytes: usize, unread_bytes: usize, worker: &Worker) -> Place {
        let mut state = self.state();
        if state.is_returning {
            return Place::NoMemory;
        }
        state.forget_read(unread_bytes);
        state.wanted = bytes;
        let Some(free) = state.free(bytes) else { return Place::Full };
        let needed = needed_bytes(&free, bytes);
        if needed > state.provided {
            self.begin_to_grow(&mut state, needed, worker);
        }
        match state.place(&free, bytes) {
            Place::NoMemory if state.is_growing && state.provided > 0 => Place::Growing,
            place => place,
        }
    }

    /// Returns a free place as [`ReceiveRing::place`] does, for a bundle that was in a ring before, on a thread that may wait for
    /// programs.
    pub(super) fn place_again(&self, bytes: usize, unread_bytes: usize) -> Place {
        let mut state = self.state();
        state.forget_read(unread_bytes);
        if state.is_returning {
            return Place::NoMemory;
        }
        let Some(free) = state.free(bytes) else { return Place::Full };
        let range = state.provided..needed_bytes(&free, bytes);
        if free.start + bytes > state.provided {
            drop(state);
            // Another thread may ask for the same memory, which makes no difference.
            let charge = self.account.charge_anyway(range.len());
            let has_grown = self.memory.grow_ring(range.clone(), charge);
            state = self.state();
            if has_grown {
                state.provided = state.provided.max(range.end);
            }
        }
        state.place(&free, bytes)
    }

    fn begin_to_grow(self: &Arc<Self>, state: &mut State, bytes: usize, worker: &Worker) {
        let range = state.provided..bytes;
        if state.is_growing || state.cannot_grow {
            return;
        }
        let Some(charge) = self.account.take_spare(range.len()) else { return };
        state.is_growing = true;
        let ring = Arc::clone(self);
        worker.run(move || {
            let has_grown = ring.memory.grow_ring(range, charge);
            ring.state().on_grown(has_grown, bytes);
            ring.grown.notify_one();
        });
    }

    /// Writes a part of a bundle to a free place.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.write_ring(at, bytes);
    }

    /// Notes that the record of a bundle at this place is in the pair.
    pub(super) fn on_put(&self, place: Range<usize>) {
        let mut state = self.state();
        state.end = place.end;
        state.bundles = state.bundles.wrapping_add(1);
        state.unread.push_back(place);
    }

    /// Waits until a thread has asked the system for memory.
    pub(super) async fn grown(&self) {
        self.grown.notified().await;
    }

    /// Returns whether the bundle that found no place has one, and no thread asks the system for memory. Unless the bundle is a
    /// long message, half of the ring is free, too.
    pub(super) fn has_room(&self, unread_bytes: usize) -> bool {
        let mut state = self.state();
        state.forget_read(unread_bytes);
        let unread: usize = state.unread.iter().map(Range::len).sum();
        let is_due = unread <= RING_SHARED_BYTES / 2 || is_long(state.wanted);
        !state.is_growing && is_due && state.free(state.wanted).is_some()
    }

    /// Takes a bundle out of the ring, because its record was taken back from the pair. Returns its content; `None` if the
    /// record is not of a bundle.
    pub(super) fn take_back(&self, record: &[u8]) -> Option<Vec<u8>> {
        let (place, content) = self.content(record)?;
        let mut state = self.state();
        // Those in front were read.
        if let Some(at) = state.unread.iter().position(|unread| *unread == place) {
            state.unread.drain(..=at);
        }
        Some(content)
    }

    /// Returns the place and the content of the bundle with this record; `None` if it is another record.
    pub(super) fn content(&self, record: &[u8]) -> Option<(Range<usize>, Vec<u8>)> {
        let place = Header::parse(record)?.bundle()?.range()?;
        let mut content = vec![0; place.len()];
        self.memory.read_ring(place.start, &mut content).ok()?;
        Some((place, content))
    }

    /// Returns the number of bundles so far if the ring has memory and no task waits until it is idle. The caller is this task
    /// from now on.
    pub(super) fn begin_watch(&self) -> Option<u64> {
        let mut state = self.state();
        let begins = state.provided > 0 && !std::mem::replace(&mut state.is_watched, true);
        begins.then_some(state.bundles)
    }

    /// Returns whether the ring is empty and has had no bundle since there were `bundles`, so that its memory can be returned;
    /// otherwise updates the number. The caller then calls [`ReceiveRing::return_memory`] on a thread that may wait for programs.
    pub(super) fn begin_return(&self, bundles: &mut u64, unread_bytes: usize) -> bool {
        let mut state = self.state();
        state.forget_read(unread_bytes);
        let before = std::mem::replace(bundles, state.bundles);
        state.is_returning = before == *bundles && state.unread.is_empty() && !state.is_growing;
        state.is_returning
    }

    /// Returns the memory to the system. Waits for programs.
    pub(super) fn return_memory(&self) {
        self.memory.empty_ring();
        let bundles = self.state().bundles;
        *self.state() = State { bundles, ..State::default() };
    }
}

/// Returns how much of the ring needs memory for a bundle of at least so many bytes at the beginning of a free range.
fn needed_bytes(free: &Range<usize>, bytes: usize) -> usize {
    let wanted = bytes.max(STEP_BYTES / 2).min(free.len());
    (free.start + wanted).next_multiple_of(STEP_BYTES).min(RING_BYTES)
}

/// Returns whether a bundle of at least so many bytes is a long message, or was in a ring before.
pub(super) fn is_long(bytes: usize) -> bool {
    bytes > RECORD_BYTES_MAX
}

impl State {
    /// Returns the part of a free range that has memory, if it has at least so many bytes.
    fn place(&self, free: &Range<usize>, bytes: usize) -> Place {
        let most = if is_long(bytes) { bytes } else { SHARED_BYTES_MAX };
        let end = free.end.min(self.provided).min(free.start + most);
        if free.start + bytes <= end { Place::Free(free.start..end) } else { Place::NoMemory }
    }

    fn on_grown(&mut self, has_grown: bool, bytes: usize) {
        self.is_growing = false;
        self.cannot_grow = !has_grown;
        if has_grown {
            self.provided = self.provided.max(bytes);
        }
    }

    /// Forgets the bundles whose records were read. Records of other kinds count as records of bundles.
    fn forget_read(&mut self, unread_bytes: usize) {
        let unread = unread_bytes.div_ceil(record_cost_bytes());
        let read = self.unread.len().saturating_sub(unread);
        self.unread.drain(..read);
        // An empty ring begins again.
        self.cannot_grow &= !self.unread.is_empty();
    }

    /// Returns the free memory from the end of the last bundle on, or from the beginning, if it has at least so many bytes. A
    /// ring that is empty begins again: what it uses is in the caches.
    fn free(&self, bytes: usize) -> Option<Range<usize>> {
        let end = if is_long(bytes) { RING_BYTES } else { RING_SHARED_BYTES };
        let (first, second) = match self.unread.front() {
            None => (0..end, 0..0),
            Some(oldest) if oldest.start < self.end => (self.end.min(end)..end, 0..oldest.start),
            Some(oldest) => (self.end..oldest.start, 0..0),
        };
        [first, second].into_iter().find(|free| free.len() >= bytes)
    }
}

/// Maximum size of a message, with its header, that is written to the ring with others.
const SHORT_BYTES_MAX: usize = 2048;
/// Number of bytes of short messages from which they are written to the ring.
const SHORT_BYTES_TOGETHER: usize = 14 * 1024;

/// A bundle that is being written to the ring.
pub(crate) struct BundleWriter<'a> {
    ring: &'a ReceiveRing,
    begin: usize,
    /// The end of the messages.
    at: usize,
    /// Short messages in front of the end that are not in the ring yet.
    short: Vec<u8>,
    limit: usize,
    messages: u32,
    longest: u32,
}

impl<'a> BundleWriter<'a> {
    /// Begins a bundle at a free place.
    pub(super) fn new(ring: &'a ReceiveRing, free: Range<usize>) -> BundleWriter<'a> {
        BundleWriter {
            ring,
            begin: free.start,
            at: free.start,
            short: Vec::new(),
            limit: free.end,
            messages: 0,
            longest: 0,
        }
    }

    /// Appends a message with its header. Returns false if there is no room.
    #[must_use]
    pub(crate) fn push<'b>(&mut self, header: &Header, content: impl IntoIterator<Item = &'b [u8]>) -> bool {
        if header.record_bytes() > self.limit - self.at {
            return false;
        }
        self.messages += 1;
        self.longest = self.longest.max(header.bytes);
        if header.record_bytes() <= SHORT_BYTES_MAX {
            self.push_short(header, content);
            return true;
        }
        self.flush();
        self.ring.write(self.at, &header.encode());
        let mut at = self.at + HEADER_BYTES;
        for part in content {
            self.ring.write(at, part);
            at += part.len();
        }
        self.at += header.record_bytes();
        true
    }

    fn push_short<'b>(&mut self, header: &Header, content: impl IntoIterator<Item = &'b [u8]>) {
        if self.short.is_empty() {
            self.short.reserve_exact(SHORT_BYTES_TOGETHER + SHORT_BYTES_MAX);
        }
        self.short.extend_from_slice(&header.encode());
        content.into_iter().for_each(|part| self.short.extend_from_slice(part));
        self.at += header.record_bytes();
        if self.short.len() >= SHORT_BYTES_TOGETHER {
            self.flush();
        }
    }

    /// Writes the short messages to the ring.
    fn flush(&mut self) {
        if !self.short.is_empty() {
            self.ring.write(self.at - self.short.len(), &self.short);
            self.short.clear();
        }
    }

    /// Appends messages with their headers, for which there is room.
    pub(super) fn push_raw(&mut self, messages: &[u8]) {
        assert!(messages.len() <= self.limit - self.at, "there is room");
        self.ring.write(self.at, messages);
        self.at += messages.len();
    }

    /// Returns the number of messages.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    /// Returns the length of the longest message.
    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    /// Ends the bundle; returns its place.
    pub(super) fn finish(mut self) -> Range<usize> {
        self.flush();
        self.begin..self.at
    }
}

#[cfg(test)]
impl ReceiveRing {
    /// Returns the ring of no socket.
    pub(super) fn alone() -> ReceiveRing {
        use channel_protocol::record::MESSAGE_BYTES_MAX;
        use channel_protocol::status_page::State;
        use shared_memory::Pins;

        use crate::channel::shared_pages::SharedPages;
        use crate::channel::style::Style;
        use crate::system::addresses::Family;
        use crate::users::budget::{Budget, ByteLimits};

        let account = Budget::new(ByteLimits { user_bytes: 4 << 20, all_bytes: 16 << 20 }).account(1);
        let pins = Arc::new(Pins::new(1));
        let pages =
            SharedPages::new(Family::V4, Style::OneToOne, State::Idle, MESSAGE_BYTES_MAX, &account, &pins);
        ReceiveRing::new(pages.expect("memory").memory(), account)
    }
}

#[cfg(test)]
mod tests {
    use channel_protocol::record::BUNDLE_BYTES_MAX;

    use super::*;
    use crate::users::closer::{Closers, Source};
    use crate::users::descriptor_budget::DescriptorBudget;

    /// Puts a bundle of so many bytes; returns its place.
    fn put(ring: &ReceiveRing, bytes: usize, unread: usize) -> Option<usize> {
        match ring.place_again(bytes, unread * record_cost_bytes()) {
            Place::Free(free) => {
                ring.on_put(free.start..free.start + bytes);
                Some(free.start)
            }
            Place::Full => None,
            place => panic!("{place:?}"),
        }
    }

    #[test]
    fn a_bundle_keeps_its_place_until_its_record_was_read() {
        let (ring, part) = (ReceiveRing::alone(), RING_SHARED_BYTES / 8);
        let put = |bytes, unread| put(&ring, bytes, unread);
        for number in 0..7 {
            assert_eq!(put(part, number), Some(number * part));
        }
        assert_eq!(put(part + 1, 7), None, "the end has no room, and the beginning is not free");
        assert_eq!(put(part, 7), Some(7 * part));
        assert_eq!(put(1, 8), None);
        // The oldest was read.
        assert_eq!(put(part + 1, 7), None);
        assert_eq!([put(part / 2, 7), put(part / 2, 8), put(1, 9)], [Some(0), Some(part / 2), None]);
        assert!(!ring.has_room(6 * record_cost_bytes()) && ring.has_room(5 * record_cost_bytes()));
        assert_eq!(put(1, 0), Some(0), "all were read: it begins again");
    }

    #[test]
    fn a_long_message_lies_behind_others_and_ends_beyond_their_part() {
        let (ring, longest) = (ReceiveRing::alone(), BUNDLE_BYTES_MAX);
        let put = |bytes, unread| put(&ring, bytes, unread);
        assert_eq!([put(100, 0), put(longest, 1)], [Some(0), Some(100)]);
        assert_eq!(put(1, 2), None, "nothing else begins beyond the part of the others");
        assert_eq!(put(50, 1), Some(0), "in front of it");
        assert_eq!(put(longest, 2), None);
        assert_eq!([put(longest, 1), put(50, 2)], [Some(50), None]);
        assert_eq!([put(longest, 0), put(1, 1)], [Some(0), None]);
        // The longest shared bundle fits behind it, but only a long message may lie there.
        assert_eq!([put(SHARED_BYTES_MAX, 1), put(RECORD_BYTES_MAX, 2)], [Some(longest), None]);
    }

    #[tokio::test(flavor = "local")]
    async fn a_long_message_waits_for_its_own_place_alone() {
        let ring = Arc::new(ReceiveRing::alone());
        let closer = Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Pairs);
        let unread = |records: usize| records * record_cost_bytes();
        let place = |bytes, records| ring.place(bytes, unread(records), closer.worker());
        for records in 0..3 {
            assert!(put(&ring, RING_BYTES / 3, records).is_some());
        }
        assert_eq!(place(BUNDLE_BYTES_MAX, 3), Place::Full);
        let has_room = [3, 2, 1, 0].map(|records| ring.has_room(unread(records)));
        assert_eq!(has_room, [false, false, true, true]);
        assert_eq!(place(BUNDLE_BYTES_MAX, 0), Place::Free(0..BUNDLE_BYTES_MAX));
    }

    #[test]
    fn records_of_other_kinds_make_bundles_keep_their_places_longer() {
        let ring = ReceiveRing::alone();
        assert_eq!([put(&ring, 100, 0), put(&ring, 100, 1)], [Some(0), Some(100)]);
        // A part of the record of another kind is left.
        assert_eq!(ring.place_again(RING_BYTES, 1), Place::Full);
        assert!(matches!(ring.place_again(100, 0), Place::Free(free) if free.start == 0));
    }

    #[test]
    fn an_idle_ring_that_is_empty_returns_its_memory() {
        let ring = ReceiveRing::alone();
        let before = ring.account.charged_bytes();
        assert_eq!(ring.begin_watch(), None, "it has no memory");
        put(&ring, 100, 0);
        assert!(ring.account.charged_bytes() > before);
        let mut bundles = ring.begin_watch().expect("it has memory");
        assert_eq!(ring.begin_watch(), None, "one task watches it");
        assert!(!ring.begin_return(&mut bundles, record_cost_bytes()), "the bundle is unread");
        put(&ring, 100, 0);
        assert!(!ring.begin_return(&mut bundles, 0), "it was in use meanwhile");
        assert!(ring.begin_return(&mut bundles, 0));
        assert_eq!(ring.place_again(100, 0), Place::NoMemory);
        ring.return_memory();
        assert_eq!(ring.account.charged_bytes(), before);
        assert_eq!(put(&ring, 100, 0), Some(0));
    }

    #[test]
    fn a_system_that_has_refused_memory_is_asked_again_once_the_ring_is_empty() {
        const MORE_BYTES: usize = STEP_BYTES + 1;
        let (ring, closers) =
            (Arc::new(ReceiveRing::alone()), Closers::new(DescriptorBudget::with_max(1 << 16)));
        let closer = closers.of(1, Source::Pairs);
        put(&ring, 100, 0);
        ring.state().on_grown(false, RING_BYTES);
        let place = |unread: usize| ring.place(MORE_BYTES, unread * record_cost_bytes(), closer.worker());
        assert_eq!((place(1), ring.state().is_growing), (Place::NoMemory, false));
        assert_eq!(ring.state().provided, STEP_BYTES, "what it has got remains");
        assert_eq!(place(0), Place::Growing, "all were read");
    }

    #[test]
    fn the_kernel_says_what_a_record_costs() {
        assert!(record_cost_bytes() > HEADER_BYTES);
    }
}
