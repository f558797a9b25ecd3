//! Links of streams, as they are shown.

use serde::{Deserialize, Serialize};

use crate::state::association::SocketAssociation;

/// The link of a stream with another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The association of the other stream.
    pub with: u32,
    /// The user who has linked them.
    pub user: u32,
    /// Messages that have come up on this stream and gone down on the other one.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl LinkStatus {
    /// Returns the link of the stream of an association.
    pub(super) fn of(assoc: &SocketAssociation) -> Option<LinkStatus> {
        let known = assoc.stack_association()?.stream().splice_status()?;
        let with = assoc.linked_with().get();
        Some(LinkStatus { with, user: known.owner.uid, messages: known.messages, bytes: known.bytes })
    }
}
