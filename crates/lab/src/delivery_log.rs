//! A log of sent and received records: shows that no record is lost, invented, repeated or out of order.
//!
//! A program keeps a [`DeliveryLog`] with an entry for each of its associations. Logs are compared: the records that
//! one has received must be those that another has sent, in the same order on each stream. The comparison finds the two
//! ends of an association by itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use sctp::{AssociationId, CloseReason, Event, Payload, RecvInfo, SendInfo};

/// Number of bytes that are specific to a record; they repeat up to its end.
const HEAD_BYTES: usize = 8;

/// A record: its bytes follow from its number and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    bytes: usize,
    head: [u8; HEAD_BYTES],
}

impl Record {
    /// Returns record `number` of this length.
    ///
    /// # Panics
    ///
    /// The length is 0: SCTP has no empty messages.
    pub fn new(number: u64, bytes: usize) -> Self {
        assert!(bytes > 0, "a record has at least one byte");
        let mut head = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        head.iter_mut().skip(bytes).for_each(|byte| *byte = 0);
        Record { bytes, head }
    }

    /// Returns the length of the record.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the content.
    pub fn content(&self) -> Bytes {
        self.head.iter().copied().cycle().take(self.bytes).collect()
    }

    /// Returns the record with these bytes; `None` if no host sends such a record.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut head = [0; HEAD_BYTES];
        let own = bytes.len().min(HEAD_BYTES);
        head[..own].copy_from_slice(&bytes[..own]);
        let repeats = bytes.chunks(HEAD_BYTES).all(|chunk| head.starts_with(chunk));
        (repeats && own > 0).then_some(Record { bytes: bytes.len(), head })
    }
}

/// The part of a record that one message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Description of the message; `more` tells whether another part follows.
    pub info: SendInfo,
    /// The record.
    pub record: Record,
    /// Offset of its first byte.
    pub from: usize,
    /// Number of its bytes.
    pub bytes: usize,
}

impl Part {
    /// Returns the content.
    pub fn content(&self) -> Bytes {
        self.record.content().slice(self.from..self.from + self.bytes)
    }
}

/// Records of one direction of an association.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Records {
    ordered: BTreeMap<u16, Vec<Record>>,
    unordered: BTreeMap<(u16, Record), usize>,
}

impl Records {
    fn push(&mut self, line: Line) {
        if line.unordered {
            *self.unordered.entry((line.stream, line.record)).or_default() += 1;
        } else {
            self.ordered.entry(line.stream).or_default().push(line.record);
        }
    }

    /// Returns whether the received messages, up to `line`, can be these.
    fn cover(&self, came: &Records, line: Line) -> bool {
        if line.unordered {
            let count =
                |records: &Records| records.unordered.get(&(line.stream, line.record)).copied().unwrap_or(0);
            return count(self) >= count(came);
        }
        let place = came.ordered.get(&line.stream).map_or(0, Vec::len);
        let sent = self.ordered.get(&line.stream).and_then(|records| records.get(place.checked_sub(1)?));
        sent == Some(&line.record)
    }
}

/// A record and its description.
#[derive(Clone, Copy, Debug)]
struct Line {
    stream: u16,
    unordered: bool,
    record: Record,
}

/// One association from the view of its program, from the first event to the last.
#[derive(Debug)]
pub struct Entry {
    /// Its identifier, while it exists.
    pub id: AssociationId,
    /// Whether it has come up.
    pub up: bool,
    /// Reason of its end. A crash is entered as a fault.
    pub closed: Option<CloseReason>,
    sent: Records,
    /// The record that is being sent in parts.
    open: Option<Part>,
    /// Number of its accepted bytes, and of its bytes reported as undelivered.
    sent_bytes: usize,
    returned_bytes: usize,
    received: Records,
    /// The beginning of a record whose end has not arrived.
    part: Vec<u8>,
    /// Records that were not compared yet.
    fresh: Vec<(RecvInfo, Vec<u8>)>,
    /// Entries of other logs that cannot be the other end.
    strangers: Vec<Vec<bool>>,
}

impl Entry {
    fn new(id: AssociationId) -> Self {
        Entry {
            id,
            up: false,
            closed: None,
            sent: Records::default(),
            open: None,
            sent_bytes: 0,
            returned_bytes: 0,
            received: Records::default(),
            part: Vec::new(),
            fresh: Vec::new(),
            strangers: Vec::new(),
        }
    }

    /// Returns the next part for a program that is about to send `bytes` of a record: a part of the open record, or of
    /// `record`.
    pub fn next_part(&self, info: SendInfo, record: Record, bytes: usize) -> Part {
        let begun = self.open.unwrap_or(Part { info, record, from: 0, bytes: 0 });
        let from = begun.from + begun.bytes;
        let left = begun.record.bytes - from;
        let bytes = bytes.clamp(1, left);
        Part { info: SendInfo { more: bytes < left, ..begun.info }, from, bytes, ..begun }
    }

    /// Returns whether nothing was sent or received.
    pub fn is_silent(&self) -> bool {
        self.sent == Records::default() && self.received == Records::default()
    }

    /// Records that a message was accepted.
    pub fn sent(&mut self, part: Part) {
        self.open = part.info.more.then_some(part);
        self.sent_bytes += part.bytes;
        if !part.info.more {
            let (stream, unordered) = (part.info.stream, part.info.unordered);
            self.sent.push(Line { stream, unordered, record: part.record });
        }
    }

    fn came(&mut self, info: &RecvInfo, payload: &Payload) {
        payload.blocks().iter().for_each(|block| self.part.extend_from_slice(block));
        if !info.more {
            self.fresh.push((*info, std::mem::take(&mut self.part)));
        }
    }

    fn compare(&mut self, others: &[&DeliveryLog]) {
        self.strangers.resize_with(others.len(), Vec::new);
        for (info, bytes) in std::mem::take(&mut self.fresh) {
            let record = Record::read(&bytes).expect("the bytes of a record come as they were sent");
            let line = Line { stream: info.stream, unordered: info.unordered, record };
            self.received.push(line);
            for (other, strangers) in others.iter().zip(&mut self.strangers) {
                strangers.resize(other.entries.len(), false);
                for (stranger, other) in strangers.iter_mut().zip(&other.entries) {
                    *stranger |= !other.sent.cover(&self.received, line);
                }
            }
            let known = self.strangers.iter().flatten().any(|stranger| !stranger);
            assert!(known, "nobody has sent this in this place: {line:?}");
        }
    }
}

/// All associations of a program.
#[derive(Debug, Default)]
pub struct DeliveryLog {
    /// In the order of their beginnings.
    pub entries: Vec<Entry>,
}

impl DeliveryLog {
    /// Records the beginning of an association.
    ///
    /// # Panics
    ///
    /// Another association has its identifier.
    pub fn begin(&mut self, id: AssociationId) {
        assert!(self.find(id).is_none(), "{id:?} is used for two associations at once");
        self.entries.push(Entry::new(id));
    }

    /// Returns the index of the entry of an association that has not ended.
    pub fn find(&self, id: AssociationId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id && entry.closed.is_none())
    }

    /// Returns the entries of associations that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.closed.is_none())
    }

    /// Returns the entry of an existing association.
    ///
    /// # Panics
    ///
    /// The association has not begun or has ended, so that it must not cause events.
    pub fn entry(&mut self, id: AssociationId) -> &mut Entry {
        let at = self.find(id).expect("nothing comes before the first event or after the last");
        &mut self.entries[at]
    }

    /// Checks and records a received message.
    pub fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: &Payload) {
        self.entry(id).came(info, payload);
    }

    /// Records an event.
    ///
    /// # Panics
    ///
    /// The core reports a fault, or more undelivered bytes than were sent.
    pub fn event(&mut self, id: AssociationId, event: &Event) {
        match event {
            Event::Accepted { .. } => {
                self.begin(id);
                self.entry(id).up = true;
            }
            Event::Connected { .. } => self.entry(id).up = true,
            Event::Restarted(_) => {
                // Later records have another peer; unacknowledged ones are reported as lost.
                self.entry(id).closed =
                    Some(CloseReason::PeerAborted { cause: Some(12), text: "it restarted".to_owned() });
                self.begin(id);
                self.entry(id).up = true;
            }
            Event::Closed(reason) => {
                assert_ne!(*reason, CloseReason::Fault, "the core has a fault");
                let entry = self.entry(id);
                let delivered = *reason == CloseReason::Shutdown;
                assert!(!delivered || entry.returned_bytes == 0, "what was delivered does not come back");
                entry.closed = Some(reason.clone());
            }
            Event::SendFailed(failure) => {
                // Those from before a restart come back first, perhaps after it.
                let bytes = failure.data.len();
                let mut of_id = self.entries.iter_mut().filter(|entry| entry.id == id);
                let entry = of_id.find(|entry| entry.returned_bytes + bytes <= entry.sent_bytes);
                entry.expect("what was sent comes back once at most").returned_bytes += bytes;
            }
            _ => {
                self.entry(id);
            }
        }
    }

    /// Records the end of the endpoint with all its associations.
    pub fn crash(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.closed.is_none()) {
            entry.closed = Some(CloseReason::Fault);
        }
    }

    /// Compares the records received since the last call with those that the other logs have sent. The other logs are
    /// the same, in the same order, in each call.
    ///
    /// # Panics
    ///
    /// A record arrived that no host has sent, that was sent to another host, or more often than it was sent.
    pub fn compare(&mut self, others: &[&DeliveryLog]) {
        self.entries.iter_mut().for_each(|entry| entry.compare(others));
    }

    /// Discards the records received since the last call.
    pub fn forget_fresh(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.fresh.clear());
    }

    /// Returns whether everything that an association has sent arrived at one association of `other`, in which this log
    /// has number `number` among those that it is compared with.
    pub fn has_arrived(&self, entry: usize, other: &DeliveryLog, number: usize) -> bool {
        let sent = &self.entries[entry].sent;
        let stranger = |peer: &Entry| {
            peer.strangers.get(number).and_then(|entries| entries.get(entry)).copied().unwrap_or(false)
        };
        *sent == Records::default()
            || other.entries.iter().any(|peer| !stranger(peer) && peer.received == *sent)
    }
}
