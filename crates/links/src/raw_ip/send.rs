//! Sends a batch with one system call.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use nix::errno::Errno;
use smallvec::SmallVec;

use super::RawIp;
use crate::link::Transmit;
use crate::socket_address::RawAddress;
use crate::sockets::{Batch, Outcome, SEND_TRIES_MAX, canonical, is_icmp_error, packet_control};
use crate::syscalls::{MESSAGES_MAX, send_messages};

/// The packets of a batch, each a run of slices.
#[derive(Default)]
struct Packets<'a> {
    slices: SmallVec<[IoSlice<'a>; 2 * MESSAGES_MAX]>,
    /// Number of slices of each packet.
    counts: SmallVec<[usize; MESSAGES_MAX]>,
}

impl RawIp {
    /// Sends the packets of a batch. If the send buffer fills up midway, the rest is lost as on a full link, because the caller
    /// must not send the first ones again.
    pub(super) fn send(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.sockets.batch(transmit)? {
            Some(batch) => self.send_batch(&batch),
            None => Ok(()),
        }
    }

    /// Sends a batch from the socket that it is assigned to.
    pub(super) fn send_batch(&mut self, batch: &Batch<'_>) -> io::Result<()> {
        let transmit = batch.transmit;
        let packets = Packets::cut(transmit.slices, transmit.segment_bytes);
        let (mut slices, mut counts) = (&packets.slices[..], &packets.counts[..]);
        while !counts.is_empty() {
            let first = counts.len() == packets.counts.len();
            let (outcome, sent) = match self.send_some(batch, slices, counts) {
                (Outcome::Blocked, 0) if !first => (Outcome::Dropped, counts.len()),
                (outcome, sent) => (outcome, sent.max(1)),
            };
            let (gone, rest) = slices.split_at(counts[..sent].iter().sum());
            (slices, counts) = (rest, &counts[sent..]);
            let bytes = gone.iter().map(|slice| slice.len()).sum();
            self.sockets.account(batch, outcome, sent, bytes)?;
        }
        Ok(())
    }

    /// Sends packets with one system call, which is repeated while it only reports an ICMP error of an earlier packet, or an
    /// interface that exists again. Returns the number of sent packets.
    fn send_some(&mut self, batch: &Batch<'_>, slices: &[IoSlice<'_>], counts: &[usize]) -> (Outcome, usize) {
        let socket = &mut self.sockets.list[batch.index];
        if let Err(errno) = socket.allow_cutting(batch) {
            return (Outcome::Failed(errno), 0);
        }
        let mut remote = canonical(batch.remote);
        // The kernel interprets the port as a protocol here.
        remote.set_port(0);
        let to = RawAddress::encode(remote, socket.inner.ipv6);
        let control = packet_control(batch, socket);
        let mut tries = 0;
        loop {
            tries += 1;
            match send_messages(socket.inner.fd.as_fd(), &to, slices, counts, control.as_bytes()) {
                Ok(sent) => return (Outcome::Sent, sent),
                Err(errno) if is_icmp_error(errno) && tries < SEND_TRIES_MAX => socket.reports_waiting = true,
                Err(Errno::ENODEV) if tries < SEND_TRIES_MAX && socket.bind_anew() => {}
                Err(errno) => return (Outcome::of(errno), 0),
            }
        }
    }
}

impl<'a> Packets<'a> {
    /// Splits a batch at multiples of `segment_bytes`.
    fn cut(slices: &'a [IoSlice<'a>], segment_bytes: usize) -> Self {
        let mut packets = Packets::default();
        let (mut room, mut count) = (segment_bytes, 0);
        for slice in slices {
            let mut rest: &'a [u8] = slice;
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.len().min(room));
                packets.slices.push(IoSlice::new(part));
                (rest, room, count) = (after, room - part.len(), count + 1);
                if room == 0 {
                    packets.counts.push(count);
                    (room, count) = (segment_bytes, 0);
                }
            }
        }
        if count > 0 {
            packets.counts.push(count);
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(slices: &[&[u8]], segment_bytes: usize) -> Vec<Vec<Vec<u8>>> {
        let slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let packets = Packets::cut(&slices, segment_bytes);
        let mut rest = packets.slices.iter();
        let packet = |count: &usize| rest.by_ref().take(*count).map(|slice| slice.to_vec()).collect();
        packets.counts.iter().map(packet).collect()
    }

    #[test]
    fn packets_begin_and_end_anywhere_in_the_slices() {
        assert_eq!(
            cut(&[b"abcdefg"], 3),
            [vec![b"abc".to_vec()], vec![b"def".to_vec()], vec![b"g".to_vec()]]
        );
        assert_eq!(
            cut(&[b"a", b"", b"bcd", b"ef"], 3),
            [vec![b"a".to_vec(), b"bc".to_vec()], vec![b"d".to_vec(), b"ef".to_vec()]]
        );
        assert_eq!(cut(&[b"abc"], 3), [vec![b"abc".to_vec()]]);
        assert_eq!(cut(&[b"abc"], 1000), [vec![b"abc".to_vec()]]);
    }
}
