//! Copies between words that processes share and memory of this process alone.
//!
//! The compiler leaves each access to an atomic word as it is, so that a loop over words moves eight bytes at a time. A record of
//! some KB is copied faster by wider accesses. On x86-64 the machine code below makes them, for which the compiler knows no wider
//! atomic access. Elsewhere, in the models and under Miri the loop over words does it all.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use crate::{AtomicU64, WORD_BYTES};

/// Stores bytes to the first words of `places`.
pub(crate) fn store(places: &[AtomicU64], words: &[[u8; WORD_BYTES]]) {
    let count = words.len().min(places.len());
    let done = wide::store(&places[..count], &words[..count]);
    for (place, word) in places.iter().zip(words).skip(done) {
        place.store(u64::from_ne_bytes(*word), Relaxed);
    }
}

/// Loads the first bytes of `words` to `place`, as many as both have.
pub(crate) fn load(words: &[AtomicU64], place: &mut [u8]) {
    let (whole, rest) = place.as_chunks_mut();
    let count = whole.len().min(words.len());
    let done = wide::load(&words[..count], &mut whole[..count]);
    for (bytes, word) in whole.iter_mut().zip(words).skip(done) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    if let Some(word) = words.get(whole.len()) {
        rest.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..rest.len()]);
    }
}

/// Appends words to a list.
pub(crate) fn append(words: &[AtomicU64], list: &mut Vec<u64>) {
    list.reserve(words.len());
    let done = wide::append(words, list);
    list.extend(words[done..].iter().map(|word| word.load(Relaxed)));
}

/// Each function copies as many words from the beginning as wide accesses can, and returns their number.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
mod wide {
    use std::arch::asm;

    use super::{AtomicU64, WORD_BYTES};

    /// Number of words that one turn of the loop copies.
    const TURN_WORDS: usize = 8;

    pub(super) fn store(places: &[AtomicU64], words: &[[u8; WORD_BYTES]]) -> usize {
        let turns = places.len().min(words.len()) / TURN_WORDS;
        // SAFETY: both slices have as many words. The places are atomic words, which may be written through a shared reference.
        unsafe { copy(words.as_ptr().cast(), places.as_ptr().cast_mut().cast(), turns) };
        turns * TURN_WORDS
    }

    pub(super) fn load(words: &[AtomicU64], place: &mut [[u8; WORD_BYTES]]) -> usize {
        let turns = words.len().min(place.len()) / TURN_WORDS;
        // SAFETY: both slices have as many words, and `place` is borrowed alone.
        unsafe { copy(words.as_ptr().cast(), place.as_mut_ptr().cast(), turns) };
        turns * TURN_WORDS
    }

    pub(super) fn append(words: &[AtomicU64], list: &mut Vec<u64>) -> usize {
        let room = list.spare_capacity_mut();
        let turns = words.len().min(room.len()) / TURN_WORDS;
        // SAFETY: the slice has as many words, and the list room for them, which is borrowed alone.
        unsafe { copy(words.as_ptr().cast(), room.as_mut_ptr().cast(), turns) };
        // SAFETY: so many more words are initialized, since any bytes are a word.
        unsafe { list.set_len(list.len() + turns * TURN_WORDS) };
        turns * TURN_WORDS
    }

    /// Copies `turns` times [`TURN_WORDS`] words. Other processes may access one of the two places at the same time: the result
    /// consists of old and new bytes then, as from relaxed accesses to each byte.
    ///
    /// # Safety
    ///
    /// `from` and `to` have so many words and do not overlap. This process accesses what other processes share only as atomic
    /// words, or by this function.
    unsafe fn copy(from: *const u8, to: *mut u8, turns: usize) {
        if turns == 0 {
            return;
        }
        // SAFETY: the code reads and writes what the caller says, 64 bytes in each turn. It is opaque to the compiler, so it has
        // no data race of the language; the processor allows accesses by others at any time. Each x86-64 has these registers.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "dec {turns}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                turns = inout(reg) turns => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
mod wide {
    use super::{AtomicU64, WORD_BYTES};

    pub(super) fn store(_: &[AtomicU64], _: &[[u8; WORD_BYTES]]) -> usize {
        0
    }

    pub(super) fn load(_: &[AtomicU64], _: &mut [[u8; WORD_BYTES]]) -> usize {
        0
    }

    pub(super) fn append(_: &[AtomicU64], _: &mut Vec<u64>) -> usize {
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Longer than some turns of the loop, with a rest.
    const WORDS: usize = 3 * 8 + 5;

    fn numbers() -> impl Iterator<Item = u64> {
        (1..=WORDS as u64).map(|number| number.wrapping_mul(0x0123_4567_89ab_cdef))
    }

    fn shared(words: impl IntoIterator<Item = u64>) -> Vec<AtomicU64> {
        words.into_iter().map(AtomicU64::new).collect()
    }

    fn bytes_of(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
        words.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn so_many_words_are_stored_and_no_others() {
        let content: Vec<_> = numbers().map(u64::to_ne_bytes).collect();
        for count in 0..=WORDS {
            let places = shared(std::iter::repeat_n(7, WORDS + 8));
            store(&places, &content[..count]);
            let expected = numbers().take(count).chain(std::iter::repeat(7));
            assert!(places.iter().map(|place| place.load(Relaxed)).eq(expected.take(WORDS + 8)), "{count}");
        }
        let few = shared([0; 9]);
        store(&few, &content);
        assert!(few.iter().map(|place| place.load(Relaxed)).eq(numbers().take(9)));
    }

    #[test]
    fn so_many_bytes_are_loaded_and_no_others() {
        let (words, content) = (shared(numbers()), bytes_of(numbers()));
        for count in 0..=content.len() {
            let mut place = vec![7; content.len() + 64];
            load(&words, &mut place[..count]);
            assert_eq!(place[..count], content[..count]);
            assert!(place[count..].iter().all(|byte| *byte == 7), "{count}");
        }
    }

    #[test]
    fn words_are_appended_behind_those_of_the_list() {
        let words = shared(numbers());
        for count in 0..=WORDS {
            let mut list = vec![1, 2, 3];
            append(&words[..count], &mut list);
            assert!(list.into_iter().eq([1, 2, 3].into_iter().chain(numbers().take(count))), "{count}");
        }
    }
}
