//! Whether a reduction of the window was a mistake: nothing had been lost, it had merely been late.
//!
//! Two signs tell: what was given up arrives before it was sent again (as in F-RTO, RFC 5682), or the peer reports to have
//! had everything that was sent again (RFC 3708).

/// The doubt about the last reduction.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    /// Chunks that were given up since the reduction and not yet shown to have arrived the first time.
    open: u64,
    /// Chunks from this TSN on belong to it (unwrapped).
    from_tsn: u64,
    /// Packets before this one carried what a timeout gave up.
    timeout: Option<u32>,
    active: bool,
}

impl Doubt {
    /// A loss reduced the window. `first` is the first outstanding TSN, `given_up` the number of chunks.
    pub(crate) fn begin(&mut self, first: u64, given_up: u64) {
        *self = Doubt { open: given_up, from_tsn: first, timeout: None, active: true };
    }

    /// The retransmission timer reduced the window; packets before `next_packet` are given up.
    pub(crate) fn begin_timeout(&mut self, first: u64, given_up: u64, next_packet: u32) {
        *self = Doubt { open: given_up, from_tsn: first, timeout: Some(next_packet), active: true };
    }

    /// More chunks are given up in the same recovery.
    pub(crate) fn add(&mut self, given_up: u64) {
        self.open += given_up;
    }

    /// Packets before this one were given up by the timer.
    pub(crate) fn timeout(&self) -> Option<u32> {
        self.timeout.filter(|_| self.active)
    }

    /// Whether a duplicate of this TSN says something about the reduction.
    pub(crate) fn concerns(&self, tsn: u64) -> bool {
        self.active && tsn >= self.from_tsn
    }

    /// `chunks` that were given up had arrived. True: all of them had, so the reduction was a mistake.
    pub(crate) fn clear(&mut self, chunks: u64) -> bool {
        if !self.active || chunks == 0 {
            return false;
        }
        self.open = self.open.saturating_sub(chunks);
        if self.open > 0 {
            return false;
        }
        self.active = false;
        true
    }

    /// The reduction was a mistake, or nothing can be found out any more.
    pub(crate) fn end(&mut self) {
        self.active = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_was_given_up_must_have_arrived() {
        let mut doubt = Doubt::default();
        assert!(!doubt.clear(1));
        doubt.begin(100, 2);
        doubt.add(1);
        assert!(doubt.concerns(100) && !doubt.concerns(99));
        assert!(!doubt.clear(2));
        assert!(doubt.clear(1));
        assert!(!doubt.clear(1), "only once");
    }

    #[test]
    fn a_timeout_is_doubted_until_it_is_decided() {
        let mut doubt = Doubt::default();
        doubt.begin_timeout(5, 10, 42);
        assert_eq!(doubt.timeout(), Some(42));
        doubt.end();
        assert_eq!(doubt.timeout(), None);
    }
}
