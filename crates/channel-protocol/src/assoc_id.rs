//! Numbers of associations.

use std::fmt;

/// The number by which programs know an association (`sctp_assoc_t`), unique in the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct AssocId(u32);

impl AssocId {
    /// No association, or the only one of a socket.
    pub const NONE: AssocId = AssocId(0);
    /// The first number of an association. As in the kernel, lower numbers denote future associations, the current one, and
    /// all (`SCTP_FUTURE_ASSOC` and others).
    pub const FIRST: AssocId = AssocId(3);
    /// The greatest number of an association: `sctp_assoc_t` has a sign.
    pub const LAST: AssocId = AssocId(i32::MAX as u32);

    /// Returns the association with this number.
    pub const fn new(number: u32) -> AssocId {
        AssocId(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the association that a program names.
    pub const fn from_assoc_t(number: i32) -> AssocId {
        AssocId(number.cast_unsigned())
    }

    /// Returns the number as programs get it.
    pub const fn to_assoc_t(self) -> i32 {
        self.0.cast_signed()
    }

    /// Returns the next number; after the greatest, the first.
    pub const fn next(self) -> AssocId {
        if self.0 >= Self::LAST.0 { Self::FIRST } else { AssocId(self.0 + 1) }
    }
}

impl fmt::Display for AssocId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_go_round_without_the_special_ones() {
        assert_eq!(AssocId::FIRST.next(), AssocId::new(4));
        assert_eq!(AssocId::new(i32::MAX as u32 - 1).next(), AssocId::LAST);
        assert_eq!(AssocId::LAST.next(), AssocId::FIRST);
    }
}
