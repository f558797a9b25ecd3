//! Delay that changes from packet to packet.

use std::time::Duration;

use crate::random::Random;
use crate::time::nanoseconds;

/// The variation of the delay: the time that a packet travels in addition to [`delay`](crate::PipeConfig::delay).
///
/// With `may_reorder`, each packet arrives after its own delay; without it, no packet arrives before an earlier one, as on
/// a line with a varying delay that preserves the order.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use netsim::{Jitter, Pipe, PipeConfig, Verdict};
///
/// let jitter = Jitter::Uniform { max: Duration::from_millis(2), may_reorder: false };
/// let delay = Duration::from_millis(10);
/// let mut pipe = Pipe::new(&PipeConfig { delay, jitter, ..PipeConfig::default() }, 7);
/// let Verdict::Deliver(passage) = pipe.offer(0, 100) else { panic!("nothing is lost here") };
/// assert!((10_000_000..=12_000_000).contains(&passage.at_ns));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// No additional time.
    #[default]
    None,
    /// A time from zero to `max`, uniformly distributed.
    Uniform {
        /// The maximum.
        max: Duration,
        /// Whether packets may overtake each other.
        may_reorder: bool,
    },
    /// Times around a mean, approximately normally distributed: the sum of twelve uniform random numbers, which is bounded
    /// by six deviations and equal on every machine. Negative times count as zero.
    Normal {
        /// The mean.
        mean: Duration,
        /// The standard deviation.
        deviation: Duration,
        /// Whether packets may overtake each other.
        may_reorder: bool,
    },
}

impl Jitter {
    /// Returns whether packets may overtake each other.
    ///
    /// ```
    /// # use netsim::Jitter;
    /// assert!(!Jitter::None.may_reorder());
    /// ```
    pub fn may_reorder(&self) -> bool {
        match self {
            Jitter::None => false,
            Jitter::Uniform { may_reorder, .. } | Jitter::Normal { may_reorder, .. } => *may_reorder,
        }
    }

    /// Returns the additional delay of the packet with number `index`.
    pub(crate) fn extra_ns(&self, random: Random, index: u64) -> u64 {
        match self {
            Jitter::None => 0,
            Jitter::Uniform { max, .. } => random.up_to(index, nanoseconds(*max)),
            Jitter::Normal { mean, deviation, .. } => {
                let off = (i128::from(nanoseconds(*deviation)) * deviations_2_16(random, index)) >> 16;
                let extra = i128::from(nanoseconds(*mean)) + off;
                u64::try_from(extra.max(0)).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Returns a number of standard deviations in units of 2^-16: twelve 16-bit numbers have a variance of 12 (2^32 - 1) / 12.
fn deviations_2_16(random: Random, index: u64) -> i128 {
    const MEAN: i128 = 12 * 0xffff / 2;
    let quarter = |which: u64| random.number(index.wrapping_mul(3).wrapping_add(which));
    let sum: u64 = (0..3).map(quarter).map(|n| (0..4).map(|k| (n >> (16 * k)) & 0xffff).sum::<u64>()).sum();
    i128::from(sum) - MEAN
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn uniform_jitter_fills_its_range_evenly() {
        let jitter = Jitter::Uniform { max: Duration::from_millis(8), may_reorder: true };
        let mut counts = [0; 8];
        for index in 0..80_000 {
            let extra_ns = jitter.extra_ns(Random::new(1, 2), index);
            counts[(extra_ns / MS).min(7) as usize] += 1;
            assert!(extra_ns <= 8 * MS);
        }
        assert!(counts.iter().all(|count| (9_700..10_300).contains(count)), "{counts:?}");
    }

    #[test]
    fn normal_jitter_has_its_mean_and_deviation() {
        let (mean, deviation) = (Duration::from_millis(50), Duration::from_millis(5));
        let jitter = Jitter::Normal { mean, deviation, may_reorder: true };
        let all: Vec<f64> =
            (0..50_000).map(|n| jitter.extra_ns(Random::new(9, 0), n) as f64 / MS as f64).collect();
        let average = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|x| (x - average).powi(2)).sum::<f64>() / all.len() as f64;
        assert!((average - 50.0).abs() < 0.1, "{average}");
        assert!((variance.sqrt() - 5.0).abs() < 0.1, "{}", variance.sqrt());
        // The shape: 68.3 % within one deviation, 95.4 % within two.
        let within =
            |off: f64| all.iter().filter(|x| (**x - 50.0).abs() < off).count() as f64 / all.len() as f64;
        assert!((within(5.0) - 0.683).abs() < 0.01, "{}", within(5.0));
        assert!((within(10.0) - 0.954).abs() < 0.01, "{}", within(10.0));
    }

    #[test]
    fn normal_jitter_is_never_below_nothing() {
        let jitter =
            Jitter::Normal { mean: Duration::ZERO, deviation: Duration::from_millis(5), may_reorder: true };
        let none = (0..10_000).filter(|n| jitter.extra_ns(Random::new(9, 0), *n) == 0).count();
        assert!((4_800..5_200).contains(&none), "{none}");
    }
}
