//! Opening raw sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::BytesMut;
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType};

use super::filter;
use crate::bind::{BoundSocket, Wishes, bind, distinct};
use crate::socket_address::RawAddress;
use crate::syscalls::{attach_filter, receive_message};
use crate::{BindError, UdpEncapConfig};

/// What a [`RawIp`](crate::RawIp) is bound to and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawIpConfig {
    /// The local addresses, one socket each. Empty (the default): all addresses of the host, one socket for each family
    /// that it has.
    pub addresses: Vec<IpAddr>,
    /// The receive buffer to ask the kernel for; it gives up to twice `net.core.rmem_max`. Default 4 MiB.
    pub receive_buffer_bytes: usize,
    /// The send buffer to ask the kernel for; it gives up to twice `net.core.wmem_max`. Default 4 MiB.
    pub send_buffer_bytes: usize,
    /// The largest IP packet to send, such as 1500; the interface's MTU where that is smaller. Default: the interface's.
    pub mtu_bytes: Option<usize>,
    /// Each socket is bound to the interface that has its address: what is sent from the address leaves there, whatever
    /// the routes say. Default false.
    pub bind_interfaces: bool,
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
        }
    }
}

/// Opens one socket for each address of the configuration, or one for each family.
pub(super) fn open_all(config: &RawIpConfig) -> Result<Vec<BoundSocket>, BindError> {
    if !config.addresses.is_empty() {
        return distinct(&config.addresses)?.into_iter().map(|address| open(config, address)).collect();
    }
    let v6 = match open(config, Ipv6Addr::UNSPECIFIED.into()) {
        // A kernel without IPv6, or one where it is switched off.
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
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(family, SockType::Raw, flags, SockProtocol::Sctp).map_err(failed)?;
    // What arrived between the two calls belongs to others.
    attach_filter(fd.as_fd(), &filter::program(&[], address.is_ipv6())).map_err(failed)?;
    drain(fd.as_fd());
    let wishes = Wishes {
        receive_buffer_bytes: config.receive_buffer_bytes,
        send_buffer_bytes: config.send_buffer_bytes,
        bind_interfaces: config.bind_interfaces,
    };
    let mut socket = bind(fd, socket_address, false, wishes)?;
    // The kernel tells the protocol there.
    socket.bound.set_port(0);
    Ok(socket)
}

fn drain(fd: BorrowedFd<'_>) {
    let mut byte = BytesMut::with_capacity(1);
    let mut from = RawAddress::empty();
    while receive_message(fd, &mut from, &mut byte, 1, &mut [], 0).is_ok() {
        byte.clear();
    }
}
