//! Delivery of messages to the host: in stream order, whole or in parts.

use std::collections::btree_map::Entry;

use bytes::Bytes;
use sctp_message::RecvInfo;
use sctp_wire::Tsn;
use smallvec::smallvec;

use super::{Inbound, ReceiveContext};
use crate::event::{Host, Payload};
use crate::reassembly::Assembled;
use crate::receive_buffer::Held;
use crate::statistics::Statistics;
use crate::tsn;

/// Divisor of the partial delivery point for the parts of a message after the first.
const PARTS_OF_DELIVERY_POINT: usize = 8;

/// Maximum size of a message in parts that is always joined, because joining costs less than a list of parts.
const JOINED_BYTES_MAX: usize = 4096;

/// Average size of parts below which a longer message is joined, too, because the list would take a large part of its memory.
const LISTED_PART_BYTES_MIN: usize = 512;

impl Inbound {
    /// Returns the number of bytes of an unfinished message that make a part due. The reader of an open record has begun to read
    /// it, so it gets the rest in smaller parts: a part that waits closes the window for as long.
    pub(super) fn next_part_bytes(&self) -> usize {
        match self.open_record {
            Some(_) => self.partial_delivery_bytes / PARTS_OF_DELIVERY_POINT,
            None => self.partial_delivery_bytes,
        }
    }

    /// Handles a message that arrived in one chunk. It is nearly always the next of its stream.
    #[inline]
    pub(super) fn complete_whole<H: Host + ?Sized>(
        &mut self,
        cx: &mut ReceiveContext<'_, H>,
        info: RecvInfo,
        payload: Bytes,
    ) {
        let bytes = payload.len();
        if self.open_record.is_some() {
            let message = Assembled { info, parts: smallvec![payload], bytes, chunks: 1, rest: false };
            return self.complete(cx, message);
        }
        if !info.unordered {
            let none_waits = self.waiting.is_empty();
            let next = self.next_ssn.get_mut(info.stream);
            if info.ssn != *next || !none_waits {
                let message = Assembled { info, parts: smallvec![payload], bytes, chunks: 1, rest: false };
                return self.complete(cx, message);
            }
            *next = next.wrapping_add(1);
        }
        cx.statistics.messages_received += 1;
        cx.statistics.bytes_received += bytes as u64;
        cx.host.message(cx.id, &info, Payload::One(payload));
    }

    /// Handles a whole message, or the last part of one: delivers it in stream order (RFC 9260 §6.6).
    #[inline]
    pub(super) fn complete<H: Host + ?Sized>(&mut self, cx: &mut ReceiveContext<'_, H>, message: Assembled) {
        if message.info.unordered {
            return self.deliver(cx, message);
        }
        let stream = message.info.stream;
        let next = self.next_ssn.get_mut(stream);
        if message.info.ssn != *next {
            return self.hold_until_in_order(message, cx.statistics);
        }
        *next = next.wrapping_add(1);
        self.deliver(cx, message);
        if !self.waiting.is_empty() {
            self.deliver_waiting(cx, stream);
        }
    }

    /// Keeps a copy of a message until the earlier ones of its stream have arrived. Discards a second message with the same SSN.
    pub(super) fn hold_until_in_order(&mut self, mut message: Assembled, statistics: &mut Statistics) {
        let start = self.first_tsn(&message);
        match self.waiting.entry((message.info.stream, message.info.ssn)) {
            Entry::Vacant(entry) => {
                message.detach();
                if start > self.cumulative {
                    self.waiting_beyond.insert(start, *entry.key());
                }
                entry.insert(Box::new(message));
            }
            Entry::Occupied(_) => {
                statistics.messages_discarded += 1;
                self.held.remove(Held::of(message.bytes, message.chunks));
            }
        }
    }

    pub(super) fn deliver_waiting<H: Host + ?Sized>(&mut self, cx: &mut ReceiveContext<'_, H>, stream: u16) {
        loop {
            let next = self.next_ssn.get(stream);
            let Some(message) = self.waiting.remove(&(stream, next)) else { return };
            *self.next_ssn.get_mut(stream) = next.wrapping_add(1);
            if !self.waiting_beyond.is_empty() {
                self.waiting_beyond.remove(&self.first_tsn(&message));
            }
            self.deliver(cx, *message);
        }
    }

    pub(super) fn first_tsn(&self, message: &Assembled) -> u64 {
        tsn::unwrap(self.cumulative, Tsn(message.info.tsn))
    }

    /// Delivers the available part of an unfinished message if the peer asks for that, the part is long enough, or memory is
    /// short.
    #[inline]
    pub(super) fn deliver_due_part<H: Host + ?Sized>(&mut self, cx: &mut ReceiveContext<'_, H>) {
        let part_wanted = self.part_wanted && self.beyond.is_empty();
        if part_wanted
            || self.reassembly.current_bytes() >= self.next_part_bytes()
            || (self.reassembly.is_open() && !self.charge_held())
        {
            self.part_wanted = false;
            self.deliver_part(cx);
        }
    }

    /// Delivers the available part of the unfinished message.
    pub(super) fn deliver_part<H: Host + ?Sized>(&mut self, cx: &mut ReceiveContext<'_, H>) {
        if let Some(part) = self.reassembly.take_part() {
            self.deliver(cx, part);
        }
    }

    /// Delivers a message, or a part of one. Other messages wait for the end of an open record.
    #[inline]
    pub(super) fn deliver<H: Host + ?Sized>(
        &mut self,
        cx: &mut ReceiveContext<'_, H>,
        mut message: Assembled,
    ) {
        if self.open_record.is_none() {
            self.open_record = message.info.more.then_some((message.info.stream, message.info.ssn));
            return self.hand_to_host(cx, message);
        }
        if message.info.more {
            self.hand_to_host(cx, message);
        } else if message.rest {
            self.hand_to_host(cx, message);
            self.deliver_behind_record(cx);
        } else {
            message.detach();
            self.behind.push_back(message);
        }
    }

    #[cold]
    pub(super) fn deliver_behind_record<H: Host + ?Sized>(&mut self, cx: &mut ReceiveContext<'_, H>) {
        self.open_record = None;
        for message in std::mem::take(&mut self.behind) {
            self.hand_to_host(cx, message);
        }
    }

    #[inline]
    pub(super) fn hand_to_host<H: Host + ?Sized>(
        &mut self,
        cx: &mut ReceiveContext<'_, H>,
        mut message: Assembled,
    ) {
        message.info.cumulative_tsn = self.cumulative_tsn().0;
        // Charged by chunk until now, and as one message from now on.
        self.held.remove(Held::of(0, message.chunks - 1));
        cx.statistics.messages_received += 1;
        cx.statistics.bytes_received += message.bytes as u64;
        let payload = match message.parts.as_slice() {
            [_] => message.parts.into_iter().next().map_or_else(|| Payload::Many(Vec::new()), Payload::One),
            parts if message.bytes <= JOINED_BYTES_MAX.max(parts.len() * LISTED_PART_BYTES_MIN) => {
                let joined = cx.host.join(parts);
                self.reassembly.recycle(message.parts);
                Payload::One(joined)
            }
            _ => {
                let blocks = self.reassembly.hand_out(message.parts);
                cx.host.message(cx.id, &message.info, Payload::Many(blocks));
                return self.reassembly.recycle_memory(cx.host.spare());
            }
        };
        cx.host.message(cx.id, &message.info, payload);
    }

    /// Takes the stream and SSN of the open record, whose end will not arrive.
    pub(crate) fn take_open_record(&mut self) -> Option<(u16, u16)> {
        self.open_record.take()
    }
}
