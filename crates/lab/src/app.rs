//! The application on a host: it records everything that it receives, and reads as a test demands.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use sctp::trace::Record;
use sctp::{
    Admission, AssociationId, Endpoint, Event, Host, ListenerId, PathHints, Payload, ReceivedRun, RecvInfo,
    SendInfo, Time,
};

use crate::simulation::Application;
use crate::wire::LOWER_HEADER_BYTES;

/// Reading behaviour of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Read every message as it arrives.
    AtOnce,
    /// Read one message at this interval.
    Every(Duration),
    /// Read nothing.
    Never,
}

/// A message, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Time of arrival.
    pub at: Time,
    /// Its association.
    pub id: AssociationId,
    /// Description of the message.
    pub info: RecvInfo,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppEvent {
    /// Time of the event.
    pub at: Time,
    /// Its association.
    pub id: AssociationId,
    /// The event.
    pub event: Event,
}

/// Messages that wait until the association accepts them.
#[derive(Debug, Default)]
struct Backlog {
    messages: VecDeque<(SendInfo, Bytes)>,
    /// Whether the association has reported that it is full; only `Writable` ends that.
    full: bool,
}

/// An application that records everything.
#[derive(Debug)]
pub struct App {
    /// Every message, in the order of delivery.
    pub messages: Vec<Received>,
    /// Every event, in order.
    pub events: Vec<AppEvent>,
    /// Records of traced associations, in order.
    pub trace: Vec<Record>,
    /// Whether the bytes of messages are kept; long runs do without.
    pub keeps_bytes: bool,
    /// The link's knowledge of every path. By default, packets of 1500 bytes with IP and UDP are known to arrive.
    pub hints: PathHints,
    /// Number of questions about a path.
    pub path_questions: Cell<u64>,
    /// Whether packets of the peer come from this endpoint.
    pub is_own_endpoint: bool,
    /// The time, set before every input.
    pub now: Time,
    reading: Reading,
    read_at: Option<Time>,
    /// Whether the application accepts runs of messages.
    pub takes_runs: bool,
    /// Whether listeners take one more association.
    pub takes_associations: bool,
    /// Bytes of each message, and the charge beyond them.
    unread: VecDeque<(AssociationId, usize, usize)>,
    unread_bytes: usize,
    writable: Vec<AssociationId>,
    backlog: BTreeMap<AssociationId, Backlog>,
}

impl Default for App {
    fn default() -> Self {
        App {
            messages: Vec::new(),
            events: Vec::new(),
            trace: Vec::new(),
            keeps_bytes: true,
            hints: PathHints { mtu_bytes: 1472, header_bytes: LOWER_HEADER_BYTES, ..PathHints::default() },
            path_questions: Cell::new(0),
            is_own_endpoint: false,
            now: Time::ZERO,
            reading: Reading::AtOnce,
            read_at: None,
            takes_runs: false,
            takes_associations: true,
            unread: VecDeque::new(),
            unread_bytes: 0,
            writable: Vec::new(),
            backlog: BTreeMap::new(),
        }
    }
}

impl App {
    /// Changes the reading behaviour.
    pub fn set_reading(&mut self, reading: Reading) {
        self.reading = reading;
        self.read_at = None;
        self.plan();
    }

    fn take(&mut self, id: AssociationId, info: &RecvInfo, payload: &Payload, charges: usize) {
        let length = payload.blocks().iter().map(|block| block.len()).sum();
        let bytes = if self.keeps_bytes { payload.to_vec() } else { Vec::new() };
        self.messages.push(Received { at: self.now, id, info: *info, bytes });
        self.unread.push_back((id, length, charges));
        self.unread_bytes += length;
    }

    /// Returns the number of bytes of delivered messages that were not read.
    pub fn unread_bytes(&self) -> usize {
        self.unread_bytes
    }

    /// Reads one message.
    pub fn read_one(&mut self, endpoint: &mut Endpoint) {
        if let Some((id, bytes, charges)) = self.unread.pop_front() {
            self.unread_bytes -= bytes;
            endpoint.consumed(id, bytes, charges);
        }
    }

    /// Returns the bytes of every message.
    pub fn contents(&self) -> Vec<Vec<u8>> {
        self.messages.iter().map(|m| m.bytes.clone()).collect()
    }

    /// Returns the bytes of every record that is complete.
    pub fn records(&self) -> Vec<Vec<u8>> {
        let mut open = Vec::new();
        let mut records = Vec::new();
        for message in &self.messages {
            open.extend_from_slice(&message.bytes);
            if !message.info.more {
                records.push(std::mem::take(&mut open));
            }
        }
        records
    }

    /// Returns whether such an event has occurred.
    pub fn saw(&self, is: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|e| is(&e.event))
    }

    /// Sends messages, each as soon as the association accepts it.
    pub fn send(&mut self, id: AssociationId, messages: impl IntoIterator<Item = (SendInfo, Bytes)>) {
        self.backlog.entry(id).or_default().messages.extend(messages);
    }

    /// Returns whether every message was accepted.
    pub fn all_admitted(&self) -> bool {
        self.backlog.values().all(|b| b.messages.is_empty())
    }

    /// Forgets all waiting messages, because the endpoint is a new one.
    pub(crate) fn forget_unread(&mut self) {
        self.unread.clear();
        self.unread_bytes = 0;
        self.writable.clear();
        self.backlog.clear();
    }

    /// Reads the messages that are due.
    pub fn read(&mut self, endpoint: &mut Endpoint) {
        match self.reading {
            Reading::AtOnce => {
                while !self.unread.is_empty() {
                    self.read_one(endpoint);
                }
            }
            Reading::Every(_) => {
                if self.read_at.is_some_and(|at| at <= self.now) {
                    self.read_one(endpoint);
                    self.read_at = None;
                }
                self.plan();
            }
            Reading::Never => {}
        }
    }

    /// Sends the messages that the associations accept.
    fn write(&mut self, endpoint: &mut Endpoint) {
        for id in std::mem::take(&mut self.writable) {
            self.backlog.entry(id).or_default().full = false;
        }
        for (&id, backlog) in &mut self.backlog {
            while !backlog.full
                && let Some((info, message)) = backlog.messages.front()
            {
                match endpoint.admit(id, info, message.len()) {
                    Admission::Granted(permit) => permit.send(self.now, [message.clone()]),
                    Admission::Full => {
                        backlog.full = true;
                        break;
                    }
                    Admission::Fail(_) => {
                        backlog.messages.clear();
                        break;
                    }
                }
                backlog.messages.pop_front();
            }
        }
    }

    fn plan(&mut self) {
        if let Reading::Every(time) = self.reading
            && self.read_at.is_none()
            && !self.unread.is_empty()
        {
            self.read_at = Some(self.now + time);
        }
    }
}

impl Application for App {
    fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    fn act(&mut self, endpoint: &mut Endpoint) {
        self.read(endpoint);
        self.write(endpoint);
    }

    fn deadline(&self) -> Option<Time> {
        self.read_at
    }

    fn traced(&mut self, record: Record) {
        self.trace.push(record);
    }
}

impl Host for App {
    fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: Payload) {
        self.take(id, info, &payload, 1);
    }

    fn takes_runs(&self, _id: AssociationId) -> bool {
        self.takes_runs
    }

    fn takes_association(&self, _listener: ListenerId, _addresses: usize) -> bool {
        self.takes_associations
    }

    fn run(&mut self, id: AssociationId, run: ReceivedRun) {
        for (info, payload, charges) in run.messages() {
            self.take(id, &info, &Payload::One(payload), charges);
        }
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        if event == Event::Writable {
            self.writable.push(id);
        }
        if let Some(bytes) = event.receive_credit() {
            self.unread.push_back((id, bytes, 1));
            self.unread_bytes += bytes;
        }
        self.events.push(AppEvent { at: self.now, id, event });
    }

    fn path_hints(&self, _remote: SocketAddr) -> PathHints {
        self.path_questions.set(self.path_questions.get() + 1);
        self.hints
    }

    fn is_same_host(&self, _address: IpAddr) -> bool {
        !self.hints.leaves_host
    }

    fn is_own_endpoint(&self, _remote: SocketAddr) -> bool {
        self.is_own_endpoint
    }
}
