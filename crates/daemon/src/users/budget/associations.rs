//! Counts the associations of each user's one-to-many sockets, and charges their memory.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Account, Charge};

/// Memory of an association that neither sends nor receives.
pub(crate) const ASSOCIATION_BYTES: usize = 10 << 10;

/// An association of a one-to-many socket; counts for its user until dropped.
#[derive(Debug)]
pub(crate) struct AssociationPermit {
    account: Arc<Account>,
    _memory: Charge,
}

impl Drop for AssociationPermit {
    fn drop(&mut self) {
        self.account.associations.fetch_sub(1, Relaxed);
    }
}

impl Account {
    pub(crate) fn associations(&self) -> usize {
        self.associations.load(Relaxed)
    }

    /// Counts an association, whose memory is charged already. Returns `None` if the user has the maximum already.
    pub(crate) fn admit_association(
        self: &Arc<Self>,
        associations_max: usize,
        memory: Charge,
    ) -> Option<AssociationPermit> {
        let more = |count: usize| (count < associations_max).then_some(count + 1);
        self.associations.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(AssociationPermit { account: Arc::clone(self), _memory: memory })
    }

    /// Returns the number of refused associations.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Counts a refused association.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}
