//! Sends a batch with one system call, or datagram by datagram.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use nix::errno::Errno;

use super::UdpEncap;
use crate::control::ControlBuilder;
use crate::link::Transmit;
use crate::route::PACKET_BYTES_MAX;
use crate::socket_address::RawAddress;
use crate::sockets::{Batch, Outcome, SEND_TRIES_MAX, Socket, is_icmp_error, packet_control};
use crate::syscalls::{send_message, set_option};

/// Number of segments of one batch that every kernel with segmentation offload accepts, and that newer ones accept.
const SEGMENTS_MAX_OLD: usize = 64;
const SEGMENTS_MAX_NEW: usize = 128;
/// Number of refused batches in a row whose datagrams were sent singly, after which the offload counts as missing in this kernel
/// or device. One may be chance: an address that has come back between the two attempts looks the same.
const REFUSED_BATCHES_MAX: u32 = 2;
/// Maximum number of slices of one system call (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

impl UdpEncap {
    /// Sends a batch by the method that the kernel offers.
    pub(super) fn send(&mut self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.sockets.batch(transmit)? {
            Some(batch) => self.send_from(&batch),
            None => Ok(()),
        }
    }

    /// Sends a batch from the socket that it is assigned to.
    pub(super) fn send_from(&mut self, batch: &Batch<'_>) -> io::Result<()> {
        let (total_bytes, segment_bytes) = (batch.total_bytes, batch.transmit.segment_bytes);
        if total_bytes <= segment_bytes {
            return self.send_datagram(batch);
        }
        let segments = total_bytes.div_ceil(segment_bytes);
        if segments <= self.limits.segments_max && total_bytes <= PACKET_BYTES_MAX {
            return self.send_batch(batch, segments);
        }
        self.send_one_by_one(batch).map(drop)
    }

    /// Sends one datagram.
    fn send_datagram(&mut self, batch: &Batch<'_>) -> io::Result<()> {
        let outcome = self.send_slices(batch, None);
        self.sockets.account(batch, outcome, 1, batch.total_bytes)
    }

    /// Sends several datagrams in one system call, or one by one when that fails.
    fn send_batch(&mut self, batch: &Batch<'_>, segments: usize) -> io::Result<()> {
        match self.send_slices(batch, Some(batch.transmit.segment_bytes as u16)) {
            Outcome::NotSegmented | Outcome::TooBig => {
                self.sockets.routes.borrow_mut().forget(batch.remote.ip());
                let fits = batch.transmit.segment_bytes <= self.sockets.path_info(batch.remote).mtu_bytes;
                let all_sent = self.send_one_by_one(batch)?;
                if fits && all_sent {
                    self.refused_batches += 1;
                }
                if self.refused_batches == REFUSED_BATCHES_MAX {
                    self.limits.segments_max = 1;
                }
                Ok(())
            }
            outcome => {
                self.refused_batches = 0;
                self.sockets.account(batch, outcome, segments, batch.total_bytes)
            }
        }
    }

    /// Sends the datagrams of a batch singly. Returns true if the kernel accepted all. If the send buffer fills up midway, the
    /// rest is lost as on a full link, because the caller must not send the first ones again.
    fn send_one_by_one(&mut self, batch: &Batch<'_>) -> io::Result<bool> {
        let mut all = self.gather(batch.transmit.slices);
        let mut result = Ok(true);
        for (position, segment) in all.chunks(batch.transmit.segment_bytes).enumerate() {
            let slices = [IoSlice::new(segment)];
            let transmit = Transmit { slices: &slices, ..*batch.transmit };
            let single = Batch { total_bytes: segment.len(), transmit: &transmit, ..*batch };
            let outcome = match self.send_slices(&single, None) {
                Outcome::Blocked if position > 0 => Outcome::Dropped,
                outcome => outcome,
            };
            if let Err(error) = self.sockets.account(&single, outcome, 1, segment.len()) {
                result = Err(error);
                break;
            }
            if outcome != Outcome::Sent {
                result = Ok(false);
            }
        }
        all.clear();
        self.scratch = all;
        result
    }

    /// Joins slices in the scratch buffer, which the caller returns.
    fn gather(&mut self, slices: &[IoSlice<'_>]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.scratch);
        for slice in slices {
            all.extend_from_slice(slice);
        }
        all
    }

    fn send_slices(&mut self, batch: &Batch<'_>, segment_bytes: Option<u16>) -> Outcome {
        let socket = &mut self.sockets.list[batch.index];
        if let Err(errno) = socket.allow_cutting(batch) {
            return Outcome::Failed(errno);
        }
        let to = RawAddress::encode(batch.remote, socket.inner.ipv6);
        let control = send_control(batch, socket, segment_bytes);
        if batch.transmit.slices.len() <= SLICES_MAX {
            return send(socket, &to, batch.transmit.slices, control.as_bytes());
        }
        let mut all = self.gather(batch.transmit.slices);
        let socket = &mut self.sockets.list[batch.index];
        let outcome = send(socket, &to, &[IoSlice::new(&all)], control.as_bytes());
        all.clear();
        self.scratch = all;
        outcome
    }
}

/// Builds the control messages of a send: those of every packet, and the segment size if there are several.
fn send_control(batch: &Batch<'_>, socket: &Socket, segment_bytes: Option<u16>) -> ControlBuilder {
    let mut control = packet_control(batch, socket);
    if let Some(segment_bytes) = segment_bytes {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment_bytes.to_ne_bytes());
    }
    control
}

/// Sends with one system call, which is repeated while it only reports an ICMP error of an earlier datagram, or an interface that
/// exists again.
fn send(socket: &mut Socket, to: &RawAddress, slices: &[IoSlice<'_>], control: &[u8]) -> Outcome {
    let mut tries = 0;
    loop {
        tries += 1;
        match send_message(socket.inner.fd.as_fd(), to, slices, control) {
            Ok(_) => return Outcome::Sent,
            Err(errno) if is_icmp_error(errno) && tries < SEND_TRIES_MAX => socket.reports_waiting = true,
            Err(Errno::ENODEV) if tries < SEND_TRIES_MAX && socket.bind_anew() => {}
            Err(errno) => return Outcome::of(errno),
        }
    }
}

/// Returns the number of segments that this kernel accepts in one batch, determined once by sending to a socket of this process.
pub(super) fn segments_max() -> usize {
    static SEGMENTS_MAX: OnceLock<usize> = OnceLock::new();
    *SEGMENTS_MAX.get_or_init(|| probe_segments().unwrap_or(1))
}

fn probe_segments() -> Option<usize> {
    let socket =
        std::net::UdpSocket::bind("127.0.0.1:0").or_else(|_| std::net::UdpSocket::bind("[::1]:0")).ok()?;
    // A kernel without the option does not segment.
    set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0).ok()?;
    let address = socket.local_addr().ok()?;
    let to = RawAddress::encode(address, address.is_ipv6());
    let mut control = ControlBuilder::new();
    control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &1u16.to_ne_bytes());
    let payload = [0; SEGMENTS_MAX_NEW];
    match send_message(socket.as_fd(), &to, &[IoSlice::new(&payload)], control.as_bytes()) {
        Ok(_) => Some(SEGMENTS_MAX_NEW),
        Err(_) => Some(SEGMENTS_MAX_OLD),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bytes::Bytes;

    use super::*;
    use crate::sockets::QUOTED_BYTES_MAX;
    use crate::{BatchLimits, Datagrams, Link, Sink, UdpEncapConfig, Unreachable, UnreachableReason};

    #[derive(Default)]
    struct Kept(Vec<Bytes>, Vec<Unreachable>);

    impl Sink for Kept {
        fn datagrams(&mut self, datagrams: Datagrams) {
            let mut payload = datagrams.payload;
            while !payload.is_empty() {
                self.0.push(payload.split_to(datagrams.segment_bytes.min(payload.len())));
            }
        }

        fn unreachable(&mut self, unreachable: Unreachable) {
            self.1.push(unreachable);
        }
    }

    fn bind(ip: &str) -> UdpEncap {
        let config = UdpEncapConfig { addresses: vec![ip.parse().unwrap()], port: 0, ..Default::default() };
        UdpEncap::bind(&config).unwrap()
    }

    fn transmit(link: &mut UdpEncap, remote: SocketAddr, segment_bytes: usize, bytes: usize) {
        let payload = vec![5; bytes];
        let slices = [IoSlice::new(&payload)];
        link.transmit(&Transmit {
            remote,
            local: None,
            traffic_class: 0,
            may_fragment: false,
            segment_bytes,
            slices: &slices,
        })
        .unwrap();
    }

    #[test]
    fn a_full_send_buffer_is_would_block_and_a_full_device_queue_is_loss() {
        let mut link = bind("127.0.0.1");
        let remote = link.local_addresses()[0];
        let transmit = Transmit {
            remote,
            local: None,
            traffic_class: 0,
            may_fragment: false,
            segment_bytes: 1,
            slices: &[],
        };
        let batch = Batch { remote, index: 0, total_bytes: 10, transmit: &transmit };
        let error = link.sockets.account(&batch, Outcome::Blocked, 10, 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        link.sockets.account(&batch, Outcome::Dropped, 10, 10).unwrap();
        let stats = link.stats();
        assert_eq!((stats.send_blocked, stats.send_lost, stats.datagrams_sent), (1, 10, 0));
    }

    #[test]
    fn a_kernel_that_refuses_to_segment_is_remembered_and_the_datagrams_arrive() {
        let (mut from, mut to) = (bind("127.0.0.1"), bind("127.0.0.1"));
        if from.limits.segments_max == 1 {
            println!("skipped: this kernel does not segment");
            return;
        }
        let remote = to.local_addresses()[0];
        // The offload needs UDP checksums: without them the kernel refuses, but only to segment.
        let no_checksums = |link: &UdpEncap, on| {
            set_option(link.sockets.list[0].inner.fd.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, on)
                .unwrap();
        };
        // Once is not enough, nor twice with a batch between them that is taken.
        for on in [1, 0, 1, 1] {
            assert_eq!(from.batch_limits(), to.batch_limits());
            no_checksums(&from, on);
            transmit(&mut from, remote, 1000, 4500);
        }
        assert_eq!(from.batch_limits(), BatchLimits { segments_max: 1, ..to.batch_limits() });
        transmit(&mut from, remote, 1000, 4500);
        let mut kept = Kept::default();
        while to.receive(&mut kept).unwrap() {}
        let sizes: Vec<_> = kept.0.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [1000, 1000, 1000, 1000, 500].repeat(5));
        assert_eq!(from.stats().batches_sent, 4 * 5 + 1);
    }

    #[test]
    fn a_datagram_that_the_route_does_not_take_is_reported_like_a_router_s() {
        let (mut from, to) = (bind("::1"), bind("::1"));
        // The largest UDP payload does not fit the MTU of loopback over IPv6 in one piece.
        let remote = to.local_addresses()[0];
        transmit(&mut from, remote, PACKET_BYTES_MAX, PACKET_BYTES_MAX);
        let mut kept = Kept::default();
        from.receive(&mut kept).unwrap();
        let mtu_bytes = from.path_info(remote).mtu_bytes;
        assert_eq!(kept.1.len(), 1);
        assert_eq!(kept.1[0].reason, UnreachableReason::TooBig { mtu_bytes });
        assert_eq!(kept.1[0].remote, remote);
        assert!(kept.1[0].quoted.len() <= QUOTED_BYTES_MAX);
        let stats = from.stats();
        assert_eq!((stats.too_big, stats.send_lost, stats.datagrams_sent), (1, 1, 0));
    }
}
