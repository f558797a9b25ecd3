//! The program on an endpoint: it knows what was sent and what came, record by record.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use sctp::{AssociationId, CloseReason, Event, Host, PathHints, Payload, ReceiveInfo, SendInfo};

/// Events other than messages that one call may bring: states of paths, and the beginning and end of associations.
const EVENTS_MAX: usize = 64;

/// A record: its bytes are the first eight over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    bytes: usize,
    head: [u8; 8],
}

impl Record {
    pub(crate) fn new(number: u64, bytes: usize) -> Self {
        let mut head = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        for byte in head.iter_mut().skip(bytes) {
            *byte = 0;
        }
        Record { bytes, head }
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        self.head.iter().copied().cycle().take(self.bytes).collect()
    }

    /// `None`: nobody sends such bytes.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut head = [0; 8];
        let known = bytes.len().min(8);
        head[..known].copy_from_slice(&bytes[..known]);
        let record = Record { bytes: bytes.len(), head };
        bytes.iter().zip(head.iter().cycle()).all(|(a, b)| a == b).then_some(record)
    }
}

/// Records of one direction of an association.
#[derive(Debug, Default, PartialEq, Eq)]
struct Records {
    ordered: BTreeMap<u16, Vec<Record>>,
    unordered: BTreeMap<(u16, Record), usize>,
}

impl Records {
    fn push(&mut self, stream: u16, unordered: bool, record: Record) {
        if unordered {
            *self.unordered.entry((stream, record)).or_default() += 1;
        } else {
            self.ordered.entry(stream).or_default().push(record);
        }
    }

    /// Whether these begin with what `others` has on this stream, whose last record is `record`.
    fn cover(&self, others: &Records, stream: u16, unordered: bool, record: Record) -> bool {
        if unordered {
            let count = |records: &Records| records.unordered.get(&(stream, record)).copied().unwrap_or(0);
            return count(self) >= count(others);
        }
        let place = others.ordered.get(&stream).map_or(0, Vec::len) - 1;
        self.ordered.get(&stream).and_then(|records| records.get(place)) == Some(&record)
    }
}

/// One association as the program sees it, from its first event to its last.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) id: AssociationId,
    pub(crate) up: bool,
    pub(crate) closed: Option<CloseReason>,
    pub(crate) unread: VecDeque<usize>,
    pub(crate) unread_bytes: usize,
    sent: Records,
    /// A record that is being sent in parts.
    open: Option<(SendInfo, Record, usize)>,
    received: Records,
    part: Vec<u8>,
    /// Logs of the other side that cannot be the other end.
    strangers: Vec<bool>,
}

/// Both directions of everything, and what every call brought.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) logs: Vec<Log>,
    pub(crate) mtu_bytes: usize,
    pub(crate) in_flight_limit_bytes: Option<usize>,
    /// Messages with their log, not yet compared with what was sent.
    arrived: Vec<(usize, ReceiveInfo, Vec<u8>)>,
    /// Events of the call that is being made.
    pub(crate) events: usize,
}

impl App {
    pub(crate) fn new(mtu_bytes: usize, in_flight_limit_bytes: Option<usize>) -> Self {
        App { logs: Vec::new(), mtu_bytes, in_flight_limit_bytes, arrived: Vec::new(), events: 0 }
    }

    /// An association begins.
    pub(crate) fn begin(&mut self, id: AssociationId) {
        assert!(self.open_log(id).is_none(), "{id:?} is used for two associations at once");
        self.logs.push(Log {
            id,
            up: false,
            closed: None,
            unread: VecDeque::new(),
            unread_bytes: 0,
            sent: Records::default(),
            open: None,
            received: Records::default(),
            part: Vec::new(),
            strangers: Vec::new(),
        });
    }

    pub(crate) fn open_log(&self, id: AssociationId) -> Option<usize> {
        self.logs.iter().position(|log| log.id == id && log.closed.is_none())
    }

    /// Associations that have not ended.
    pub(crate) fn open(&self) -> Vec<AssociationId> {
        self.logs.iter().filter(|log| log.closed.is_none()).map(|log| log.id).collect()
    }

    /// The endpoint is gone, and all its associations with it.
    pub(crate) fn crash(&mut self) {
        for log in self.logs.iter_mut().filter(|log| log.closed.is_none()) {
            log.closed = Some(CloseReason::Fault);
            log.unread.clear();
        }
    }

    /// Compares what came since the last call with what the other side sent.
    pub(crate) fn compare(&mut self, other: &App) {
        for (log, info, bytes) in std::mem::take(&mut self.arrived) {
            let log = &mut self.logs[log];
            log.part.extend_from_slice(&bytes);
            if info.more {
                continue;
            }
            let bytes = std::mem::take(&mut log.part);
            let record = Record::read(&bytes).expect("the bytes of a record arrive as they were sent");
            log.received.push(info.stream, info.unordered, record);
            log.strangers.resize(other.logs.len(), false);
            for (stranger, peer) in log.strangers.iter_mut().zip(&other.logs) {
                *stranger |= !peer.sent.cover(&log.received, info.stream, info.unordered, record);
            }
            assert!(
                log.strangers.contains(&false),
                "a record of {} bytes came on stream {} that nobody sent in this place",
                bytes.len(),
                info.stream
            );
        }
    }

    /// Forgets what came: the middle has forged packets, so that it says nothing.
    pub(crate) fn forget_arrived(&mut self) {
        self.arrived.clear();
    }

    /// Whether all that this log sent has come to one association of the other side.
    pub(crate) fn has_arrived(&self, log: usize, other: &App) -> bool {
        let sent = &self.logs[log].sent;
        let empty = Records::default();
        *sent == empty
            || other
                .logs
                .iter()
                .any(|peer| !peer.strangers.get(log).copied().unwrap_or(false) && peer.received == *sent)
    }

    fn log_of(&mut self, id: AssociationId) -> &mut Log {
        let log = self.open_log(id).expect("the association has begun and not ended");
        &mut self.logs[log]
    }

    /// What comes next of a record: its information and bytes. Without an open record a new one begins.
    pub(crate) fn next_part(&self, id: AssociationId, new: (SendInfo, Record)) -> (SendInfo, Record, usize) {
        let log = &self.logs[self.open_log(id).expect("the association is there")];
        log.open.unwrap_or((new.0, new.1, 0))
    }

    /// `bytes` of that were taken; the rest follows.
    pub(crate) fn sent(&mut self, id: AssociationId, part: (SendInfo, Record, usize), bytes: usize) {
        let (info, record, before) = part;
        let log = self.log_of(id);
        log.open = None;
        if before + bytes < record.bytes {
            log.open = Some((info, record, before + bytes));
        } else {
            log.sent.push(info.stream, info.unordered, record);
        }
    }
}

impl Record {
    pub(crate) fn len(self) -> usize {
        self.bytes
    }
}

impl Host for App {
    fn message(&mut self, id: AssociationId, info: &ReceiveInfo, payload: Payload) {
        let bytes = payload.to_vec();
        let at = self.open_log(id).expect("messages come between the first event and the last");
        let log = &mut self.logs[at];
        log.unread.push_back(bytes.len());
        log.unread_bytes += bytes.len();
        self.arrived.push((at, *info, bytes));
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        self.events += 1;
        assert!(self.events <= EVENTS_MAX, "more than {EVENTS_MAX} events in one call");
        match event {
            Event::Accepted { .. } => {
                self.begin(id);
                self.log_of(id).up = true;
            }
            Event::Connected { .. } => self.log_of(id).up = true,
            Event::Closed(reason) => self.log_of(id).closed = Some(reason),
            _ => {
                self.log_of(id);
            }
        }
    }

    fn path_hints(&self, _remote: SocketAddr) -> PathHints {
        PathHints { mtu_bytes: self.mtu_bytes, in_flight_limit_bytes: self.in_flight_limit_bytes }
    }
}
