//! The macro that defines the enum of all chunks, of all causes and of all parameters.

/// Defines an enum with a variant for each known kind, and one for unknown kinds.
macro_rules! any_kind {
    (
        $(#[$enum_doc:meta])*
        $any:ident, raw: $raw:ident, error: $error:ident, kind: $kind:ty;

        $($(#[$doc:meta])* $variant:ident($type:ty),)*
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $any<'a> {
            $($(#[$doc])* $variant($type),)*
            /// A kind that this crate does not know.
            Unknown(Unknown<'a>),
        }

        impl<'a> $any<'a> {
            /// Reads one of any kind.
            pub fn parse(raw: &$raw<'a>) -> Result<Self, $error> {
                Ok(match raw.kind {
                    $(<$type>::KIND => Self::$variant(<$type>::parse(raw)?),)*
                    _ => Self::Unknown(Unknown::parse(raw)?),
                })
            }

            /// Returns the kind: the chunk type, cause code or parameter type.
            pub fn kind(&self) -> $kind {
                match self {
                    $(Self::$variant(_) => <$type>::KIND,)*
                    Self::Unknown(unknown) => unknown.kind,
                }
            }

            /// Appends header, value and padding.
            pub fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(known) => known.write(out),)*
                    Self::Unknown(unknown) => unknown.write(out),
                }
            }

            /// Returns the number of bytes that `write` appends.
            pub fn wire_bytes(&self) -> usize {
                match self {
                    $(Self::$variant(known) => known.wire_bytes(),)*
                    Self::Unknown(unknown) => unknown.wire_bytes(),
                }
            }
        }

        impl fmt::Display for $any<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(known) => known.fmt(f),)*
                    Self::Unknown(unknown) => unknown.fmt(f),
                }
            }
        }

        $(impl<'a> From<$type> for $any<'a> {
            fn from(known: $type) -> Self {
                Self::$variant(known)
            }
        })*

        impl<'a> From<Unknown<'a>> for $any<'a> {
            fn from(unknown: Unknown<'a>) -> Self {
                Self::Unknown(unknown)
            }
        }
    };
}

pub(crate) use any_kind;
