//! The packet that the endpoint handles, and how far it has come.

use sctp_wire::Packet;
use sctp_wire::chunk::RawChunk;
use sctp_wire::packet::Header;

use crate::route::Route;

/// A packet with an intact checksum and at least one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<'a> {
    pub(super) route: Route,
    pub(super) packet: &'a Packet<'a>,
    /// The first chunk, which determines the handling of handshake packets (RFC 9260 §8.5.1).
    pub(super) first: &'a RawChunk<'a>,
}

impl Incoming<'_> {
    #[inline]
    pub(super) fn header(&self) -> Header {
        self.packet.header()
    }
}

/// The result of one step of the handling of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handled {
    /// The step has handled or discarded the whole packet.
    Done,
    /// The packet, or the rest of it, is left to the next step.
    NotYet,
}
