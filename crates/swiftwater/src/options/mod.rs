//! Options: [`StackOptions`] for the sockets, [`ListenerOptions`] for a listener, [`AssociationOptions`] for an association.

mod association;
mod stack;

pub use association::AssociationOptions;
pub use stack::{LinkKind, ListenerOptions, StackOptions};
