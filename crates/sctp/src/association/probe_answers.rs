//! Answers to probes of ways that no path uses: HEARTBEATs that came to another local address than the packets of their path
//! leave from.
//!
//! Such an answer goes back the way that the probe came, because a translator knows the peer by another port there. Each
//! way has one answer, and an association has a few: a peer that sends many probes displaces no packet of others.

use std::collections::VecDeque;

use super::heartbeat::WAITING_ANSWERS_BYTES_MAX;
use crate::config::PEER_ADDRESSES_MAX;
use crate::reply::Reply;

/// Maximum number of ways whose answers wait.
const ANSWERS_MAX: usize = PEER_ADDRESSES_MAX;

/// The answers that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct ProbeAnswers(VecDeque<Reply>);

impl ProbeAnswers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an answer, in place of an earlier one of the same way. Returns false and drops it if too many wait already.
    pub(super) fn push(&mut self, answer: Reply) -> bool {
        let goes_same_way = |other: &Reply| (other.remote, other.local) == (answer.remote, answer.local);
        let same = self.0.iter().position(goes_same_way);
        let earlier = same.and_then(|at| self.0.remove(at));
        let bytes: usize = self.0.iter().map(|other| other.packet.len()).sum();
        if self.0.len() < ANSWERS_MAX && bytes + answer.packet.len() <= WAITING_ANSWERS_BYTES_MAX {
            self.0.push_back(answer);
            return true;
        }
        self.0.extend(earlier);
        false
    }

    pub(super) fn pop(&mut self) -> Option<Reply> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;

    fn answer(way: u8, number: u8, bytes: usize) -> Reply {
        let local = Some(IpAddr::from([192, 0, 2, way]));
        let mut packet = vec![0; bytes];
        packet[0] = number;
        Reply { remote: SocketAddr::from(([203, 0, 113, 1], 9899)), local, dscp: 0, packet }
    }

    #[test]
    fn each_way_has_one_answer_and_few_ways_have_any() {
        let mut answers = ProbeAnswers::default();
        for way in 0..ANSWERS_MAX as u8 {
            assert!(answers.push(answer(way, 1, 100)));
        }
        assert!(!answers.push(answer(200, 1, 100)));
        assert!(answers.push(answer(7, 2, 100)), "the latest one of its way counts");
        let sent: Vec<(Option<IpAddr>, u8)> =
            std::iter::from_fn(|| answers.pop()).map(|answer| (answer.local, answer.packet[0])).collect();
        assert_eq!((sent.len(), sent.last()), (ANSWERS_MAX, Some(&(answer(7, 2, 1).local, 2))));
        assert!(answers.is_empty());
    }

    #[test]
    fn long_answers_are_fewer() {
        let mut answers = ProbeAnswers::default();
        assert!(
            answers.push(answer(1, 1, 100)) && answers.push(answer(2, 1, WAITING_ANSWERS_BYTES_MAX - 100))
        );
        assert!(!answers.push(answer(3, 1, 1)));
        assert!(!answers.push(answer(1, 2, 101)), "it is too long, and the earlier one stays");
        let sent = std::iter::from_fn(|| answers.pop()).map(|answer| answer.packet[0]);
        assert_eq!(sent.collect::<Vec<_>>(), [1, 1]);
    }
}
