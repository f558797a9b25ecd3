//! Receives from the sockets in turn, and from their error queues.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use bytes::Bytes;
use nix::errno::Errno;

use super::{QUOTED_BYTES_MAX, Socket, Sockets, is_icmp_error};
use crate::LinkStats;
use crate::control;
use crate::icmp;
use crate::link::{ECN, Sink, Unreachable, UnreachableReason};
use crate::socket_address::RawAddress;
use crate::strangers::Class;
use crate::strangers::readiness::{Read, Readiness};
use crate::syscalls::receive_message;

/// Maximum number of datagrams or batches, and of bytes, that one `receive` takes from one socket before it returns to the
/// caller.
const RECEIVE_READS_MAX: usize = 64;
const RECEIVE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of packets that one `receive` takes from a socket for strangers, with a few system calls. While peers
/// send at full rate there are some 2,000 receives a second: with 32 packets each, a flood of 100,000 a second keeps the
/// buffer full, and two in five INITs of new peers are lost in it.
const STRANGER_READS_MAX: usize = 128;
/// Maximum number of reports taken from the error queue at once.
const REPORTS_MAX: usize = 64;
/// Number of receives without result after which the error queue is checked without an indication: if a report were missed,
/// `poll` would return at once for ever.
const IDLE_RECEIVES_MAX: u32 = 16;

/// A system call on the socket of that number, which delivers its result to the sink.
type Take<'a> = dyn FnMut(&mut Sockets, usize, &mut dyn Sink) -> Result<Taken, Errno> + 'a;

/// Result of a system call that receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Number of datagrams or batches.
    pub(crate) reads: usize,
    pub(crate) bytes: usize,
    /// Whether the kernel had no more.
    pub(crate) drained: bool,
}

impl Sockets {
    /// Receives from all sockets, up to the limits. Returns true if there may be more.
    pub(crate) fn receive(&mut self, sink: &mut dyn Sink, take: &mut Take<'_>) -> io::Result<bool> {
        self.hand_out_reports(sink);
        let batches_before = self.stats.batches_received;
        let mut more = false;
        for _ in 0..self.of_peers {
            let index = self.next;
            self.next = (index + 1) % self.of_peers;
            more |= self.receive_from(index, sink, take)?;
        }
        let busy = self.stats.batches_received != batches_before;
        more |= self.receive_from_strangers(busy, sink, take)?;
        Ok(more)
    }

    /// Receives from the sockets for strangers that have packets and their turn.
    fn receive_from_strangers(
        &mut self,
        busy: bool,
        sink: &mut dyn Sink,
        take: &mut Take<'_>,
    ) -> io::Result<bool> {
        // The readiness is taken out for the time of the receive, because reading needs all of `self`.
        let Some(mut readiness) = self.readiness.take() else { return Ok(false) };
        let received = match readiness.begin_receive() {
            true => {
                self.filters_due = true;
                self.receive_from_due(&mut readiness, busy, sink, take)
            }
            false => Ok(false),
        };
        readiness.end_receive(None);
        self.readiness = Some(readiness);
        received
    }

    fn receive_from_due(
        &mut self,
        readiness: &mut Readiness,
        busy: bool,
        sink: &mut dyn Sink,
        take: &mut Take<'_>,
    ) -> io::Result<bool> {
        let mut more = false;
        for index in self.of_peers..self.list.len() {
            let stranger = index - self.of_peers;
            let began = Instant::now();
            if !readiness.is_due(stranger) || !self.list[index].share.take_turn(busy, began) {
                continue;
            }
            let before = self.stats.datagrams_received;
            let left = self.receive_from(index, sink, take)?;
            let packets = (self.stats.datagrams_received - before) as usize;
            let socket = &mut self.list[index];
            socket.share.charge(began.elapsed(), packets);
            let read = Read { began, packets, emptied: !left, is_filtered: socket.filter().is_some() };
            readiness.after_read((stranger, socket.inner.fd.as_fd()), read);
            more |= left;
        }
        Ok(more)
    }

    fn receive_from(&mut self, index: usize, sink: &mut dyn Sink, take: &mut Take<'_>) -> io::Result<bool> {
        let (mut reads, mut bytes) = (0, 0);
        let reads_max = match self.list[index].class {
            Class::Peers => RECEIVE_READS_MAX,
            Class::Inits | Class::Cookies | Class::Strays => STRANGER_READS_MAX,
        };
        while reads < reads_max && bytes < RECEIVE_BYTES_MAX {
            if self.list[index].reports_waiting {
                self.drain_reports(index, sink);
            }
            match take(self, index, sink) {
                Ok(taken) => {
                    reads += taken.reads;
                    bytes += taken.bytes;
                    if taken.drained {
                        self.after_last(index, reads, sink);
                        return Ok(false);
                    }
                }
                Err(Errno::EAGAIN) => {
                    self.after_last(index, reads, sink);
                    return Ok(false);
                }
                // An ICMP error is reported once by such a call; the datagrams behind it are still available.
                Err(errno) if is_icmp_error(errno) => {
                    reads += 1;
                    self.list[index].reports_waiting = true;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        self.list[index].idle_receives = 0;
        Ok(true)
    }

    fn after_last(&mut self, index: usize, reads_before: usize, sink: &mut dyn Sink) {
        let socket = &mut self.list[index];
        if reads_before > 0 {
            socket.idle_receives = 0;
            return;
        }
        socket.idle_receives += 1;
        if socket.idle_receives >= IDLE_RECEIVES_MAX {
            socket.idle_receives = 0;
            self.drain_reports(index, sink);
        }
    }

    /// Delivers the reports in the error queue to the sink.
    fn drain_reports(&mut self, index: usize, sink: &mut dyn Sink) {
        self.list[index].reports_waiting = false;
        for _ in 0..REPORTS_MAX {
            let fd = self.list[index].inner.fd.as_fd();
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
            let control = &self.control[..report.control_bytes];
            let Some(reason) = icmp::reason(control, remote.ip(), self.encapsulation_bytes) else {
                continue;
            };
            self.stats.icmp_reports += 1;
            if matches!(reason, UnreachableReason::TooBig { .. }) {
                self.stats.too_big += 1;
                self.routes.borrow_mut().forget(remote.ip());
            }
            sink.unreachable(Unreachable { remote, reason, quoted });
        }
        // Some reports may be left.
        self.list[index].reports_waiting = true;
    }
}

impl Socket {
    /// Counts a received packet of a stranger as part of the flood that it may belong to.
    pub(crate) fn count_for_thinning(&mut self, now: Instant, from: &RawAddress, stats: &mut LinkStats) {
        if let (Some(thinning), Some(from)) = (&mut self.thinning, from.decode()) {
            stats.receive_thinned += u64::from(thinning.on_packet(now, from.ip()));
        }
    }

    /// Counts the datagrams that the kernel has dropped, as it reports with a received one.
    pub(crate) fn count_overflows(&mut self, about: &About, stats: &mut LinkStats) {
        if let Some(overflows) = about.overflows {
            self.count_overflows_to(overflows, stats);
        }
    }

    /// Counts the datagrams that the kernel has dropped, up to its present count.
    pub(crate) fn count_overflows_to(&mut self, overflows: u32, stats: &mut LinkStats) {
        stats.receive_overflows += u64::from(overflows.wrapping_sub(self.overflows));
        self.overflows = overflows;
    }
}

/// Contents of the control messages of a received batch.
#[derive(Default)]
pub(crate) struct About {
    pub(crate) segment_bytes: Option<usize>,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: u8,
    overflows: Option<u32>,
}

impl About {
    pub(crate) fn read(control_bytes: &[u8]) -> Self {
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
                    about.ecn = message.int().unwrap_or_default() as u8 & ECN;
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    about.overflows = message.int().map(|overflows| overflows as u32);
                }
                _ => {}
            }
        }
        about
    }
}
