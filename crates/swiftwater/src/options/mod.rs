//! Options: [`StackOptions`] for the sockets, [`ListenerOptions`] for a listener, [`AssociationOptions`] for an association.

mod association;
mod listener;
mod stack;

pub use association::AssociationOptions;
pub use listener::ListenerOptions;
pub use stack::{LinkKind, StackOptions};
