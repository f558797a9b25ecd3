//! The way up for packets of strangers: many small ones a call.

use std::os::fd::AsFd;

use bytes::Bytes;
use nix::errno::Errno;

use crate::LinkStats;
use crate::blocks::RECEIVE_BYTES;
use crate::link::Sink;
use crate::socket_address::RawAddress;
use crate::sockets::{About, Socket, Sockets, Taken};
use crate::syscalls::{Arrivals, SLOTS_MAX, receive_into_parts};

/// Room for a packet of a stranger as networks carry it.
const SLOT_BYTES: usize = 2048;

/// A whole packet as a socket gave it: over IPv4 a raw socket gives the IP header, too.
pub(crate) struct Packet {
    pub(crate) from: RawAddress,
    pub(crate) about: About,
    pub(crate) bytes: Bytes,
}

/// Receives many packets of strangers a call.
///
/// They come into the same slots each time, which stay in the cache, and are copied out side by side. A longer packet is put
/// together from its slot and a spill.
#[derive(Default)]
pub(crate) struct Strangers {
    /// Both are empty until the first packet.
    slots: Vec<u8>,
    spill: Vec<u8>,
    arrivals: Arrivals,
}

impl Strangers {
    /// Makes one system call, and gives each packet to `hand_on`.
    pub(crate) fn receive(
        &mut self,
        sockets: &mut Sockets,
        index: usize,
        sink: &mut dyn Sink,
        hand_on: impl Fn(&Socket, Packet, &mut LinkStats, &mut dyn Sink),
    ) -> Result<Taken, Errno> {
        let Sockets { list, blocks, stats, .. } = sockets;
        let socket = &mut list[index];
        self.slots.resize(SLOTS_MAX * SLOT_BYTES, 0);
        self.spill.resize(SLOTS_MAX * (RECEIVE_BYTES - SLOT_BYTES), 0);
        let (slots, spill) = (&mut self.slots[..], &mut self.spill[..]);
        let reads = receive_into_parts(socket.inner.fd.as_fd(), slots, spill, &mut self.arrivals)?;
        stats.batches_received += 1;
        let mut bytes = 0;
        let parts = slots.chunks_exact(SLOT_BYTES).zip(spill.chunks_exact(RECEIVE_BYTES - SLOT_BYTES));
        for (arrived, (slot, spill)) in self.arrivals.iter(reads).zip(parts) {
            bytes += arrived.bytes;
            let about = About::read(arrived.control);
            socket.count_overflows(&about, stats);
            if arrived.bytes == 0 || arrived.truncated {
                stats.receive_discarded += 1;
                continue;
            }
            let in_slot = arrived.bytes.min(SLOT_BYTES);
            let room = blocks.room();
            room.extend_from_slice(&slot[..in_slot]);
            room.extend_from_slice(&spill[..arrived.bytes - in_slot]);
            let packet = Packet { from: arrived.from, about, bytes: blocks.take() };
            hand_on(socket, packet, stats, sink);
        }
        Ok(Taken { reads, bytes, drained: reads < SLOTS_MAX })
    }
}
