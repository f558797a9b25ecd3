//! Packets that belong to no association: INIT ACKs, ABORTs, the last words of an association.

use std::collections::VecDeque;

use crate::config::{Checksum, REPLIES_MAX};
use crate::reply::Reply;
use crate::transmit::{Transmit, TransmitBuffer};

#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
}

impl Replies {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// False: too many wait already, this one is dropped.
    pub(super) fn push(&mut self, reply: Reply) -> bool {
        let room = self.queue.len() < REPLIES_MAX;
        if room {
            self.queue.push_back(reply);
        }
        room
    }

    pub(super) fn pop(&mut self, buffer: &mut TransmitBuffer) -> Option<Transmit> {
        let reply = self.queue.pop_front()?;
        buffer.clear();
        buffer.begin_packet();
        buffer.out().extend_from_slice(&reply.packet);
        // The reply carries its checksum already.
        buffer.end_packet(Checksum::None);
        Some(Transmit {
            remote: reply.remote,
            local: reply.local,
            ecn_capable: false,
            dscp: reply.dscp,
            may_fragment: true,
            segment_bytes: reply.packet.len(),
            total_bytes: reply.packet.len(),
        })
    }
}
