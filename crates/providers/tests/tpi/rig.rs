//! An executive with the SCTP provider, whose link returns sent datagrams as far as the test permits.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use links::{BatchLimits, Datagrams, Expected, Hairpin, Link, LinkStats, PathInfo, Sink, Transmit};
use providers::{SctpDriver, SctpDriverConfig};
use sctp::EndpointStatistics;
use streams::{Chain, Control, DriverId, Executive, FlushScope, Kind, Message, StreamId};
use tpi::{Info, Primitive, State, Which};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The UDP port of both ends.
const ENCAPSULATED: SocketAddr = SocketAddr::new(HOST, 9899);
/// The SCTP port of the listening stream.
pub(crate) const PORT: u16 = 5000;
/// Maximum number of steps of the network; no exchange of a test takes as many.
const STEPS_MAX: usize = 10_000;

/// Size of a datagram of a flood: one receive of the provider handles no more of them than one.
const RUBBISH_BYTES: usize = 32 * 1024;
/// The path from this host to itself.
const HOST_PATH: PathInfo = PathInfo {
    mtu_bytes: 1452,
    header_bytes: 28,
    same_host: true,
    on_link: false,
    in_flight_limit_bytes: None,
    local: None,
    route_local: Some(HOST),
};

type Wire = Arc<Mutex<VecDeque<Bytes>>>;

/// A link that returns every datagram to its sender.
struct Loop {
    wire: Wire,
    way: Way,
}

/// How datagrams return.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As those that a network has carried.
    Network,
    /// Those that the link can keep in memory say so.
    Memory,
    /// The link keeps them in memory, and returns them as if a network had carried them.
    MemoryUntold,
}

/// The SCTP ports at which the link has been told to expect INITs.
pub(crate) type InitPorts = Arc<Mutex<Option<Vec<u16>>>>;

/// A link from which each receive takes this number of strays with a wrong checksum.
struct Flood(usize, InitPorts);

impl Link for Flood {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        vec![ENCAPSULATED]
    }

    fn path_info(&self, _remote: SocketAddr) -> PathInfo {
        HOST_PATH
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits { segments_max: 1, bytes_max: 1452 }
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        for _ in 0..self.0 {
            // An unknown tag, and a SACK.
            let payload = Bytes::from_static(&[3; RUBBISH_BYTES]);
            sink.datagrams(Datagrams {
                remote: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9899)),
                local: HOST,
                ecn: 0,
                segment_bytes: RUBBISH_BYTES,
                block_bytes: RUBBISH_BYTES,
                payload,
                shared: Vec::new(),
            });
        }
        Ok(true)
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        panic!("a packet for {} leaves the host", transmit.remote);
    }

    fn set_expected(&mut self, expected: Expected<'_>) -> bool {
        *self.1.lock().unwrap() = expected.init_ports.map(<[u16]>::to_vec);
        true
    }

    fn descriptors<'a>(&'a self, _visit: &mut dyn FnMut(BorrowedFd<'a>)) {}

    fn stats(&self) -> LinkStats {
        LinkStats::default()
    }
}

impl Link for Loop {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        vec![ENCAPSULATED]
    }

    fn path_info(&self, _remote: SocketAddr) -> PathInfo {
        HOST_PATH
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits { segments_max: 1, bytes_max: 1452 }
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let mut wire = self.wire.lock().unwrap();
        let Some(payload) = wire.pop_front() else { return Ok(false) };
        let bytes = payload.len();
        let datagrams = Datagrams {
            remote: ENCAPSULATED,
            local: HOST,
            ecn: 0,
            segment_bytes: bytes,
            block_bytes: bytes,
            payload,
            shared: Vec::new(),
        };
        match self.way {
            Way::Memory => sink.held_datagrams(datagrams),
            Way::Network | Way::MemoryUntold => sink.datagrams(datagrams),
        }
        Ok(false)
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let bytes: Vec<u8> = transmit.slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let datagrams = bytes.chunks(transmit.segment_bytes).map(Bytes::copy_from_slice);
        self.wire.lock().unwrap().extend(datagrams);
        Ok(())
    }

    fn turn_back(&mut self, transmit: &Transmit<'_>, _shared: &[(usize, &Bytes)]) -> Option<io::Result<()>> {
        (self.way != Way::Network).then(|| self.transmit(transmit))
    }

    fn descriptors<'a>(&'a self, _visit: &mut dyn FnMut(BorrowedFd<'a>)) {}

    fn stats(&self) -> LinkStats {
        LinkStats::default()
    }
}

pub(crate) struct Rig {
    pub(crate) executive: Executive,
    pub(crate) driver: DriverId,
    wire: Wire,
    pub(crate) now: Instant,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with_way(Way::Network)
    }

    /// Returns a provider whose packets return to it in memory.
    pub(crate) fn in_memory() -> Self {
        Self::with_way(Way::Memory)
    }

    /// Returns a provider whose packets return to it as if they came from a network, although they were taken for memory.
    pub(crate) fn in_memory_untold() -> Self {
        Self::with_way(Way::MemoryUntold)
    }

    fn with_way(way: Way) -> Self {
        let wire = Wire::default();
        Self::on(Box::new(Loop { wire: Arc::clone(&wire), way }), wire)
    }

    /// Returns a provider whose packets between its own streams wait in memory, while each receive from the network takes
    /// `batches` batches of rubbish.
    pub(crate) fn flooded(batches: usize) -> Self {
        Self::flooded_and_told(batches).0
    }

    /// Returns the same, and the ports that the link is told.
    pub(crate) fn flooded_and_told(batches: usize) -> (Self, InitPorts) {
        let told = InitPorts::default();
        let link = Flood(batches, Arc::clone(&told));
        (Self::on(Box::new(Hairpin::new(link)), Wire::default()), told)
    }

    fn on(link: Box<dyn Link>, wire: Wire) -> Self {
        let now = Instant::now();
        let driver = SctpDriver::new(link, SctpDriverConfig::default(), [7; 32], now);
        let mut executive = Executive::new(now);
        let driver = executive.add_driver("sctp_t", Box::new(driver));
        Self { executive, driver, wire, now }
    }

    pub(crate) fn open(&mut self) -> StreamId {
        self.executive.open(self.driver).unwrap()
    }

    /// Delivers datagrams until none is left.
    pub(crate) fn exchange_until_idle(&mut self) {
        for _ in 0..STEPS_MAX {
            self.flush();
            if self.wire.lock().unwrap().is_empty() {
                return;
            }
            self.step();
        }
        panic!("the network never falls silent");
    }

    /// Lets time pass, in steps shorter than any timer of these tests, with exchanges in between.
    pub(crate) fn pass(&mut self, time: Duration) {
        const STEP: Duration = Duration::from_millis(100);
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            self.executive.timeout(self.now);
            self.exchange_until_idle();
        }
    }

    /// Hands queued data to the network.
    pub(crate) fn flush(&mut self) {
        self.executive.at(self.now).run();
        self.executive.flush(self.now, FlushScope::All);
    }

    /// Returns the datagrams that wait to be delivered.
    pub(crate) fn waiting(&self) -> Vec<Bytes> {
        self.wire.lock().unwrap().iter().cloned().collect()
    }

    /// Returns the counters of the provider.
    pub(crate) fn statistics(&mut self) -> EndpointStatistics {
        let statistics = |driver: &mut SctpDriver| driver.endpoint_statistics();
        self.executive.driver_state(self.driver, statistics).unwrap()
    }

    /// Delivers one datagram.
    pub(crate) fn step(&mut self) {
        let _ = self.executive.receive(self.now).unwrap();
        self.executive.at(self.now).run();
    }

    /// Puts a primitive with data, in its byte layout, as a program would.
    pub(crate) fn put_with(&mut self, s: StreamId, primitive: &Primitive, data: &[u8]) {
        let control = Control::from(&primitive.encode()[..]);
        let m = Message::with_data(Kind::Proto(control), Chain::from(data.to_vec()));
        self.executive.at(self.now).putmsg(s, m).unwrap();
        self.executive.at(self.now).run();
    }

    pub(crate) fn put(&mut self, s: StreamId, primitive: &Primitive) {
        self.put_with(s, primitive, b"");
    }

    /// Takes the next primitive and its data.
    pub(crate) fn take(&mut self, s: StreamId) -> Option<(Primitive, Vec<u8>)> {
        let m = self.executive.getmsg(s).unwrap()?;
        self.executive.at(self.now).run();
        let (Kind::Proto(control) | Kind::PcProto(control)) = m.kind else { panic!("{m:?}") };
        Some((control.decode().unwrap(), m.data.to_vec()))
    }

    /// Puts a primitive and takes its answer.
    pub(crate) fn ask(&mut self, s: StreamId, primitive: &Primitive) -> Primitive {
        self.put(s, primitive);
        self.take(s).expect("the request has an answer").0
    }

    pub(crate) fn info(&mut self, s: StreamId) -> Info {
        match self.ask(s, &Primitive::InfoReq) {
            Primitive::InfoAck(info) => *info,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the state of a stream, according to the provider.
    pub(crate) fn state(&mut self, s: StreamId) -> State {
        let number = self.info(s).state;
        State::ALL.into_iter().find(|state| state.number() == number).unwrap()
    }

    /// Returns the number of a stream for a connect response.
    pub(crate) fn acceptor(&mut self, s: StreamId) -> u32 {
        match self.ask(s, &Primitive::CapabilityReq { bits: Primitive::CAPABILITY_ACCEPTOR }) {
            Primitive::CapabilityAck { acceptor, .. } => acceptor,
            other => panic!("{other:?}"),
        }
    }

    /// Returns a bound stream, which listens if `backlog` is not 0.
    pub(crate) fn bound(&mut self, port: u16, backlog: u32) -> StreamId {
        let s = self.open();
        let answer = self.ask(s, &bind(port, backlog));
        assert!(matches!(answer, Primitive::BindAck { .. }), "{answer:?}");
        s
    }

    /// Returns a stream that has requested an association.
    pub(crate) fn connecting(&mut self) -> StreamId {
        let s = self.bound(0, 0);
        let answer = self.ask(s, &connect(PORT));
        assert!(matches!(answer, Primitive::OkAck { .. }), "{answer:?}");
        s
    }

    /// Takes the number of a connect indication.
    pub(crate) fn indication(&mut self, listener: StreamId) -> u32 {
        match self.take(listener) {
            Some((Primitive::ConnInd { sequence, .. }, _)) => sequence,
            other => panic!("{other:?}"),
        }
    }

    /// Returns both ends of an association: the connecting and the accepting stream.
    pub(crate) fn connected(&mut self) -> (StreamId, StreamId) {
        let listener = self.bound(PORT, 5);
        let client = self.connecting();
        self.exchange_until_idle();
        let sequence = self.indication(listener);
        let server = self.open();
        let acceptor = self.acceptor(server);
        let answer = self.ask(listener, &Primitive::ConnRes { sequence, acceptor });
        assert!(matches!(answer, Primitive::OkAck { .. }), "{answer:?}");
        let confirmation = self.take(client).unwrap().0;
        assert!(matches!(confirmation, Primitive::ConnCon { .. }), "{confirmation:?}");
        (client, server)
    }
}

pub(crate) fn bind(port: u16, backlog: u32) -> Primitive {
    Primitive::BindReq { addresses: SocketAddr::new(HOST, port).into(), backlog }
}

pub(crate) fn connect(port: u16) -> Primitive {
    Primitive::ConnReq { addresses: SocketAddr::new(HOST, port).into() }
}

pub(crate) fn release() -> Primitive {
    Primitive::OrdrelReq { association: Which::Only }
}

pub(crate) fn disconnect(sequence: u32) -> Primitive {
    Primitive::DisconReq { sequence, reason: 0, association: Which::Only }
}
