//! `connect`, `sctp_connectx`, and associations that begin with a message.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use channel_protocol::request::{Addresses, InitMessage, Start};
use channel_protocol::status_page::State;
use rustix::io::Errno;
use swiftwater::Address;
use swiftwater::internals;
use swiftwater::tokio::Stack;

use super::bind::bound;
use super::pending::{ROUNDS_MAX, ROUNDS_OF_MESSAGES_MAX, run_pending};
use super::waiting::take_waiting;
use crate::channel::daemon_end;
use crate::channel::style::Style;
use crate::state::association::{Outcome, SocketAssociation};
use crate::state::commands::{ConnectRequest, OneToManyCommand, OneToOneCommand};
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::state::socket_addresses::Bound;
use crate::system::addresses::{as_seen, check_peer, local_toward};
use crate::system::visible_name;
use crate::users::requester::Requester;

/// The arguments of [`SocketRequest::Connect`](channel_protocol::request::SocketRequest::Connect).
#[derive(Clone, Copy)]
pub(crate) struct ConnectArgs<'a> {
    pub(crate) peer: Addresses<'a>,
    pub(crate) start: Start,
    pub(crate) init: InitMessage,
}

/// A peer that was named validly.
struct Peer {
    /// Its first address, as the program sees it.
    seen: SocketAddr,
    /// The hosts of all its addresses.
    hosts: Vec<IpAddr>,
}

/// Begins to set up an association, and waits for it if the caller wants a late answer.
pub(crate) async fn connect_and_wait(
    registry: &Registry,
    socket: &Rc<Socket>,
    args: ConnectArgs<'_>,
    program_end: BorrowedFd<'_>,
    requester: Requester,
) -> Result<Rc<SocketAssociation>, Errno> {
    let permit = (args.start == Start::AnswerLate).then(|| take_waiting(registry, requester)).transpose()?;
    let assoc = connect(registry, socket, args, program_end)?;
    if args.start == Start::Now {
        tokio::select! {
            biased;
            // If the peer is a program of this daemon, its tasks run meanwhile, so that it knows of the association.
            _ = assoc.set_up_ended() => run_pending(registry, requester.user(), ROUNDS_OF_MESSAGES_MAX).await,
            () = run_pending(registry, requester.user(), ROUNDS_MAX) => {}
        }
    }
    if let Some(permit) = permit
        && let Outcome::Failed(error) = permit.unless_lost(assoc.set_up_ended()).await?
    {
        return Err(error);
    }
    Ok(assoc)
}

/// Begins to set up an association.
fn connect(
    registry: &Registry,
    socket: &Rc<Socket>,
    args: ConnectArgs<'_>,
    program_end: BorrowedFd<'_>,
) -> Result<Rc<SocketAssociation>, Errno> {
    let mut hosts = Vec::new();
    let mut seen = None;
    for address in args.peer.iter() {
        let first = *seen.get_or_insert(address);
        if address.port() != first.port() {
            return Err(Errno::INVAL);
        }
        socket.check_family(address)?;
        let host = check_peer(address)?;
        if hosts.contains(&host) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        hosts.push(host);
    }
    let peer = Peer { seen: as_seen(socket.family(), seen.ok_or(Errno::INVAL)?), hosts };
    match socket.style() {
        Style::OneToMany => connect_one_to_many(registry, socket, peer, args),
        Style::OneToOne | Style::TcpStream | Style::PeeledOff => {
            connect_one_to_one(registry, socket, peer, args, program_end)
        }
    }
}

fn connect_one_to_one(
    registry: &Registry,
    socket: &Socket,
    Peer { seen, hosts }: Peer,
    ConnectArgs { start, init, .. }: ConnectArgs<'_>,
    program_end: BorrowedFd<'_>,
) -> Result<Rc<SocketAssociation>, Errno> {
    match socket.state() {
        State::Idle => {}
        State::Connecting => return Err(Errno::ALREADY),
        _ => return Err(Errno::ISCONN),
    }
    let bound = bound(registry, socket)?;
    let local = source_toward(hosts[0], &bound).map(|local| SocketAddr::new(local, bound.port()));
    let remote = SocketAddr::new(hosts[0], seen.port());
    visible_name::of_association(program_end, local.unwrap_or_else(|| bound.first()), remote);
    let id = registry.next_association();
    let assoc = Rc::new(SocketAssociation::new(id, seen, socket.future_options()));
    if !registry.charge_paths(socket, &assoc, paths_to(&hosts)) {
        return Err(Errno::NOBUFS);
    }
    // The pair must not poll writable before the outcome is known.
    daemon_end::fill(program_end)?;
    socket.on_connecting(&assoc, local);
    // A program that waits for the answer learns of a failure from it, and may connect the same socket again.
    let ends_content = socket.style() == Style::TcpStream && start == Start::Now;
    let request = ConnectRequest {
        stack: stack_for(registry, socket, init),
        port: bound.port(),
        server: address(registry, socket, hosts, seen.port()),
        ends_content,
    };
    let command = OneToOneCommand::Connect { request, assoc: Rc::clone(&assoc) };
    socket.commands().one_to_one(command)?;
    Ok(assoc)
}

fn connect_one_to_many(
    registry: &Registry,
    socket: &Rc<Socket>,
    Peer { seen, hosts }: Peer,
    ConnectArgs { start, init, .. }: ConnectArgs<'_>,
) -> Result<Rc<SocketAssociation>, Errno> {
    let with_host = |host: &IpAddr| socket.associations().with_peer(SocketAddr::new(*host, seen.port()));
    let known = hosts.iter().find_map(with_host);
    if let Some(assoc) = known {
        return Err(match assoc.outcome() {
            Outcome::Pending => Errno::ALREADY,
            _ => Errno::ISCONN,
        });
    }
    if socket.peeled_off().has(&hosts, seen.port()) {
        return Err(Errno::ADDRNOTAVAIL);
    }
    let port = bound(registry, socket)?.port();
    let paths = paths_to(&hosts);
    let request = ConnectRequest {
        stack: stack_for(registry, socket, init),
        port,
        server: address(registry, socket, hosts, seen.port()),
        ends_content: false,
    };
    let permit = registry.admit_association(socket, paths).ok_or(Errno::NOBUFS)?;
    // The peer may accept fewer streams.
    let streams_out = request.stack.options().association.streams_out;
    let assoc = SocketAssociation::new(registry.next_association(), seen, socket.future_options());
    let assoc = socket.enter(assoc, streams_out, permit);
    let command = OneToManyCommand::Connect { request, start, assoc: Rc::clone(&assoc) };
    socket.commands().one_to_many(command)?;
    Ok(assoc)
}

/// Returns the address from which an association of a socket with these bound addresses sends to a host: the core chooses it by
/// the same rules.
fn source_toward(host: IpAddr, bound: &Bound) -> Option<IpAddr> {
    let route_source = local_toward(host);
    let is_bound = |ip: IpAddr| bound.has_wildcard() || bound.ips().contains(&ip);
    if let Some(source) = route_source.filter(|ip| is_bound(*ip)) {
        return Some(source);
    }
    let fitting = || bound.ips().iter().filter(|ip| !ip.is_unspecified() && ip.is_ipv4() == host.is_ipv4());
    let with_same_reach = fitting().find(|ip| ip.is_loopback() == host.is_loopback());
    with_same_reach.or_else(|| fitting().next()).copied()
}

/// Returns the number of paths that an association begins with.
fn paths_to(hosts: &[IpAddr]) -> usize {
    hosts.len().min(internals::PEER_ADDRESSES_MAX)
}

/// Returns a handle to the stack with the options and addresses for an association of the socket.
fn stack_for(registry: &Registry, socket: &Socket, init: InitMessage) -> Stack {
    let options = socket.options().with_init(init).for_stack();
    registry.stack().with_options(&options).with_local_addresses(&socket.local_scope())
}

fn address(registry: &Registry, socket: &Socket, hosts: Vec<IpAddr>, port: u16) -> Address {
    let udp_port = socket.options().future().peer_udp_port(registry.stack().udp_port());
    Address { hosts, port, udp_port }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use swiftwater::tokio::{Association, Listener};

    use super::*;
    use crate::state::registry::Opened;
    use crate::state::socket_options::SocketOptions;
    use crate::system::addresses::Family;
    use crate::testing::{ID, opened, opened_whole, registry, server_address, soon, until};
    use crate::users::owner::Owner;
    use crate::users::user::AssociationPermit;

    const PORT: u16 = 7000;
    const UNCONFIRMED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 77));

    fn local(host: u8) -> IpAddr {
        [127, 0, 0, host].into()
    }

    /// Opens a one-to-many socket of a user, and binds it to the same port as the others.
    fn bound_to(registry: &Registry, user: u32, ip: IpAddr) -> Opened {
        let (owner, options) = (Owner { user, process: 1 }, SocketOptions::new(registry.stack()));
        let style = Style::OneToMany;
        let opened =
            registry.open(owner, Family::V4, style, style.initial_state(), options).expect("a channel");
        registry.bind(&opened.socket, SocketAddr::new(ip, PORT)).expect("a free port");
        opened
    }

    /// Peels off an association of a socket; returns the new socket.
    fn peel_off(registry: &Registry, from: &Socket, association: Association) -> Rc<Socket> {
        let peer = association.peer_addr();
        let assoc = Rc::new(SocketAssociation::with(ID, peer, association, from.future_options()));
        let (socket, _program_end) = opened(registry, Style::PeeledOff);
        registry.on_adopted(&socket, from, &assoc, None);
        socket.on_peeled_off(from, &assoc);
        socket
    }

    /// Connects from an address of this host to the listener, and peels the association off. Returns the other end, too.
    async fn peeled_off(
        registry: &Registry,
        from: &Socket,
        listener: &Listener,
    ) -> (Rc<Socket>, Association) {
        let stack = registry.stack().with_local_addresses(&from.local_scope());
        let server = server_address(registry);
        let (connected, accepted) = tokio::join!(stack.connect_from(PORT, &server), listener.accept());
        let (peer, _) = accepted.expect("an association comes");
        (peel_off(registry, from, connected.expect("it listens")), peer)
    }

    /// Returns the error of a connect, if it fails at once.
    fn error_of_connect(registry: &Registry, opened: &Opened, peers: &[SocketAddr]) -> Option<Errno> {
        let peer = Addresses::new(peers).expect("a few");
        let args = ConnectArgs { peer, start: Start::Now, init: InitMessage::default() };
        let begun = connect(registry, &opened.socket, args, opened.program_end.as_fd());
        let assoc = begun.map(|assoc| opened.socket.remove(&assoc));
        assoc.err()
    }

    #[test]
    fn the_source_toward_a_host_is_a_bound_address_that_reaches_it() {
        let source = |bound: &[&str], host: &str| {
            let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
            let bound = Bound::new(bound.iter().map(|text| ip(text)).collect(), PORT);
            source_toward(ip(host), &bound).map(|source| source.to_string())
        };
        let chosen = |address: &str| Some(address.to_string());
        assert_eq!(source(&["0.0.0.0"], "127.0.0.1"), chosen("127.0.0.1"));
        assert_eq!(source(&["::"], "127.0.0.1"), chosen("127.0.0.1"));
        assert_eq!(source(&["127.0.0.2"], "127.0.0.1"), chosen("127.0.0.2"));
        assert_eq!(source(&["127.0.0.2", "127.0.0.1"], "127.0.0.1"), chosen("127.0.0.1"), "of the route");
        let several = ["2001:db8::1", "192.0.2.1", "127.0.0.2", "::1"];
        assert_eq!(source(&several, "127.0.0.1"), chosen("127.0.0.2"));
        assert_eq!(source(&several, "192.0.2.9"), chosen("192.0.2.1"));
        assert_eq!(source(&several[2..], "192.0.2.9"), chosen("127.0.0.2"));
        assert_eq!(source(&several, "2001:db8::9"), chosen("2001:db8::1"));
        assert_eq!(source(&["127.0.0.2"], "2001:db8::9"), None);
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_that_connects_has_a_local_address_that_it_is_bound_to() {
        let registry = registry();
        let opened = opened_whole(&registry, Style::OneToOne);
        let socket = &opened.socket;
        registry.bind(socket, SocketAddr::new(local(2), PORT)).expect("a free port");
        let peer = [SocketAddr::new(local(1), 7)];
        let peer = Addresses::new(&peer).expect("one");
        let args = ConnectArgs { peer, start: Start::Now, init: InitMessage::default() };
        connect(&registry, socket, args, opened.program_end.as_fd()).expect("it begins");
        assert_eq!(socket.local_address(), SocketAddr::new(local(2), PORT));
    }

    #[tokio::test(flavor = "local")]
    async fn each_path_of_an_association_that_begins_is_charged() {
        let registry = registry();
        let charged_bytes = || registry.resources().users().user(1).pages().charged_bytes();
        let socket = bound_to(&registry, 1, local(2));
        let charge_of = |hosts: &[u8]| {
            let peers: Vec<SocketAddr> = hosts.iter().map(|host| SocketAddr::new(local(*host), 7)).collect();
            let before = charged_bytes();
            let peer = Addresses::new(&peers).expect("a few");
            let args = ConnectArgs { peer, start: Start::Now, init: InitMessage::default() };
            connect(&registry, &socket.socket, args, socket.program_end.as_fd()).expect("room");
            charged_bytes() - before
        };
        assert_eq!(charge_of(&[10]), AssociationPermit::bytes_of(1, 1));
        assert_eq!(charge_of(&[11, 12, 13]), AssociationPermit::bytes_of(3, 1));
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_was_peeled_off_keeps_its_own_socket_from_a_second_one() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let (first, second) = (bound_to(&registry, 1, local(2)), bound_to(&registry, 2, local(3)));
        let (peeled, _peer) = peeled_off(&registry, &first.socket, &listener).await;
        let (server, other) = (SocketAddr::new(local(1), 7), SocketAddr::new(local(9), 7));
        assert_eq!(error_of_connect(&registry, &first, &[other, server]), Some(Errno::ADDRNOTAVAIL));
        assert_eq!(error_of_connect(&registry, &first, &[other]), None, "another peer");
        assert_eq!(error_of_connect(&registry, &second, &[server]), None, "another user's socket");
        registry.forget(&peeled);
        assert_eq!(first.socket.peeled_off().count(), 0);
        assert_eq!(error_of_connect(&registry, &first, &[server]), None, "the program has closed it");
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_has_ended_keeps_no_socket_from_its_peer() {
        for is_aborted in [false, true] {
            let registry = registry();
            let listener = registry.stack().listen(7).expect("a free port");
            let first = bound_to(&registry, 1, local(2));
            let (_peeled, peer) = peeled_off(&registry, &first.socket, &listener).await;
            let server = SocketAddr::new(local(1), 7);
            assert_eq!(error_of_connect(&registry, &first, &[server]), Some(Errno::ADDRNOTAVAIL));
            match is_aborted {
                true => peer.abort("enough"),
                false => soon(peer.close()).await.expect("the shutdown is complete"),
            }
            until("it has ended", || error_of_connect(&registry, &first, &[server]).is_none()).await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn an_address_that_a_peer_has_only_listed_stays_free() {
        let registry = registry();
        let first = bound_to(&registry, 1, local(2));
        let listener = registry.stack().listen(7).expect("a free port");
        let client = registry.stack().with_local_addresses(&[local(4), UNCONFIRMED]);
        let server = server_address(&registry);
        let (connected, accepted) = tokio::join!(client.connect_from(40_000, &server), listener.accept());
        let (association, _) = accepted.expect("an association comes");
        let listed = association.peer().expect("it is up").hosts;
        assert!(listed.contains(&local(4)) && listed.contains(&UNCONFIRMED), "{listed:?}");
        let _peeled = peel_off(&registry, &first.socket, association);
        let has = |ip| first.socket.peeled_off().has(&[ip], 40_000);
        assert_eq!((has(local(4)), has(UNCONFIRMED)), (true, false));
        drop(connected);
    }
}
