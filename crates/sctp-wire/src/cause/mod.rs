//! Error causes of ABORT and ERROR chunks (RFC 9260 §3.3.10): one file each.

use std::fmt;

use crate::any_kind::any_kind;
use crate::framing::{self, FramingError};

mod cookie_while_shutting_down;
mod invalid_mandatory_parameter;
mod invalid_stream_identifier;
mod missing_mandatory_parameter;
mod new_encapsulation_port;
mod no_user_data;
mod out_of_resource;
mod protocol_violation;
mod restart_with_new_addresses;
mod stale_cookie;
mod unknown;
mod unrecognized_chunk_type;
mod unrecognized_parameters;
mod unresolvable_address;
mod user_initiated_abort;

pub use cookie_while_shutting_down::CookieReceivedWhileShuttingDown;
pub use invalid_mandatory_parameter::InvalidMandatoryParameter;
pub use invalid_stream_identifier::InvalidStreamIdentifier;
pub use missing_mandatory_parameter::MissingMandatoryParameter;
pub use new_encapsulation_port::NewEncapsulationPort;
pub use no_user_data::NoUserData;
pub use out_of_resource::OutOfResource;
pub use protocol_violation::ProtocolViolation;
pub use restart_with_new_addresses::RestartWithNewAddresses;
pub use stale_cookie::StaleCookie;
pub use unknown::Unknown;
pub use unrecognized_chunk_type::UnrecognizedChunkType;
pub use unrecognized_parameters::UnrecognizedParameters;
pub use unresolvable_address::UnresolvableAddress;
pub use user_initiated_abort::UserInitiatedAbort;

/// The size of the header that every cause begins with.
pub const CAUSE_HEADER_BYTES: usize = framing::TLV_HEADER_BYTES;

/// A cause cut out of a chunk, not yet read.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |          Cause Code           |         Cause Length          |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// /                  Cause-Specific Information                   /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawCause<'a> {
    /// The cause code.
    pub kind: u16,
    /// The value, without header and padding.
    pub value: &'a [u8],
    /// Header and value, without padding.
    pub whole: &'a [u8],
}

/// Encoded causes, and the iterator that reads them one after the other.
///
/// A cause whose value is wrong is an error, and the next follows; one with a bad length is an error and
/// ends it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Causes<'a> {
    rest: &'a [u8],
}

impl<'a> Causes<'a> {
    /// Returns the causes encoded in `bytes`, which the `write` of each of them made.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: framing::without_final_padding(bytes) }
    }

    /// Returns the causes that are not yet read, as they stand on the wire; the last one is not padded.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// Cuts the next cause off without reading its value.
    pub fn next_raw(&mut self) -> Option<Result<RawCause<'a>, CauseError>> {
        if self.rest.is_empty() {
            return None;
        }
        match framing::cut(self.rest) {
            Ok(cut) => {
                self.rest = cut.rest;
                let kind = u16::from_be_bytes(cut.head);
                Some(Ok(RawCause { kind, value: cut.value, whole: cut.whole }))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(CauseError::Framing(error)))
            }
        }
    }
}

impl<'a> Iterator for Causes<'a> {
    type Item = Result<Cause<'a>, CauseError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_raw()?.and_then(|raw| Cause::parse(&raw)))
    }
}

impl std::iter::FusedIterator for Causes<'_> {}

/// Each cause in brackets after a space.
impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cause in self.clone() {
            match cause {
                Ok(cause) => write!(f, " [{cause}]")?,
                Err(error) => write!(f, " [malformed: {error}]")?,
            }
        }
        Ok(())
    }
}

/// Reason why a cause cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CauseError {
    /// The chunk cannot be divided further into causes.
    Framing(FramingError),
    /// The value does not have the size that its kind requires.
    WrongSize {
        /// The cause code.
        kind: u16,
        /// Length of the value.
        bytes: usize,
        /// Required length.
        needed: usize,
    },
}

impl fmt::Display for CauseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(error) => write!(f, "bad cause framing: {error}"),
            Self::WrongSize { kind, bytes, needed } => {
                write!(
                    f,
                    "a cause with code {kind} has a value of {bytes} bytes and needs {needed}; ignore it"
                )
            }
        }
    }
}

impl std::error::Error for CauseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Framing(error) => Some(error),
            Self::WrongSize { .. } => None,
        }
    }
}

impl<'a> RawCause<'a> {
    /// Returns the value as an array, if it has exactly that size.
    fn value_array<const N: usize>(&self) -> Result<[u8; N], CauseError> {
        let error = CauseError::WrongSize { kind: self.kind, bytes: self.value.len(), needed: N };
        self.value.try_into().map_err(|_| error)
    }
}

any_kind! {
    /// Any cause, read.
    Cause, raw: RawCause, error: CauseError, kind: u16;

    /// A DATA chunk refers to a stream that does not exist.
    InvalidStreamIdentifier(InvalidStreamIdentifier),
    /// An INIT or INIT ACK lacked parameters.
    MissingMandatoryParameter(MissingMandatoryParameter<'a>),
    /// The state cookie came too late.
    StaleCookie(StaleCookie),
    /// The sender lacks resources.
    OutOfResource(OutOfResource),
    /// The sender cannot use an address.
    UnresolvableAddress(UnresolvableAddress<'a>),
    /// A chunk of an unknown kind.
    UnrecognizedChunkType(UnrecognizedChunkType<'a>),
    /// A mandatory field of an INIT or INIT ACK has a value that it must not have.
    InvalidMandatoryParameter(InvalidMandatoryParameter),
    /// Parameters of an unknown kind.
    UnrecognizedParameters(UnrecognizedParameters<'a>),
    /// A DATA chunk without data.
    NoUserData(NoUserData),
    /// A cookie came while the association was ending.
    CookieReceivedWhileShuttingDown(CookieReceivedWhileShuttingDown),
    /// An INIT tried to restart the association with addresses that it does not have.
    RestartWithNewAddresses(RestartWithNewAddresses<'a>),
    /// The user of the association ended it.
    UserInitiatedAbort(UserInitiatedAbort<'a>),
    /// The peer violated the protocol.
    ProtocolViolation(ProtocolViolation<'a>),
    /// The peer's address and SCTP port have an association through another UDP port.
    NewEncapsulationPort(NewEncapsulationPort),
}

/// Implements a cause that carries no information.
macro_rules! empty_cause {
    ($name:ident, $kind:expr, $text:expr) => {
        impl $name {
            /// The cause code.
            pub const KIND: u16 = $kind;

            /// Reads the cause. The caller has checked the kind. Information behind the header is ignored.
            pub fn parse(_raw: &$crate::cause::RawCause<'_>) -> Result<Self, $crate::cause::CauseError> {
                Ok(Self)
            }

            /// Appends the cause.
            pub fn write(&self, out: &mut Vec<u8>) {
                $crate::framing::write_tlv(out, Self::KIND.to_be_bytes(), |_| ());
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
use empty_cause;

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Writes a cause, checks its framing and that it reads back as itself; yields the bytes.
    #[track_caller]
    pub(crate) fn round_trip<'a>(cause: impl Into<Cause<'a>>) -> Vec<u8> {
        let cause = cause.into();
        let mut bytes = Vec::new();
        cause.write(&mut bytes);
        assert_eq!(bytes.len(), cause.wire_bytes());
        assert_eq!(bytes.len() % 4, 0);
        let mut causes = Causes::new(&bytes);
        assert_eq!(causes.next(), Some(Ok(cause.clone())));
        assert_eq!(causes.next(), None);
        assert_eq!(bytes[..2], cause.kind().to_be_bytes());
        bytes.clone()
    }
}
