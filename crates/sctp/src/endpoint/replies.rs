//! Packets that belong to no association: INIT ACKs, ABORTs, the last words of an association.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use sctp_wire::packet::{self, Header};

use crate::config::{Checksum, REPLIES_MAX};
use crate::transmit::{Transmit, TransmitBuffer};

/// One packet, ready to go.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    /// The codepoint; that of nobody is 0.
    pub(crate) dscp: u8,
    pub(crate) packet: Vec<u8>,
}

impl Reply {
    /// A packet with the chunks that `write` appends.
    pub(crate) fn new(
        remote: SocketAddr,
        local: Option<IpAddr>,
        header: &Header,
        checksum: Checksum,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let mut bytes = Vec::new();
        packet::write_header(header, &mut bytes);
        write(&mut bytes);
        if checksum == Checksum::Crc32c {
            packet::finish(&mut bytes);
        }
        Reply { remote, local, dscp: 0, packet: bytes }
    }
}

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
