//! Queries for the associations of a one-to-many socket.

use std::net::SocketAddr;

use carrier::assoc_id::AssocId;
use carrier::request::OPTION_BYTES_MAX;
use rustix::io::Errno;

use super::waiting::wait_for;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::system::addresses::check_peer;
use crate::users::requester::Requester;

/// Returns the association with this address of the peer.
pub(crate) fn find(socket: &Socket, address: SocketAddr) -> Result<AssocId, Errno> {
    check_peer(socket.family(), address)?;
    Ok(socket.associations().with_peer(address).ok_or(Errno::NOENT)?.id())
}

/// Returns the identifiers of the associations after `after`, as many as an answer may contain.
pub(crate) fn after(socket: &Socket, after: AssocId) -> Vec<u8> {
    let ids = socket.associations().ids_after(after, OPTION_BYTES_MAX / 4);
    ids.into_iter().flat_map(|id| id.get().to_ne_bytes()).collect()
}

/// Waits until an association has room for another message.
pub(crate) async fn await_room(
    registry: &Registry,
    socket: &Socket,
    assoc_id: AssocId,
    requester: Requester,
) -> Result<(), Errno> {
    let assoc = socket.associations().get(assoc_id).ok_or(Errno::PIPE)?;
    let queue = assoc.send_queue().ok_or(Errno::PIPE)?;
    wait_for(registry, requester, queue.room()).await?;
    if queue.is_shut() { Err(Errno::SHUTDOWN) } else { Ok(()) }
}
