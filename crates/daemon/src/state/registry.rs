//! All sockets of a daemon, and the resources that they share.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use carrier::status_page::State;
use rustix::io::Errno;
use rustix::net::UCred;
use shared_memory::Pins;
use swiftwater::Stack;

use super::association::{FIRST_ID, SocketAssociation};
use super::commands::{self, CommandReceiver};
use super::ports::Ports;
use super::relayed::{Ends, Relayed, ends};
use super::socket::{NewSocket, Socket};
use super::socket_options::SocketOptions;
use super::stream_rules::StreamRules;
use crate::channel::Channel;
use crate::channel::accounts::Accounts;
use crate::channel::busy_poll::BusyPolling;
use crate::channel::endpoint;
use crate::channel::ring::OutboundRing;
use crate::channel::shared_pages::SharedPages;
use crate::channel::style::Style;
use crate::system::socket_cookie::Cookie;
use crate::users::budget::{ASSOCIATION_BYTES, AssociationSeat, Budget};
use crate::users::close_watches::CloseWatches;
use crate::users::closer::{Closers, Source};
use crate::users::descriptor_numbers::Numbers;
use crate::users::limits::Limits;
use crate::users::owner::{Owner, Rings, Shares};
use crate::users::seats::{Places, Seat};

/// Maximum number of requests that wait for a peer, in all and of one user.
const WAITING_MAX: usize = 4096;
const WAITING_OF_USER_MAX: usize = 1024;
/// Maximum number of open connections that have not sent a request yet.
const SILENT_MAX: usize = 1024;
/// Maximum number of sockets on a shared port that the registry checks for being closed.
const HOLDERS_LOOKED_AT_MAX: usize = 16;
/// If descriptors are scarce, waiting requests and silent connections are each limited to the number of descriptors
/// divided by this; so are answers with descriptors that were not received, however many descriptors there are.
const PART_OF_CONNECTIONS: usize = 16;

/// All sockets of a daemon.
pub(crate) struct Registry {
    pub(crate) stack: Stack,
    /// Whether the daemon exits when idle.
    pub(crate) on_demand: bool,
    /// Only root may bind ports below this.
    pub(crate) unprivileged_from: u16,
    table: RefCell<Table>,
    ports: RefCell<Ports>,
    shares: Shares,
    /// Budget for messages that programs have sent and no peer has acknowledged.
    pub(crate) sent: Arc<Budget>,
    /// Budget for long messages that programs have not read.
    pub(crate) unread: Arc<Budget>,
    /// Budget for received data that programs have not read.
    pub(crate) received: Arc<Budget>,
    /// Budget for the pages of sockets, and for their associations.
    pub(crate) pages: Arc<Budget>,
    pub(crate) limits: Limits,
    /// Whether the daemon is ending. Programs continue to read the pages of its sockets.
    ends: Cell<bool>,
    next_association: Cell<u32>,
    /// Places of requests that wait for an answer.
    pub(crate) waiting: Arc<Places>,
    /// Places of connections that have not sent a request yet.
    pub(crate) silent: Arc<Places>,
    /// Places of answers with descriptors that their callers have not received.
    pub(crate) unreceived: Arc<Places>,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) closers: Closers,
    pub(crate) busy_polling: Arc<BusyPolling>,
    /// Watches of sockets that programs have shut down.
    pub(crate) close_watches: Arc<CloseWatches>,
    /// Rules for the modules on the streams of associations.
    rules: Rc<StreamRules>,
    relayed: Rc<Relayed<Socket>>,
    /// Pins of the sockets' pages.
    pins_of_pages: Arc<Pins>,
    rings: Arc<Rings>,
}

#[derive(Default)]
struct Table {
    by_cookie: HashMap<Cookie, Rc<Socket>>,
    by_number: BTreeMap<u64, Rc<Socket>>,
    /// Number of sockets with a peeled-off association, by its ports and the peer's address.
    peeled_off: HashMap<Ends, usize>,
    next_number: u64,
}

impl Table {
    fn remove(&mut self, socket: &Socket) {
        self.by_cookie.remove(&socket.cookie);
        self.by_number.remove(&socket.number);
        for ends in socket.peeled_off.get().into_iter().flatten() {
            if let Entry::Occupied(mut count) = self.peeled_off.entry(*ends) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
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
    pub(crate) fn new(
        stack: Stack,
        on_demand: bool,
        limits: &Limits,
        numbers: Arc<Numbers>,
    ) -> io::Result<Self> {
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let first_port = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let few = (numbers.max() / PART_OF_CONNECTIONS).max(1);
        let waiting = WAITING_MAX.min(few);
        let shares = Shares::new(Arc::clone(&numbers));
        let (pins_of_pages, rings) = shares.pins();
        Ok(Registry {
            stack,
            on_demand,
            unprivileged_from: first_port.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024),
            table: RefCell::default(),
            ports: RefCell::new(Ports::new(u16::from_ne_bytes(random))),
            shares,
            sent: Budget::new(limits.sent()),
            unread: Budget::new(limits.unread()),
            received: Budget::new(limits.received()),
            pages: Budget::new(limits.pages()),
            limits: *limits,
            ends: Cell::new(false),
            next_association: Cell::new(FIRST_ID),
            waiting: Places::new(waiting, WAITING_OF_USER_MAX.min(waiting)),
            silent: Places::new(SILENT_MAX.min(few), SILENT_MAX),
            unreceived: Places::new(few, few),
            closers: Closers::new(Arc::clone(&numbers)),
            numbers,
            busy_polling: Arc::default(),
            close_watches: CloseWatches::new(),
            rules: Rc::default(),
            relayed: Rc::default(),
            pins_of_pages,
            rings,
        })
    }

    /// Sets the rules for the streams of associations.
    pub(crate) fn with_rules(self, rules: StreamRules) -> Self {
        Registry { rules: Rc::new(rules), ..self }
    }

    fn table(&self) -> RefMut<'_, Table> {
        self.table.borrow_mut()
    }

    pub(crate) fn ports(&self) -> RefMut<'_, Ports> {
        self.ports.borrow_mut()
    }

    /// Returns a number for a new association. Programs see it as a signed integer.
    pub(crate) fn next_association(&self) -> u32 {
        let id = self.next_association.get();
        self.next_association.set(if id >= i32::MAX as u32 { FIRST_ID } else { id + 1 });
        id
    }

    /// Opens a socket. The caller must start its task.
    pub(crate) fn open(
        &self,
        owner: Owner,
        v6: bool,
        style: Style,
        stage: State,
        mut options: SocketOptions,
    ) -> Result<Opened, Errno> {
        let share = Arc::new(self.shares.take(owner)?);
        let (sent, received) = (self.sent.account(owner.user), self.received.account(owner.user));
        options.share_receive_memory(&received);
        options.share_send_memory(&sent);
        options.share_timeouts(&sent);
        let message_bytes_max = sent.message_bytes_max();
        let accounts = Accounts::new(sent, self.unread.account(owner.user), received);
        let closer = self.closers.of(owner.user, Source::Carriers);
        let account = self.pages.account(owner.user);
        let pages = SharedPages::new(v6, style, stage, message_bytes_max, &account, &self.pins_of_pages)?;
        let ring = OutboundRing::new(pages.memory(), Arc::clone(&self.rings), owner.user);
        let (endpoint, program_end) = endpoint::pair(&self.busy_polling, closer, accounts, ring)?;
        let cookie = Cookie::of(&program_end)?;
        let (commands, receiver) = commands::channel_for(style);
        let mut table = self.table();
        let number = table.next_number;
        table.next_number += 1;
        let socket = Rc::new(Socket::new(NewSocket {
            number,
            cookie,
            v6,
            style,
            share,
            channel: Channel::new(endpoint, pages),
            stage,
            options,
            commands,
            rules: Rc::clone(&self.rules),
            relayed: Rc::clone(&self.relayed),
        }));
        table.by_cookie.insert(cookie, Rc::clone(&socket));
        table.by_number.insert(number, Rc::clone(&socket));
        Ok(Opened { socket, program_end, commands: receiver })
    }

    /// Counts another association of a one-to-many socket, and charges its memory. Returns `None` if its user has as many
    /// as it may, or no memory left for one.
    pub(crate) fn seat(&self, socket: &Socket) -> Option<AssociationSeat> {
        let account = socket.channel.endpoint.accounts().sent();
        let memory = self.pages.account(account.user()).take(ASSOCIATION_BYTES);
        let seat = memory.and_then(|memory| account.seat(self.limits.user_associations, memory));
        if seat.is_none() {
            account.refuse();
        }
        seat
    }

    /// Returns the socket whose carrier has this cookie at the program's end.
    pub(crate) fn find(&self, cookie: Cookie) -> Option<Rc<Socket>> {
        self.table().by_cookie.get(&cookie).cloned()
    }

    /// Records that a socket has an association that was peeled off, from this port.
    pub(crate) fn note_peeled_off(&self, socket: &Socket, port: u16, assoc: &SocketAssociation) {
        let known = assoc.association().and_then(|association| association.peer_address());
        let others = known.into_iter().flat_map(|peer| peer.hosts);
        let mut all: Vec<Ends> = vec![ends(port, assoc.peer.ip(), assoc.peer.port())];
        for host in others {
            let ends = ends(port, host, assoc.peer.port());
            if !all.contains(&ends) {
                all.push(ends);
            }
        }
        let mut table = self.table();
        for ends in socket.peeled_off.get_or_init(|| all) {
            *table.peeled_off.entry(*ends).or_default() += 1;
        }
    }

    /// Returns whether an association from this port with one of these hosts was peeled off.
    pub(crate) fn is_peeled_off(&self, port: u16, hosts: &[IpAddr], peer_port: u16) -> bool {
        let table = self.table();
        hosts.iter().any(|host| table.peeled_off.contains_key(&ends(port, *host, peer_port)))
    }

    /// Keeps a socket until its last descriptor is closed, because the program shuts it down. `program_end` is one of them.
    pub(crate) fn watch_close(&self, socket: &Socket, program_end: BorrowedFd<'_>) -> Result<(), Errno> {
        socket.channel.endpoint.watch_close(|| self.close_watches.watch(program_end, socket.share.owner.user))
    }

    /// Returns a socket that has this port although its program has closed it. Of many sockets on a shared port, only
    /// some are checked.
    pub(crate) fn closed_holder(&self, port: u16) -> Option<Rc<Socket>> {
        let holders: Vec<u64> = self.ports().holders(port).take(HOLDERS_LOOKED_AT_MAX).collect();
        let table = self.table();
        let mut holders = holders.iter().filter_map(|number| table.by_number.get(number));
        holders.find(|socket| socket.channel.endpoint.is_closed()).cloned()
    }

    /// Releases the port of a closed socket for the next bind. Messages that it has sent are still delivered.
    pub(crate) fn release_port(&self, socket: &Socket) {
        let bound = socket.inner().bound.take();
        if let Some(bound) = bound {
            self.ports().release(socket.number, bound.port);
        }
    }

    /// Returns up to `count` sockets in order, from this number on.
    pub(crate) fn numbered_from(&self, number: u64, count: usize) -> Vec<Rc<Socket>> {
        self.table().by_number.range(number..).take(count).map(|(_, socket)| Rc::clone(socket)).collect()
    }

    /// Returns all sockets, in any order.
    pub(crate) fn all(&self) -> Vec<Rc<Socket>> {
        self.table().by_cookie.values().cloned().collect()
    }

    /// Leaves the pages of sockets that are forgotten from now on unchanged: a program that learns of the daemon's end
    /// would take an emptied page for that of a fresh socket.
    pub(crate) fn keep_pages(&self) {
        self.ends.set(true);
    }

    /// Forgets a socket that its program has closed.
    pub(crate) fn forget(&self, socket: &Socket) {
        self.table().remove(socket);
        let channel = &socket.channel;
        channel.credit.close();
        if !self.ends.get() {
            // The share is released only after the page is emptied: a program that delays this cannot open more
            // sockets.
            let (pages, share) = (channel.pages.left(), Arc::clone(&socket.share));
            channel.carrier().closer().worker().run(move || {
                pages.empty();
                drop(share);
            });
        }
        let associations = std::mem::take(&mut socket.inner().associations);
        drop(associations);
        self.release_port(socket);
        socket.set_gone();
    }

    /// Returns whether no socket and no association is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.table().by_cookie.is_empty() && self.stack.association_count() == 0
    }
}

/// Takes a seat for one more request of this user that waits for its answer.
pub(crate) fn take_waiting_seat(registry: &Registry, credentials: UCred) -> Result<Seat, Errno> {
    registry.waiting.take(credentials.uid.as_raw()).ok_or(Errno::NOBUFS)
}
