//! The way up: batches into blocks.

use std::os::fd::AsFd;

use bytes::Bytes;
use nix::errno::Errno;

use crate::LinkStats;
use crate::blocks::RECEIVE_BYTES;
use crate::link::{Datagrams, Sink};
use crate::socket_address::RawAddress;
use crate::sockets::{About, Socket, Sockets};
use crate::syscalls::{Arrived, SLOTS_MAX, receive_message, receive_messages};

/// Room for a packet of a stranger: none that starts an association is as long.
const SLOT_BYTES: usize = RECEIVE_BYTES / SLOTS_MAX;

/// One system call: a batch, or a single datagram. Returns its bytes.
pub(super) fn receive_batch(
    sockets: &mut Sockets,
    index: usize,
    sink: &mut dyn Sink,
) -> Result<usize, Errno> {
    let Sockets { list, blocks, control, stats, .. } = sockets;
    let socket = &mut list[index];
    let mut from = RawAddress::empty();
    let room = blocks.room();
    let received = receive_message(socket.inner.fd.as_fd(), &mut from, room, RECEIVE_BYTES, control, 0)?;
    let about = About::read(&control[..received.control_bytes]);
    socket.count_overflows(&about, stats);
    let arrival = Arrival { from, bytes: received.bytes, truncated: received.truncated, about };
    if arrival.is_whole() {
        arrival.hand_on(socket, blocks.take(), stats, sink);
    } else {
        stats.receive_discarded += 1;
        blocks.discard();
    }
    Ok(received.bytes)
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

    fn hand_on(self, socket: &Socket, payload: Bytes, stats: &mut LinkStats, sink: &mut dyn Sink) {
        let Some(remote) = self.from.decode() else {
            stats.receive_discarded += 1;
            return;
        };
        let segment_bytes = self.about.segment_bytes.filter(|bytes| *bytes > 0).unwrap_or(self.bytes);
        stats.batches_received += 1;
        stats.datagrams_received += self.bytes.div_ceil(segment_bytes) as u64;
        stats.bytes_received += self.bytes as u64;
        sink.datagrams(Datagrams {
            remote,
            local: self.about.local.unwrap_or_else(|| socket.inner.bound.ip()),
            ecn: self.about.ecn,
            segment_bytes: segment_bytes.min(self.bytes),
            payload,
        });
    }
}

/// Receives from sockets for strangers: many small datagrams a call.
#[derive(Default)]
pub(super) struct Strangers {
    arrived: Vec<Arrived>,
}

impl Strangers {
    /// One system call. Returns the bytes that it brought.
    pub(super) fn receive_many(
        &mut self,
        sockets: &mut Sockets,
        index: usize,
        sink: &mut dyn Sink,
    ) -> Result<usize, Errno> {
        let Sockets { list, blocks, stats, .. } = sockets;
        let socket = &mut list[index];
        receive_messages(socket.inner.fd.as_fd(), blocks.room(), SLOT_BYTES, &mut [], &mut self.arrived)?;
        let mut bytes = 0;
        for arrived in self.arrived.drain(..) {
            bytes += arrived.bytes;
            let about = About::read(&arrived.control[..arrived.control_bytes]);
            socket.count_overflows(&about, stats);
            let Arrived { from, bytes, truncated, block, .. } = arrived;
            let arrival = Arrival { from, bytes, truncated, about };
            if arrival.is_whole() {
                arrival.hand_on(socket, block.freeze(), stats, sink);
            } else {
                stats.receive_discarded += 1;
            }
        }
        Ok(bytes)
    }
}
