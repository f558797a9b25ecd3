//! One endpoint and its program, and what must hold for them at every moment.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lab::bounds::assert_bounded;
use lab::delivery_log::Record;
use sctp::{
    Admission, AssociationConfig, AssociationId, BatchLimits, Endpoint, EndpointConfig, ListenerId, SendInfo,
    Time,
};

use crate::app::App;
use crate::net;

/// Timer entries of one endpoint. A deadline that comes nearer with every measured round trip leaves one each time.
const TIMER_ENTRIES_MAX: usize = 512;

/// Packets that an association remembers. One that holds a fragment of a byte costs as much as a full one.
const PACKETS_MAX: usize = 4096;
/// The highest port that a NAT gives.
const PORT_MAX: u16 = 10_000;

/// An endpoint with its program.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) app: App,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) config: Arc<AssociationConfig>,
    number: u8,
    initial_tsn: Option<u32>,
    boots: u16,
    records: u64,
    listeners: HashMap<u16, ListenerId>,
}

impl Side {
    pub(crate) fn new(
        number: u8,
        addresses: Vec<SocketAddr>,
        config: AssociationConfig,
        app: App,
        initial_tsn: Option<u32>,
    ) -> Self {
        let config = Arc::new(config);
        let endpoint = Endpoint::new(EndpointConfig::default(), seed(number, 0), limits());
        let mut side = Side {
            endpoint,
            app,
            addresses,
            config,
            number,
            initial_tsn,
            boots: 0,
            records: u64::from(number),
            listeners: HashMap::new(),
        };
        side.prepare();
        side
    }

    fn prepare(&mut self) {
        let addresses: Vec<IpAddr> = self.addresses.iter().map(SocketAddr::ip).collect();
        self.endpoint.set_local_addresses(addresses);
        if let Some(tsn) = self.initial_tsn {
            self.endpoint.set_initial_tsn(tsn);
        }
    }

    /// Simulates a crash: replaces the endpoint by a new one without state.
    pub(crate) fn reboot(&mut self) {
        self.boots += 1;
        self.endpoint = Endpoint::new(EndpointConfig::default(), seed(self.number, self.boots), limits());
        self.app.crash();
        self.listeners.clear();
        self.prepare();
    }

    pub(crate) fn listen(&mut self, port: u16) {
        if let Some(listener) = self.endpoint.listen(port, (*self.config).clone()) {
            self.listeners.insert(port, listener);
        }
    }

    pub(crate) fn unlisten(&mut self, port: u16) {
        if let Some(listener) = self.listeners.remove(&port) {
            self.endpoint.unlisten(listener);
        }
    }

    pub(crate) fn connect(&mut self, now: Time, ports: (u16, u16), remotes: &[SocketAddr]) {
        let config = Arc::clone(&self.config);
        if let Ok(id) = self.endpoint.connect(now, ports.0, ports.1, remotes, config, &self.app) {
            self.app.deliveries.begin(id);
        }
    }

    /// Sends a record or the next part of one, of at most `bytes`, if there is room.
    pub(crate) fn send(&mut self, now: Time, id: AssociationId, info: SendInfo, bytes: usize) {
        self.records += 2;
        let length = if info.more { bytes * 3 } else { bytes };
        let entry = self.app.deliveries.entry(id);
        // Until the peer has said how many streams it takes, only the first is sure to exist.
        let info = SendInfo { stream: if entry.up { info.stream } else { 0 }, ..info };
        let part = entry.next_part(info, Record::new(self.records, length.max(1)), bytes);
        match self.endpoint.admit(id, &part.info, part.bytes) {
            Admission::Granted(permit) => permit.send(now, [part.content()]),
            Admission::Full | Admission::Fail(_) => return,
        }
        entry.sent(part);
    }

    /// Reads up to that many messages of every association, or half of one.
    pub(crate) fn read(&mut self, messages: usize) {
        for (&id, unread) in &mut self.app.unread {
            let id = AssociationId(id);
            let half = unread.messages.front().map_or(0, |(bytes, _)| bytes / 2);
            if messages == 0 && half > 0 {
                self.endpoint.consumed(id, half, 0);
                unread.messages[0].0 -= half;
                unread.bytes -= half;
            }
            for _ in 0..messages {
                let Some((bytes, charges)) = unread.messages.pop_front() else { break };
                unread.bytes -= bytes;
                self.endpoint.consumed(id, bytes, charges);
            }
        }
    }

    /// Returns the source address of a packet: the requested one, or the one in the net of its receiver.
    pub(crate) fn source(&self, wanted: Option<IpAddr>, to: SocketAddr) -> SocketAddr {
        let mut addresses = self.addresses.iter();
        let from = match wanted {
            Some(ip) => addresses.find(|a| a.ip() == ip),
            None => addresses.find(|a| net::of(a.ip()) == net::of(to.ip())),
        };
        *from.unwrap_or(&self.addresses[0])
    }

    /// Returns whether an address is one of its own.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.ip() == address)
    }

    /// Makes the NAT of the side forget its ports: later packets come from other ports. Packets to the old ports still arrive.
    pub(crate) fn move_ports(&mut self) {
        for address in &mut self.addresses {
            address.set_port(address.port() % PORT_MAX + 1);
        }
    }

    /// Returns the number of bytes of all send buffers.
    pub(crate) fn send_buffered_bytes(&self) -> usize {
        let buffered = |id| self.endpoint.statistics(id).map_or(0, |s| s.send_buffered_bytes as usize);
        self.app.open().into_iter().map(buffered).sum()
    }

    /// Checks that counters equal a recount, and that memory is bounded.
    pub(crate) fn check(&self) {
        self.endpoint.assert_counters();
        for entry in self.app.deliveries.open() {
            let statistics = self.endpoint.statistics(entry.id).expect("what has not ended is there");
            assert_bounded(&statistics, &self.config);
            let unread = self.app.unread.get(&entry.id.0).map_or(0, |unread| unread.bytes);
            let held = statistics.receive_buffered_bytes as usize;
            assert!(unread <= held, "{unread} bytes are not read, {held} counted");
            let packets = self.endpoint.remembered_packets(entry.id);
            assert!(packets <= PACKETS_MAX, "{packets} packets are remembered");
        }
        let count = self.app.deliveries.open().count();
        assert_eq!(count, self.endpoint.association_count(), "every association has said that it ended");
        let entries = self.endpoint.timer_entries();
        assert!(entries <= TIMER_ENTRIES_MAX, "there are {entries} timers");
    }
}

/// Returns the seed of the current boot. Each boot has another one: with earlier tags, an old packet would be valid again.
fn seed(number: u8, boots: u16) -> [u8; 32] {
    let mut seed = [number; 32];
    for (byte, boots) in seed.iter_mut().zip(boots.to_be_bytes()) {
        *byte ^= boots;
    }
    seed
}

fn limits() -> BatchLimits {
    BatchLimits { segments_max: 16, bytes_max: 65_000 }
}
