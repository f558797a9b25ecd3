//! Identifies the socket of a descriptor.
//!
//! The kernel gives each socket a cookie (`SO_COOKIE`) that no program can choose or change, that never recurs, and
//! that survives `fork`, `exec` and `SCM_RIGHTS`. When the daemon creates a pair, it records the cookie of the
//! program's end. It trusts nothing else, since other programs can obtain names, credentials and process identifiers.

use std::fmt;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketType};

/// The first kernel with cookies that are unique over all network namespaces.
const KERNEL_MIN: (u32, u32) = (5, 4);

/// The cookie of the program's end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cookie(u64);

impl Cookie {
    /// Returns the cookie of this number, as a program names it.
    pub(crate) fn named(number: u64) -> Cookie {
        Cookie(number)
    }

    /// Returns the cookie of a descriptor that may be the program's end of a pair.
    ///
    /// # Errors
    ///
    /// `ENOTSOCK`: the descriptor is not such a socket.
    pub(crate) fn of(descriptor: impl AsFd) -> Result<Cookie, Errno> {
        let descriptor = descriptor.as_fd();
        let family = sockopt::socket_domain(descriptor).map_err(|_| Errno::NOTSOCK)?;
        if family != AddressFamily::UNIX || sockopt::socket_type(descriptor)? != SocketType::SEQPACKET {
            return Err(Errno::NOTSOCK);
        }
        sockopt::socket_cookie(descriptor).map(Cookie)
    }
}

/// A kernel whose cookies are not unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldKernel {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
}

impl fmt::Display for OldKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((major, minor), release) = (KERNEL_MIN, &self.release);
        write!(
            f,
            "Linux {release} cannot tell the sockets of different network namespaces apart: use Linux {major}.{minor} or newer"
        )
    }
}

impl std::error::Error for OldKernel {}

impl OldKernel {
    /// Checks whether cookies of sockets are unique on a kernel of this release.
    ///
    /// # Errors
    ///
    /// The kernel is older than Linux 5.4, or its release cannot be parsed.
    pub fn check(release: &str) -> Result<(), OldKernel> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let found = match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            _ => (0, 0),
        };
        if found >= KERNEL_MIN { Ok(()) } else { Err(OldKernel { release: release.into() }) }
    }

    pub(crate) fn check_this() -> Result<(), OldKernel> {
        OldKernel::check(&rustix::system::uname().release().to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_unique_cookies_are_refused() {
        for good in ["5.4.0", "5.10.0-28-amd64", "6.18.44-fc-v669", "10.0"] {
            assert_eq!(OldKernel::check(good), Ok(()), "{good}");
        }
        for bad in ["5.3.18", "4.19.0-26-amd64", "4.4.0", "unknown", ""] {
            assert!(OldKernel::check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_seqpacket_socket_has_a_cookie() {
        use rustix::net::{SocketFlags, socket_with, socketpair};
        let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
        let (daemon_end, program_end) = pair(SocketType::SEQPACKET);
        let copy = program_end.try_clone().expect("a copy");
        assert_eq!(Cookie::of(&program_end), Cookie::of(copy), "copies are the same socket");
        assert_ne!(Cookie::of(&program_end), Cookie::of(daemon_end), "its peer is another socket");
        assert_eq!(Cookie::of(pair(SocketType::STREAM).0), Err(Errno::NOTSOCK));
        let udp = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        assert_eq!(Cookie::of(udp.expect("a socket")), Err(Errno::NOTSOCK));
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert_eq!(Cookie::of(file), Err(Errno::NOTSOCK));
    }
}
