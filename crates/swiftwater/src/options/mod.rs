//! Options: [`StackOptions`] for the sockets, [`ListenerOptions`] for a listener, [`AssociationOptions`] for an association.

/// Defines the setters of a type of options: each method `with_...` sets one field and returns the options.
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
