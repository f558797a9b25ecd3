//! The task of a one-to-one socket: idle, connecting, listening, or with its one association.

use std::rc::Rc;

use carrier::page::State;
use swiftwater::tokio::Association;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::listener;
use super::relaying::{down, tell, up};
use crate::calls::listen::discard_all;
use crate::calls::options;
use crate::channel::endpoint::Intake;
use crate::channel::style::Style;
use crate::relay::{Departure, NO_REASON, abort, notifications};
use crate::state::association::{Ended, SocketAssociation};
use crate::state::commands::{Dial, OneToOneCommand};
use crate::state::registry::Registry;
use crate::state::send_queue::Messages;
use crate::state::socket::Socket;
use crate::system::errno;

/// Runs until the program has closed the socket.
pub(super) async fn run(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    mut commands: UnboundedReceiver<OneToOneCommand>,
) {
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            () = socket.channel.endpoint.hung_up() => None,
        };
        let goes_on = match command {
            None => false,
            Some(OneToOneCommand::Connect { dial, association }) => {
                connect(socket, &dial, &association).await
            }
            Some(OneToOneCommand::Listen(listener)) => {
                tokio::select! {
                    // First: once it listens no more, no association comes into its channel. It becomes nothing else before that.
                    biased;
                    command = commands.recv() => command.is_some(),
                    () = listener::accept(registry, socket, listener) => false,
                    () = socket.channel.endpoint.hung_up() => false,
                }
            }
            Some(OneToOneCommand::Unlisten) => true,
            Some(OneToOneCommand::Carry { association, unsent }) => {
                carry(socket, &association, unsent).await;
                false
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// Sets an association up and carries it. Returns true if that has failed, so that the socket may try again.
async fn connect(socket: &Rc<Socket>, dial: &Dial, assoc: &Rc<SocketAssociation>) -> bool {
    let outcome = tokio::select! {
        outcome = Association::connect_from(&dial.stack, dial.port, &dial.server) => outcome,
        // Given up, the association is not set up.
        () = socket.channel.endpoint.hung_up() => return false,
    };
    let page = &socket.channel.page;
    match outcome {
        Ok(association) => {
            {
                let mut inner = socket.inner();
                if let Some(peer) = inner.peer {
                    page.set_peer(&peer, association.streams_out());
                }
                socket.set_stage(&mut inner, State::Connected);
            }
            assoc.set_up(association);
            options::apply_when_up(socket, assoc);
            carry(socket, assoc, Messages::new()).await;
            false
        }
        Err(error) => {
            let error = errno::of_connect(&error);
            // A program that finds the channel writable finds the error, and finds that it may try again.
            page.set_error(error);
            {
                let mut inner = socket.inner();
                inner.peer = None;
                inner.associations.clear();
                socket.set_stage(&mut inner, State::Idle);
                discard_all(&socket.channel.endpoint);
            }
            assoc.set_failed(error);
            tell(socket, notifications::cannot_start(assoc)).await;
            true
        }
    }
}

/// Carries an association until it has ended and the program has left. What `unsent` holds goes first.
async fn carry(socket: &Rc<Socket>, assoc: &Rc<SocketAssociation>, unsent: Messages) {
    let Some(association) = assoc.association() else { return };
    let mut upward = Upwards(tokio::task::spawn_local(up_to_end(Rc::clone(socket), Rc::clone(assoc))));
    let mut departure = down(socket, assoc, association, unsent).await;
    // What other programs have sent before this one ended is taken first, so that it is on its way when the SHUTDOWN comes to
    // them: in one kernel each call has an end before the next begins.
    tokio::task::yield_now().await;
    if let Departure::HalfClosed = departure {
        // One that is gone already needs no end.
        let _ = association.shutdown().await;
        departure = tokio::select! {
            // It ends with the association, which has a time limit for that.
            _ = &mut upward.0 => Departure::HalfClosed,
            () = socket.channel.endpoint.closed() => match socket.channel.endpoint.try_take() {
                Ok(Intake::Unread) if socket.channel.has_unread_data() => Departure::Unread,
                _ => Departure::Closed,
            },
        };
    }
    // The program may still have a socket that both sides have shut down: for its calls the association has ended.
    if socket.channel.page.is_end_told() {
        socket.set_stage(&mut socket.inner(), State::Ended);
    }
    let lingers = socket.inner().options.lingers();
    match departure {
        // What was sent is delivered, and the association shut down, when its last handle is dropped.
        Departure::HalfClosed => {}
        Departure::Closed if lingers => {}
        Departure::Closed | Departure::Unread => abort(association, NO_REASON),
        Departure::Abort(reason) => abort(association, &String::from_utf8_lossy(&reason)),
    }
}

/// The task for the other direction. It ends with this one at the latest.
struct Upwards(JoinHandle<()>);

impl Drop for Upwards {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// From the association into the carrier of a one-to-one socket, and then its end.
async fn up_to_end(socket: Rc<Socket>, assoc: Rc<SocketAssociation>) {
    let mut by_us = false;
    let ended = |how: Ended| {
        by_us = how == Ended::ByUs;
        let end = match how {
            Ended::ByPeer if socket.style == Style::OneToOne => State::Ended,
            // Others have no end to read; nothing more comes.
            Ended::ByPeer => State::Lost,
            Ended::ByUs => State::Lost,
            Ended::Lost(loss) => {
                socket.channel.page.set_error(errno::of_loss(loss));
                State::Lost
            }
        };
        socket.channel.page.set_local(&socket.local_address());
        socket.set_stage(&mut socket.inner(), end);
    };
    up(&socket, &assoc, ended).await;
    // What this side has shut down itself is no news that it would poll for.
    match by_us {
        true => {
            socket.channel.endpoint.end_untold();
            socket.channel.endpoint.closed().await;
        }
        false => socket.channel.endpoint.end(),
    }
}
