//! Datagrams that measure a line.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::interrupt;
use crate::lab::line::hosts::{End, Hosts, address, one_way_delay};
use crate::lab::line::spec::PathSpec;

/// Largest number of datagrams that measure the delay of a direction.
const PROBES_MAX: u32 = 250;
/// Minimum interval between two of them. It divides no timer tick.
const PROBE_GAP_MIN: Duration = Duration::from_micros(1_730);
/// Transmission times between two of them, so that each finds an idle line.
const PROBE_TRANSMISSIONS: u32 = 3;
/// Limit for the time of all of them but the first.
const PROBING_MAX: Duration = Duration::from_secs(5);
/// Length of a probe on the line: the headers of IPv4 and UDP, and its time.
pub(super) const PROBE_BYTES: usize = HEADERS_BYTES + 8;
/// Length of the headers of IPv4 and UDP.
const HEADERS_BYTES: usize = 28;
/// Limit for the bytes of one call, and of a millisecond.
const BATCH_BYTES_MAX: usize = 60_000;
/// Interval at which waits check for Ctrl-C, and for the end of a measurement.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of times in a row that a line must be found empty: the emulator may have reported before it read the last packet.
const EMPTY_LOOKS: u32 = 2;

/// One direction of a path.
#[derive(Clone, Copy)]
pub(super) struct Direction<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) path: usize,
    pub(super) to: End,
}

impl Direction<'_> {
    /// Returns a socket that sends in this direction, and one that receives.
    fn sockets(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let bind = |end: End| self.hosts.host(end).run(|| UdpSocket::bind((address(self.path, end), 0)))?;
        let (sender, receiver) = (bind(self.to.other())?, bind(self.to)?);
        sender.connect(receiver.local_addr()?)?;
        receiver.set_read_timeout(Some(CHECK_INTERVAL))?;
        Ok((sender, receiver))
    }

    /// Waits until no packet is on the line, or until Ctrl-C.
    fn wait_until_empty(&self) {
        let mut empty = 0;
        while empty < EMPTY_LOOKS && !interrupt::requested() {
            thread::sleep(CHECK_INTERVAL);
            match self.hosts.packets_in_flight(self.path, self.to) {
                Some(0) => empty += 1,
                Some(_) => empty = 0,
                None => return,
            }
        }
    }
}

/// Returns how long a measurement takes whose last packet needs `delay`, once all is sent.
fn rest_duration(delay: Duration) -> Duration {
    delay + CHECK_INTERVAL * (EMPTY_LOOKS + 1)
}

/// Returns how long [`flood`] takes that sends for a while.
pub(super) fn flood_duration(spec: &PathSpec, sending: Duration) -> Duration {
    sending + rest_duration(one_way_delay(spec, spec.mtu_bytes))
}

/// The schedule of the probes of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbePlan {
    count: u32,
    gap: Duration,
}

impl ProbePlan {
    /// Returns a schedule by which the probes meet an idle line.
    pub(super) fn new(spec: &PathSpec) -> Self {
        let transmission = one_way_delay(spec, PROBE_BYTES).saturating_sub(spec.pipe.delay);
        let gap = PROBE_GAP_MIN.max(transmission * PROBE_TRANSMISSIONS);
        let count = (PROBING_MAX.as_nanos() / gap.as_nanos()) as u32;
        ProbePlan { count: count.clamp(1, PROBES_MAX), gap }
    }

    /// Returns how long [`delays`] takes.
    pub(super) fn duration(self, spec: &PathSpec) -> Duration {
        self.sending_time() + rest_duration(one_way_delay(spec, PROBE_BYTES))
    }

    /// Returns the time from the first probe to the last.
    pub(super) fn sending_time(self) -> Duration {
        self.gap * (self.count - 1)
    }
}

/// Measured delays, in order.
#[derive(Clone, Debug)]
pub(super) struct Delays(Vec<Duration>);

impl Delays {
    /// Returns the delay that this share of the probes did not exceed; `None` if none arrived.
    pub(super) fn quantile(&self, share: f64) -> Option<Duration> {
        let last = self.0.len().checked_sub(1)?;
        self.0.get((last as f64 * share).round() as usize).copied()
    }
}

impl FromIterator<Duration> for Delays {
    fn from_iter<T: IntoIterator<Item = Duration>>(delays: T) -> Self {
        let mut delays: Vec<Duration> = delays.into_iter().collect();
        delays.sort_unstable();
        Delays(delays)
    }
}

/// Measures the delay of single datagrams on an idle line.
pub(super) fn delays(direction: Direction<'_>, plan: ProbePlan) -> io::Result<Delays> {
    let (sender, receiver) = direction.sockets()?;
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut delays, mut sent_ns) = (Vec::new(), [0; 8]);
            while let Some(bytes) = receive(&receiver, &mut sent_ns, &is_over)? {
                if bytes == sent_ns.len() {
                    let sent = Duration::from_nanos(u64::from_be_bytes(sent_ns));
                    delays.push(start.elapsed().saturating_sub(sent));
                }
            }
            Ok(delays.into_iter().collect())
        });
        for number in 0..plan.count {
            if !sleep_until(start + plan.gap * number) {
                break;
            }
            // A datagram that the host refuses is missing at the other end, too.
            let _ = sender.send(&(start.elapsed().as_nanos() as u64).to_be_bytes());
        }
        direction.wait_until_empty();
        is_over.store(true, Ordering::Release);
        receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Measures the delay of single datagrams on an idle line while a flood fills the other direction of its path.
pub(super) fn delays_beside_flood(
    direction: Direction<'_>,
    plan: ProbePlan,
    flood: Flood,
) -> io::Result<Delays> {
    let back = Direction { to: direction.to.other(), ..direction };
    thread::scope(|scope| {
        let flooding = scope.spawn(|| self::flood(back, flood));
        let delays = delays(direction, plan);
        flooding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        delays
    })
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
}

impl Flood {
    /// Returns the number of its packets, if the host can send that fast.
    pub(super) fn packets(&self) -> f64 {
        self.bits_per_s as f64 * self.time.as_secs_f64() / (self.mtu_bytes * 8) as f64
    }
}

/// Result of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) packets_sent: u64,
    pub(super) packets_received: u64,
    /// Bits of all datagrams but the first.
    pub(super) bits_on_line: u64,
    /// Arrival of the first and the last datagram, from the start of the flood.
    pub(super) first: Duration,
    pub(super) last: Duration,
}

/// Sends a flood and counts the arrivals.
pub(super) fn flood(direction: Direction<'_>, flood: Flood) -> io::Result<Received> {
    let (sender, receiver) = direction.sockets()?;
    let payload_bytes = flood.mtu_bytes - HEADERS_BYTES;
    // A kernel without segmentation offload sends or receives single datagrams, which costs more.
    let segments = setsockopt(&sender, sockopt::UdpGsoSegment, &(payload_bytes as i32)).is_ok();
    let _ = setsockopt(&receiver, sockopt::UdpGroSegment, &true);
    let _ = setsockopt(&receiver, sockopt::RcvBufForce, &(8 << 20));
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| count_arrivals(&receiver, start, payload_bytes, &is_over));
        let packets_sent = send(&sender, start, flood, segments);
        direction.wait_until_empty();
        is_over.store(true, Ordering::Release);
        let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Received { packets_sent, ..received })
    })
}

/// Sends until the time of the flood is over. Returns the number of packets that the host took.
fn send(sender: &UdpSocket, start: Instant, flood: Flood, segments: bool) -> u64 {
    let Flood { bits_per_s, mtu_bytes, time } = flood;
    let payload_bytes = mtu_bytes - HEADERS_BYTES;
    let packets_in_ms = (bits_per_s / 8_000) as usize / mtu_bytes;
    let packets_max = if segments { (BATCH_BYTES_MAX / payload_bytes).max(1) } else { 1 };
    let batch_packets = packets_in_ms.clamp(1, packets_max);
    let batch = vec![0; batch_packets * payload_bytes];
    let batch_bits = (batch_packets * mtu_bytes * 8) as f64;
    let (mut offered_bits, mut packets_sent) = (0.0, 0);
    while start.elapsed() < time {
        let due = Duration::from_secs_f64(offered_bits / bits_per_s as f64);
        if !sleep_until(start + due.min(time)) || due >= time {
            break;
        }
        if sender.send(&batch).is_ok() {
            packets_sent += batch_packets as u64;
        }
        offered_bits += batch_bits;
    }
    packets_sent
}

fn count_arrivals(
    receiver: &UdpSocket,
    start: Instant,
    payload_bytes: usize,
    is_over: &AtomicBool,
) -> io::Result<Received> {
    let mut buffer = vec![0; 1 << 16];
    let (mut first, mut received) = (None, Received::default());
    while let Some(bytes) = receive(receiver, &mut buffer, is_over)? {
        let packets = bytes.div_ceil(payload_bytes) as u64;
        received.packets_received += packets;
        received.last = start.elapsed();
        match first {
            // Datagrams that came with the first one were on the line before.
            None => first = Some(received.last),
            Some(_) => received.bits_on_line += packets * ((payload_bytes + HEADERS_BYTES) * 8) as u64,
        }
    }
    Ok(Received { first: first.unwrap_or_default(), ..received })
}

/// Receives a datagram and returns its length; `None` after Ctrl-C, or if all is over and none is left.
fn receive(socket: &UdpSocket, buffer: &mut [u8], is_over: &AtomicBool) -> io::Result<Option<usize>> {
    loop {
        // Read before the socket: what arrived before the end is received.
        let was_over = is_over.load(Ordering::Acquire);
        match socket.recv(buffer) {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(error);
            }
            Err(_) if was_over || interrupt::requested() => return Ok(None),
            Err(_) => {}
        }
    }
}

/// Sleeps until a time. Returns false at once after Ctrl-C.
pub(super) fn sleep_until(until: Instant) -> bool {
    loop {
        if interrupt::requested() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(CHECK_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(path: &str) -> ProbePlan {
        ProbePlan::new(&path.parse().expect("a path"))
    }

    #[test]
    fn probes_find_an_idle_line_and_do_not_take_forever() {
        let usual = ProbePlan { count: PROBES_MAX, gap: PROBE_GAP_MIN };
        for path in ["5ms", "1gbit,5ms", "1mbit"] {
            assert_eq!(plan(path), usual, "{path}");
        }
        // 36 bytes take 4.5 ms.
        assert_eq!(plan("64kbit"), ProbePlan { count: PROBES_MAX, gap: Duration::from_micros(13_500) });
        let slow = plan("1kbit");
        assert_eq!(slow.gap, Duration::from_millis(864));
        assert!(slow.gap * slow.count <= PROBING_MAX, "{slow:?}");
        assert_eq!(plan("1bit").count, 1);
    }

    #[test]
    fn without_an_arrival_there_is_no_delay() {
        let none: Delays = [].into_iter().collect();
        assert_eq!(none.quantile(0.5), None);
        let three: Delays = [3, 1, 2].map(Duration::from_millis).into_iter().collect();
        assert_eq!(
            [0.0, 0.5, 0.99].map(|share| three.quantile(share)),
            [1, 2, 3].map(|ms| Some(Duration::from_millis(ms)))
        );
    }

    #[test]
    fn a_flood_on_a_line_that_takes_hours_for_a_packet_ends_on_time() {
        let socket = || UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
        let (sender, receiver) = (socket(), socket());
        sender.connect(receiver.local_addr().expect("bound")).expect("loopback");
        let flood = Flood { bits_per_s: 1, mtu_bytes: 1500, time: Duration::from_millis(50) };
        // The second packet would be due after 12,000 s.
        assert_eq!(send(&sender, Instant::now(), flood, false), 1);
    }
}
