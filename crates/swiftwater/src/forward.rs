//! The calls that a type and its counterpart for tasks have in common.

/// Defines the calls of a type and of its counterpart for tasks that forward to a call of the same name on the state which their
/// clones share. Both have the documentation; the example, whose calls block, only the first.
macro_rules! forward {
    (
        $blocking:ty, $tasks:ty:
        $(
            $(#[doc = $text:literal])+
            $(example { $(#[doc = $example:literal])+ })?
            $(errors { $(#[doc = $errors:literal])+ })?
            fn $call:ident(&self $(, $argument:ident: $type:ty)* $(,)?) $(-> $result:ty)?;
        )+
    ) => {
        impl $blocking {
            $(
                $(#[doc = $text])+
                $(#[doc = ""] $(#[doc = $example])+)?
                $(#[doc = "\n# Errors\n"] $(#[doc = $errors])+)?
                #[inline]
                pub fn $call(&self $(, $argument: $type)*) $(-> $result)? {
                    self.shared.$call($($argument),*)
                }
            )+
        }

        #[cfg(feature = "tokio")]
        impl $tasks {
            $(
                $(#[doc = $text])+
                $(#[doc = "\n# Errors\n"] $(#[doc = $errors])+)?
                #[inline]
                pub fn $call(&self $(, $argument: $type)*) $(-> $result)? {
                    self.shared.$call($($argument),*)
                }
            )+
        }
    };
}
