//! Sockets: what all requests about one share.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrier::name::CarrierName;
use carrier::page::State;
use rustix::io::Errno;
use swiftwater::Stack;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::life::{self, Turn};
use crate::line::{self, Line};
use crate::listeners::Listeners;
use crate::options::Settings;
use crate::page::Page;
use crate::ports::Ports;

/// All sockets of a daemon.
pub(crate) struct Sockets {
    pub(crate) stack: Stack,
    /// Names this daemon among those that were before it.
    pub(crate) daemon: u64,
    /// Ports below this are for root.
    pub(crate) unprivileged_from: u16,
    table: Mutex<Table>,
    ports: Mutex<Ports>,
    pub(crate) listeners: Listeners,
}

#[derive(Default)]
struct Table {
    by_number: HashMap<u64, Arc<Socket>>,
    next: u64,
}

/// One socket. The program has the other end of `line`, and maps `page`.
pub(crate) struct Socket {
    pub(crate) number: u64,
    pub(crate) v6: bool,
    pub(crate) line: Line,
    pub(crate) page: Page,
    inner: Mutex<Inner>,
    /// What it becomes, to its task.
    turns: mpsc::UnboundedSender<Turn>,
}

/// What requests look at and change.
pub(crate) struct Inner {
    pub(crate) stage: State,
    /// Its address and port, once it has one; it is held in the table of ports.
    pub(crate) bound: Option<SocketAddr>,
    /// Its address toward the peer.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) settings: Settings,
}

impl Socket {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is now, to requests and to the sharers.
    pub(crate) fn set_stage(&self, inner: &mut Inner, stage: State) {
        inner.stage = stage;
        self.page.set_state(stage);
    }

    pub(crate) fn take_turn(&self, turn: Turn) -> Result<(), Errno> {
        self.turns.send(turn).map_err(|_| Errno::BADF)
    }
}

impl Sockets {
    pub(crate) fn new(stack: Stack) -> io::Result<Self> {
        let mut random = [0; 10];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let [daemon @ .., low, high] = random;
        let first_port = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        Ok(Sockets {
            stack,
            daemon: u64::from_ne_bytes(daemon),
            unprivileged_from: first_port.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024),
            table: Mutex::default(),
            ports: Mutex::new(Ports::new(u16::from_ne_bytes([low, high]))),
            listeners: Listeners::default(),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a socket; returns it with the program's end of its carrier.
    pub(crate) fn open(
        self: &Arc<Self>,
        v6: bool,
        stage: State,
        settings: Settings,
    ) -> Result<(Arc<Socket>, OwnedFd), Errno> {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        let (line, theirs) = line::pair(CarrierName { daemon: self.daemon, socket: number })?;
        let (turns, come) = mpsc::unbounded_channel();
        let inner = Inner { stage, bound: None, local: None, peer: None, settings };
        let page = Page::new(v6, stage)?;
        let socket = Arc::new(Socket { number, v6, line, page, inner: Mutex::new(inner), turns });
        table.by_number.insert(number, Arc::clone(&socket));
        tokio::spawn(life::live(Arc::clone(self), Arc::clone(&socket), come));
        Ok((socket, theirs))
    }

    pub(crate) fn find(&self, name: CarrierName) -> Option<Arc<Socket>> {
        (name.daemon == self.daemon).then(|| self.table().by_number.get(&name.socket).cloned()).flatten()
    }

    /// Nobody has the socket any more.
    pub(crate) fn forget(self: &Arc<Self>, socket: &Socket) {
        self.table().by_number.remove(&socket.number);
        let (number, bound) = (socket.number, socket.lock().bound.take());
        let Some(port) = bound.map(|bound| bound.port()) else { return };
        match (self.listeners.remove(port, number), Handle::try_current()) {
            // The port is free when the executive has let go of it.
            (Some(task), Ok(runtime)) => {
                let sockets = Arc::clone(self);
                runtime.spawn(async move {
                    // It was told to end.
                    let _ = task.await;
                    sockets.ports().release(number, port);
                });
            }
            _ => self.ports().release(number, port),
        }
    }

    /// Whether no socket and no association is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.table().by_number.is_empty() && self.stack.statistics().associations == 0
    }
}
