//! Requests of a neighbour that keep a daemon busy: the hidden command `peer trouble`.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket, socket_with};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::host;
use crate::peer::print_line;
use crate::run::ADDRESS_VARIABLE;
use crate::sockets::SCTP;

/// Number of silent connections that the neighbour holds at a time.
const CONNECTIONS: usize = 900;
/// Number of peers of the one-to-many socket, and of associations that end at once; each takes one and two descriptors.
const PEERS: usize = 400;
const CLOSED_AT_ONCE: usize = 200;
/// Messages that an association has when it ends: neither does the peer read them, nor can all be sent.
const LEFT_MESSAGES: usize = 64;
const LEFT_BYTES: usize = 1400;
const SMALL_BYTES: usize = 64;
/// Backlog of the listener that is flooded in place of the daemon, and its pause when no connection waits.
const ELSEWHERE_BACKLOG: i32 = 64;
const ELSEWHERE_PAUSE: Duration = Duration::from_micros(50);
/// Time limit of a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the hidden command: keeps the daemon busy until standard input ends.
pub(crate) fn keep_busy(kind: &str) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The end and a failure mean the same here.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            stop.store(true, Ordering::Relaxed);
        });
        let begun = || print_line(&()).map_err(io::Error::other);
        let kept_busy = match kind {
            "requests" => begun().and_then(|()| ask_on(&stop)),
            "connection-flood" => begun().and_then(|()| flood(&daemon_address()?, &stop)),
            "flood-elsewhere" => begun().and_then(|()| flood_elsewhere(&stop)),
            "many-peers" => ManyPeers::new().and_then(|peers| begun().and_then(|()| peers.send_on(&stop))),
            "closes" => begun().and_then(|()| close_on(&stop)),
            _ => begun().and_then(|()| connect_on(&stop)),
        };
        // The other thread waits for the end of the input.
        kept_busy.map_err(|error| error.to_string())
    })
}

/// Makes sockets, asks for the address of each, and closes it. A daemon may refuse a user that does so.
fn ask_on(stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(socket) = Socket::new(Domain::IPV4, Type::STREAM, Some(SCTP)) {
            let _ = socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into());
            let _ = socket.local_addr();
        }
    }
    Ok(())
}

fn daemon_address() -> io::Result<SocketAddrUnix> {
    let place = std::env::var(ADDRESS_VARIABLE).unwrap_or_default();
    Ok(SocketAddrUnix::new_abstract_name(place.trim_start_matches('@').as_bytes())?)
}

/// Opens connections to the daemon and sends nothing on them. Closes the oldest for each new one.
fn connect_on(stop: &AtomicBool) -> io::Result<()> {
    let address = daemon_address()?;
    let mut open = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        let silent = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        // A daemon may refuse a user that does so.
        if connect(&silent, &address).is_ok() {
            open.push_back(silent);
        }
        if open.len() > CONNECTIONS {
            open.pop_front();
        }
    }
    Ok(())
}

/// Connects to an address and closes the connection, on each processor, and waits for nothing.
fn flood(address: &SocketAddrUnix, stop: &AtomicBool) -> io::Result<()> {
    let connect_all = || {
        while !stop.load(Ordering::Relaxed) {
            let flags = SocketFlags::NONBLOCK;
            let connection = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            // The daemon's queue may be full.
            let _ = connect(&connection, address);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = host::allowed_processors().iter().map(|_| scope.spawn(connect_all)).collect();
        others.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}

/// Does the same with a listener of this process in place of the daemon, which accepts and closes each connection.
fn flood_elsewhere(stop: &AtomicBool) -> io::Result<()> {
    let address =
        SocketAddrUnix::new_abstract_name(format!("swiftwater-elsewhere-{}", std::process::id()).as_bytes())?;
    let flags = SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, ELSEWHERE_BACKLOG)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if rustix::net::accept(&listener).is_err() {
                    thread::sleep(ELSEWHERE_PAUSE);
                }
            }
        });
        flood(&address, stop)
    })
}

fn listener(kind: Type) -> io::Result<Socket> {
    let listener = Socket::new(Domain::IPV4, kind, Some(SCTP))?;
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    listener.listen(1)?;
    Ok(listener)
}

fn connected(to: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(SCTP))?;
    socket.connect_timeout(to, CONNECT_TIMEOUT)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A one-to-many socket and its peers.
struct ManyPeers {
    socket: Socket,
    peers: Vec<(Socket, SockAddr)>,
}

impl ManyPeers {
    fn new() -> io::Result<Self> {
        let socket = listener(Type::SEQPACKET)?;
        socket.set_nonblocking(true)?;
        let to = socket.local_addr()?;
        let peers = (0..PEERS).map(|_| {
            let peer = connected(&to)?;
            let address = peer.local_addr()?;
            Ok((peer, address))
        });
        Ok(Self { peers: peers.collect::<io::Result<_>>()?, socket })
    }

    /// Sends a message to each peer in turn; each sends one back.
    fn send_on(&self, stop: &AtomicBool) -> io::Result<()> {
        let (message, mut place) = ([0; SMALL_BYTES], [0; SMALL_BYTES]);
        thread::scope(|scope| {
            scope.spawn(|| {
                // A socket whose memory is full takes no message for now.
                while !stop.load(Ordering::Relaxed) {
                    self.peers.iter().for_each(|(_, address)| drop(self.socket.send_to(&message, address)));
                    while (&self.socket).read(&mut [0; SMALL_BYTES]).is_ok_and(|bytes| bytes > 0) {}
                }
            });
            while !stop.load(Ordering::Relaxed) {
                for mut peer in self.peers.iter().map(|(peer, _)| peer) {
                    while peer.read(&mut place).is_ok_and(|bytes| bytes > 0) {
                        drop(peer.write(&message));
                    }
                }
            }
        });
        Ok(())
    }
}

/// Sets up associations with itself, fills them with messages that nobody reads, and closes them all at once.
fn close_on(stop: &AtomicBool) -> io::Result<()> {
    let listener = listener(Type::STREAM)?;
    let to = listener.local_addr()?;
    let message = [0; LEFT_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let mut open = Vec::with_capacity(CLOSED_AT_ONCE);
        for _ in 0..CLOSED_AT_ONCE {
            let near = connected(&to)?;
            let (far, _) = listener.accept()?;
            open.push((near, far));
        }
        for (near, _) in &open {
            // The pair may be full before.
            while_ok(LEFT_MESSAGES, || near.send(&message));
        }
    }
    Ok(())
}

/// Does something up to so many times, as long as it succeeds.
fn while_ok<T>(times: usize, mut something: impl FnMut() -> io::Result<T>) {
    let _ = (0..times).try_for_each(|_| something().map(drop));
}
