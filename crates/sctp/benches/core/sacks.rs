//! One SACK, with little or much outstanding, with and without gap blocks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, BatchLimits, Endpoint, EndpointConfig, Scope, SendInfo, Time,
    TransmitBuffer,
};
use sctp_wire::chunk::{Chunk, CookieAck, InitAck, SackBuilder};
use sctp_wire::parameter::{Parameters, StateCookie};
use sctp_wire::{Header, Packet, Tsn, VerificationTag, packet};

use crate::messages::Reader;

const MESSAGE_BYTES: usize = 1400;
const MTU_BYTES: usize = 1472;
const PEER_TAG: u32 = 77;
const WINDOW_BYTES: u32 = 1 << 30;
/// Chunks that one SACK acknowledges: it comes with every second packet.
const STEP: u32 = 2;
/// SACKs that are timed together.
const TIMED: u32 = 16;
const ROUNDS: usize = 400;
/// Gap blocks of the longest SACK; with [`STEP`] chunks and as many missing each they fit into the smallest size.
const BLOCKS_MAX: u16 = 80;
/// Chunks that lie between the starts of two gap blocks of a SACK that moves them all, and their number.
const MOVED_STEP: u16 = 16;
const MOVED_BLOCKS: u16 = 1000;
/// SACKs that move their gap blocks.
const MOVES: u16 = 200;

/// An endpoint that sends, and a peer that says what it likes.
struct Sender {
    endpoint: Endpoint,
    host: Reader,
    id: AssociationId,
    peer: SocketAddr,
    tag: u32,
    /// TSN of the first chunk that is not acknowledged, and of the next that is sent.
    first: u32,
    next: u32,
    now: Time,
    buffer: TransmitBuffer,
    message: Bytes,
}

impl Sender {
    fn new() -> Self {
        let limits = BatchLimits { segments_max: 64, bytes_max: 65_000 };
        let mut endpoint = Endpoint::new(EndpointConfig::default(), [3; 32], limits);
        let host = Reader::new(MTU_BYTES);
        let peer = SocketAddr::from(([10, 0, 0, 9], 9899));
        let config = AssociationConfig { send_buffer_bytes: 1 << 30, ..AssociationConfig::default() };
        let now = Time::from_nanos(1);
        let id = endpoint.connect(now, 6, 7, &[peer], Arc::new(config), &host).unwrap();
        let mut sender = Sender {
            endpoint,
            host,
            id,
            peer,
            tag: 0,
            first: 0,
            next: 0,
            now,
            buffer: TransmitBuffer::new(),
            message: Bytes::from(vec![7; MESSAGE_BYTES]),
        };
        sender.set_up();
        sender
    }

    fn set_up(&mut self) {
        self.endpoint.poll_transmit(self.now, Scope::All, &mut self.buffer).unwrap();
        let init = self.buffer.to_vec();
        let raw = Packet::parse(&init).unwrap().chunks().next().unwrap().unwrap();
        if let Chunk::Init(init) = Chunk::parse(&raw).unwrap() {
            (self.tag, self.first, self.next) = (init.initiate_tag.0, init.initial_tsn.0, init.initial_tsn.0);
        }
        let mut parameters = Vec::new();
        StateCookie { cookie: b"cookie" }.write(&mut parameters);
        let ack = InitAck {
            initiate_tag: VerificationTag(PEER_TAG),
            a_rwnd: WINDOW_BYTES,
            outbound_streams: 1,
            inbound_streams: 1,
            initial_tsn: Tsn(1),
            parameters: Parameters::new(&parameters),
        };
        let ack = self.packet(|out| ack.write(out));
        self.hears(&ack);
        self.transmit();
        let ack = self.packet(|out| CookieAck.write(out));
        self.hears(&ack);
        assert!(self.host.up.is_some());
    }

    fn packet(&self, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let mut out = Vec::new();
        let header =
            Header { source_port: 7, destination_port: 6, verification_tag: VerificationTag(self.tag) };
        packet::write_header(&header, &mut out);
        write(&mut out);
        packet::finish(&mut out);
        out.into()
    }

    fn sack(&self, cum_tsn: u32, gap_blocks: &[(u16, u16)]) -> Bytes {
        self.packet(|out| {
            SackBuilder { cum_tsn: Tsn(cum_tsn), a_rwnd: WINDOW_BYTES, gap_blocks, duplicates: &[] }
                .write(out);
        })
    }

    fn hears(&mut self, packet: &Bytes) {
        self.endpoint.handle_datagram(self.now, self.peer, None, packet, &mut self.host);
    }

    fn transmit(&mut self) {
        while self.endpoint.poll_transmit(self.now, Scope::All, &mut self.buffer).is_some() {}
    }

    fn outstanding(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// Hands in messages until `chunks` are outstanding or wait to be.
    fn fill(&mut self, chunks: u32) {
        while self.outstanding() < chunks {
            let block = [self.message.clone()];
            self.endpoint.send(self.now, self.id, &SendInfo::default(), MESSAGE_BYTES, block).unwrap();
            self.next = self.next.wrapping_add(1);
        }
        self.transmit();
    }

    /// Hands in messages until `chunks` are outstanding, and waits until all of them have left.
    fn fly(&mut self, chunks: u32) {
        self.fill(chunks);
        while self.in_flight() < chunks {
            // The pacer lets the next burst leave.
            self.now = self.now + Duration::from_millis(1);
            self.endpoint.handle_timeout(self.now, &mut self.host);
            self.transmit();
        }
    }

    /// Opens the congestion window until so many chunks can be in flight.
    fn open(&mut self, chunks: u32) {
        let wanted = chunks as usize * (MESSAGE_BYTES + 16);
        loop {
            let cwnd = self.endpoint.statistics(self.id).unwrap().paths[0].cwnd_bytes;
            // The window opens only while it is in full use, by at most eight packets a SACK.
            self.fill((cwnd / (MESSAGE_BYTES + 16)) as u32 + 2);
            self.now = self.now + Duration::from_micros(10);
            self.acknowledge(self.in_flight().min(8));
            if cwnd >= wanted {
                break;
            }
        }
        while self.outstanding() > 0 {
            self.acknowledge(self.in_flight());
        }
    }

    /// Chunks in flight; what was handed in may still wait for the window.
    fn in_flight(&self) -> u32 {
        self.endpoint.statistics(self.id).unwrap().outstanding_bytes as u32 / MESSAGE_BYTES as u32
    }

    fn acknowledge(&mut self, chunks: u32) {
        self.first = self.first.wrapping_add(chunks);
        let sack = self.sack(self.first.wrapping_sub(1), &[]);
        self.hears(&sack);
        self.transmit();
    }

    /// ns for one SACK that acknowledges the next two chunks of `chunks` that are outstanding.
    fn plain(&mut self, chunks: u32) -> f64 {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            self.fly(chunks);
            self.now = self.now + Duration::from_micros(10);
            let sacks: Vec<Bytes> = (1..=TIMED)
                .map(|n| self.sack(self.first.wrapping_add(n * STEP).wrapping_sub(1), &[]))
                .collect();
            let start = Instant::now();
            for sack in &sacks {
                self.endpoint.handle_datagram(self.now, self.peer, None, sack, &mut self.host);
            }
            times.push(start.elapsed().as_nanos() as f64 / f64::from(TIMED));
            self.first = self.first.wrapping_add(TIMED * STEP);
        }
        median(times)
    }

    /// ns for one SACK that repeats all gap blocks so far and has a new one at its end: half of the chunks are missing.
    fn with_gaps(&mut self, chunks: u32) -> f64 {
        let mut times = Vec::new();
        self.fly(chunks);
        let mut gaps = Vec::new();
        for block in 0..BLOCKS_MAX {
            gaps.push((2 + 4 * block, 3 + 4 * block));
            self.now = self.now + Duration::from_micros(10);
            let sack = self.sack(self.first.wrapping_sub(1), &gaps);
            let start = Instant::now();
            self.endpoint.handle_datagram(self.now, self.peer, None, &sack, &mut self.host);
            times.push(start.elapsed().as_nanos() as f64);
            // Retransmits the lost packets, as an endpoint would.
            self.transmit();
        }
        times.iter().sum::<f64>() / times.len() as f64
    }

    /// Returns the ns for one SACK of a hostile peer in which every gap block is new: the peer takes back the chunks that it
    /// reported, and reports those that were missing. No lost chunk is retransmitted meanwhile.
    fn with_moved_gaps(&mut self) -> f64 {
        self.fly(u32::from(MOVED_STEP) * u32::from(MOVED_BLOCKS));
        let mut times = Vec::new();
        for phase in 0..MOVES {
            let width = if phase & 2 == 0 { MOVED_STEP / 2 } else { 1 };
            let start = |block| 2 + MOVED_STEP * block + phase % 2;
            let gaps: Vec<_> = (0..MOVED_BLOCKS - 1).map(|n| (start(n), start(n) + width - 1)).collect();
            let sack = self.sack(self.first.wrapping_sub(1), &gaps);
            self.now = self.now + Duration::from_micros(10);
            let start = Instant::now();
            self.endpoint.handle_datagram(self.now, self.peer, None, &sack, &mut self.host);
            times.push(start.elapsed().as_nanos() as f64);
        }
        median(times)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints a line for each size.
pub(crate) fn report() {
    println!("ns per SACK by what is outstanding, in chunks of {MESSAGE_BYTES} bytes");
    println!("outstanding MB   chunks  two chunks more    ratio  up to {BLOCKS_MAX} gap blocks    ratio");
    let mut base = None;
    for half_megabytes in [1, 8, 32, 128] {
        let chunks = half_megabytes * 500_000 / MESSAGE_BYTES as u32;
        let (mut plain, mut gaps) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let mut sender = Sender::new();
            sender.open(chunks + 2 * TIMED * STEP);
            plain.push(sender.plain(chunks));
            gaps.push(sender.with_gaps(chunks));
        }
        let (plain, gaps) = (median(plain), median(gaps));
        let (plain_base, gaps_base) = *base.get_or_insert((plain, gaps));
        println!(
            "{:14.1}  {chunks:7}  {plain:15.1}  {:7.2}  {gaps:19.1}  {:7.2}",
            f64::from(half_megabytes) / 2.0,
            plain / plain_base,
            gaps / gaps_base,
        );
    }
}

/// Prints what a SACK costs whose gap blocks all move.
pub(crate) fn report_moved() {
    let mut sender = Sender::new();
    sender.open(u32::from(MOVED_STEP) * u32::from(MOVED_BLOCKS));
    let each = sender.with_moved_gaps() / f64::from(MOVED_BLOCKS);
    println!("ns per gap block of a SACK that moves {MOVED_BLOCKS} of them: {each:.1}");
}
