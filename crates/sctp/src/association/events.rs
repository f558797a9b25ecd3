//! What the user hears of without having to act upon it (RFC 6458 §6.1), if it wants to.

use super::{Association, Context};
use crate::event::{Event, Host, PathChange, PathReason};

impl Association {
    /// Tells the user of something. What is not read yet takes room of the receive buffer, so that no peer can make us keep
    /// more and more of it; what finds none is dropped.
    #[cold]
    pub(super) fn tell<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, event: Event) {
        if !self.config.events {
            return;
        }
        if self.inbound.as_mut().is_some_and(|inbound| !inbound.take_event(event.content_bytes())) {
            self.statistics.events_dropped += 1;
            return;
        }
        cx.host.event(self.id, event);
    }

    pub(super) fn tell_path<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
        change: PathChange,
        reason: PathReason,
    ) {
        let remote = self.paths[path_id].remote;
        self.tell(cx, Event::PathChanged { remote, change, reason });
    }
}
