//! Extensions beyond RFC 9260, which hold only if both sides announce them in the handshake.

use sctp_wire::chunk::NrSack;
use sctp_wire::parameter::{EcnCapable, MultipathCapable, Parameter, SupportedExtensions};

use crate::config::{AssociationConfig, Multipath};

/// Extensions that one side offers, or that both have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// To react to marked packets (draft-stewart-tsvwg-sctpecn).
    pub(crate) ecn: bool,
    /// To take NR-SACKs (draft-natarajan-tsvwg-sctp-nrsack).
    pub(crate) nr_sack: bool,
    /// To have data on all paths at once.
    pub(crate) multipath: bool,
}

impl Extensions {
    /// Returns the extensions that we offer.
    pub(crate) fn offered(config: &AssociationConfig) -> Self {
        Extensions { ecn: config.ecn, nr_sack: config.nr_sack, multipath: config.multipath != Multipath::Off }
    }

    /// Returns the extensions that both have.
    pub(crate) fn and(self, other: Self) -> Self {
        Extensions {
            ecn: self.ecn && other.ecn,
            nr_sack: self.nr_sack && other.nr_sack,
            multipath: self.multipath && other.multipath,
        }
    }

    /// Takes what a parameter of an INIT or INIT ACK offers.
    pub(crate) fn take(&mut self, parameter: &Parameter<'_>) {
        match parameter {
            Parameter::EcnCapable(_) => self.ecn = true,
            Parameter::SupportedExtensions(p) => self.nr_sack = p.chunk_kinds.contains(&NrSack::KIND),
            Parameter::MultipathCapable(p) => self.multipath = *p == MultipathCapable::OURS,
            _ => {}
        }
    }

    /// Appends the parameters that offer this.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        if self.ecn {
            EcnCapable.write(out);
        }
        if self.nr_sack {
            SupportedExtensions { chunk_kinds: &[NrSack::KIND] }.write(out);
        }
        if self.multipath {
            MultipathCapable::OURS.write(out);
        }
    }

    /// Encodes the extensions for a cookie.
    pub(crate) fn to_bits(self) -> u16 {
        u16::from(self.ecn) | u16::from(self.nr_sack) << 1 | u16::from(self.multipath) << 2
    }

    /// Decodes the extensions of a cookie.
    pub(crate) fn from_bits(bits: u16) -> Self {
        Extensions { ecn: bits & 1 != 0, nr_sack: bits & 2 != 0, multipath: bits & 4 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sctp_wire::parameter::Parameters;

    const ALL: Extensions = Extensions { ecn: true, nr_sack: true, multipath: true };

    #[test]
    fn what_is_offered_is_taken() {
        for bits in 0..8 {
            let offered = Extensions::from_bits(bits);
            assert_eq!(offered.to_bits(), bits);
            let (mut bytes, mut taken) = (Vec::new(), Extensions::default());
            offered.write(&mut bytes);
            Parameters::new(&bytes).for_each(|parameter| taken.take(&parameter.unwrap()));
            assert_eq!(taken, offered);
            assert_eq!((ALL.and(offered), offered.and(ALL)), (offered, offered));
        }
    }

    #[test]
    fn a_private_parameter_of_somebody_else_offers_nothing() {
        let mut taken = Extensions::default();
        taken.take(&MultipathCapable { mark: b"else" }.into());
        assert_eq!(taken, Extensions::default());
    }
}
