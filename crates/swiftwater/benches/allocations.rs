//! Allocations in the steady state: their number for each packet and for each message, at both ends together.
//!
//! `cargo bench -p swiftwater --bench allocations`; `-- 1500 16384` for one size of packets (0: that of the loopback interface)
//! and of messages.
#![allow(missing_docs, reason = "a program")]
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use swiftwater::{Association, Listener, StackOptions};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cell: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    println!(
        "{:>8} {:>8} {:>12} {:>10} {:>16} {:>16} {:>12}",
        "packet", "message", "messages", "packets", "allocations", "per packet", "per message"
    );
    if let [mtu_bytes, message_bytes] = cell[..] {
        return measure((mtu_bytes > 0).then_some(mtu_bytes), message_bytes);
    }
    for mtu_bytes in [None, Some(1500)] {
        for message_bytes in [1, 64, 256, 1024, 4096, 16384, 65536] {
            measure(mtu_bytes, message_bytes)?;
        }
    }
    Ok(())
}

fn measure(mtu_bytes: Option<usize>, message_bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let options = StackOptions::default().with_mtu_bytes(mtu_bytes);
    let listener = Listener::bind_with("127.0.0.1:0/udp:0", &options)?;
    let address = listener.address();
    let reader = std::thread::spawn(move || {
        let (association, _) = listener.accept().expect("an association");
        let mut buffer = vec![0; 65536];
        while association.recv_into(&mut buffer).expect("a message").is_some() {}
    });
    let association = Association::connect_with(&address, &options)?;
    let message = vec![7; message_bytes];
    let count = (256 << 20) / message_bytes.max(128);
    let warm_up = count / 4;
    let mut before = (0, 0);
    for i in 0..count + warm_up {
        if i == warm_up {
            before = (
                ALLOCATIONS.load(Ordering::Relaxed),
                association.statistics().unwrap_or_default().packets_sent,
            );
        }
        association.send(&message)?;
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before.0;
    let packets = association.statistics().unwrap_or_default().packets_sent - before.1;
    println!(
        "{:>8} {message_bytes:>8} {count:>12} {packets:>10} {allocations:>16} {:>16.4} {:>12.4}",
        mtu_bytes.map_or("loopback".into(), |b| b.to_string()),
        allocations as f64 / packets as f64,
        allocations as f64 / count as f64
    );
    association.close()?;
    reader.join().map_err(|_| "the reader failed")?;
    Ok(())
}
