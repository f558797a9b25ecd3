//! Ancillary data of a message, in `msg_control`.

use std::mem::MaybeUninit;
use std::ptr;

use libc::{c_int, c_void, cmsghdr, msghdr};

use crate::SCTP;

const HEADER_BYTES: usize = size_of::<cmsghdr>();
/// Alignment of each entry.
const ALIGNMENT: usize = align_of::<cmsghdr>();

/// Buffer for `BYTES` bytes of entries.
#[repr(C, align(8))]
pub(crate) struct Control<const BYTES: usize> {
    bytes: [u8; BYTES],
    used: usize,
}

/// Returns the length of an entry with so much data.
pub(crate) const fn entry_bytes(data_bytes: usize) -> usize {
    (HEADER_BYTES + data_bytes).next_multiple_of(ALIGNMENT)
}

impl<const BYTES: usize> Control<BYTES> {
    pub(crate) fn new() -> Self {
        Control { bytes: [0; BYTES], used: 0 }
    }

    /// Adds an entry; returns false if it does not fit.
    ///
    /// # Safety
    ///
    /// `data` points to that many bytes.
    pub(crate) unsafe fn push(&mut self, kind: c_int, data: *const c_void, data_bytes: usize) -> bool {
        let Some(room) = self.bytes.get_mut(self.used..self.used + entry_bytes(data_bytes)) else {
            return false;
        };
        let header = cmsghdr { cmsg_len: HEADER_BYTES + data_bytes, cmsg_level: SCTP, cmsg_type: kind };
        // SAFETY: the buffer has room for header and data; the caller guarantees the data.
        unsafe {
            room.as_mut_ptr().cast::<cmsghdr>().write_unaligned(header);
            ptr::copy_nonoverlapping(data.cast(), room.as_mut_ptr().add(HEADER_BYTES), data_bytes);
        }
        self.used += entry_bytes(data_bytes);
        true
    }

    /// Attaches the entries to a message for sending.
    pub(crate) fn attach(&mut self, message: &mut msghdr) {
        if self.used > 0 {
            message.msg_control = self.bytes.as_mut_ptr().cast();
            message.msg_controllen = self.used;
        }
    }

    /// Attaches the whole buffer to a message to receive.
    pub(crate) fn lend(&mut self, message: &mut msghdr) {
        message.msg_control = self.bytes.as_mut_ptr().cast();
        message.msg_controllen = BYTES;
    }
}

/// Returns the first entry of a type beside a received message.
///
/// # Safety
///
/// The control data of the message is readable, and the data of such an entry is a `T`.
pub(crate) unsafe fn find<T: Copy>(message: &msghdr, kind: c_int) -> Option<T> {
    // SAFETY: the macros stay within the length in the message.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = entry.as_ref() {
            let is_whole = header.cmsg_len >= HEADER_BYTES + size_of::<T>();
            if (header.cmsg_level, header.cmsg_type) == (SCTP, kind) && is_whole {
                return Some(libc::CMSG_DATA(header).cast::<T>().read_unaligned());
            }
            entry = libc::CMSG_NXTHDR(message, entry);
        }
    }
    None
}

/// Returns a message without address, buffers and control data.
pub(crate) fn message() -> msghdr {
    // SAFETY: an all-zero msghdr is valid and refers to nothing.
    unsafe { MaybeUninit::<msghdr>::zeroed().assume_init() }
}
