//! Loss of packets in a pipe.

use std::collections::BTreeSet;

use crate::random::Random;

/// Rule for the packets that a pipe loses before they reach its queue.
///
/// # Examples
///
/// ```
/// use netsim::{DropReason, Loss, Pipe, PipeConfig, Verdict};
///
/// let mut pipe = Pipe::new(&PipeConfig { loss: Loss::scripted([1]), ..PipeConfig::default() }, 0);
/// assert!(matches!(pipe.offer(0, 100), Verdict::Deliver(_)));
/// assert_eq!(pipe.offer(0, 100), Verdict::Drop(DropReason::Loss));
/// assert!(matches!(pipe.offer(0, 100), Verdict::Deliver(_)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No packet is lost.
    #[default]
    Never,
    /// Each packet is lost with the same probability, independent of the others.
    Random {
        /// Probability of a loss.
        probability: f64,
    },
    /// Bursts: the line is good or bad, and changes from one to the other with a probability after each packet
    /// (Gilbert, 1960; Elliott, 1963). It is good at first. [`Loss::bursts`] makes one from what is measured.
    Burst {
        /// Probability that a good line is bad for the next packet.
        good_to_bad: f64,
        /// Probability that a bad line is good for the next packet; the inverse of the mean length of a burst.
        bad_to_good: f64,
        /// Probability that a good line loses a packet.
        loss_in_good: f64,
        /// Probability that a bad line loses a packet.
        loss_in_bad: f64,
    },
    /// The packets with these numbers are lost, counted from 0 since the loss was set.
    Scripted(BTreeSet<u64>),
    /// Every packet is lost: the line is cut.
    Always,
}

impl Loss {
    /// Loses the packets with these numbers, counted from 0.
    ///
    /// ```
    /// # use netsim::Loss;
    /// assert_eq!(Loss::scripted([3, 1]), Loss::Scripted([1, 3].into()));
    /// ```
    pub fn scripted(numbers: impl IntoIterator<Item = u64>) -> Self {
        Loss::Scripted(numbers.into_iter().collect())
    }

    /// Loses bursts of `burst_packets` on average, so many that the line loses `share` of all packets (below 1) in the
    /// long run; between bursts it loses nothing.
    ///
    /// ```
    /// # use netsim::Loss;
    /// // Every burst of 4 on average is followed by 396 good packets.
    /// let Loss::Burst { bad_to_good, good_to_bad, .. } = Loss::bursts(0.01, 4.0) else { unreachable!() };
    /// assert_eq!(bad_to_good, 0.25);
    /// assert!((good_to_bad - 1.0 / 396.0).abs() < 1e-9);
    /// ```
    pub fn bursts(share: f64, burst_packets: f64) -> Self {
        let bad_to_good = 1.0 / burst_packets.max(1.0);
        // In the long run as many bursts begin as end: good * good_to_bad = bad * bad_to_good.
        let good_to_bad = if share < 1.0 { (bad_to_good * share / (1.0 - share)).min(1.0) } else { 1.0 };
        Loss::Burst { good_to_bad, bad_to_good, loss_in_good: 0.0, loss_in_bad: 1.0 }
    }

    /// Returns the share of packets that are lost in the long run, from 0 to 1.
    ///
    /// ```
    /// # use netsim::Loss;
    /// assert_eq!(Loss::Random { probability: 0.2 }.mean_share(), 0.2);
    /// assert!((Loss::bursts(0.05, 4.0).mean_share() - 0.05).abs() < 1e-9);
    /// ```
    pub fn mean_share(&self) -> f64 {
        match self {
            Loss::Never | Loss::Scripted(_) => 0.0,
            Loss::Random { probability } => probability.clamp(0.0, 1.0),
            Loss::Burst { good_to_bad, bad_to_good, loss_in_good, loss_in_bad } => {
                let changes = good_to_bad + bad_to_good;
                // A line that never changes stays good.
                let bad = if changes > 0.0 { good_to_bad / changes } else { 0.0 };
                bad * loss_in_bad + (1.0 - bad) * loss_in_good
            }
            Loss::Always => 1.0,
        }
    }
}

/// Judges packets by a [`Loss`].
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    random: Random,
    /// Packets since the loss was set.
    number: u64,
    /// Whether a line of [`Loss::Burst`] is bad.
    bad: bool,
}

impl Judge {
    pub(crate) fn new(random: Random) -> Self {
        Judge { random, number: 0, bad: false }
    }

    /// Begins anew with another loss.
    pub(crate) fn restart(&mut self) {
        (self.number, self.bad) = (0, false);
    }

    /// Returns whether the next packet is lost. `index` is its number in the pipe.
    pub(crate) fn loses(&mut self, loss: &Loss, index: u64) -> bool {
        let number = self.number;
        self.number += 1;
        match loss {
            Loss::Never => false,
            Loss::Random { probability } => self.random.chance(index, *probability),
            Loss::Burst { good_to_bad, bad_to_good, loss_in_good, loss_in_bad } => {
                let (change, loss) =
                    if self.bad { (*bad_to_good, *loss_in_bad) } else { (*good_to_bad, *loss_in_good) };
                // Two chances for each packet: its own, and that of the line.
                let lost = self.random.chance(index.wrapping_mul(2), loss);
                self.bad ^= self.random.chance(index.wrapping_mul(2).wrapping_add(1), change);
                lost
            }
            Loss::Scripted(numbers) => numbers.contains(&number),
            Loss::Always => true,
        }
    }
}
