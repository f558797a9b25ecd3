//! Optional events, for users who subscribe to them (RFC 6458 §6.1).

use bytes::Bytes;
use sctp_message::PathId;
use sctp_wire::cause::InvalidStreamIdentifier;

use super::returns::Returning;
use super::{Association, Context, State};
use crate::error::CloseReason;
use crate::event::{Event, Host, PathChange, PathReason, SendFailure};
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::receive_buffer::Held;
use crate::time::Time;

/// Maximum number of undelivered messages, or fragments of such, that return to the user in one call.
pub(crate) const RETURNED_MAX: usize = 64;

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
        path_id: PathId,
        change: PathChange,
        reason: PathReason,
    ) {
        let remote = self.paths[path_id].remote();
        self.tell(cx, Event::PathChanged { remote, change, reason });
    }

    /// Reports the peer's adaptation layer indication when the association is up.
    pub(crate) fn tell_adaptation<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if let Some(indication) = self.peer.adaptation() {
            self.tell(cx, Event::AdaptationIndication(indication));
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
    pub(super) fn tell_loss<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        reason: &CloseReason,
        causes: &[u8],
    ) {
        if *reason != CloseReason::Shutdown {
            let information = Bytes::copy_from_slice(causes);
            cx.host.event(self.id, Event::Lost { reason: reason.clone(), information });
        }
    }

    /// Gives up all messages that the peer has not acknowledged, which the send buffer bounds. The first of them return to
    /// the user at once, if it subscribes to that, and the others step by step.
    pub(super) fn give_up_all<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, cause: u16) {
        if self.outbound.is_empty() {
            return;
        }
        let empty = Outbound::new(self.identity.local_initial_tsn, &self.config);
        let messages = std::mem::replace(&mut self.outbound, empty).into_undelivered();
        let cause = self.reports_failures().then_some(cause);
        self.returns.push(Returning { messages, cause });
        self.return_given_up(cx);
    }

    /// Returns when [`Association::return_given_up`] must be called next.
    #[inline]
    pub(super) fn returns_at(&self) -> Option<Time> {
        self.returns.next_at()
    }

    /// Returns the next of the messages that were given up to the user, or releases them. Reports the end of the association
    /// after the last.
    pub(super) fn return_given_up<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let piece_bytes_max = self.fragmentation_point_bytes();
        let Some(Returning { mut messages, cause }) = self.returns.begin(cx.now) else { return };
        let is_left = if let Some(cause) = cause {
            let pieces = std::iter::from_fn(|| messages.next_piece(piece_bytes_max));
            for failure in pieces.take(RETURNED_MAX) {
                self.tell_anyway(cx, Event::SendFailed(SendFailure { cause, ..failure }));
            }
            !messages.is_empty()
        } else {
            messages.release()
        };
        if is_left {
            self.returns.put_back(Returning { messages, cause });
        }
        self.tell_closed(cx);
    }

    fn reports_failures(&self) -> bool {
        self.config.events && self.config.send_failed_events
    }

    /// Returns whether messages that were given up wait for their return.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.returns.is_empty()
    }

    /// Reports the end of a closed association if nothing remains to be reported before.
    pub(super) fn tell_closed<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        if self.returns.has_reports() {
            return;
        }
        let State::Closed { unreported, .. } = &mut self.state else { return };
        let Some(reason) = unreported.take() else { return };
        if let Some(charge) = self.inbound.as_mut().and_then(Inbound::take_unread_charge) {
            cx.host.keep_charge(self.id, charge);
        }
        cx.host.event(self.id, Event::Closed(reason));
    }

    /// Returns when [`Association::discard_expired`] must be called next.
    #[inline]
    pub(super) fn discards_at(&self) -> Option<Time> {
        self.outbound.expires_at().and_then(|at| self.returns.discards_at(at))
    }

    /// Discards the next messages whose lifetime is over, but only some of very many. Without room for the report a message
    /// is sent after all, so that no message vanishes silently and memory stays bounded.
    pub(super) fn discard_expired<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let is_reported = self.reports_failures();
        let keeps = is_reported && !self.has_room_for_event();
        let (expired, messages) = self.outbound.take_expired(cx.now, keeps, RETURNED_MAX);
        self.returns.on_discard(cx.now);
        if expired.is_empty() {
            return;
        }
        self.statistics.messages_expired += messages;
        if is_reported {
            self.returns.push(Returning { messages: expired, cause: Some(0) });
            self.return_given_up(cx);
        }
        if self.outbound.take_writable() {
            cx.host.event(self.id, Event::Writable);
        }
        if self.outbound.is_empty() {
            self.tell_sender_dry(cx);
            self.continue_shutdown(cx);
        }
    }

    /// Gives up the messages that wait for streams which the peer does not allow (RFC 9260 §5.1.1).
    pub(super) fn give_up_beyond_streams<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>) {
        let messages = self.outbound.take_beyond_streams();
        if messages.is_empty() {
            return;
        }
        let cause = self.reports_failures().then_some(InvalidStreamIdentifier::KIND);
        self.returns.push(Returning { messages, cause });
        self.return_given_up(cx);
        if self.outbound.take_writable() {
            cx.host.event(self.id, Event::Writable);
        }
    }

    fn has_room_for_event(&mut self) -> bool {
        self.inbound.as_mut().is_none_or(Inbound::has_room_for_event)
    }

    /// Reports an event, whatever the room, and charges it to the receive buffer.
    pub(super) fn tell_anyway<H: Host + ?Sized>(&mut self, cx: &mut Context<'_, H>, event: Event) {
        let held = event.receive_credit().map_or(Held::default(), |bytes| Held::of(bytes, 1));
        self.inbound.charge(held);
        cx.host.event(self.id, event);
    }
}
