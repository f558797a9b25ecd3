use std::fmt;
use std::slice;

/// Parameter types in a row, as they stand on the wire.
///
/// ```
/// use sctp_wire::parameter::{Ipv4, Ipv6, KindList};
///
/// let encoded = [Ipv4::KIND.to_be_bytes(), Ipv6::KIND.to_be_bytes()];
/// let kinds = KindList::new(&encoded);
/// assert!(kinds.contains(Ipv6::KIND));
/// assert!(kinds.iter().eq([5, 6]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct KindList<'a> {
    encoded: &'a [[u8; 2]],
}

impl<'a> KindList<'a> {
    /// Returns the list of these types, each big-endian.
    pub const fn new(encoded: &'a [[u8; 2]]) -> Self {
        Self { encoded }
    }

    /// Returns the types in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u16> + Clone + use<'a> {
        let encoded: slice::Iter<'a, [u8; 2]> = self.encoded.iter();
        encoded.map(|kind| u16::from_be_bytes(*kind))
    }

    /// Returns whether `kind` is one of them.
    pub fn contains(&self, kind: u16) -> bool {
        self.encoded.contains(&kind.to_be_bytes())
    }

    /// Returns the number of types.
    pub const fn len(&self) -> usize {
        self.encoded.len()
    }

    /// Returns whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    pub(crate) fn as_bytes(&self) -> &'a [u8] {
        self.encoded.as_flattened()
    }
}

/// The types with spaces between.
impl fmt::Display for KindList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.iter().enumerate() {
            write!(f, "{}{kind}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}
