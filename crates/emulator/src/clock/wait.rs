//! Waits that end on time.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::PATHS_MAX;

/// Longest time for which the thread spins before a packet is due, instead of sleeping.
const SPIN_NS_MAX: u64 = 50_000;
/// Each wait moves the estimate of a sleep's lateness by this fraction of the difference.
const ESTIMATE_SHARE: u64 = 8;
/// A call that takes longer has slept.
const SLEPT_NS_MIN: u64 = 20_000;
/// Delays of the thread up to this sum are not read by themselves, because a read costs as much as a short packet: a sleep that a
/// device has ended may be charged with them.
const UNREAD_NS_MAX: u64 = 100_000;
/// Longest sleep.
const SLEEP_NS_MAX: u64 = 1_000_000_000;

/// Descriptors that are readable, as a wait has found them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// Whether a request has come.
    woken: bool,
    readable: [bool; 2 * PATHS_MAX],
    /// Moment until which the devices that are readable were empty, if the wait has slept.
    asleep_until_ns: Option<u64>,
    /// Moment at which the others were empty, if the wait has looked.
    looked_ns: Option<u64>,
}

impl Ready {
    /// Returns a value that reports every device, and a request.
    pub(super) fn all() -> Self {
        Ready { woken: true, readable: [true; 2 * PATHS_MAX], ..Ready::none() }
    }

    /// Returns a value that reports neither a device nor a request, and knows of no device whether it is empty.
    fn none() -> Self {
        Ready { woken: false, readable: [false; 2 * PATHS_MAX], asleep_until_ns: None, looked_ns: None }
    }

    /// Returns whether a request has come.
    pub(super) fn is_woken(&self) -> bool {
        self.woken
    }

    /// Returns whether a device is readable.
    pub(super) fn is_readable(&self, device: usize) -> bool {
        self.readable[device]
    }

    /// Returns the latest moment at which a device is known to have been empty, if the wait tells any.
    pub(super) fn empty_ns(&self, device: usize) -> Option<u64> {
        if self.readable[device] { self.asleep_until_ns } else { self.asleep_until_ns.or(self.looked_ns) }
    }
}

/// Waits, and estimates how late sleeps end on this machine: it sleeps that much less and spins for the rest.
#[derive(Debug)]
pub(super) struct Waiter {
    oversleep_ns: u64,
    run_delay: RunDelay,
}

impl Waiter {
    /// Makes the waiter of the calling thread.
    pub(super) fn new() -> Self {
        Waiter { oversleep_ns: SPIN_NS_MAX / 2, run_delay: RunDelay::open() }
    }

    /// Waits until `next_ns` on the clock `now_ns`, and up to `slack_ns` longer instead of spinning, or until a device or `wake`
    /// is readable. `None` is a device that was deleted.
    pub(super) fn wait<'a>(
        &mut self,
        devices: impl Iterator<Item = Option<BorrowedFd<'a>>>,
        wake: BorrowedFd<'a>,
        next_ns: Option<u64>,
        slack_ns: u64,
        now_ns: impl Fn() -> u64,
    ) -> Ready {
        let sleep = |polled: &mut [PollFd<'_>], timeout| ppoll(polled, Some(timeout), None);
        self.wait_with(devices, wake, next_ns, slack_ns, now_ns, sleep)
    }

    /// Waits with this call, which sleeps until a descriptor is ready or time is up, and returns the number of descriptors.
    fn wait_with<'a>(
        &mut self,
        devices: impl Iterator<Item = Option<BorrowedFd<'a>>>,
        wake: BorrowedFd<'a>,
        next_ns: Option<u64>,
        slack_ns: u64,
        now_ns: impl Fn() -> u64,
        sleep: impl FnOnce(&mut [PollFd<'_>], TimeSpec) -> nix::Result<i32>,
    ) -> Ready {
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
        let mut ready = Ready { looked_ns: Some(before_ns), ..Ready::none() };
        match sleep(&mut polled[..count], timeout) {
            Ok(0) => {
                ready.asleep_until_ns = Some(before_ns + sleep_ns);
                let oversleep_ns =
                    if sleep_ns > 0 { now_ns().saturating_sub(before_ns + sleep_ns) } else { 0 };
                self.run_delay.skip(oversleep_ns);
                if left_ns < SLEEP_NS_MAX {
                    self.spin(before_ns, sleep_ns, left_ns, oversleep_ns, now_ns);
                }
            }
            // A device has ended the sleep, or was readable from the start: a packet may have come since the last look.
            Ok(_) => {
                let after_ns = now_ns();
                let slept = sleep_ns > 0 && after_ns - before_ns > SLEPT_NS_MIN;
                let awake_ns = || after_ns.saturating_sub(self.run_delay.since_last_ns()).max(before_ns);
                ready.asleep_until_ns = slept.then(awake_ns);
            }
            // The sleep was shorter than asked, by an unknown time: the caller computes the next one.
            Err(_) => return Ready::none(),
        }
        let has_events = |polled: &PollFd<'_>| polled.revents().is_some_and(|events| !events.is_empty());
        ready.woken = has_events(&polled[0]);
        for (readable, polled) in ready.readable.iter_mut().zip(&polled[1..count]) {
            *readable = has_events(polled);
        }
        ready
    }

    /// Spins for the rest of a wait whose sleep has ended, and updates the estimate of its lateness.
    fn spin(
        &mut self,
        before_ns: u64,
        sleep_ns: u64,
        left_ns: u64,
        oversleep_ns: u64,
        now_ns: impl Fn() -> u64,
    ) {
        debug_assert!(left_ns.saturating_sub(sleep_ns) <= SPIN_NS_MAX, "spins for {left_ns} - {sleep_ns} ns");
        if sleep_ns > 0 {
            let parts = ESTIMATE_SHARE - 1;
            let oversleep_ns = oversleep_ns.min(SPIN_NS_MAX);
            self.oversleep_ns = (self.oversleep_ns * parts + oversleep_ns).div_ceil(ESTIMATE_SHARE);
        }
        while now_ns() < before_ns + left_ns {
            std::hint::spin_loop();
        }
    }
}

/// Reads how long the calling thread has waited for a processor while it was able to run: after the packet that has ended its
/// sleep had come, for example.
#[derive(Debug)]
struct RunDelay {
    /// `None` if the kernel does not tell.
    statistics: Option<File>,
    total_ns: u64,
    /// Upper limit of the delay since the last read, without that of the present sleep.
    unread_ns: u64,
}

impl RunDelay {
    fn open() -> Self {
        let mut delay = RunDelay {
            statistics: File::open("/proc/thread-self/schedstat").ok(),
            total_ns: 0,
            unread_ns: 0,
        };
        delay.since_last_ns();
        delay
    }

    /// Leaves out a sleep whose delay is at most this.
    fn skip(&mut self, delay_ns_max: u64) {
        self.unread_ns += delay_ns_max;
        if self.unread_ns > UNREAD_NS_MAX {
            self.since_last_ns();
        }
    }

    /// Returns the delay since the last call.
    fn since_last_ns(&mut self) -> u64 {
        self.unread_ns = 0;
        let mut text = [0; 64];
        let bytes = self.statistics.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let total_ns = run_delay_ns(&text[..bytes]).unwrap_or(self.total_ns);
        total_ns - std::mem::replace(&mut self.total_ns, total_ns).min(total_ns)
    }
}

/// Returns the second number of `/proc/PID/schedstat`: processor time, delay and number of times that the thread was run.
fn run_delay_ns(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::AsFd;
    use std::time::Instant;

    use nix::errno::Errno;
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
            let ready =
                waiter.wait([Some(device.as_fd())].into_iter(), wake.as_fd(), Some(next_ns), 0, now_ns);
            assert!(now_ns() >= next_ns);
            assert!(!ready.is_readable(0));
        }
        device.write(1).expect("room");
        let ready = waiter.wait([Some(device.as_fd())].into_iter(), wake.as_fd(), None, 0, now_ns);
        assert!(ready.is_readable(0) && !ready.is_readable(1) && !ready.is_woken());
        wake.write(1).expect("room");
        let ready = waiter.wait([None].into_iter(), wake.as_fd(), None, 0, now_ns);
        assert!(ready.is_woken() && !ready.is_readable(0));
    }

    #[test]
    fn a_sleep_that_a_signal_ends_is_neither_spun_out_nor_counted() {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("a descriptor");
        let mut waiter = Waiter::new();
        let estimate_ns = waiter.oversleep_ns;
        let looks = Cell::new(0);
        // A clock that reaches the end of the wait only if somebody spins.
        let now_ns = || {
            looks.set(looks.get() + 1);
            looks.get() * 1_000_000
        };
        let interrupted = |_: &mut [PollFd<'_>], _| Err(Errno::EINTR);
        let next_ns = Some(900_000_000);
        let ready = waiter.wait_with(std::iter::empty(), wake.as_fd(), next_ns, 0, now_ns, interrupted);
        assert!(!ready.is_readable(0));
        assert_eq!((looks.get(), waiter.oversleep_ns), (1, estimate_ns));
        assert_eq!(ready.empty_ns(0), None);
    }

    #[test]
    fn a_wait_tells_until_when_devices_were_empty() {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("a descriptor");
        let mut waiter =
            Waiter { oversleep_ns: 0, run_delay: RunDelay { statistics: None, total_ns: 0, unread_ns: 0 } };
        let now_ns = Cell::new(1_000_000);
        let mut wait = |next_ns, ends_ns, readable| {
            let sleep = |_: &mut [PollFd<'_>], _| {
                now_ns.set(ends_ns);
                Ok(readable)
            };
            waiter.wait_with(std::iter::empty(), wake.as_fd(), Some(next_ns), 0, || now_ns.get(), sleep)
        };
        // The sleep ends 5 ms late: meanwhile a packet may have come.
        assert_eq!(wait(2_000_000, 7_000_000, 0).empty_ns(0), Some(2_000_000));
        // A device ends it.
        assert_eq!(wait(9_000_000, 8_000_000, 1).empty_ns(0), Some(8_000_000));
        // Without a sleep only a device that is not readable was seen to be empty.
        let mut looked = wait(8_000_000, 8_001_000, 1);
        assert_eq!(looked.empty_ns(0), Some(8_000_000));
        looked.readable[0] = true;
        assert_eq!(looked.empty_ns(0), None);
        // A look that takes long is no sleep.
        let mut looked = wait(8_000_000, 8_900_000, 1);
        looked.readable[0] = true;
        assert_eq!(looked.empty_ns(0), None);
        assert_eq!(run_delay_ns(b"4000 5000 6\n"), Some(5_000));
    }

    #[test]
    fn a_sleep_that_a_device_ends_is_not_charged_with_the_delay_of_those_before_it() {
        let path = std::env::temp_dir().join(format!("swiftwater-schedstat-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).expect("room");
        write("0 0 0\n");
        let statistics = Some(File::open(&path).expect("ours"));
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("a descriptor");
        let mut waiter =
            Waiter { oversleep_ns: 0, run_delay: RunDelay { statistics, total_ns: 0, unread_ns: 0 } };
        let now_ns = Cell::new(1_000_000);
        let mut wait = |next_ns, ends_ns, readable, delay_ns: u64| {
            let sleep = |_: &mut [PollFd<'_>], _| {
                now_ns.set(ends_ns);
                write(&format!("0 {delay_ns} 0\n"));
                Ok(readable)
            };
            waiter.wait_with(std::iter::empty(), wake.as_fd(), Some(next_ns), 0, || now_ns.get(), sleep)
        };
        wait(2_000_000, 7_000_000, 0, 5_000_000);
        // Its own delay is 30 µs.
        assert_eq!(wait(9_000_000, 8_000_000, 1, 5_030_000).empty_ns(0), Some(7_970_000));
        // Timers that are hardly late cost no read until their delays may sum up, and a short sleep none either.
        wait(9_000_000, 9_030_000, 0, 5_031_000);
        wait(9_500_000, 9_040_000, 1, 5_032_000);
        wait(10_000_000, 10_009_000, 0, 5_033_000);
        // The delays of the three waits before it, and its own.
        assert_eq!(wait(12_000_000, 11_000_000, 1, 5_034_000).empty_ns(0), Some(10_996_000));
        wait(13_000_000, 13_150_000, 0, 5_100_000);
        assert_eq!(wait(15_000_000, 14_000_000, 1, 5_101_000).empty_ns(0), Some(13_999_000));
        std::fs::remove_file(&path).expect("ours");
    }
}
