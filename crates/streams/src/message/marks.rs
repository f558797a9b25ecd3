//! Marks of a message.

use crate::bit_set::bit_set;

/// Marks of a message (`b_flag`): a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u16);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// `MSGMARK`: marks the message for the reader, as the place of urgent data.
    pub const MARK: Self = Self(1);
    /// `MSGMARKNEXT`: the next message will be marked.
    pub const MARK_NEXT: Self = Self(2);
    /// `MSGNOTMARKNEXT`: the next message will not be marked.
    pub const NOT_MARK_NEXT: Self = Self(4);
    /// `MSGDELIM`: the message ends a record.
    pub const DELIMITER: Self = Self(8);
    /// `MSGNOLOOP`: the stream head does not send a flush back down.
    pub const NO_LOOP: Self = Self(16);
    /// The receive window of the message has been returned: reading it returns none. For modules that change the length of
    /// messages on their way up, or make messages.
    pub const CREDITED: Self = Self(32);
    /// The sender has not asked the driver for room ([`Driver::admit`](crate::Driver::admit)): a driver without room queues the
    /// message.
    pub const UNADMITTED: Self = Self(128);
    /// A module has made the message as a duplicate of another one: no module duplicates it again. Otherwise a few modules on one
    /// stream would make thousands of messages of each.
    pub const DUPLICATE: Self = Self(256);
    /// The data is in memory of its own, which is charged as long as the data exists ([`Charge`](crate::Charge)): queues do not
    /// copy it to shared memory.
    pub const CHARGED: Self = Self(512);
    /// The message was part of a run: its charge beyond the data returns with the run.
    pub(crate) const OF_RUN: Self = Self(64);
}

bit_set!(Marks);
