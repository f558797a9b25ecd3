//! How long messages wait for others to share their packet.

use std::time::{Duration, Instant};

/// Maximum time that a message waits for others to share its packet.
const FLUSH_AFTER: Duration = Duration::from_micros(50);
/// Number of times that a busy sender reads the clock within [`FLUSH_AFTER`].
const CLOCK_READS: u32 = 4;
/// Maximum number of messages that a busy sender hands down without reading the clock.
const CLOCK_STRIDE_MAX: u32 = 64;

/// Measures how long the first unsent message has waited, without reading the clock for each message.
#[derive(Debug, Default)]
pub(crate) struct FlushDelay {
    unsent_since: Option<Instant>,
    sends_until_read: u32,
    stride: u32,
    sent: u32,
}

impl FlushDelay {
    /// Records that a message was handed down; returns whether the first unsent message has waited long enough. Reads the clock
    /// for the first message of a batch and then a few times within [`FLUSH_AFTER`], as the rate of the last batch suggests.
    #[inline]
    pub(crate) fn on_send(&mut self) -> bool {
        self.sent += 1;
        if self.sends_until_read > 0 {
            self.sends_until_read -= 1;
            return false;
        }
        let now = Instant::now();
        let Some(since) = self.unsent_since else {
            self.unsent_since = Some(now);
            self.sends_until_read = self.stride;
            return false;
        };
        self.sends_until_read = self.stride;
        now.duration_since(since) >= FLUSH_AFTER
    }

    /// Records that all due data was transmitted; `waits` says whether other data still waits.
    pub(crate) fn on_flushed(&mut self, now: Instant, waits: bool) {
        if let Some(since) = self.unsent_since.take()
            && self.sent > 0
        {
            let elapsed = now.duration_since(since).max(Duration::from_nanos(1));
            let read_interval = FLUSH_AFTER / CLOCK_READS;
            let stride = read_interval.as_nanos() * u128::from(self.sent) / elapsed.as_nanos();
            self.stride = u32::try_from(stride).unwrap_or(CLOCK_STRIDE_MAX).min(CLOCK_STRIDE_MAX);
        }
        self.unsent_since = waits.then_some(now);
        self.sent = 0;
        self.sends_until_read = 0;
    }

    /// Returns whether a message waits.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent_since.is_some()
    }

    /// Returns whether a message has waited longer than [`FLUSH_AFTER`].
    pub(crate) fn is_unsent_old(&self) -> bool {
        self.unsent_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER)
    }
}
