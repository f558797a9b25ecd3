//! Interest of a program in a stream, and readiness of the stream.

use std::fmt;

use crate::bit_set::bit_set;
use crate::identifiers::StreamId;

/// A set of conditions to wait for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// No condition. Errors and hang-ups wake nevertheless once an interest is registered.
    pub const NONE: Self = Self(0);
    /// Something can be read (`POLLIN`, and high-priority messages).
    pub const READABLE: Self = Self(1);
    /// Something can be written (`POLLOUT`, `POLLWRNORM`).
    pub const WRITABLE: Self = Self(2);
    /// A high-priority message, a signal or the answer to an ioctl is there (`POLLPRI`).
    pub const PRIORITY: Self = Self(4);
    /// A message of band 0 can be read (`POLLRDNORM`).
    pub const READ_NORMAL: Self = Self(8);
    /// A message of another band can be read (`POLLRDBAND`).
    pub const READ_BAND: Self = Self(16);
    /// A band other than 0 that was used has room (`POLLWRBAND`).
    pub const WRITE_BAND: Self = Self(32);
    /// A module that could not leave may be popped now ([`Q::may_leave`](crate::Q::may_leave)). `poll` has no such bit.
    pub const POPPABLE: Self = Self(64);
    /// The other end sends no more, even if messages are left to read (`POLLRDHUP` of Linux).
    pub const READ_HANGUP: Self = Self(128);

    const NAMES: [(Self, &'static str); 8] = [
        (Self::READABLE, "READABLE"),
        (Self::WRITABLE, "WRITABLE"),
        (Self::PRIORITY, "PRIORITY"),
        (Self::READ_NORMAL, "READ_NORMAL"),
        (Self::READ_BAND, "READ_BAND"),
        (Self::WRITE_BAND, "WRITE_BAND"),
        (Self::POPPABLE, "POPPABLE"),
        (Self::READ_HANGUP, "READ_HANGUP"),
    ];

    /// Returns the union; `|` cannot be used in constants.
    #[inline]
    #[must_use]
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

bit_set!(Interest);

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(interest, _)| self.contains(*interest));
        f.debug_set().entries(names.map(|(_, name)| name)).finish()
    }
}

/// Readiness of a stream: all bits of `poll`, whether a module that could not leave may be popped, and whether the other end
/// sends no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read would return something: a message, an error or the end.
    pub readable: bool,
    /// A write in band 0 would be taken, or would fail at once (`POLLOUT`, `POLLWRNORM`).
    pub writable: bool,
    /// The next message has high priority, the answer to an ioctl is there, or a hang-up comes behind messages that modules hold
    /// (`POLLPRI`).
    pub priority: bool,
    /// The next message is one of band 0 (`POLLRDNORM`).
    pub read_normal: bool,
    /// The next message is one of another band (`POLLRDBAND`).
    pub read_band: bool,
    /// A band other than 0 that was used has room (`POLLWRBAND`).
    pub write_band: bool,
    /// A module that could not leave may be popped now.
    pub poppable: bool,
    /// The other end sends no more, even if messages are left to read (`POLLRDHUP` of Linux).
    pub read_hangup: bool,
    /// The other end is gone (`POLLHUP`).
    pub hangup: bool,
    /// The stream has failed (`POLLERR`).
    pub error: bool,
}

impl Readiness {
    /// Returns the conditions that hold.
    pub fn interest(&self) -> Interest {
        let bits = [
            (self.readable, Interest::READABLE),
            (self.writable, Interest::WRITABLE),
            (self.priority, Interest::PRIORITY),
            (self.read_normal, Interest::READ_NORMAL),
            (self.read_band, Interest::READ_BAND),
            (self.write_band, Interest::WRITE_BAND),
            (self.poppable, Interest::POPPABLE),
            (self.read_hangup, Interest::READ_HANGUP),
        ];
        bits.iter().filter(|(is_true, _)| *is_true).fold(Interest::NONE, |all, (_, bit)| all | *bit)
    }
}

/// Identifies one of several waiters for a stream; the owner chooses the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaiterId(pub u64);

/// A waiter that was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The stream.
    pub stream: StreamId,
    /// The waiter, which is no longer registered.
    pub waiter: WaiterId,
    /// The part of its interest that is ready.
    pub ready: Interest,
}
