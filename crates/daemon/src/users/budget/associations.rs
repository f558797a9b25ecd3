//! Counts the associations of each user that peers have set up.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Account;

/// An association of a one-to-many socket; counts for its user until dropped.
#[derive(Debug)]
pub(crate) struct AssociationSeat(Arc<Account>);

impl Drop for AssociationSeat {
    fn drop(&mut self) {
        self.0.associations.fetch_sub(1, Relaxed);
    }
}

impl Account {
    pub(crate) fn associations(&self) -> usize {
        self.associations.load(Relaxed)
    }

    /// Counts an association that a peer has set up. Returns `None` if the user has the maximum already.
    pub(crate) fn seat(self: &Arc<Self>, associations_max: usize) -> Option<AssociationSeat> {
        let more = |count: usize| (count < associations_max).then_some(count + 1);
        self.associations.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(AssociationSeat(Arc::clone(self)))
    }

    /// Counts a refused association.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}
