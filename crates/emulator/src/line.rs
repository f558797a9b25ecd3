//! One direction of a line.

use std::ops::Range;
use std::time::Duration;

use links::device::VnetHeader;
use netsim::{Ecn, Flips, Passage, Pipe, PipeConfig, Reorder, Transit, Verdict};

use crate::counts::{Arrived, Flows, LineCounts, LineState, Times};
use crate::memory::REFERENCE_BYTES;
use crate::super_packet::SuperPacket;

/// A pipe of `netsim` and the packets on it.
#[derive(Debug)]
pub struct Line {
    pipe: Pipe,
    /// Segments of a super-packet that are due within this time travel on together.
    join_ns: u64,
    /// One lane.
    transit: Transit<Burst>,
    /// Longest time by which the pipe would be free sooner, had each packet been read when it was sent.
    shift_ns: u64,
    waited: Times,
    flows: Flows,
    packets_read: u64,
    packets_written: u64,
    memory_drops: u64,
}

/// Segments on the way that arrive in one piece.
#[derive(Debug)]
struct Burst {
    packet: SuperPacket,
    /// Longest time by which the packet may arrive later because it or one before it waited to be read.
    read_late_ns: u64,
    /// Time at which the pipe delivers the first segment. The last arrives when all do.
    first_ns: u64,
    segments: Range<u16>,
    ecn: Ecn,
    flips: Option<Flips>,
    /// Place of the flow's counters.
    flow: usize,
    /// Amounts that the arrival adds to these counters: none for a copy.
    arrived: Arrived,
}

/// Memory of a burst on the line, whose containers have room for twice as many: its arrival, and its place in the queue.
const BURST_BYTES_MAX: usize = 2 * (size_of::<((u64, u64), Burst)>() + size_of::<(u64, usize, usize)>());
const _: () = assert!(BURST_BYTES_MAX <= REFERENCE_BYTES);

/// Packet whose segments are offered to the pipe.
struct Offered<'a> {
    packet: &'a SuperPacket,
    read_late_ns: u64,
    /// Place of the flow's counters.
    flow: usize,
}

/// Consecutive segments that may travel together.
struct SegmentRun {
    first_ns: u64,
    last_ns: u64,
    segments: Range<u16>,
    ecn: Ecn,
    arrived: Arrived,
}

/// A segment that the pipe delivers.
struct Accepted {
    number: u16,
    bytes: usize,
    waited: Duration,
    passage: Passage,
}

impl Line {
    /// Makes a line whose pipe draws its random decisions from `seed`. Survivors of a super-packet are joined again if the last
    /// is due within `join` of the first, and arrive with the last.
    #[must_use]
    pub fn new(config: &PipeConfig, seed: u64, join: Duration) -> Self {
        // Reordering behind a number of packets counts single packets, so nothing is joined.
        let joins = !matches!(config.reorder, Reorder::Behind { .. });
        let mut transit = Transit::new();
        transit.add_lane();
        Line {
            pipe: Pipe::new(config, seed),
            join_ns: if joins { nanoseconds(join) } else { 0 },
            transit,
            shift_ns: 0,
            waited: Times::new(),
            flows: Flows::default(),
            packets_read: 0,
            packets_written: 0,
            memory_drops: 0,
        }
    }

    /// Offers each segment of a packet to the pipe.
    pub fn handle_packet(&mut self, now_ns: u64, packet: SuperPacket) {
        self.handle_late_packet(now_ns, 0, packet);
    }

    /// Returns the longest time by which a packet leaves later that is offered now and may have been sent up to `unread_ns`
    /// before. One that waits for others in any case is only as late as these.
    fn read_late_ns(&self, now_ns: u64, unread_ns: u64) -> u64 {
        let free_ns = self.pipe.busy_until_ns();
        let on_time_ns = free_ns.saturating_sub(self.shift_ns).max(now_ns.saturating_sub(unread_ns));
        free_ns.max(now_ns) - on_time_ns
    }

    /// Offers each segment of a packet to the pipe that may have been sent up to `unread_ns` before.
    pub(crate) fn handle_late_packet(&mut self, now_ns: u64, unread_ns: u64, packet: SuperPacket) {
        self.packets_read += 1;
        let (free_ns, read_late_ns) = (self.pipe.busy_until_ns(), self.read_late_ns(now_ns, unread_ns));
        let (ecn, flow) = (packet.ecn(), self.flows.place(packet.flow()));
        let offered = Offered { packet: &packet, read_late_ns, flow };
        let delay_ns = nanoseconds(self.pipe.config().delay);
        let mut run: Option<SegmentRun> = None;
        for number in 0..packet.segments() {
            let bytes = packet.segment_bytes(number);
            let counts = self.flows.at(flow);
            counts.packets_offered += 1;
            let passage = match self.pipe.offer_with_ecn(now_ns, bytes, ecn) {
                Verdict::Deliver(passage) => passage,
                Verdict::Drop(reason) => {
                    counts.on_dropped(reason);
                    self.send_run(run.take(), &offered);
                    continue;
                }
            };
            counts.on_accepted(&passage, ecn);
            let waited_ns = passage.at_ns.saturating_sub(now_ns).saturating_sub(delay_ns);
            self.waited.record(waited_ns);
            let segment = Accepted { number, bytes, waited: Duration::from_nanos(waited_ns), passage };
            if !travels_in_order(&segment.passage) {
                self.send_run(run.take(), &offered);
                self.send_alone(&offered, &segment);
                continue;
            }
            match &mut run {
                Some(run) if run.takes(&segment.passage, self.join_ns) => run.extend(&segment),
                _ => self.send_run(run.replace(SegmentRun::new(&segment)), &offered),
            }
        }
        self.send_run(run, &offered);
        if self.pipe.busy_until_ns() > free_ns {
            self.shift_ns = read_late_ns;
        }
    }

    /// Drops a packet for lack of memory, and counts its segments.
    pub fn drop_for_memory(&mut self, packet: &SuperPacket) {
        self.memory_drops += u64::from(packet.segments());
    }

    /// Returns when the next packet is due.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.transit.next_ns()
    }

    /// Returns the next packet that is due. It counts as in flight until [`Line::on_written`] or [`Line::on_refused`] tells
    /// what has become of it.
    pub fn poll_delivery(&mut self, now_ns: u64) -> Option<Delivery> {
        let (at_ns, burst) = self.transit.pop_due(now_ns)?;
        Some(Delivery { at_ns, burst })
    }

    /// Counts a packet that the host has taken.
    pub fn on_written(&mut self, delivery: &Delivery) {
        self.packets_written += 1;
        self.flows.at(delivery.burst.flow).on_delivered(&delivery.burst.arrived);
    }

    /// Counts a packet that the host has refused.
    pub fn on_refused(&mut self, delivery: &Delivery) {
        self.flows.at(delivery.burst.flow).on_refused(&delivery.burst.arrived);
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> LineCounts {
        LineCounts {
            pipe: self.pipe.stats(),
            packets_read: self.packets_read,
            packets_written: self.packets_written,
            memory_drops: self.memory_drops,
            waited: self.waited.distribution(),
            flows: self.flows.all().to_vec(),
        }
    }

    /// Returns the present state of the line.
    pub(crate) fn state(&self, now_ns: u64) -> LineState {
        LineState {
            queued_bytes: self.pipe.queued_bytes(now_ns),
            bytes_accepted: self.pipe.stats().bytes_delivered,
        }
    }

    fn send_run(&mut self, run: Option<SegmentRun>, offered: &Offered<'_>) {
        if let Some(run) = run {
            self.transit.push(0, run.last_ns, offered.burst(run, None));
        }
    }

    /// Sends a segment that is damaged, overtaken or duplicated.
    fn send_alone(&mut self, offered: &Offered<'_>, segment: &Accepted) {
        let passage = &segment.passage;
        let original = offered.burst(SegmentRun::new(segment), passage.flips);
        match passage.behind {
            Some(behind) => self.transit.push_behind(0, passage.at_ns, behind, original),
            None if passage.late => self.transit.push_late(0, passage.at_ns, original),
            None => self.transit.push(0, passage.at_ns, original),
        }
        if let Some(copy_at_ns) = passage.copy_at_ns {
            let copy = SegmentRun { first_ns: copy_at_ns, last_ns: copy_at_ns, ..SegmentRun::new(segment) };
            self.transit.push(
                0,
                copy_at_ns,
                offered.burst(SegmentRun { arrived: Arrived::default(), ..copy }, None),
            );
        }
    }
}

impl Offered<'_> {
    fn burst(&self, run: SegmentRun, flips: Option<Flips>) -> Burst {
        let SegmentRun { first_ns, segments, ecn, arrived, .. } = run;
        let Offered { packet, read_late_ns, flow } = *self;
        Burst { packet: packet.clone(), read_late_ns, first_ns, segments, ecn, flips, flow, arrived }
    }
}

impl SegmentRun {
    fn new(segment: &Accepted) -> Self {
        let Accepted { number, passage, .. } = segment;
        let mut arrived = Arrived::default();
        arrived.add(segment.bytes, segment.waited);
        SegmentRun {
            first_ns: passage.at_ns,
            last_ns: passage.at_ns,
            segments: *number..number + 1,
            ecn: passage.ecn,
            arrived,
        }
    }

    /// Returns whether the next segment may travel with these.
    fn takes(&self, passage: &Passage, join_ns: u64) -> bool {
        passage.ecn == self.ecn
            && passage.at_ns >= self.last_ns
            && passage.at_ns - self.first_ns <= join_ns
            && join_ns > 0
    }

    fn extend(&mut self, segment: &Accepted) {
        self.segments.end += 1;
        self.last_ns = segment.passage.at_ns;
        self.arrived.add(segment.bytes, segment.waited);
    }
}

/// Returns whether a packet arrives whole, once, and in its place.
fn travels_in_order(passage: &Passage) -> bool {
    !passage.late && passage.behind.is_none() && passage.flips.is_none() && passage.copy_at_ns.is_none()
}

/// A packet that has arrived: one segment, or several of one super-packet.
#[derive(Debug)]
pub struct Delivery {
    /// Time when it was due.
    pub at_ns: u64,
    burst: Burst,
}

impl Delivery {
    /// Returns the number of its segments.
    #[must_use]
    pub fn segment_count(&self) -> u16 {
        self.burst.segments.end - self.burst.segments.start
    }

    /// Returns the lateness of each segment that is written now, reading included. The pipe delivers the segments at even
    /// intervals, and all arrive with the last.
    pub(crate) fn lateness_ns(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let Burst { first_ns, read_late_ns, .. } = self.burst;
        let joined_ns = self.at_ns.saturating_sub(first_ns);
        let intervals = u64::from(self.segment_count() - 1);
        let last_ns = now_ns.saturating_sub(self.at_ns) + read_late_ns;
        (0..=intervals).map(move |behind| last_ns + joined_ns * behind / intervals.max(1))
    }

    /// Writes the beginning of the packet to `head`. Returns the virtual network header, and the rest of the packet.
    pub fn write(&self, head: &mut Vec<u8>) -> (VnetHeader, &[u8]) {
        let Burst { packet, segments, ecn, flips, .. } = &self.burst;
        match flips {
            None => packet.write(segments.clone(), *ecn, head),
            Some(flips) => {
                *head = packet.damaged(segments.start, *ecn, *flips);
                (VnetHeader::default(), &[])
            }
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
