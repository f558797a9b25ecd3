//! The current addresses of this host, according to the kernel's table of local routes.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::time::{ClockId, clock_gettime};

use crate::address_changes::{has_news, subscribe};

/// Time after which the kernel is asked for changes.
const BELIEVED_FOR: Duration = Duration::from_millis(10);
/// Lifetime of the list if the kernel does not report changes, so that all addresses must be listed again.
const LISTED_FOR: Duration = Duration::from_secs(1);

/// The addresses at which packets of this host arrive on itself.
pub(crate) struct OwnAddresses {
    /// Notifications of the kernel about changes. `None`: there are none.
    changes: Option<OwnedFd>,
    /// When the kernel was asked last, by [`coarse_time`].
    looked: Duration,
    local: Local,
}

#[derive(Default)]
struct Local {
    /// Sorted.
    addresses: Vec<IpAddr>,
    /// Networks of the loopback interface, all of whose addresses belong to this host: address and mask.
    networks: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Networks of the other interfaces, whose hosts are neighbours, in IPv6 form: address and mask.
    neighbours: Vec<(u128, u128)>,
}

/// Returns the time of a clock that is a tick of the kernel late at most, and costs a fraction of an exact one.
fn coarse_time() -> Duration {
    // Linux has had this clock since 2.6.32.
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from)
}

/// Returns an address as a number, that of IPv4 in the mapped form.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

impl OwnAddresses {
    pub(crate) fn new() -> Self {
        // The subscription precedes the listing, so no change is missed.
        OwnAddresses { changes: subscribe().ok(), looked: coarse_time(), local: list() }
    }

    /// Checks for changes, unless that was done a moment ago. Returns whether there may be some.
    pub(crate) fn refresh(&mut self) -> bool {
        let now = coarse_time();
        let believed = if self.changes.is_some() { BELIEVED_FOR } else { LISTED_FOR };
        if now.saturating_sub(self.looked) < believed {
            return false;
        }
        self.looked = now;
        let changed = self.changes.as_ref().is_none_or(has_news);
        if changed {
            self.local = list();
        }
        changed
    }

    /// Returns whether the kernel sends packets to this address without a router, as far as the networks of the interfaces tell.
    pub(crate) fn is_neighbour(&self, address: IpAddr) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let number = number(address);
        is_link_local || self.local.neighbours.iter().any(|(network, mask)| number & mask == *network)
    }

    /// Returns whether packets to this address arrive on this host. False if that depends on an interface, as with link-local
    /// addresses.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.local.has(address)
    }
}

impl Local {
    fn has(&self, address: IpAddr) -> bool {
        let in_network = |(network, mask): &(Ipv4Addr, Ipv4Addr)| match address {
            IpAddr::V4(v4) => v4 & *mask == *network,
            IpAddr::V6(_) => false,
        };
        self.networks.iter().any(in_network) || self.addresses.binary_search(&address).is_ok()
    }

    /// Adds an address. An address of an interface that is down has no route.
    fn add(&mut self, interface: &InterfaceAddress) {
        let Some(address) = interface.address.filter(|_| interface.flags.contains(InterfaceFlags::IFF_UP))
        else {
            return;
        };
        if let Some(v4) = address.as_sockaddr_in().map(|v4| v4.ip()) {
            self.addresses.push(v4.into());
            let mask =
                interface.netmask.as_ref().and_then(|mask| mask.as_sockaddr_in()).map(|mask| mask.ip());
            match mask {
                Some(mask) if interface.flags.contains(InterfaceFlags::IFF_LOOPBACK) => {
                    self.networks.push((v4 & mask, mask));
                }
                Some(mask) => self.add_neighbours(v4.into(), u128::from(u32::from(mask)) | !0 << 32),
                None => {}
            }
        } else if let Some(v6) = address.as_sockaddr_in6().map(|v6| v6.ip())
            && !v6.is_unicast_link_local()
        {
            self.addresses.push(v6.into());
            let mask = interface.netmask.as_ref().and_then(|mask| mask.as_sockaddr_in6());
            if let Some(mask) = mask.filter(|_| !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)) {
                self.add_neighbours(v6.into(), mask.ip().into());
            }
        }
    }

    fn add_neighbours(&mut self, own: IpAddr, mask: u128) {
        self.neighbours.push((number(own) & mask, mask));
    }
}

fn list() -> Local {
    let mut local = Local::default();
    let Ok(interfaces) = getifaddrs() else { return local };
    let mut loopback_is_up = false;
    for interface in interfaces {
        loopback_is_up |= interface.flags.contains(InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_UP);
        local.add(&interface);
    }
    local.addresses.sort_unstable();
    // Packets of a host to itself pass the loopback interface, whatever their destination.
    if loopback_is_up { local } else { Local::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(own: &OwnAddresses, address: &str) -> bool {
        own.has(address.parse().expect("an address"))
    }

    #[test]
    fn the_network_of_the_loopback_interface_is_this_host() {
        let own = OwnAddresses::new();
        assert!(has(&own, "127.0.0.1") && has(&own, "127.0.0.2") && has(&own, "127.255.255.254"));
        assert!(!has(&own, "128.0.0.1") && !has(&own, "192.0.2.1") && !has(&own, "2001:db8::1"));
        assert!(!has(&own, "0.0.0.0") && !has(&own, "::") && !has(&own, "255.255.255.255"));
    }

    #[test]
    fn addresses_that_depend_on_the_interface_are_left_to_the_kernel() {
        let own = OwnAddresses::new();
        for address in crate::interface_addresses().expect("a list") {
            let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
            if link_local {
                assert!(!own.has(address), "{address}");
            }
        }
    }

    /// Runs `ip` in the network namespace of this thread.
    fn ip(arguments: &str) {
        let done = std::process::Command::new("ip").args(arguments.split(' ')).status();
        assert!(done.is_ok_and(|status| status.success()), "ip {arguments}");
    }

    fn refresh(own: &mut OwnAddresses) -> bool {
        own.looked = coarse_time().saturating_sub(BELIEVED_FOR);
        own.refresh()
    }

    #[test]
    #[ignore = "needs root and network namespaces: ./test --all"]
    fn addresses_come_and_go() {
        let checks = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("root may");
            let mut own = OwnAddresses::new();
            assert!(!has(&own, "127.0.0.1"), "the interface is down");
            ip("link set lo up");
            assert!(refresh(&mut own) && has(&own, "127.0.0.1") && !has(&own, "192.0.2.7"));
            ip("addr add 192.0.2.7/24 dev lo");
            assert!(refresh(&mut own) && has(&own, "192.0.2.7") && has(&own, "192.0.2.8"));
            assert!(!refresh(&mut own), "nothing has changed");
            ip("link add veth0 type veth peer name veth1");
            ip("addr add 198.51.100.7/24 dev veth0");
            assert!(refresh(&mut own) && !has(&own, "198.51.100.7"), "its interface is down");
            ip("link set veth0 up");
            assert!(refresh(&mut own) && has(&own, "198.51.100.7") && !has(&own, "198.51.100.8"));
            ip("addr del 192.0.2.7/24 dev lo");
            assert!(refresh(&mut own) && !has(&own, "192.0.2.7") && has(&own, "127.0.0.9"));
            ip("link set lo down");
            assert!(refresh(&mut own) && !has(&own, "198.51.100.7"));
        };
        std::thread::spawn(checks).join().expect("all hold");
    }
}
