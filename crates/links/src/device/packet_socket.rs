//! A packet socket with `PACKET_VNET_HDR` on one end of a veth pair whose other end is the host's.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::uio::{readv, writev};

use super::header::HEADER_BYTES;
use super::{Device, VnetHeader, none_if_empty};
use crate::device_syscalls::{PacketOption, open_packet_socket, packet_drops, set_packet_option};
use crate::syscalls::set_option;

/// The Ethernet address of the host's end of every such pair. With ARP switched off, a host sends to its own address, so the
/// frames of one host suit any other.
pub const ETHERNET_ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// Bytes of an Ethernet header: two addresses and the type.
const ETHERNET_BYTES: usize = 14;
const ETHERTYPE_V4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_V6: [u8; 2] = [0x86, 0xdd];
/// Requested receive buffer of the socket.
const BUFFER_BYTES: i32 = 64 << 20;

/// A packet socket on an interface of the network namespace in which it was opened.
#[derive(Debug)]
pub struct PacketSocket {
    descriptor: OwnedFd,
    dropped_packets: u64,
}

impl PacketSocket {
    /// Opens a socket on this interface of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// There is no such interface, or the thread has no `CAP_NET_RAW` in its namespace.
    ///
    /// # Examples
    ///
    /// ```
    /// let error = links::device::PacketSocket::open("no-such-line").expect_err("there is none");
    /// assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)));
    /// ```
    pub fn open(interface: &str) -> io::Result<Self> {
        let descriptor = open_packet_socket(interface)?;
        set_packet_option(descriptor.as_fd(), PacketOption::VnetHeader)?;
        set_packet_option(descriptor.as_fd(), PacketOption::IgnoreOutgoing)?;
        set_packet_option(descriptor.as_fd(), PacketOption::BypassQueue)?;
        for (beyond_limit, within_limit) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            let set = |name| set_option(descriptor.as_fd(), libc::SOL_SOCKET, name, BUFFER_BYTES);
            set(beyond_limit).or_else(|_| set(within_limit))?;
        }
        Ok(PacketSocket { descriptor, dropped_packets: 0 })
    }
}

impl Device for PacketSocket {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>> {
        let mut header = [0; HEADER_BYTES];
        let mut ethernet = [0; ETHERNET_BYTES];
        loop {
            let slices =
                &mut [IoSliceMut::new(&mut header), IoSliceMut::new(&mut ethernet), IoSliceMut::new(buffer)];
            let Some(bytes) = none_if_empty(readv(&self.descriptor, slices))? else { return Ok(None) };
            let Some(packet_bytes) = bytes.checked_sub(HEADER_BYTES + ETHERNET_BYTES) else { continue };
            // The line carries only IP, so other frames are dropped.
            if [ETHERTYPE_V4, ETHERTYPE_V6].contains(&[ethernet[12], ethernet[13]]) {
                return Ok(Some((VnetHeader::parse(&header).moved_on(ETHERNET_BYTES as u16), packet_bytes)));
            }
        }
    }

    fn send(&mut self, header: VnetHeader, [head, rest]: [&[u8]; 2]) -> io::Result<()> {
        let version = head.first().or(rest.first()).map_or(0, |byte| byte >> 4);
        let mut ethernet = [0; ETHERNET_BYTES];
        ethernet[..6].copy_from_slice(&ETHERNET_ADDRESS);
        ethernet[6..12].copy_from_slice(&ETHERNET_ADDRESS);
        ethernet[12..].copy_from_slice(if version == 6 { &ETHERTYPE_V6 } else { &ETHERTYPE_V4 });
        let header = header.moved_back(ETHERNET_BYTES as u16).bytes();
        let slices = [IoSlice::new(&header), IoSlice::new(&ethernet), IoSlice::new(head), IoSlice::new(rest)];
        writev(&self.descriptor, &slices)?;
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn dropped_packets(&mut self) -> u64 {
        // The kernel counts since the last query.
        self.dropped_packets += u64::from(packet_drops(self.descriptor.as_fd()).unwrap_or(0));
        self.dropped_packets
    }
}
