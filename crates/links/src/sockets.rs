//! The sockets of a link, one for each local address, and the operations common to all kinds of links.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;

use crate::blocks::Blocks;
use crate::bound_socket::BoundSocket;
use crate::control::RECEIVE_CONTROL_BYTES;
use crate::interface::{bind_to_interface, interface_addresses};
use crate::link::{Expected, PathInfo, Sink, Unreachable};
use crate::own_addresses::OwnAddresses;
use crate::route::{Routes, header_bytes, payload_bytes};
use crate::strangers::readiness::Readiness;
use crate::strangers::share::Share;
use crate::strangers::thinning::repetitions::Headers;
use crate::strangers::thinning::{self, Filter, Thinning};
use crate::strangers::{self, Class, SeparateSockets};
use crate::{BindError, LinkStats};

mod cutting;
mod receive;
mod send;

pub(crate) use cutting::Cutting;
pub(crate) use receive::{About, Taken};
pub(crate) use send::{Batch, Outcome, packet_control};

/// Maximum number of reports made by this link that wait for the next `receive`; one for each path is enough.
const PENDING_REPORTS_MAX: usize = 16;
/// Maximum number of bytes of our packet in a report.
pub(crate) const QUOTED_BYTES_MAX: usize = 512;
/// Maximum number of attempts of a send that returns an ICMP error of an earlier packet.
pub(crate) const SEND_TRIES_MAX: usize = 4;
/// Part of the receive buffer that may be in flight on the same host, and the maximum.
const IN_FLIGHT_PERCENT: usize = 65;
const IN_FLIGHT_BYTES_MAX: usize = 512 * 1024;
/// The kernel charges up to 71 KB for a batch of 65,000 bytes.
const CHARGE_PERCENT: usize = 110;

/// The sockets, with their routes, their receive memory and their counters.
pub(crate) struct Sockets {
    /// The sockets of peers, then those for strangers.
    pub(crate) list: Vec<Socket>,
    /// Number of sockets of peers.
    of_peers: usize,
    /// These keep the ports of groups reserved.
    _guards: Vec<OwnedFd>,
    /// The socket of peers with which the next `receive` begins, so that none starves.
    next: usize,
    /// Readiness of the sockets for strangers, if there are any.
    readiness: Option<Readiness>,
    /// Whether filters against floods may need a change.
    filters_due: bool,
    /// Bytes of the header between IP and SCTP.
    encapsulation_bytes: usize,
    mtu_bytes_cap: usize,
    in_flight_limit_bytes: usize,
    pub(crate) routes: RefCell<Routes>,
    /// The addresses of this host. A change invalidates the routes.
    own: RefCell<OwnAddresses>,
    pub(crate) blocks: Blocks,
    pub(crate) control: [u8; RECEIVE_CONTROL_BYTES],
    pending_reports: VecDeque<Unreachable>,
    pub(crate) stats: LinkStats,
}

/// One socket of a link.
pub(crate) struct Socket {
    pub(crate) inner: BoundSocket,
    /// Class of packets that the socket receives. A socket for strangers sends what [`Sockets::batch_apart`] assigns to it.
    pub(crate) class: Class,
    share: Share,
    /// `None`: all packets are received.
    pub(crate) thinning: Option<Thinning>,
    /// Places of the separate sockets for strangers in the list; none if there are no such sockets.
    strangers: Range<usize>,
    /// Whether a send has returned an error that belongs to the error queue, which therefore is not empty.
    pub(crate) reports_waiting: bool,
    idle_receives: u32,
    /// Number of single small datagrams since the last large one or batch.
    pub(crate) small_run: u32,
    /// Whether packets may be fragmented, in IPv4 and in IPv6.
    cutting: [Cutting; 2],
    /// Last value of the kernel's drop counter for the socket.
    pub(crate) overflows: u32,
}

impl Sockets {
    /// Wraps bound sockets.
    ///
    /// # Errors
    ///
    /// The process or the system lacks descriptors.
    pub(crate) fn new(
        bound: Vec<BoundSocket>,
        encapsulation_bytes: usize,
        mtu_bytes: Option<usize>,
    ) -> Result<Self, BindError> {
        let interfaces = bound.iter().filter_map(|s| Some((s.bound.ip(), s.interface.clone()?))).collect();
        let buffer_bytes = bound.iter().map(|socket| socket.receive_buffer_bytes).min().unwrap_or_default();
        let of_peers = bound.len();
        let (mut list, mut apart, mut guards) = (Vec::with_capacity(bound.len()), Vec::new(), Vec::new());
        for mut inner in bound {
            let headers = match (encapsulation_bytes, inner.ipv6) {
                (0, false) => Headers::Ipv4,
                (0, true) => Headers::Nothing,
                _ => Headers::Udp,
            };
            let beside = inner.strangers.take();
            let first_stranger = of_peers + apart.len();
            if let Some(SeparateSockets { strangers, guards: of_port }) = beside {
                guards.extend(of_port);
                for (class, fd) in strangers {
                    let interface = inner.interface.clone();
                    apart.push(Socket::new(
                        BoundSocket { fd, interface, strangers: None, ..inner },
                        class,
                        headers,
                    ));
                }
            }
            let strangers = first_stranger..of_peers + apart.len();
            list.push(Socket { strangers, ..Socket::new(inner, Class::Peers, headers) });
        }
        let of_strangers = || apart.iter().map(|socket| socket.inner.fd.as_fd());
        let readiness = match list.first() {
            Some(first) if !apart.is_empty() => Some(
                Readiness::new(of_strangers()).map_err(|errno| BindError::new(first.inner.bound, errno))?,
            ),
            _ => None,
        };
        list.append(&mut apart);
        Ok(Sockets {
            list,
            of_peers,
            _guards: guards,
            next: 0,
            readiness,
            filters_due: false,
            encapsulation_bytes,
            mtu_bytes_cap: mtu_bytes.unwrap_or(usize::MAX),
            in_flight_limit_bytes: (buffer_bytes * IN_FLIGHT_PERCENT / CHARGE_PERCENT)
                .min(IN_FLIGHT_BYTES_MAX),
            routes: RefCell::new(Routes::new(interfaces)),
            own: RefCell::new(OwnAddresses::new()),
            blocks: Blocks::new(),
            control: [0; RECEIVE_CONTROL_BYTES],
            pending_reports: VecDeque::with_capacity(PENDING_REPORTS_MAX),
            stats: LinkStats::default(),
        })
    }

    pub(crate) fn local_addresses(&self) -> Vec<SocketAddr> {
        self.list[..self.of_peers].iter().map(|socket| socket.inner.bound).collect()
    }

    pub(crate) fn path_info(&self, remote: SocketAddr) -> PathInfo {
        let remote = canonical(remote);
        let local = self.local_for(remote);
        let bound = local
            .or_else(|| self.socket_for(remote.ip(), None).map(|index| self.list[index].inner.bound.ip()));
        let route = self.routes.borrow_mut().lookup(remote, bound);
        PathInfo {
            mtu_bytes: payload_bytes(
                route.mtu_bytes.min(self.mtu_bytes_cap),
                remote.ip(),
                self.encapsulation_bytes,
            ),
            header_bytes: header_bytes(remote.ip(), self.encapsulation_bytes),
            same_host: route.same_host,
            on_link: route.on_link,
            in_flight_limit_bytes: route.same_host.then_some(self.in_flight_limit_bytes),
            local,
            route_local: route.source,
        }
    }

    /// Returns whether an address belongs to this host.
    pub(crate) fn is_same_host(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return interface_addresses().is_ok_and(|own| own.contains(&address));
        }
        self.own_addresses().has(address)
    }

    /// Returns whether the kernel sends packets to an address without a router.
    pub(crate) fn is_neighbour(&self, address: IpAddr) -> bool {
        self.own_addresses().is_neighbour(address)
    }

    /// Returns the current addresses of this host.
    fn own_addresses(&self) -> RefMut<'_, OwnAddresses> {
        let mut own = self.own.borrow_mut();
        if own.refresh() {
            self.routes.borrow_mut().forget_all();
        }
        own
    }

    pub(crate) fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>)) {
        for socket in &self.list[..self.of_peers] {
            visit(socket.inner.fd.as_fd());
        }
        if let Some(readiness) = &self.readiness {
            visit(readiness.descriptor());
        }
    }

    /// Steers packets by what is expected. Returns whether the kernel does so for every socket; otherwise all are steered by
    /// type.
    pub(crate) fn steer(&self, expected: Expected<'_>) -> bool {
        let sockets = &self.list[..self.of_peers];
        let steers = |socket: &Socket| {
            !socket.strangers.is_empty() && strangers::steer(socket.inner.fd.as_fd(), expected)
        };
        let all = sockets.iter().all(steers);
        if !all && expected != Expected::default() {
            self.steer(Expected::default());
        }
        all
    }

    /// Adapts the filters against floods. `attach` gives a socket the filter of its `Socket::filter`, or none.
    pub(crate) fn adapt_filters(&mut self, attach: &dyn Fn(&Socket) -> Result<(), Errno>) {
        if !std::mem::take(&mut self.filters_due) {
            return;
        }
        let now = Instant::now();
        for socket in &mut self.list[self.of_peers..] {
            let dropped = &mut self.stats.receive_thinned;
            if !socket.thinning.as_mut().is_some_and(|thinning| thinning.adapt(now, dropped)) {
                continue;
            }
            if attach(socket).is_err() {
                socket.thinning.iter_mut().for_each(Thinning::on_refused);
                // The old filter is still attached.
                let _ = attach(socket);
            }
        }
        let is_filtered = self.list[self.of_peers..].iter().any(|socket| socket.filter().is_some());
        if let Some(readiness) = self.readiness.as_mut().filter(|_| is_filtered) {
            // The flood may be over, so no packet need come.
            readiness.end_receive(Some(thinning::INTERVAL));
        }
    }

    /// Returns whether every address has sockets for strangers.
    pub(crate) fn has_strangers_apart(&self) -> bool {
        self.list[..self.of_peers].iter().all(|socket| !socket.strangers.is_empty())
    }

    pub(crate) fn stats(&self) -> LinkStats {
        LinkStats { blocks_allocated: self.blocks.allocated, blocks_reused: self.blocks.reused, ..self.stats }
    }

    /// Returns the socket that sends to `remote` from `local`.
    pub(crate) fn socket_for(&self, remote: IpAddr, local: Option<IpAddr>) -> Option<usize> {
        let position = |wanted: &dyn Fn(IpAddr) -> bool| {
            self.list.iter().position(|socket| socket.carries(remote) && wanted(socket.inner.bound.ip()))
        };
        match local {
            Some(local) => {
                let local = local.to_canonical();
                position(&|bound| bound == local).or_else(|| position(&|bound| bound.is_unspecified()))
            }
            None => position(&|bound| bound.is_unspecified() || bound.is_loopback() == remote.is_loopback())
                .or_else(|| position(&|_| true)),
        }
    }

    /// Returns the bound source address of packets to `remote`: the address itself on the same host, or the source of the route.
    /// `None`: the kernel chooses.
    fn local_for(&self, remote: SocketAddr) -> Option<IpAddr> {
        let bound = || {
            let carrying = self.list.iter().filter(|socket| socket.carries(remote.ip()));
            carrying.map(|socket| socket.inner.bound.ip()).filter(|ip| !ip.is_unspecified())
        };
        let first = bound().next()?;
        if bound().any(|ip| ip == remote.ip()) {
            return Some(remote.ip());
        }
        if bound().nth(1).is_none() {
            return Some(first);
        }
        let source = self.routes.borrow_mut().lookup(remote, None).source;
        source
            .filter(|source| bound().any(|ip| ip == *source))
            .or_else(|| bound().find(|ip| ip.is_loopback() == remote.ip().is_loopback()))
            .or(Some(first))
    }

    /// Returns an I/O error for a destination that no socket reaches.
    pub(crate) fn no_way_to(&mut self, remote: IpAddr) -> io::Error {
        self.stats.send_failed += 1;
        io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!("no local address of this link reaches {remote}: bind one of its family"),
        )
    }

    /// Delivers the reports made by this link to the sink.
    fn hand_out_reports(&mut self, sink: &mut dyn Sink) {
        while let Some(report) = self.pending_reports.pop_front() {
            sink.unreachable(report);
        }
    }
}

impl Socket {
    fn new(inner: BoundSocket, class: Class, headers: Headers) -> Self {
        Socket {
            inner,
            class,
            share: class.share(),
            thinning: Thinning::of_class(class, headers),
            strangers: 0..0,
            reports_waiting: false,
            idle_receives: 0,
            small_run: 0,
            cutting: [Cutting::Never; 2],
            overflows: 0,
        }
    }

    /// Returns the filter against a flood that the socket must have.
    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.thinning.as_ref()?.filter()
    }

    /// Returns whether the socket sends to addresses of this family.
    fn carries(&self, remote: IpAddr) -> bool {
        let family = self.inner.ipv6 == remote.is_ipv6() || (self.inner.dual_stack && remote.is_ipv4());
        family && self.class == Class::Peers
    }

    /// Binds the socket to the interface that now has the name of the removed one. Returns false if there is none, or if that
    /// needs a privilege (CAP_NET_RAW).
    #[cold]
    pub(crate) fn bind_anew(&self) -> bool {
        let interface = self.inner.interface.as_deref();
        interface.is_some_and(|interface| bind_to_interface(self.inner.fd.as_fd(), interface).is_ok())
    }
}

/// Returns the address; a mapped IPv4 address becomes an IPv4 address.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(address.ip().to_canonical(), v6.port())
        }
        address => address,
    }
}

/// Returns whether the kernel reports this error for an ICMP message, by the next call on the socket.
pub(crate) fn is_icmp_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EHOSTDOWN
            | Errno::ENONET
            | Errno::ENOPROTOOPT
            | Errno::EPROTO
            | Errno::EOPNOTSUPP
            | Errno::EACCES
            | Errno::EMSGSIZE
    )
}
