//! Messages through two endpoints: what each step costs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sctp::{
    Admission, Arrival, AssociationConfig, AssociationId, BatchLimits, Endpoint, EndpointConfig, Event, Host,
    PathHints, Payload, Piece, RecvInfo, Scope, SendInfo, Time, Transmit, TransmitBuffer,
};

use crate::counting::allocations;

/// How long each size is measured, and how long it warms up.
const MEASURED: Duration = Duration::from_millis(700);
const WARM_UP: Duration = Duration::from_millis(200);
const LIMITS: BatchLimits = BatchLimits { segments_max: 64, bytes_max: 65_300 };

/// The reader: it counts and reads at once.
pub(crate) struct Reader {
    pub(crate) mtu_bytes: usize,
    pub(crate) up: Option<AssociationId>,
    read: VecDeque<(AssociationId, usize)>,
    joined: BytesMut,
    /// Memory of the blocks of the last message that had several.
    spare: Vec<Bytes>,
}

impl Reader {
    pub(crate) fn new(mtu_bytes: usize) -> Self {
        Reader { mtu_bytes, up: None, read: VecDeque::new(), joined: BytesMut::new(), spare: Vec::new() }
    }
}

impl Host for Reader {
    fn message(&mut self, id: AssociationId, _info: &RecvInfo, payload: Payload) {
        let bytes = payload.blocks().iter().map(Bytes::len).sum();
        self.read.push_back((id, bytes));
        if let Payload::Many(mut blocks) = payload {
            blocks.clear();
            self.spare = blocks;
        }
    }

    fn spare(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.spare)
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        match event {
            Event::Accepted { .. } | Event::Connected { .. } => self.up = Some(id),
            Event::Closed(reason) => panic!("the association ended: {reason}"),
            _ => {}
        }
    }

    /// Joins parts in a block that is used again once all its messages are gone.
    fn join(&mut self, parts: &[Bytes]) -> Bytes {
        self.joined.reserve(parts.iter().map(Bytes::len).sum());
        for part in parts {
            self.joined.extend_from_slice(part);
        }
        self.joined.split().freeze()
    }

    fn path_hints(&self, _remote: SocketAddr) -> PathHints {
        PathHints { mtu_bytes: self.mtu_bytes, ..PathHints::default() }
    }
}

/// One side.
struct Side {
    endpoint: Endpoint,
    reader: Reader,
    address: SocketAddr,
}

impl Side {
    fn new(number: u8, mtu_bytes: usize) -> Self {
        Side {
            endpoint: Endpoint::new(EndpointConfig::default(), [number; 32], LIMITS),
            reader: Reader::new(mtu_bytes),
            address: SocketAddr::from(([10, 0, 0, number], 9899)),
        }
    }
}

/// Time and allocations of a step.
#[derive(Default, Clone, Copy)]
struct Step {
    time: Duration,
    allocations: u64,
}

impl Step {
    fn measure<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let (before, start) = (allocations(), Instant::now());
        let result = step();
        self.time += start.elapsed();
        self.allocations += allocations() - before;
        result
    }
}

#[derive(Default, Clone, Copy)]
struct Steps {
    send: Step,
    transmit: Step,
    receive: Step,
    read: Step,
    sack: Step,
    acknowledged: Step,
    trace: Step,
    records: u64,
    packets: u64,
    messages: u64,
}

/// Where batches arrive: one block that is used again when nobody holds a part of it.
struct Wire {
    block: BytesMut,
    buffer: TransmitBuffer,
}

impl Wire {
    /// Copies the batch as a link's two ends would, outside of what is measured.
    fn carry(&mut self) -> Bytes {
        self.block.clear();
        self.block.reserve(1 << 16);
        for piece in self.buffer.pieces() {
            match piece {
                Piece::Inline(range) => self.block.extend_from_slice(&self.buffer.inline()[range.clone()]),
                Piece::Shared(bytes) => self.block.extend_from_slice(bytes),
            }
        }
        self.block.split().freeze()
    }
}

struct Pair {
    a: Side,
    b: Side,
    id: AssociationId,
    now: Time,
    wire: Wire,
}

impl Pair {
    fn new(mtu_bytes: usize, trace: bool) -> Self {
        let (mut a, mut b) = (Side::new(1, mtu_bytes), Side::new(2, mtu_bytes));
        let config = AssociationConfig { trace, ..AssociationConfig::default() };
        b.endpoint.listen(7, config.clone()).expect("the port is free");
        let now = Time::from_nanos(1);
        let id = a.endpoint.connect(now, 6, 7, &[b.address], Arc::new(config), &a.reader).unwrap();
        let wire = Wire { block: BytesMut::with_capacity(1 << 20), buffer: TransmitBuffer::new() };
        let mut pair = Pair { a, b, id, now, wire };
        while pair.a.reader.up.is_none() {
            pair.turn(0, &Bytes::new(), &mut Steps::default());
        }
        pair
    }

    /// Sends up to `count` messages, carries everything to the other side and the SACKs back.
    fn turn(&mut self, count: usize, message: &Bytes, steps: &mut Steps) {
        let Pair { a, b, id, now, wire } = self;
        *now = *now + Duration::from_micros(20);
        let info = SendInfo::default();
        steps.messages += steps.send.measure(|| {
            let mut sent = 0;
            while sent < count {
                let Admission::Granted(permit) = a.endpoint.admit(*id, &info, message.len()) else { break };
                permit.send(*now, [message.clone()]);
                sent += 1;
            }
            sent as u64
        });
        while let Some(sent) =
            steps.transmit.measure(|| a.endpoint.poll_transmit(*now, Scope::All, &mut wire.buffer))
        {
            steps.packets += sent.total_bytes.div_ceil(sent.segment_bytes) as u64;
            let batch = wire.carry();
            let from = a.address;
            steps.receive.measure(|| {
                b.endpoint.handle_batch(*now, &arrival(from, &sent, &batch), &mut b.reader);
            });
            drop(batch);
            steps.read.measure(|| {
                while let Some((id, bytes)) = b.reader.read.pop_front() {
                    b.endpoint.consumed(id, bytes, 1);
                }
            });
        }
        while let Some(sent) =
            steps.sack.measure(|| b.endpoint.poll_transmit(*now, Scope::All, &mut wire.buffer))
        {
            let batch = wire.carry();
            let from = b.address;
            steps.acknowledged.measure(|| {
                a.endpoint.handle_batch(*now, &arrival(from, &sent, &batch), &mut a.reader);
            });
        }
        steps.records += steps.trace.measure(|| {
            [a, b]
                .into_iter()
                .map(|side| std::iter::from_fn(|| side.endpoint.poll_trace()).count() as u64)
                .sum::<u64>()
        });
    }

    fn run(&mut self, count: usize, message: &Bytes, time: Duration) -> Steps {
        let mut steps = Steps::default();
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn(count, message, &mut steps);
        }
        steps
    }
}

/// Prints a line for each size and packet size.
pub(crate) fn report(only: Option<usize>) {
    println!("ns per message through two endpoints; allocations of the core per packet with DATA");
    println!(
        "packet bytes  message bytes     send  transmit  receive  read  SACK out  SACK in    total  allocations"
    );
    for mtu_bytes in [1472, 65_000] {
        for bytes in [1, 64, 1024, 16_384] {
            if only.is_none_or(|only| only == bytes) {
                line(mtu_bytes, bytes, &measure(mtu_bytes, bytes, false));
            }
        }
    }
}

fn measure(mtu_bytes: usize, bytes: usize, trace: bool) -> Steps {
    let mut pair = Pair::new(mtu_bytes, trace);
    let message = Bytes::from(vec![7; bytes]);
    // About as much as one batch of the link takes.
    let count = (60_000 / (bytes + 16)).clamp(4, 2000);
    pair.run(count, &message, WARM_UP);
    pair.run(count, &message, MEASURED)
}

/// Prints what looking on costs: nothing, where nobody does.
pub(crate) fn report_trace(only: Option<usize>) {
    println!(
        "ns per message through two endpoints, both traced or not; allocations and records per packet with DATA"
    );
    println!("packet bytes  message bytes  traced    total  allocations  records");
    for bytes in [64, 1024, 16_384] {
        if only.is_some_and(|only| only != bytes) {
            continue;
        }
        for trace in [false, true] {
            let steps = measure(1472, bytes, trace);
            let (total, allocations) = steps.sum();
            let packets = steps.packets as f64;
            let per_message = total.as_nanos() as f64 / steps.messages as f64;
            println!(
                "{:12}  {bytes:13}  {trace:6}  {per_message:7.1}  {:11.4}  {:7.2}",
                1472,
                allocations as f64 / packets,
                steps.records as f64 / packets
            );
            assert!(trace || steps.records == 0, "an association that is not traced records nothing");
        }
    }
}

impl Steps {
    /// Returns the time and the allocations of all steps.
    fn sum(&self) -> (Duration, u64) {
        let all =
            [self.send, self.transmit, self.receive, self.read, self.sack, self.acknowledged, self.trace];
        (all.iter().map(|step| step.time).sum(), all.iter().map(|step| step.allocations).sum())
    }
}

fn line(mtu_bytes: usize, bytes: usize, steps: &Steps) {
    let per_message = |step: &Step| step.time.as_nanos() as f64 / steps.messages as f64;
    let (total, allocations) = steps.sum();
    let total = total.as_nanos() as f64 / steps.messages as f64;
    println!(
        "{mtu_bytes:12}  {bytes:13}  {:7.1}  {:8.1}  {:7.1}  {:4.1}  {:8.1}  {:7.1}  {total:7.1}  {:11.4}",
        per_message(&steps.send),
        per_message(&steps.transmit),
        per_message(&steps.receive),
        per_message(&steps.read),
        per_message(&steps.sack),
        per_message(&steps.acknowledged),
        allocations as f64 / steps.packets as f64,
    );
}

fn arrival<'a>(remote: SocketAddr, sent: &Transmit, bytes: &'a Bytes) -> Arrival<'a> {
    Arrival {
        remote,
        local: None,
        marked: false,
        in_memory: false,
        segment_bytes: sent.segment_bytes,
        bytes,
        shared: &[],
    }
}
