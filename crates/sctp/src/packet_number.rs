//! The numbers of packets.

/// Number of a packet of one path. Each path numbers its packets from 0 in the order of sending.
///
/// The numbers wrap, so they have no order (`Ord`): [`PacketNumber::is_after`] compares them by serial arithmetic, which is right
/// for numbers less than 2³¹ packets apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketNumber(u32);

/// Number of packets that a mark may lie behind the newest one.
const BEHIND_MAX: u32 = 1 << 30;

impl PacketNumber {
    /// Returns the packet number with this value.
    #[inline]
    pub const fn new(value: u32) -> Self {
        PacketNumber(value)
    }

    /// Returns the value.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns whether this packet left after `other`.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// Returns the number of the packet that leaves this many packets later.
    #[inline]
    pub const fn plus(self, packets: u32) -> Self {
        PacketNumber(self.0.wrapping_add(packets))
    }

    /// Returns the number of the next packet.
    #[inline]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns how many packets later than `earlier` this one left.
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Keeps a mark at most [`BEHIND_MAX`] packets behind packet `newest`: 2³¹ packets later it would lie ahead.
    #[inline]
    pub(crate) fn follow(&mut self, newest: Self) {
        let least = PacketNumber(newest.0.wrapping_sub(BEHIND_MAX));
        if least.is_after(*self) {
            *self = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_behind_however_many_packets_follow() {
        let (mut mark, mut newest) = (PacketNumber(5), PacketNumber(5));
        for _ in 0..10 {
            newest = newest.plus(BEHIND_MAX);
            mark.follow(newest);
            assert!(newest.is_after(mark));
        }
        let before = PacketNumber(newest.0.wrapping_sub(1));
        let mut near = before;
        near.follow(newest);
        assert_eq!(near, before);
        let mut ahead = newest.next();
        ahead.follow(newest);
        assert_eq!(ahead, newest.next());
    }

    #[test]
    fn numbers_compare_across_the_wrap() {
        let (last, first) = (PacketNumber(u32::MAX), PacketNumber(0));
        assert_eq!((last.next(), first.since(last)), (first, 1));
        assert!(first.is_after(last) && !last.is_after(first) && !first.is_after(first));
    }
}
