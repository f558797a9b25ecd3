//! CRC32c, the checksum of SCTP packets (RFC 9260 Appendix A).

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// CRC32c begins with all bits set and ends by inverting them.
const INITIAL: u32 = !0;

/// Returns the CRC32c of `bytes`. [`crate::packet::finish`] writes it into a packet.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC32c of a packet whose pieces are not in one place.
///
/// ```
/// use sctp_wire::checksum::{Digest, crc32c};
///
/// let mut digest = Digest::new();
/// digest.update(b"12345");
/// digest.update(b"6789");
/// assert_eq!(digest.finalize(), crc32c(b"123456789"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    state: u32,
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    /// Returns the digest of no bytes.
    #[inline]
    pub const fn new() -> Self {
        Self { state: INITIAL }
    }

    /// Adds the next piece.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        // The library's own digest contains its tables; only 32 bits must be kept between pieces.
        let mut digest = crc_fast::Digest::new_with_init_state(Crc32Iscsi, u64::from(self.state));
        digest.update(bytes);
        self.state = digest.get_state() as u32;
    }

    /// Returns the CRC32c of all pieces in their order.
    #[inline]
    pub const fn finalize(self) -> u32 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of CRC-32/ISCSI (RFC 3720 Appendix B.4).
    #[test]
    fn known_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&descending), 0x113f_db5c);
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let bytes: Vec<u8> = (0..4000_u32).map(|i| (i * 31 + i / 7) as u8).collect();
        for piece_bytes in [1, 3, 12, 16, 17, 64, 255, 1024, 3999] {
            let mut digest = Digest::new();
            bytes.chunks(piece_bytes).for_each(|piece| digest.update(piece));
            assert_eq!(digest.finalize(), crc32c(&bytes), "pieces of {piece_bytes}");
        }
    }
}
