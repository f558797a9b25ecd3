//! The way up: batches into blocks, and the error queue.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use bytes::Bytes;
use nix::errno::Errno;

use super::{QUOTED_BYTES_MAX, UdpEncap, is_icmp_error};
use crate::blocks::RECEIVE_BYTES;
use crate::control;
use crate::icmp;
use crate::link::{Datagrams, Sink, Unreachable, UnreachableReason};
use crate::socket_address::RawAddress;
use crate::syscalls::receive_message;

/// What one `receive` takes from one socket before it lets the caller work.
const RECEIVE_CALLS_MAX: usize = 64;
const RECEIVE_BYTES_MAX: usize = 1 << 20;
/// Reports taken from the error queue in one go.
const REPORTS_MAX: usize = 64;
/// After so many receives in a row that found nothing, the error queue is looked at even though nothing points to
/// it: should a report ever slip through, `poll` would otherwise return at once for ever.
const IDLE_RECEIVES_MAX: u32 = 16;

impl UdpEncap {
    /// Takes what one socket has, up to the limits; true when there may be more.
    pub(super) fn receive_from(&mut self, index: usize, sink: &mut dyn Sink) -> io::Result<bool> {
        let mut received_bytes = 0;
        for call in 0..RECEIVE_CALLS_MAX {
            if self.sockets[index].reports_waiting {
                self.drain_reports(index, sink);
            }
            match self.receive_batch(index, sink) {
                Ok(bytes) => received_bytes += bytes,
                Err(Errno::EAGAIN) => {
                    self.after_last(index, call, sink);
                    return Ok(false);
                }
                // An ICMP error announces itself once like this; the datagrams behind it are still there.
                Err(errno) if is_icmp_error(errno) => self.sockets[index].reports_waiting = true,
                Err(errno) => return Err(errno.into()),
            }
            if received_bytes >= RECEIVE_BYTES_MAX {
                break;
            }
        }
        self.sockets[index].idle_receives = 0;
        Ok(true)
    }

    fn after_last(&mut self, index: usize, calls_before: usize, sink: &mut dyn Sink) {
        let socket = &mut self.sockets[index];
        if calls_before > 0 {
            socket.idle_receives = 0;
            return;
        }
        socket.idle_receives += 1;
        if socket.idle_receives >= IDLE_RECEIVES_MAX {
            socket.idle_receives = 0;
            self.drain_reports(index, sink);
        }
    }

    /// One system call: a batch, or a single datagram. Returns its bytes.
    fn receive_batch(&mut self, index: usize, sink: &mut dyn Sink) -> Result<usize, Errno> {
        let socket = &mut self.sockets[index];
        let mut from = RawAddress::empty();
        let room = self.blocks.room();
        let received =
            receive_message(socket.inner.fd.as_fd(), &mut from, room, RECEIVE_BYTES, &mut self.control, 0)?;
        let about = about(&self.control[..received.control_bytes]);
        if let Some(overflows) = about.overflows {
            self.stats.receive_overflows += u64::from(overflows.wrapping_sub(socket.overflows));
            socket.overflows = overflows;
        }
        let Some(remote) = from.decode().filter(|_| received.bytes > 0 && !received.truncated) else {
            self.stats.receive_discarded += 1;
            self.blocks.discard();
            return Ok(received.bytes);
        };
        let segment_bytes = about.segment_bytes.filter(|bytes| *bytes > 0).unwrap_or(received.bytes);
        self.stats.batches_received += 1;
        self.stats.datagrams_received += received.bytes.div_ceil(segment_bytes) as u64;
        self.stats.bytes_received += received.bytes as u64;
        sink.datagrams(Datagrams {
            remote,
            local: about.local.unwrap_or_else(|| socket.inner.bound.ip()),
            ecn: about.ecn,
            segment_bytes: segment_bytes.min(received.bytes),
            payload: self.blocks.take(),
        });
        Ok(received.bytes)
    }

    /// Hands the reports in the error queue to the sink.
    fn drain_reports(&mut self, index: usize, sink: &mut dyn Sink) {
        self.sockets[index].reports_waiting = false;
        for _ in 0..REPORTS_MAX {
            let fd = self.sockets[index].inner.fd.as_fd();
            let mut remote = RawAddress::empty();
            let room = self.blocks.room();
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            let Ok(report) =
                receive_message(fd, &mut remote, room, QUOTED_BYTES_MAX, &mut self.control, flags)
            else {
                return;
            };
            let quoted = Bytes::copy_from_slice(room);
            self.blocks.discard();
            let Some(remote) = remote.decode() else { continue };
            let Some(reason) = icmp::reason(&self.control[..report.control_bytes], remote.ip()) else {
                continue;
            };
            self.stats.icmp_reports += 1;
            if matches!(reason, UnreachableReason::TooBig { .. }) {
                self.stats.too_big += 1;
                self.routes.borrow_mut().forget(remote.ip());
            }
            sink.unreachable(Unreachable { remote, reason, quoted });
        }
        // So many that some may be left.
        self.sockets[index].reports_waiting = true;
    }
}

/// What the control messages of a received batch say.
#[derive(Default)]
struct About {
    segment_bytes: Option<usize>,
    local: Option<IpAddr>,
    ecn: u8,
    overflows: Option<u32>,
}

fn about(control_bytes: &[u8]) -> About {
    let mut about = About::default();
    for message in control::messages(control_bytes) {
        match (message.level, message.kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                about.segment_bytes = message.int().and_then(|bytes| usize::try_from(bytes).ok());
            }
            (libc::SOL_IP, libc::IP_PKTINFO) => {
                let octets = message.data.get(8..12).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
                about.local = octets.map(IpAddr::from);
            }
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                let octets = message.data.get(..16).and_then(|octets| <[u8; 16]>::try_from(octets).ok());
                about.local = octets.map(|octets| IpAddr::from(octets).to_canonical());
            }
            (libc::SOL_IP, libc::IP_TOS) | (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                about.ecn = (message.int().unwrap_or_default() & 3) as u8;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                about.overflows = message.int().map(|overflows| overflows as u32);
            }
            _ => {}
        }
    }
    about
}
