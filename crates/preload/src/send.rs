//! Sending. What can be wrong is found before anything is handed over, in the page; then the kernel waits, or does not, as
//! the descriptor wants it.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use carrier::page::State;
use carrier::record::{Flags, Header, Kind, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use libc::c_int;

use crate::ancillary::SendInfo;
use crate::descriptor::Descriptor;
use crate::receive::with_header;
use crate::system::{self, Buffers, Errno, Result};

/// Sends one message.
pub(crate) fn send(
    fd: RawFd,
    descriptor: &Descriptor,
    content: Buffers<'_>,
    info: &SendInfo,
    flags: c_int,
) -> Result<usize> {
    let sent = check(descriptor, content, info).and_then(|()| hand_over(fd, content, info, flags));
    if sent == Err(Errno(libc::EPIPE)) && flags & libc::MSG_NOSIGNAL == 0 {
        // AF_UNIX sockets of this type send none themselves.
        // SAFETY: it takes no memory.
        unsafe { libc::raise(libc::SIGPIPE) };
        Errno(libc::EPIPE).set();
    }
    sent
}

fn check(descriptor: &Descriptor, content: Buffers<'_>, info: &SendInfo) -> Result<()> {
    let page = descriptor.page();
    match page.state() {
        State::Connected | State::Connecting => {}
        State::Idle | State::Listening | State::Ended => {
            return Err(Errno(match page.take_error() {
                0 => libc::EPIPE,
                error => error,
            }));
        }
    }
    let streams = page.streams_out.load(Relaxed);
    let may_be_empty = info.flags.contains(Flags::SHUTDOWN) || info.flags.contains(Flags::ABORT);
    match content.bytes() {
        0 if !may_be_empty => Err(Errno(libc::EINVAL)),
        MESSAGE_BYTES_MAX.. => Err(Errno(libc::EMSGSIZE)),
        _ if u32::from(info.stream) >= streams && streams > 0 => Err(Errno(libc::EINVAL)),
        _ => Ok(()),
    }
}

fn hand_over(fd: RawFd, content: Buffers<'_>, info: &SendInfo, flags: c_int) -> Result<usize> {
    let bytes = content.bytes();
    let mut header = Header {
        flags: info.flags.with(Flags::END),
        stream: info.stream,
        ppid: info.ppid,
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
