//! Separate sockets for packets of strangers, so that a flood of one class fills a buffer that no other class shares:
//!
//! | class | packets |
//! |---|---|
//! | `Inits` | packets with verification tag 0 (bytes 4 to 7), which any host can send |
//! | `Cookies` | packets that begin with COOKIE ECHO: the other half of a handshake without state |
//! | `Strays` | packets that [`Link::set_expected`](crate::Link::set_expected) does not expect |
//!
//! Classic BPF programs steer packets ([`steering`]), and keep a sample of a flood while it lasts ([`thinning`]). One descriptor
//! reports packets in any of these sockets ([`readiness`]), and each socket has a bounded share of the time ([`share`]).
//! Receiving is the same over UDP and raw IP ([`receive`]).
//!
//! Every raw socket gets a copy of each packet, and has a filter that accepts its class. Over UDP the sockets form a group with
//! the socket of an address (`SO_REUSEPORT`), in which one program selects the socket; the rest of this file creates that group.
//!
//! A group must not open the port to other programs of the user, which could join it. So two more sockets guard it: each is bound
//! to the address, but to an interface that never exists, so that it receives nothing; and finally it lacks the option, so that a
//! later bind of the port conflicts with it and is refused. The kernel checks the socket that it finds first, which is the one
//! bound first or last, depending on family and kernel: hence one guard before the group and one after it. The first guard binds
//! without the option, so that a port in use is refused as usual.
//!
//! The order of the kernel's lists is not guaranteed, so both rules are tested once for each kind of socket. If one does not
//! hold, there are no such sockets, and all packets go to the first. While a group is being created, for some microseconds,
//! another program of the same user could join it; it could as well read this process' memory.

pub(crate) mod readiness;
pub(crate) mod receive;
pub(crate) mod share;
pub(crate) mod steering;
pub(crate) mod thinning;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use crate::interface::bind_to_interface;
use crate::link::Expected;
use crate::socket_address::local_address;
use crate::syscalls::{attach_group_program, set_option};
use share::Share;
use steering::AttachPoint;

/// The index of an interface that never exists: the kernel counts up from 1.
const NO_INTERFACE: i32 = i32::MAX;
/// Maximum time that the test waits for a datagram on loopback, which is available when the send returns.
const TRIAL_PATIENCE: Duration = Duration::from_millis(100);

/// Class of packets of a socket in a group. The number is the index in the group: sockets join it in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// All other packets.
    Peers = 0,
    Inits = 1,
    Cookies = 2,
    Strays = 3,
}

impl Class {
    /// The classes of strangers.
    pub(crate) const STRANGERS: [Self; 3] = [Class::Inits, Class::Cookies, Class::Strays];

    /// Returns the receive buffer to request. A small packet takes some 830 bytes of twice as many. The buffer bounds the delay
    /// that a flood causes a packet, and the loss while the thread is busy.
    pub(crate) fn receive_buffer_bytes(self) -> usize {
        match self {
            Class::Peers | Class::Inits | Class::Cookies => 1 << 20,
            Class::Strays => 64 << 10,
        }
    }

    /// Returns the socket's share of the time while peers are busy. Handshakes must succeed during a flood; a stray gets at most
    /// an occasional ABORT.
    pub(crate) fn share(self) -> Share {
        match self {
            Class::Peers => Share::one_in(1),
            Class::Inits | Class::Cookies => Share::one_in(8),
            Class::Strays => Share::one_in(64),
        }
    }
}

/// Kinds of sockets with separate lookups in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    V4,
    V6,
    DualStack,
}

impl Kind {
    pub(crate) fn of(ipv6: bool, dual_stack: bool) -> Self {
        match (ipv6, dual_stack) {
            (false, _) => Kind::V4,
            (true, false) => Kind::V6,
            (true, true) => Kind::DualStack,
        }
    }

    fn is_ipv6(self) -> bool {
        self != Kind::V4
    }
}

/// A reserved port at an address, before the sockets that receive there are bound.
pub(crate) struct Reserved {
    guard: OwnedFd,
    kind: Kind,
    /// The requested address, with the port that the kernel gave.
    pub(crate) bound: SocketAddr,
}

/// The sockets for strangers that belong to the socket of an address.
#[derive(Debug)]
pub(crate) struct SeparateSockets {
    /// The sockets for strangers.
    pub(crate) strangers: Vec<(Class, OwnedFd)>,
    /// These keep the port reserved while they are open. Raw sockets have no ports.
    pub(crate) guards: Vec<OwnedFd>,
}

/// Reserves a port at an address. `None`: this system does not steer.
///
/// # Errors
///
/// The error of the system call; another program may have the port.
pub(crate) fn reserve(address: SocketAddr, kind: Kind) -> Result<Option<Reserved>, Errno> {
    if steers(kind) { reserve_untried(address, kind).map(Some) } else { Ok(None) }
}

fn reserve_untried(address: SocketAddr, kind: Kind) -> Result<Reserved, Errno> {
    let guard = open(kind)?;
    socket::bind(guard.as_raw_fd(), &SockaddrStorage::from(address))?;
    let bound = local_address(guard.as_fd())?;
    set_option(guard.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, NO_INTERFACE)?;
    set_option(guard.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    Ok(Reserved { guard, kind, bound })
}

impl Reserved {
    /// Completes the group of `first`, which is bound here with `SO_REUSEPORT`, possibly to an interface.
    pub(crate) fn complete(
        self,
        first: BorrowedFd<'_>,
        interface: Option<&str>,
    ) -> Result<SeparateSockets, Errno> {
        let mut strangers = Vec::with_capacity(Class::STRANGERS.len());
        for class in Class::STRANGERS {
            let fd = open(self.kind)?;
            if let Some(interface) = interface {
                bind_to_interface(fd.as_fd(), interface)?;
            }
            self.join(&fd)?;
            strangers.push((class, fd));
        }
        let last_guard = open(self.kind)?;
        self.join(&last_guard)?;
        attach_group_program(first, &steering::by_kind(AttachPoint::Group))?;
        set_option(last_guard.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, NO_INTERFACE)?;
        let guards = vec![self.guard, last_guard];
        for guard in &guards {
            set_option(guard.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
        }
        Ok(SeparateSockets { strangers, guards })
    }

    fn join(&self, fd: &OwnedFd) -> Result<(), Errno> {
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        socket::bind(fd.as_raw_fd(), &SockaddrStorage::from(self.bound))
    }
}

fn open(kind: Kind) -> Result<OwnedFd, Errno> {
    let family = if kind.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(family, SockType::Datagram, flags, None)?;
    if kind.is_ipv6() {
        set_option(fd.as_fd(), libc::SOL_IPV6, libc::IPV6_V6ONLY, i32::from(kind == Kind::V6))?;
    }
    Ok(fd)
}

/// Steers packets to the group of `first` by what is expected, or by type if every packet is. Returns whether the kernel has
/// accepted the program.
pub(crate) fn steer(first: BorrowedFd<'_>, expected: Expected<'_>) -> bool {
    let program = steering::of(AttachPoint::Group, expected);
    program.is_some_and(|program| attach_group_program(first, &program).is_ok())
}

/// Returns whether this kernel steers as described; tests that once for each kind of socket.
fn steers(kind: Kind) -> bool {
    static RESULTS: [OnceLock<bool>; 3] = [const { OnceLock::new() }; 3];
    *RESULTS[kind as usize].get_or_init(|| try_out(kind).unwrap_or(false))
}

fn try_out(kind: Kind) -> Option<bool> {
    let loopback = if kind == Kind::V6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let at = match kind {
        Kind::DualStack => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        Kind::V4 | Kind::V6 => SocketAddr::new(loopback, 0),
    };
    let reserved = reserve_untried(at, kind).ok()?;
    let bound = reserved.bound;
    let first = open(kind).ok()?;
    set_option(first.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).ok()?;
    socket::bind(first.as_raw_fd(), &SockaddrStorage::from(bound)).ok()?;
    let SeparateSockets { strangers, guards: _guards } = reserved.complete(first.as_fd(), None).ok()?;
    let third = open(kind).ok()?;
    set_option(third.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).ok()?;
    if socket::bind(third.as_raw_fd(), &SockaddrStorage::from(bound)) != Err(Errno::EADDRINUSE) {
        return Some(false);
    }
    if !steer(first.as_fd(), Expected { tags: Some(&[1]), ..Expected::default() }) {
        return Some(false);
    }
    let mut members = vec![UdpSocket::from(first)];
    members.extend(strangers.into_iter().map(|(_, fd)| UdpSocket::from(fd)));
    let from = UdpSocket::bind(SocketAddr::new(loopback, 0)).ok()?;
    let to = SocketAddr::new(loopback, bound.port());
    let arrives = |tag: u8, chunk_type: u8, at: Class| {
        if from.send_to(&[1, 1, 1, 1, 0, 0, 0, tag, 0, 0, 0, 0, chunk_type], to).is_err() {
            // Loopback is down, so nothing can be tested.
            return Some(true);
        }
        let mut buffer = [0; 16];
        let at = &members[at as usize];
        at.set_nonblocking(false).ok()?;
        at.set_read_timeout(Some(TRIAL_PATIENCE)).ok()?;
        let arrived = at.recv(&mut buffer).is_ok();
        at.set_nonblocking(true).ok()?;
        Some(arrived && members.iter().all(|member| member.recv(&mut buffer).is_err()))
    };
    let tries = [(0, 1, Class::Inits), (2, 10, Class::Cookies), (2, 0, Class::Strays), (1, 0, Class::Peers)];
    for (tag, chunk_type, class) in tries {
        if !arrives(tag, chunk_type, class)? {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_steers_sockets_of_every_kind() {
        for kind in [Kind::V4, Kind::V6, Kind::DualStack] {
            assert_eq!(try_out(kind), Some(true), "{kind:?}");
        }
    }
}
