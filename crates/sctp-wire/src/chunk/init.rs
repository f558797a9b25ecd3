use std::fmt;

use crate::chunk::{ChunkError, RawChunk};
use crate::framing::{self, Reader};
use crate::parameter::Parameters;
use crate::{Tsn, VerificationTag};

pub(super) const FIXED_BYTES: usize = 16;

/// INIT: asks for an association (RFC 9260 §3.3.2).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 1    |  Chunk Flags  |      Chunk Length             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                         Initiate Tag                          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |          Advertised Receiver Window Credit (a_rwnd)           |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |  Number of Outbound Streams   |   Number of Inbound Streams   |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                          Initial TSN                          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /              Optional/Variable-Length Parameters              /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
///
/// A chunk that RFC 9260 answers with an ABORT or with silence (a tag of 0, no streams, a small window) parses: the engine must
/// see it to answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Init<'a> {
    /// The tag that packets to the sender of this chunk must carry; never 0.
    pub initiate_tag: VerificationTag,
    /// The receive window in bytes, at least 1500.
    pub a_rwnd: u32,
    /// Number of streams that the sender requests for sending, at least 1.
    pub outbound_streams: u16,
    /// Number of streams that the sender permits the peer, at least 1.
    pub inbound_streams: u16,
    /// The TSN of the sender's first DATA chunk.
    pub initial_tsn: Tsn,
    /// Addresses and options.
    pub parameters: Parameters<'a>,
}

impl<'a> Init<'a> {
    /// The chunk type.
    pub const KIND: u8 = 1;

    /// Reads the chunk. The caller has checked the kind. The parameters are looked at when they are asked for.
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        let mut reader = Reader(raw.value);
        let mut fixed = || {
            Some(Self {
                initiate_tag: VerificationTag(reader.u32()?),
                a_rwnd: reader.u32()?,
                outbound_streams: reader.u16()?,
                inbound_streams: reader.u16()?,
                initial_tsn: Tsn(reader.u32()?),
                parameters: Parameters::new(reader.0),
            })
        };
        fixed().ok_or(ChunkError::too_short(raw, FIXED_BYTES))
    }

    /// Returns the parameters, one after the other.
    pub fn parameters(&self) -> Parameters<'a> {
        self.parameters.clone()
    }

    /// Appends header, fields and parameters.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_as(Self::KIND, out);
    }

    pub(super) fn write_as(&self, kind: u8, out: &mut Vec<u8>) {
        framing::write_tlv(out, [kind, 0], |out| {
            out.extend_from_slice(&self.initiate_tag.0.to_be_bytes());
            out.extend_from_slice(&self.a_rwnd.to_be_bytes());
            out.extend_from_slice(&self.outbound_streams.to_be_bytes());
            out.extend_from_slice(&self.inbound_streams.to_be_bytes());
            out.extend_from_slice(&self.initial_tsn.0.to_be_bytes());
            out.extend_from_slice(self.parameters.as_bytes());
        });
    }

    /// Returns the number of bytes that [`Init::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        framing::wire_bytes(FIXED_BYTES + self.parameters.as_bytes().len())
    }

    pub(super) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters } = self;
        write!(f, "{name} initiate_tag={initiate_tag} a_rwnd={a_rwnd} outbound_streams={outbound_streams} ")?;
        write!(f, "inbound_streams={inbound_streams} initial_tsn={initial_tsn}{parameters}")
    }
}

impl fmt::Display for Init<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as("INIT", f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};
    use crate::parameter::{CookiePreservative, Parameter};

    #[test]
    fn round_trips_with_parameters() {
        let mut parameters = Vec::new();
        let preservative = CookiePreservative { increment_ms: 1000 };
        preservative.write(&mut parameters);
        let init = Init {
            initiate_tag: VerificationTag(0x0102_0304),
            a_rwnd: 1500,
            outbound_streams: 5,
            inbound_streams: 6,
            initial_tsn: Tsn(7),
            parameters: Parameters::new(&parameters),
        };
        let bytes = round_trip(init.clone());
        assert_eq!(bytes[..20], [1, 0, 0, 28, 1, 2, 3, 4, 0, 0, 5, 220, 0, 5, 0, 6, 0, 0, 0, 7]);
        assert!(init.parameters().eq([Ok(Parameter::CookiePreservative(preservative))]));
        assert_eq!(
            init.to_string(),
            "INIT initiate_tag=0x01020304 a_rwnd=1500 outbound_streams=5 inbound_streams=6 initial_tsn=7 \
             [cookie preservative 1000 ms]"
        );
    }

    #[test]
    fn fixed_fields_must_be_there() {
        let short = Init::parse(&only(&[1, 0, 0, 8, 0, 0, 0, 1]));
        assert_eq!(short, Err(ChunkError::ValueTooShort { kind: 1, bytes: 4, needed: 16 }));
    }
}
