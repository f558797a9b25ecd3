//! The source of all chance: SplitMix64 (Steele, Lea and Flood, 2014), small and the same everywhere.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of pseudo-random numbers with random access.
///
/// A number is looked up and not drawn, so requests of one user never change the numbers of another: the fate of a packet
/// depends only on the seed, the pipe, the fault and the packet's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random {
    start: u64,
}

impl Random {
    /// Returns the sequence number `stream` of `seed`. Each user has a stream of its own.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mixed = Random { start: seed ^ stream.wrapping_mul(GOLDEN_GAMMA).rotate_left(17) };
        Random { start: mixed.number(0) }
    }

    /// Returns the number at `index`.
    pub(crate) fn number(self, index: u64) -> u64 {
        let z = self.start.wrapping_add(GOLDEN_GAMMA.wrapping_mul(index.wrapping_add(1)));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns `true` at `index` with the given probability.
    pub(crate) fn chance(self, index: u64, probability: f64) -> bool {
        // The upper 53 bits make an exact fraction in [0, 1).
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.number(index) >> 11) as f64) * UNIT < probability
    }

    /// Returns a number from 0 to `max`, each as likely as any other.
    pub(crate) fn up_to(self, index: u64, max: u64) -> u64 {
        // The upper half of the product spreads evenly, to within 2^-64 of each.
        ((u128::from(self.number(index)) * (u128::from(max) + 1)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        let random = Random { start: 1_234_567 };
        assert_eq!(random.number(0), 6_457_827_717_110_365_317);
        assert_eq!(random.number(1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn chances_come_out_as_asked() {
        let random = Random::new(7, 0);
        let hits = (0..100_000).filter(|index| random.chance(*index, 0.2)).count();
        assert!((19_500..20_500).contains(&hits), "{hits}");
        assert!((0..1000).all(|index| !random.chance(index, 0.0)));
        assert!((0..1000).all(|index| random.chance(index, 1.0)));
    }

    #[test]
    fn numbers_up_to_a_bound_reach_it_evenly() {
        let random = Random::new(3, 1);
        let mut counts = [0; 5];
        (0..50_000).for_each(|index| counts[random.up_to(index, 4) as usize] += 1);
        assert!(counts.iter().all(|count| (9_700..10_300).contains(count)), "{counts:?}");
        assert_eq!(random.up_to(0, 0), 0);
        assert!((0..100).any(|index| random.up_to(index, u64::MAX) > u64::MAX / 2));
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let first = |stream| Random::new(1, stream).number(0);
        assert_ne!(first(0), first(1));
        assert_eq!(first(1), first(1));
    }
}
