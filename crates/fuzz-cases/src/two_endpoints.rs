//! Two sides, the wires between them and the clock.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use sctp::{Arrival, AssociationId, CloseReason, Scope, Time, Transmit, TransmitBuffer, Unreachable};

use crate::net::{self, Fate, Net};
use crate::side::Side;
use crate::sniff::{self, Known};

/// Packets that a wire holds; what comes beyond is lost.
const WIRE_PACKETS_MAX: usize = 512;
/// Packets that the middle remembers.
const HISTORY_PACKETS_MAX: usize = 64;
/// Packets without data that a call may set off beside one for each packet that came: full queues of control chunks
/// and a SACK.
const CONTROL_PACKETS_MAX: usize = 40;
/// Times that one instant may have something to do.
const INSTANT_STEPS_MAX: usize = 128;

/// A packet on a wire.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Bytes,
    pub(crate) sent_at: Time,
    /// It is too long for its net: its sender will hear how long packets may be there, and nobody sees it.
    pub(crate) too_big: Option<usize>,
    /// A congested router has let it pass.
    pub(crate) marked: bool,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct TwoEndpoints {
    pub(crate) now: Time,
    pub(crate) sides: [Side; 2],
    pub(crate) nets: [Net; net::COUNT],
    /// Packets that each side has sent and that have not arrived yet.
    pub(crate) wires: [VecDeque<Packet>; 2],
    pub(crate) history: VecDeque<Packet>,
    pub(crate) known: [Known; 2],
    /// Where packets came from that each side has taken.
    heard: [BTreeSet<IpAddr>; 2],
    /// The middle made a packet that passes for one of a side's: what follows proves nothing about its content.
    pub(crate) forged: bool,
    /// Tags of the associations that each side has begun.
    tags: [BTreeSet<u32>; 2],
    buffer: TransmitBuffer,
    /// Whether to print every packet, to see what an input does: if `FUZZ_LADDER` is set.
    prints: bool,
}

impl TwoEndpoints {
    pub(crate) fn new(sides: [Side; 2]) -> Self {
        TwoEndpoints {
            now: Time::ZERO + Duration::from_secs(1),
            sides,
            nets: Default::default(),
            wires: Default::default(),
            history: VecDeque::new(),
            known: Default::default(),
            heard: Default::default(),
            forged: false,
            tags: Default::default(),
            buffer: TransmitBuffer::new(),
            prints: std::env::var_os("FUZZ_LADDER").is_some(),
        }
    }

    /// Prints a packet in the ladder: its time, its direction, whether a side sends it or it arrives, and its contents.
    fn print(&self, what: &str, side: usize, packet: &Packet) {
        if self.prints {
            let ms = self.now.as_nanos() as f64 / 1e6;
            let text =
                sctp_wire::Packet::parse(&packet.bytes).map_or_else(|e| e.to_string(), |p| p.to_string());
            println!("{ms:12.3} ms {what} {} {} to {}: {text}", ["A", "B"][side], packet.from, packet.to);
        }
    }

    /// Calls a side, and lets what follows from it happen.
    pub(crate) fn call(&mut self, side: usize, call: impl FnOnce(&mut Side, Time)) {
        self.sides[side].app.expect_packets(0);
        call(&mut self.sides[side], self.now);
        self.finish_call(side, 0);
    }

    /// Hands a side a datagram, or several of `segment_bytes` that came together.
    pub(crate) fn hand(&mut self, side: usize, packet: &Packet, segment_bytes: usize) {
        self.print("arrives at", side, packet);
        let local = Some(packet.to.ip());
        let Side { endpoint, app, .. } = &mut self.sides[side];
        let packets = packet.bytes.len().div_ceil(segment_bytes.max(1));
        app.expect_packets(packets);
        let associations = app.deliveries.entries.len();
        let arrival = Arrival {
            remote: packet.from,
            local,
            marked: packet.marked,
            segment_bytes,
            bytes: &packet.bytes,
        };
        endpoint.handle_batch(self.now, &arrival, app);
        self.heard[side].insert(packet.from.ip());
        if app.deliveries.entries.len() > associations
            && let Some(tag) = sniff::echoed_tag(&packet.bytes)
        {
            // A cookie that arrives after another association with its tag has ended, made from the same cookie or from an
            // INIT that crossed the peer's, begins an association with the same tags. Neither end can then tell packets of
            // one from those of the other (RFC 9260 §5.2.4 limits this only by the life of a cookie).
            self.forged |= !self.tags[side].insert(tag);
        }
        self.finish_call(side, packets);
    }

    /// Delivers the next packet of a side.
    pub(crate) fn deliver(&mut self, from: usize) {
        if let Some(packet) = self.wires[from].pop_front() {
            self.arrive(from, &packet);
        }
    }

    /// Delivers a packet to its destination, or returns it.
    fn arrive(&mut self, from: usize, packet: &Packet) {
        match packet.too_big {
            Some(mtu_bytes) => {
                self.returned(from, packet, Unreachable::TooBig { mtu_bytes }, packet.bytes.len());
            }
            None => self.hand(1 - from, packet, packet.bytes.len()),
        }
    }

    /// Delivers an ICMP message that quotes this much of a packet to its sender.
    pub(crate) fn returned(&mut self, side: usize, packet: &Packet, why: Unreachable, quoted_bytes: usize) {
        self.print("returned to", side, packet);
        let quoted = packet.bytes.slice(..packet.bytes.len().min(quoted_bytes));
        self.call(side, |s, now| s.endpoint.handle_unreachable(now, packet.to, why, &quoted, &mut s.app));
    }

    /// Lets time pass. Timers expire on the way, and packets wait.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.expire();
        }
        self.now = end;
    }

    /// Returns when a timer expires next.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.sides.iter().filter_map(|side| side.endpoint.poll_timeout()).min()
    }

    /// Runs all timers that are due, and then advances the time.
    fn expire(&mut self) {
        for side in 0..2 {
            let mut steps = 0;
            while self.sides[side].endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
                self.call(side, |s, now| s.endpoint.handle_timeout(now, &mut s.app));
                steps += 1;
                assert!(steps <= INSTANT_STEPS_MAX, "timers expire and time does not go on");
            }
        }
    }

    /// Lets both programs read everything and every packet arrive in order, until `done`. Returns false if the limit is reached
    /// first.
    pub(crate) fn honest(&mut self, limit: Duration, done: impl Fn(&TwoEndpoints) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            for side in 0..2 {
                self.call(side, |s, _| s.read(usize::MAX));
            }
            if done(self) {
                return true;
            }
            let waiting = [self.wires[0].len(), self.wires[1].len()];
            let arrival = self.wires.iter().flatten().map(|packet| self.arrives_at(packet)).min();
            let Some(next) = arrival.or(self.deadline()).filter(|at| *at <= end) else { return false };
            self.pass(next - self.now);
            for (from, packets) in waiting.into_iter().enumerate() {
                self.deliver_due(from, packets);
            }
        }
    }

    /// Returns when a packet that waits now arrives on an honest network.
    fn arrives_at(&self, packet: &Packet) -> Time {
        self.due_at(packet).max(self.now + net::DELAY_MIN)
    }

    fn due_at(&self, packet: &Packet) -> Time {
        packet.sent_at + self.nets[net::of(packet.to.ip())].delay
    }

    /// Delivers those of the `first` packets of a side that have been in flight for long enough.
    fn deliver_due(&mut self, from: usize, first: usize) {
        let mut place = 0;
        for _ in 0..first {
            if self.due_at(&self.wires[from][place]) > self.now {
                place += 1;
            } else if let Some(packet) = self.wires[from].remove(place) {
                self.arrive(from, &packet);
            }
        }
    }

    /// Finishes a call: checks the received records, sends the waiting packets, and checks the invariants.
    fn finish_call(&mut self, side: usize, packets: usize) {
        let [a, b] = &mut self.sides;
        let (own, other) = if side == 0 { (a, b) } else { (b, a) };
        if self.forged {
            own.app.deliveries.forget_fresh();
        } else {
            own.app.deliveries.compare(&[&other.app.deliveries]);
        }
        self.drain(side, CONTROL_PACKETS_MAX + packets);
        self.sides[side].check();
        if !self.forged {
            let accused =
                |reason: &Option<CloseReason>| matches!(reason, Some(CloseReason::ProtocolViolation(_)));
            let entry = self.sides[side].app.deliveries.entries.iter().find(|entry| accused(&entry.closed));
            assert!(entry.is_none(), "an honest peer is accused: {:?}", entry.map(|entry| &entry.closed));
        }
    }

    /// Sends all waiting packets, and checks that they are not more than one call may cause.
    fn drain(&mut self, side: usize, control_packets_max: usize) {
        let data_bytes_max = 2 * self.sides[side].send_buffered_bytes() + (1 << 16);
        let (mut control_packets, mut data_bytes) = (0, 0);
        while let Some(transmit) =
            self.sides[side].endpoint.poll_transmit(self.now, Scope::All, &mut self.buffer)
        {
            let batch = Bytes::from(self.buffer.to_vec());
            assert_eq!(batch.len(), transmit.total_bytes, "a batch is as long as it says");
            for start in (0..batch.len()).step_by(transmit.segment_bytes) {
                let bytes = batch.slice(start..batch.len().min(start + transmit.segment_bytes));
                if sniff::has_data(&bytes) {
                    self.assert_known(side, transmit.remote.ip());
                    data_bytes += bytes.len();
                } else {
                    control_packets += 1;
                }
                self.emit(side, &transmit, bytes);
            }
            assert!(data_bytes <= data_bytes_max, "one call sends more than there is to send");
            assert!(control_packets <= control_packets_max, "one call sets off {control_packets} packets");
        }
    }

    /// Checks that an address named only by the middle gets no data, because no packet from there proves it.
    fn assert_known(&self, side: usize, to: IpAddr) {
        let known = self.heard[side].contains(&to) || self.sides[1 - side].has(to);
        assert!(known, "data goes to {to}, which has said nothing");
    }

    fn emit(&mut self, side: usize, transmit: &Transmit, bytes: Bytes) {
        let (own, other) = (&self.sides[side], &self.sides[1 - side]);
        let to = transmit.remote;
        let net = &self.nets[net::of(to.ip())];
        // Within a host nothing is too long.
        let uncut = !transmit.may_fragment && own.app.in_flight_limit_bytes.is_none();
        let fate = net.fate(bytes.len(), uncut);
        // A packet for nobody is lost.
        let lost = fate == Fate::Lost || !other.has(to.ip());
        let too_big = if let Fate::Returned { mtu_bytes } = fate { Some(mtu_bytes) } else { None };
        let from = own.source(transmit.local, to);
        let packet = Packet { from, to, bytes, sent_at: self.now, too_big, marked: false };
        self.print(if lost { "lost by   " } else { "sent by   " }, side, &packet);
        self.known[side].read(&packet.bytes);
        self.tags[side].extend(sniff::initiate_tag(&packet.bytes));
        if self.history.len() == HISTORY_PACKETS_MAX {
            self.history.pop_front();
        }
        self.history.push_back(packet.clone());
        if !lost && self.wires[side].len() < WIRE_PACKETS_MAX {
            self.wires[side].push_back(packet);
        }
    }

    /// Returns an association of a side, if it has one.
    pub(crate) fn association(&self, side: usize, number: usize) -> Option<AssociationId> {
        let open = self.sides[side].app.open();
        open.get(number.checked_rem(open.len())?).copied()
    }
}
