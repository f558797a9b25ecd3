//! One-way throughput of the UDP link over loopback between two threads, and its allocations.
//!
//! The sender keeps no more on the way than the path allows, so nothing is lost. After a warm-up every allocation
//! of the process is counted: `allocations/batch` has to print 0.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use links::{Datagrams, Link, LinkStats, Sink, Transmit, UdpEncap, UdpEncapConfig, Unreachable};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

const WARM_UP: Duration = Duration::from_millis(300);
const MEASURED: Duration = Duration::from_millis(1500);
/// Number of runs; their spread shows the noise of the machine.
const RUNS: usize = 3;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches one atomic only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from the same allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Touches what arrives as a protocol would: once per datagram.
struct Count<'a> {
    received_bytes: &'a AtomicU64,
    checksum: u64,
}

impl Sink for Count<'_> {
    fn datagrams(&mut self, datagrams: Datagrams) {
        for datagram in datagrams.payload.chunks(datagrams.segment_bytes) {
            self.checksum = self.checksum.wrapping_add(u64::from(datagram[0]));
        }
        self.received_bytes.fetch_add(datagrams.payload.len() as u64, Ordering::Release);
    }

    fn unreachable(&mut self, unreachable: Unreachable) {
        panic!("{unreachable:?}");
    }
}

struct Case {
    name: &'static str,
    segment_bytes: usize,
    batch_bytes: usize,
    offload: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "1452-byte segments, 44 a batch",
        segment_bytes: 1452,
        batch_bytes: 44 * 1452,
        offload: true,
    },
    Case { name: "65,000-byte datagrams", segment_bytes: 65_000, batch_bytes: 65_000, offload: true },
    Case { name: "100-byte segments, 64 a batch", segment_bytes: 100, batch_bytes: 6400, offload: true },
    Case { name: "1452-byte datagrams, no offload", segment_bytes: 1452, batch_bytes: 1452, offload: false },
];

fn main() {
    println!(
        "{:34} {:>12} {:>9} {:>12} {:>18} {:>9}",
        "case", "datagrams/s", "Gbit/s", "batches/s", "allocations/batch", "lost"
    );
    for case in &CASES {
        for _ in 0..RUNS {
            run(case);
        }
    }
}

fn bind(offload: bool) -> UdpEncap {
    let addresses = vec!["127.0.0.1".parse().unwrap()];
    UdpEncap::bind(&UdpEncapConfig { addresses, port: 0, offload, ..UdpEncapConfig::default() }).unwrap()
}

fn run(case: &Case) {
    let mut receiver = bind(case.offload);
    let remote = receiver.local_addresses()[0];
    let received_bytes = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let taker = thread::spawn({
        let (received_bytes, stop) = (Arc::clone(&received_bytes), Arc::clone(&stop));
        move || receive_until_stopped(&mut receiver, &received_bytes, &stop)
    });
    let mut sender = bind(case.offload);
    transmit_for(case, &mut sender, remote, &received_bytes, WARM_UP);
    let (before, allocations_before, start) =
        (sender.stats(), ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
    transmit_for(case, &mut sender, remote, &received_bytes, MEASURED);
    let (elapsed_s, allocations) =
        (start.elapsed().as_secs_f64(), ALLOCATIONS.load(Ordering::Relaxed) - allocations_before);
    let after = sender.stats();
    stop.store(true, Ordering::Release);
    let received = taker.join().unwrap();
    print_row(case, &before, &after, &received, elapsed_s, allocations);
}

fn print_row(
    case: &Case,
    before: &LinkStats,
    after: &LinkStats,
    received: &LinkStats,
    elapsed_s: f64,
    allocations: u64,
) {
    let batches = after.batches_sent - before.batches_sent;
    println!(
        "{:34} {:>12.0} {:>9.2} {:>12.0} {:>18.4} {:>9}",
        case.name,
        (after.datagrams_sent - before.datagrams_sent) as f64 / elapsed_s,
        (after.bytes_sent - before.bytes_sent) as f64 * 8e-9 / elapsed_s,
        batches as f64 / elapsed_s,
        allocations as f64 / batches as f64,
        received.receive_overflows,
    );
}

fn transmit_for(
    case: &Case,
    sender: &mut UdpEncap,
    remote: SocketAddr,
    received_bytes: &AtomicU64,
    duration: Duration,
) {
    let payload = vec![1; case.batch_bytes];
    let slices: Vec<_> = payload.chunks(4096).map(IoSlice::new).collect();
    let transmit = Transmit {
        remote,
        local: None,
        traffic_class: 0,
        may_fragment: false,
        segment_bytes: case.segment_bytes,
        slices: &slices,
    };
    // Small datagrams are charged for far more than their bytes.
    let limit_bytes = sender.path_info(remote).in_flight_limit_bytes.unwrap() as u64;
    let limit_bytes = limit_bytes.min(2000 * case.segment_bytes as u64);
    let start = Instant::now();
    while start.elapsed() < duration {
        let sent_bytes = sender.stats().bytes_sent + case.batch_bytes as u64;
        while sent_bytes - received_bytes.load(Ordering::Acquire) > limit_bytes {
            thread::yield_now();
            assert!(start.elapsed() < duration * 10, "datagrams were lost, so the sender waits for ever");
        }
        sender.transmit(&transmit).unwrap();
    }
}

fn receive_until_stopped(link: &mut UdpEncap, received_bytes: &AtomicU64, stop: &AtomicBool) -> LinkStats {
    let mut sink = Count { received_bytes, checksum: 0 };
    while !stop.load(Ordering::Acquire) {
        if !link.receive(&mut sink).unwrap() {
            link.descriptors(&mut |fd| {
                let timeout = PollTimeout::from(100u8);
                poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout).unwrap();
            });
        }
    }
    std::hint::black_box(sink.checksum);
    link.stats()
}
