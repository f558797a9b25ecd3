//! Interfaces for this project's daemon only: the feature `internals`. They may change or disappear in any release.
//!
//! The daemon relays received messages to programs, sees when they read, and polls more than these sockets. A crate
//! below both that offered this would have to export the perimeter, the sockets and the streams of this crate. So these
//! interfaces are here: nothing outside this module calls them, and without the feature they do not exist.

use std::any::Any;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
pub use sctp::config::{OWNER_BYTES, PATH_BYTES, PEER_ADDRESSES_MAX};
pub use sctp::{
    AssociationView, MadeData, Notify, POOL_RESERVED_PART, PathView, ReceiveBudget, ReleaseWaiters,
    SEND_RESERVED_PART, SendBudget, TimeoutPacer,
};
use sctp::{FlushWhen, RecvInfo, Stage};
pub use streams::charged;
use streams::{Interest, Kind, Message as Block, RunMessages, Which};

pub use crate::busy_poll::BusyPoll;
use crate::shard::Inner;
use crate::socket::{Found, Socket, Wait};
use crate::staged::{StagedExecutive, Written};
use crate::tokio::Association;
use crate::{
    AssociationId, AssociationOptions, AssociationState, BindError, ListenerOptions, Message, Received,
    RecvError, SendError, SendInfo, Stack, Statistics,
};

/// Receives the next message or event that was already taken from the sockets: makes no system call, and does not flush
/// sent messages.
///
/// # Errors
///
/// Fails as [`Association::try_recv_any`] does.
pub fn recv_no_poll(association: &Association) -> Result<Option<Received>, RecvError> {
    association.shared.recv_any_with(Wait::NoPoll)
}

/// A message or an event, or several messages that came together in a packet.
#[derive(Debug)]
pub enum Taken {
    /// One message, or an event.
    One(Received),
    /// Whole messages.
    Run(MessageRun),
}

/// Receives as [`recv_no_poll`] does. Messages that came together in a packet are received together.
///
/// # Errors
///
/// Fails as [`recv_no_poll`] does.
pub fn recv_run_no_poll(association: &Association) -> Result<Option<Taken>, RecvError> {
    let published = &association.shared.socket.published;
    if !published.has_events() || !published.is_up_delivered() {
        return Ok(recv_no_poll(association)?.map(Taken::One));
    }
    let socket = &association.shared.socket;
    let take = |inner: &mut Inner| socket.try_take(inner, StagedExecutive::getrun, |_| false);
    loop {
        match socket.until(Interest::READABLE, Wait::NoPoll, take)?? {
            Found::Data(Block { kind: Kind::Run(run), data, .. }) => {
                let block = data.blocks().first().cloned().unwrap_or_default();
                return Ok(Some(Taken::Run(MessageRun(RunMessages::new(&run, block)))));
            }
            found => {
                if let Some(received) = association.shared.received(found)? {
                    return Ok(received.map(Taken::One));
                }
            }
        }
    }
}

/// Messages that came together in a packet, and were not taken out of it.
#[derive(Clone, Debug)]
pub struct MessageRun(RunMessages);

impl MessageRun {
    /// Returns the number of messages.
    pub fn messages(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of bytes of all messages.
    pub fn data_bytes(&self) -> usize {
        self.0.data_bytes()
    }

    /// Returns the number of bytes that the messages keep in memory, with those that were removed.
    pub fn block_bytes(&self) -> usize {
        self.0.block_bytes()
    }

    /// Copies the messages out of the block in which they arrived.
    pub fn copy_out(&mut self) {
        self.0.copy_out();
    }

    /// Passes the first message to `take`, and removes it if that returns true. Returns whether it was removed.
    #[inline]
    pub fn take_first_if(&mut self, take: impl FnOnce(&RecvInfo, &[u8]) -> bool) -> bool {
        self.0.next_if(take)
    }

    /// Removes the first message and returns it. If it cannot be told apart from the others, all are removed.
    pub fn take_first(&mut self) -> Option<Message> {
        let mut info = RecvInfo::default();
        let data = self.0.next_bytes(&mut info)?.into();
        Some(Message { info, data })
    }
}

/// Sends one message without a copy of its bytes if the send buffer has room for it. Does not take in arrivals to make room, and
/// does not transmit, so it makes no system call: the caller flushes when it has no more messages, and calls [`flush_due`] after
/// [`SendError::WouldBlock`]; otherwise messages leave after 50 µs.
///
/// # Errors
///
/// Fails as [`Association::try_send`] does.
pub fn send_no_poll(association: &Association, message: &Bytes, info: &SendInfo) -> Result<(), SendError> {
    let socket = &association.shared.socket;
    socket.until(Interest::WRITABLE, Wait::NoPoll, |inner| {
        let written = inner.executive.write_bytes(socket.stream, Which::Only, info, message.clone());
        // The caller flushes.
        socket.after_write(inner, written.map(|_| Written::Waits))
    })?
}

/// Transmits messages if enough wait, or nothing is outstanding.
pub fn flush_due(association: &Association) {
    association.shared.socket.shard.enter().flush(false);
}

/// Maximum size of a message that [`ShortSender::send`] takes.
pub const SHORT_BYTES_MAX: usize = Stage::MESSAGE_BYTES_MAX;

/// Calls `f` with a sender of short messages, which enters the stack once for all of them. Returns `None`, and does not call
/// `f`, if the stream has modules, or earlier messages that wait. Those of 2 KB or more wait for others until they fill a packet,
/// or the caller flushes ([`FlushWhen::PacketFull`]).
pub fn send_short_no_poll<R>(
    association: &Association,
    f: impl FnOnce(&mut ShortSender<'_>) -> R,
) -> Option<R> {
    let socket = &association.shared.socket;
    let mut inner = socket.shard.enter();
    inner.guarded(Some(socket.stream), |inner| {
        let is_clear = inner.executive.is_clear_below(socket.stream);
        is_clear.then(|| f(&mut ShortSender { socket, inner, copied_bytes_max: None }))
    })?
}

/// Sends short messages one by one from inside the stack.
pub struct ShortSender<'a> {
    socket: &'a Socket,
    inner: &'a mut Inner,
    /// Maximum size of a message that the association copies, once it was asked.
    copied_bytes_max: Option<usize>,
}

impl ShortSender<'_> {
    /// Copies a message into the send buffer, which charges its user. Returns false if the association refuses it, has no room,
    /// or would keep it in a block of its own: [`send_no_poll`] says why, and has the association notify about room.
    #[must_use]
    pub fn send(&mut self, message: &[u8], info: &SendInfo) -> bool {
        if !Stage::takes(info, message.len()) || !self.copies(message.len()) {
            return false;
        }
        let written =
            self.socket.try_write_when(self.inner, Which::Only, info, message, FlushWhen::PacketFull);
        matches!(written, Some(Ok(())))
    }

    /// Returns whether the association copies a message of `bytes` to the others that wait.
    #[inline]
    fn copies(&mut self, bytes: usize) -> bool {
        let ShortSender { socket, inner, copied_bytes_max } = self;
        let ask = || inner.executive.copied_bytes_max(socket.stream, Which::Only).unwrap_or_default();
        bytes <= Stage::SHORT_BYTES_MAX || bytes <= *copied_bytes_max.get_or_insert_with(ask)
    }
}

/// Ends sending (RFC 9260 §9.2) if the stream takes the request now.
///
/// # Errors
///
/// The association is already closed, or the call fails with [`SendError::WouldBlock`].
pub fn shutdown_no_poll(association: &Association) -> Result<(), SendError> {
    association.shared.shutdown_with(Wait::NoPoll)
}

/// Sets whether the caller has messages left that it has accepted from others and that wait for room. An association
/// whose peer shuts it down meanwhile takes them, and ends only when the caller has no more.
pub fn set_has_upper_data(association: &Association, has_upper_data: bool) {
    let socket = &association.shared.socket;
    // An association that has ended takes no more data.
    let _ = socket
        .command(|driver, cx| driver.set_has_upper_data(cx, socket.stream, Which::Only, has_upper_data));
}

/// Listens as [`tokio::Stack::listen_with`](crate::tokio::Stack::listen_with) does, also at addresses that the host has lost.
///
/// # Errors
///
/// The port is in use in this stack, at one of these addresses.
pub fn listen_as_bound(
    stack: &crate::tokio::Stack,
    port: u16,
    options: &ListenerOptions,
) -> Result<crate::tokio::Listener, BindError> {
    stack.listen_as_bound(port, options)
}

/// Waits until the peer has shut the association down, or the association has ended. Does not wait for messages that can still be
/// received.
pub async fn peer_shutdown(association: &crate::tokio::Association) {
    association.peer_shutdown().await;
}

/// Keeps received messages of at least this many bytes charged to the receive window until [`release_window`].
pub fn hold_window_from(association: &Association, bytes: usize) {
    association.shared.socket.hold_window_from(bytes);
}

/// Copies the bytes of a message out of the blocks in which they arrived, which may be those of a sender on the same stack.
/// [`MessageRun::copy_out`] does so for a run.
pub fn copy_out(message: &mut Message) {
    message.data.copy_out();
}

/// Releases receive window that [`hold_window_from`] has kept: [`window_bytes`] for each message.
pub fn release_window(association: &Association, bytes: usize) {
    let socket = &association.shared.socket;
    // An association that has ended has no window.
    let _ = socket.command(|driver, _| driver.release_window(socket.stream, Which::Only, bytes));
}

/// Returns how much of the receive window a message occupies until it is received.
pub fn window_bytes(message: &Message) -> usize {
    crate::message::window_bytes(&message.data)
}

/// Reads what an association has negotiated, and its present condition; returns `None` once it has ended.
pub fn view<R>(association: &Association, read: impl FnOnce(AssociationView<'_>) -> R) -> Option<R> {
    association.shared.view(read)
}

/// Returns the identifier of an association, which lasts until it was shut down after its last handle was dropped; `None` once it
/// has ended.
pub fn identifier(association: &Association) -> Option<AssociationId> {
    let socket = &association.shared.socket;
    socket.shard.with_driver(|driver| driver.identifier(socket.stream, Which::Only)).flatten()
}

/// Returns the counters and the local addresses of an association, also after its last handle was dropped; `None` once it has
/// ended.
pub fn described(stack: &crate::tokio::Stack, id: AssociationId) -> Option<(Statistics, Vec<IpAddr>)> {
    stack.shared.with_driver(|driver| driver.described(id)).flatten()
}

/// Returns whether an association exists, also after its last handle was dropped.
pub fn has_association(stack: &crate::tokio::Stack, id: AssociationId) -> bool {
    stack.shared.with_driver(|driver| driver.has_association(id)).unwrap_or_default()
}

/// Limits an association whose program has gone, or is about to go: it is aborted when its peer has acknowledged nothing for five
/// times RTO.Max, which counts as at most 60 s. `until_end` is dropped when the association has ended.
pub fn orphan(association: &Association, until_end: Box<dyn Any + Send>) {
    let socket = &association.shared.socket;
    // A fault that has closed the stack has ended the association.
    let _ = socket.command(|driver, cx| driver.orphan(cx, socket.stream, Which::Only, until_end));
}

/// Aborts an association, also after its last handle was dropped.
pub fn abort(stack: &crate::tokio::Stack, id: AssociationId, reason: &str) {
    // A fault that has closed the stack has ended the association.
    let _ = stack.shared.command(|driver, cx| driver.abort_association(cx, id, reason.as_bytes()));
}

/// Aborts all current associations of a stack except those that are shutting down; [`await_end`] waits for these.
pub fn abort_open(stack: &Stack, reason: &str) {
    stack.abort_where(reason.as_bytes(), |state| {
        use AssociationState::{CookieEchoed, CookieWait, Established};
        matches!(state, CookieWait | CookieEchoed | Established)
    });
}

/// Waits up to `wait` until a stack has no association left. Returns whether none is left.
pub fn await_end(stack: &Stack, wait: Duration) -> bool {
    stack.await_end(wait)
}

/// Makes the associations with these options share a pacer of their timeouts.
pub fn set_timeout_pacer(options: &mut AssociationOptions, pacer: TimeoutPacer) {
    options.timeout_pacer = Some(pacer);
}

/// Waits until the stack has no association.
pub async fn no_association(stack: &crate::tokio::Stack) {
    crate::tokio::ending::no_association(&stack.shared).await;
}

/// Returns the number of batches of packets that the stack has sent or received so far. The daemon runs pending work until
/// this number no longer changes.
pub fn batches_moved(stack: &crate::tokio::Stack) -> u64 {
    stack.shared.with_driver(|driver| driver.batches_moved()).unwrap_or_default()
}
