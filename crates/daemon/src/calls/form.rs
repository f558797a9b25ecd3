//! Switches the form of what a program reads: records, or plain content for a program without the shim.

use channel_protocol::assoc_id::AssocId;
use channel_protocol::status_page::State;
use rustix::io::Errno;

use crate::channel::style::Style;
use crate::state::socket::Socket;

/// Stops putting messages into the channel of a socket that has, or had, its one association
/// ([`SocketRequest::Hold`](channel_protocol::request::SocketRequest::Hold)).
pub(crate) fn hold(socket: &Socket) -> Result<(), Errno> {
    if socket.style() == Style::OneToMany {
        return Err(Errno::OPNOTSUPP);
    }
    match socket.state() {
        State::Connected | State::Ended | State::Lost => socket.channel().hold(),
        _ => Err(Errno::INVAL),
    }
}

/// Accepts a message back that was in the channel
/// ([`SocketRequest::PutBack`](channel_protocol::request::SocketRequest::PutBack)). Waits for memory if its user has too much on
/// its way.
pub(crate) async fn put_back(socket: &Socket, record: &[u8]) -> Result<(), Errno> {
    let assoc = socket.associations().first();
    let (assoc_id, peer) = assoc.map_or((AssocId::NONE, None), |assoc| (assoc.id(), Some(assoc.peer())));
    socket.channel().put_back(record, assoc_id, peer).await
}
