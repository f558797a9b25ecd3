//! The control part of a message.

use tpi::{DecodeError, Primitive, PrimitiveCode};

/// The control part of an `M_PROTO` or `M_PCPROTO` message.
///
/// Providers and modules that use the transport interface pass primitives as values. A control part that a program puts as bytes
/// stays raw until a module decodes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A primitive of the transport interface.
    Tpi(Primitive),
    /// Bytes, exactly as they were put.
    Raw(Box<[u8]>),
}

impl Control {
    /// The longest control part that a program may put (`strctlsz`).
    pub const BYTES_MAX: usize = 4096;

    /// Returns the primitive; `None` for bytes that were not decoded.
    #[inline]
    pub fn primitive(&self) -> Option<&Primitive> {
        match self {
            Self::Tpi(primitive) => Some(primitive),
            Self::Raw(_) => None,
        }
    }

    /// Decodes raw bytes, and returns a primitive unchanged.
    ///
    /// # Errors
    ///
    /// The bytes are not a primitive of the transport interface.
    pub fn decode(self) -> Result<Primitive, DecodeError> {
        match self {
            Self::Tpi(primitive) => Ok(primitive),
            Self::Raw(bytes) => Primitive::decode(&bytes),
        }
    }

    /// Returns the bytes that `getmsg` shows.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Tpi(primitive) => primitive.encode(),
            Self::Raw(bytes) => bytes.to_vec(),
        }
    }

    /// Returns which primitive the control part is, or says that it is.
    pub fn code(&self) -> Option<PrimitiveCode> {
        match self {
            Self::Tpi(primitive) => Some(primitive.code()),
            Self::Raw(bytes) => {
                PrimitiveCode::from_number(bytes.first_chunk().copied().map(u32::from_ne_bytes)?)
            }
        }
    }

    /// Returns whether the message's data is user data on its way up: behind a primitive of that kind, or behind a control part
    /// that was read before.
    pub(crate) fn carries_user_data(&self) -> bool {
        match self {
            Self::Tpi(primitive) => primitive.carries_user_data(),
            Self::Raw(bytes) => bytes.is_empty(),
        }
    }

    /// Returns whether nothing of the control part is left.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Raw(bytes) if bytes.is_empty())
    }

    /// Splits off the first `bytes`, which one `getmsg` takes of a control part that is longer than its buffer.
    pub(crate) fn split_to(&mut self, bytes: usize) -> Vec<u8> {
        let mut first = self.encode();
        let rest = first.split_off(bytes.min(first.len()));
        *self = Self::Raw(rest.into());
        first
    }
}

impl From<Primitive> for Control {
    #[inline]
    fn from(primitive: Primitive) -> Self {
        Self::Tpi(primitive)
    }
}

impl From<&[u8]> for Control {
    fn from(bytes: &[u8]) -> Self {
        Self::Raw(bytes.into())
    }
}

/// Compares a control part with a primitive.
impl PartialEq<Primitive> for Control {
    fn eq(&self, other: &Primitive) -> bool {
        self.primitive() == Some(other)
    }
}
