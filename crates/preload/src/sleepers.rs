//! Calls that sleep on a descriptor while another thread closes it.
//!
//! In the kernel such a call keeps the socket and goes on: a message that comes afterwards is received. Here a call sleeps in one
//! system call and receives in another, for which the number is then closed, or is another file. So whoever closes a number on
//! which threads sleep makes a copy of the carrier first; each of these threads goes on with a copy of its own.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::system;

/// Threads of this process that sleep on one socket, and the copy of its carrier for them.
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

    /// Counts a thread out. The last one closes the copy.
    pub(crate) fn end(&self) {
        let before = self.update(|before| {
            let count = before.count - 1;
            Some(State { count, copy: before.copy.filter(|_| count > 0) })
        });
        if let Ok(State { count: 1, copy: Some(copy) }) = before {
            system::close(copy);
        }
    }

    /// Returns the copy of the carrier, if a number was closed on which threads sleep.
    pub(crate) fn copy(&self) -> Option<RawFd> {
        self.state().copy
    }

    /// Copies the carrier, which has this number and is about to lose it, if threads sleep on it and have no copy yet.
    pub(crate) fn keep(&self, fd: RawFd) {
        let needs_copy = |state: State| state.count > 0 && state.copy.is_none();
        if !needs_copy(self.state()) {
            return;
        }
        // Without a free descriptor, the threads find the number closed.
        let Ok(copy) = system::hidden_copy(fd) else { return };
        let with_copy = |state| needs_copy(state).then_some(State { copy: Some(copy), ..state });
        if self.update(with_copy).is_err() {
            system::close(copy);
        }
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
    fn the_last_sleeper_closes_the_one_copy() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let sleepers = Sleepers::new();
        sleepers.keep(fd);
        assert_eq!(sleepers.state(), State { count: 0, copy: None }, "nobody sleeps");
        sleepers.begin();
        sleepers.begin();
        sleepers.keep(fd);
        let copy = sleepers.state().copy.expect("a copy");
        sleepers.keep(fd);
        assert_eq!(sleepers.state(), State { count: 2, copy: Some(copy) });
        sleepers.end();
        assert_eq!(sleepers.state(), State { count: 1, copy: Some(copy) });
        sleepers.end();
        assert_eq!(sleepers.state(), State { count: 0, copy: None });
        assert!(!system::try_close(copy), "it was closed");
    }
}
