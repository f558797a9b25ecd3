//! Identifies an association on the wire.

use sctp_wire::packet::Header;
use sctp_wire::{Tsn, VerificationTag};

use crate::cookie::StateCookie;

/// The ports, verification tags and initial TSN of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) local_tag: VerificationTag,
    /// Known from the INIT ACK or the cookie on.
    pub(crate) peer_tag: Option<VerificationTag>,
    pub(crate) local_initial_tsn: Tsn,
}

impl Identity {
    /// Reads the identity from a state cookie that this endpoint made.
    pub(crate) fn from_cookie(cookie: &StateCookie) -> Self {
        Identity {
            local_port: cookie.local_port,
            peer_port: cookie.peer_port,
            local_tag: cookie.local_tag,
            peer_tag: Some(cookie.peer_tag),
            local_initial_tsn: cookie.local_initial_tsn,
        }
    }

    /// Returns the header of a packet to the peer. While its tag is unknown, only an INIT leaves, which has tag 0 (RFC 9260
    /// §8.5.1 A).
    #[inline]
    pub(crate) fn header(&self) -> Header {
        Header {
            source_port: self.local_port,
            destination_port: self.peer_port,
            verification_tag: self.peer_tag.unwrap_or_default(),
        }
    }
}
