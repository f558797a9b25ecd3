//! From an association into the channel of its socket.

use std::collections::VecDeque;
use std::rc::Rc;

use carrier::page::PeerShut;
use carrier::record::{BUNDLE_BYTES_MAX, Flags};
use swiftwater::tokio::Association;
use swiftwater::{Event, Message, Received, RecvError, internals};

use super::Wait;
use super::batching::{fitting_in_bundle, take_along, to_program};
use super::notifications;
use crate::channel::Put;
use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::putter::Putter;
use crate::channel::style::Style;
use crate::channel::window_credit::HeldCredit;
use crate::state::association::{Ended, Held, SocketAssociation, Upward};
use crate::state::notification_type::NotificationType;
use crate::state::socket::Socket;
use crate::system::quantum::Quantum;

/// From an association into the channel of its socket, until the association has ended.
pub(crate) struct Inbound<'a> {
    socket: &'a Rc<Socket>,
    assoc: &'a Rc<SocketAssociation>,
    association: &'a Association,
    putter: Putter,
    /// A part of a message was put, and no other message comes between its parts.
    is_begun: bool,
    /// The program reads no more. Messages are discarded, so that the window stays open for the peer.
    is_unread: bool,
    is_end_told: bool,
    quantum: Quantum,
}

impl<'a> Inbound<'a> {
    pub(crate) fn new(
        socket: &'a Rc<Socket>,
        assoc: &'a Rc<SocketAssociation>,
        association: &'a Association,
    ) -> Inbound<'a> {
        let (putter, quantum) = (Putter::new(&socket.channel), Quantum::new());
        let (is_begun, is_unread, is_end_told) = (false, false, false);
        Inbound { socket, assoc, association, putter, is_begun, is_unread, is_end_told, quantum }
    }

    /// Moves what `held` has, and then what the association has received. Returns what it waits for; `None` once the association
    /// has ended. `ended` is told how before the program is.
    pub(crate) fn step(&mut self, held: &mut Held, ended: &mut impl FnMut(Ended)) -> Option<Wait> {
        loop {
            // The last thing that an association leaves comes after its end was told.
            let kept = usize::from(held.ending.is_some());
            let waiting = held.queue.len();
            if let Err(blocked) = self.put_all_but(kept, &mut held.queue) {
                return Some(Wait::Channel(blocked));
            }
            if std::mem::take(&mut held.is_end_due) {
                end_early(self.socket, self.assoc);
            }
            // A step that moves nothing counts, too: what it waits for may be there at once, again and again.
            if self.quantum.is_spent_by(waiting.max(1)) {
                return Some(Wait::Turn);
            }
            let received = match held.next.take() {
                Some(received) => received,
                None => internals::next_at_hand(self.association),
            };
            let regular = if held.is_shut_down { Ended::ByPeer } else { Ended::ByUs };
            let last = match received {
                Ok(Some(Received::Message(message))) => {
                    held.queue.push_back(to_program(self.assoc, message));
                    if self.bundles() {
                        held.next = take_along(self.assoc, self.association, &mut held.queue);
                    }
                    continue;
                }
                Ok(Some(Received::Event(event))) => {
                    self.take_event(held, &event);
                    continue;
                }
                Ok(None) => Some(regular),
                Err(RecvError::Lost(ref loss)) => Some(Ended::Lost(loss.kind)),
                Err(RecvError::WouldBlock) if held.ending.is_none() => return Some(Wait::Message),
                Err(RecvError::WouldBlock) => None,
                // The association goes on.
                Err(_) => continue,
            };
            if let Some(how) = held.ending.take().or(last)
                && !std::mem::replace(&mut self.is_end_told, true)
            {
                ended(how);
            }
            if last.is_some() {
                if held.queue.is_empty() {
                    return None;
                }
                held.next = Some(received);
            }
        }
    }

    /// Waits until what the channel needs is there.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        self.putter.unblocked(blocked).await;
    }

    fn take_event(&self, held: &mut Held, event: &Event) {
        held.queue.extend(notifications::of(self.socket, self.assoc, event));
        match event {
            Event::PeerShutdown => {
                held.is_shut_down = true;
                refuse_messages(self.socket, self.assoc);
                held.is_end_due = self.socket.style == Style::OneToOne;
            }
            Event::Down(loss) => {
                let regular = if held.is_shut_down { Ended::ByPeer } else { Ended::ByUs };
                held.ending = Some(loss.as_ref().map_or(regular, |loss| Ended::Lost(loss.kind)));
            }
            _ => {}
        }
    }

    /// Returns whether messages may share a record: those that keep room in the window while they lie there do not.
    fn bundles(&self) -> bool {
        !self.assoc.bounds_unread()
    }

    /// Puts what is queued but for the last so many, short messages together.
    fn put_all_but(&mut self, kept: usize, queue: &mut VecDeque<Upward>) -> Result<(), Blocked> {
        while queue.len() > kept {
            match self.fitting(kept, queue) {
                0 | 1 => {
                    self.put(&queue[0])?;
                    queue.pop_front();
                }
                several => {
                    self.put_together(queue.iter().take(several))?;
                    queue.drain(..several);
                }
            }
        }
        Ok(())
    }

    /// Returns how many of the next messages fit into one bundle.
    fn fitting(&self, kept: usize, queue: &VecDeque<Upward>) -> usize {
        let may_bundle =
            kept == 0 && !self.is_unread && !self.is_begun && self.bundles() && self.putter.takes_bundles();
        if may_bundle { fitting_in_bundle(queue) } else { 0 }
    }

    fn put_together<'b>(&mut self, messages: impl Iterator<Item = &'b Upward>) -> Result<(), Blocked> {
        let (mut bundle, mut count) = (Vec::with_capacity(BUNDLE_BYTES_MAX), 0);
        for message in messages {
            bundle.extend_from_slice(&message.header().encode());
            message.blocks().iter().for_each(|block| bundle.extend_from_slice(block));
            count += 1;
        }
        match self.putter.try_put_bundle(&bundle, count) {
            Err(NotPut::Blocked(blocked)) => return Err(blocked),
            put => self.is_unread = put.is_err(),
        }
        self.putter.let_others();
        Ok(())
    }

    fn put(&mut self, upward: &Upward) -> Result<(), Blocked> {
        let mut is_told_when_read = false;
        if !self.is_unread {
            match self.putter.try_put(upward.header(), upward.blocks()) {
                Err(NotPut::Blocked(blocked)) => return Err(blocked),
                Err(NotPut::Failed(_)) => self.is_unread = true,
                Ok(put) => is_told_when_read = put == Put::Record,
            }
            self.is_begun =
                !upward.header().flags.contains(Flags::END) && !self.socket.inner().options.interleaves;
            if !self.is_begun {
                self.putter.let_others();
            }
        }
        if let Upward::Message(_, message) = upward {
            self.keep_room(message, is_told_when_read);
        }
        Ok(())
    }

    fn held_credit(&self, message: &Message) -> HeldCredit {
        let association = Rc::downgrade(self.assoc);
        HeldCredit::new(association, internals::window_bytes(message))
    }

    /// Keeps the room that a message has in the window until it was read, where the daemon is told of that.
    fn keep_room(&self, message: &Message, is_told_when_read: bool) {
        let room = self.assoc.keeps_room(message).then(|| self.held_credit(message));
        match is_told_when_read {
            true => self.socket.channel.keep_room(room),
            false => room.into_iter().for_each(HeldCredit::release),
        }
    }
}

/// Refuses what programs send to an association that its peer has shut down (RFC 9260 §9.2).
fn refuse_messages(socket: &Socket, assoc: &SocketAssociation) {
    match &*assoc.send_queue() {
        Some(send_queue) => send_queue.refuse(&socket.channel.page),
        None => socket.channel.page.set_peer_shut(PeerShut::Writing),
    }
}

/// The peer sends no more, and what it has sent is in the carrier: the program reads the end, though the association may live on until
/// the peer has all. A program that wants to hear of what becomes of it finds the end when it reads, but does not poll readable for
/// it: nothing can follow what polls as the end.
fn end_early(socket: &Socket, assoc: &SocketAssociation) {
    socket.channel.page.set_peer_shut(PeerShut::Both);
    let may_hear_more = [
        NotificationType::AssociationChange,
        NotificationType::SendFailed,
        NotificationType::SendFailedEvent,
        NotificationType::SenderDry,
    ];
    match may_hear_more.into_iter().any(|kind| assoc.wants(kind)) {
        true => socket.channel.endpoint.end_untold(),
        false => socket.channel.endpoint.end(),
    }
}
