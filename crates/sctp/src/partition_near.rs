//! Search in a sorted list from a place near the one that is searched for.

/// Returns the number of the first of `len` entries that are before the place searched for, of which `is_before` says so by their
/// index: all of them lie in front of all others. The cost is that of a binary search over as many entries as lie between that place
/// and the index `near`, which any number may be.
#[inline]
pub(crate) fn partition_near(len: usize, near: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let near = near.min(len);
    // The place lies at `low` or behind it, and at `high` or before it.
    let (mut low, mut high) = (near, near);
    let mut step = 1;
    if near < len && is_before(near) {
        while high < len && is_before(high) {
            low = high + 1;
            high = (high + step).min(len);
            step *= 2;
        }
    } else {
        while low > 0 && !is_before(low - 1) {
            high = low - 1;
            low = low.saturating_sub(step);
            step *= 2;
        }
    }
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::partition_near;

    #[test]
    fn every_place_is_found_from_everywhere() {
        for len in 0..40 {
            for place in 0..=len {
                for near in 0..len + 3 {
                    assert_eq!(partition_near(len, near, |at| at < place), place, "{len} {near}");
                }
            }
        }
    }
}
