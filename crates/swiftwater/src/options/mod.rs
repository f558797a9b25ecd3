//! Options: [`StackOptions`] for the sockets, [`ListenerOptions`] for a listener, [`AssociationOptions`] for an association.

/// Defines the methods `with_...` of a type of options, each of which returns the options with one field set.
macro_rules! setters {
    ($options:ident: $($with:ident($field:ident: $value:ty),)*) => {
        impl $options {
            $(
                #[doc = concat!(
                    "Returns these options with [`", stringify!($field), "`](", stringify!($options), "::",
                    stringify!($field), ") set."
                )]
                #[must_use]
                pub fn $with(mut self, $field: $value) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

mod association;
mod listener;
mod stack;

pub use association::AssociationOptions;
pub use listener::ListenerOptions;
pub use stack::{LinkKind, StackOptions};
