//! The program on a host: it makes the calls of the script, and logs what was sent and what came.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lab::bounds::assert_bounded;
use lab::delivery_log::{DeliveryLog, Record};
use lab::simulation::Application;
use sctp::{
    Admission, AssociationConfig, AssociationId, CloseReason, Endpoint, Event, Host, ListenerId, PathHints,
    Payload, ReceivedRun, RecvInfo, SendInfo, Time,
};

use crate::nets;

/// Number of events other than messages that one call may cause: states of paths, and the beginning and end of associations. Each
/// packet may cause another one.
const EVENTS_MAX: usize = 64;
/// Number of timer entries of one endpoint. Each time that a measured round trip brings a deadline nearer leaves one.
const TIMER_ENTRIES_MAX: usize = 512;
/// Number of packets that an association remembers. A packet with a fragment of a byte costs as much as a full one.
const PACKETS_MAX: usize = 4096;

/// Properties of a host and of its program.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) mtu_bytes: usize,
    pub(crate) in_flight_limit_bytes: Option<usize>,
    /// Whether each path must begin at the address in its net.
    pub(crate) binds_paths: bool,
    pub(crate) initial_tsn: Option<u32>,
    pub(crate) config: AssociationConfig,
}

/// Messages of an association that were not read.
#[derive(Debug, Default)]
struct Unread {
    /// Number of bytes of each message, and the charge beyond them.
    messages: VecDeque<(usize, usize)>,
    bytes: usize,
}

/// The program.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) deliveries: DeliveryLog,
    setup: Setup,
    config: Arc<AssociationConfig>,
    unread: BTreeMap<AssociationId, Unread>,
    listeners: HashMap<u16, ListenerId>,
    /// Number of the last record; those of the other host have other numbers.
    records: u64,
    /// Number of packets that the next call delivers, at most.
    packets: usize,
    /// Number of events that the current call may still cause.
    events_left: usize,
}

impl App {
    /// Returns the program on host `number`.
    pub(crate) fn new(number: u64, setup: Setup) -> Self {
        App {
            deliveries: DeliveryLog::default(),
            config: Arc::new(setup.config.clone()),
            setup,
            unread: BTreeMap::new(),
            listeners: HashMap::new(),
            records: number,
            packets: 1,
            events_left: 0,
        }
    }

    /// Returns whether packets leave the host.
    pub(crate) fn leaves_host(&self) -> bool {
        self.setup.in_flight_limit_bytes.is_none()
    }

    /// Returns the associations that have not ended.
    pub(crate) fn open(&self) -> Vec<AssociationId> {
        self.deliveries.open().map(|entry| entry.id).collect()
    }

    /// Sets the number of packets that a call delivers.
    pub(crate) fn expect_packets(&mut self, packets: usize) {
        self.packets = packets;
    }

    /// Prepares a new endpoint.
    pub(crate) fn prepare(&self, endpoint: &mut Endpoint) {
        if let Some(tsn) = self.setup.initial_tsn {
            endpoint.set_initial_tsn(tsn);
        }
    }

    /// Records the end of the endpoint with all its associations, and prepares the next one.
    pub(crate) fn on_restart(&mut self, endpoint: &mut Endpoint) {
        self.deliveries.crash();
        self.unread.clear();
        self.listeners.clear();
        self.prepare(endpoint);
    }

    pub(crate) fn listen(&mut self, endpoint: &mut Endpoint, port: u16) {
        if let Some(listener) = endpoint.listen(port, (*self.config).clone()) {
            self.listeners.insert(port, listener);
        }
    }

    pub(crate) fn unlisten(&mut self, endpoint: &mut Endpoint, port: u16) {
        if let Some(listener) = self.listeners.remove(&port) {
            endpoint.unlisten(listener);
        }
    }

    pub(crate) fn connect(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        ports: (u16, u16),
        remotes: &[SocketAddr],
    ) {
        let config = Arc::clone(&self.config);
        if let Ok(id) = endpoint.connect(now, ports.0, ports.1, remotes, config, self) {
            self.deliveries.begin(id);
        }
    }

    /// Sends a record or the next part of one, of at most `bytes`, if there is room.
    pub(crate) fn send(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        id: AssociationId,
        info: SendInfo,
        bytes: usize,
    ) {
        self.records += 2;
        let length = if info.more { bytes * 3 } else { bytes };
        let entry = self.deliveries.entry(id);
        // Until the peer has announced its number of streams, only the first is sure to exist.
        let info = SendInfo { stream: if entry.up { info.stream } else { 0 }, ..info };
        let part = entry.next_part(info, Record::new(self.records, length.max(1)), bytes);
        match endpoint.admit(id, &part.info, part.bytes) {
            Admission::Granted(permit) => permit.send(now, [part.content()]),
            Admission::Full | Admission::Fail(_) => return,
        }
        entry.sent(part);
    }

    /// Reads up to this many messages of every association, or half of a message if `messages` is 0.
    pub(crate) fn read(&mut self, endpoint: &mut Endpoint, messages: usize) {
        for (&id, unread) in &mut self.unread {
            let half = unread.messages.front().map_or(0, |(bytes, _)| bytes / 2);
            if messages == 0 && half > 0 {
                endpoint.consumed(id, half, 0);
                unread.messages[0].0 -= half;
                unread.bytes -= half;
            }
            for _ in 0..messages {
                let Some((bytes, charges)) = unread.messages.pop_front() else { break };
                unread.bytes -= bytes;
                endpoint.consumed(id, bytes, charges);
            }
        }
    }

    /// Returns the number of bytes of all send buffers.
    pub(crate) fn send_buffered_bytes(&self, endpoint: &Endpoint) -> usize {
        let buffered = |id| endpoint.statistics(id).map_or(0, |s| s.send_buffered_bytes as usize);
        self.open().into_iter().map(buffered).sum()
    }

    /// Checks that counters equal a recount, and that memory is bounded.
    pub(crate) fn check(&self, endpoint: &Endpoint) {
        endpoint.assert_counters();
        for entry in self.deliveries.open() {
            let statistics = endpoint.statistics(entry.id).expect("what has not ended is there");
            assert_bounded(&statistics, &self.config);
            let unread = self.unread.get(&entry.id).map_or(0, |unread| unread.bytes);
            let held = statistics.receive_buffered_bytes as usize;
            assert!(unread <= held, "{unread} bytes are not read, {held} counted");
            let packets = endpoint.remembered_packets(entry.id);
            assert!(packets <= PACKETS_MAX, "{packets} packets are remembered");
        }
        let count = self.deliveries.open().count();
        assert_eq!(count, endpoint.association_count(), "every association has said that it ended");
        let entries = endpoint.timer_entries();
        assert!(entries <= TIMER_ENTRIES_MAX, "there are {entries} timers");
    }

    /// Checks that no association has ended for a violation by its peer, which is honest.
    pub(crate) fn assert_peer_not_accused(&self) {
        let accused =
            |reason: &Option<CloseReason>| matches!(reason, Some(CloseReason::ProtocolViolation { .. }));
        let entry = self.deliveries.entries.iter().find(|entry| accused(&entry.closed));
        assert!(entry.is_none(), "an honest peer is accused: {:?}", entry.map(|entry| &entry.closed));
    }

    /// Keeps data that waits to be read.
    fn keep(&mut self, id: AssociationId, bytes: usize, charges: usize) {
        let unread = self.unread.entry(id).or_default();
        unread.messages.push_back((bytes, charges));
        unread.bytes += bytes;
    }
}

impl Application for App {
    fn set_now(&mut self, _now: Time) {
        self.events_left = EVENTS_MAX + self.packets;
    }

    /// Does nothing: the script makes all calls.
    fn act(&mut self, _endpoint: &mut Endpoint) {}
}

impl Host for App {
    fn message(&mut self, id: AssociationId, info: &RecvInfo, payload: Payload) {
        self.deliveries.message(id, info, &payload);
        self.keep(id, payload.blocks().iter().map(|block| block.len()).sum(), 1);
    }

    fn takes_runs(&self, _id: AssociationId) -> bool {
        true
    }

    fn run(&mut self, id: AssociationId, run: ReceivedRun) {
        for (info, payload, charges) in run.messages() {
            self.keep(id, payload.len(), charges);
            self.deliveries.message(id, &info, &Payload::One(payload));
        }
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        self.deliveries.event(id, &event);
        // The receive buffer bounds data and events that are charged to it.
        match event.receive_credit() {
            Some(bytes) => self.keep(id, bytes, 1),
            None => {
                let left = self.events_left.checked_sub(1);
                self.events_left = left.expect("no more events than the call may cause");
            }
        }
        if let Event::Closed(_) = event {
            self.unread.remove(&id);
        }
    }

    fn path_hints(&self, remote: SocketAddr) -> PathHints {
        let Setup { addresses, mtu_bytes, in_flight_limit_bytes, binds_paths, .. } = &self.setup;
        let mut locals = addresses.iter().filter(|_| *binds_paths);
        PathHints {
            mtu_bytes: *mtu_bytes,
            header_bytes: if remote.is_ipv6() { 48 } else { 28 },
            leaves_host: self.leaves_host(),
            on_link: remote.is_ipv6(),
            in_flight_limit_bytes: *in_flight_limit_bytes,
            local: locals.find(|local| nets::of(**local) == nets::of(remote.ip())).copied(),
            route_local: None,
        }
    }
}
