//! All sockets of a daemon, and the resources that they share.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::status_page::State;
use rustix::io::Errno;
use swiftwater::internals;
use swiftwater::tokio::{Listener, Stack};
use tokio::sync::watch;

use super::association::SocketAssociation;
use super::association_index::AssociationIndex;
use super::associations::TakenAssociations;
use super::closed_sockets::ClosedSockets;
use super::commands::{self, CommandReceiver};
use super::ports::{Holder, Ports};
use super::relayed::Relayed;
use super::socket::{NewSocket, Socket};
use super::socket_addresses::Bound;
use super::socket_options::SocketOptions;
use super::stream_rules::{Autopusher, StreamRules};
use crate::channel::Channel;
use crate::channel::accounts::Accounts;
use crate::channel::busy_poll::BusyPolling;
use crate::channel::endpoint;
use crate::channel::ring::OutboundRing;
use crate::channel::shared_pages::SharedPages;
use crate::channel::style::Style;
use crate::system::addresses::Family;
use crate::system::socket_cookie::Cookie;
use crate::users::closer::Source;
use crate::users::owner::Owner;
use crate::users::requester::Requester;
use crate::users::resources::Resources;
use crate::users::user::AssociationPermit;

/// Only root may bind ports below this, unless the kernel says otherwise.
const UNPRIVILEGED_FROM: u16 = 1024;
/// Maximum number of sockets that keep another one from a port and that the registry checks for being closed.
const HOLDERS_LOOKED_AT_MAX: usize = 16;

/// All sockets of a daemon.
pub(crate) struct Registry {
    stack: Stack,
    /// Whether the daemon exits when idle.
    is_on_demand: bool,
    table: RefCell<Table>,
    /// Number of sockets in the table.
    count: watch::Sender<usize>,
    ports: RefCell<Ports>,
    closed: ClosedSockets,
    resources: Resources,
    /// Whether the daemon is ending. Programs continue to read the pages of its sockets.
    is_shutting_down: Cell<bool>,
    next_association: Cell<AssocId>,
    busy_polling: Rc<BusyPolling>,
    /// Rules for the modules on the streams of associations.
    autopush: Rc<Autopusher>,
    relayed: Rc<Relayed<Socket>>,
    association_index: Rc<AssociationIndex>,
}

#[derive(Default)]
struct Table {
    by_cookie: HashMap<Cookie, Rc<Socket>>,
    by_number: BTreeMap<u64, Rc<Socket>>,
    next_number: u64,
}

impl Table {
    fn remove(&mut self, socket: &Socket) {
        self.by_cookie.remove(&socket.cookie());
        self.by_number.remove(&socket.number());
    }
}

/// A newly opened socket.
pub(crate) struct Opened {
    pub(crate) socket: Rc<Socket>,
    /// The program's end of its channel.
    pub(crate) program_end: OwnedFd,
    /// The receiver for the socket's task.
    pub(crate) commands: CommandReceiver,
}

impl Registry {
    pub(crate) fn new(stack: Stack, is_on_demand: bool, resources: Resources) -> io::Result<Self> {
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let first_port = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let first_port = first_port.ok().and_then(|text| text.trim().parse().ok());
        let ports = Ports::new(u16::from_ne_bytes(random), first_port.unwrap_or(UNPRIVILEGED_FROM));
        let closed = ClosedSockets::new(stack.clone());
        let relayed = Rc::new(Relayed::new(stack.udp_port()));
        Ok(Registry {
            stack,
            is_on_demand,
            table: RefCell::default(),
            count: watch::Sender::default(),
            ports: RefCell::new(ports),
            closed,
            autopush: Autopusher::new(StreamRules::default(), resources.tap_files()),
            resources,
            is_shutting_down: Cell::new(false),
            next_association: Cell::new(AssocId::FIRST),
            busy_polling: Rc::default(),
            relayed,
            association_index: Rc::default(),
        })
    }

    /// Sets the rules for the streams of associations.
    pub(crate) fn with_rules(self, rules: StreamRules) -> Self {
        Registry { autopush: Autopusher::new(rules, self.resources.tap_files()), ..self }
    }

    #[cfg(test)]
    pub(crate) fn with_unprivileged_from(self, port: u16) -> Self {
        Registry { ports: RefCell::new(Ports::new(0, port)), ..self }
    }

    /// Returns the number of sockets that have a port.
    #[cfg(test)]
    pub(crate) fn holders(&self, port: u16) -> usize {
        self.ports.borrow().count(port)
    }

    fn table(&self) -> RefMut<'_, Table> {
        self.table.borrow_mut()
    }

    /// Returns the stack that carries all associations.
    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns whether the daemon exits when idle.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.is_on_demand
    }

    /// Returns the resources that all users share.
    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    pub(crate) fn busy_polling(&self) -> &Rc<BusyPolling> {
        &self.busy_polling
    }

    /// Returns a number for a new association.
    pub(crate) fn next_association(&self) -> AssocId {
        let id = self.next_association.get();
        self.next_association.set(id.next());
        id
    }

    /// Opens a socket. The caller must start its task.
    pub(crate) fn open(
        &self,
        owner: Owner,
        family: Family,
        style: Style,
        state: State,
        mut options: SocketOptions,
    ) -> Result<Opened, Errno> {
        let resources = &self.resources;
        let share = Arc::new(resources.take_socket(owner)?);
        let user = resources.users().user(owner.user);
        options.share_with_user(&user);
        let message_bytes_max = user.sent().message_bytes_max();
        let accounts = Accounts::of(&user);
        let closer = resources.closer(owner.user, Source::Pairs);
        let pins = resources.pins_of_pages();
        let new_pages = || SharedPages::new(family, style, state, message_bytes_max, user.pages(), pins);
        let pages = match new_pages() {
            Err(Errno::NOBUFS) if self.closed.make_room(&user, SharedPages::bytes_of(style), None) => {
                new_pages()
            }
            outcome => outcome,
        }?;
        let ring = OutboundRing::new(pages.memory(), Arc::clone(resources.rings()), owner.user);
        let (endpoint, program_end) = endpoint::pair(&self.busy_polling, closer, accounts, ring)?;
        let cookie = Cookie::of(&program_end)?;
        let (commands, receiver) = commands::channel_for(style);
        let mut table = self.table();
        let number = table.next_number;
        table.next_number += 1;
        let socket = Rc::new(Socket::new(NewSocket {
            number,
            cookie,
            family,
            style,
            share,
            user,
            channel: Channel::new(endpoint, pages),
            state,
            options,
            commands,
            autopush: Rc::clone(&self.autopush),
            relayed: Rc::clone(&self.relayed),
            association_index: Rc::clone(&self.association_index),
        }));
        table.by_cookie.insert(cookie, Rc::clone(&socket));
        table.by_number.insert(number, Rc::clone(&socket));
        self.count.send_replace(table.by_cookie.len());
        Ok(Opened { socket, program_end, commands: receiver })
    }

    /// Counts another association of a one-to-many socket, and charges its memory. Returns `None` if its user has as many as it
    /// may, or no memory left for one.
    pub(crate) fn admit_association(&self, socket: &Socket, paths: usize) -> Option<AssociationPermit> {
        let permit = self.try_admit_association(socket, paths);
        if permit.is_none() {
            socket.user().count_refused_association();
        }
        permit
    }

    fn try_admit_association(&self, socket: &Socket, paths: usize) -> Option<AssociationPermit> {
        let (user, most) = (socket.user(), self.resources.limits().user_associations);
        let bytes = bytes_of(socket, paths);
        let admit = || user.admit_association(most, bytes);
        let has_room = || self.closed.make_room(user, bytes, Some(most));
        admit().or_else(|| has_room().then(admit).flatten())
    }

    /// Charges this many paths of an association to the user of its socket, or of the listener that has accepted it. Returns
    /// false if there is no memory left for them.
    pub(crate) fn charge_paths(&self, socket: &Socket, assoc: &SocketAssociation, paths: usize) -> bool {
        let (user, bytes) = (socket.user(), bytes_of(socket, paths));
        match assoc.charge(user, bytes) {
            Ok(()) => true,
            Err(missing) => self.closed.make_room(user, missing, None) && assoc.charge(user, bytes).is_ok(),
        }
    }

    /// Returns the socket whose pair has this cookie at the program's end.
    pub(crate) fn find(&self, cookie: Cookie) -> Option<Rc<Socket>> {
        self.table().by_cookie.get(&cookie).cloned()
    }

    /// Returns the association with this number, and its socket. No number is searched for.
    pub(crate) fn association(&self, id: AssocId) -> Option<(Rc<Socket>, Rc<SocketAssociation>)> {
        let number = self.association_index.socket_of(id)?;
        let socket = Rc::clone(self.table().by_number.get(&number)?);
        let assoc = socket.associations().get(id)?;
        Some((socket, assoc))
    }

    /// Returns the number of associations in the index of all sockets.
    #[cfg(test)]
    pub(crate) fn indexed_associations(&self) -> usize {
        self.association_index.count()
    }

    /// Keeps a socket until its last descriptor is closed, because the program shuts it down. `program_end` is one of them.
    pub(crate) fn watch_close(&self, socket: &Socket, program_end: BorrowedFd<'_>) -> Result<(), Errno> {
        socket
            .channel()
            .watch_close(|| self.resources.close_watches().watch(program_end, socket.owner().user))
    }

    /// Returns a socket that keeps another one from these addresses of a port although its program has closed it. If many
    /// keep it from them, only some are checked.
    pub(crate) fn closed_holder(&self, socket: &Socket, ips: &[IpAddr], port: u16) -> Option<Rc<Socket>> {
        let (scope, sharing) = (socket.scope(ips), socket.sharing());
        let ports = self.ports.borrow();
        let newcomer = Holder { socket: socket.number(), user: socket.owner().user };
        let holders = ports.excluding(newcomer, scope, port, sharing, HOLDERS_LOOKED_AT_MAX);
        let table = self.table();
        let mut holders = holders.iter().filter_map(|number| table.by_number.get(number));
        holders.find(|socket| socket.channel().is_closed()).cloned()
    }

    /// Returns whether a user may bind this port: only root may bind the lowest ones.
    pub(crate) fn may_bind(&self, port: u16, requester: Requester) -> bool {
        requester.may_bind_any_port() || !self.ports.borrow().is_privileged(port)
    }

    /// Binds a socket to addresses, or to a free port at them if the port is 0.
    pub(crate) fn bind(&self, socket: &Socket, wanted: impl Into<Bound>) -> Result<(), Errno> {
        let wanted = wanted.into();
        let holder = Holder { socket: socket.number(), user: socket.owner().user };
        let scope = socket.scope(wanted.ips());
        let port = self.ports.borrow_mut().bind(holder, scope, wanted.port(), socket.sharing())?;
        socket.on_bound(wanted.at_port(port));
        Ok(())
    }

    /// Changes the addresses of a bound socket. The port stays.
    pub(crate) fn rebind(&self, socket: &Socket, bound: Bound, added: &[IpAddr]) -> Result<(), Errno> {
        let (scope, added) = (socket.scope(bound.ips()), (!added.is_empty()).then(|| socket.scope(added)));
        self.ports.borrow_mut().rebind(socket.number(), scope, added, bound.port())?;
        socket.on_bound(bound);
        Ok(())
    }

    /// Records that a new socket has an association from another socket, an accepted or a peeled-off one. The new socket holds
    /// the port of the other one, too.
    pub(crate) fn on_adopted(
        &self,
        socket: &Rc<Socket>,
        from: &Socket,
        assoc: &Rc<SocketAssociation>,
        local: Option<SocketAddr>,
    ) {
        let inherited = from.addresses().bound();
        if let Some(bound) = &inherited {
            self.ports.borrow_mut().inherit(socket.number(), from.number(), bound.port());
        }
        socket.on_adopted(assoc, inherited.map(|bound| (from.number(), bound)), local);
    }

    /// Returns whether a socket shares its port with listeners of its user.
    pub(crate) fn shares_port(&self, socket: &Socket) -> bool {
        let bound = socket.addresses().bound();
        bound.is_some_and(|bound| self.ports.borrow().is_shared(socket.number(), bound.port()))
    }

    /// Records that peers can set up associations with a socket.
    pub(crate) fn on_listening(&self, socket: &Socket, listener: &Arc<Listener>) {
        self.set_listens(socket, true);
        socket.on_listening(listener);
    }

    /// Records that peers can set up no more associations with a socket.
    pub(crate) fn on_unlistened(&self, socket: &Socket) {
        self.set_listens(socket, false);
        socket.on_unlistened();
    }

    fn set_listens(&self, socket: &Socket, listens: bool) {
        if let Some(bound) = socket.addresses().bound() {
            self.ports.borrow_mut().set_listens(socket.number(), bound.port(), listens);
        }
    }

    /// Releases the port of a closed socket for the next bind; sockets with associations of it keep the port. Messages that it
    /// has sent are still delivered.
    pub(crate) fn release_port(&self, socket: &Socket) {
        if !socket.associations().is_empty() {
            self.closed.describe(socket);
        }
        if let Some(bound) = socket.addresses().bound() {
            self.ports.borrow_mut().release(socket.number(), bound.port());
            socket.on_port_released();
        }
        if let Some((from, port)) = socket.addresses().on_inheritance_released() {
            self.ports.borrow_mut().release_inherited(socket.number(), from, port);
        }
    }

    /// Returns up to `count` sockets in order, from this number on.
    pub(crate) fn numbered_from(&self, number: u64, count: usize) -> Vec<Rc<Socket>> {
        self.table().by_number.range(number..).take(count).map(|(_, socket)| Rc::clone(socket)).collect()
    }

    /// Returns the sockets that were closed while they had associations.
    pub(crate) fn closed(&self) -> &ClosedSockets {
        &self.closed
    }

    /// Returns all sockets, in any order.
    pub(crate) fn all(&self) -> Vec<Rc<Socket>> {
        self.table().by_cookie.values().cloned().collect()
    }

    /// Leaves the pages of sockets that are forgotten from now on unchanged: a program that learns of the daemon's end
    /// would take an emptied page for that of a fresh socket.
    pub(crate) fn keep_pages(&self) {
        self.is_shutting_down.set(true);
    }

    /// Forgets a socket that its program has closed.
    pub(crate) fn forget(&self, socket: &Socket) {
        let count = {
            let mut table = self.table();
            table.remove(socket);
            table.by_cookie.len()
        };
        self.count.send_replace(count);
        let channel = socket.channel();
        channel.on_closed();
        if !self.is_shutting_down.get() {
            // The share is released only after the page is emptied: a program that delays this cannot open more
            // sockets.
            let (pages, share) = (channel.shared_pages().close(), Arc::clone(socket.share()));
            channel.daemon_end().closer().worker().run(move || {
                pages.empty();
                drop(share);
            });
        }
        self.take_associations(socket).for_each(|assoc| self.leave(socket, &assoc));
        self.release_port(socket);
        socket.on_forgotten();
    }

    /// Leaves an association of a socket that its program has closed to the stack, which delivers what was sent and shuts the
    /// association down when its last handle is dropped. It counts for its user until it has ended. It exists already, and is not
    /// refused: if the user has too many by now, the oldest one that was left so is aborted.
    pub(crate) fn leave(&self, socket: &Socket, assoc: &SocketAssociation) {
        if assoc.stack_association().is_none() || assoc.has_ended() {
            return;
        }
        let anyway = || socket.user().admit_association_anyway(bytes_of(socket, assoc.paths()));
        self.closed.add(socket, assoc, assoc.take_permit().unwrap_or_else(anyway));
        self.closed.keep_to(socket.user(), self.resources.limits().user_associations);
    }

    /// Takes the associations of a socket that its program has closed. The caller leaves each ([`Registry::leave`]).
    pub(crate) fn take_associations(&self, socket: &Socket) -> TakenAssociations {
        let associations = socket.on_closed();
        if !associations.is_empty() {
            self.closed.describe(socket);
        }
        associations
    }

    /// Waits until no socket and no association is left.
    pub(crate) async fn idle(&self) {
        let mut count = self.count.subscribe();
        loop {
            // The registry has the sender, so the wait does not fail.
            let _ = count.wait_for(|count| *count == 0).await;
            internals::no_association(&self.stack).await;
            if *count.borrow() == 0 {
                return;
            }
        }
    }

    /// Waits until a socket is open.
    pub(crate) async fn opened(&self) {
        let _ = self.count.subscribe().wait_for(|count| *count > 0).await;
    }
}

/// Returns the memory of an association of a socket, or of a listener, that has this many paths.
fn bytes_of(socket: &Socket, paths: usize) -> usize {
    AssociationPermit::bytes_of(paths, socket.addresses().count())
}
