//! Network devices whose other end is a program: IP packets in and out of a host, with segmentation left to the reader.
//!
//! The kernel hands over packets as its TCP and UDP make them: up to 64 KB long, to be cut into segments by whoever puts
//! them on a line, and with checksums that are not complete. The [`VnetHeader`] before each packet says how to cut it and
//! where its checksum is. The kernel takes such packets back in the same form.
//!
//! [`Tun`] is the device of choice. Where `/dev/net/tun` may not be opened, [`PacketSocket`] does the same on one end of a
//! veth pair.

mod header;
mod packet_socket;
mod tun;

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

pub use header::{PartialChecksum, SegmentKind, Segmentation, VnetHeader};
pub use packet_socket::{ETHERNET_ADDRESS, PacketSocket};
pub use tun::Tun;

/// Room for the longest packet that a device hands over: an IPv6 header and a payload of 65,535 bytes.
pub const PACKET_BYTES_MAX: usize = 40 + 65_535;

/// One end of a device. Neither call blocks.
pub trait Device: Send {
    /// Takes the next packet that the host has sent into the start of `room`, which has [`PACKET_BYTES_MAX`] bytes. Returns
    /// its header and its length, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// The device is gone or down.
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>>;

    /// Gives the host a packet, whose bytes are those of both parts.
    ///
    /// # Errors
    ///
    /// The host has no room for it, or does not accept it. It is lost then.
    fn send(&mut self, header: VnetHeader, parts: [&[u8]; 2]) -> io::Result<()>;

    /// Returns the descriptor that becomes readable when the host has sent something.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Counts packets of the host that found no room on the way to [`Device::receive`], since the device was opened.
    fn dropped_packets(&mut self) -> u64;
}

/// Returns what a non-blocking read returned, or `None` if nothing was there.
fn unless_empty(result: Result<usize, Errno>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
