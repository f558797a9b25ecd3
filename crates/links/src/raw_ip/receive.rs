//! The way up: many packets a call, or a large one.

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

/// Room for a packet as Ethernet carries it, with the longest IP header.
const SLOT_BYTES: usize = RECEIVE_BYTES / SLOTS_MAX;
/// So many small packets in a row, and many are received in one call again.
const SMALL_RUN: u32 = 8;
/// The fixed part of an IPv4 header (RFC 791 §3.1).
const IPV4_HEADER_BYTES: usize = 20;

/// How packets are received.
///
/// Slots of 2 KB hold what networks carry. A larger packet does not fit one and is put together from its slot and a
/// spill, which copies it; where such packets come, as on loopback, they are received one by one and in place.
pub(super) struct Receiver {
    slots: Vec<BytesMut>,
    arrivals: Arrivals,
    /// Memory that only a large packet among small ones ever touches.
    spill: Vec<u8>,
    /// Small packets to come until several are received in one call again; 0 while they are.
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

    /// One system call.
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
        receive_into_slots(fd, blocks.room(), SLOT_BYTES, spill, (slots, arrivals))?;
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
            packet.hand_on(socket, &about, stats, sink);
        }
        Ok(Taken { reads: 1, bytes, drained: reads < SLOTS_MAX })
    }

    /// One system call, one packet of any size.
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
        let received = receive_message(fd, &mut from, blocks.room(), RECEIVE_BYTES, control, 0)?;
        stats.batches_received += 1;
        self.large = if received.bytes > SLOT_BYTES { SMALL_RUN } else { self.large - 1 };
        let about = About::read(&control[..received.control_bytes]);
        socket.count_overflows(&about, stats);
        Packet { from, whole: blocks.take(), truncated: received.truncated }
            .hand_on(socket, &about, stats, sink);
        Ok(Taken { reads: 1, bytes: received.bytes, drained: false })
    }
}

/// Hands on a packet of a stranger.
pub(super) fn hand_on_stranger(
    socket: &Socket,
    packet: strangers::receive::Packet,
    stats: &mut LinkStats,
    sink: &mut dyn Sink,
) {
    let strangers::receive::Packet { from, about, bytes } = packet;
    Packet { from, whole: bytes, truncated: false }.hand_on(socket, &about, stats, sink);
}

fn join(slot: &[u8], spill: &[u8], bytes: usize) -> Bytes {
    let mut whole = BytesMut::with_capacity(bytes);
    whole.extend_from_slice(slot);
    whole.extend_from_slice(&spill[..bytes - slot.len()]);
    whole.freeze()
}

/// A packet from a socket: over IPv4 with the IP header.
struct Packet {
    from: RawAddress,
    whole: Bytes,
    truncated: bool,
}

impl Packet {
    fn hand_on(self, socket: &Socket, about: &About, stats: &mut LinkStats, sink: &mut dyn Sink) {
        let Some(datagrams) = self.datagrams(socket, about) else {
            stats.receive_discarded += 1;
            return;
        };
        stats.datagrams_received += 1;
        stats.bytes_received += datagrams.payload.len() as u64;
        sink.datagrams(datagrams);
    }

    /// `None`: it is empty, cut short, or from an address of no known family.
    fn datagrams(self, socket: &Socket, about: &About) -> Option<Datagrams> {
        let Packet { from, whole: mut payload, truncated } = self;
        if truncated {
            return None;
        }
        let mut remote = from.decode()?;
        // A raw socket has its protocol for a port.
        remote.set_port(0);
        let (local, ecn) = if remote.is_ipv4() {
            strip_ipv4_header(&mut payload)?
        } else {
            (about.local.unwrap_or_else(|| socket.inner.bound.ip()), about.ecn)
        };
        let segment_bytes = payload.len();
        // It may have a whole slot.
        let block_bytes = segment_bytes.max(SLOT_BYTES);
        (segment_bytes > 0).then_some(Datagrams { remote, local, ecn, segment_bytes, payload, block_bytes })
    }
}

/// Takes the IP header away, and from it the destination and the ECN field.
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
