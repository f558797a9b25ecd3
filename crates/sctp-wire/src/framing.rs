//! Framing shared by chunks, parameters and causes: a length field, padding to four bytes, and how to read and write them.

use std::fmt;

/// The largest value of a 16-bit length field.
pub(crate) const LENGTH_MAX: usize = u16::MAX as usize;
/// Chunks, parameters and causes all start with four bytes that end in the length.
pub(crate) const TLV_HEADER_BYTES: usize = 4;

/// Reason why a sequence of chunks, parameters or causes cannot be divided further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramingError {
    /// Fewer bytes are left than the four of a header.
    HeaderTruncated {
        /// Number of remaining bytes.
        bytes_left: usize,
    },
    /// The length field is smaller than the header that it counts.
    LengthTooSmall {
        /// Value of the length field.
        length: usize,
    },
    /// The length field reaches beyond the end.
    LengthBeyondEnd {
        /// Value of the length field.
        length: usize,
        /// Number of remaining bytes.
        bytes_left: usize,
    },
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderTruncated { bytes_left } => {
                write!(f, "only {bytes_left} bytes are left where a header of 4 must stand; drop the rest")
            }
            Self::LengthTooSmall { length } => {
                write!(f, "the length field says {length}, less than its own header of 4; drop the rest")
            }
            Self::LengthBeyondEnd { length, bytes_left } => {
                write!(
                    f,
                    "the length field says {length}, but only {bytes_left} bytes are left; drop the rest"
                )
            }
        }
    }
}

impl std::error::Error for FramingError {}

/// Returns a length rounded up to the four bytes that everything is padded to.
#[inline]
pub(crate) const fn padded(bytes: usize) -> usize {
    bytes.saturating_add(3) & !3
}

/// One header, value and padding, cut off the front of a sequence.
pub(crate) struct Cut<'a> {
    pub(crate) head: [u8; 2],
    pub(crate) value: &'a [u8],
    pub(crate) whole: &'a [u8],
    pub(crate) rest: &'a [u8],
}

/// Cuts the first chunk, parameter or cause off `bytes`.
///
/// RFC 9260 §3.2: the length does not count the padding. Padding that is missing at the very end is
/// tolerated, because nothing depends on it.
#[inline]
pub(crate) fn cut(bytes: &[u8]) -> Result<Cut<'_>, FramingError> {
    let Some((&[head0, head1, length0, length1], _)) = bytes.split_first_chunk::<TLV_HEADER_BYTES>() else {
        return Err(FramingError::HeaderTruncated { bytes_left: bytes.len() });
    };
    let length = usize::from(u16::from_be_bytes([length0, length1]));
    let Some(whole) = bytes.get(..length) else {
        return Err(FramingError::LengthBeyondEnd { length, bytes_left: bytes.len() });
    };
    let Some(value) = whole.get(TLV_HEADER_BYTES..) else {
        return Err(FramingError::LengthTooSmall { length });
    };
    let rest = bytes.get(padded(length)..).unwrap_or_default();
    Ok(Cut { head: [head0, head1], value, whole, rest })
}

/// Parameters or causes without the padding of the last.
///
/// RFC 9260 §3.2: the length of a chunk counts the padding of all its parameters but the last, which is the
/// padding of the chunk itself.
pub(crate) fn without_final_padding(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Ok(cut) = cut(rest) {
        if cut.rest.is_empty() {
            let padding_bytes = rest.len() - cut.whole.len();
            return bytes.get(..bytes.len() - padding_bytes).unwrap_or(bytes);
        }
        rest = cut.rest;
    }
    bytes
}

/// Appends a header, the value that `body` writes, and the padding.
///
/// A value too long for the 16-bit length field is truncated to the largest length of the field: the packet stays well
/// formed whatever the caller passed. Callers bound the lengths that they write.
#[inline]
pub(crate) fn write_tlv(out: &mut Vec<u8>, head: [u8; 2], body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[head[0], head[1], 0, 0]);
    body(out);
    out.truncate(start + LENGTH_MAX);
    let length = out.len() - start;
    if let Some(field) = out.get_mut(start + 2..start + 4) {
        field.copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    }
    // RFC 9260 §3.2: zero bytes, at most three.
    out.resize(start + padded(length), 0);
}

/// Returns the padded bytes on the wire of a chunk, parameter or cause with `value_bytes` of value.
#[inline]
pub(crate) const fn wire_bytes(value_bytes: usize) -> usize {
    let length = value_bytes.saturating_add(TLV_HEADER_BYTES);
    padded(if length > LENGTH_MAX { LENGTH_MAX } else { length })
}

/// Takes big-endian integers off the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_fills_up_to_four() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padded), [0, 4, 4, 4, 4, 8]);
        assert_eq!(wire_bytes(0), 4);
        assert_eq!(wire_bytes(1), 8);
        assert_eq!(wire_bytes(usize::MAX), 65536);
    }

    #[test]
    fn bad_lengths_are_errors() {
        assert_eq!(cut(&[1, 2, 0]).err(), Some(FramingError::HeaderTruncated { bytes_left: 3 }));
        assert_eq!(cut(&[1, 2, 0, 3]).err(), Some(FramingError::LengthTooSmall { length: 3 }));
        let beyond = FramingError::LengthBeyondEnd { length: 5, bytes_left: 4 };
        assert_eq!(cut(&[1, 2, 0, 5]).err(), Some(beyond));
    }

    #[test]
    fn missing_padding_at_the_end_is_tolerated() {
        let cut = cut(&[1, 2, 0, 5, 9]).unwrap();
        assert_eq!((cut.value, cut.rest.len()), (&[9_u8][..], 0));
    }

    #[test]
    fn only_the_padding_of_the_last_is_taken_off() {
        let two = [0, 7, 0, 5, 1, 0, 0, 0, 0, 8, 0, 6, 2, 3, 0, 0];
        assert_eq!(without_final_padding(&two), &two[..14]);
        assert_eq!(without_final_padding(&two[..14]), &two[..14]);
        assert_eq!(without_final_padding(&two[..8]), &two[..5]);
        assert_eq!(without_final_padding(&two[..10]), &two[..10]);
        assert_eq!(without_final_padding(&[]), []);
    }

    #[test]
    fn a_value_too_long_for_the_length_field_is_cut() {
        let mut out = Vec::new();
        write_tlv(&mut out, [1, 2], |out| out.resize(out.len() + 70_000, 9));
        assert_eq!(out.len(), 65536);
        let cut = cut(&out).unwrap();
        assert_eq!((cut.value.len(), cut.rest.len()), (65531, 0));
    }
}
