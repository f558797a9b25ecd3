//! The numbers that SCTP counts with, each its own type.
//!
//! Serial numbers wrap, so they compare with serial arithmetic (RFC 1982, RFC 9260 §1.6) and never
//! implement `Ord`: a sort or a `max` of them would be wrong at the wrap.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl From<$inner> for $name {
            #[inline]
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

macro_rules! decimal {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! serial {
    ($name:ident($inner:ty)) => {
        impl $name {
            /// Returns the number after this one.
            #[inline]
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.wrapping_add(1))
            }

            /// Returns the number before this one.
            #[inline]
            #[must_use]
            pub const fn previous(self) -> Self {
                Self(self.0.wrapping_sub(1))
            }

            /// Returns the number `n` after this one.
            #[inline]
            #[must_use]
            pub const fn add(self, n: $inner) -> Self {
                Self(self.0.wrapping_add(n))
            }

            /// Returns the number `n` before this one.
            #[inline]
            #[must_use]
            pub const fn sub(self, n: $inner) -> Self {
                Self(self.0.wrapping_sub(n))
            }

            /// Returns how many steps lead from `earlier` to this number.
            #[inline]
            #[must_use]
            pub const fn distance_from(self, earlier: Self) -> $inner {
                self.0.wrapping_sub(earlier.0)
            }

            /// Returns whether this number comes after `other`: less than half the number circle ahead of it. Of two numbers
            /// exactly half the circle apart neither is after the other (RFC 1982 §3.2).
            #[inline]
            #[must_use]
            pub const fn is_after(self, other: Self) -> bool {
                let ahead = self.0.wrapping_sub(other.0);
                ahead != 0 && ahead < 1 << (<$inner>::BITS - 1)
            }

            /// Returns whether this number is `other` or comes after it.
            #[inline]
            #[must_use]
            pub const fn is_at_or_after(self, other: Self) -> bool {
                self.0.wrapping_sub(other.0) < 1 << (<$inner>::BITS - 1)
            }
        }
    };
}

number! {
    /// Transmission Sequence Number: numbers the DATA chunks of one direction of an association.
    Tsn(u32)
}
decimal!(Tsn);
serial!(Tsn(u32));

number! {
    /// Stream Sequence Number: numbers the ordered messages of one stream.
    Ssn(u16)
}
decimal!(Ssn);
serial!(Ssn(u16));

number! {
    /// Stream Identifier.
    StreamId(u16)
}
decimal!(StreamId);

number! {
    /// Payload Protocol Identifier: the upper layer's own label, which SCTP carries unchanged.
    Ppid(u32)
}
decimal!(Ppid);

number! {
    /// Verification Tag: says that a packet belongs to this association and not to an older one.
    VerificationTag(u32)
}

impl fmt::Display for VerificationTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_wrap() {
        assert_eq!(Tsn(u32::MAX).next(), Tsn(0));
        assert_eq!(Tsn(0).previous(), Tsn(u32::MAX));
        assert_eq!(Tsn(u32::MAX).add(3), Tsn(2));
        assert_eq!(Tsn(2).sub(3), Tsn(u32::MAX));
        assert_eq!(Tsn(2).distance_from(Tsn(u32::MAX)), 3);
        assert_eq!(Ssn(u16::MAX).next(), Ssn(0));
        assert_eq!(Ssn(1).distance_from(Ssn(u16::MAX)), 2);
    }

    #[test]
    fn serial_numbers_compare_across_the_wrap() {
        assert!(Tsn(0).is_after(Tsn(u32::MAX)));
        assert!(!Tsn(u32::MAX).is_after(Tsn(0)));
        assert!(!Tsn(5).is_after(Tsn(5)));
        assert!(Tsn(5).is_at_or_after(Tsn(5)));
        assert!(Tsn(0x7fff_ffff).is_after(Tsn(0)));
        assert!(Ssn(3).is_after(Ssn(65533)));
        assert!(!Ssn(65533).is_at_or_after(Ssn(3)));
    }

    #[test]
    fn numbers_half_the_circle_apart_are_in_no_order() {
        assert!(!Tsn(0x8000_0000).is_after(Tsn(0)));
        assert!(!Tsn(0).is_after(Tsn(0x8000_0000)));
        assert!(!Ssn(0x8000).is_at_or_after(Ssn(0)));
    }

    #[test]
    fn they_print_as_people_write_them() {
        assert_eq!(Tsn(7).to_string(), "7");
        assert_eq!(VerificationTag(0xab).to_string(), "0x000000ab");
    }
}
