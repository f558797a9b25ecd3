//! Controls whether the network may fragment packets of a socket. This is an option of the socket, so it is set only if it
//! changes and matters.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::{Batch, Socket};
use crate::syscalls::set_option;

/// Length up to which packets are never fragmented, so that the option does not matter for them.
const SHORT_BYTES_V4: usize = 548;
const SHORT_BYTES_V6: usize = IPV6_MTU_MIN as usize - 48;
/// MTU that every IPv6 link has at least (RFC 8200 §5).
const IPV6_MTU_MIN: i32 = 1280;

/// Treatment of packets that exceed the MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cutting {
    /// "Don't fragment", whatever the kernel believes of the path. The protocol above discovers the MTU.
    Never,
    /// The kernel fragments packets that exceed the device's MTU, and routers those that exceed the path's.
    Allowed,
    /// The kernel makes fragments that pass everywhere, because IPv6 routers do not fragment.
    Small,
}

impl Cutting {
    /// Returns the treatment that a batch requests, if it matters.
    pub(crate) fn of(batch: &Batch<'_>) -> Option<Self> {
        let bytes = batch.transmit.segment_bytes.min(batch.total_bytes);
        let ipv6 = batch.remote.is_ipv6();
        if bytes <= if ipv6 { SHORT_BYTES_V6 } else { SHORT_BYTES_V4 } {
            None
        } else if !batch.transmit.may_fragment {
            Some(Cutting::Never)
        } else if ipv6 && bytes == batch.total_bytes {
            Some(Cutting::Small)
        } else {
            // The kernel does not segment and fragment in one operation.
            Some(Cutting::Allowed)
        }
    }

    /// Sets the option of a socket for IPv4.
    pub(crate) fn set_v4(self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        // OMIT, not DONT: with that one the kernel would keep the reports of routers to itself.
        let mode = if self == Cutting::Never { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_OMIT };
        set_option(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, mode)
    }

    /// Sets the option of a socket for IPv6.
    pub(crate) fn set_v6(self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        // WANT, not OMIT: with that one the kernel would keep the reports of routers to itself.
        let mode = if self == Cutting::Never { libc::IPV6_PMTUDISC_PROBE } else { libc::IPV6_PMTUDISC_WANT };
        let pieces = if self == Cutting::Small { IPV6_MTU_MIN } else { 0 };
        set_option(fd, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, mode)?;
        set_option(fd, libc::SOL_IPV6, libc::IPV6_MTU, pieces)
    }
}

impl Socket {
    /// Prepares for sending a batch.
    #[inline]
    pub(crate) fn allow_cutting(&mut self, batch: &Batch<'_>) -> Result<(), Errno> {
        match Cutting::of(batch) {
            Some(cutting) if self.cutting[usize::from(batch.remote.is_ipv6())] != cutting => {
                self.set_cutting(batch.remote.ip(), cutting)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn set_cutting(&mut self, remote: IpAddr, cutting: Cutting) -> Result<(), Errno> {
        let fd = self.inner.fd.as_fd();
        match remote {
            IpAddr::V4(_) => cutting.set_v4(fd)?,
            IpAddr::V6(_) => cutting.set_v6(fd)?,
        }
        self.cutting[usize::from(remote.is_ipv6())] = cutting;
        Ok(())
    }
}
