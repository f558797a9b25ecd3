//! The task of a one-to-one socket: idle, connecting, listening, or with its one association.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use swiftwater::tokio::Association;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::relaying::{breach, notify, relay_inbound, relay_outbound};
use super::{listener, turn_to_close, turn_to_stop_listening};
use crate::calls::listen::discard_all;
use crate::calls::options;
use crate::channel::incoming::Incoming;
use crate::channel::style::Style;
use crate::relay::{BROKEN, Departure, NO_REASON, abort, notifications, other_end};
use crate::state::association::{SocketAssociation, paths_of};
use crate::state::commands::{ConnectRequest, OneToOneCommand};
use crate::state::inbound_queue::Ended;
use crate::state::registry::Registry;
use crate::state::send_queue::Messages;
use crate::state::socket::Socket;
use crate::system::errno;
use crate::users::round_share::Turn;

/// Runs until the program has closed the socket. Returns the turn in which the socket is forgotten. That turn also ends the setup
/// of an association, or closes the listener with the associations that wait.
pub(super) async fn run(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    mut commands: UnboundedReceiver<OneToOneCommand>,
) -> Turn {
    let mut command = next(socket, &mut commands).await;
    while let Some(current) = command {
        command = match current {
            OneToOneCommand::Connect { request, assoc } => {
                let mut setup = pin!(connect(registry, socket, &request, &assoc));
                let is_up = tokio::select! {
                    is_up = &mut setup => is_up,
                    // Dropping the future cancels the setup.
                    () = ended_by_program(socket) => return turn_to_close(socket).await,
                };
                if is_up {
                    return relay(socket, &assoc, Messages::new()).await;
                }
                next(socket, &mut commands).await
            }
            OneToOneCommand::Listen(listener) => {
                let mut accepting = pin!(listener::accept(registry, socket, listener));
                tokio::select! {
                    // Commands come first: after `Unlisten` no association enters the channel. Each command ends the listening.
                    // So does the end of the socket, which also makes the channel writable: the stack ends the associations that
                    // have not been handed over.
                    biased;
                    command = commands.recv() => command,
                    () = ended_by_program(socket) => return turn_to_stop_listening(socket).await,
                    () = &mut accepting => return turn_to_stop_listening(socket).await,
                }
            }
            OneToOneCommand::Unlisten => next(socket, &mut commands).await,
            OneToOneCommand::Relay { assoc, unsent } => {
                return relay(socket, &assoc, unsent).await;
            }
        };
    }
    turn_to_close(socket).await
}

/// Waits for the next command; `None` if the program has closed the socket or has broken it.
async fn next(socket: &Socket, commands: &mut UnboundedReceiver<OneToOneCommand>) -> Option<OneToOneCommand> {
    tokio::select! {
        biased;
        command = commands.recv() => command,
        () = ended_by_program(socket) => None,
    }
}

/// Waits until the program has closed a socket without an association, or has broken it.
async fn ended_by_program(socket: &Socket) {
    tokio::select! {
        () = socket.channel().daemon_end().hung_up() => {}
        () = breach(socket) => {}
    }
}

/// Sets an association up. Returns false if the setup has failed: the socket may try again.
async fn connect(
    registry: &Registry,
    socket: &Rc<Socket>,
    request: &ConnectRequest,
    assoc: &Rc<SocketAssociation>,
) -> bool {
    let connected = request.stack.connect_from(request.port, &request.server).await;
    let failed = |error| (errno::of_connect(&error), notifications::cause_of(&error));
    let charged = connected.map_err(failed).and_then(|association| {
        let paths = paths_of(&association);
        match registry.charge_paths(socket, assoc, paths) {
            true => Ok(association),
            false => {
                abort(&association, "the client has no memory left for the server's addresses");
                Err((Errno::NOBUFS, 0))
            }
        }
    });
    match charged {
        Ok(association) => {
            socket.on_connected(association.streams_out());
            assoc.set_up(association);
            socket.associations().on_up(assoc);
            options::apply_when_up(socket, assoc);
            true
        }
        Err((error, cause)) => {
            socket.on_connect_failed(error, request.ends_content);
            // The channel becomes writable, and the socket may connect again.
            discard_all(socket.channel()).await;
            assoc.set_failed(error);
            if !request.ends_content {
                notify(socket, notifications::cannot_start(assoc, cause)).await;
            }
            false
        }
    }
}

/// Relays messages until the association has ended and the program has left. The messages in `unsent` go first. Returns the turn
/// in which the socket is forgotten.
async fn relay(socket: &Rc<Socket>, assoc: &Rc<SocketAssociation>, unsent: Messages) -> Turn {
    let Some(association) = assoc.stack_association() else { return turn_to_close(socket).await };
    // It may come from a one-to-many socket, whose task has relayed it before.
    assoc.on_inbound_begun();
    let mut inbound =
        InboundTask(tokio::task::spawn_local(relay_inbound_to_end(Rc::clone(socket), Rc::clone(assoc))));
    let mut departure = relay_outbound(socket, assoc, association, unsent).await;
    other_end::declare_upper_data(socket, assoc);
    if let Departure::HalfClosed = departure {
        // This fails only if the association has ended.
        let _ = association.shutdown().await;
        departure = tokio::select! {
            // The task ends with the association, and the time limit of the shutdown bounds that.
            _ = &mut inbound.0 => Departure::HalfClosed,
            () = socket.channel().closed() => match socket.channel().take_at_close().await {
                Ok(Incoming::Unread) if socket.channel().has_unread_data() => Departure::Unread,
                _ => Departure::Closed,
            },
        };
        // The program may still have the socket, and ask for its options.
        socket.channel().closed().await;
    }
    let lingers = socket.options().lingers();
    if matches!(departure, Departure::HalfClosed | Departure::Closed) && lingers {
        socket.channel().release_all_credits();
    }
    let reason = match departure {
        // Dropping the last handle delivers the messages and shuts the association down.
        Departure::HalfClosed => None,
        Departure::Closed if lingers => {
            inbound.end().await;
            linger(socket, assoc, association).await;
            None
        }
        Departure::Closed | Departure::Unread => Some(NO_REASON),
        Departure::Broken => Some(BROKEN),
    };
    let close = || reason.into_iter().for_each(|reason| abort(association, reason));
    socket.turn().close_one(close).await;
    // It has a handle of the association, too. A daemon that ends now must find the association closed, or it would abort it.
    inbound.end().await;
    turn_to_close(socket).await
}

/// Keeps a closed socket until its association has ended or the time is over for which it lingers: its program waits for that in
/// `close`. The program may also have been killed, whatever that time is.
async fn linger(socket: &Socket, assoc: &SocketAssociation, association: &Association) {
    let seconds = socket.options().linger().close_waits_s();
    if seconds > 0 && socket.style().is_one_to_one() {
        assoc.guard_end();
        // A lost association has ended, too. Messages that still arrive are discarded.
        let _ = timeout(Duration::from_secs(seconds.into()), association.clone().close()).await;
    }
}

/// The task of the inbound direction. It ends with the outbound one at the latest.
struct InboundTask(JoinHandle<()>);

impl InboundTask {
    /// Ends the task, and waits until it has dropped what it holds.
    async fn end(&mut self) {
        if !self.0.is_finished() {
            self.0.abort();
            // An aborted task returns nothing.
            let _ = (&mut self.0).await;
        }
    }
}

impl Drop for InboundTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Relays from the association into the pair of a one-to-one socket, and then ends the content.
async fn relay_inbound_to_end(socket: Rc<Socket>, assoc: Rc<SocketAssociation>) {
    let mut by_us = false;
    let ended = |how: Ended| {
        by_us = how == Ended::ByUs;
        socket.on_association_ended(how);
    };
    relay_inbound(&socket, &assoc, &mut None, ended).await;
    assoc.on_inbound_done();
    // Messages that the association has not taken return before the end of the content.
    assoc.outbound_settled().await;
    // A descriptor must not poll readable for an end that this side has caused, but a program that takes it for
    // TCP waits for one.
    match by_us && socket.style() != Style::TcpStream {
        true => socket.channel().end_content_silently(),
        false => socket.channel().end_content(),
    }
    if by_us {
        socket.channel().closed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::Arc;

    use channel_protocol::assoc_id::AssocId;
    use channel_protocol::record::{Header, Kind};
    use rustix::net::{RecvFlags, recv};
    use swiftwater::{Address, AssociationOptions, ListenerOptions, internals};
    use tokio::task::{spawn_local, yield_now};

    use super::*;
    use crate::calls::listen::listen;
    use crate::state::notification_type::NotificationType;
    use crate::tasks::start;
    use crate::testing::{
        ID, opened, opened_whole, read, registry, send, send_with, server_address, soon, until,
    };

    /// Opens a socket with its task.
    fn started(registry: &Rc<Registry>) -> (Rc<Socket>, OwnedFd) {
        start(registry, opened_whole(registry, Style::OneToOne))
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_that_only_queues_have_ends() {
        let registry = Rc::new(registry());
        for listens in [false, true] {
            let ((socket, program_end), (other, other_end)) = (started(&registry), started(&registry));
            if listens {
                listen(&registry, &socket, 1, program_end.as_fd()).expect("a free port");
            }
            send_with(&program_end, b"a word", &[&program_end, &other_end]);
            send_with(&other_end, b"a word", &[&program_end]);
            drop((program_end, other_end));
            soon(socket.gone()).await;
            soon(other.gone()).await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_listener_that_is_closed_aborts_the_waiting_associations_with_unread_data() {
        let registry = Rc::new(registry());
        let (socket, program_end) = started(&registry);
        listen(&registry, &socket, 5, program_end.as_fd()).expect("a free port");
        let server = Address { port: socket.local_address().port(), ..server_address(&registry) };
        let mut peers = Vec::new();
        for n in 0..6 {
            let peer = soon(registry.stack().connect(&server)).await.expect("it listens");
            let sends = n % 2 == 0;
            if sends {
                peer.send(b"a word").await.expect("it is up");
                let is_acknowledged =
                    || internals::view(&peer, |view| view.is_send_buffer_empty()) == Some(true);
                until("the word is acknowledged", is_acknowledged).await;
            }
            peers.push((peer, sends));
        }
        drop(program_end);
        soon(socket.gone()).await;
        for (n, (peer, has_sent)) in peers.iter().enumerate() {
            assert_eq!(soon(peer.recv()).await.is_err(), *has_sent, "the end that peer {n} has heard of");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_refused_connect_has_the_cause_of_the_abort() {
        let registry = Rc::new(registry());
        let full = ListenerOptions::default().with_associations_max(1);
        let listener = registry.stack().listen_with(7, &full).expect("a free port");
        let server = server_address(&registry);
        let (_only, _accepted) = tokio::join!(registry.stack().connect(&server), listener.accept());
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let change = NotificationType::AssociationChange;
        socket.options_mut().future_mut().subscribe(change.subscription(), true);
        let peer = SocketAddr::from(([127, 0, 0, 1], 7));
        let assoc = Rc::new(SocketAssociation::new(ID, peer, socket.future_options()));
        socket.on_connecting(&assoc, None);
        let stack = registry.stack().clone();
        let request = ConnectRequest { stack, port: 40_000, server, ends_content: false };
        assert!(!soon(connect(&registry, &socket, &request, &assoc)).await, "there is no room");
        let mut told = Vec::new();
        while let Some(record) = read(&program_end) {
            let notification = Header::split(&record).filter(|(header, _)| header.kind == Kind::Notification);
            // `sac_error`, in network byte order.
            told.extend(notification.map(|(_, content)| [content[10], content[11]]));
        }
        assert_eq!(told, [[0, 4]], "out of resource");
    }

    #[tokio::test(flavor = "local")]
    async fn the_command_that_ends_the_listening_is_carried_out() {
        let registry = Rc::new(registry());
        let (socket, _program_end) = started(&registry);
        let [own, server] = [7, 8].map(|port| registry.stack().listen(port).expect("a free port"));
        let (host, server) = (IpAddr::from([127, 0, 0, 1]), server);
        let assoc = Rc::new(SocketAssociation::new(ID, SocketAddr::new(host, 8), socket.future_options()));
        socket.on_connecting(&assoc, None);
        let request = ConnectRequest {
            stack: registry.stack().clone(),
            port: 40_000,
            server: Address { hosts: vec![host], port: 8, udp_port: Some(registry.stack().udp_port()) },
            ends_content: false,
        };
        let connect = OneToOneCommand::Connect { request, assoc: Rc::clone(&assoc) };
        socket.commands().listen(Arc::new(own)).expect("it has a task");
        socket.commands().one_to_one(connect).expect("it has a task");
        let _peer = soon(server.accept()).await.expect("an association comes");
        soon(assoc.set_up_ended()).await;
        assert!(assoc.stack_association().is_some());
    }

    /// Reads as a program does until the end of the content; returns the notifications.
    async fn notified_until_end(program_end: &OwnedFd) -> Vec<Vec<u8>> {
        let (mut notifications, mut place) = (Vec::new(), [0; 4096]);
        loop {
            match recv(program_end, &mut place[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return notifications,
                Ok((_, bytes)) => {
                    let (header, content) = Header::split(&place[..bytes]).expect("a record");
                    if header.kind == Kind::Notification {
                        notifications.push(content.to_vec());
                    }
                }
                Err(_) => yield_now().await,
            }
        }
    }

    /// Returns the number at this place of a notification.
    fn u16_at(notification: &[u8], at: usize) -> u16 {
        u16::from_ne_bytes([notification[at], notification[at + 1]])
    }

    #[tokio::test(flavor = "local")]
    async fn the_notifications_of_an_association_that_ends_before_it_is_accepted_are_whole() {
        for is_aborted in [false, true] {
            let registry = registry();
            let listener = registry.stack().listen(7).expect("a free port");
            let stack = registry.stack().with_options(&AssociationOptions::default().with_streams_out(4));
            let peer = soon(stack.connect(server_address(&registry))).await.expect("it listens");
            let streams = (peer.streams_in(), peer.streams_out());
            peer.send(b"a word").await.expect("it is up");
            match is_aborted {
                true => peer.abort("enough"),
                false => drop(soon(peer.clone().close()).await),
            }
            drop(peer);
            soon(internals::no_association(registry.stack())).await;
            let (association, from) = soon(listener.accept()).await.expect("an association comes");
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            let mut options = socket.future_options();
            options.subscribe(NotificationType::AssociationChange.subscription(), true);
            let assoc = Rc::new(SocketAssociation::new(ID, from, options));
            socket.on_connecting(&assoc, None);
            socket.on_connected(1);
            assoc.set_up(association);
            let task = spawn_local(async move { relay(&socket, &assoc, Messages::new()).await });
            let [up, end] = soon(notified_until_end(&program_end)).await.try_into().expect("two changes");
            // `sac_outbound_streams` and `sac_inbound_streams`.
            assert_eq!((u16_at(&up, 12), u16_at(&up, 14)), streams, "aborted: {is_aborted}");
            assert_eq!(streams.1, 4);
            // `sac_info`: the error cause of the ABORT (RFC 9260 §3.3.10.12).
            let information: &[u8] = if is_aborted { b"\0\x0c\0\x0aenough" } else { b"" };
            assert_eq!(&end[20..], information);
            drop(program_end);
            soon(task).await.expect("it ends with the program");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn messages_that_an_association_has_not_taken_return_between_its_end_and_that_of_the_content() {
        for (is_aborted, is_peeled_off) in [(false, false), (true, false), (false, true)] {
            let registry = registry();
            let listener = registry.stack().listen(7).expect("a free port");
            let host = IpAddr::from([127, 0, 0, 1]);
            let server = server_address(&registry);
            let (connected, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
            let (peer, _) = accepted.expect("an association comes");
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            let mut options = socket.future_options();
            let [change, failed] = [NotificationType::AssociationChange, NotificationType::SendFailedEvent];
            for kind in [change, failed] {
                options.subscribe(kind.subscription(), true);
            }
            let assoc = Rc::new(SocketAssociation::new(ID, SocketAddr::new(host, 7), options));
            socket.on_connecting(&assoc, None);
            socket.on_connected(1);
            assoc.set_up(connected.expect("it listens"));
            if is_peeled_off {
                // The task of the one-to-many socket has ended.
                assoc.on_inbound_done();
            }
            match is_aborted {
                true => peer.abort("enough"),
                false => peer.shutdown().await.expect("it is open"),
            }
            soon(assoc.stack_association().expect("it is up").closed()).await;
            (0..3).for_each(|_| send(&program_end, AssocId::NONE, b"a word"));
            let task = spawn_local(async move { relay(&socket, &assoc, Messages::new()).await });
            let notified = soon(notified_until_end(&program_end)).await;
            let types: Vec<_> = notified.iter().map(|notification| u16_at(notification, 0)).collect();
            let expected = [change, change, failed, failed, failed].map(|kind| kind as u16);
            assert_eq!(types, expected, "aborted {is_aborted}, peeled off {is_peeled_off}");
            drop(program_end);
            soon(task).await.expect("it ends with the program");
        }
    }
}
