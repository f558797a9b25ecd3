//! Cost of the executive: messages written to a loopback driver and read again, in ns per message, and the number of allocations
//! per message once queues and blocks have grown to their size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use streams::modules::NullMod;
use streams::{
    Admission, Control, Cx, Driver, DriverInfo, Errno, Executive, Kind, Message, Open, Primitive, RecvInfo,
    SendInfo, StreamId, Which, WriteAs,
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of this function.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the rules of this function.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of this function.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends every message up again on the stream that it came down on, as its own association.
struct Loopback {
    outstanding_bytes: usize,
}

impl Driver for Loopback {
    fn info(&self) -> DriverInfo {
        DriverInfo { write_as: WriteAs::OptdataReq, ..DriverInfo::default() }
    }
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }
    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}
    fn admit(&mut self, _s: StreamId, _association: Which, _info: &SendInfo, _bytes: usize) -> Admission {
        Admission::Room
    }
    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        if let Kind::Proto(Control::Tpi(Primitive::OptdataReq { association, info })) = m.kind {
            self.outstanding_bytes += m.data.len();
            let SendInfo { stream, ppid, unordered, more, .. } = info;
            let info = RecvInfo { stream, ppid, unordered, more, ..RecvInfo::default() };
            cx.put_data(s, association, &info, m.data);
        }
    }
    fn consumed(
        &mut self,
        _cx: &mut Cx<'_>,
        _s: StreamId,
        _association: Which,
        bytes: usize,
        _charges: usize,
    ) {
        self.outstanding_bytes -= bytes;
    }
}

/// Number of messages written before they are read, as many as a batch of datagrams would bring.
const BATCH: usize = 256;
const BATCHES: usize = 100;
/// Many short rounds: one of them falls between the turns of other programs on the processor.
const ROUNDS: usize = 300;

fn main() {
    // Measures one cell alone, for a profiler: `spine MODULES BYTES ROUNDS`.
    let cell: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    println!("modules  bytes  write ns  read ns  allocations/message");
    if let [modules, bytes, rounds] = cell[..] {
        return report(modules, bytes, false, rounds);
    }
    for modules in [0, 1, 3] {
        for bytes in [1, 64, 1024] {
            report(modules, bytes, false, ROUNDS);
        }
    }
    println!("coalesced writes (more to come), read back 16 KB at a time:");
    for bytes in [1, 64] {
        report(0, bytes, true, ROUNDS);
    }
}

fn report(modules: usize, bytes: usize, more: bool, rounds: usize) {
    let cost = measure(modules, bytes, more, rounds);
    let Cost { write_ns, read_ns, allocations } = cost;
    println!("{modules:>7} {bytes:>6} {write_ns:>9.1} {read_ns:>8.1} {allocations:>20.4}");
}

/// Cost of one message.
struct Cost {
    /// Time from the call of `write` until the message is on the read queue of its reader.
    write_ns: f64,
    read_ns: f64,
    allocations: f64,
}

/// Returns the cheapest of many rounds: disturbances only make a round dearer.
fn measure(modules: usize, bytes: usize, more: bool, rounds: usize) -> Cost {
    let mut executive = Executive::new(Instant::now());
    let driver = executive.add_driver("loopback", Box::new(Loopback { outstanding_bytes: 0 }));
    let s = executive.open(driver).expect("the loopback driver opens");
    for _ in 0..modules {
        executive.push(s, Box::new(NullMod)).expect("the module is pushed");
    }
    let info = SendInfo { more, ..SendInfo::default() };
    let message = vec![7; bytes];
    let mut buffer = vec![0; 16 * 1024];
    let mut best = Cost { write_ns: f64::MAX, read_ns: f64::MAX, allocations: 0.0 };
    for round in 0..rounds {
        let allocations = ALLOCATIONS.load(Ordering::Relaxed);
        let (mut writing, mut reading) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..BATCHES {
            let start = Instant::now();
            for _ in 0..BATCH {
                executive
                    .write(s, Which::Only, info, black_box(&message), Instant::now)
                    .expect("the loopback driver has room");
            }
            let written = Instant::now();
            while let Ok(Some(read)) = executive.read(s, &mut buffer) {
                black_box(read);
            }
            writing += written - start;
            reading += written.elapsed();
        }
        let messages = (BATCHES * BATCH) as f64;
        if round > 0 {
            best.write_ns = best.write_ns.min(writing.as_nanos() as f64 / messages);
            best.read_ns = best.read_ns.min(reading.as_nanos() as f64 / messages);
            best.allocations = (ALLOCATIONS.load(Ordering::Relaxed) - allocations) as f64 / messages;
        }
    }
    best
}
