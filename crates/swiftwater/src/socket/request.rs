//! Requests to the provider.

use std::time::Instant;

use providers::SctpDriver;
use streams::{Chain, Control, Cx, Interest, Kind, Message as Block, WriteError};
use tpi::Primitive;

use super::{Socket, Wait, WaitError};
use crate::shard::Inner;

impl Socket {
    /// Sends a request to the provider, in order after earlier messages.
    pub(crate) fn request(&self, primitive: Primitive, data: Chain, wait: Wait) -> Result<(), WriteError> {
        let mut message = Some(Block::with_data(Kind::Proto(primitive.into()), data));
        match self.until(Interest::WRITABLE, wait, |inner| self.try_request(inner, &mut message)) {
            Ok(asked) => asked,
            Err(WaitError::WouldBlock) => Err(WriteError::WouldBlock),
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

    pub(super) fn after_request(&self, inner: &mut Inner) {
        self.shard.after_command(inner, Some(self.stream));
    }

    /// Sends a request that the provider answers at once, and returns the answer.
    pub(crate) fn ask(&self, primitive: Primitive) -> Result<Primitive, WriteError> {
        self.ask_and(primitive, |_| ()).map(|(answer, ())| answer)
    }

    /// Sends a request that the provider answers at once. Returns the answer, and the result of `inspect`, which is called before
    /// another request.
    pub(crate) fn ask_and<R>(
        &self,
        primitive: Primitive,
        inspect: impl FnOnce(&SctpDriver) -> R,
    ) -> Result<(Primitive, R), WriteError> {
        let mut inner = self.shard.enter();
        let message = Block::proto(primitive);
        let answer = inner.guarded(Some(self.stream), |inner| {
            let mut executive = inner.executive.at(Instant::now());
            executive.putmsg(self.stream, message).map_err(|refused| refused.error)?;
            let answer = executive.getpmsg(self.stream, streams::Select::HighPriority);
            let inspected = inner.executive.provider(|driver| inspect(driver));
            Ok((answer, inspected.ok_or(WriteError::Closed)?))
        });
        self.after_request(&mut inner);
        match answer.unwrap_or(Err(WriteError::Closed))? {
            (Ok(Some(Block { kind: Kind::PcProto(Control::Tpi(primitive)), .. })), inspected) => {
                Ok((primitive, inspected))
            }
            _ => Err(WriteError::Closed),
        }
    }
}
