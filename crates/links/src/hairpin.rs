//! A link that delivers packets to its own addresses in memory, like the loopback interface in the kernel.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use bytes::Bytes;

use crate::LinkStats;
use crate::blocks::{Blocks, RECEIVE_BYTES};
use crate::link::{BatchLimits, Datagrams, ECN, Expected, Link, PathInfo, Sink, Transmit};
use crate::sockets::canonical;

/// Maximum number of bytes that wait for `receive`, not counting one more batch.
const HELD_BYTES_MAX: usize = 1 << 20;
/// Number of receives in a row from memory after which the link below is asked.
const TURNS_MAX: u32 = 16;

/// Delivers packets to own addresses in memory: packets from one address of this link to another, which the kernel would only
/// carry from one of its sockets to another. All other packets go to the link below.
///
/// Packets delivered in memory pass no interface, so captures and packet filters do not see them. [`Link::held_bytes`] returns
/// how many bytes wait: no descriptor becomes ready for them.
///
/// # Examples
///
/// ```
/// use links::{Hairpin, Link, UdpEncap, UdpEncapConfig};
///
/// let config = UdpEncapConfig { addresses: vec!["127.0.0.1".parse()?], port: 0, ..Default::default() };
/// let link = Hairpin::new(UdpEncap::bind(&config)?);
/// assert_eq!(link.held_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hairpin<L> {
    link: L,
    bound: Vec<SocketAddr>,
    /// Our ports of the protocol above, if the link has no ports of its own.
    ports: Vec<u16>,
    held: VecDeque<Datagrams>,
    held_bytes: usize,
    turns: u32,
    blocks: Blocks,
    stats: LinkStats,
}

impl<L: Link> Hairpin<L> {
    /// Wraps `link`, whose sockets must not be bound to interfaces.
    pub fn new(link: L) -> Self {
        Hairpin {
            bound: link.local_addresses(),
            link,
            ports: Vec::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            turns: 0,
            blocks: Blocks::new(),
            stats: LinkStats::default(),
        }
    }

    /// Returns the source of a batch as its receiver sees it. `None`: the batch is not for this link, or it is invalid and the
    /// link below reports the error.
    fn source_of(&self, transmit: &Transmit<'_>, remote: SocketAddr, bytes: usize) -> Option<SocketAddr> {
        let port = self.port_at(remote.ip())?;
        if bytes == 0 || bytes > RECEIVE_BYTES || transmit.segment_bytes == 0 || remote.port() != port {
            return None;
        }
        if !self.is_own(remote.ip()) || !self.link.has_ports() && !self.is_for_our_ports(transmit) {
            return None;
        }
        let source = match transmit.local {
            Some(local) => local.to_canonical(),
            None => self.source_for(remote)?,
        };
        let sends = source.is_ipv6() == remote.is_ipv6() && (source == remote.ip() || self.is_own(source));
        let from = self.port_at(source).filter(|_| sends)?;
        Some(SocketAddr::new(source, from))
    }

    /// Returns the port of the socket that receives at an address of this host.
    fn port_at(&self, address: IpAddr) -> Option<u16> {
        let dual_stack = self.link.has_ports() && !self.bound.iter().any(SocketAddr::is_ipv4);
        let receives = |bound: &&SocketAddr| {
            let family = bound.is_ipv6() == address.is_ipv6() || dual_stack;
            bound.ip() == address || bound.ip().is_unspecified() && family
        };
        self.bound.iter().find(receives).map(SocketAddr::port)
    }

    /// Returns whether packets to an address arrive on this host, whatever their interface. That of link-local addresses is left
    /// to the kernel.
    fn is_own(&self, address: IpAddr) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        !is_link_local && self.link.is_same_host(address)
    }

    /// Returns the source address that the kernel would choose.
    fn source_for(&self, remote: SocketAddr) -> Option<IpAddr> {
        let path = self.link.path_info(remote);
        path.local.or(path.route_local)
    }

    /// Returns whether a batch is certainly for this link: other programs may have other ports at the same addresses.
    fn is_for_our_ports(&self, transmit: &Transmit<'_>) -> bool {
        let mut header = transmit.slices.iter().flat_map(|slice| slice.iter());
        let port = header.nth(2).zip(header.next()).map(|(high, low)| u16::from_be_bytes([*high, *low]));
        port.is_some_and(|port| self.ports.contains(&port))
    }

    /// Holds a batch. A single datagram refers to the slices in `shared`; everything else is copied.
    fn hold(
        &mut self,
        transmit: &Transmit<'_>,
        shared: &[(usize, &Bytes)],
        remote: SocketAddr,
        from: SocketAddr,
        bytes: usize,
    ) {
        let room = self.blocks.room();
        let mut shared = if bytes <= transmit.segment_bytes { shared } else { &[] }.iter().peekable();
        let mut parts = Vec::with_capacity(shared.len());
        for (index, slice) in transmit.slices.iter().enumerate() {
            match shared.next_if(|(at, _)| *at == index) {
                Some((_, part)) => parts.push((room.len(), Bytes::clone(part))),
                None => room.extend_from_slice(slice),
            }
        }
        let segment_bytes = transmit.segment_bytes.min(bytes);
        self.held_bytes += bytes;
        self.stats.batches_sent += 1;
        self.stats.datagrams_sent += bytes.div_ceil(segment_bytes) as u64;
        self.stats.bytes_sent += bytes as u64;
        self.held.push_back(Datagrams {
            remote: from,
            local: remote.ip(),
            ecn: transmit.traffic_class & ECN,
            segment_bytes,
            payload: self.blocks.take(),
            shared: parts,
            block_bytes: bytes,
        });
    }
}

impl<L: Link> Link for Hairpin<L> {
    fn local_addresses(&self) -> Vec<SocketAddr> {
        self.link.local_addresses()
    }

    fn path_info(&self, remote: SocketAddr) -> PathInfo {
        self.link.path_info(remote)
    }

    fn is_same_host(&self, address: IpAddr) -> bool {
        self.link.is_same_host(address)
    }

    fn batch_limits(&self) -> BatchLimits {
        self.link.batch_limits()
    }

    /// Delivers the packets in memory without a system call; asks the system if there are none, and at intervals.
    fn receive(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        if !self.held.is_empty() {
            self.receive_held(sink);
            self.turns += 1;
            if self.turns < TURNS_MAX {
                return Ok(false);
            }
        }
        self.turns = 0;
        self.link.receive(sink)
    }

    fn receive_held(&mut self, sink: &mut dyn Sink) {
        for datagrams in self.held.drain(..) {
            let bytes = datagrams.total_bytes();
            self.stats.batches_received += 1;
            self.stats.datagrams_received += bytes.div_ceil(datagrams.segment_bytes) as u64;
            self.stats.bytes_received += bytes as u64;
            sink.held_datagrams(datagrams);
        }
        self.held_bytes = 0;
    }

    fn transmit(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.link.transmit(transmit)
    }

    fn transmit_apart(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.link.transmit_apart(transmit)
    }

    fn turn_back(&mut self, transmit: &Transmit<'_>, shared: &[(usize, &Bytes)]) -> Option<io::Result<()>> {
        let remote = canonical(transmit.remote);
        let bytes = transmit.slices.iter().map(|slice| slice.len()).sum();
        let from = self.source_of(transmit, remote, bytes)?;
        if self.held_bytes >= HELD_BYTES_MAX {
            self.stats.send_blocked += 1;
            return Some(Err(io::ErrorKind::WouldBlock.into()));
        }
        self.hold(transmit, shared, remote, from, bytes);
        Some(Ok(()))
    }

    fn transmit_answers(&mut self, transmits: &[Transmit<'_>]) {
        let mut others = Vec::new();
        for transmit in transmits {
            let remote = canonical(transmit.remote);
            let bytes = transmit.slices.iter().map(|slice| slice.len()).sum();
            match self.source_of(transmit, remote, bytes) {
                Some(from) if self.held_bytes < HELD_BYTES_MAX => {
                    self.hold(transmit, &[], remote, from, bytes)
                }
                Some(_) => self.stats.send_blocked += 1,
                None => others.push(*transmit),
            }
        }
        self.link.transmit_answers(&others);
    }

    fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn has_ports(&self) -> bool {
        self.link.has_ports()
    }

    fn set_ports(&mut self, ports: &[u16]) -> io::Result<()> {
        self.link.set_ports(ports)?;
        self.ports = ports.to_vec();
        Ok(())
    }

    fn set_expected(&mut self, expected: Expected<'_>) -> bool {
        self.link.set_expected(expected)
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>)) {
        self.link.descriptors(visit);
    }

    fn stats(&self) -> LinkStats {
        let (below, here) = (self.link.stats(), &self.stats);
        LinkStats {
            batches_received: below.batches_received + here.batches_received,
            datagrams_received: below.datagrams_received + here.datagrams_received,
            bytes_received: below.bytes_received + here.bytes_received,
            batches_sent: below.batches_sent + here.batches_sent,
            datagrams_sent: below.datagrams_sent + here.datagrams_sent,
            bytes_sent: below.bytes_sent + here.bytes_sent,
            send_blocked: below.send_blocked + here.send_blocked,
            datagrams_turned_back: here.datagrams_sent,
            blocks_allocated: below.blocks_allocated + self.blocks.allocated,
            blocks_reused: below.blocks_reused + self.blocks.reused,
            ..below
        }
    }
}
