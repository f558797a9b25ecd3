//! Extensions beyond RFC 9260, which apply only if both sides announce them in the handshake.

use sctp_wire::chunk::NrSack;
use sctp_wire::parameter::{EcnCapable, Parameter, PrivateExtension, SupportedExtensions};

use crate::config::{AssociationConfig, Multipath};

/// Extensions that one side offers, or that both sides support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// The sender reacts to marked packets (draft-stewart-tsvwg-sctpecn).
    pub(crate) ecn: bool,
    /// The sender accepts NR-SACKs (draft-natarajan-tsvwg-sctp-nrsack).
    pub(crate) nr_sack: bool,
    /// Data may use all paths at once.
    pub(crate) multipath: bool,
    /// Set the I bit in the middle of a message to mark the end of the part that is available now.
    pub(crate) prompt_parts: bool,
}

impl Extensions {
    /// Returns the extensions that we offer.
    pub(crate) fn offered(config: &AssociationConfig) -> Self {
        Extensions {
            ecn: config.ecn,
            nr_sack: config.nr_sack,
            multipath: config.multipath != Multipath::Off,
            prompt_parts: config.prompt_parts,
        }
    }

    /// Returns the extensions that both sides offer.
    pub(crate) fn and(self, other: Self) -> Self {
        Extensions {
            ecn: self.ecn && other.ecn,
            nr_sack: self.nr_sack && other.nr_sack,
            multipath: self.multipath && other.multipath,
            prompt_parts: self.prompt_parts && other.prompt_parts,
        }
    }

    /// Adds the extensions that a parameter of an INIT or INIT ACK offers.
    pub(crate) fn take(&mut self, parameter: &Parameter<'_>) {
        match parameter {
            Parameter::EcnCapable(_) => self.ecn = true,
            Parameter::SupportedExtensions(p) => self.nr_sack = p.chunk_kinds.contains(&NrSack::KIND),
            Parameter::PrivateExtension(PrivateExtension::MULTIPATH) => self.multipath = true,
            Parameter::PrivateExtension(PrivateExtension::PROMPT_PARTS) => self.prompt_parts = true,
            _ => {}
        }
    }

    /// Appends the parameters that offer these extensions.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        if self.ecn {
            EcnCapable.write(out);
        }
        if self.nr_sack {
            SupportedExtensions { chunk_kinds: &[NrSack::KIND] }.write(out);
        }
        if self.multipath {
            PrivateExtension::MULTIPATH.write(out);
        }
        if self.prompt_parts {
            PrivateExtension::PROMPT_PARTS.write(out);
        }
    }

    /// Encodes the extensions for a cookie.
    pub(crate) fn to_bits(self) -> u16 {
        let flags = [self.ecn, self.nr_sack, self.multipath, self.prompt_parts];
        flags.iter().rev().fold(0, |bits, flag| bits << 1 | u16::from(*flag))
    }

    /// Decodes the extensions of a cookie.
    pub(crate) fn from_bits(bits: u16) -> Self {
        let flag = |number: u16| bits & (1 << number) != 0;
        Extensions { ecn: flag(0), nr_sack: flag(1), multipath: flag(2), prompt_parts: flag(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sctp_wire::parameter::Parameters;

    const ALL: Extensions = Extensions { ecn: true, nr_sack: true, multipath: true, prompt_parts: true };

    #[test]
    fn offered_extensions_are_accepted() {
        for bits in 0..16 {
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
        taken.take(&PrivateExtension { mark: b"else" }.into());
        assert_eq!(taken, Extensions::default());
    }
}
