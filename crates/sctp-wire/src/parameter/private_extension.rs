use std::fmt;

use crate::framing;
use crate::parameter::{ParameterError, RawParameter};

/// Private Extension: the sender of an INIT or INIT ACK offers an extension of this project's own.
///
/// A receiver that does not know the type skips the parameter silently (RFC 9260 §3.2.1). The mark names the extension, and tells
/// the parameter from others that took the same type.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |     Parameter Type = 48727    |     Parameter Length = 8      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                             Mark                              |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrivateExtension<'a> {
    /// One of this type's constants, or the parameter means something else.
    pub mark: &'a [u8],
}

impl<'a> PrivateExtension<'a> {
    /// The parameter type.
    pub const KIND: u16 = 0xbe57;
    /// Multipath: the sender wants data on all its addresses at once, and copes with the order in which it comes then.
    pub const MULTIPATH: PrivateExtension<'static> = PrivateExtension { mark: b"SWMP" };
    /// Prompt parts: the sender sets the I bit (RFC 7053) on a chunk in the middle of a message only where it has no more of the
    /// message for now, so that the receiver hands over the part that it has. Other senders set the bit on
    /// every chunk while they close.
    pub const PROMPT_PARTS: PrivateExtension<'static> = PrivateExtension { mark: b"SWPP" };

    /// Reads the parameter. The caller has checked the kind.
    pub fn parse(raw: &RawParameter<'a>) -> Result<Self, ParameterError> {
        Ok(Self { mark: raw.value })
    }

    /// Appends header, mark and padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        framing::write_tlv(out, Self::KIND.to_be_bytes(), |out| out.extend_from_slice(self.mark));
    }

    /// Returns the number of bytes that [`PrivateExtension::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(self.mark.len())
    }
}

impl fmt::Display for PrivateExtension<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::MULTIPATH => "multipath capable",
            Self::PROMPT_PARTS => "prompt parts",
            _ => "private parameter",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::testing::round_trip;

    #[test]
    fn round_trips() {
        assert_eq!(round_trip(PrivateExtension::MULTIPATH), [0xbe, 0x57, 0, 8, b'S', b'W', b'M', b'P']);
        assert_eq!(PrivateExtension::MULTIPATH.to_string(), "multipath capable");
        assert_eq!(PrivateExtension::PROMPT_PARTS.to_string(), "prompt parts");
        assert_eq!(PrivateExtension { mark: b"else" }.to_string(), "private parameter");
    }

    #[test]
    fn others_skip_it_and_say_nothing() {
        let action = crate::unknown_parameter_action(PrivateExtension::KIND);
        assert!(!action.stop && !action.report);
    }
}
