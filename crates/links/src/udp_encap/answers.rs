//! Sends answers to strangers: single datagrams to many destinations in few system calls, from the sockets for strangers.

use std::os::fd::AsFd;

use nix::errno::Errno;
use smallvec::SmallVec;

use super::UdpEncap;
use crate::link::Transmit;
use crate::socket_address::RawAddress;
use crate::sockets::{Batch, Cutting, SEND_TRIES_MAX, Sockets, is_icmp_error, packet_control};
use crate::syscalls::{MESSAGES_MAX, OutgoingDatagram, send_to_many};

impl UdpEncap {
    /// Sends datagrams to which fragmentation does not apply together, socket by socket, the others one by one.
    pub(super) fn send_answers(&mut self, transmits: &[Transmit<'_>]) {
        for transmits in transmits.chunks(MESSAGES_MAX) {
            let batches: SmallVec<[Batch<'_>; MESSAGES_MAX]> = transmits
                .iter()
                .filter_map(|transmit| self.sockets.batch_apart(transmit).ok().flatten())
                .collect();
            for index in 0..self.sockets.list.len() {
                self.sockets.send_together(index, &batches);
            }
            for batch in batches.iter().filter(|batch| !goes_with_others(batch)) {
                let result = self.send_from(batch);
                let _ = self.sockets.lose_blocked(result);
            }
        }
    }
}

/// Returns whether a transmit can be sent with others: it is one datagram, and so short that no network fragments it.
fn goes_with_others(batch: &Batch<'_>) -> bool {
    batch.total_bytes <= batch.transmit.segment_bytes && Cutting::of(batch).is_none()
}

impl Sockets {
    /// Sends those of at most `MESSAGES_MAX` batches that go together and belong to one socket.
    fn send_together(&mut self, index: usize, batches: &[Batch<'_>]) {
        let mut leaving: SmallVec<[OutgoingDatagram<'_>; MESSAGES_MAX]> = SmallVec::new();
        let mut bytes: SmallVec<[usize; MESSAGES_MAX]> = SmallVec::new();
        for batch in batches.iter().filter(|batch| batch.index == index && goes_with_others(batch)) {
            let socket = &self.list[index];
            leaving.push(OutgoingDatagram {
                to: RawAddress::encode(batch.remote, socket.inner.ipv6),
                slices: batch.transmit.slices,
                control: packet_control(batch, socket),
            });
            bytes.push(batch.total_bytes);
        }
        let (mut sent, mut tries) = (0, 0);
        while sent < leaving.len() {
            let socket = &mut self.list[index];
            match send_to_many(socket.inner.fd.as_fd(), &leaving[sent..]) {
                Ok(count) => {
                    self.stats.batches_sent += 1;
                    self.stats.datagrams_sent += count as u64;
                    self.stats.bytes_sent += bytes[sent..sent + count].iter().sum::<usize>() as u64;
                    (sent, tries) = (sent + count, 0);
                }
                Err(errno) if is_icmp_error(errno) && tries < SEND_TRIES_MAX => {
                    socket.reports_waiting = true;
                    tries += 1;
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => {
                    self.stats.send_lost += (leaving.len() - sent) as u64;
                    return;
                }
                // The first of them has no route to its destination.
                Err(_) => {
                    self.stats.send_failed += 1;
                    (sent, tries) = (sent + 1, 0);
                }
            }
        }
    }
}
