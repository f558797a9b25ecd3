//! The work of a test: the loops that send, receive and answer messages, over any transport.
//!
//! A loop is generic over its transport, so that a message costs the transport's call and a handful of instructions. No loop
//! reads the clock for every message.

pub(crate) mod relay;
pub(crate) mod sctp_transport;
pub(crate) mod tcp;
pub(crate) mod udp;
pub(crate) mod udp_limit;

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use links::AlignedBuffer;
use thiserror::Error;

/// Longest latency that the histogram distinguishes.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Error of a loop.
#[derive(Debug, Error)]
pub(crate) enum LoadError {
    /// The system or the transport failed.
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
    /// A message arrived that the peer did not send.
    #[error("a message of {got} bytes arrived where {expected} were sent; the transport broke a message")]
    WrongSize { got: usize, expected: usize },
    /// The association could not be made.
    #[error("cannot connect over SCTP: {0}")]
    Connect(#[from] swiftwater::ConnectError),
    /// The client's sockets could not be made.
    #[error("cannot bind the sockets of SCTP: {0}")]
    Bind(#[from] swiftwater::BindError),
    /// The association does not take messages.
    #[error("cannot send over SCTP: {0}")]
    Send(#[from] swiftwater::SendError),
    /// The association does not give messages.
    #[error("cannot receive over SCTP: {0}")]
    Recv(#[from] swiftwater::RecvError),
    /// No association was accepted.
    #[error(transparent)]
    Accept(#[from] swiftwater::AcceptError),
    /// The peer closed in the middle of the test.
    #[error(
        "the other end closed the connection before the test was over; look at its own messages for the reason"
    )]
    Closed,
    /// No connection came.
    #[error("the client did not open its connections in time; check that its data can reach this host")]
    NoConnection,
}

impl LoadError {
    /// Returns a function that adds the failed operation to an error of the system.
    pub(crate) fn during(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Takes messages to the other end.
pub(crate) trait Outgoing {
    /// Passes one message to the transport.
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError>;
    /// Waits until all data has left, and ends the direction.
    fn finish(self) -> Result<(), LoadError>;
}

/// Takes messages from the other end.
pub(crate) trait Incoming {
    /// Receives the next message, or the next piece if the transport keeps no boundaries, reads every byte and returns the
    /// length; returns `None` after the last one.
    fn recv(&mut self) -> Result<Option<usize>, LoadError>;
}

/// Both directions, one message at a time.
pub(crate) trait Dialogue {
    /// Sends one message.
    fn send(&mut self, message: &[u8]) -> Result<(), LoadError>;
    /// Fills the buffer with one message of its size; returns false if the other end has closed.
    fn recv(&mut self, message: &mut [u8]) -> Result<bool, LoadError>;
}

/// Counters of one loop. One thread writes them, any thread may read them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Meter {
    calls: AtomicU64,
    bytes: AtomicU64,
    sent_until: OnceLock<Instant>,
}

impl Meter {
    /// Returns the calls and bytes so far.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Returns the sums of the calls and bytes of all meters.
    pub(crate) fn total(meters: &[Arc<Meter>]) -> (u64, u64) {
        meters.iter().map(|meter| meter.read()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// Returns when the last of the loops that send had passed on its last message; `None` without such a loop.
    pub(crate) fn sent_until(meters: &[Arc<Meter>]) -> Option<Instant> {
        meters.iter().filter_map(|meter| meter.sent_until.get()).max().copied()
    }

    #[inline]
    fn set(&self, calls: u64, bytes: u64) {
        self.calls.store(calls, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// Times at which the first and the last message arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    /// The first arrival.
    pub first: Option<Instant>,
    /// The last arrival, to within 64 messages and 16 KB.
    pub last: Option<Instant>,
}

/// Sends messages of this size until `stop` is set or `limit` have been sent.
pub(crate) fn send_all(
    mut out: impl Outgoing,
    message: &[u8],
    limit: u64,
    stop: &AtomicBool,
    meter: &Meter,
) -> Result<(), LoadError> {
    let mut calls = 0;
    while calls < limit && !stop.load(Ordering::Relaxed) {
        out.send(message)?;
        calls += 1;
        meter.set(calls, calls * message.len() as u64);
    }
    meter.sent_until.get_or_init(Instant::now);
    out.finish()
}

/// Receives until the sender has ended, and checks each message's size if the transport keeps boundaries.
///
/// The span ends with the last arrival and not with the end of the connection: the time that a transport takes to close is no
/// part of its throughput. The clock is read once in 64 messages or 16 KB.
pub(crate) fn receive_all(
    incoming: &mut impl Incoming,
    message_bytes: Option<usize>,
    meter: &Meter,
) -> Result<Span, LoadError> {
    const EXACT_CALLS: u64 = 1024;
    const CALLS_PER_CLOCK_READ: u64 = 64;
    const BYTES_PER_CLOCK_READ: u64 = 16 << 10;
    let mut span = Span::default();
    let (mut calls, mut bytes, mut bytes_at_clock_read) = (0_u64, 0_u64, 0_u64);
    while let Some(count) = incoming.recv()? {
        if let Some(expected) = message_bytes
            && count != expected
        {
            return Err(LoadError::WrongSize { got: count, expected });
        }
        calls += 1;
        bytes += count as u64;
        meter.set(calls, bytes);
        if calls < EXACT_CALLS
            || calls.is_multiple_of(CALLS_PER_CLOCK_READ)
            || bytes - bytes_at_clock_read >= BYTES_PER_CLOCK_READ
        {
            bytes_at_clock_read = bytes;
            let now = Instant::now();
            span.first.get_or_insert(now);
            span.last = Some(now);
        }
    }
    Ok(span)
}

/// Sends requests and measures the answers until `stop` is set or `limit` have come.
pub(crate) fn ask_all(
    mut dialogue: impl Dialogue,
    request: &[u8],
    limit: u64,
    stop: &AtomicBool,
    meter: &Meter,
    latencies: &mut Histogram<u64>,
) -> Result<(), LoadError> {
    let mut response = AlignedBuffer::new(request.len());
    let mut calls = 0;
    let mut before = Instant::now();
    while calls < limit && !stop.load(Ordering::Relaxed) {
        dialogue.send(request)?;
        if !dialogue.recv(&mut response)? {
            return Err(LoadError::Closed);
        }
        let after = Instant::now();
        record(latencies, after - before);
        before = after;
        calls += 1;
        meter.set(calls, calls * request.len() as u64);
    }
    Ok(())
}

/// Answers each request with a message of its size until the client closes.
pub(crate) fn answer_all(
    mut dialogue: impl Dialogue,
    message_bytes: usize,
    meter: &Meter,
) -> Result<Span, LoadError> {
    let mut message = AlignedBuffer::new(message_bytes);
    let mut span = Span::default();
    let (mut calls, _) = meter.read();
    while dialogue.recv(&mut message)? {
        dialogue.send(&message)?;
        calls += 1;
        meter.set(calls, calls * message_bytes as u64);
        span.last = Some(Instant::now());
        span.first = span.first.or(span.last);
    }
    Ok(span)
}

/// Opens a connection, makes one request and closes it, repeatedly, and measures each cycle.
pub(crate) fn connect_and_ask_all<D: Dialogue>(
    mut connect: impl FnMut() -> Result<D, LoadError>,
    request: &[u8],
    limit: u64,
    stop: &AtomicBool,
    meter: &Meter,
    latencies: &mut Histogram<u64>,
) -> Result<(), LoadError> {
    let mut response = AlignedBuffer::new(request.len());
    let mut calls = 0;
    while calls < limit && !stop.load(Ordering::Relaxed) {
        let before = Instant::now();
        let mut dialogue = connect()?;
        dialogue.send(request)?;
        if !dialogue.recv(&mut response)? {
            return Err(LoadError::Closed);
        }
        record(latencies, before.elapsed());
        drop(dialogue);
        calls += 1;
        meter.set(calls, calls * request.len() as u64);
    }
    Ok(())
}

/// Returns an empty histogram of nanoseconds with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the crate accepts")]
    Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3).expect("constant bounds")
}

/// Records a latency, in nanoseconds.
pub(crate) fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}

/// Reads every byte, so that a transport which passes memory on without touching it pays for the reading.
#[inline]
pub(crate) fn read_every_byte(bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut folded = words.iter().fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word));
    for &byte in rest {
        folded ^= u64::from(byte);
    }
    black_box(folded);
}

/// Returns the message that tests send: bytes that are neither all equal nor trivially compressible.
pub(crate) fn payload(message_bytes: usize) -> Vec<u8> {
    (0..message_bytes).map(|index| (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pieces(Vec<usize>);

    impl Incoming for Pieces {
        fn recv(&mut self) -> Result<Option<usize>, LoadError> {
            Ok(self.0.pop())
        }
    }

    #[test]
    fn every_delivered_byte_counts() {
        let meter = Meter::default();
        let span = receive_all(&mut Pieces(vec![5, 6, 7]), None, &meter).expect("pieces do not fail");
        assert_eq!(meter.read(), (3, 18));
        assert!(span.first.is_some() && span.first <= span.last);
    }

    #[test]
    fn a_broken_message_is_an_error() {
        let outcome = receive_all(&mut Pieces(vec![64, 63, 64]), Some(64), &Meter::default());
        assert!(matches!(outcome, Err(LoadError::WrongSize { got: 63, expected: 64 })), "{outcome:?}");
    }
}
