//! Notifications of the kernel about changes of interfaces and of addresses (rtnetlink).

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType};

const CHANGES: libc::c_int = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;

/// Subscribes to the changes in the network namespace of this thread.
pub(crate) fn subscribe() -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    socket::bind(fd.as_raw_fd(), &NetlinkAddr::new(0, CHANGES as u32))?;
    Ok(fd)
}

/// Drains the notifications, and returns whether there were any. Their contents do not matter, and lost ones
/// indicate changes, too.
pub(crate) fn has_news(changes: &OwnedFd) -> bool {
    let mut nothing = [0; 16];
    let mut news = false;
    loop {
        match socket::recv(changes.as_raw_fd(), &mut nothing, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => return news,
            Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => news = true,
            Err(_) => return true,
        }
    }
}
