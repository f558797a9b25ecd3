use std::fmt;

use crate::Tsn;
use crate::chunk::sack::{Duplicates, GapBlocks, ITEM_BYTES};
use crate::chunk::{CHUNK_HEADER_BYTES, ChunkError, RawChunk};
use crate::framing::{self, LENGTH_MAX};

const FIXED_BYTES: usize = 16;
/// The size of an NR-SACK without gap blocks and duplicates.
pub const NR_SACK_HEADER_BYTES: usize = CHUNK_HEADER_BYTES + FIXED_BYTES;
/// Maximum number of gap blocks and duplicates together, because of the length field.
const ITEMS_MAX: usize = (LENGTH_MAX - NR_SACK_HEADER_BYTES) / ITEM_BYTES;

/// NR-SACK: a SACK whose sender promises to keep what the non-renegable gap blocks report, so that the sender of the
/// data may forget it (draft-natarajan-tsvwg-sctp-nrsack §4.1). Sent only to who lists it as a supported extension.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 16   |  Chunk Flags  |         Chunk Length          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                      Cumulative TSN Ack                       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |          Advertised Receiver Window Credit (a_rwnd)           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |Number of (R) Gap Ack Blocks=N |Number of NR Gap Ack Blocks = M|
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// | Number of Duplicate TSNs = X  |           Reserved            |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /       N gap blocks, M non-renegable ones, X duplicates        /
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
///
/// [`NrSackBuilder`] makes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NrSack<'a> {
    /// Every DATA chunk up to this one has arrived.
    pub cum_tsn: Tsn,
    /// The receive window in bytes.
    pub a_rwnd: u32,
    gap_blocks: &'a [[u8; ITEM_BYTES]],
    nr_gap_blocks: &'a [[u8; ITEM_BYTES]],
    duplicates: &'a [[u8; ITEM_BYTES]],
}

impl<'a> NrSack<'a> {
    /// The chunk type.
    pub const KIND: u8 = 16;

    /// Reads the chunk. The caller has checked the kind. Bytes behind what the counts say are ignored.
    #[inline]
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        let Some((&[c0, c1, c2, c3, w0, w1, w2, w3, g0, g1, n0, n1, d0, d1, _, _], rest)) =
            raw.value.split_first_chunk::<FIXED_BYTES>()
        else {
            return Err(ChunkError::too_short(raw, FIXED_BYTES));
        };
        let count = |high, low| usize::from(u16::from_be_bytes([high, low]));
        let (gaps, nr_gaps, duplicates) = (count(g0, g1), count(n0, n1), count(d0, d1));
        let (items, _) = rest.as_chunks::<ITEM_BYTES>();
        let Some(items) = items.get(..gaps + nr_gaps + duplicates) else {
            let needed = FIXED_BYTES + (gaps + nr_gaps + duplicates) * ITEM_BYTES;
            return Err(ChunkError::too_short(raw, needed));
        };
        let (gap_blocks, items) = items.split_at(gaps);
        let (nr_gap_blocks, duplicates) = items.split_at(nr_gaps);
        Ok(Self {
            cum_tsn: Tsn(u32::from_be_bytes([c0, c1, c2, c3])),
            a_rwnd: u32::from_be_bytes([w0, w1, w2, w3]),
            gap_blocks,
            nr_gap_blocks,
            duplicates,
        })
    }

    /// Returns the gap blocks on which the peer may renege, as in the chunk: see [`Sack::gap_blocks`].
    ///
    /// [`Sack::gap_blocks`]: crate::chunk::Sack::gap_blocks
    #[inline]
    pub fn gap_blocks(&self) -> GapBlocks<'a> {
        GapBlocks::new(self.gap_blocks)
    }

    /// Returns the gap blocks on which the peer may not renege.
    #[inline]
    pub fn nr_gap_blocks(&self) -> GapBlocks<'a> {
        GapBlocks::new(self.nr_gap_blocks)
    }

    /// Returns the TSNs that arrived more than once, each as often as it arrived again.
    #[inline]
    pub fn duplicates(&self) -> Duplicates<'a> {
        Duplicates::new(self.duplicates)
    }

    /// Appends header, fields, gap blocks and duplicates.
    pub fn write(&self, out: &mut Vec<u8>) {
        let blocks = [self.gap_blocks(), self.nr_gap_blocks()];
        write(out, self.cum_tsn, self.a_rwnd, blocks, self.duplicates());
    }

    /// Returns the number of bytes that [`NrSack::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        let items = self.gap_blocks.len() + self.nr_gap_blocks.len() + self.duplicates.len();
        NR_SACK_HEADER_BYTES + items * ITEM_BYTES
    }
}

impl fmt::Display for NrSack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NR-SACK cum_tsn={} a_rwnd={}", self.cum_tsn, self.a_rwnd)?;
        for (first, last) in self.gap_blocks() {
            write!(f, " gap={first}-{last}")?;
        }
        for (first, last) in self.nr_gap_blocks() {
            write!(f, " nr_gap={first}-{last}")?;
        }
        for tsn in self.duplicates() {
            write!(f, " duplicate={tsn}")?;
        }
        Ok(())
    }
}

/// Builds a [`NrSack`] of a receiver that never reneges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NrSackBuilder<'a> {
    /// Every DATA chunk up to this one has arrived.
    pub cum_tsn: Tsn,
    /// The receive window in bytes.
    pub a_rwnd: u32,
    /// First and last TSN of each gap block as distances from `cum_tsn`, in order.
    pub nr_gap_blocks: &'a [(u16, u16)],
    /// The TSNs that arrived more than once.
    pub duplicates: &'a [Tsn],
}

impl NrSackBuilder<'_> {
    /// Appends the chunk. Gap blocks come first when not all fit into the length field, which no packet reaches.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let gaps = self.nr_gap_blocks.len().min(ITEMS_MAX);
        let duplicates = self.duplicates.len().min(ITEMS_MAX - gaps);
        let none: &[(u16, u16)] = &[];
        let blocks = [none, &self.nr_gap_blocks[..gaps]].map(|blocks| blocks.iter().copied());
        write(out, self.cum_tsn, self.a_rwnd, blocks, self.duplicates[..duplicates].iter().copied());
    }
}

/// Appends an NR-SACK with at most [`ITEMS_MAX`] gap blocks and duplicates.
#[inline]
fn write<B: ExactSizeIterator<Item = (u16, u16)>>(
    out: &mut Vec<u8>,
    cum_tsn: Tsn,
    a_rwnd: u32,
    blocks: [B; 2],
    duplicates: impl ExactSizeIterator<Item = Tsn>,
) {
    framing::write_tlv(out, [NrSack::KIND, 0], |out| {
        out.extend_from_slice(&cum_tsn.0.to_be_bytes());
        out.extend_from_slice(&a_rwnd.to_be_bytes());
        for blocks in &blocks {
            out.extend_from_slice(&(blocks.len() as u16).to_be_bytes());
        }
        out.extend_from_slice(&(duplicates.len() as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        for (first, last) in blocks.into_iter().flatten() {
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

    #[test]
    fn non_renegable_blocks_stand_apart() {
        let bytes = [
            16, 0, 0, 32, 0, 0, 0, 12, 0, 0, 0x12, 0x34, 0, 1, 0, 1, 0, 1, 0, 0, 0, 2, 0, 3, 0, 5, 0, 6, 0,
            0, 0, 9,
        ];
        let nr_sack = NrSack::parse(&only(&bytes)).unwrap();
        assert_eq!((nr_sack.cum_tsn, nr_sack.a_rwnd), (Tsn(12), 4660));
        assert!(nr_sack.gap_blocks().eq([(2, 3)]) && nr_sack.nr_gap_blocks().eq([(5, 6)]));
        assert!(nr_sack.duplicates().eq([Tsn(9)]));
        assert_eq!(nr_sack.to_string(), "NR-SACK cum_tsn=12 a_rwnd=4660 gap=2-3 nr_gap=5-6 duplicate=9");
        assert_eq!(round_trip(nr_sack), bytes);
    }

    #[test]
    fn a_receiver_that_takes_nothing_back_promises_everything() {
        let mut bytes = Vec::new();
        NrSackBuilder { cum_tsn: Tsn(1), a_rwnd: 2, nr_gap_blocks: &[(2, 2)], duplicates: &[Tsn(1)] }
            .write(&mut bytes);
        let nr_sack = NrSack::parse(&only(&bytes)).unwrap();
        assert_eq!((nr_sack.gap_blocks().len(), nr_sack.nr_gap_blocks().len()), (0, 1));
        assert_eq!(nr_sack.wire_bytes(), bytes.len());
        let many = vec![(2, 3); ITEMS_MAX + 1];
        bytes.clear();
        NrSackBuilder { cum_tsn: Tsn(1), a_rwnd: 2, nr_gap_blocks: &many, duplicates: &[Tsn(1)] }
            .write(&mut bytes);
        let nr_sack = NrSack::parse(&only(&bytes)).unwrap();
        assert_eq!((nr_sack.nr_gap_blocks().len(), nr_sack.duplicates().len()), (ITEMS_MAX, 0));
    }

    #[test]
    fn counts_beyond_the_value_are_an_error() {
        let bytes = [16, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        let error = ChunkError::ValueTooShort { kind: 16, bytes: 16, needed: 20 };
        assert_eq!(NrSack::parse(&only(&bytes)), Err(error));
    }
}
