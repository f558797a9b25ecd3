//! The outbound direction: from a program into an association.

pub(crate) mod channel_source;
pub(crate) mod queue_source;

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use channel_protocol::record::{Flags, Header};
use swiftwater::tokio::Association;
use swiftwater::{Event, Lifetime, PathId, SendError, SendInfo, internals};

use self::channel_source::ChannelSource;
use self::queue_source::QueueSource;
use super::notifications;
use super::other_end::declare_upper_data;
use super::untaken_messages::UntakenMessages;
use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::putter::Putter;
use crate::state::association::SocketAssociation;
use crate::state::inbound_queue::ToProgram;
use crate::state::send_queue::{Messages, SendQueue};
use crate::state::socket::Socket;
use crate::users::quantum::{self, TurnState};
use crate::users::round_share::Turn;

/// The event that the outbound direction waits for before its next step. `Own`: the event that only its source waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutboundWait<Own> {
    /// The next turn: more messages are available.
    Turn,
    /// A message of the program.
    Message,
    /// Room in the send buffer of the association.
    Association,
    /// The event that unblocks the channel for a report.
    Channel(Blocked),
    Own(Own),
}

/// A socket and one of its associations, between which messages move.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub(crate) socket: &'a Rc<Socket>,
    pub(crate) assoc: &'a SocketAssociation,
    pub(crate) association: &'a Association,
}

/// Holds the messages of a program for one association, in their order. The messages of a one-to-one socket are in its channel,
/// those of a one-to-many socket in the send queue of each association.
pub(crate) trait Source {
    /// The event that only this source waits for.
    type Own;
    /// The reason why no more messages will come.
    type End;

    /// Tells the program that it can send no more messages, because the peer has shut the association down. Called before each
    /// step from then on, as long as messages are left.
    fn on_sending_shut(&mut self);

    /// Returns whether all messages were taken that the program had sent when it was told first that it can send no more.
    fn has_taken_last(&mut self) -> bool;

    /// Records that the program was notified of all refused messages. Called before each call of [`Source::next`].
    fn on_reported(&mut self) -> Result<(), Self::End>;

    /// Takes the next message. A source that passes messages on itself passes those that count as `weight_max` records of a turn
    /// at most.
    fn next(&mut self, weight_max: usize) -> Result<Next<Self::Own>, Self::End>;

    /// Records that the association has taken the message.
    fn on_sent(&mut self);

    /// Keeps a message that the association has no room for. Its content is empty if only the SHUTDOWN is left of it.
    fn on_blocked(&mut self, header: Header, content: Bytes);

    /// Handles the refusal of a message. Returns the notifications for the program, or the event that must precede them: then the
    /// message is offered again.
    fn on_refused(
        &mut self,
        refused: &SendError,
        header: Header,
        content: Bytes,
    ) -> Result<Vec<ToProgram>, Self::Own>;
}

/// The result of taking a message from its source.
pub(crate) enum Next<Own> {
    Message(Header, Bytes),
    /// The source has handled records itself, which count as `weight` in a turn.
    Handled {
        weight: usize,
    },
    /// No message is available. `has_untaken`: messages of the program are on their way nevertheless.
    Waits {
        wait: OutboundWait<Own>,
        has_untaken: bool,
    },
}

/// Relays the messages of a program into one association.
pub(crate) struct Outbound<'a, S> {
    ends: Ends<'a>,
    source: S,
    reports: Reports,
    untaken: UntakenMessages<'a>,
    turn: Turn,
}

impl<'a> Outbound<'a, ChannelSource<'a>> {
    /// Relays from the channel of a one-to-one socket. The messages in `unsent` go first.
    pub(crate) fn from_channel(ends: Ends<'a>, unsent: Messages) -> Self {
        Outbound::new(ends, ChannelSource::new(ends, unsent))
    }
}

impl<'a> Outbound<'a, QueueSource<'a>> {
    /// Relays from the send queue of an association of a one-to-many socket.
    pub(crate) fn from_queue(ends: Ends<'a>, queue: &'a SendQueue) -> Self {
        Outbound::new(ends, QueueSource::new(ends, queue))
    }

    /// Records that the channel was drained, see [`QueueWait::Drained`](queue_source::QueueWait::Drained).
    pub(crate) fn on_drained(&mut self) {
        self.source.on_drained();
    }
}

impl<'a, S: Source> Outbound<'a, S> {
    fn new(ends: Ends<'a>, source: S) -> Self {
        let Ends { socket, assoc, .. } = ends;
        let (reports, untaken, turn) =
            (Reports::new(socket), UntakenMessages::of(socket, assoc), socket.turn());
        Outbound { ends, source, reports, untaken, turn }
    }

    /// Moves messages. Returns the event that it waits for, or why no more messages will come.
    pub(crate) fn step(&mut self) -> Result<OutboundWait<S::Own>, S::End> {
        self.turn.resume();
        let outcome = self.advance();
        self.turn.end();
        outcome
    }

    fn advance(&mut self) -> Result<OutboundWait<S::Own>, S::End> {
        // A step that moves nothing counts, too, because the event that it waits for may have occurred already, again and again.
        let mut weight = 1;
        if self.ends.assoc.has_last_upper_data() {
            self.source.on_sending_shut();
        }
        loop {
            if let Err(blocked) = self.reports.put() {
                return Ok(OutboundWait::Channel(blocked));
            }
            self.source.on_reported()?;
            if self.source.has_taken_last() {
                // A program that goes on sending does not delay the end any further.
                self.untaken.give_up();
            }
            if self.turn.spend(weight) == TurnState::Over {
                return Ok(OutboundWait::Turn);
            }
            let (header, mut content) = match self.source.next(self.turn.left())? {
                Next::Message(header, content) => (header, content),
                Next::Handled { weight: handled } => {
                    weight = handled;
                    continue;
                }
                Next::Waits { wait, has_untaken } => {
                    self.untaken.set(has_untaken);
                    return Ok(wait);
                }
            };
            weight = quantum::weight(content.len());
            match pass_on(self.ends, &header, &mut content) {
                Ok(()) => self.source.on_sent(),
                Err(SendError::WouldBlock) => {
                    self.source.on_blocked(header, content);
                    self.untaken.set(true);
                    internals::flush_due(self.ends.association);
                    return Ok(OutboundWait::Association);
                }
                Err(refused) => match self.source.on_refused(&refused, header, content) {
                    Ok(reports) => self.reports.add(reports),
                    Err(own) => return Ok(OutboundWait::Own(own)),
                },
            }
        }
    }

    /// Gives up the messages that the association has not taken, because the peer, which has shut it down, has waited for them
    /// long enough. The program is notified of them as of all that it sends too late.
    pub(crate) fn give_up(&self) {
        self.untaken.give_up();
    }

    /// Waits for the next turn.
    pub(crate) async fn next_turn(&mut self) {
        self.turn.next().await;
    }

    /// Waits until the channel is unblocked for a report.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        self.reports.putter.unblocked(blocked).await;
    }
}

/// Notifications of messages that an association did not take, on their way to the program.
struct Reports {
    queue: VecDeque<ToProgram>,
    putter: Putter,
}

impl Reports {
    fn new(socket: &Socket) -> Reports {
        Reports { queue: VecDeque::new(), putter: Putter::new(socket.channel()) }
    }

    fn add(&mut self, reports: impl IntoIterator<Item = ToProgram>) {
        self.queue.extend(reports);
    }

    fn put(&mut self) -> Result<(), Blocked> {
        while let Some(report) = self.queue.front() {
            if let Err(NotPut::Blocked(blocked)) =
                self.putter.try_put(report.header(), report.blocks(), || None)
            {
                return Err(blocked);
            }
            // A notification to a program that has closed the socket is lost.
            self.queue.pop_front();
        }
        Ok(())
    }
}

/// Hands a message to an association; leaves in `content` what it has not accepted. `WouldBlock`: there is no room.
pub(super) fn pass_on(
    Ends { socket, assoc, association }: Ends<'_>,
    header: &Header,
    content: &mut Bytes,
) -> Result<(), SendError> {
    if !content.is_empty() {
        let info = SendInfo { path: wanted_path(association, header), ..send_info(header) };
        internals::send_no_poll(association, content, &info)?;
        *content = Bytes::new();
    }
    match header.flags.contains(Flags::SHUTDOWN) {
        true => {
            declare_upper_data(socket, assoc);
            internals::shutdown_no_poll(association)
        }
        false => Ok(()),
    }
}

/// Returns whether an association that refuses a message with this error refuses all others, too.
fn refuses_all(refused: &SendError) -> bool {
    matches!(refused, SendError::Closed | SendError::PeerShutdown)
}

/// Returns whether the SHUTDOWN of a message whose content was refused, for its stream or its length, remains to be sent.
fn is_shutdown_pending(refused: &SendError, header: &Header, content: &Bytes) -> bool {
    !refuses_all(refused) && header.flags.contains(Flags::SHUTDOWN) && !content.is_empty()
}

/// Returns whether the program first hears of the end of the association, and of the messages that were sent before, and then of
/// a refused message with this content.
fn is_reported_later(assoc: &SocketAssociation, refused: &SendError, content: &Bytes) -> bool {
    *refused == SendError::Closed && !assoc.is_inbound_done() && is_reported(assoc, content)
}

/// Returns the notifications for a refused message.
fn reports(
    Ends { socket, assoc, .. }: Ends<'_>,
    refused: &SendError,
    header: Header,
    content: Bytes,
) -> Vec<ToProgram> {
    let cause = match refused {
        SendError::Closed => assoc.end_cause(),
        SendError::NoSuchStream { .. } => notifications::INVALID_STREAM,
        _ => 0,
    };
    unsent(socket, assoc, header, content, cause)
}

/// Returns the path to the peer's address that the program has named for the message, if it named one.
fn wanted_path(association: &Association, header: &Header) -> Option<PathId> {
    let named = header.address.filter(|_| header.flags.contains(Flags::TO_ADDRESS))?;
    association.path_to(named.ip())
}

fn send_info(header: &Header) -> SendInfo {
    SendInfo {
        stream: header.stream,
        ppid: header.ppid,
        unordered: header.flags.contains(Flags::UNORDERED),
        immediate: header.flags.contains(Flags::IMMEDIATE),
        more: false,
        context: header.context,
        lifetime: Lifetime::from_ms(header.lifetime_ms),
        path: None,
    }
}

/// Returns whether the program is notified of a message with this content that its association does not take.
fn is_reported(assoc: &SocketAssociation, content: &Bytes) -> bool {
    // A message without content only shuts the association down.
    !content.is_empty() && notifications::OF_UNSENT.iter().any(|kind| assoc.wants(*kind))
}

/// Returns the notifications for a message that an association has refused: the association has ended, its peer has shut it down,
/// or the message is invalid.
pub(crate) fn unsent(
    socket: &Socket,
    assoc: &SocketAssociation,
    header: Header,
    data: Bytes,
    cause: u16,
) -> Vec<ToProgram> {
    if !is_reported(assoc, &data) {
        return Vec::new();
    }
    let event = Event::SendFailed {
        info: send_info(&header),
        data,
        was_sent: false,
        beginning: true,
        ending: true,
        cause,
    };
    notifications::of(socket, assoc, &event)
}
