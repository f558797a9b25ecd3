//! Sends packets: their options, and the results.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use nix::errno::Errno;

use super::{PENDING_REPORTS_MAX, QUOTED_BYTES_MAX, Socket, Sockets, canonical};
use crate::control::ControlBuilder;
use crate::link::{Transmit, Unreachable, UnreachableReason};
use crate::route::PACKET_BYTES_MAX;

/// A transmit prepared for the kernel.
pub(crate) struct Batch<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) index: usize,
    pub(crate) total_bytes: usize,
    pub(crate) transmit: &'a Transmit<'a>,
}

/// Result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sent,
    Blocked,
    /// The device's queue was full, and the datagrams are lost, as in a router.
    Dropped,
    TooBig,
    /// The kernel does not segment, for this route or for these sizes.
    NotSegmented,
    Failed(Errno),
}

impl Outcome {
    /// Returns the result for an error number.
    pub(crate) fn of(errno: Errno) -> Self {
        match errno {
            Errno::EAGAIN => Outcome::Blocked,
            Errno::ENOBUFS | Errno::ENOMEM => Outcome::Dropped,
            Errno::EMSGSIZE => Outcome::TooBig,
            Errno::EIO | Errno::EINVAL => Outcome::NotSegmented,
            errno => Outcome::Failed(errno),
        }
    }
}

impl Sockets {
    /// Checks a transmit and finds the socket for it. `None`: there is nothing to send.
    pub(crate) fn batch<'a>(&mut self, transmit: &'a Transmit<'a>) -> io::Result<Option<Batch<'a>>> {
        let total_bytes: usize = transmit.slices.iter().map(|slice| slice.len()).sum();
        if total_bytes == 0 {
            return Ok(None);
        }
        if transmit.segment_bytes == 0 || transmit.segment_bytes.min(total_bytes) > PACKET_BYTES_MAX {
            let advice = "a datagram has from 1 to 65,507 bytes: make the segments fit the path's MTU";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, advice));
        }
        let remote = canonical(transmit.remote);
        match self.socket_for(remote.ip(), transmit.local) {
            Some(index) => Ok(Some(Batch { remote, index, total_bytes, transmit })),
            None => Err(self.no_way_to(remote.ip())),
        }
    }

    /// Assigns a batch for a destination that may not exist to a socket: one of those for strangers, in place of the one of
    /// peers, which has the same address. The kernel keeps packets to a neighbour that does not answer for seconds, and counts
    /// them in the send buffer of their socket, so packets to invented neighbours would stop all others. Neighbours have a socket
    /// of their own; packets to the other hosts go to routers, which answer.
    pub(crate) fn batch_apart<'a>(&mut self, transmit: &'a Transmit<'a>) -> io::Result<Option<Batch<'a>>> {
        let Some(batch) = self.batch(transmit)? else { return Ok(None) };
        let mut apart = self.list[batch.index].strangers.clone();
        let index = if self.is_neighbour(batch.remote.ip()) { apart.next_back() } else { apart.next() };
        Ok(Some(Batch { index: index.unwrap_or(batch.index), ..batch }))
    }

    /// Counts a batch as lost that would have to wait.
    pub(crate) fn lose_blocked(&mut self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.stats.send_lost += 1;
                Ok(())
            }
            result => result,
        }
    }

    /// Counts the outcome of some datagrams and returns the caller's result.
    pub(crate) fn account(
        &mut self,
        batch: &Batch<'_>,
        outcome: Outcome,
        datagrams: usize,
        bytes: usize,
    ) -> io::Result<()> {
        match outcome {
            Outcome::Sent => {
                self.stats.batches_sent += 1;
                self.stats.datagrams_sent += datagrams as u64;
                self.stats.bytes_sent += bytes as u64;
                Ok(())
            }
            Outcome::Blocked => {
                self.stats.send_blocked += 1;
                Err(io::ErrorKind::WouldBlock.into())
            }
            Outcome::Dropped => {
                self.stats.send_lost += datagrams as u64;
                Ok(())
            }
            Outcome::TooBig => {
                self.stats.send_lost += datagrams as u64;
                self.report_too_big(batch);
                Ok(())
            }
            Outcome::NotSegmented => {
                self.stats.send_failed += 1;
                Err(Errno::EINVAL.into())
            }
            Outcome::Failed(errno) => {
                self.stats.send_failed += 1;
                Err(errno.into())
            }
        }
    }

    /// Records the kernel's report that a datagram is too big, as a router's.
    fn report_too_big(&mut self, batch: &Batch<'_>) {
        self.stats.too_big += 1;
        self.routes.borrow_mut().forget(batch.remote.ip());
        let mtu_bytes = self.path_info(batch.remote).mtu_bytes;
        if self.pending_reports.len() < PENDING_REPORTS_MAX {
            let quoted = batch.transmit.slices.iter().find(|slice| !slice.is_empty());
            let quoted = quoted.map(|slice| &slice[..slice.len().min(QUOTED_BYTES_MAX)]).unwrap_or_default();
            self.pending_reports.push_back(Unreachable {
                remote: batch.remote,
                reason: UnreachableReason::TooBig { mtu_bytes },
                quoted: Bytes::copy_from_slice(quoted),
            });
        }
    }
}

/// Builds the control messages of a packet: the source address and the traffic class, if needed.
pub(crate) fn packet_control(batch: &Batch<'_>, socket: &Socket) -> ControlBuilder {
    let mut control = ControlBuilder::new();
    let wildcard = socket.inner.bound.ip().is_unspecified();
    match (batch.remote.ip(), batch.transmit.local.filter(|_| wildcard).map(|ip| ip.to_canonical())) {
        // struct in_pktinfo: the interface (0: any), the source address, and the destination that a send ignores.
        (IpAddr::V4(_), Some(IpAddr::V4(local))) => {
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&local.octets());
            control.push(libc::SOL_IP, libc::IP_PKTINFO, &info);
        }
        // struct in6_pktinfo: the source address and the interface (0: any).
        (IpAddr::V6(_), Some(IpAddr::V6(local))) => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&local.octets());
            control.push(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info);
        }
        _ => {}
    }
    if batch.transmit.traffic_class != 0 {
        let class = i32::from(batch.transmit.traffic_class).to_ne_bytes();
        match batch.remote {
            SocketAddr::V4(_) => control.push(libc::SOL_IP, libc::IP_TOS, &class),
            SocketAddr::V6(_) => control.push(libc::SOL_IPV6, libc::IPV6_TCLASS, &class),
        }
    }
    control
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_the_kernel_has_its_outcome() {
        assert_eq!(Outcome::of(Errno::EAGAIN), Outcome::Blocked);
        assert_eq!(Outcome::of(Errno::ENOBUFS), Outcome::Dropped);
        assert_eq!(Outcome::of(Errno::EMSGSIZE), Outcome::TooBig);
        assert_eq!(Outcome::of(Errno::EIO), Outcome::NotSegmented);
        assert_eq!(Outcome::of(Errno::EINVAL), Outcome::NotSegmented);
        assert_eq!(Outcome::of(Errno::ENETUNREACH), Outcome::Failed(Errno::ENETUNREACH));
    }
}
