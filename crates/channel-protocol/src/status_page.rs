//! The page in which the daemon shows the state of a socket to all sharers of its descriptor, also after `fork` and `exec`.
//!
//! The daemon alone writes it. A program gets a descriptor that is open for reading, and only the user of the daemon and
//! root may open the file otherwise. So no program can change or shorten the page, or free its memory. The state that
//! the sharers of a descriptor have in common is in [`sharers_page`](crate::sharers_page).

use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use ring::ReaderWords;

use crate::address;
use crate::assoc_id::AssocId;
use crate::bytes::{Reader, Writer};

/// Size of the page of a one-to-many socket.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Size of the page of any other socket, which has no entries: one page of the system, which holds all fields.
pub const FIELDS_BYTES: usize = 4096;
/// Offset of the receive ring in the memfd of any socket: the messages of bundles
/// ([`Kind::Bundle`](crate::record::Kind::Bundle)) lie there. The system provides its memory when the first bundle comes.
pub const RING_AT: usize = PAGE_BYTES;
/// Size of the receive ring for bundles that several messages share.
pub const RING_SHARED_BYTES: usize = 512 * 1024;
/// Size of the receive ring, with memory for a long message behind those bundles. With the page it is less than the 2 MiB of a
/// huge page, so that one pin keeps the kernel from replacing any of its pages.
pub const RING_BYTES: usize = RING_SHARED_BYTES + 1088 * 1024;
/// Size of the memfd with the ring. The memory behind the fields of a socket without entries is never provided.
pub const STATUS_BYTES: usize = RING_AT + RING_BYTES;
const _: () = assert!(STATUS_BYTES <= 2 << 20);
/// Number of associations of a one-to-many socket that have an [`Entry`]. A shim asks the daemon about others.
pub const ENTRIES: usize = 1024;
/// Size of a peer's address.
const PEER_BYTES: usize = 24;

/// The layout. A fresh page is zero, which is [`State::Idle`] with no error.
#[derive(Debug)]
#[repr(C)]
pub struct StatusPage {
    /// How far the daemon has read in the ring of a sharer, and whether it sleeps.
    pub ring: ReaderWords,
    /// Number of the ring that the daemon reads ([`SharersPage`](crate::sharers_page::SharersPage)); 0 for none.
    pub ring_number: AtomicU32,
    /// Keeps what follows out of the cache line of the ring's words, which change often.
    _pad: [AtomicU32; 11],
    /// [`crate::VERSION`]. The daemon writes this field and those up to `style` once.
    pub version: AtomicU32,
    /// `AF_INET` or `AF_INET6`.
    pub family: AtomicU32,
    /// `SOCK_STREAM`: one-to-one. `SOCK_SEQPACKET`: one-to-many, or peeled off from it.
    pub style: AtomicU32,
    /// A [`State`].
    pub state: AtomicU32,
    /// The last error of the association, an errno. It is pending until a sharer has taken it
    /// ([`SharersPage::take_error`](crate::sharers_page::SharersPage::take_error)).
    pub error: AtomicI32,
    /// Number of errors that were set, modulo 2^32; it changes after `error`.
    pub errors: AtomicU32,
    /// Information that comes with received messages ([`Subscriptions`]).
    pub subscriptions: AtomicU32,
    /// Upper bound for the length of a message on the pair, up to the first [`Kind::SizeHint`](crate::record::Kind::SizeHint)
    /// there. It changes before that record is sent.
    pub longest: AtomicU32,
    /// Not zero: a record behind the next [`Kind::SizeHint`](crate::record::Kind::SizeHint) may be a
    /// [`Kind::Bundle`](crate::record::Kind::Bundle). Zero again when all that the daemon has put into the pair was read.
    pub bundles: AtomicU32,
    /// Longest message that can be sent unfragmented, if the socket disables fragmentation; 0 for no limit.
    pub fragmentation_limit: AtomicU32,
    /// Outbound streams, once the association is up.
    pub streams_out: AtomicU32,
    /// Default stream of a one-to-one socket.
    pub default_stream: AtomicU32,
    /// Other defaults of its messages ([`Header`](crate::record::Header)): the flags, the payload protocol identifier,
    /// the context and the lifetime.
    pub default_flags: AtomicU32,
    /// See `default_flags`.
    pub default_ppid: AtomicU32,
    /// See `default_flags`.
    pub default_context: AtomicU32,
    /// See `default_flags`.
    pub default_lifetime_ms: AtomicU32,
    /// Not zero: the pair of a one-to-one socket holds plain content for the program, without headers
    /// ([`SocketRequest::SetForm`](crate::request::SocketRequest::SetForm)). It changes while a sharer that asks
    /// for it holds the read lock.
    pub plain: AtomicU32,
    /// The peer; read it with [`StatusPage::peer`].
    peer: [AtomicU32; PEER_BYTES / 4],
    /// The local address, once the association has ended; read it with [`StatusPage::local`].
    local: [AtomicU32; PEER_BYTES / 4],

    /// Number of associations of a one-to-many socket from which data may come.
    pub associations: AtomicU32,
    /// Number of entries that may be in use.
    pub entries_used: AtomicU32,
    /// A [`PeerShut`]: how far the peer has shut down the one association of a socket that is not one-to-many.
    pub peer_shut: AtomicU32,
    /// Time in seconds that the last close waits until the association has ended (`SO_LINGER`); 0 if it does not wait.
    pub linger_s: AtomicU32,
    entries: [Entry; ENTRIES],
}

/// An association of a one-to-many socket: tells a sharer whether it takes a message, without a request.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// 0 for a free entry.
    pub assoc_id: AtomicU32,
    /// Outbound streams; 0 while the number is unknown, [`Entry::PEER_SHUT`] once the peer or the program has shut the
    /// association down.
    pub streams_out: AtomicU32,
    peer: [AtomicU32; PEER_BYTES / 4],
    /// Number of bytes from the sharers that the daemon has passed on, modulo 2^32, or fewer if it has less room than usual.
    /// [`SentBytes`](crate::sharers_page::SentBytes) compares it with the number that they have sent.
    pub passed_on: AtomicU32,
    /// Default stream.
    pub default_stream: AtomicU32,
}

impl Entry {
    /// Value of `streams_out` in place of a number: the association was shut down, and takes no more messages.
    pub const PEER_SHUT: u32 = u32::MAX;

    /// Encodes the entry of a new association.
    pub fn encode(assoc_id: AssocId, streams_out: u16, peer: &SocketAddr) -> [u8; size_of::<Entry>()] {
        let mut out = [0; size_of::<Entry>()];
        let mut w = Writer::new(&mut out);
        w.bytes(&assoc_id.get().to_ne_bytes()).bytes(&u32::from(streams_out).to_ne_bytes());
        address::write(&mut w, peer);
        out
    }

    /// Returns whether the entry is that of this association.
    #[inline]
    pub fn is_of(&self, assoc_id: AssocId, order: Ordering) -> bool {
        self.assoc_id.load(order) == assoc_id.get()
    }

    /// Returns the peer's address, or one of its addresses.
    pub fn peer(&self) -> Option<SocketAddr> {
        read_peer(&self.peer)
    }
}

impl Default for StatusPage {
    /// Returns a page of zeros.
    fn default() -> StatusPage {
        StatusPage {
            ring: ReaderWords::default(),
            ring_number: AtomicU32::default(),
            _pad: Default::default(),
            version: AtomicU32::default(),
            family: AtomicU32::default(),
            style: AtomicU32::default(),
            state: AtomicU32::default(),
            error: AtomicI32::default(),
            errors: AtomicU32::default(),
            subscriptions: AtomicU32::default(),
            longest: AtomicU32::default(),
            bundles: AtomicU32::default(),
            fragmentation_limit: AtomicU32::default(),
            streams_out: AtomicU32::default(),
            default_stream: AtomicU32::default(),
            default_flags: AtomicU32::default(),
            default_ppid: AtomicU32::default(),
            default_context: AtomicU32::default(),
            default_lifetime_ms: AtomicU32::default(),
            plain: AtomicU32::default(),
            peer: Default::default(),
            local: Default::default(),
            associations: AtomicU32::default(),
            entries_used: AtomicU32::default(),
            peer_shut: AtomicU32::default(),
            linger_s: AtomicU32::default(),
            entries: std::array::from_fn(|_| Entry::default()),
        }
    }
}

fn read_peer(words: &[AtomicU32; PEER_BYTES / 4]) -> Option<SocketAddr> {
    let words = words.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
    address::read(&mut Reader(words.as_flattened()))
}

impl StatusPage {
    /// Offset at which the daemon writes `version`, `family` and `style`.
    pub const IDENTITY_AT: u64 = offset_of!(StatusPage, version) as u64;
    /// Offset of the state.
    pub const STATE_AT: u64 = offset_of!(StatusPage, state) as u64;
    /// Offset of the number of the ring.
    pub const RING_NUMBER_AT: u64 = offset_of!(StatusPage, ring_number) as u64;
    /// Offset of the last error.
    pub const ERROR_AT: u64 = offset_of!(StatusPage, error) as u64;
    /// Offset of the number of errors.
    pub const ERRORS_AT: u64 = offset_of!(StatusPage, errors) as u64;
    /// Offset of the subscriptions.
    pub const SUBSCRIPTIONS_AT: u64 = offset_of!(StatusPage, subscriptions) as u64;
    /// Offset of the bound for the length of messages.
    pub const LONGEST_AT: u64 = offset_of!(StatusPage, longest) as u64;
    /// Offset of the flag for bundles.
    pub const BUNDLES_AT: u64 = offset_of!(StatusPage, bundles) as u64;
    /// Offset of the fragmentation limit.
    pub const FRAGMENTATION_LIMIT_AT: u64 = offset_of!(StatusPage, fragmentation_limit) as u64;
    /// Offset of the number of outbound streams.
    pub const STREAMS_OUT_AT: u64 = offset_of!(StatusPage, streams_out) as u64;
    /// Offset of the flag for plain content.
    pub const PLAIN_AT: u64 = offset_of!(StatusPage, plain) as u64;
    /// Offset of the peer's address.
    pub const PEER_AT: u64 = offset_of!(StatusPage, peer) as u64;

    /// Offset of the default stream, which the other defaults follow.
    pub const DEFAULT_STREAM_AT: u64 = offset_of!(StatusPage, default_stream) as u64;
    /// Offset of the peer's shutdown.
    pub const PEER_SHUT_AT: u64 = offset_of!(StatusPage, peer_shut) as u64;
    /// Offset of the time that the last close waits.
    pub const LINGER_AT: u64 = offset_of!(StatusPage, linger_s) as u64;
    /// Offset of the local address.
    pub const LOCAL_AT: u64 = offset_of!(StatusPage, local) as u64;

    /// Encodes the address of a peer, or the local address, for the page.
    pub fn encode_peer(peer: &SocketAddr) -> [u8; PEER_BYTES] {
        let mut out = [0; PEER_BYTES];
        address::write(&mut Writer::new(&mut out), peer);
        out
    }

    /// Offset of the number of associations.
    pub const ASSOCIATIONS_AT: u64 = offset_of!(StatusPage, associations) as u64;
    /// Offset of the number of entries that may be in use.
    pub const ENTRIES_USED_AT: u64 = offset_of!(StatusPage, entries_used) as u64;

    /// Returns the offset of an entry.
    pub const fn entry_at(index: usize) -> u64 {
        (offset_of!(StatusPage, entries) + index * size_of::<Entry>()) as u64
    }

    /// Returns the offset of the outbound streams of an entry's association.
    pub const fn entry_streams_out_at(index: usize) -> u64 {
        StatusPage::entry_at(index) + offset_of!(Entry, streams_out) as u64
    }

    /// Returns the offset of the bytes passed on.
    pub const fn entry_passed_on_at(index: usize) -> u64 {
        StatusPage::entry_at(index) + offset_of!(Entry, passed_on) as u64
    }

    /// Returns the offset of the default stream of an entry's association.
    pub const fn entry_default_stream_at(index: usize) -> u64 {
        StatusPage::entry_at(index) + offset_of!(Entry, default_stream) as u64
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

    /// Returns the local address of a socket whose association has ended. Once both sides have shut the pair down, a daemon
    /// that cannot watch the close of the program's end takes it for closed, and forgets the socket.
    pub fn local(&self) -> Option<SocketAddr> {
        read_peer(&self.local)
    }

    /// Returns the state; an undefined number counts as `Idle`.
    pub fn state(&self) -> State {
        State::from_u32(self.state.load(Acquire)).unwrap_or(State::Idle)
    }
}

/// How far the peer of a socket with one association has shut it down. The association then ends only when the peer has received
/// everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PeerShut {
    /// Not at all.
    No = 0,
    /// The peer takes no more messages (RFC 9260 §9.2).
    Writing = 1,
    /// In addition, all that the peer has sent is in the pair.
    Both = 2,
    /// The peer has not shut it down: it has ended, and takes no more messages. The program first reads what has come.
    Ended = 3,
}

/// State of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Neither connected nor listening.
    Idle = 0,
    /// Its pair holds accepted associations.
    Listening = 1,
    /// Its pair is filled until the association is up.
    Connecting = 2,
    /// Its pair holds messages.
    Connected = 3,
    /// The peer has shut the association down, and it has ended: the end follows the content of the pair.
    Ended = 4,
    /// One-to-many, and not listening: its pair holds messages of any number of associations.
    OneToMany = 5,
    /// One-to-many, and peers may set up associations.
    OneToManyListening = 6,
    /// The association was lost, or this side has shut it down: the pending error follows the content of the pair, and then
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

const _: () = assert!(offset_of!(StatusPage, version) == 64, "the words of the ring have a cache line");
const _: () = assert!(StatusPage::ENTRIES_USED_AT < FIELDS_BYTES as u64);
const _: () = assert!(size_of::<StatusPage>() <= PAGE_BYTES && address::BYTES_MAX <= PEER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

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
            (StatusPage::IDENTITY_AT, StatusPage::STATE_AT, StatusPage::ERROR_AT, StatusPage::ERRORS_AT),
            (64, 76, 80, 84)
        );
        assert_eq!(
            (StatusPage::RING_NUMBER_AT, StatusPage::PLAIN_AT, StatusPage::PEER_AT, StatusPage::LOCAL_AT),
            (16, 128, 132, 156)
        );
        let entry = StatusPage::entry_at(0);
        assert_eq!(entry, StatusPage::ENTRIES_USED_AT + 12);
        assert_eq!(StatusPage::entry_at(3), entry + 3 * 40);
        assert_eq!(StatusPage::entry_streams_out_at(3), StatusPage::entry_at(3) + 4);
        assert_eq!(StatusPage::entry_passed_on_at(3), StatusPage::entry_at(3) + 32);
        assert_eq!(StatusPage::entry_default_stream_at(3), StatusPage::entry_at(3) + 36);
    }

    #[test]
    fn addresses_are_read_as_they_were_written() {
        let page = StatusPage::default();
        assert_eq!((page.peer(), page.local()), (None, None));
        for text in ["192.0.2.1:7", "[2001:db8::1]:7", "[fe80::1%3]:7"] {
            write(&page.peer, &StatusPage::encode_peer(&address(text)));
            assert_eq!((page.peer(), page.local()), (Some(address(text)), None));
        }
        write(&page.local, &StatusPage::encode_peer(&address("192.0.2.2:8")));
        assert_eq!(page.local(), Some(address("192.0.2.2:8")));
        page.peer[0].store(u32::MAX, Relaxed);
        assert_eq!(page.peer(), None, "there is no such family");
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let bytes = Entry::encode(AssocId::new(7), 3, &address("192.0.2.1:7"));
        let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        assert_eq!(words[..2], [7, 3]);
        let entry = Entry::default();
        assert_eq!(entry.peer(), None);
        write(&entry.peer, &bytes[offset_of!(Entry, peer)..offset_of!(Entry, passed_on)]);
        assert_eq!(entry.peer(), Some(address("192.0.2.1:7")));
    }

    /// Only the daemon writes the page; a daemon of another version may write another number.
    #[test]
    fn no_more_entries_are_in_use_than_there_are() {
        let page = StatusPage::default();
        for (used, expected) in [(0, 0), (2, 2), (ENTRIES as u32 + 1, ENTRIES), (u32::MAX, ENTRIES)] {
            page.entries_used.store(used, Relaxed);
            assert_eq!(page.entries().len(), expected);
        }
    }

    #[test]
    fn states_have_numbers_and_unknown_ones_count_as_none() {
        use State::{Connected, Connecting, Ended, Idle, Listening, Lost, OneToMany, OneToManyListening};
        let page = StatusPage::default();
        for state in [Idle, Listening, Connecting, Connected, Ended, OneToMany, OneToManyListening, Lost] {
            page.state.store(state as u32, Relaxed);
            assert_eq!((page.state(), State::from_u32(state as u32)), (state, Some(state)));
            assert_eq!(state.is_end(), [Ended, Lost].contains(&state));
        }
        page.state.store(99, Relaxed);
        assert_eq!((page.state(), State::from_u32(99)), (Idle, None));
    }

    #[test]
    fn subscriptions_are_set_and_unset_one_by_one() {
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
