//! Two paths to and from the SCTP of the Linux kernel, over UDP encapsulation and directly over IP.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use swiftwater::{
    Association, AssociationOptions, LinkKind, Multipath, PathState, PathStatistics, SendInfo, StackOptions,
};
use swiftwater_tests::peers::kernel::{
    ADDRESSES, ASKED, FLOOD_PORT, NUMBERED_BYTES, OUR_ADDRESSES, SINK_PORT, lab, leave_udp, set_link,
    wait_for_paths,
};
use swiftwater_tests::peers::messages::{TestMessage, payload};
use swiftwater_tests::swiftwater_end;

/// Both links at first: a round trip of 10 ms, and 20 ms more when the queue is full.
const ALIVE: &str = "delay 5ms rate 20mbit limit 34";
const DEAD: &str = "loss 100%";
/// Number of bytes on a path that is no accident.
const MUCH_BYTES: u64 = 1_000_000;
const MUCH_PACKETS: u64 = MUCH_BYTES / NUMBERED_BYTES as u64;

/// Returns an association with two paths to one of the kernel's servers.
fn connect(link: LinkKind, multipath: Multipath, port: u16) -> Association {
    for path in 0..2 {
        set_link(path, ALIVE);
    }
    if link == LinkKind::Raw {
        leave_udp();
    }
    let local_addresses = OUR_ADDRESSES.map(IpAddr::V4).to_vec();
    let association = AssociationOptions::default().with_multipath(multipath);
    let options = StackOptions::default()
        .with_link(link)
        .with_local_addresses(local_addresses)
        .with_association(association);
    let server = format!("{},{}:{port}", ADDRESSES[0], ADDRESSES[1]);
    Association::connect_with(server.as_str(), &options).unwrap()
}

/// Returns the paths over the first link and over the second.
fn paths(association: &Association) -> [PathStatistics; 2] {
    let paths = association.statistics().unwrap().paths;
    ADDRESSES.map(|address| paths.iter().find(|path| path.remote.ip() == address).unwrap().clone())
}

fn both_active(paths: &[PathStatistics; 2]) -> bool {
    paths.iter().all(|path| path.state == PathState::Active)
}

/// Time that the paths may take to be as expected. The kernel notices a dead path after several of its timers.
const PATIENCE: Duration = Duration::from_secs(120);

/// Numbered messages in one direction. Each step continues until the paths are as expected.
trait Load {
    fn step(&mut self);
    fn association(&self) -> &Association;

    /// Continues until the paths are as expected; the message of a failure names what was `awaited`.
    fn until(&mut self, awaited: &str, done: impl Fn(&[PathStatistics; 2]) -> bool) -> [PathStatistics; 2]
    where
        Self: Sized,
    {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let paths = paths(self.association());
            if done(&paths) {
                return paths;
            }
            assert!(Instant::now() < deadline, "waited in vain: {awaited}: {paths:#?}");
            for _ in 0..20 {
                self.step();
            }
        }
    }

    /// Continues while something else happens.
    fn during(&mut self, work: impl FnOnce() + Send + 'static) -> [PathStatistics; 2]
    where
        Self: Sized,
    {
        let working = thread::spawn(work);
        let paths = self.until("the network is changed", |_| working.is_finished());
        working.join().unwrap();
        paths
    }
}

/// Messages of ours.
struct Sending {
    association: Association,
    count: u64,
    message: Vec<u8>,
}

impl Sending {
    fn new(association: Association) -> Self {
        Sending { association, count: 0, message: payload(NUMBERED_BYTES, 0) }
    }

    /// Returns the longest time between two messages that the kernel's program read.
    fn finish(self) -> Duration {
        let (count, pause) = ask(&self.association, |message| panic!("{message:?}"));
        assert_eq!(count, self.count);
        self.association.close().unwrap();
        pause
    }
}

impl Load for Sending {
    fn step(&mut self) {
        self.message[..8].copy_from_slice(&self.count.to_be_bytes());
        self.association.send(&self.message).unwrap();
        self.count += 1;
    }

    fn association(&self) -> &Association {
        &self.association
    }
}

/// Messages of the kernel's.
struct Receiving {
    association: Association,
    count: u64,
    last: Option<Instant>,
    pause_max: Duration,
    filling: Vec<u8>,
}

impl Receiving {
    fn new(association: Association) -> Self {
        let filling = payload(NUMBERED_BYTES, 0)[8..].to_vec();
        Receiving { association, count: 0, last: None, pause_max: Duration::ZERO, filling }
    }

    fn take(&mut self, message: &TestMessage) {
        assert_eq!((message.stream, message.ppid), (0, 0));
        assert_eq!(message.payload[..8], self.count.to_be_bytes());
        assert!(message.payload[8..] == self.filling);
        self.count += 1;
        let now = Instant::now();
        self.pause_max = self.pause_max.max(self.last.map_or(Duration::ZERO, |last| now - last));
        self.last = Some(now);
    }

    /// Returns the longest time between two messages.
    fn finish(mut self) -> Duration {
        let association = self.association.clone();
        let (sent, _) = ask(&association, |message| self.take(&message));
        assert_eq!(self.count, sent);
        let pause = self.pause_max;
        drop(self);
        association.close().unwrap();
        pause
    }
}

impl Load for Receiving {
    fn step(&mut self) {
        let message = swiftwater_end::receive(&self.association).unwrap();
        self.take(&message);
    }

    fn association(&self) -> &Association {
        &self.association
    }
}

/// Asks the kernel's program what it has sent or received; `other` takes what comes before the answer.
fn ask(association: &Association, mut other: impl FnMut(TestMessage)) -> (u64, Duration) {
    association.send_with(b"how many?", &SendInfo { ppid: ASKED, ..SendInfo::default() }).unwrap();
    loop {
        let message = swiftwater_end::receive(association).unwrap();
        if message.ppid != ASKED {
            other(message);
            continue;
        }
        let text = String::from_utf8(message.payload).unwrap();
        let numbers: Vec<u64> = text.split(' ').map_while(|number| number.parse().ok()).collect();
        let [count, pause_us] = numbers[..] else { panic!("a message was not the next: {text}") };
        return (count, Duration::from_micros(pause_us));
    }
}

/// The first link fails under load and recovers. `carried`: the bytes that a path has carried.
fn survives(load: &mut impl Load, carried: impl Fn(&PathStatistics) -> u64 + Copy, much: u64) {
    let since = |paths: &[PathStatistics; 2], path: usize| {
        let before = carried(&paths[path]);
        move |paths: &[PathStatistics; 2]| carried(&paths[path]) > before + much
    };
    load.until("both paths are active", both_active);
    // An address that the kernel has not confirmed gets no SACKs.
    let paths = load.during(wait_for_paths);
    load.until("the first path carries data", since(&paths, 0));
    let paths = load.during(|| set_link(0, DEAD));
    load.until("the second path carries data", since(&paths, 1));
    load.during(|| set_link(0, ALIVE));
    // The sender may take a while to notice.
    let paths = load.until("both paths are active", both_active);
    load.until("the first path carries data", since(&paths, 0));
}

fn our_data_survives(link: LinkKind) {
    let mut load = Sending::new(connect(link, Multipath::default(), SINK_PORT));
    let carries = |paths: &[PathStatistics; 2]| both_active(paths) && paths[0].delivered_bytes > MUCH_BYTES;
    let [first, second] = load.until("both paths are active, and the first carries data", carries);
    // The kernel does not request data on all paths. On a busy machine the first may seem silent for a moment.
    assert!(second.delivered_bytes == 0 || first.early_failovers > 0, "{first:?}, {second:?}");
    survives(&mut load, |path| path.delivered_bytes, MUCH_BYTES);
    println!("longest pause: {} us", load.finish().as_micros());
}

fn their_data_survives(link: LinkKind) {
    let mut load = Receiving::new(connect(link, Multipath::default(), FLOOD_PORT));
    survives(&mut load, |path| path.packets_received, MUCH_PACKETS);
    println!("longest pause: {} us", load.finish().as_micros());
}

fn all_paths_carry_our_data(link: LinkKind) {
    let mut load = Sending::new(connect(link, Multipath::Always, SINK_PORT));
    load.until("both paths are active", both_active);
    let paths = load.during(wait_for_paths);
    let enough = |now: &[PathStatistics; 2], path: usize| {
        now[path].delivered_bytes > paths[path].delivered_bytes + MUCH_BYTES
    };
    load.until("both paths carry data", |now| enough(now, 0) && enough(now, 1));
    load.finish();
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn our_data_survives_a_dead_path() {
    lab("our_data_survives_a_dead_path", || our_data_survives(LinkKind::Udp));
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn our_data_survives_a_dead_path_over_raw_ip() {
    lab("our_data_survives_a_dead_path_over_raw_ip", || our_data_survives(LinkKind::Raw));
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn the_kernels_data_survives_a_dead_path() {
    lab("the_kernels_data_survives_a_dead_path", || their_data_survives(LinkKind::Udp));
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn the_kernels_data_survives_a_dead_path_over_raw_ip() {
    lab("the_kernels_data_survives_a_dead_path_over_raw_ip", || their_data_survives(LinkKind::Raw));
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn it_takes_data_that_comes_on_both_paths_at_once() {
    lab("it_takes_data_that_comes_on_both_paths_at_once", || all_paths_carry_our_data(LinkKind::Udp));
}

#[test]
#[ignore = "needs user-mode Linux and root: ./test --all"]
fn it_takes_data_that_comes_on_both_paths_at_once_over_raw_ip() {
    lab("it_takes_data_that_comes_on_both_paths_at_once_over_raw_ip", || {
        all_paths_carry_our_data(LinkKind::Raw);
    });
}
