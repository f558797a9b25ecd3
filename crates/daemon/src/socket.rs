//! Sockets: what all requests about one share.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use carrier::bundle;
use carrier::page::State;
use carrier::record::{HEADER_BYTES, Header, Kind};
use rustix::io::Errno;
use rustix::net::{SocketType, UCred};
use swiftwater::Stack;
use swiftwater::tokio::Listener;
use tokio::sync::mpsc;

use crate::budget::Budget;
use crate::closer::{Closers, Source};
use crate::form::{NOT_NOW, Put};
use crate::identity::Cookie;
use crate::life::{self, Turn};
use crate::limits::Limits;
use crate::line::{self, Accounts, Line};
use crate::member::{FIRST_ID, Member};
use crate::numbers::Numbers;
use crate::options::Settings;
use crate::owner::{Owner, Share, Shares};
use crate::page::Page;
use crate::places::Places;
use crate::ports::Ports;
use crate::recall::RawRecord;
use crate::streams::StreamRules;
use crate::unread::Unread;
use crate::vigil::Vigil;

/// Requests that may wait for what only a peer can answer, and those of one user.
const WAITING_MAX: usize = 4096;
const WAITING_OF_USER_MAX: usize = 1024;
/// Connections that may be open and have not asked anything yet.
const SILENT_MAX: usize = 1024;
/// Sockets that share a port of which it is looked whether they are closed.
const HOLDERS_LOOKED_AT_MAX: usize = 16;
/// Where descriptors are few, requests that wait and silent connections may each have one in so many.
const PART_OF_CONNECTIONS: usize = 16;

/// All sockets of a daemon.
pub(crate) struct Sockets {
    pub(crate) stack: Stack,
    /// The daemon ends when nobody needs it.
    pub(crate) on_demand: bool,
    /// Ports below this are for root.
    pub(crate) unprivileged_from: u16,
    table: Mutex<Table>,
    ports: Mutex<Ports>,
    shares: Shares,
    /// For what programs have sent and nobody has acknowledged.
    pub(crate) sent: Arc<Budget>,
    /// For long messages that programs have not read.
    pub(crate) unread: Arc<Budget>,
    /// For what associations have received and programs have not read.
    pub(crate) received: Arc<Budget>,
    /// For the pages of sockets.
    pub(crate) pages: Arc<Budget>,
    pub(crate) limits: Limits,
    /// The daemon ends. Programs go on reading the pages of its sockets.
    ends: AtomicBool,
    next_association: AtomicU32,
    /// Each request that waits for an answer has one of these.
    pub(crate) waiting: Arc<Places>,
    /// Each connection that has not asked anything yet has one of these.
    pub(crate) silent: Arc<Places>,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) closers: Arc<Closers>,
    pub(crate) vigil: Arc<Vigil>,
    /// What is pushed on the streams of associations.
    rules: Arc<StreamRules>,
}

#[derive(Default)]
struct Table {
    by_cookie: HashMap<Cookie, Arc<Socket>>,
    by_number: BTreeMap<u64, Arc<Socket>>,
    /// How many sockets have an association that was peeled off, by its ends.
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

/// Our port of an association, and the peer.
type Ends = (u16, SocketAddr);

fn ends(port: u16, host: IpAddr, peer_port: u16) -> Ends {
    (port, SocketAddr::new(host.to_canonical(), peer_port))
}

/// What kind of socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `SOCK_STREAM`: one association, or a listener.
    OneToOne,
    /// `SOCK_SEQPACKET`: any number of associations.
    OneToMany,
    /// One association, which was one of a one-to-many socket.
    PeeledOff,
}

impl Style {
    pub(crate) fn socket_type(self) -> u32 {
        match self {
            Style::OneToOne => SocketType::STREAM.as_raw(),
            Style::OneToMany | Style::PeeledOff => SocketType::SEQPACKET.as_raw(),
        }
    }

    /// What a fresh socket is to the sharers.
    pub(crate) fn first_stage(self) -> State {
        if self == Style::OneToMany { State::Many } else { State::Idle }
    }
}

/// One socket. The program has the other end of `line`, and maps `page`.
pub(crate) struct Socket {
    /// In the order in which sockets were opened.
    pub(crate) number: u64,
    /// Of the program's end.
    cookie: Cookie,
    pub(crate) v6: bool,
    pub(crate) style: Style,
    /// Whose it is.
    pub(crate) share: Arc<Share>,
    pub(crate) line: Arc<Line>,
    pub(crate) page: Page,
    /// Held by who hands a message up, from its first part to its last.
    pub(crate) delivery: tokio::sync::Mutex<()>,
    announced: Mutex<Announced>,
    inner: Mutex<Inner>,
    ended: tokio::sync::Notify,
    /// What it becomes, to its task.
    turns: mpsc::UnboundedSender<Turn>,
    pub(crate) unread: Unread,
    /// What is pushed on the streams of its associations.
    pub(crate) rules: Arc<StreamRules>,
    /// Of a peeled-off association: as the table knows it.
    peeled_off: OnceLock<Vec<Ends>>,
}

/// What a reader knows of the records in its carrier. If a message is no longer than its buffer, and alone, it takes it without
/// looking at it first.
#[derive(Clone, Copy, Default)]
struct Announced {
    /// How long messages have been so far.
    longest: u32,
    /// How often that has grown.
    notices: u32,
    /// There may be bundles.
    bundles: bool,
    /// Messages that came alone since the last bundle.
    alone: u32,
}

/// After so many notices lengths are rounded up, so that there are few in all.
const EXACT_NOTICES_MAX: u32 = 8;
/// After so many messages that came alone no bundle is expected.
const ALONE_MAX: u32 = 64;

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
    pub(crate) settings: Settings,
    /// Where it listens, as long as it does.
    pub(crate) listener: Weak<Listener>,
    /// Its associations, by their numbers.
    pub(crate) members: BTreeMap<u32, Arc<Member>>,
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
        self.page.set_state(stage);
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

    pub(crate) fn take_turn(&self, turn: Turn) -> Result<(), Errno> {
        self.turns.send(turn).map_err(|_| Errno::BADF)
    }

    /// Hands a message or a notification to the program; waits for room. The caller holds `delivery`.
    pub(crate) async fn put(self: &Arc<Self>, header: &Header, blocks: &[Bytes]) -> Result<Put, Errno> {
        match self.put_record(header, blocks).await {
            Err(NOT_NOW) => self.put_in_form(header, blocks).await,
            put => put.map(|()| Put::Record),
        }
    }

    /// Hands it over as a record. `NOT_NOW`: the carrier takes none for now.
    pub(crate) async fn put_record(self: &Arc<Self>, header: &Header, blocks: &[Bytes]) -> Result<(), Errno> {
        let news = self.news_of_one(header.bytes);
        let is_data = header.kind == Kind::Data;
        let counted = self.unread.count(u32::from(is_data));
        let put = async {
            self.announce(news).await?;
            self.line.put(header, blocks).await
        }
        .await;
        if !matches!(put, Err(NOT_NOW)) {
            // What finds no reader any more is unread, too.
            counted.keep();
        }
        put?.into_iter().for_each(|long| self.keep_memory(long));
        Ok(())
    }

    /// Hands a bundle of so many messages, which keep no room, to the program as [`Socket::put`].
    pub(crate) async fn put_bundle(self: &Arc<Self>, bundle: &[u8], messages: u32) -> Result<(), Errno> {
        let news = self.announced().news_of_bundle();
        let counted = self.unread.count(messages);
        let put = async {
            self.announce(news).await?;
            self.line.put_record(bundle, &[]).await
        }
        .await;
        if !matches!(put, Err(NOT_NOW)) {
            counted.keep();
            self.unread.keep_no_room(messages);
            return put;
        }
        drop(counted);
        for (at, header) in bundle::messages(bundle) {
            let content = &bundle[at + HEADER_BYTES..][..header.bytes as usize];
            if self.put(&header, &[Bytes::copy_from_slice(content)]).await? == Put::Record {
                self.unread.keep_no_room(1);
            }
        }
        Ok(())
    }

    /// What the reader must know before a message of this length comes alone.
    fn news_of_one(&self, bytes: u32) -> Option<Announced> {
        let mut announced = self.announced();
        if announced.bundles {
            announced.alone += 1;
            // Where all messages were read, no bundle is left.
            if announced.alone.is_multiple_of(ALONE_MAX) && !self.has_unread_data() {
                self.page.set_bundles(false);
                announced.bundles = false;
            }
        }
        announced.news_of_longer(bytes)
    }

    async fn announce(&self, news: Option<Announced>) -> Result<(), Errno> {
        let Some(news) = news else { return Ok(()) };
        self.page.set_longest(news.longest);
        self.page.set_bundles(news.bundles);
        self.line.put(&Header::new(Kind::SizeHint), &[]).await?;
        // Given up before that, it is said again.
        *self.announced() = news;
        Ok(())
    }

    /// What is sent without a word of its stream is checked where it is sent.
    pub(crate) fn show_default_stream(&self, member: &Member) {
        let place = match member.outbox().as_ref() {
            Some(outbox) => match outbox.place {
                Some(place) => Some(place),
                // There is no entry to check by.
                None => return,
            },
            None => None,
        };
        self.page.set_default_stream(place, member.tuning().sending.stream);
    }

    /// A record is put into the carrier before anybody reads from it.
    pub(crate) fn expect(&self, record: &RawRecord) {
        let mut announced = self.announced();
        let messages = record.messages().map(|(_, header)| header.bytes);
        announced.longest = messages.fold(announced.longest, u32::max);
        announced.bundles |= record.messages().nth(1).is_some();
        self.page.set_longest(announced.longest);
        self.page.set_bundles(announced.bundles);
    }

    /// Messages of this length are put into the carrier before anybody reads from it.
    pub(crate) fn expect_length(&self, bytes: u32) {
        let mut announced = self.announced();
        announced.longest = announced.longest.max(bytes);
        self.page.set_longest(announced.longest);
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Announced {
    /// What the reader must know before a message of this length comes.
    fn news_of_longer(&self, bytes: u32) -> Option<Announced> {
        let exact = self.notices < EXACT_NOTICES_MAX;
        let longest = if exact { bytes } else { bytes.next_power_of_two() };
        (bytes > self.longest).then_some(Announced { longest, notices: self.notices + 1, ..*self })
    }

    /// What the reader must know before a bundle comes.
    fn news_of_bundle(&mut self) -> Option<Announced> {
        self.alone = 0;
        (!self.bundles).then_some(Announced { bundles: true, ..*self })
    }
}

impl Sockets {
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
        Ok(Sockets {
            stack,
            on_demand,
            unprivileged_from: first_port.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024),
            table: Mutex::default(),
            ports: Mutex::new(Ports::new(u16::from_ne_bytes(random))),
            shares: Shares::new(Arc::clone(&numbers)),
            sent: Budget::new(limits.sent()),
            unread: Budget::new(limits.unread()),
            received: Budget::new(limits.received()),
            pages: Budget::new(limits.pages()),
            limits: *limits,
            ends: AtomicBool::new(false),
            next_association: AtomicU32::new(FIRST_ID),
            waiting: Places::new(waiting, WAITING_OF_USER_MAX.min(waiting)),
            silent: Places::new(SILENT_MAX.min(few), SILENT_MAX),
            closers: Closers::new(Arc::clone(&numbers)),
            numbers,
            vigil: Arc::default(),
            rules: Arc::default(),
        })
    }

    /// Returns the sockets with these rules for the streams of their associations.
    pub(crate) fn with_rules(self, rules: StreamRules) -> Self {
        Sockets { rules: Arc::new(rules), ..self }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for an association. Programs see it as a signed one.
    pub(crate) fn next_association(&self) -> u32 {
        let next = |id: u32| Some(if id >= i32::MAX as u32 { FIRST_ID } else { id + 1 });
        self.next_association.fetch_update(Relaxed, Relaxed, next).unwrap_or(FIRST_ID)
    }

    /// Opens a socket; returns it with the program's end of its carrier.
    pub(crate) fn open(
        self: &Arc<Self>,
        owner: Owner,
        v6: bool,
        style: Style,
        stage: State,
        mut settings: Settings,
    ) -> Result<(Arc<Socket>, OwnedFd), Errno> {
        let share = Arc::new(self.shares.take(owner)?);
        let mut table = self.table();
        let number = table.next_number;
        table.next_number += 1;
        let accounts = Accounts {
            sent: self.sent.account(owner.user),
            unread: self.unread.account(owner.user),
            received: self.received.account(owner.user),
        };
        settings.share_receive_memory(&accounts.received);
        let message_bytes_max = accounts.sent.message_bytes_max();
        let closer = self.closers.of(owner.user, Source::Carriers);
        let (line, theirs) = line::pair(&self.vigil, Arc::clone(&closer), accounts)?;
        let cookie = Cookie::of(&theirs)?;
        let (turns, come) = mpsc::unbounded_channel();
        let members = BTreeMap::new();
        let inner = Inner {
            stage,
            bound: None,
            inherited: None,
            local: None,
            peer: None,
            settings,
            listener: Weak::new(),
            members,
            heard: 0,
        };
        let page = Page::new(v6, style, stage, message_bytes_max, &self.pages.account(owner.user))?;
        let (delivery, announced) = (tokio::sync::Mutex::default(), Mutex::default());
        let inner = Mutex::new(inner);
        let ended = tokio::sync::Notify::new();
        let socket = Socket {
            number,
            cookie,
            v6,
            style,
            share,
            line: Arc::new(line),
            page,
            delivery,
            announced,
            inner,
            ended,
            turns,
            unread: Unread::new(closer),
            rules: Arc::clone(&self.rules),
            peeled_off: OnceLock::new(),
        };
        let socket = Arc::new(socket);
        table.by_cookie.insert(cookie, Arc::clone(&socket));
        table.by_number.insert(number, Arc::clone(&socket));
        tokio::spawn(life::live(Arc::clone(self), Arc::clone(&socket), come));
        Ok((socket, theirs))
    }

    /// The socket whose carrier has this program's end.
    pub(crate) fn find(&self, cookie: Cookie) -> Option<Arc<Socket>> {
        self.table().by_cookie.get(&cookie).cloned()
    }

    /// Notes that a socket has an association that was peeled off, from this port.
    pub(crate) fn note_peeled_off(&self, socket: &Socket, port: u16, member: &Member) {
        let known = member.association().and_then(|association| association.peer_address());
        let others = known.into_iter().flat_map(|peer| peer.hosts);
        let mut all: Vec<Ends> = vec![ends(port, member.peer.ip(), member.peer.port())];
        for host in others {
            let ends = ends(port, host, member.peer.port());
            if !all.contains(&ends) {
                all.push(ends);
            }
        }
        let mut table = self.table();
        for ends in socket.peeled_off.get_or_init(|| all) {
            *table.peeled_off.entry(*ends).or_default() += 1;
        }
    }

    /// Whether an association from this port with one of these hosts was peeled off.
    pub(crate) fn is_peeled_off(&self, port: u16, hosts: &[IpAddr], peer_port: u16) -> bool {
        let table = self.table();
        hosts.iter().any(|host| table.peeled_off.contains_key(&ends(port, *host, peer_port)))
    }

    /// Whether a socket that has this port is closed, and its task has only to hear of it. Of many that share it some are looked at.
    pub(crate) fn is_being_left(&self, port: u16) -> bool {
        let holders: Vec<u64> = self.ports().holders(port).take(HOLDERS_LOOKED_AT_MAX).collect();
        let table = self.table();
        let mut holders = holders.iter().filter_map(|number| table.by_number.get(number));
        holders.any(|socket| socket.line.is_hung_up())
    }

    /// The first so many from this number on.
    pub(crate) fn numbered_from(&self, number: u64, count: usize) -> Vec<Arc<Socket>> {
        self.table().by_number.range(number..).take(count).map(|(_, socket)| Arc::clone(socket)).collect()
    }

    /// All of them, in any order.
    pub(crate) fn all(&self) -> Vec<Arc<Socket>> {
        self.table().by_cookie.values().cloned().collect()
    }

    /// Leaves the pages of sockets that are forgotten from now on as they are: an emptied page would look like that of a fresh socket
    /// to a program that is told the daemon's end.
    pub(crate) fn keep_pages(&self) {
        self.ends.store(true, Relaxed);
    }

    /// Nobody has the socket any more.
    pub(crate) fn forget(self: &Arc<Self>, socket: &Socket) {
        self.table().remove(socket);
        socket.unread.close();
        if !self.ends.load(Relaxed) {
            socket.line.closer().empty_page(socket.page.left(), Arc::clone(&socket.share));
        }
        let (bound, members) = {
            let mut inner = socket.lock();
            (inner.bound.take(), std::mem::take(&mut inner.members))
        };
        drop(members);
        if let Some(bound) = bound {
            self.ports().release(socket.number, bound.port);
        }
    }

    /// Whether no socket and no association is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.table().by_cookie.is_empty() && self.stack.statistics().associations == 0
    }
}
