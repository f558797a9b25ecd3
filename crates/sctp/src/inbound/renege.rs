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
        // All that waits beyond a gap is above the cumulative TSN.
        let lowest = self.promised + 1;
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
    use crate::reassembly::{Assembled, Fragment};
    use crate::receive_buffer::RECEIVED_OVERHEAD_BYTES;
    use crate::statistics::Statistics;

    fn receiver(config: &AssociationConfig) -> Inbound {
        Inbound::new(Tsn(101), 1, config, Extensions::default())
    }

    /// Adds a message with TSNs from `tsn` on, before another one of its stream.
    fn hold(inbound: &mut Inbound, tsn: u32, bytes: usize, chunks: usize) {
        let info = RecvInfo { ssn: tsn as u16, tsn, ..RecvInfo::default() };
        let parts = smallvec![Bytes::from(vec![b'x'; bytes])];
        let message = Assembled { info, parts, bytes, chunks, rest: false };
        let start = inbound.first_tsn(&message);
        if start > inbound.cumulative {
            inbound.beyond.insert_range(start..start + chunks as u64, |_| {});
        }
        inbound.held.add(Held::of(bytes, chunks));
        inbound.hold_until_in_order(message, &mut Statistics::default());
    }

    /// Adds fragments of one byte from the middle of a message.
    fn hold_fragments(inbound: &mut Inbound, tsns: std::ops::Range<u32>) {
        for tsn in tsns {
            let info = RecvInfo { tsn, ..RecvInfo::default() };
            let payload = Bytes::from_static(b"x");
            let fragment = Fragment { info, beginning: false, ending: false, payload };
            let tsn = crate::tsn::unwrap(inbound.cumulative, Tsn(tsn));
            inbound.beyond.insert(tsn);
            inbound.held.add(Held::of(1, 1));
            assert!(matches!(inbound.reassembly.out_of_order(tsn, fragment), Ok(None)));
        }
    }

    /// Returns a receiver whose cumulative TSN is 100, to which messages with these TSNs have come, each before another one of
    /// its stream.
    fn holding(tsns: impl IntoIterator<Item = u32>) -> Inbound {
        let mut inbound = receiver(&AssociationConfig::default());
        tsns.into_iter().for_each(|tsn| hold(&mut inbound, tsn, 1, 1));
        inbound
    }

    /// Drops what has the highest TSNs. Returns the payload that was dropped, and the number of chunks.
    fn renege_once(inbound: &mut Inbound) -> (usize, usize) {
        let (payload, all) = (inbound.held.payload_bytes(), inbound.held.total_bytes());
        inbound.renege_while(|inbound| inbound.held.total_bytes() == all);
        let dropped = payload - inbound.held.payload_bytes();
        (dropped, (all - inbound.held.total_bytes() - dropped) / RECEIVED_OVERHEAD_BYTES)
    }

    /// Returns the TSNs that count as received beyond the cumulative one.
    fn beyond(inbound: &Inbound) -> Vec<u32> {
        let mut near = 0;
        let is_beyond = |tsn: &u32| {
            inbound.beyond.contains_near(crate::tsn::unwrap(inbound.cumulative, Tsn(*tsn)), &mut near)
        };
        (101..120).filter(is_beyond).collect()
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
    fn the_chunk_behind_those_that_are_acknowledged_for_good_may_be_dropped() {
        let mut inbound = holding([103, 104]);
        inbound.promised = inbound.cumulative + 3;
        inbound.renege_while(|_| true);
        assert_eq!(beyond(&inbound), [103]);
        let mut inbound = holding([]);
        hold_fragments(&mut inbound, 103..104);
        hold_fragments(&mut inbound, 105..106);
        inbound.promised = inbound.cumulative + 4;
        inbound.renege_while(|_| true);
        assert_eq!(beyond(&inbound), [103]);
    }

    #[test]
    fn messages_and_fragments_are_dropped_whole_in_the_order_of_their_tsns() {
        let mut inbound = holding([]);
        hold(&mut inbound, 103, 5, 2);
        hold_fragments(&mut inbound, 106..109);
        hold(&mut inbound, 110, 7, 3);
        assert!(!inbound.acknowledgement.is_due());
        assert_eq!(renege_once(&mut inbound), (7, 3));
        assert!(inbound.acknowledgement.is_due(), "the peer learns at once");
        assert_eq!(beyond(&inbound), [103, 104, 106, 107, 108]);
        assert_eq!(renege_once(&mut inbound), (3, 3));
        assert_eq!(beyond(&inbound), [103, 104]);
        assert_eq!(renege_once(&mut inbound), (5, 2));
        assert!(inbound.beyond.is_empty());
        hold_fragments(&mut inbound, 106..107);
        assert_eq!(renege_once(&mut inbound), (1, 1), "no message waits beyond the gap");
    }

    #[test]
    fn no_more_is_dropped_from_a_full_buffer_than_half_of_it() {
        const MESSAGE_BYTES: usize = 10_000;
        let config = AssociationConfig { receive_buffer_bytes: 100_000, ..AssociationConfig::default() };
        let mut inbound = receiver(&config);
        (0..20).for_each(|n| hold(&mut inbound, 105 + n, MESSAGE_BYTES, 1));
        assert!(inbound.is_full_with(inbound.held));
        assert!(inbound.renege());
        assert_eq!(inbound.taken_bytes(), 150_000);
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
