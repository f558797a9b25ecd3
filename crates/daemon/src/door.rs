//! Where programs ask. Each request has a connection of its own, which its answer ends.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use carrier::name::{DAEMON, DAEMON_VARIABLE};
use carrier::request::{self, FRAME_BYTES_MAX, Request, RequestError};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, UCred,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::line::register;
use crate::log;
use crate::socket::Sockets;

/// Requests at a time; more wait to be let in.
const REQUESTS_MAX: usize = 256;
/// Who has let in says what it wants within this time.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// How long the door stays shut when the system has no descriptor for who comes in.
const EXHAUSTED_WAIT: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 1024;

/// Where programs find the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A name of AF_UNIX that belongs to the network namespace and to no file system.
    Abstract(String),
    /// A socket in a file system.
    Path(PathBuf),
}

impl Default for Place {
    /// Where the one daemon of a network namespace is.
    fn default() -> Self {
        Place::Abstract(DAEMON.into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Abstract(name) => write!(f, "@{name}"),
            Place::Path(path) => path.display().fmt(f),
        }
    }
}

impl From<&str> for Place {
    /// `@NAME` is an abstract name, anything else a path.
    fn from(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(name) => Place::Abstract(name.into()),
            None => Place::Path(text.into()),
        }
    }
}

impl Place {
    /// The one that `SWIFTWATER_DAEMON` names in the environment, or the usual one.
    pub fn from_environment() -> Place {
        let named = std::env::var(DAEMON_VARIABLE.to_string_lossy().as_ref()).ok();
        named.as_deref().map(Place::from).unwrap_or_default()
    }

    fn address(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Place::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            Place::Path(path) => SocketAddrUnix::new(path),
        }
    }

    /// A connection to whoever listens there.
    pub(crate) fn connect(&self) -> Result<OwnedFd, Errno> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &self.address()?)?;
        Ok(socket)
    }
}

/// Why a place cannot be taken.
#[derive(Debug)]
pub enum PlaceError {
    /// A daemon is there already.
    Taken(Place),
    /// The system refused.
    System(Place, io::Error),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Taken(place) => write!(f, "a daemon is at {place} already; `swiftwater run` uses it"),
            PlaceError::System(place, error) => write!(f, "cannot listen at {place}: {error}"),
        }
    }
}

impl std::error::Error for PlaceError {}

pub(crate) fn listen(place: &Place) -> Result<OwnedFd, PlaceError> {
    let failed = |error: Errno| match error {
        Errno::ADDRINUSE => PlaceError::Taken(place.clone()),
        error => PlaceError::System(place.clone(), error.into()),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
    if let Place::Path(path) = place
        && place.connect().is_err()
    {
        // Left by a daemon that has crashed; nobody answers there. What cannot be removed fails the bind.
        let _ = std::fs::remove_file(path);
    }
    rustix::net::bind(&socket, &place.address().map_err(failed)?).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
    Ok(socket)
}

/// Lets programs in; returns only when that is no longer possible.
pub(crate) async fn serve(listener: OwnedFd, sockets: Arc<Sockets>) -> io::Result<()> {
    let listener = register(listener, Interest::READABLE)?;
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = |_: &OwnedFd| Ok(rustix::net::accept_with(&listener, flags)?);
        let connection = match listener.async_io(Interest::READABLE, accept).await {
            Ok(connection) => connection,
            Err(error) => {
                log(format_args!("nobody can be let in for the moment: {error}"));
                tokio::time::sleep(EXHAUSTED_WAIT).await;
                continue;
            }
        };
        let sockets = Arc::clone(&sockets);
        tokio::spawn(async move {
            // Who goes away gets no answer.
            let _ = attend(connection, &sockets, place).await;
        });
    }
}

/// What the daemon answers: [`carrier::request::Answer`] with a value of its own.
pub(crate) enum Answer {
    Done,
    Failed(Errno),
    Address(SocketAddr),
    Value(Vec<u8>),
    Association(u32),
}

/// What goes back: the answer, and descriptors with it.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Reply { answer, descriptors: Vec::new() }
    }
}

impl From<Errno> for Reply {
    fn from(error: Errno) -> Self {
        Answer::Failed(error).into()
    }
}

impl Reply {
    fn encode(&self, frame: &mut [u8; FRAME_BYTES_MAX]) -> Option<usize> {
        let answer = match &self.answer {
            Answer::Done => request::Answer::Done,
            Answer::Failed(error) => request::Answer::Failed(error.raw_os_error()),
            Answer::Address(address) => request::Answer::Address(*address),
            Answer::Value(value) => request::Answer::Value(value),
            Answer::Association(id) => request::Answer::Association(*id),
        };
        answer.encode(frame)
    }
}

/// Takes one request and answers it.
async fn attend(connection: OwnedFd, sockets: &Arc<Sockets>, place: OwnedSemaphorePermit) -> io::Result<()> {
    let who = rustix::net::sockopt::socket_peercred(&connection)?;
    let connection = register(connection, Interest::READABLE | Interest::WRITABLE)?;
    let mut frame = [0; FRAME_BYTES_MAX];
    let asked = connection.async_io(Interest::READABLE, |fd| receive(fd, &mut frame));
    // Who says nothing gets no answer.
    let Ok(asked) = tokio::time::timeout(REQUEST_WAIT, asked).await else { return Ok(()) };
    let (bytes, descriptor) = asked?;
    // Some answers come late; others are let in meanwhile.
    drop(place);
    let reply = match Request::parse(&frame[..bytes]) {
        Ok(request) => tokio::select! {
            performed = sockets.perform(&request, descriptor, who) => performed.unwrap_or_else(Reply::from),
            () = gone(&connection) => return Ok(()),
        },
        Err(error) => refuse(error, who),
    };
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = reply.encode(&mut frame).ok_or(Errno::OVERFLOW)?;
    let descriptors: Vec<BorrowedFd<'_>> = reply.descriptors.iter().map(OwnedFd::as_fd).collect();
    let sent = send(&connection, &frame[..bytes], &descriptors);
    tokio::time::timeout(REQUEST_WAIT, sent).await.unwrap_or(Ok(()))
}

/// Waits until who has asked is gone, or says more, which nobody does.
async fn gone(connection: &AsyncFd<OwnedFd>) {
    let look = |fd: &OwnedFd| Ok(rustix::net::recv(fd, &mut [0_u8; 1][..], RecvFlags::empty())?);
    // It is gone either way.
    let _ = connection.async_io(Interest::READABLE, look).await;
}

fn refuse(error: RequestError, who: UCred) -> Reply {
    match error {
        RequestError::Version(version) => log(format_args!(
            "process {} has a shim of version {version}, this daemon is of {}: let both come from one installation",
            who.pid.as_raw_nonzero(),
            carrier::VERSION
        )),
        RequestError::Malformed => log(format_args!("process {} asks nonsense", who.pid.as_raw_nonzero())),
    }
    Errno::PROTONOSUPPORT.into()
}

fn receive(connection: &OwnedFd, frame: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut iov = [IoSliceMut::new(frame)];
    let received = rustix::net::recvmsg(connection, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

async fn send(connection: &AsyncFd<OwnedFd>, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let send = |fd: &OwnedFd| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        rustix::net::sendmsg(fd, &[IoSlice::new(frame)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    };
    connection.async_io(Interest::WRITABLE, send).await
}
