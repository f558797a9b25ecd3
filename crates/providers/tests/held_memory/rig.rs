//! An executive with the SCTP provider, a link that receives into large blocks that batches share, and hostile peers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use links::{BatchLimits, Datagrams, Link, LinkStats, PathInfo, Sink, Transmit};
use providers::{SctpDriver, SctpDriverConfig};
use sctp_wire::cause::Causes;
use sctp_wire::chunk::{Abort, Chunk, CookieEcho, Data, DataFlags, Init};
use sctp_wire::parameter::{Ipv4, Parameter, Parameters, PrivateExtension};
use sctp_wire::{Header, Packet, Ppid, Ssn, StreamId as WireStream, Tsn, VerificationTag, packet};
use streams::{Control, DriverId, Executive, FlushScope, Kind, Message, StreamId};
use tpi::{Primitive, Which};

use crate::allocator::live_bytes;

/// The size of receive blocks, as in the links of this project.
pub(crate) const BLOCK_BYTES: usize = 256 * 1024;
const RECEIVE_BYTES: usize = 65_536;
/// Maximum memory of an association beyond twice the accounted amount.
pub(crate) const CONSTANT_BYTES: usize = 64 * 1024;
/// Maximum memory of receive blocks that all associations together may hold for a short time: the bytes received since
/// the last copying (256 KB), one receive, and a block on either side.
const ATTACHED_BYTES_MAX: usize = 256 * 1024 + RECEIVE_BYTES * 3 + 2 * BLOCK_BYTES;
const LISTENING_PORT: u16 = 5001;

/// A batch of datagrams that arrives; all but the last have the length of the first.
pub(crate) type Batch = Vec<Vec<u8>>;

#[derive(Default)]
struct Wire {
    arriving: VecDeque<(SocketAddr, Batch)>,
    left: Vec<Vec<u8>>,
}

/// Receives as the links do, but never reuses a block, so that a block is in use as long as a slice of it exists.
struct BlockLink {
    wire: Arc<Mutex<Wire>>,
    block: BytesMut,
}

impl Link for BlockLink {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9899))]
    }

    fn path_info(&self, _remote: SocketAddr) -> PathInfo {
        PathInfo {
            mtu_bytes: 1472,
            header_bytes: 28,
            same_host: false,
            on_link: false,
            in_flight_limit_bytes: None,
            local: None,
            route_local: None,
        }
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits { segments_max: 64, bytes_max: 65_000 }
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        let arriving = std::mem::take(&mut self.wire.lock().expect("no test has failed").arriving);
        for (remote, batch) in arriving {
            if self.block.capacity() < RECEIVE_BYTES {
                self.block = BytesMut::with_capacity(BLOCK_BYTES);
            }
            let segment_bytes = batch[0].len();
            batch.iter().for_each(|datagram| self.block.extend_from_slice(datagram));
            let payload = self.block.split().freeze();
            let local = IpAddr::from([10, 0, 0, 1]);
            let block_bytes = payload.len();
            let shared = Vec::new();
            sink.datagrams(Datagrams { remote, local, ecn: 0, segment_bytes, payload, shared, block_bytes });
        }
        Ok(false)
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let whole: Vec<u8> = transmit.slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let packets = whole.chunks(transmit.segment_bytes).map(<[u8]>::to_vec);
        self.wire.lock().expect("no test has failed").left.extend(packets);
        Ok(())
    }

    fn descriptors<'a>(&'a self, _visit: &mut dyn FnMut(BorrowedFd<'a>)) {}

    fn stats(&self) -> LinkStats {
        LinkStats::default()
    }
}

/// A peer that has set up an association and sends arbitrary packets.
pub(crate) struct Peer {
    address: SocketAddr,
    port: u16,
    /// The tag of the endpoint, another one after each restart.
    tag: Cell<u32>,
}

impl Peer {
    /// Returns a packet with the chunks that `write` appends.
    pub(crate) fn packet(&self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        packet_of(self.port, self.tag.get(), write)
    }

    /// Returns a packet with one DATA chunk; TSNs begin at 0.
    pub(crate) fn data(&self, flags: DataFlags, tsn: u32, stream: u16, ssn: u16, payload: &[u8]) -> Vec<u8> {
        self.packet(|out| write_data(flags, tsn, stream, ssn, payload, out))
    }
}

pub(crate) fn write_data(
    flags: DataFlags,
    tsn: u32,
    stream: u16,
    ssn: u16,
    payload: &[u8],
    out: &mut Vec<u8>,
) {
    let (tsn, stream, ssn) = (Tsn(tsn), WireStream(stream), Ssn(ssn));
    Data { flags, tsn, stream, ssn, ppid: Ppid(0), payload }.write(out);
}

fn packet_of(port: u16, tag: u32, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let header = Header {
        source_port: port,
        destination_port: LISTENING_PORT,
        verification_tag: VerificationTag(tag),
    };
    let mut bytes = Vec::new();
    packet::write_header(&header, &mut bytes);
    write(&mut bytes);
    packet::finish(&mut bytes);
    bytes
}

pub(crate) struct Rig {
    executive: Executive,
    driver: DriverId,
    stream: StreamId,
    wire: Arc<Mutex<Wire>>,
    now: Instant,
    peers: u16,
    open: Vec<Which>,
    baseline_bytes: usize,
}

impl Rig {
    /// Returns a rig with an endpoint of this backlog (with [`SctpDriver::ONE_TO_MANY`], associations need no accept).
    pub(crate) fn new(backlog: u32) -> Self {
        Rig::with(backlog, SctpDriverConfig::default())
    }

    /// Returns a rig with these settings.
    pub(crate) fn with(backlog: u32, config: SctpDriverConfig) -> Self {
        let now = Instant::now();
        let wire = Arc::new(Mutex::new(Wire::default()));
        let link = BlockLink { wire: Arc::clone(&wire), block: BytesMut::with_capacity(BLOCK_BYTES) };
        let driver = SctpDriver::new(Box::new(link), config, [7; 32], now);
        let mut executive = Executive::new(Instant::now());
        let driver = executive.add_driver("sctp", Box::new(driver));
        let stream = executive.open(driver).expect("a stream");
        let addresses = SocketAddr::from((Ipv4Addr::UNSPECIFIED, LISTENING_PORT)).into();
        let bind = Primitive::BindReq { addresses, backlog };
        executive.at(now).putmsg(stream, Message::proto(bind)).expect("the driver takes it");
        let mut rig =
            Rig { executive, driver, stream, wire, now, peers: 0, open: Vec::new(), baseline_bytes: 0 };
        rig.read_all();
        rig.set_baseline();
        rig
    }

    /// Excludes the memory in use now from later measurements.
    pub(crate) fn set_baseline(&mut self) {
        *self.wire.lock().expect("no test has failed") = Wire::default();
        self.baseline_bytes = live_bytes();
    }

    /// Sets up an association with a new peer, which has this many addresses.
    pub(crate) fn associate(&mut self, addresses: u8) -> Peer {
        self.peers += 1;
        let (port, address) = (6000 + self.peers, SocketAddr::from(([10, 0, 1, 1], 9899)));
        let peer = Peer { address, port, tag: Cell::new(0) };
        self.shake_hands(&peer, 1, addresses);
        let association = self.take_confirmation().unwrap_or_default();
        self.open.push(association);
        peer
    }

    /// Restarts a peer with one address, for the time `n`: it sets its association up anew. So few INITs in a second need no
    /// memory of their own.
    pub(crate) fn restarts(&mut self, peer: &Peer, n: u32) {
        self.now += Duration::from_millis(20);
        self.shake_hands(peer, n + 2, 1);
    }

    fn shake_hands(&mut self, peer: &Peer, initiate_tag: u32, addresses: u8) {
        let mut parameters = Vec::new();
        for n in 2..=addresses {
            Ipv4 { address: Ipv4Addr::new(10, 0, n, 1) }.write(&mut parameters);
        }
        PrivateExtension::PROMPT_PARTS.write(&mut parameters);
        let init = Init {
            initiate_tag: VerificationTag(initiate_tag),
            a_rwnd: 100_000,
            outbound_streams: u16::MAX,
            inbound_streams: u16::MAX,
            initial_tsn: Tsn(0),
            parameters: Parameters::new(&parameters),
        };
        self.arrives(peer.address, vec![packet_of(peer.port, 0, |out| init.write(out))]);
        let (tag, cookie) = self.take_init_ack();
        peer.tag.set(tag);
        self.sends(peer, vec![peer.packet(|out| CookieEcho { cookie: &cookie }.write(out))]);
    }

    fn take_init_ack(&mut self) -> (u32, Vec<u8>) {
        let left = std::mem::take(&mut self.wire.lock().expect("no test has failed").left);
        let packet = Packet::parse(left.last().expect("an answer")).expect("a packet");
        let first = packet.chunks().next().expect("a chunk").expect("a whole one");
        let Ok(Chunk::InitAck(ack)) = Chunk::parse(&first) else { panic!("no INIT ACK") };
        let cookie = ack.parameters().flatten().find_map(|parameter| match parameter {
            Parameter::StateCookie(cookie) => Some(cookie.cookie.to_vec()),
            _ => None,
        });
        (ack.initiate_tag.0, cookie.expect("a cookie"))
    }

    fn take_confirmation(&mut self) -> Option<Which> {
        while let Ok(Some(m)) = self.executive.getmsg(self.stream) {
            if let Kind::Proto(Control::Tpi(Primitive::ConnCon { association, .. })) = m.kind {
                return Some(association);
            }
        }
        None
    }

    /// Delivers a batch of `peer`.
    pub(crate) fn sends(&mut self, peer: &Peer, batch: Batch) {
        self.arrives(peer.address, batch);
    }

    /// Delivers a batch of `peer`, and with it an almost full batch of an unknown sender, which is discarded but fills
    /// the block.
    pub(crate) fn sends_among_noise(&mut self, peer: &Peer, batch: Batch) {
        let stranger = SocketAddr::from(([10, 9, 9, 9], 9899));
        let noise = vec![0; RECEIVE_BYTES - 4096];
        self.wire.lock().expect("no test has failed").arriving.push_back((stranger, vec![noise]));
        self.arrives(peer.address, batch);
    }

    /// Delivers these batches of `peer` at once. Returns how many receives they took.
    pub(crate) fn sends_at_once(&mut self, peer: &Peer, batches: impl Iterator<Item = Batch>) -> usize {
        let batches = batches.map(|batch| (peer.address, batch));
        self.wire.lock().expect("no test has failed").arriving.extend(batches);
        self.now += Duration::from_millis(1);
        let receives = 1 + std::iter::from_fn(|| {
            let more = self.executive.receive(self.now).expect("the link is in order");
            assert_eq!(more, self.executive.has_arrivals(), "no descriptor announces what is left");
            more.then_some(())
        })
        .count();
        self.executive.flush(self.now, FlushScope::All);
        receives
    }

    /// Returns how many messages the program reads.
    pub(crate) fn messages(&mut self) -> usize {
        std::iter::from_fn(|| self.executive.getmsg(self.stream).ok().flatten()).count()
    }

    fn arrives(&mut self, from: SocketAddr, batch: Batch) {
        let mut wire = self.wire.lock().expect("no test has failed");
        wire.left.clear();
        wire.arriving.push_back((from, batch));
        drop(wire);
        self.now += Duration::from_millis(1);
        while self.executive.receive(self.now).expect("the link is in order") {}
        self.executive.flush(self.now, FlushScope::All);
        self.run_timers();
    }

    fn run_timers(&mut self) {
        while self.executive.deadline().is_some_and(|deadline| deadline <= self.now) {
            self.executive.timeout(self.now);
            self.executive.flush(self.now, FlushScope::All);
        }
    }

    /// Reads everything, as the program.
    pub(crate) fn read_all(&mut self) {
        while let Ok(Some(_)) = self.executive.getmsg(self.stream) {}
    }

    /// Lets time pass in which nothing arrives.
    pub(crate) fn pause(&mut self) {
        self.now += Duration::from_millis(500);
        self.run_timers();
        self.wire.lock().expect("no test has failed").left = Vec::new();
    }

    /// Returns the memory of associations, as the allocator counts it.
    pub(crate) fn held_bytes(&self) -> usize {
        live_bytes().saturating_sub(self.baseline_bytes)
    }

    fn accounted_bytes(&mut self) -> usize {
        let (stream, open) = (self.stream, &self.open);
        let accounted = self.executive.driver_state(self.driver, |driver: &mut SctpDriver| {
            let all = open.iter().filter_map(|&association| driver.statistics(stream, association));
            all.map(|s| s.receive_buffered_bytes + s.receive_state_bytes).sum::<u64>() as usize
        });
        accounted.expect("the driver is the SCTP driver")
    }

    /// Checks the memory while data arrives: receive blocks of one receive may be held in addition to the promise.
    #[track_caller]
    pub(crate) fn check_busy(&mut self, pattern: &str) {
        self.check(ATTACHED_BYTES_MAX, pattern);
    }

    /// Checks that an association holds at most twice the accounted amount, and a constant.
    #[track_caller]
    pub(crate) fn check_quiet(&mut self, pattern: &str) {
        self.check(0, pattern);
    }

    /// Prints the figures, which are visible with `--nocapture`.
    pub(crate) fn print(&mut self, pattern: &str) {
        println!("{pattern}: {} bytes held, {} accounted", self.held_bytes(), self.accounted_bytes());
    }

    #[track_caller]
    fn check(&mut self, blocks_bytes: usize, pattern: &str) {
        let (held, accounted) = (self.held_bytes(), self.accounted_bytes());
        let allowed = 2 * accounted + self.open.len() * CONSTANT_BYTES + blocks_bytes;
        assert!(held <= allowed, "{pattern}: {held} bytes held, {accounted} accounted, {allowed} allowed");
    }

    /// Ends the association by its peer, and reads the end. Returns the memory still in use.
    pub(crate) fn end(&mut self, peer: &Peer) -> usize {
        let abort = Abort { reflected_tag: false, causes: Causes::new(&[]) };
        self.sends(peer, vec![peer.packet(|out| abort.write(out))]);
        self.read_all();
        self.pause();
        self.open.clear();
        self.held_bytes()
    }
}
