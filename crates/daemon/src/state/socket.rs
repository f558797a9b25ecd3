//! Sockets: the state that all requests on one share.

use std::cell::{OnceCell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use carrier::record::{Header, Kind};
use carrier::status_page::State;
use links::interface_addresses;
use rustix::net::UCred;
use swiftwater::tokio::Listener;
use tokio::sync::watch;

use super::association::SocketAssociation;
use super::commands::Commands;
use super::ports::Scope;
use super::relayed::{Ends, Relayed};
use super::send_queue::SendQueue;
use super::socket_options::SocketOptions;
use super::stream_rules::StreamRules;
use crate::channel::Channel;
use crate::channel::style::Style;
use crate::system::addresses::{as_seen, unspecified};
use crate::system::socket_cookie::Cookie;
use crate::users::budget::AssociationSeat;
use crate::users::owner::Share;
use crate::users::round_share::Turn;

/// The parts of a new socket.
pub(super) struct NewSocket {
    pub(super) number: u64,
    pub(super) cookie: Cookie,
    pub(super) v6: bool,
    pub(super) style: Style,
    pub(super) share: Arc<Share>,
    pub(super) channel: Channel,
    pub(super) stage: State,
    pub(super) options: SocketOptions,
    pub(super) commands: Commands,
    pub(super) rules: Rc<StreamRules>,
    pub(super) relayed: Rc<Relayed<Socket>>,
}

/// One socket.
pub(crate) struct Socket {
    /// Increases in the order in which sockets are opened.
    pub(crate) number: u64,
    /// The cookie of the program's end of the carrier.
    pub(super) cookie: Cookie,
    pub(crate) v6: bool,
    pub(crate) style: Style,
    /// The owner of the socket, and its count among the sockets of this user.
    pub(crate) share: Arc<Share>,
    /// The channel that the socket shares with its program.
    pub(crate) channel: Rc<Channel>,
    inner: RefCell<Inner>,
    ended: tokio::sync::Notify,
    /// Set when the socket is forgotten: its program has closed it, and its port is free.
    gone: watch::Sender<bool>,
    /// The sender of commands to the socket's task.
    pub(crate) commands: Commands,
    /// Rules for the modules on the streams of the socket's associations.
    pub(crate) rules: Rc<StreamRules>,
    /// The associations of all sockets that are being relayed.
    pub(crate) relayed: Rc<Relayed<Socket>>,
    /// The entries of a peeled-off association in the registry's table.
    pub(super) peeled_off: OnceCell<Vec<Ends>>,
}

/// The addresses and the port of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The addresses that the program has named, at least one. The unspecified address stands for all.
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) port: u16,
}

impl Bound {
    pub(crate) fn first(&self) -> SocketAddr {
        SocketAddr::new(self.ips[0], self.port)
    }
}

/// The part of a socket that requests read and change.
pub(crate) struct Inner {
    pub(crate) stage: State,
    /// The bound addresses, registered in the table of ports; `None` before.
    pub(crate) bound: Option<Bound>,
    /// The bound addresses of the listener or one-to-many socket from which this socket has its association; not
    /// registered.
    pub(crate) inherited: Option<Bound>,
    /// The local address toward the peer.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) options: SocketOptions,
    /// The listener, while the socket listens.
    pub(crate) listener: Weak<Listener>,
    /// The socket's associations, by number.
    pub(crate) associations: BTreeMap<u32, Rc<SocketAssociation>>,
    /// The smallest of their fragmentation points, while fragmentation is disabled. Too small after the association has
    /// ended, until the option is set again.
    pub(crate) message_limit: Option<usize>,
    /// For a one-to-many socket: the number of associations from which something may still be received.
    pub(crate) heard: usize,
}

impl Socket {
    pub(crate) fn inner(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }

    /// Returns the turns of one task that moves records of this socket.
    pub(crate) fn turn(&self) -> Turn {
        Turn::new(&self.channel.endpoint.accounts().sent().round_share)
    }

    /// Returns whether this user may see the socket and its associations: only its owner and root may.
    pub(crate) fn is_of(&self, credentials: UCred) -> bool {
        credentials.uid.is_root() || self.share.owner.user == credentials.uid.as_raw()
    }

    /// Changes the state of the socket, for requests and for the sharers.
    pub(crate) fn set_state(&self, inner: &mut Inner, stage: State) {
        inner.stage = stage;
        self.channel.pages.set_state(stage);
        if stage.is_end() {
            self.ended.notify_waiters();
        }
    }

    /// Waits until the socket's association has ended.
    pub(crate) async fn end(&self) {
        let ended = self.ended.notified();
        if !self.inner().stage.is_end() {
            ended.await;
        }
    }

    /// Returns a socket that is not registered yet.
    pub(super) fn new(new: NewSocket) -> Socket {
        let NewSocket { number, cookie, v6, style, share, channel, stage, options, commands, rules, relayed } =
            new;
        let inner = Inner {
            stage,
            bound: None,
            inherited: None,
            local: None,
            peer: None,
            options,
            listener: Weak::new(),
            associations: BTreeMap::new(),
            message_limit: None,
            heard: 0,
        };
        Socket {
            number,
            cookie,
            v6,
            style,
            share,
            channel: Rc::new(channel),
            inner: RefCell::new(inner),
            ended: tokio::sync::Notify::new(),
            gone: watch::Sender::new(false),
            commands,
            rules,
            relayed,
            peeled_off: OnceCell::new(),
        }
    }

    /// Records that the socket is forgotten.
    pub(super) fn set_gone(&self) {
        self.gone.send_replace(true);
    }

    /// Waits until the socket is forgotten, and its port is free.
    pub(crate) async fn gone(&self) {
        // The sender lives as long as the socket, so this cannot fail.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Returns whether the socket listens for associations.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.inner().stage, State::Listening | State::OneToManyListening)
    }

    /// Returns the address for `getsockname`, in the form of the socket's family.
    pub(crate) fn local_address(&self) -> SocketAddr {
        let inner = self.inner();
        let local = inner.local.or_else(|| inner.bound.as_ref().map(Bound::first));
        as_seen(self.v6, local.unwrap_or_else(|| unspecified(self.v6)))
    }

    /// Adds an association to a one-to-many socket, with its seat among those of its user, and creates its send queue.
    pub(crate) fn enter(
        &self,
        association: SocketAssociation,
        streams_out: u16,
        seat: AssociationSeat,
    ) -> Rc<SocketAssociation> {
        association.take_seat(seat);
        let entry = self.channel.pages.enter(association.id, streams_out, &association.peer);
        *association.send_queue() = Some(Rc::new(SendQueue::new(entry)));
        let association = Rc::new(association);
        {
            let mut inner = self.inner();
            inner.associations.insert(association.id, Rc::clone(&association));
            inner.heard += 1;
            self.channel.pages.set_associations(inner.heard);
        }
        self.show_defaults(&association);
        association
    }

    /// Removes an association from a one-to-many socket; returns its closed send queue.
    pub(crate) fn remove(&self, association: &SocketAssociation) -> Option<Rc<SendQueue>> {
        self.inner().associations.remove(&association.id);
        let queue = association.send_queue().take()?;
        if let Some(entry) = queue.entry {
            self.channel.pages.leave(entry);
        }
        queue.close();
        Some(queue)
    }

    /// Records that nothing more will be received from one of the associations of a one-to-many socket.
    pub(crate) fn note_silent(&self) {
        let mut inner = self.inner();
        inner.heard = inner.heard.saturating_sub(1);
        self.channel.pages.set_associations(inner.heard);
    }

    /// Shows the default attributes of messages in the page: the shim completes a message when it is sent, so that later
    /// changes do not concern it. Where a socket has many associations, only the stream is shown, which the shim checks.
    pub(crate) fn show_defaults(&self, assoc: &SocketAssociation) {
        let (pages, sending) = (&self.channel.pages, assoc.options().sending);
        match assoc.send_queue().as_ref() {
            // Without an entry in the page, the shim checks nothing.
            Some(send_queue) => send_queue
                .entry
                .into_iter()
                .for_each(|entry| pages.set_entry_default_stream(entry, sending.stream)),
            None => pages.set_defaults(&sending.complete(Header::new(Kind::Data))),
        }
    }
}

impl Inner {
    /// Returns the association with the peer that has this address.
    pub(crate) fn with_peer(&self, address: SocketAddr) -> Option<Rc<SocketAssociation>> {
        let all = || self.associations.values();
        let set_up = all().find(|assoc| assoc.is_set_up_with(address));
        set_up.or_else(|| all().find(|assoc| assoc.has_confirmed(address))).cloned()
    }

    /// Returns the association with this number, unless it has ended. If the socket can have only one, the number is ignored.
    pub(crate) fn association(&self, id: u32) -> Option<Rc<SocketAssociation>> {
        match self.stage {
            State::Connecting | State::Connected => self.associations.values().next().cloned(),
            State::Ended | State::Lost => None,
            _ => self.associations.get(&id).cloned(),
        }
    }

    pub(crate) fn scope(&self, ips: Vec<IpAddr>) -> Scope {
        Scope::new(ips, self.options.v6_only)
    }

    /// Applies the current options and addresses of the socket to associations that peers set up from now on.
    pub(crate) fn tune_listener(&self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.set_options(&self.options.for_stack());
            // The call cannot fail: this socket holds these addresses, so no other listener has them.
            let _ = listener.set_local_addresses(&self.local_scope());
        }
    }

    /// Returns the addresses that associations of the socket are restricted to; none for all. If the socket is bound to
    /// all addresses of one family, returns the current addresses of the host in that family, as the kernel does.
    pub(crate) fn local_scope(&self) -> Vec<IpAddr> {
        let Some(bound) = &self.bound else { return Vec::new() };
        let mut ips = bound.ips.clone();
        let all_ipv6 = ips.iter().any(|ip| ip.is_ipv6() && ip.is_unspecified());
        if all_ipv6 && !self.options.v6_only {
            ips.push(Ipv4Addr::UNSPECIFIED.into());
        }
        let of_all = |ip: &IpAddr| {
            ips.iter().any(|all| all.is_unspecified() && all.is_ipv4() == ip.to_canonical().is_ipv4())
        };
        // Without this list, the associations use the address of the handshake.
        let known = interface_addresses().unwrap_or_default();
        let named: Vec<IpAddr> = known.into_iter().filter(of_all).collect();
        ips.extend(named);
        ips
    }

    pub(crate) fn local_addresses(&self) -> Vec<SocketAddr> {
        let bound = self.bound.iter().flat_map(|b| b.ips.iter().map(|ip| SocketAddr::new(*ip, b.port)));
        let bound: Vec<SocketAddr> = bound.collect();
        if bound.is_empty() { self.local.into_iter().collect() } else { bound }
    }
}
