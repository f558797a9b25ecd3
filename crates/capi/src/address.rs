//! Lists of addresses in the form that these functions take and return: each as long as its family requires, one behind the
//! other.

use libc::{c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6};

/// Returns the length of an address of a family; `None` if SCTP has no addresses of the family.
pub(crate) fn bytes_of(family: sa_family_t) -> Option<usize> {
    match c_int::from(family) {
        libc::AF_INET => Some(size_of::<sockaddr_in>()),
        libc::AF_INET6 => Some(size_of::<sockaddr_in6>()),
        _ => None,
    }
}

/// An address of a list, and its length.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) address: *const sockaddr,
    pub(crate) family: c_int,
    pub(crate) bytes: usize,
}

/// Iterates over the addresses of a list; ends at the first of an unknown family.
///
/// # Safety
///
/// `list` points to that many addresses, each as long as its family requires, and stays valid while the iterator is used.
pub(crate) unsafe fn entries(list: *const sockaddr, count: usize) -> impl Iterator<Item = Entry> {
    let mut at = list;
    (0..count).map_while(move |_| {
        // SAFETY: the caller guarantees it; the addresses of a list need not be aligned.
        let family = unsafe { (&raw const (*at).sa_family).read_unaligned() };
        let entry = Entry { address: at, family: family.into(), bytes: bytes_of(family)? };
        // SAFETY: the next one, or the end, follows it.
        at = unsafe { at.byte_add(entry.bytes) };
        Some(entry)
    })
}

/// Returns the length of a list; `None` if it is empty or has an address of an unknown family.
///
/// # Safety
///
/// The caller meets the requirements of [`entries`]; `list` may be null.
pub(crate) unsafe fn list_bytes(list: *const sockaddr, count: c_int) -> Option<usize> {
    let count = usize::try_from(count).ok().filter(|count| *count > 0 && !list.is_null())?;
    // SAFETY: the caller guarantees it.
    let (known, bytes) = unsafe { entries(list, count) }
        .fold((0, 0), |(known, bytes), entry| (known + 1, bytes + entry.bytes));
    (known == count).then_some(bytes)
}
