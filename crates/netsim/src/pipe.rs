//! One direction of a line: faults, a bounded queue, a rate and a delay.

use std::time::Duration;

use crate::loss::Judge;
use crate::pipe_config::PipeConfig;
use crate::pipe_stats::PipeStats;
use crate::queue::Queue;
use crate::random::Random;
use crate::rate::Rate;
use crate::schedule::Calendar;
use crate::time::nanoseconds;
use crate::verdict::{Behind, DropReason, Flips, Passage, Verdict};
use crate::{Ecn, Jitter, Loss, Reorder, WhenDown};

/// The header that each piece of a packet has: IPv4's.
const PIECE_HEADER_BYTES: usize = 20;

/// The chances of a pipe, one sequence for each fault.
#[derive(Clone, Debug)]
struct Chances {
    loss: Random,
    reorder: Random,
    duplicate: Random,
    corrupt: Random,
    corrupt_bit: Random,
    jitter: Random,
    copy_jitter: Random,
}

impl Chances {
    fn new(seed: u64, pipe: u64) -> Self {
        let of_fault = |fault: u64| Random::new(seed, pipe ^ (fault << 40));
        Chances {
            loss: of_fault(0),
            reorder: of_fault(1),
            duplicate: of_fault(2),
            corrupt: of_fault(3),
            corrupt_bit: of_fault(4),
            jitter: of_fault(5),
            copy_jitter: of_fault(6),
        }
    }
}

/// One direction of a line. It decides what becomes of a packet from its size, its ECN field and the time alone.
///
/// # Examples
///
/// ```
/// use netsim::{DropReason, Pipe, PipeConfig, Verdict};
///
/// // A byte takes a microsecond, and two packets fit.
/// let config = PipeConfig { rate_bits_per_s: Some(8_000_000), queue_packets: 2, ..PipeConfig::default() };
/// let mut pipe = Pipe::new(&config, 0);
/// let at: Vec<_> = (0..2).map(|_| match pipe.offer(0, 1000) {
///     Verdict::Deliver(passage) => passage.at_ns,
///     Verdict::Drop(reason) => panic!("{reason}"),
/// }).collect();
/// assert_eq!(at, [1_000_000, 2_000_000]);
/// assert_eq!(pipe.offer(0, 1000), Verdict::Drop(DropReason::Queue));
/// ```
#[derive(Clone, Debug)]
pub struct Pipe {
    config: PipeConfig,
    /// Parts of the configuration as the clock counts them.
    rate: Option<Rate>,
    delay_ns: u64,
    calendar: Calendar,
    chances: Chances,
    judge: Judge,
    queue: Queue,
    /// The time at which the last packet has left.
    busy_until_ns: u64,
    /// The arrival time of the last packet that must not be overtaken.
    last_at_ns: u64,
    stats: PipeStats,
}

impl Pipe {
    /// Returns a pipe whose random numbers derive from `seed`.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// let pipe = Pipe::new(&PipeConfig::default(), 42);
    /// assert_eq!(pipe.stats().packets_offered, 0);
    /// ```
    pub fn new(config: &PipeConfig, seed: u64) -> Self {
        Self::numbered(config, seed, 0)
    }

    /// Returns the pipe number `pipe` of a network.
    pub(crate) fn numbered(config: &PipeConfig, seed: u64, pipe: u64) -> Self {
        let chances = Chances::new(seed, pipe);
        Pipe {
            rate: config.rate_bits_per_s.map(Rate::new),
            delay_ns: nanoseconds(config.delay),
            calendar: Calendar::new(&config.schedule),
            judge: Judge::new(chances.loss),
            chances,
            queue: Queue::default(),
            busy_until_ns: 0,
            last_at_ns: 0,
            stats: PipeStats::default(),
            config: config.clone(),
        }
    }

    /// Offers a packet of `bytes` without ECN to the near end. `now_ns` never decreases.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig, Verdict};
    /// let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    /// assert!(matches!(pipe.offer(7, 1500), Verdict::Deliver(passage) if passage.at_ns == 7));
    /// ```
    pub fn offer(&mut self, now_ns: u64, bytes: usize) -> Verdict {
        self.offer_with_ecn(now_ns, bytes, Ecn::NotCapable)
    }

    /// Offers a packet of `bytes` with this ECN field to the near end. `now_ns` never decreases.
    ///
    /// Decides the packet's fate at once, also where it happens later: a packet that will be in the queue when the line goes down
    /// is dropped now, but takes its room in the queue until then.
    ///
    /// ```
    /// # use netsim::{Ecn, Pipe, PipeConfig, Verdict};
    /// let config =
    ///     PipeConfig { rate_bits_per_s: Some(1_000_000), mark_above_bytes: Some(0), ..PipeConfig::default() };
    /// let mut pipe = Pipe::new(&config, 0);
    /// let ecn: Vec<_> = (0..2).map(|_| match pipe.offer_with_ecn(0, 1000, Ecn::Ect0) {
    ///     Verdict::Deliver(passage) => passage.ecn,
    ///     Verdict::Drop(reason) => panic!("{reason}"),
    /// }).collect();
    /// assert_eq!(ecn, [Ecn::Ect0, Ecn::CongestionExperienced]);
    /// ```
    pub fn offer_with_ecn(&mut self, now_ns: u64, bytes: usize, ecn: Ecn) -> Verdict {
        if self.config.mtu_bytes.is_some_and(|mtu| bytes > mtu) {
            self.stats.packets_offered += 1;
            self.on_dropped(DropReason::TooBig);
            return Verdict::Drop(DropReason::TooBig);
        }
        self.take(now_ns, bytes, ecn)
    }

    /// Offers a packet that is cut into pieces; if the line cannot take all of them, it takes none. The pieces share one fate.
    ///
    /// ```
    /// # use netsim::{DropReason, Ecn, Pipe, PipeConfig, Verdict};
    /// let mut pipe = Pipe::new(&PipeConfig { mtu_bytes: Some(1400), ..PipeConfig::default() }, 0);
    /// assert_eq!(pipe.offer(0, 1500), Verdict::Drop(DropReason::TooBig));
    /// assert!(matches!(pipe.offer_in_pieces(0, 1500, Ecn::NotCapable), Verdict::Deliver(_)));
    /// assert_eq!(pipe.stats().bytes_delivered, 1520);
    /// ```
    pub fn offer_in_pieces(&mut self, now_ns: u64, bytes: usize, ecn: Ecn) -> Verdict {
        let payload_bytes_max =
            self.config.mtu_bytes.map(|mtu| mtu.saturating_sub(PIECE_HEADER_BYTES).max(1));
        let pieces = payload_bytes_max
            .map_or(1, |most| bytes.saturating_sub(PIECE_HEADER_BYTES).div_ceil(most).max(1));
        self.take(now_ns, bytes + (pieces - 1) * PIECE_HEADER_BYTES, ecn)
    }

    fn take(&mut self, now_ns: u64, bytes: usize, ecn: Ecn) -> Verdict {
        let index = self.stats.packets_offered;
        self.stats.packets_offered += 1;
        if self.judge.loses(&self.config.loss, index) {
            self.on_dropped(DropReason::Loss);
            return Verdict::Drop(DropReason::Loss);
        }
        self.queue.expire(now_ns);
        let above = self.config.mark_above_bytes.is_some_and(|bound| self.queue.bytes() > bound);
        let left_ns = match self.enqueue(now_ns, bytes) {
            Ok(left_ns) => left_ns,
            Err(reason) => {
                self.on_dropped(reason);
                return Verdict::Drop(reason);
            }
        };
        let ecn = if above { self.mark(ecn) } else { ecn };
        let at_ns = self.arrival_ns(left_ns, self.chances.jitter, index);
        let (late_ns, behind) = self.reorder(at_ns, index);
        let flips = self.corrupt(index);
        let copy_at_ns = self.duplicate(now_ns, bytes, index);
        let (late, at_ns) = (late_ns.is_some(), late_ns.unwrap_or(at_ns));
        Verdict::Deliver(Passage { at_ns, copy_at_ns, ecn, late, flips, behind })
    }

    /// Loses packets in another way from now on; scripted numbers count from here.
    ///
    /// ```
    /// # use netsim::{DropReason, Loss, Pipe, PipeConfig, Verdict};
    /// let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    /// pipe.set_loss(Loss::Always); // cuts the line
    /// assert_eq!(pipe.offer(0, 1500), Verdict::Drop(DropReason::Loss));
    /// ```
    pub fn set_loss(&mut self, loss: Loss) {
        self.config.loss = loss;
        self.judge.restart();
    }

    /// Changes the rate for the packets still to come.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    /// pipe.set_rate(Some(1_000_000));
    /// assert_eq!(pipe.config().rate_bits_per_s, Some(1_000_000));
    /// ```
    pub fn set_rate(&mut self, rate_bits_per_s: Option<u64>) {
        self.config.rate_bits_per_s = rate_bits_per_s;
        self.rate = rate_bits_per_s.map(Rate::new);
    }

    /// Changes the delay for the packets still to come. A shorter one can let them overtake those on the way.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// # use std::time::Duration;
    /// let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    /// pipe.set_delay(Duration::from_millis(20));
    /// assert_eq!(pipe.config().delay, Duration::from_millis(20));
    /// ```
    pub fn set_delay(&mut self, delay: Duration) {
        self.config.delay = delay;
        self.delay_ns = nanoseconds(delay);
    }

    /// Changes the whole configuration for later packets. Packets in the queue keep their places, and scripted packet
    /// numbers count from this call.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    /// pipe.set_config(PipeConfig { duplicate_probability: 0.5, ..pipe.config().clone() });
    /// ```
    pub fn set_config(&mut self, config: PipeConfig) {
        self.calendar = Calendar::new(&config.schedule);
        self.set_rate(config.rate_bits_per_s);
        self.set_delay(config.delay);
        self.judge.restart();
        self.config = config;
    }

    /// Returns the configuration.
    ///
    /// ```
    /// # use netsim::{Loss, Pipe, PipeConfig};
    /// assert_eq!(Pipe::new(&PipeConfig::default(), 0).config().loss, Loss::Never);
    /// ```
    pub fn config(&self) -> &PipeConfig {
        &self.config
    }

    /// Returns the time from which a packet would not wait for others.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// let mut pipe = Pipe::new(&PipeConfig { rate_bits_per_s: Some(8_000_000), ..PipeConfig::default() }, 0);
    /// pipe.offer(0, 1000);
    /// assert_eq!(pipe.busy_until_ns(), 1_000_000);
    /// ```
    pub fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns
    }

    /// Returns the number of bytes that wait at `now_ns`, with the packet that is leaving. `now_ns` is not before the last
    /// packet came.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// let mut pipe = Pipe::new(&PipeConfig { rate_bits_per_s: Some(8_000_000), ..PipeConfig::default() }, 0);
    /// pipe.offer(0, 1000);
    /// assert_eq!((pipe.queued_bytes(999_999), pipe.queued_bytes(1_000_000)), (1000, 0));
    /// ```
    pub fn queued_bytes(&self, now_ns: u64) -> usize {
        self.queue.waiting_at(now_ns).0
    }

    /// Returns the number of packets that wait at `now_ns`, including the one in transmission. `now_ns` is not before the last
    /// packet came.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// let mut pipe = Pipe::new(&PipeConfig { rate_bits_per_s: Some(8_000_000), ..PipeConfig::default() }, 0);
    /// pipe.offer(0, 1000);
    /// assert_eq!((pipe.queued_packets(999_999), pipe.queued_packets(1_000_000)), (1, 0));
    /// ```
    pub fn queued_packets(&self, now_ns: u64) -> usize {
        self.queue.waiting_at(now_ns).1
    }

    /// Returns the counters.
    ///
    /// ```
    /// # use netsim::{Pipe, PipeConfig};
    /// let mut pipe = Pipe::new(&PipeConfig::default(), 0);
    /// pipe.offer(0, 1500);
    /// assert_eq!(pipe.stats().bytes_delivered, 1500);
    /// ```
    pub fn stats(&self) -> PipeStats {
        self.stats
    }

    fn on_dropped(&mut self, reason: DropReason) {
        match reason {
            DropReason::Loss => self.stats.packets_lost += 1,
            DropReason::Queue => self.stats.packets_overflowed += 1,
            DropReason::Down => self.stats.packets_down += 1,
            DropReason::TooBig => self.stats.packets_too_big += 1,
        }
    }

    /// Enqueues a packet or a copy; returns when it will have been sent, if it is accepted.
    fn enqueue(&mut self, now_ns: u64, bytes: usize) -> Result<u64, DropReason> {
        let loses_queue = self.config.when_down == WhenDown::Lose;
        if loses_queue && self.calendar.up_again_ns(now_ns).is_some() {
            return Err(DropReason::Down);
        }
        if !self.queue.has_room(bytes, self.config.queue_bytes, self.config.queue_packets) {
            return Err(DropReason::Queue);
        }
        let left_ns = self.leave(now_ns, bytes);
        let down_ns = if loses_queue { self.calendar.down_next_ns(now_ns) } else { u64::MAX };
        // Packets that are lost with the queue wait until then.
        self.busy_until_ns = left_ns.min(down_ns);
        if self.busy_until_ns > now_ns {
            self.queue.push(self.busy_until_ns, bytes);
            self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue.bytes());
            self.stats.queue_packets_max = self.stats.queue_packets_max.max(self.queue.packets());
        }
        if left_ns > down_ns {
            return Err(DropReason::Down);
        }
        self.stats.packets_delivered += 1;
        self.stats.bytes_delivered += bytes as u64;
        Ok(left_ns)
    }

    /// Returns when a packet behind all waiting ones has been sent.
    fn leave(&mut self, now_ns: u64, bytes: usize) -> u64 {
        if self.busy_until_ns < now_ns
            && let Some(rate) = &mut self.rate
        {
            rate.rest();
        }
        let start_ns = self.busy_until_ns.max(now_ns);
        let taken_ns = self.rate.as_mut().map_or(0, |rate| rate.taken_ns(bytes));
        match self.config.when_down {
            WhenDown::Lose => start_ns.saturating_add(taken_ns),
            WhenDown::Wait => self.calendar.finished_ns(start_ns, taken_ns),
        }
    }

    /// Returns when a sent packet reaches the far end.
    fn arrival_ns(&mut self, left_ns: u64, jitter: Random, index: u64) -> u64 {
        let at_ns = left_ns.saturating_add(self.delay_ns);
        if self.config.jitter == Jitter::None {
            return at_ns;
        }
        let at_ns = at_ns.saturating_add(self.config.jitter.extra_ns(jitter, index));
        if self.config.jitter.may_reorder() {
            return at_ns;
        }
        self.last_at_ns = self.last_at_ns.max(at_ns);
        self.last_at_ns
    }

    fn mark(&mut self, ecn: Ecn) -> Ecn {
        match ecn {
            Ecn::Ect0 | Ecn::Ect1 => {
                self.stats.packets_marked += 1;
                Ecn::CongestionExperienced
            }
            Ecn::NotCapable | Ecn::CongestionExperienced => ecn,
        }
    }

    /// Returns when a late packet arrives, or the number of packets that one must wait for.
    fn reorder(&mut self, at_ns: u64, index: u64) -> (Option<u64>, Option<Behind>) {
        let chance = self.chances.reorder;
        match self.config.reorder {
            Reorder::Late { probability, by } if chance.chance(index, probability) => {
                self.stats.packets_reordered += 1;
                (Some(at_ns.saturating_add(nanoseconds(by))), None)
            }
            Reorder::Behind { probability, packets, wait_max }
                if packets > 0 && chance.chance(index, probability) =>
            {
                self.stats.packets_reordered += 1;
                let at_latest_ns = at_ns.saturating_add(nanoseconds(wait_max));
                (None, Some(Behind { packets, at_latest_ns }))
            }
            _ => (None, None),
        }
    }

    fn corrupt(&mut self, index: u64) -> Option<Flips> {
        let probability = self.config.corrupt_probability;
        if probability <= 0.0 || !self.chances.corrupt.chance(index, probability) {
            return None;
        }
        self.stats.packets_corrupted += 1;
        // Halved, so that the bits after the first one can be counted.
        let first_bit = self.chances.corrupt_bit.number(index) / 2;
        Some(Flips { first_bit, bits: self.config.corrupt_bits })
    }

    /// Returns when the copy arrives, if one is made and accepted.
    fn duplicate(&mut self, now_ns: u64, bytes: usize, index: u64) -> Option<u64> {
        let probability = self.config.duplicate_probability;
        if probability <= 0.0 || !self.chances.duplicate.chance(index, probability) {
            return None;
        }
        let Ok(left_ns) = self.enqueue(now_ns, bytes) else {
            self.stats.copies_dropped += 1;
            return None;
        };
        self.stats.packets_duplicated += 1;
        Some(self.arrival_ns(left_ns, self.chances.copy_jitter, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schedule;

    #[test]
    fn packets_that_will_be_lost_with_the_queue_fill_it_and_take_one_place() {
        let second = Duration::from_secs(1);
        let config = PipeConfig {
            rate_bits_per_s: Some(8_000),
            queue_bytes: 10_000,
            schedule: Schedule::Periodic { first_down: second, down: second, up: second },
            ..PipeConfig::default()
        };
        let mut pipe = Pipe::new(&config, 0);
        // A thousand bytes leave before the line goes down.
        let verdicts: Vec<Verdict> = (0..200).map(|_| pipe.offer(0, 100)).collect();
        let dropped = |reason| verdicts.iter().filter(|verdict| **verdict == Verdict::Drop(reason)).count();
        assert_eq!((dropped(DropReason::Down), dropped(DropReason::Queue)), (90, 100));
        assert_eq!((pipe.queued_bytes(0), pipe.queued_packets(0)), (10_000, 100));
        assert_eq!(pipe.queue.departures(), 10);
    }
}
