use std::fmt;
use std::slice;

use crate::Tsn;
use crate::chunk::{CHUNK_HEADER_BYTES, ChunkError, RawChunk};
use crate::framing::{self, LENGTH_MAX};

const FIXED_BYTES: usize = 12;
/// Gap blocks and duplicate TSNs both take four bytes.
pub(super) const ITEM_BYTES: usize = 4;
/// The size of a SACK without gap blocks and duplicates.
pub const SACK_HEADER_BYTES: usize = CHUNK_HEADER_BYTES + FIXED_BYTES;
/// Maximum number of gap blocks and duplicates together, because of the length field.
const ITEMS_MAX: usize = (LENGTH_MAX - SACK_HEADER_BYTES) / ITEM_BYTES;

/// SACK: which DATA chunks arrived (RFC 9260 §3.3.4).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 3    |  Chunk Flags  |         Chunk Length          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                      Cumulative TSN Ack                       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |          Advertised Receiver Window Credit (a_rwnd)           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// | Number of Gap Ack Blocks = N  |  Number of Duplicate TSNs = M |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |    Gap Ack Block #1 Start     |     Gap Ack Block #1 End      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                                                               /
/// \                              ...                              \
/// /                                                               /
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |    Gap Ack Block #N Start     |     Gap Ack Block #N End      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                        Duplicate TSN 1                        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                                                               /
/// \                              ...                              \
/// /                                                               /
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                        Duplicate TSN M                        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
///
/// [`SackBuilder`] makes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sack<'a> {
    /// Every DATA chunk up to this one has arrived.
    pub cum_tsn: Tsn,
    /// The receive window in bytes.
    pub a_rwnd: u32,
    gap_blocks: &'a [[u8; ITEM_BYTES]],
    duplicates: &'a [[u8; ITEM_BYTES]],
}

impl<'a> Sack<'a> {
    /// The chunk type.
    pub const KIND: u8 = 3;

    /// Reads the chunk. The caller has checked the kind. Bytes behind what the counts say are ignored.
    #[inline]
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        let Some((&[c0, c1, c2, c3, w0, w1, w2, w3, g0, g1, d0, d1], rest)) =
            raw.value.split_first_chunk::<FIXED_BYTES>()
        else {
            return Err(ChunkError::too_short(raw, FIXED_BYTES));
        };
        let gap_count = usize::from(u16::from_be_bytes([g0, g1]));
        let duplicate_count = usize::from(u16::from_be_bytes([d0, d1]));
        let (items, _) = rest.as_chunks::<ITEM_BYTES>();
        let Some((gap_blocks, duplicates)) =
            items.get(..gap_count + duplicate_count).and_then(|counted| counted.split_at_checked(gap_count))
        else {
            let needed = FIXED_BYTES + (gap_count + duplicate_count) * ITEM_BYTES;
            return Err(ChunkError::too_short(raw, needed));
        };
        Ok(Self {
            cum_tsn: Tsn(u32::from_be_bytes([c0, c1, c2, c3])),
            a_rwnd: u32::from_be_bytes([w0, w1, w2, w3]),
            gap_blocks,
            duplicates,
        })
    }

    /// Returns the gap blocks as they stand in the chunk: first and last TSN as distances from `cum_tsn`. Nothing says that a
    /// peer sends them in order, apart from each other, or with the first before the last.
    #[inline]
    pub fn gap_blocks(&self) -> GapBlocks<'a> {
        GapBlocks::new(self.gap_blocks)
    }

    /// Returns the TSNs that arrived more than once, each as often as it arrived again.
    #[inline]
    pub fn duplicates(&self) -> Duplicates<'a> {
        Duplicates::new(self.duplicates)
    }

    /// Appends header, fields, gap blocks and duplicates.
    pub fn write(&self, out: &mut Vec<u8>) {
        write(out, self.cum_tsn, self.a_rwnd, self.gap_blocks(), self.duplicates());
    }

    /// Returns the number of bytes that [`Sack::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        SACK_HEADER_BYTES + (self.gap_blocks.len() + self.duplicates.len()) * ITEM_BYTES
    }
}

impl fmt::Display for Sack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SACK cum_tsn={} a_rwnd={}", self.cum_tsn, self.a_rwnd)?;
        for (first, last) in self.gap_blocks() {
            write!(f, " gap={first}-{last}")?;
        }
        for tsn in self.duplicates() {
            write!(f, " duplicate={tsn}")?;
        }
        Ok(())
    }
}

/// Iterator over the gap blocks of a [`Sack`].
#[derive(Clone, Debug)]
pub struct GapBlocks<'a>(slice::Iter<'a, [u8; ITEM_BYTES]>);

impl<'a> GapBlocks<'a> {
    #[inline]
    pub(super) fn new(items: &'a [[u8; ITEM_BYTES]]) -> Self {
        Self(items.iter())
    }
}

impl Iterator for GapBlocks<'_> {
    type Item = (u16, u16);

    #[inline]
    fn next(&mut self) -> Option<(u16, u16)> {
        let &[a, b, c, d] = self.0.next()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for GapBlocks<'_> {}

/// Iterator over the duplicate TSNs of a [`Sack`].
#[derive(Clone, Debug)]
pub struct Duplicates<'a>(slice::Iter<'a, [u8; ITEM_BYTES]>);

impl<'a> Duplicates<'a> {
    #[inline]
    pub(super) fn new(items: &'a [[u8; ITEM_BYTES]]) -> Self {
        Self(items.iter())
    }
}

impl Iterator for Duplicates<'_> {
    type Item = Tsn;

    #[inline]
    fn next(&mut self) -> Option<Tsn> {
        self.0.next().map(|bytes| Tsn(u32::from_be_bytes(*bytes)))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Duplicates<'_> {}

/// Builds a [`Sack`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SackBuilder<'a> {
    /// Every DATA chunk up to this one has arrived.
    pub cum_tsn: Tsn,
    /// The receive window in bytes.
    pub a_rwnd: u32,
    /// First and last TSN of each gap block as distances from `cum_tsn`, in order.
    pub gap_blocks: &'a [(u16, u16)],
    /// The TSNs that arrived more than once.
    pub duplicates: &'a [Tsn],
}

impl SackBuilder<'_> {
    /// Appends the chunk. Gap blocks come first when not all fit into the length field, which no packet
    /// reaches.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let (gap_count, duplicate_count) = self.counts();
        let gap_blocks = self.gap_blocks.iter().take(gap_count).copied();
        let duplicates = self.duplicates.iter().take(duplicate_count).copied();
        write(out, self.cum_tsn, self.a_rwnd, gap_blocks, duplicates);
    }

    /// Returns the number of bytes that [`SackBuilder::write`] appends.
    #[inline]
    pub fn wire_bytes(&self) -> usize {
        let (gap_count, duplicate_count) = self.counts();
        SACK_HEADER_BYTES + (gap_count + duplicate_count) * ITEM_BYTES
    }

    #[inline]
    fn counts(&self) -> (usize, usize) {
        let gap_count = self.gap_blocks.len().min(ITEMS_MAX);
        (gap_count, self.duplicates.len().min(ITEMS_MAX - gap_count))
    }
}

/// Appends a SACK with at most [`ITEMS_MAX`] gap blocks and duplicates.
#[inline]
fn write(
    out: &mut Vec<u8>,
    cum_tsn: Tsn,
    a_rwnd: u32,
    gap_blocks: impl ExactSizeIterator<Item = (u16, u16)>,
    duplicates: impl ExactSizeIterator<Item = Tsn>,
) {
    framing::write_tlv(out, [Sack::KIND, 0], |out| {
        out.extend_from_slice(&cum_tsn.0.to_be_bytes());
        out.extend_from_slice(&a_rwnd.to_be_bytes());
        out.extend_from_slice(&(gap_blocks.len() as u16).to_be_bytes());
        out.extend_from_slice(&(duplicates.len() as u16).to_be_bytes());
        for (first, last) in gap_blocks {
            out.extend_from_slice(&first.to_be_bytes());
            out.extend_from_slice(&last.to_be_bytes());
        }
        for tsn in duplicates {
            out.extend_from_slice(&tsn.0.to_be_bytes());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};

    /// The example of RFC 9260 §3.3.4.
    #[test]
    fn the_example_of_the_rfc() {
        let builder =
            SackBuilder { cum_tsn: Tsn(12), a_rwnd: 4660, gap_blocks: &[(2, 3), (5, 5)], duplicates: &[] };
        let mut bytes = Vec::new();
        builder.write(&mut bytes);
        let expected = [3, 0, 0, 24, 0, 0, 0, 12, 0, 0, 0x12, 0x34, 0, 2, 0, 0, 0, 2, 0, 3, 0, 5, 0, 5];
        assert_eq!(bytes, expected);
        assert_eq!(bytes.len(), builder.wire_bytes());
        let sack = Sack::parse(&only(&bytes)).unwrap();
        assert_eq!((sack.cum_tsn, sack.a_rwnd), (Tsn(12), 4660));
        assert!(sack.gap_blocks().eq([(2, 3), (5, 5)]));
        assert_eq!(sack.duplicates().len(), 0);
        assert_eq!(sack.to_string(), "SACK cum_tsn=12 a_rwnd=4660 gap=2-3 gap=5-5");
        assert_eq!(round_trip(sack), expected);
    }

    #[test]
    fn duplicates_follow_the_gap_blocks() {
        let duplicates = [Tsn(19), Tsn(19)];
        let builder =
            SackBuilder { cum_tsn: Tsn(20), a_rwnd: 0, gap_blocks: &[(7, 9)], duplicates: &duplicates };
        let mut bytes = Vec::new();
        builder.write(&mut bytes);
        let sack = Sack::parse(&only(&bytes)).unwrap();
        assert!(sack.gap_blocks().eq([(7, 9)]));
        assert!(sack.duplicates().eq(duplicates));
        round_trip(sack);
    }

    #[test]
    fn counts_beyond_the_value_are_an_error() {
        let bytes = [3, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0, 1, 0, 2, 0, 3];
        let error = ChunkError::ValueTooShort { kind: 3, bytes: 16, needed: 20 };
        assert_eq!(Sack::parse(&only(&bytes)), Err(error));
        let error = ChunkError::ValueTooShort { kind: 3, bytes: 8, needed: 12 };
        assert_eq!(Sack::parse(&only(&[3, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 2])), Err(error));
    }

    #[test]
    fn more_items_than_fit_are_left_out() {
        let gap_blocks = vec![(2, 3); ITEMS_MAX - 1];
        let duplicates = [Tsn(1); 3];
        let builder =
            SackBuilder { cum_tsn: Tsn(0), a_rwnd: 0, gap_blocks: &gap_blocks, duplicates: &duplicates };
        let mut bytes = Vec::new();
        builder.write(&mut bytes);
        assert_eq!(bytes.len(), builder.wire_bytes());
        let sack = Sack::parse(&only(&bytes)).unwrap();
        assert_eq!((sack.gap_blocks().len(), sack.duplicates().len()), (ITEMS_MAX - 1, 1));
    }
}
