//! An open stream, with the calls that all kinds of endpoints share.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use providers::SctpDriver;
use sctp::{Batch, RecvInfo, SendInfo};
use streams::{Chain, Control, Cx, Interest, Kind, Message as Block, ReadError, StreamId, WriteError};
use tpi::{Errno, Primitive};

use crate::error::{AcceptError, CloseReason, Loss, RecvError, SendError};
use crate::message::{Message, from_block, to_text, window_bytes};
use crate::perimeter::Entered;
use crate::shard::{Hold, Inner};
use crate::timed::Timed;

/// Maximum number of messages that one call sends or receives before it leaves the perimeter.
const MESSAGES_MAX: usize = 256;

/// The time that a call may sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Do not sleep, and do not poll the sockets either.
    NoLook,
    /// Do not sleep.
    None,
    /// Sleep until this time.
    Until(Instant),
    /// Sleep without limit.
    Forever,
}

impl Patience {
    pub(crate) fn within(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Patience::Forever, Patience::Until)
    }
}

/// The outcome of a read.
pub(crate) enum Found<T> {
    Data(T),
    Primitive(Primitive, Chain),
    /// The stream has ended; [`Socket::end`] returns how.
    End,
}

/// The end of a one-to-one stream, as far as the messages read so far show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    /// The peer has shut down and sends nothing more.
    PeerShutdown,
    /// Both sides have shut down.
    Closed,
    Lost(Loss),
}

/// Reason why a call returned without a result.
pub(crate) enum GivenUp {
    /// The call would have to wait, and must not.
    WouldBlock,
    /// The call has reached its time limit.
    TimedOut,
    /// The sockets have failed.
    Fault(String),
}

impl GivenUp {
    #[cold]
    pub(crate) fn internal() -> Self {
        GivenUp::Fault("there was an internal fault; please report it".into())
    }

    /// Returns the loss to report for an association after a wait without a time limit.
    #[cfg(feature = "tokio")]
    pub(crate) fn into_loss(self) -> Loss {
        match self {
            GivenUp::Fault(why) => Loss::fault(why),
            GivenUp::WouldBlock | GivenUp::TimedOut => Loss::fault("the call gave up waiting"),
        }
    }
}

impl From<GivenUp> for SendError {
    fn from(why: GivenUp) -> Self {
        match why {
            GivenUp::WouldBlock => SendError::WouldBlock,
            GivenUp::TimedOut => SendError::TimedOut,
            GivenUp::Fault(_) => SendError::Closed,
        }
    }
}

impl From<GivenUp> for RecvError {
    fn from(why: GivenUp) -> Self {
        match why {
            GivenUp::WouldBlock => RecvError::WouldBlock,
            GivenUp::TimedOut => RecvError::TimedOut,
            GivenUp::Fault(why) => RecvError::Lost(Loss::fault(why)),
        }
    }
}

impl From<RecvError> for AcceptError {
    /// Converts an error of a listener's stream, which either fails as a whole or not at all.
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::WouldBlock => AcceptError::WouldBlock,
            RecvError::TimedOut => AcceptError::TimedOut,
            RecvError::Lost(loss) => AcceptError::Failed(loss.text),
            RecvError::Restarted(text) => AcceptError::Failed(text),
        }
    }
}

/// The style of a stream (RFC 6458 §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// One association.
    OneToOne,
    /// Several associations, or a listener: the end of one association does not end the stream.
    OneToMany,
}

/// One open stream; closed when dropped.
///
/// The calls are attempts: each tries once, and returns `None` if it would have to wait. Threads repeat them with
/// [`Socket::until`], tasks with a future.
pub(crate) struct Socket {
    pub(crate) shard: Arc<Hold>,
    pub(crate) stream: StreamId,
    style: Style,
    /// Minimum size of the messages that stay charged to the receive window after they are read.
    holds_from_bytes: AtomicUsize,
    /// Accessed only inside the perimeter or at the end of a call, never for each message.
    end: Mutex<End>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {}", self.stream)
    }
}

impl Socket {
    pub(crate) fn open(shard: &Arc<Hold>, style: Style) -> Result<Self, Errno> {
        let mut inner = shard.enter();
        let opened = inner.guarded(None, |inner| inner.executive.open());
        let stream = opened.and_then(Result::ok).ok_or(Errno::ENOMEM)?;
        inner.open_streams += 1;
        let holds_from_bytes = AtomicUsize::new(usize::MAX);
        Ok(Socket { shard: Arc::clone(shard), stream, style, holds_from_bytes, end: Mutex::new(End::Open) })
    }

    /// Repeats an attempt until it has a result, and waits in between.
    #[inline]
    pub(crate) fn until<T>(
        &self,
        interest: Interest,
        patience: Patience,
        mut attempt: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<T, GivenUp> {
        let mut inner = self.shard.enter();
        let mut has_waited = false;
        let outcome = loop {
            match inner.guarded(Some(self.stream), &mut attempt) {
                Some(Some(result)) => break Ok(result),
                Some(None) => {}
                None => break Err(GivenUp::internal()),
            }
            let goes_on;
            (inner, goes_on) = self.wait(inner, interest, patience);
            has_waited |= matches!(patience, Patience::Until(_) | Patience::Forever);
            if let Err(why) = goes_on {
                break Err(why);
            }
        };
        if has_waited {
            self.shard.after_wait(&mut inner);
        }
        outcome
    }

    #[cold]
    fn wait<'a>(
        &'a self,
        mut inner: Entered<'a>,
        interest: Interest,
        patience: Patience,
    ) -> (Entered<'a>, Result<(), GivenUp>) {
        let (mut inner, go_on) = match patience {
            Patience::NoLook => return (inner, Err(GivenUp::WouldBlock)),
            Patience::Forever => self.shard.wait(inner, self.stream, interest, None),
            Patience::Until(at) => self.shard.wait(inner, self.stream, interest, Some(at)),
            Patience::None => {
                // Before giving up, try once more with the datagrams that have arrived.
                inner.flush(true);
                inner.take_arrivals();
                let ready = inner.is_ready(self.stream, interest);
                self.shard.background().arm();
                (inner, ready)
            }
        };
        let goes_on = match inner.take_fault() {
            Some(why) => Err(why),
            None if go_on => Ok(()),
            None if matches!(patience, Patience::Until(_)) => Err(GivenUp::TimedOut),
            None => Err(GivenUp::WouldBlock),
        };
        (inner, goes_on)
    }

    /// Sends one message: the hot path of every send.
    #[inline]
    pub(crate) fn write(
        &self,
        association: u32,
        info: &SendInfo,
        data: &[u8],
        patience: Patience,
    ) -> Result<(), SendError> {
        self.until(Interest::WRITABLE, patience, |inner| self.try_write(inner, association, info, data))?
    }

    #[inline]
    pub(crate) fn try_write(
        &self,
        inner: &mut Inner,
        association: u32,
        info: &SendInfo,
        data: &[u8],
    ) -> Option<Result<(), SendError>> {
        let written = inner.executive.write(self.stream, association, info, data);
        self.after_write(inner, written)
    }

    /// Sends the messages of a batch, and removes those that it sends.
    pub(crate) fn try_write_batch(
        &self,
        inner: &mut Inner,
        association: u32,
        batch: &mut Batch,
    ) -> Option<Result<(), SendError>> {
        if let Some(written) = inner.executive.write_batch(self.stream, association, batch) {
            return self.after_write(inner, written);
        }
        while let Some((info, message)) = batch.first() {
            let written = inner.executive.write(self.stream, association, &info, message);
            if let Err(error) = self.after_write(inner, written)? {
                return Some(Err(error));
            }
            batch.drop_first();
        }
        Some(Ok(()))
    }

    /// Sends one message without a copy of its bytes.
    pub(crate) fn write_bytes(
        &self,
        association: u32,
        info: &SendInfo,
        data: &Bytes,
        patience: Patience,
    ) -> Result<(), SendError> {
        self.until(Interest::WRITABLE, patience, |inner| {
            self.try_write_bytes(inner, association, info, data)
        })?
    }

    pub(crate) fn try_write_bytes(
        &self,
        inner: &mut Inner,
        association: u32,
        info: &SendInfo,
        data: &Bytes,
    ) -> Option<Result<(), SendError>> {
        let written = inner.executive.write_bytes(self.stream, association, info, data.clone());
        self.after_write(inner, written)
    }

    #[inline]
    fn after_write(
        &self,
        inner: &mut Inner,
        written: Result<(), WriteError>,
    ) -> Option<Result<(), SendError>> {
        match written {
            Ok(()) => {
                self.shard.after_send(inner);
                Some(Ok(()))
            }
            Err(WriteError::WouldBlock) => None,
            Err(error) => Some(Err(send_error(&error))),
        }
    }

    /// Copies one message into a buffer: the hot path of every receive.
    #[inline]
    pub(crate) fn read(
        &self,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Found<(usize, RecvInfo)>, RecvError> {
        let mut inner = self.shard.enter();
        let read = inner.guarded(Some(self.stream), |inner| inner.executive.read(self.stream, buffer));
        if let Some(Ok(Some(found))) = read {
            self.shard.after_read(&mut inner);
            return Ok(Found::Data(found));
        }
        drop(inner);
        self.until(Interest::READABLE, patience, |inner| self.try_read(inner, buffer))?
    }

    pub(crate) fn try_read(
        &self,
        inner: &mut Inner,
        buffer: &mut [u8],
    ) -> Option<Result<Found<(usize, RecvInfo)>, RecvError>> {
        loop {
            match inner.executive.read(self.stream, buffer) {
                Ok(Some(found)) => {
                    self.shard.after_read(inner);
                    return Some(Ok(Found::Data(found)));
                }
                Ok(None) => return self.at_the_end(|end| *end != End::Open).then_some(Ok(Found::End)),
                // The first message is not user data.
                Err(ReadError::NotData) => {
                    if let Ok(Some(message)) = inner.executive.getmsg(self.stream)
                        && let Some(found) = self.primitive(message)
                    {
                        return Some(Ok(found));
                    }
                }
                Err(error) => return Some(self.read_failed(&error)),
            }
        }
    }

    /// Takes one message.
    pub(crate) fn getmsg(&self, patience: Patience) -> Result<Found<Block>, RecvError> {
        self.until(Interest::READABLE, patience, |inner| self.try_getmsg(inner))?
    }

    pub(crate) fn try_getmsg(&self, inner: &mut Inner) -> Option<Result<Found<Block>, RecvError>> {
        self.try_take(inner, Timed::getmsg, |end| *end != End::Open)
    }

    /// Takes one message, or those that came together in a packet.
    pub(crate) fn try_getrun(&self, inner: &mut Inner) -> Option<Result<Found<Block>, RecvError>> {
        self.try_take(inner, Timed::getrun, |end| *end != End::Open)
    }

    /// Takes the available messages, up to `room`. Returns the result behind them if it is not a message;
    /// `Some(Ok(None))` if there was none.
    pub(crate) fn try_getmsg_many(
        &self,
        inner: &mut Inner,
        room: usize,
        messages: &mut Vec<Message>,
    ) -> Option<Result<Option<Found<Block>>, RecvError>> {
        let before = messages.len();
        for _ in 0..room.min(MESSAGES_MAX) {
            match self.try_getmsg(inner) {
                Some(Ok(Found::Data(message))) => messages.push(from_block(message)),
                Some(other) => return Some(other.map(Some)),
                None if messages.len() == before => return None,
                None => break,
            }
        }
        Some(Ok(None))
    }

    /// Takes one message or primitive, including those after the peer's shutdown.
    pub(crate) fn try_next(&self, inner: &mut Inner) -> Option<Result<Found<Block>, RecvError>> {
        self.try_take(inner, Timed::getmsg, |end| matches!(end, End::Closed | End::Lost(_)))
    }

    fn try_take(
        &self,
        inner: &mut Inner,
        take: impl Fn(&mut Timed, StreamId) -> Result<Option<Block>, ReadError>,
        is_last: impl Fn(&End) -> bool,
    ) -> Option<Result<Found<Block>, RecvError>> {
        loop {
            match take(&mut inner.executive, self.stream) {
                Ok(Some(message)) if is_data(&message) => {
                    if message.data.len() >= self.holds_from_bytes.load(Relaxed) {
                        self.hold_window(inner, window_bytes(&message.data));
                    }
                    self.shard.after_read(inner);
                    return Some(Ok(Found::Data(message)));
                }
                Ok(Some(message)) => {
                    if let Some(found) = self.primitive(message) {
                        return Some(Ok(found));
                    }
                }
                Ok(None) => return self.at_the_end(is_last).then_some(Ok(Found::End)),
                Err(error) => return Some(self.read_failed(&error)),
            }
        }
    }

    /// Takes one message of any kind; `Ok(None)` at the end of the stream.
    pub(crate) fn try_getmsg_as_it_is(&self, inner: &mut Inner) -> Option<Result<Option<Block>, ReadError>> {
        match inner.executive.getmsg(self.stream) {
            Ok(Some(message)) => {
                if !is_data(&message) {
                    drop(self.primitive::<()>(message.clone()));
                }
                self.shard.after_read(inner);
                Some(Ok(Some(message)))
            }
            Ok(None) => self.at_the_end(|end| *end != End::Open).then_some(Ok(None)),
            Err(ReadError::HungUp) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        }
    }

    pub(crate) fn hold_window_from(&self, bytes: usize) {
        self.holds_from_bytes.store(bytes, Relaxed);
    }

    fn hold_window(&self, inner: &mut Inner, bytes: usize) {
        let stream = self.stream;
        inner.executive.provider(|driver| driver.hold_window(stream, 0, bytes));
    }

    /// Waits for the hang-up of a one-to-one stream, and discards messages that still arrive.
    pub(crate) fn try_drain(&self, inner: &mut Inner) -> Option<Result<(), RecvError>> {
        loop {
            match inner.executive.getmsg(self.stream) {
                Ok(Some(message)) if is_data(&message) => self.shard.after_read(inner),
                Ok(Some(message)) => drop(self.primitive::<()>(message)),
                Ok(None) => return None,
                Err(error) => {
                    return Some(self.read_failed::<()>(&error).and_then(|_| match self.end() {
                        End::Lost(why) => Err(RecvError::Lost(why)),
                        End::Open | End::PeerShutdown | End::Closed => Ok(()),
                    }));
                }
            }
        }
    }

    #[cold]
    fn read_failed<T>(&self, error: &ReadError) -> Result<Found<T>, RecvError> {
        match error {
            ReadError::HungUp => {
                let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
                if *end == End::Open {
                    // A module discarded the message with the reason.
                    *end = End::Lost(Loss::fault("the stream was hung up"));
                }
                Ok(Found::End)
            }
            error => Err(RecvError::Lost(Loss::fault(error.to_string()))),
        }
    }

    /// Handles a message that is not user data. Records the end of a one-to-one stream here, inside the perimeter, so
    /// that every reader sees it.
    #[cold]
    fn primitive<T>(&self, message: Block) -> Option<Found<T>> {
        let (Kind::Proto(control) | Kind::PcProto(control)) = message.kind else { return None };
        let Control::Tpi(primitive) = control else { return None };
        if self.style == Style::OneToOne {
            let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            match &primitive {
                Primitive::OrdrelInd { .. } => *end = End::PeerShutdown,
                Primitive::DisconInd { reason, cause, .. } => {
                    *end = Loss::of(*reason, *cause, &message.data).map_or(End::Closed, End::Lost);
                }
                _ => {}
            }
        }
        Some(Found::Primitive(primitive, message.data))
    }

    /// Returns why the association of a one-to-one stream has ended, whether or not the end was read; `None` if the
    /// association has not ended.
    pub(crate) fn close_reason(&self, inner: &mut Inner) -> Option<CloseReason> {
        let stream = self.stream;
        let found = inner.executive.provider(|driver| {
            let end = driver.disconnected(stream)?;
            Some(CloseReason::of(end.reason, end.cause, &end.data))
        });
        match (found, self.end()) {
            (Some(Some(reason)), _) => Some(reason),
            (_, End::Closed) => Some(CloseReason::Shutdown),
            (_, End::Lost(loss)) => Some(CloseReason::Lost(loss)),
            _ if inner.executive.poll(stream).hangup => {
                Some(CloseReason::Lost(Loss::fault("the stream was hung up")))
            }
            _ => None,
        }
    }

    /// Returns the recorded end of the stream.
    pub(crate) fn end(&self) -> End {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[cold]
    fn at_the_end(&self, is_last: impl Fn(&End) -> bool) -> bool {
        self.style == Style::OneToOne && is_last(&self.end.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a request to the provider, in order after earlier messages.
    pub(crate) fn request(
        &self,
        primitive: Primitive,
        data: Chain,
        patience: Patience,
    ) -> Result<(), WriteError> {
        let mut message = Some(Block::with_data(Kind::Proto(primitive.into()), data));
        match self.until(Interest::WRITABLE, patience, |inner| self.try_request(inner, &mut message)) {
            Ok(asked) => asked,
            Err(GivenUp::WouldBlock) => Err(WriteError::WouldBlock),
            Err(_) => Err(WriteError::Closed),
        }
    }

    pub(crate) fn try_request(
        &self,
        inner: &mut Inner,
        message: &mut Option<Block>,
    ) -> Option<Result<(), WriteError>> {
        match inner.executive.at(Instant::now()).putmsg(self.stream, message.take()?) {
            Ok(()) => {
                self.after_request(inner);
                Some(Ok(()))
            }
            Err(refused) if refused.error == WriteError::WouldBlock => {
                *message = Some(refused.message);
                None
            }
            Err(refused) => Some(Err(refused.error)),
        }
    }

    /// Calls the provider at once, and sends the resulting packets. Returns `None` if a fault has closed the stack.
    pub(crate) fn command<R>(&self, f: impl FnOnce(&mut SctpDriver, &mut Cx<'_>) -> R) -> Option<R> {
        let mut inner = self.shard.enter();
        let command = |inner: &mut Inner| inner.executive.command(Instant::now(), f);
        let outcome = inner.guarded(Some(self.stream), command).flatten();
        self.after_request(&mut inner);
        outcome
    }

    fn after_request(&self, inner: &mut Inner) {
        self.shard.after_command(inner, Some(self.stream));
    }

    /// Sends a request that the provider answers at once, and returns the answer.
    pub(crate) fn ask(&self, primitive: Primitive) -> Result<Primitive, WriteError> {
        let mut inner = self.shard.enter();
        let message = Block::proto(primitive);
        let answer = inner.guarded(Some(self.stream), |inner| {
            let executive = inner.executive.at(Instant::now());
            executive.putmsg(self.stream, message).map_err(|refused| refused.error)?;
            Ok(executive.getpmsg(self.stream, streams::Select::HighPriority))
        });
        self.after_request(&mut inner);
        match answer.unwrap_or(Err(WriteError::Closed))? {
            Ok(Some(Block { kind: Kind::PcProto(Control::Tpi(primitive)), .. })) => Ok(primitive),
            _ => Err(WriteError::Closed),
        }
    }
}

impl Inner {
    /// Returns the failure of the sockets, if one has occurred.
    pub(crate) fn take_fault(&mut self) -> Option<GivenUp> {
        let why = self.fault.take()?;
        Some(GivenUp::Fault(format!("the UDP socket has failed: {why}")))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut inner = self.shard.enter();
        inner.guarded(Some(self.stream), |inner| inner.executive.at(Instant::now()).close(self.stream));
        inner.open_streams -= 1;
        self.after_request(&mut inner);
    }
}

#[inline]
fn is_data(message: &Block) -> bool {
    matches!(
        message.kind,
        Kind::Proto(Control::Tpi(Primitive::OptdataInd { .. })) | Kind::Data | Kind::Run(_)
    )
}

/// Returns an error if a primitive between messages reports a restart of the peer: it is a second confirmation.
#[cold]
pub(crate) fn unless_restarted(primitive: &Primitive, text: &Chain) -> Result<(), RecvError> {
    match primitive {
        Primitive::ConnCon { .. } if !text.is_empty() => Err(RecvError::Restarted(to_text(text))),
        _ => Ok(()),
    }
}

fn send_error(error: &WriteError) -> SendError {
    match error {
        WriteError::WouldBlock => SendError::WouldBlock,
        WriteError::Failed(Errno::EINVAL) => SendError::RecordOpen,
        WriteError::Failed(Errno::ESHUTDOWN) => SendError::PeerShutdown,
        _ => SendError::Closed,
    }
}
