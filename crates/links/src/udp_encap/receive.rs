//! The way up: batches into blocks.

use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::blocks::RECEIVE_BYTES;
use crate::link::{Datagrams, Sink};
use crate::socket_address::RawAddress;
use crate::sockets::{About, Sockets};
use crate::syscalls::receive_message;

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
    let Some(remote) = from.decode().filter(|_| received.bytes > 0 && !received.truncated) else {
        stats.receive_discarded += 1;
        blocks.discard();
        return Ok(received.bytes);
    };
    let segment_bytes = about.segment_bytes.filter(|bytes| *bytes > 0).unwrap_or(received.bytes);
    stats.batches_received += 1;
    stats.datagrams_received += received.bytes.div_ceil(segment_bytes) as u64;
    stats.bytes_received += received.bytes as u64;
    sink.datagrams(Datagrams {
        remote,
        local: about.local.unwrap_or_else(|| socket.inner.bound.ip()),
        ecn: about.ecn,
        segment_bytes: segment_bytes.min(received.bytes),
        payload: blocks.take(),
    });
    Ok(received.bytes)
}
