use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

use links::device::VnetHeader;

use super::*;

/// A device whose host is a socket of the test.
struct Socket(UnixDatagram);

impl Device for Socket {
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>> {
        match self.0.recv(room) {
            Ok(bytes) => Ok(Some((VnetHeader::default(), bytes))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, _: VnetHeader, parts: [&[u8]; 2]) -> io::Result<()> {
        self.0.send(&parts.concat()).map(drop)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn dropped_packets(&mut self) -> u64 {
        0
    }
}

/// Returns a host, and the device that reaches it.
fn host() -> (UnixDatagram, Box<dyn Device>) {
    let (host, device) = UnixDatagram::pair().expect("sockets");
    device.set_nonblocking(true).expect("a socket");
    host.set_read_timeout(Some(PATIENCE)).expect("a socket");
    (host, Box::new(Socket(device)))
}

/// Returns a path with these pipes, and its hosts.
fn path(pipes: [PipeConfig; 2]) -> ([UnixDatagram; 2], Path) {
    let ((first, near), (second, far)) = (host(), host());
    ([first, second], Path { devices: [near, far], pipes })
}

/// Time limit of a wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a condition holds; the message of a failure names what was `awaited`.
#[track_caller]
fn until(awaited: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {awaited}");
        thread::yield_now();
    }
}

/// Returns how many packets the hosts of the first path have refused.
fn not_taken(emulator: &Emulator) -> u64 {
    emulator.counts().expect("it runs").paths[0].packets_not_taken
}

#[test]
fn packets_arrive_after_the_delay_in_both_directions_and_are_counted() {
    let delay = Duration::from_millis(20);
    let slow = PipeConfig { delay, ..PipeConfig::default() };
    let ([first, second], path) = path([slow.clone(), slow]);
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    for (from, to, word) in [(&first, &second, b"question"), (&second, &first, b"answer__")] {
        let sent = Instant::now();
        from.send(word).expect("room");
        let mut room = [0; 64];
        let bytes = to.recv(&mut room).expect("it arrives");
        assert_eq!(&room[..bytes], word);
        assert!(sent.elapsed() >= delay);
    }
    let counts = emulator.counts().expect("it runs");
    for line in &counts.paths[0].lines {
        assert_eq!((line.pipe.packets_delivered, line.packets_written), (1, 1));
    }
    assert!(counts.elapsed >= delay * 2);
}

#[test]
fn a_restart_empties_the_lines_and_counts_from_zero() {
    let never = PipeConfig { delay: Duration::from_secs(3600), ..PipeConfig::default() };
    let ([first, _second], path) = path([never.clone(), never]);
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    let offered =
        |emulator: &Emulator| emulator.counts().expect("it runs").paths[0].lines[0].pipe.packets_offered;
    first.send(b"lost").expect("room");
    until("the packet is on the line", || offered(&emulator) > 0);
    emulator.restart().expect("it runs");
    assert_eq!(offered(&emulator), 0);
}

#[test]
fn a_host_that_takes_nothing_is_told_apart_from_the_line() {
    let ([first, second], path) = path([PipeConfig::default(), PipeConfig::default()]);
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    drop(second);
    first.send(b"to nobody").expect("room");
    until("the host has refused the packet", || not_taken(&emulator) > 0);
    let pipe = emulator.counts().expect("it runs").paths[0].lines[0].pipe;
    assert_eq!((pipe.packets_delivered, pipe.packets_lost), (1, 0));
}

#[test]
fn an_emulator_has_between_one_path_and_four() {
    let paths = |count: usize| (0..count).map(|_| path(Default::default()).1).collect();
    for count in [0, PATHS_MAX + 1] {
        let error = Emulator::start(paths(count), &Settings::default()).expect_err("refused");
        assert!(matches!(error, EmulatorError::Paths(told) if told == count));
    }
    Emulator::start(paths(PATHS_MAX), &Settings::default()).expect("it starts");
}

#[test]
fn a_packet_that_leaves_slowly_is_seen_to_wait() {
    let slow = PipeConfig { rate_bits_per_s: Some(1), ..PipeConfig::default() };
    let ([first, _second], path) = path([slow.clone(), slow]);
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    first.send(b"packet").expect("room");
    let states = || emulator.states().expect("it runs")[0];
    until("the packet waits", || states()[0] != LineState::default());
    assert_eq!(states(), [LineState { queued_bytes: 6, bytes_accepted: 6 }, LineState::default()]);
}

/// A device whose interface was deleted: it is always ready, and every call fails.
struct Deleted {
    hung_up: UnixStream,
    receives: Arc<AtomicU32>,
}

impl Device for Deleted {
    fn receive(&mut self, _: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>> {
        self.receives.fetch_add(1, Ordering::Relaxed);
        Err(Errno::EIO.into())
    }

    fn send(&mut self, _: VnetHeader, _: [&[u8]; 2]) -> io::Result<()> {
        Err(Errno::EIO.into())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.hung_up.as_fd()
    }

    fn dropped_packets(&mut self) -> u64 {
        0
    }
}

#[test]
fn a_device_that_is_gone_is_left_alone() {
    let receives = Arc::new(AtomicU32::new(0));
    let (hung_up, _) = UnixStream::pair().expect("sockets");
    let (first, near) = host();
    let far = Box::new(Deleted { hung_up, receives: Arc::clone(&receives) });
    let path = Path { devices: [near, far], pipes: [PipeConfig::default(), PipeConfig::default()] };
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    for number in 1..=20 {
        first.send(b"to nobody").expect("room");
        until("the host has refused each packet", || not_taken(&emulator) >= number);
    }
    assert_eq!(receives.load(Ordering::Relaxed), 1);
}
