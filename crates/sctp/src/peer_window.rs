//! The peer's receive window as the sender sees it, and the probing of a closed one (RFC 9260 §6.1 A).

use std::time::Duration;

use crate::time::Time;

/// A window that is open by less than this gets no fragment.
const WINDOW_BYTES_MIN: usize = 64;
/// Part of the widest window below which a window is silly (RFC 1122 §4.2.3.4): a chunk is not cut to it.
const SILLY_PART: usize = 2;
/// The same part while nothing is in flight. A peer that delivers the parts of a message only when they fill half of its
/// buffer keeps a little less than the other half open, and no SACK comes that would open more.
const SILLY_PART_IDLE: usize = 4;

#[derive(Debug)]
pub(crate) struct PeerWindow {
    /// The window that the peer has advertised last (a_rwnd). The data in flight has its room there.
    advertised_bytes: usize,
    /// The widest window so far.
    max_bytes: usize,
    /// The time when a closed window is probed, and the interval since it was found closed.
    probe_at: Option<Time>,
    interval: Option<Duration>,
    /// Whether the time has come: one chunk may exceed the window.
    probe_due: bool,
    /// TSN of the chunk that probes the window: it exceeded it, or was sent again by T3 while the window was closed.
    probe: Option<u64>,
    /// Whether the peer has answered the probe and has no room for it.
    refused: bool,
}

impl PeerWindow {
    pub(crate) const fn closed() -> Self {
        PeerWindow {
            advertised_bytes: 0,
            max_bytes: 0,
            probe_at: None,
            interval: None,
            probe_due: false,
            probe: None,
            refused: false,
        }
    }

    /// Returns the window that the peer has advertised last.
    pub(crate) fn advertised_bytes(&self) -> usize {
        self.advertised_bytes
    }

    /// Returns the room beyond the data in flight. Chunks that leave the flight without arriving give theirs back (RFC 9260
    /// §6.2.1 C).
    #[inline]
    pub(crate) fn bytes(&self, in_flight_bytes: usize) -> usize {
        self.advertised_bytes.saturating_sub(in_flight_bytes)
    }

    /// Returns whether the data in flight occupies more than half of the window, so that the peer may have dropped some
    /// of it.
    #[inline]
    pub(crate) fn is_tight(&self, in_flight_bytes: usize) -> bool {
        self.bytes(in_flight_bytes) < self.max_bytes / 2
    }

    /// Handles the window that the peer advertises in a SACK, or in its INIT or INIT ACK.
    #[inline]
    pub(crate) fn on_advertised(&mut self, advertised_bytes: usize) {
        self.advertised_bytes = advertised_bytes;
        self.max_bytes = self.max_bytes.max(advertised_bytes);
    }

    /// Returns how much of a chunk's payload may be sent: all of it, a part, or nothing.
    #[inline]
    pub(crate) fn room(&self, payload_bytes: usize, in_flight_bytes: usize) -> usize {
        let fits = payload_bytes <= self.bytes(in_flight_bytes);
        if fits { payload_bytes } else { self.room_beyond(payload_bytes, in_flight_bytes) }
    }

    #[cold]
    fn room_beyond(&self, payload_bytes: usize, in_flight_bytes: usize) -> usize {
        let (bytes, idle) = (self.bytes(in_flight_bytes), in_flight_bytes == 0);
        let silly_part = if idle { SILLY_PART_IDLE } else { SILLY_PART };
        let silly_bytes = (self.max_bytes / silly_part).max(WINDOW_BYTES_MIN);
        if bytes >= silly_bytes {
            // The window may never hold the whole chunk, and what is in flight may wait for a delayed SACK, so the chunk is cut.
            bytes & !3
        } else if idle && self.probe_due {
            // A peer that has no room for the probe announces a window that holds it before the one for a whole message.
            payload_bytes.min(silly_bytes & !3)
        } else {
            0
        }
    }

    /// Handles new data that leaves: a chunk beyond the window probes it.
    #[inline]
    pub(crate) fn on_sent(&mut self, tsn: u64, payload_bytes: usize, in_flight_bytes: usize) {
        if payload_bytes > self.bytes(in_flight_bytes) {
            self.probe = Some(tsn);
            self.probe_due = false;
        }
    }

    /// Plans the next probe if the window is closed and no data in flight would cause a SACK. `idle`: none is in flight, nor
    /// waits to be retransmitted.
    #[inline]
    pub(crate) fn plan_probe(
        &mut self,
        now: Time,
        in_flight_bytes: usize,
        idle: bool,
        rto: Duration,
        rto_max: Duration,
    ) {
        if !self.is_tight(in_flight_bytes) {
            (self.probe_at, self.interval, self.probe_due) = (None, None, false);
        } else if !idle {
            (self.probe_at, self.probe_due) = (None, false);
        } else if self.probe_at.is_none() && !self.probe_due {
            let interval = self.interval.map_or(rto, |last| (last * 2).min(rto_max));
            (self.probe_at, self.interval) = (Some(now + interval), Some(interval));
        }
    }

    /// Returns whether a chunk that probes the window is outstanding.
    pub(crate) fn is_probed(&self) -> bool {
        self.probe.is_some()
    }

    pub(crate) fn probe_at(&self) -> Option<Time> {
        self.probe_at
    }

    pub(crate) fn on_probe_timer(&mut self) {
        self.probe_at = None;
        self.probe_due = true;
    }

    /// Handles what a SACK tells of the probe: `first` is the first TSN that it does not acknowledge. Returns the TSN of
    /// the probe if the peer had dropped it and has room now, so that it can go again at once.
    #[inline]
    pub(crate) fn probe_to_repeat(
        &mut self,
        first: u64,
        advertised_bytes: usize,
        in_flight_bytes: usize,
    ) -> Option<u64> {
        let probe = self.probe?;
        if probe < first {
            (self.probe, self.refused) = (None, false);
        } else if advertised_bytes < in_flight_bytes {
            self.refused = true;
        } else if std::mem::take(&mut self.refused) {
            return Some(probe);
        }
        None
    }

    /// Returns whether the peer has answered the outstanding probe and has no room for it.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused
    }

    /// Handles the expiry of T3; `first` is the first TSN that is outstanding. Returns whether the peer has refused the probe
    /// since the last expiry, so that this one indicates no failure.
    ///
    /// A peer may drop what fitted the window that it had advertised (RFC 9260 §6.2), and close the window. The
    /// retransmission then probes the window: as long as the peer refuses it, the peer is there.
    pub(crate) fn on_timeout(&mut self, first: u64) -> bool {
        if self.advertised_bytes == 0 {
            self.probe.get_or_insert(first);
        }
        std::mem::take(&mut self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_secs(1);
    const RTO_MAX: Duration = Duration::from_secs(3);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_chunk_is_cut_only_to_a_window_that_is_not_silly() {
        let mut window = PeerWindow::closed();
        window.on_advertised(1000);
        assert_eq!((window.room(1000, 0), window.room(1001, 0)), (1000, 1000));
        assert_eq!((window.room(900, 100), window.room(901, 100)), (900, 900));
        window.on_advertised(499);
        assert_eq!((window.room(499, 0), window.room(500, 0)), (499, 496));
        window.on_advertised(599);
        assert_eq!((window.room(499, 100), window.room(500, 100)), (499, 0));
        window.on_advertised(249);
        assert_eq!((window.room(249, 0), window.room(250, 0)), (249, 0));
    }

    #[test]
    fn a_probe_is_no_longer_than_the_window_that_the_peer_announces_first() {
        let mut window = PeerWindow::closed();
        window.on_advertised(1000);
        window.on_advertised(100);
        window.on_probe_timer();
        assert_eq!((window.room(100, 0), window.room(240, 0)), (100, 240));
        assert_eq!((window.room(250, 0), window.room(5000, 0)), (248, 248));
        assert_eq!(window.room(5000, 10), 0, "data in flight brings a SACK");
        let mut window = PeerWindow::closed();
        window.on_advertised(100);
        window.on_advertised(0);
        window.on_probe_timer();
        assert_eq!(window.room(5000, 0), WINDOW_BYTES_MIN);
    }

    #[test]
    fn a_window_narrower_than_the_data_in_flight_has_no_room() {
        let mut window = PeerWindow::closed();
        window.on_advertised(1000);
        window.on_advertised(300);
        assert_eq!((window.bytes(500), window.bytes(300), window.bytes(200)), (0, 0, 100));
        assert!(window.is_tight(0));
    }

    #[test]
    fn probes_come_ever_more_rarely_until_the_window_opens() {
        let mut window = PeerWindow::closed();
        window.on_advertised(1000);
        window.on_advertised(0);
        let mut times = Vec::new();
        let mut now = at(0);
        for tsn in 0..4 {
            window.plan_probe(now, 0, true, RTO, RTO_MAX);
            now = window.probe_at().unwrap();
            times.push(now);
            assert_eq!(window.room(10, 0), 0);
            window.on_probe_timer();
            assert_eq!(window.room(10, 0), 10);
            window.on_sent(tsn, 10, 0);
            assert_eq!(window.probe_to_repeat(tsn + 1, 0, 0), None);
            assert_eq!(window.room(10, 0), 0);
        }
        assert_eq!(times, [1, 3, 6, 9].map(at));
        window.on_advertised(1000);
        window.plan_probe(now, 0, true, RTO, RTO_MAX);
        assert_eq!(window.probe_at(), None);
        window.on_advertised(0);
        window.plan_probe(now, 0, true, RTO, RTO_MAX);
        assert_eq!(window.probe_at(), Some(now + RTO));
    }

    #[test]
    fn a_refused_probe_goes_again_when_there_is_room() {
        let mut window = PeerWindow::closed();
        window.on_sent(7, 10, 0);
        assert_eq!(window.probe_to_repeat(7, 0, 10), None);
        assert_eq!(window.probe_to_repeat(7, 100, 10), Some(7));
        assert_eq!(window.probe_to_repeat(7, 100, 10), None);
        assert!(!window.on_timeout(7));
        assert_eq!(window.probe_to_repeat(7, 0, 10), None);
        assert!(window.on_timeout(7));
    }

    #[test]
    fn a_timeout_makes_a_probe_of_the_first_chunk_if_the_window_is_closed() {
        for (advertised_bytes, is_probe) in [(0, true), (1, false)] {
            let mut window = PeerWindow::closed();
            window.on_advertised(1000);
            window.on_sent(7, 100, 0);
            window.on_advertised(advertised_bytes);
            assert_eq!(window.probe_to_repeat(7, advertised_bytes, 100), None);
            assert!(!window.on_timeout(7), "the peer may be gone");
            assert_eq!(window.is_probed(), is_probe);
            assert_eq!(window.probe_to_repeat(7, advertised_bytes, 100), None);
            assert_eq!(window.on_timeout(7), is_probe, "the peer has answered");
            assert!(!window.on_timeout(7), "the peer has not answered again");
        }
    }
}
