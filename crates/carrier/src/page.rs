//! The page that all who share a descriptor map: what they must agree on, also after `fork` and `exec`.
//!
//! The daemon and the sharers map it. The daemon writes its part a field at a time: nothing here is trusted.
//!
//! Each sharer may write anything anywhere in it. That harms the sharers of this socket only:
//!
//! | a hostile value of | does |
//! |---|---|
//! | `lock` | keeps a reader as long as its time limit says; the daemon looks 100 times in 100 ms whether a reader is done |
//! | `long_taken` | long messages are emptied before they are read, or after the socket is closed |
//! | `data_taken` | lets the peer send into a small receive buffer sooner or later; a close becomes an abort, or the other way round |
//! | `consumed`, `bundle_*`, the front header | a reader gets other bytes of its own carrier, an empty message or `EPROTO` |
//! | `plain` | a reader changes the form of what lies in its own carrier |
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

/// Bytes of the memfd of a one-to-many socket. Memory is used as far as it is written.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Bytes of the memfd of another socket, which has no entries: the least that the system keeps, which holds all fields.
pub const FIELDS_BYTES: usize = 4096;
/// Associations of a one-to-many socket that have an [`Entry`]. Of others the daemon is asked.
pub const ENTRIES: usize = 1024;
/// Bytes of a peer's address.
const PEER_BYTES: usize = 24;

/// The layout. A fresh page is zero, which is [`State::Idle`] with no error.
#[derive(Debug)]
#[repr(C)]
pub struct Page {
    /// [`crate::VERSION`]. Written by the daemon once, as all up to `style`.
    pub version: AtomicU32,
    /// `AF_INET` or `AF_INET6`.
    pub family: AtomicU32,
    /// `SOCK_STREAM`: one-to-one. `SOCK_SEQPACKET`: one-to-many, or peeled off from it.
    pub style: AtomicU32,
    /// A [`State`]. Written by the daemon.
    pub state: AtomicU32,
    /// The pending error, an errno. Set by the daemon; whoever takes it puts zero there.
    pub error: AtomicI32,
    /// Information that comes with received messages ([`Wants`]). Written by the daemon.
    pub wants: AtomicU32,
    /// No message on the carrier is longer, up to the first [`Kind::Notice`](crate::record::Kind::Notice) there. Written by the
    /// daemon, before it sends that.
    pub longest: AtomicU32,
    /// Not zero: a record behind the next [`Kind::Notice`](crate::record::Kind::Notice) may hold several messages. Written by the
    /// daemon, to zero when all that it has put there was read.
    pub bundles: AtomicU32,
    /// No message may be longer, because it is not to be cut; 0 for no limit. Written by the daemon.
    pub whole_max: AtomicU32,
    /// Outbound streams, once the association is up. Written by the daemon, as the next.
    pub streams_out: AtomicU32,
    /// The stream of messages of which the program says nothing, of one-to-one. Written by the daemon.
    pub default_stream: AtomicU32,
    /// Not zero: what the carrier of a one-to-one socket holds for the program is plain content, without headers
    /// ([`Request::SetForm`](crate::request::Request::SetForm)). Written by the daemon, while a sharer that asks for it holds `lock`.
    pub plain: AtomicU32,
    /// The peer; see [`Page::peer`].
    peer: [AtomicU32; PEER_BYTES / 4],
    /// The local address, once the association has ended; see [`Page::local`].
    local: [AtomicU32; PEER_BYTES / 4],

    /// Held while one reads. The thread identifier of the holder, in a futex that the kernel marks when the holder dies. Written
    /// by the sharers, as all below.
    pub lock: AtomicU32,
    /// Bytes that were read of the message at the front of the carrier; it is still there.
    pub consumed: AtomicU32,
    /// Bytes of the bundle at the front of the carrier; 0 if there is none that somebody has read of.
    pub bundle_bytes: AtomicU32,
    /// Where in it the header of the next message is.
    pub bundle_at: AtomicU32,
    /// Bundles that were taken away, modulo 2^32: whoever keeps a copy of one knows by that whether it is still at the front.
    pub bundles_taken: AtomicU32,
    /// Not zero: one of the sharers has said that it reads no more.
    pub shut_reading: AtomicU32,
    /// Not zero: one of the sharers has said that it sends no more.
    pub shut_writing: AtomicU32,
    /// The header at the beginning of the record that somebody has read of.
    header: [AtomicU32; HEADER_BYTES / 4],
    /// Messages that were read to their end, modulo 2^32, without notifications. With `lock` all that the daemon reads of what
    /// the sharers write: whether something was unread when the program was gone, and how much is.
    pub data_taken: AtomicU32,
    /// Records with a memfd that were read to their end, modulo 2^32, notifications included. The daemon empties these memfds.
    pub long_taken: AtomicU32,

    /// Associations of a one-to-many socket of which something may come. Written by the daemon.
    pub members: AtomicU32,
    /// Entries up to this may be in use. Written by the daemon.
    pub entries_used: AtomicU32,
    /// How far the peer of a one-to-one socket has shut the association down: a [`PeerShut`]. Written by the daemon.
    pub peer_shut: AtomicU32,
    entries: [Entry; ENTRIES],
}

/// An association of a one-to-many socket: whether it takes a message, without asking.
///
/// The sharers count what they send, the daemon what it has passed on: what lies between waits, and there is room while that
/// is less than [`ROOM_BYTES`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// 0: the entry is free. Written by the daemon.
    pub association: AtomicU32,
    /// Outbound streams; 0 while that is not known. Written by the daemon.
    pub streams_out: AtomicU32,
    peer: [AtomicU32; PEER_BYTES / 4],
    /// Bytes passed on, modulo 2^32. Written by the daemon.
    pub passed_on: AtomicU32,
    /// The stream of messages of which the program says nothing. Written by the daemon.
    pub default_stream: AtomicU32,
    /// Bytes sent, modulo 2^32, and in the upper half the association that they were sent to: the entry may become another one's
    /// while a sharer sends. Written by the sharers; set by the daemon for a new association.
    pub sent: AtomicU64,
}

/// Bytes for an association of a one-to-many socket that may wait to be passed on to it.
pub const ROOM_BYTES: u32 = 256 * 1024;

impl Entry {
    /// Its bytes for a new association.
    pub fn encode(association: u32, streams_out: u16, peer: &SocketAddr) -> [u8; size_of::<Entry>()] {
        let mut out = [0; size_of::<Entry>()];
        let mut w = Writer::new(&mut out);
        w.bytes(&association.to_ne_bytes()).bytes(&u32::from(streams_out).to_ne_bytes());
        address::write(&mut w, peer);
        let sent = sent_to(association, 0).to_ne_bytes();
        out[offset_of!(Entry, sent)..][..sent.len()].copy_from_slice(&sent);
        out
    }

    /// The peer's address, or one of them.
    pub fn peer(&self) -> Option<SocketAddr> {
        read_peer(&self.peer)
    }

    /// Counts a message to an association as sent if there is room, and the entry is still its own.
    pub fn reserve(&self, association: u32, bytes: u32) -> bool {
        let claim = |sent: u32| {
            let waiting = sent.wrapping_sub(self.passed_on.load(Acquire));
            (waiting < ROOM_BYTES).then(|| sent.wrapping_add(bytes))
        };
        self.count(association, claim)
    }

    /// Takes back what was reserved for a message that was not sent.
    pub fn give_back(&self, association: u32, bytes: u32) {
        // Of an association that has left the entry nothing is counted any more.
        self.count(association, |sent| Some(sent.wrapping_sub(bytes)));
    }

    /// Changes the bytes sent to an association. Returns whether the entry is its own and there is a new number.
    fn count(&self, association: u32, new: impl Fn(u32) -> Option<u32>) -> bool {
        let change = |sent: u64| {
            let is_its_own = sent >> 32 == u64::from(association);
            is_its_own.then(|| new(sent as u32)).flatten().map(|bytes| sent_to(association, bytes))
        };
        self.sent.fetch_update(AcqRel, Acquire, change).is_ok()
    }
}

/// [`Entry::sent`].
fn sent_to(association: u32, bytes: u32) -> u64 {
    u64::from(association) << 32 | u64::from(bytes)
}

impl Default for Page {
    /// A fresh page.
    fn default() -> Page {
        Page {
            version: AtomicU32::default(),
            family: AtomicU32::default(),
            style: AtomicU32::default(),
            state: AtomicU32::default(),
            error: AtomicI32::default(),
            wants: AtomicU32::default(),
            longest: AtomicU32::default(),
            bundles: AtomicU32::default(),
            whole_max: AtomicU32::default(),
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
            members: AtomicU32::default(),
            entries_used: AtomicU32::default(),
            peer_shut: AtomicU32::default(),
            entries: std::array::from_fn(|_| Entry::default()),
        }
    }
}

fn read_peer(words: &[AtomicU32; PEER_BYTES / 4]) -> Option<SocketAddr> {
    let words = words.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
    address::read(&mut Reader(words.as_flattened()))
}

impl Page {
    /// Where the daemon writes `version`, `family` and `style`.
    pub const IDENTITY_AT: u64 = offset_of!(Page, version) as u64;
    /// Where it writes the state.
    pub const STATE_AT: u64 = offset_of!(Page, state) as u64;
    /// Where it writes the error.
    pub const ERROR_AT: u64 = offset_of!(Page, error) as u64;
    /// Where it writes what is wanted.
    pub const WANTS_AT: u64 = offset_of!(Page, wants) as u64;
    /// Where it writes how long messages may be.
    pub const LONGEST_AT: u64 = offset_of!(Page, longest) as u64;
    /// Where it writes whether there are bundles.
    pub const BUNDLES_AT: u64 = offset_of!(Page, bundles) as u64;
    /// Where it writes how long a message may be.
    pub const WHOLE_MAX_AT: u64 = offset_of!(Page, whole_max) as u64;
    /// Where it writes the number of outbound streams.
    pub const STREAMS_OUT_AT: u64 = offset_of!(Page, streams_out) as u64;
    /// Where it writes the form of what the carrier holds.
    pub const PLAIN_AT: u64 = offset_of!(Page, plain) as u64;
    /// Where it writes the peer.
    pub const PEER_AT: u64 = offset_of!(Page, peer) as u64;

    /// Where it finds whether somebody reads.
    pub const LOCK_AT: u64 = offset_of!(Page, lock) as u64;
    /// Where it finds whether both directions were shut: two numbers.
    pub const SHUT_AT: u64 = offset_of!(Page, shut_reading) as u64;
    /// Where it finds how much was read.
    pub const DATA_TAKEN_AT: u64 = offset_of!(Page, data_taken) as u64;
    /// Where the sharers write how many records with a memfd were read.
    pub const LONG_TAKEN_AT: u64 = offset_of!(Page, long_taken) as u64;
    /// Where it writes the default stream.
    pub const DEFAULT_STREAM_AT: u64 = offset_of!(Page, default_stream) as u64;
    /// Where it writes how far the peer has shut down.
    pub const PEER_SHUT_AT: u64 = offset_of!(Page, peer_shut) as u64;
    /// Where it writes the local address.
    pub const LOCAL_AT: u64 = offset_of!(Page, local) as u64;

    /// Encodes the address of a peer, or the local address, for the page.
    pub fn encode_peer(peer: &SocketAddr) -> [u8; PEER_BYTES] {
        let mut out = [0; PEER_BYTES];
        address::write(&mut Writer::new(&mut out), peer);
        out
    }

    /// Where it writes how many associations there are.
    pub const MEMBERS_AT: u64 = offset_of!(Page, members) as u64;
    /// Where it writes how many entries may be in use.
    pub const ENTRIES_USED_AT: u64 = offset_of!(Page, entries_used) as u64;

    /// Where it writes an entry.
    pub const fn entry_at(index: usize) -> u64 {
        (offset_of!(Page, entries) + index * size_of::<Entry>()) as u64
    }

    /// Where it writes the outbound streams of an entry's association.
    pub const fn entry_streams_out_at(index: usize) -> u64 {
        Page::entry_at(index) + offset_of!(Entry, streams_out) as u64
    }

    /// Where it writes the bytes passed on.
    pub const fn entry_passed_on_at(index: usize) -> u64 {
        Page::entry_at(index) + offset_of!(Entry, passed_on) as u64
    }

    /// Where it writes the default stream of an entry's association.
    pub const fn entry_default_stream_at(index: usize) -> u64 {
        Page::entry_at(index) + offset_of!(Entry, default_stream) as u64
    }

    /// The entries that may be in use.
    pub fn entries(&self) -> &[Entry] {
        let used = self.entries_used.load(Acquire) as usize;
        &self.entries[..used.min(ENTRIES)]
    }

    /// The peer, if there is one.
    pub fn peer(&self) -> Option<SocketAddr> {
        read_peer(&self.peer)
    }

    /// The local address of a socket whose association has ended. Once both sides have shut the carrier down, the daemon
    /// cannot tell that from a program that is gone, and knows the socket no more.
    pub fn local(&self) -> Option<SocketAddr> {
        read_peer(&self.local)
    }

    /// The state. What nobody has written counts as none.
    pub fn state(&self) -> State {
        State::from_u32(self.state.load(Acquire)).unwrap_or(State::Idle)
    }

    /// Takes the pending error: an errno, or zero.
    pub fn take_error(&self) -> i32 {
        self.error.swap(0, AcqRel)
    }

    /// The header at the beginning of the record that somebody has read of, and that is still there.
    pub fn front(&self) -> Option<Header> {
        let words = self.header.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
        Header::parse(words.as_flattened())
    }

    /// Notes the header of a record that is being read and stays there.
    pub fn set_front(&self, header: &Header) {
        let bytes = header.encode();
        for (word, bytes) in self.header.iter().zip(bytes.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Relaxed);
        }
    }
}

/// How far the peer of a one-to-one socket has shut the association down. The association lives on until the peer has all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PeerShut {
    /// It has not.
    No = 0,
    /// It takes no more messages (RFC 9260 §9.2).
    Writing = 1,
    /// And all that it has sent is in the carrier.
    Both = 2,
}

/// How far a socket has come.
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
    /// The peer has shut the association down, and it has ended: after what the carrier holds comes the end.
    Ended = 4,
    /// One-to-many, and not listening: its carrier holds messages of any number of associations.
    Many = 5,
    /// One-to-many, and peers may set up associations.
    ManyListening = 6,
    /// The association was lost, or this side has shut it down: after what the carrier holds comes the pending error, and then
    /// that there is no connection.
    Lost = 7,
}

impl State {
    /// Whether there was an association, and it has ended.
    pub fn is_end(self) -> bool {
        matches!(self, State::Ended | State::Lost)
    }

    /// `None`: no such state.
    pub fn from_u32(number: u32) -> Option<State> {
        use State::{Connected, Connecting, Ended, Idle, Listening, Lost, Many, ManyListening};
        [Idle, Listening, Connecting, Connected, Ended, Many, ManyListening, Lost]
            .into_iter()
            .find(|state| *state as u32 == number)
    }
}

/// The information that a program wants with each message, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants(pub u32);

impl Wants {
    /// `SCTP_SNDRCV`, by `sctp_data_io_event`.
    pub const SNDRCV: Wants = Wants(1);
    /// `SCTP_RCVINFO`, by `SCTP_RECVRCVINFO`.
    pub const RCVINFO: Wants = Wants(1 << 1);
    /// `SCTP_NXTINFO`, by `SCTP_RECVNXTINFO`.
    pub const NXTINFO: Wants = Wants(1 << 2);
    /// IPv4 addresses in their own form where the socket is one of IPv6, without `SCTP_I_WANT_MAPPED_V4_ADDR`. Here and in records
    /// they are mapped all the same.
    pub const OWN_V4: Wants = Wants(1 << 3);

    /// Whether all of `other` are there.
    pub fn contains(self, other: Wants) -> bool {
        self.0 & other.0 == other.0
    }

    /// With `other`, or without.
    #[must_use]
    pub fn set(self, other: Wants, on: bool) -> Wants {
        match on {
            true => Wants(self.0 | other.0),
            false => Wants(self.0 & !other.0),
        }
    }
}

const _: () = assert!(Page::SHUT_AT + 4 == offset_of!(Page, shut_writing) as u64);
const _: () = assert!(Page::ENTRIES_USED_AT < FIELDS_BYTES as u64);
const _: () = assert!(size_of::<Page>() <= PAGE_BYTES && address::BYTES_MAX <= PEER_BYTES);

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

    /// A shim of one version and a daemon of another refuse each other by the first field. So the layout is part of a version.
    #[test]
    fn the_layout_is_that_of_this_version() {
        assert_eq!((Page::IDENTITY_AT, Page::STATE_AT, Page::ERROR_AT, Page::WANTS_AT), (0, 12, 16, 20));
        assert_eq!((Page::PLAIN_AT, Page::PEER_AT, Page::LOCAL_AT, size_of::<Entry>()), (44, 48, 72, 48));
        let entry = Page::entry_at(0);
        assert_eq!(entry, Page::ENTRIES_USED_AT + 8, "entries are aligned as their numbers of 64 bits");
        assert_eq!(Page::entry_at(3), entry + 3 * 48);
        assert_eq!(Page::entry_streams_out_at(3), Page::entry_at(3) + 4);
        assert_eq!(Page::entry_passed_on_at(3), Page::entry_at(3) + 32);
        assert_eq!(Page::entry_default_stream_at(3), Page::entry_at(3) + 36);
        assert_eq!(offset_of!(Entry, sent), 40);
    }

    #[test]
    fn addresses_are_read_as_they_were_written() {
        let page = Page::default();
        assert_eq!((page.peer(), page.local()), (None, None));
        for text in ["192.0.2.1:7", "[2001:db8::1]:7", "[fe80::1%3]:7"] {
            write(&page.peer, &Page::encode_peer(&address(text)));
            assert_eq!((page.peer(), page.local()), (Some(address(text)), None));
        }
        write(&page.local, &Page::encode_peer(&address("192.0.2.2:8")));
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
        let page = Page::default();
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
            entry.give_back(7, 1);
            assert!(entry.reserve(7, 1));
            entry.passed_on.store(before.wrapping_add(ROOM_BYTES), Relaxed);
            assert!(entry.reserve(7, ROOM_BYTES));
            assert_eq!(entry.sent.load(Relaxed), sent_to(7, before.wrapping_add(2 * ROOM_BYTES)));
        }
    }

    /// A sharer may have found the entry, or even reserved room, before the entry became another association's.
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
        entry.give_back(7, 100);
        assert_eq!(entry.sent.load(Relaxed), sent_to(8, 0));
        assert!(entry.reserve(8, 100));
    }

    #[test]
    fn an_error_is_taken_once() {
        let page = Page::default();
        page.error.store(104, Relaxed);
        assert_eq!((page.take_error(), page.take_error()), (104, 0));
    }

    #[test]
    fn the_front_is_what_was_noted() {
        let page = Page::default();
        assert_eq!(page.front(), None);
        let header =
            Header { stream: 3, bytes: 9, address: Some(address("192.0.2.1:7")), ..Header::new(Kind::Data) };
        page.set_front(&header);
        assert_eq!(page.front(), Some(header));
    }

    #[test]
    fn states_have_numbers_and_unknown_ones_count_as_none() {
        use State::{Connected, Connecting, Ended, Idle, Listening, Lost, Many, ManyListening};
        let page = Page::default();
        for state in [Idle, Listening, Connecting, Connected, Ended, Many, ManyListening, Lost] {
            page.state.store(state as u32, Relaxed);
            assert_eq!((page.state(), State::from_u32(state as u32)), (state, Some(state)));
            assert_eq!(state.is_end(), [Ended, Lost].contains(&state));
        }
        page.state.store(99, Relaxed);
        assert_eq!((page.state(), State::from_u32(99)), (Idle, None));
    }

    #[test]
    fn what_is_wanted_is_set_and_unset_one_by_one() {
        let all = [Wants::SNDRCV, Wants::RCVINFO, Wants::NXTINFO, Wants::OWN_V4];
        let both =
            Wants::default().set(Wants::RCVINFO, true).set(Wants::OWN_V4, true).set(Wants::OWN_V4, true);
        assert_eq!(all.map(|one| both.contains(one)), [false, true, false, true]);
        assert!(!Wants::RCVINFO.contains(both), "one of two is not both");
        let one = both.set(Wants::RCVINFO, false).set(Wants::SNDRCV, false);
        assert_eq!(all.map(|wanted| one.contains(wanted)), [false, false, false, true]);
    }
}
