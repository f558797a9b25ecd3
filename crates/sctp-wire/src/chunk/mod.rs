//! Chunks (RFC 9260 §3.2, §3.3): one file each.

use std::fmt;

use crate::Tsn;
use crate::any_kind::any_kind;
use crate::framing::{self, FramingError};
use crate::parameter::ParameterError;

mod abort;
mod cookie_ack;
mod cookie_echo;
mod cwr;
mod data;
mod ecn_echo;
mod error;
mod heartbeat;
mod heartbeat_ack;
mod init;
mod init_ack;
mod nr_sack;
mod pad;
mod sack;
mod shutdown;
mod shutdown_ack;
mod shutdown_complete;
mod unknown;

pub use abort::Abort;
pub use cookie_ack::CookieAck;
pub use cookie_echo::CookieEcho;
pub use cwr::Cwr;
pub use data::{DATA_HEADER_BYTES, DATA_PAYLOAD_BYTES_MAX, Data, DataFlags, DataHeader};
pub use ecn_echo::EcnEcho;
pub use error::Error;
pub use heartbeat::Heartbeat;
pub use heartbeat_ack::HeartbeatAck;
pub use init::Init;
pub use init_ack::InitAck;
pub use nr_sack::{NR_SACK_HEADER_BYTES, NrSack, NrSackBuilder};
pub use pad::Pad;
pub use sack::{Duplicates, GapBlocks, SACK_HEADER_BYTES, Sack, SackBuilder};
pub use shutdown::Shutdown;
pub use shutdown_ack::ShutdownAck;
pub use shutdown_complete::ShutdownComplete;
pub use unknown::Unknown;

/// The size of the header that every chunk begins with.
pub const CHUNK_HEADER_BYTES: usize = framing::TLV_HEADER_BYTES;

/// A chunk cut out of a packet, not yet read.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |  Chunk Type   |  Chunk Flags  |         Chunk Length          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                          Chunk Value                          /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawChunk<'a> {
    /// The chunk type.
    pub kind: u8,
    /// The chunk flags.
    pub flags: u8,
    /// The value, without header and padding.
    pub value: &'a [u8],
    /// Header and value, without padding.
    pub whole: &'a [u8],
}

/// Divides the bytes behind a common header into chunks. A chunk with a bad length is an error and ends it.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    /// Iterates over the chunks in these bytes, which follow the common header.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes from the next chunk on.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// Passes over so many bytes, which are whole chunks.
    #[inline]
    pub fn skip_bytes(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<RawChunk<'a>, ChunkError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match framing::cut(self.rest) {
            Ok(cut) => {
                self.rest = cut.rest;
                let [kind, flags] = cut.head;
                Some(Ok(RawChunk { kind, flags, value: cut.value, whole: cut.whole }))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(ChunkError::Framing(error)))
            }
        }
    }
}

impl std::iter::FusedIterator for Chunks<'_> {}

/// Reason why a chunk cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// The packet cannot be divided further.
    Framing(FramingError),
    /// The value is shorter than its fixed fields, or than the counts in it say.
    ValueTooShort {
        /// The chunk type.
        kind: u8,
        /// Length of the value.
        bytes: usize,
        /// Minimum length.
        needed: usize,
    },
    /// A DATA chunk without user data: RFC 9260 §6.2 has its receiver abort with the cause "No User Data".
    NoUserData {
        /// The TSN of that chunk.
        tsn: Tsn,
    },
    /// A mandatory parameter is missing.
    MissingParameter {
        /// The chunk type.
        kind: u8,
        /// The parameter type.
        parameter: u16,
    },
    /// A mandatory parameter cannot be read.
    Parameter(ParameterError),
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(error) => write!(f, "bad chunk framing: {error}"),
            Self::ValueTooShort { kind, bytes, needed } => {
                write!(f, "a chunk of type {kind} has a value of {bytes} bytes and needs {needed}; drop it")
            }
            Self::NoUserData { tsn } => {
                write!(f, "DATA chunk {tsn} carries no user data; abort the association")
            }
            Self::MissingParameter { kind, parameter } => {
                write!(f, "a chunk of type {kind} lacks the mandatory parameter {parameter}; drop it")
            }
            Self::Parameter(error) => write!(f, "bad mandatory parameter: {error}"),
        }
    }
}

impl std::error::Error for ChunkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Framing(error) => Some(error),
            Self::Parameter(error) => Some(error),
            _ => None,
        }
    }
}

impl ChunkError {
    pub(crate) fn too_short(raw: &RawChunk<'_>, needed: usize) -> Self {
        Self::ValueTooShort { kind: raw.kind, bytes: raw.value.len(), needed }
    }
}

any_kind! {
    /// Any chunk, read. The engine dispatches on [`RawChunk::kind`] itself; this is for tools and tests.
    Chunk, raw: RawChunk, error: ChunkError, kind: u8;

    /// User data.
    Data(Data<'a>),
    /// The first packet of an association.
    Init(Init<'a>),
    /// The answer to it.
    InitAck(InitAck<'a>),
    /// The DATA chunks that have arrived.
    Sack(Sack<'a>),
    /// An acknowledgement that states which chunks the peer may forget.
    NrSack(NrSack<'a>),
    /// A probe of a path.
    Heartbeat(Heartbeat<'a>),
    /// The answer to a HEARTBEAT.
    HeartbeatAck(HeartbeatAck<'a>),
    /// The end without delivery.
    Abort(Abort<'a>),
    /// The beginning of the end, all data sent and acknowledged.
    Shutdown(Shutdown),
    /// The other side has nothing outstanding either.
    ShutdownAck(ShutdownAck),
    /// Something is wrong, but not fatal.
    Error(Error<'a>),
    /// The state cookie, sent back.
    CookieEcho(CookieEcho<'a>),
    /// The association is up.
    CookieAck(CookieAck),
    /// A router has marked packets.
    EcnEcho(EcnEcho),
    /// The marks have been heeded.
    Cwr(Cwr),
    /// The association is gone.
    ShutdownComplete(ShutdownComplete),
    /// Padding of a certain length.
    Pad(Pad),
}

/// Implements a chunk that is only a header with zero flags.
macro_rules! empty_chunk {
    ($name:ident, $kind:expr, $text:expr) => {
        impl $name {
            /// The chunk type.
            pub const KIND: u8 = $kind;

            /// Reads the chunk. The caller has checked the kind. Bytes behind the header are ignored.
            pub fn parse(_raw: &$crate::chunk::RawChunk<'_>) -> Result<Self, $crate::chunk::ChunkError> {
                Ok(Self)
            }

            /// Appends the chunk.
            pub fn write(&self, out: &mut Vec<u8>) {
                $crate::framing::write_tlv(out, [Self::KIND, 0], |_| ());
            }

            /// Returns the number of bytes that [`Self::write`] appends.
            pub fn wire_bytes(&self) -> usize {
                $crate::framing::wire_bytes(0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($text)
            }
        }
    };
}
use empty_chunk;

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Writes a chunk, checks its framing and that it reads back as itself; yields the bytes.
    #[track_caller]
    pub(crate) fn round_trip<'a>(chunk: impl Into<Chunk<'a>>) -> Vec<u8> {
        let chunk = chunk.into();
        let mut bytes = Vec::new();
        chunk.write(&mut bytes);
        assert_eq!(bytes.len(), chunk.wire_bytes());
        assert_eq!(bytes.len() % 4, 0);
        let raws: Vec<_> = Chunks::new(&bytes).collect();
        assert_eq!(raws.len(), 1);
        let raw = raws[0].unwrap();
        assert_eq!(raw.kind, chunk.kind());
        assert_eq!(Chunk::parse(&raw).as_ref(), Ok(&chunk));
        bytes.clone()
    }

    /// Returns the only chunk in `bytes`.
    #[track_caller]
    pub(crate) fn only(bytes: &[u8]) -> RawChunk<'_> {
        let mut chunks = Chunks::new(bytes);
        let raw = chunks.next().unwrap().unwrap();
        assert_eq!(chunks.next(), None);
        raw
    }

    #[test]
    fn a_bad_length_ends_the_chunks() {
        let mut chunks = Chunks::new(&[11, 0, 0, 4, 11, 0, 0, 3, 11, 0, 0, 4]);
        assert!(matches!(chunks.next(), Some(Ok(RawChunk { kind: CookieAck::KIND, .. }))));
        let error = ChunkError::Framing(FramingError::LengthTooSmall { length: 3 });
        assert_eq!(chunks.next(), Some(Err(error)));
        assert_eq!(chunks.next(), None);
    }

    #[test]
    fn padding_is_skipped_and_may_be_missing_at_the_end() {
        let bytes = [10, 0, 0, 5, 1, 7, 7, 7, 10, 0, 0, 5, 2];
        let values: Vec<_> = Chunks::new(&bytes).map(|raw| raw.unwrap().value.to_vec()).collect();
        assert_eq!(values, [[1], [2]]);
    }
}
