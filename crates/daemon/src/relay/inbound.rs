//! From an association into the channel of its socket.

use std::collections::VecDeque;
use std::sync::Arc;

use carrier::page::PeerShut;
use carrier::record::{BUNDLE_BYTES_MAX, Flags};
use swiftwater::{Event, LossKind, Message, Received, RecvError, internals};
use tokio::sync::MutexGuard;

use super::batching::{fitting_in_bundle, take_along, to_program};
use super::notifications;
use crate::channel::Put;
use crate::channel::style::Style;
use crate::channel::window_credit::HeldCredit;
use crate::state::association::{Held, SocketAssociation, Upward};
use crate::state::notification_type::NotificationType;
use crate::state::socket::Socket;
use crate::system::quantum::Quantum;

/// How an association has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer has shut it down: what it sent ends there.
    ByPeer,
    /// We have.
    ByUs,
    /// Not regularly.
    Lost(LossKind),
}

/// From the association into the carrier, until the association has ended. What is held goes first; given up, this leaves
/// what was on its way there. `ended` is told how it has ended before the program is.
pub(crate) async fn up(socket: &Arc<Socket>, member: &Arc<SocketAssociation>, ended: impl FnOnce(Ended)) {
    let Some(association) = member.association() else { return };
    let mut held = member.held.lock().await;
    let Held { queue, next: after, is_shut_down } = &mut *held;
    let mut hand = Hand { socket, member, begun: None, unread: false };
    let mut quantum = Quantum::new();
    let mut ended = Some(ended);
    let mut end = |how| ended.take().into_iter().for_each(|ended| ended(how));
    let regularly = |is_shut_down| if is_shut_down { Ended::ByPeer } else { Ended::ByUs };
    loop {
        let messages = queue.len().max(1);
        hand.up_all(queue).await;
        quantum.spend(messages).await;
        let received = match after.take() {
            Some(received) => received,
            None => association.next().await,
        };
        match received {
            Ok(Some(Received::Message(message))) => {
                queue.push_back(to_program(member, message));
                if hand.bundles() {
                    *after = take_along(member, association, queue);
                }
            }
            Ok(Some(Received::Event(event))) => {
                *is_shut_down |= event == Event::PeerShutdown;
                queue.extend(notifications::of(socket, member, &event));
                if event == Event::PeerShutdown {
                    refuse_messages(socket, member);
                }
                if event == Event::PeerShutdown && socket.style == Style::OneToOne {
                    hand.up_all(queue).await;
                    end_early(socket, member);
                }
                if let Event::Down(loss) = event {
                    // What it owes is there already. The program reads all of that before it finds the end.
                    while let Ok(Some(Received::Event(event))) = association.try_next() {
                        queue.extend(notifications::of(socket, member, &event));
                        quantum.spend(1).await;
                        while queue.len() > 1
                            && let Some(upward) = queue.front()
                        {
                            hand.up(upward).await;
                            queue.pop_front();
                        }
                    }
                    end(loss.map_or(regularly(*is_shut_down), |loss| Ended::Lost(loss.kind)));
                }
            }
            Ok(None) => return end(regularly(*is_shut_down)),
            Err(RecvError::Lost(loss)) => return end(Ended::Lost(loss.kind)),
            Err(_) => {}
        }
    }
}

/// Refuses what programs send to an association that its peer has shut down (RFC 9260 §9.2).
fn refuse_messages(socket: &Socket, member: &SocketAssociation) {
    match &*member.send_queue() {
        Some(send_queue) => send_queue.refuse(&socket.channel.page),
        None => socket.channel.page.set_peer_shut(PeerShut::Writing),
    }
}

/// The peer sends no more, and what it has sent is in the carrier: the program reads the end, though the association may live on until
/// the peer has all. A program that wants to hear of what becomes of it finds the end when it reads, but does not poll readable for
/// it: nothing can follow what polls as the end.
fn end_early(socket: &Socket, member: &SocketAssociation) {
    socket.channel.page.set_peer_shut(PeerShut::Both);
    let may_hear_more = [
        NotificationType::AssociationChange,
        NotificationType::SendFailed,
        NotificationType::SendFailedEvent,
        NotificationType::SenderDry,
    ];
    match may_hear_more.into_iter().any(|kind| member.wants(kind)) {
        true => socket.channel.endpoint.end_untold(),
        false => socket.channel.endpoint.end(),
    }
}

/// Hands messages and notifications to a program.
struct Hand<'a> {
    socket: &'a Arc<Socket>,
    /// Whose they are.
    member: &'a Arc<SocketAssociation>,
    /// A message was begun: no other comes between its parts, unless the program allows it.
    begun: Option<MutexGuard<'a, ()>>,
    /// The program reads no more. What comes is thrown away: the peer must not be stopped by a full window.
    unread: bool,
}

impl Hand<'_> {
    /// Whether messages may share a record: those that keep room in the window while they lie there do not.
    fn bundles(&self) -> bool {
        !self.member.bounds_unread()
    }

    /// Hands up all that is held, short messages together.
    async fn up_all(&mut self, queue: &mut VecDeque<Upward>) {
        while let Some(first) = queue.front() {
            match self.fitting(queue) {
                0 | 1 => {
                    self.up(first).await;
                    queue.pop_front();
                }
                several => {
                    self.up_together(queue.iter().take(several)).await;
                    queue.drain(..several);
                }
            }
        }
    }

    /// Returns how many of the next messages fit into one bundle.
    fn fitting(&self, queue: &VecDeque<Upward>) -> usize {
        let may_bundle = !self.unread && self.begun.is_none() && self.bundles();
        if may_bundle { fitting_in_bundle(queue) } else { 0 }
    }

    async fn up_together(&mut self, messages: impl Iterator<Item = &Upward>) {
        let (mut bundle, mut count) = (Vec::with_capacity(BUNDLE_BYTES_MAX), 0);
        for message in messages {
            bundle.extend_from_slice(&message.header().encode());
            message.blocks().iter().for_each(|block| bundle.extend_from_slice(block));
            count += 1;
        }
        let _one_at_a_time = self.socket.channel.delivery.lock().await;
        self.unread = self.socket.channel.put_bundle(&bundle, count).await.is_err();
    }

    async fn up(&mut self, upward: &Upward) {
        let mut is_told_when_read = false;
        if !self.unread {
            if self.begun.is_none() {
                self.begun = Some(self.socket.channel.delivery.lock().await);
            }
            let put = self.socket.channel.put(upward.header(), upward.blocks()).await;
            self.unread = put.is_err();
            is_told_when_read = put == Ok(Put::Record);
            if upward.header().flags.contains(Flags::END) || self.socket.lock().options.interleaves {
                self.begun = None;
            }
        }
        if let Upward::Message(_, message) = upward {
            self.keep_room(message, is_told_when_read);
        }
    }

    fn held_credit(&self, message: &Message) -> HeldCredit {
        let association = Arc::downgrade(self.member);
        HeldCredit::new(association, internals::window_bytes(message))
    }

    /// Keeps the room that a message has in the window until it was read, where the daemon is told of that.
    fn keep_room(&self, message: &Message, is_told_when_read: bool) {
        let room = self.member.keeps_room(message).then(|| self.held_credit(message));
        match is_told_when_read {
            true => self.socket.channel.keep_room(room),
            false => room.into_iter().for_each(HeldCredit::release),
        }
    }
}

/// All has been sent on these associations, and the program wants to know.
pub(crate) async fn tell_dry(socket: Arc<Socket>, associations: Vec<Arc<SocketAssociation>>) {
    for member in associations {
        tell(&socket, notifications::of(&socket, &member, &Event::SenderDry)).await;
    }
}

/// Hands notifications to a program, between what its associations hand up.
pub(crate) async fn tell(socket: &Arc<Socket>, notifications: impl IntoIterator<Item = Upward>) {
    for notification in notifications {
        let _one_at_a_time = socket.channel.delivery.lock().await;
        // A program that is gone needs no news.
        let _ = socket.channel.put(notification.header(), notification.blocks()).await;
    }
}
