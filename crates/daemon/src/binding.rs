//! `bind`, `sctp_bindx`, and the addresses that programs ask for.

use std::net::{IpAddr, SocketAddr};

use carrier::page::State;
use links::interface_addresses;
use rustix::io::Errno;
use rustix::net::UCred;

use crate::addresses::{append, as_seen, check_family, check_local, parse_list, unspecified};
use crate::ports::{Scope, Sharing};
use crate::socket::{Bound, Inner, Socket, Sockets};

/// How often the tasks of closed sockets run before a port that they still have counts as taken. A socket whose peer takes
/// nothing keeps its port for as long as the peer likes.
const LEAVING_ROUNDS_MAX: usize = 64;

impl Sockets {
    /// Binds. If closed sockets hold the port, lets their tasks run first, which may not have seen the close yet.
    pub(crate) async fn once_left(
        &self,
        port: u16,
        bind: impl Fn() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        for _ in 0..LEAVING_ROUNDS_MAX {
            match bind() {
                Err(Errno::ADDRINUSE) if self.is_being_left(port) => tokio::task::yield_now().await,
                done => return done,
            }
        }
        Err(Errno::ADDRINUSE)
    }

    pub(crate) fn bind(&self, socket: &Socket, address: SocketAddr, who: UCred) -> Result<(), Errno> {
        let mut inner = socket.lock();
        check_family(socket.v6, address)?;
        let is_fresh = matches!(inner.stage, State::Idle | State::Many);
        if inner.bound.is_some() || !is_fresh {
            return Err(Errno::INVAL);
        }
        self.check_right(address.port(), who)?;
        let ip = address.ip().to_canonical();
        check_local(ip)?;
        self.hold(socket, &mut inner, SocketAddr::new(ip, address.port()))
    }

    fn check_right(&self, port: u16, who: UCred) -> Result<(), Errno> {
        let privileged = (1..self.unprivileged_from).contains(&port);
        if privileged && !who.uid.is_root() { Err(Errno::ACCESS) } else { Ok(()) }
    }

    /// Takes a port for the socket.
    fn hold(&self, socket: &Socket, inner: &mut Inner, address: SocketAddr) -> Result<(), Errno> {
        let (scope, settings) = (inner.scope(vec![address.ip()]), &inner.settings);
        let owner = socket.share.owner.user;
        let port_of_user = settings.reuses_port().then_some(owner);
        let sharing = Sharing { address: settings.reuse_address, port_of_user };
        let port = self.ports().bind(socket.number, scope, address.port(), sharing)?;
        inner.bound = Some(Bound { ips: vec![address.ip()], port });
        Ok(())
    }

    /// Where the socket is bound; it takes a free port if it has none.
    pub(crate) fn bound(&self, socket: &Socket, inner: &mut Inner) -> Result<Bound, Errno> {
        if inner.bound.is_none() {
            self.hold(socket, inner, unspecified(socket.v6))?;
        }
        inner.bound.clone().ok_or(Errno::ADDRINUSE)
    }

    /// `SCTP_SOCKOPT_BINDX_ADD`: adds all of the addresses, or none. A fresh socket keeps the port of the first, as in the kernel.
    pub(crate) fn bind_more(&self, socket: &Socket, list: &[SocketAddr], who: UCred) -> Result<(), Errno> {
        let first = *list.first().ok_or(Errno::INVAL)?;
        list.iter().try_for_each(|address| check_family(socket.v6, *address))?;
        let fresh = socket.lock().bound.is_none();
        if fresh {
            self.bind(socket, first, who)?;
        }
        let mut inner = socket.lock();
        let bound = inner.bound.clone().ok_or(Errno::INVAL)?;
        let mut more = bound.clone();
        for address in list.iter().skip(fresh.into()) {
            self.check_right(address.port(), who)?;
            let ip = address.ip().to_canonical();
            if (address.port() != 0 && address.port() != bound.port)
                || inner.scope(more.ips.clone()).covers(ip)
            {
                return Err(Errno::INVAL);
            }
            check_local(ip)?;
            more.ips.push(ip);
        }
        self.rebind(socket, &mut inner, more)
    }

    /// `SCTP_SOCKOPT_BINDX_REM`: all of the addresses, or none.
    pub(crate) fn bind_less(&self, socket: &Socket, list: &[u8]) -> Result<(), Errno> {
        let list = parse_list(list)?;
        let mut inner = socket.lock();
        let mut less = inner.bound.clone().ok_or(Errno::BUSY)?;
        for address in list {
            check_family(socket.v6, address)?;
            let ip = address.ip().to_canonical();
            if less.ips.len() < 2 {
                return Err(Errno::BUSY);
            }
            if address.port() != 0 && address.port() != less.port {
                return Err(Errno::INVAL);
            }
            let at = less.ips.iter().position(|own| *own == ip).ok_or(Errno::INVAL)?;
            less.ips.remove(at);
        }
        self.rebind(socket, &mut inner, less)
    }

    fn rebind(&self, socket: &Socket, inner: &mut Inner, bound: Bound) -> Result<(), Errno> {
        let scope = inner.scope(bound.ips.clone());
        self.ports().rebind(socket.number, &scope, bound.port)?;
        inner.bound = Some(bound);
        inner.tune_listener();
        Ok(())
    }
}

impl Socket {
    /// `getsockname`, in the form that the sharers know.
    pub(crate) fn local_address(&self) -> SocketAddr {
        let inner = self.lock();
        let local = inner.local.or_else(|| inner.bound.as_ref().map(Bound::first));
        as_seen(self.v6, local.unwrap_or_else(|| unspecified(self.v6)))
    }

    /// `SCTP_GET_LOCAL_ADDRS`: `struct sctp_getaddrs` with the socket's addresses, or those of one of its associations.
    pub(crate) fn local_addresses(&self, asked: &[u8]) -> Result<Vec<u8>, Errno> {
        let id = association_of(asked)?;
        let inner = self.lock();
        if id != 0 && inner.member(id).is_none() {
            return Err(Errno::INVAL);
        }
        let own = inner.bound.as_ref().or(inner.inherited.as_ref());
        let (mut ips, port) = own.map_or_else(|| (Vec::new(), 0), |own| (own.ips.clone(), own.port));
        if ips.iter().any(IpAddr::is_unspecified) {
            let scope = inner.scope(ips);
            let all = interface_addresses().map_err(|_| Errno::NOMEM)?;
            ips = all.into_iter().filter(|ip| scope.covers(*ip)).collect();
        }
        let view = inner.settings.view(self.v6);
        list_of(id, ips.into_iter().map(|ip| view.of(SocketAddr::new(ip, port))), asked.len())
    }

    /// `SCTP_GET_PEER_ADDRS`: `struct sctp_getaddrs` with the addresses of the peer of an association.
    pub(crate) fn peer_addresses(&self, asked: &[u8]) -> Result<Vec<u8>, Errno> {
        let id = association_of(asked)?;
        let (member, view) = {
            let inner = self.lock();
            (inner.member(id).ok_or(Errno::INVAL)?, inner.settings.view(self.v6))
        };
        let known = member.association().and_then(|association| association.peer_address());
        let peers = match known {
            Some(peer) => {
                let hosts = peer.hosts.into_iter();
                hosts.map(|ip| view.of(SocketAddr::new(ip, peer.port))).collect()
            }
            None => vec![view.of(member.peer)],
        };
        list_of(id, peers.into_iter(), asked.len())
    }
}

impl Inner {
    pub(crate) fn scope(&self, ips: Vec<IpAddr>) -> Scope {
        Scope::new(ips, self.settings.v6_only)
    }
}

/// `assoc_id` of a `struct sctp_getaddrs`.
fn association_of(asked: &[u8]) -> Result<u32, Errno> {
    let bytes = asked.get(..8).and_then(|both| both.first_chunk()).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn list_of(
    id: u32,
    addresses: impl ExactSizeIterator<Item = SocketAddr>,
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let mut out = Vec::with_capacity(8 + 28 * addresses.len());
    out.extend(id.to_ne_bytes());
    out.extend((addresses.len() as u32).to_ne_bytes());
    addresses.for_each(|address| append(&mut out, address));
    if out.len() > room { Err(Errno::NOMEM) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::process::{Gid, Pid, Uid};
    use swiftwater::{Stack, StackOptions};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::limits::Limits;
    use crate::numbers::Numbers;
    use crate::options::Settings;
    use crate::owner::Owner;
    use crate::socket::Style;

    /// A wait that has no end is a failure after this time.
    const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    fn sockets() -> Arc<Sockets> {
        let stack =
            Stack::bind(&StackOptions { udp_port: Some(0), ..StackOptions::default() }).expect("a free port");
        let numbers = Numbers::with_max(1 << 16);
        Arc::new(Sockets::new(stack, false, &Limits::default(), numbers).expect("random numbers"))
    }

    /// A socket whose task runs in the runtime that is entered, with the program's end of its carrier.
    fn opened(sockets: &Arc<Sockets>) -> (Arc<Socket>, OwnedFd) {
        let owner = Owner { user: 1, process: 1 };
        let (style, settings) = (Style::OneToOne, Settings::new(&sockets.stack));
        sockets.open(owner, false, style, style.first_stage(), settings).expect("a carrier")
    }

    fn who() -> UCred {
        UCred { pid: Pid::INIT, uid: Uid::from_raw(1), gid: Gid::from_raw(1) }
    }

    /// Binds a second socket to the port of a first one that its program has closed. The task of the first one runs in `of_first`.
    fn bind_after_close(of_first: &Runtime, of_request: &Runtime) -> Result<(), Errno> {
        let sockets = sockets();
        let port = {
            let _entered = of_first.enter();
            let (first, theirs) = opened(&sockets);
            sockets.bind(&first, ANY, who()).expect("a free port");
            drop(theirs);
            first.local_address().port()
        };
        let bound = of_request.block_on(async {
            let (second, _theirs) = opened(&sockets);
            let address = SocketAddr::new(ANY.ip(), port);
            let bind = sockets.once_left(port, || sockets.bind(&second, address, who()));
            tokio::time::timeout(ANSWERED_WITHIN, bind).await
        });
        bound.expect("an answer")
    }

    #[test]
    fn privileged_ports_are_root_s() {
        let mut sockets = sockets();
        Arc::get_mut(&mut sockets).expect("nobody else has it").unprivileged_from = 1024;
        let root = UCred { uid: Uid::ROOT, ..who() };
        let rights = |who: UCred| [0, 1, 1023, 1024].map(|port| sockets.check_right(port, who));
        assert_eq!(rights(root), [Ok(()); 4]);
        assert_eq!(rights(who()), [Ok(()), Err(Errno::ACCESS), Err(Errno::ACCESS), Ok(())]);
    }

    #[test]
    fn a_socket_is_bound_once() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let sockets = sockets();
        let (socket, _theirs) = opened(&sockets);
        assert_eq!(sockets.bind(&socket, ANY, who()), Ok(()));
        assert_eq!(sockets.bind(&socket, ANY, who()), Err(Errno::INVAL));
        let (connected, _theirs) = opened(&sockets);
        connected.lock().stage = State::Connected;
        assert_eq!(sockets.bind(&connected, ANY, who()), Err(Errno::INVAL));
    }

    #[test]
    fn a_port_is_free_once_the_task_of_its_closed_socket_has_run() {
        let runtime = runtime();
        assert_eq!(bind_after_close(&runtime, &runtime), Ok(()));
    }

    #[test]
    fn a_port_that_a_closed_socket_keeps_counts_as_taken() {
        // Nobody runs the task of the first socket.
        assert_eq!(bind_after_close(&runtime(), &runtime()), Err(Errno::ADDRINUSE));
    }
}
