//! Sockets: what all requests about one share.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use carrier::page::State;
use links::interface_addresses;
use rustix::net::UCred;
use swiftwater::tokio::Listener;
use tokio::sync::watch;

use super::association::SocketAssociation;
use super::commands::Commands;
use super::ports::Scope;
use super::send_queue::SendQueue;
use super::socket_options::SocketOptions;
use super::stream_rules::StreamRules;
use crate::channel::Channel;
use crate::channel::style::Style;
use crate::system::addresses::{as_seen, unspecified};
use crate::system::socket_cookie::Cookie;
use crate::users::budget::Seat;
use crate::users::owner::Share;

/// Our port of an association, and the peer.
pub(super) type Ends = (u16, SocketAddr);

/// What a socket is made of.
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
    pub(super) rules: Arc<StreamRules>,
}

/// One socket.
pub(crate) struct Socket {
    /// In the order in which sockets were opened.
    pub(crate) number: u64,
    /// Of the program's end.
    pub(super) cookie: Cookie,
    pub(crate) v6: bool,
    pub(crate) style: Style,
    /// Whose it is.
    pub(crate) share: Arc<Share>,
    /// What it shares with its program.
    pub(crate) channel: Arc<Channel>,
    inner: Mutex<Inner>,
    ended: tokio::sync::Notify,
    /// Set once the socket is forgotten: nobody has it, and its port is free.
    gone: watch::Sender<bool>,
    /// The way to its task.
    pub(crate) commands: Commands,
    /// What is pushed on the streams of its associations.
    pub(crate) rules: Arc<StreamRules>,
    /// Of a peeled-off association: as the table knows it.
    pub(super) peeled_off: OnceLock<Vec<Ends>>,
}

/// The addresses and the port that a socket is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// As the program named them; at least one. The unspecified one stands for all.
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) port: u16,
}

impl Bound {
    pub(crate) fn first(&self) -> SocketAddr {
        SocketAddr::new(self.ips[0], self.port)
    }
}

/// What requests look at and change.
pub(crate) struct Inner {
    pub(crate) stage: State,
    /// Where it is bound, once it is; it is held in the table of ports.
    pub(crate) bound: Option<Bound>,
    /// Where the socket was bound that has its association from a peer: it holds nothing itself.
    pub(crate) inherited: Option<Bound>,
    /// Its address toward the peer.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) options: SocketOptions,
    /// Where it listens, as long as it does.
    pub(crate) listener: Weak<Listener>,
    /// Its associations, by their numbers.
    pub(crate) associations: BTreeMap<u32, Arc<SocketAssociation>>,
    /// Of a one-to-many socket: associations of which something may still come.
    pub(crate) heard: usize,
}

impl Socket {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this user may look at the socket and at what it has: its owner may, and root.
    pub(crate) fn is_of(&self, who: UCred) -> bool {
        who.uid.is_root() || self.share.owner.user == who.uid.as_raw()
    }

    /// Where it is now, to requests and to the sharers.
    pub(crate) fn set_stage(&self, inner: &mut Inner, stage: State) {
        inner.stage = stage;
        self.channel.page.set_state(stage);
        if stage.is_end() {
            self.ended.notify_waiters();
        }
    }

    /// Waits until its association has ended.
    pub(crate) async fn end(&self) {
        let ended = self.ended.notified();
        if !self.lock().stage.is_end() {
            ended.await;
        }
    }

    /// Makes a socket that nobody knows yet.
    pub(super) fn new(new: NewSocket) -> Socket {
        let NewSocket { number, cookie, v6, style, share, channel, stage, options, commands, rules } = new;
        let inner = Inner {
            stage,
            bound: None,
            inherited: None,
            local: None,
            peer: None,
            options,
            listener: Weak::new(),
            associations: BTreeMap::new(),
            heard: 0,
        };
        Socket {
            number,
            cookie,
            v6,
            style,
            share,
            channel: Arc::new(channel),
            inner: Mutex::new(inner),
            ended: tokio::sync::Notify::new(),
            gone: watch::Sender::new(false),
            commands,
            rules,
            peeled_off: OnceLock::new(),
        }
    }

    /// Notes that the socket is forgotten.
    pub(super) fn set_gone(&self) {
        self.gone.send_replace(true);
    }

    /// Waits until the socket is forgotten, and its port is free.
    pub(crate) async fn gone(&self) {
        // The sender is here.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Returns whether associations come to the socket.
    pub(crate) fn listens(&self) -> bool {
        matches!(self.lock().stage, State::Listening | State::ManyListening)
    }

    /// `getsockname`, in the form that the sharers know.
    pub(crate) fn local_address(&self) -> SocketAddr {
        let inner = self.lock();
        let local = inner.local.or_else(|| inner.bound.as_ref().map(Bound::first));
        as_seen(self.v6, local.unwrap_or_else(|| unspecified(self.v6)))
    }

    /// Adds an association to a one-to-many socket, with the place that it takes among those of its user. What the program sends
    /// on it waits in a queue.
    pub(crate) fn enter(
        &self,
        association: SocketAssociation,
        streams_out: u16,
        seat: Seat,
    ) -> Arc<SocketAssociation> {
        association.take_seat(seat);
        let entry = self.channel.page.enter(association.id, streams_out, &association.peer);
        *association.send_queue() = Some(Arc::new(SendQueue::new(entry)));
        let association = Arc::new(association);
        {
            let mut inner = self.lock();
            inner.associations.insert(association.id, Arc::clone(&association));
            inner.heard += 1;
            self.channel.page.set_associations(inner.heard);
        }
        self.show_default_stream(&association);
        association
    }

    /// Takes an association away from a one-to-many socket; returns what waits to be sent on it.
    pub(crate) fn remove(&self, association: &SocketAssociation) -> Option<Arc<SendQueue>> {
        self.lock().associations.remove(&association.id);
        let queue = association.send_queue().take()?;
        if let Some(entry) = queue.entry {
            self.channel.page.leave(entry);
        }
        queue.close();
        Some(queue)
    }

    /// Notes that nothing more comes of one of the associations of a one-to-many socket.
    pub(crate) fn note_silent(&self) {
        let mut inner = self.lock();
        inner.heard = inner.heard.saturating_sub(1);
        self.channel.page.set_associations(inner.heard);
    }

    /// What is sent without a word of its stream is checked where it is sent.
    pub(crate) fn show_default_stream(&self, member: &SocketAssociation) {
        let entry = match member.send_queue().as_ref() {
            Some(send_queue) => match send_queue.entry {
                Some(entry) => Some(entry),
                // There is no entry to check by.
                None => return,
            },
            None => None,
        };
        self.channel.page.set_default_stream(entry, member.options().sending.stream);
    }
}

impl Inner {
    /// The association with the peer that has this address.
    pub(crate) fn with_peer(&self, address: SocketAddr) -> Option<Arc<SocketAssociation>> {
        self.associations.values().find(|member| member.has_peer(address)).cloned()
    }

    /// The association of this number; where there can be one only, that one, whatever the number.
    pub(crate) fn association(&self, id: u32) -> Option<Arc<SocketAssociation>> {
        let only = matches!(self.stage, State::Connecting | State::Connected | State::Ended | State::Lost);
        if only { self.associations.values().next().cloned() } else { self.associations.get(&id).cloned() }
    }

    pub(crate) fn scope(&self, ips: Vec<IpAddr>) -> Scope {
        Scope::new(ips, self.options.v6_only)
    }

    /// Peers that connect from now on meet what is set now, at the addresses that are bound now.
    pub(crate) fn tune_listener(&self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.set_options(&self.options.for_stack());
            // No other socket has these addresses: this one holds them.
            let _ = listener.set_local_addresses(&self.local_scope());
        }
    }

    /// The addresses that associations of the socket are restricted to; none stand for all. Where it is bound to all of a
    /// family, their peers are told those that the host has now, as with the kernel.
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
        // Without the list they know the one that the handshake uses.
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
