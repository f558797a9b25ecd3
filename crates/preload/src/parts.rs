//! Lists of parts of memory for the kernel: a record's header in front of the parts of a program's buffer.

use std::ptr;

use channel_protocol::record::PAYLOAD_BYTES_MAX;
use libc::iovec;

use crate::system::{self, Buffers, Content};

/// Number of parts of a program's buffer up to which the list of parts fits on the stack.
const PARTS: usize = 16;

const NOTHING: iovec = iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// The way of the bytes of a program's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// Calls `f` with a list that has the header in front of the program's buffers, to receive a record.
pub(crate) fn received_behind<T>(
    header: &mut [u8],
    buffers: Buffers<'_>,
    f: impl FnOnce(Buffers<'_>) -> T,
) -> T {
    let header = iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
    // SAFETY: header and buffers may be written while `f` runs.
    unsafe { with_first(header, buffers.as_iov(), Direction::In, |iov| f(Buffers::of_program(iov))) }
}

/// Calls `f` with a list that has the header in front of the program's content, to send a record.
pub(crate) fn sent_behind<T>(header: &[u8], content: Content<'_>, f: impl FnOnce(Content<'_>) -> T) -> T {
    let header = iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() };
    // SAFETY: header and content may be read while `f` runs, and nothing writes them in this direction.
    unsafe { with_first(header, content.as_iov(), Direction::Out, |iov| f(Content::of_program(iov))) }
}

/// Calls `f` with a list that has `first` in front of `parts`.
///
/// # Safety
///
/// The program has lent the memory of all parts, to be written if the direction is in.
unsafe fn with_first<T>(
    first: iovec,
    parts: &[iovec],
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    if let Some(room) = PARTS.checked_sub(parts.len()) {
        let mut iov = [NOTHING; PARTS + 1];
        iov[0] = first;
        iov[1..=parts.len()].copy_from_slice(parts);
        f(&iov[..=PARTS - room])
    } else {
        // SAFETY: the caller guarantees it.
        unsafe { with_first_and_many(first, parts, direction, f) }
    }
}

/// Number of parts that the kernel takes in one call.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;
/// Largest length of the shortest pair of neighbours among parts that are one too many: all but the last are together
/// shorter than a payload, and each of them is in at most two pairs.
const PAIR_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX / (PARTS_MAX - 2) + 1;

/// Does the work of [`with_first`] for an unusual number of parts. The list lies on the stack, because a send waits in `f` and
/// may be cancelled there.
///
/// # Safety
///
/// The caller meets the requirements of [`with_first`].
#[cold]
#[inline(never)]
unsafe fn with_first_and_many<T>(
    first: iovec,
    parts: &[iovec],
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    let mut iov = [NOTHING; PARTS_MAX + 1];
    iov[0] = first;
    let (mut count, mut bytes) = (1, 0_usize);
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        // A record has nothing for the parts behind its longest payload.
        if bytes >= PAYLOAD_BYTES_MAX {
            break;
        }
        iov[count] = *part;
        count += 1;
        bytes = bytes.saturating_add(part.iov_len);
    }
    match count <= PARTS_MAX {
        true => f(&iov[..count]),
        // SAFETY: the caller guarantees it.
        false => unsafe { with_a_pair_joined(&mut iov, direction, f) },
    }
}

/// Calls `f` with a list in which the shortest two neighbours are one part: with the header there was one part too many. Memory
/// of the program that is not there raises SIGSEGV where it is in these two.
///
/// # Safety
///
/// The caller meets the requirements of [`with_first`].
unsafe fn with_a_pair_joined<T>(
    iov: &mut [iovec; PARTS_MAX + 1],
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    let pair_bytes = |at: &usize| iov[*at].iov_len.saturating_add(iov[at + 1].iov_len);
    let can_join = |at: &usize| iov[*at..=at + 1].iter().all(|part| system::can_be_bytes(part.iov_base));
    let shortest = (1..PARTS_MAX).filter(can_join).min_by_key(pair_bytes);
    let Some(at) = shortest.filter(|at| pair_bytes(at) <= PAIR_BYTES_MAX) else {
        // The kernel refuses the list.
        return f(iov);
    };
    let pair = [iov[at], iov[at + 1]];
    let mut joined = [0_u8; PAIR_BYTES_MAX];
    let (first, second) = joined.split_at_mut(pair[0].iov_len);
    // Bytes that the kernel does not write go back unchanged.
    // SAFETY: the program has lent the memory, and `joined` has room for both parts.
    unsafe {
        first.as_mut_ptr().copy_from_nonoverlapping(pair[0].iov_base.cast(), pair[0].iov_len);
        second.as_mut_ptr().copy_from_nonoverlapping(pair[1].iov_base.cast(), pair[1].iov_len);
    }
    iov[at] = iovec { iov_base: joined.as_mut_ptr().cast(), iov_len: pair[0].iov_len + pair[1].iov_len };
    iov.copy_within(at + 2.., at + 1);
    let done = f(&iov[..PARTS_MAX]);
    if direction == Direction::In {
        let (first, second) = joined.split_at(pair[0].iov_len);
        // SAFETY: as above, and the program has lent the memory to be written.
        unsafe {
            pair[0].iov_base.cast::<u8>().copy_from_nonoverlapping(first.as_ptr(), pair[0].iov_len);
            pair[1].iov_base.cast::<u8>().copy_from_nonoverlapping(second.as_ptr(), pair[1].iov_len);
        }
    }
    done
}
