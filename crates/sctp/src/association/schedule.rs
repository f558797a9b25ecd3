//! Selects the path of a packet with data.
//!
//! RFC 9260 §6.4 sends on the primary path. With concurrent multipath all paths carry data: each packet takes the path on
//! which it arrives first, and a path that is slower than another carries some only where that delays nothing else.

use std::time::Duration;

use sctp_message::PathId;

use super::Association;
use crate::inbound::Inbound;
use crate::outbound::SendContext;
use crate::path::Path;
use crate::time::Time;

impl Association {
    /// Returns the path that data takes now.
    #[inline]
    pub(super) fn data_path(&self) -> PathId {
        if self.outbound.is_multipath() {
            return self.earliest_path().unwrap_or_else(|| self.alternate_path());
        }
        self.single_path()
    }

    /// Returns the path of the next data: the one named by its message if that path takes data, otherwise the usual one.
    #[inline]
    pub(super) fn next_data_path(&self) -> PathId {
        let wanted = self.outbound.wanted_path();
        let usable = wanted.filter(|&path_id| self.paths.get(path_id).is_some_and(Path::takes_data));
        usable.unwrap_or_else(|| self.data_path())
    }

    /// Returns whether a path is one of those that data takes.
    #[inline]
    pub(super) fn carries_data(&self, path_id: PathId) -> bool {
        if self.outbound.is_multipath() && self.paths[path_id].takes_data() {
            return true;
        }
        path_id == self.data_path()
    }

    /// Returns the primary path, or another one while the primary does not answer; another one for retransmissions after
    /// T3 has expired (RFC 9260 §6.4).
    #[inline]
    fn single_path(&self) -> PathId {
        if let Some(path_id) = self.paths.retransmit()
            && self.outbound.has_lost()
            && self.paths[path_id].takes_data()
        {
            return path_id;
        }
        if self.paths[self.paths.primary()].takes_data() {
            self.paths.primary()
        } else {
            self.alternate_path()
        }
    }

    /// Returns the paths that take data.
    fn usable(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.takes_data())
    }

    /// Returns the path on which the next packet arrives first, even if it must wait for that path.
    fn earliest_path(&self) -> Option<PathId> {
        let fast = self.usable().min_by_key(delay)?;
        let open = self.usable().filter(|path| self.outbound.may_send(path));
        // A tail loss probe takes the path that it probes.
        let earliest = open.min_by_key(|path| (!path.tail_loss_probe_is_due(), delay(path)));
        match earliest {
            Some(open)
                if open.id() == fast.id()
                    || open.tail_loss_probe_is_due()
                    || self.outbound.is_worth_slower(open, fast) =>
            {
                Some(open.id())
            }
            _ => Some(fast.id()),
        }
    }

    /// Retransmits on the fastest path the oldest packets of a slower one, on which everything after them waits, while that
    /// path has nothing else to send: the peer's window is full, or no data waits. They must seem lost, or need much longer
    /// on their own path (opportunistic retransmission, Raiciu et al., NSDI 2012).
    pub(super) fn overtake_slow_path(&mut self, now: Time) {
        if !self.outbound.is_multipath() {
            return;
        }
        let Some(fast) = self.usable().min_by_key(delay) else { return };
        let Some((slow_id, head)) = self.outbound.first_in_flight_of_all() else { return };
        if slow_id == fast.id() || !self.outbound.leaves_room(fast) {
            return;
        }
        let (room_bytes, fast_rtt) = (fast.room_bytes(), fast.rto().srtt());
        let slow = &mut self.paths[slow_id];
        let (Some(slow_rtt), Some(fast_rtt)) = (slow.rto().srtt(), fast_rtt) else { return };
        let patience = slow.rto().unbounded().max(slow_rtt * 5 / 4);
        let mut cx = SendContext { now, config: &self.config, statistics: &mut self.statistics };
        let mut number = head;
        let mut moved_bytes = 0;
        while let Some(packet) = slow.sent_packet(number)
            && moved_bytes + slow.mtu_bytes() <= room_bytes
        {
            let age = now.saturating_since(packet.sent_at);
            let seems_lost = number == head && age >= patience;
            if !seems_lost && age + fast_rtt * 2 > slow_rtt {
                break;
            }
            moved_bytes += self.outbound.overtake(&mut cx, slow, number, seems_lost);
            number = number.next();
        }
    }

    /// Records the path on which DATA came. SACKs return on it (RFC 9260 §6.4), or on the fastest of the paths of the DATA that
    /// the next SACK acknowledges.
    #[inline]
    pub(super) fn note_reply_path(&mut self, path_id: PathId) {
        let srtt = |path_id: PathId| self.paths.get(path_id).and_then(|path| path.rto().srtt());
        let slower = self.peer.extensions().multipath
            && path_id != self.paths.reply()
            && self.inbound.as_ref().is_some_and(Inbound::ack_waits)
            && srtt(self.paths.reply()).is_some_and(|now| srtt(path_id).is_none_or(|other| other > now));
        if !slower {
            self.paths.set_reply(path_id);
        }
    }

    /// Returns the longest round-trip time of the paths that data may come on. Data on faster paths waits for that one.
    pub(super) fn longest_rtt(&self) -> Option<Duration> {
        self.paths.iter().filter(|path| path.takes_data()).filter_map(|path| path.rto().srtt()).max()
    }
}

fn delay(path: &&Path) -> Duration {
    path.rto().srtt().unwrap_or(Duration::MAX)
}
