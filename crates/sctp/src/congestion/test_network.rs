//! A simulated network for tests of controllers: bottlenecks with drop-tail queues, and senders that query controllers
//! for each packet. Loss recovery is minimal: a packet that three later ones have overtaken is lost, and is sent again
//! as a new one.

use std::collections::VecDeque;
use std::time::Duration;

use super::{
    Acked, Algorithm, Controller, Coupling, LostPacket, Pool, RateSample, Signal, initial_window_bytes,
    rate_bytes_per_s,
};
use crate::packet_number::PacketNumber;
use crate::time::Time;

/// Length of a packet, including headers.
pub(super) const PACKET_BYTES: usize = 1500;
/// Number of later packets that may overtake a packet before it counts as lost.
const REORDERING: u32 = 3;
/// Minimum timeout.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The link between senders and receivers that limits their rate.
#[derive(Clone, Debug)]
pub(super) struct Bottleneck {
    pub(super) bits_per_s: u64,
    /// Round-trip time without the queue.
    pub(super) rtt: Duration,
    pub(super) queue_bytes: u64,
    /// Number of packets in a million that are lost at random.
    pub(super) loss_ppm: u64,
    busy_until: u64,
    random: u64,
    pub(super) dropped: u64,
}

impl Bottleneck {
    pub(super) fn new(mbit_per_s: u64, rtt_ms: u64, queue_bdp: f64, loss_ppm: u64) -> Self {
        let bdp_bytes = (mbit_per_s * rtt_ms * 125) as f64;
        Bottleneck {
            bits_per_s: mbit_per_s * 1_000_000,
            rtt: Duration::from_millis(rtt_ms),
            queue_bytes: ((bdp_bytes * queue_bdp) as u64).max(2 * PACKET_BYTES as u64),
            loss_ppm,
            busy_until: 0,
            random: 1,
            dropped: 0,
        }
    }

    fn ns_per_packet(&self) -> u64 {
        PACKET_BYTES as u64 * 8_000_000_000 / self.bits_per_s
    }

    /// Returns when the acknowledgement of a packet sent now arrives, unless the packet is lost.
    fn carry(&mut self, now: u64) -> Option<u64> {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (self.random >> 33) % 1_000_000 < self.loss_ppm {
            return None;
        }
        let waiting_bytes = self.busy_until.saturating_sub(now) * self.bits_per_s / 8_000_000_000;
        if waiting_bytes + PACKET_BYTES as u64 > self.queue_bytes {
            self.dropped += 1;
            return None;
        }
        self.busy_until = self.busy_until.max(now) + self.ns_per_packet();
        Some(self.busy_until + self.rtt.as_nanos() as u64)
    }
}

/// A packet in flight, with the state that the delivery rate needs (draft-ietf-ccwg-bbr §4.1).
#[derive(Debug)]
struct Sent {
    at: u64,
    acked: bool,
    in_flight_bytes: usize,
    lost_bytes: u64,
    delivered_bytes: u64,
    delivered_at: u64,
    first_sent_at: u64,
    app_limited: bool,
}

/// One sender.
#[derive(Debug)]
pub(super) struct Sender {
    /// Index of its bottleneck.
    bottleneck: usize,
    pub(super) controller: Box<dyn Controller>,
    sent: VecDeque<Sent>,
    first: PacketNumber,
    acks: VecDeque<(u64, PacketNumber)>,
    in_flight_bytes: usize,
    /// Losses of packets before this one belong to a window that was reduced already.
    recovery_until: PacketNumber,
    in_recovery: bool,
    srtt_ns: Option<u64>,
    min_rtt_ns: u64,
    pub(super) delivered_bytes: u64,
    delivered_at: u64,
    first_sent_at: u64,
    lost_bytes: u64,
    next_send_at: u64,
    timeout_at: u64,
    starts_at: u64,
    /// Number of remaining packets of data; `None` for endless data.
    pub(super) packets_left: Option<u64>,
    window_limited_until: PacketNumber,
    window_limited: bool,
    pub(super) timeouts: u32,
    pub(super) congestions: u32,
}

impl Sender {
    fn new(coupling: Coupling, algorithm: Algorithm, bottleneck: usize, starts_at: Duration) -> Self {
        let starts_at = starts_at.as_nanos() as u64;
        let cwnd_bytes = initial_window_bytes(PACKET_BYTES, false);
        Sender {
            bottleneck,
            controller: coupling.controller(algorithm, PACKET_BYTES, cwnd_bytes),
            sent: VecDeque::new(),
            first: PacketNumber::new(u32::MAX - 1000),
            acks: VecDeque::new(),
            in_flight_bytes: 0,
            recovery_until: PacketNumber::new(u32::MAX - 1000),
            in_recovery: false,
            srtt_ns: None,
            min_rtt_ns: u64::MAX,
            delivered_bytes: 0,
            delivered_at: starts_at,
            first_sent_at: starts_at,
            lost_bytes: 0,
            next_send_at: starts_at,
            timeout_at: u64::MAX,
            starts_at,
            packets_left: None,
            window_limited_until: PacketNumber::new(u32::MAX - 1000),
            window_limited: false,
            timeouts: 0,
            congestions: 0,
        }
    }

    fn srtt(&self) -> Option<Duration> {
        self.srtt_ns.map(Duration::from_nanos)
    }

    fn bytes_per_s(&self) -> Option<u64> {
        let srtt = self.srtt().filter(|_| self.in_flight_bytes > 0)?;
        Some(rate_bytes_per_s(self.controller.cwnd_bytes(), srtt))
    }

    fn next_packet(&self) -> PacketNumber {
        self.first.plus(self.sent.len() as u32)
    }

    fn window_is_open(&self) -> bool {
        self.in_flight_bytes + PACKET_BYTES <= self.controller.cwnd_bytes()
    }

    fn send_at(&self) -> u64 {
        if self.packets_left == Some(0) || !self.window_is_open() {
            return u64::MAX;
        }
        self.next_send_at
    }

    /// Returns when this sender must run next.
    fn next_event(&self) -> u64 {
        let ack = self.acks.front().map_or(u64::MAX, |ack| ack.0);
        let timeout = if self.in_flight_bytes > 0 { self.timeout_at } else { u64::MAX };
        ack.min(self.send_at()).min(timeout).max(self.starts_at)
    }

    fn run(&mut self, now: u64, bottleneck: &mut Bottleneck) {
        while self.acks.front().is_some_and(|ack| ack.0 <= now) {
            let (_, number) = self.acks.pop_front().expect("there is one");
            self.take_ack(now, number);
        }
        if self.in_flight_bytes > 0 && self.timeout_at <= now {
            self.time_out(now);
        }
        if self.send_at() <= now {
            self.send_burst(now, bottleneck);
        }
        if !self.window_is_open() {
            self.window_limited = true;
            self.window_limited_until = self.next_packet();
        }
    }

    /// Returns the number of packets of a millisecond, or two.
    fn send_burst(&mut self, now: u64, bottleneck: &mut Bottleneck) {
        let rate = self.controller.pacing_bytes_per_s(self.srtt()).unwrap_or(u64::MAX);
        let quantum = (rate / 1000).clamp(2 * PACKET_BYTES as u64, 65_536) as usize / PACKET_BYTES;
        let mut packets = 0;
        while packets < quantum && self.window_is_open() && self.packets_left != Some(0) {
            self.send(now, bottleneck);
            packets += 1;
        }
        let took = (packets * PACKET_BYTES) as u128 * 1_000_000_000 / u128::from(rate);
        self.next_send_at = now.max(self.next_send_at.saturating_add(took as u64));
    }

    fn send(&mut self, now: u64, bottleneck: &mut Bottleneck) {
        if self.in_flight_bytes == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
            self.restart_timer(now);
        }
        if let Some(left) = &mut self.packets_left {
            *left -= 1;
        }
        self.in_flight_bytes += PACKET_BYTES;
        let number = self.next_packet();
        let app_limited = self.packets_left == Some(0);
        self.sent.push_back(Sent {
            at: now,
            acked: false,
            in_flight_bytes: self.in_flight_bytes,
            lost_bytes: self.lost_bytes,
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited,
        });
        self.controller.on_sent(Time::from_nanos(now), PACKET_BYTES, self.in_flight_bytes, app_limited);
        if let Some(at) = bottleneck.carry(now) {
            self.acks.push_back((at, number));
        }
    }

    fn restart_timer(&mut self, now: u64) {
        let rtt = self.srtt().unwrap_or_default();
        self.timeout_at = now + (3 * rtt).max(TIMEOUT_MIN).as_nanos() as u64;
    }

    fn take_ack(&mut self, now: u64, number: PacketNumber) {
        let index = number.since(self.first) as usize;
        // A timeout may have declared it lost.
        let Some(packet) = self.sent.get_mut(index) else { return };
        packet.acked = true;
        self.restart_timer(now);
        let in_flight_before_bytes = self.in_flight_bytes;
        let packet = &self.sent[index];
        self.in_flight_bytes -= PACKET_BYTES;
        self.delivered_bytes += PACKET_BYTES as u64;
        self.delivered_at = now;
        self.first_sent_at = packet.at;
        let rtt_ns = now - packet.at;
        let sample = RateSample {
            delivered_bytes: self.delivered_bytes - packet.delivered_bytes,
            interval: Duration::from_nanos((packet.at - packet.first_sent_at).max(now - packet.delivered_at)),
            prior_delivered_bytes: packet.delivered_bytes,
            total_delivered_bytes: self.delivered_bytes,
            sent_in_flight_bytes: packet.in_flight_bytes,
            lost_bytes: self.lost_bytes - packet.lost_bytes,
            app_limited: packet.app_limited,
        };
        self.srtt_ns = Some(self.srtt_ns.map_or(rtt_ns, |srtt| srtt - srtt / 8 + rtt_ns / 8));
        self.min_rtt_ns = self.min_rtt_ns.min(rtt_ns);
        let lost_bytes = self.detect_losses(now, number, in_flight_before_bytes);
        if self.in_recovery && !self.recovery_until.is_after(number) {
            self.in_recovery = false;
            self.controller.on_recovered(Time::from_nanos(now));
        }
        if number.is_after(self.window_limited_until) {
            self.window_limited = false;
        }
        let acked = Acked {
            bytes: PACKET_BYTES,
            in_flight_before_bytes,
            in_flight_bytes: self.in_flight_bytes,
            lost_bytes,
            cumulative: true,
            holds_window: self.in_recovery,
            window_limited: self.window_limited,
            rtt: Some(Duration::from_nanos(rtt_ns)),
            srtt: self.srtt(),
            min_rtt: Some(Duration::from_nanos(self.min_rtt_ns)),
            newest_packet: number,
            next_packet: self.next_packet(),
            rate: Some(sample),
        };
        self.controller.on_acked(Time::from_nanos(now), &acked);
    }

    fn detect_losses(&mut self, now: u64, newest: PacketNumber, in_flight_before_bytes: usize) -> usize {
        let mut lost_bytes = 0;
        let mut reduces = false;
        while !self.first.plus(REORDERING).is_after(newest) {
            let Some(packet) = self.sent.pop_front() else { break };
            let number = self.first;
            self.first = self.first.next();
            if !packet.acked {
                lost_bytes += PACKET_BYTES;
                self.lose(now, number, &packet);
                reduces |= !self.recovery_until.is_after(number);
            }
        }
        if reduces {
            self.recovery_until = self.next_packet();
            self.in_recovery = true;
            self.congestions += 1;
            self.controller.on_congestion(Time::from_nanos(now), Signal::Loss, in_flight_before_bytes);
        }
        lost_bytes
    }

    fn lose(&mut self, now: u64, number: PacketNumber, packet: &Sent) {
        self.in_flight_bytes -= PACKET_BYTES;
        self.lost_bytes += PACKET_BYTES as u64;
        if let Some(left) = &mut self.packets_left {
            *left += 1;
        }
        let lost = LostPacket {
            bytes: PACKET_BYTES,
            number,
            sent_in_flight_bytes: packet.in_flight_bytes,
            lost_bytes: self.lost_bytes - packet.lost_bytes,
            prior_delivered_bytes: packet.delivered_bytes,
            app_limited: packet.app_limited,
        };
        self.controller.on_packet_lost(Time::from_nanos(now), &lost);
    }

    fn time_out(&mut self, now: u64) {
        let before = self.in_flight_bytes;
        while let Some(packet) = self.sent.pop_front() {
            let number = self.first;
            self.first = self.first.next();
            if !packet.acked {
                self.lose(now, number, &packet);
            }
        }
        self.acks.clear();
        self.recovery_until = self.next_packet();
        self.in_recovery = true;
        self.timeouts += 1;
        self.controller.on_timeout(Time::from_nanos(now), before);
    }
}

/// Bottlenecks, and senders that share them.
#[derive(Debug)]
pub(super) struct TestNetwork {
    pub(super) bottlenecks: Vec<Bottleneck>,
    pub(super) senders: Vec<Sender>,
    /// Number of senders, from the first, that are the paths of one association.
    paths: usize,
    now: u64,
}

impl TestNetwork {
    /// Returns one sender for each algorithm, each starting this much later than the one before.
    pub(super) fn new(bottleneck: Bottleneck, algorithms: &[Algorithm], apart: Duration) -> Self {
        let senders = algorithms.iter().zip(0..);
        let senders = senders.map(|(&a, i)| Sender::new(Coupling::None, a, 0, apart * i)).collect();
        TestNetwork { bottlenecks: vec![bottleneck], senders, paths: 0, now: 0 }
    }

    /// Returns an association with a path over each of these bottlenecks, and behind it a NewReno sender on each, each
    /// starting this much later than the one before.
    pub(super) fn coupled(
        bottlenecks: Vec<Bottleneck>,
        coupling: Coupling,
        paths: &[usize],
        others: &[usize],
        apart: Duration,
    ) -> Self {
        let couplings = paths.iter().map(|_| coupling).chain(others.iter().map(|_| Coupling::None));
        let senders = couplings.zip(paths.iter().chain(others)).zip(0..);
        let senders =
            senders.map(|((c, &bottleneck), i)| Sender::new(c, Algorithm::NewReno, bottleneck, apart * i));
        TestNetwork { bottlenecks, senders: senders.collect(), paths: paths.len(), now: 0 }
    }

    pub(super) fn run_until(&mut self, time: Duration) {
        let end = time.as_nanos() as u64;
        loop {
            let next = self.senders.iter().map(Sender::next_event).min().unwrap_or(u64::MAX).max(self.now);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next;
            self.couple();
            for sender in &mut self.senders {
                if sender.next_event() <= next {
                    sender.run(next, &mut self.bottlenecks[sender.bottleneck]);
                }
            }
        }
    }

    fn couple(&mut self) {
        let paths = &mut self.senders[..self.paths];
        let pool: Pool = paths.iter().filter_map(Sender::bytes_per_s).collect();
        for path in paths {
            if let Some(rate) = path.bytes_per_s() {
                path.controller.couple(&pool.share(rate));
            }
        }
    }

    /// Runs from one time to another. Returns the share of its bottleneck that each sender had in between.
    pub(super) fn shares(&mut self, from: Duration, to: Duration) -> Vec<f64> {
        self.run_until(from);
        let before: Vec<u64> = self.senders.iter().map(|s| s.delivered_bytes).collect();
        self.run_until(to);
        let seconds = (to - from).as_secs_f64();
        let share = |(sender, before): (&Sender, u64)| {
            let line_bytes = self.bottlenecks[sender.bottleneck].bits_per_s as f64 / 8.0 * seconds;
            (sender.delivered_bytes - before) as f64 / line_bytes
        };
        self.senders.iter().zip(before).map(share).collect()
    }
}
