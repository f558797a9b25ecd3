//! Identifiers of associations and listeners.

/// Identifies an association of one endpoint. The endpoint reuses it after [`Event::Closed`](crate::Event::Closed).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AssociationId(pub u32);

impl AssociationId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifies a listener of one endpoint. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenerId(pub u32);
