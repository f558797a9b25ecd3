//! The source of all chance: SplitMix64 (Steele, Lea and Flood, 2014), small and the same everywhere.

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of pseudo-random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The sequence number `stream` of `seed`. Each user has a stream of its own, so that what happens in one place
    /// does not change the chances in another.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Random { state: seed ^ stream.wrapping_mul(GOLDEN_GAMMA).rotate_left(17) };
        Random { state: mixed.next() }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with the given probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        // The upper 53 bits make an exact fraction in [0, 1).
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.next() >> 11) as f64) * UNIT < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        let mut random = Random { state: 1_234_567 };
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn chances_come_out_as_asked() {
        let mut random = Random::new(7, 0);
        let hits = (0..100_000).filter(|_| random.chance(0.2)).count();
        assert!((19_500..20_500).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !random.chance(0.0)));
        assert!((0..1000).all(|_| random.chance(1.0)));
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let first = |stream| Random::new(1, stream).next();
        assert_ne!(first(0), first(1));
        assert_eq!(first(1), first(1));
    }
}
