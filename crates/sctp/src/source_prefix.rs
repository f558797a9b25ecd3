//! The source network of an address, for limits.

use std::net::IpAddr;

/// The first 24 bits of an IPv4 address or the first 56 of an IPv6 address: usually the network of one site, so that a
/// sender who chooses among the addresses of its site has one share and not thousands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SourcePrefix(u64);

/// Set in the prefixes of IPv4 addresses; those of IPv6 addresses have 56 bits.
const V4_MARK: u64 = 1 << 63;
const V4_HOST_BITS: u32 = 8;
const V6_HOST_BITS: u32 = 72;

impl SourcePrefix {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => SourcePrefix(V4_MARK | u64::from(v4.to_bits() >> V4_HOST_BITS)),
            IpAddr::V6(v6) => SourcePrefix((v6.to_bits() >> V6_HOST_BITS) as u64),
        }
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(address: &str) -> SourcePrefix {
        SourcePrefix::of(address.parse().unwrap())
    }

    #[test]
    fn addresses_of_one_site_share_a_prefix() {
        assert_eq!(prefix("192.0.2.1"), prefix("192.0.2.255"));
        assert_eq!(prefix("192.0.2.1"), prefix("::ffff:192.0.2.9"));
        assert_ne!(prefix("192.0.2.1"), prefix("192.0.3.1"));
        assert_eq!(prefix("2001:db8:0:1200::1"), prefix("2001:db8:0:12ff:ffff::"));
        assert_ne!(prefix("2001:db8:0:1200::1"), prefix("2001:db8:0:1300::1"));
        assert_ne!(prefix("0:0:0:c000::"), prefix("0.0.192.0"));
    }
}
