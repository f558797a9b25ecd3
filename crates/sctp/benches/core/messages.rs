//! Messages through two endpoints: what each step costs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sctp::{
    Admission, AssociationConfig, AssociationId, BatchLimits, Endpoint, EndpointConfig, Event, Host,
    PathHints, Payload, Piece, ReceiveInfo, Scope, SendInfo, Time, TransmitBuffer,
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
}

impl Reader {
    pub(crate) fn new(mtu_bytes: usize) -> Self {
        Reader { mtu_bytes, up: None, read: VecDeque::new(), joined: BytesMut::new() }
    }
}

impl Host for Reader {
    fn message(&mut self, id: AssociationId, _info: &ReceiveInfo, payload: Payload) {
        let bytes = payload.blocks().iter().map(Bytes::len).sum();
        self.read.push_back((id, bytes));
    }

    fn event(&mut self, id: AssociationId, event: Event) {
        match event {
            Event::Accepted { .. } | Event::Connected { .. } => self.up = Some(id),
            Event::Closed(reason) => panic!("the association ended: {reason}"),
            _ => {}
        }
    }

    /// Into a block that is used again once all its messages are gone.
    fn join(&mut self, parts: &[Bytes]) -> Bytes {
        self.joined.reserve(parts.iter().map(Bytes::len).sum());
        for part in parts {
            self.joined.extend_from_slice(part);
        }
        self.joined.split().freeze()
    }

    fn path_hints(&self, _remote: SocketAddr) -> PathHints {
        PathHints { mtu_bytes: self.mtu_bytes, in_flight_limit_bytes: None }
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
    fn new(mtu_bytes: usize) -> Self {
        let (mut a, mut b) = (Side::new(1, mtu_bytes), Side::new(2, mtu_bytes));
        let config = AssociationConfig::default();
        assert!(b.endpoint.listen(7, config.clone()));
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
                match a.endpoint.admit(*id, &info, message.len()) {
                    Admission::Idle | Admission::Room => {}
                    _ => break,
                }
                a.endpoint.send(*id, &info, message.len(), [message.clone()]).unwrap();
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
                b.endpoint.handle_batch(*now, from, None, sent.segment_bytes, &batch, &mut b.reader);
            });
            drop(batch);
            steps.read.measure(|| {
                while let Some((id, bytes)) = b.reader.read.pop_front() {
                    b.endpoint.consumed(id, bytes, true);
                }
            });
        }
        while let Some(sent) =
            steps.sack.measure(|| b.endpoint.poll_transmit(*now, Scope::All, &mut wire.buffer))
        {
            let batch = wire.carry();
            let from = b.address;
            steps.acknowledged.measure(|| {
                a.endpoint.handle_batch(*now, from, None, sent.segment_bytes, &batch, &mut a.reader);
            });
        }
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
                let mut pair = Pair::new(mtu_bytes);
                let message = Bytes::from(vec![7; bytes]);
                // About as much as one batch of the link takes.
                let count = (60_000 / (bytes + 16)).clamp(4, 2000);
                pair.run(count, &message, WARM_UP);
                line(mtu_bytes, bytes, &pair.run(count, &message, MEASURED));
            }
        }
    }
}

fn line(mtu_bytes: usize, bytes: usize, steps: &Steps) {
    let per_message = |step: &Step| step.time.as_nanos() as f64 / steps.messages as f64;
    let all = [steps.send, steps.transmit, steps.receive, steps.read, steps.sack, steps.acknowledged];
    let total: f64 = all.iter().map(per_message).sum();
    let allocations: u64 = all.iter().map(|step| step.allocations).sum();
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
