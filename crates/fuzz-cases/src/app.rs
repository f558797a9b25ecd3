//! The program on an endpoint: it keeps a deliveries of what was sent and what came.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use lab::delivery_log::DeliveryLog;
use sctp::{AssociationId, Event, Host, PathHints, Payload, ReceivedRun, RecvInfo};

use crate::net;

/// Events other than messages that one call may bring: states of paths, and the beginning and end of associations. Each
/// packet may bring another.
const EVENTS_MAX: usize = 64;

/// Messages of an association that were not read.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Bytes of each, and what is charged beside them.
    pub(crate) messages: VecDeque<(usize, usize)>,
    pub(crate) bytes: usize,
}

/// The program.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) deliveries: DeliveryLog,
    pub(crate) unread: BTreeMap<u32, Unread>,
    pub(crate) mtu_bytes: usize,
    pub(crate) in_flight_limit_bytes: Option<usize>,
    /// Its own addresses, if each path must begin at the one in its network.
    pub(crate) locals: Vec<IpAddr>,
    /// Events that the call that is being made may still bring.
    pub(crate) events_left: usize,
}

impl App {
    pub(crate) fn new(mtu_bytes: usize, in_flight_limit_bytes: Option<usize>, locals: Vec<IpAddr>) -> Self {
        App {
            deliveries: DeliveryLog::default(),
            unread: BTreeMap::new(),
            mtu_bytes,
            in_flight_limit_bytes,
            locals,
            events_left: 0,
        }
    }

    /// Sets the limit of events for a call that delivers this many packets.
    pub(crate) fn expect_packets(&mut self, packets: usize) {
        self.events_left = EVENTS_MAX + packets;
    }

    /// Returns the associations that have not ended.
    pub(crate) fn open(&self) -> Vec<AssociationId> {
        self.deliveries.open().map(|entry| entry.id).collect()
    }

    /// Keeps data that waits to be read.
    fn keep(&mut self, id: AssociationId, bytes: usize, charges: usize) {
        let unread = self.unread.entry(id.0).or_default();
        unread.messages.push_back((bytes, charges));
        unread.bytes += bytes;
    }

    /// Records that the endpoint and all its associations are gone.
    pub(crate) fn crash(&mut self) {
        self.deliveries.crash();
        self.unread.clear();
    }
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
        // Data and events that take room of the receive buffer are bounded by it.
        match event.receive_credit() {
            Some(bytes) => self.keep(id, bytes, 1),
            None => {
                let left = self.events_left.checked_sub(1);
                self.events_left = left.expect("no more events than the call may bring");
            }
        }
        if let Event::Closed(_) = event {
            self.unread.remove(&id.0);
        }
    }

    fn path_hints(&self, remote: SocketAddr) -> PathHints {
        let in_its_net = |local: &&IpAddr| net::of(**local) == net::of(remote.ip());
        PathHints {
            mtu_bytes: self.mtu_bytes,
            header_bytes: if remote.is_ipv6() { 48 } else { 28 },
            is_own_endpoint: false,
            leaves_host: self.in_flight_limit_bytes.is_none(),
            on_link: remote.is_ipv6(),
            in_flight_limit_bytes: self.in_flight_limit_bytes,
            local: self.locals.iter().find(in_its_net).copied(),
            route_local: None,
        }
    }
}
