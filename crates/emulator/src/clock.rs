//! The thread that reads devices, keeps the clock, and writes packets that are due.

mod wait;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use links::device::{Device, PACKET_BYTES_MAX, VnetHeader};
use netsim::PipeConfig;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::SigSet;
use nix::sys::time::TimeValLike;

use crate::counts::{EmulatorCounts, LineState, PathCounts, Times};
use crate::line::Line;
use crate::memory::MemoryBudget;
use crate::super_packet::SuperPacket;
use wait::{Ready, Waiter};

/// Default for the time that segments may wait to be joined, on fast lines.
pub const JOIN: Duration = Duration::from_micros(150);
/// Rate up to which segments are not joined by default: on such a line a packet takes longer than [`JOIN`].
const JOIN_ABOVE_BITS_PER_S: u64 = 100_000_000;
/// Packets may leave late by this time, so that several leave at one wake-up, and so that the thread need not spin until the
/// first is due. With [`JOIN`] it stays within 0.2 ms.
const SLACK: Duration = Duration::from_micros(40);
/// Largest number of paths of an emulator.
pub const PATHS_MAX: usize = 4;
/// Number of packets that are read from a device before the others have their turn.
const READS_MAX: usize = 64;
/// Number of packets that a line delivers before the others, the devices and requests have their turn.
const WRITES_MAX: usize = 64;
/// Time after which a device or a line leaves the others their turn, whatever its number of packets: super-packets of 64 KB, and
/// writes behind which the kernel does the work of the receiving host, take tens of microseconds each.
const TURN_NS_MAX: u64 = 100_000;
/// Largest number of packets of the time before a restart that are taken from a device: more than fit one.
const STALE_PACKETS_MAX: usize = 1 << 17;
/// Memory of packets on the way, on all paths together, at most.
const MEMORY_BYTES_MAX: usize = 1 << 30;
/// Real-time priority of the thread, among 1 to 99.
const PRIORITY: i32 = 10;

/// A path between two hosts.
pub struct Path {
    /// The devices that the first and the second host send to.
    pub devices: [Box<dyn Device>; 2],
    /// The pipes for packets of the first and of the second host.
    pub pipes: [PipeConfig; 2],
}

/// Settings of an emulator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Segments of a super-packet are joined again if they are due within this time. Default: 150 µs on lines of more than 100
    /// Mbit/s; slower lines join nothing.
    pub join: Option<Duration>,
    /// Seed of all random decisions. Default 0.
    pub seed: u64,
}

/// Error of starting an emulator.
#[derive(Debug)]
#[non_exhaustive]
pub enum EmulatorError {
    /// There are more paths than [`PATHS_MAX`], or none.
    Paths(usize),
    /// The system refused a resource that the thread needs.
    Io(io::Error),
}

impl std::fmt::Display for EmulatorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EmulatorError::Paths(0) => f.write_str("an emulator without a path; name one"),
            EmulatorError::Paths(count) => {
                write!(
                    f,
                    "there are {count} paths, and an emulator has at most {PATHS_MAX}; leave the others out"
                )
            }
            EmulatorError::Io(error) => write!(f, "cannot start the emulator: {error}"),
        }
    }
}

impl std::error::Error for EmulatorError {}

impl From<io::Error> for EmulatorError {
    fn from(error: io::Error) -> Self {
        EmulatorError::Io(error)
    }
}

/// A running emulator. Dropping the value ends it.
#[derive(Debug)]
pub struct Emulator {
    requests: SyncSender<Request>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// Requests to the thread.
enum Request {
    /// Reports the counters.
    Counts(SyncSender<EmulatorCounts>),
    /// Reports the present state of the lines.
    States(SyncSender<Vec<[LineState; 2]>>),
    /// Restarts the emulation with a seed: empty lines whose schedules start now, and counters of zero.
    Restart(u64, SyncSender<Instant>),
}

impl Emulator {
    /// Starts the thread. The clock of the pipes, and so their schedules, begins now.
    ///
    /// # Errors
    ///
    /// There is no path or too many of them, or the system cannot start the thread.
    pub fn start(paths: Vec<Path>, settings: &Settings) -> Result<Self, EmulatorError> {
        if paths.is_empty() || paths.len() > PATHS_MAX {
            return Err(EmulatorError::Paths(paths.len()));
        }
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wake = Arc::new(EventFd::from_flags(flags).map_err(io::Error::from)?);
        let (requests, received) = sync_channel(1);
        let worker = Worker::new(paths, settings.clone(), received, Arc::clone(&wake));
        let thread = thread::Builder::new().name("emulator".into()).spawn(move || worker.run())?;
        Ok(Emulator { requests, wake, thread: Some(thread) })
    }

    /// Returns the counters since the start; `None` if the thread has failed.
    #[must_use]
    pub fn counts(&self) -> Option<EmulatorCounts> {
        self.ask(Request::Counts)
    }

    /// Returns the present state of both lines of each path, at less cost than the counters; `None` if the thread has failed.
    #[must_use]
    pub fn states(&self) -> Option<Vec<[LineState; 2]>> {
        self.ask(Request::States)
    }

    /// Empties the lines and the devices, restarts the schedules, takes random decisions from `seed`, and resets the counters.
    /// Returns the moment from which the schedules count; `None` if the thread has failed.
    #[must_use]
    pub fn restart(&self, seed: u64) -> Option<Instant> {
        self.ask(|answer| Request::Restart(seed, answer))
    }

    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        self.requests.send(request(answer)).ok()?;
        self.wake.write(1).ok()?;
        answered.recv().ok()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The thread ends when it finds that no sender of requests is left.
        let (unused, _) = sync_channel(1);
        self.requests = unused;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Worker {
    paths: Vec<PathState>,
    settings: Settings,
    requests: Receiver<Request>,
    wake: Arc<EventFd>,
    started: Instant,
    /// Processor time of the thread when the counters started.
    processor_at_start: Duration,
    realtime: bool,
    budget: MemoryBudget,
    late: Times,
    /// Buffer for a packet that is read, and for the beginning of one that is written.
    buffer: Vec<u8>,
    head: Vec<u8>,
}

/// A path while the emulator runs.
struct PathState {
    path: Path,
    lines: [Line; 2],
    write_drops: u64,
    /// Packets that the kernel took from its queue and could not hand over.
    failed_reads: u64,
    /// Packets that the devices had dropped when the counters started.
    dropped_before: u64,
    /// Devices that were deleted. The kernel would report each as ready for ever.
    deleted: [bool; 2],
    /// Moments at which the devices were last known to be empty: a packet in one was sent later.
    empty_ns: [u64; 2],
    /// Turns that their time ended.
    long_turns: u64,
    /// Longest time that one packet took from the line into the device of a host.
    write_ns_max: u64,
}

/// Packet that was read from a device.
struct Arrival<'a> {
    read_ns: u64,
    /// Longest time for which the packet may have waited in the device.
    waited_ns: u64,
    header: VnetHeader,
    bytes: &'a [u8],
}

/// Limits of what a device or a line does before the others have their turn.
#[derive(Clone, Copy)]
struct Turn {
    packets_max: usize,
    ns_max: u64,
}

const READ_TURN: Turn = Turn { packets_max: READS_MAX, ns_max: TURN_NS_MAX };
const WRITE_TURN: Turn = Turn { packets_max: WRITES_MAX, ns_max: TURN_NS_MAX };
const STALE_TURN: Turn = Turn { packets_max: STALE_PACKETS_MAX, ns_max: u64::MAX };

impl PathState {
    fn new(path: Path, number: usize, settings: &Settings) -> Self {
        let lines = lines(&path, number, settings);
        let mut state = PathState {
            path,
            lines,
            write_drops: 0,
            failed_reads: 0,
            dropped_before: 0,
            deleted: [false; 2],
            empty_ns: [0; 2],
            long_turns: 0,
            write_ns_max: 0,
        };
        state.dropped_before = state.dropped_by_devices();
        state
    }

    /// Reads packets that a host has sent, for one turn, and hands each to `take`.
    fn read(
        &mut self,
        direction: usize,
        turn: Turn,
        buffer: &mut [u8],
        now_ns: impl Fn() -> u64,
        mut take: impl FnMut(&mut Line, Arrival<'_>),
    ) {
        let began_ns = now_ns();
        let mut read_ns = began_ns;
        for _ in 0..turn.packets_max {
            let looked_ns = read_ns;
            match self.path.devices[direction].receive(buffer) {
                Ok(Some((header, bytes))) => {
                    read_ns = now_ns();
                    let waited_ns = read_ns.saturating_sub(self.empty_ns[direction]);
                    let arrival = Arrival { read_ns, waited_ns, header, bytes: &buffer[..bytes] };
                    take(&mut self.lines[direction], arrival);
                }
                Ok(None) => {
                    self.empty_ns[direction] = looked_ns;
                    return;
                }
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EIO | Errno::EBADFD) => {
                        self.deleted[direction] = true;
                        return;
                    }
                    // The device may come up again.
                    Some(Errno::ENETDOWN) => return,
                    // Segmentation that a virtual network header cannot express, as that of the kernel's SCTP, costs the packet.
                    _ => self.failed_reads += 1,
                },
            }
            if read_ns - began_ns > turn.ns_max {
                self.long_turns += 1;
                return;
            }
        }
    }

    /// Writes packets that are due to a host, for one turn.
    fn write(
        &mut self,
        direction: usize,
        turn: Turn,
        head: &mut Vec<u8>,
        late: &mut Times,
        now_ns: impl Fn() -> u64,
    ) {
        let began_ns = now_ns();
        let mut write_ns = began_ns;
        for _ in 0..turn.packets_max {
            let Some(delivery) = self.lines[direction].poll_delivery(write_ns) else { return };
            let (header, rest) = delivery.write(head);
            let sent = self.path.devices[1 - direction].send(header, [head, rest]);
            match sent {
                Ok(()) => {
                    self.lines[direction].on_written(&delivery);
                    // Without the write itself: behind it the kernel does the work of the receiving host. It delays the others.
                    delivery.lateness_ns(write_ns).for_each(|late_ns| late.record(late_ns));
                }
                Err(_) => {
                    self.lines[direction].on_refused(&delivery);
                    self.write_drops += u64::from(delivery.segment_count());
                }
            }
            let written_ns = now_ns();
            self.write_ns_max = self.write_ns_max.max(written_ns - write_ns);
            write_ns = written_ns;
            if write_ns - began_ns > turn.ns_max {
                self.long_turns += 1;
                return;
            }
        }
    }

    /// Notes what a wait has shown: the moment until which each device was empty.
    fn on_waited(&mut self, empty_ns: [Option<u64>; 2]) {
        for (known_ns, empty_ns) in self.empty_ns.iter_mut().zip(empty_ns) {
            *known_ns = empty_ns.map_or(*known_ns, |empty_ns| empty_ns.max(*known_ns));
        }
    }

    /// Drops the packets that wait in the devices.
    fn drain(&mut self, buffer: &mut [u8]) {
        for direction in [0, 1] {
            self.read(direction, STALE_TURN, buffer, || 0, |_, _| {});
        }
    }

    /// Counts from zero, with devices that are empty.
    fn reset_counts(&mut self) {
        self.empty_ns = [0; 2];
        self.long_turns = 0;
        self.write_ns_max = 0;
        self.write_drops = 0;
        self.failed_reads = 0;
        self.dropped_before = self.dropped_by_devices();
    }

    fn counts(&mut self) -> PathCounts {
        PathCounts {
            lines: [self.lines[0].counts(), self.lines[1].counts()],
            write_drops: self.write_drops,
            read_drops: self.failed_reads + self.dropped_by_devices().saturating_sub(self.dropped_before),
        }
    }

    fn dropped_by_devices(&mut self) -> u64 {
        self.path.devices.iter_mut().map(|device| device.dropped_packets()).sum()
    }
}

/// Makes the lines of a path, each with its own random decisions.
fn lines(path: &Path, number: usize, settings: &Settings) -> [Line; 2] {
    [0, 1].map(|direction| {
        let config = &path.pipes[direction];
        let pipe_number = (2 * number + direction) as u64;
        Line::new(
            config,
            settings.seed.wrapping_mul(2 * PATHS_MAX as u64).wrapping_add(pipe_number),
            join(config, settings),
        )
    })
}

/// Returns the time within which segments on this line are joined.
fn join(config: &PipeConfig, settings: &Settings) -> Duration {
    let fast = config.rate_bits_per_s.is_none_or(|rate| rate > JOIN_ABOVE_BITS_PER_S);
    settings.join.unwrap_or(if fast { JOIN } else { Duration::ZERO })
}

impl Worker {
    fn new(paths: Vec<Path>, settings: Settings, requests: Receiver<Request>, wake: Arc<EventFd>) -> Self {
        let paths = paths.into_iter().enumerate();
        let paths: Vec<PathState> =
            paths.map(|(number, path)| PathState::new(path, number, &settings)).collect();
        Worker {
            paths,
            settings,
            requests,
            wake,
            started: Instant::now(),
            processor_at_start: Duration::ZERO,
            realtime: false,
            budget: MemoryBudget::new(MEMORY_BYTES_MAX),
            late: Times::new(),
            buffer: vec![0; PACKET_BYTES_MAX],
            head: Vec::new(),
        }
    }

    fn run(mut self) {
        self.realtime = links::become_realtime(PRIORITY).is_ok();
        // A signal would end waits early. The other threads of the process handle signals.
        let _ = SigSet::all().thread_block();
        // Makes the kernel wake the thread exactly when it asks, where there is no real-time priority.
        let _ = nix::sys::prctl::set_timerslack(1);
        let mut waiter = Waiter::new();
        let mut ready = Ready::all();
        while !ready.is_woken() || self.answer() {
            self.read(&ready);
            self.write();
            ready = self.wait(&mut waiter);
        }
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Reads the packets that the hosts have sent.
    fn read(&mut self, ready: &Ready) {
        let Worker { paths, budget, buffer, started, .. } = self;
        for (number, path) in paths.iter_mut().enumerate() {
            for direction in [0, 1] {
                if !ready.is_readable(2 * number + direction) {
                    continue;
                }
                let now_ns = || started.elapsed().as_nanos() as u64;
                path.read(direction, READ_TURN, buffer, now_ns, |line, arrival| {
                    let packet = SuperPacket::new(arrival.header, arrival.bytes, budget);
                    if budget.is_exceeded() {
                        line.drop_for_memory(&packet);
                    } else {
                        line.handle_late_packet(arrival.read_ns, arrival.waited_ns, packet);
                    }
                });
            }
        }
    }

    /// Writes the packets that are due to the hosts.
    fn write(&mut self) {
        let Worker { paths, head, late, started, .. } = self;
        for path in paths {
            for direction in [0, 1] {
                path.write(direction, WRITE_TURN, head, late, || started.elapsed().as_nanos() as u64);
            }
        }
    }

    /// Waits until a packet is due, a host has sent something, or a request comes.
    fn wait(&mut self, waiter: &mut Waiter) -> Ready {
        let lines = self.paths.iter().flat_map(|path| &path.lines);
        let next_ns = lines.filter_map(Line::next_ns).min();
        let devices = self.paths.iter().flat_map(|state| {
            let devices = state.path.devices.iter().zip(state.deleted);
            devices.map(|(device, deleted)| (!deleted).then(|| device.descriptor()))
        });
        let ready =
            waiter.wait(devices, self.wake.as_fd(), next_ns, SLACK.as_nanos() as u64, || self.now_ns());
        for (number, path) in self.paths.iter_mut().enumerate() {
            path.on_waited([0, 1].map(|direction| ready.empty_ns(2 * number + direction)));
        }
        ready
    }

    /// Answers requests. Returns whether a sender of requests is left.
    fn answer(&mut self) -> bool {
        // Cleared before the requests are taken: a request that comes after the last of them wakes the next wait.
        let _ = self.wake.read();
        loop {
            match self.requests.try_recv() {
                Ok(Request::Counts(answer)) => {
                    let _ = answer.send(self.counts());
                }
                Ok(Request::States(answer)) => {
                    let now_ns = self.now_ns();
                    let states =
                        |path: &PathState| [0, 1].map(|direction| path.lines[direction].state(now_ns));
                    let _ = answer.send(self.paths.iter().map(states).collect());
                }
                Ok(Request::Restart(seed, answer)) => {
                    let _ = answer.send(self.restart(seed));
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Restarts the emulation. Returns the moment from which the schedules count.
    fn restart(&mut self, seed: u64) -> Instant {
        self.settings.seed = seed;
        for (number, path) in self.paths.iter_mut().enumerate() {
            path.lines = lines(&path.path, number, &self.settings);
        }
        // Twice, because the packets of one path take time, in which an end of the last run may send over another one.
        for _ in 0..2 {
            self.paths.iter_mut().for_each(|path| path.drain(&mut self.buffer));
        }
        self.paths.iter_mut().for_each(PathState::reset_counts);
        self.late = Times::new();
        self.started = Instant::now();
        self.processor_at_start = processor_time();
        self.started
    }

    fn counts(&mut self) -> EmulatorCounts {
        EmulatorCounts {
            paths: self.paths.iter_mut().map(PathState::counts).collect(),
            late: self.late.distribution(),
            long_turns: self.paths.iter().map(|path| path.long_turns).sum(),
            write_max: Duration::from_nanos(
                self.paths.iter().map(|path| path.write_ns_max).max().unwrap_or_default(),
            ),
            elapsed: self.started.elapsed(),
            processor: processor_time().saturating_sub(self.processor_at_start),
            realtime: self.realtime,
        }
    }
}

/// Returns the processor time of the calling thread.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Duration::ZERO };
    let time = usage.user_time() + usage.system_time();
    Duration::from_micros(time.num_microseconds().unsigned_abs())
}

#[cfg(test)]
mod tests;
