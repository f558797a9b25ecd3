//! The page that all who share a descriptor map: what they must agree on, also after `fork` and `exec`.
//!
//! The daemon writes its part with `pwrite`, a field at a time, and reads none: nothing here is trusted. The sharers map it.

use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicU32};

use crate::address;
use crate::bytes::{Reader, Writer};
use crate::record::{HEADER_BYTES, Header};

/// Bytes of the memfd.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a peer's address.
const PEER_BYTES: usize = 24;

/// The layout. A fresh page is zero, which is [`State::Idle`] with no error.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Page {
    /// [`crate::VERSION`]. Written by the daemon once, as all up to `style`.
    pub version: AtomicU32,
    /// `AF_INET` or `AF_INET6`.
    pub family: AtomicU32,
    /// `SOCK_STREAM`: one-to-one.
    pub style: AtomicU32,
    /// A [`State`]. Written by the daemon.
    pub state: AtomicU32,
    /// The pending error, an errno. Set by the daemon; whoever takes it puts zero there.
    pub error: AtomicI32,
    /// What is to come with received messages ([`Wants`]). Written by the daemon.
    pub wants: AtomicU32,
    /// Outbound streams, once the association is up. Written by the daemon, as the next.
    pub streams_out: AtomicU32,
    /// The peer; see [`Page::peer`].
    peer: [AtomicU32; PEER_BYTES / 4],

    /// Held while one reads. The thread identifier of the holder, as a priority-inheriting futex: the kernel sees to it
    /// that the lock of a dead thread is passed on. Written by the sharers, as all below.
    pub lock: AtomicU32,
    /// Bytes that were read of the record at the front of the carrier; it is still there.
    pub consumed: AtomicU32,
    /// Not zero: one of the sharers has said that it reads no more.
    pub shut_reading: AtomicU32,
    /// Its header.
    header: [AtomicU32; HEADER_BYTES / 4],
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
    /// Where it writes the number of outbound streams.
    pub const STREAMS_OUT_AT: u64 = offset_of!(Page, streams_out) as u64;
    /// Where it writes the peer.
    pub const PEER_AT: u64 = offset_of!(Page, peer) as u64;

    /// What the daemon writes for a peer.
    pub fn encode_peer(peer: &SocketAddr) -> [u8; PEER_BYTES] {
        let mut out = [0; PEER_BYTES];
        address::write(&mut Writer::new(&mut out), peer);
        out
    }

    /// The peer, if there is one.
    pub fn peer(&self) -> Option<SocketAddr> {
        let words = self.peer.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
        address::read(&mut Reader(words.as_flattened()))
    }

    /// The state. What nobody has written counts as none.
    pub fn state(&self) -> State {
        State::from_u32(self.state.load(Acquire)).unwrap_or(State::Idle)
    }

    /// Takes the pending error: an errno, or zero.
    pub fn take_error(&self) -> i32 {
        self.error.swap(0, AcqRel)
    }

    /// The header of the record that was read in part.
    pub fn front(&self) -> Option<Header> {
        let words = self.header.each_ref().map(|word| word.load(Relaxed).to_ne_bytes());
        Header::parse(words.as_flattened())
    }

    /// Notes the header of a record that is read in part.
    pub fn set_front(&self, header: &Header) {
        let bytes = header.encode();
        for (word, bytes) in self.header.iter().zip(bytes.as_chunks().0) {
            word.store(u32::from_ne_bytes(*bytes), Relaxed);
        }
    }
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
    /// The peer has shut down: after what the carrier holds comes the end, or the pending error.
    Ended = 4,
}

impl State {
    /// `None`: no such state.
    pub fn from_u32(number: u32) -> Option<State> {
        [State::Idle, State::Listening, State::Connecting, State::Connected, State::Ended]
            .into_iter()
            .find(|state| *state as u32 == number)
    }
}

/// Ancillary data that a program wants with each message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants(pub u32);

impl Wants {
    /// `SCTP_SNDRCV`, by `sctp_data_io_event`.
    pub const SNDRCV: Wants = Wants(1);
    /// `SCTP_RCVINFO`, by `SCTP_RECVRCVINFO`.
    pub const RCVINFO: Wants = Wants(1 << 1);

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

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES && address::BYTES_MAX <= PEER_BYTES);
