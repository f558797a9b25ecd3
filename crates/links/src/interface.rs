//! The interfaces of this host.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket;

/// Returns the addresses of this host's interfaces.
///
/// # Errors
///
/// The error of the system call that lists them.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for interface in nix::ifaddrs::getifaddrs()? {
        let Some(address) = interface.address else { continue };
        if let Some(v4) = address.as_sockaddr_in() {
            addresses.push(IpAddr::V4(v4.ip()));
        } else if let Some(v6) = address.as_sockaddr_in6() {
            addresses.push(IpAddr::V6(v6.ip()));
        }
    }
    Ok(addresses)
}

/// Returns the interface that has this local address; for any address of the loopback network that is the loopback interface.
pub(crate) fn interface_of(address: IpAddr) -> Option<Interface> {
    let has = |found: &IpAddr| *found == address || (found.is_loopback() && address.is_loopback());
    nix::ifaddrs::getifaddrs().ok()?.find_map(|interface| {
        let found = interface.address.as_ref()?;
        let v4 = found.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let ip = v4.or_else(|| found.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
        let scope_id = found.as_sockaddr_in6().map_or(0, |v6| v6.scope_id());
        has(&ip).then_some(Interface { name: interface.interface_name, scope_id })
    })
}

/// An interface of this host.
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Scope that identifies the link of link-local IPv6 addresses (RFC 4007 §6); 0 for other addresses.
    pub(crate) scope_id: u32,
}

/// Returns the loopback interface.
pub(crate) fn loopback_interface() -> Option<String> {
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    all.find(|found| found.flags.contains(InterfaceFlags::IFF_LOOPBACK)).map(|found| found.interface_name)
}

/// Binds a socket to an interface (`SO_BINDTODEVICE`).
pub(crate) fn bind_to_interface(fd: BorrowedFd<'_>, interface: &str) -> Result<(), Errno> {
    socket::setsockopt(&fd, socket::sockopt::BindToDevice, &interface.into())
}
