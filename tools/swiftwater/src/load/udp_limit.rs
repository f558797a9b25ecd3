//! The most that plain UDP moves with packets of a given size: segmentation and receive offload, batches of
//! about 64 KB full of messages, no headers, no checksum, no account of anything, and a receiver that only
//! counts. What a protocol over UDP reaches can be read as a part of it.

use std::net::{SocketAddr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt};

use super::{LoadError, Outgoing};

/// A batch above this arrives split into its segments.
const BATCH_BYTES_MAX: usize = 65_300;
/// The most segments that every kernel with the offload takes in one call.
const SEGMENTS_MAX: usize = 64;
const IPV4_UDP_HEADER_BYTES: usize = 28;
const IPV6_UDP_HEADER_BYTES: usize = 48;

/// How a batch is cut: the bytes of one segment and of the whole batch.
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
pub(crate) struct BatchOut(UdpSocket);

impl BatchOut {
    /// Packets of at most `packet_bytes` to `remote`, to which the socket is connected. The batch that comes
    /// with it is what each call has to send.
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
        Ok((Self(socket), super::payload(cut.batch_bytes)))
    }
}

impl Outgoing for BatchOut {
    #[inline]
    fn send(&mut self, batch: &[u8]) -> Result<(), LoadError> {
        match self.0.send(batch) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => Ok(()),
            Err(error) => Err(LoadError::during("sending a batch of UDP datagrams")(error)),
        }
    }

    fn finish(self) -> Result<(), LoadError> {
        Ok(())
    }
}

/// Lets the kernel hand over whole batches, where it can; without that the datagrams come one by one.
pub(crate) fn accept_batches(socket: &UdpSocket) {
    let _ = setsockopt(socket, sockopt::UdpGroSegment, &true);
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
