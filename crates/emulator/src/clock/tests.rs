use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

use links::device::{PartialChecksum, SegmentKind, Segmentation};
use netsim::Loss;

use super::*;

/// A device whose host is a socket of the test.
struct Socket(UnixDatagram);

impl Device for Socket {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>> {
        match self.0.recv(buffer) {
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

/// Returns how many writes to the hosts of the first path have failed.
fn write_drops(emulator: &Emulator) -> u64 {
    emulator.counts().expect("it runs").paths[0].write_drops
}

/// Returns a thread's state without the thread: the test calls its steps.
fn worker(paths: Vec<Path>) -> Worker {
    let (_, requests) = sync_channel(1);
    let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("a descriptor");
    Worker::new(paths, Settings::default(), requests, Arc::new(wake))
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
        let mut buffer = [0; 64];
        let bytes = to.recv(&mut buffer).expect("it arrives");
        assert_eq!(&buffer[..bytes], word);
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
    emulator.restart(0).expect("it runs");
    assert_eq!(offered(&emulator), 0);
}

#[test]
fn a_restart_returns_the_moment_from_which_the_emulator_counts() {
    let (_hosts, path) = path(Default::default());
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    let restarted_at = emulator.restart(0).expect("it runs");
    let asked_at = Instant::now();
    let counted_at = restarted_at + emulator.counts().expect("it runs").elapsed;
    assert!((asked_at..=Instant::now()).contains(&counted_at));
}

#[test]
fn writes_that_a_host_refuses_are_no_losses_of_the_line() {
    let ([first, second], path) = path([PipeConfig::default(), PipeConfig::default()]);
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    drop(second);
    first.send(b"to nobody").expect("room");
    until("the host has refused the packet", || write_drops(&emulator) > 0);
    let line = &emulator.counts().expect("it runs").paths[0].lines[0];
    assert_eq!((line.pipe.packets_delivered, line.pipe.packets_lost, line.packets_written), (1, 0, 0));
    let [(_, flow)] = line.flows[..] else { panic!("one flow") };
    assert_eq!((flow.packets_delivered, flow.bytes_delivered), (0, 0));
    assert_eq!((flow.packets_refused, flow.packets_in_flight), (1, 0));
}

#[test]
fn a_packet_is_late_by_the_writes_before_it_and_one_that_is_refused_is_not_late() {
    let ([_first, second], path) = path(Default::default());
    let mut state = PathState::new(path, 0, &Settings::default());
    let budget = MemoryBudget::default();
    let mut latest_of = |packets: usize| {
        for _ in 0..packets {
            state.lines[0].handle_packet(0, SuperPacket::new(VnetHeader::default(), &[0x45; 28], &budget));
        }
        // A write takes a millisecond.
        let looks = std::cell::Cell::new(0);
        let now_ns = || looks.replace(looks.get() + 1) * 1_000_000;
        let mut late = Times::new();
        let turn = Turn { ns_max: u64::MAX, ..WRITE_TURN };
        state.write(0, turn, &mut Vec::new(), &mut late, now_ns);
        late.distribution().max
    };
    assert_eq!(latest_of(1), Duration::ZERO, "its own write is the work of the host");
    assert!(latest_of(3) > Duration::from_micros(1_980));
    drop(second);
    assert_eq!(latest_of(3), Duration::ZERO);
}

#[test]
fn an_emulator_has_between_one_path_and_four() {
    let paths = |count: usize| (0..count).map(|_| path(Default::default()).1).collect();
    for count in [0, PATHS_MAX + 1] {
        let error = Emulator::start(paths(count), &Settings::default()).expect_err("refused");
        assert!(matches!(error, EmulatorError::Paths(named) if named == count));
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
fn a_device_that_was_deleted_is_left_alone() {
    let receives = Arc::new(AtomicU32::new(0));
    let (hung_up, _) = UnixStream::pair().expect("sockets");
    let (first, near) = host();
    let far = Box::new(Deleted { hung_up, receives: Arc::clone(&receives) });
    let path = Path { devices: [near, far], pipes: [PipeConfig::default(), PipeConfig::default()] };
    let emulator = Emulator::start(vec![path], &Settings::default()).expect("it starts");
    for number in 1..=20 {
        first.send(b"to nobody").expect("room");
        until("the host has refused each packet", || write_drops(&emulator) >= number);
    }
    assert_eq!(receives.load(Ordering::Relaxed), 1);
}

#[test]
fn a_restart_draws_the_losses_of_its_seed() {
    let pipe = PipeConfig { loss: Loss::Random { probability: 0.5 }, ..PipeConfig::default() };
    let ([first, second], path) = path([pipe, PipeConfig::default()]);
    let mut worker = worker(vec![path]);
    second.set_nonblocking(true).expect("a socket");
    let mut survivors = |seed| {
        worker.restart(seed);
        let mut survives = |number: &u8| {
            first.send(&[*number]).expect("room");
            worker.read(&Ready::all());
            worker.write();
            second.recv(&mut [0]).is_ok()
        };
        (0..32).filter(|number| survives(number)).collect::<Vec<u8>>()
    };
    let once = survivors(7);
    assert!((1..32).contains(&once.len()), "{once:?}");
    assert_ne!(survivors(8), once);
    assert_eq!(survivors(7), once);
}

#[test]
fn packets_sent_before_a_restart_do_not_reach_the_lines_after_it() {
    let ([first, second], path) = path([PipeConfig::default(), PipeConfig::default()]);
    let mut worker = worker(vec![path]);
    for host in [&first, &second] {
        host.send(b"of the last run").expect("room");
    }
    worker.restart(0);
    first.send(b"of this run").expect("room");
    worker.read(&Ready::all());
    let offered = worker.counts().paths[0].lines.each_ref().map(|line| line.pipe.packets_offered);
    assert_eq!(offered, [1, 0]);
}

/// A device that calls a function before each receive, which fails if the function does.
struct BeforeReceive<F> {
    before: F,
    device: Box<dyn Device>,
}

impl<F: FnMut() -> io::Result<()> + Send> Device for BeforeReceive<F> {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(VnetHeader, usize)>> {
        (self.before)()?;
        self.device.receive(buffer)
    }

    fn send(&mut self, header: VnetHeader, parts: [&[u8]; 2]) -> io::Result<()> {
        self.device.send(header, parts)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.device.descriptor()
    }

    fn dropped_packets(&mut self) -> u64 {
        self.device.dropped_packets()
    }
}

#[test]
fn packets_sent_while_other_paths_restart_do_not_reach_the_lines_after_it() {
    let ([first, _second], one) = path(Default::default());
    let (_hosts, Path { devices: [near, far], pipes }) = path(Default::default());
    let sender = first.try_clone().expect("a socket");
    // While the second path is drained, an end of the last run still sends over the first path.
    let mut unsent = Some(b"of the last run");
    let before = move || unsent.take().map_or(Ok(()), |packet| sender.send(packet).map(drop));
    let near = Box::new(BeforeReceive { before, device: near });
    let mut worker = worker(vec![one, Path { devices: [near, far], pipes }]);
    worker.restart(0);
    worker.read(&Ready::all());
    assert_eq!(worker.counts().paths[0].lines[0].pipe.packets_offered, 0);
}

#[test]
fn a_line_with_many_packets_due_leaves_the_others_their_turn() {
    let ([first, second], path) = path([PipeConfig::default(), PipeConfig::default()]);
    let mut worker = worker(vec![path]);
    // A socket holds only some packets, so each is on the line before the next.
    for _ in 0..WRITES_MAX + 1 {
        first.send(b"many").expect("room");
        worker.read(&Ready::all());
    }
    second.send(b"one").expect("room");
    worker.read(&Ready::all());
    // A clock that stands still, so that no turn ends by its time.
    let now_ns = worker.now_ns();
    let mut written = || {
        let Worker { paths, head, late, .. } = &mut worker;
        for direction in [0, 1] {
            paths[0].write(direction, WRITE_TURN, head, late, || now_ns);
        }
        worker.counts().paths[0].lines.each_ref().map(|line| line.packets_written)
    };
    assert_eq!(written(), [WRITES_MAX as u64, 1]);
    assert_eq!(written(), [WRITES_MAX as u64 + 1, 1]);
}

#[test]
fn packets_that_the_kernel_cannot_describe_are_counted_and_hold_up_no_other() {
    let ([first, _second], Path { devices: [near, far], pipes }) = path(Default::default());
    let mut undescribed = 0..3;
    let before = move || undescribed.next().map_or(Ok(()), |_| Err(Errno::EINVAL.into()));
    let near = Box::new(BeforeReceive { before, device: near });
    let mut worker = worker(vec![Path { devices: [near, far], pipes }]);
    first.send(b"plain").expect("room");
    worker.read(&Ready::all());
    let counts = &worker.counts().paths[0];
    assert_eq!((counts.read_drops, counts.lines[0].pipe.packets_offered), (3, 1));
    worker.restart(0);
    assert_eq!(worker.counts().paths[0].read_drops, 0);
}

#[test]
fn a_flood_of_empty_packets_exceeds_the_memory_by_its_records() {
    let never = PipeConfig { delay: Duration::from_secs(3600), ..PipeConfig::default() };
    let ([first, _second], path) = path([never.clone(), never]);
    let mut worker = worker(vec![path]);
    worker.budget = MemoryBudget::new(100_000);
    for _ in 0..1_000 {
        first.send(&[0x45; 28]).expect("room");
        worker.read(&Ready::all());
    }
    let line = &worker.counts().paths[0].lines[0];
    assert_eq!(line.pipe.packets_offered + line.memory_drops, 1_000);
    assert!((100..200).contains(&line.pipe.packets_offered), "{} packets", line.pipe.packets_offered);
}

#[test]
fn each_segment_of_a_burst_is_late() {
    let (_hosts, path) = path(Default::default());
    let mut state = PathState::new(path, 0, &Settings::default());
    let segmentation = Segmentation { kind: SegmentKind::Udp, segment_bytes: 100, reduced_window: false };
    let header = VnetHeader {
        checksum: Some(PartialChecksum { start: 20, offset: 6 }),
        segmentation: Some(segmentation),
        headers_bytes: 28,
    };
    let mut bytes = vec![0; 28 + 700];
    bytes[0] = 0x45;
    let budget = MemoryBudget::default();
    state.lines[0].handle_packet(0, SuperPacket::new(header, &bytes, &budget));
    let (mut late, mut head) = (Times::new(), Vec::new());
    state.write(0, WRITE_TURN, &mut head, &mut late, || 5_000_000);
    state.lines[0].handle_packet(5_000_000, SuperPacket::new(VnetHeader::default(), &bytes[..28], &budget));
    state.write(0, WRITE_TURN, &mut head, &mut late, || 5_000_000);
    // Seven of eight packets were late.
    assert!(late.distribution().p50 > Duration::from_millis(4), "{late:?}");
}

#[test]
fn packets_that_are_read_late_are_late() {
    let ([first, _second], path) = path(Default::default());
    let mut state = PathState::new(path, 0, &Settings::default());
    let (budget, mut buffer) = (MemoryBudget::default(), vec![0; PACKET_BYTES_MAX]);
    let mut late_us = |state: &mut PathState, read_ns: u64| {
        let take = |line: &mut Line, arrival: Arrival<'_>| {
            let packet = SuperPacket::new(arrival.header, arrival.bytes, &budget);
            line.handle_late_packet(arrival.read_ns, arrival.waited_ns, packet);
        };
        state.read(0, READ_TURN, &mut buffer, || read_ns, take);
        let (mut late, mut head) = (Times::new(), Vec::new());
        state.write(0, WRITE_TURN, &mut head, &mut late, || read_ns);
        late.distribution().max.as_micros()
    };
    assert_eq!(late_us(&mut state, 1_000_000), 0, "there is no packet");
    first.send(&[0x45; 28]).expect("room");
    // The device was empty 5 ms ago.
    assert!((5_000..5_100).contains(&late_us(&mut state, 6_000_000)));
    first.send(&[0x45; 28]).expect("room");
    state.on_waited([Some(9_990_000), None]);
    assert!(late_us(&mut state, 10_000_000) <= 10);
}

#[test]
fn a_turn_ends_after_its_time() {
    let ([first, _second], path) = path(Default::default());
    let mut state = PathState::new(path, 0, &Settings::default());
    let (budget, mut buffer) = (MemoryBudget::default(), vec![0; PACKET_BYTES_MAX]);
    // Each packet takes more than half of the time.
    let looks = std::cell::Cell::new(0);
    let now_ns = || {
        looks.set(looks.get() + 1);
        looks.get() * (TURN_NS_MAX / 2 + 1)
    };
    for _ in 0..3 {
        first.send(&[0x45; 28]).expect("room");
    }
    let mut read = 0;
    state.read(0, READ_TURN, &mut buffer, now_ns, |line, arrival| {
        read += 1;
        line.handle_packet(0, SuperPacket::new(arrival.header, arrival.bytes, &budget));
    });
    assert_eq!((read, state.long_turns), (2, 1));
    state.read(0, STALE_TURN, &mut buffer, now_ns, |line, arrival| {
        line.handle_packet(0, SuperPacket::new(arrival.header, arrival.bytes, &budget));
    });
    assert_eq!(state.write_ns_max, 0, "only writes count");
    state.write(0, WRITE_TURN, &mut Vec::new(), &mut Times::new(), now_ns);
    assert_eq!((state.lines[0].counts().packets_written, state.long_turns), (2, 2));
    assert_eq!(state.write_ns_max, TURN_NS_MAX / 2 + 1);
    state.reset_counts();
    assert_eq!((state.long_turns, state.write_ns_max), (0, 0));
}
