//! A socket of its own for the packets of strangers: those with verification tag 0 (bytes 4 to 7), which anybody can send.
//!
//! It forms a group with the socket of an address (`SO_REUSEPORT`), in which a classic BPF program steers by the tag. So a
//! flood of INITs fills a small buffer that nothing else shares.
//!
//! A group must not open the port to other programs of the user, which could join it. So two more sockets guard it: each is
//! bound to the address, but to an interface that there never is, so that it receives nothing; and it lacks the option in
//! the end, so that whoever binds the port next finds it and is refused. The kernel asks the socket that it finds first,
//! which is the one that was bound first or last, as the family and the kernel have it: hence one guard before the group
//! and one after it. The first guard binds without the option, so that a port in use is refused as ever.
//!
//! The order of the kernel's lists is no promise, so both rules are tried out once for each kind of socket. Where one does
//! not hold there is no second socket, and everything comes to the first. While a group is being made, for some
//! microseconds, another program of the same user could join it. It could as well read our memory.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use crate::bind::{bind_to_interface, local_address};
use crate::syscalls::{attach_group_program, set_option};

/// The receive buffer of the second socket: some 300 small packets, which is what a flood may delay an INIT by.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;
/// Where the verification tag is in an SCTP packet (RFC 9260 §3.1).
const TAG_OFFSET: u32 = 4;
/// The index of an interface that there never is: the kernel counts up from 1.
const NO_INTERFACE: i32 = i32::MAX;
/// Members of the group, in the order in which they joined it.
const FIRST: u32 = 0;
const SECOND: u32 = 1;
/// How long the trial waits for a datagram on loopback, which is there when the send returns.
const TRIAL_PATIENCE: Duration = Duration::from_millis(100);

/// Kinds of sockets that the kernel looks up in ways of their own.
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

/// A port at an address that is ours alone, before the sockets that receive there are bound.
pub(crate) struct Reserved {
    guard: OwnedFd,
    kind: Kind,
    /// What was asked for, with the port that was given.
    pub(crate) bound: SocketAddr,
}

/// What stands beside the socket of an address.
#[derive(Debug)]
pub(crate) struct Apart {
    /// The socket for strangers.
    pub(crate) second: OwnedFd,
    /// They keep the port closed as long as they are open.
    pub(crate) guards: [OwnedFd; 2],
}

/// Reserves a port at an address. `None`: this system does not steer.
///
/// # Errors
///
/// What the system says of the address; another program may have the port.
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
    /// Makes a group of `first`, which is bound here with `SO_REUSEPORT`, perhaps to an interface.
    pub(crate) fn complete(self, first: BorrowedFd<'_>, interface: Option<&str>) -> Result<Apart, Errno> {
        let second = open(self.kind)?;
        if let Some(interface) = interface {
            bind_to_interface(second.as_fd(), interface)?;
        }
        let last_guard = open(self.kind)?;
        for fd in [&second, &last_guard] {
            set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
            socket::bind(fd.as_raw_fd(), &SockaddrStorage::from(self.bound))?;
        }
        attach_group_program(first, &program())?;
        set_option(last_guard.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, NO_INTERFACE)?;
        let guards = [self.guard, last_guard];
        for guard in &guards {
            set_option(guard.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)?;
        }
        Ok(Apart { second, guards })
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

/// Chooses the second socket for tag 0. A datagram that is too short for a tag goes to the first.
fn program() -> [sock_filter; 4] {
    let plain = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    [
        plain(BPF_LD | BPF_W | BPF_ABS, TAG_OFFSET),
        sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt: 0, jf: 1, k: 0 },
        plain(BPF_RET | BPF_K, SECOND),
        plain(BPF_RET | BPF_K, FIRST),
    ]
}

/// Returns whether this kernel steers as described, tried out once for each kind of socket.
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
    let Apart { second, guards: _guards } = reserved.complete(first.as_fd(), None).ok()?;
    let third = open(kind).ok()?;
    set_option(third.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).ok()?;
    if socket::bind(third.as_raw_fd(), &SockaddrStorage::from(bound)) != Err(Errno::EADDRINUSE) {
        return Some(false);
    }
    let (first, second) = (UdpSocket::from(first), UdpSocket::from(second));
    let from = UdpSocket::bind(SocketAddr::new(loopback, 0)).ok()?;
    let to = SocketAddr::new(loopback, bound.port());
    let arrives = |datagram: &[u8], at: &UdpSocket, not_at: &UdpSocket| {
        if from.send_to(datagram, to).is_err() {
            // Loopback is down, so nothing can be tried out.
            return Some(true);
        }
        let mut buffer = [0; 16];
        at.set_nonblocking(false).ok()?;
        at.set_read_timeout(Some(TRIAL_PATIENCE)).ok()?;
        not_at.set_nonblocking(true).ok()?;
        Some(at.recv(&mut buffer).is_ok() && not_at.recv(&mut buffer).is_err())
    };
    let stranger = arrives(&[1, 1, 1, 1, 0, 0, 0, 0, 1], &second, &first)?;
    let known = arrives(&[0, 0, 0, 0, 0, 0, 0, 1, 0], &first, &second)?;
    Some(stranger && known)
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
