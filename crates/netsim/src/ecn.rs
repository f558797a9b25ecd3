//! The ECN field of an IP header.

use std::fmt;

/// The ECN field of an IP header (RFC 3168 §5).
///
/// # Examples
///
/// ```
/// use netsim::Ecn;
///
/// assert_eq!(Ecn::from_bits(0b10), Ecn::Ect0);
/// assert_eq!(Ecn::from_bits(0xb8 | 0b11), Ecn::CongestionExperienced); // the rest of the octet is the DSCP
/// assert!(!Ecn::NotCapable.is_capable());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not-ECT: a congested queue can only drop it.
    #[default]
    NotCapable = 0b00,
    /// ECT(1): low latency traffic (RFC 9331).
    Ect1 = 0b01,
    /// ECT(0).
    Ect0 = 0b10,
    /// CE: a queue on the way was congested.
    CongestionExperienced = 0b11,
}

impl Ecn {
    /// Returns the codepoint in the low two bits of a traffic class octet.
    ///
    /// ```
    /// # use netsim::Ecn;
    /// assert_eq!(Ecn::from_bits(1), Ecn::Ect1);
    /// ```
    pub fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Ecn::NotCapable,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::CongestionExperienced,
        }
    }

    /// Returns the codepoint as the low two bits of a traffic class octet.
    ///
    /// ```
    /// # use netsim::Ecn;
    /// assert_eq!(Ecn::CongestionExperienced.bits(), 3);
    /// ```
    pub fn bits(self) -> u8 {
        self as u8
    }

    /// Returns whether a queue may mark the packet.
    ///
    /// ```
    /// # use netsim::Ecn;
    /// assert!(Ecn::Ect0.is_capable());
    /// ```
    pub fn is_capable(self) -> bool {
        self != Ecn::NotCapable
    }
}

impl fmt::Display for Ecn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ecn::NotCapable => "Not-ECT",
            Ecn::Ect1 => "ECT(1)",
            Ecn::Ect0 => "ECT(0)",
            Ecn::CongestionExperienced => "CE",
        })
    }
}
