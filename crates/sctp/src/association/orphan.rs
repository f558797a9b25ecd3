//! Associations that no user has any more ("orphans").

use std::any::Any;
use std::fmt;
use std::time::Duration;

use super::shutdown::T5_RTO_MAX;
use super::{Association, Context};
use crate::event::Host;
use crate::time::Time;

/// What an association keeps from the time at which its user has gone.
pub(super) struct Orphan {
    /// When the peer last advanced the cumulative TSN, or the user has gone.
    progress_at: Time,
    rto_max: Duration,
    /// Dropped with the association's end.
    _until_end: Box<dyn Any + Send>,
}

impl fmt::Debug for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orphan")
            .field("progress_at", &self.progress_at)
            .field("rto_max", &self.rto_max)
            .finish_non_exhaustive()
    }
}

impl Association {
    /// Makes this an association without a user. T5 guards it from now on in whatever state it is. If it has been one before, the
    /// peer gets no more time, and what was to live until the end goes.
    pub(crate) fn orphan<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        rto_max: Duration,
        until_end: Box<dyn Any + Send>,
    ) {
        let progress_at = self.orphan.as_ref().map_or(cx.now, |orphan| orphan.progress_at);
        self.orphan = Some(Orphan { progress_at, rto_max, _until_end: until_end });
    }

    /// Returns whether the association has no user any more.
    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.is_some()
    }

    /// Records that the peer of an association without a user has advanced the cumulative TSN.
    pub(super) fn on_orphan_progress(&mut self, now: Time) {
        if let Some(orphan) = &mut self.orphan {
            orphan.progress_at = now;
        }
    }

    /// Returns when T5 ends an association without a user whose peer acknowledges nothing.
    pub(super) fn orphan_ends_at(&self) -> Option<Time> {
        let orphan = self.orphan.as_ref()?;
        Some(orphan.progress_at + T5_RTO_MAX * self.config.rto.max.min(orphan.rto_max))
    }
}
