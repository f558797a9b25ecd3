//! Which packets a pipe loses.

use std::collections::BTreeSet;

use crate::random::Random;

/// Which packets a pipe loses, before they reach its queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    Never,
    /// Each with the same probability, independent of the others.
    Random {
        /// From 0 to 1.
        probability: f64,
    },
    /// Those with these numbers, counted from 0 since the loss was set.
    Scripted(BTreeSet<u64>),
    /// All of them: the line is cut.
    Always,
}

impl Loss {
    /// Loses the packets with these numbers, counted from 0.
    pub fn scripted(numbers: impl IntoIterator<Item = u64>) -> Self {
        Loss::Scripted(numbers.into_iter().collect())
    }

    /// Is the packet with this number lost? Random loss draws once for each packet, whatever becomes of it.
    pub(crate) fn loses(&self, number: u64, random: &mut Random) -> bool {
        match self {
            Loss::Never => false,
            Loss::Random { probability } => random.chance(*probability),
            Loss::Scripted(numbers) => numbers.contains(&number),
            Loss::Always => true,
        }
    }
}
