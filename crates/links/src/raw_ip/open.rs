//! Opens raw sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bytes::BytesMut;
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage};

use super::filter;
use crate::bind::{SocketOptions, bind, distinct, set_stranger_buffers};
use crate::bound_socket::BoundSocket;
use crate::interface::bind_to_interface;
use crate::socket_address::RawAddress;
use crate::strangers::{Class, SeparateSockets};
use crate::syscalls::{attach_filter, receive_message, set_option};
use crate::{BindError, UdpEncapConfig};

/// Addresses and options of a [`RawIp`](crate::RawIp).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawIpConfig {
    /// The local addresses, one socket each. Empty (the default): all addresses of the host, one socket for each family
    /// that it has.
    pub addresses: Vec<IpAddr>,
    /// The requested receive buffer. The kernel grants up to twice `net.core.rmem_max`. Default 4 MiB.
    pub receive_buffer_bytes: usize,
    /// The requested send buffer. The kernel grants up to twice `net.core.wmem_max`. Default 4 MiB.
    pub send_buffer_bytes: usize,
    /// Maximum length of IP packets, such as 1500; the interface's MTU applies if it is smaller. Default: the interface's.
    pub mtu_bytes: Option<usize>,
    /// Whether each socket is bound to the interface that has its address: packets from the address then leave there, whatever
    /// the routes are. Default false.
    pub bind_interfaces: bool,
    /// Whether packets of strangers have separate receive buffers and shares of the time, as with
    /// [`UdpEncapConfig::strangers_apart`]: three more sockets for each address. Default false.
    pub strangers_apart: bool,
}

impl Default for RawIpConfig {
    fn default() -> Self {
        let UdpEncapConfig { receive_buffer_bytes, send_buffer_bytes, .. } = UdpEncapConfig::default();
        RawIpConfig {
            addresses: Vec::new(),
            receive_buffer_bytes,
            send_buffer_bytes,
            mtu_bytes: None,
            bind_interfaces: false,
            strangers_apart: false,
        }
    }
}

/// Opens one socket for each address of the configuration, or one for each family.
pub(super) fn open_all(config: &RawIpConfig) -> Result<Vec<BoundSocket>, BindError> {
    if !config.addresses.is_empty() {
        return distinct(&config.addresses)?.into_iter().map(|address| open(config, address)).collect();
    }
    let v6 = match open(config, Ipv6Addr::UNSPECIFIED.into()) {
        // The kernel has no IPv6, or IPv6 is disabled.
        Err(BindError::FamilyNotSupported { .. } | BindError::AddressNotAvailable { .. }) => None,
        result => Some(result?),
    };
    let v4 = open(config, Ipv4Addr::UNSPECIFIED.into())?;
    Ok([v4].into_iter().chain(v6).collect())
}

fn open(config: &RawIpConfig, address: IpAddr) -> Result<BoundSocket, BindError> {
    let socket_address = SocketAddr::new(address, 0);
    let failed = |errno| match errno {
        Errno::EPERM | Errno::EACCES => BindError::RawNotPermitted { address },
        errno => BindError::new(socket_address, errno),
    };
    let fd = open_without_input(address.is_ipv6()).map_err(failed)?;
    let options = SocketOptions {
        receive_buffer_bytes: config.receive_buffer_bytes,
        send_buffer_bytes: config.send_buffer_bytes,
        bind_interfaces: config.bind_interfaces,
    };
    let mut socket = bind(fd, socket_address, false, options)?;
    if config.strangers_apart {
        let beside = |class| Ok((class, open_for_strangers(&socket, class)?));
        let strangers = Class::STRANGERS.into_iter().map(beside).collect::<Result<_, _>>().map_err(failed)?;
        socket.strangers = Some(SeparateSockets { strangers, guards: Vec::new() });
    }
    // The kernel reports the protocol in the port.
    socket.bound.set_port(0);
    Ok(socket)
}

/// Opens a socket that accepts nothing yet.
fn open_without_input(ipv6: bool) -> Result<OwnedFd, Errno> {
    let family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(family, SockType::Raw, flags, SockProtocol::Sctp)?;
    attach_filter(fd.as_fd(), &filter::nothing())?;
    // Packets that arrived between the two calls are not wanted.
    drain(fd.as_fd());
    Ok(fd)
}

/// Opens the socket for a class of strangers in addition to the one for peers. It requests no ICMP reports: the kernel delivers
/// them to every raw socket that does.
fn open_for_strangers(peers: &BoundSocket, class: Class) -> Result<OwnedFd, Errno> {
    let fd = open_without_input(peers.ipv6)?;
    set_stranger_buffers(fd.as_fd(), class)?;
    if peers.ipv6 && peers.bound.ip().is_unspecified() {
        set_option(fd.as_fd(), libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    socket::bind(fd.as_raw_fd(), &SockaddrStorage::from(peers.bound))?;
    if let Some(interface) = &peers.interface {
        bind_to_interface(fd.as_fd(), interface)?;
    }
    Ok(fd)
}

fn drain(fd: BorrowedFd<'_>) {
    let mut byte = BytesMut::with_capacity(1);
    let mut from = RawAddress::empty();
    while receive_message(fd, &mut from, &mut byte, 1, &mut [], 0).is_ok() {
        byte.clear();
    }
}
