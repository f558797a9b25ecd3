//! The private socket options behind libsctp's `sctp_connectx` and `sctp_peeloff`, as C structures.

use std::os::fd::RawFd;
use std::ptr;

use channel_protocol::abi::SCTP_SOCKOPT_PEELOFF;
use channel_protocol::assoc_id::AssocId;
use libc::{c_int, sockaddr};

use crate::descriptor::Descriptor;
use crate::system::{Errno, Result};
use crate::{address, cancel, setup};

/// Length of `sctp_peeloff_flags_arg_t`, which begins with `sctp_peeloff_arg_t`.
const PEELOFF_BYTES: usize = 8;
const PEELOFF_FLAGS_BYTES: usize = 12;

/// `struct sctp_getaddrs_old`.
#[repr(C)]
struct Listed {
    association: c_int,
    /// Length in bytes; the kernel's name says otherwise.
    bytes: c_int,
    addresses: *const sockaddr,
}

/// Peels off the association that the value of `SCTP_SOCKOPT_PEELOFF` or `SCTP_SOCKOPT_PEELOFF_FLAGS` names.
pub(crate) fn peel_off(fd: RawFd, descriptor: &Descriptor, name: c_int, given: &[u8]) -> Result<RawFd> {
    let expected = if name == SCTP_SOCKOPT_PEELOFF { PEELOFF_BYTES } else { PEELOFF_FLAGS_BYTES };
    let given = given.get(..expected).ok_or(Errno(libc::EINVAL))?;
    let mut words = given.as_chunks::<4>().0.iter().map(|word| c_int::from_ne_bytes(*word));
    let assoc_id = AssocId::from_assoc_t(words.next().unwrap_or(0));
    let flags = words.nth(1).unwrap_or(0);
    setup::peel_off(fd, descriptor, assoc_id, flags)
}

/// Connects to the addresses in the value of `SCTP_SOCKOPT_CONNECTX`. Returns the association, if one was begun, and the outcome.
pub(crate) fn connect(fd: RawFd, descriptor: &Descriptor, list: &[u8]) -> Result<(AssocId, Result<()>)> {
    // SAFETY: that many bytes are readable.
    let peer = unsafe { address::read_list(list.as_ptr().cast(), list.len()) }?;
    Ok(cancel::disabled(|| setup::connect(fd, descriptor, &peer)))
}

/// Connects to the addresses that the value of `SCTP_SOCKOPT_CONNECTX3` points to.
///
/// # Safety
///
/// The pointer in `given` points to as many bytes as `given` says.
pub(crate) unsafe fn connect_listed(
    fd: RawFd,
    descriptor: &Descriptor,
    given: &[u8],
) -> (AssocId, Result<()>) {
    if given.len() < size_of::<Listed>() {
        return (AssocId::NONE, Err(Errno(libc::EINVAL)));
    }
    // SAFETY: that many bytes are readable, and any bytes are a valid `Listed`.
    let listed = unsafe { ptr::read_unaligned(given.as_ptr().cast::<Listed>()) };
    let bytes = usize::try_from(listed.bytes).unwrap_or(0);
    // SAFETY: the caller guarantees it.
    match unsafe { address::read_list(listed.addresses, bytes) } {
        Ok(peer) => cancel::disabled(|| setup::connect(fd, descriptor, &peer)),
        Err(error) => (AssocId::NONE, Err(error)),
    }
}
