//! Reneging: drops chunks beyond a gap to make room for the chunk that fills it (RFC 9260 §6.2).

use super::Inbound;
use crate::receive_buffer::Held;
use crate::tsn;

impl Inbound {
    /// Returns whether any chunk may be dropped. Chunks covered by a cumulative or a non-renegable acknowledgement stay, also
    /// those that wait for an earlier message of their stream. The search examines all waiting messages: without this check, a
    /// peer whose messages wait in order could cause a search with each copy of a refused chunk.
    fn has_droppable(&self) -> bool {
        self.beyond.last().is_some_and(|last| last > self.cumulative.max(self.promised))
    }

    /// Drops chunks beyond a gap until half of the buffer is free above the minimum that may always be held. Returns whether
    /// there is room now.
    #[cold]
    pub(super) fn renege(&mut self) -> bool {
        // Freeing more than one chunk needs keeps the average cost of the search low.
        let most_bytes = self.buffer.bytes() / 2 * 3;
        self.renege_while(|inbound| inbound.taken_bytes() > most_bytes);
        self.taken_bytes() < 2 * self.buffer.bytes()
    }

    /// Drops chunks beyond a gap, the highest TSNs first, as long as `is_too_much` returns true. Chunks acknowledged by an
    /// NR-SACK stay.
    #[cold]
    pub(super) fn renege_while(&mut self, is_too_much: impl Fn(&Self) -> bool) {
        if !self.has_droppable() {
            return;
        }
        let lowest = self.cumulative.max(self.promised) + 1;
        let mut messages: Vec<_> = self
            .waiting
            .iter()
            .map(|(&key, message)| (tsn::unwrap(self.cumulative, sctp_wire::Tsn(message.info.tsn)), key))
            .filter(|&(start, _)| start >= lowest)
            .collect();
        messages.sort_unstable();
        while is_too_much(self) {
            let fragment = self.reassembly.last_run_start().filter(|&start| start >= lowest);
            let message = messages.last().map(|&(start, _)| start);
            if fragment.is_none() && message.is_none() {
                break;
            }
            if fragment > message {
                let Some((tsns, bytes)) = self.reassembly.drop_last_run() else { break };
                self.forget(tsns, bytes);
            } else if let Some((start, key)) = messages.pop()
                && let Some(message) = self.waiting.remove(&key)
            {
                self.forget(start..start + message.chunks as u64, message.bytes);
            }
        }
    }

    /// Forgets the chunks with these TSNs, which count as not received.
    fn forget(&mut self, tsns: std::ops::Range<u64>, bytes: usize) {
        self.held.remove(Held::of(bytes, (tsns.end - tsns.start) as usize));
        self.beyond.remove_range(tsns);
        self.acknowledgement.on_dropped();
    }
}

#[cfg(test)]
mod tests {
    use sctp_wire::Tsn;

    use super::*;
    use crate::config::AssociationConfig;
    use crate::extensions::Extensions;

    #[test]
    fn only_what_is_not_acknowledged_for_good_may_be_dropped() {
        let mut inbound = Inbound::new(
            Tsn(1),
            1,
            &AssociationConfig::default(),
            Extensions { nr_sack: true, ..Extensions::default() },
        );
        assert!(!inbound.has_droppable(), "nothing has arrived");
        let cumulative = inbound.cumulative + 5;
        inbound.cumulative = cumulative;
        assert!(!inbound.has_droppable(), "all that has arrived is acknowledged");
        inbound.beyond.insert(cumulative + 3);
        assert!(inbound.has_droppable());
        inbound.promised = cumulative + 3;
        assert!(!inbound.has_droppable(), "an NR-SACK has promised to keep it");
        inbound.beyond.insert(cumulative + 9);
        assert!(inbound.has_droppable());
    }
}
