//! Receives packets: many in one call, or one large packet.

use std::net::IpAddr;
use std::os::fd::AsFd;

use bytes::{Buf, Bytes, BytesMut};
use nix::errno::Errno;

use crate::LinkStats;
use crate::blocks::RECEIVE_BYTES;
use crate::link::{Datagrams, ECN, Sink};
use crate::socket_address::RawAddress;
use crate::sockets::{About, Socket, Sockets, Taken};
use crate::strangers;
use crate::syscalls::{Arrivals, SLOTS_MAX, receive_into_slots, receive_message};

/// Room for a packet of an Ethernet with the longest IP header.
const SLOT_BYTES: usize = RECEIVE_BYTES / SLOTS_MAX;
/// Number of small packets in a row after which several are received in one call again.
const SMALL_RUN: u32 = 8;
/// The fixed part of an IPv4 header (RFC 791 §3.1).
const IPV4_HEADER_BYTES: usize = 20;

/// Receives packets in slots, or in place.
///
/// Slots of 2 KB hold the packets of networks. A larger packet does not fit a slot and is joined from its slot and a spill, which
/// copies it. When such packets arrive, as on loopback, they are received one by one and in place.
pub(super) struct Receiver {
    slots: Vec<BytesMut>,
    arrivals: Arrivals,
    /// Memory for the rest of a large packet among small ones.
    spill: Vec<u8>,
    /// Number of further small packets after which several are received in one call again; 0 while they are.
    large: u32,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Receiver {
            slots: Vec::with_capacity(SLOTS_MAX),
            arrivals: Arrivals::default(),
            spill: vec![0; SLOTS_MAX * (RECEIVE_BYTES - SLOT_BYTES)],
            large: 0,
        }
    }

    /// Receives packets with one system call.
    pub(super) fn receive_batch(
        &mut self,
        sockets: &mut Sockets,
        index: usize,
        sink: &mut dyn Sink,
    ) -> Result<Taken, Errno> {
        if self.large > 0 {
            return self.receive_large(sockets, index, sink);
        }
        let Sockets { list, blocks, stats, .. } = sockets;
        let socket = &mut list[index];
        let fd = socket.inner.fd.as_fd();
        let Receiver { slots, arrivals, spill, .. } = self;
        receive_into_slots(fd, blocks.aligned_room(), SLOT_BYTES, spill, (slots, arrivals))?;
        stats.batches_received += 1;
        let (mut bytes, reads) = (0, self.slots.len());
        for ((block, arrived), spill) in self
            .slots
            .drain(..)
            .zip(self.arrivals.iter(reads))
            .zip(self.spill.chunks_exact(RECEIVE_BYTES - SLOT_BYTES))
        {
            bytes += arrived.bytes;
            let about = About::read(arrived.control);
            socket.count_overflows(&about, stats);
            let whole = if arrived.bytes > block.len() && !arrived.truncated {
                self.large = SMALL_RUN;
                join(&block, spill, arrived.bytes)
            } else {
                block.freeze()
            };
            let packet = Packet { from: arrived.from, whole, truncated: arrived.truncated };
            packet.deliver(socket, &about, stats, sink);
        }
        Ok(Taken { reads: 1, bytes, drained: reads < SLOTS_MAX })
    }

    /// Receives one packet of any size with one system call.
    fn receive_large(
        &mut self,
        sockets: &mut Sockets,
        index: usize,
        sink: &mut dyn Sink,
    ) -> Result<Taken, Errno> {
        let Sockets { list, blocks, control, stats, .. } = sockets;
        let socket = &mut list[index];
        let mut from = RawAddress::empty();
        let fd = socket.inner.fd.as_fd();
        let received = receive_message(fd, &mut from, blocks.aligned_room(), RECEIVE_BYTES, control, 0)?;
        stats.batches_received += 1;
        self.large = if received.bytes > SLOT_BYTES { SMALL_RUN } else { self.large - 1 };
        let about = About::read(&control[..received.control_bytes]);
        socket.count_overflows(&about, stats);
        Packet { from, whole: blocks.take(), truncated: received.truncated }
            .deliver(socket, &about, stats, sink);
        Ok(Taken { reads: 1, bytes: received.bytes, drained: false })
    }
}

/// Delivers a packet of a stranger.
pub(super) fn deliver_stranger(
    socket: &Socket,
    packet: strangers::receive::Packet,
    stats: &mut LinkStats,
    sink: &mut dyn Sink,
) {
    let strangers::receive::Packet { from, about, bytes } = packet;
    Packet { from, whole: bytes, truncated: false }.deliver(socket, &about, stats, sink);
}

fn join(slot: &[u8], spill: &[u8], bytes: usize) -> Bytes {
    let mut whole = BytesMut::with_capacity(bytes);
    whole.extend_from_slice(slot);
    whole.extend_from_slice(&spill[..bytes - slot.len()]);
    whole.freeze()
}

/// A received packet; over IPv4 it includes the IP header.
struct Packet {
    from: RawAddress,
    whole: Bytes,
    truncated: bool,
}

impl Packet {
    fn deliver(self, socket: &Socket, about: &About, stats: &mut LinkStats, sink: &mut dyn Sink) {
        let Some(datagrams) = self.datagrams(socket, about) else {
            stats.receive_discarded += 1;
            return;
        };
        stats.datagrams_received += 1;
        stats.bytes_received += datagrams.payload.len() as u64;
        sink.datagrams(datagrams);
    }

    /// Returns the packet as datagrams. `None`: it is empty, truncated, or from an unknown address family.
    fn datagrams(self, socket: &Socket, about: &About) -> Option<Datagrams> {
        let Packet { from, whole: mut payload, truncated } = self;
        if truncated {
            return None;
        }
        let mut remote = from.decode()?;
        // A raw socket reports its protocol as the port.
        remote.set_port(0);
        let (local, ecn) = if remote.is_ipv4() {
            strip_ipv4_header(&mut payload)?
        } else {
            (about.local.unwrap_or_else(|| socket.inner.bound.ip()), about.ecn)
        };
        let segment_bytes = payload.len();
        // The packet may occupy a whole slot.
        let block_bytes = segment_bytes.max(SLOT_BYTES);
        let shared = Vec::new();
        (segment_bytes > 0).then_some(Datagrams {
            remote,
            local,
            ecn,
            segment_bytes,
            payload,
            shared,
            block_bytes,
        })
    }
}

/// Removes the IP header; returns the destination and the ECN field.
fn strip_ipv4_header(packet: &mut Bytes) -> Option<(IpAddr, u8)> {
    let header = packet.first_chunk::<IPV4_HEADER_BYTES>()?;
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    let local = IpAddr::from([header[16], header[17], header[18], header[19]]);
    let ecn = header[1] & ECN;
    if !(IPV4_HEADER_BYTES..=packet.len()).contains(&header_bytes) {
        return None;
    }
    packet.advance(header_bytes);
    Some((local, ecn))
}
