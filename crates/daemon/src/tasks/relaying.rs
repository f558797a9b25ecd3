//! Tasks that repeat the steps of the relay, and wait in between for what these name.

use std::pin::{Pin, pin};
use std::rc::Rc;

use swiftwater::tokio::Association;
use swiftwater::{Event, RecvError};
use tokio::task::yield_now;

use crate::channel::putter::Putter;
use crate::relay::drain::Drain;
use crate::relay::inbound::Inbound;
use crate::relay::outbound::{Outbound, QueueOutbound};
use crate::relay::{Departure, Wait, notifications};
use crate::state::association::{Ended, SocketAssociation, Upward};
use crate::state::send_queue::{Messages, SendQueue};
use crate::state::socket::Socket;

/// Moves messages from the channel of a one-to-one socket into its association until the program has left. `unsent` goes first.
pub(super) async fn down(
    socket: &Rc<Socket>,
    assoc: &SocketAssociation,
    association: &Association,
    unsent: Messages,
) -> Departure {
    let mut outbound = Outbound::new(socket, assoc, association, unsent);
    loop {
        let wait = match outbound.step() {
            Ok(wait) => wait,
            Err(departure) => return departure,
        };
        let endpoint = &socket.channel.endpoint;
        match wait {
            Wait::Turn => yield_now().await,
            Wait::Message => endpoint.readable().await,
            Wait::Channel(blocked) => outbound.unblocked(blocked).await,
            Wait::Memory | Wait::Association => {
                let needed = async {
                    match wait {
                        Wait::Memory => endpoint.room().await,
                        _ => room(association).await,
                    }
                };
                if let Err(departure) = unless_given_up(socket, pin!(needed)).await {
                    return departure;
                }
            }
        }
    }
}

/// Moves messages from the send queue of an association of a one-to-many socket until the queue is closed and empty.
pub(super) async fn down_from_queue(
    socket: &Rc<Socket>,
    assoc: &SocketAssociation,
    association: &Association,
    queue: &SendQueue,
) {
    let mut outbound = QueueOutbound::new(socket, assoc, association, queue);
    while let Some(wait) = outbound.step() {
        match wait {
            Wait::Turn | Wait::Memory => yield_now().await,
            Wait::Message => queue.filled().await,
            Wait::Association => room(association).await,
            Wait::Channel(blocked) => outbound.unblocked(blocked).await,
        }
    }
}

/// Moves messages from an association into the channel until the association has ended. Held messages go first; a message that is
/// on its way when this is dropped stays held. `ended` is told how the association has ended before the program is.
pub(super) async fn up(socket: &Rc<Socket>, assoc: &Rc<SocketAssociation>, mut ended: impl FnMut(Ended)) {
    let Some(association) = assoc.association() else { return };
    let mut held = assoc.held.lock().await;
    let mut inbound = Inbound::new(socket, assoc, association);
    while let Some(wait) = inbound.step(&mut held, &mut ended) {
        match wait {
            Wait::Message => held.next = association.readable().await.err().map(Err::<_, RecvError>),
            Wait::Channel(blocked) => inbound.unblocked(blocked).await,
            Wait::Turn | Wait::Memory | Wait::Association => yield_now().await,
        }
    }
}

/// Waits until an association has room, or takes no more.
async fn room(association: &Association) {
    // If the sockets have failed, sending fails as well.
    let _ = association.writable().await;
}

/// Waits for what messages of the program need, unless the program has closed its socket in a way that gives those up.
async fn unless_given_up(
    socket: &Socket,
    mut needed: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Departure> {
    tokio::select! {
        biased;
        () = &mut needed => return Ok(()),
        () = socket.channel.endpoint.closed() => {}
    }
    if !socket.inner().options.lingers() {
        return Err(Departure::Closed);
    }
    if socket.channel.has_unread_data() {
        return Err(Departure::Unread);
    }
    needed.await;
    Ok(())
}

/// Takes what the program has sent before it asks for something. Returns false if records stay because the user's memory is used
/// up.
pub(crate) async fn drain(socket: &Socket) -> bool {
    let mut drain = Drain::new(socket);
    loop {
        if let Some(is_complete) = drain.step(socket) {
            return is_complete;
        }
        yield_now().await;
    }
}

/// Tells a program that all has been sent on these associations.
pub(crate) async fn tell_dry(socket: Rc<Socket>, associations: Vec<Rc<SocketAssociation>>) {
    for assoc in associations {
        tell(&socket, notifications::of(&socket, &assoc, &Event::SenderDry)).await;
    }
}

/// Hands notifications to a program, between the messages of its associations.
pub(super) async fn tell(socket: &Socket, notifications: impl IntoIterator<Item = Upward>) {
    let mut putter = Putter::new(&socket.channel);
    for notification in notifications {
        // A program that is gone needs no news.
        let _ = putter.put(notification.header(), notification.blocks()).await;
        putter.let_others();
    }
}
