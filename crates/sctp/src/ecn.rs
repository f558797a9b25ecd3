//! Explicit congestion notification (draft-stewart-tsvwg-sctpecn): a router marks packets instead of dropping them, the
//! receiver reports marks by ECNE until the sender answers with CWR, and the sender reduces its window once.

use sctp_wire::chunk::{Cwr, EcnEcho};
use sctp_wire::packet::Packet;

/// ECN state of an association.
#[derive(Debug, Default)]
pub(crate) struct Ecn {
    /// Both sides support marks.
    negotiated: bool,
    /// Chunk to send with every SACK, until CWR arrives.
    echo: Option<EcnEcho>,
}

impl Ecn {
    pub(crate) fn new(negotiated: bool) -> Self {
        Ecn { negotiated, echo: None }
    }

    /// Returns whether packets with DATA may be marked.
    #[inline]
    pub(crate) fn is_negotiated(&self) -> bool {
        self.negotiated
    }

    /// Records a packet that arrived with a mark. Returns whether to report it to the peer at once.
    pub(crate) fn on_marked(&mut self, packet: &Packet<'_>) -> bool {
        if !self.negotiated {
            return false;
        }
        let first = packet.chunks().flatten().find_map(|raw| match raw.kind {
            sctp_wire::chunk::Data::KIND => sctp_wire::chunk::Data::parse(&raw).ok(),
            _ => None,
        });
        let Some(data) = first else { return false };
        let echo = self.echo.get_or_insert(EcnEcho { lowest_tsn: data.tsn, marked_packets: 0 });
        echo.marked_packets = echo.marked_packets.saturating_add(1);
        true
    }

    /// Returns the chunk that goes with a SACK.
    #[inline]
    pub(crate) fn echo(&self) -> Option<EcnEcho> {
        self.echo
    }

    /// Handles a CWR: the peer has reacted to the marks up to a TSN.
    pub(crate) fn on_cwr(&mut self, cwr: Cwr) {
        let heeded = |echo: &mut EcnEcho| !echo.lowest_tsn.is_after(cwr.lowest_tsn);
        self.echo.take_if(heeded);
    }
}
