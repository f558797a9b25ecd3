//! Serial arithmetic for packet numbers. Each path numbers its packets from 0, and the numbers wrap.

/// Returns whether packet `a` left after packet `b`.
#[inline]
pub(crate) fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
