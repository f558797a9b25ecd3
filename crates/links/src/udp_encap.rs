//! SCTP packets in UDP datagrams (RFC 6951), in batches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use bytes::Bytes;
use nix::errno::Errno;

use crate::bind::{BoundSocket, open_all};
use crate::blocks::{Blocks, RECEIVE_BYTES};
use crate::control::{self, ControlBuilder, RECEIVE_CONTROL_BYTES};
use crate::icmp;
use crate::link::{BatchLimits, Datagrams, Link, PathInfo, Sink, Transmit, Unreachable, UnreachableReason};
use crate::route::{Routes, UDP_PAYLOAD_BYTES_MAX, payload_bytes};
use crate::socket_address::RawAddress;
use crate::syscalls::{receive_message, send_message, set_option};
use crate::{BindError, LinkStats, UdpEncapConfig};

/// A batch of more bytes can arrive split into its segments; a receive offload counts headers in its 65,535.
const BATCH_BYTES_MAX: usize = 65_300;
/// Segments that every kernel with segmentation offload takes in one batch, and what newer ones take.
const SEGMENTS_MAX_OLD: usize = 64;
const SEGMENTS_MAX_NEW: usize = 128;
/// Slices that one system call takes (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;
/// What one `receive` takes from one socket before it lets the caller work.
const RECEIVE_CALLS_MAX: usize = 64;
const RECEIVE_BYTES_MAX: usize = 1 << 20;
/// Reports taken from the error queue in one go.
const REPORTS_MAX: usize = 64;
/// Reports of our own that wait for the next `receive`; one for each path is enough.
const PENDING_REPORTS_MAX: usize = 16;
/// Bytes of our packet that a report brings along.
const QUOTED_BYTES_MAX: usize = 512;
/// A send that brings an old ICMP error instead of sending is repeated this often.
const SEND_TRIES_MAX: usize = 4;
/// After so many receives in a row that found nothing, the error queue is looked at even though nothing points to
/// it: should a report ever slip through, `poll` would otherwise return at once for ever.
const IDLE_RECEIVES_MAX: u32 = 16;
/// The share of the receive buffer that may be on the way on the same host, and the most.
const IN_FLIGHT_PERCENT: usize = 65;
const IN_FLIGHT_BYTES_MAX: usize = 1 << 20;
/// The kernel charges up to 71 KB for a batch of 65,000 bytes.
const CHARGE_PERCENT: usize = 110;

/// A link over UDP sockets, one for each local address.
///
/// Not more than a buffer of receive blocks is kept; a batch in either direction allocates nothing.
pub struct UdpEncap {
    sockets: Vec<Socket>,
    /// The socket that the next `receive` begins with, so that none starves.
    next_socket: usize,
    mtu_bytes_cap: usize,
    in_flight_limit_bytes: usize,
    limits: BatchLimits,
    routes: RefCell<Routes>,
    blocks: Blocks,
    control: [u8; RECEIVE_CONTROL_BYTES],
    /// One datagram, or a batch of more slices than a system call takes, put together.
    scratch: Vec<u8>,
    pending_reports: VecDeque<Unreachable>,
    stats: LinkStats,
}

struct Socket {
    inner: BoundSocket,
    /// A send brought an error that belongs to the error queue; so there is something in it.
    reports_waiting: bool,
    idle_receives: u32,
    /// The kernel's drop counter for the socket as last seen.
    overflows: u32,
}

impl UdpEncap {
    /// Opens and binds the sockets.
    ///
    /// # Errors
    ///
    /// [`BindError`] names the address and says what to do.
    ///
    /// # Examples
    ///
    /// ```
    /// use links::{Link, UdpEncap, UdpEncapConfig};
    ///
    /// let config = UdpEncapConfig { addresses: vec!["127.0.0.1".parse()?], port: 0, ..Default::default() };
    /// let link = UdpEncap::bind(&config)?;
    /// assert_ne!(link.local_addresses()[0].port(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(config: &UdpEncapConfig) -> Result<Self, BindError> {
        let sockets: Vec<_> = open_all(config)?
            .into_iter()
            .map(|inner| Socket { inner, reports_waiting: false, idle_receives: 0, overflows: 0 })
            .collect();
        let buffer_bytes =
            sockets.iter().map(|socket| socket.inner.receive_buffer_bytes).min().unwrap_or_default();
        let segments_max = if config.offload { segments_max() } else { 1 };
        Ok(UdpEncap {
            sockets,
            next_socket: 0,
            mtu_bytes_cap: config.mtu_bytes.unwrap_or(usize::MAX),
            in_flight_limit_bytes: (buffer_bytes * IN_FLIGHT_PERCENT / CHARGE_PERCENT)
                .min(IN_FLIGHT_BYTES_MAX),
            limits: BatchLimits { segments_max, bytes_max: BATCH_BYTES_MAX },
            routes: RefCell::default(),
            blocks: Blocks::new(),
            control: [0; RECEIVE_CONTROL_BYTES],
            scratch: Vec::with_capacity(RECEIVE_BYTES),
            pending_reports: VecDeque::with_capacity(PENDING_REPORTS_MAX),
            stats: LinkStats::default(),
        })
    }
}

impl Link for UdpEncap {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|socket| socket.inner.bound).collect()
    }

    fn path_info(&self, remote: SocketAddr) -> PathInfo {
        let remote = canonical(remote);
        let bound = self.socket_for(remote.ip(), None).map(|index| self.sockets[index].inner.bound.ip());
        let route = self.routes.borrow_mut().lookup(remote, bound);
        PathInfo {
            mtu_bytes: payload_bytes(route.mtu_bytes.min(self.mtu_bytes_cap), remote.ip()),
            same_host: route.same_host,
            in_flight_limit_bytes: route.same_host.then_some(self.in_flight_limit_bytes),
        }
    }

    fn batch_limits(&self) -> BatchLimits {
        self.limits
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        while let Some(report) = self.pending_reports.pop_front() {
            sink.unreachable(report);
        }
        let mut more = false;
        for _ in 0..self.sockets.len() {
            let index = self.next_socket;
            self.next_socket = (index + 1) % self.sockets.len();
            more |= self.receive_from(index, sink)?;
        }
        Ok(more)
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        let total_bytes: usize = transmit.slices.iter().map(|slice| slice.len()).sum();
        if total_bytes == 0 {
            return Ok(());
        }
        if transmit.segment_bytes == 0 || transmit.segment_bytes.min(total_bytes) > UDP_PAYLOAD_BYTES_MAX {
            let advice = "a datagram has from 1 to 65,507 bytes: make the segments fit the path's MTU";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, advice));
        }
        let remote = canonical(transmit.remote);
        let Some(index) = self.socket_for(remote.ip(), transmit.local) else {
            self.stats.send_failed += 1;
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("no local address of this link reaches {}: bind one of its family", remote.ip()),
            ));
        };
        let batch = Batch { remote, index, total_bytes, transmit };
        if total_bytes <= transmit.segment_bytes {
            return self.send_datagram(&batch);
        }
        let segments = total_bytes.div_ceil(transmit.segment_bytes);
        if segments <= self.limits.segments_max && total_bytes <= UDP_PAYLOAD_BYTES_MAX {
            return self.send_batch(&batch, segments);
        }
        self.send_one_by_one(&batch).map(drop)
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>)) {
        for socket in &self.sockets {
            visit(socket.inner.fd.as_fd());
        }
    }

    fn stats(&self) -> LinkStats {
        LinkStats { blocks_allocated: self.blocks.allocated, blocks_reused: self.blocks.reused, ..self.stats }
    }
}

/// A transmit on its way to the kernel.
struct Batch<'a> {
    remote: SocketAddr,
    index: usize,
    total_bytes: usize,
    transmit: &'a Transmit<'a>,
}

/// What an attempt to send came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    Blocked,
    /// The device's queue was full, and the datagrams are gone like any that a router drops.
    Dropped,
    TooBig,
    /// The kernel does not segment, for this route or for these sizes.
    NotSegmented,
    Failed(Errno),
}

impl UdpEncap {
    /// The socket that sends to `remote` from `local`.
    fn socket_for(&self, remote: IpAddr, local: Option<IpAddr>) -> Option<usize> {
        let carries = |socket: &&Socket| {
            socket.inner.ipv6 == remote.is_ipv6() || (socket.inner.dual_stack && remote.is_ipv4())
        };
        let position = |wanted: &dyn Fn(IpAddr) -> bool| {
            self.sockets.iter().position(|socket| carries(&socket) && wanted(socket.inner.bound.ip()))
        };
        match local {
            Some(local) => {
                let local = local.to_canonical();
                position(&|bound| bound == local).or_else(|| position(&|bound| bound.is_unspecified()))
            }
            None => position(&|bound| bound.is_unspecified() || bound.is_loopback() == remote.is_loopback())
                .or_else(|| position(&|_| true)),
        }
    }

    /// Sends one datagram.
    fn send_datagram(&mut self, batch: &Batch<'_>) -> io::Result<()> {
        let outcome = self.send_slices(batch, None);
        self.settle(batch, outcome, 1, batch.total_bytes)
    }

    /// Sends several datagrams in one system call, or one by one when that fails.
    fn send_batch(&mut self, batch: &Batch<'_>, segments: usize) -> io::Result<()> {
        match self.send_slices(batch, Some(batch.transmit.segment_bytes as u16)) {
            Outcome::NotSegmented | Outcome::TooBig => {
                self.routes.borrow_mut().forget(batch.remote.ip());
                let fits = batch.transmit.segment_bytes <= self.path_info(batch.remote).mtu_bytes;
                let all_sent = self.send_one_by_one(batch)?;
                if fits && all_sent {
                    // The same datagrams go singly, so it is the offload that this kernel or device lacks.
                    self.limits.segments_max = 1;
                }
                Ok(())
            }
            outcome => self.settle(batch, outcome, segments, batch.total_bytes),
        }
    }

    /// Sends the datagrams of a batch singly; true when the kernel took all. When the send buffer fills up midway,
    /// the rest is lost as it would be on a full link, since the caller may not send the first ones again.
    fn send_one_by_one(&mut self, batch: &Batch<'_>) -> io::Result<bool> {
        let mut all = self.gather(batch.transmit.slices);
        let mut result = Ok(true);
        for (position, segment) in all.chunks(batch.transmit.segment_bytes).enumerate() {
            let slices = [IoSlice::new(segment)];
            let transmit = Transmit { slices: &slices, ..*batch.transmit };
            let single = Batch { total_bytes: segment.len(), transmit: &transmit, ..*batch };
            let outcome = match self.send_slices(&single, None) {
                Outcome::Blocked if position > 0 => Outcome::Dropped,
                outcome => outcome,
            };
            if let Err(error) = self.settle(&single, outcome, 1, segment.len()) {
                result = Err(error);
                break;
            }
            if outcome != Outcome::Sent {
                result = Ok(false);
            }
        }
        all.clear();
        self.scratch = all;
        result
    }

    /// Puts slices together in the scratch buffer, which the caller gives back.
    fn gather(&mut self, slices: &[IoSlice<'_>]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.scratch);
        for slice in slices {
            all.extend_from_slice(slice);
        }
        all
    }

    fn send_slices(&mut self, batch: &Batch<'_>, segment_bytes: Option<u16>) -> Outcome {
        let socket = &mut self.sockets[batch.index];
        let to = RawAddress::encode(batch.remote, socket.inner.ipv6);
        let control = send_control(batch, socket, segment_bytes);
        if batch.transmit.slices.len() <= SLICES_MAX {
            return send(socket, &to, batch.transmit.slices, control.as_bytes());
        }
        let mut all = self.gather(batch.transmit.slices);
        let socket = &mut self.sockets[batch.index];
        let outcome = send(socket, &to, &[IoSlice::new(&all)], control.as_bytes());
        all.clear();
        self.scratch = all;
        outcome
    }

    /// Counts what became of some datagrams and turns it into the caller's result.
    fn settle(
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

    /// The kernel itself says that a datagram is too big: report it as a router would.
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

    /// Takes what one socket has, up to the limits; true when there may be more.
    fn receive_from(&mut self, index: usize, sink: &mut dyn Sink) -> io::Result<bool> {
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

fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(address.ip().to_canonical(), v6.port())
        }
        address => address,
    }
}

/// What a send says beside the data: the segment size, the source address and the ECN field, each where needed.
fn send_control(batch: &Batch<'_>, socket: &Socket, segment_bytes: Option<u16>) -> ControlBuilder {
    let mut control = ControlBuilder::new();
    if let Some(segment_bytes) = segment_bytes {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment_bytes.to_ne_bytes());
    }
    let ecn = i32::from(batch.transmit.ecn & 3).to_ne_bytes();
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
    if batch.transmit.ecn != 0 {
        match batch.remote {
            SocketAddr::V4(_) => control.push(libc::SOL_IP, libc::IP_TOS, &ecn),
            SocketAddr::V6(_) => control.push(libc::SOL_IPV6, libc::IPV6_TCLASS, &ecn),
        }
    }
    control
}

/// One system call that sends, repeated while it only brings the news of an earlier datagram's ICMP error.
fn send(socket: &mut Socket, to: &RawAddress, slices: &[IoSlice<'_>], control: &[u8]) -> Outcome {
    let mut tries = 0;
    loop {
        tries += 1;
        match send_message(socket.inner.fd.as_fd(), to, slices, control) {
            Ok(_) => return Outcome::Sent,
            Err(errno) if is_icmp_error(errno) && tries < SEND_TRIES_MAX => socket.reports_waiting = true,
            Err(errno) => return outcome(errno),
        }
    }
}

fn outcome(errno: Errno) -> Outcome {
    match errno {
        Errno::EAGAIN => Outcome::Blocked,
        Errno::ENOBUFS | Errno::ENOMEM => Outcome::Dropped,
        Errno::EMSGSIZE => Outcome::TooBig,
        Errno::EIO | Errno::EINVAL => Outcome::NotSegmented,
        errno => Outcome::Failed(errno),
    }
}

/// The errors that the kernel makes of ICMP messages and leaves on the socket for whatever call comes next.
fn is_icmp_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EHOSTDOWN
            | Errno::ENONET
            | Errno::ENOPROTOOPT
            | Errno::EPROTO
            | Errno::EOPNOTSUPP
            | Errno::EACCES
            | Errno::EMSGSIZE
    )
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

/// How many segments this kernel takes in one batch, found out once by sending to a socket of our own.
fn segments_max() -> usize {
    static SEGMENTS_MAX: OnceLock<usize> = OnceLock::new();
    *SEGMENTS_MAX.get_or_init(|| probe_segments().unwrap_or(1))
}

fn probe_segments() -> Option<usize> {
    let socket =
        std::net::UdpSocket::bind("127.0.0.1:0").or_else(|_| std::net::UdpSocket::bind("[::1]:0")).ok()?;
    // A kernel that does not know the option does not segment.
    set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).ok()?;
    let address = socket.local_addr().ok()?;
    let to = RawAddress::encode(address, address.is_ipv6());
    let mut control = ControlBuilder::new();
    control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &1u16.to_ne_bytes());
    let payload = [0; SEGMENTS_MAX_NEW];
    match send_message(socket.as_fd(), &to, &[IoSlice::new(&payload)], control.as_bytes()) {
        Ok(_) => Some(SEGMENTS_MAX_NEW),
        Err(_) => Some(SEGMENTS_MAX_OLD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_the_kernel_has_its_outcome() {
        assert_eq!(outcome(Errno::EAGAIN), Outcome::Blocked);
        assert_eq!(outcome(Errno::ENOBUFS), Outcome::Dropped);
        assert_eq!(outcome(Errno::EMSGSIZE), Outcome::TooBig);
        assert_eq!(outcome(Errno::EIO), Outcome::NotSegmented);
        assert_eq!(outcome(Errno::EINVAL), Outcome::NotSegmented);
        assert_eq!(outcome(Errno::ENETUNREACH), Outcome::Failed(Errno::ENETUNREACH));
    }
}
