//! Repeats the steps of the relay, and waits between them for the events that they return.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use swiftwater::Event;
use swiftwater::tokio::Association;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, timeout};

use crate::channel::blocked::NotPut;
use crate::channel::in_flight::Breach;
use crate::channel::putter::Putter;
use crate::channel::style::Style;
use crate::relay::drain::Drain;
use crate::relay::inbound::{Inbound, InboundWait};
use crate::relay::outbound::channel_source::{ChannelSource, ChannelWait};
use crate::relay::outbound::queue_source::QueueWait;
use crate::relay::outbound::{Ends, Outbound, OutboundWait};
use crate::relay::{Departure, notifications};
use crate::state::association::SocketAssociation;
use crate::state::inbound_queue::{Ended, ToProgram};
use crate::state::send_queue::{Messages, SendQueue};
use crate::state::socket::Socket;
use crate::state::unread_ends::UnreadEnd;
use crate::system::journal::{Cause, log};
use crate::users::closer::STUCK_WAIT;
use crate::users::quantum::TurnState;
use crate::users::round_share::Turn;

/// Moves messages from the channel of a one-to-one socket into its association until the program has left. The messages in
/// `unsent` go first.
pub(super) async fn relay_outbound(
    socket: &Rc<Socket>,
    assoc: &SocketAssociation,
    association: &Association,
    unsent: Messages,
) -> Departure {
    let ends = Ends { socket, assoc, association };
    let (mut outbound, mut grace) = (Outbound::from_channel(ends, unsent), ShutdownGrace::default());
    let mut inbound_done = pin!(assoc.inbound_done());
    let mut knows_end = false;
    let departure = loop {
        let wait = match outbound.step() {
            Ok(wait) => wait,
            Err(departure) => break departure,
        };
        let awaits_memory = wait == OutboundWait::Own(ChannelWait::UserMemory);
        let is_idle = awaits_memory || wait == OutboundWait::Message;
        let over = tokio::select! {
            biased;
            over = until_over(wait, ends, &mut outbound, &mut grace) => over,
            // The next step takes the last messages that return to the program.
            () = &mut inbound_done, if is_idle && !assoc.is_inbound_done() => Ok(()),
            // The program may be blocked in a call, and read nothing before it returns: the next step makes room for that.
            _ = association.closed(), if awaits_memory && !knows_end => {
                knows_end = true;
                Ok(())
            }
        };
        if let Err(departure) = over {
            break departure;
        }
    };
    assoc.on_outbound_settled();
    departure
}

/// Waits for the event that the outbound direction of a one-to-one socket waits for. Returns the departure if the program leaves
/// or breaks the socket meanwhile.
async fn until_over<'a>(
    wait: OutboundWait<ChannelWait>,
    Ends { socket, assoc, association }: Ends<'a>,
    outbound: &mut Outbound<'a, ChannelSource<'a>>,
    grace: &mut ShutdownGrace,
) -> Result<(), Departure> {
    let channel = socket.channel();
    let over = match wait {
        OutboundWait::Turn => {
            outbound.next_turn().await;
            return Ok(());
        }
        OutboundWait::Message if !assoc.has_upper_data() => {
            tokio::select! {
                biased;
                () = channel.readable() => {}
                () = assoc.upper_data_declared() => {}
            }
            return Ok(());
        }
        OutboundWait::Message => grace.wait(assoc, channel.readable()).await.map(Ok),
        OutboundWait::Channel(blocked) => {
            grace.wait(assoc, unless_broken(socket, outbound.unblocked(blocked))).await
        }
        OutboundWait::Own(ChannelWait::InboundDone) => {
            let inbound = pin!(assoc.inbound_done());
            return unless_broken(socket, unless_discarded(socket, assoc, association, inbound))
                .await
                .flatten();
        }
        OutboundWait::Own(ChannelWait::UserMemory) => {
            let memory = pin!(channel.room());
            let needed = unless_broken(socket, unless_discarded(socket, assoc, association, memory));
            grace.wait(assoc, needed).await.map(Result::flatten)
        }
        OutboundWait::Association => {
            let room = pin!(room(association));
            return unless_broken(socket, unless_discarded(socket, assoc, association, room)).await.flatten();
        }
    };
    over.unwrap_or_else(|| {
        outbound.give_up();
        Ok(())
    })
}

/// The time for which the peer of an association, which has shut it down, still waits for messages that the program has sent
/// before and that only programs of its user hold up. The peer may be a program of another user.
struct ShutdownGrace {
    left: Duration,
}

impl Default for ShutdownGrace {
    fn default() -> Self {
        ShutdownGrace { left: STUCK_WAIT }
    }
}

impl ShutdownGrace {
    /// Waits for an event that only programs of the socket's user bring about. Returns `None` when the peer has waited for such
    /// events for [`STUCK_WAIT`].
    async fn wait<T>(&mut self, assoc: &SocketAssociation, event: impl Future<Output = T>) -> Option<T> {
        let mut event = pin!(event);
        while !assoc.has_last_upper_data() {
            tokio::select! {
                biased;
                happened = event.as_mut() => return Some(happened),
                () = assoc.peer_shutdown() => {}
            }
            if !assoc.has_last_upper_data() {
                // The association has ended, or its peer has restarted since: no peer waits.
                if let Ok(happened) = timeout(STUCK_WAIT, event.as_mut()).await {
                    return Some(happened);
                }
            }
        }
        let began = Instant::now();
        let waited = timeout(self.left, event).await;
        self.left = self.left.saturating_sub(began.elapsed());
        waited.ok()
    }
}

/// Moves messages from the send queue of an association of a one-to-many socket until the queue is closed and empty.
pub(super) async fn relay_send_queue(
    socket: &Rc<Socket>,
    assoc: &SocketAssociation,
    association: &Association,
    queue: &SendQueue,
) {
    let mut outbound = Outbound::from_queue(Ends { socket, assoc, association }, queue);
    let mut grace = ShutdownGrace::default();
    while let Ok(wait) = outbound.step() {
        socket.adapt_send_queues();
        match wait {
            OutboundWait::Turn => outbound.next_turn().await,
            OutboundWait::Message => queue.filled().await,
            OutboundWait::Association => room(association).await,
            OutboundWait::Channel(blocked) => {
                if grace.wait(assoc, outbound.unblocked(blocked)).await.is_none() {
                    outbound.give_up();
                }
            }
            OutboundWait::Own(QueueWait::InboundDone) => assoc.inbound_done().await,
            OutboundWait::Own(QueueWait::Drained) => {
                drain_with_memory(socket, association.closed()).await;
                outbound.on_drained();
            }
        }
    }
}

/// Moves messages from an association into the channel until the association has ended. Held messages go first; if this is
/// dropped, a message in progress stays held. Reports to `ended` how the association has ended, before the program is notified.
/// Sets `unread` as [`wait_for_program`] does.
pub(super) async fn relay_inbound(
    socket: &Rc<Socket>,
    assoc: &Rc<SocketAssociation>,
    unread: &mut Option<UnreadEnd>,
    mut ended: impl FnMut(Ended),
) {
    let Some(association) = assoc.stack_association() else { return };
    let mut held = assoc.inbound_queue().await;
    let mut inbound = Inbound::new(socket, assoc, association);
    while let Some(wait) = inbound.step(&mut held, &mut ended) {
        match wait {
            InboundWait::Turn => inbound.next_turn().await,
            InboundWait::Message => held.set_next(association.readable().await.err().map(Err)),
            InboundWait::Channel(blocked) => {
                let room = held.wait_for_room(inbound.unblocked(blocked));
                wait_for_program(socket, assoc, unread, room).await;
                if held.is_copy_due() {
                    inbound.next_turn().await;
                }
            }
            InboundWait::Departure => inbound.left().await,
        }
    }
}

/// Waits for an event that the program brings about by reading. An association of a one-to-many socket that has ended, or ends
/// meanwhile, counts as `unread` from then on.
pub(super) async fn wait_for_program(
    socket: &Socket,
    assoc: &SocketAssociation,
    unread: &mut Option<UnreadEnd>,
    event: impl Future<Output = ()>,
) {
    let mut event = pin!(event);
    if socket.style() == Style::OneToMany
        && unread.is_none()
        && let Some(association) = assoc.stack_association()
    {
        tokio::select! {
            biased;
            () = &mut event => return,
            _ = association.closed() => *unread = Some(socket.on_end_unread(assoc)),
        }
    }
    event.await;
}

/// Waits until an association has room, or accepts no more messages.
async fn room(association: &Association) {
    // If the stack has failed, sending fails as well.
    let _ = association.writable().await;
}

/// Waits for `needed`, while no records are taken. Returns the departure if the program breaks the socket meanwhile.
async fn unless_broken<T>(socket: &Socket, needed: impl Future<Output = T>) -> Result<T, Departure> {
    tokio::select! {
        biased;
        done = needed => Ok(done),
        () = breach(socket) => Err(Departure::Broken),
    }
}

/// Waits until the program breaks a socket that takes no records by what it has sent, and says how in the log.
pub(super) async fn breach(socket: &Socket) {
    let breach = socket.channel().breach(socket.turn()).await;
    let said = match breach {
        Breach::Descriptor => "a program has sent a descriptor over its socket; the socket is closed",
        Breach::Memory => {
            "programs have ended and left more messages than their user may have memory for; the associations of a \
             socket are aborted"
        }
    };
    log(Cause::User(socket.owner().user), format_args!("{said}"));
}

/// Waits for memory or room for the program's messages. Returns the departure if the program has closed the socket in a way that
/// discards these messages, or has closed it and the association has ended.
async fn unless_discarded(
    socket: &Socket,
    assoc: &SocketAssociation,
    association: &Association,
    mut needed: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Departure> {
    tokio::select! {
        biased;
        () = &mut needed => return Ok(()),
        () = socket.channel().closed() => {}
    }
    if !socket.options().lingers() {
        return Err(Departure::Closed);
    }
    if socket.channel().is_left_unread(0).await {
        return Err(Departure::Unread);
    }
    assoc.guard_end();
    tokio::select! {
        biased;
        // Memory may be there again and again, and not suffice.
        _ = association.closed() => Err(Departure::Closed),
        () = needed => Ok(()),
    }
}

/// Takes the records that the program has sent before a request. Returns false if records stay because the user's memory is used
/// up, or because nothing can be taken for too long.
pub(crate) async fn drain(socket: &Socket) -> bool {
    let mut drain = Drain::new(socket);
    match drain_now(socket, &mut drain).await {
        Some(is_complete) => is_complete,
        None => drain_later(socket, drain).await,
    }
}

/// Drains as [`drain`] does, in rounds of the runtime, as long as records can be taken. Returns `None` if some can be taken only
/// later: the socket is throttled, or a thread has still work to do for a record.
pub(crate) async fn drain_now(socket: &Socket, drain: &mut Drain) -> Option<bool> {
    let channel = socket.channel();
    loop {
        let Some(is_complete) = drain.step(socket) else {
            yield_now().await;
            continue;
        };
        let waits = if drain.has_taken_all(socket) { channel.awaits_thread() } else { channel.takes_later() };
        return (!waits).then_some(is_complete);
    }
}

/// Continues a drain that [`drain_now`] has left, once records can be taken. Returns as [`drain`].
pub(crate) async fn drain_later(socket: &Socket, mut drain: Drain) -> bool {
    let drained = async {
        loop {
            let has_taken_all = drain.has_taken_all(socket);
            socket.channel().readable().await;
            if has_taken_all {
                drain.take(socket);
                return true;
            }
            if let Some(is_complete) = drain_now(socket, &mut drain).await {
                return is_complete;
            }
        }
    };
    timeout(STUCK_WAIT, drained).await.unwrap_or(false)
}

/// Drains as [`drain`] does, and once more if the user's memory was used up and there is some again soon, unless it is `in_vain`
/// meanwhile. The peer, which may be a program of another user, may wait for this.
pub(super) async fn drain_with_memory<T>(socket: &Socket, in_vain: impl Future<Output = T>) {
    if drain(socket).await {
        return;
    }
    let has_memory = tokio::select! {
        room = timeout(STUCK_WAIT, socket.channel().room()) => room.is_ok(),
        _ = in_vain => false,
    };
    if has_memory {
        drain(socket).await;
    }
}

/// Notifies the program of associations whose data is all acknowledged (`SCTP_SENDER_DRY_EVENT`), as many as are due. Those that
/// a turn permits and that find room are in the channel when this returns; one task of the socket puts the others there, however
/// often the program subscribes.
pub(crate) async fn notify_sender_dry(socket: &Rc<Socket>) {
    let socket = Rc::clone(socket);
    let mut notifying = Box::pin(async move {
        let due = socket.due_dry();
        let Some(_notifier) = due.begin() else { return };
        let mut turn = socket.turn();
        while let Some(assoc) = due.first() {
            put_dry(&socket, &assoc, &mut turn).await;
            due.remove(assoc.id());
            if turn.spend(1) == TurnState::Over {
                turn.next().await;
            }
        }
        turn.end();
    });
    let is_done = poll_fn(|cx| Poll::Ready(notifying.as_mut().poll(cx).is_ready())).await;
    if !is_done {
        spawn_local(notifying);
    }
}

/// Puts the notification of an association into the channel, unless it is due at another socket meanwhile. An association that
/// has ended has none, and one that has data to send again has one of its own when that is acknowledged.
async fn put_dry(socket: &Socket, assoc: &SocketAssociation, turn: &mut Turn) {
    let mut putter = Putter::new(socket.channel());
    for notification in notifications::of(socket, assoc, &Event::SenderDry) {
        while assoc.is_dry()
            && socket.due_dry().contains(assoc.id())
            && let Err(NotPut::Blocked(blocked)) =
                putter.try_put(notification.header(), notification.blocks(), || None)
        {
            turn.end();
            putter.unblocked(blocked).await;
            turn.resume();
        }
    }
}

/// Puts notifications into the channel, between the messages of its associations.
pub(super) async fn notify(socket: &Socket, notifications: impl IntoIterator<Item = ToProgram>) {
    let mut putter = Putter::new(socket.channel());
    for notification in notifications {
        // A notification to a program that has closed the socket is lost.
        let _ = putter.put(notification.header(), notification.blocks()).await;
    }
}

#[cfg(test)]
mod tests;
