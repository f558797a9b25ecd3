//! The beginning of an association: the connect request and its answer, or an accepted connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use sctp::AssociationId;
use streams::Message as Block;
use tpi::{Addresses, Errno, Primitive, TError};

use super::SharedAssociation;
use crate::address::Address;
use crate::error::{BindError, ConnectError, Loss, RecvError};
use crate::options::LinkKind;
use crate::socket::{Found, Socket, Style};
use crate::stack::Stack;

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl SharedAssociation {
    /// Requests an association from a local port, 0 for any; the answer follows on the stream.
    pub(crate) fn start_from(
        stack: &Stack,
        port: u16,
        server: &Address,
    ) -> Result<Arc<SharedAssociation>, ConnectError> {
        let socket = stack.open(Style::OneToOne).map_err(BindError::unavailable)?;
        if port != 0 {
            let any = SocketAddr::new(ANY.ip(), port);
            // Only listeners own a port, so that a fresh stream may be bound to any.
            socket
                .ask(Primitive::BindReq { addresses: any.into(), backlog: 0 })
                .map_err(BindError::unavailable)?;
        }
        request_connect(stack, &socket, server)?;
        let asked = server.of_server().socket_addresses().next().unwrap_or(ANY);
        Ok(SharedAssociation::over(socket, asked))
    }

    /// Handles a message that was read after the connect request. Returns whether the association is up.
    pub(crate) fn on_connect_reply(
        &self,
        found: Result<Found<Block>, RecvError>,
    ) -> Result<bool, ConnectError> {
        match found {
            Ok(Found::Primitive(Primitive::ConnCon { .. }, _)) => {
                if let Some(peer) = self.association_ref().peer_addr() {
                    // The association comes up once, so the cell is empty.
                    let _ = self.peer.set(peer);
                }
                Ok(true)
            }
            Ok(Found::Primitive(Primitive::DisconInd { reason, cause, .. }, data)) => {
                Err(match Errno(reason as i32) {
                    Errno::ECONNREFUSED => ConnectError::Refused,
                    Errno::ETIMEDOUT => ConnectError::TimedOut,
                    Errno::EHOSTUNREACH => ConnectError::Unreachable,
                    _ => ConnectError::Lost(
                        Loss::of(reason, cause, &data).unwrap_or_else(|| Loss::fault("it was shut down")),
                    ),
                })
            }
            Ok(Found::Primitive(..) | Found::Data(_)) => Ok(false),
            Ok(Found::End) => Err(ConnectError::Lost(Loss::fault("the stream was closed"))),
            Err(RecvError::TimedOut) => Err(ConnectError::TimedOut),
            Err(RecvError::Lost(loss)) => Err(ConnectError::Lost(loss)),
            Err(error) => Err(ConnectError::Lost(Loss::fault(error.to_string()))),
        }
    }

    pub(crate) fn accepted(socket: Socket, peer: SocketAddr) -> Arc<SharedAssociation> {
        SharedAssociation::over(socket, peer)
    }

    /// Returns an association of this socket, which was accepted or has requested to connect.
    fn over(socket: Socket, asked: SocketAddr) -> Arc<SharedAssociation> {
        socket.publish();
        Arc::new(SharedAssociation { socket, asked, peer: OnceLock::new() })
    }
}

/// Sends a connect request to the provider, which answers at once whether it starts the handshake. Returns the association.
pub(crate) fn request_connect(
    stack: &Stack,
    socket: &Socket,
    server: &Address,
) -> Result<AssociationId, ConnectError> {
    let server = &server.of_server();
    server.check()?;
    check_remote(server, stack.link())?;
    if let Some(host) = server.hosts.first().filter(|_| !stack.reaches_any(&server.hosts)) {
        return Err(ConnectError::Family { host: *host });
    }
    let addresses = Addresses {
        list: server.socket_addresses().collect(),
        encapsulation_port: Some(server.encapsulation_port()),
    };
    let request = Primitive::ConnReq { addresses: Box::new(addresses) };
    match socket.ask_and(request, |driver| driver.requested(socket.stream)) {
        Ok((Primitive::ErrorAck { errno: Errno::EADDRINUSE, .. }, _)) => Err(ConnectError::Exists),
        Ok((Primitive::ErrorAck { errno: Errno::EADDRNOTAVAIL, .. }, _)) => {
            Err(ConnectError::Family { host: server.hosts[0] })
        }
        Ok((Primitive::ErrorAck { t_error: TError::NoAddress, .. }, _)) => Err(ConnectError::NoPort),
        Ok((Primitive::ErrorAck { t_error, .. }, _)) => {
            Err(ConnectError::Lost(Loss::fault(t_error.to_string())))
        }
        Ok((_, Some(id))) => Ok(id),
        Ok((_, None)) => {
            Err(ConnectError::Lost(Loss::fault("the provider named no association".to_string())))
        }
        Err(error) => Err(ConnectError::Lost(Loss::fault(error.to_string()))),
    }
}

/// Fails if no server can have this address.
fn check_remote(server: &Address, link: LinkKind) -> Result<(), ConnectError> {
    let is_group = |host: &&IpAddr| match host.to_canonical() {
        IpAddr::V4(host) => host.is_multicast() || host.is_broadcast(),
        IpAddr::V6(host) => host.is_multicast(),
    };
    if link == LinkKind::Udp && server.udp_port == Some(0) {
        return Err(ConnectError::InvalidUdpPort(server.clone()));
    }
    let invalid = if server.port == 0 { server.hosts.first() } else { server.hosts.iter().find(is_group) };
    invalid.map_or(Ok(()), |host| Err(ConnectError::InvalidRemote(SocketAddr::new(*host, server.port))))
}
