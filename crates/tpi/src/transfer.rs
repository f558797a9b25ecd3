//! What travels with each message of user data.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Properties of one message of user data: a set of bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TransferFlags(u8);

impl TransferFlags {
    /// No property: an ordered, complete record.
    pub const NONE: Self = Self(0);
    /// The message may overtake others of its stream (RFC 9260 §6.6).
    pub const UNORDERED: Self = Self(1);
    /// The record goes on in the next message (`T_MORE`).
    pub const MORE: Self = Self(2);
    /// The receiver is asked to acknowledge at once (RFC 7053).
    pub const IMMEDIATE: Self = Self(4);
    /// The data is an event of the association, not user data (RFC 6458 §6).
    pub const NOTIFICATION: Self = Self(8);
    const ALL: u8 = 15;

    /// The set as bits, for encodings.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set with these bits; `None` if one of them means nothing.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL == 0 { Some(Self(bits)) } else { None }
    }

    /// Whether every property of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// This set without the properties of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for TransferFlags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for TransferFlags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for TransferFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::UNORDERED, "UNORDERED"),
            (Self::MORE, "MORE"),
            (Self::IMMEDIATE, "IMMEDIATE"),
            (Self::NOTIFICATION, "NOTIFICATION"),
        ];
        f.debug_set()
            .entries(names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name))
            .finish()
    }
}

/// What travels with each message of user data, down (`T_OPTDATA_REQ`) and up (`T_OPTDATA_IND`).
///
/// The fields are those of `sctp_sndinfo` and `sctp_rcvinfo` (RFC 6458 §5.3). Downward `tsn` says nothing, upward `context` says
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransferInfo {
    /// The association within its endpoint; 0 where an endpoint has only one.
    pub association: u32,
    /// The stream within the association.
    pub stream: u16,
    /// Upward the stream sequence number; downward [`TransferInfo::path`].
    pub ssn: u16,
    /// The payload protocol identifier, in host order, passed on unread.
    pub ppid: u32,
    /// The transmission sequence number of the first piece (upward).
    pub tsn: u32,
    /// A value of the sender's that comes back when the message could not be sent.
    pub context: u32,
    /// What depends on the direction: [`TransferInfo::lifetime_ms`] downward, [`TransferInfo::cumulative_tsn`] upward. One
    /// word, since what travels with each message is kept small.
    pub by_direction: u32,
    /// Properties of the message.
    pub flags: TransferFlags,
}

impl TransferInfo {
    /// Downward: how long the message may wait to be sent, in milliseconds; 0 is as long as it takes
    /// (`sinfo_timetolive`).
    #[inline]
    pub const fn lifetime_ms(&self) -> u32 {
        self.by_direction
    }

    /// Downward: the path that the message is to take (`SCTP_ADDR_OVER`), by its number; `None` is where data goes.
    #[inline]
    pub const fn path(&self) -> Option<u8> {
        match self.ssn {
            1..=256 => Some((self.ssn - 1) as u8),
            _ => None,
        }
    }

    /// The same with this path.
    #[inline]
    #[must_use]
    pub const fn with_path(self, path: Option<u8>) -> Self {
        let ssn = match path {
            Some(number) => number as u16 + 1,
            None => 0,
        };
        Self { ssn, ..self }
    }

    /// Upward: the TSN up to which everything had arrived when the message was handed on (`rcv_cumtsn`).
    #[inline]
    pub const fn cumulative_tsn(&self) -> u32 {
        self.by_direction
    }

    /// Whether the record goes on in the next message.
    #[inline]
    pub const fn more(&self) -> bool {
        self.flags.contains(TransferFlags::MORE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_any_path_or_none() {
        for path in [None, Some(0), Some(15), Some(u8::MAX)] {
            assert_eq!(TransferInfo::default().with_path(path).path(), path);
        }
        assert_eq!(
            TransferInfo { ssn: u16::MAX, ..TransferInfo::default() }.path(),
            None,
            "no path has this number"
        );
    }
}
