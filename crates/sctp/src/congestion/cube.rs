//! The cubic function of RFC 9438 §4.2 in integers: C t³ packets, with C = 0.4 and t in microseconds, and its inverse.

/// C as a fraction.
const C: (u128, u128) = (4, 10);
/// Microseconds cubed in a second cubed.
const US3_PER_S3: u128 = 1_000_000_000_000_000_000;
/// 2^36 µs are 19 hours, and 10^14 packets: no window gets there, and nothing overflows on the way.
const T_US_MAX: u64 = 1 << 36;

/// Returns the distance of the function from its plateau at this distance from K.
pub(super) fn growth_bytes(t_us: u64, mtu_bytes: u64) -> u64 {
    let t = u128::from(t_us.min(T_US_MAX));
    u64::try_from(t * t * t / (US3_PER_S3 / 1000) * C.0 * u128::from(mtu_bytes) / (C.1 * 1000))
        .unwrap_or(u64::MAX)
}

/// Returns K: the time that the function takes to grow by this much to its plateau.
pub(super) fn time_us(growth_bytes: u64, mtu_bytes: u64) -> u64 {
    let growth = u128::from(growth_bytes.min(1 << 48));
    root(growth * US3_PER_S3 / u128::from(mtu_bytes.max(1)) * C.1 / C.0)
}

/// Returns the cube root, rounded down.
fn root(x: u128) -> u64 {
    // x < 2^112, so its root has at most 38 bits.
    let mut root: u128 = 0;
    for bit in (0..38).rev() {
        let next = root | 1 << bit;
        if next * next * next <= x {
            root = next;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_rounded_down() {
        for r in [0_u128, 1, 2, 3, 10, 999, 1 << 20, (1 << 37) + 12_345] {
            assert_eq!(u128::from(root(r * r * r)), r);
            assert_eq!(u128::from(root((r + 1).pow(3) - 1)), r);
        }
    }

    #[test]
    fn the_times_are_those_of_the_formula() {
        // (3000 / 0.4)^(1/3) s and (0.3 / 0.4)^(1/3) s.
        assert_eq!(time_us(3000 * 1500, 1500), 19_574_338);
        assert_eq!(time_us(450, 1500), 908_560);
        assert_eq!(time_us(0, 1500), 0);
    }

    #[test]
    fn the_growth_is_that_of_the_formula() {
        // 0.4 · 2.5³ = 6.25 packets; 0.4 · 0.01³ packets are less than a byte.
        assert_eq!(growth_bytes(2_500_000, 1500), 9375);
        assert_eq!(growth_bytes(10_000, 1500), 0);
        assert_eq!(growth_bytes(100_000_000, 65_535), 400_000 * 65_535);
        // An absurd time is no overflow.
        assert!(growth_bytes(u64::MAX, 65_535) >= 1 << 60);
        assert!(time_us(u64::MAX, 1) > 0);
    }
}
