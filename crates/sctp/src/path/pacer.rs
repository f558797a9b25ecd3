//! Spreads packets over the round-trip time, in batches sized to the rate.

use std::time::Duration;

use crate::time::Time;

/// Duration of a batch at the pacing rate: a timer for each packet would cost more than the packet.
const BATCH_TIME: Duration = Duration::from_millis(1);
/// Minimum number of packets of a batch, however slow the path is.
const BATCH_PACKETS_MIN: usize = 2;
/// Maximum number of bytes of a batch: one call of the link.
const BATCH_BYTES_MAX: usize = 64 << 10;

/// A bucket of bytes that fills at the pacing rate and holds a batch.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Bytes that may be sent now; negative after a packet larger than the rest of the bucket.
    tokens_bytes: i64,
    filled_at: Time,
    /// Time when the bucket holds a batch again, once it is empty.
    closed_until: Option<Time>,
}

impl Pacer {
    /// Returns whether a packet may leave now.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.closed_until.is_none()
    }

    /// Returns when the next batch may leave, if the pacer is closed.
    #[inline]
    pub(crate) fn opens_at(&self) -> Option<Time> {
        self.closed_until
    }

    /// Opens the pacer if its time has come. `rate` is in bytes per second, `None` without pacing.
    #[inline]
    pub(crate) fn tick(&mut self, now: Time, rate: Option<u64>, mtu_bytes: usize) {
        if self.closed_until.is_some_and(|at| at <= now) || rate.is_none() {
            self.closed_until = None;
        }
        if let Some(rate) = rate {
            self.fill(now, rate, mtu_bytes);
        }
    }

    /// Takes `bytes` of a sent packet from the bucket.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time, bytes: usize, rate: Option<u64>, mtu_bytes: usize) {
        let Some(rate) = rate else { return };
        self.tokens_bytes -= bytes as i64;
        if self.tokens_bytes <= 0 {
            let missing = batch_bytes(rate, mtu_bytes) as i64 - self.tokens_bytes;
            let wait_ns = missing.unsigned_abs().saturating_mul(1_000_000_000) / rate.max(1);
            self.closed_until = Some(now + Duration::from_nanos(wait_ns));
        }
    }

    fn fill(&mut self, now: Time, rate: u64, mtu_bytes: usize) {
        let ns = now.saturating_since(self.filled_at).as_nanos();
        self.filled_at = now;
        let batch = batch_bytes(rate, mtu_bytes) as i64;
        let brought = i64::try_from(u128::from(rate) * ns / 1_000_000_000).unwrap_or(i64::MAX);
        self.tokens_bytes = self.tokens_bytes.saturating_add(brought).min(batch);
    }
}

/// Returns the number of bytes that may be sent at once at `rate` bytes per second.
pub(crate) fn batch_bytes(rate: u64, mtu_bytes: usize) -> usize {
    let bytes = u128::from(rate) * BATCH_TIME.as_nanos() / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX).min(BATCH_BYTES_MAX).max(BATCH_PACKETS_MIN * mtu_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1000;

    /// Returns the number of bytes that leave in `ms` milliseconds if something always waits.
    fn leave(pacer: &mut Pacer, rate: u64, ms: u64) -> usize {
        let end = Time::ZERO + Duration::from_millis(1000 + ms);
        let mut now = Time::ZERO + Duration::from_millis(1000);
        let mut sent = 0;
        while now < end {
            pacer.tick(now, Some(rate), MTU);
            while pacer.is_open() {
                pacer.on_sent(now, MTU, Some(rate), MTU);
                sent += MTU;
            }
            now = pacer.opens_at().unwrap();
        }
        sent
    }

    #[test]
    fn keeps_the_rate_over_any_time() {
        for rate in [10_000, 1_000_000, 12_500_000, 1_250_000_000] {
            let sent = leave(&mut Pacer::default(), rate, 1000) as u64;
            let slack = 2 * batch_bytes(rate, MTU) as u64;
            assert!(sent.abs_diff(rate) <= slack, "{sent} bytes at {rate} bytes/s");
        }
    }

    #[test]
    fn a_batch_follows_the_rate_within_bounds() {
        assert_eq!(batch_bytes(1, MTU), 2 * MTU);
        assert_eq!(batch_bytes(12_500_000, MTU), 12_500);
        assert_eq!(batch_bytes(u64::MAX, MTU), 64 << 10);
    }

    #[test]
    fn an_idle_bucket_holds_one_batch() {
        let mut pacer = Pacer::default();
        let now = Time::ZERO + Duration::from_secs(100);
        pacer.tick(now, Some(1_000_000), MTU);
        let mut packets = 0;
        while pacer.is_open() {
            pacer.on_sent(now, MTU, Some(1_000_000), MTU);
            packets += 1;
        }
        assert_eq!(packets, 2);
    }
}
