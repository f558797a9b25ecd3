//! Calls that sleep on a descriptor while another thread closes it.
//!
//! In the kernel such a call keeps the socket and continues: a message that comes afterwards is received. Here a call sleeps in
//! one system call and receives in another, for which the number is then closed, or is another file. So the thread that closes
//! a number on which others sleep makes a copy of the pair first; each of the others continues with a copy of its own.
//! The [`table`](crate::table) knows copies as lent: a call may sleep again on its copy, and a child of `fork`, which has
//! no other threads, closes them.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Threads of this process that sleep on one socket, and the copy of its pair for them.
pub(crate) struct Sleepers(AtomicU64);

/// Value of [`Sleepers`], unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    count: u32,
    copy: Option<RawFd>,
}

impl State {
    fn unpack(packed: u64) -> State {
        let copy = (packed >> 32) as u32;
        State { count: packed as u32, copy: copy.checked_sub(1).map(u32::cast_signed) }
    }

    fn pack(self) -> u64 {
        let copy = self.copy.map_or(0, |copy| copy.cast_unsigned() + 1);
        u64::from(copy) << 32 | u64::from(self.count)
    }

    fn needs_copy(self) -> bool {
        self.count > 0 && self.copy.is_none()
    }
}

impl Sleepers {
    pub(crate) fn new() -> Sleepers {
        Sleepers(AtomicU64::new(0))
    }

    fn state(&self) -> State {
        State::unpack(self.0.load(SeqCst))
    }

    /// Replaces the state by what `change` makes of it, unless it returns `None`; returns the state before.
    fn update(&self, change: impl Fn(State) -> Option<State>) -> core::result::Result<State, State> {
        let packed = |value| change(State::unpack(value)).map(State::pack);
        self.0.fetch_update(SeqCst, SeqCst, packed).map(State::unpack).map_err(State::unpack)
    }

    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// Counts a thread out. Returns the copy after the last one: the caller closes it. A thread that has forked in the
    /// handler of a signal is not counted in the child.
    #[must_use]
    pub(crate) fn end(&self) -> Option<RawFd> {
        let before = self.update(|before| {
            let count = before.count.checked_sub(1)?;
            Some(State { count, copy: before.copy.filter(|_| count > 0) })
        });
        before.ok().filter(|before| before.count == 1)?.copy
    }

    /// Forgets all threads, and the copy for them.
    pub(crate) fn forget(&self) {
        self.0.store(0, SeqCst);
    }

    /// Returns the copy of the pair, if there is one for threads that sleep.
    pub(crate) fn copy(&self) -> Option<RawFd> {
        self.state().copy
    }

    /// Returns whether threads sleep and have no copy.
    pub(crate) fn need_copy(&self) -> bool {
        self.state().needs_copy()
    }

    /// Takes a copy for the threads that sleep. Returns false if they need none: the caller closes it.
    pub(crate) fn take(&self, copy: RawFd) -> bool {
        self.update(|state| state.needs_copy().then_some(State { copy: Some(copy), ..state })).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_packed_and_unpacked() {
        for state in [
            State { count: 0, copy: None },
            State { count: u32::MAX, copy: Some(0) },
            State { count: 1, copy: Some(RawFd::MAX) },
        ] {
            assert_eq!(State::unpack(state.pack()), state);
        }
    }

    #[test]
    fn the_last_sleeper_returns_the_one_copy() {
        let sleepers = Sleepers::new();
        assert!(!sleepers.need_copy() && !sleepers.take(7), "nobody sleeps");
        sleepers.begin();
        sleepers.begin();
        assert!(sleepers.need_copy() && sleepers.take(7));
        assert!(!sleepers.need_copy() && !sleepers.take(8));
        assert_eq!(sleepers.state(), State { count: 2, copy: Some(7) });
        assert_eq!(sleepers.end(), None);
        assert_eq!(sleepers.state(), State { count: 1, copy: Some(7) });
        assert_eq!(sleepers.end(), Some(7));
        assert_eq!(sleepers.state(), State { count: 0, copy: None });
        assert_eq!(sleepers.end(), None);
    }
}
