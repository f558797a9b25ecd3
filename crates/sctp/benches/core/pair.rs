//! Two endpoints, joined in memory, and the cost of each step of a message between them.

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

const LIMITS: BatchLimits = BatchLimits { segments_max: 64, bytes_max: 65_300 };

/// The reader: it counts and reads at once.
pub(crate) struct Reader {
    pub(crate) mtu_bytes: usize,
    pub(crate) up: Option<AssociationId>,
    read: VecDeque<(AssociationId, usize)>,
    joined: BytesMut,
    /// Emptied memory for the blocks of a message.
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

    /// Into a block that is used again once all its messages are gone.
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
pub(crate) struct Step {
    pub(crate) time: Duration,
    pub(crate) allocations: u64,
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
pub(crate) struct Steps {
    pub(crate) send: Step,
    pub(crate) transmit: Step,
    pub(crate) receive: Step,
    pub(crate) read: Step,
    pub(crate) sack: Step,
    pub(crate) acknowledged: Step,
    pub(crate) trace: Step,
    pub(crate) records: u64,
    pub(crate) packets: u64,
    pub(crate) messages: u64,
}

impl Steps {
    /// Time and allocations of all steps.
    pub(crate) fn sum(&self) -> (Duration, u64) {
        let all =
            [self.send, self.transmit, self.receive, self.read, self.sack, self.acknowledged, self.trace];
        (all.iter().map(|step| step.time).sum(), all.iter().map(|step| step.allocations).sum())
    }
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

/// Two endpoints with an association.
pub(crate) struct Pair {
    a: Side,
    b: Side,
    id: AssociationId,
    now: Time,
    wire: Wire,
}

impl Pair {
    pub(crate) fn new(mtu_bytes: usize, trace: bool) -> Self {
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
    pub(crate) fn turn(&mut self, count: usize, message: &Bytes, steps: &mut Steps) {
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
}

fn arrival<'a>(remote: SocketAddr, sent: &Transmit, bytes: &'a Bytes) -> Arrival<'a> {
    Arrival { remote, local: None, marked: false, segment_bytes: sent.segment_bytes, bytes }
}

/// Returns how many messages are about as much as one batch of the link takes.
pub(crate) fn messages_of_a_turn(bytes: usize) -> usize {
    (60_000 / (bytes + 16)).clamp(4, 2000)
}
