//! Cost of a packet: CRC32c of several crates by length, and reading and building a packet of small DATA chunks. Prints
//! nanoseconds and, for checksums, gigabytes a second: the best of several rounds, because every disturbance makes a measurement
//! slower. Calls that do not depend on each other overlap, so these are costs in throughput; the latency of one checksum is about
//! twice as long.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sctp_wire::checksum::{Digest, crc32c};
use sctp_wire::chunk::{Data, DataFlags};
use sctp_wire::{Header, Packet, Ppid, Ssn, StreamId, Tsn, VerificationTag, packet};

const ROUNDS: u32 = 15;
const ROUND: Duration = Duration::from_millis(8);
/// The first is the smallest packet with a DATA chunk's header in front of its data, the last a packet of a
/// same-host path.
const LENGTHS: [usize; 6] = [20, 64, 512, 1452, 8192, 65000];
/// A 1452-byte packet has room for this many DATA chunks of one byte.
const CHUNKS: usize = 72;

fn main() {
    checksums();
    println!();
    packets();
}

fn checksums() {
    println!(
        "{:>6} {:>20} {:>20} {:>20} {:>20}",
        "bytes", "checksum::crc32c", "Digest", "crc-fast", "crc32c"
    );
    let bytes: Vec<u8> = (0..70_000_u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    // Offset 0 is aligned as an allocation is; 4 as a packet is behind a header of four bytes.
    for (offset, length) in [0, 4].into_iter().flat_map(|offset| LENGTHS.map(|length| (offset, length))) {
        let piece = &bytes[offset..offset + length];
        let ours = nanoseconds(|| crc32c(black_box(piece)));
        let pieces = nanoseconds(|| {
            let mut digest = Digest::new();
            digest.update(black_box(&piece[..12]));
            digest.update(black_box(&piece[12..]));
            digest.finalize()
        });
        let fast = nanoseconds(|| crc_fast::crc32_iscsi(black_box(piece)));
        let c32c = nanoseconds(|| crc32c::crc32c(black_box(piece)));
        print!("{:>6}", format!("{length}+{offset}"));
        for nanoseconds in [ours, pieces, fast, c32c] {
            print!(" {nanoseconds:>9.1} ns {:>6.2}/s", length as f64 / nanoseconds);
        }
        println!();
    }
    let seventy_two = nanoseconds(|| {
        let mut digest = Digest::new();
        black_box(&bytes[..CHUNKS * 20]).chunks_exact(20).for_each(|piece| digest.update(piece));
        digest.finalize()
    });
    println!("{CHUNKS} updates of 20 bytes: {:.2} ns each", seventy_two / CHUNKS as f64);
}

fn packets() {
    let mut bytes = Vec::with_capacity(2048);
    let build = nanoseconds(|| {
        bytes.clear();
        build(black_box(&mut bytes));
        bytes.len()
    });
    let with_checksum = nanoseconds(|| {
        bytes.clear();
        build_and_finish(black_box(&mut bytes));
        bytes.len()
    });
    let parse = nanoseconds(|| read(black_box(&bytes)));
    let verified = nanoseconds(|| Packet::parse(black_box(&bytes)).is_ok_and(|packet| packet.checksum_ok()));
    println!("a packet of {CHUNKS} DATA chunks of 1 byte, {} bytes:", bytes.len());
    for (what, nanoseconds) in [
        ("build", build),
        ("build and checksum", with_checksum),
        ("parse", parse),
        ("verify checksum", verified),
    ] {
        println!("{what:>20} {nanoseconds:>9.1} ns {:>6.2} ns a chunk", nanoseconds / CHUNKS as f64);
    }
}

fn build_and_finish(out: &mut Vec<u8>) {
    build(out);
    packet::finish(out);
}

fn build(out: &mut Vec<u8>) {
    let header = Header { source_port: 1, destination_port: 2, verification_tag: VerificationTag(3) };
    packet::write_header(&header, out);
    for index in 0..CHUNKS as u32 {
        let (ssn, stream, ppid) = (Ssn(index as u16), StreamId(0), Ppid(0));
        Data { flags: DataFlags::WHOLE, tsn: Tsn(index), stream, ssn, ppid, payload: b"x" }.write(out);
    }
}

fn read(bytes: &[u8]) -> u32 {
    let mut seen = 0;
    let Ok(packet) = Packet::parse(bytes) else { return 0 };
    for raw in packet.chunks() {
        if let Ok(raw) = raw
            && raw.kind == Data::KIND
            && let Ok(data) = Data::parse(&raw)
        {
            seen ^= data.tsn.0
                ^ u32::from(data.ssn.0)
                ^ u32::from(data.payload[0])
                ^ u32::from(data.flags.ending);
        }
    }
    seen
}

/// Returns the best average of [`ROUNDS`] rounds.
fn nanoseconds<T>(mut run: impl FnMut() -> T) -> f64 {
    let mut calls = 1_u32;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let elapsed = loop {
            let start = Instant::now();
            for _ in 0..calls {
                black_box(run());
            }
            let elapsed = start.elapsed();
            if elapsed >= ROUND / 2 {
                break elapsed;
            }
            calls = calls.saturating_mul(2);
        };
        best = best.min(elapsed.as_nanos() as f64 / f64::from(calls));
    }
    best
}
