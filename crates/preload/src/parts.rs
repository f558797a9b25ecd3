//! Lists of parts of memory for the kernel: a record's header in front of the parts of a program's buffer.

use carrier::record::PAYLOAD_BYTES_MAX;
use libc::iovec;

use crate::system::{self, Buffers};

/// Number of parts of a program's buffer up to which the list of parts fits on the stack.
const PARTS: usize = 16;

/// The way of the bytes of a program's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// Calls `f` with a list that has the header in front of the program's buffer.
pub(crate) fn with_header<T>(
    header: &mut [u8],
    buffers: Buffers<'_>,
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    let parts = buffers.as_slice();
    if let Some(room) = PARTS.checked_sub(parts.len()) {
        let mut iov = [Buffers::of(&mut []); PARTS + 1];
        iov[0] = Buffers::of(header);
        iov[1..=parts.len()].copy_from_slice(parts);
        f(&iov[..=PARTS - room])
    } else {
        with_header_and_many(header, parts, direction, f)
    }
}

/// Number of parts that the kernel takes in one call.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;
/// Largest length of the shortest pair of neighbours among parts that are one too many: all but the last are together
/// shorter than a payload, and each of them is in at most two pairs.
const PAIR_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX / (PARTS_MAX - 2) + 1;

/// Does the work of [`with_header`] for an unusual number of parts. The list lies on the stack, because a send waits in `f` and
/// may be cancelled there.
#[cold]
#[inline(never)]
fn with_header_and_many<T>(
    header: &mut [u8],
    parts: &[iovec],
    direction: Direction,
    f: impl FnOnce(&[iovec]) -> T,
) -> T {
    let mut iov = [Buffers::of(&mut []); PARTS_MAX + 1];
    iov[0] = Buffers::of(header);
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
    if count <= PARTS_MAX { f(&iov[..count]) } else { with_a_pair_joined(&mut iov, direction, f) }
}

/// Calls `f` with a list in which the shortest two neighbours are one part: with the header there was one part too many. Memory
/// of the program that is not there raises SIGSEGV where it is in these two.
fn with_a_pair_joined<T>(
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
    iov[at] = Buffers::of(&mut joined[..pair[0].iov_len + pair[1].iov_len]);
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
