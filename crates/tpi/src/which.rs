//! Names an association of a stream.

use sctp_message::AssociationId;

/// The association of a primitive.
///
/// A one-to-one stream has one association at most: primitives there name none, and a name is ignored. A one-to-many
/// stream has several: the provider names one in every indication, and a request without a name concerns none of
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Which {
    /// The primitive names no association. On a one-to-one stream it concerns the only one, on a one-to-many stream none.
    #[default]
    Only,
    /// The association with this identifier.
    Id(AssociationId),
}

impl Which {
    /// Returns the identifier of the association, if the primitive names one.
    #[inline]
    pub const fn id(self) -> Option<AssociationId> {
        match self {
            Self::Only => None,
            Self::Id(id) => Some(id),
        }
    }
}

impl From<AssociationId> for Which {
    fn from(id: AssociationId) -> Self {
        Self::Id(id)
    }
}
