//! What each request does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carrier::name::CarrierName;
use carrier::page::State;
use carrier::request::{Answer, Request};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, UCred};
use swiftwater::{Address, tokio::Listener};

use crate::door::Reply;
use crate::errno;
use crate::life::Turn;
use crate::line;
use crate::options::Settings;
use crate::ports::Scope;
use crate::socket::{Inner, Socket, Sockets};

impl Sockets {
    /// Does what is asked for. `value` is where the value of an option is put.
    pub(crate) fn perform<'a>(
        self: &Arc<Self>,
        request: &Request<'_>,
        descriptor: Option<OwnedFd>,
        who: UCred,
        value: &'a mut Vec<u8>,
    ) -> Result<Reply<'a>, Errno> {
        match *request {
            Request::Describe => {
                *value = crate::inquiry::answer(&self.stack).into_bytes();
                return Ok(Answer::Value(value).into());
            }
            Request::Open { v6 } => {
                let (socket, theirs) = self.open(v6, State::Idle, Settings::new(&self.stack))?;
                let page = socket.page.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
                return Ok(Reply { answer: Answer::Done, descriptors: vec![theirs, page] });
            }
            _ => {}
        }
        let descriptor = descriptor.ok_or(Errno::BADF)?;
        let socket = self.find(name_of(&descriptor)?).ok_or(Errno::NOTSOCK)?;
        match *request {
            Request::Describe | Request::Open { .. } => {}
            Request::Attach => {
                let page = socket.page.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
                return Ok(Reply { answer: Answer::Done, descriptors: vec![page] });
            }
            Request::Bind(address) => self.bind(&socket, address, who)?,
            Request::Listen { backlog } => self.listen(&socket, backlog)?,
            Request::Connect(server) => self.connect(&socket, server, &descriptor)?,
            Request::LocalAddress => {
                return Ok(Answer::Address(socket.lock().local_address(socket.v6)).into());
            }
            Request::PeerAddress => {
                let peer = socket.lock().peer.filter(|_| socket.lock_stage() == State::Connected);
                return Ok(Answer::Address(peer.ok_or(Errno::NOTCONN)?).into());
            }
            Request::SetOption { level, name, value } => socket.set_option(level, name, value)?,
            Request::GetOption { level, name, .. } => {
                *value = socket.option(level, name)?;
                return Ok(Answer::Value(value).into());
            }
        }
        Ok(Answer::Done.into())
    }

    fn bind(&self, socket: &Socket, address: SocketAddr, who: UCred) -> Result<(), Errno> {
        let mut inner = socket.lock();
        check_family(socket.v6, address)?;
        if inner.bound.is_some() || inner.stage != State::Idle {
            return Err(Errno::INVAL);
        }
        let ip = address.ip().to_canonical();
        let privileged = (1..self.unprivileged_from).contains(&address.port());
        if privileged && !who.uid.is_root() {
            return Err(Errno::ACCESS);
        }
        if !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_err() {
            return Err(Errno::ADDRNOTAVAIL);
        }
        self.hold(socket, &mut inner, SocketAddr::new(ip, address.port()))
    }

    /// Takes a port for the socket.
    fn hold(&self, socket: &Socket, inner: &mut Inner, address: SocketAddr) -> Result<(), Errno> {
        let scope = inner.scope(address.ip());
        let port = self.ports().bind(socket.number, scope, address.port(), inner.settings.reuse_address)?;
        inner.bound = Some(SocketAddr::new(address.ip(), port));
        Ok(())
    }

    /// The port of the socket, which takes a free one if it has none.
    fn port(&self, socket: &Socket, inner: &mut Inner) -> Result<u16, Errno> {
        if inner.bound.is_none() {
            self.hold(socket, inner, unspecified(socket.v6))?;
        }
        Ok(inner.bound.map_or(0, |bound| bound.port()))
    }

    fn listen(&self, socket: &Socket, backlog: i32) -> Result<(), Errno> {
        let mut inner = socket.lock();
        match inner.stage {
            State::Idle => {}
            // The backlog is as it was.
            State::Listening => return Ok(()),
            State::Connecting | State::Connected | State::Ended => return Err(Errno::INVAL),
        }
        let port = self.port(socket, &mut inner)?;
        let options = inner.settings.options(backlog);
        let scope = inner.scope(inner.bound.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |bound| bound.ip()));
        let backlog = options.backlog as usize;
        let listen = || self.stack.with_options(&options).listen(port).map(Listener::from);
        let associations = self.listeners.add(port, (socket.number, scope), backlog, listen);
        let associations = associations.map_err(|error| errno::of_listen(&error))?;
        self.ports().listen(socket.number, port);
        socket.line.keep_short();
        socket.set_stage(&mut inner, State::Listening);
        socket.take_turn(Turn::Listen(associations))
    }

    fn connect(&self, socket: &Socket, server: SocketAddr, theirs: &OwnedFd) -> Result<(), Errno> {
        let mut inner = socket.lock();
        match inner.stage {
            State::Idle => {}
            State::Connecting => return Err(Errno::ALREADY),
            State::Listening | State::Connected | State::Ended => return Err(Errno::ISCONN),
        }
        check_family(socket.v6, server)?;
        let ip = server.ip().to_canonical();
        if server.port() == 0 || ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
            return Err(Errno::INVAL);
        }
        let port = self.port(socket, &mut inner)?;
        // Nobody may find the carrier writable before it is known how this ends.
        line::fill(theirs.as_fd())?;
        inner.peer = Some(as_seen(socket.v6, server));
        inner.local = local_toward(ip).map(|local| SocketAddr::new(local, port));
        socket.set_stage(&mut inner, State::Connecting);
        let stack = self.stack.with_options(&inner.settings.options(0));
        // All hosts carry SCTP in the same UDP port.
        let udp_port = Some(self.stack.udp_port()).filter(|port| *port != 0);
        let server = Address { hosts: vec![ip], port: server.port(), udp_port };
        socket.take_turn(Turn::Connect { stack, port, server })
    }
}

impl Socket {
    fn lock_stage(&self) -> State {
        self.lock().stage
    }
}

impl Inner {
    fn scope(&self, ip: IpAddr) -> Scope {
        Scope::new(ip, self.settings.v6_only)
    }

    fn local_address(&self, v6: bool) -> SocketAddr {
        as_seen(v6, self.local.or(self.bound).unwrap_or_else(|| unspecified(v6)))
    }
}

/// Which socket a descriptor is.
fn name_of(descriptor: &OwnedFd) -> Result<CarrierName, Errno> {
    let peer = rustix::net::getpeername(descriptor)?.ok_or(Errno::NOTSOCK)?;
    let peer = SocketAddrUnix::try_from(peer).map_err(|_| Errno::NOTSOCK)?;
    peer.abstract_name().and_then(CarrierName::parse).ok_or(Errno::NOTSOCK)
}

/// An IPv6 socket takes IPv4 addresses, too, in either form.
fn check_family(v6: bool, address: SocketAddr) -> Result<(), Errno> {
    if !v6 && address.is_ipv6() { Err(Errno::INVAL) } else { Ok(()) }
}

fn unspecified(v6: bool) -> SocketAddr {
    let ip: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

/// An address as a program sees it: an IPv6 socket knows IPv4 addresses in their mapped form.
pub(crate) fn as_seen(v6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if v6 && ip.is_unspecified() => {
            SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port())
        }
        IpAddr::V4(ip) if v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// The address that the routes choose toward a host.
fn local_toward(host: IpAddr) -> Option<IpAddr> {
    let probe = UdpSocket::bind(unspecified(host.is_ipv6())).ok()?;
    probe.connect((host, 9)).ok()?;
    Some(probe.local_addr().ok()?.ip())
}
