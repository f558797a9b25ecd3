//! SCTP packets in UDP datagrams (RFC 6951), in batches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use crate::bind::{BoundSocket, open_all};
use crate::blocks::{Blocks, RECEIVE_BYTES};
use crate::control::RECEIVE_CONTROL_BYTES;
use crate::link::{BatchLimits, Link, PathInfo, Sink, Transmit, Unreachable};
use crate::route::{Routes, payload_bytes};
use crate::{BindError, LinkStats, UdpEncapConfig};

mod receive;
mod send;

/// A batch of more bytes can arrive split into its segments; a receive offload counts headers in its 65,535.
const BATCH_BYTES_MAX: usize = 65_300;
/// Reports of our own that wait for the next `receive`; one for each path is enough.
const PENDING_REPORTS_MAX: usize = 16;
/// Bytes of our packet that a report brings along.
const QUOTED_BYTES_MAX: usize = 512;
/// The share of the receive buffer that may be on the way on the same host, and the most.
const IN_FLIGHT_PERCENT: usize = 65;
const IN_FLIGHT_BYTES_MAX: usize = 1 << 20;
/// The kernel charges up to 71 KB for a batch of 65,000 bytes.
const CHARGE_PERCENT: usize = 110;

/// A link over UDP sockets, one for each local address.
///
/// A batch allocates nothing in either direction, and a bounded number of receive blocks is kept.
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
        let segments_max = if config.offload { send::segments_max() } else { 1 };
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
        self.send(transmit)
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
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(address.ip().to_canonical(), v6.port())
        }
        address => address,
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
