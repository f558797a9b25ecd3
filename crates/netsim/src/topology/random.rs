//! A network that a seed makes up.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Dumbbell, Family, Line, Paths, Site, Star};
use crate::random::Random;
use crate::time::nanoseconds;
use crate::{Jitter, Loss, Network, Payload, PipeConfig, PipeId, Reorder, Schedule, WhenDown};

/// Limits of a random network.
///
/// No outage is for ever and no line loses everything, so a transport that tries again gets through.
///
/// # Examples
///
/// ```
/// use netsim::topology::RandomLimits;
///
/// let gentle = RandomLimits { fault_probability: 0.0, ..RandomLimits::default() };
/// assert_eq!(gentle.pipe(3), gentle.pipe(3));
/// assert_eq!(gentle.pipe(3).duplicate_probability, 0.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RandomLimits {
    /// Hosts, from 2 on. Default 6.
    pub hosts_max: usize,
    /// Paths between two hosts, from 1 on. Default 4.
    pub paths_max: usize,
    /// Rates; small ones are as likely as large ones, by orders of magnitude. A quarter of the pipes have no limit.
    /// Default: 200 kbit/s to 1 Gbit/s.
    pub rate_bits_per_s: RangeInclusive<u64>,
    /// The longest delay. Default 200 ms.
    pub delay_max: Duration,
    /// The largest share of packets that a pipe loses. Default 0.2.
    pub loss_max: f64,
    /// Probability that a pipe has each of the faults. Default 0.25.
    pub fault_probability: f64,
    /// Maximum probability that a fault of a pipe affects a packet (reordered, duplicated, damaged). Default 0.1.
    pub packet_probability_max: f64,
    /// Probability that a pipe has an MTU, from 576 to 9000 bytes; half of these report packets that are too long.
    /// Default 0.
    pub mtu_probability: f64,
    /// The longest outage. Default 5 s.
    pub outage_max: Duration,
    /// The latest start of an outage. Default 60 s.
    pub outages_until: Duration,
}

impl Default for RandomLimits {
    fn default() -> Self {
        RandomLimits {
            hosts_max: 6,
            paths_max: 4,
            rate_bits_per_s: 200_000..=1_000_000_000,
            delay_max: Duration::from_millis(200),
            loss_max: 0.2,
            fault_probability: 0.25,
            packet_probability_max: 0.1,
            mtu_probability: 0.0,
            outage_max: Duration::from_secs(5),
            outages_until: Duration::from_secs(60),
        }
    }
}

impl RandomLimits {
    /// Returns the pipe that follows from this seed.
    ///
    /// ```
    /// # use netsim::topology::RandomLimits;
    /// let limits = RandomLimits::default();
    /// assert_ne!(limits.pipe(1), limits.pipe(2));
    /// ```
    pub fn pipe(&self, seed: u64) -> PipeConfig {
        self.draw_pipe(&mut Dice::new(seed))
    }

    fn draw_pipe(&self, dice: &mut Dice) -> PipeConfig {
        let rate_bits_per_s = (!dice.one_in(4)).then(|| dice.by_magnitude(self.rate_bits_per_s.clone()));
        let delay = dice.duration(self.delay_max);
        // From a tenth of what is on the way to four times that.
        let flight_bytes =
            rate_bits_per_s.map_or(100_000, |rate| (u128::from(rate) * delay.as_micros() / 8_000_000) as u64);
        let queue_bytes = (flight_bytes * dice.even(1, 40) / 10).max(5_000) as usize;
        PipeConfig {
            rate_bits_per_s,
            delay,
            queue_bytes: if dice.one_in(3) { usize::MAX } else { queue_bytes },
            queue_packets: if dice.one_in(3) { dice.even(5, 1000) as usize } else { usize::MAX },
            mark_above_bytes: self.has(dice).then_some(queue_bytes / 2),
            loss: if self.has(dice) { self.draw_loss(dice) } else { Loss::Never },
            reorder: if self.has(dice) { self.draw_reorder(dice) } else { Reorder::Never },
            duplicate_probability: if self.has(dice) { self.packet_probability(dice) } else { 0.0 },
            corrupt_probability: if self.has(dice) { self.packet_probability(dice) } else { 0.0 },
            corrupt_bits: dice.even(1, 8) as u32,
            jitter: if self.has(dice) { draw_jitter(dice, delay) } else { Jitter::None },
            schedule: if self.has(dice) { self.draw_schedule(dice) } else { Schedule::AlwaysUp },
            when_down: if dice.one_in(2) { WhenDown::Wait } else { WhenDown::Lose },
            mtu_bytes: self.draw_mtu(dice),
            reports_too_big: self.mtu_probability > 0.0 && dice.one_in(2),
        }
    }

    fn draw_mtu(&self, dice: &mut Dice) -> Option<usize> {
        let bounded = self.mtu_probability > 0.0 && dice.chance(self.mtu_probability);
        bounded.then(|| dice.by_magnitude(576..=9000) as usize)
    }

    fn has(&self, dice: &mut Dice) -> bool {
        dice.chance(self.fault_probability)
    }

    fn packet_probability(&self, dice: &mut Dice) -> f64 {
        dice.share() * self.packet_probability_max
    }

    fn draw_loss(&self, dice: &mut Dice) -> Loss {
        let share = dice.share() * self.loss_max;
        match dice.even(0, 2) {
            0 => Loss::Random { probability: share },
            1 => Loss::bursts(share, dice.even(1, 12) as f64),
            _ => Loss::scripted((0..dice.even(1, 20)).map(|_| dice.even(0, 300)).collect::<Vec<_>>()),
        }
    }

    fn draw_reorder(&self, dice: &mut Dice) -> Reorder {
        let probability = self.packet_probability(dice);
        if dice.one_in(2) {
            Reorder::Late { probability, by: dice.duration(Duration::from_millis(50)) }
        } else {
            let wait_max = dice.duration(Duration::from_millis(200));
            Reorder::Behind { probability, packets: dice.even(1, 10) as u32, wait_max }
        }
    }

    fn draw_schedule(&self, dice: &mut Dice) -> Schedule {
        let mut outage = || {
            let start = dice.duration(self.outages_until);
            start..start + dice.duration(self.outage_max)
        };
        let first = outage();
        let more = (0..3).map(|_| outage()).collect::<Vec<_>>();
        let count = dice.even(0, 3) as usize;
        Schedule::Listed(std::iter::once(first).chain(more.into_iter().take(count)).collect())
    }
}

fn draw_jitter(dice: &mut Dice, delay: Duration) -> Jitter {
    let most = delay / 2 + Duration::from_micros(100);
    let may_reorder = dice.one_in(3);
    if dice.one_in(2) {
        Jitter::Uniform { max: dice.duration(most), may_reorder }
    } else {
        Jitter::Normal { mean: dice.duration(most), deviation: dice.duration(most / 4), may_reorder }
    }
}

/// The shape of a [`RandomTopology`].
///
/// # Examples
///
/// ```
/// use netsim::topology::{RandomLimits, RandomTopology, Shape};
/// use netsim::Network;
///
/// let limits = RandomLimits::default();
/// let shape = |seed| RandomTopology::build(&mut Network::<()>::new(0), seed, &limits).shape;
/// assert!((0..100).any(|seed| shape(seed) == Shape::Dumbbell));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A [`Line`](super::Line).
    Line,
    /// A [`Star`](super::Star).
    Star,
    /// A [`Dumbbell`](super::Dumbbell).
    Dumbbell,
    /// [`Paths`](super::Paths).
    Paths,
}

/// A network that a seed made up.
///
/// # Examples
///
/// ```
/// use netsim::topology::{RandomLimits, RandomTopology};
/// use netsim::Network;
///
/// let mut network = Network::<Vec<u8>>::new(7);
/// let topology = RandomTopology::build(&mut network, 7, &RandomLimits::default());
/// let (first, last) = (&topology.sites[0], topology.sites.last().expect("there are two at least"));
/// assert!(network.flow(first.socket(0, 9899), last.socket(0, 9899)).is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomTopology {
    /// Shape of the network.
    pub shape: Shape,
    /// The hosts; each reaches each.
    pub sites: Vec<Site>,
    /// All pipes; [`Network::pipe`] returns each.
    pub pipes: Vec<PipeId>,
}

impl RandomTopology {
    /// Returns the network that follows from this seed.
    ///
    /// ```
    /// # use netsim::{Network, topology::{RandomLimits, RandomTopology}};
    /// let build = |seed| RandomTopology::build(&mut Network::<()>::new(0), seed, &RandomLimits::default());
    /// assert_eq!(build(5), build(5));
    /// ```
    pub fn build<P: Payload>(network: &mut Network<P>, seed: u64, limits: &RandomLimits) -> Self {
        let mut dice = Dice::new(seed);
        let family = if dice.one_in(3) { Family::V6 } else { Family::V4 };
        let hosts = dice.even(2, limits.hosts_max.max(2) as u64) as usize;
        let paths = dice.even(1, limits.paths_max.max(1) as u64) as usize;
        let shape = match dice.even(0, 3) {
            0 => Shape::Line,
            1 => Shape::Star,
            2 => Shape::Dumbbell,
            _ => Shape::Paths,
        };
        let first_pipe = network.pipe_ids().len();
        let mut pipe = || limits.draw_pipe(&mut dice);
        let sites = match shape {
            Shape::Line => Line::lay(network, family, hosts, &mut pipe).sites,
            Shape::Star => Star::lay(network, family, hosts, &mut pipe).sites,
            Shape::Dumbbell => {
                // The lines to the bottleneck are good ones, or nothing would come to it.
                let access = &mut PipeConfig::default;
                let dumbbell = Dumbbell::lay(network, family, hosts.div_ceil(2), access, &mut pipe);
                [dumbbell.left, dumbbell.right].concat()
            }
            Shape::Paths => {
                let Paths { a, b, .. } = Paths::lay(network, family, paths, &mut pipe);
                vec![a, b]
            }
        };
        RandomTopology { shape, sites, pipes: network.pipe_ids().skip(first_pipe).collect() }
    }
}

/// Random numbers, one after the other.
struct Dice {
    random: Random,
    thrown: u64,
}

impl Dice {
    fn new(seed: u64) -> Self {
        // A stream that no pipe has, though a network may have the same seed.
        Dice { random: Random::new(seed, u64::MAX), thrown: 0 }
    }

    fn throw(&mut self) -> u64 {
        self.thrown += 1;
        self.thrown
    }

    /// Returns a number from `least` to `most`, uniformly distributed.
    fn even(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.up_to(self.throw(), most.saturating_sub(least))
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.even(1, count) == 1
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random.chance(self.throw(), probability)
    }

    /// Returns a number from 0 to 1.
    fn share(&mut self) -> f64 {
        self.even(0, 1_000_000) as f64 / 1e6
    }

    /// Returns a number within a range, whose powers of two are equally probable.
    fn by_magnitude(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = (*range.start().max(&1), *range.end().max(&1));
        let power = self.even(least.ilog2().into(), most.ilog2().max(least.ilog2()).into());
        let (from, to) = (1u64 << power, (1u64 << power) - 1 + (1u64 << power));
        self.even(from.max(least), to.min(most))
    }

    /// Returns a duration up to `most`; half of them are within a tenth of it.
    fn duration(&mut self, most: Duration) -> Duration {
        let most_ns = nanoseconds(most);
        let most_ns = if self.one_in(2) { most_ns / 10 } else { most_ns };
        Duration::from_nanos(self.even(0, most_ns))
    }
}
