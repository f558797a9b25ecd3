//! The page that all sharers of a descriptor map: the state that they must agree on, also after `fork` and `exec`.
//!
//! The daemon and the sharers map it. The daemon writes its fields one at a time and trusts nothing in it.
//!
//! Each sharer may write anything anywhere in the page. That harms only the sharers of this socket:
//!
//! | a hostile value of | does |
//! |---|---|
//! | `lock` | keeps a reader as long as its time limit says; the daemon looks 100 times in 100 ms whether a reader is done |
//! | `long_taken` | long messages are emptied before they are read, or after the socket is closed |
//! | `data_taken` | lets the peer send into a small receive buffer sooner or later; a close becomes an abort, or the other way round |
//! | `consumed`, `bundle_*`, the front header | a reader gets other bytes of its own carrier, an empty message or `EPROTO` |
//! | `plain` | a reader changes the form of what lies in its own carrier |
//! | `write_lock` | keeps a sender as long as its time limit says |
//! | `send_buffer` | the descriptor polls writable sooner or later |
//! | `sent`, `passed_on` of an entry | a blocking send asks the daemon for room every few milliseconds; the daemon counts for itself |
//! | an entry's association or peer | a message goes to another association of this socket |
//! | states, errors, limits | a call fails, or goes to the daemon, which decides |

use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use crate::address;
use crate::bytes::{Reader, Writer};
use crate::record::{HEADER_BYTES, Header};

/// Size of the memfd of a one-to-many socket. The system provides memory only for the part that is written.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Size of the memfd of any other socket, which has no entries: one page of the system, which holds all fields.
pub const FIELDS_BYTES: usize = 4096;
/// Number of associations of a one-to-many socket that have an [`Entry`]. A shim asks the daemon about others.
pub const ENTRIES: usize = 1024;
/// Size of a peer's address.
const PEER_BYTES: usize = 24;

/// The layout. A fresh page is zero, which is [`State::Idle`] with no error.
#[derive(Debug)]
#[repr(C)]
pub struct SharedPage {
    /// [`crate::VERSION`]. The daemon writes this field and those up to `style` once.
    pub version: AtomicU32,
    /// `AF_INET` or `AF_INET6`.
    pub family: AtomicU32,
    /// `SOCK_STREAM`: one-to-one. `SOCK_SEQPACKET`: one-to-many, or peeled off from it.
    pub style: AtomicU32,
    /// A [`State`]. Written by the daemon.
    pub state: AtomicU32,
    /// The pending error, an errno. Set by the daemon; a sharer that takes it sets it to zero.
    pub error: AtomicI32,
    /// Information that comes with received messages ([`Subscriptions`]). Written by the daemon.
    pub subscriptions: AtomicU32,
    /// Upper bound for the length of a message on the carrier, up to the first [`Kind::SizeHint`](crate::record::Kind::SizeHint)
    /// there. Written by the daemon, before it sends that record.
    pub longest: AtomicU32,
    /// Not zero: a record behind the next [`Kind::SizeHint`](crate::record::Kind::SizeHint) may hold several messages. Written by
    /// the daemon; set to zero when all that it has put into the carrier was read.
    pub bundles: AtomicU32,
    /// Longest message that can be sent unfragmented, if the socket disables fragmentation; 0 for no limit. Written by the
    /// daemon.
    pub fragmentation_limit: AtomicU32,
    /// Outbound streams, once the association is up. Written by the daemon, like the next.
    pub streams_out: AtomicU32,
    /// Default stream of a one-to-one socket. Written by the daemon.
    pub default_stream: AtomicU32,
    /// Not zero: the carrier of a one-to-one socket holds plain content for the program, without headers
    /// ([`Request::SetForm`](crate::request::Request::SetForm)). Written by the daemon, while a sharer that asks for it holds
    /// `lock`.
    pub plain: AtomicU32,
    /// The peer; read it with [`SharedPage::peer`].
    peer: [AtomicU32; PEER_BYTES / 4],
    /// The local address, once the association has ended; read it with [`SharedPage::local`].
    local: [AtomicU32; PEER_BYTES / 4],

    /// The read lock. The thread identifier of the holder, in a futex that the kernel marks when the holder dies. Written by the
    /// sharers, like all fields below.
    pub lock: AtomicU32,
    /// Number of bytes that were read of the message at the front of the carrier, which is still there.
    pub consumed: AtomicU32,
    /// Length of the bundle at the front of the carrier; 0 if there is none with messages already read.
    pub bundle_bytes: AtomicU32,
    /// Offset of the next message's header in the bundle.
    pub bundle_at: AtomicU32,
    /// Number of bundles removed, modulo 2^32: a reader with a copy of a bundle compares it to learn whether the bundle is still
    /// at the front.
    pub bundles_taken: AtomicU32,
    /// Not zero: a sharer has shut down reading.
    pub shut_reading: AtomicU32,
    /// Not zero: a sharer has shut down writing.
    pub shut_writing: AtomicU32,
    /// The header at the beginning of the record that a reader has begun.
    header: [AtomicU32; HEADER_BYTES / 4],
    /// Number of messages that were read to their end, modulo 2^32, without notifications. The daemon uses it to tell whether
    /// anything was unread when the program ended, and how much. Of the sharers' fields the daemon reads this one, `lock`, and
    /// few others.
    pub data_taken: AtomicU32,
    /// Number of records with a memfd that were read to their end, modulo 2^32, notifications included. The daemon empties these
    /// memfds.
    pub long_taken: AtomicU32,

    /// Number of associations of a one-to-many socket from which data may come. Written by the daemon.
    pub associations: AtomicU32,
    /// Number of entries that may be in use. Written by the daemon.
    pub entries_used: AtomicU32,
    /// A [`PeerShut`]: how far the peer has shut down the one association of a socket that is not one-to-many. Written by the
    /// daemon.
    pub peer_shut: AtomicU32,
    /// The write lock, of the same kind as `lock`: its holder puts a message into the ring. Written by the sharers, like the next.
    pub write_lock: AtomicU32,
    /// Size of the carrier's send buffer to restore, halved; 0 while the buffer has that size.
    pub send_buffer: AtomicU32,
    entries: [Entry; ENTRIES],
}

/// An association of a one-to-many socket: tells a sharer whether it takes a message, without a request.
///
/// The sharers count the bytes that they send, the daemon those that it has passed on: the difference waits, and there is room
/// while it is less than [`ROOM_BYTES`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// 0 for a free entry. Written by the daemon.
    pub association: AtomicU32,
    /// Outbound streams; 0 while the number is unknown, [`Entry::PEER_SHUT`] once the peer has shut the association down. Written
    /// by the daemon.
    pub streams_out: AtomicU32,
    peer: [AtomicU32; PEER_BYTES / 4],
    /// Bytes passed on, modulo 2^32. Written by the daemon.
    pub passed_on: AtomicU32,
    /// Default stream. Written by the daemon.
    pub default_stream: AtomicU32,
    /// Bytes sent, modulo 2^32, and in the upper half the association that they were sent to: the entry may pass to another
    /// association while a sharer sends. Written by the sharers; set by the daemon for a new association.
    pub sent: AtomicU64,
}

/// Number of bytes for an association of a one-to-many socket that may wait in the daemon.
pub const ROOM_BYTES: u32 = 256 * 1024;

impl Entry {
    /// Value of `streams_out` in place of a number: the peer has shut the association down and takes no more messages.
    pub const PEER_SHUT: u32 = u32::MAX;

    /// Encodes the entry of a new association.
    pub fn encode(association: u32, streams_out: u16, peer: &SocketAddr) -> [u8; size_of::<Entry>()] {
        let mut out = [0; size_of::<Entry>()];
        let mut w = Writer::new(&mut out);
        w.bytes(&association.to_ne_bytes()).bytes(&u32::from(streams_out).to_ne_bytes());
        address::write(&mut w, peer);
        let sent = sent_to(association, 0).to_ne_bytes();
        out[offset_of!(Entry, sent)..][..sent.len()].copy_from_slice(&sent);
        out
    }

    /// Returns the peer's address, or one of its addresses.
    pub fn peer(&self) -> Option<SocketAddr> {
        read_peer(&self.peer)
    }

    /// Counts a message to an association as sent if there is room, and the entry still belongs to the association.
    pub fn reserve(&self, association: u32, bytes: u32) -> bool {
        let claim = |sent: u32| {
            let waiting = sent.wrapping_sub(self.passed_on.load(Acquire));
            (waiting < ROOM_BYTES).then(|| sent.wrapping_add(bytes))
        };
        self.count(association, claim)
    }

    /// Undoes the reservation for a message that was not sent.
    pub fn unreserve(&self, association: u32, bytes: u32) {
        // If the association has left the entry, there is nothing to undo.
        self.count(association, |sent| Some(sent.wrapping_sub(bytes)));
    }

    /// Changes the number of bytes sent to an association. Returns whether the entry belongs to it and `new` returned a number.
    fn count(&self, association: u32, new: impl Fn(u32) -> Option<u32>) -> bool {
        let change = |sent: u64| {
            let is_its_own = sent >> 32 == u64::from(association);
            is_its_own.then(|| new(sent as u32)).flatten().map(|bytes| sent_to(association, bytes))
        };
        self.sent.fetch_update(AcqRel, Acquire, change).is_ok()
    }
}

/// Returns a value of [`Entry::sent`].
fn sent_to(association: u32, bytes: u32) -> u64 {
    u64::from(association) << 32 | u64::from(bytes)
}

impl Default for SharedPage {
    /// Returns a page of zeros.
    fn default() -> SharedPage {
        SharedPage {
            version: AtomicU32::default(),
            family: AtomicU32::default(),
            style: AtomicU32::default(),
            state: AtomicU32::default(),
            error: AtomicI32::default(),
            subscriptions: AtomicU32::default(),
            longest: AtomicU32::default(),
            bundles: AtomicU32::default(),
            fragmentation_limit: AtomicU32::default(),
            streams_out: AtomicU32::default(),
            default_stream: AtomicU32::default(),
            plain: AtomicU32::default(),
            peer: Default::default(),
            local: Default::default(),
            lock: AtomicU32::default(),
            consumed: AtomicU32::default(),
            bundle_bytes: AtomicU32::default(),
            bundle_at: AtomicU32::default(),
            bundles_taken: AtomicU32::default(),
            shut_reading: AtomicU32::default(),
            shut_writing: AtomicU32::default(),
            header: Default::default(),
            data_taken: AtomicU32::default(),
            long_taken: AtomicU32::default(),
            associations: AtomicU32::default(),
            entries_used: AtomicU32::default(),
            peer_shut: AtomicU32::default(),
            write_lock: AtomicU32::default(),
            send_buffer: AtomicU32::default(),
            entries: std::array::from_fn(|_| Entry::default()),
        }
    }
}

fn read_peer(words: &[AtomicU32; PEER_BYTES / 4]) -> Option<SocketAddr> {
    let words = words.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
    address::read(&mut Reader(words.as_flattened()))
}

impl SharedPage {
    /// Offset at which the daemon writes `version`, `family` and `style`.
    pub const IDENTITY_AT: u64 = offset_of!(SharedPage, version) as u64;
    /// Offset of the state.
    pub const STATE_AT: u64 = offset_of!(SharedPage, state) as u64;
    /// Offset of the pending error.
    pub const ERROR_AT: u64 = offset_of!(SharedPage, error) as u64;
    /// Offset of the subscriptions.
    pub const SUBSCRIPTIONS_AT: u64 = offset_of!(SharedPage, subscriptions) as u64;
    /// Offset of the bound for the length of messages.
    pub const LONGEST_AT: u64 = offset_of!(SharedPage, longest) as u64;
    /// Offset of the flag for bundles.
    pub const BUNDLES_AT: u64 = offset_of!(SharedPage, bundles) as u64;
    /// Offset of the fragmentation limit.
    pub const FRAGMENTATION_LIMIT_AT: u64 = offset_of!(SharedPage, fragmentation_limit) as u64;
    /// Offset of the number of outbound streams.
    pub const STREAMS_OUT_AT: u64 = offset_of!(SharedPage, streams_out) as u64;
    /// Offset of the flag for plain content.
    pub const PLAIN_AT: u64 = offset_of!(SharedPage, plain) as u64;
    /// Offset of the peer's address.
    pub const PEER_AT: u64 = offset_of!(SharedPage, peer) as u64;

    /// Offset of the read lock.
    pub const LOCK_AT: u64 = offset_of!(SharedPage, lock) as u64;
    /// Offset of the two numbers that say whether sharers have shut down the directions.
    pub const SHUT_AT: u64 = offset_of!(SharedPage, shut_reading) as u64;
    /// Offset of the number of messages read.
    pub const DATA_TAKEN_AT: u64 = offset_of!(SharedPage, data_taken) as u64;
    /// Offset of the number of records with a memfd that were read.
    pub const LONG_TAKEN_AT: u64 = offset_of!(SharedPage, long_taken) as u64;
    /// Offset of the default stream.
    pub const DEFAULT_STREAM_AT: u64 = offset_of!(SharedPage, default_stream) as u64;
    /// Offset of the peer's shutdown.
    pub const PEER_SHUT_AT: u64 = offset_of!(SharedPage, peer_shut) as u64;
    /// Offset of the local address.
    pub const LOCAL_AT: u64 = offset_of!(SharedPage, local) as u64;

    /// Encodes the address of a peer, or the local address, for the page.
    pub fn encode_peer(peer: &SocketAddr) -> [u8; PEER_BYTES] {
        let mut out = [0; PEER_BYTES];
        address::write(&mut Writer::new(&mut out), peer);
        out
    }

    /// Offset of the number of associations.
    pub const ASSOCIATIONS_AT: u64 = offset_of!(SharedPage, associations) as u64;
    /// Offset of the number of entries that may be in use.
    pub const ENTRIES_USED_AT: u64 = offset_of!(SharedPage, entries_used) as u64;

    /// Returns the offset of an entry.
    pub const fn entry_at(index: usize) -> u64 {
        (offset_of!(SharedPage, entries) + index * size_of::<Entry>()) as u64
    }

    /// Returns the offset of the outbound streams of an entry's association.
    pub const fn entry_streams_out_at(index: usize) -> u64 {
        SharedPage::entry_at(index) + offset_of!(Entry, streams_out) as u64
    }

    /// Returns the offset of the bytes passed on.
    pub const fn entry_passed_on_at(index: usize) -> u64 {
        SharedPage::entry_at(index) + offset_of!(Entry, passed_on) as u64
    }

    /// Returns the offset of the default stream of an entry's association.
    pub const fn entry_default_stream_at(index: usize) -> u64 {
        SharedPage::entry_at(index) + offset_of!(Entry, default_stream) as u64
    }

    /// Returns the entries that may be in use.
    pub fn entries(&self) -> &[Entry] {
        let used = self.entries_used.load(Acquire) as usize;
        &self.entries[..used.min(ENTRIES)]
    }

    /// Returns the peer, if there is one.
    pub fn peer(&self) -> Option<SocketAddr> {
        read_peer(&self.peer)
    }

    /// Returns the local address of a socket whose association has ended. Once both sides have shut the carrier down, the daemon
    /// cannot tell the socket from that of a program that has ended, and forgets it.
    pub fn local(&self) -> Option<SocketAddr> {
        read_peer(&self.local)
    }

    /// Returns the state; an undefined number counts as `Idle`.
    pub fn state(&self) -> State {
        State::from_u32(self.state.load(Acquire)).unwrap_or(State::Idle)
    }

    /// Takes the pending error: an errno, or zero.
    pub fn take_error(&self) -> i32 {
        self.error.swap(0, AcqRel)
    }

    /// Returns the header at the beginning of the record that a reader has begun and that is still there.
    pub fn front(&self) -> Option<Header> {
        let words = self.header.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
        Header::parse(words.as_flattened())
    }

    /// Notes the header of a record that is being read and stays in the carrier.
    pub fn set_front(&self, header: &Header) {
        let bytes = header.encode();
        for (word, bytes) in self.header.iter().zip(bytes.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Relaxed);
        }
    }
}

/// How far the peer of a socket with one association has shut it down. The association ends only when the peer has received
/// everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PeerShut {
    /// Not at all.
    No = 0,
    /// The peer takes no more messages (RFC 9260 §9.2).
    Writing = 1,
    /// In addition, all that the peer has sent is in the carrier.
    Both = 2,
}

/// State of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Neither connected nor listening.
    Idle = 0,
    /// Its carrier holds accepted associations.
    Listening = 1,
    /// Its carrier is filled until the association is up.
    Connecting = 2,
    /// Its carrier holds messages.
    Connected = 3,
    /// The peer has shut the association down, and it has ended: the end follows the content of the carrier.
    Ended = 4,
    /// One-to-many, and not listening: its carrier holds messages of any number of associations.
    OneToMany = 5,
    /// One-to-many, and peers may set up associations.
    OneToManyListening = 6,
    /// The association was lost, or this side has shut it down: the pending error follows the content of the carrier, and then
    /// `ENOTCONN`.
    Lost = 7,
}

impl State {
    /// Returns whether there was an association, and it has ended.
    pub fn is_end(self) -> bool {
        matches!(self, State::Ended | State::Lost)
    }

    /// Returns `None` if there is no such state.
    pub fn from_u32(number: u32) -> Option<State> {
        use State::{Connected, Connecting, Ended, Idle, Listening, Lost, OneToMany, OneToManyListening};
        [Idle, Listening, Connecting, Connected, Ended, OneToMany, OneToManyListening, Lost]
            .into_iter()
            .find(|state| *state as u32 == number)
    }
}

/// The information that a program wants with each message, and its form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions(pub u32);

impl Subscriptions {
    /// `SCTP_SNDRCV`, subscribed to by `sctp_data_io_event`.
    pub const SNDRCV: Subscriptions = Subscriptions(1);
    /// `SCTP_RCVINFO`, subscribed to by `SCTP_RECVRCVINFO`.
    pub const RCVINFO: Subscriptions = Subscriptions(1 << 1);
    /// `SCTP_NXTINFO`, subscribed to by `SCTP_RECVNXTINFO`.
    pub const NXTINFO: Subscriptions = Subscriptions(1 << 2);
    /// IPv4 addresses in their own form on an IPv6 socket, without `SCTP_I_WANT_MAPPED_V4_ADDR`. In the page and in records they
    /// are always mapped.
    pub const OWN_V4: Subscriptions = Subscriptions(1 << 3);

    /// Returns whether all of `other` are in this set.
    pub fn contains(self, other: Subscriptions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this set with `other`, or without it.
    #[must_use]
    pub fn set(self, other: Subscriptions, on: bool) -> Subscriptions {
        match on {
            true => Subscriptions(self.0 | other.0),
            false => Subscriptions(self.0 & !other.0),
        }
    }
}

const _: () = assert!(SharedPage::SHUT_AT + 4 == offset_of!(SharedPage, shut_writing) as u64);
const _: () = assert!(SharedPage::ENTRIES_USED_AT < FIELDS_BYTES as u64);
const _: () = assert!(size_of::<SharedPage>() <= PAGE_BYTES && address::BYTES_MAX <= PEER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    /// Stores words as the daemon does.
    fn write(place: &[AtomicU32], bytes: &[u8]) {
        for (word, bytes) in place.iter().zip(bytes.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Relaxed);
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// Shim and daemon of different versions refuse each other by the first field, so the layout belongs to a version.
    #[test]
    fn the_layout_is_that_of_this_version() {
        assert_eq!(
            (
                SharedPage::IDENTITY_AT,
                SharedPage::STATE_AT,
                SharedPage::ERROR_AT,
                SharedPage::SUBSCRIPTIONS_AT
            ),
            (0, 12, 16, 20)
        );
        assert_eq!(
            (SharedPage::PLAIN_AT, SharedPage::PEER_AT, SharedPage::LOCAL_AT, size_of::<Entry>()),
            (44, 48, 72, 48)
        );
        let entry = SharedPage::entry_at(0);
        assert_eq!(
            entry,
            SharedPage::ENTRIES_USED_AT + 16,
            "entries are aligned as their numbers of 64 bits"
        );
        assert_eq!(SharedPage::entry_at(3), entry + 3 * 48);
        assert_eq!(SharedPage::entry_streams_out_at(3), SharedPage::entry_at(3) + 4);
        assert_eq!(SharedPage::entry_passed_on_at(3), SharedPage::entry_at(3) + 32);
        assert_eq!(SharedPage::entry_default_stream_at(3), SharedPage::entry_at(3) + 36);
        assert_eq!(offset_of!(Entry, sent), 40);
    }

    #[test]
    fn addresses_are_read_as_they_were_written() {
        let page = SharedPage::default();
        assert_eq!((page.peer(), page.local()), (None, None));
        for text in ["192.0.2.1:7", "[2001:db8::1]:7", "[fe80::1%3]:7"] {
            write(&page.peer, &SharedPage::encode_peer(&address(text)));
            assert_eq!((page.peer(), page.local()), (Some(address(text)), None));
        }
        write(&page.local, &SharedPage::encode_peer(&address("192.0.2.2:8")));
        assert_eq!(page.local(), Some(address("192.0.2.2:8")));
        page.peer[0].store(u32::MAX, Relaxed);
        assert_eq!(page.peer(), None, "there is no such family");
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let bytes = Entry::encode(7, 3, &address("192.0.2.1:7"));
        let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        assert_eq!(words[..2], [7, 3]);
        let entry = Entry::default();
        assert_eq!(entry.peer(), None);
        write(&entry.peer, &bytes[offset_of!(Entry, peer)..offset_of!(Entry, passed_on)]);
        assert_eq!(entry.peer(), Some(address("192.0.2.1:7")));
    }

    /// A sharer may write any number there.
    #[test]
    fn no_more_entries_are_in_use_than_there_are() {
        let page = SharedPage::default();
        for (used, expected) in [(0, 0), (2, 2), (ENTRIES as u32 + 1, ENTRIES), (u32::MAX, ENTRIES)] {
            page.entries_used.store(used, Relaxed);
            assert_eq!(page.entries().len(), expected);
        }
    }

    #[test]
    fn room_is_reserved_up_to_the_limit_and_given_back() {
        assert_eq!(ROOM_BYTES, 262_144);
        // The counters wrap.
        for before in [0, u32::MAX - 10] {
            let entry = Entry::default();
            entry.sent.store(sent_to(7, before), Relaxed);
            entry.passed_on.store(before, Relaxed);
            assert!(entry.reserve(7, ROOM_BYTES - 1) && entry.reserve(7, 1), "one byte was left");
            assert!(!entry.reserve(7, 1), "nothing is left");
            entry.unreserve(7, 1);
            assert!(entry.reserve(7, 1));
            entry.passed_on.store(before.wrapping_add(ROOM_BYTES), Relaxed);
            assert!(entry.reserve(7, ROOM_BYTES));
            assert_eq!(entry.sent.load(Relaxed), sent_to(7, before.wrapping_add(2 * ROOM_BYTES)));
        }
    }

    /// A sharer may have found the entry, or even reserved room, before the entry passed to another association.
    #[test]
    fn what_is_sent_to_one_association_takes_no_room_of_the_next_in_its_entry() {
        let entry = Entry::default();
        let enter = |association| {
            let bytes = Entry::encode(association, 3, &address("192.0.2.1:7"));
            let at = offset_of!(Entry, sent);
            let sent = u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            entry.sent.store(sent, Relaxed);
        };
        enter(7);
        assert!(entry.reserve(7, 100));
        enter(8);
        assert!(!entry.reserve(7, 100));
        entry.unreserve(7, 100);
        assert_eq!(entry.sent.load(Relaxed), sent_to(8, 0));
        assert!(entry.reserve(8, 100));
    }

    #[test]
    fn an_error_is_taken_once() {
        let page = SharedPage::default();
        page.error.store(104, Relaxed);
        assert_eq!((page.take_error(), page.take_error()), (104, 0));
    }

    #[test]
    fn the_front_is_what_was_noted() {
        let page = SharedPage::default();
        assert_eq!(page.front(), None);
        let header =
            Header { stream: 3, bytes: 9, address: Some(address("192.0.2.1:7")), ..Header::new(Kind::Data) };
        page.set_front(&header);
        assert_eq!(page.front(), Some(header));
    }

    #[test]
    fn states_have_numbers_and_unknown_ones_count_as_none() {
        use State::{Connected, Connecting, Ended, Idle, Listening, Lost, OneToMany, OneToManyListening};
        let page = SharedPage::default();
        for state in [Idle, Listening, Connecting, Connected, Ended, OneToMany, OneToManyListening, Lost] {
            page.state.store(state as u32, Relaxed);
            assert_eq!((page.state(), State::from_u32(state as u32)), (state, Some(state)));
            assert_eq!(state.is_end(), [Ended, Lost].contains(&state));
        }
        page.state.store(99, Relaxed);
        assert_eq!((page.state(), State::from_u32(99)), (Idle, None));
    }

    #[test]
    fn what_is_wanted_is_set_and_unset_one_by_one() {
        let all =
            [Subscriptions::SNDRCV, Subscriptions::RCVINFO, Subscriptions::NXTINFO, Subscriptions::OWN_V4];
        let both = Subscriptions::default()
            .set(Subscriptions::RCVINFO, true)
            .set(Subscriptions::OWN_V4, true)
            .set(Subscriptions::OWN_V4, true);
        assert_eq!(all.map(|one| both.contains(one)), [false, true, false, true]);
        assert!(!Subscriptions::RCVINFO.contains(both), "one of two is not both");
        let one = both.set(Subscriptions::RCVINFO, false).set(Subscriptions::SNDRCV, false);
        assert_eq!(all.map(|wanted| one.contains(wanted)), [false, false, false, true]);
    }
}
