//! The limit of plain UDP with packets of a given size: segmentation and receive offload, batches of about 64 KB full of
//! messages, no headers, no checksum, no accounting, and a receiver that only counts. The rate of a protocol over UDP is a
//! fraction of it.
//!
//! The receiver returns one small datagram for some batches, and the sender never has more in flight than the receive buffer
//! holds. A sender that floods the buffer wastes its time on data that is thrown away, and moves less if the two ends or other
//! programs share processors.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use links::AlignedBuffer;
use nix::sys::socket::{setsockopt, sockopt};

use super::udp::{RECEIVE_POLL_INTERVAL, is_transient};
use super::{Incoming, LoadError, Outgoing};

/// A larger batch arrives split into its segments.
const BATCH_BYTES_MAX: usize = 65_300;
/// Number of segments that every kernel with the offload accepts in one call.
const SEGMENTS_MAX: usize = 64;
const IPV4_UDP_HEADER_BYTES: usize = 28;
const IPV6_UDP_HEADER_BYTES: usize = 48;
/// Size of the requested buffers. Systems grant what they allow.
const BUFFER_BYTES: usize = 4 << 20;
/// Bytes that the kernel charges to a receive buffer for one batch.
const BATCH_CHARGE_BYTES: usize = 72 << 10;
/// Number of batches in flight: about 1 MB. More would only push data in flight out of the caches.
const BATCHES_UNDER_WAY_MAX: usize = 14;
/// Number of batches for each datagram that the receiver returns. The smallest usual buffer holds three.
const BATCHES_PER_RETURN: usize = 2;
/// Time after which the data in flight, or its return, counts as lost.
const RETURN_TIMEOUT: Duration = Duration::from_millis(20);

/// Segmentation of a batch: the bytes of one segment and of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    segment_bytes: usize,
    batch_bytes: usize,
}

fn cut(packet_bytes: usize, ipv6: bool) -> Cut {
    let header_bytes = if ipv6 { IPV6_UDP_HEADER_BYTES } else { IPV4_UDP_HEADER_BYTES };
    let segment_bytes = packet_bytes.saturating_sub(header_bytes).clamp(1, BATCH_BYTES_MAX);
    let segments = (BATCH_BYTES_MAX / segment_bytes).clamp(1, SEGMENTS_MAX);
    Cut { segment_bytes, batch_bytes: segments * segment_bytes }
}

/// Sends batches through a connected socket.
pub(crate) struct BatchOut {
    socket: UdpSocket,
    under_way: usize,
    under_way_max: usize,
}

impl BatchOut {
    /// Sends packets of at most `packet_bytes` to `remote`, to which the socket is connected. Also returns the batch, which each
    /// call must send.
    pub(crate) fn new(
        socket: UdpSocket,
        remote: SocketAddr,
        packet_bytes: usize,
    ) -> Result<(Self, Vec<u8>), LoadError> {
        let cut = cut(packet_bytes, remote.is_ipv6());
        if cut.batch_bytes > cut.segment_bytes {
            setsockopt(&socket, sockopt::UdpGsoSegment, &(cut.segment_bytes as i32))
                .map_err(|errno| LoadError::during("asking for UDP segmentation offload")(errno.into()))?;
        }
        socket.set_read_timeout(Some(RETURN_TIMEOUT)).map_err(LoadError::during("setting a timeout"))?;
        // The receiver requests the same, and gets the same on one machine.
        let granted_bytes = ask_for_buffers(&socket)?;
        let under_way_max =
            (granted_bytes * 6 / 10 / BATCH_CHARGE_BYTES).clamp(BATCHES_PER_RETURN, BATCHES_UNDER_WAY_MAX);
        Ok((Self { socket, under_way: 0, under_way_max }, super::payload(cut.batch_bytes)))
    }
}

impl Outgoing for BatchOut {
    #[inline]
    fn send(&mut self, batch: &[u8]) -> Result<(), LoadError> {
        if self.under_way >= self.under_way_max {
            match self.socket.recv(&mut [0; 1]) {
                Ok(_) => self.under_way = self.under_way.saturating_sub(BATCHES_PER_RETURN),
                Err(error) if is_transient(error.kind()) => self.under_way = 0,
                Err(error) => return Err(LoadError::during("waiting for the receiver")(error)),
            }
        }
        match self.socket.send(batch) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {}
            Err(error) => return Err(LoadError::during("sending a batch of UDP datagrams")(error)),
        }
        self.under_way += 1;
        Ok(())
    }

    fn finish(self) -> Result<(), LoadError> {
        Ok(())
    }
}

/// Counts arrivals until `stop` is set and nothing has come for a while.
pub(crate) struct BatchIn<'a> {
    socket: UdpSocket,
    buffer: AlignedBuffer,
    stop: &'a AtomicBool,
    sender: Option<SocketAddr>,
    bytes_per_return: usize,
    bytes_since_return: usize,
}

impl<'a> BatchIn<'a> {
    /// Receives packets of at most `packet_bytes`. The kernel delivers whole batches if it can, and single datagrams otherwise.
    pub(crate) fn new(
        socket: UdpSocket,
        packet_bytes: usize,
        stop: &'a AtomicBool,
    ) -> Result<Self, LoadError> {
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        ask_for_buffers(&socket)?;
        socket
            .set_read_timeout(Some(RECEIVE_POLL_INTERVAL))
            .map_err(LoadError::during("setting a timeout"))?;
        let bytes_per_return = BATCHES_PER_RETURN * cut(packet_bytes, true).batch_bytes;
        let buffer = AlignedBuffer::new(1 << 16);
        Ok(Self { socket, buffer, stop, sender: None, bytes_per_return, bytes_since_return: 0 })
    }

    fn receive(&mut self) -> std::io::Result<usize> {
        if self.sender.is_some() {
            return self.socket.recv(&mut self.buffer);
        }
        let (count, sender) = self.socket.recv_from(&mut self.buffer)?;
        self.socket.connect(sender)?;
        self.sender = Some(sender);
        Ok(count)
    }
}

impl Incoming for BatchIn<'_> {
    #[inline]
    fn recv(&mut self) -> Result<Option<usize>, LoadError> {
        loop {
            match self.receive() {
                Ok(count) => {
                    self.bytes_since_return += count;
                    if self.bytes_since_return >= self.bytes_per_return {
                        self.bytes_since_return -= self.bytes_per_return;
                        // A failure means that the sender has gone; its data still counts.
                        let _ = self.socket.send(&[0]);
                    }
                    return Ok(Some(count));
                }
                Err(error) if is_transient(error.kind()) => {
                    if self.stop.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(LoadError::during("receiving UDP datagrams")(error)),
            }
        }
    }
}

/// Requests large buffers and returns the size of the receive buffer.
fn ask_for_buffers(socket: &UdpSocket) -> Result<usize, LoadError> {
    let socket = socket2::SockRef::from(socket);
    let asked =
        socket.set_recv_buffer_size(BUFFER_BYTES).and_then(|()| socket.set_send_buffer_size(BUFFER_BYTES));
    asked.and_then(|()| socket.recv_buffer_size()).map_err(LoadError::during("setting the socket's buffers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_stay_whole_and_are_full_packets() {
        assert_eq!(cut(1500, false), Cut { segment_bytes: 1472, batch_bytes: 44 * 1472 });
        assert_eq!(cut(1500, true), Cut { segment_bytes: 1452, batch_bytes: 44 * 1452 });
        assert_eq!(cut(65_536, false), Cut { segment_bytes: 65_300, batch_bytes: 65_300 });
        assert_eq!(cut(576, false).batch_bytes, SEGMENTS_MAX * 548);
        assert!(cut(0, false).segment_bytes > 0);
    }
}
