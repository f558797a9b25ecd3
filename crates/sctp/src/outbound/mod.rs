//! The sending side of an association: queued messages and outstanding chunks.
//!
//! Messages wait in `pending` without a TSN: short ones as chunks in wire form, longer ones as blocks. Building a packet assigns
//! TSNs, fragments what does not fit, and moves the chunks to `outstanding` as runs, most often one run a packet, until the
//! cumulative TSN passes them. Every total is a counter that changes with the state of a run, so the cost of a SACK depends on
//! what it changes, never on how much is outstanding.
//!
//! | file | procedure |
//! |---|---|
//! | `short` | short messages in wire form |
//! | `blocks` | the blocks that short messages are written into |
//! | `stage` | the end of the queue, lent to the caller that fills it |
//! | `batch` | short messages that are queued together |
//! | `message` | messages that wait as blocks |
//! | `message_limits` | the messages that can be sent at all |
//! | `pending` | messages without a TSN; the place of a stream scheduler |
//! | `run` | consecutive chunks of one packet, in wire form |
//! | `run/in_flight` | the states of runs, and the bytes in flight that follow from them |
//! | `outstanding` | runs and their totals |
//! | `fill` | fills packets with DATA chunks (RFC 9260 §6.1, §6.10) |
//! | `refused` | chunks that the peer had no room for (§6.2) |
//! | `sack` | handles SACKs (§6.2.1) |
//! | `loss` | detects losses and spurious ones (§6.3.3, §7.2.4, RFC 8985, RFC 5682) |
//! | `undelivered` | what returns to the user when the association ends |

mod batch;
mod blocks;
mod fill;
mod loss;
mod message;
mod message_limits;
mod outstanding;
mod pending;
mod refused;
mod run;
mod sack;
mod short;
mod stage;
mod undelivered;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use sctp_message::{PathId, SendInfo};
use sctp_wire::Tsn;

use crate::config::{AssociationConfig, MESSAGE_OVERHEAD_BYTES};
use crate::error::SendError;
use crate::identifiers::AssociationId;
#[cfg(feature = "testing")]
use crate::path::Paths;
use crate::peer_window::PeerWindow;
use crate::receive_pool::{ReceiveCharge, ReceivePool};
use crate::send_pool::{OwnedCharge, SendPool};
use crate::statistics::Statistics;
use crate::time::Time;
use crate::transmit::{COPIED_BYTES_MAX, GATHER_BYTES_MIN};
use crate::tsn;

pub use batch::Batch;
pub(crate) use blocks::FreeBlocks;
pub(crate) use fill::{Filled, Packet};
use message::Message;
pub use message_limits::MessageLimits;
use outstanding::Outstanding;
use pending::{Pending, Waiting};
use run::Taken;
pub(crate) use run::wire_bytes;
pub(crate) use sack::{SackInfo, SackOutcome};
use short::NextSsn;
use stage::StageLimits;
pub use stage::{Stage, Staged};
pub(crate) use undelivered::Undelivered;

/// Number of streams whose next numbers each association keeps outside the pool, some 8 KB.
const STREAMS_FREE: u16 = 4096;

/// Limit for outstanding chunks. RFC 9260 §6.1 allows 2^16 - 1 ordered messages a stream in a window, and gap blocks reach as far
/// (§3.3.4).
const OUTSTANDING_CHUNKS_MAX: usize = u16::MAX as usize;

/// Maximum size of a message that is copied to the others that wait, whatever keeps its bytes, if packets have room for three.
const SHORT_BYTES_MAX: usize = GATHER_BYTES_MIN - 1;
/// Number of messages that a packet must have room for, if messages of their size are copied to the others that wait: fragments
/// gain nothing.
const COPIED_PER_PACKET_MIN: usize = 3;

/// Returns whether a message of `bytes` that nothing else keeps is copied to the others that wait, whatever the size of packets,
/// unless it ends a record whose first part is queued.
#[inline]
pub(crate) fn is_short(info: &SendInfo, bytes: usize) -> bool {
    bytes <= SHORT_BYTES_MAX && is_plain(info)
}

/// Returns whether a message may lie among others.
#[inline]
fn is_plain(info: &SendInfo) -> bool {
    !info.more && info.lifetime.is_none()
}

/// Returns whether a message of `bytes` that nothing else keeps is copied to the others that wait, up to `copied_bytes_max`.
#[inline]
pub(crate) fn is_copied(info: &SendInfo, bytes: usize, copied_bytes_max: usize) -> bool {
    bytes <= copied_bytes_max && is_plain(info)
}

/// Returns the maximum size of messages that are copied to the others that wait although their bytes have an owner, where a chunk
/// has up to `payload_bytes_max`. Fragments of longer ones refer to the owner's memory.
#[inline]
pub(crate) fn owned_copied_bytes_max(payload_bytes_max: usize) -> usize {
    (payload_bytes_max / COPIED_PER_PACKET_MIN).min(SHORT_BYTES_MAX)
}

/// Returns the maximum size of messages that are copied to the others that wait, where a chunk has up to `payload_bytes_max`.
#[inline]
pub(crate) fn copied_bytes_max(payload_bytes_max: usize) -> usize {
    (payload_bytes_max / COPIED_PER_PACKET_MIN).clamp(SHORT_BYTES_MAX, COPIED_BYTES_MAX)
}

/// A part of a message that is queued.
pub trait Block: AsRef<[u8]> {
    /// Whether the bytes have an owner, which the queue can keep.
    const IS_OWNED: bool;

    /// Returns the bytes in a block that can be kept.
    fn into_bytes(self) -> Bytes;
}

impl Block for Bytes {
    const IS_OWNED: bool = true;

    fn into_bytes(self) -> Bytes {
        self
    }
}

/// The bytes are copied.
impl Block for &[u8] {
    const IS_OWNED: bool = false;

    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

/// A record whose end the user has not yet sent (`more`).
#[derive(Debug, Clone, Copy)]
struct OpenRecord {
    stream: u16,
    unordered: bool,
}

/// The association around its sending side, lent to the procedures that acknowledge chunks or declare them lost.
pub(crate) struct SendContext<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a AssociationConfig,
    pub(crate) statistics: &'a mut Statistics,
}

#[derive(Debug)]
pub(crate) struct Outbound {
    pending: Pending,
    outstanding: Outstanding,
    /// New data takes all paths at once.
    multipath: bool,
    /// Payload and overhead of everything that is not yet acknowledged.
    buffered_bytes: usize,
    buffer_bytes: usize,
    /// Memory that bounds the buffers of several associations.
    pool: Option<SendPool>,
    /// The charge for messages that are references to their owners' memory.
    owned: OwnedCharge,
    limits: MessageLimits,
    peer_window: PeerWindow,
    /// Chunks that the peer had no room for.
    refused: Option<refused::Refused>,
    /// When the peer last took back what gap blocks had acknowledged.
    reneged_at: Option<Time>,
    next_ssn: NextSsn,
    /// Memory of `next_ssn` that was taken from the pool of received data: the peer's handshake decides how much it is.
    streams_charge: ReceiveCharge,
    open_record: Option<OpenRecord>,
    writable_wanted: bool,
    /// The user sends no more, so the peer should acknowledge the last data at once.
    closing: bool,
}

impl Outbound {
    pub(crate) fn new(initial: Tsn, config: &AssociationConfig) -> Self {
        Outbound {
            pending: Pending::new(config.send_pool.clone()),
            outstanding: Outstanding::new(tsn::start(initial)),
            multipath: false,
            buffered_bytes: 0,
            buffer_bytes: config.send_buffer_bytes,
            pool: config.send_pool.clone(),
            owned: OwnedCharge::new(config.send_pool.clone()),
            limits: MessageLimits {
                streams: config.streams_out,
                message_bytes_max: config.message_bytes_max,
            },
            peer_window: PeerWindow::closed(),
            refused: None,
            reneged_at: None,
            next_ssn: NextSsn::default(),
            streams_charge: ReceiveCharge::default(),
            open_record: None,
            writable_wanted: false,
            closing: false,
        }
    }

    /// Applies settings that may change while the association lives. Buffered messages stay, however small the buffer is now.
    /// Returns whether the buffer has the room that the user waits for.
    pub(crate) fn set_config(&mut self, config: &AssociationConfig) -> bool {
        self.buffer_bytes = config.send_buffer_bytes;
        self.limits.message_bytes_max = config.message_bytes_max;
        self.take_writable()
    }

    /// Ends the wait of the user for room, if the buffer has it now. Returns whether it has.
    pub(crate) fn take_writable(&mut self) -> bool {
        let writable = self.writable_wanted && self.buffered_bytes <= self.buffer_bytes_max() / 2;
        self.writable_wanted &= !writable;
        writable
    }

    /// Returns the size up to which the send buffer may be filled now.
    #[inline]
    fn buffer_bytes_max(&self) -> usize {
        self.pool.as_ref().map_or(self.buffer_bytes, |pool| self.buffer_bytes.min(pool.buffer_bytes_max()))
    }

    /// Notes that the user sends no more.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Sets whether new data takes all paths at once.
    pub(crate) fn set_multipath(&mut self, multipath: bool) {
        self.multipath = multipath;
    }

    #[inline]
    pub(crate) fn is_multipath(&self) -> bool {
        self.multipath
    }

    /// Takes window and streams from the peer's INIT or INIT ACK. The numbers of many streams need memory of `pool`, which bounds
    /// what peers make this side hold; without it there are fewer streams.
    pub(crate) fn set_peer(&mut self, window_bytes: usize, streams: u16, pool: Option<ReceivePool>) {
        self.peer_window.on_advertised(window_bytes);
        self.streams_charge = ReceiveCharge::new(pool);
        let beyond_bytes = NextSsn::bytes_max(streams) - NextSsn::bytes_max(streams.min(STREAMS_FREE));
        let has_memory = self.streams_charge.grow_exactly_to(beyond_bytes);
        self.limits.streams = if has_memory { streams } else { streams.min(STREAMS_FREE) };
    }

    /// Removes the messages that name streams which the peer does not allow, and returns them.
    pub(crate) fn take_beyond_streams(&mut self) -> Undelivered {
        let streams = self.limits.streams;
        let refused = self.pending.take_streams_from(streams);
        self.open_record = self.open_record.filter(|record| record.stream < streams);
        self.give_up(refused)
    }

    pub(crate) fn streams(&self) -> u16 {
        self.limits.streams
    }

    /// Returns whether the user has sent a part of a record, and not its end.
    pub(crate) fn has_open_record(&self) -> bool {
        self.open_record.is_some()
    }

    /// Returns the cumulative TSN that the peer has acknowledged.
    pub(crate) fn cumulative_tsn(&self) -> Tsn {
        tsn::wrap(self.outstanding.first_tsn() - 1)
    }

    /// Returns whether the peer has acknowledged nothing; `initial` is the first TSN of all.
    pub(crate) fn is_unacknowledged_since(&self, initial: Tsn) -> bool {
        self.outstanding.first_tsn() == tsn::start(initial) && self.outstanding.gap_acked() == 0
    }

    /// Returns whether no data was ever sent; `initial` is the first TSN of all.
    pub(crate) fn is_unsent_since(&self, initial: Tsn) -> bool {
        self.outstanding.next_tsn() == tsn::start(initial)
    }

    pub(crate) fn outstanding_chunks(&self) -> usize {
        self.outstanding.chunks()
    }

    pub(crate) fn peer_window_bytes(&self) -> usize {
        self.peer_window.bytes(self.outstanding.in_flight_payload_bytes())
    }

    /// Returns the window that the peer has advertised last: it includes the room of the data in flight.
    pub(crate) fn advertised_window_bytes(&self) -> usize {
        self.peer_window.advertised_bytes()
    }

    /// Returns whether a chunk in flight probes a closed window, so that the peer may rightly not acknowledge it.
    pub(crate) fn probes_window(&self) -> bool {
        self.peer_window.is_probed()
    }

    /// Returns whether the peer has answered the probe of its closed window, and has no room for it.
    pub(crate) fn window_probe_was_refused(&self) -> bool {
        self.peer_window.has_refused()
    }

    /// Returns when a closed window must be probed.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        self.peer_window.probe_at()
    }

    /// Handles the expiry of [`Outbound::probe_at`].
    pub(crate) fn on_window_probe_timer(&mut self) {
        self.peer_window.on_probe_timer();
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    pub(crate) fn in_flight_payload_bytes(&self) -> usize {
        self.outstanding.in_flight_payload_bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.outstanding.chunks() == 0
    }

    /// Gives blocks away if no message waits or is outstanding.
    #[inline]
    pub(crate) fn give_blocks(&mut self, free: &mut FreeBlocks) {
        if self.is_empty() {
            self.pending.give_blocks(free);
        }
    }

    /// Frees the memory that the next message would need, if no message waits or is outstanding.
    pub(crate) fn free_idle_memory(&mut self) {
        if self.is_empty() {
            self.pending.free_block();
        }
    }

    /// Returns a TSN of this side, and the TSN of the next new chunk (both unwrapped).
    pub(crate) fn place_of(&self, tsn: Tsn) -> (u64, u64) {
        (tsn::unwrap(self.outstanding.first_tsn(), tsn), self.outstanding.next_tsn())
    }

    /// Returns the path that last carried an outstanding chunk.
    pub(crate) fn path_of(&self, tsn: u64) -> Option<PathId> {
        self.outstanding.path_of(tsn)
    }

    /// Returns whether anything waits to be sent or retransmitted.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.pending.is_empty() || self.outstanding.has_lost()
    }

    /// Returns the path that the next message names. A retransmission takes any path.
    #[inline]
    pub(crate) fn wanted_path(&self) -> Option<PathId> {
        if self.outstanding.has_lost() { None } else { self.pending.named_path() }
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.outstanding.has_lost()
    }

    #[inline]
    pub(crate) fn pending_wire_bytes(&self) -> usize {
        self.pending.wire_bytes()
    }

    /// Returns whether a message of `bytes` fits the buffer; if not, the user is told when there is room. A message longer than
    /// the buffer fits when it is empty.
    #[inline]
    pub(crate) fn ask_for_room(&mut self, bytes: usize) -> bool {
        let fits = self.buffered_bytes == 0
            || self.buffered_bytes + bytes + MESSAGE_OVERHEAD_BYTES <= self.buffer_bytes_max();
        self.writable_wanted |= !fits;
        fits
    }

    /// Checks whether a message with this description can be sent at all.
    #[inline]
    pub(crate) fn check(&self, info: &SendInfo, bytes: usize) -> Result<(), SendError> {
        self.limits.check(info, bytes)?;
        match self.open_record {
            // The fragments of a record have consecutive TSNs (RFC 9260 §6.9), so nothing fits in between.
            Some(open) if open.stream != info.stream || open.unordered != info.unordered => {
                Err(SendError::RecordOpen { stream: open.stream })
            }
            _ => Ok(()),
        }
    }

    /// Queues one message, given in blocks. [`Outbound::check`] has found it valid. Borrowed bytes are those of a message that
    /// [`is_copied`], or is short; others are copied to the others that wait up to `owned_copied_bytes_max`.
    #[inline]
    pub(crate) fn queue<B: Block>(
        &mut self,
        now: Time,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = B>,
        owned_copied_bytes_max: impl FnOnce() -> usize,
        free: &mut FreeBlocks,
    ) {
        let is_copied = is_plain(info) && (!B::IS_OWNED || bytes <= owned_copied_bytes_max());
        if self.open_record.is_none() && is_copied {
            self.pending.push_short(info, bytes, blocks, self.buffered_bytes, free);
        } else {
            self.queue_blocks(now, info, bytes, blocks, free);
        }
        self.buffered_bytes += bytes + MESSAGE_OVERHEAD_BYTES;
    }

    /// Lends the end of the queue. With another `due_from_bytes` wire bytes the messages are to leave.
    #[inline]
    pub(crate) fn lend_stage(
        &mut self,
        id: AssociationId,
        due_from_bytes: usize,
        copied_bytes_max: usize,
    ) -> Option<Stage> {
        if self.open_record.is_some() {
            return None;
        }
        let limits = StageLimits {
            room_bytes: self.buffer_bytes_max().saturating_sub(self.buffered_bytes),
            due_from_bytes,
            copied_bytes_max,
            messages: self.limits,
        };
        Some(Stage::new(id, self.pending.lend_tail(), limits))
    }

    /// Takes the end of the queue back, with the messages that were appended.
    #[inline]
    pub(crate) fn return_stage(&mut self, stage: Stage) {
        self.buffered_bytes += stage.buffered_bytes();
        let (short, appended_bytes) = stage.into_short();
        self.pending.return_tail(short, appended_bytes);
    }

    /// Returns whether the send buffer has room for a batch. If not, the user is told when it has.
    pub(crate) fn ask_for_batch_room(&mut self, batch: &Batch) -> bool {
        self.ask_for_room(batch.buffered_bytes().saturating_sub(MESSAGE_OVERHEAD_BYTES))
    }

    /// Checks whether the messages of a batch can be sent at all.
    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<(), SendError> {
        if let Some(open) = self.open_record {
            return Err(SendError::RecordOpen { stream: open.stream });
        }
        let (info, bytes) = batch.most_demanding();
        self.limits.check(&info, bytes)
    }

    /// Queues the messages of a batch, which [`Outbound::check_batch`] has found valid, and empties it.
    pub(crate) fn queue_batch(&mut self, batch: &mut Batch, free: &mut FreeBlocks) {
        self.buffered_bytes += batch.buffered_bytes();
        let short = batch.take();
        let bytes = short.wire.len();
        self.pending.push_batch(short);
        batch.renew_block(bytes, |spent, bytes| self.pending.exchange_block(spent, bytes, free));
    }

    /// Queues a message, or a part of one. Its bytes stay where they are, except for those of short parts and of short messages
    /// with a lifetime: they may lie in memory that the messages of all associations share, and keep it.
    fn queue_blocks<B: Block>(
        &mut self,
        now: Time,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = B>,
        free: &mut FreeBlocks,
    ) {
        let mut beginning = self.open_record.is_none();
        let stands_alone = beginning && is_plain(info);
        let copies = bytes <= SHORT_BYTES_MAX && !(B::IS_OWNED && stands_alone);
        let is_charged = !(B::IS_OWNED && self.owned.owners_charge());
        if let Some(lifetime) = info.lifetime.filter(|_| beginning && !info.more) {
            self.pending.expect_expiry(now + Duration::from(lifetime));
        }
        self.open_record = info.more.then_some(OpenRecord { stream: info.stream, unordered: info.unordered });
        let mut blocks = blocks.into_iter().filter(|block| !block.as_ref().is_empty()).peekable();
        while let Some(block) = blocks.next() {
            let mut message;
            if copies {
                let (payload, charge) = self.pending.copy(block.as_ref(), self.buffered_bytes, free);
                message = Message::new(payload, info, beginning);
                // The block has the charge of the bytes, and the message stands alone in the queue.
                (message.charge, message.owned_bytes) = (charge, MESSAGE_OVERHEAD_BYTES as u32);
            } else {
                message = Message::new(block.into_bytes(), info, beginning);
                if !is_charged {
                    message.owned_bytes = 0;
                }
            }
            self.owned.charge(message.owned_bytes as usize);
            if blocks.peek().is_none() {
                message.end(info);
            }
            self.pending.push(message);
            beginning = false;
        }
    }

    /// Returns when the lifetime of the next message ends.
    #[inline]
    pub(crate) fn expires_at(&self) -> Option<Time> {
        self.pending.expires_at()
    }

    /// Discards up to `limit` messages at the front whose lifetime has ended, and returns them with their number. With
    /// `keeps` they stay and lose their lifetimes.
    pub(crate) fn take_expired(&mut self, now: Time, keeps: bool, limit: usize) -> (Undelivered, u64) {
        let expired = self.pending.take_expired(now, keeps, limit);
        let messages = expired.iter().filter(|message| message.flags.ending).count() as u64;
        (self.give_up(expired), messages)
    }

    /// Frees what chunks took that were acknowledged.
    #[inline]
    fn on_freed(&mut self, freed: Taken) {
        self.buffered_bytes -= freed.buffered_bytes;
        self.owned.release(freed.owned_bytes);
    }

    /// Frees the room of messages that were queued and will not be sent.
    fn give_up(&mut self, unsent: Vec<Message>) -> Undelivered {
        let mut taken = Taken::default();
        unsent.iter().for_each(|message| taken += message.taken());
        self.buffered_bytes -= taken.buffered_bytes;
        let owned = self.owned.split_off(taken.owned_bytes);
        Undelivered::new(VecDeque::new(), unsent.into_iter().map(Waiting::Message).collect(), owned)
    }

    /// Returns everything that the peer may not have received.
    pub(crate) fn into_undelivered(self) -> Undelivered {
        Undelivered::new(self.outstanding.into_runs(), self.pending.into_queue(), self.owned)
    }

    /// Compares every total with a recount; for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn assert_counters(&self, paths: &Paths) {
        self.outstanding.assert_totals(paths);
        let (mut taken, wire_bytes) = self.pending.recount();
        taken += self.outstanding.taken();
        assert_eq!(taken.buffered_bytes, self.buffered_bytes);
        self.owned.assert_bytes(taken.owned_bytes);
        assert_eq!(wire_bytes, self.pending.wire_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_lies_in_a_block_is_copied_if_a_packet_has_room_for_three() {
        for (payload_bytes_max, bytes, copied) in
            [(1456, 485, true), (1456, 486, false), (65_000, 2047, true), (65_000, 2048, false)]
        {
            let mut outbound = Outbound::new(Tsn(1), &AssociationConfig::default());
            let limit = || owned_copied_bytes_max(payload_bytes_max);
            let blocks = [Bytes::from(vec![7; bytes])];
            let free = &mut FreeBlocks::default();
            outbound.queue(Time::ZERO, &SendInfo::default(), bytes, blocks, limit, free);
            assert_eq!(outbound.pending.next().map(|next| next.is_short), Some(copied), "{bytes} bytes");
        }
    }
}
