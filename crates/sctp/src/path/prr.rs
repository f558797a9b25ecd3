//! Proportional rate reduction (PRR): limits sending while a loss is repaired (RFC 6937, RFC 9937).
//!
//! The window shrinks over one round trip in proportion to the delivered data, so that neither a pause nor a burst follows a
//! loss.

/// PRR for one reduction of the window.
#[derive(Debug)]
pub(crate) struct Prr {
    /// Bytes in flight when the loss was detected (RecoverFS).
    flight_bytes: usize,
    delivered_bytes: usize,
    sent_bytes: usize,
    /// Limit of the bytes in flight until the next SACK.
    window_bytes: usize,
}

impl Prr {
    /// Begins after a loss was detected: `flight_bytes` were in flight before, `in_flight_bytes` still are. One packet may be
    /// sent at once (RFC 9260 §7.2.4, 3).
    pub(crate) fn new(flight_bytes: usize, in_flight_bytes: usize, mtu_bytes: usize) -> Self {
        Prr {
            flight_bytes: flight_bytes.max(1),
            delivered_bytes: 0,
            sent_bytes: 0,
            window_bytes: in_flight_bytes + mtu_bytes,
        }
    }

    /// Returns the limit of the bytes in flight.
    #[inline]
    pub(crate) fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// Counts a sent packet of `bytes`.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
    }

    /// Updates the limit after a SACK that acknowledged `delivered_bytes`. `progress`: the cumulative TSN advanced and no further
    /// loss was detected.
    pub(crate) fn on_acked(
        &mut self,
        delivered_bytes: usize,
        in_flight_bytes: usize,
        ssthresh_bytes: usize,
        progress: bool,
        mtu_bytes: usize,
    ) {
        self.delivered_bytes += delivered_bytes;
        let may_send = if in_flight_bytes > ssthresh_bytes {
            let share = self.delivered_bytes as u128 * ssthresh_bytes as u128;
            let share = share.div_ceil(self.flight_bytes as u128);
            usize::try_from(share).unwrap_or(usize::MAX).saturating_sub(self.sent_bytes)
        } else {
            let owed = self.delivered_bytes.saturating_sub(self.sent_bytes).max(delivered_bytes);
            // Slow start back to the threshold, but only while the repair makes progress.
            let limit = owed + if progress { mtu_bytes } else { 0 };
            limit.min(ssthresh_bytes - in_flight_bytes)
        };
        // The first repair is never held back.
        let least = if self.sent_bytes == 0 { mtu_bytes } else { 0 };
        self.window_bytes = in_flight_bytes + may_send.max(least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 1000;

    /// One packet of 20 is lost, and the threshold is 10: every second SACK sends one packet.
    #[test]
    fn half_of_what_is_delivered_leaves() {
        let mut in_flight = 16 * MTU;
        let mut prr = Prr::new(20 * MTU, in_flight, MTU);
        let mut sent = 0;
        while prr.window_bytes() >= in_flight + MTU {
            prr.on_sent(MTU);
            in_flight += MTU;
            sent += 1;
        }
        assert_eq!(sent, 1);
        for _ in 0..16 {
            in_flight -= MTU;
            prr.on_acked(MTU, in_flight, 10 * MTU, true, MTU);
            while prr.window_bytes() >= in_flight + MTU {
                prr.on_sent(MTU);
                in_flight += MTU;
                sent += 1;
            }
        }
        assert!((9..=10).contains(&in_flight.div_ceil(MTU)), "{in_flight}");
        assert!((8..=10).contains(&sent), "{sent}");
    }

    /// Most of the window is lost: what is in flight grows back to the threshold, two packets a SACK.
    #[test]
    fn a_great_loss_is_followed_by_slow_start() {
        let mut in_flight = 2 * MTU;
        let mut prr = Prr::new(20 * MTU, in_flight, MTU);
        for _ in 0..20 {
            while prr.window_bytes() >= in_flight + MTU {
                prr.on_sent(MTU);
                in_flight += MTU;
            }
            assert!(in_flight <= 10 * MTU);
            in_flight -= MTU;
            prr.on_acked(MTU, in_flight, 10 * MTU, true, MTU);
        }
        assert_eq!(prr.window_bytes(), 10 * MTU);
    }
}
