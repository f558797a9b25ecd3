//! Received data: TSNs, stream order, the receive window, and acknowledgements.
//!
//! | file | owns |
//! |---|---|
//! | `acknowledgement` | when a SACK is due, and the duplicates that it reports |
//! | `window` | the receive window as the peer knows it, and the credit that the reader keeps |
//!
//! The other files are procedures on the state of [`Inbound`]: `run` and `delivery` for what arrives, `memory` and `renege` for
//! room, `sack` for the contents of a SACK.

mod acknowledgement;
mod delivery;
mod memory;
mod renege;
mod run;
mod sack;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use sctp_message::RecvInfo;
use sctp_wire::Tsn;
use sctp_wire::chunk::Data;

use crate::config::{AssociationConfig, GAP_RANGES_MAX};
use crate::event::Host;
use crate::extensions::Extensions;
use crate::identifiers::AssociationId;
use crate::range_set::RangeSet;
use crate::reassembly::{Assembled, Fragment, FragmentError, Reassembly};
use crate::receive_buffer::{
    Held, OVERHEAD_FREE_BYTES, RECEIVED_OVERHEAD_BYTES, RESTARTS_BYTES, ReceiveBuffer,
};
use crate::receive_pool::ReceiveCharge;
use crate::statistics::Statistics;
use crate::stream_table::StreamTable;
use crate::time::Time;
use crate::tsn;
use acknowledgement::Acknowledgement;
use window::Window;

/// Fate of a DATA chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Taken,
    Duplicate,
    /// There was no room: the chunk counts as not received.
    Dropped,
    /// Acknowledged and discarded: the stream does not exist (RFC 9260 §6.5).
    NoSuchStream,
}

/// Room that a DATA chunk lacks.
#[derive(PartialEq, Eq)]
enum Shortage {
    /// In the receive buffer of the association.
    Buffer,
    /// In the pool of several associations.
    Pool,
    /// In the memory for the numbers of streams.
    StreamNumbers,
}

/// The association around its receiving side, lent to the procedures that deliver messages.
pub(crate) struct ReceiveContext<'a, H: Host + ?Sized> {
    pub(crate) id: AssociationId,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) host: &'a mut H,
}

#[derive(Debug)]
pub(crate) struct Inbound {
    /// Whether the peer accepts NR-SACKs.
    nr_sack: bool,
    /// Whether the I bit in the middle of a message says that there is no more of it for now.
    prompt_parts: bool,
    /// The cumulative TSN: all TSNs up to this one have arrived (unwrapped).
    cumulative: u64,
    /// TSNs received beyond the cumulative one.
    beyond: RangeSet,
    /// Place in `beyond` where the last search ended.
    near: usize,
    streams: u16,
    next_ssn: StreamTable<u16>,
    /// Memory of `next_ssn` that was taken from the pool.
    streams_charge: ReceiveCharge,
    /// Complete ordered messages that wait for an earlier one of their stream, by stream and SSN. One tree holds the messages of
    /// all streams: a tree for each stream would take twenty times the charge of a short message.
    waiting: BTreeMap<(u16, u16), Box<Assembled>>,
    /// Those of them that arrived beyond a gap that is still open: stream and SSN, by the first TSN (unwrapped).
    waiting_beyond: BTreeMap<u64, (u16, u16)>,
    reassembly: Reassembly,
    /// Stream and SSN of the record that was delivered in part and whose end has not arrived. No other message may come between
    /// its parts.
    open_record: Option<(u16, u16)>,
    /// Messages that wait for the end of the open record.
    behind: VecDeque<Assembled>,
    /// Data that was not read yet: here, and in the reader's queues.
    held: Held,
    /// Memory that was taken from the pool.
    charge: ReceiveCharge,
    /// Highest TSN (unwrapped) that an NR-SACK has acknowledged for good: received chunks up to this TSN are kept.
    promised: u64,
    buffer: ReceiveBuffer,
    partial_delivery_bytes: usize,
    /// Whether a run of the current packet found no room: the rest of its chunks are handled one by one.
    packet_had_refused_run: bool,
    /// Whether the peer has sent all that it has of an unfinished record for now.
    part_wanted: bool,
    window: Window,
    acknowledgement: Acknowledgement,
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
            prompt_parts: extensions.prompt_parts,
            cumulative: tsn::start(peer_initial) - 1,
            beyond: RangeSet::new(),
            near: 0,
            streams,
            next_ssn: StreamTable::new(),
            streams_charge: ReceiveCharge::new(config.receive_pool.clone()),
            waiting: BTreeMap::new(),
            waiting_beyond: BTreeMap::new(),
            reassembly: Reassembly::default(),
            open_record: None,
            behind: VecDeque::new(),
            held: Held::default(),
            charge: ReceiveCharge::new(config.receive_pool.clone()),
            promised: 0,
            buffer: ReceiveBuffer::new(config.receive_buffer_bytes, config.receive_buffer_tuned_bytes),
            partial_delivery_bytes: config.partial_delivery_bytes.min(config.receive_buffer_bytes / 2),
            packet_had_refused_run: false,
            part_wanted: false,
            window: Window::new(config.receive_buffer_bytes),
            acknowledgement: Acknowledgement::new(config.sack_frequency),
        }
    }

    /// Applies the options that may change during an association. The advertised window stays.
    pub(crate) fn set_config(&mut self, config: &AssociationConfig) {
        self.buffer.set_bounds(config.receive_buffer_bytes, config.receive_buffer_tuned_bytes);
        self.partial_delivery_bytes = config.partial_delivery_bytes.min(config.receive_buffer_bytes / 2);
        self.acknowledgement.set_sack_frequency(config.sack_frequency);
    }

    /// Sets whether data arrives on several paths at once.
    pub(crate) fn set_multipath(&mut self, multipath: bool) {
        self.acknowledgement.set_multipath(multipath);
    }

    pub(crate) fn streams(&self) -> u16 {
        self.streams
    }

    /// Returns whether a part of a record was delivered, and not its end.
    pub(crate) fn has_open_record(&self) -> bool {
        self.open_record.is_some()
    }

    pub(crate) fn held(&self) -> Held {
        self.held
    }

    pub(crate) fn withheld_bytes(&self) -> usize {
        self.window.withheld_bytes()
    }

    /// Returns the memory for gaps and streams, which is not part of the buffer. Their numbers bound it.
    pub(crate) fn state_bytes(&self) -> usize {
        self.beyond.heap_bytes() + self.next_ssn.heap_bytes()
    }

    /// Returns whether waiting fragments may be in receive blocks.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.reassembly.is_attached()
    }

    /// Copies waiting fragments out of their receive blocks.
    pub(crate) fn detach(&mut self) {
        self.reassembly.detach();
    }

    /// Returns the number of bytes that are unread, or held by the reader.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.held.total_bytes() + self.window.withheld_bytes()
    }

    /// Handles one DATA chunk of `datagram`.
    #[inline]
    pub(crate) fn handle_data<H: Host + ?Sized>(
        &mut self,
        cx: &mut ReceiveContext<'_, H>,
        data: &Data<'_>,
        datagram: &Bytes,
    ) -> Result<Outcome, FragmentError> {
        self.acknowledgement.on_chunks(data.flags.immediate);
        self.part_wanted |= self.prompt_parts && data.flags.immediate && !data.flags.ending;
        let tsn = tsn::unwrap(self.cumulative, data.tsn);
        let in_order = tsn == self.cumulative + 1;
        if let Err(shortage) = self.admit(data, in_order) {
            if in_order && shortage == Shortage::Pool {
                self.deliver_part(cx);
            }
            return Ok(self.drop_chunk(cx.statistics));
        }
        if in_order && self.beyond.is_empty() {
            self.cumulative = tsn;
        } else if let Err(outcome) = self.record(tsn, data.tsn, cx.statistics) {
            return Ok(outcome);
        }
        self.acknowledgement.on_taken(data.payload.len());
        self.window.on_taken(data.payload.len());
        cx.statistics.data_chunks_received += 1;
        cx.statistics.unordered_chunks_received += u64::from(data.flags.unordered);
        if data.stream.0 >= self.streams {
            // This TSN may have been the missing one.
            if in_order && !self.beyond.is_empty() {
                self.close_gap(cx)?;
            }
            return Ok(Outcome::NoSuchStream);
        }
        self.held.add(Held::of(data.payload.len(), 1));
        let fragment = self.fragment(data, datagram);
        self.assemble(cx, tsn, in_order, fragment)?;
        if in_order && !self.beyond.is_empty() {
            self.close_gap(cx)?;
        }
        self.deliver_due_part(cx);
        Ok(Outcome::Taken)
    }

    /// Finds room for a DATA chunk. A chunk that fills a gap takes precedence: chunks with higher TSNs are dropped for it.
    #[inline]
    fn admit(&mut self, data: &Data<'_>, in_order: bool) -> Result<(), Shortage> {
        // The advertised window does not include the overhead of messages, so a peer that fills it can send more than fits. What
        // is too much is dropped and retransmitted later (RFC 9260 §6.2).
        if self.is_full_with(self.held) && !(in_order && self.renege()) {
            return Err(Shortage::Buffer);
        }
        if !self.has_memory(in_order, data.payload.len()) && !self.find_memory(in_order, data.payload.len()) {
            return Err(Shortage::Pool);
        }
        if !data.flags.unordered && !self.reserve_stream(data.stream.0) {
            return Err(Shortage::StreamNumbers);
        }
        Ok(())
    }

    /// Counts a chunk that is dropped for lack of room. A SACK tells the peer at once.
    #[cold]
    fn drop_chunk(&mut self, statistics: &mut Statistics) -> Outcome {
        statistics.data_chunks_dropped += 1;
        self.acknowledgement.on_dropped();
        Outcome::Dropped
    }

    /// Returns the fragment in a DATA chunk of `datagram`.
    #[inline]
    fn fragment(&self, data: &Data<'_>, datagram: &Bytes) -> Fragment {
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
        Fragment { info, beginning: data.flags.beginning, ending: data.flags.ending, payload }
    }

    /// Adds a fragment to its message, and delivers the message if that completes it.
    #[inline]
    fn assemble<H: Host + ?Sized>(
        &mut self,
        cx: &mut ReceiveContext<'_, H>,
        tsn: u64,
        in_order: bool,
        fragment: Fragment,
    ) -> Result<(), FragmentError> {
        if fragment.beginning && fragment.ending {
            if in_order && self.reassembly.is_open() {
                return Err(FragmentError("a new message inside an unfinished one"));
            }
            self.complete_whole(cx, fragment.info, fragment.payload);
            return Ok(());
        }
        let complete = if in_order {
            self.reassembly.in_order(tsn, fragment)?
        } else {
            self.reassembly.out_of_order(tsn, fragment)?
        };
        if let Some(message) = complete {
            cx.statistics.messages_reassembled += 1;
            self.complete(cx, message);
        }
        Ok(())
    }

    pub(crate) fn cumulative_tsn(&self) -> Tsn {
        tsn::wrap(self.cumulative)
    }

    /// Records a TSN that is not the next one, or arrives while there are gaps. Fails if the TSN is a duplicate, or has no room.
    fn record(&mut self, tsn: u64, wire: Tsn, statistics: &mut Statistics) -> Result<(), Outcome> {
        self.acknowledgement.on_out_of_order();
        if tsn <= self.cumulative || self.beyond.contains_near(tsn, &mut self.near) {
            self.acknowledgement.on_duplicate(wire);
            statistics.duplicates_received += 1;
            return Err(Outcome::Duplicate);
        }
        if tsn == self.cumulative + 1 {
            self.cumulative = tsn;
            return Ok(());
        }
        // Chunks beyond the reach of gap blocks would be retransmitted anyway. The limit also keeps the SSNs of waiting messages
        // from wrapping.
        let reportable = tsn - self.cumulative <= u64::from(u16::MAX);
        // Room is reserved for the chunk that closes the gap.
        let full = self.taken_bytes() >= self.buffer.bytes() / 2 * 3;
        if !reportable || self.beyond.range_count() >= GAP_RANGES_MAX || full {
            return Err(self.drop_chunk(statistics));
        }
        statistics.out_of_sequence_received += 1;
        self.beyond.insert(tsn);
        Ok(())
    }

    /// Advances the cumulative TSN over chunks received beyond the gap that has closed.
    fn close_gap<H: Host + ?Sized>(&mut self, cx: &mut ReceiveContext<'_, H>) -> Result<(), FragmentError> {
        if let Some(end) = self.beyond.take_range_at(self.cumulative + 1) {
            self.cumulative = end - 1;
            while self.waiting_beyond.first_key_value().is_some_and(|(&start, _)| start < end) {
                self.waiting_beyond.pop_first();
            }
            if let Some(message) = self.reassembly.advance(self.cumulative)? {
                cx.statistics.messages_reassembled += 1;
                self.complete(cx, message);
            }
        }
        Ok(())
    }

    /// Ends the handling of a packet, which may make a SACK due. Returns whether the packet contained DATA. `rtt` is the
    /// round-trip time of its path.
    pub(crate) fn end_packet(&mut self, now: Time, sack_delay: Duration, rtt: Option<Duration>) -> bool {
        let had_data = self.acknowledgement.end_packet(now, sack_delay, !self.beyond.is_empty());
        if had_data {
            if self.may_stop_peer() {
                self.acknowledgement.request();
            }
            self.buffer.tune(now, rtt);
            self.packet_had_refused_run = false;
        }
        had_data
    }

    /// Returns whether a SACK must leave now.
    #[inline]
    pub(crate) fn ack_due(&self) -> bool {
        self.acknowledgement.is_due() || self.window.has_opened()
    }

    /// Returns whether a SACK may be bundled with DATA.
    #[inline]
    pub(crate) fn ack_waits(&self) -> bool {
        self.acknowledgement.is_waiting() || self.window.has_opened()
    }

    /// Returns when the delayed SACK leaves.
    pub(crate) fn ack_deadline(&self) -> Option<Time> {
        self.acknowledgement.delayed_until()
    }

    /// Handles the timer of the delayed SACK.
    pub(crate) fn on_ack_timer(&mut self) {
        self.acknowledgement.on_timer();
    }

    /// Requests a SACK in the next packet.
    pub(crate) fn request_ack(&mut self) {
        self.acknowledgement.request();
    }

    /// Returns whether no DATA has arrived yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.acknowledgement.is_untouched()
    }

    /// Returns the unread data, for a restart of the peer. Messages that wait here for missing ones are lost: behind an
    /// open record the reader would mistake them for its end.
    pub(crate) fn unread_at_restart(&self) -> Held {
        let mut held = self.held;
        let waiting = self.waiting.values().map(Box::as_ref).chain(&self.behind);
        waiting.for_each(|message| held.remove(Held::of(message.bytes, message.chunks)));
        let (bytes, chunks) = self.reassembly.held();
        held.remove(Held::of(bytes, chunks));
        held
    }

    /// Returns whether one more event may be queued for the reader.
    pub(crate) fn has_room_for_event(&mut self) -> bool {
        let held_bytes = self.held.total_bytes();
        held_bytes <= 2 * self.buffer.bytes() && self.charge_in_order(held_bytes + RECEIVED_OVERHEAD_BYTES)
    }

    /// Returns whether a restart may be reported to the reader, in addition to its unread data. Data that fills the buffer leaves
    /// room for some restarts: a peer must be able to return while the reader pauses.
    pub(crate) fn has_room_for_restart(&mut self) -> bool {
        let unread = self.unread_at_restart();
        let full_bytes = (2 * self.buffer.bytes()).max(OVERHEAD_FREE_BYTES);
        unread.window_bytes() <= full_bytes + RESTARTS_BYTES
            && self.charge_in_order(unread.total_bytes() + RECEIVED_OVERHEAD_BYTES)
    }

    /// Counts data that the reader has not taken yet: messages of an earlier peer, and events.
    pub(crate) fn charge(&mut self, held: Held) {
        self.held.add(held);
        // Without memory in the pool, further optional events are dropped, and restarts refused.
        self.charge_in_order(self.held.total_bytes());
    }

    /// Delivers what has arrived of a message that was delivered in part, when the peer sends no more. Other messages stay
    /// undelivered: the reader would mistake incomplete ones for complete ones, and those behind the open record for its end.
    pub(crate) fn deliver_open_record<H: Host + ?Sized>(&mut self, cx: &mut ReceiveContext<'_, H>) {
        if !self.reassembly.is_partly_delivered() {
            return;
        }
        self.deliver_part(cx);
    }
}
