//! Search in a sorted list from a place near the one that is searched for.

/// Returns how many of `len` sorted entries lie before a place. `is_before` tells by its index whether an entry does, as
/// the predicate of [`slice::partition_point`]. The cost is that of a binary search over the entries between that place
/// and the index `near`, which may be any number.
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
