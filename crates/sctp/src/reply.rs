//! Packets outside the batches of associations: INIT ACK, ABORT, answers to probes of other ways, and the final packet of an
//! association that has ended.

use std::net::{IpAddr, SocketAddr};

use sctp_wire::packet::{self, Header};

use crate::config::Checksum;
use crate::transmit::{Transmit, TransmitBuffer};

/// One packet, complete with its checksum.
#[derive(Debug)]
pub struct Reply {
    /// The destination.
    pub remote: SocketAddr,
    /// The local source address; `None` if the system may choose.
    pub local: Option<IpAddr>,
    /// The DSCP; 0 if no association gives one.
    pub dscp: u8,
    /// The packet.
    pub packet: Vec<u8>,
}

impl Reply {
    /// Builds a packet with the chunks that `write` appends.
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

    /// Makes the packet the content of a buffer.
    pub(crate) fn put_into(self, buffer: &mut TransmitBuffer) -> Transmit {
        buffer.clear();
        buffer.begin_packet();
        buffer.out().extend_from_slice(&self.packet);
        // The packet has its checksum already.
        buffer.end_packet(Checksum::None);
        Transmit {
            remote: self.remote,
            local: self.local,
            ecn_capable: false,
            dscp: self.dscp,
            may_fragment: true,
            is_answering: false,
            segment_bytes: self.packet.len(),
            total_bytes: self.packet.len(),
        }
    }
}
