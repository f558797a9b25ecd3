//! Receives packets of strangers, many small ones in one call.

use std::os::fd::AsFd;
use std::time::Instant;

use bytes::Bytes;
use nix::errno::Errno;

use crate::LinkStats;
use crate::blocks::RECEIVE_BYTES;
use crate::link::Sink;
use crate::socket_address::RawAddress;
use crate::sockets::{About, Socket, Sockets, Taken};
use crate::syscalls::{Arrivals, SLOTS_MAX, receive_into_parts};

/// Room for a packet of a stranger of the usual size.
const SLOT_BYTES: usize = 2048;

/// A whole received packet; a raw IPv4 socket includes the IP header.
pub(crate) struct Packet {
    pub(crate) from: RawAddress,
    pub(crate) about: About,
    pub(crate) bytes: Bytes,
}

/// Receives many packets of strangers a call.
///
/// The slots are the same each time, so they stay in the cache, and the packets are copied out. A longer packet is joined from
/// its slot and a spill.
#[derive(Default)]
pub(crate) struct Strangers {
    /// Both are empty until the first packet.
    slots: Vec<u8>,
    spill: Vec<u8>,
    arrivals: Arrivals,
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
        let Sockets { list, blocks, stats, .. } = sockets;
        let socket = &mut list[index];
        self.slots.resize(SLOTS_MAX * SLOT_BYTES, 0);
        self.spill.resize(SLOTS_MAX * (RECEIVE_BYTES - SLOT_BYTES), 0);
        let (slots, spill) = (&mut self.slots[..], &mut self.spill[..]);
        let reads = receive_into_parts(socket.inner.fd.as_fd(), slots, spill, &mut self.arrivals)?;
        stats.batches_received += 1;
        let (mut bytes, now) = (0, Instant::now());
        let parts = slots.chunks_exact(SLOT_BYTES).zip(spill.chunks_exact(RECEIVE_BYTES - SLOT_BYTES));
        for (arrived, (slot, spill)) in self.arrivals.iter(reads).zip(parts) {
            bytes += arrived.bytes;
            let about = About::read(arrived.control);
            socket.count_overflows(&about, stats);
            socket.count_for_thinning(now, &arrived.from, stats);
            if arrived.bytes == 0 || arrived.truncated {
                stats.receive_discarded += 1;
                continue;
            }
            let in_slot = arrived.bytes.min(SLOT_BYTES);
            let room = blocks.room();
            room.extend_from_slice(&slot[..in_slot]);
            room.extend_from_slice(&spill[..arrived.bytes - in_slot]);
            let packet = Packet { from: arrived.from, about, bytes: blocks.take() };
            deliver(socket, packet, stats, sink);
        }
        Ok(Taken { reads, bytes, drained: reads < SLOTS_MAX })
    }
}
