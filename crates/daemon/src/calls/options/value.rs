//! Values of options: C structures in the layout of Linux, read and built field by field.

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::system::addresses;

/// Size of a `struct sockaddr_storage`.
pub(super) const STORAGE_BYTES: usize = 128;
/// Size of a `struct sctp_assoc_value`.
pub(super) const ASSOC_VALUE_BYTES: usize = 8;

/// A value from a program. Missing bytes read as zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    /// Returns a value of exactly `count` bytes.
    pub(super) fn exactly(bytes: &'a [u8], count: usize) -> Result<Self, Errno> {
        if bytes.len() == count { Ok(Value(bytes)) } else { Err(Errno::INVAL) }
    }

    /// Returns the first `count` bytes as a value, and ignores the rest.
    pub(super) fn at_least(bytes: &'a [u8], count: usize) -> Result<Self, Errno> {
        if bytes.len() < count { Err(Errno::INVAL) } else { Ok(Value(bytes)) }
    }

    fn field<const N: usize>(self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        u8::from_ne_bytes(self.field(at))
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.field(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.field(at))
    }

    pub(super) fn i32(self, at: usize) -> i32 {
        i32::from_ne_bytes(self.field(at))
    }

    /// Reads a `struct sockaddr_storage`.
    pub(super) fn address(self, at: usize) -> NamedAddress {
        let bytes = &self.0[at.min(self.0.len())..];
        if Value(bytes).u16(0) == 0 {
            return NamedAddress::Any;
        }
        match addresses::parse(bytes) {
            Ok((address, _)) if address.ip().is_unspecified() => NamedAddress::Any,
            Ok((address, _)) => NamedAddress::At(address),
            Err(_) => NamedAddress::Unknown,
        }
    }
}

/// An address of the peer in the value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedAddress {
    /// No address is named.
    Any,
    At(SocketAddr),
    /// The address is invalid.
    Unknown,
}

/// Builds a value.
#[derive(Debug, Default)]
pub(super) struct Build(Vec<u8>);

impl Build {
    pub(super) fn new() -> Self {
        Build::default()
    }

    /// Begins with the first `count` bytes of the program's value, such as the association.
    pub(super) fn after(given: Value<'_>, count: usize) -> Self {
        let mut bytes = given.0[..count.min(given.0.len())].to_vec();
        bytes.resize(count, 0);
        Build(bytes)
    }

    pub(super) fn u8(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }

    pub(super) fn u16(mut self, number: u16) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    pub(super) fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    /// Appends a `struct sockaddr_storage`.
    pub(super) fn address(mut self, address: SocketAddr) -> Self {
        let end = self.0.len() + STORAGE_BYTES;
        addresses::append(&mut self.0, address);
        self.0.resize(end, 0);
        self
    }

    /// Appends zeros up to this length.
    pub(super) fn pad(mut self, count: usize) -> Self {
        self.0.resize(count, 0);
        self
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Returns an `int`.
pub(super) fn number(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}
