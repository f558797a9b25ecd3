//! Receiving: messages, primitives, and the end of a stream.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use sctp::RecvInfo;
use streams::{Chain, Control, Interest, Kind, Message as Block, ReadError, StreamId, Which};
use tpi::Primitive;

use super::{End, Socket, Style, Wait};
use crate::error::{Loss, RecvError};
use crate::message::{Message, from_block, to_text, window_bytes};
use crate::shard::{Entered, Inner};
use crate::staged::StagedExecutive;

/// Maximum number of messages that one call receives before it leaves the perimeter.
const MESSAGES_MAX: usize = 256;

/// The outcome of a read.
pub(crate) enum Found<T> {
    Data(T),
    Primitive(Primitive, Chain),
    /// The stream has ended; [`Socket::end`] returns how.
    End,
}

impl Socket {
    /// Copies one message into a buffer, and its description to `info`: the hot path of every receive.
    #[inline]
    pub(crate) fn read(
        &self,
        buffer: &mut [u8],
        info: &mut RecvInfo,
        wait: Wait,
    ) -> Result<Found<usize>, RecvError> {
        let mut inner = self.shard.enter();
        let read = inner.guarded(Some(self.stream), |inner| inner.executive.read(self.stream, buffer, info));
        match read {
            Some(Ok(Some(bytes))) => {
                self.shard.after_read(&mut inner);
                Ok(Found::Data(bytes))
            }
            _ => self.read_slow(inner, buffer, info, wait),
        }
    }

    /// Reads on where the first entry is no user data, or there is none yet.
    #[cold]
    fn read_slow(
        &self,
        inner: Entered<'_>,
        buffer: &mut [u8],
        info: &mut RecvInfo,
        wait: Wait,
    ) -> Result<Found<usize>, RecvError> {
        self.until_inside(inner, Interest::READABLE, wait, |inner| self.try_read(inner, buffer, info))?
    }

    pub(crate) fn try_read(
        &self,
        inner: &mut Inner,
        buffer: &mut [u8],
        info: &mut RecvInfo,
    ) -> Option<Result<Found<usize>, RecvError>> {
        loop {
            match inner.executive.read(self.stream, buffer, info) {
                Ok(Some(bytes)) => {
                    self.shard.after_read(inner);
                    return Some(Ok(Found::Data(bytes)));
                }
                Ok(None) => return self.has_ended(|end| *end != End::Open).then_some(Ok(Found::End)),
                // The first message is not user data.
                Err(ReadError::NotData) => {
                    if let Ok(Some(message)) = inner.executive.getmsg(self.stream)
                        && let Some(found) = self.on_primitive(message)
                    {
                        return Some(Ok(found));
                    }
                }
                Err(error) => return Some(self.read_failed(&error)),
            }
        }
    }

    /// Takes one message.
    pub(crate) fn getmsg(&self, wait: Wait) -> Result<Found<Block>, RecvError> {
        self.until(Interest::READABLE, wait, |inner| self.try_getmsg(inner))?
    }

    pub(crate) fn try_getmsg(&self, inner: &mut Inner) -> Option<Result<Found<Block>, RecvError>> {
        self.try_take(inner, StagedExecutive::getmsg, |end| *end != End::Open)
    }

    /// Takes one message, or those that came together in a packet.
    pub(crate) fn try_getrun(&self, inner: &mut Inner) -> Option<Result<Found<Block>, RecvError>> {
        self.try_take(inner, StagedExecutive::getrun, |end| *end != End::Open)
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

    /// Takes one message or primitive, including those after the peer's shutdown, and the events after the end of the
    /// association.
    pub(crate) fn try_next(&self, inner: &mut Inner) -> Option<Result<Found<Block>, RecvError>> {
        self.try_take(inner, StagedExecutive::getmsg, |_| false)
    }

    /// Takes a message by `take`, or a primitive. `is_last` tells at which end of the association nothing follows.
    pub(crate) fn try_take(
        &self,
        inner: &mut Inner,
        take: impl Fn(&mut StagedExecutive, StreamId) -> Result<Option<Block>, ReadError>,
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
                    if let Some(found) = self.on_primitive(message) {
                        return Some(Ok(found));
                    }
                }
                Ok(None) => return self.has_ended(is_last).then_some(Ok(Found::End)),
                Err(error) => return Some(self.read_failed(&error)),
            }
        }
    }

    /// Takes one message of any kind; `Ok(None)` at the end of the stream.
    pub(crate) fn try_getmsg_of_any_kind(
        &self,
        inner: &mut Inner,
    ) -> Option<Result<Option<Block>, ReadError>> {
        match inner.executive.getmsg(self.stream) {
            Ok(Some(message)) => {
                if !is_data(&message) {
                    drop(self.on_primitive::<()>(message.clone()));
                }
                self.shard.after_read(inner);
                Some(Ok(Some(message)))
            }
            Ok(None) => self.has_ended(|end| *end != End::Open).then_some(Ok(None)),
            Err(ReadError::HungUp) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Keeps messages of at least this many bytes charged to the receive window after they are read.
    #[cfg(feature = "internals")]
    pub(crate) fn hold_window_from(&self, bytes: usize) {
        self.holds_from_bytes.store(bytes, Relaxed);
    }

    fn hold_window(&self, inner: &mut Inner, bytes: usize) {
        let stream = self.stream;
        inner.executive.provider(|driver| driver.hold_window(stream, Which::Only, bytes));
    }

    /// Waits for the hang-up of a one-to-one stream, and discards messages that still arrive.
    pub(crate) fn try_drain(&self, inner: &mut Inner) -> Option<Result<(), RecvError>> {
        loop {
            match inner.executive.getmsg(self.stream) {
                Ok(Some(message)) if is_data(&message) => self.shard.after_read(inner),
                Ok(Some(message)) => drop(self.on_primitive::<()>(message)),
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

    /// Handles a message that is not user data. Records the end and the handshakes of a one-to-one stream here, inside the
    /// perimeter, so that every caller sees them.
    #[cold]
    fn on_primitive<T>(&self, message: Block) -> Option<Found<T>> {
        let (Kind::Proto(control) | Kind::PcProto(control)) = message.kind else { return None };
        let Control::Tpi(primitive) = control else { return None };
        if self.style == Style::OneToOne {
            let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            match &primitive {
                Primitive::ConnCon { outbound_streams, inbound_streams, .. } => {
                    self.published.on_handshake(*outbound_streams, *inbound_streams);
                }
                Primitive::OrdrelInd { .. } => *end = End::PeerShutdown,
                Primitive::DisconInd { reason, cause, .. } => {
                    *end = Loss::of(*reason, *cause, &message.data).map_or(End::Closed, End::Lost);
                }
                _ => {}
            }
        }
        Some(Found::Primitive(primitive, message.data))
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
pub(crate) fn check_restart(primitive: &Primitive, text: &Chain) -> Result<(), RecvError> {
    match primitive {
        Primitive::ConnCon { .. } if !text.is_empty() => Err(RecvError::Restarted(to_text(text))),
        _ => Ok(()),
    }
}
