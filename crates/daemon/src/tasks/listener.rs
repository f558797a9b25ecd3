//! Accepts associations for a listening one-to-one socket.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use carrier::record;
use carrier::status_page::State;
use rustix::io::Errno;
use swiftwater::tokio::{Association, Listener};

use crate::calls::options;
use crate::state::association::SocketAssociation;
use crate::state::commands::OneToOneCommand;
use crate::state::registry::Registry;
use crate::state::send_queue::Messages;
use crate::state::socket::{Bound, Socket};
use crate::system::addresses::{as_seen, local_toward};
use crate::system::journal::log;
use crate::system::visible_name;

/// Hands each accepted association to the listening program, with a channel of its own.
pub(super) async fn accept(registry: &Rc<Registry>, socket: &Rc<Socket>, listener: Arc<Listener>) {
    loop {
        // One association waits in the carrier; further ones wait in the executive, up to the backlog.
        socket.channel.carrier().has_room().await;
        let (association, peer) = match listener.accept().await {
            Ok((association, peer)) => (association, as_seen(socket.v6, peer)),
            Err(error) => return log(format_args!("a listener has failed: {error}")),
        };
        match hand_over(registry, socket, association, peer).await {
            Ok(()) => {}
            // The program has closed the listening socket.
            Err(Errno::PIPE | Errno::CONNRESET) => return,
            Err(error) => {
                log(format_args!("an association with {peer} could not be handed to its listener: {error}"));
            }
        }
    }
}

async fn hand_over(
    registry: &Rc<Registry>,
    listener: &Rc<Socket>,
    association: Association,
    peer: SocketAddr,
) -> Result<(), Errno> {
    let (options, bound) = {
        let inner = listener.inner();
        (inner.options.clone(), inner.bound.clone())
    };
    let has_ended = association.peer_address().is_none();
    let subscriptions = options.subscriptions;
    let assoc_options = options.assoc_options.clone();
    let opened =
        registry.open(listener.share.owner, listener.v6, listener.style, State::Connected, options)?;
    let (socket, program_end) = super::start(registry, opened);
    let pages = &socket.channel.pages;
    pages.set_peer(&peer, association.streams_out());
    let assoc =
        Rc::new(SocketAssociation::with(registry.next_association(), peer, association, assoc_options));
    options::apply_when_up(&socket, &assoc);
    {
        let mut inner = socket.inner();
        inner.associations.insert(assoc.id, Rc::clone(&assoc));
        inner.peer = Some(peer);
        inner.local = bound.as_ref().map(|bound| local_of(bound, peer));
        if let Some(local) = inner.local {
            visible_name::of_association(program_end.as_fd(), local, peer);
        }
        inner.inherited = bound;
        if has_ended {
            // The program reads the data that has arrived, then the end.
            socket.set_state(&mut inner, State::Ended);
        }
    }
    pages.set_subscriptions(subscriptions);
    let carried =
        socket.commands.one_to_one(OneToOneCommand::Relay { association: assoc, unsent: Messages::new() });
    let (record, endpoint) = (record::encode_accepted(&peer), &listener.channel.endpoint);
    let [status, sharers] = pages.descriptors()?;
    endpoint.carrier().put_record(&record, &[program_end.as_fd(), status.as_fd(), sharers.as_fd()]).await?;
    // The program may have closed the descriptor already, so the closer closes this copy.
    drop(endpoint.carrier().closer().take_over(program_end));
    carried
}

/// Returns the local address that the peer has reached; for a wildcard address, the one from which packets leave toward the peer.
fn local_of(bound: &Bound, peer: SocketAddr) -> SocketAddr {
    let first = bound.first();
    let toward = || local_toward(peer.ip().to_canonical()).map(|ip| SocketAddr::new(ip, bound.port));
    if first.ip().is_unspecified() { toward().unwrap_or(first) } else { first }
}
