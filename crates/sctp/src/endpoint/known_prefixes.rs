//! Remembers the source prefixes of peers that have completed a handshake. Such a peer has received an answer at its address, as
//! a sender that invents addresses cannot.

use siphasher::sip::SipHasher13;

use crate::source_prefix::SourcePrefix;

/// Number of sets of prefixes. Each set forgets the one whose peers have been away the longest.
const SETS: usize = 1024;
const PREFIXES_IN_SET: usize = 8;

/// The prefixes of peers, as keyed hashes: a sender cannot choose a prefix that counts as that of another.
#[derive(Debug)]
pub(super) struct KnownPrefixes {
    keys: (u64, u64),
    /// Empty until the first. The low bits of a hash select the set, and its high bits are the entry; the newest is first.
    sets: Vec<[u32; PREFIXES_IN_SET]>,
}

impl KnownPrefixes {
    /// `keys` must come from a good random source.
    pub(super) fn new(keys: (u64, u64)) -> Self {
        KnownPrefixes { keys, sets: Vec::new() }
    }

    /// Records that a peer in this prefix has completed a handshake.
    pub(super) fn enter(&mut self, prefix: SourcePrefix) {
        let (set, entry) = self.place(prefix);
        if self.sets.is_empty() {
            self.sets = vec![[0; PREFIXES_IN_SET]; SETS];
        }
        let set = &mut self.sets[set];
        let end = set.iter().position(|known| *known == entry).unwrap_or(PREFIXES_IN_SET - 1);
        set[..=end].rotate_right(1);
        set[0] = entry;
    }

    /// Returns whether a peer in this prefix has completed a handshake.
    pub(super) fn has(&self, prefix: SourcePrefix) -> bool {
        let (set, entry) = self.place(prefix);
        self.sets.get(set).is_some_and(|set| set.contains(&entry))
    }

    /// Returns the set of a prefix, and its entry, which is not 0.
    fn place(&self, prefix: SourcePrefix) -> (usize, u32) {
        let hash = SipHasher13::new_with_keys(self.keys.0, self.keys.1).hash(&prefix.to_bits().to_ne_bytes());
        (hash as usize % SETS, (hash >> 32) as u32 | 1)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn prefix(number: u32) -> SourcePrefix {
        SourcePrefix::of(Ipv4Addr::from(number << 8).into())
    }

    #[test]
    fn a_prefix_is_known_from_its_first_peer_on() {
        let mut known = KnownPrefixes::new((1, 2));
        assert!(!known.has(prefix(1)));
        known.enter(prefix(1));
        assert!(known.has(prefix(1)));
        let others = (2..100_000).filter(|number| known.has(prefix(*number))).count();
        assert_eq!(others, 0);
    }

    #[test]
    fn the_prefix_that_was_away_the_longest_is_forgotten_first() {
        let mut known = KnownPrefixes::new((1, 2));
        let (set, _) = known.place(prefix(1));
        let of_set: Vec<u32> = (1..).filter(|number| known.place(prefix(*number)).0 == set).take(9).collect();
        for number in &of_set[..PREFIXES_IN_SET] {
            known.enter(prefix(*number));
        }
        // A peer of the first comes again, and one of a further prefix for the first time.
        known.enter(prefix(of_set[0]));
        known.enter(prefix(of_set[8]));
        let is_known: Vec<bool> = of_set.iter().map(|number| known.has(prefix(*number))).collect();
        assert_eq!(is_known, [true, false, true, true, true, true, true, true, true]);
    }
}
