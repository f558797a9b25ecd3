//! Network devices whose other end is a program: IP packets in and out of a host, with segmentation left to the reader.
//!
//! The kernel delivers packets as its TCP and UDP make them: up to 64 KB long, to be segmented before transmission, and with
//! incomplete checksums. The [`VnetHeader`] before each packet describes its segmentation and the position of its checksum. The
//! kernel accepts such packets in the same form.
//!
//! [`Tun`] is the preferred device. Without access to `/dev/net/tun`, a [`PacketSocket`] on one end of a veth pair replaces it.

mod header;
mod packet_socket;
mod tun;

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

pub use header::{PartialChecksum, SegmentKind, Segmentation, VnetHeader};
pub use packet_socket::{ETHERNET_ADDRESS, PacketSocket};
pub use tun::Tun;

/// Maximum length of a packet of a device: an IPv6 header and a payload of 65,535 bytes.
pub const PACKET_BYTES_MAX: usize = 40 + 65_535;

/// One end of a device. Neither call blocks.
pub trait Device: Send {
    /// Receives the next packet that the host has sent into the start of `buffer`, which has [`PACKET_BYTES_MAX`] bytes. Returns
    /// its header and its length, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// The device was deleted (`EIO`, `EBADFD`) or is down (`ENETDOWN`). Other errors are those of the next packet, which is
    /// lost.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>>;

    /// Sends the host a packet, whose bytes are those of both parts.
    ///
    /// # Errors
    ///
    /// The host has no room for the packet, or does not accept it. The packet is lost.
    fn send(&mut self, header: VnetHeader, parts: [&[u8]; 2]) -> io::Result<()>;

    /// Returns the descriptor that becomes readable when the host has sent a packet.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns the number of packets of the host that were dropped for lack of room before [`Device::receive`], since the device
    /// was opened.
    fn dropped_packets(&mut self) -> u64;
}

/// Returns the result of a non-blocking read, or `None` if no packet was available.
fn none_if_empty(result: Result<usize, Errno>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
