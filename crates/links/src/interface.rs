//! The interfaces of this host.
//!
//! To list them the kernel takes a lock that is one for the whole host (RTNL), and which any user holds as long as it
//! likes by making and deleting interfaces in a network namespace of its own. So each thread keeps the list until the
//! kernel reports a change in its own namespace.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket;

use crate::BindError;
use crate::address_changes::{has_news, subscribe};

/// A list of the interfaces and their addresses.
struct Known {
    /// Notifications of the kernel about changes since the list was made.
    changes: OwnedFd,
    /// The network namespace of both.
    namespace: Namespace,
    interfaces: Rc<[InterfaceAddress]>,
}

/// Device and inode of a network namespace.
type Namespace = (u64, u64);

thread_local! {
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// Returns the interfaces of this host, with an element for each address.
///
/// # Errors
///
/// The error of the system call that lists them.
pub(crate) fn interfaces() -> io::Result<Rc<[InterfaceAddress]>> {
    let Some(namespace) = own_namespace() else { return Ok(getifaddrs()?.collect()) };
    KNOWN.with_borrow_mut(|known| {
        let same = known.take().filter(|known| known.namespace == namespace);
        let changes = match same {
            Some(same) if !has_news(&same.changes) => {
                return Ok(Rc::clone(&known.insert(same).interfaces));
            }
            Some(same) => same.changes,
            None => match subscribe() {
                Ok(changes) => changes,
                Err(_) => return Ok(getifaddrs()?.collect()),
            },
        };
        // The subscription precedes the list, so no change is missed.
        let interfaces = getifaddrs()?.collect();
        Ok(Rc::clone(&known.insert(Known { changes, namespace, interfaces }).interfaces))
    })
}

/// Returns the network namespace of this thread.
fn own_namespace() -> Option<Namespace> {
    let found = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
    Some((found.dev(), found.ino()))
}

/// A check of the addresses of a host, which is the network namespace of the thread that has made the check.
#[derive(Clone, Copy, Debug)]
pub struct AddressCheck {
    namespace: Option<Namespace>,
}

impl AddressCheck {
    /// Returns a check for the namespace of this thread.
    #[expect(clippy::new_without_default, reason = "the value depends on the thread")]
    pub fn new() -> AddressCheck {
        AddressCheck { namespace: own_namespace() }
    }

    /// Checks that the host has an address. A thread in another namespace cannot know, and gets no error.
    ///
    /// # Errors
    ///
    /// [`BindError::AddressNotAvailable`].
    pub fn check(&self, ip: IpAddr) -> Result<(), BindError> {
        let address = SocketAddr::new(ip.to_canonical(), 0);
        let refused = UdpSocket::bind(address).err().map(|error| error.kind());
        let is_known = self.namespace.is_some() && own_namespace() == self.namespace;
        if is_known && refused == Some(io::ErrorKind::AddrNotAvailable) {
            return Err(BindError::AddressNotAvailable { address });
        }
        Ok(())
    }
}

/// Returns the addresses of this host's interfaces.
///
/// # Errors
///
/// The error of the system call that lists them.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for interface in interfaces()?.iter() {
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
    interfaces().ok()?.iter().find_map(|interface| {
        let found = interface.address.as_ref()?;
        let v4 = found.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let ip = v4.or_else(|| found.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
        let scope_id = found.as_sockaddr_in6().map_or(0, |v6| v6.scope_id());
        has(&ip).then(|| Interface { name: interface.interface_name.clone(), scope_id })
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
    let all = interfaces().ok()?;
    let mut loopback = all.iter().filter(|found| found.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    loopback.next().map(|found| found.interface_name.clone())
}

/// Binds a socket to an interface (`SO_BINDTODEVICE`).
pub(crate) fn bind_to_interface(fd: BorrowedFd<'_>, interface: &str) -> Result<(), Errno> {
    socket::setsockopt(&fd, socket::sockopt::BindToDevice, &interface.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_kept_until_the_kernel_reports_a_change() {
        let first = interfaces().expect("a list");
        assert!(Rc::ptr_eq(&first, &interfaces().expect("a list")), "it is the same list");
        KNOWN.with_borrow_mut(|known| {
            let known = known.as_mut().expect("it was kept");
            // A list of another namespace.
            known.namespace.1 += 1;
        });
        let second = interfaces().expect("a list");
        assert!(!Rc::ptr_eq(&first, &second), "it was made anew");
        assert_eq!(first.len(), second.len());
    }
}
