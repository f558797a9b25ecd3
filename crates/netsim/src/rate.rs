//! The time that packets take to leave.

const NS_PER_S: u128 = 1_000_000_000;

/// Times packets at a rate that is exact over any run of them: the remainder of each division by the rate is carried to
/// the next packet.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    bits_per_s: u64,
    /// Remainder carried over to the next nanosecond, in units of 1 / `bits_per_s`.
    fraction: u64,
    /// The last length, and its time in nanoseconds and a fraction: packets of a run are mostly alike, and a division
    /// is the dearest thing here.
    bytes: usize,
    bytes_ns: u64,
    bytes_fraction: u64,
}

impl Rate {
    pub(crate) fn new(bits_per_s: u64) -> Self {
        // A rate of 0 would hold its packets forever; 1 bit/s has nearly the same effect.
        Rate { bits_per_s: bits_per_s.max(1), fraction: 0, bytes: 0, bytes_ns: 0, bytes_fraction: 0 }
    }

    /// Begins anew: nothing is owed after a pause.
    pub(crate) fn rest(&mut self) {
        self.fraction = 0;
    }

    /// Returns how long a packet takes.
    pub(crate) fn taken_ns(&mut self, bytes: usize) -> u64 {
        if bytes != self.bytes {
            let bit_ns = bytes as u128 * 8 * NS_PER_S;
            self.bytes = bytes;
            self.bytes_ns = u64::try_from(bit_ns / u128::from(self.bits_per_s)).unwrap_or(u64::MAX);
            self.bytes_fraction = (bit_ns % u128::from(self.bits_per_s)) as u64;
        }
        let (sum, overflow) = self.fraction.overflowing_add(self.bytes_fraction);
        if overflow || sum >= self.bits_per_s {
            self.fraction = sum.wrapping_sub(self.bits_per_s);
            self.bytes_ns.saturating_add(1)
        } else {
            self.fraction = sum;
            self.bytes_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_over_any_run_of_lengths() {
        for bits_per_s in [1, 3, 7_777_777, 1_000_000_000, 9_999_999_999, u64::MAX] {
            let mut rate = Rate::new(bits_per_s);
            let (mut bits, mut taken_ns) = (0u128, 0u128);
            let lengths = (0..300).map(|n| (n * 7919) % 1501);
            // On a fast line they may be so long that sums of fractions come near to what can be counted.
            let long =
                [1 << 31, 3 << 30, 1 << 40, 2_000_000_000, 0, 1].into_iter().filter(|_| bits_per_s > 1000);
            for bytes in lengths.chain(long) {
                bits += 8 * bytes as u128;
                taken_ns += u128::from(rate.taken_ns(bytes));
                assert_eq!(taken_ns, bits * NS_PER_S / u128::from(bits_per_s));
            }
        }
    }
}
