//! The socket at the other end of an association, if it is one of this daemon.

use crate::state::association::SocketAssociation;
use crate::state::send_queue::QueueFront;
use crate::state::socket::Socket;

/// Declares as data of the upper layer what the program at the other end of an association has sent by now, if that end is a
/// socket of this daemon: this end is shut down next. In a kernel each call has completed before the next begins; here messages
/// may wait in the channel of the other end.
pub(crate) fn declare_upper_data(socket: &Socket, assoc: &SocketAssociation) {
    let Some((socket, id)) = socket.relayed().other_end(assoc) else { return };
    let Some(assoc) = socket.associations().get(id).filter(|assoc| assoc.is_relayed()) else { return };
    let has_records = socket.channel().waiting_bytes() > 0;
    match assoc.send_queue() {
        None if has_records => assoc.declare_upper_data(),
        None => {}
        Some(queue) => {
            if has_records {
                assoc.set_has_upper_records(true);
                // Its relay drains the channel.
                queue.wake();
            }
            if has_records || matches!(queue.front(), QueueFront::Message(..)) {
                assoc.set_has_upper_data(true);
            }
        }
    }
}
