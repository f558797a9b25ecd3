//! Links: carry batches of datagrams in and out of the host.
//!
//! A [`Link`] carries whole batches: datagrams combined by receive offload arrive as one [`Datagrams`], and one [`Transmit`] is
//! one system call. A link does not interpret the datagrams, so the same protocol runs over any link.
//!
//! [`UdpEncap`] is the link for SCTP in UDP (RFC 6951). It needs no privileges, and uses `UDP_SEGMENT` and `UDP_GRO` if the
//! kernel has them; otherwise it sends single datagrams.
//!
//! [`RawIp`] is the link for SCTP directly over IP, protocol 132, for peers that support only that. It needs the capability
//! `CAP_NET_RAW`.
//!
//! [`Hairpin`] wraps either of them, and delivers packets to own addresses in memory.
//!
//! [`device`] contains the other kind of link: the ends of network devices, for programs that form the line between two hosts.
//!
//! The caller waits: [`Link::descriptors`] lists the descriptors to poll. ICMP errors show as `POLLERR` there, which `poll(2)`
//! always reports; a reactor that filters events (tokio's `AsyncFd`) must request errors as well as readability.
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_os = "linux"))]
compile_error!("links needs Linux: segmentation offload and the socket error queue are its own");

mod address_changes;
mod aligned_buffer;
mod bind;
mod bind_error;
mod blocks;
mod bound_socket;
mod bpf;
mod control;
pub mod device;
mod device_syscalls;
mod ebpf;
mod ebpf_syscalls;
mod hairpin;
mod icmp;
mod interface;
mod link;
mod neighbour;
mod own_addresses;
mod raw_ip;
mod route;
mod socket_address;
mod sockets;
mod stats;
mod strangers;
mod syscalls;
mod tcp_info;
mod udp_encap;

pub use aligned_buffer::AlignedBuffer;
pub use bind::UdpEncapConfig;
pub use bind_error::BindError;
pub use blocks::BLOCK_BYTES;
pub use device_syscalls::{ShortSlices, become_realtime};
pub use hairpin::Hairpin;
pub use interface::{AddressCheck, interface_addresses};
pub use link::{
    BatchLimits, CookieMark, Datagrams, Expected, Link, PathInfo, Sink, Transmit, Unreachable,
    UnreachableReason,
};
pub use raw_ip::{RawIp, RawIpConfig, kernel_speaks_sctp};
pub use stats::LinkStats;
pub use syscalls::{set_peek_offset, unreceived_bytes};
pub use tcp_info::{TcpWindow, tcp_window};
pub use udp_encap::UdpEncap;

/// The UDP port that is registered for SCTP tunneling (RFC 6951 §4.1).
pub const SCTP_TUNNELING_PORT: u16 = 9899;
