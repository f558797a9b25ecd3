//! The transport addresses of one endpoint.

use std::net::SocketAddr;

/// All addresses of one endpoint: one host may have several, all with the same SCTP port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The addresses; the port of each is the SCTP port.
    pub list: Vec<SocketAddr>,
    /// The UDP port that carries SCTP to these addresses (RFC 6951); `None` where it is the default or does not apply.
    pub encapsulation_port: Option<u16>,
}

impl From<Vec<SocketAddr>> for Addresses {
    fn from(list: Vec<SocketAddr>) -> Self {
        Self { list, encapsulation_port: None }
    }
}

impl From<SocketAddr> for Addresses {
    fn from(address: SocketAddr) -> Self {
        Self::from(vec![address])
    }
}

impl From<Vec<SocketAddr>> for Box<Addresses> {
    fn from(list: Vec<SocketAddr>) -> Self {
        Box::new(list.into())
    }
}

impl From<SocketAddr> for Box<Addresses> {
    fn from(address: SocketAddr) -> Self {
        Box::new(address.into())
    }
}
