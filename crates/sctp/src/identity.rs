//! Identifies an association on the wire.

use crate::cookie::StateCookie;

/// The ports, verification tags and initial TSN of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    pub(crate) local_tag: u32,
    pub(crate) peer_tag: u32,
    pub(crate) local_initial_tsn: u32,
}

impl Identity {
    /// Reads the identity from a state cookie that this endpoint made.
    pub(crate) fn from_cookie(cookie: &StateCookie) -> Self {
        Identity {
            local_port: cookie.local_port,
            peer_port: cookie.peer_port,
            local_tag: cookie.local_tag,
            peer_tag: cookie.peer_tag,
            local_initial_tsn: cookie.local_initial_tsn,
        }
    }
}
