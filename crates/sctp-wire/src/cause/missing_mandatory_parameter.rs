use std::fmt;

use crate::cause::{CauseError, RawCause};
use crate::framing::{self, Reader};
use crate::parameter::KindList;

const COUNT_BYTES: usize = 4;

/// Missing Mandatory Parameter: an INIT or INIT ACK lacked parameters (RFC 9260 §3.3.10.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Cause Code = 2         |   Cause Length = 8 + N * 2    |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                 Number of missing params = N                  |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |     Missing Param Type #1     |     Missing Param Type #2     |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |    Missing Param Type #N-1    |     Missing Param Type #N     |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MissingMandatoryParameter<'a> {
    /// The types of the missing parameters.
    pub kinds: KindList<'a>,
}

impl<'a> MissingMandatoryParameter<'a> {
    /// The cause code.
    pub const KIND: u16 = 2;

    /// Reads the cause. The caller has checked the kind. Bytes behind what the count says are ignored.
    pub fn parse(raw: &RawCause<'a>) -> Result<Self, CauseError> {
        let wrong_size = |needed| CauseError::WrongSize { kind: raw.kind, bytes: raw.value.len(), needed };
        let mut reader = Reader(raw.value);
        let count = reader.u32().ok_or(wrong_size(COUNT_BYTES))? as usize;
        let (kinds, _) = reader.0.as_chunks();
        let needed = count.saturating_mul(2).saturating_add(COUNT_BYTES);
        let kinds = kinds.get(..count).ok_or(wrong_size(needed))?;
        Ok(Self { kinds: KindList::new(kinds) })
    }

    /// Appends header, count, types and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| {
            out.extend_from_slice(&(self.kinds.len() as u32).to_be_bytes());
            out.extend_from_slice(self.kinds.as_bytes());
        });
    }

    /// Returns the number of bytes that [`MissingMandatoryParameter::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(COUNT_BYTES + self.kinds.as_bytes().len())
    }
}

impl fmt::Display for MissingMandatoryParameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "missing mandatory parameters {}", self.kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::testing::round_trip;

    #[test]
    fn round_trips() {
        let cause = MissingMandatoryParameter { kinds: KindList::new(&[[0, 7]]) };
        assert_eq!(round_trip(cause), [0, 2, 0, 10, 0, 0, 0, 1, 0, 7, 0, 0]);
        assert_eq!(cause.to_string(), "missing mandatory parameters 7");
    }

    #[test]
    fn a_count_beyond_the_value_is_an_error() {
        let parse = |value| MissingMandatoryParameter::parse(&RawCause { kind: 2, value, whole: &[] });
        let wrong_size = |bytes, needed| Err(CauseError::WrongSize { kind: 2, bytes, needed });
        assert_eq!(parse(&[0, 0, 0]), wrong_size(3, 4));
        assert_eq!(parse(&[0, 0, 0, 2, 0, 7]), wrong_size(6, 8));
        assert_eq!(parse(&[255, 255, 255, 255, 0, 7]), wrong_size(6, 4 + 2 * 0xffff_ffff));
    }
}
