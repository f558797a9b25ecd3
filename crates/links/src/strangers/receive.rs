//! Receives packets of strangers, many small ones in one call.

use std::os::fd::AsFd;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use nix::errno::Errno;

use crate::LinkStats;
use crate::blocks::RECEIVE_BYTES;
use crate::link::Sink;
use crate::socket_address::RawAddress;
use crate::sockets::{About, Socket, Sockets, Taken};
use crate::syscalls::{Arrivals, SLOTS_MAX, dropped_packets, receive_into_parts};

/// Room for a packet of a stranger, and some cache lines more: the beginnings of the slots, which all packets use, would
/// otherwise take each other's places in the cache.
const SLOT_BYTES: usize = RECEIVE_BYTES + 5 * 64;
/// Memory for the packets of a few calls. Packets of peers lie elsewhere: a flood would fill the blocks of their batches.
const PACKETS_BYTES: usize = 16 * 1024;

/// A whole received packet; a raw IPv4 socket includes the IP header.
pub(crate) struct Packet {
    pub(crate) from: RawAddress,
    pub(crate) about: About,
    pub(crate) bytes: Bytes,
}

/// Receives many packets of strangers a call.
///
/// The slots are the same each time, so they stay in the cache, and the packets are copied out. Each has room for the longest
/// packet; of most of them one page is ever used, and the system provides no more.
#[derive(Default)]
pub(crate) struct Strangers {
    /// Empty until the first packet.
    slots: Vec<u8>,
    arrivals: Arrivals,
    /// Room that the next packets are copied into.
    room: BytesMut,
}

impl Strangers {
    /// Makes one system call, and passes each packet to `deliver`.
    pub(crate) fn receive(
        &mut self,
        sockets: &mut Sockets,
        index: usize,
        sink: &mut dyn Sink,
        deliver: impl Fn(&Socket, Packet, &mut LinkStats, &mut dyn Sink),
    ) -> Result<Taken, Errno> {
        let Sockets { list, stats, .. } = sockets;
        let socket = &mut list[index];
        if self.slots.is_empty() {
            self.slots = vec![0; SLOTS_MAX * SLOT_BYTES];
        }
        let reads = receive_into_parts(socket.inner.fd.as_fd(), &mut self.slots, &mut self.arrivals)?;
        stats.batches_received += 1;
        // A report with each packet of a flood would take a tenth of the time that it takes to receive it.
        if let Ok(overflows) = dropped_packets(socket.inner.fd.as_fd()) {
            socket.count_overflows_to(overflows, stats);
        }
        let (mut bytes, now) = (0, Instant::now());
        for (arrived, slot) in self.arrivals.iter(reads).zip(self.slots.chunks_exact(SLOT_BYTES)) {
            bytes += arrived.bytes;
            let about = About::read(arrived.control);
            socket.count_for_thinning(now, &arrived.from, stats);
            if arrived.bytes == 0 || arrived.truncated {
                stats.receive_discarded += 1;
                continue;
            }
            let bytes = copy_into(&mut self.room, &slot[..arrived.bytes]);
            let packet = Packet { from: arrived.from, about, bytes };
            deliver(socket, packet, stats, sink);
        }
        Ok(Taken { reads, bytes, drained: reads < SLOTS_MAX })
    }
}

/// Copies a packet into the room, or into a new one: that of earlier packets if they have been handled.
fn copy_into(room: &mut BytesMut, packet: &[u8]) -> Bytes {
    if room.capacity() < packet.len() && !room.try_reclaim(PACKETS_BYTES.max(packet.len())) {
        *room = BytesMut::with_capacity(PACKETS_BYTES.max(packet.len()));
    }
    room.extend_from_slice(packet);
    room.split().freeze()
}
