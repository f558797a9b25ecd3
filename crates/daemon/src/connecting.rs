//! `connect`, `sctp_connectx`, and associations that begin with a message.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use carrier::page::State;
use carrier::request::{Addresses, InitMessage, Start};
use rustix::io::Errno;
use swiftwater::{Address, Stack};

use crate::addresses::{as_seen, check_peer, local_toward};
use crate::life::Turn;
use crate::line;
use crate::many::{self, Origin};
use crate::member::{Member, Outcome};
use crate::socket::{Bound, Inner, Socket, Sockets, Style};
use crate::visible_name;

impl Sockets {
    /// Begins to set an association up.
    pub(crate) fn connect(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        peer: Addresses<'_>,
        (start, init): (Start, InitMessage),
        theirs: BorrowedFd<'_>,
    ) -> Result<Arc<Member>, Errno> {
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
            Style::OneToMany => self.connect_another(socket, seen, hosts, (start, init)),
            Style::OneToOne | Style::PeeledOff => self.connect_only(socket, seen, hosts, init, theirs),
        }
    }

    fn connect_only(
        &self,
        socket: &Socket,
        seen: SocketAddr,
        hosts: Vec<IpAddr>,
        init: InitMessage,
        theirs: BorrowedFd<'_>,
    ) -> Result<Arc<Member>, Errno> {
        let mut inner = socket.lock();
        match inner.stage {
            State::Idle => {}
            State::Connecting => return Err(Errno::ALREADY),
            _ => return Err(Errno::ISCONN),
        }
        let bound = self.bound(socket, &mut inner)?;
        // Nobody may find the carrier writable before it is known how this ends.
        line::fill(theirs)?;
        socket.page.clear_error();
        inner.peer = Some(seen);
        inner.local = local_toward(hosts[0]).map(|local| SocketAddr::new(local, bound.port));
        let local = inner.local.unwrap_or_else(|| bound.first());
        visible_name::of_association(theirs, local, SocketAddr::new(hosts[0], seen.port()));
        socket.set_stage(&mut inner, State::Connecting);
        let member = Arc::new(Member::new(self.next_association(), seen, inner.settings.tuning.clone()));
        inner.members.insert(member.id, Arc::clone(&member));
        let stack = self.stack_for(&inner, init);
        let server = self.address(&inner, hosts, seen.port());
        socket.take_turn(Turn::Connect { stack, port: bound.port, server, member: Arc::clone(&member) })?;
        Ok(member)
    }

    fn connect_another(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        seen: SocketAddr,
        hosts: Vec<IpAddr>,
        (start, init): (Start, InitMessage),
    ) -> Result<Arc<Member>, Errno> {
        let mut inner = socket.lock();
        let known = hosts.iter().find_map(|host| inner.with_peer(SocketAddr::new(*host, seen.port())));
        if let Some(member) = known {
            return Err(match member.outcome() {
                Outcome::Pending => Errno::ALREADY,
                _ => Errno::ISCONN,
            });
        }
        let Bound { port, .. } = self.bound(socket, &mut inner)?;
        if self.is_peeled_off(port, &hosts, seen.port()) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let stack = self.stack_for(&inner, init);
        let server = self.address(&inner, hosts, seen.port());
        drop(inner);
        let account = socket.line.sent_account();
        let Some(seat) = account.seat(self.limits.user_associations) else {
            account.refuse();
            return Err(Errno::NOBUFS);
        };
        Ok(many::begin(self, socket, seen, (Origin::Connecting { stack, port, server, start }, seat)))
    }

    /// What an association of the socket is set up with.
    fn stack_for(&self, inner: &Inner, init: InitMessage) -> Stack {
        let options = inner.settings.with_init(init).options();
        self.stack.with_options(&options).with_local_addresses(&inner.local_scope())
    }

    fn address(&self, inner: &Inner, hosts: Vec<IpAddr>, port: u16) -> Address {
        Address { hosts, port, udp_port: inner.settings.tuning.peer_udp_port(self.stack.udp_port()) }
    }
}

impl Inner {
    /// The association with the peer that has this address.
    pub(crate) fn with_peer(&self, address: SocketAddr) -> Option<Arc<Member>> {
        self.members.values().find(|member| member.has_peer(address)).cloned()
    }

    /// The association of this number; where there can be one only, that one, whatever the number.
    pub(crate) fn member(&self, id: u32) -> Option<Arc<Member>> {
        let only = matches!(self.stage, State::Connecting | State::Connected | State::Ended | State::Lost);
        if only { self.members.values().next().cloned() } else { self.members.get(&id).cloned() }
    }
}
