//! The page as the daemon sees it: a memfd that it writes field by field and never reads.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carrier::page::{PAGE_BYTES, Page as Layout, State, Wants};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};

pub(crate) struct Page(OwnedFd);

impl Page {
    /// A page of a one-to-one socket.
    pub(crate) fn new(v6: bool, state: State) -> Result<Page, Errno> {
        let memfd = memfd_create("swiftwater-page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, PAGE_BYTES as u64)?;
        // Who maps it must not find that the other has cut it.
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = Page(memfd);
        let family = if v6 { AF_INET6 } else { AF_INET };
        let identity = [u32::from(carrier::VERSION), family, SOCK_STREAM].map(u32::to_ne_bytes);
        page.write(Layout::IDENTITY_AT, identity.as_flattened());
        page.set_state(state);
        Ok(page)
    }

    pub(crate) fn set_state(&self, state: State) {
        self.write(Layout::STATE_AT, &(state as u32).to_ne_bytes());
    }

    pub(crate) fn set_error(&self, error: Errno) {
        self.write(Layout::ERROR_AT, &error.raw_os_error().to_ne_bytes());
    }

    pub(crate) fn set_wants(&self, wants: Wants) {
        self.write(Layout::WANTS_AT, &wants.0.to_ne_bytes());
    }

    pub(crate) fn set_peer(&self, peer: &SocketAddr, streams_out: u16) {
        self.write(Layout::PEER_AT, &Layout::encode_peer(peer));
        self.write(Layout::STREAMS_OUT_AT, &u32::from(streams_out).to_ne_bytes());
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        // The page has its size for good, so nothing is left over, and its memory was there when it was made or is needed now.
        let _ = pwrite(&self.0, bytes, at);
    }
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const AF_INET: u32 = rustix::net::AddressFamily::INET.as_raw() as u32;
const AF_INET6: u32 = rustix::net::AddressFamily::INET6.as_raw() as u32;
const SOCK_STREAM: u32 = rustix::net::SocketType::STREAM.as_raw();
