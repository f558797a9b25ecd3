//! The receiving side before and after the peer's initial TSN is known.

use crate::inbound::Inbound;
use crate::receive_buffer::Held;

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every association is open, and a box would cost each packet a step"
)]
pub(super) enum Receiving {
    /// No data can arrive. Events, and messages of an earlier peer, may be unread.
    Awaited(Held),
    Open(Inbound),
}

impl Default for Receiving {
    fn default() -> Self {
        Receiving::Awaited(Held::default())
    }
}

impl Receiving {
    #[inline]
    pub(super) fn as_ref(&self) -> Option<&Inbound> {
        match self {
            Receiving::Open(inbound) => Some(inbound),
            Receiving::Awaited(_) => None,
        }
    }

    #[inline]
    pub(super) fn as_mut(&mut self) -> Option<&mut Inbound> {
        match self {
            Receiving::Open(inbound) => Some(inbound),
            Receiving::Awaited(_) => None,
        }
    }

    /// Opens the receiving side. Unread events and messages stay counted.
    pub(super) fn open(&mut self, mut inbound: Inbound) {
        self.end(Inbound::held);
        if let Receiving::Awaited(held) = *self {
            inbound.charge(held);
        }
        *self = Receiving::Open(inbound);
    }

    /// Closes the receiving side until it opens again. `unread` returns what the user has yet to read.
    pub(super) fn end(&mut self, unread: impl FnOnce(&Inbound) -> Held) {
        if let Receiving::Open(inbound) = self {
            *self = Receiving::Awaited(unread(inbound));
        }
    }

    /// Charges an event to the receive buffer.
    pub(super) fn charge(&mut self, held: Held) {
        match self {
            Receiving::Open(inbound) => inbound.charge(held),
            Receiving::Awaited(early) => early.add(held),
        }
    }

    /// Records that the reader took `bytes`, and the charge of `charges` messages in addition. Returns whether a window update is
    /// due.
    #[inline]
    pub(super) fn consumed(&mut self, bytes: usize, charges: usize) -> bool {
        match self {
            Receiving::Open(inbound) => inbound.consumed(bytes, charges),
            Receiving::Awaited(early) => {
                early.remove(Held::of(bytes, charges));
                false
            }
        }
    }

    /// Returns the bytes that were received and that the user has not read.
    pub(super) fn unread_bytes(&self) -> usize {
        match self {
            Receiving::Open(inbound) => inbound.unread_bytes(),
            Receiving::Awaited(early) => early.total_bytes(),
        }
    }

    /// Returns whether a SACK is due.
    #[inline]
    pub(super) fn ack_due(&self) -> bool {
        self.as_ref().is_some_and(Inbound::ack_due)
    }
}
