//! Opens the sockets of a link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use crate::SCTP_TUNNELING_PORT;
use crate::bind_error::BindError;
use crate::bound_socket::BoundSocket;
use crate::interface::{bind_to_interface, interface_of};
use crate::socket_address::local_address;
use crate::sockets::Cutting;
use crate::strangers::{self, Class, Kind};
use crate::syscalls::{option, set_option};

/// Maximum number of ephemeral ports to try until one is free on all addresses.
const EPHEMERAL_TRIES_MAX: usize = 16;

/// Addresses and options of a [`UdpEncap`](crate::UdpEncap).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpEncapConfig {
    /// The local addresses, one socket each. Empty (the default): all addresses of the host through one dual-stack socket, or all
    /// IPv4 addresses on a host without IPv6.
    pub addresses: Vec<IpAddr>,
    /// The UDP port, the same on all addresses; 0 selects a free one. Default 9899 (RFC 6951 §4.1).
    pub port: u16,
    /// The requested receive buffer. The kernel grants up to twice `net.core.rmem_max`, or twice the request if the program has
    /// `CAP_NET_ADMIN`. Default 4 MiB.
    pub receive_buffer_bytes: usize,
    /// The requested send buffer. The kernel grants up to twice `net.core.wmem_max`. Default 4 MiB.
    pub send_buffer_bytes: usize,
    /// Maximum length of IP packets, such as 1500; the interface's MTU applies if it is smaller. Default: the interface's.
    pub mtu_bytes: Option<usize>,
    /// Whether each socket is bound to the interface that has its address: packets from the address then leave there, whatever
    /// the routes are. Default false.
    pub bind_interfaces: bool,
    /// Whether several links may bind the port and share its packets (`SO_REUSEPORT`). Default false.
    pub reuse_port: bool,
    /// Whether packets of strangers have separate receive buffers and shares of the time, as far as the system can steer them, so
    /// that a flood of them does not displace packets of peers. Strangers' packets are INITs and all others with verification tag
    /// 0, COOKIE ECHOs, and packets that [`Link::set_expected`](crate::Link::set_expected) does not expect. Cannot be
    /// combined with `reuse_port`. Default false.
    pub strangers_apart: bool,
    /// Whether to use segmentation and receive offload if the kernel has them. Default true; false helps to find out whether
    /// offload causes a fault.
    pub offload: bool,
}

impl Default for UdpEncapConfig {
    fn default() -> Self {
        UdpEncapConfig {
            addresses: Vec::new(),
            port: SCTP_TUNNELING_PORT,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            mtu_bytes: None,
            bind_interfaces: false,
            reuse_port: false,
            strangers_apart: false,
            offload: true,
        }
    }
}

/// Options of the sockets of each kind of link.
#[derive(Clone, Copy)]
pub(crate) struct SocketOptions {
    pub(crate) receive_buffer_bytes: usize,
    pub(crate) send_buffer_bytes: usize,
    pub(crate) bind_interfaces: bool,
}

/// Opens one socket for each address of the configuration, all with the same port.
pub(crate) fn open_all(config: &UdpEncapConfig) -> Result<Vec<BoundSocket>, BindError> {
    if config.addresses.is_empty() {
        return open_any(config).map(|socket| vec![socket]);
    }
    let addresses = distinct(&config.addresses)?;
    let mut tries = 1;
    loop {
        match open_on_one_port(config, &addresses) {
            Err(BindError::AddressInUse { .. }) if config.port == 0 && tries < EPHEMERAL_TRIES_MAX => {
                tries += 1
            }
            result => return result,
        }
    }
}

/// Returns the addresses in canonical form.
///
/// # Errors
///
/// An address occurs twice.
pub(crate) fn distinct(named: &[IpAddr]) -> Result<Vec<IpAddr>, BindError> {
    let mut addresses: Vec<IpAddr> = Vec::with_capacity(named.len());
    for address in named.iter().map(IpAddr::to_canonical) {
        if addresses.contains(&address) {
            return Err(BindError::Duplicate { address });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

fn open_any(config: &UdpEncapConfig) -> Result<BoundSocket, BindError> {
    let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), config.port);
    match open(config, any, true) {
        // The kernel has no IPv6, or IPv6 is disabled.
        Err(BindError::FamilyNotSupported { .. } | BindError::AddressNotAvailable { .. }) => {
            open(config, SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), config.port), false)
        }
        result => result,
    }
}

fn open_on_one_port(config: &UdpEncapConfig, addresses: &[IpAddr]) -> Result<Vec<BoundSocket>, BindError> {
    // The socket of the unspecified IPv6 address carries IPv4, too, unless IPv4 has a socket of its own.
    let dual_stack = !addresses.iter().any(IpAddr::is_ipv4);
    let mut port = config.port;
    let mut sockets: Vec<BoundSocket> = Vec::with_capacity(addresses.len());
    for address in addresses {
        let socket =
            open(config, SocketAddr::new(*address, port), dual_stack && *address == Ipv6Addr::UNSPECIFIED)?;
        port = socket.bound.port();
        sockets.push(socket);
    }
    Ok(sockets)
}

fn open(config: &UdpEncapConfig, address: SocketAddr, dual_stack: bool) -> Result<BoundSocket, BindError> {
    if config.strangers_apart
        && !config.reuse_port
        && let Some(socket) = open_apart(config, address, dual_stack)?
    {
        return Ok(socket);
    }
    open_alone(config, address, dual_stack)
}

fn open_alone(
    config: &UdpEncapConfig,
    address: SocketAddr,
    dual_stack: bool,
) -> Result<BoundSocket, BindError> {
    let failed = |errno| BindError::new(address, errno);
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(family, SockType::Datagram, flags, None).map_err(failed)?;
    set_udp_options(fd.as_fd(), config, address.is_ipv6(), dual_stack).map_err(failed)?;
    bind(fd, address, dual_stack, options(config))
}

/// Opens a socket for an address and another one for packets of strangers. `None`: the system cannot steer them.
fn open_apart(
    config: &UdpEncapConfig,
    address: SocketAddr,
    dual_stack: bool,
) -> Result<Option<BoundSocket>, BindError> {
    let failed = |errno| BindError::new(address, errno);
    let kind = Kind::of(address.is_ipv6(), dual_stack);
    let Some(reserved) = strangers::reserve(scoped(address), kind).map_err(failed)? else { return Ok(None) };
    let in_group = UdpEncapConfig { reuse_port: true, ..config.clone() };
    let at = SocketAddr::new(address.ip(), reserved.bound.port());
    let Ok(mut first) = open_alone(&in_group, at, dual_stack) else { return Ok(None) };
    let Ok(apart) = reserved.complete(first.fd.as_fd(), first.interface.as_deref()) else { return Ok(None) };
    for (class, fd) in &apart.strangers {
        set_stranger_options(fd.as_fd(), *class, first.ipv6, address.ip().is_unspecified())
            .map_err(failed)?;
    }
    first.strangers = Some(apart);
    Ok(Some(first))
}

fn options(config: &UdpEncapConfig) -> SocketOptions {
    SocketOptions {
        receive_buffer_bytes: config.receive_buffer_bytes,
        send_buffer_bytes: config.send_buffer_bytes,
        bind_interfaces: config.bind_interfaces,
    }
}

/// Binds a socket and sets the options that all kinds of links need.
pub(crate) fn bind(
    fd: OwnedFd,
    address: SocketAddr,
    dual_stack: bool,
    options: SocketOptions,
) -> Result<BoundSocket, BindError> {
    let failed = |errno| BindError::new(address, errno);
    let ipv6 = address.is_ipv6();
    set_options(fd.as_fd(), options, ipv6, dual_stack).map_err(failed)?;
    let scoped = scoped(address);
    socket::bind(fd.as_raw_fd(), &SockaddrStorage::from(scoped)).map_err(failed)?;
    let bound = local_address(fd.as_fd()).map_err(failed)?;
    let interface = interface_of(bound.ip()).filter(|_| options.bind_interfaces).map(|found| found.name);
    if let Some(interface) = &interface {
        bind_to_interface(fd.as_fd(), interface).map_err(failed)?;
    }
    let receive_buffer_bytes =
        option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).map_err(failed)? as usize;
    force_receive_buffer(fd.as_fd(), options.receive_buffer_bytes);
    Ok(BoundSocket { fd, bound, ipv6, dual_stack, receive_buffer_bytes, interface, strangers: None })
}

/// Adds the interface to a link-local IPv6 address, which is ambiguous without it (RFC 4007 §6).
fn scoped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            let scope_id = interface_of(address.ip()).map_or(0, |interface| interface.scope_id);
            SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope_id))
        }
        address => address,
    }
}

fn set_udp_options(
    fd: BorrowedFd<'_>,
    config: &UdpEncapConfig,
    ipv6: bool,
    dual_stack: bool,
) -> Result<(), Errno> {
    if config.reuse_port {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if ipv6 {
        set_option(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY, i32::from(!dual_stack))?;
    }
    if config.offload {
        // Older kernels deliver single datagrams.
        let _ = set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    Ok(())
}

fn set_options(
    fd: BorrowedFd<'_>,
    options: SocketOptions,
    ipv6: bool,
    dual_stack: bool,
) -> Result<(), Errno> {
    use libc::{SOL_IP, SOL_IPV6, SOL_SOCKET};
    let wish = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option(fd, SOL_SOCKET, libc::SO_RCVBUF, wish(options.receive_buffer_bytes))?;
    set_option(fd, SOL_SOCKET, libc::SO_SNDBUF, wish(options.send_buffer_bytes))?;
    // The kernel reports the number of dropped datagrams with the next one that it delivers.
    set_option(fd, SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    if ipv6 {
        set_option(fd, SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set_option(fd, SOL_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set_option(fd, SOL_IPV6, libc::IPV6_RECVERR, 1)?;
        Cutting::Never.set_v6(fd)?;
    }
    if !ipv6 || dual_stack {
        set_option(fd, SOL_IP, libc::IP_PKTINFO, 1)?;
        set_option(fd, SOL_IP, libc::IP_RECVTOS, 1)?;
        set_option(fd, SOL_IP, libc::IP_RECVERR, 1)?;
        Cutting::Never.set_v4(fd)?;
    }
    Ok(())
}

/// Sets the options of a socket for strangers, as few as possible, because each control message of a packet costs time: the
/// destination, if the socket is for all addresses, and ICMP reports. No packets are sent there, but the kernel delivers a report
/// about a packet of any socket of the group to a member that it selects by a hash.
fn set_stranger_options(
    fd: BorrowedFd<'_>,
    class: Class,
    ipv6: bool,
    any_address: bool,
) -> Result<(), Errno> {
    set_stranger_buffers(fd, class)?;
    if ipv6 {
        Cutting::Never.set_v6(fd)?;
        set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    if !ipv6 || any_address {
        Cutting::Never.set_v4(fd)?;
        set_option(fd, libc::SOL_IP, libc::IP_RECVERR, 1)?;
    }
    match (any_address, ipv6) {
        (false, _) => Ok(()),
        // This option reports IPv4 addresses in mapped form, too.
        (true, true) => set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1),
        (true, false) => set_option(fd, libc::SOL_IP, libc::IP_PKTINFO, 1),
    }
}

/// Send buffer of a socket for strangers, as far as the system grants it: the kernel counts some 800 bytes for an answer that it
/// keeps.
const STRANGER_SEND_BYTES: i32 = 1 << 20;

/// Sets the buffers of a socket for strangers.
pub(crate) fn set_stranger_buffers(fd: BorrowedFd<'_>, class: Class) -> Result<(), Errno> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, STRANGER_SEND_BYTES)?;
    let bytes = class.receive_buffer_bytes();
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, i32::try_from(bytes).unwrap_or(i32::MAX))?;
    force_receive_buffer(fd, bytes);
    Ok(())
}

/// Sets the receive buffer beyond net.core.rmem_max if the program has CAP_NET_ADMIN.
fn force_receive_buffer(fd: BorrowedFd<'_>, bytes: usize) {
    let wish = i32::try_from(bytes).unwrap_or(i32::MAX);
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wish);
}
