//! The task of a socket: it waits for what the socket becomes, and is that until the program has closed it.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use carrier::page::State;
use carrier::record;
use rustix::io::Errno;
use swiftwater::tokio::{Association, Listener};
use swiftwater::{Address, Stack};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::addresses::{as_seen, local_toward};
use crate::errno;
use crate::line::{CARRIER_RECORDS_MAX, Line};
use crate::log;
use crate::many;
use crate::member::Member;
use crate::notify;
use crate::pump::{self, Waiting};
use crate::socket::{Bound, Socket, Sockets, Style};
use crate::visible_name;

/// What a socket becomes.
pub(crate) enum Turn {
    /// It sets an association up, from a local port.
    Connect { stack: Stack, port: u16, server: Address, member: Arc<Member> },
    /// It accepts associations.
    Listen(Arc<Listener>),
    /// It does so no more.
    Unlisten,
    /// It has an association, for which this was sent already.
    Carry { member: Arc<Member>, waiting: Waiting },
}

pub(crate) async fn live(sockets: Arc<Sockets>, socket: Arc<Socket>, mut turns: UnboundedReceiver<Turn>) {
    // However this ends: after a fault of our own the program finds its carrier closed, and nobody else is harmed.
    let _forgotten = Known { sockets: &sockets, socket: &socket };
    if socket.style == Style::OneToMany {
        return many::live(&sockets, &socket, &mut turns).await;
    }
    loop {
        let turn = tokio::select! {
            turn = turns.recv() => turn,
            () = socket.line.hung_up() => None,
        };
        let goes_on = match turn {
            None => false,
            Some(Turn::Connect { stack, port, server, member }) => {
                connect(&socket, &stack, (port, &server), &member).await
            }
            Some(Turn::Listen(listener)) => {
                tokio::select! {
                    // First: once it listens no more, no association comes into its carrier. It becomes nothing else before that.
                    biased;
                    turn = turns.recv() => turn.is_some(),
                    () = accept(&sockets, &socket, listener) => false,
                    () = socket.line.hung_up() => false,
                }
            }
            Some(Turn::Unlisten) => true,
            Some(Turn::Carry { member, waiting }) => {
                pump::carry(&socket, &member, waiting).await;
                false
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// A socket that requests find, for as long as it lives.
struct Known<'a> {
    sockets: &'a Arc<Sockets>,
    socket: &'a Socket,
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.sockets.forget(self.socket);
    }
}

/// Sets an association up and carries it. True: that has failed, and the socket may try again.
async fn connect(
    socket: &Arc<Socket>,
    stack: &Stack,
    (port, server): (u16, &Address),
    member: &Arc<Member>,
) -> bool {
    let outcome = tokio::select! {
        outcome = Association::connect_from(stack, port, server) => outcome,
        // Given up, the association is not set up.
        () = socket.line.hung_up() => return false,
    };
    match outcome {
        Ok(association) => {
            {
                let mut inner = socket.lock();
                if let Some(peer) = inner.peer {
                    socket.page.set_peer(&peer, association.streams_out());
                }
                socket.set_stage(&mut inner, State::Connected);
            }
            member.set_up(association);
            socket.tune(member);
            pump::carry(socket, member, Waiting::new()).await;
            false
        }
        Err(error) => {
            let error = errno::of_connect(&error);
            // Whoever finds the carrier writable finds the error, and finds that it may try again.
            socket.page.set_error(error);
            {
                let mut inner = socket.lock();
                inner.peer = None;
                inner.members.clear();
                socket.set_stage(&mut inner, State::Idle);
                empty(&socket.line);
            }
            member.set_failed(error);
            pump::tell(socket, notify::cannot_start(member)).await;
            true
        }
    }
}

/// Discards the records that keep a carrier from polling writable, and those sent meanwhile. Records that arrive while this runs may
/// stay: otherwise a program that sends without pause would keep the daemon here.
pub(crate) fn empty(line: &Line) {
    for _ in 0..CARRIER_RECORDS_MAX {
        if !line.discard() {
            return;
        }
    }
}

/// Hands associations to a listener, each with a carrier of its own.
async fn accept(sockets: &Arc<Sockets>, socket: &Arc<Socket>, listener: Arc<Listener>) {
    loop {
        // One lies in the carrier, others wait in the executive, as many as the backlog allows.
        socket.line.has_room().await;
        let (association, peer) = match listener.accept().await {
            Ok((association, peer)) => (association, as_seen(socket.v6, peer)),
            Err(error) => return log(format_args!("a listener has failed: {error}")),
        };
        match hand_over(sockets, socket, association, peer).await {
            Ok(()) => {}
            // The program has closed it.
            Err(Errno::PIPE | Errno::CONNRESET) => return,
            Err(error) => {
                log(format_args!("an association with {peer} could not be handed to its listener: {error}"));
            }
        }
    }
}

async fn hand_over(
    sockets: &Arc<Sockets>,
    listener: &Arc<Socket>,
    association: Association,
    peer: SocketAddr,
) -> Result<(), Errno> {
    let (settings, bound) = {
        let inner = listener.lock();
        (inner.settings.clone(), inner.bound.clone())
    };
    let has_ended = association.peer_address().is_none();
    let wants = settings.wants;
    let tuning = settings.tuning.clone();
    let (socket, theirs) =
        sockets.open(listener.share.owner, listener.v6, Style::OneToOne, State::Connected, settings)?;
    socket.page.set_peer(&peer, association.streams_out());
    let member = Arc::new(Member::with(sockets.next_association(), peer, association, tuning));
    socket.tune(&member);
    {
        let mut inner = socket.lock();
        inner.members.insert(member.id, Arc::clone(&member));
        inner.peer = Some(peer);
        inner.local = bound.as_ref().map(|bound| local_of(bound, peer));
        if let Some(local) = inner.local {
            visible_name::of_association(theirs.as_fd(), local, peer);
        }
        inner.inherited = bound;
        if has_ended {
            // What it has brought is there, and then the end.
            socket.set_stage(&mut inner, State::Ended);
        }
    }
    socket.page.set_wants(wants);
    let turn = socket.take_turn(Turn::Carry { member, waiting: Waiting::new() });
    let record = record::encode_accepted(&peer);
    listener.line.put_record(&record, &[theirs.as_fd(), socket.page.as_fd()]).await?;
    // The program may have closed it already.
    drop(listener.line.closer().take_over(theirs));
    turn
}

/// The address of ours that a peer has reached.
fn local_of(bound: &Bound, peer: SocketAddr) -> SocketAddr {
    let first = bound.first();
    let toward = || local_toward(peer.ip().to_canonical()).map(|ip| SocketAddr::new(ip, bound.port));
    if first.ip().is_unspecified() { toward().unwrap_or(first) } else { first }
}
