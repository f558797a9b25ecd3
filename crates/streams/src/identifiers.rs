//! Identifiers of streams, drivers, links and queues.

use std::fmt;

/// Identifies one open stream of an executive. The identifier of a closed stream is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl StreamId {
    /// Returns a small number that no other open stream of the executive has, for tables.
    #[inline]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Identifies one driver of an executive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverId(pub(crate) usize);

/// Identifies one link of a stream under a multiplexor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// Returns the number that `I_LINK` returns.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Identifies one queue of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueRef {
    pub(crate) stream: StreamId,
    pub(crate) place: Place,
    pub(crate) side: Side,
}

/// A position along a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Head,
    /// The next position below the head.
    BelowHead,
    /// Counted from the driver, so that pushing and popping leaves the positions of other modules.
    Module(u16),
    Driver,
}

/// The direction of a queue or message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Up, to the reader.
    Read,
    /// Down, to the driver.
    Write,
}

impl Side {
    /// Returns the other direction.
    #[inline]
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}
