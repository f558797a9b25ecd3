//! Waits that end on time.

use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::PATHS_MAX;

/// Longest time for which the thread spins before a packet is due, instead of sleeping.
const SPIN_NS_MAX: u64 = 50_000;
/// Each wait moves the estimate of a sleep's lateness by this fraction of the difference.
const ESTIMATE_SHARE: u64 = 8;
/// Longest sleep.
const SLEEP_NS_MAX: u64 = 1_000_000_000;

/// Devices that are readable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Woken {
    readable: [bool; 2 * PATHS_MAX],
}

impl Woken {
    /// Returns a value that reports every device.
    pub(super) fn all() -> Self {
        Woken { readable: [true; 2 * PATHS_MAX] }
    }

    /// Returns whether a device is readable.
    pub(super) fn readable(&self, device: usize) -> bool {
        self.readable[device]
    }
}

/// Waits, and estimates how late sleeps end on this machine: it sleeps that much less and spins for the rest.
#[derive(Debug)]
pub(super) struct Waiter {
    oversleep_ns: u64,
}

impl Waiter {
    pub(super) fn new() -> Self {
        Waiter { oversleep_ns: SPIN_NS_MAX / 2 }
    }

    /// Waits until `next_ns` on the clock `now_ns`, and up to `slack_ns` longer instead of spinning, or until a device or `wake`
    /// is readable. `None` is a device that is gone.
    pub(super) fn wait<'a>(
        &mut self,
        devices: impl Iterator<Item = Option<BorrowedFd<'a>>>,
        wake: BorrowedFd<'a>,
        next_ns: Option<u64>,
        slack_ns: u64,
        now_ns: impl Fn() -> u64,
    ) -> Woken {
        let mut polled = [const { None }; 2 * PATHS_MAX + 1];
        let mut count = 0;
        for descriptor in [Some(wake)].into_iter().chain(devices) {
            polled[count] = descriptor.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
            count += 1;
        }
        let mut polled = polled.map(|polled| polled.unwrap_or(PollFd::new(wake, PollFlags::empty())));
        let before_ns = now_ns();
        let left_ns = next_ns.map_or(SLEEP_NS_MAX, |next_ns| next_ns.saturating_sub(before_ns));
        // Packets that are due already leave no time to wait.
        let late_ns = if left_ns > 0 { left_ns + slack_ns } else { 0 };
        let sleep_ns = late_ns.saturating_sub(self.oversleep_ns.min(SPIN_NS_MAX)).min(SLEEP_NS_MAX);
        let timeout = TimeSpec::new((sleep_ns / 1_000_000_000) as _, (sleep_ns % 1_000_000_000) as _);
        let ready = ppoll(&mut polled[..count], Some(timeout), None).unwrap_or(0);
        if ready == 0 && left_ns < SLEEP_NS_MAX {
            self.spin(before_ns, sleep_ns, left_ns, now_ns);
        }
        let mut woken = Woken { readable: [false; 2 * PATHS_MAX] };
        for (readable, polled) in woken.readable.iter_mut().zip(&polled[1..count]) {
            *readable = polled.revents().is_some_and(|events| !events.is_empty());
        }
        woken
    }

    /// Spins for the rest of a wait whose sleep has ended, and updates the estimate of its lateness.
    fn spin(&mut self, before_ns: u64, sleep_ns: u64, left_ns: u64, now_ns: impl Fn() -> u64) {
        if sleep_ns > 0 {
            let oversleep_ns = now_ns().saturating_sub(before_ns + sleep_ns).min(SPIN_NS_MAX);
            let parts = ESTIMATE_SHARE - 1;
            self.oversleep_ns = (self.oversleep_ns * parts + oversleep_ns).div_ceil(ESTIMATE_SHARE);
        }
        while now_ns() < before_ns + left_ns {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;

    #[test]
    fn a_wait_ends_no_earlier_than_asked_and_at_once_for_what_is_readable() {
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("a descriptor");
        let (wake, device) = (event(), event());
        let started = Instant::now();
        let now_ns = || started.elapsed().as_nanos() as u64;
        let mut waiter = Waiter::new();
        for next_ns in [1_000_000, 1_010_000, 3_000_000] {
            let woken =
                waiter.wait([Some(device.as_fd())].into_iter(), wake.as_fd(), Some(next_ns), 0, now_ns);
            assert!(now_ns() >= next_ns);
            assert!(!woken.readable(0));
        }
        device.write(1).expect("room");
        let woken = waiter.wait([Some(device.as_fd())].into_iter(), wake.as_fd(), None, 0, now_ns);
        assert!(woken.readable(0) && !woken.readable(1));
    }
}
