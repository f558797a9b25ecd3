//! The task of a one-to-many socket: one channel for any number of associations.

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use channel_protocol::request::Start;
use rustix::io::Errno;
use swiftwater::tokio::{Association, Listener};
use tokio::sync::mpsc::UnboundedReceiver;

use super::relaying::{breach, drain_with_memory, notify, relay_inbound, relay_send_queue, wait_for_program};
use super::{turn_to_close, turn_to_stop_listening};
use crate::calls::options;
use crate::relay::drain::{BatchEnd, take_batch};
use crate::relay::notifications::USER_ABORT;
use crate::relay::outbound::unsent;
use crate::relay::{BROKEN, Departure, NO_REASON, abort, notifications};
use crate::state::association::{SocketAssociation, paths_of};
use crate::state::commands::{ConnectRequest, OneToManyCommand};
use crate::state::registry::Registry;
use crate::state::send_queue::{QueueFront, SendQueue};
use crate::state::socket::Socket;
use crate::system::addresses::as_seen;
use crate::system::errno;
use crate::system::journal::{Cause, log};
use crate::users::quantum::Quantum;
use crate::users::round_share::Turn;

/// Maximum time to set up an association whose program has closed the socket: enough for two lost INITs.
const SETUP_AFTER_CLOSE: Duration = Duration::from_secs(5);

/// The origin of an association.
enum Origin {
    Accepted(Association),
    Connecting { request: ConnectRequest, start: Start },
}

/// Runs until the program has closed the socket. Returns the turn in which the socket is forgotten.
pub(super) async fn run(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    mut commands: UnboundedReceiver<OneToManyCommand>,
) -> Turn {
    let mut listener = None;
    let (mut turn, mut quantum) = (socket.turn(), Quantum::new());
    // Whether the task takes no records until its user has memory, and whether it has handled a close meanwhile.
    let (mut is_stalled, mut is_close_handled) = (false, false);
    let channel = socket.channel();
    loop {
        let mut weight = 1;
        let departure = tokio::select! {
            () = channel.readable(), if !is_stalled => {
                tokio::select! {
                    () = turn.begin() => {}
                    () = socket.port_wanted() => {
                        listener = None;
                        stop_listening(registry, socket);
                        turn.begin().await;
                    }
                }
                let batch = take_batch(socket);
                turn.spend(batch.weight);
                turn.end();
                weight = batch.weight.max(1);
                is_stalled = matches!(batch.end, BatchEnd::Stalled);
                batch.end.departure()
            }
            () = channel.room(), if is_stalled => {
                is_stalled = false;
                None
            }
            // Records that the program sent before the close may still wait for memory.
            () = channel.closed(), if is_stalled && !is_close_handled => {
                is_close_handled = true;
                listener = None;
                stop_listening(registry, socket);
                close_early(socket).await
            }
            () = breach(socket), if is_stalled => Some(Departure::Broken),
            command = commands.recv() => match command {
                Some(OneToManyCommand::Listen(_)) if is_close_handled => None,
                Some(command) => {
                    perform(registry, socket, command, &mut listener);
                    None
                }
                None => Some(Departure::Closed),
            },
            association = next(socket, &mut listener) => {
                accept(registry, socket, association);
                None
            }
        };
        if let Some(departure) = departure {
            commands.close();
            // Commands from before the close are carried out: an association may have its first message already.
            while let Ok(command) = commands.try_recv() {
                perform(registry, socket, command, &mut listener);
            }
            if listener.is_some() || socket.listens() {
                // First, because closing many associations takes many rounds.
                let mut turn = turn_to_stop_listening(socket).await;
                drop(listener.take());
                stop_listening(registry, socket);
                turn.end_close();
            }
            close(registry, socket, departure).await;
            return turn_to_close(socket).await;
        }
        quantum.spend_or_yield(weight).await;
    }
}

fn perform(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    command: OneToManyCommand,
    listener: &mut Option<Arc<Listener>>,
) {
    match command {
        OneToManyCommand::Listen(new) => *listener = Some(new),
        OneToManyCommand::Unlisten => *listener = None,
        OneToManyCommand::Connect { request, start, assoc } => {
            start_association(registry, socket, assoc, Origin::Connecting { request, start });
        }
    }
}

/// Releases the port of a closed socket that is not forgotten yet, for the next program. Peers set up no more associations.
fn stop_listening(registry: &Registry, socket: &Socket) {
    if socket.listens() {
        registry.on_unlistened(socket);
    }
    registry.release_port(socket);
}

/// Handles the close of a socket whose records wait for memory. Returns the departure if those records are given up, and `None`
/// if the socket lingers.
async fn close_early(socket: &Rc<Socket>) -> Option<Departure> {
    if socket.channel().is_left_unread(0).await {
        return Some(Departure::Unread);
    }
    if !socket.options().lingers() {
        return Some(Departure::Closed);
    }
    let (mut turn, mut next) = (socket.turn(), socket.associations().first());
    while let Some(assoc) = next {
        let guard = || {
            assoc.guard_end();
            let queue = assoc.send_queue();
            if let Some(queue) = queue.filter(|_| assoc.stack_association().is_none()) {
                set_up_soon(socket, Rc::clone(&assoc), queue);
            }
        };
        turn.close_one(guard).await;
        next = socket.associations().next_after(assoc.id());
    }
    None
}

/// Aborts the association unless it is up within `SETUP_AFTER_CLOSE`. Its program has closed the socket; the kernel would abort
/// the association at once.
fn set_up_soon(socket: &Rc<Socket>, assoc: Rc<SocketAssociation>, queue: Rc<SendQueue>) {
    let socket = Rc::downgrade(socket);
    tokio::task::spawn_local(async move {
        if tokio::time::timeout(SETUP_AFTER_CLOSE, assoc.set_up_ended()).await.is_err() {
            if let Some(socket) = socket.upgrade() {
                socket.remove(&assoc);
            }
            // The messages in its send queue are lost with it.
            assoc.tasks().stop().await;
            drop(queue.take());
        }
    });
}

/// Waits for the next association that a peer has set up; while the program has left too many ends unread, for none.
async fn next(socket: &Socket, listener: &mut Option<Arc<Listener>>) -> Association {
    if let Some(listening) = listener {
        socket.associations().unread_ends().room().await;
        match listening.accept().await {
            Ok((association, _)) => return association,
            Err(error) => {
                log(Cause::User(socket.owner().user), format_args!("a listener has failed: {error}"));
                *listener = None;
            }
        }
    }
    pending().await
}

fn accept(registry: &Rc<Registry>, socket: &Rc<Socket>, association: Association) {
    let peer = as_seen(socket.family(), association.peer_addr());
    let Some(permit) = registry.admit_association(socket, paths_of(&association)) else {
        return abort(&association, "the server has as many associations as it may");
    };
    let options = socket.future_options();
    let entered = SocketAssociation::new(registry.next_association(), peer, options);
    let entered = socket.enter(entered, association.streams_out(), permit);
    start_association(registry, socket, entered, Origin::Accepted(association));
}

/// Starts the task that sets an association up and relays its send queue.
fn start_association(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    assoc: Rc<SocketAssociation>,
    origin: Origin,
) {
    // An association that the socket has removed needs no task.
    let Some(queue) = assoc.send_queue() else { return };
    let task = relay(Rc::clone(registry), Rc::clone(socket), Rc::clone(&assoc), Rc::clone(&queue), origin);
    assoc.tasks().on_outbound_started(tokio::task::spawn_local(task));
}

/// Sets an association up and relays its send queue.
async fn relay(
    registry: Rc<Registry>,
    socket: Rc<Socket>,
    assoc: Rc<SocketAssociation>,
    queue: Rc<SendQueue>,
    origin: Origin,
) {
    if let Origin::Connecting { start: Start::WithMessage, .. } = origin {
        while let QueueFront::Nothing = queue.front() {
            queue.filled().await;
        }
        if let QueueFront::Closed = queue.front() {
            // The program has left before it sent the first message, or could not send it.
            return socket.on_silent();
        }
    }
    let outcome = tokio::select! {
        biased;
        () = assoc.tasks().setup_aborted() => Err((Errno::CONNABORTED, USER_ABORT)),
        association = set_up(origin) => association,
    };
    let association = match outcome {
        Ok(association) => association,
        Err((error, cause)) => return cannot_start(&socket, &assoc, &queue, error, cause).await,
    };
    if !registry.charge_paths(&socket, &assoc, paths_of(&association)) {
        abort(&association, "the client has no memory left for the server's addresses");
        return cannot_start(&socket, &assoc, &queue, Errno::NOBUFS, 0).await;
    }
    queue.show_streams_out(association.streams_out());
    assoc.set_up(association.clone());
    options::apply_when_up(&socket, &assoc);
    socket.associations().on_up(&assoc);
    let before = socket.associations().on_delivery_begun(&assoc);
    let guard = InboundGuard { socket: Rc::clone(&socket), assoc: Rc::clone(&assoc) };
    if queue.is_closed() {
        drop(guard);
        registry.leave(&socket, &assoc);
    } else {
        let upward = relay_inbound_to_end(guard, before);
        assoc.tasks().on_inbound_started(tokio::task::spawn_local(upward));
    }
    relay_send_queue(&socket, &assoc, &association, &queue).await;
    assoc.inbound_done().await;
    socket.on_silent();
}

/// Marks the inbound direction of an association as done when it is dropped: the channel has everything, or no program is left to
/// read it.
struct InboundGuard {
    socket: Rc<Socket>,
    assoc: Rc<SocketAssociation>,
}

impl Drop for InboundGuard {
    fn drop(&mut self) {
        self.socket.associations().on_delivered(&self.assoc);
        self.assoc.on_inbound_done();
    }
}

/// Sets an association up. Otherwise returns the error, and the cause of the ABORT that ended the setup, 0 for none.
async fn set_up(origin: Origin) -> Result<Association, (Errno, u16)> {
    match origin {
        Origin::Accepted(association) => Ok(association),
        Origin::Connecting { request: ConnectRequest { stack, port, server, .. }, .. } => {
            let outcome = stack.connect_from(port, &server).await;
            outcome.map_err(|error| (errno::of_connect(&error), notifications::cause_of(&error)))
        }
    }
}

async fn cannot_start(
    socket: &Rc<Socket>,
    assoc: &SocketAssociation,
    queue: &SendQueue,
    error: Errno,
    cause: u16,
) {
    let _unread = socket.on_end_unread(assoc);
    socket.on_one_of_many_ended(assoc);
    assoc.set_failed(error);
    notify(socket, notifications::cannot_start(assoc, cause)).await;
    // Messages that the program has sent before it could see the failure are still in the channel.
    drain_with_memory(socket, pending::<()>()).await;
    socket.remove(assoc);
    report_unsent(socket, assoc, queue, cause).await;
    socket.on_silent();
}

/// Reports the messages that wait for an association that could not be set up.
async fn report_unsent(socket: &Rc<Socket>, assoc: &SocketAssociation, queue: &SendQueue, cause: u16) {
    let mut quantum = Quantum::new();
    for (header, data) in queue.take() {
        quantum.spend_or_yield(1).await;
        notify(socket, unsent(socket, assoc, header, data, cause)).await;
    }
}

/// Relays from an association into the channel until it has ended. First waits until `before`, the ended association with the
/// same peer, has delivered its end: a program that knows peers by their addresses would take that end for the end of this one.
async fn relay_inbound_to_end(guard: InboundGuard, before: Option<Rc<SocketAssociation>>) {
    let InboundGuard { socket, assoc } = &guard;
    let mut unread = None;
    if let Some(before) = before {
        wait_for_program(socket, assoc, &mut unread, before.inbound_done()).await;
    }
    relay_inbound(socket, assoc, &mut unread, |_| socket.on_one_of_many_ended(assoc)).await;
    let _unread = unread.unwrap_or_else(|| socket.on_end_unread(assoc));
    // Messages that the program has sent before it could see the end are still in the channel. They return to it.
    drain_with_memory(socket, pending::<()>()).await;
    socket.remove(assoc);
}

/// Ends the associations of a socket that its program has closed, and leaves those to the stack that are not aborted. Dropping
/// the last handle of an association delivers its messages and shuts it down.
async fn close(registry: &Registry, socket: &Rc<Socket>, departure: Departure) {
    let (associations, lingers) = (registry.take_associations(socket), socket.options().lingers());
    let reason = match departure {
        Departure::HalfClosed | Departure::Closed if lingers => None,
        Departure::HalfClosed | Departure::Closed | Departure::Unread => Some(NO_REASON),
        Departure::Broken => Some(BROKEN),
    };
    if reason.is_none() {
        socket.channel().release_all_credits();
    }
    let mut turn = socket.turn();
    for assoc in associations {
        let close = || {
            close_association(socket, Rc::clone(&assoc), reason);
            // One that was aborted has ended, and takes no place from others.
            registry.leave(socket, &assoc);
        };
        turn.close_one(close).await;
    }
}

/// Ends an association: with a reason by an ABORT, otherwise when its messages are delivered.
fn close_association(socket: &Rc<Socket>, assoc: Rc<SocketAssociation>, reason: Option<&str>) {
    let Some(queue) = assoc.take_send_queue() else { return };
    queue.close();
    // No program is left to deliver messages to.
    assoc.tasks().abort_inbound();
    match (assoc.stack_association(), reason) {
        (None, None) => set_up_soon(socket, assoc, queue),
        (Some(_), None) => {}
        (Some(association), Some(reason)) => abort(association, reason),
        // This cancels the setup.
        (None, Some(_)) => assoc.tasks().abort_outbound(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::{AsFd, OwnedFd};
    use std::pin::pin;
    use std::task::{Context, Waker};

    use bytes::Bytes;
    use channel_protocol::assoc_id::AssocId;
    use channel_protocol::record::{Header, Kind};
    use channel_protocol::sharers_page::ROOM_BYTES;
    use swiftwater::{Address, ListenerOptions, internals};

    use super::*;
    use crate::calls::associations::await_room;
    use crate::calls::listen::listen;
    use crate::channel::style::Style;
    use crate::state::notification_type::NotificationType;
    use crate::state::unread_ends::UNREAD_ENDS_MAX;
    use crate::tasks::start;
    use crate::testing::{
        ID, closed_socket, header, opened, opened_whole, read, registry, registry_with, send, server_address,
        soon, until,
    };
    use crate::users::limits::Limits;
    use crate::users::quantum::RECORDS_PER_TURN;
    use crate::users::requester::tests::requester;
    use crate::users::round_share::{CLOSE_RECORDS, RECORDS_PER_ROUND};
    use crate::users::user::ENDED_ASSOCIATION_BYTES;

    const MANY: usize = 4 * RECORDS_PER_TURN;

    /// Enters this many associations that are being set up.
    fn enter_many(registry: &Registry, socket: &Socket) -> Vec<AssocId> {
        let enter = |port| {
            let peer = SocketAddr::from(([127, 0, 0, 1], port));
            let assoc = SocketAssociation::new(registry.next_association(), peer, socket.future_options());
            socket.enter(assoc, 1, registry.admit_association(socket, 1).expect("room")).id()
        };
        (1..=MANY as u16).map(enter).collect()
    }

    /// Waits until `left` returns 0. Returns the most by which it is less after a round.
    async fn most_in_a_round(left: impl Fn() -> usize + 'static) -> usize {
        let (mut most, mut before) = (0, left());
        // A task, because the runtime polls the test itself less often.
        let counting = tokio::task::spawn_local(async move {
            while before > 0 {
                tokio::task::yield_now().await;
                let now = left();
                most = most.max(before - now);
                before = now;
            }
            most
        });
        soon(counting).await.expect("no panic")
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_with_many_associations_is_closed_in_turns() {
        let registry = Rc::new(registry());
        let (socket, program_end) = start(&registry, opened_whole(&registry, Style::OneToMany));
        socket.options_mut().set_linger(true, 0);
        let ids = enter_many(&registry, &socket);
        let user = registry.resources().users().user(1);
        let indexed = {
            let registry = Rc::clone(&registry);
            move || registry.indexed_associations()
        };
        drop(program_end);
        while !socket.is_left() {
            tokio::task::yield_now().await;
        }
        assert!(indexed() > MANY / 2);
        assert!(socket.associations().is_empty(), "none is found meanwhile");
        assert!(ids.iter().all(|id| registry.association(*id).is_none()));
        let most = most_in_a_round(indexed).await;
        assert!(most <= RECORDS_PER_ROUND / CLOSE_RECORDS, "{most} in a round");
        soon(socket.gone()).await;
        assert_eq!(user.associations(), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn a_close_that_waits_for_memory_guards_many_associations_in_turns() {
        let registry = Rc::new(registry());
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        enter_many(&registry, &socket);
        drop(program_end);
        let all: Vec<_> = socket.associations().all().iter().map(Rc::downgrade).collect();
        // Each is given to a task that ends its setup, beside the socket.
        let left = move || all.iter().filter(|assoc| assoc.strong_count() == 1).count();
        assert_eq!(left(), MANY);
        let guarded = tokio::task::spawn_local({
            let socket = Rc::clone(&socket);
            async move { close_early(&socket).await.is_none() }
        });
        let most = most_in_a_round(left).await;
        assert!(most <= RECORDS_PER_ROUND / CLOSE_RECORDS, "{most} in a round");
        assert!(guarded.await.expect("it ends"), "the socket goes on");
    }

    /// Starts an association with a listener on the same host; returns the listener and the association.
    fn connecting(registry: &Rc<Registry>, socket: &Rc<Socket>) -> (Listener, Rc<SocketAssociation>) {
        let listener = registry.stack().listen(7).expect("a free port");
        (listener, connecting_to_server(registry, socket))
    }

    /// Starts an association with port 7 of the same host.
    fn connecting_to_server(registry: &Rc<Registry>, socket: &Rc<Socket>) -> Rc<SocketAssociation> {
        let host = std::net::IpAddr::from([127, 0, 0, 1]);
        let server = server_address(registry);
        let request =
            ConnectRequest { stack: registry.stack().clone(), port: 40_000, server, ends_content: false };
        let permit = registry.admit_association(socket, 1).expect("the first");
        let options = socket.future_options();
        let assoc = SocketAssociation::new(ID, SocketAddr::new(host, 7), options);
        let assoc = socket.enter(assoc, 1, permit);
        start_association(
            registry,
            socket,
            Rc::clone(&assoc),
            Origin::Connecting { request, start: Start::Now },
        );
        assoc
    }

    /// Reads what comes to the program until a message returns.
    async fn returned(program_end: &OwnedFd) {
        let is_returned = |record: Vec<u8>| {
            let (header, content) = Header::split(&record).expect("a record");
            header.kind == Kind::Notification
                && content.starts_with(&(NotificationType::SendFailedEvent as u16).to_ne_bytes())
        };
        while !read(program_end).is_some_and(is_returned) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_of_a_closed_socket_counts_until_it_has_ended() {
        for comes_up_later in [false, true] {
            let registry = Rc::new(registry());
            let (socket, _theirs) = opened(&registry, Style::OneToMany);
            let user = registry.resources().users().user(1);
            let (listener, assoc) = connecting(&registry, &socket);
            let queue = assoc.send_queue().expect("it is open");
            // More than the peer's window, because the peer reads nothing.
            for _ in 0..40 {
                queue.push(header(ID, 50_000), Bytes::from(vec![7; 50_000]));
            }
            drop(queue);
            if comes_up_later {
                close(&registry, &socket, Departure::Closed).await;
                assert!(assoc.stack_association().is_none());
            }
            let (peer, _) = soon(listener.accept()).await.expect("an association comes");
            soon(assoc.set_up_ended()).await;
            if !comes_up_later {
                close(&registry, &socket, Departure::Closed).await;
            }
            registry.forget(&socket);
            drop((socket, assoc));
            until("it counts", || registry.closed().users() == [1]).await;
            assert_eq!(user.associations(), 1);
            while soon(peer.recv()).await.expect("an end in order").is_some() {}
            drop(peer);
            soon(internals::no_association(registry.stack())).await;
            assert_eq!((registry.closed().users(), user.associations()), (vec![], 0));
        }
    }

    /// Returns what the user has: associations, memory of pages, and unread data.
    fn counted(registry: &Registry) -> [usize; 3] {
        let user = registry.resources().users().user(1);
        [user.associations(), user.pages().charged_bytes(), user.received().charged_bytes()]
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_has_ended_counts_as_unread_data_until_the_program_reads_it() {
        const PEERS: usize = 9;
        let registry = Rc::new(registry());
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let change = NotificationType::AssociationChange;
        socket.options_mut().future_mut().subscribe(change.subscription(), true);
        let listener = registry.stack().listen(7).expect("a free port");
        let [_, pages_before, unread_before] = counted(&registry);
        // The program reads nothing: there is no room for it.
        let delivery = socket.channel().delivery().lock().await;
        for _ in 0..PEERS {
            let (peer, accepted) =
                tokio::join!(registry.stack().connect(server_address(&registry)), listener.accept());
            accept(&registry, &socket, accepted.expect("an association comes").0);
            peer.expect("it listens").abort("");
        }
        until("no association counts", || counted(&registry)[0] == 0).await;
        let [_, pages, unread] = counted(&registry);
        assert_eq!(pages, pages_before);
        assert!(unread >= unread_before + PEERS * ENDED_ASSOCIATION_BYTES, "{unread}");
        drop(delivery);
        let mut changes = Vec::new();
        let read_all = async {
            while changes.len() < 2 * PEERS {
                let Some(record) = read(&program_end) else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let (header, content) = Header::split(&record).expect("a record");
                if header.kind == Kind::Notification {
                    changes.push(content[8]);
                }
            }
        };
        assert!(tokio::time::timeout(crate::testing::WAIT_MAX, read_all).await.is_ok(), "{changes:?}");
        assert_eq!(changes.iter().filter(|change| **change == 0).count(), PEERS, "{changes:?}");
        until("nothing is unread", || counted(&registry) == [0, pages_before, unread_before]).await;
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_has_ended_keeps_its_permit_if_there_is_no_memory_for_unread_data() {
        let registry = Rc::new(registry());
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let user = registry.resources().users().user(1);
        let unread = user.received().charge_anyway(Limits::default().user_receive_bytes / 2);
        let permit = registry.admit_association(&socket, 1).expect("room");
        let assoc = SocketAssociation::new(ID, ([127, 0, 0, 1], 7).into(), socket.future_options());
        let assoc = socket.enter(assoc, 1, permit);
        let _first = socket.on_end_unread(&assoc);
        assert_eq!(user.associations(), 1);
        drop(unread);
        let _second = socket.on_end_unread(&assoc);
        assert_eq!(user.associations(), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_accepts_none_while_its_program_leaves_too_many_ends_unread() {
        let registry = Rc::new(registry());
        let (socket, program_end) = start(&registry, opened_whole(&registry, Style::OneToMany));
        let ends = socket.associations().unread_ends();
        let unread: Vec<_> = (0..UNREAD_ENDS_MAX).map(|_| ends.begin()).collect();
        listen(&registry, &socket, 1, program_end.as_fd()).expect("a free port");
        let server = Address { port: socket.local_address().port(), ..server_address(&registry) };
        let _peer = soon(registry.stack().connect(server)).await.expect("it listens");
        // The task has had its turns.
        for _ in 0..RECORDS_PER_TURN {
            tokio::task::yield_now().await;
        }
        assert_eq!(socket.associations().count(), 0);
        drop(unread);
        until("it is accepted", || socket.associations().count() == 1).await;
    }

    #[tokio::test(flavor = "local")]
    async fn associations_that_are_aborted_take_no_place_from_those_of_closed_sockets() {
        let registry = Rc::new(registry_with(&Limits { user_associations: 1, ..Limits::default() }));
        let user = registry.resources().users().user(1);
        let (socket, _theirs) = opened(&registry, Style::OneToMany);
        let (listener, assoc) = connecting(&registry, &socket);
        let (_peer, _) = soon(listener.accept()).await.expect("an association comes");
        soon(assoc.set_up_ended()).await;
        let _delivering = closed_socket(&registry, &listener, true).await;
        assert_eq!(user.associations(), 2);
        close(&registry, &socket, Departure::Unread).await;
        assert_eq!((registry.closed().users(), user.associations_refused()), (vec![1], 0));
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_comes_up_after_the_close_is_shut_down() {
        let registry = Rc::new(registry());
        let (socket, _theirs) = opened(&registry, Style::OneToMany);
        let (listener, assoc) = connecting(&registry, &socket);
        close(&registry, &socket, Departure::Closed).await;
        assert!(assoc.stack_association().is_none());
        drop(assoc);
        let (peer, _) = soon(listener.accept()).await.expect("an association comes");
        soon(peer.closed()).await;
    }

    #[tokio::test(flavor = "local")]
    async fn a_closed_socket_stops_listening_before_its_associations_are_closed() {
        let registry = Rc::new(registry());
        let (socket, program_end) = start(&registry, opened_whole(&registry, Style::OneToMany));
        listen(&registry, &socket, 1, program_end.as_fd()).expect("a free port");
        let port = socket.local_address().port();
        for id in 0..4 * RECORDS_PER_ROUND as u32 {
            let peer = SocketAddr::from(([127, 0, 0, 1], 1));
            let assoc = SocketAssociation::new(AssocId::new(id), peer, socket.future_options());
            socket.enter(assoc, 1, registry.admit_association(&socket, 1).expect("room"));
        }
        drop(program_end);
        // The associations may all be closed by the time a timer expires.
        let no_longer_listens = async {
            while socket.listens() {
                tokio::task::yield_now().await;
            }
        };
        soon(no_longer_listens).await;
        assert_eq!(registry.all().len(), 1, "its associations are still closed");
        assert_eq!(registry.holders(port), 0);
        registry.stack().listen(port).expect("nobody listens");
        soon(socket.gone()).await;
    }

    #[tokio::test(flavor = "local")]
    async fn a_closed_listener_frees_its_port_without_memory() {
        for sends in [false, true] {
            let registry = Rc::new(registry());
            let (socket, program_end) = start(&registry, opened_whole(&registry, Style::OneToMany));
            listen(&registry, &socket, 1, program_end.as_fd()).expect("a free port");
            let port = socket.local_address().port();
            let channel = Rc::clone(socket.channel());
            let all = channel.accounts().sent().charge_anyway(Limits::default().user_memory_bytes);
            if sends {
                send(&program_end, ID, b"a word");
            }
            drop(program_end);
            until("the port is free", || registry.holders(port) == 0).await;
            registry.stack().listen(port).expect("nobody listens");
            if sends {
                assert!(channel.waiting_bytes() > 0, "the message still waits for memory");
                drop(all);
            }
            soon(socket.gone()).await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn the_end_of_an_association_comes_before_the_next_one_with_the_same_peer() {
        let registry = Rc::new(registry());
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let change = NotificationType::AssociationChange;
        socket.options_mut().future_mut().subscribe(change.subscription(), true);
        let listener = registry.stack().listen(7).expect("a free port");
        let server = server_address(&registry);
        // The messages of the first association wait for room, and so does its end.
        let delivery = socket.channel().delivery().lock().await;
        for _ in 0..2 {
            let (peer, accepted) =
                tokio::join!(registry.stack().connect_from(40_000, &server), listener.accept());
            accept(&registry, &socket, accepted.expect("an association comes").0);
            let peer = peer.expect("it listens");
            for _ in 0..2 * RECORDS_PER_TURN {
                peer.send(b"a word").await.expect("it is up");
            }
            soon(peer.close()).await.expect("the shutdown is complete");
        }
        drop(delivery);
        let mut changes = Vec::new();
        let told = || {
            while let Some(record) = read(&program_end) {
                let notification =
                    Header::split(&record).filter(|(header, _)| header.kind == Kind::Notification);
                changes.extend(notification.map(|(_, content)| content[8]));
            }
            changes.len() >= 4
        };
        until("both associations have ended", told).await;
        assert_eq!(changes, [0, 3, 0, 3], "each is up, and then shut down");
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_waits_for_no_room_in_an_association_that_has_ended() {
        for is_subscribed in [false, true] {
            let registry = Rc::new(registry());
            let (socket, _theirs) = opened(&registry, Style::OneToMany);
            let (listener, assoc) = connecting(&registry, &socket);
            // The messages in the send queue return to the program, but only once that has read the peer's.
            assoc.options_mut().subscribe(NotificationType::SendFailedEvent.subscription(), is_subscribed);
            let (peer, _) = soon(listener.accept()).await.expect("an association comes");
            soon(assoc.set_up_ended()).await;
            // The peer's message cannot be delivered, so the socket has the association after its end, too.
            let _delivery = socket.channel().delivery().lock().await;
            peer.send(b"a word").await.expect("it is up");
            peer.abort("");
            soon(assoc.stack_association().expect("it is up").closed()).await;
            let send_queue = assoc.send_queue().expect("it has not been removed");
            for _ in 0..2 {
                assert!(send_queue.push(Header::new(Kind::Data), Bytes::from(vec![0; ROOM_BYTES as usize])));
                let waited = soon(await_room(&registry, &socket, ID, requester(1))).await;
                assert_eq!(waited, Err(Errno::PIPE), "subscribed: {is_subscribed}");
            }
            assert!(!send_queue.is_closed());
            if !is_subscribed {
                until("the queue is empty", || matches!(send_queue.front(), QueueFront::Nothing)).await;
            }
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_waits_for_no_room_in_an_association_that_cannot_start() {
        let registry = Rc::new(registry());
        let (socket, _theirs) = opened(&registry, Style::OneToMany);
        // The program is notified of the failure, and there is no room for that.
        let _delivery = socket.channel().delivery().lock().await;
        let (listener, assoc) = connecting(&registry, &socket);
        assoc.options_mut().subscribe(NotificationType::AssociationChange.subscription(), true);
        let send_queue = assoc.send_queue().expect("it was entered");
        assert!(send_queue.push(Header::new(Kind::Data), Bytes::from(vec![0; ROOM_BYTES as usize])));
        let mut waiting = pin!(await_room(&registry, &socket, ID, requester(1)));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(listener);
        assert_eq!(soon(waiting).await, Err(Errno::PIPE));
        assert!(!send_queue.is_closed());
    }

    #[tokio::test(flavor = "local")]
    async fn messages_that_are_in_the_channel_when_their_association_ends_return_to_the_program() {
        let registry = Rc::new(registry());
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let (listener, assoc) = connecting(&registry, &socket);
        assoc.options_mut().subscribe(NotificationType::SendFailedEvent.subscription(), true);
        let (peer, _) = soon(listener.accept()).await.expect("an association comes");
        soon(assoc.set_up_ended()).await;
        send(&program_end, ID, b"a word");
        peer.abort("enough");
        soon(returned(&program_end)).await;
        assert!(assoc.send_queue().is_none(), "the socket has removed it");
    }

    #[tokio::test(flavor = "local")]
    async fn a_refusal_and_the_messages_that_it_returns_have_the_cause_of_the_abort() {
        // A listener without room refuses with "Out of Resource", and a host without a listener without a cause.
        for (listens, cause) in [(true, 4_u16), (false, 0)] {
            let registry = Rc::new(registry());
            let (socket, program_end) = opened(&registry, Style::OneToMany);
            for kind in [NotificationType::AssociationChange, NotificationType::SendFailedEvent] {
                socket.options_mut().future_mut().subscribe(kind.subscription(), true);
            }
            let full = ListenerOptions::default().with_associations_max(1);
            let listener = registry.stack().listen_with(7, &full).expect("a free port");
            let server = server_address(&registry);
            let (_only, _accepted) = tokio::join!(registry.stack().connect(&server), listener.accept());
            if !listens {
                drop(listener);
            }
            let assoc = connecting_to_server(&registry, &socket);
            let queue = assoc.send_queue().expect("it was entered");
            assert!(queue.push(header(ID, 6), Bytes::from_static(b"a word")));
            let mut told = Vec::new();
            let is_told = || {
                while let Some(record) = read(&program_end) {
                    let (header, content) = Header::split(&record).expect("a record");
                    if header.kind != Kind::Notification {
                        continue;
                    }
                    let kind = u16::from_ne_bytes([content[0], content[1]]);
                    // `sac_error` is behind `sac_state`, and `ssf_error` has 32 bits; both are in network byte order.
                    let at = if kind == NotificationType::AssociationChange as u16 { 10 } else { 8 };
                    told.push((kind, u16::from_be_bytes([content[at], content[at + 1]])));
                }
                told.len() >= 2
            };
            until("the failure and the message have come", is_told).await;
            let kinds = [NotificationType::AssociationChange, NotificationType::SendFailedEvent];
            assert_eq!(told, kinds.map(|kind| (kind as u16, cause)), "listens: {listens}");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn messages_that_are_in_the_channel_when_their_association_cannot_start_return_to_the_program() {
        let registry = Rc::new(registry());
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let (listener, assoc) = connecting(&registry, &socket);
        assoc.options_mut().subscribe(NotificationType::SendFailedEvent.subscription(), true);
        drop(listener);
        send(&program_end, ID, b"a word");
        soon(returned(&program_end)).await;
        assert!(assoc.send_queue().is_none(), "the socket has removed it");
    }
}
