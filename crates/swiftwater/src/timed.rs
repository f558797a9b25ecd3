//! The executive of a shard, with the time: every call that acts on the protocol states the time.
//!
//! The executive and the provider have no clock. Getters need no time, nor does a message without a lifetime. All other
//! calls go through [`Timed::at`], which first sets the time of both.

use std::ops::Deref;
use std::time::Instant;

use bytes::Bytes;
use providers::SctpDriver;
use sctp::{Batch, RecvInfo, SendInfo};
use streams::{
    Cx, DriverId, Executive, Interest, Message, OpenError, ReadError, Readiness, StreamId, WriteError,
};

/// An executive with one provider. It dereferences to the executive for getters.
pub(crate) struct Timed {
    executive: Executive,
    driver: DriverId,
}

impl Deref for Timed {
    type Target = Executive;

    #[inline]
    fn deref(&self) -> &Executive {
        &self.executive
    }
}

impl Timed {
    pub(crate) fn new(executive: Executive, driver: DriverId) -> Self {
        Timed { executive, driver }
    }

    /// Sets the time of the executive and the provider, and returns the executive.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> &mut Executive {
        self.executive.set_now(now);
        self.executive.with_driver(self.driver, |driver: &mut SctpDriver, _| driver.set_now(now));
        &mut self.executive
    }

    /// Returns the executive for one message, whose lifetime begins now, if it has one.
    #[inline]
    fn for_message(&mut self, info: &SendInfo) -> &mut Executive {
        match info.lifetime {
            Some(_) => self.at(Instant::now()),
            None => &mut self.executive,
        }
    }

    /// Drops all streams and the provider with its sockets.
    pub(crate) fn dispose(&mut self) {
        self.executive = Executive::new(Instant::now());
    }

    #[inline]
    pub(crate) fn write(
        &mut self,
        s: StreamId,
        association: u32,
        info: &SendInfo,
        data: &[u8],
    ) -> Result<(), WriteError> {
        self.for_message(info).write(s, association, *info, data)
    }

    pub(crate) fn write_bytes(
        &mut self,
        s: StreamId,
        association: u32,
        info: &SendInfo,
        data: Bytes,
    ) -> Result<(), WriteError> {
        self.for_message(info).write_bytes(s, association, *info, data)
    }

    /// Sends the messages of a batch, and empties it; `None` if they must be sent one by one.
    pub(crate) fn write_batch(
        &mut self,
        s: StreamId,
        association: u32,
        batch: &mut Batch,
    ) -> Option<Result<(), WriteError>> {
        let size = (batch.messages(), batch.data_bytes());
        let take = |driver: &mut SctpDriver, _: &mut Cx<'_>| driver.write_batch(s, association, batch);
        self.executive.write_past(s, size, take)
    }

    #[inline]
    pub(crate) fn read(
        &mut self,
        s: StreamId,
        buffer: &mut [u8],
        info: &mut RecvInfo,
    ) -> Result<Option<usize>, ReadError> {
        self.executive.read_into(s, buffer, info)
    }

    #[inline]
    pub(crate) fn getmsg(&mut self, s: StreamId) -> Result<Option<Message>, ReadError> {
        self.executive.getmsg(s)
    }

    pub(crate) fn getrun(&mut self, s: StreamId) -> Result<Option<Message>, ReadError> {
        self.executive.getrun(s)
    }

    pub(crate) fn open(&mut self) -> Result<StreamId, OpenError> {
        self.executive.open(self.driver)
    }

    #[inline]
    pub(crate) fn poll(&mut self, s: StreamId) -> Readiness {
        self.executive.poll(s)
    }

    #[inline]
    pub(crate) fn want(&mut self, s: StreamId, interest: Interest) {
        self.executive.want(s, interest);
    }

    #[inline]
    pub(crate) fn take_wakeups(&mut self, woken: &mut Vec<StreamId>) {
        self.executive.take_wakeups(woken);
    }

    /// Contains a fault of the stream, or of an unknown one: the driver drops the association that it was handling.
    pub(crate) fn fault(&mut self, s: Option<StreamId>) {
        self.executive.fault(s);
    }

    /// Calls a function of the provider that acts on no association; [`Timed::command`] calls those that do.
    pub(crate) fn provider<R>(&mut self, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
        self.executive.with_driver(self.driver, |driver, _| f(driver))
    }

    /// Has the provider execute a command at `now`.
    pub(crate) fn command<R>(
        &mut self,
        now: Instant,
        f: impl FnOnce(&mut SctpDriver, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let driver = self.driver;
        self.at(now).with_driver(driver, f)
    }
}
