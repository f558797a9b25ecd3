//! The size of the receive buffer, which follows the reader.
//!
//! A window that holds the data of one round trip limits the sender as soon as the sender's window would grow. So the
//! buffer holds a multiple of the data that the reader has taken in the last round trip, as in Linux's TCP ("Dynamic
//! Right-Sizing", Fisk and Feng, 2001). The buffer of a reader that does not keep up stays as it is.

use std::time::Duration;

use crate::time::Time;

/// Number of round trips of data that the buffer holds: slow start doubles the data sent in a round trip, the window
/// for it must be announced a round trip before, and repairing a loss takes another one while the rest waits.
const ROUNDS: usize = 4;
/// Overhead of a received message beyond its payload until it is read, and of each chunk of an incomplete message. The
/// structures that hold it occupy at most twice as much.
pub const RECEIVED_OVERHEAD_BYTES: usize = 96;
/// Overhead of an association that occupies no room of the window, so that short messages that fit a small window are
/// kept.
pub const OVERHEAD_FREE_BYTES: usize = 64 * 1024;
/// Room for the reports of restarts beyond a full buffer. It is larger than a chunk, with which data may exceed the buffer.
pub const RESTARTS_BYTES: usize = 80 * 1024;

/// Payload and overhead of received data that is not read yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    payload_bytes: usize,
    overhead_bytes: usize,
}

impl Held {
    /// Returns the charge of this many messages, or of chunks of incomplete messages.
    #[inline]
    pub(crate) fn of(payload_bytes: usize, count: usize) -> Self {
        Held { payload_bytes, overhead_bytes: count * RECEIVED_OVERHEAD_BYTES }
    }

    #[inline]
    pub(crate) fn add(&mut self, more: Held) {
        self.payload_bytes += more.payload_bytes;
        self.overhead_bytes += more.overhead_bytes;
    }

    #[inline]
    pub(crate) fn remove(&mut self, gone: Held) {
        self.payload_bytes = self.payload_bytes.saturating_sub(gone.payload_bytes);
        self.overhead_bytes = self.overhead_bytes.saturating_sub(gone.overhead_bytes);
    }

    #[inline]
    pub(crate) fn payload_bytes(self) -> usize {
        self.payload_bytes
    }

    /// Returns the total, in bytes.
    #[inline]
    pub(crate) fn total_bytes(self) -> usize {
        self.payload_bytes + self.overhead_bytes
    }

    /// Returns the charge to the window: the peer counts payload only, so some overhead is free.
    #[inline]
    pub(crate) fn window_bytes(self) -> usize {
        self.payload_bytes + self.overhead_bytes.saturating_sub(OVERHEAD_FREE_BYTES)
    }
}

#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    bytes: usize,
    /// Maximum size that the buffer grows to.
    max_bytes: usize,
    round_since: Time,
    taken_bytes: usize,
}

impl ReceiveBuffer {
    /// Returns a buffer of this many bytes, but at least one: an empty buffer always accepts a chunk.
    pub(crate) fn new(bytes: usize, max_bytes: usize) -> Self {
        ReceiveBuffer { bytes: bytes.max(1), max_bytes, round_since: Time::ZERO, taken_bytes: 0 }
    }

    /// Sets the size of the buffer. The size never decreases, because the peer may use the window that was advertised to it.
    pub(crate) fn set_bounds(&mut self, bytes: usize, max_bytes: usize) {
        (self.bytes, self.max_bytes) = (self.bytes.max(bytes), max_bytes);
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts `bytes` that the reader has taken.
    #[inline]
    pub(crate) fn on_taken(&mut self, bytes: usize) {
        self.taken_bytes += bytes;
    }

    /// Adapts the buffer after packets have arrived. Without a measured round trip the buffer keeps its size.
    #[inline]
    pub(crate) fn tune(&mut self, now: Time, rtt: Option<Duration>) {
        if self.bytes < self.max_bytes
            && let Some(rtt) = rtt
            && now.saturating_since(self.round_since) >= rtt
        {
            // A round that was longer than a round trip, because the sender paused, would overestimate the rate.
            let elapsed = now.saturating_since(self.round_since);
            if elapsed < 2 * rtt {
                self.bytes = self.bytes.max((ROUNDS * self.taken_bytes).min(self.max_bytes));
            }
            (self.round_since, self.taken_bytes) = (now, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn after(rounds: u32) -> Time {
        Time::ZERO + RTT * rounds
    }

    #[test]
    fn follows_what_the_reader_takes_up_to_its_bound() {
        let mut buffer = ReceiveBuffer::new(1000, 100_000);
        buffer.tune(after(10), Some(RTT));
        for (round, taken, bytes) in [(11, 200, 1000), (12, 400, 1600), (13, 50, 1600), (14, 90_000, 100_000)]
        {
            buffer.on_taken(taken);
            buffer.tune(after(round), Some(RTT));
            assert_eq!(buffer.bytes(), bytes);
        }
    }

    #[test]
    fn a_pause_or_an_unknown_round_trip_says_nothing() {
        let mut buffer = ReceiveBuffer::new(1000, 100_000);
        buffer.on_taken(50_000);
        buffer.tune(after(1), None);
        buffer.tune(after(30), Some(RTT));
        assert_eq!(buffer.bytes(), 1000);
        buffer.on_taken(50_000);
        buffer.tune(after(40), Some(RTT));
        assert_eq!(buffer.bytes(), 1000);
    }
}
