//! `connect`, `sctp_connectx`, and associations that begin with a message.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use carrier::request::{Addresses, InitMessage, Start};
use carrier::status_page::State;
use rustix::io::Errno;
use swiftwater::{Address, Stack};

use super::bind::bound;
use crate::channel::carrier_socket;
use crate::channel::style::Style;
use crate::state::association::{Outcome, SocketAssociation};
use crate::state::commands::{ConnectRequest, OneToManyCommand, OneToOneCommand};
use crate::state::registry::Registry;
use crate::state::socket::{Bound, Inner, Socket};
use crate::system::addresses::{as_seen, check_peer, local_toward};
use crate::system::visible_name;

/// Begins to set up an association.
pub(crate) fn connect(
    registry: &Registry,
    socket: &Rc<Socket>,
    peer: Addresses<'_>,
    (start, init): (Start, InitMessage),
    program_end: BorrowedFd<'_>,
) -> Result<Rc<SocketAssociation>, Errno> {
    let mut hosts = Vec::new();
    let mut seen = None;
    for address in peer.iter() {
        let first = *seen.get_or_insert(address);
        if address.port() != first.port() {
            return Err(Errno::INVAL);
        }
        let host = check_peer(socket.v6, address)?;
        if hosts.contains(&host) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        hosts.push(host);
    }
    let seen = as_seen(socket.v6, seen.ok_or(Errno::INVAL)?);
    match socket.style {
        Style::OneToMany => connect_another(registry, socket, seen, hosts, (start, init)),
        Style::OneToOne | Style::TcpStream | Style::PeeledOff => {
            connect_only(registry, socket, seen, hosts, (start, init), program_end)
        }
    }
}

fn connect_only(
    registry: &Registry,
    socket: &Socket,
    seen: SocketAddr,
    hosts: Vec<IpAddr>,
    (start, init): (Start, InitMessage),
    program_end: BorrowedFd<'_>,
) -> Result<Rc<SocketAssociation>, Errno> {
    let mut inner = socket.inner();
    match inner.stage {
        State::Idle => {}
        State::Connecting => return Err(Errno::ALREADY),
        _ => return Err(Errno::ISCONN),
    }
    let bound = bound(registry, socket, &mut inner)?;
    // The carrier must not poll writable before the outcome is known.
    carrier_socket::fill(program_end)?;
    socket.channel.pages.clear_error();
    inner.peer = Some(seen);
    inner.local = local_toward(hosts[0]).map(|local| SocketAddr::new(local, bound.port));
    let local = inner.local.unwrap_or_else(|| bound.first());
    visible_name::of_association(program_end, local, SocketAddr::new(hosts[0], seen.port()));
    socket.set_state(&mut inner, State::Connecting);
    let assoc = Rc::new(SocketAssociation::new(
        registry.next_association(),
        seen,
        inner.options.assoc_options.clone(),
    ));
    inner.associations.insert(assoc.id, Rc::clone(&assoc));
    socket.show_defaults(&assoc);
    let server = address(registry, &inner, hosts, seen.port());
    // A program that waits for the answer learns of a failure from it, and may connect the same socket again.
    let ends_content = socket.style == Style::TcpStream && start == Start::Now;
    let stack = stack_for(registry, &inner, init);
    let request = ConnectRequest { stack, port: bound.port, server, ends_content };
    socket.commands.one_to_one(OneToOneCommand::Connect { request, association: Rc::clone(&assoc) })?;
    Ok(assoc)
}

fn connect_another(
    registry: &Registry,
    socket: &Rc<Socket>,
    seen: SocketAddr,
    hosts: Vec<IpAddr>,
    (start, init): (Start, InitMessage),
) -> Result<Rc<SocketAssociation>, Errno> {
    let mut inner = socket.inner();
    let known = hosts.iter().find_map(|host| inner.with_peer(SocketAddr::new(*host, seen.port())));
    if let Some(assoc) = known {
        return Err(match assoc.outcome() {
            Outcome::Pending => Errno::ALREADY,
            _ => Errno::ISCONN,
        });
    }
    let Bound { port, .. } = bound(registry, socket, &mut inner)?;
    if registry.is_peeled_off(port, &hosts, seen.port()) {
        return Err(Errno::ADDRNOTAVAIL);
    }
    let server = address(registry, &inner, hosts, seen.port());
    let stack = stack_for(registry, &inner, init);
    let request = ConnectRequest { stack, port, server, ends_content: false };
    let options = inner.options.assoc_options.clone();
    drop(inner);
    let seat = registry.seat(socket).ok_or(Errno::NOBUFS)?;
    // The peer may accept fewer streams.
    let streams_out = request.stack.options().association.streams_out;
    let association = SocketAssociation::new(registry.next_association(), seen, options);
    let association = socket.enter(association, streams_out, seat);
    let command = OneToManyCommand::Connect { request, start, association: Rc::clone(&association) };
    socket.commands.one_to_many(command)?;
    Ok(association)
}

/// Returns a handle to the stack with the options and addresses for an association of the socket.
fn stack_for(registry: &Registry, inner: &Inner, init: InitMessage) -> Stack {
    let options = inner.options.with_init(init).for_stack();
    registry.stack.with_options(&options).with_local_addresses(&inner.local_scope())
}

fn address(registry: &Registry, inner: &Inner, hosts: Vec<IpAddr>, port: u16) -> Address {
    Address { hosts, port, udp_port: inner.options.assoc_options.peer_udp_port(registry.stack.udp_port()) }
}
