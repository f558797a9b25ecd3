//! A TUN device with `IFF_VNET_HDR`.

use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::uio::{readv, writev};

use super::header::HEADER_BYTES;
use super::{Device, VnetHeader, none_if_empty};
use crate::device_syscalls::{attach_tun, set_tun_offloads, set_tun_vnet_header_bytes};

const CLONE_DEVICE: &str = "/dev/net/tun";
/// Offloads of checksums and TCP segmentation.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// Offloads of UDP segmentation (Linux 6.2).
const UDP_OFFLOADS: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A TUN device of the network namespace in which it was opened. Dropping this value removes the device.
#[derive(Debug)]
pub struct Tun {
    descriptor: OwnedFd,
}

impl Tun {
    /// Creates a device with this name in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// `/dev/net/tun` is missing or may not be opened, the name is taken, or the thread has no `CAP_NET_ADMIN` in its
    /// namespace.
    ///
    /// # Examples
    ///
    /// ```
    /// use links::device::Tun;
    ///
    /// match Tun::open("lab-doc0") {
    ///     Ok(tun) => println!("{tun:?}"),
    ///     Err(error) => println!("a veth pair does the same: {error}"),
    /// }
    /// ```
    pub fn open(name: &str) -> io::Result<Self> {
        let descriptor: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(CLONE_DEVICE)?
            .into();
        attach_tun(descriptor.as_fd(), name)?;
        set_tun_vnet_header_bytes(descriptor.as_fd(), HEADER_BYTES)?;
        // Older kernels segment UDP themselves.
        set_tun_offloads(descriptor.as_fd(), OFFLOADS | UDP_OFFLOADS)
            .or_else(|_| set_tun_offloads(descriptor.as_fd(), OFFLOADS))?;
        Ok(Tun { descriptor })
    }
}

impl Device for Tun {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>> {
        let mut header = [0; HEADER_BYTES];
        let read = readv(&self.descriptor, &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)]);
        let Some(bytes) = none_if_empty(read)? else { return Ok(None) };
        Ok(Some((VnetHeader::parse(&header), bytes.saturating_sub(HEADER_BYTES))))
    }

    fn send(&mut self, header: VnetHeader, [head, rest]: [&[u8]; 2]) -> io::Result<()> {
        let header = header.bytes();
        let slices = [IoSlice::new(&header), IoSlice::new(head), IoSlice::new(rest)];
        writev(&self.descriptor, &slices)?;
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Returns 0: the interface of a TUN device counts dropped packets (`tx_dropped`).
    fn dropped_packets(&mut self) -> u64 {
        0
    }
}
