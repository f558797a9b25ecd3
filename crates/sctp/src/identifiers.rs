//! Identifiers of associations and listeners. That of an association is free again after
//! [`Event::Closed`](crate::Event::Closed).

pub use sctp_message::AssociationId;

/// Identifies a listener of one endpoint. It is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);
