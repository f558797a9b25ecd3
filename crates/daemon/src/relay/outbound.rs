//! From a program into an association.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use carrier::record::{Flags, Header};
use rustix::io::Errno;
use swiftwater::tokio::Association;
use swiftwater::{Event, Lifetime, PathId, SendError, SendInfo, internals};

use super::{BROKEN, Departure, Wait, notifications};
use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::endpoint::Intake;
use crate::channel::putter::Putter;
use crate::state::association::{SocketAssociation, Upward};
use crate::state::send_queue::{Front, Messages, SendQueue};
use crate::state::socket::Socket;
use crate::system::journal::log;
use crate::system::quantum::{self, Quantum};

/// From the channel of a one-to-one socket into its association.
pub(crate) struct Outbound<'a> {
    socket: &'a Rc<Socket>,
    assoc: &'a SocketAssociation,
    association: &'a Association,
    /// Messages that go before those in the channel.
    unsent: Messages,
    reports: Reports,
    /// The association takes no more: what is sent into it is lost, as in the kernel.
    is_gone: bool,
    quantum: Quantum,
}

impl<'a> Outbound<'a> {
    pub(crate) fn new(
        socket: &'a Rc<Socket>,
        assoc: &'a SocketAssociation,
        association: &'a Association,
        unsent: Messages,
    ) -> Outbound<'a> {
        let (reports, quantum) = (Reports::new(socket), Quantum::new());
        Outbound { socket, assoc, association, unsent, reports, is_gone: false, quantum }
    }

    /// Moves messages. Returns what it waits for, or how the program has left.
    pub(crate) fn step(&mut self) -> Result<Wait, Departure> {
        // A step that moves nothing counts, too: what it waits for may be there at once, again and again.
        let mut weight = 1;
        loop {
            if let Err(blocked) = self.reports.put() {
                return Ok(Wait::Channel(blocked));
            }
            if self.is_gone && self.socket.channel.endpoint.is_hung_up() {
                return Err(Departure::Closed);
            }
            if self.quantum.is_spent_by(weight) {
                return Ok(Wait::Turn);
            }
            let (header, mut content) = match self.unsent.pop_front() {
                Some(first) => first,
                None => match self.take()? {
                    Taken::Message(header, content) => (header, content),
                    Taken::Nothing => {
                        weight = 1;
                        continue;
                    }
                    Taken::Waits(wait) => return Ok(wait),
                },
            };
            let header = completed(self.assoc, header);
            if header.flags.contains(Flags::ABORT) {
                return Err(Departure::Abort(content));
            }
            weight = quantum::weight(content.len());
            match pass_on(self.association, &header, &mut content) {
                Ok(()) => {}
                Err(SendError::WouldBlock) => {
                    self.unsent.push_front((header, content));
                    return Ok(Wait::Association);
                }
                Err(refused) => {
                    self.is_gone |= takes_no_more(&refused);
                    if is_shutdown_left(&refused, &header, &content) {
                        self.unsent.push_front((header, Bytes::new()));
                    }
                    self.reports.add(unsent(self.socket, self.assoc, header, content));
                }
            }
        }
    }

    /// Waits until what the channel needs for a report is there.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        self.reports.putter.unblocked(blocked).await;
    }

    /// Takes the next message of the program. An error: how the program has left.
    fn take(&self) -> Result<Taken, Departure> {
        let (channel, endpoint) = (&self.socket.channel, &self.socket.channel.endpoint);
        match endpoint.try_take() {
            Ok(Intake::Message(header, content)) => Ok(Taken::Message(header, content)),
            Ok(Intake::End) if endpoint.is_hung_up() => Err(Departure::Closed),
            Ok(Intake::End) => Err(Departure::HalfClosed),
            Ok(Intake::Unread) if channel.has_unread_data() => Err(Departure::Unread),
            Ok(Intake::Unread | Intake::Filler | Intake::Empty) => Ok(Taken::Nothing),
            Ok(Intake::Malformed) => {
                log(format_args!("a program writes something else than records to its socket"));
                Err(Departure::Abort(Bytes::from_static(BROKEN)))
            }
            Err(error @ (Errno::AGAIN | Errno::NOBUFS)) => {
                // Nothing more is there to share a packet with the messages that the association has taken.
                self.association.flush();
                Ok(Taken::Waits(if error == Errno::AGAIN { Wait::Message } else { Wait::Memory }))
            }
            Err(_) => Err(Departure::Closed),
        }
    }
}

/// What an attempt to take a message has given.
enum Taken {
    Message(Header, Bytes),
    /// A record that is no message.
    Nothing,
    Waits(Wait),
}

/// From the send queue of an association of a one-to-many socket into the association.
pub(crate) struct QueueOutbound<'a> {
    socket: &'a Rc<Socket>,
    assoc: &'a SocketAssociation,
    association: &'a Association,
    queue: &'a SendQueue,
    reports: Reports,
    /// The content of the message at the front was sent; its SHUTDOWN was not.
    is_sent: bool,
    /// The message at the front was refused, and leaves the queue once that is reported.
    is_refused: bool,
    quantum: Quantum,
}

impl<'a> QueueOutbound<'a> {
    pub(crate) fn new(
        socket: &'a Rc<Socket>,
        assoc: &'a SocketAssociation,
        association: &'a Association,
        queue: &'a SendQueue,
    ) -> QueueOutbound<'a> {
        let (reports, quantum) = (Reports::new(socket), Quantum::new());
        QueueOutbound {
            socket,
            assoc,
            association,
            queue,
            reports,
            is_sent: false,
            is_refused: false,
            quantum,
        }
    }

    /// Moves messages. Returns what it waits for; `None` if nothing more will come.
    pub(crate) fn step(&mut self) -> Option<Wait> {
        let page = &self.socket.channel.page;
        let mut weight = 1;
        loop {
            if let Err(blocked) = self.reports.put() {
                return Some(Wait::Channel(blocked));
            }
            if std::mem::take(&mut self.is_refused) {
                self.queue.pop(page);
            }
            if self.quantum.is_spent_by(weight) {
                return Some(Wait::Turn);
            }
            let (header, mut content) = match self.queue.front() {
                Front::Message(header, content) => (header, content),
                Front::Nothing => {
                    self.association.flush();
                    return Some(Wait::Message);
                }
                Front::Closed => return None,
            };
            if std::mem::take(&mut self.is_sent) {
                content = Bytes::new();
            }
            weight = quantum::weight(content.len());
            let header = completed(self.assoc, header);
            match pass_on(self.association, &header, &mut content) {
                Ok(()) => self.queue.pop(page),
                Err(SendError::WouldBlock) => {
                    self.is_sent = content.is_empty();
                    return Some(Wait::Association);
                }
                // An association that takes no more is asked on: its program hears of each message, and never waits for room.
                Err(refused) => {
                    if refused == SendError::PeerShutdown {
                        self.queue.refuse(page);
                    }
                    self.is_sent = is_shutdown_left(&refused, &header, &content);
                    self.is_refused = !self.is_sent;
                    self.reports.add(unsent(self.socket, self.assoc, header, content));
                }
            }
        }
    }

    /// Waits until what the channel needs for a report is there.
    pub(crate) async fn unblocked(&mut self, blocked: Blocked) {
        self.reports.putter.unblocked(blocked).await;
    }
}

/// Notifications of messages that an association did not take, on their way to the program.
struct Reports {
    queue: VecDeque<Upward>,
    putter: Putter,
}

impl Reports {
    fn new(socket: &Socket) -> Reports {
        Reports { queue: VecDeque::new(), putter: Putter::new(&socket.channel) }
    }

    fn add(&mut self, reports: impl IntoIterator<Item = Upward>) {
        self.queue.extend(reports);
    }

    fn put(&mut self) -> Result<(), Blocked> {
        while let Some(report) = self.queue.front() {
            if let Err(NotPut::Blocked(blocked)) = self.putter.try_put(report.header(), report.blocks()) {
                return Err(blocked);
            }
            // A program that is gone needs no news.
            self.putter.let_others();
            self.queue.pop_front();
        }
        Ok(())
    }
}

/// Returns the header, with the association's default parameters if the program gave the message none.
fn completed(assoc: &SocketAssociation, header: Header) -> Header {
    if !header.flags.contains(Flags::BY_DEFAULT) {
        return header;
    }
    let sending = assoc.options().sending;
    Header {
        flags: sending.flags().into_iter().fold(header.flags, Flags::with),
        stream: sending.stream,
        // Programs give the PPID in network byte order.
        ppid: u32::from_be(sending.ppid),
        context: sending.context,
        lifetime_ms: sending.lifetime_ms,
        ..header
    }
}

/// Hands a message to an association; what it has taken is no longer in `content`. `WouldBlock`: there is no room.
fn pass_on(association: &Association, header: &Header, content: &mut Bytes) -> Result<(), SendError> {
    if !content.is_empty() {
        let info = SendInfo { path: wanted_path(association, header), ..send_info(header) };
        internals::send_at_hand(association, content, &info)?;
        *content = Bytes::new();
    }
    match header.flags.contains(Flags::SHUTDOWN) {
        true => internals::shutdown_at_hand(association),
        false => Ok(()),
    }
}

/// Returns whether an association that refuses a message takes none at all any more.
fn takes_no_more(refused: &SendError) -> bool {
    matches!(refused, SendError::Closed | SendError::PeerShutdown)
}

/// Returns whether a message whose content was refused, for its stream or its length, still shuts the association down.
fn is_shutdown_left(refused: &SendError, header: &Header, content: &Bytes) -> bool {
    !takes_no_more(refused) && header.flags.contains(Flags::SHUTDOWN) && !content.is_empty()
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

/// Returns the notifications that report a message that an association did not take: it is gone, its peer has shut it down, or it
/// takes no such message.
pub(crate) fn unsent(socket: &Socket, assoc: &SocketAssociation, header: Header, data: Bytes) -> Vec<Upward> {
    // A message without content only shuts the association down.
    if data.is_empty() {
        return Vec::new();
    }
    let event = Event::SendFailed {
        info: send_info(&completed(assoc, header)),
        data,
        was_sent: false,
        beginning: true,
        ending: true,
        cause: 0,
    };
    notifications::of(socket, assoc, &event)
}
