//! Reneging: drops chunks beyond a gap to make room for the chunk that fills it (RFC 9260 §6.2).

use super::Inbound;
use crate::receive_buffer::Held;

impl Inbound {
    /// Drops chunks beyond a gap until half of the buffer is free above the minimum that may always be held. Returns whether
    /// there is room now.
    #[cold]
    pub(super) fn renege(&mut self) -> bool {
        // Freeing more than one chunk needs leaves room for those that follow.
        let most_bytes = self.buffer.bytes() / 2 * 3;
        self.renege_while(|inbound| inbound.taken_bytes() > most_bytes);
        !self.is_full_with(self.held)
    }

    /// Drops chunks beyond a gap, the highest TSNs first, as long as `is_too_much` returns true. Chunks acknowledged by an
    /// NR-SACK stay, and those that wait behind an earlier message of their stream and no gap. It looks only at what it drops.
    #[cold]
    pub(super) fn renege_while(&mut self, is_too_much: impl Fn(&Self) -> bool) {
        let lowest = self.cumulative.max(self.promised) + 1;
        while is_too_much(self) {
            let fragment = self.reassembly.last_run_start().filter(|&start| start >= lowest);
            let message = self.waiting_beyond.last_key_value().map(|(&start, _)| start);
            let message = message.filter(|&start| start >= lowest);
            if fragment.is_none() && message.is_none() {
                break;
            }
            if fragment > message {
                let Some((tsns, bytes)) = self.reassembly.drop_last_run() else { break };
                self.forget(tsns, bytes);
            } else if let Some((start, key)) = self.waiting_beyond.pop_last()
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
    use bytes::Bytes;
    use sctp_message::RecvInfo;
    use sctp_wire::Tsn;
    use smallvec::smallvec;

    use super::*;
    use crate::config::AssociationConfig;
    use crate::extensions::Extensions;
    use crate::reassembly::Assembled;
    use crate::statistics::Statistics;

    /// Returns a receiver whose cumulative TSN is 100, to which messages with these TSNs have come, each before another one of
    /// its stream.
    fn holding(tsns: impl IntoIterator<Item = u32>) -> Inbound {
        let mut inbound = Inbound::new(Tsn(101), 1, &AssociationConfig::default(), Extensions::default());
        for tsn in tsns {
            let info = RecvInfo { ssn: tsn as u16, tsn, ..RecvInfo::default() };
            let message = Assembled {
                info,
                parts: smallvec![Bytes::from_static(b"x")],
                bytes: 1,
                chunks: 1,
                rest: false,
            };
            let start = inbound.first_tsn(&message);
            if start > inbound.cumulative {
                inbound.beyond.insert(start);
            }
            inbound.held.add(Held::of(1, 1));
            inbound.hold_until_in_order(message, &mut Statistics::default());
        }
        inbound
    }

    fn tsns(inbound: &Inbound) -> Vec<u32> {
        inbound.waiting.values().map(|message| message.info.tsn).collect()
    }

    #[test]
    fn the_highest_tsns_are_dropped_first_and_none_that_is_acknowledged_for_good() {
        let mut inbound = holding([98, 99, 100, 105, 107, 103]);
        let held = inbound.held.total_bytes();
        inbound.renege_while(|inbound| inbound.held.total_bytes() >= held);
        assert_eq!(tsns(&inbound), [98, 99, 100, 103, 105]);
        inbound.promised = inbound.cumulative + 3;
        inbound.renege_while(|_| true);
        assert_eq!(tsns(&inbound), [98, 99, 100, 103], "an NR-SACK has promised 103");
        inbound.promised = 0;
        inbound.renege_while(|_| true);
        assert_eq!(tsns(&inbound), [98, 99, 100], "they arrived in order");
        assert!(inbound.beyond.is_empty());
    }

    #[test]
    fn messages_that_arrived_in_order_are_not_searched_for_others() {
        let mut inbound = holding(50..=100);
        // Its chunk is kept nowhere: it came on a stream that does not exist.
        let elsewhere = inbound.cumulative + 9;
        inbound.beyond.insert(elsewhere);
        assert!(inbound.waiting_beyond.is_empty());
        inbound.renege_while(|_| true);
        assert_eq!(inbound.waiting.len(), 51);
    }
}
