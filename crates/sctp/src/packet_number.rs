//! Serial arithmetic for packet numbers. Each path numbers its packets from 0, and the numbers wrap.

/// Returns whether packet `a` left after packet `b`.
#[inline]
pub(crate) fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// Number of packets that a mark may lie behind the newest one.
const BEHIND_MAX: u32 = 1 << 30;

/// Keeps `mark` at most [`BEHIND_MAX`] packets behind packet `newest`. Numbers wrap: 2³¹ packets later it would lie ahead.
#[inline]
pub(crate) fn follow(mark: &mut u32, newest: u32) {
    let least = newest.wrapping_sub(BEHIND_MAX);
    if after(least, *mark) {
        *mark = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_behind_however_many_packets_follow() {
        let (mut mark, mut newest) = (5, 5_u32);
        for _ in 0..10 {
            newest = newest.wrapping_add(BEHIND_MAX);
            follow(&mut mark, newest);
            assert!(after(newest, mark));
        }
        let mut near = newest - 1;
        follow(&mut near, newest);
        assert_eq!(near, newest - 1);
        let mut ahead = newest + 1;
        follow(&mut ahead, newest);
        assert_eq!(ahead, newest + 1);
    }
}
