use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// Multipath Capable: the sender of an INIT or INIT ACK wants data on all its addresses at once, and copes with the order
/// in which it comes then.
///
/// A private parameter: a receiver that does not know it skips it silently (RFC 9260 §3.2.1). The mark tells it from others
/// that took the same type.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |     Parameter Type = 48727    |     Parameter Length = 8      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                       Mark = 0x53574d50                       |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MultipathCapable<'a> {
    /// That of [`MultipathCapable::OURS`], or the parameter means something else.
    pub mark: &'a [u8],
}

impl<'a> MultipathCapable<'a> {
    /// The parameter type.
    pub const KIND: u16 = 0xbe57;
    /// The parameter as this project means it.
    pub const OURS: MultipathCapable<'static> = MultipathCapable { mark: b"SWMP" };

    /// Reads the parameter. The caller has looked at the kind.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { mark: raw.value })
    }

    /// Appends header, mark and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.mark));
    }

    /// Returns the number of bytes that [`MultipathCapable::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.mark.len())
    }
}

impl fmt::Display for MultipathCapable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::OURS { "multipath capable" } else { "private parameter" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(MultipathCapable::OURS), [0xbe, 0x57, 0, 8, b'S', b'W', b'M', b'P']);
        assert_eq!(MultipathCapable::OURS.to_string(), "multipath capable");
        assert_eq!(MultipathCapable { mark: b"else" }.to_string(), "private parameter");
    }

    #[test]
    fn others_skip_it_and_say_nothing() {
        let action = crate::unknown_parameter_action(MultipathCapable::KIND);
        assert!(!action.stop && !action.report);
    }
}
