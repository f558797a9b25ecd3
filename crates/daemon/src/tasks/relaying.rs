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
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::OwnedFd;
    use std::task::{Context, Waker};

    use channel_protocol::abi::{IPPROTO_SCTP, SCTP_EVENT};
    use channel_protocol::assoc_id::AssocId;
    use channel_protocol::record::{Flags, Header, Kind};
    use rustix::net::{RecvFlags, SendFlags, recv};
    use swiftwater::{AssociationOptions, SendInfo};

    use super::*;
    use crate::calls::options;
    use crate::relay::other_end::declare_upper_data;
    use crate::state::notification_type::NotificationType;
    use crate::state::registry::Registry;
    use crate::testing::{
        ID, header, opened, put_record, read, registry, send, server_address, soon, until, with_writer,
    };
    use crate::users::limits::Limits;
    use crate::users::requester::tests::requester;
    use crate::users::round_share::RECORDS_PER_ROUND;

    /// The program, which is blocked in a call, reads nothing, so it is not told of the end either.
    #[tokio::test(flavor = "local")]
    async fn what_waits_for_memory_is_discarded_as_soon_as_the_association_has_ended() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let connecting = registry.stack().connect(server_address(&registry));
        let (connected, accepted) = tokio::join!(connecting, listener.accept());
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let peer = (IpAddr::from([127, 0, 0, 1]), 7).into();
        let assoc =
            SocketAssociation::with(ID, peer, connected.expect("it listens"), socket.future_options());
        let channel = socket.channel();
        let _all = channel.accounts().sent().charge_anyway(2 * Limits::default().user_memory_bytes);
        send(&program_end, ID, &[7; 3000]);
        let association = assoc.stack_association().expect("it is up");
        let discarded = async {
            accepted.expect("an association comes").0.abort("it ends");
            until("it is discarded", || channel.waiting_bytes() == 0).await;
        };
        tokio::select! {
            _ = relay_outbound(&socket, &assoc, association, Messages::new()) => {}
            () = discarded => {}
        }
        assert_eq!(channel.waiting_bytes(), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn a_drain_that_may_take_nothing_has_not_taken_all() {
        for is_throttled in [true, false] {
            let registry = registry();
            let (socket, program_end) = opened(&registry, Style::OneToMany);
            send(&program_end, ID, b"a message");
            let daemon_end = socket.channel().daemon_end();
            let (_end_it, ends) = std::sync::mpsc::channel::<()>();
            if is_throttled {
                daemon_end.time().throttle_for(Duration::from_secs(60));
            } else {
                daemon_end.closer().run(move || ends.recv().unwrap_or_default());
                while daemon_end.closer().has_room() {
                    daemon_end.closer().run(|| ());
                }
            }
            assert_eq!(Drain::new(&socket).step(&socket), Some(false), "throttled: {is_throttled}");
            assert!(!drain(&socket).await, "throttled: {is_throttled}");
            assert!(daemon_end.waiting_bytes() > 0);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_notification_that_finds_room_needs_no_further_round() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let host = IpAddr::from([127, 0, 0, 1]);
        let server = server_address(&registry);
        let (connected, _accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let mut options = socket.future_options();
        options.subscribe(NotificationType::SenderDry.subscription(), true);
        let peer = SocketAddr::new(host, 7);
        let assoc = SocketAssociation::with(ID, peer, connected.expect("it listens"), options);
        socket.due_dry().add(Rc::new(assoc));
        let mut notified = pin!(notify_sender_dry(&socket));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(notified.as_mut().poll(&mut cx).is_ready());
        let received = recv(&program_end, &mut [0; 256][..], RecvFlags::DONTWAIT);
        assert!(received.is_ok_and(|(_, bytes)| bytes > 0), "a notification");
    }

    fn peer_address() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 7))
    }

    /// Fills the pair of a socket, whose program reads nothing.
    fn fill(socket: &Socket) {
        while socket.channel().daemon_end().try_put_message(&header(ID, 6), &["filler".into()]).is_ok() {}
    }

    /// Returns the number of tasks.
    fn tasks() -> usize {
        tokio::runtime::Handle::current().metrics().num_alive_tasks()
    }

    /// Reads all records in a pair; returns the number of notifications.
    fn notifications_read(program_end: &OwnedFd) -> usize {
        let records = std::iter::from_fn(|| read(program_end));
        records
            .filter(|record| Header::parse(record).is_some_and(|header| header.kind == Kind::Notification))
            .count()
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_that_subscribes_again_and_again_has_one_task_and_one_notification() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let (connected, _accepted) =
            tokio::join!(registry.stack().connect(server_address(&registry)), listener.accept());
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let assoc = Rc::new(SocketAssociation::new(ID, peer_address(), socket.future_options()));
        socket.on_connecting(&assoc, None);
        socket.on_connected(1);
        assoc.set_up(connected.expect("it listens"));
        let mut value = Vec::from(ID.get().to_ne_bytes());
        value.extend((NotificationType::SenderDry as u16).to_ne_bytes());
        value.extend([1, 0]);
        let subscribe = async || {
            let option = (IPPROTO_SCTP, SCTP_EVENT);
            options::set(&registry, &socket, option, &value, requester(1)).await.expect("it is valid");
            notify_sender_dry(&socket).await;
        };
        fill(&socket);
        let before = tasks();
        for _ in 0..20 {
            subscribe().await;
        }
        assert_eq!(tasks(), before + 1, "it waits for room");
        let mut read = notifications_read(&program_end);
        assert_eq!(read, 0);
        until("the task is done", || tasks() == before).await;
        read += notifications_read(&program_end);
        assert_eq!((read, socket.due_dry().first().is_none()), (1, true));
        subscribe().await;
        assert_eq!(notifications_read(&program_end), 1, "the next subscription has one of its own");
    }

    #[tokio::test(flavor = "local")]
    async fn a_notification_that_is_due_moves_with_its_association() {
        let registry = registry();
        let ((from, program_end), (to, new_end)) =
            (opened(&registry, Style::OneToMany), opened(&registry, Style::PeeledOff));
        let listener = registry.stack().listen(7).expect("a free port");
        let (connected, _accepted) =
            tokio::join!(registry.stack().connect(server_address(&registry)), listener.accept());
        let before = tasks();
        let mut options = from.future_options();
        options.subscribe(NotificationType::SenderDry.subscription(), true);
        let assoc =
            Rc::new(SocketAssociation::with(ID, peer_address(), connected.expect("it listens"), options));
        fill(&from);
        from.due_dry().add(assoc);
        notify_sender_dry(&from).await;
        to.due_dry().add(from.due_dry().remove(ID).expect("it waits for room"));
        notify_sender_dry(&to).await;
        assert_eq!((notifications_read(&new_end), notifications_read(&program_end)), (1, 0));
        until("the first task is done", || tasks() == before).await;
        assert_eq!(notifications_read(&program_end), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_sends_or_ends_before_its_notification_finds_room_has_none() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        for ends in [false, true] {
            let (connected, accepted) =
                tokio::join!(registry.stack().connect(server_address(&registry)), listener.accept());
            let (association, peer) = (connected.expect("it listens"), accepted.expect("it comes").0);
            let (socket, program_end) = opened(&registry, Style::OneToMany);
            let mut options = socket.future_options();
            options.subscribe(NotificationType::SenderDry.subscription(), true);
            let assoc = SocketAssociation::with(ID, peer_address(), association.clone(), options);
            let assoc = Rc::new(assoc);
            let before = tasks();
            fill(&socket);
            socket.due_dry().add(Rc::clone(&assoc));
            notify_sender_dry(&socket).await;
            assert_eq!(tasks(), before + 1, "it waits for room");
            if ends {
                peer.abort("it ends");
                until("the end", || assoc.has_ended()).await;
            } else {
                // More than the peer, which reads nothing, has room for.
                while association.try_send(&[0; 1 << 16], &SendInfo::default()).is_ok() {}
            }
            let mut read = notifications_read(&program_end);
            until("the task is done", || tasks() == before).await;
            read += notifications_read(&program_end);
            assert_eq!((read, socket.due_dry().first().is_none()), (0, true), "the association ends: {ends}");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_closed_socket_without_an_association_waits_for_no_memory() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let server = server_address(&registry);
        let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        let association = connected.expect("it listens");
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let assoc = SocketAssociation::with(ID, peer_address(), association.clone(), socket.future_options());
        drop(program_end);
        accepted.expect("an association comes").0.abort("it ends");
        let no_memory = pin!(std::future::pending());
        let waited = soon(unless_discarded(&socket, &assoc, &association, no_memory)).await;
        assert!(matches!(waited, Err(Departure::Closed)), "{waited:?}");
    }

    #[tokio::test(flavor = "local")]
    async fn a_peer_that_takes_nothing_keeps_no_closed_socket() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        // T5 expires after half a second.
        let rto = Duration::from_millis(100);
        let options = AssociationOptions::default().with_rto_initial(rto).with_rto_min(rto).with_rto_max(rto);
        let client = registry.stack().with_options(&options);
        let (connected, accepted) =
            tokio::join!(client.connect(server_address(&registry)), listener.accept());
        let (association, _peer) = (connected.expect("it listens"), accepted.expect("an association comes"));
        // More than both buffers hold, because the peer reads nothing.
        while timeout(2 * rto, association.send(&[7; 50_000])).await.is_ok() {}
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let assoc = SocketAssociation::with(ID, peer_address(), association.clone(), socket.future_options());
        drop(program_end);
        let no_room = pin!(std::future::pending());
        let waited = soon(unless_discarded(&socket, &assoc, &association, no_room)).await;
        assert!(matches!(waited, Err(Departure::Closed)), "{waited:?}");
    }

    /// A socket whose program has sent one message, and whose association relays it.
    struct Relayed {
        socket: Rc<Socket>,
        _program_end: OwnedFd,
        assoc: Rc<SocketAssociation>,
        peer: Association,
    }

    /// Rounds of the runtime in which a relay notices a shutdown.
    const NOTICE_ROUNDS: usize = 10;

    impl Relayed {
        /// Shuts the association down at the peer, and lets so much time pass that it waits for the program no longer, once the
        /// relay has noticed the shutdown.
        async fn shut_down_at_peer(&self) {
            self.peer.shutdown().await.expect("it is open");
            until("the shutdown comes", || self.assoc.has_last_upper_data()).await;
            for _ in 0..NOTICE_ROUNDS {
                yield_now().await;
            }
            tokio::time::pause();
            tokio::time::advance(STUCK_WAIT + Duration::from_millis(1)).await;
            tokio::time::resume();
            soon(self.peer.closed()).await;
        }
    }

    async fn relayed(registry: &Registry, style: Style, header: &Header) -> Relayed {
        let listener = registry.stack().listen(7).expect("a free port");
        let host = IpAddr::from([127, 0, 0, 1]);
        let server = server_address(registry);
        let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        let (socket, program_end) = opened(registry, style);
        let peer = SocketAddr::new(host, 7);
        let assoc =
            SocketAssociation::with(ID, peer, connected.expect("it listens"), socket.future_options());
        assoc.options_mut().subscribe(NotificationType::SendFailedEvent.subscription(), true);
        let record = [&header.encode(), b"a word".as_slice()].concat();
        rustix::net::send(&program_end, &record, SendFlags::DONTWAIT).expect("room in the pair");
        let assoc = match style {
            Style::OneToMany => socket.enter(assoc, 1, registry.admit_association(&socket, 1).expect("room")),
            _ => Rc::new(assoc),
        };
        assoc.set_has_upper_data(true);
        assoc.set_has_upper_records(style == Style::OneToMany);
        let (relayed_socket, relayed) = (Rc::clone(&socket), Rc::clone(&assoc));
        spawn_local(async move {
            let association = relayed.stack_association().expect("it is up");
            match relayed.send_queue() {
                Some(queue) => relay_send_queue(&relayed_socket, &relayed, association, &queue).await,
                None => {
                    relay_outbound(&relayed_socket, &relayed, association, Messages::new()).await;
                }
            }
        });
        Relayed { socket, _program_end: program_end, assoc, peer: accepted.expect("an association comes").0 }
    }

    #[tokio::test(flavor = "local")]
    async fn a_peer_that_shuts_down_waits_so_long_for_memory_of_the_program() {
        for style in [Style::OneToOne, Style::OneToMany] {
            let registry = registry();
            let relayed = relayed(&registry, style, &header(ID, 6)).await;
            let channel = relayed.socket.channel();
            let _all = channel.accounts().sent().charge_anyway(Limits::default().user_memory_bytes);
            relayed.shut_down_at_peer().await;
            assert!(channel.waiting_bytes() > 0, "the message still waits for memory");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_peer_that_shuts_down_waits_so_long_for_a_program_that_reads_nothing() {
        for style in [Style::OneToOne, Style::OneToMany] {
            let registry = registry();
            let refused = Header { stream: u16::MAX, ..header(ID, 6) };
            let relayed = relayed(&registry, style, &refused).await;
            // The report of the message cannot be delivered.
            let _delivery = relayed.socket.channel().delivery().lock().await;
            relayed.shut_down_at_peer().await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_message_for_which_the_program_does_not_wake_the_daemon_delays_no_shutdown() {
        let long = header(AssocId::NONE, 2_000_000);
        // The header of a message whose memfd never comes.
        let hole = Header { flags: long.flags.with(Flags::IN_MEMFD).with(Flags::IN_TURN), ..long };
        for (header, content) in [(header(AssocId::NONE, 6), b"a word".as_slice()), (hole, b"")] {
            let registry = registry();
            let listener = registry.stack().listen(7).expect("a free port");
            let host = IpAddr::from([127, 0, 0, 1]);
            let server = server_address(&registry);
            let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
            let end = |id, association: Association| {
                let (socket, program_end) = opened(&registry, Style::OneToOne);
                let peer = SocketAddr::new(host, association.peer_addr().port());
                let assoc = SocketAssociation::with(id, peer, association, socket.future_options());
                (socket, program_end, Rc::new(assoc))
            };
            let (socket, _program_end, assoc) = end(ID, connected.expect("it listens"));
            let (other, _others_end, peer) = end(AssocId::new(4), accepted.expect("an association comes").0);
            socket.on_adopted(&assoc, None, None);
            with_writer(&socket, |_| ());
            let (relayed_socket, relayed) = (Rc::clone(&socket), Rc::clone(&assoc));
            let relay = spawn_local(async move {
                let association = relayed.stack_association().expect("it is up");
                relay_outbound(&relayed_socket, &relayed, association, Messages::new()).await
            });
            yield_now().await;
            assert!(put_record(&socket, &header, content), "the daemon sleeps");
            declare_upper_data(&other, &peer);
            assert!(assoc.has_upper_data());
            let peer = peer.stack_association().expect("it is up");
            peer.shutdown().await.expect("it is open");
            if content.is_empty() {
                let departure = soon(relay).await.expect("it ends");
                assert!(matches!(departure, Departure::Broken), "{departure:?}");
            } else {
                assert!(soon(peer.recv()).await.is_ok_and(|message| message.is_some()));
                soon(peer.closed()).await;
            }
        }
    }

    const SOCKETS: u32 = 40;
    /// Fewer than one turn allows.
    const RECORDS: usize = 20;

    #[tokio::test(flavor = "local")]
    async fn the_sockets_of_a_user_together_move_so_many_records_in_a_round() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let host = IpAddr::from([127, 0, 0, 1]);
        let (mut peers, mut programs, mut relays) = (Vec::new(), Vec::new(), Vec::new());
        for id in (0..SOCKETS).map(AssocId::new) {
            let server = server_address(&registry);
            let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
            peers.push(accepted.expect("an association comes"));
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            let options = socket.future_options();
            let peer = SocketAddr::new(host, 7);
            let assoc = SocketAssociation::with(id, peer, connected.expect("it listens"), options);
            (0..RECORDS).for_each(|_| send(&program_end, id, b"a word"));
            programs.push(program_end);
            relays.push(async move {
                let association = assoc.stack_association().expect("it is up");
                relay_outbound(&socket, &assoc, association, Messages::new()).await
            });
        }
        relays.into_iter().for_each(|relay| drop(spawn_local(relay)));
        let (mut before, mut most) = (0, 0);
        soon(async {
            while before < u64::from(SOCKETS) * RECORDS as u64 {
                yield_now().await;
                let records = registry.busy_polling().records();
                most = most.max(records - before);
                before = records;
            }
        })
        .await;
        assert!(most <= RECORDS_PER_ROUND as u64, "{most} in a round");
    }
}
