//! Optional events, for users who subscribe to them (RFC 6458 §6.1).

use super::{Association, Context};
use crate::error::CloseReason;
use crate::event::{Event, Host, PathChange, PathReason, SendFailure};
use crate::inbound::Inbound;
use crate::receive_buffer::Held;

impl Association {
    /// Reports an event to the user. Unread events occupy the receive buffer, so that no peer can make them accumulate; an event
    /// without room is dropped.
    #[cold]
    pub(super) fn tell<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, event: Event) {
        if !self.config.events {
            return;
        }
        if self.has_room_for_event() {
            self.tell_anyway(cx, event);
        } else {
            self.statistics.events_dropped += 1;
        }
    }

    /// Reports that everything sent was acknowledged.
    pub(super) fn tell_sender_dry<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if self.config.sender_dry_events {
            self.tell(cx, Event::SenderDry);
        }
    }

    pub(super) fn tell_path<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        path_id: usize,
        change: PathChange,
        reason: PathReason,
    ) {
        let remote = self.paths[path_id].remote();
        self.tell(cx, Event::PathChanged { remote, change, reason });
    }

    /// Reports the peer's adaptation layer indication when the association is up.
    pub(crate) fn tell_adaptation<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if self.peer_adaptation != 0 {
            self.tell(cx, Event::AdaptationIndication(self.peer_adaptation));
        }
    }

    /// Reports that the rest of a message delivered in part will not arrive.
    pub(super) fn tell_end_of_partial_delivery<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if self.config.events
            && let Some((stream, ssn)) = self.inbound.as_mut().and_then(Inbound::take_open_record)
        {
            self.tell_anyway(cx, Event::PartialDeliveryAborted { stream, ssn });
        }
    }

    /// Reports that the association ends otherwise than by a shutdown.
    pub(super) fn tell_loss<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, reason: &CloseReason) {
        if self.config.events && *reason != CloseReason::Shutdown {
            let information = std::mem::take(&mut self.abort_causes);
            cx.host.event(self.id, Event::Lost { reason: reason.clone(), information });
            self.report_undelivered(cx, reason.cause());
        }
    }

    /// Returns all messages that the peer has not acknowledged to the user. The send buffer bounds them.
    pub(super) fn report_undelivered<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, cause: u16) {
        if !self.config.events {
            return;
        }
        let piece_bytes_max = self.fragmentation_point_bytes();
        for failure in self.outbound.undelivered().flat_map(|failure| failure.cut(piece_bytes_max)) {
            let event = Event::SendFailed(SendFailure { cause, ..failure });
            charge(&mut self.inbound, &mut self.early, &event);
            cx.host.event(self.id, event);
        }
    }

    /// Discards the next messages if their lifetime is over. Without room for the report a message is sent after all, so that no
    /// message vanishes silently and memory stays bounded.
    pub(super) fn discard_expired<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let keeps = self.config.events && !self.has_room_for_event();
        let expired = self.outbound.take_expired(cx.now, keeps);
        if expired.is_empty() {
            return;
        }
        self.statistics.messages_expired += expired.iter().filter(|failure| failure.ending).count() as u64;
        if self.config.events {
            let piece_bytes_max = self.fragmentation_point_bytes();
            for failure in expired.into_iter().flat_map(|failure| failure.cut(piece_bytes_max)) {
                self.tell_anyway(cx, Event::SendFailed(failure));
            }
        }
        if self.outbound.takes_writable() {
            cx.host.event(self.id, Event::Writable);
        }
        if self.outbound.is_empty() {
            self.tell_sender_dry(cx);
            self.continue_shutdown(cx);
        }
    }

    fn has_room_for_event(&self) -> bool {
        self.inbound.as_ref().is_none_or(Inbound::has_room_for_event)
    }

    fn tell_anyway<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, event: Event) {
        charge(&mut self.inbound, &mut self.early, &event);
        cx.host.event(self.id, event);
    }
}

/// Charges an event to the receive buffer.
fn charge(inbound: &mut Option<Inbound>, early: &mut Held, event: &Event) {
    let held = event.receive_credit().map_or(Held::default(), |bytes| Held::of(bytes, 1));
    match inbound {
        Some(inbound) => inbound.charge(held),
        None => early.add(held),
    }
}
