//! Queries for the associations of a one-to-many socket.

use std::net::SocketAddr;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::request::OPTION_BYTES_MAX;
use rustix::io::Errno;

use super::waiting::wait_for;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::system::addresses::check_peer;
use crate::users::requester::Requester;

/// Returns the association with this address of the peer.
pub(crate) fn find(socket: &Socket, address: SocketAddr) -> Result<AssocId, Errno> {
    socket.check_family(address)?;
    check_peer(address)?;
    Ok(socket.associations().with_peer(address).ok_or(Errno::NOENT)?.id())
}

/// Returns the identifiers of the associations after `after`, as many as an answer may contain.
pub(crate) fn after(socket: &Socket, after: AssocId) -> Vec<u8> {
    let ids = socket.associations().ids_after(after, OPTION_BYTES_MAX / 4);
    ids.into_iter().flat_map(|id| id.get().to_ne_bytes()).collect()
}

/// Waits until the association of a one-to-one socket has ended, and the program has what it gets of it.
pub(crate) async fn await_end(socket: &Socket) {
    socket.association_ended().await;
    if let Some(assoc) = socket.associations().first() {
        assoc.inbound_done().await;
        // Messages that the association has not taken return after that.
        assoc.outbound_settled().await;
    }
}

/// Waits until an association has room for another message. Fails if it takes none any more.
pub(crate) async fn await_room(
    registry: &Registry,
    socket: &Socket,
    assoc_id: AssocId,
    requester: Requester,
) -> Result<(), Errno> {
    let assoc = socket.associations().get(assoc_id).ok_or(Errno::PIPE)?;
    let queue = assoc.send_queue().ok_or(Errno::PIPE)?;
    socket.adapt_send_queues();
    wait_for(registry, requester, queue.room()).await?;
    if queue.is_shut() {
        return Err(Errno::SHUTDOWN);
    }
    if queue.is_gone() { Err(Errno::PIPE) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use super::*;
    use crate::channel::style::Style;
    use crate::state::association::SocketAssociation;
    use crate::state::inbound_queue::Ended;
    use crate::testing::{ID, opened, registry, soon};

    #[tokio::test(flavor = "local")]
    async fn the_end_of_an_association_is_awaited_until_its_last_notification_has_come() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let peer = ([127, 0, 0, 1], 7).into();
        let assoc = Rc::new(SocketAssociation::new(ID, peer, socket.future_options()));
        socket.on_connecting(&assoc, None);
        socket.on_connected(1);
        let mut end = pin!(await_end(&socket));
        let mut is_over = || end.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_over());
        socket.on_association_ended(Ended::ByUs);
        assert!(!is_over(), "the program does not know of it");
        assoc.on_inbound_done();
        assert!(!is_over(), "messages may return that the association has not taken");
        assoc.on_outbound_settled();
        soon(end).await;
    }
}
