//! Read access to associations.

use super::Endpoint;
use crate::association::AssociationView;
use crate::identifiers::AssociationId;

impl Endpoint {
    /// Returns a view of an association; `None` once it has ended.
    pub fn association(&self, id: AssociationId) -> Option<AssociationView<'_>> {
        Some(self.associations.get(id)?.view())
    }
}
