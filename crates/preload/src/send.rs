//! Sending. What can be wrong is found before anything is handed over, in the page; then the kernel waits, or does not, as
//! the descriptor wants it.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use carrier::page::{Page, State};
use carrier::record::{Flags, Header, Kind, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use libc::c_int;

use crate::ancillary::SendInfo;
use crate::descriptor::Descriptor;
use crate::itself;
use crate::receive::with_header;
use crate::setup;
use crate::system::{self, Buffers, Errno, Result};

/// Sends one message, `to` an address if the program names one.
pub(crate) fn send(
    fd: RawFd,
    descriptor: &Descriptor,
    content: Buffers<'_>,
    info: &SendInfo,
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<usize> {
    let sent = match descriptor.page().state() {
        State::Many | State::ManyListening => send_to_one_of_many(fd, descriptor, content, info, to, flags),
        _ => send_to_peer(fd, descriptor, content, info, to, flags),
    };
    itself::sends(descriptor.page());
    if sent == Err(Errno(libc::EPIPE)) && flags & libc::MSG_NOSIGNAL == 0 {
        // AF_UNIX sockets of this type send none themselves.
        // SAFETY: it takes no memory.
        unsafe { libc::raise(libc::SIGPIPE) };
        Errno(libc::EPIPE).set();
    }
    sent
}

/// On a socket that has one association, or sets it up with this message.
fn send_to_peer(
    fd: RawFd,
    descriptor: &Descriptor,
    content: Buffers<'_>,
    info: &SendInfo,
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<usize> {
    let page = descriptor.page();
    // One that was peeled off has its peer, whatever is named.
    let is_peeled_off = page.style.load(Relaxed) == libc::SOCK_SEQPACKET as u32;
    let to = to.filter(|_| !is_peeled_off);
    check_flags(page, content, info, to)?;
    match (page.state(), to) {
        (State::Connected, Some(to)) if page.peer() != Some(to) => {
            let unknown = |_| Errno(libc::EADDRNOTAVAIL);
            setup::find_association(fd, to).map_err(unknown)?;
        }
        (State::Idle, Some(to)) => {
            setup::connect_with_message(fd, to, info.init)?;
        }
        _ => {}
    }
    if page.state() == State::Connecting && !system::is_nonblocking(fd) && flags & libc::MSG_DONTWAIT == 0 {
        setup::await_connection(fd, descriptor)?;
    }
    match page.state() {
        State::Connected if page.shut_writing.load(Relaxed) != 0 => return Err(Errno(libc::ESHUTDOWN)),
        State::Connected | State::Connecting => {}
        _ => {
            return Err(Errno(match page.take_error() {
                0 => libc::EPIPE,
                error => error,
            }));
        }
    }
    check_stream(info, &page.default_stream, &page.streams_out)?;
    hand_over(fd, content, info, 0, flags)
}

/// On a one-to-many socket, to the association that the program names, or one that begins with this message.
fn send_to_one_of_many(
    fd: RawFd,
    descriptor: &Descriptor,
    content: Buffers<'_>,
    info: &SendInfo,
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<usize> {
    let page = descriptor.page();
    check_flags(page, content, info, to)?;
    if info.to_all {
        return send_to_all(fd, page, content, info, flags);
    }
    let association = match to {
        Some(to) => association_with(fd, page, to, info)?,
        None if info.association > 0 => info.association,
        None => return Err(Errno(libc::EPIPE)),
    };
    send_to_association(fd, page, content, info, association, flags)
}

fn send_to_all(fd: RawFd, page: &Page, content: Buffers<'_>, info: &SendInfo, flags: c_int) -> Result<usize> {
    let all = page.entries().iter().map(|entry| entry.association.load(Relaxed)).filter(|id| *id > 0);
    for association in all {
        match send_to_association(fd, page, content, info, association, flags) {
            // It has ended meanwhile.
            Ok(_) | Err(Errno(libc::EPIPE)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(content.bytes())
}

fn send_to_association(
    fd: RawFd,
    page: &Page,
    content: Buffers<'_>,
    info: &SendInfo,
    association: u32,
    flags: c_int,
) -> Result<usize> {
    let waits = !system::is_nonblocking(fd) && flags & libc::MSG_DONTWAIT == 0;
    let bytes = content.bytes() as u32;
    loop {
        let entry = page.entries().iter().find(|entry| entry.association.load(Relaxed) == association);
        let Some(entry) = entry else {
            // There are more associations than entries, or this one is gone.
            setup::await_room(fd, association)?;
            return hand_over(fd, content, info, association, flags);
        };
        check_stream(info, &entry.default_stream, &entry.streams_out)?;
        if entry.reserve(bytes) {
            let sent = hand_over(fd, content, info, association, flags);
            if info.flags.contains(Flags::ABORT) && sent.is_ok() {
                // Who sends on, or asks, finds that it is gone.
                let _gone = setup::await_room(fd, association);
                return Ok(0);
            }
            return sent.inspect_err(|_| entry.give_back(bytes));
        }
        if !waits {
            return Err(Errno(libc::EAGAIN));
        }
        setup::await_room(fd, association)?;
    }
}

/// The association with a peer; it begins with this message if there is none.
fn association_with(fd: RawFd, page: &Page, to: SocketAddr, info: &SendInfo) -> Result<u32> {
    let known = page.entries().iter().find(|entry| entry.peer() == Some(to));
    if let Some(entry) = known
        && let id @ 1.. = entry.association.load(Relaxed)
    {
        return Ok(id);
    }
    match setup::find_association(fd, to) {
        Err(Errno(libc::ENOENT)) if ends(info) => Err(Errno(libc::EINVAL)),
        Err(Errno(libc::ENOENT)) => setup::connect_with_message(fd, to, info.init),
        found => found,
    }
}

/// Whether the message ends its association.
fn ends(info: &SendInfo) -> bool {
    info.flags.contains(Flags::SHUTDOWN) || info.flags.contains(Flags::ABORT)
}

fn check_flags(page: &Page, content: Buffers<'_>, info: &SendInfo, to: Option<SocketAddr>) -> Result<()> {
    let is_one_to_one = page.style.load(Relaxed) == libc::SOCK_STREAM as u32;
    let whole_max = page.whole_max.load(Relaxed) as usize;
    match content.bytes() {
        0 if !ends(info) => Err(Errno(libc::EINVAL)),
        1.. if info.flags.contains(Flags::SHUTDOWN) => Err(Errno(libc::EINVAL)),
        _ if is_one_to_one && ends(info) => Err(Errno(libc::EINVAL)),
        _ if info.overrides_address && to.is_none() => Err(Errno(libc::EINVAL)),
        MESSAGE_BYTES_MAX.. => Err(Errno(libc::EMSGSIZE)),
        bytes if whole_max > 0 && bytes > whole_max => Err(Errno(libc::EMSGSIZE)),
        _ => Ok(()),
    }
}

fn check_stream(info: &SendInfo, default: &AtomicU32, streams_out: &AtomicU32) -> Result<()> {
    let by_default = info.flags.contains(Flags::BY_DEFAULT);
    let stream = if by_default { default.load(Relaxed) } else { info.stream.into() };
    let streams_out = streams_out.load(Relaxed);
    let is_unknown = streams_out > 0 && stream >= streams_out;
    if is_unknown { Err(Errno(libc::EINVAL)) } else { Ok(()) }
}

fn hand_over(
    fd: RawFd,
    content: Buffers<'_>,
    info: &SendInfo,
    association: u32,
    flags: c_int,
) -> Result<usize> {
    let bytes = content.bytes();
    let mut header = Header {
        flags: info.flags.with(Flags::END),
        stream: info.stream,
        ppid: info.ppid,
        context: info.context,
        lifetime_ms: info.lifetime_ms,
        association,
        bytes: bytes as u32,
        ..Header::new(Kind::Data)
    };
    let flags = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if bytes <= PAYLOAD_BYTES_MAX {
        with_header(&mut header.encode(), content, |iov| {
            // SAFETY: the header and what the program has lent may be read.
            system::send(fd, unsafe { Buffers::new(iov) }, None, flags)
        })?;
        return Ok(bytes);
    }
    header.flags = header.flags.with(Flags::IN_MEMFD);
    let memfd = system::sealed_memfd(content)?;
    let header = header.encode();
    let iov = [Buffers::from(&header)];
    // SAFETY: the header may be read.
    let sent = system::send(fd, unsafe { Buffers::new(&iov) }, Some(memfd), flags);
    system::close(memfd);
    sent.map(|_| bytes)
}
