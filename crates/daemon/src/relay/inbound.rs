//! The inbound direction: from an association into the channel of its socket.

use std::rc::Rc;

use swiftwater::internals::{self, Taken};
use swiftwater::tokio::Association;
use swiftwater::{Event, Message, PathChange, Received, RecvError};

use super::batching::{Bundled, take_along, to_program};
use super::notifications;
use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::putter::Putter;
use crate::channel::receive_ring::BundleWriter;
use crate::channel::window_credit::HeldCredit;
use crate::state::association::SocketAssociation;
use crate::state::inbound_queue::{Ended, InboundQueue, ToProgram};
use crate::state::notification_type::NotificationType;
use crate::state::socket::Socket;
use crate::users::quantum::{self, RECORDS_PER_TURN, TurnState};
use crate::users::round_share::Turn;

/// The event that the inbound direction waits for before its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InboundWait {
    /// The next turn: more messages are available.
    Turn,
    /// A message of the association.
    Message,
    /// The event that unblocks the channel.
    Channel(Blocked),
    /// The consequence for messages of the peer, because the program has left.
    Departure,
}

/// Relays from an association into the channel of its socket until the association has ended.
pub(crate) struct Inbound<'a> {
    socket: &'a Rc<Socket>,
    assoc: &'a Rc<SocketAssociation>,
    association: &'a Association,
    putter: Putter,
    /// Whether messages are discarded, because the program does not read any more, so that the peer's window stays open.
    is_discarding: bool,
    /// Number of messages that could not be put because the program has left.
    refused: u32,
    is_end_told: bool,
    turn: Turn,
}

impl<'a> Inbound<'a> {
    pub(crate) fn new(
        socket: &'a Rc<Socket>,
        assoc: &'a Rc<SocketAssociation>,
        association: &'a Association,
    ) -> Inbound<'a> {
        let (putter, turn) = (Putter::new(socket.channel()), socket.turn());
        Inbound {
            socket,
            assoc,
            association,
            putter,
            is_discarding: false,
            refused: 0,
            is_end_told: false,
            turn,
        }
    }

    /// Moves the messages in `held`, and then those that the association has received. Returns the event that it waits for;
    /// `None` once the association has ended. Reports to `ended` how it has ended, before the program is notified.
    pub(crate) fn step(
        &mut self,
        held: &mut InboundQueue,
        ended: &mut impl FnMut(Ended),
    ) -> Option<InboundWait> {
        self.turn.resume();
        let wait = self.advance(held, ended);
        self.turn.end();
        wait
    }

    fn advance(&mut self, held: &mut InboundQueue, ended: &mut impl FnMut(Ended)) -> Option<InboundWait> {
        // Whether the association was found to have no more.
        let mut is_emptied = false;
        loop {
            // The last notification of an association follows the report of its end.
            let kept = held.items_behind_end();
            if held.is_copy_due() && self.turn.spend(quantum::weight(held.copy_out())) == TurnState::Over {
                return Some(InboundWait::Turn);
            }
            let weight = held.weight();
            if let Err(wait) = self.put_all_but(kept, held) {
                // If this ends the turn, the next step waits for another one.
                let _ = self.turn.spend(weight.saturating_sub(held.weight()));
                self.putter.charge_held(held.memory_bytes());
                // The program may read only once its call returns that waits for room in the channel.
                if self.socket.style().is_one_to_one() {
                    self.tell_end(held.take_ending(), ended);
                }
                return Some(wait);
            }
            if held.take_end_due() {
                end_early(self.socket, self.assoc);
            }
            // A step that moves nothing counts, too, because the event that it waits for may have occurred already, again and
            // again.
            if self.turn.spend(weight.max(1)) == TurnState::Over {
                return Some(InboundWait::Turn);
            }
            let received = match held.take_next() {
                Some(received) => received,
                None if is_emptied => return Some(InboundWait::Message),
                None if self.bundles() => internals::recv_run_no_poll(self.association),
                None => internals::recv_no_poll(self.association).map(|found| found.map(Taken::One)),
            };
            let last = match received {
                Ok(Some(Taken::Run(run))) => {
                    held.push_run(run);
                    is_emptied = self.take_along(held);
                    continue;
                }
                Ok(Some(Taken::One(Received::Message(message)))) => {
                    held.push(to_program(self.assoc, message));
                    is_emptied = self.bundles() && self.take_along(held);
                    continue;
                }
                Ok(Some(Taken::One(Received::Event(event)))) => {
                    self.take_event(held, &event);
                    continue;
                }
                Ok(None) => Some(held.regular_end()),
                Err(RecvError::Lost(ref loss)) => Some(Ended::Lost(loss.kind)),
                Err(RecvError::WouldBlock) => return Some(InboundWait::Message),
                // The association continues.
                Err(_) => continue,
            };
            self.tell_end(held.take_ending().or(last), ended);
            if last.is_some() {
                held.end_message();
                if held.is_empty() {
                    return None;
                }
                held.set_next(Some(received));
            }
        }
    }

    /// Receives what may share a bundle with the last message. Returns whether the association has no more.
    fn take_along(&self, held: &mut InboundQueue) -> bool {
        match take_along(self.assoc, self.association, held) {
            Some(Err(RecvError::WouldBlock)) => true,
            next => {
                held.set_next(next);
                false
            }
        }
    }

    /// Reports how the association has ended, once.
    fn tell_end(&mut self, how: Option<Ended>, ended: &mut impl FnMut(Ended)) {
        if let Some(how) = how
            && !std::mem::replace(&mut self.is_end_told, true)
        {
            ended(how);
        }
    }

    /// Waits for the next turn.
    pub(crate) async fn next_turn(&mut self) {
        self.turn.next().await;
    }

    /// Waits until the channel is unblocked.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        self.putter.unblocked(blocked).await;
    }

    /// Waits for the ABORT if the program has left messages unread: their association ends, and its peer must not hear that
    /// more has arrived. Otherwise discards messages from now on.
    pub(crate) async fn left(&mut self) {
        let channel = self.socket.channel();
        if channel.is_closed() && channel.is_left_unread(self.refused).await {
            std::future::pending::<()>().await;
        }
        self.is_discarding = true;
    }

    fn take_event(&self, held: &mut InboundQueue, event: &Event) {
        // Others wait for the end of a message that comes in parts.
        let ends_message = matches!(event, Event::PartialDeliveryAborted { .. });
        if matches!(event, Event::Down(_)) {
            held.end_message();
        }
        for notification in notifications::of(self.socket, self.assoc, event) {
            if ends_message {
                held.push(notification);
            } else {
                let channel = self.socket.channel();
                held.push_notification(notification, |bytes| channel.charge_notification(bytes));
            }
        }
        if ends_message {
            held.end_message();
        }
        match event {
            Event::PeerShutdown => {
                self.socket.on_sending_shut(self.assoc);
                held.on_peer_shutdown(self.socket.style().is_one_to_one());
            }
            Event::PathChanged { address, change: PathChange::Confirmed, .. } => {
                self.socket.associations().on_confirmed(self.assoc, *address);
            }
            Event::Down(loss) => {
                self.assoc.set_end_cause(loss.as_ref().map_or(0, |loss| loss.cause));
                held.on_down(loss.as_ref().map(|loss| loss.kind));
            }
            _ => {}
        }
    }

    /// Returns whether messages may share a record: messages that hold credit in the window may not.
    fn bundles(&self) -> bool {
        !self.assoc.bounds_unread()
    }

    /// Puts all held messages but the last `kept`, short ones in bundles; as many others as a turn has.
    fn put_all_but(&mut self, kept: usize, held: &mut InboundQueue) -> Result<(), InboundWait> {
        let mut put_alone = 0;
        while held.len() > kept {
            if kept == 0
                && self.may_bundle()
                && let Some(first_bytes) = held.bundled_bytes()
                && self.put_together(first_bytes, held)?
            {
                continue;
            }
            // A run that cannot be split is gone.
            let Some(first) = held.first(|message| to_program(self.assoc, message)) else { continue };
            self.put(first)?;
            held.pop_first();
            put_alone += 1;
            if put_alone >= RECORDS_PER_TURN {
                return Err(InboundWait::Turn);
            }
        }
        Ok(())
    }

    /// Returns whether the next messages may share a record.
    fn may_bundle(&self) -> bool {
        !self.is_discarding && self.bundles() && self.putter.takes_bundles()
    }

    /// Puts the next messages into a bundle; returns false if they need records of their own.
    fn put_together(&mut self, first_bytes: usize, held: &mut InboundQueue) -> Result<bool, InboundWait> {
        let mut bundled = Bundled::default();
        // A part that others follow is alone in its bundle.
        let has_end = held.items().front().is_none_or(ToProgram::has_end);
        let write = |bundle: &mut BundleWriter<'_>| bundled = Bundled::write(self.assoc, held, bundle);
        let put = self.putter.try_put_bundle(first_bytes, has_end, write);
        let is_put = put.map_err(|(not_put, messages)| self.waits_for(not_put, messages))?;
        if is_put {
            // The ring bounds what the program has not read, so that a long message needs no part of the window.
            if let Some(ToProgram::Message(_, first)) = held.items().front()
                && self.assoc.holds_credit(first)
            {
                held_credit(self.assoc, first).release();
            }
            bundled.remove_from(held);
            self.on_part_put(has_end);
        }
        Ok(is_put)
    }

    /// Returns the event that follows the failure of putting this many messages.
    fn waits_for(&mut self, not_put: NotPut, messages: u32) -> InboundWait {
        match not_put {
            NotPut::Blocked(blocked) => InboundWait::Channel(blocked),
            NotPut::Failed(_) => {
                self.refused = messages;
                InboundWait::Departure
            }
        }
    }

    fn put(&mut self, upward: &ToProgram) -> Result<(), InboundWait> {
        let assoc = self.assoc;
        let message = match upward {
            ToProgram::Message(_, message) => Some(message),
            ToProgram::Notification(..) => None,
        };
        let holding = message.filter(|message| assoc.holds_credit(message));
        let credit = || holding.map(|message| held_credit(assoc, message));
        if self.is_discarding {
            credit().into_iter().for_each(HeldCredit::release);
            return Ok(());
        }
        let put = self.putter.try_put(upward.header(), upward.blocks(), credit);
        put.map_err(|not_put| self.waits_for(not_put, message.is_some().into()))?;
        self.on_part_put(upward.has_end());
        Ok(())
    }

    /// Records that a message, or a part of one, was put. `has_end`: no other part of it follows.
    fn on_part_put(&mut self, has_end: bool) {
        if !has_end && self.socket.options().interleaves() {
            self.putter.release_delivery();
        }
    }
}

/// Returns the credit of a message in the window of its association.
fn held_credit(assoc: &Rc<SocketAssociation>, message: &Message) -> HeldCredit {
    let association = Rc::downgrade(assoc);
    HeldCredit::new(association, internals::window_bytes(message))
}

/// Shows the program the end of the data, because all messages of a peer that has shut down are in the pair. The association
/// may last until the peer has received everything. A program that has subscribed to later notifications finds the end when it
/// reads, but its descriptor does not poll readable for it, because nothing can follow a polled end.
fn end_early(socket: &Socket, assoc: &SocketAssociation) {
    let later_notifications = [
        NotificationType::AssociationChange,
        NotificationType::SendFailed,
        NotificationType::SendFailedEvent,
        NotificationType::SenderDry,
    ];
    socket.on_data_ended(later_notifications.into_iter().any(|kind| assoc.wants(kind)));
}
