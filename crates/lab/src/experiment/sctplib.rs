//! A file over a long line, with a receive buffer smaller and one much larger than the line needs. A larger buffer must
//! not be slower: with sctplib it was, twenty times.

use std::time::Duration;

use netsim::PipeConfig;
use sctp::congestion::Algorithm;

use super::bulk::{Bulk, Load, published};
use super::{Case, Options, Outcome, published as figures};

/// The receive buffers that were published.
const BUFFERS_BYTES: [usize; 2] = [655_335, 67_107_840];
/// Not less than any window: the sender is not to be the limit.
const SEND_BUFFER_BYTES: usize = 64 << 20;

pub(super) fn line() -> PipeConfig {
    PipeConfig {
        rate_bits_per_s: Some(30_000_000),
        delay: Duration::from_millis(50),
        // `ipfw` counts 1024 bytes in a KByte.
        queue_bytes: 400 << 10,
        ..PipeConfig::default()
    }
}

/// Returns a file of so many tenths of a megabyte, so that names and numbers agree.
pub(super) fn case(seed: u64, mbytes: f64, receive_buffer_bytes: usize) -> Bulk {
    Bulk {
        name: format!("{mbytes} MB, {receive_buffer_bytes} bytes of receive buffer"),
        seed,
        line: line(),
        algorithm: Algorithm::default(),
        send_buffer_bytes: SEND_BUFFER_BYTES,
        receive_buffer_bytes,
        load: Load::File((mbytes * figures::MB_BYTES) as u64),
        predicted_bits_per_s: None,
        published: |bulk, _| {
            let Load::File(bytes) = bulk.load else { return Vec::new() };
            let mbytes = (bytes as f64 / figures::MB_BYTES * 10.0).round() / 10.0;
            published(bulk, figures::sctplib(mbytes, bulk.receive_buffer_bytes))
        },
    }
}

/// Returns the published file with both buffers, and with `full` the file of twice the size.
pub(super) fn cases(options: &Options) -> Vec<Box<dyn Case>> {
    let sizes: &[f64] = if options.full { &[114.3, 228.7] } else { &[114.3] };
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for &mbytes in sizes {
        for buffer in BUFFERS_BYTES {
            cases.push(Box::new(case(options.seed, mbytes, buffer)));
        }
    }
    cases
}

/// Returns the published results for a file of this many MB of 2^20 bytes: SCTP with this receive buffer, and TCP.
pub fn published_sctplib(mbytes: f64, receive_buffer_bytes: usize) -> Vec<Outcome> {
    published(&case(0, mbytes, receive_buffer_bytes), figures::sctplib(mbytes, receive_buffer_bytes))
}
