use std::fmt;

use crate::chunk::{ChunkError, Init, RawChunk};
use crate::parameter::Parameters;
use crate::{Tsn, VerificationTag};

/// INIT ACK: agrees to an association and hands out the state cookie (RFC 9260 §3.3.3).
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |   Type = 2    |  Chunk Flags  |         Chunk Length          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                         Initiate Tag                          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |               Advertised Receiver Window Credit               |
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
/// The fields mean what they mean in [`Init`]; the state cookie is a mandatory parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitAck<'a> {
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
    /// The state cookie, addresses and options.
    pub parameters: Parameters<'a>,
}

impl<'a> InitAck<'a> {
    /// The chunk type.
    pub const KIND: u8 = 2;

    /// Reads the chunk. The caller has checked the kind. The parameters are looked at when they are asked for.
    pub fn parse(raw: &RawChunk<'a>) -> Result<Self, ChunkError> {
        let Init { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters } =
            Init::parse(raw)?;
        Ok(Self { initiate_tag, a_rwnd, outbound_streams, inbound_streams, initial_tsn, parameters })
    }

    /// Returns the parameters, one after the other.
    pub fn parameters(&self) -> Parameters<'a> {
        self.parameters.clone()
    }

    /// Appends header, fields and parameters.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.as_init().write_as(Self::KIND, out);
    }

    /// Returns the number of bytes that [`InitAck::write`] appends.
    pub fn wire_bytes(&self) -> usize {
        self.as_init().wire_bytes()
    }

    /// Returns the chunk as an INIT: the two differ only in their kinds and permitted parameters (RFC 9260 §3.3.3).
    fn as_init(&self) -> Init<'a> {
        Init {
            initiate_tag: self.initiate_tag,
            a_rwnd: self.a_rwnd,
            outbound_streams: self.outbound_streams,
            inbound_streams: self.inbound_streams,
            initial_tsn: self.initial_tsn,
            parameters: self.parameters.clone(),
        }
    }
}

impl fmt::Display for InitAck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_init().fmt_as("INIT ACK", f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::testing::{only, round_trip};
    use crate::parameter::{Parameter, StateCookie};

    #[test]
    fn round_trips_with_a_cookie() {
        let mut parameters = Vec::new();
        let cookie = StateCookie { cookie: b"secret" };
        cookie.write(&mut parameters);
        let init_ack = InitAck {
            initiate_tag: VerificationTag(0x0102_0304),
            a_rwnd: 65536,
            outbound_streams: 5,
            inbound_streams: 6,
            initial_tsn: Tsn(7),
            parameters: Parameters::new(&parameters),
        };
        let bytes = round_trip(init_ack.clone());
        assert_eq!(bytes[..20], [2, 0, 0, 30, 1, 2, 3, 4, 0, 1, 0, 0, 0, 5, 0, 6, 0, 0, 0, 7]);
        assert!(init_ack.parameters().eq([Ok(Parameter::StateCookie(cookie))]));
        assert!(init_ack.to_string().starts_with("INIT ACK initiate_tag=0x01020304 a_rwnd=65536 "));
    }

    #[test]
    fn fixed_fields_must_be_there() {
        let short = InitAck::parse(&only(&[2, 0, 0, 4]));
        assert_eq!(short, Err(ChunkError::ValueTooShort { kind: 2, bytes: 0, needed: 16 }));
    }
}
