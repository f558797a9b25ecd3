//! TSNs without wrap: the wire's 32 bits, continued in 64.

use std::ops::Range;

use sctp_wire::Tsn;
use smallvec::{Array, SmallVec};

/// Ranges of unwrapped TSNs, mostly one: the chunks of a packet, or those that an event concerned.
pub(crate) type TsnRanges = SmallVec<[Range<u64>; 1]>;

/// Returns the unwrapped value of an initial TSN. It starts above 2³² so that a TSN just before it has a value too.
pub(crate) fn start(initial: Tsn) -> u64 {
    (1 << 32) | u64::from(initial.0)
}

/// Returns the unwrapped TSN nearest to `near` that has the wire value `wire` (RFC 9260 §1.6, serial arithmetic).
#[inline]
pub(crate) fn unwrap(near: u64, wire: Tsn) -> u64 {
    let step = wire.0.wrapping_sub(near as u32) as i32;
    near.wrapping_add(i64::from(step) as u64)
}

/// Returns the wire value of an unwrapped TSN.
#[inline]
pub(crate) fn wrap(tsn: u64) -> Tsn {
    Tsn(tsn as u32)
}

/// Appends TSNs to ranges, and joins them with the last one if they follow it.
#[inline]
pub(crate) fn append<A: Array<Item = Range<u64>>>(ranges: &mut SmallVec<A>, more: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == more.start => last.end = more.end,
        _ => ranges.push(more),
    }
}

/// Returns the number of TSNs in these ranges.
#[inline]
pub(crate) fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwraps_across_the_wrap_in_both_directions() {
        let near = start(Tsn(u32::MAX));
        assert_eq!(unwrap(near, Tsn(0)), near + 1);
        assert_eq!(unwrap(near + 1, Tsn(u32::MAX)), near);
        assert_eq!(unwrap(start(Tsn(0)), Tsn(u32::MAX)), start(Tsn(0)) - 1);
        assert_eq!(wrap(near + 1), Tsn(0));
    }
}
