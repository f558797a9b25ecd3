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

#[cfg(test)]
mod tests {
    use sctp_wire::Tsn;

    use super::*;
    use crate::config::AssociationConfig;
    use crate::extensions::Extensions;

    fn inbound() -> Inbound {
        Inbound::new(Tsn(101), 1, &AssociationConfig::default(), Extensions::default())
    }

    #[test]
    fn what_the_reader_has_yet_to_take_stays_counted_when_the_receiving_side_opens_and_ends() {
        let mut receiving = Receiving::default();
        assert!(receiving.as_ref().is_none() && receiving.as_mut().is_none());
        assert_eq!(receiving.unread_bytes(), 0);
        receiving.charge(Held::of(1000, 2));
        assert_eq!(receiving.unread_bytes(), Held::of(1000, 2).total_bytes());
        assert!(!receiving.consumed(100, 1), "no peer waits for a window update");
        assert_eq!(receiving.unread_bytes(), Held::of(900, 1).total_bytes());
        // The second time is a restart of the peer.
        for count in [1, 2] {
            receiving.open(inbound());
            assert!(receiving.as_ref().is_some() && receiving.as_mut().is_some());
            assert_eq!(receiving.unread_bytes(), Held::of(900, count).total_bytes());
            receiving.charge(Held::of(0, 1));
        }
        receiving.end(Inbound::held);
        assert!(receiving.as_ref().is_none());
        receiving.end(|_| Held::default());
        assert_eq!(receiving.unread_bytes(), Held::of(900, 3).total_bytes(), "it has ended already");
    }

    #[test]
    fn a_sack_is_due_only_while_data_can_arrive() {
        let mut receiving = Receiving::default();
        assert!(!receiving.ack_due());
        receiving.open(inbound());
        assert!(!receiving.ack_due());
        receiving.as_mut().expect("it is open").request_ack();
        assert!(receiving.ack_due());
        receiving.end(Inbound::held);
        assert!(!receiving.ack_due());
    }
}
