//! What is to be sent and what is outstanding.
//!
//! Messages wait in `pending` without a TSN. Building a packet cuts them into chunks, gives TSNs and
//! moves them to `outstanding`, a ring indexed by TSN, where they stay until the cumulative TSN passes
//! them. All totals are counters that are kept on every change of state, so handling a SACK costs what
//! it changes and never what is outstanding.
//!
//! | file | procedure |
//! |---|---|
//! | `pending` | what has no TSN yet, and the place of a stream scheduler |
//! | `fill` | packets out of what waits (RFC 9260 §6.1, §6.10) |
//! | `sack` | what a SACK says (§6.2.1) |
//! | `loss` | what is lost, and what only seemed to be (§6.3.3, §7.2.4, RFC 8985, RFC 5682) |

mod fill;
mod loss;
mod pending;
mod sack;

use std::collections::VecDeque;

use bytes::Bytes;
use sctp_wire::Tsn;
use sctp_wire::chunk::{DATA_HEADER_BYTES, DataFlags};

use crate::config::{AssociationConfig, MESSAGE_OVERHEAD_BYTES};
use crate::error::SendError;
use crate::event::{SendFailure, SendInfo};
#[cfg(feature = "testing")]
use crate::path::Path;
use crate::peer_window::PeerWindow;
use crate::range_set::RangeSet;
use crate::time::Time;
use crate::tsn;

pub(crate) use fill::Packet;
use pending::Pending;
pub(crate) use sack::{Report, SackOutcome};

/// Most chunks that may be outstanding. RFC 9260 §6.1 allows 2^16 - 1 ordered messages a stream in a window, and gap
/// blocks reach as far (§3.3.4).
const OUTSTANDING_CHUNKS_MAX: usize = u16::MAX as usize;

/// Of a chunk that goes where data goes.
const ANY_PATH: u8 = u8::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkState {
    InFlight,
    /// Reported by a gap block; the peer may still change its mind (RFC 9260 §6.2).
    GapAcked,
    /// Reported by a gap block, and the peer keeps it: the payload is gone.
    Promised,
    /// To be sent again.
    Lost,
}

/// A message, or the part of one that one DATA chunk carries.
#[derive(Debug)]
struct Chunk {
    payload: Bytes,
    ppid: u32,
    context: u32,
    /// Number of the packet that it was last sent in, on its path.
    packet: u32,
    stream: u16,
    ssn: u16,
    flags: DataFlags,
    state: ChunkState,
    /// The path that it was last sent on; before that, the one that it is to take, or [`ANY_PATH`].
    path: u8,
    /// Whether the overhead of its message is charged to it: the last chunk of each send.
    charged: bool,
}

impl Chunk {
    #[inline]
    fn wire_bytes(&self) -> usize {
        wire_bytes(self.payload.len())
    }

    /// Whether it is on its way in this packet of a path.
    #[inline]
    fn is_in(&self, packet: u32, path_id: usize) -> bool {
        self.state == ChunkState::InFlight && self.packet == packet && usize::from(self.path) == path_id
    }

    /// The payload is of no more use. Gives what it took in the send buffer.
    fn forget(&mut self) -> usize {
        let bytes = self.buffered_bytes();
        (self.payload, self.charged) = (Bytes::new(), false);
        bytes
    }

    /// It was not delivered. (Whether it asked for its SACK at once is of no more use.)
    fn failure(&self, was_sent: bool) -> SendFailure {
        let info = SendInfo {
            stream: self.stream,
            ppid: self.ppid,
            unordered: self.flags.unordered,
            context: self.context,
            ..SendInfo::default()
        };
        SendFailure {
            info,
            data: self.payload.clone(),
            was_sent,
            beginning: self.flags.beginning,
            ending: self.flags.ending,
            cause: 0,
        }
    }

    #[inline]
    fn buffered_bytes(&self) -> usize {
        self.payload.len() + if self.charged { MESSAGE_OVERHEAD_BYTES } else { 0 }
    }
}

#[inline]
fn wire_bytes(payload_bytes: usize) -> usize {
    DATA_HEADER_BYTES + payload_bytes.next_multiple_of(4)
}

/// A record that was begun with `more` and not ended.
#[derive(Debug, Clone, Copy)]
struct OpenRecord {
    stream: u16,
    unordered: bool,
}

#[derive(Debug)]
pub(crate) struct Outbound {
    pending: Pending,
    /// Chunks with TSNs from `first` on.
    outstanding: VecDeque<Chunk>,
    /// TSN of the first outstanding chunk (unwrapped); the one before it is the cumulative TSN acknowledged.
    first: u64,
    lost: RangeSet,
    /// Reported by gap blocks.
    gap_acked: RangeSet,
    /// How many of those the peer may take back.
    renegable: u64,
    /// New data leaves on all paths at once.
    multipath: bool,
    /// Payload of chunks in flight.
    in_flight_payload_bytes: usize,
    /// Payload and overhead of everything not yet acknowledged.
    buffered_bytes: usize,
    buffer_bytes: usize,
    message_bytes_max: usize,
    peer_window: PeerWindow,
    streams: u16,
    next_ssn: Vec<u16>,
    open_record: Option<OpenRecord>,
    writable_wanted: bool,
    /// No more is to come: what is sent now is waited for.
    closing: bool,
}

impl Outbound {
    pub(crate) fn new(initial: Tsn, config: &AssociationConfig) -> Self {
        Outbound {
            pending: Pending::default(),
            outstanding: VecDeque::new(),
            first: tsn::start(initial),
            lost: RangeSet::new(),
            gap_acked: RangeSet::new(),
            renegable: 0,
            multipath: false,
            in_flight_payload_bytes: 0,
            buffered_bytes: 0,
            buffer_bytes: config.send_buffer_bytes,
            message_bytes_max: config.message_bytes_max,
            peer_window: PeerWindow::closed(),
            streams: config.streams_out,
            next_ssn: Vec::new(),
            open_record: None,
            writable_wanted: false,
            closing: false,
        }
    }

    /// Takes settings that may change while the association lives. What is buffered stays, however little room there is. Says
    /// whether there is room now that was waited for.
    pub(crate) fn set_config(&mut self, config: &AssociationConfig) -> bool {
        self.buffer_bytes = config.send_buffer_bytes;
        self.message_bytes_max = config.message_bytes_max;
        self.takes_writable()
    }

    /// Whether so much room was waited for as there is now. It is told once.
    pub(crate) fn takes_writable(&mut self) -> bool {
        let writable = self.writable_wanted && self.buffered_bytes <= self.buffer_bytes / 2;
        self.writable_wanted &= !writable;
        writable
    }

    /// The user sends no more.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether new data leaves on all paths at once.
    pub(crate) fn set_multipath(&mut self, multipath: bool) {
        self.multipath = multipath;
    }

    #[inline]
    pub(crate) fn is_multipath(&self) -> bool {
        self.multipath
    }

    /// Takes what the peer said in its INIT or INIT ACK.
    pub(crate) fn set_peer(&mut self, window_bytes: usize, streams: u16) {
        self.peer_window.update(window_bytes, 0);
        self.streams = streams;
    }

    /// Whether a message waits for a stream that the peer turned out not to allow.
    pub(crate) fn waits_beyond_streams(&self) -> bool {
        self.pending.iter().any(|chunk| chunk.stream >= self.streams)
    }

    pub(crate) fn streams(&self) -> u16 {
        self.streams
    }

    /// Every TSN up to this one was acknowledged.
    pub(crate) fn cumulative_tsn(&self) -> Tsn {
        tsn::wrap(self.first - 1)
    }

    /// Whether nothing was acknowledged since `initial`, the first TSN of all.
    pub(crate) fn is_unacknowledged_since(&self, initial: Tsn) -> bool {
        self.first == tsn::start(initial) && self.gap_acked.count() == 0
    }

    pub(crate) fn outstanding_chunks(&self) -> usize {
        self.outstanding.len()
    }

    pub(crate) fn peer_window_bytes(&self) -> usize {
        self.peer_window.bytes()
    }

    /// Whether what is in flight went beyond a closed window, so that the peer may rightly not acknowledge it.
    pub(crate) fn probes_window(&self) -> bool {
        self.peer_window.is_probed()
    }

    /// When a closed window is to be probed.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        self.peer_window.probe_at()
    }

    /// The time of [`Outbound::probe_at`] has come.
    pub(crate) fn probe_timer_expired(&mut self) {
        self.peer_window.probe_timer_expired();
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    pub(crate) fn in_flight_payload_bytes(&self) -> usize {
        self.in_flight_payload_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.outstanding.is_empty()
    }

    /// Where a TSN of ours lies, and which comes next (both unwrapped).
    pub(crate) fn place_of(&self, tsn: Tsn) -> (u64, u64) {
        (tsn::unwrap(self.first, tsn), self.first + self.outstanding.len() as u64)
    }

    /// The path that an outstanding chunk was last sent on.
    pub(crate) fn path_of(&self, tsn: u64) -> Option<usize> {
        let at = usize::try_from(tsn.checked_sub(self.first)?).ok()?;
        self.outstanding.get(at).map(|chunk| usize::from(chunk.path))
    }

    /// Whether anything waits to be sent, for the first time or again.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.lost.is_empty()
    }

    /// The path that what goes next is to take, if it says so. What was lost goes anywhere.
    #[inline]
    pub(crate) fn wanted_path(&self) -> Option<usize> {
        let next = self.pending.next().filter(|next| next.path != ANY_PATH && self.lost.is_empty())?;
        Some(next.path.into())
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    #[inline]
    pub(crate) fn pending_wire_bytes(&self) -> usize {
        self.pending.wire_bytes()
    }

    /// Whether a message of `bytes` fits the buffer. A message longer than the buffer fits when it is empty.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let fits = self.buffered_bytes == 0
            || self.buffered_bytes + bytes + MESSAGE_OVERHEAD_BYTES <= self.buffer_bytes;
        self.writable_wanted |= !fits;
        fits
    }

    /// Whether a message like this can be sent at all.
    #[inline]
    pub(crate) fn check(&self, info: &SendInfo, bytes: usize) -> Result<(), SendError> {
        if info.stream >= self.streams {
            return Err(SendError::NoSuchStream { stream: info.stream, streams: self.streams });
        }
        if bytes > self.message_bytes_max {
            return Err(SendError::TooLong { bytes, limit_bytes: self.message_bytes_max });
        }
        if bytes == 0 {
            return Err(SendError::Empty);
        }
        match self.open_record {
            // The fragments of a record have consecutive TSNs (RFC 9260 §6.9), so nothing fits in between.
            Some(open) if open.stream != info.stream || open.unordered != info.unordered => {
                Err(SendError::RecordOpen { stream: open.stream })
            }
            _ => Ok(()),
        }
    }

    /// Queues one message, given as the blocks that it consists of.
    #[inline]
    pub(crate) fn send(
        &mut self,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), SendError> {
        self.check(info, bytes)?;
        let mut beginning = self.open_record.is_none();
        if let Some(at) = info.expires_at.filter(|_| beginning && !info.more) {
            self.pending.expect_expiry(at);
        }
        self.open_record = info.more.then_some(OpenRecord { stream: info.stream, unordered: info.unordered });
        for payload in blocks {
            if payload.is_empty() {
                continue;
            }
            self.pending.push(Chunk {
                payload,
                ppid: info.ppid,
                context: info.context,
                packet: 0,
                stream: info.stream,
                ssn: 0,
                flags: DataFlags { immediate: false, unordered: info.unordered, beginning, ending: false },
                state: ChunkState::InFlight,
                path: info.path.map_or(ANY_PATH, |path| path.0),
                charged: false,
            });
            beginning = false;
        }
        if let Some(last) = self.pending.last_mut() {
            last.flags.ending = !info.more;
            last.flags.immediate = info.immediate;
            last.charged = true;
        }
        self.buffered_bytes += bytes + MESSAGE_OVERHEAD_BYTES;
        Ok(())
    }

    /// What has no number in its stream gets it when it is first sent, so that what is discarded before leaves no gap. The
    /// pieces of a message follow each other and have one number.
    #[inline]
    fn take_ssn(&mut self, chunk: &Chunk) -> u16 {
        if chunk.flags.unordered {
            return 0;
        }
        let at = usize::from(chunk.stream);
        if at >= self.next_ssn.len() {
            self.next_ssn.resize(at + 1, 0);
        }
        let next = &mut self.next_ssn[at];
        if chunk.flags.beginning {
            *next = next.wrapping_add(1);
        }
        next.wrapping_sub(1)
    }

    /// When the message that goes next is to be discarded.
    #[inline]
    pub(crate) fn expires_at(&self) -> Option<Time> {
        self.pending.expires_at()
    }

    /// Discards what was to be sent by now and comes next. `keeps`: it is to be sent all the same.
    pub(crate) fn take_expired(&mut self, now: Time, keeps: bool) -> Vec<SendFailure> {
        let expired = self.pending.take_expired(now, keeps);
        self.buffered_bytes -= expired.iter().map(Chunk::buffered_bytes).sum::<usize>();
        expired.iter().map(|chunk| chunk.failure(false)).collect()
    }

    /// Everything that the peer has not acknowledged for good, in the order of sending.
    pub(crate) fn undelivered(&self) -> impl Iterator<Item = SendFailure> {
        let sent = self.outstanding.iter().filter(|chunk| chunk.state != ChunkState::Promised);
        sent.map(|chunk| chunk.failure(true)).chain(self.pending.iter().map(|chunk| chunk.failure(false)))
    }

    /// Checks the counters against a recount; for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn assert_counters(&self, paths: &[Path]) {
        let in_flight = |c: &&Chunk| c.state == ChunkState::InFlight;
        let payload: usize = self.outstanding.iter().filter(in_flight).map(|c| c.payload.len()).sum();
        assert_eq!(payload, self.in_flight_payload_bytes);
        for (id, path) in paths.iter().enumerate() {
            let wire: usize = self
                .outstanding
                .iter()
                .filter(in_flight)
                .filter(|c| usize::from(c.path) == id)
                .map(Chunk::wire_bytes)
                .sum();
            assert_eq!(wire, path.in_flight_bytes);
        }
        let count = |state| self.outstanding.iter().filter(|c| c.state == state).count() as u64;
        assert_eq!(count(ChunkState::Lost), self.lost.count());
        assert_eq!(count(ChunkState::GapAcked), self.renegable);
        assert_eq!(count(ChunkState::GapAcked) + count(ChunkState::Promised), self.gap_acked.count());
        let buffered: usize =
            self.outstanding.iter().chain(self.pending.iter()).map(Chunk::buffered_bytes).sum();
        assert_eq!(buffered, self.buffered_bytes);
        assert_eq!(self.pending.iter().map(Chunk::wire_bytes).sum::<usize>(), self.pending.wire_bytes());
    }
}
