//! The outbound direction: from a program into an association.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use carrier::record::{Flags, Header};
use rustix::io::Errno;
use swiftwater::tokio::Association;
use swiftwater::{Event, Lifetime, PathId, SendError, SendInfo, internals};

use super::untaken_messages::UntakenMessages;
use super::{Departure, Wait, abort, notifications};
use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::incoming::Incoming;
use crate::channel::putter::Putter;
use crate::state::association::SocketAssociation;
use crate::state::inbound_queue::ToProgram;
use crate::state::send_queue::{Messages, QueueFront, SendQueue};
use crate::state::socket::Socket;
use crate::system::journal::{Cause, log};
use crate::users::quantum;
use crate::users::round_share::Turn;

/// Relays from the channel of a one-to-one socket into its association.
pub(crate) struct Outbound<'a> {
    socket: &'a Rc<Socket>,
    assoc: &'a SocketAssociation,
    association: &'a Association,
    /// Messages to send before those in the channel.
    unsent: Messages,
    reports: Reports,
    /// Whether the association accepts no more messages: further ones are lost, as in the kernel.
    is_gone: bool,
    untaken: UntakenMessages<'a>,
    turn: Turn,
}

impl<'a> Outbound<'a> {
    pub(crate) fn new(
        socket: &'a Rc<Socket>,
        assoc: &'a SocketAssociation,
        association: &'a Association,
        unsent: Messages,
    ) -> Outbound<'a> {
        let (reports, untaken, turn) =
            (Reports::new(socket), UntakenMessages::of(socket, assoc), socket.turn());
        Outbound { socket, assoc, association, unsent, reports, is_gone: false, untaken, turn }
    }

    /// Moves messages. Returns the event that it waits for, or how the program has left.
    pub(crate) fn step(&mut self) -> Result<Wait, Departure> {
        self.turn.resume();
        let outcome = self.advance();
        self.turn.end();
        outcome
    }

    fn advance(&mut self) -> Result<Wait, Departure> {
        // A step that moves nothing counts, too, because the event that it waits for may have occurred already, again and again.
        let mut weight = 1;
        if self.untaken.is_last() {
            self.socket.on_sending_shut(self.assoc);
        }
        loop {
            if let Err(blocked) = self.reports.put() {
                return Ok(Wait::Channel(blocked));
            }
            if self.is_gone && self.socket.channel().is_closed() {
                return Err(Departure::Closed);
            }
            if self.turn.is_spent_by(weight) {
                return Ok(Wait::Turn);
            }
            weight = self.pass_short();
            if weight > 0 {
                continue;
            }
            let (header, mut content) = match self.unsent.pop_front() {
                Some(first) => first,
                None => match self.take()? {
                    Next::Message(header, content) => (header, content),
                    Next::Nothing => {
                        weight = 1;
                        continue;
                    }
                    Next::Waits(wait) => {
                        let takes_later = self.socket.channel().takes_later();
                        self.untaken.set(wait == Wait::Memory || takes_later && self.assoc.has_upper_data());
                        return Ok(wait);
                    }
                },
            };
            let header = completed(self.assoc, header);
            if header.flags.contains(Flags::ABORT) {
                // The inbound direction tells the program of the end. The program still has the socket.
                abort(self.association, &String::from_utf8_lossy(&content));
                weight = 1;
                continue;
            }
            weight = quantum::weight(content.len());
            match pass_on(self.association, &header, &mut content) {
                Ok(()) => {}
                Err(SendError::WouldBlock) => {
                    self.unsent.push_front((header, content));
                    self.untaken.set(true);
                    internals::flush_due(self.association);
                    return Ok(Wait::Association);
                }
                Err(refused) => {
                    self.is_gone |= refuses_all(&refused);
                    if is_shutdown_pending(&refused, &header, &content) {
                        self.unsent.push_front((header, Bytes::new()));
                    }
                    self.reports.add(unsent(self.socket, self.assoc, header, content, 0));
                }
            }
        }
    }

    /// Moves short messages from the ring, which cost less together. Returns how many records of a turn they count as: 0 also if
    /// the next message is not short, the association does not take it, or others come first.
    fn pass_short(&self) -> usize {
        let (channel, assoc) = (self.socket.channel(), self.assoc);
        if !self.unsent.is_empty() || self.is_gone || !channel.has_short() {
            return 0;
        }
        let passed = internals::send_short_no_poll(self.association, |sender| {
            channel.pass_short(self.turn.left(), |header, content| {
                let header = completed(assoc, *header);
                is_plain(&header) && sender.send(content, &send_info(&header))
            })
        });
        passed.unwrap_or(0)
    }

    /// Waits for the next turn.
    pub(crate) async fn next_turn(&mut self) {
        self.turn.next().await;
    }

    /// Waits until the channel is unblocked for a report.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        self.reports.putter.unblocked(blocked).await;
    }

    /// Takes the next message of the program. The error is how the program has left.
    fn take(&self) -> Result<Next, Departure> {
        let channel = self.socket.channel();
        match channel.try_take() {
            Ok(Incoming::Message(header, content)) => Ok(Next::Message(header, content)),
            Ok(Incoming::End) if channel.is_closed() => Err(Departure::Closed),
            Ok(Incoming::End) => Err(Departure::HalfClosed),
            Ok(Incoming::Unread) if channel.has_unread_data() => Err(Departure::Unread),
            Ok(Incoming::Unread | Incoming::Filler | Incoming::Empty) => Ok(Next::Nothing),
            Ok(Incoming::Malformed) => {
                log(
                    Cause::User(self.socket.owner().user),
                    format_args!(
                        "a program has written malformed records to its socket; its association is aborted"
                    ),
                );
                Err(Departure::Broken)
            }
            Err(error @ (Errno::AGAIN | Errno::NOBUFS)) => {
                // No further message is available to share a packet with those that the association has taken.
                self.association.flush();
                Ok(Next::Waits(if error == Errno::AGAIN { Wait::Message } else { Wait::Memory }))
            }
            Err(_) => Err(Departure::Closed),
        }
    }
}

/// The result of taking a message from the channel.
enum Next {
    Message(Header, Bytes),
    /// A record that is no message.
    Nothing,
    Waits(Wait),
}

/// Relays from the send queue of an association of a one-to-many socket into the association.
pub(crate) struct QueueOutbound<'a> {
    socket: &'a Rc<Socket>,
    assoc: &'a SocketAssociation,
    association: &'a Association,
    queue: &'a SendQueue,
    reports: Reports,
    /// Whether the content of the first message was sent, but not its SHUTDOWN.
    is_sent: bool,
    /// Whether the first message was refused. It leaves the queue once that is reported.
    is_refused: bool,
    untaken: UntakenMessages<'a>,
    turn: Turn,
}

impl<'a> QueueOutbound<'a> {
    pub(crate) fn new(
        socket: &'a Rc<Socket>,
        assoc: &'a SocketAssociation,
        association: &'a Association,
        queue: &'a SendQueue,
    ) -> QueueOutbound<'a> {
        let (reports, untaken, turn) =
            (Reports::new(socket), UntakenMessages::of(socket, assoc), socket.turn());
        let (is_sent, is_refused) = (false, false);
        QueueOutbound { socket, assoc, association, queue, reports, is_sent, is_refused, untaken, turn }
    }

    /// Moves messages. Returns the event that it waits for; `None` if no more messages will come.
    pub(crate) fn step(&mut self) -> Option<Wait> {
        self.turn.resume();
        let wait = self.advance();
        self.turn.end();
        wait
    }

    fn advance(&mut self) -> Option<Wait> {
        let mut weight = 1;
        if self.untaken.is_last() {
            self.queue.refuse();
        }
        loop {
            if let Err(blocked) = self.reports.put() {
                return Some(Wait::Channel(blocked));
            }
            if std::mem::take(&mut self.is_refused) {
                self.queue.pop();
            }
            if self.turn.is_spent_by(weight) {
                return Some(Wait::Turn);
            }
            let (header, mut content) = match self.queue.front() {
                QueueFront::Message(header, content) => (header, content),
                QueueFront::Nothing => {
                    self.association.flush();
                    self.untaken.set(false);
                    return Some(Wait::Message);
                }
                QueueFront::Closed => return None,
            };
            if std::mem::take(&mut self.is_sent) {
                content = Bytes::new();
            }
            weight = quantum::weight(content.len());
            match pass_on(self.association, &header, &mut content) {
                Ok(()) => self.queue.pop(),
                Err(SendError::WouldBlock) => {
                    self.is_sent = content.is_empty();
                    self.untaken.set(true);
                    internals::flush_due(self.association);
                    return Some(Wait::Association);
                }
                // Messages to an association that accepts no more are offered, too: its program is notified of each, and
                // never waits for room.
                Err(refused) => {
                    if refused == SendError::PeerShutdown {
                        self.queue.refuse();
                    }
                    let cause = if refused == SendError::Closed { self.assoc.end_cause() } else { 0 };
                    let reports = unsent(self.socket, self.assoc, header, content.clone(), cause);
                    // The program first hears of the end, and of the messages that were sent before.
                    if refused == SendError::Closed && !reports.is_empty() && !self.assoc.is_inbound_done() {
                        return Some(Wait::End);
                    }
                    self.is_sent = is_shutdown_pending(&refused, &header, &content);
                    self.is_refused = !self.is_sent;
                    self.reports.add(reports);
                }
            }
        }
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

/// Returns the header with the association's default parameters, if the program gave the message none. Called as soon as
/// the message was taken, because later changes do not concern it.
pub(super) fn completed(assoc: &SocketAssociation, header: Header) -> Header {
    match header.flags.contains(Flags::BY_DEFAULT) {
        true => assoc.options().sending().complete(header),
        false => header,
    }
}

/// Returns whether a message only has to be sent.
fn is_plain(header: &Header) -> bool {
    let plain = [Flags::END, Flags::UNORDERED, Flags::IMMEDIATE, Flags::BY_DEFAULT];
    plain.into_iter().fold(header.flags, Flags::without) == Flags::default()
}

/// Hands a message to an association; leaves in `content` what it has not accepted. `WouldBlock`: there is no room.
pub(super) fn pass_on(
    association: &Association,
    header: &Header,
    content: &mut Bytes,
) -> Result<(), SendError> {
    if !content.is_empty() {
        let info = SendInfo { path: wanted_path(association, header), ..send_info(header) };
        internals::send_no_poll(association, content, &info)?;
        *content = Bytes::new();
    }
    match header.flags.contains(Flags::SHUTDOWN) {
        true => internals::shutdown_no_poll(association),
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

/// Returns the notifications for a message that an association has refused: the association has ended, its peer has shut it down,
/// or the message is invalid.
pub(crate) fn unsent(
    socket: &Socket,
    assoc: &SocketAssociation,
    header: Header,
    data: Bytes,
    cause: u16,
) -> Vec<ToProgram> {
    // A message without content only shuts the association down.
    if data.is_empty() {
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
