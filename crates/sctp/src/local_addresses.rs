//! The addresses of the endpoint that an association or a listener uses.

use std::net::IpAddr;
use std::sync::Arc;

use crate::families::Families;
use crate::path_hints::PathHints;

/// The requested local addresses, and the addresses of this host that they denote.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalAddresses {
    /// The requested addresses; empty for all addresses of the endpoint. An unspecified address denotes all of its
    /// family.
    scope: Box<[IpAddr]>,
    /// The known addresses among these, which INIT and INIT ACK list.
    listed: Arc<[IpAddr]>,
}

impl LocalAddresses {
    /// Returns the addresses in `scope` of an endpoint with the known addresses `all`.
    pub(crate) fn new(scope: &[IpAddr], all: &Arc<[IpAddr]>) -> Self {
        if scope.is_empty() {
            return LocalAddresses { scope: Box::default(), listed: Arc::clone(all) };
        }
        let mut listed: Vec<IpAddr> = Vec::new();
        for &wanted in scope {
            let known = all.iter().copied().filter(|address| denotes(wanted, *address));
            let named = Some(wanted).filter(|address| !address.is_unspecified());
            for address in known.chain(named) {
                if !listed.contains(&address) {
                    listed.push(address);
                }
            }
        }
        LocalAddresses { scope: scope.into(), listed: listed.into() }
    }

    /// Returns the requested addresses; none for all addresses of the endpoint.
    pub(crate) fn scope(&self) -> &[IpAddr] {
        &self.scope
    }

    /// Returns the addresses that INIT and INIT ACK list.
    pub(crate) fn listed(&self) -> &[IpAddr] {
        &self.listed
    }

    /// Returns whether the peer may know more local addresses than the one of the handshake.
    pub(crate) fn are_several(&self) -> bool {
        self.listed.len() > 1
    }

    /// Returns whether packets to this address may be for the association or listener. The destination of a packet is
    /// not always known.
    #[inline]
    pub(crate) fn serve(&self, local: Option<IpAddr>) -> bool {
        self.scope.is_empty() || local.is_none_or(|local| self.has(local))
    }

    fn has(&self, address: IpAddr) -> bool {
        self.scope.iter().any(|&wanted| denotes(wanted, address))
    }

    /// Returns whether the two share an address.
    pub(crate) fn overlap(&self, other: &LocalAddresses) -> bool {
        self.scope.is_empty()
            || other.scope.is_empty()
            || self.scope.iter().any(|&address| other.has(address))
            || other.scope.iter().any(|&address| self.has(address))
    }

    /// Returns the address families of the local addresses.
    pub(crate) fn families(&self) -> Families {
        if self.scope.is_empty() { Families::of(&self.listed) } else { Families::of(&self.scope) }
    }

    /// Returns the source address of a path to `remote`. A peer without our list of addresses knows only the one of the
    /// handshake.
    pub(crate) fn source(
        &self,
        remote: IpAddr,
        hints: PathHints,
        handshake: Option<IpAddr>,
    ) -> Option<IpAddr> {
        let chosen = if self.are_several() { hints.local } else { handshake.or(hints.local) };
        if self.scope.is_empty() {
            return chosen;
        }
        let allowed = |address: &IpAddr| self.has(*address);
        if let Some(chosen) = chosen.filter(allowed).or(hints.route_local.filter(allowed)) {
            return Some(chosen);
        }
        let remote = remote.to_canonical();
        let fits = |address: &&IpAddr| address.to_canonical().is_ipv4() == remote.is_ipv4();
        let same_reach = |address: &&IpAddr| address.to_canonical().is_loopback() == remote.is_loopback();
        let fitting = || self.listed.iter().filter(fits);
        fitting().find(same_reach).or_else(|| fitting().next()).copied()
    }
}

/// Returns whether `wanted` denotes an address, alone or as one of its family.
fn denotes(wanted: IpAddr, address: IpAddr) -> bool {
    let (wanted, address) = (wanted.to_canonical(), address.to_canonical());
    wanted == address || (wanted.is_unspecified() && wanted.is_ipv4() == address.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn local(scope: &[&str], all: &[&str]) -> LocalAddresses {
        LocalAddresses::new(&addresses(scope), &addresses(all).into())
    }

    fn hints(local: &str) -> PathHints {
        PathHints { local: Some(local.parse().unwrap()), ..PathHints::default() }
    }

    #[test]
    fn an_unspecified_address_is_all_of_its_family() {
        let all = ["10.0.0.1", "fd00::1", "10.0.0.2"];
        assert_eq!(local(&["0.0.0.0"], &all).listed(), addresses(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(local(&["::"], &all).listed(), addresses(&["fd00::1"]));
        assert_eq!(local(&["10.0.0.2", "0.0.0.0"], &all).listed(), addresses(&["10.0.0.2", "10.0.0.1"]));
        assert_eq!(local(&[], &all).listed(), addresses(&all));
        assert!(local(&["0.0.0.0"], &[]).serve("192.0.2.1".parse().ok()));
        assert!(!local(&["0.0.0.0"], &[]).serve("fd00::1".parse().ok()));
    }

    #[test]
    fn address_sets_overlap_if_they_share_an_address() {
        for (one, other, overlap) in [
            (&["127.0.0.1"][..], &["127.0.0.2"][..], false),
            (&["127.0.0.1", "127.0.0.2"], &["127.0.0.2"], true),
            (&["0.0.0.0"], &["127.0.0.2"], true),
            (&["0.0.0.0"], &["::"], false),
            (&["::1"], &["::"], true),
            (&[], &["::1"], true),
            (&["127.0.0.1"], &["::ffff:127.0.0.1"], true),
        ] {
            let (one, other) = (local(one, &[]), local(other, &[]));
            assert_eq!((one.overlap(&other), other.overlap(&one)), (overlap, overlap), "{one:?} {other:?}");
        }
    }

    #[test]
    fn each_path_leaves_from_where_its_route_does() {
        let both = local(&["0.0.0.0", "10.0.1.1", "10.0.2.1"], &[]);
        let toward = |remote: &str, route: &str| {
            let hints = PathHints { route_local: route.parse().ok(), ..PathHints::default() };
            both.source(remote.parse().unwrap(), hints, "10.0.1.1".parse().ok())
        };
        assert_eq!(toward("10.0.2.9", "10.0.2.1"), "10.0.2.1".parse().ok());
        assert_eq!(toward("10.0.1.9", "10.0.1.1"), "10.0.1.1".parse().ok());
    }

    #[test]
    fn a_packet_leaves_from_an_address_that_was_asked_for() {
        let source = |scope: &[&str], remote: &str, hint: &str, handshake: Option<&str>| {
            let handshake = handshake.map(|address| address.parse().unwrap());
            let chosen = local(scope, &[]).source(remote.parse().unwrap(), hints(hint), handshake);
            chosen.map(|address| address.to_string())
        };
        let chosen = |address: &str| Some(address.to_string());
        assert_eq!(source(&[], "10.0.0.9", "10.0.0.1", None), chosen("10.0.0.1"));
        assert_eq!(source(&["10.0.0.2"], "10.0.0.9", "10.0.0.1", None), chosen("10.0.0.2"));
        assert_eq!(source(&["0.0.0.0"], "10.0.0.9", "10.0.0.1", None), chosen("10.0.0.1"));
        let both = ["127.0.0.2", "10.0.0.2", "fd00::2"];
        assert_eq!(source(&both, "10.0.0.9", "10.0.0.1", None), chosen("10.0.0.2"));
        assert_eq!(source(&both, "127.0.0.1", "127.0.0.1", None), chosen("127.0.0.2"));
        assert_eq!(source(&both, "fd00::9", "fd00::1", None), chosen("fd00::2"));
        assert_eq!(source(&["10.0.0.2"], "fd00::9", "fd00::1", None), None);
        assert_eq!(source(&[], "10.0.0.9", "10.0.0.1", Some("10.0.0.2")), chosen("10.0.0.2"));
    }
}
