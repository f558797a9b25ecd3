//! CRC32c of x86-64 processors with AVX-512 and VPCLMULQDQ, without a serial rest.
//!
//! A library folds as many strides as the bytes have and takes the rest word by word, at three cycles a word. A packet of 1500
//! bytes leaves some 300 bytes for that, which takes twice as long as all its strides. Here no bytes are left behind the strides:
//! zeros in front of the bytes do not change a CRC that begins with zero, so the first stride is filled up with zeros in front.
//!
//! Folding (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009) replaces 128 bits
//! by the remainder that they leave a number of bits further on, which is two products with powers of x modulo the polynomial.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Length of a register.
const BLOCK_BYTES: usize = 64;
/// Number of registers that are folded side by side.
const LANES: usize = 4;
/// Number of bits between two blocks of one register in neighbouring strides, and between those of other registers.
const STRIDE_BITS: u32 = 8 * (LANES * BLOCK_BYTES) as u32;
const TWO_BLOCKS_BITS: u32 = 8 * 2 * BLOCK_BYTES as u32;
const BLOCK_BITS: u32 = 8 * BLOCK_BYTES as u32;
/// The polynomial of CRC32c, with the coefficient of the highest power in the lowest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Returns the state of the CRC after `bytes`; `None` if the processor lacks the instructions.
#[inline]
pub(super) fn update(state: u32, bytes: &[u8]) -> Option<u32> {
    let is_able = is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("vpclmulqdq");
    // SAFETY: the processor has the instructions of the function: those found, and those that they include (AVX512F, PCLMULQDQ,
    // SSE4.2).
    is_able.then(|| unsafe { update_folding(state, bytes) })
}

#[target_feature(enable = "avx512vl,vpclmulqdq")]
fn update_folding(state: u32, bytes: &[u8]) -> u32 {
    let (head, blocks) = bytes.split_at(bytes.len() % BLOCK_BYTES);
    let state = update_by_words(state, head);
    let (blocks, _) = blocks.as_chunks::<BLOCK_BYTES>();
    let (front, strides) = blocks.split_at(blocks.len() % LANES);
    let (mut strides, _) = strides.as_chunks::<LANES>();
    let begin = |block| {
        let state = _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32));
        _mm512_xor_si512(load(block), state)
    };
    let zero = _mm512_setzero_si512();
    let (mut a, mut b, mut c, mut d) = match front {
        [p] => (zero, zero, zero, begin(p)),
        [p, q] => (zero, zero, begin(p), load(q)),
        [p, q, r] => (zero, begin(p), load(q), load(r)),
        _ => match strides.split_first() {
            Some(([p, q, r, s], rest)) => {
                strides = rest;
                (begin(p), load(q), load(r), load(s))
            }
            None => return state,
        },
    };
    let stride = shift::<STRIDE_BITS>();
    for [p, q, r, s] in strides {
        a = fold(a, stride, load(p));
        b = fold(b, stride, load(q));
        c = fold(c, stride, load(r));
        d = fold(d, stride, load(s));
    }
    c = fold(a, shift::<TWO_BLOCKS_BITS>(), c);
    d = fold(b, shift::<TWO_BLOCKS_BITS>(), d);
    remainder(fold(c, shift::<BLOCK_BITS>(), d))
}

/// Returns the state after a few bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
fn update_by_words(state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks();
    let state =
        words.iter().fold(u64::from(state), |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
    // The words of SCTP have four bytes.
    let (state, rest) = match rest.split_first_chunk() {
        Some((word, rest)) => (_mm_crc32_u32(state as u32, u32::from_le_bytes(*word)), rest),
        None => (state as u32, rest),
    };
    rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[u8; BLOCK_BYTES]) -> __m512i {
    // SAFETY: the block has as many bytes as the register, and the instruction needs no alignment.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

/// Returns `next` plus what each 128 bits of `x` leave as many bits further on as `shift` says.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(x: __m512i, shift: __m512i, next: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128(x, shift, 0x00);
    let high = _mm512_clmulepi64_epi128(x, shift, 0x11);
    _mm512_ternarylogic_epi64(low, high, next, SUM)
}

/// The truth table of a sum of three bits.
const SUM: i32 = 0x96;

/// Returns the factors that move each 128 bits of a register by `BITS`.
#[inline]
#[target_feature(enable = "avx512f")]
fn shift<const BITS: u32>() -> __m512i {
    let [low, high] = const { factors(BITS) };
    _mm512_broadcast_i32x4(_mm_setr_epi32(low, 0, high, 0))
}

/// Returns the remainder of a register, which is the state after its last byte.
#[inline]
#[target_feature(enable = "avx512vl,vpclmulqdq")]
fn remainder(x: __m512i) -> u32 {
    const THIRD: [i32; 2] = factors(384);
    const SECOND: [i32; 2] = factors(256);
    const FIRST: [i32; 2] = factors(128);
    // Each 128 bits but the last move to the place of the last.
    #[rustfmt::skip]
    let shifts = _mm512_setr_epi32(
        THIRD[0], 0, THIRD[1], 0,
        SECOND[0], 0, SECOND[1], 0,
        FIRST[0], 0, FIRST[1], 0,
        0, 0, 0, 0,
    );
    let moved = fold(x, shifts, _mm512_setzero_si512());
    let sum = _mm_ternarylogic_epi64(
        _mm512_castsi512_si128(moved),
        _mm512_extracti32x4_epi32(moved, 1),
        _mm512_extracti32x4_epi32(moved, 2),
        SUM,
    );
    let sum = _mm_xor_si128(sum, _mm512_extracti32x4_epi32(x, 3));
    let state = _mm_crc32_u64(0, _mm_extract_epi64(sum, 0) as u64);
    _mm_crc32_u64(state, _mm_extract_epi64(sum, 1) as u64) as u32
}

/// Returns the factors for the lower and the upper 64 bits of 128 that move by `bits`. A product of two reversed polynomials lies
/// one bit, and one of 32 bits 32 bits, away from its place.
const fn factors(bits: u32) -> [i32; 2] {
    [power(bits + 31) as i32, power(bits - 33) as i32]
}

/// Returns x to the power of `exponent` modulo the polynomial.
const fn power(exponent: u32) -> u32 {
    let mut power: u32 = 1 << 31;
    let mut n = 0;
    while n < exponent {
        power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
        n += 1;
    }
    power
}
