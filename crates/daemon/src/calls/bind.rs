//! `bind`, `sctp_bindx`, and the queries for local and peer addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::status_page::State;
use links::interface_addresses;
use rustix::io::Errno;
use tokio::time::{Instant, timeout_at};

use crate::state::port_holders::ADDRESSES_MAX;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::state::socket_addresses::Bound;
use crate::system::addresses::{append, check_local, parse_list, unspecified};
use crate::users::quantum::Quantum;
use crate::users::requester::Requester;

/// Number of records that each try to bind counts as.
const RECORDS_OF_TRY: usize = 32;
/// Maximum time that a bind waits for the listener of a closed socket: the socket's task closes it as soon as it runs.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

/// Runs `bind`, which binds a socket to these addresses. Waits for closed sockets to release the port, which they do at once or
/// when their tasks have closed their listeners.
pub(crate) async fn once_released(
    registry: &Registry,
    socket: &Socket,
    addresses: &[SocketAddr],
    bind: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let deadline = Instant::now() + RELEASE_WAIT;
    let ips: Vec<IpAddr> = addresses.iter().map(|address| address.ip().to_canonical()).collect();
    let mut quantum = Quantum::new();
    loop {
        match bind() {
            Err(Errno::ADDRINUSE) => {}
            done => return done,
        }
        let port = socket.addresses().bound().map(|bound| bound.port());
        let port = port.or_else(|| addresses.first().map(SocketAddr::port)).ok_or(Errno::INVAL)?;
        let mut holder = registry.closed_holder(socket, &ips, port);
        if holder.is_none() {
            // The daemon may be about to close its own copy of the descriptor of an accepted socket.
            socket.channel().daemon_end().closer().drained().await;
            holder = registry.closed_holder(socket, &ips, port);
        }
        let holder = holder.ok_or(Errno::ADDRINUSE)?;
        if holder.listens() {
            timeout_at(deadline, holder.port_released()).await.map_err(|_| Errno::ADDRINUSE)?;
        } else {
            registry.release_port(&holder);
        }
        quantum.spend_or_yield(RECORDS_OF_TRY).await;
    }
}

pub(crate) fn bind(
    registry: &Registry,
    socket: &Socket,
    address: SocketAddr,
    requester: Requester,
) -> Result<(), Errno> {
    socket.check_family(address)?;
    check_unbound(socket)?;
    check_right(registry, address.port(), requester)?;
    let ip = address.ip().to_canonical();
    check_local(ip)?;
    registry.bind(socket, SocketAddr::new(ip, address.port()))
}

/// Returns an error unless a socket may still get its first addresses.
fn check_unbound(socket: &Socket) -> Result<(), Errno> {
    let is_fresh = matches!(socket.state(), State::Idle | State::OneToMany);
    if is_fresh && !socket.addresses().is_bound() { Ok(()) } else { Err(Errno::INVAL) }
}

/// Returns the peer's address of a connected socket.
pub(crate) fn peer_address(socket: &Socket) -> Result<SocketAddr, Errno> {
    let peer = socket.addresses().peer();
    peer.filter(|_| socket.state() == State::Connected).ok_or(Errno::NOTCONN)
}

fn check_right(registry: &Registry, port: u16, requester: Requester) -> Result<(), Errno> {
    if registry.may_bind(port, requester) { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Returns the bound addresses; binds the socket to a free port if it is not bound.
pub(crate) fn bound(registry: &Registry, socket: &Socket) -> Result<Bound, Errno> {
    if !socket.addresses().is_bound() {
        registry.bind(socket, unspecified(socket.family()))?;
    }
    socket.addresses().bound().ok_or(Errno::ADDRINUSE)
}

/// `SCTP_SOCKOPT_BINDX_ADD`: adds either all of the addresses or none. As in the kernel, a fresh socket keeps those before the
/// first one that is refused. Waits as [`once_released`] does.
///
/// # Errors
///
/// `NOBUFS`: the socket would have more than [`ADDRESSES_MAX`] addresses.
pub(crate) async fn bind_more(
    registry: &Registry,
    socket: &Socket,
    list: &[SocketAddr],
    requester: Requester,
) -> Result<(), Errno> {
    match list.len() {
        0 => return Err(Errno::INVAL),
        count if count > ADDRESSES_MAX => return Err(Errno::NOBUFS),
        _ => {}
    }
    let at_once = if socket.addresses().is_bound() { list.len() } else { 1 };
    for list in list.chunks(at_once) {
        once_released(registry, socket, list, || add_all(registry, socket, list, requester)).await?;
    }
    Ok(())
}

/// Adds either all of the addresses or none. A fresh socket gets the port of the first.
fn add_all(
    registry: &Registry,
    socket: &Socket,
    list: &[SocketAddr],
    requester: Requester,
) -> Result<(), Errno> {
    let first = *list.first().ok_or(Errno::INVAL)?;
    let held = socket.addresses().bound();
    let (mut ips, port) = match &held {
        Some(held) => (held.ips().to_vec(), held.port()),
        None => (Vec::new(), first.port()),
    };
    if ips.len() + list.len() > ADDRESSES_MAX {
        return Err(Errno::NOBUFS);
    }
    list.iter().try_for_each(|address| socket.check_family(*address))?;
    if held.is_none() {
        check_unbound(socket)?;
    }
    list.iter().try_for_each(|address| {
        check_right(registry, address.port(), requester)?;
        let ip = address.ip().to_canonical();
        if !names_port(*address, port) || matches_one(&ips, ip) {
            return Err(Errno::INVAL);
        }
        check_local(ip)?;
        ips.push(ip);
        Ok(())
    })?;
    match held {
        None => registry.bind(socket, Bound::new(ips, port)),
        Some(held) => {
            let added = ips[held.ips().len()..].to_vec();
            registry.rebind(socket, Bound::new(ips, port), &added)
        }
    }
}

/// `SCTP_SOCKOPT_BINDX_REM`: removes either all of the addresses or none.
pub(crate) fn bind_less(registry: &Registry, socket: &Socket, list: &[u8]) -> Result<(), Errno> {
    let list = parse_list(list)?;
    let mut less = socket.addresses().bound().ok_or(Errno::BUSY)?;
    for address in list {
        socket.check_family(address)?;
        let ip = address.ip().to_canonical();
        if less.ips().len() < 2 {
            return Err(Errno::BUSY);
        }
        if !names_port(address, less.port()) {
            return Err(Errno::INVAL);
        }
        less.remove(ip).ok_or(Errno::INVAL)?;
    }
    registry.rebind(socket, less, &[])
}

/// Returns whether an address is one of these, or stands beside the unspecified address. As in the kernel, that matches each
/// address: it stands for all, and a socket that is bound to single ones does not get the others.
fn matches_one(ips: &[IpAddr], ip: IpAddr) -> bool {
    ips.iter().any(|held| *held == ip || held.is_unspecified() || ip.is_unspecified())
}

/// Returns whether an address has this port, or leaves the port open.
fn names_port(address: SocketAddr, port: u16) -> bool {
    address.port() == 0 || address.port() == port
}

/// `SCTP_GET_LOCAL_ADDRS`: returns a `struct sctp_getaddrs` with the addresses of the socket or of one of its
/// associations.
pub(crate) fn local_addresses(socket: &Socket, asked: &[u8]) -> Result<Vec<u8>, Errno> {
    let id = association_of(asked)?;
    if id != AssocId::NONE && socket.named_association(id).is_none() {
        return Err(Errno::INVAL);
    }
    let (ips, port) = match socket.addresses().bound_or_inherited() {
        None => (Vec::new(), 0),
        Some(own) if own.has_wildcard() => {
            let scope = socket.scope(own.ips());
            let all = interface_addresses().map_err(|_| Errno::NOMEM)?;
            (all.into_iter().filter(|ip| scope.covers(*ip)).collect(), own.port())
        }
        Some(own) => (own.ips().to_vec(), own.port()),
    };
    let view = socket.view();
    list_of(id, ips.into_iter().map(|ip| view.of(SocketAddr::new(ip, port))), asked.len())
}

/// `SCTP_GET_PEER_ADDRS`: returns a `struct sctp_getaddrs` with the addresses of the peer of an association.
pub(crate) fn peer_addresses(socket: &Socket, asked: &[u8]) -> Result<Vec<u8>, Errno> {
    let id = association_of(asked)?;
    let (assoc, view) = (socket.named_association(id).ok_or(Errno::INVAL)?, socket.view());
    let known = assoc.stack_association().and_then(|association| association.peer());
    let peers = match known {
        Some(peer) => {
            let hosts = peer.hosts.into_iter();
            hosts.map(|ip| view.of(SocketAddr::new(ip, peer.port))).collect()
        }
        None => vec![view.of(assoc.peer())],
    };
    list_of(id, peers.into_iter(), asked.len())
}

/// Returns the `assoc_id` of a `struct sctp_getaddrs`.
fn association_of(asked: &[u8]) -> Result<AssocId, Errno> {
    let bytes = asked.get(..8).and_then(|both| both.first_chunk()).ok_or(Errno::INVAL)?;
    Ok(AssocId::new(u32::from_ne_bytes(*bytes)))
}

fn list_of(
    id: AssocId,
    addresses: impl ExactSizeIterator<Item = SocketAddr>,
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let mut out = Vec::with_capacity(8 + 28 * addresses.len());
    out.extend(id.get().to_ne_bytes());
    out.extend((addresses.len() as u32).to_ne_bytes());
    addresses.for_each(|address| append(&mut out, address));
    if out.len() > room { Err(Errno::NOMEM) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::OwnedFd;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::calls::associations::find;
    use crate::channel::style::Style;
    use crate::state::association::SocketAssociation;
    use crate::state::socket_options::SocketOptions;
    use crate::system::addresses::Family;
    use crate::testing::{self, ID, registry};
    use crate::users::owner::Owner;
    use crate::users::requester::tests::requester;

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    fn opened(registry: &Registry) -> (Rc<Socket>, OwnedFd) {
        testing::opened(registry, Style::OneToOne)
    }

    /// Binds a socket and closes the program's end; returns the socket and its port.
    fn bound_and_closed(registry: &Registry) -> (Rc<Socket>, u16) {
        let (socket, program_end) = opened(registry);
        bind(registry, &socket, ANY, requester(1)).expect("a free port");
        drop(program_end);
        let port = socket.local_address().port();
        (socket, port)
    }

    /// Binds another socket to this port, as a request would.
    async fn bind_again(registry: &Registry, port: u16) -> Result<(), Errno> {
        let (second, _program_end) = opened(registry);
        let address = SocketAddr::new(ANY.ip(), port);
        once_released(registry, &second, &[address], || bind(registry, &second, address, requester(1))).await
    }

    #[tokio::test(flavor = "local")]
    async fn privileged_ports_are_root_s() {
        let registry = registry().with_unprivileged_from(1024);
        let rights =
            |requester: Requester| [0, 1, 1023, 1024].map(|port| check_right(&registry, port, requester));
        assert_eq!(rights(requester(0)), [Ok(()); 4]);
        assert_eq!(rights(requester(1)), [Ok(()), Err(Errno::ACCESS), Err(Errno::ACCESS), Ok(())]);
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_is_bound_once() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry);
        assert_eq!(bind(&registry, &socket, ANY, requester(1)), Ok(()));
        assert_eq!(bind(&registry, &socket, ANY, requester(1)), Err(Errno::INVAL));
        let (connected, _program_end) = opened(&registry);
        let assoc = SocketAssociation::new(ID, ([127, 0, 0, 1], 7).into(), connected.future_options());
        connected.on_connecting(&Rc::new(assoc), None);
        connected.on_connected(1);
        assert_eq!(bind(&registry, &connected, ANY, requester(1)), Err(Errno::INVAL));
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_has_a_limited_number_of_addresses() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry);
        let list = |range: std::ops::RangeInclusive<usize>| -> Vec<SocketAddr> {
            range.map(|n| ([127, 0, 1, n as u8], 0).into()).collect()
        };
        let more = async |range| bind_more(&registry, &socket, &list(range), requester(1)).await;
        assert_eq!(more(1..=ADDRESSES_MAX + 1).await, Err(Errno::NOBUFS));
        assert!(!socket.addresses().is_bound());
        assert_eq!(more(1..=ADDRESSES_MAX - 1).await, Ok(()));
        assert_eq!(more(ADDRESSES_MAX..=ADDRESSES_MAX + 1).await, Err(Errno::NOBUFS));
        assert_eq!(more(ADDRESSES_MAX..=ADDRESSES_MAX).await, Ok(()));
        assert_eq!(socket.addresses().bound().map(|bound| bound.ips().len()), Some(ADDRESSES_MAX));
        let (fresh, _program_end) = opened(&registry);
        assert_eq!(bind_more(&registry, &fresh, &list(1..=ADDRESSES_MAX), requester(1)).await, Ok(()));
    }

    #[tokio::test(flavor = "local")]
    async fn addresses_are_added_and_removed_with_the_port_of_the_socket_or_none() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry);
        let at = |host, port| SocketAddr::from(([127, 0, 0, host], port));
        let less = |addresses: &[SocketAddr]| {
            let mut list = Vec::new();
            addresses.iter().for_each(|address| append(&mut list, *address));
            bind_less(&registry, &socket, &list)
        };
        let more = async |address| bind_more(&registry, &socket, &[address], requester(1)).await;
        assert_eq!(less(&[at(1, 0)]), Err(Errno::BUSY), "it has none");
        assert_eq!(bind(&registry, &socket, at(1, 0), requester(1)), Ok(()));
        let port = socket.local_address().port();
        let other = port ^ 1;
        assert_eq!(more(at(2, other)).await, Err(Errno::INVAL));
        assert_eq!((more(at(2, port)).await, more(at(3, 0)).await), (Ok(()), Ok(())));
        let ips = || socket.addresses().bound().map(|bound| bound.ips().to_vec()).unwrap_or_default();
        assert_eq!(less(&[at(1, other)]), Err(Errno::INVAL));
        assert_eq!(less(&[at(9, port)]), Err(Errno::INVAL), "it has no such address");
        assert_eq!(less(&[at(1, 0), at(2, 0), at(3, 0)]), Err(Errno::BUSY), "one stays");
        assert_eq!(ips().len(), 3, "all of a list are removed, or none");
        assert_eq!(less(&[at(1, port), at(3, 0)]), Ok(()));
        assert_eq!((ips(), socket.local_address().port()), (vec![at(2, 0).ip()], port));
        let (second, _program_end) = opened(&registry);
        assert_eq!(bind(&registry, &second, at(1, port), requester(1)), Ok(()), "it is free again");
    }

    #[tokio::test(flavor = "local")]
    async fn the_unspecified_address_stands_alone() {
        let registry = registry();
        let addresses = |ips: &[&str]| -> Vec<SocketAddr> {
            ips.iter().map(|ip| SocketAddr::new(ip.parse().expect("an address"), 0)).collect()
        };
        for (held, added) in [
            (&["127.0.0.2"][..], &["0.0.0.0"][..]),
            (&["127.0.0.2"], &["127.0.0.3", "0.0.0.0"]),
            (&["0.0.0.0"], &["127.0.0.2"]),
            (&["0.0.0.0"], &["0.0.0.0"]),
            (&[], &["127.0.0.2", "0.0.0.0"]),
            (&[], &["0.0.0.0", "127.0.0.2"]),
        ] {
            let (socket, _program_end) = opened(&registry);
            let held = addresses(held);
            if !held.is_empty() {
                bind_more(&registry, &socket, &held, requester(1)).await.expect("a free port");
            }
            let more = bind_more(&registry, &socket, &addresses(added), requester(1)).await;
            assert_eq!(more, Err(Errno::INVAL), "{held:?} {added:?}");
            let first = addresses(added)[0];
            let kept = if held.is_empty() { vec![first] } else { held };
            let ips: Vec<IpAddr> = kept.iter().map(SocketAddr::ip).collect();
            let bound = socket.addresses().bound().map(|bound| bound.ips().to_vec());
            assert_eq!(bound.unwrap_or_default(), ips, "{added:?}");
        }
        let (alone, _program_end) = opened(&registry);
        assert_eq!(bind_more(&registry, &alone, &addresses(&["0.0.0.0"]), requester(1)).await, Ok(()));
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_of_ipv6_alone_has_no_mapped_address() {
        let registry = registry();
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 0));
        for v6_only in [true, false] {
            let expected = if v6_only { Err(Errno::INVAL) } else { Ok(()) };
            let [(first, _first_end), (second, _second_end)] =
                [(); 2].map(|()| testing::opened_v6(&registry, Style::OneToMany));
            first.options_mut().set_v6_only(v6_only);
            second.options_mut().set_v6_only(v6_only);
            assert_eq!(bind(&registry, &first, mapped, requester(1)), expected);
            assert_eq!(bind_more(&registry, &second, &[mapped], requester(1)).await, expected);
            assert_eq!([first, second].map(|socket| socket.addresses().is_bound()), [!v6_only; 2]);
            // The address of a message without association.
            let peer = SocketAddr::new(mapped.ip(), 7);
            let (third, _third_end) = testing::opened_v6(&registry, Style::OneToMany);
            third.options_mut().set_v6_only(v6_only);
            let unknown = if v6_only { Errno::INVAL } else { Errno::NOENT };
            assert_eq!(find(&third, peer).map(drop), Err(unknown));
        }
    }

    #[tokio::test(flavor = "local")]
    async fn the_port_of_a_closed_socket_is_free_before_its_task_has_run() {
        let registry = registry();
        let (first, port) = bound_and_closed(&registry);
        assert_eq!(bind_again(&registry, port).await, Ok(()));
        // The task of the first socket must not release the port, which another socket has by now.
        registry.forget(&first);
        assert_eq!(registry.holders(port), 1);
    }

    #[tokio::test(flavor = "local")]
    async fn the_port_of_a_closed_socket_is_free_beside_many_others_at_other_addresses() {
        let registry = registry();
        let bound = |host: u8, port| {
            let (socket, program_end) = opened(&registry);
            let address = SocketAddr::from(([127, 0, 0, host], port));
            assert_eq!(bind(&registry, &socket, address, requester(1)), Ok(()));
            (socket.local_address(), program_end)
        };
        let (first, _first_end) = bound(2, 0);
        let _others: Vec<_> = (3..=100).map(|host| bound(host, first.port())).collect();
        let (closed, program_end) = bound(1, first.port());
        drop(program_end);
        let (again, _program_end) = opened(&registry);
        let bind_again = || bind(&registry, &again, closed, requester(1));
        assert_eq!(once_released(&registry, &again, &[closed], bind_again).await, Ok(()));
    }

    #[tokio::test(flavor = "local")]
    async fn a_fresh_socket_keeps_the_addresses_before_one_that_is_refused() {
        let registry = registry();
        let (other, _other_end) = opened(&registry);
        let taken = [127, 0, 0, 9];
        bind(&registry, &other, (taken, 0).into(), requester(1)).expect("a free port");
        let port = other.local_address().port();
        let [first, second, foreign] = [[127, 0, 0, 1], [127, 0, 0, 2], [192, 0, 2, 1]];
        for (list, kept, error) in [
            (&[first, foreign][..], 1, Errno::ADDRNOTAVAIL),
            (&[first, second, foreign], 2, Errno::ADDRNOTAVAIL),
            (&[first, foreign, second], 1, Errno::ADDRNOTAVAIL),
            (&[first, second, first], 2, Errno::INVAL),
            (&[first, second, taken], 2, Errno::ADDRINUSE),
            (&[taken, first], 0, Errno::ADDRINUSE),
        ] {
            let (socket, _program_end) = opened(&registry);
            let list: Vec<SocketAddr> = list.iter().map(|host| (*host, port).into()).collect();
            assert_eq!(bind_more(&registry, &socket, &list, requester(1)).await, Err(error), "{list:?}");
            let ips = socket.addresses().bound().map(|bound| bound.ips().to_vec()).unwrap_or_default();
            let expected: Vec<IpAddr> = list.iter().take(kept).map(SocketAddr::ip).collect();
            assert_eq!(ips, expected, "{list:?}");
            registry.forget(&socket);
        }
        // One that is bound keeps what it had.
        let (socket, _program_end) = opened(&registry);
        bind(&registry, &socket, (first, port).into(), requester(1)).expect("a free address");
        let list = [second, foreign].map(|host| SocketAddr::from((host, port)));
        let refused = bind_more(&registry, &socket, &list, requester(1)).await;
        assert_eq!(
            (refused, socket.addresses().bound().map(|bound| bound.ips().len())),
            (Err(Errno::ADDRNOTAVAIL), Some(1))
        );
    }

    #[tokio::test(flavor = "local")]
    async fn addresses_of_which_a_closed_socket_has_one_are_bound_together() {
        let registry = registry();
        let (socket, program_end) = opened(&registry);
        let at = |host, port| SocketAddr::from(([127, 0, 0, host], port));
        assert_eq!(bind(&registry, &socket, at(2, 0), requester(1)), Ok(()));
        let port = socket.local_address().port();
        let (fresh, _program_end) = opened(&registry);
        let list = [at(1, port), at(2, port)];
        drop(program_end);
        assert_eq!(bind_more(&registry, &fresh, &list, requester(1)).await, Ok(()));
        let ips = fresh.addresses().bound().map(|bound| bound.ips().to_vec());
        assert_eq!(ips, Some(vec![at(1, 0).ip(), at(2, 0).ip()]));
    }

    #[tokio::test(flavor = "local")]
    async fn the_port_of_an_open_socket_is_taken() {
        let registry = registry();
        let (first, _program_end) = opened(&registry);
        bind(&registry, &first, ANY, requester(1)).expect("a free port");
        let port = first.local_address().port();
        assert_eq!(bind_again(&registry, port).await, Err(Errno::ADDRINUSE));
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_shares_its_address_except_while_it_listens() {
        let registry = registry();
        let listener = Arc::new(registry.stack().listen(7).expect("a free port"));
        let [(first, _first_end), (second, _second_end)] = [(); 2].map(|()| opened(&registry));
        for socket in [&first, &second] {
            socket.options_mut().set_reuse_address(true);
        }
        bind(&registry, &first, ANY, requester(1)).expect("a free port");
        let bind_second = || bind(&registry, &second, first.local_address(), requester(1));
        registry.on_listening(&first, &listener);
        assert_eq!(bind_second(), Err(Errno::ADDRINUSE));
        registry.on_unlistened(&first);
        assert_eq!(bind_second(), Ok(()));
    }

    #[tokio::test(flavor = "local")]
    async fn sockets_with_associations_of_a_closed_one_hold_its_port() {
        for style in [Style::OneToOne, Style::OneToMany] {
            let registry = registry();
            let opened = |user, style: Style, reuses_address| {
                let mut options = SocketOptions::new(registry.stack());
                options.set_reuse_address(reuses_address);
                let owner = Owner { user, process: 1 };
                let opened = registry.open(owner, Family::V4, style, style.initial_state(), options);
                opened.expect("a channel")
            };
            let first = opened(1, style, true);
            bind(&registry, &first.socket, ANY, requester(1)).expect("a free port");
            let address = SocketAddr::new(ANY.ip(), first.socket.local_address().port());
            let [accepted, other] = [ID, ID.next()].map(|id| {
                let accepted = opened(1, Style::PeeledOff, true);
                let peer = SocketAddr::from(([192, 0, 2, 1], 7));
                let assoc = Rc::new(SocketAssociation::new(id, peer, accepted.socket.future_options()));
                registry.on_adopted(&accepted.socket, &first.socket, &assoc, None);
                accepted
            });
            let bind_again = async |user, reuses_address| {
                let again = opened(user, Style::OneToOne, reuses_address);
                let bind = || bind(&registry, &again.socket, address, requester(user));
                let done = once_released(&registry, &again.socket, &[address], bind).await;
                registry.forget(&again.socket);
                done
            };
            drop(first.program_end);
            assert_eq!(bind_again(1, true).await, Ok(()), "its user's next server");
            assert_eq!(bind_again(1, false).await, Err(Errno::ADDRINUSE));
            assert_eq!(bind_again(2, true).await, Err(Errno::ADDRINUSE));
            registry.forget(&first.socket);
            registry.forget(&other.socket);
            assert_eq!(bind_again(2, true).await, Err(Errno::ADDRINUSE), "one has an association");
            drop(accepted.program_end);
            assert_eq!(bind_again(2, false).await, Ok(()), "its program has closed it");
            registry.forget(&accepted.socket);
            assert_eq!(registry.holders(address.port()), 0);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn the_port_of_a_closed_listener_is_free_once_its_task_has_closed_it() {
        for is_forgotten in [true, false] {
            let registry = registry();
            let (first, port) = bound_and_closed(&registry);
            let listener = Arc::new(registry.stack().listen(port).expect("a free port"));
            registry.on_listening(&first, &listener);
            let closes = async {
                tokio::task::yield_now().await;
                match is_forgotten {
                    true => registry.forget(&first),
                    // Its associations wait for memory.
                    false => registry.on_unlistened(&first),
                }
            };
            let (again, ()) = tokio::join!(bind_again(&registry, port), closes);
            assert_eq!(again, Ok(()), "forgotten: {is_forgotten}");
        }
    }
}
