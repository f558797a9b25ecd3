//! The program on a host: it writes its records as they are admitted, reads as configured, and keeps its deliveries.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use lab::Reading;
use lab::delivery_log::{DeliveryLog, Record};
use lab::simulation::Application;
use sctp::{
    Admission, AssociationId, Endpoint, Event, Host, PathHints, Payload, ReceivedRun, RecvInfo, SendInfo,
    Time,
};

/// A record to send in parts of at most that many bytes.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub info: SendInfo,
    pub record: Record,
    pub part_bytes: usize,
}

#[derive(Debug, Default)]
struct Backlog {
    wishes: VecDeque<Wish>,
    /// The association reported that it is full; only `Writable` ends that.
    full: bool,
}

#[derive(Debug)]
pub struct App {
    pub deliveries: DeliveryLog,
    pub hints: PathHints,
    pub events: u64,
    now: Time,
    reading: Reading,
    read_at: Option<Time>,
    /// Bytes of each message, and its overhead.
    unread: VecDeque<(AssociationId, usize, usize)>,
    backlog: BTreeMap<AssociationId, Backlog>,
}

impl App {
    pub fn new(hints: PathHints) -> Self {
        App {
            deliveries: DeliveryLog::default(),
            hints,
            events: 0,
            now: Time::ZERO,
            reading: Reading::AtOnce,
            read_at: None,
            unread: VecDeque::new(),
            backlog: BTreeMap::new(),
        }
    }

    pub fn open(&self) -> Vec<AssociationId> {
        self.deliveries.open().map(|entry| entry.id).collect()
    }

    pub fn wish(&mut self, id: AssociationId, wish: Wish) {
        self.backlog.entry(id).or_default().wishes.push_back(wish);
    }

    /// Returns whether the program has handed in all that it can.
    pub fn all_written(&self) -> bool {
        self.backlog.values().all(|backlog| backlog.wishes.is_empty())
    }

    pub fn set_reading(&mut self, reading: Reading) {
        (self.reading, self.read_at) = (reading, None);
        self.plan();
    }

    pub fn unread_bytes(&self, id: AssociationId) -> usize {
        self.unread.iter().filter(|(of, ..)| *of == id).map(|(_, bytes, _)| bytes).sum()
    }

    /// Forgets the state of the endpoint, which has ended.
    pub fn crash(&mut self) {
        self.deliveries.crash();
        self.unread.clear();
        self.backlog.clear();
    }

    fn read(&mut self, endpoint: &mut Endpoint) {
        let due = match self.reading {
            Reading::AtOnce => usize::MAX,
            Reading::Every(_) if self.read_at.take_if(|at| *at <= self.now).is_some() => 1,
            _ => 0,
        };
        for (id, bytes, charges) in self.unread.drain(..due.min(self.unread.len())) {
            endpoint.consumed(id, bytes, charges);
        }
        self.plan();
    }

    fn plan(&mut self) {
        if let Reading::Every(time) = self.reading
            && self.read_at.is_none()
            && !self.unread.is_empty()
        {
            self.read_at = Some(self.now + time);
        }
    }

    fn write(&mut self, endpoint: &mut Endpoint) {
        for (&id, backlog) in &mut self.backlog {
            while let Some(&Wish { info, record, part_bytes }) =
                backlog.wishes.front().filter(|_| !backlog.full)
            {
                let entry = self.deliveries.entry(id);
                let part = entry.next_part(info, record, part_bytes);
                match endpoint.admit(id, &part.info, part.bytes) {
                    Admission::Granted(permit) => permit.send(self.now, [part.content()]),
                    Admission::Full => {
                        backlog.full = true;
                        break;
                    }
                    Admission::Fail(_) => {
                        backlog.wishes.clear();
                        break;
                    }
                }
                entry.sent(part);
                if !part.info.more {
                    backlog.wishes.pop_front();
                }
            }
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
}

impl Host for App {
    fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: Payload) {
        self.deliveries.message(id, info, &payload);
        self.unread.push_back((id, payload.blocks().iter().map(|block| block.len()).sum(), 1));
    }

    fn takes_runs(&self, _id: AssociationId) -> bool {
        true
    }

    fn run(&mut self, id: AssociationId, run: ReceivedRun) {
        for (info, payload, charges) in run.messages() {
            self.unread.push_back((id, payload.len(), charges));
            self.deliveries.message(id, &info, &Payload::One(payload));
        }
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        self.events += 1;
        self.deliveries.event(id, &event);
        self.unread.extend(event.receive_credit().map(|bytes| (id, bytes, 1)));
        match event {
            Event::Writable => self.backlog.entry(id).or_default().full = false,
            Event::Closed(_) => {
                self.unread.retain(|(of, ..)| *of != id);
                self.backlog.remove(&id);
            }
            _ => {}
        }
    }

    fn path_hints(&self, _remote: SocketAddr) -> PathHints {
        self.hints
    }
}

/// Returns a way of reading for random numbers.
pub fn reading(kind: u64, micros: u64) -> Reading {
    match kind {
        0 | 1 => Reading::AtOnce,
        2 => Reading::Every(Duration::from_micros(micros)),
        _ => Reading::Never,
    }
}
