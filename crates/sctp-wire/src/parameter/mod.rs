//! Parameters of chunks (RFC 9260 §3.2.1): one file each.

use std::fmt;

use crate::any_kind::any_kind;
use crate::framing::{self, FramingError};

mod adaptation_layer;
mod cookie_preservative;
mod ecn_capable;
mod heartbeat_info;
mod host_name;
mod ipv4;
mod ipv6;
mod kind_list;
mod private_extension;
mod state_cookie;
mod supported_address_types;
mod supported_extensions;
mod unknown;
mod unrecognized;

pub use adaptation_layer::AdaptationLayer;
pub use cookie_preservative::CookiePreservative;
pub use ecn_capable::EcnCapable;
pub use heartbeat_info::HeartbeatInfo;
pub use host_name::HostName;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use kind_list::KindList;
pub use private_extension::PrivateExtension;
pub use state_cookie::StateCookie;
pub use supported_address_types::SupportedAddressTypes;
pub use supported_extensions::SupportedExtensions;
pub use unknown::Unknown;
pub use unrecognized::UnrecognizedParameter;

/// The size of the header that every parameter begins with.
pub const PARAMETER_HEADER_BYTES: usize = framing::TLV_HEADER_BYTES;

/// A parameter cut out of a chunk, not yet read.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |        Parameter Type         |       Parameter Length        |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// \                                                               \
/// /                        Parameter Value                        /
/// \                                                               \
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawParameter<'a> {
    /// The parameter type.
    pub kind: u16,
    /// The value, without header and padding.
    pub value: &'a [u8],
    /// Header and value, without padding: what a report of an unknown parameter carries.
    pub whole: &'a [u8],
}

/// Encoded parameters, and the iterator that reads them one after the other.
///
/// A parameter whose value is wrong is an error, and the next follows; one with a bad length is an error and
/// ends it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters<'a> {
    rest: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// Returns the parameters encoded in `bytes`, which the `write` of each of them made.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: framing::without_final_padding(bytes) }
    }

    /// Returns the parameters that are not yet read, as they stand on the wire; the last one is not padded.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// Cuts the next parameter off without reading its value.
    pub fn next_raw(&mut self) -> Option<Result<RawParameter<'a>, ParameterError>> {
        if self.rest.is_empty() {
            return None;
        }
        match framing::cut(self.rest) {
            Ok(cut) => {
                self.rest = cut.rest;
                let kind = u16::from_be_bytes(cut.head);
                Some(Ok(RawParameter { kind, value: cut.value, whole: cut.whole }))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(ParameterError::Framing(error)))
            }
        }
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Result<Parameter<'a>, ParameterError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_raw()?.and_then(|raw| Parameter::parse(&raw)))
    }
}

impl std::iter::FusedIterator for Parameters<'_> {}

/// Each parameter in brackets after a space.
impl fmt::Display for Parameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for parameter in self.clone() {
            match parameter {
                Ok(parameter) => write!(f, " [{parameter}]")?,
                Err(error) => write!(f, " [malformed: {error}]")?,
            }
        }
        Ok(())
    }
}

/// Reason why a parameter cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParameterError {
    /// The chunk cannot be divided further into parameters.
    Framing(FramingError),
    /// The value has not the size that its kind demands.
    WrongSize {
        /// The parameter type.
        kind: u16,
        /// Length of the value.
        bytes: usize,
        /// Required length.
        needed: usize,
    },
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(error) => write!(f, "bad parameter framing: {error}"),
            Self::WrongSize { kind, bytes, needed } => {
                write!(
                    f,
                    "a parameter of type {kind} has a value of {bytes} bytes and needs {needed}; ignore it"
                )
            }
        }
    }
}

impl std::error::Error for ParameterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Framing(error) => Some(error),
            Self::WrongSize { .. } => None,
        }
    }
}

impl<'a> RawParameter<'a> {
    /// Returns the value as an array, if it has exactly that size.
    fn value_array<const N: usize>(&self) -> Result<[u8; N], ParameterError> {
        let error = ParameterError::WrongSize { kind: self.kind, bytes: self.value.len(), needed: N };
        self.value.try_into().map_err(|_| error)
    }
}

any_kind! {
    /// Any parameter, read.
    Parameter, raw: RawParameter, error: ParameterError, kind: u16;

    /// Data that the receiver of a HEARTBEAT echoes.
    HeartbeatInfo(HeartbeatInfo<'a>),
    /// An address of the sender.
    Ipv4(Ipv4),
    /// An address of the sender.
    Ipv6(Ipv6),
    /// The responder's state, kept by the initiator.
    StateCookie(StateCookie<'a>),
    /// A parameter of the INIT that the responder did not know.
    UnrecognizedParameter(UnrecognizedParameter<'a>),
    /// A request for a longer lifetime of the cookie.
    CookiePreservative(CookiePreservative),
    /// Deprecated: the receiver aborts.
    HostName(HostName<'a>),
    /// The address families that the sender supports.
    SupportedAddressTypes(SupportedAddressTypes<'a>),
    /// The sender supports ECN.
    EcnCapable(EcnCapable),
    /// Chunk types of extensions that the sender understands.
    SupportedExtensions(SupportedExtensions<'a>),
    /// The sender requests data on all its addresses at once.
    PrivateExtension(PrivateExtension<'a>),
    /// Indication of the layer above the sender.
    AdaptationLayer(AdaptationLayer),
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Writes a parameter, checks its framing and that it reads back as itself; yields the bytes.
    #[track_caller]
    pub(crate) fn round_trip<'a>(parameter: impl Into<Parameter<'a>>) -> Vec<u8> {
        let parameter = parameter.into();
        let mut bytes = Vec::new();
        parameter.write(&mut bytes);
        assert_eq!(bytes.len(), parameter.wire_bytes());
        assert_eq!(bytes.len() % 4, 0);
        let mut parameters = Parameters::new(&bytes);
        assert_eq!(parameters.next(), Some(Ok(parameter.clone())));
        assert_eq!(parameters.next(), None);
        assert_eq!(bytes[..2], parameter.kind().to_be_bytes());
        bytes.clone()
    }

    #[test]
    fn a_wrong_value_is_skipped_and_a_bad_length_ends() {
        let bytes = [0, 5, 0, 5, 1, 0, 0, 0, 0, 9, 0, 8, 0, 0, 0, 1, 0, 9, 0, 9, 0, 0, 0, 1];
        let mut parameters = Parameters::new(&bytes);
        let wrong = ParameterError::WrongSize { kind: 5, bytes: 1, needed: 4 };
        assert_eq!(parameters.next(), Some(Err(wrong)));
        assert_eq!(parameters.next(), Some(Ok(CookiePreservative { increment_ms: 1 }.into())));
        let beyond = FramingError::LengthBeyondEnd { length: 9, bytes_left: 8 };
        assert_eq!(parameters.next(), Some(Err(ParameterError::Framing(beyond))));
        assert_eq!(parameters.next(), None);
    }
}
