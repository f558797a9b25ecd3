//! The Internet checksum (RFC 1071).

/// Returns the one's complement sum of the bytes as big-endian words, not complemented.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let words: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    let odd = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    fold(words + odd)
}

/// Replaces a length in a sum. RFC 1624 §3: the old value is taken out by adding its complement.
pub(crate) fn replace_length(sum: u16, old: usize, new: usize) -> u16 {
    // Packet lengths fit into 16 bits, except for a few of IPv6, which the fold keeps right.
    fold(u64::from(sum) + u64::from(!fold(old as u64)) + u64::from(fold(new as u64)))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_has_its_sum() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0x12]), 0x1200);
    }

    #[test]
    fn a_length_is_replaced_as_if_the_sum_were_made_anew() {
        for (old, new) in [(65_000u16, 20u16), (20, 65_000), (1, 0xffff), (1500, 1500)] {
            let with = |length: u16| sum(&[[0xab, 0xcd], [0x12, 0x34], length.to_be_bytes()].concat());
            assert_eq!(replace_length(with(old), old.into(), new.into()), with(new));
        }
    }
}
