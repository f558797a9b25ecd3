//! The packet: a common header and chunks (RFC 9260 §3).

use std::fmt;

use crate::VerificationTag;
use crate::checksum::{Digest, crc32c};
use crate::chunk::Chunks;

/// The size of the common header.
pub const HEADER_BYTES: usize = 12;
/// Offset of the checksum in the header, whose last field it is.
const CHECKSUM_OFFSET: usize = 8;

/// The common header (RFC 9260 §3.1) without its checksum.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |      Source Port Number       |    Destination Port Number    |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                       Verification Tag                        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                           Checksum                            |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The sender's port; never 0.
    pub source_port: u16,
    /// The receiver's port; never 0.
    pub destination_port: u16,
    /// The tag that the receiver chose, 0 with an INIT.
    pub verification_tag: VerificationTag,
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} tag={}", self.source_port, self.destination_port, self.verification_tag)
    }
}

/// Reason why bytes are not an SCTP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketError {
    /// Fewer bytes than a common header.
    TooShort {
        /// Number of bytes.
        bytes: usize,
    },
    /// A port is 0, which RFC 9260 §3.1 forbids.
    ZeroPort,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { bytes } => {
                write!(f, "{bytes} bytes are too few for an SCTP packet, which has at least 12; drop them")
            }
            Self::ZeroPort => f.write_str("an SCTP port is 0, which is reserved; drop the packet"),
        }
    }
}

impl std::error::Error for PacketError {}

/// A packet as it arrived: the header is read, the chunks are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    header: Header,
    checksum_field: u32,
    bytes: &'a [u8],
    chunk_bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the common header. The checksum and the chunks are looked at when they are asked for.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let Some((&[s0, s1, d0, d1, v0, v1, v2, v3, c0, c1, c2, c3], chunk_bytes)) =
            bytes.split_first_chunk::<HEADER_BYTES>()
        else {
            return Err(PacketError::TooShort { bytes: bytes.len() });
        };
        let header = Header {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            verification_tag: VerificationTag(u32::from_be_bytes([v0, v1, v2, v3])),
        };
        if header.source_port == 0 || header.destination_port == 0 {
            return Err(PacketError::ZeroPort);
        }
        // RFC 9260 Appendix A: the CRC goes into the packet with its low byte first.
        let checksum_field = u32::from_le_bytes([c0, c1, c2, c3]);
        Ok(Self { header, checksum_field, bytes, chunk_bytes })
    }

    /// Returns the common header.
    #[inline]
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns the checksum that the packet carries, as the number that [`crc32c`](fn@crc32c) yields.
    #[inline]
    pub fn checksum_field(&self) -> u32 {
        self.checksum_field
    }

    /// Returns whether the checksum that the packet carries is the right one (RFC 9260 §6.8).
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        // RFC 9260 §6.8: the checksum is computed with its own field zero.
        let mut digest = Digest::new();
        digest.update(&header_bytes(&self.header));
        digest.update(self.chunk_bytes);
        digest.finalize() == self.checksum_field
    }

    /// Returns the chunks, one after the other.
    #[inline]
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks::new(self.chunk_bytes)
    }

    /// Returns the whole packet.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// One line: the header and each chunk.
impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.header)?;
        for raw in self.chunks() {
            match raw.and_then(|raw| crate::chunk::Chunk::parse(&raw)) {
                Ok(chunk) => write!(f, "; {chunk}")?,
                Err(error) => write!(f, "; malformed: {error}")?,
            }
        }
        Ok(())
    }
}

/// Appends the common header with a checksum of zero; [`finish`] fills it in when the chunks are there.
#[inline]
pub fn write_header(header: &Header, out: &mut Vec<u8>) {
    out.extend_from_slice(&header_bytes(header));
}

/// Returns the common header with a checksum of zero.
#[inline]
pub fn header_bytes(header: &Header) -> [u8; HEADER_BYTES] {
    let [s0, s1] = header.source_port.to_be_bytes();
    let [d0, d1] = header.destination_port.to_be_bytes();
    let [v0, v1, v2, v3] = header.verification_tag.0.to_be_bytes();
    [s0, s1, d0, d1, v0, v1, v2, v3, 0, 0, 0, 0]
}

/// Computes the checksum over the whole packet in `out` and stores it in the header.
#[inline]
pub fn finish(out: &mut [u8]) {
    store_checksum(out, 0);
    let checksum = crc32c(out);
    store_checksum(out, checksum);
}

/// Stores a checksum that was computed elsewhere, for example over pieces that are not in one place, into the
/// header at the start of `out`. It does nothing when `out` is shorter than a header.
#[inline]
pub fn store_checksum(out: &mut [u8], checksum: u32) {
    if let Some(field) = out.get_mut(CHECKSUM_OFFSET..HEADER_BYTES) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { source_port: 1, destination_port: 0x0203, verification_tag: VerificationTag(0x0405_0607) };

    #[test]
    fn a_header_round_trips() {
        let mut bytes = Vec::new();
        write_header(&HEADER, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0]);
        finish(&mut bytes);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.header(), HEADER);
        assert!(packet.checksum_ok());
        assert_eq!(packet.chunks().count(), 0);
        assert_eq!(packet.to_string(), "1 > 515 tag=0x04050607");
    }

    #[test]
    fn every_flipped_bit_breaks_the_checksum() {
        let mut bytes = Vec::new();
        write_header(&HEADER, &mut bytes);
        crate::chunk::CookieAck.write(&mut bytes);
        finish(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Packet::parse(&bytes).is_ok_and(|packet| !packet.checksum_ok()) || bit / 8 < 4);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Packet::parse(&bytes).unwrap().checksum_ok());
    }

    #[test]
    fn other_bytes_are_no_packet() {
        assert_eq!(Packet::parse(&[1; 11]), Err(PacketError::TooShort { bytes: 11 }));
        for ports in [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]] {
            let mut bytes = [0; HEADER_BYTES];
            bytes[..4].copy_from_slice(&ports);
            assert_eq!(Packet::parse(&bytes), Err(PacketError::ZeroPort));
        }
        finish(&mut [1; 11]);
    }
}
