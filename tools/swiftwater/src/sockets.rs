//! Kernel sockets with the options that tests ask for.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::geteuid;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Default port of the servers. As UDP port, 9899 is the one registered for SCTP over UDP (RFC 6951 §4.1); the control
/// connection of `perf` uses the TCP port of the same number.
pub(crate) const DEFAULT_PORT: u16 = 9899;

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Time limit for a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// TCP over several paths (RFC 8684), as the protocol of a stream socket.
pub(crate) const MPTCP: Protocol = Protocol::MPTCP;

/// SCTP through the sockets of the system (RFC 6458), as the protocol of a stream socket.
pub(crate) const SCTP: Protocol = Protocol::SCTP;

/// Returns a TCP listener on all protocols that the address covers, or a listener of another protocol. It never blocks.
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

/// Returns the next connection, if one comes within `timeout`.
pub(crate) fn accept_within(
    listener: &TcpListener,
    timeout: Duration,
) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    let mut interest = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    match poll(&mut interest, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO)) {
        Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(None),
        Ok(_) => {}
        Err(errno) => return Err(errno.into()),
    }
    match listener.accept() {
        // A listener for both protocols sees IPv4 clients as mapped addresses.
        Ok((stream, client)) => {
            Ok(Some((stream, SocketAddr::new(client.ip().to_canonical(), client.port()))))
        }
        // Another thread may have accepted the connection, or the client may have gone.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether the other end of a TCP connection over IPv4 is a socket of this user on this host. TCP has no `SO_PEERCRED`,
/// but the kernel's table of sockets names their users. Returns false if the other end has reset the connection. Fails if the
/// table cannot be read.
///
/// Servers that ask have few connections. sock_diag(7) would tell of one socket alone, but it has the same error (ENOENT) for a
/// socket that does not exist and for a kernel without `tcp_diag`, so the table would have to be read all the same.
pub(crate) fn is_of_this_user(stream: &TcpStream) -> io::Result<bool> {
    let (Ok(SocketAddr::V4(ours)), Ok(SocketAddr::V4(theirs))) = (stream.local_addr(), stream.peer_addr())
    else {
        return Ok(false);
    };
    let table = fs::read_to_string("/proc/net/tcp")?;
    Ok(has_socket(&table, theirs, ours, geteuid().as_raw()))
}

/// Returns whether a table of TCP sockets has one with these addresses of this user, which may have ended its direction already.
/// The kernel no longer knows the user of one that has been closed: it prints 0, and no inode.
fn has_socket(table: &str, local: SocketAddrV4, remote: SocketAddrV4, user: u32) -> bool {
    /// Established, and the two states in which the end of this direction is not acknowledged or the other has not ended.
    const STATES: [&str; 3] = ["01", "04", "05"];
    // An address is printed as a number in the order of the bytes in memory.
    let text = |address: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let (local, remote, user) = (text(local), text(remote), user.to_string());
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let expected = [&local[..], &remote, &user];
        matches!(fields[..], [_, local, remote, state, _, _, _, user, _, inode, ..]
            if [local, remote, user] == expected && STATES.contains(&state) && inode != "0")
    })
}

/// Checks that an address belongs to this host.
pub(crate) fn check_local(address: IpAddr) -> io::Result<()> {
    bind_udp(SocketAddr::new(address, 0), None).map(drop)
}

/// Parameters of a connect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connecting {
    /// Local address; `None` is any.
    pub(crate) local: Option<IpAddr>,
    /// Size of both buffers; `None` is the default.
    pub(crate) buffer_bytes: Option<usize>,
    /// Congestion control of TCP by the kernel's name; `None` is the default.
    pub(crate) congestion: Option<&'static str>,
}

/// Makes a TCP connection, or one of another protocol.
pub(crate) fn connect(
    remote: SocketAddr,
    with: Connecting,
    protocol: Option<Protocol>,
) -> io::Result<TcpStream> {
    let Connecting { local, buffer_bytes, congestion } = with;
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, protocol)?;
    set_buffers(&socket, buffer_bytes)?;
    if let Some(congestion) = congestion {
        socket
            .set_tcp_congestion(congestion.as_bytes())
            .map_err(|error| no_congestion(congestion, &error))?;
    }
    if let Some(local) = local {
        socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
    }
    socket.connect_timeout(&SockAddr::from(remote), CONNECT_TIMEOUT)?;
    Ok(socket.into())
}

/// Checks that the kernel has a protocol of stream sockets, and gives TCP a congestion control.
pub(crate) fn offers(protocol: Option<Protocol>, congestion: Option<&str>) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, protocol).map_err(|error| match protocol {
        Some(MPTCP) => no_mptcp(&error),
        _ => error,
    })?;
    match congestion {
        Some(name) => socket.set_tcp_congestion(name.as_bytes()).map_err(|error| no_congestion(name, &error)),
        None => Ok(()),
    }
}

/// Returns an error that tells how a kernel gets MPTCP.
fn no_mptcp(error: &io::Error) -> io::Error {
    let sentence = format!(
        "the kernel has no MPTCP, or net.mptcp.enabled is 0 ({error}); it needs Linux 5.6 with CONFIG_MPTCP"
    );
    io::Error::new(error.kind(), sentence)
}

/// Returns an error that lists the available congestion controls and explains how to get others.
fn no_congestion(name: &str, error: &io::Error) -> io::Error {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = std::fs::read_to_string(file).unwrap_or_default();
    let sentence = format!(
        "the kernel does not give TCP the congestion control `{name}` ({error}); it has: {}; modprobe tcp_{name} may load it",
        available.trim()
    );
    io::Error::new(error.kind(), sentence)
}

/// Gives an accepted connection buffers of `buffer_bytes`, if not the default.
pub(crate) fn set_stream_buffers(stream: &TcpStream, buffer_bytes: Option<usize>) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    match buffer_bytes {
        Some(bytes) => socket.set_send_buffer_size(bytes).and_then(|()| socket.set_recv_buffer_size(bytes)),
        None => Ok(()),
    }
}

/// Returns a UDP socket on `local`.
pub(crate) fn bind_udp(local: SocketAddr, buffer_bytes: Option<usize>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, None)?;
    set_buffers(&socket, buffer_bytes)?;
    if local.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(local))?;
    Ok(socket.into())
}

/// Returns a UDP socket that is connected to `remote`.
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

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    #[test]
    fn users_of_connections_on_this_host_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().expect("it has connected");
        assert!(is_of_this_user(&stream).expect("a table"));
        let addresses = [client.local_addr(), client.peer_addr()].map(|address| match address {
            Ok(SocketAddr::V4(address)) => address,
            other => panic!("{other:?}"),
        });
        let (table, user) = (fs::read_to_string("/proc/net/tcp").expect("a table"), geteuid().as_raw());
        assert!(has_socket(&table, addresses[0], addresses[1], user));
        assert!(!has_socket(&table, addresses[0], addresses[1], user + 1), "another user has made it");
        client.shutdown(Shutdown::Write).expect("it is connected");
        assert!(is_of_this_user(&stream).expect("a table"), "it may have sent all before it is accepted");
        drop(client);
        assert!(!is_of_this_user(&stream).expect("a table"), "nobody knows who has made it");

        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().expect("it has connected");
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
        drop(client);
        assert!(stream.peer_addr().is_err(), "it was reset");
        assert!(!is_of_this_user(&stream).expect("a table"), "nobody knows who has reset it");
    }

    #[test]
    fn a_connection_has_the_congestion_control_that_was_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let remote = listener.local_addr().expect("bound");
        let with = |name| Connecting { congestion: Some(name), ..Connecting::default() };
        // Every kernel has this one.
        let stream = connect(remote, with("reno"), None).expect("it listens");
        let name = socket2::SockRef::from(&stream).tcp_congestion().expect("TCP");
        assert!(name.starts_with(b"reno"), "{name:?}");
        let error = connect(remote, with("no-such"), None).expect_err("there is none").to_string();
        assert!(error.contains("congestion control `no-such`") && error.contains("reno"), "{error}");
    }
}
