//! Receives batches into blocks.

use std::os::fd::AsFd;

use bytes::{Bytes, BytesMut};
use nix::errno::Errno;

use crate::LinkStats;
use crate::blocks::{RECEIVE_BYTES, aligned_room};
use crate::link::{Datagrams, Sink};
use crate::socket_address::RawAddress;
use crate::sockets::{About, Socket, Sockets, Taken};
use crate::strangers::receive::Packet;
use crate::syscalls::{Arrivals, Arrived, receive_into_rooms, receive_message};

/// Maximum number of datagrams of one call.
const ROOMS: usize = 16;
/// Maximum size of a small datagram.
const SMALL_BYTES_MAX: usize = 2048;
/// Number of small datagrams in a row after which the next call receives many.
const SMALL_RUN: u32 = 2;
/// Maximum length of a datagram that is copied out of its room: a longer one keeps at most twice its size.
const COPIED_BYTES_MAX: usize = RECEIVE_BYTES / 2;

/// Returns whether to receive many datagrams in one call rather than a batch.
pub(super) fn takes_many(socket: &Socket) -> bool {
    socket.small_run >= SMALL_RUN
}

/// Receives a batch or a single datagram with one system call.
pub(super) fn receive_batch(
    sockets: &mut Sockets,
    index: usize,
    sink: &mut dyn Sink,
) -> Result<Taken, Errno> {
    let Sockets { list, blocks, control, stats, .. } = sockets;
    let socket = &mut list[index];
    let mut from = RawAddress::empty();
    let room = blocks.aligned_room();
    let received = receive_message(socket.inner.fd.as_fd(), &mut from, room, RECEIVE_BYTES, control, 0)?;
    let about = About::read(&control[..received.control_bytes]);
    socket.count_overflows(&about, stats);
    stats.batches_received += 1;
    let arrival = Arrival { from, bytes: received.bytes, truncated: received.truncated, about };
    socket.small_run = if arrival.is_small() { socket.small_run.saturating_add(1) } else { 0 };
    if arrival.is_whole() {
        arrival.deliver(socket, blocks.take(), stats, sink);
    } else {
        stats.receive_discarded += 1;
        blocks.discard();
    }
    Ok(Taken { reads: 1, bytes: received.bytes, drained: false })
}

/// A batch, or a single datagram, without its bytes.
struct Arrival {
    from: RawAddress,
    bytes: usize,
    truncated: bool,
    about: About,
}

impl Arrival {
    fn is_whole(&self) -> bool {
        self.bytes > 0 && !self.truncated
    }

    fn is_small(&self) -> bool {
        self.bytes <= SMALL_BYTES_MAX && self.about.segment_bytes.is_none_or(|bytes| bytes >= self.bytes)
    }

    fn deliver(self, socket: &Socket, payload: Bytes, stats: &mut LinkStats, sink: &mut dyn Sink) {
        let Some(remote) = self.from.decode() else {
            stats.receive_discarded += 1;
            return;
        };
        let segment_bytes = self.about.segment_bytes.filter(|bytes| *bytes > 0).unwrap_or(self.bytes);
        stats.datagrams_received += self.bytes.div_ceil(segment_bytes) as u64;
        stats.bytes_received += self.bytes as u64;
        sink.datagrams(Datagrams {
            remote,
            local: self.about.local.unwrap_or_else(|| socket.inner.bound.ip()),
            ecn: self.about.ecn,
            segment_bytes: segment_bytes.min(self.bytes),
            block_bytes: payload.len(),
            payload,
            shared: Vec::new(),
        });
    }
}

/// Receives many small datagrams a call, each into a room of its own.
pub(super) struct Singles {
    rooms: Vec<BytesMut>,
    /// Number of rooms of the next call: twice what the last one filled, since preparing a room costs time.
    wanted: usize,
    arrivals: Arrivals,
}

impl Singles {
    pub(super) fn new() -> Self {
        Singles { rooms: Vec::with_capacity(ROOMS), wanted: ROOMS, arrivals: Arrivals::default() }
    }

    /// Receives many datagrams with one system call. Small datagrams are copied out, so that their rooms are reused; a batch
    /// keeps its room.
    pub(super) fn receive_many(
        &mut self,
        sockets: &mut Sockets,
        index: usize,
        sink: &mut dyn Sink,
    ) -> Result<Taken, Errno> {
        let Sockets { list, blocks, stats, .. } = sockets;
        let socket = &mut list[index];
        self.rooms.resize_with(ROOMS, aligned_room);
        let rooms = &mut self.rooms[..self.wanted];
        let reads = receive_into_rooms(socket.inner.fd.as_fd(), rooms, &mut self.arrivals)?;
        let drained = reads < self.wanted;
        self.wanted = (2 * reads).clamp(2, ROOMS);
        stats.batches_received += 1;
        let (mut bytes, mut large) = (0, 0);
        for (arrived, room) in self.arrivals.iter(reads).zip(&mut self.rooms) {
            bytes += arrived.bytes;
            let about = About::read(arrived.control);
            socket.count_overflows(&about, stats);
            let Arrived { from, bytes, truncated, .. } = arrived;
            let arrival = Arrival { from, bytes, truncated, about };
            large += usize::from(!arrival.is_small());
            if !arrival.is_whole() {
                stats.receive_discarded += 1;
                room.clear();
                continue;
            }
            let payload = if bytes > COPIED_BYTES_MAX {
                std::mem::replace(room, aligned_room()).freeze()
            } else {
                blocks.room().extend_from_slice(room);
                room.clear();
                blocks.take()
            };
            arrival.deliver(socket, payload, stats, sink);
        }
        if 2 * large > reads {
            socket.small_run = 0;
        }
        Ok(Taken { reads, bytes, drained })
    }
}

/// Delivers a packet of a stranger.
pub(super) fn deliver_stranger(socket: &Socket, packet: Packet, stats: &mut LinkStats, sink: &mut dyn Sink) {
    let Packet { from, about, bytes } = packet;
    let arrival = Arrival { from, bytes: bytes.len(), truncated: false, about };
    arrival.deliver(socket, bytes, stats, sink);
}
