//! The extensions that the peer supports, according to its handshake and its answers.

use crate::extensions::Extensions;

#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Adaptation layer indication (RFC 5061 §4.2.6).
    adaptation: Option<u32>,
    /// Extensions beyond RFC 9260 that both sides support.
    extensions: Extensions,
    /// The peer has answered a HEARTBEAT with a PAD chunk beside it.
    skips_pad: bool,
}

impl Peer {
    /// Handles the parameters of the peer's handshake; `extensions` are those that both sides support.
    pub(super) fn on_handshake(&mut self, adaptation: Option<u32>, extensions: Extensions) {
        (self.adaptation, self.extensions) = (adaptation, extensions);
    }

    /// Handles the answer to a padded probe.
    pub(super) fn on_padding_answered(&mut self) {
        self.skips_pad = true;
    }

    pub(super) fn adaptation(&self) -> Option<u32> {
        self.adaptation
    }

    #[inline]
    pub(super) fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// Returns whether the peer is known to skip PAD chunks (RFC 4820): it has answered a padded probe, or is Swiftwater.
    /// Some peers, such as pion, discard a whole packet for a chunk that they do not know.
    #[inline]
    pub(super) fn skips_pad(&self) -> bool {
        self.skips_pad || self.extensions.prompt_parts
    }
}
