//! Datagrams that measure a line.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::sys::socket::{setsockopt, sockopt};

use crate::interrupt;
use crate::lab::line::hosts::{End, Hosts, address};

/// Number of datagrams that measure the delay of a direction.
const PROBES: u32 = 250;
/// Interval between two of them, in which the line is idle. It divides no timer tick.
const PROBE_GAP: Duration = Duration::from_micros(1_730);
/// Length of a probe on the line: the headers of IPv4 and UDP, and its time.
pub(super) const PROBE_BYTES: usize = HEADERS_BYTES + 8;
/// Length of the headers of IPv4 and UDP.
const HEADERS_BYTES: usize = 28;
/// Limit for the bytes of one call, and of a millisecond.
const BATCH_BYTES_MAX: usize = 60_000;
/// Silence after which a receiver has everything, beyond the delay of the line.
const SILENCE: Duration = Duration::from_millis(500);
/// Interval at which a receiver checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Returns how long [`delays`] takes on a line with this delay.
pub(super) fn delays_duration(delay: Duration) -> Duration {
    flood_duration(PROBE_GAP * PROBES, delay)
}

/// Returns how long [`flood`] takes that sends for a while on a line with this delay.
pub(super) fn flood_duration(sending: Duration, delay: Duration) -> Duration {
    sending + delay + SILENCE + delay
}

/// Result of a flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Bits of all datagrams but the first.
    pub(super) bits_on_line: u64,
    /// Arrival of the first and the last datagram, from the start of the flood.
    pub(super) first: Duration,
    pub(super) last: Duration,
}

/// The receiving end of a direction.
struct Receiver {
    socket: UdpSocket,
    /// Silence after which nothing more will arrive.
    silence: Duration,
}

impl Receiver {
    /// Receives a datagram and returns its length; `None` after silence or Ctrl-C.
    fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let since = Instant::now();
        loop {
            match self.socket.recv(room) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error)
                    if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
                {
                    return Err(error);
                }
                Err(_) if since.elapsed() >= self.silence || interrupt::requested() => return Ok(None),
                Err(_) => {}
            }
        }
    }
}

/// Returns both ends of a direction of a path whose line has this delay.
fn ends(hosts: &Hosts, path: usize, to: End, delay: Duration) -> io::Result<(UdpSocket, Receiver)> {
    let from = if to == End::Server { End::Client } else { End::Server };
    let bind = |end: End| hosts.host(end).run(|| UdpSocket::bind((address(path, end), 0)))?;
    let (sender, socket) = (bind(from)?, bind(to)?);
    sender.connect(socket.local_addr()?)?;
    socket.set_read_timeout(Some(CHECK_INTERVAL))?;
    Ok((sender, Receiver { socket, silence: SILENCE + delay }))
}

/// Measures the delay of single datagrams on an idle line, in nanoseconds.
pub(super) fn delays(hosts: &Hosts, path: usize, to: End, delay: Duration) -> io::Result<Histogram<u64>> {
    let (sender, receiver) = ends(hosts, path, to, delay)?;
    let start = Instant::now();
    let receiving = thread::spawn(move || -> io::Result<Histogram<u64>> {
        let mut delays = Histogram::new_with_bounds(1_000, TIME_NS_MAX, 3).map_err(io::Error::other)?;
        let mut sent_ns = [0; 8];
        while let Some(bytes) = receiver.receive(&mut sent_ns)? {
            if bytes == sent_ns.len() {
                let now_ns = start.elapsed().as_nanos() as u64;
                delays.saturating_record(now_ns.saturating_sub(u64::from_be_bytes(sent_ns)));
            }
        }
        Ok(delays)
    });
    for _ in 0..PROBES {
        if interrupt::requested() {
            break;
        }
        // A datagram that the host refuses is missing at the other end, too.
        let _ = sender.send(&(start.elapsed().as_nanos() as u64).to_be_bytes());
        thread::sleep(PROBE_GAP);
    }
    receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A flood of datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    /// Bits on the line in a second.
    pub(super) bits_per_s: u64,
    /// Length of its packets.
    pub(super) mtu_bytes: usize,
    /// Time of the sending.
    pub(super) time: Duration,
    /// Delay of the line.
    pub(super) delay: Duration,
}

/// Sends a flood and counts the arrivals.
pub(super) fn flood(hosts: &Hosts, path: usize, to: End, flood: Flood) -> io::Result<Received> {
    let Flood { bits_per_s, mtu_bytes, time, delay } = flood;
    let (sender, receiver) = ends(hosts, path, to, delay)?;
    let payload_bytes = mtu_bytes - HEADERS_BYTES;
    // A kernel without segmentation offload sends or receives single datagrams, which costs more.
    let segments = setsockopt(&sender, sockopt::UdpGsoSegment, &(payload_bytes as i32)).is_ok();
    let _ = setsockopt(&receiver.socket, sockopt::UdpGroSegment, &true);
    let _ = setsockopt(&receiver.socket, sockopt::RcvBufForce, &(8 << 20));
    let start = Instant::now();
    let receiving = thread::spawn(move || receive(&receiver, start, payload_bytes));
    let a_millisecond = (bits_per_s / 8_000) as usize / mtu_bytes;
    let most = if segments { (BATCH_BYTES_MAX / payload_bytes).max(1) } else { 1 };
    let batch = vec![0; a_millisecond.clamp(1, most) * payload_bytes];
    let batch_bits = (batch.len() / payload_bytes * mtu_bytes * 8) as f64;
    let mut sent_bits = 0.0;
    while start.elapsed() < time && !interrupt::requested() {
        let due = Duration::from_secs_f64(sent_bits / bits_per_s as f64);
        if let Some(early) = due.checked_sub(start.elapsed()).filter(|early| !early.is_zero()) {
            thread::sleep(early);
        }
        let _ = sender.send(&batch);
        sent_bits += batch_bits;
    }
    receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn receive(receiver: &Receiver, start: Instant, payload_bytes: usize) -> io::Result<Received> {
    let mut room = vec![0; 1 << 16];
    let (mut first, mut last, mut datagrams) = (None, Duration::ZERO, 0);
    while let Some(bytes) = receiver.receive(&mut room)? {
        last = start.elapsed();
        match first {
            // Datagrams that came with the first one were on the line before.
            None => first = Some(last),
            Some(_) => datagrams += bytes.div_ceil(payload_bytes),
        }
    }
    let bits_on_line = (datagrams * (payload_bytes + HEADERS_BYTES) * 8) as u64;
    Ok(Received { bits_on_line, first: first.unwrap_or_default(), last })
}
