//! Sockets as the daemon makes them, and the calls that wait for it: `connect` and `accept`.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use channel_protocol::assoc_id::AssocId;
use channel_protocol::read_position::Front;
use channel_protocol::record::{self, ACCEPTED_BYTES, HEADER_BYTES};
use channel_protocol::request::{
    Addresses, Answer, DaemonRequest, InitMessage, SocketKind, SocketRequest, Start,
};
use channel_protocol::status_page::{PeerShut, State};
use libc::c_int;

use crate::ask::{self, Reply, ask, ask_daemon, ask_for_value, daemon_accepts};
use crate::descriptor::Descriptor;
use crate::lock::{self, Held, Patience};
use crate::owned::Owned;
use crate::reader::Reader;
use crate::sleep::{asleep, with_copy};
use crate::system::{self, Buffers, Content, Destination, Errno, Result};
use crate::waiting::{await_connection, error_without_daemon};
use crate::{cancel, self_connect, start, table, tcp};

/// Opens a socket.
pub(crate) fn open(v6: bool, kind: SocketKind, flags: c_int) -> Result<RawFd> {
    // A kernel without SCTP reports this error.
    let no_daemon = |error| if error == Errno(libc::ENETDOWN) { Errno(libc::EPROTONOSUPPORT) } else { error };
    let mut reply = ask_daemon(&DaemonRequest::Open { v6, kind });
    if reply.as_ref().is_err_and(|error| *error == Errno(libc::ENETDOWN)) && start::daemon(daemon_accepts) {
        reply = ask_daemon(&DaemonRequest::Open { v6, kind });
    }
    let [Some(pair), Some(status), Some(sharers)] = reply.map_err(no_daemon)?.descriptors else {
        return Err(Errno(libc::EPROTO));
    };
    // A new descriptor has the lowest free number, and some programs count on that; the connection to the daemon had it.
    adopt(system::at_lowest(pair), [status, sharers], flags)
}

/// Sets the flags of `socket` and `accept4`. A new pair has close-on-exec set, which most programs do not want.
fn set_flags(fd: RawFd, flags: c_int) {
    if flags & libc::SOCK_CLOEXEC == 0 {
        system::clear_close_on_exec(fd);
    }
    if flags & libc::SOCK_NONBLOCK != 0 {
        system::set_nonblocking(fd);
    }
}

/// Enters a new pair into the table, with the flags of `socket` and `accept4`.
///
/// # Errors
///
/// `EMFILE`: the number is beyond the table, so the shim would not recognize it.
fn adopt(pair: Owned, pages: [Owned; 2], flags: c_int) -> Result<RawFd> {
    let descriptor = Descriptor::map(pages)?;
    if !table::has_slot(pair.raw()) {
        return Err(Errno(libc::EMFILE));
    }
    set_flags(pair.raw(), flags);
    table::set(pair.raw(), &Arc::new(descriptor));
    Ok(pair.release())
}

/// Makes a sealed memfd with the content of a long message. The daemon makes it where a sandbox forbids the program to.
///
/// # Errors
///
/// `EFBIG`: the process may not write as long a file, and would get a signal.
pub(crate) fn sealed_memfd(content: Content<'_>) -> Result<Owned> {
    if content.bytes() > system::file_bytes_max() {
        return Err(Errno(libc::EFBIG));
    }
    let memfd = match system::memfd(c"swiftwater-message") {
        Err(Errno(libc::EPERM | libc::EACCES | libc::ENOSYS)) => {
            let [memfd, ..] = ask_daemon(&DaemonRequest::Memfd)?.descriptors;
            memfd.ok_or(Errno(libc::EPROTO))?
        }
        memfd => memfd?,
    };
    system::fill_and_seal(memfd.raw(), content)?;
    Ok(memfd)
}

pub(crate) fn local_address(fd: RawFd, descriptor: &Descriptor) -> Result<SocketAddr> {
    if let Some(address) = descriptor.pages().status.local() {
        return Ok(address);
    }
    match ask(&SocketRequest::LocalAddress, fd)?.answer()? {
        Answer::Address(address) => Ok(address),
        _ => Err(Errno(libc::EPROTO)),
    }
}

pub(crate) fn peer_address(descriptor: &Descriptor) -> Result<SocketAddr> {
    let pages = descriptor.pages();
    let had_one = matches!(pages.status.state(), State::Connected | State::Ended | State::Lost);
    let peer = pages.status.peer().filter(|_| had_one);
    peer.ok_or(Errno(libc::ENOTCONN))
}

/// Reads an option into `place`, as much as fits, and returns how much that is. `given` is the program's value, which
/// some options depend on, and may lie there.
///
/// # Safety
///
/// `given` describes readable memory, which nothing but this call changes.
pub(crate) unsafe fn option(
    fd: RawFd,
    level: c_int,
    name: c_int,
    given: *const [u8],
    place: Destination<'_>,
) -> Result<usize> {
    // SAFETY: the caller guarantees it.
    let request = || SocketRequest::GetOption { level, name, value: unsafe { &*given } };
    ask_for_value(&request, fd, place)
}

/// Returns whether a socket that is still open is out of use: its association has ended, or nothing goes through its
/// pair any more in either direction. A daemon that cannot watch its last close forgets it.
pub(crate) fn is_unusable(descriptor: &Descriptor) -> bool {
    let pages = descriptor.pages();
    let reads_no_more =
        pages.sharers.is_reading_shut() || pages.status.peer_shut.load(Acquire) == PeerShut::Both as u32;
    has_ended(descriptor) || pages.sharers.is_writing_shut() && reads_no_more
}

/// Returns whether the one association of a socket has ended.
pub(crate) fn has_ended(descriptor: &Descriptor) -> bool {
    matches!(descriptor.pages().status.state(), State::Ended | State::Lost)
}

/// Returns the value of an option that does not involve the daemon; `None` for all others.
pub(crate) fn own_option(fd: RawFd, descriptor: &Descriptor, level: c_int, name: c_int) -> Option<c_int> {
    if level != libc::SOL_SOCKET {
        return None;
    }
    let pages = descriptor.pages();
    match name {
        libc::SO_ERROR => match pages.take_error() {
            0 if !is_unusable(descriptor) && system::is_hung_up(fd) => {
                Some(error_without_daemon(pages.status.state()))
            }
            error => Some(error),
        },
        libc::SO_TYPE => Some(pages.status.style.load(Relaxed) as c_int),
        libc::SO_DOMAIN => Some(pages.status.family.load(Relaxed) as c_int),
        libc::SO_PROTOCOL => Some(libc::IPPROTO_SCTP),
        _ => None,
    }
}

/// Connects, as `connect` and `sctp_connectx` do. Returns an association that is only begun, too, with `EINPROGRESS`.
pub(crate) fn connect(fd: RawFd, descriptor: &Descriptor, peer: &[SocketAddr]) -> (AssocId, Result<()>) {
    if let State::Connected | State::Ended | State::Lost = descriptor.pages().status.state() {
        return (AssocId::NONE, Err(Errno(libc::EISCONN)));
    }
    if tcp::is_stream(descriptor) && system::has_input_ended(fd) {
        return (AssocId::NONE, Err(Errno(failed_before(descriptor))));
    }
    self_connect::connects();
    let wait = !system::is_nonblocking(fd);
    let start = if wait { Start::AnswerLate } else { Start::Now };
    match request_connect(fd, peer, start, InitMessage::default()) {
        // The process has no descriptor for a connection that waits for the answer.
        Err(Errno(libc::EMFILE)) if wait => {
            match request_connect(fd, peer, Start::Now, InitMessage::default()) {
                Ok(begun) => (begun, await_connection(fd, descriptor)),
                Err(error) => (AssocId::NONE, Err(error)),
            }
        }
        // The time limit of `SO_SNDTIMEO` is over.
        Err(Errno(libc::EAGAIN)) => (AssocId::NONE, Err(Errno(libc::EINPROGRESS))),
        Err(error) => (AssocId::NONE, Err(error)),
        Ok(begun) if !wait => (begun, Err(Errno(libc::EINPROGRESS))),
        Ok(begun) => (begun, Ok(())),
    }
}

/// Returns the error of a connect on a socket whose content has ended with an earlier setup, as TCP does.
fn failed_before(descriptor: &Descriptor) -> c_int {
    match descriptor.pages().take_error() {
        0 => libc::ECONNABORTED,
        error => error,
    }
}

/// Begins an association, or waits until it is set up if `start` says so; returns its number.
fn request_connect(fd: RawFd, peer: &[SocketAddr], start: Start, init: InitMessage) -> Result<AssocId> {
    let peer = Addresses::new(peer).ok_or(Errno(libc::EINVAL))?;
    assoc_id(&ask(&SocketRequest::Connect { peer, start, init }, fd)?)
}

fn assoc_id(reply: &Reply) -> Result<AssocId> {
    match reply.answer()? {
        Answer::Association(id) => Ok(id),
        _ => Err(Errno(libc::EPROTO)),
    }
}

/// Begins an association for a message that the caller sends afterwards.
pub(crate) fn connect_with_message(fd: RawFd, peer: &[SocketAddr], init: InitMessage) -> Result<AssocId> {
    self_connect::connects();
    request_connect(fd, peer, Start::WithMessage, init)
}

/// Returns the association of a one-to-many socket with the peer of this address.
pub(crate) fn find_association(fd: RawFd, peer: SocketAddr) -> Result<AssocId> {
    assoc_id(&ask(&SocketRequest::Find(peer), fd)?)
}

/// Writes the associations of a one-to-many socket with the smallest numbers above `after` to `list`; returns how many, 0 if
/// there are no more.
pub(crate) fn associations(fd: RawFd, after: AssocId, list: &mut [AssocId]) -> Result<usize> {
    // SAFETY: the list is writable, and any bytes are numbers.
    let place = unsafe { Destination::of_program(list.as_mut_ptr().cast(), size_of_val(list)) };
    let bytes = ask_for_value(&|| SocketRequest::Associations { after }, fd, place)?;
    Ok(bytes / size_of::<AssocId>())
}

/// Waits until an association of a one-to-many socket has room for a message.
pub(crate) fn await_room(fd: RawFd, assoc_id: AssocId) -> Result<()> {
    ask::request(fd, &SocketRequest::AwaitRoom { assoc_id })
}

/// Peels off an association; `flags` are those of `socket`.
pub(crate) fn peel_off(fd: RawFd, descriptor: &Descriptor, assoc_id: AssocId, flags: c_int) -> Result<RawFd> {
    let pages = descriptor.pages();
    // No sharer reads while the daemon sorts the content of the pair, which is never plain on a one-to-many socket. The daemon
    // refuses the request for any other.
    let reader = Reader::lock_in_any_form(fd, pages, &Patience::of_a_request())?;
    let front = pages.sharers.position().load();
    let front_begun = front.consumed() > 0;
    let header = if front_begun { reader.front()? } else { None };
    let front_at = if let Front::Bundle(position) = front { position.next } else { 0 };
    let request = SocketRequest::PeelOff { assoc_id, front_begun, front_at };
    // After an error it is unknown whether the daemon has sorted the content.
    let reply = ask(&request, fd).inspect_err(|_| reader.recover())?;
    if reader.on_sorted(front, header).is_err() {
        // The association was peeled off nevertheless.
        reader.recover();
    }
    drop(reader);
    let [Some(pair), Some(status), Some(sharers)] = reply.descriptors else {
        return Err(Errno(libc::EPROTO));
    };
    adopt(system::at_lowest(pair), [status, sharers], flags)
}

/// Accepts an association: one record describes one.
pub(crate) fn accept(fd: RawFd, descriptor: &Descriptor, flags: c_int) -> Result<(RawFd, SocketAddr)> {
    cancel::point();
    let pages = descriptor.pages();
    if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if pages.status.style.load(Relaxed) != libc::SOCK_STREAM as u32 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    if pages.status.state() != State::Listening {
        return Err(Errno(libc::EINVAL));
    }
    let patience = Patience::of_receive(fd, 0);
    loop {
        let guard = lock::hold(pages.sharers.read_lock(), &patience)?;
        match take_association(fd, &guard, flags) {
            // The kernel reports once that the daemon has died; the next look finds the end.
            Err(Errno(libc::EAGAIN | libc::ECONNRESET)) => {}
            result => return result,
        }
        drop(guard);
        match asleep(fd, descriptor, || system::await_record(fd, 0)) {
            Ok(Some(copy)) => return with_copy(copy, |fd| accept(fd, descriptor, flags)),
            Ok(None) | Err(Errno(libc::ECONNRESET)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes an association from the pair, for the holder of the read lock.
fn take_association(fd: RawFd, _held: &Held<'_>, flags: c_int) -> Result<(RawFd, SocketAddr)> {
    let mut bytes = [0; HEADER_BYTES + ACCEPTED_BYTES];
    let place = [Destination::of(&mut bytes)];
    // A look first: if the process has no room for the descriptors, the record stays for the next call.
    let received = system::receive::<3>(fd, Buffers::new(&place), libc::MSG_PEEK | libc::MSG_DONTWAIT)?;
    if received.bytes == 0 {
        // The daemon has died. Many programs would retry at once after an error that says that the network is down.
        return Err(Errno(libc::EINVAL));
    }
    if received.descriptors_lost {
        return Err(Errno(libc::EMFILE));
    }
    system::discard(fd)?;
    let peer = record::parse_accepted(&bytes[..received.bytes]).ok_or(Errno(libc::EPROTO))?;
    let [Some(pair), Some(status), Some(sharers)] = received.descriptors else {
        return Err(Errno(libc::EPROTO));
    };
    adopt(pair, [status, sharers], flags).map(|fd| (fd, peer))
}

/// Fails if `shutdown` is impossible; returns whether it shuts down the pair.
pub(crate) fn check_shutdown(descriptor: &Descriptor, how: c_int) -> Result<bool> {
    if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
        return Err(Errno(libc::EINVAL));
    }
    match descriptor.pages().status.state() {
        State::Connected | State::Ended | State::Lost => Ok(true),
        State::Listening | State::OneToManyListening => match how {
            libc::SHUT_WR => Ok(false),
            _ => Err(Errno(libc::EOPNOTSUPP)),
        },
        _ => Err(Errno(libc::ENOTCONN)),
    }
}

/// Notes the shutdown in the page, for all sharers of the descriptor.
pub(crate) fn note_shutdown(descriptor: &Descriptor, how: c_int) {
    if how != libc::SHUT_WR {
        descriptor.pages().sharers.on_reading_shut();
    }
    if how != libc::SHUT_RD {
        descriptor.pages().sharers.on_writing_shut();
    }
}
