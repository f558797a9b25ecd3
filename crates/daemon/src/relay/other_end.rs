//! The socket at the other end of an association, if it is one of this daemon.

use super::drain::Drain;
use crate::state::association::SocketAssociation;
use crate::state::send_queue::QueueFront;
use crate::state::socket::Socket;

/// Declares as data of the upper layer what the program at the other end of an association has sent by now, if that end is a
/// socket of this daemon: this end is shut down next. In a kernel each call has completed before the next begins; here messages
/// may wait in the channel of the other end.
pub(crate) fn declare_upper_data(socket: &Socket, assoc: &SocketAssociation) {
    let Some((socket, id)) = socket.relayed().other_end(assoc) else { return };
    let Some(assoc) = socket.associations().get(id) else { return };
    let queue = assoc.send_queue();
    let has_upper_data = match queue {
        None => socket.channel().waiting_bytes() > 0,
        Some(queue) => {
            // Only the records say which association they are for.
            Drain::new(&socket).take(&socket);
            matches!(queue.front(), QueueFront::Message(..))
        }
    };
    if has_upper_data {
        assoc.set_has_upper_data(true);
    }
}
