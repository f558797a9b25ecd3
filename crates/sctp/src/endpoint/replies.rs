//! Packets outside associations: answers to strangers, and the final packets of associations that have ended.

use std::collections::VecDeque;

use crate::config::REPLIES_MAX;
use crate::reply::Reply;
use crate::transmit::{Transmit, TransmitBuffer};

/// Separate queues, so that a flood of strangers does not displace packets for peers.
#[derive(Debug, Default)]
pub(super) struct Replies {
    final_packets: VecDeque<Reply>,
    answers: VecDeque<Reply>,
}

impl Replies {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.final_packets.is_empty() && self.answers.is_empty()
    }

    /// Queues the last packet of an association. Returns false and drops it if too many wait already.
    pub(super) fn push_final_packet(&mut self, reply: Reply) -> bool {
        push(&mut self.final_packets, reply)
    }

    /// Queues an answer to a stranger. Returns false and drops it if too many wait already.
    pub(super) fn push_answer(&mut self, reply: Reply) -> bool {
        push(&mut self.answers, reply)
    }

    /// Takes the oldest answer to a stranger.
    pub(super) fn pop_answer(&mut self) -> Option<Reply> {
        self.answers.pop_front()
    }

    pub(super) fn pop(&mut self, buffer: &mut TransmitBuffer) -> Option<Transmit> {
        let reply = self.final_packets.pop_front().or_else(|| self.answers.pop_front())?;
        Some(reply.put_into(buffer))
    }
}

fn push(queue: &mut VecDeque<Reply>, reply: Reply) -> bool {
    let room = queue.len() < REPLIES_MAX;
    if room {
        queue.push_back(reply);
    }
    room
}
