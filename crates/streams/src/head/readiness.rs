//! What a program waits for, and what it can do.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// What to wait for: a set of bits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// Nothing; errors and hang-ups wake all the same once something is wanted.
    pub const NONE: Self = Self(0);
    /// Something can be read.
    pub const READABLE: Self = Self(1);
    /// Something can be written.
    pub const WRITABLE: Self = Self(2);
    /// A high-priority message, a signal or the answer to an ioctl is there.
    pub const PRIORITY: Self = Self(4);

    /// Whether both sets share something.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether everything in `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// This set without what is in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Interest {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Interest {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            [(Self::READABLE, "READABLE"), (Self::WRITABLE, "WRITABLE"), (Self::PRIORITY, "PRIORITY")];
        f.debug_set().entries(names.iter().filter(|(i, _)| self.contains(*i)).map(|(_, name)| name)).finish()
    }
}

/// What can be done with a stream now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read would return something: a message, an error or the end.
    pub readable: bool,
    /// A write in band 0 would be taken, or would fail at once.
    pub writable: bool,
    /// The next message has high priority, or the answer to an ioctl is there.
    pub priority: bool,
    /// The other end is gone.
    pub hangup: bool,
    /// The stream has failed.
    pub error: bool,
}

impl Readiness {
    /// The same as a set of what one can wait for.
    pub fn interest(&self) -> Interest {
        let mut interest = Interest::NONE;
        if self.readable {
            interest |= Interest::READABLE;
        }
        if self.writable {
            interest |= Interest::WRITABLE;
        }
        if self.priority {
            interest |= Interest::PRIORITY;
        }
        interest
    }
}
