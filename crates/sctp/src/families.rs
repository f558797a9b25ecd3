//! The address families that a host can use (RFC 9260 §3.3.2.1.5).

use std::net::IpAddr;

use sctp_wire::parameter::{self, KindList, SupportedAddressTypes};

/// IPv4, IPv6, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    pub(crate) const BOTH: Families = Families { v4: true, v6: true };
    const NONE: Families = Families { v4: false, v6: false };

    /// Returns the families of `addresses`; both if the host lists none, since it may then use any.
    pub(crate) fn of(addresses: &[IpAddr]) -> Self {
        if addresses.is_empty() { Families::BOTH } else { Families::NONE.with(addresses) }
    }

    /// Returns these families and those of `addresses`.
    pub(crate) fn with(mut self, addresses: &[IpAddr]) -> Self {
        for address in addresses {
            match address.to_canonical() {
                IpAddr::V4(_) => self.v4 = true,
                IpAddr::V6(_) => self.v6 = true,
            }
        }
        self
    }

    /// Returns whether `address` belongs to one of these families.
    pub(crate) fn has(self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        }
    }

    /// Reads a Supported Address Types parameter.
    pub(crate) fn from_parameter(types: &SupportedAddressTypes<'_>) -> Self {
        let mut families = Families::NONE;
        for kind in types.kinds.iter() {
            families.v4 |= kind == parameter::Ipv4::KIND;
            families.v6 |= kind == parameter::Ipv6::KIND;
        }
        families
    }

    /// Writes a Supported Address Types parameter, unless both families are supported.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let kind = match (self.v4, self.v6) {
            (true, false) => parameter::Ipv4::KIND,
            (false, true) => parameter::Ipv6::KIND,
            _ => return,
        };
        let kinds = [kind.to_be_bytes()];
        SupportedAddressTypes { kinds: KindList::new(&kinds) }.write(out);
    }
}
