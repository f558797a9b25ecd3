//! A log of records sent and received: the proof that nothing is lost, made up, repeated or out of order.
//!
//! A program keeps a [`DeliveryLog`] with an entry for each of its associations. Logs are compared: what came to one must be
//! what another has sent, in the same order on each stream, and nobody has to say which ends belong together.

use std::collections::BTreeMap;

use bytes::Bytes;
use sctp::{AssociationId, CloseReason, Event, Payload, RecvInfo, SendInfo};

/// How many bytes of a record are its own; they repeat up to its end.
const HEAD_BYTES: usize = 8;

/// A record: its bytes follow from its number and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    bytes: usize,
    head: [u8; HEAD_BYTES],
}

impl Record {
    /// Returns the record with this number, of `bytes`.
    ///
    /// # Panics
    ///
    /// When it is empty: SCTP has no such messages.
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
    /// How it is sent; `more` says whether another part follows.
    pub info: SendInfo,
    /// The record.
    pub record: Record,
    /// From which of its bytes on.
    pub from: usize,
    /// How many of them.
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

    /// Returns whether the received messages, up to `line`, can come from these.
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

/// A record and how it was sent.
#[derive(Clone, Copy, Debug)]
struct Line {
    stream: u16,
    unordered: bool,
    record: Record,
}

/// One association as its program sees it, from the first event to the last.
#[derive(Debug)]
pub struct Entry {
    /// Its name, while it is there.
    pub id: AssociationId,
    /// Whether it has come up.
    pub up: bool,
    /// Why it ended. A crash is entered as a fault.
    pub closed: Option<CloseReason>,
    sent: Records,
    /// The record that is being sent in parts.
    open: Option<Part>,
    /// Bytes of it that were accepted, and bytes that came back as undelivered.
    sent_bytes: usize,
    returned_bytes: usize,
    received: Records,
    /// The beginning of a record whose end has not come.
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

    /// Returns the next part that a program sends which wants to send `bytes` of a record: a part of the open record, or of
    /// `record`.
    pub fn next_part(&self, info: SendInfo, record: Record, bytes: usize) -> Part {
        let begun = self.open.unwrap_or(Part { info, record, from: 0, bytes: 0 });
        let from = begun.from + begun.bytes;
        let left = begun.record.bytes - from;
        let bytes = bytes.clamp(1, left);
        Part { info: SendInfo { more: bytes < left, ..begun.info }, from, bytes, ..begun }
    }

    /// Returns whether nothing was sent and nothing came.
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

/// Every association that a program had.
#[derive(Debug, Default)]
pub struct DeliveryLog {
    /// In the order in which they began.
    pub entries: Vec<Entry>,
}

impl DeliveryLog {
    /// Records the beginning of an association.
    ///
    /// # Panics
    ///
    /// When another one has its name.
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
    /// When it has not begun, or has ended: nothing may come of it then.
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
    /// When the core says that it has a fault, or gives more back than was sent.
    pub fn event(&mut self, id: AssociationId, event: &Event) {
        match event {
            Event::Accepted { .. } => {
                self.begin(id);
                self.entry(id).up = true;
            }
            Event::Connected { .. } => self.entry(id).up = true,
            Event::Restarted { .. } => {
                // Later records have another peer; those that were not acknowledged are reported as lost.
                self.entry(id).closed =
                    Some(CloseReason::PeerAborted { cause: 12, text: "it restarted".to_owned() });
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
                let entry = self.entry(id);
                entry.returned_bytes += failure.data.len();
                assert!(entry.returned_bytes <= entry.sent_bytes, "what was sent comes back once at most");
            }
            _ => {
                self.entry(id);
            }
        }
    }

    /// Records that the endpoint and all its associations are gone.
    pub fn crash(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.closed.is_none()) {
            entry.closed = Some(CloseReason::Fault);
        }
    }

    /// Compares what came since the last call with what the others have sent. They are always the same ones, in the same
    /// order.
    ///
    /// # Panics
    ///
    /// A record arrived that no host sent, that was sent to another host, or more often than it was sent.
    pub fn compare(&mut self, others: &[&DeliveryLog]) {
        self.entries.iter_mut().for_each(|entry| entry.compare(others));
    }

    /// Forgets what came since the last call: it says nothing.
    pub fn forget_fresh(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.fresh.clear());
    }

    /// Returns whether all that an association has sent came to one association of `other`, to which this log has number `number`
    /// of those that it is compared with.
    pub fn has_arrived(&self, entry: usize, other: &DeliveryLog, number: usize) -> bool {
        let sent = &self.entries[entry].sent;
        let stranger = |peer: &Entry| {
            peer.strangers.get(number).and_then(|entries| entries.get(entry)).copied().unwrap_or(false)
        };
        *sent == Records::default()
            || other.entries.iter().any(|peer| !stranger(peer) && peer.received == *sent)
    }
}
