//! Received data: TSNs, the receive window, stream order, and acknowledgements.

mod memory;
mod renege;
mod run;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use sctp_message::RecvInfo;
use sctp_wire::Tsn;
use sctp_wire::chunk::{Data, NR_SACK_HEADER_BYTES, NrSackBuilder, SACK_HEADER_BYTES, SackBuilder};
use smallvec::{SmallVec, smallvec};

use crate::config::{AssociationConfig, DUPLICATES_MAX, GAP_RANGES_MAX};
use crate::event::{Host, Payload};
use crate::extensions::Extensions;
use crate::identifiers::AssociationId;
use crate::range_set::RangeSet;
use crate::reassembly::{Assembled, Fragment, FragmentError, Reassembly};
use crate::receive_buffer::{Held, ReceiveBuffer};
use crate::receive_pool::ReceiveCharge;
use crate::statistics::Statistics;
use crate::stream_table::StreamTable;
use crate::time::Time;
use crate::tsn;

/// Bytes of DATA that count as one packet with regard to when a SACK is due: a packet of Ethernet (RFC 9260 §6.2: a SACK at
/// least for every second packet), so that one 64 KB packet on loopback does not wait for another.
const ACKED_PACKET_BYTES: usize = 1452;

/// No SACK waits longer than that, whatever was set (RFC 9260 §6.2).
const SACK_DELAY_MAX: Duration = Duration::from_millis(500);

/// Nor does one that reports a gap, where data comes on several paths: it could be a loss after all.
const GAP_SACK_DELAY_MAX: Duration = Duration::from_millis(2);

/// The first packets with data are acknowledged at once, so that a short association does not wait for a timer.
const QUICK_ACKS: u8 = 8;

/// The window grows in the peer's eyes only by this much or half of the buffer, whichever is less (RFC 1122 §4.2.3.3).
const WINDOW_STEP_BYTES: usize = 1452;

/// The parts that follow the first of a message are so much smaller than it.
const PARTS_OF_DELIVERY_POINT: usize = 8;

/// A message of at most this size that came in parts is put together: that costs less than a list of parts.
const JOINED_BYTES_MAX: usize = 4096;
/// So is a longer one whose parts are smaller than this on average: the list would be a large part of what it holds.
const LISTED_PART_BYTES_MIN: usize = 512;

/// Fate of a DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Taken,
    Duplicate,
    /// No room; it is as if it had not arrived.
    Dropped,
    /// Acknowledged and thrown away: the stream does not exist (RFC 9260 §6.5).
    NoSuchStream,
}

#[derive(Debug)]
pub(crate) struct Inbound {
    /// The peer takes NR-SACKs.
    nr_sack: bool,
    /// Data comes on several paths at once, so a gap is no sign of a loss.
    multipath: bool,
    /// Every TSN up to this one has arrived (unwrapped).
    cumulative: u64,
    /// TSNs that arrived beyond the cumulative one.
    beyond: RangeSet,
    duplicates: Vec<Tsn>,
    streams: u16,
    next_ssn: StreamTable<u16>,
    /// Complete ordered messages that wait for an earlier one of their stream, by stream and number. One tree holds them all:
    /// a tree for each stream would take twenty times what a short message is charged.
    waiting: BTreeMap<(u16, u16), Box<Assembled>>,
    reassembly: Reassembly,
    /// A record was delivered in part and its end is not here yet: its stream and number. Nothing comes in between.
    open_record: Option<(u16, u16)>,
    /// Messages that wait for the end of that record.
    behind: VecDeque<Assembled>,
    /// Everything not yet read: here, and in the reader's queues.
    held: Held,
    /// The memory of the pool that may be held.
    charge: ReceiveCharge,
    /// Payload that the reader has taken without giving its room back.
    withheld_bytes: usize,
    /// The peer was promised that what has arrived up to this TSN stays (unwrapped).
    promised: u64,
    buffer: ReceiveBuffer,
    partial_delivery_bytes: usize,
    /// The window as the peer last heard of it, less what arrived since.
    advertised_bytes: usize,
    /// No DATA has come yet.
    untouched: bool,
    /// DATA bytes and packets that no SACK has covered.
    unacked_bytes: usize,
    unacked_packets: u32,
    packet_had_data: bool,
    /// There was no room for a run of the packet in hand: the rest of its chunks come one by one.
    packet_had_refused_run: bool,
    /// The peer has no more of an open record for now.
    part_wanted: bool,
    quick_acks: u8,
    /// So many packets with data make a SACK due at once.
    sack_frequency: u32,
    ack_now: bool,
    /// The reader has made so much room that the peer should hear of it now.
    window_opened: bool,
    ack_at: Option<Time>,
}

impl Inbound {
    pub(crate) fn new(
        peer_initial: Tsn,
        streams: u16,
        config: &AssociationConfig,
        extensions: Extensions,
    ) -> Self {
        Inbound {
            nr_sack: extensions.nr_sack,
            multipath: false,
            cumulative: tsn::start(peer_initial) - 1,
            beyond: RangeSet::new(),
            duplicates: Vec::new(),
            streams,
            next_ssn: StreamTable::new(),
            waiting: BTreeMap::new(),
            reassembly: Reassembly::default(),
            open_record: None,
            behind: VecDeque::new(),
            held: Held::default(),
            charge: ReceiveCharge::new(config.receive_pool.clone()),
            withheld_bytes: 0,
            promised: 0,
            buffer: ReceiveBuffer::new(config.receive_buffer_bytes, config.receive_buffer_tuned_bytes),
            partial_delivery_bytes: config.partial_delivery_bytes.min(config.receive_buffer_bytes / 2),
            advertised_bytes: config.receive_buffer_bytes,
            untouched: true,
            unacked_bytes: 0,
            unacked_packets: 0,
            packet_had_data: false,
            packet_had_refused_run: false,
            part_wanted: false,
            quick_acks: QUICK_ACKS,
            sack_frequency: config.sack_frequency,
            ack_now: false,
            window_opened: false,
            ack_at: None,
        }
    }

    /// Takes settings that may change while the association lives. What the peer was told of a window stays.
    pub(crate) fn set_config(&mut self, config: &AssociationConfig) {
        self.buffer.set_bounds(config.receive_buffer_bytes, config.receive_buffer_tuned_bytes);
        self.partial_delivery_bytes = config.partial_delivery_bytes.min(config.receive_buffer_bytes / 2);
        self.sack_frequency = config.sack_frequency;
    }

    /// Returns whether data comes on several paths at once.
    pub(crate) fn set_multipath(&mut self, multipath: bool) {
        self.multipath = multipath;
    }

    pub(crate) fn streams(&self) -> u16 {
        self.streams
    }

    pub(crate) fn held(&self) -> Held {
        self.held
    }

    pub(crate) fn withheld_bytes(&self) -> usize {
        self.withheld_bytes
    }

    /// Memory for gaps and streams, which takes no room of the buffer. Their numbers bound it.
    pub(crate) fn state_bytes(&self) -> usize {
        self.beyond.heap_bytes() + self.next_ssn.heap_bytes()
    }

    /// Returns whether fragments wait that may lie in receive blocks.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.reassembly.is_attached()
    }

    /// Copies fragments that wait out of their receive blocks.
    pub(crate) fn detach(&mut self) {
        self.reassembly.detach();
    }

    /// Returns the bytes that are unread, or held by the reader.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.held.total_bytes() + self.withheld_bytes
    }

    /// Returns the bytes that take room of the buffer.
    #[inline]
    fn taken_bytes(&self) -> usize {
        self.held.window_bytes() + self.withheld_bytes
    }

    /// Takes one DATA chunk of `datagram`.
    #[inline]
    pub(crate) fn handle_data<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        data: &Data<'_>,
        datagram: &Bytes,
        statistics: &mut Statistics,
        host: &mut H,
    ) -> Result<Outcome, FragmentError> {
        self.packet_had_data = true;
        self.ack_now |= data.flags.immediate;
        self.part_wanted |= data.flags.immediate && !data.flags.ending;
        let tsn = tsn::unwrap(self.cumulative, data.tsn);
        let in_order = tsn == self.cumulative + 1;
        // The window was advertised without the overhead of messages, so a peer that fills it can
        // bring more than fits; what is beyond twice the buffer comes again later (RFC 9260 §6.2). A chunk
        // that fills a gap comes first: higher TSNs make room for it.
        if self.taken_bytes() >= 2 * self.buffer.bytes() && !(in_order && self.renege()) {
            statistics.data_chunks_dropped += 1;
            self.ack_now = true;
            return Ok(Outcome::Dropped);
        }
        if !self.has_memory(in_order, data.payload.len()) && !self.find_memory(in_order, data.payload.len()) {
            statistics.data_chunks_dropped += 1;
            self.ack_now = true;
            if in_order {
                self.deliver_part(id, statistics, host);
            }
            return Ok(Outcome::Dropped);
        }
        if in_order && self.beyond.is_empty() {
            self.cumulative = tsn;
        } else if !self.record(tsn, data.tsn, statistics) {
            return Ok(if tsn <= self.cumulative || self.beyond.contains(tsn) {
                Outcome::Duplicate
            } else {
                Outcome::Dropped
            });
        }
        self.unacked_bytes += data.payload.len();
        self.advertised_bytes = self.advertised_bytes.saturating_sub(data.payload.len());
        statistics.data_chunks_received += 1;
        statistics.unordered_chunks_received += u64::from(data.flags.unordered);
        if data.stream.0 >= self.streams {
            // It may have been the one that was missing.
            if in_order && !self.beyond.is_empty() {
                self.close_gap(id, statistics, host)?;
            }
            return Ok(Outcome::NoSuchStream);
        }
        let info = RecvInfo {
            stream: data.stream.0,
            ssn: data.ssn.0,
            ppid: data.ppid.0,
            tsn: data.tsn.0,
            cumulative_tsn: tsn::wrap(self.cumulative).0,
            unordered: data.flags.unordered,
            more: false,
        };
        let payload = datagram.slice_ref(data.payload);
        self.held.add(Held::of(payload.len(), 1));
        if data.flags.beginning && data.flags.ending {
            if in_order && self.reassembly.is_open() {
                return Err(FragmentError("a new message inside an unfinished one"));
            }
            self.complete_whole(id, info, payload, statistics, host);
        } else {
            let fragment =
                Fragment { info, beginning: data.flags.beginning, ending: data.flags.ending, payload };
            let complete = if in_order {
                self.reassembly.in_order(tsn, fragment)?
            } else {
                self.reassembly.out_of_order(tsn, fragment)?
            };
            if let Some(message) = complete {
                statistics.messages_reassembled += 1;
                self.complete(id, message, statistics, host);
            }
        }
        if in_order && !self.beyond.is_empty() {
            self.close_gap(id, statistics, host)?;
        }
        let part_wanted = self.part_wanted && self.beyond.is_empty();
        if part_wanted
            || self.reassembly.current_bytes() >= self.next_part_bytes()
            || (self.reassembly.is_open() && self.is_short_of_memory())
        {
            self.part_wanted = false;
            self.deliver_part(id, statistics, host);
        }
        Ok(Outcome::Taken)
    }

    /// Returns how much of an unfinished message makes a part of it due. The reader of an open record has begun with it, so
    /// it gets the rest in smaller parts: a part that waits closes the window as long.
    fn next_part_bytes(&self) -> usize {
        match self.open_record {
            Some(_) => self.partial_delivery_bytes / PARTS_OF_DELIVERY_POINT,
            None => self.partial_delivery_bytes,
        }
    }

    /// All chunks of a packet were handled: decides when to acknowledge (RFC 9260 §6.2). Says whether there was
    /// DATA among them. `rtt`: the round trip of their path.
    pub(crate) fn end_packet(&mut self, now: Time, sack_delay: Duration, rtt: Option<Duration>) -> bool {
        if !self.packet_had_data {
            return false;
        }
        self.buffer.tune(now, rtt);
        (self.packet_had_data, self.packet_had_refused_run) = (false, false);
        self.untouched = false;
        self.unacked_packets += 1;
        if self.quick_acks > 0 {
            self.quick_acks -= 1;
            self.ack_now = true;
        }
        let gap = !self.beyond.is_empty();
        // With several paths a gap is no sign of a loss: it is reported with every second packet, or soon.
        let enough_bytes = ACKED_PACKET_BYTES * self.sack_frequency as usize;
        if self.unacked_packets >= self.sack_frequency
            || self.unacked_bytes >= enough_bytes
            || (gap && !self.multipath)
        {
            self.ack_now = true;
        }
        if !self.ack_now && self.ack_at.is_none() {
            let delay_max = if gap { GAP_SACK_DELAY_MAX } else { SACK_DELAY_MAX };
            self.ack_at = Some(now + sack_delay.min(delay_max));
        }
        true
    }

    /// The reader took `bytes`, and what so many messages are charged beside them. Returns whether the peer should hear of
    /// the wider window now.
    #[inline]
    pub(crate) fn consumed(&mut self, bytes: usize, charges: usize) -> bool {
        let read = Held::of(bytes, charges);
        self.held.remove(read);
        self.charge.trim(self.held.total_bytes());
        self.buffer.on_taken(read.total_bytes());
        self.window_opened |= self.window_has_opened();
        self.window_opened
    }

    /// The reader keeps the room of `bytes` that it has just taken.
    pub(crate) fn hold_window(&mut self, bytes: usize) {
        self.withheld_bytes += bytes;
        self.window_opened &= self.window_has_opened();
    }

    /// The reader gives room back that it has kept. Says whether the peer should hear of the wider window now.
    pub(crate) fn release_window(&mut self, bytes: usize) -> bool {
        self.withheld_bytes = self.withheld_bytes.saturating_sub(bytes);
        self.window_opened |= self.window_has_opened();
        self.window_opened
    }

    /// RFC 9260 §6.2: window updates avoid the silly window syndrome by coming in quarters.
    #[inline]
    fn window_has_opened(&self) -> bool {
        let opened_bytes = self.advertised_bytes + self.buffer.bytes() / 4;
        (self.buffer_room_bytes() >= opened_bytes && self.pool_room_bytes() >= opened_bytes)
            || self.pool_window_has_opened()
    }

    fn buffer_room_bytes(&self) -> usize {
        self.buffer.bytes().saturating_sub(self.taken_bytes())
    }

    fn window_bytes(&self) -> usize {
        self.buffer_room_bytes().min(self.pool_room_bytes())
    }

    /// The window to tell the peer: where the reader has made less room than is worth a packet, the peer hears
    /// nothing of it, or it would send in ever smaller pieces (RFC 9260 §6.2: the silly window syndrome).
    fn window_to_advertise_bytes(&self) -> usize {
        let window = self.window_bytes();
        let step = WINDOW_STEP_BYTES.min(self.buffer.bytes() / 2);
        if window < self.advertised_bytes + step { window.min(self.advertised_bytes) } else { window }
    }

    /// Returns whether a SACK must leave now.
    #[inline]
    pub(crate) fn ack_due(&self) -> bool {
        self.ack_now || self.window_opened
    }

    /// Returns whether a SACK may ride along with DATA.
    #[inline]
    pub(crate) fn ack_waits(&self) -> bool {
        self.ack_due() || self.unacked_packets > 0
    }

    pub(crate) fn ack_deadline(&self) -> Option<Time> {
        self.ack_at
    }

    pub(crate) fn ack_timer_expired(&mut self) {
        self.ack_at = None;
        self.ack_now = true;
    }

    /// A SACK leaves with the next packet.
    pub(crate) fn acknowledge_now(&mut self) {
        self.ack_now = true;
    }

    pub(crate) fn cumulative_tsn(&self) -> Tsn {
        tsn::wrap(self.cumulative)
    }

    /// Returns whether the next SACK is to promise that what it reports beyond a gap stays.
    fn promises(&self) -> bool {
        self.nr_sack && !self.beyond.is_empty()
    }

    /// Returns the least length of a SACK.
    pub(crate) fn sack_bytes_min(&self) -> usize {
        if self.promises() { NR_SACK_HEADER_BYTES } else { SACK_HEADER_BYTES }
    }

    /// Appends a SACK of at most `space` bytes (RFC 9260 §3.3.4) and counts everything as acknowledged.
    pub(crate) fn write_sack(&mut self, space: usize, out: &mut Vec<u8>) {
        let room = space.saturating_sub(self.sack_bytes_min()) / 4;
        // RFC 9260 §6.2: as many gaps as fit come first, duplicates get what is left.
        let gaps = self.gap_blocks(room);
        let duplicates = &self.duplicates[..self.duplicates.len().min(room - gaps.len())];
        let cum_tsn = self.cumulative_tsn();
        let window_bytes = self.window_to_advertise_bytes();
        let a_rwnd = u32::try_from(window_bytes).unwrap_or(u32::MAX);
        if self.promises() {
            self.promised = self.beyond.iter().next_back().map_or(self.promised, |last| last.end - 1);
            NrSackBuilder { cum_tsn, a_rwnd, nr_gap_blocks: &gaps, duplicates }.write(out);
        } else {
            SackBuilder { cum_tsn, a_rwnd, gap_blocks: &gaps, duplicates }.write(out);
        }
        self.duplicates.clear();
        self.advertised_bytes = window_bytes;
        self.unacked_bytes = 0;
        self.unacked_packets = 0;
        self.ack_now = false;
        self.window_opened = false;
        self.ack_at = None;
    }

    /// At most `room` gap blocks. The peer remembers what was promised, so if not all fit, it hears of those where
    /// something happens: where the first gap closes, and where new data arrives.
    fn gap_blocks(&self, room: usize) -> SmallVec<[(u16, u16); 16]> {
        let ranges = self.beyond.range_count();
        let left_out = ranges.saturating_sub(room);
        let low = if self.promises() && left_out > 0 { room / 2 } else { room };
        let blocks = self.beyond.iter().take(low).chain(self.beyond.iter().skip(low + left_out));
        // Nothing is recorded that these 16-bit offsets cannot reach.
        let offset = |tsn: u64| u16::try_from(tsn - self.cumulative).unwrap_or(u16::MAX);
        blocks.map(|range| (offset(range.start), offset(range.end - 1))).take(room).collect()
    }

    /// Records a TSN if there are gaps, or if it is not the next. Returns false if it is not new, or has no room.
    fn record(&mut self, tsn: u64, wire: Tsn, statistics: &mut Statistics) -> bool {
        self.ack_now |= !self.multipath;
        if tsn <= self.cumulative || self.beyond.contains(tsn) {
            self.ack_now = true;
            statistics.duplicates_received += 1;
            if self.duplicates.len() < DUPLICATES_MAX {
                self.duplicates.push(wire);
            }
            return false;
        }
        if tsn == self.cumulative + 1 {
            self.cumulative = tsn;
            return true;
        }
        // Chunks beyond the reach of gap blocks would have to be sent again anyway. The limit also keeps waiting stream sequence
        // numbers from wrapping.
        let reportable = tsn - self.cumulative <= u64::from(u16::MAX);
        // Room is left for what closes the gap.
        let full = self.taken_bytes() >= self.buffer.bytes() / 2 * 3;
        if !reportable || self.beyond.range_count() >= GAP_RANGES_MAX || full {
            statistics.data_chunks_dropped += 1;
            return false;
        }
        statistics.out_of_sequence_received += 1;
        self.beyond.insert(tsn)
    }

    /// The missing TSN came: what follows without a gap is in order now.
    fn close_gap<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        statistics: &mut Statistics,
        host: &mut H,
    ) -> Result<(), FragmentError> {
        if let Some(end) = self.beyond.take_range_at(self.cumulative + 1) {
            self.cumulative = end - 1;
            if let Some(message) = self.reassembly.advance(self.cumulative)? {
                statistics.messages_reassembled += 1;
                self.complete(id, message, statistics, host);
            }
        }
        Ok(())
    }

    /// A message that came in one chunk. Nearly always it is the next of its stream.
    #[inline]
    fn complete_whole<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        info: RecvInfo,
        payload: Bytes,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        let bytes = payload.len();
        if self.open_record.is_some() {
            let message = Assembled { info, parts: smallvec![payload], bytes, chunks: 1, rest: false };
            return self.complete(id, message, statistics, host);
        }
        if !info.unordered {
            let nobody_waits = self.waiting.is_empty();
            let next = self.next_ssn.get_mut(info.stream);
            if info.ssn != *next || !nobody_waits {
                let message = Assembled { info, parts: smallvec![payload], bytes, chunks: 1, rest: false };
                return self.complete(id, message, statistics, host);
            }
            *next = next.wrapping_add(1);
        }
        statistics.messages_received += 1;
        statistics.bytes_received += bytes as u64;
        host.message(id, &info, Payload::One(payload));
    }

    /// A whole message (or the last part of one): deliver it in stream order (RFC 9260 §6.6).
    #[inline]
    fn complete<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        message: Assembled,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        if message.info.unordered {
            return self.deliver(id, message, statistics, host);
        }
        let stream = message.info.stream;
        let next = self.next_ssn.get_mut(stream);
        if message.info.ssn != *next {
            return self.wait(message, statistics);
        }
        *next = next.wrapping_add(1);
        self.deliver(id, message, statistics, host);
        if !self.waiting.is_empty() {
            self.deliver_waiting(id, stream, statistics, host);
        }
    }

    /// Keeps a message until the earlier ones of its stream are here, in memory of its own. A second one with its number is
    /// of no use: it is thrown away with its bytes.
    fn wait(&mut self, mut message: Assembled, statistics: &mut Statistics) {
        match self.waiting.entry((message.info.stream, message.info.ssn)) {
            Entry::Vacant(entry) => {
                message.detach();
                entry.insert(Box::new(message));
            }
            Entry::Occupied(_) => {
                statistics.messages_discarded += 1;
                self.held.remove(Held::of(message.bytes, message.chunks));
            }
        }
    }

    fn deliver_waiting<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        stream: u16,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        loop {
            let next = *self.next_ssn.get_mut(stream);
            let Some(message) = self.waiting.remove(&(stream, next)) else { return };
            *self.next_ssn.get_mut(stream) = next.wrapping_add(1);
            self.deliver(id, *message, statistics, host);
        }
    }

    /// Hands on what there is of the message in order.
    fn deliver_part<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        if let Some(part) = self.reassembly.take_part() {
            self.deliver(id, part, statistics, host);
        }
    }

    /// Hands a message on, or a part of one; what comes while a record is delivered in parts waits for its end.
    #[inline]
    fn deliver<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        mut message: Assembled,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        if self.open_record.is_none() {
            self.open_record = message.info.more.then_some((message.info.stream, message.info.ssn));
            return self.hand_on(id, message, statistics, host);
        }
        if message.info.more {
            self.hand_on(id, message, statistics, host);
        } else if message.rest {
            self.hand_on(id, message, statistics, host);
            self.hand_on_behind(id, statistics, host);
        } else {
            message.detach();
            self.behind.push_back(message);
        }
    }

    #[cold]
    fn hand_on_behind<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        self.open_record = None;
        for message in std::mem::take(&mut self.behind) {
            self.hand_on(id, message, statistics, host);
        }
    }

    #[inline]
    fn hand_on<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        mut message: Assembled,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        message.info.cumulative_tsn = self.cumulative_tsn().0;
        // Held chunk by chunk until now, from here on as one message.
        self.held.remove(Held::of(0, message.chunks - 1));
        statistics.messages_received += 1;
        statistics.bytes_received += message.bytes as u64;
        let payload = match message.parts.as_slice() {
            [_] => message.parts.into_iter().next().map_or_else(|| Payload::Many(Vec::new()), Payload::One),
            parts if message.bytes <= JOINED_BYTES_MAX.max(parts.len() * LISTED_PART_BYTES_MIN) => {
                let joined = host.join(parts);
                self.reassembly.recycle(message.parts);
                Payload::One(joined)
            }
            _ => {
                let blocks = self.reassembly.hand_out(message.parts);
                host.message(id, &message.info, Payload::Many(blocks));
                return self.reassembly.recycle_memory(host.spare());
            }
        };
        host.message(id, &message.info, payload);
    }

    /// Returns whether nothing has come yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// The peer that all this came from is gone, another begins: what waits is no use. (What waits behind an open record
    /// would pass for its end.) Gives what the reader has yet to take.
    pub(crate) fn end(&self) -> Held {
        let mut held = self.held;
        let waiting = self.waiting.values().map(Box::as_ref).chain(&self.behind);
        waiting.for_each(|message| held.remove(Held::of(message.bytes, message.chunks)));
        let (bytes, chunks) = self.reassembly.held();
        held.remove(Held::of(bytes, chunks));
        held
    }

    /// Returns whether one more event may wait to be read.
    pub(crate) fn has_room_for_event(&self) -> bool {
        self.held.total_bytes() <= 2 * self.buffer.bytes() && self.has_memory(true, 0)
    }

    /// Returns whether what the peer has not acknowledged may come back to the reader with a restart, beside what it has yet to
    /// take.
    pub(crate) fn has_room_for_restart(&self) -> bool {
        self.end().total_bytes() <= 2 * self.buffer.bytes()
    }

    /// The record that was delivered in part and whose end will not come: its stream and number.
    pub(crate) fn take_open_record(&mut self) -> Option<(u16, u16)> {
        self.open_record.take()
    }

    /// Counts what the reader has not yet taken: of an earlier peer's messages, and of events.
    pub(crate) fn charge(&mut self, held: Held) {
        self.held.add(held);
        // Without memory in the pool, no further event that can be left out is told.
        self.charge.grow_to(self.held.total_bytes());
    }

    /// Delivers what is left of a message whose delivery in parts has begun, when the peer sends no more. A message that has
    /// not begun to be delivered is dropped: without its end it would pass for a whole one. Data behind an open
    /// record is dropped, too: it would pass for the end of that record.
    pub(crate) fn take_rest<H: Host + ?Sized>(
        &mut self,
        id: AssociationId,
        statistics: &mut Statistics,
        host: &mut H,
    ) {
        if !self.reassembly.is_partly_delivered() {
            return;
        }
        self.deliver_part(id, statistics, host);
    }
}
