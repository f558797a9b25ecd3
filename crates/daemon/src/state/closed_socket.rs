//! What reports say of a socket that its program has closed.

use std::net::SocketAddr;

use crate::channel::style::Style;
use crate::users::owner::Owner;

/// A socket that its program has closed.
#[derive(Debug)]
pub(crate) struct ClosedSocket {
    pub(crate) number: u64,
    pub(crate) style: Style,
    pub(crate) owner: Owner,
    pub(crate) local: Vec<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}
