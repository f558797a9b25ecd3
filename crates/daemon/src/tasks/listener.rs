//! Accepts associations for a listening one-to-one socket.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use channel_protocol::record;
use channel_protocol::status_page::State;
use rustix::io::Errno;
use swiftwater::tokio::{Association, Listener};

use crate::calls::options;
use crate::relay::abort;
use crate::state::association::{SocketAssociation, paths_of};
use crate::state::commands::OneToOneCommand;
use crate::state::inbound_queue::Ended;
use crate::state::registry::Registry;
use crate::state::send_queue::Messages;
use crate::state::socket::Socket;
use crate::state::socket_addresses::Bound;
use crate::system::addresses::{as_seen, local_toward};
use crate::system::journal::{Cause, log};
use crate::system::visible_name;

/// The reason for the abort of an association whose paths cannot be charged.
const NO_MEMORY: &str = "the server has no memory left for the client's addresses";

/// Hands each accepted association to the listening program, with a channel of its own.
pub(super) async fn accept(registry: &Rc<Registry>, socket: &Rc<Socket>, listener: Arc<Listener>) {
    let cause = Cause::User(socket.owner().user);
    loop {
        // One association waits in the pair; further ones wait in the executive, up to the backlog.
        socket.channel().daemon_end().writable().await;
        let (association, peer) = match listener.accept().await {
            Ok((association, peer)) => (association, as_seen(socket.family(), peer)),
            Err(error) => return log(cause, format_args!("a listener has failed: {error}")),
        };
        match hand_over(registry, socket, association, peer).await {
            Ok(()) => {}
            // The program has closed the listening socket.
            Err(Errno::PIPE | Errno::CONNRESET) => return,
            Err(error) => {
                log(
                    cause,
                    format_args!("an association with {peer} could not be handed to its listener: {error}"),
                );
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
    let (options, bound) = (listener.options().clone(), listener.addresses().bound());
    let has_ended = association.peer().is_none();
    let paths = paths_of(&association);
    let assoc_options = options.future().clone();
    let opened =
        registry.open(listener.owner(), listener.family(), listener.style(), State::Connected, options)?;
    opened.socket.on_opened_by(listener.program().cloned());
    let (socket, program_end) = super::start(registry, opened);
    let assoc =
        Rc::new(SocketAssociation::with(registry.next_association(), peer, association, assoc_options));
    if !registry.charge_paths(listener, &assoc, paths) {
        let association = assoc.stack_association();
        association.into_iter().for_each(|association| abort(association, NO_MEMORY));
        return Err(Errno::NOBUFS);
    }
    options::apply_when_up(&socket, &assoc);
    let local = bound.as_ref().map(|bound| local_of(bound, peer));
    if let Some(local) = local {
        visible_name::of_association(program_end.as_fd(), local, peer);
    }
    registry.on_adopted(&socket, listener, &assoc, local);
    if has_ended {
        socket.on_association_ended(Ended::ByPeer);
    }
    let carried = socket.commands().one_to_one(OneToOneCommand::Relay { assoc, unsent: Messages::new() });
    let (record, channel) = (record::encode_accepted(&peer), listener.channel());
    let [status, sharers] = socket.channel().page_descriptors()?;
    channel.daemon_end().put_record(&record, &[program_end.as_fd(), status.as_fd(), sharers.as_fd()]).await?;
    // The program may have closed the descriptor already, so the closer closes this copy.
    drop(channel.daemon_end().closer().take_over(program_end));
    carried
}

/// Returns the local address that the peer has reached; for a wildcard address, the one from which packets leave toward the peer.
fn local_of(bound: &Bound, peer: SocketAddr) -> SocketAddr {
    let first = bound.first();
    let toward = || local_toward(peer.ip().to_canonical()).map(|ip| SocketAddr::new(ip, bound.port()));
    if first.ip().is_unspecified() { toward().unwrap_or(first) } else { first }
}
