//! Kernel sockets with the options that tests ask for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// TCP over several paths (RFC 8684), as the protocol of a stream socket.
pub(crate) const MPTCP: Protocol = Protocol::MPTCP;

/// SCTP by the sockets of the system (RFC 6458), as the protocol of a stream socket.
pub(crate) const SCTP: Protocol = Protocol::SCTP;

/// A TCP listener on all protocols that the address covers, or one of another protocol. It never blocks.
pub(crate) fn listen(address: SocketAddr, protocol: Option<Protocol>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, protocol)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Checks that an address is one of this host's.
pub(crate) fn check_local(address: IpAddr) -> io::Result<()> {
    bind_udp(SocketAddr::new(address, 0), None).map(drop)
}

/// A TCP connection, or one of another protocol, from `local`, if one is given, with buffers of `buffer_bytes`, if not
/// the default.
pub(crate) fn connect(
    remote: SocketAddr,
    local: Option<IpAddr>,
    buffer_bytes: Option<usize>,
    protocol: Option<Protocol>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, protocol)?;
    set_buffers(&socket, buffer_bytes)?;
    if let Some(local) = local {
        socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    }
    socket.connect_timeout(&SockAddr::from(remote), CONNECT_TIMEOUT)?;
    Ok(socket.into())
}

/// Gives an accepted connection buffers of `buffer_bytes`, if not the default.
pub(crate) fn set_stream_buffers(stream: &TcpStream, buffer_bytes: Option<usize>) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    match buffer_bytes {
        Some(bytes) => socket.set_send_buffer_size(bytes).and_then(|()| socket.set_recv_buffer_size(bytes)),
        None => Ok(()),
    }
}

/// A UDP socket on `local`.
pub(crate) fn bind_udp(local: SocketAddr, buffer_bytes: Option<usize>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, None)?;
    set_buffers(&socket, buffer_bytes)?;
    if local.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(local))?;
    Ok(socket.into())
}

/// A UDP socket that speaks only with `remote`.
pub(crate) fn connect_udp(
    remote: SocketAddr,
    local: Option<IpAddr>,
    buffer_bytes: Option<usize>,
) -> io::Result<UdpSocket> {
    let any = if remote.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = bind_udp(SocketAddr::new(local.unwrap_or(any), 0), buffer_bytes)?;
    socket.connect(remote)?;
    Ok(socket)
}

fn set_buffers(socket: &Socket, buffer_bytes: Option<usize>) -> io::Result<()> {
    match buffer_bytes {
        Some(bytes) => socket.set_send_buffer_size(bytes).and_then(|()| socket.set_recv_buffer_size(bytes)),
        None => Ok(()),
    }
}
