//! Conversion between `struct sockaddr` and Rust addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::Ordering::Relaxed;

use channel_protocol::request::ADDRESSES_MAX;
use channel_protocol::status_page::Subscriptions;
use libc::{c_int, sockaddr, socklen_t};

use crate::descriptor::Descriptor;
use crate::system::{Errno, Result, can_be_bytes};

/// Reads an address that a program passes.
///
/// # Safety
///
/// `address` points to `bytes` bytes, or is null.
pub(crate) unsafe fn read(address: *const sockaddr, bytes: socklen_t) -> Result<SocketAddr> {
    // SAFETY: the caller guarantees it.
    match unsafe { family(address, bytes) }? {
        libc::AF_INET if bytes as usize >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: that many bytes are readable.
            let a = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into())
        }
        libc::AF_INET6 if bytes as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: that many bytes are readable.
            let a = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            Ok(channel_protocol::address::v6(ip, u16::from_be(a.sin6_port), a.sin6_scope_id))
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Returns the family of an address that a program passes.
///
/// # Safety
///
/// `address` points to `bytes` bytes, or is null.
pub(crate) unsafe fn family(address: *const sockaddr, bytes: socklen_t) -> Result<c_int> {
    let lengths = size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>();
    if !lengths.contains(&(bytes as usize)) {
        return Err(Errno(libc::EINVAL));
    }
    if !can_be_bytes(address) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the family is there.
    Ok(c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() }))
}

/// Returns an address in the form that the daemon uses for this socket: IPv6 sockets have IPv4 addresses mapped.
pub(crate) fn as_seen(descriptor: &Descriptor, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if descriptor.pages().status.family.load(Relaxed) == libc::AF_INET6 as u32 => {
            SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
        }
        _ => address,
    }
}

/// Returns an address in the form that the program has asked for.
pub(crate) fn as_wanted(descriptor: &Descriptor, address: SocketAddr) -> SocketAddr {
    let subscriptions = Subscriptions(descriptor.pages().status.subscriptions.load(Relaxed));
    match address.ip().to_canonical() {
        IpAddr::V4(ip) if subscriptions.contains(Subscriptions::OWN_V4) => {
            SocketAddr::new(ip.into(), address.port())
        }
        _ => address,
    }
}

/// Reads addresses that follow each other in memory; reads at most one more than the limit.
///
/// # Safety
///
/// `addresses` points to `bytes` bytes, or is null.
pub(crate) unsafe fn read_list(addresses: *const sockaddr, bytes: usize) -> Result<Vec<SocketAddr>> {
    let mut list = Vec::new();
    let mut at = 0;
    while at < bytes && list.len() <= ADDRESSES_MAX {
        let left = (bytes - at).min(size_of::<libc::sockaddr_storage>()) as socklen_t;
        // SAFETY: as many bytes are left.
        let next = unsafe { read(addresses.byte_add(at), left) }?;
        at += match next {
            SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
            SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
        };
        list.push(next);
    }
    Ok(list)
}

/// Writes an address for a program whose buffer has `*bytes` bytes, and sets `*bytes` to the address's length.
///
/// # Safety
///
/// `to` points to `*bytes` bytes, or is null.
pub(crate) unsafe fn write(address: SocketAddr, to: *mut sockaddr, bytes: *mut socklen_t) -> Result<()> {
    if !can_be_bytes(bytes) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller guarantees it.
    match unsafe { *bytes }.cast_signed() {
        ..=-1 => return Err(Errno(libc::EINVAL)),
        1.. if !can_be_bytes(to) => return Err(Errno(libc::EFAULT)),
        _ => {}
    }
    match address {
        SocketAddr::V4(a) => {
            // SAFETY: an all-zero address structure is valid.
            let mut out: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            out.sin_family = libc::AF_INET as libc::sa_family_t;
            out.sin_port = a.port().to_be();
            out.sin_addr.s_addr = u32::from(*a.ip()).to_be();
            // SAFETY: the caller guarantees it.
            unsafe { put(&out, to, bytes) };
        }
        SocketAddr::V6(a) => {
            // SAFETY: an all-zero address structure is valid.
            let mut out: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            out.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            out.sin6_port = a.port().to_be();
            out.sin6_addr.s6_addr = a.ip().octets();
            out.sin6_scope_id = a.scope_id();
            // SAFETY: the caller guarantees it.
            unsafe { put(&out, to, bytes) };
        }
    }
    Ok(())
}

/// # Safety
///
/// The caller meets the requirements of [`write`], and `bytes` is not null.
unsafe fn put<T>(out: &T, to: *mut sockaddr, bytes: *mut socklen_t) {
    // SAFETY: the copy stays within the program's buffer.
    unsafe {
        let room = (*bytes as usize).min(size_of::<T>());
        if room > 0 {
            std::ptr::copy_nonoverlapping((&raw const *out).cast::<u8>(), to.cast::<u8>(), room);
        }
        *bytes = size_of::<T>() as socklen_t;
    }
}
