//! Writes, from the program to the driver.

use std::any::Any;
use std::time::Instant;

use bytes::Bytes;

use crate::Executive;
use crate::driver::{Admission, Cx, Driver, WriteData};
use crate::error::{Refused, WriteError};
use crate::head::WriteAs;
use crate::identifiers::{DriverId, Place, StreamId};
use crate::message::{Control, Kind, Message, Seen};
use crate::scheduler::Post;
use crate::stream::{Stream, Streams};
use crate::{Primitive, SendError, SendInfo, Which};

impl Executive {
    /// Writes one message: copies `bytes` into a block and sends them down as `T_OPTDATA_REQ`.
    ///
    /// If `info` says that the record continues, the head holds the bytes and sends them down with those that follow: when they
    /// fill a block, when the driver is idle, before any other message, and on [`At::flush_head`](super::At::flush_head) and
    /// [`Executive::flush`].
    ///
    /// `now` returns the time. It is called only if modules are pushed, which see it, or if the message has a lifetime, which
    /// begins now.
    ///
    /// # Errors
    ///
    /// [`WriteError::WouldBlock`] takes nothing and remembers the writer. The other errors are permanent.
    #[inline]
    pub fn write(
        &mut self,
        s: StreamId,
        association: Which,
        info: SendInfo,
        bytes: &[u8],
        now: impl FnOnce() -> Instant,
    ) -> Result<(), WriteError> {
        let Some(stream) = self.streams.begin_write(s, &info, now) else { return Err(WriteError::Closed) };
        let direct = !info.more && stream.head.writes_directly() && !stream.waits_below();
        if !direct {
            return self.write_by_the_way(s, association, info, bytes);
        }
        if !stream.has_modules() {
            return self.write_directly(s, association, &info, WriteData::Copied(bytes));
        }
        let driver = stream.driver();
        match self.drivers[driver.0].admit(s, association, &info, bytes.len()) {
            Admission::Idle | Admission::Room => {}
            Admission::Full => return Err(stream.head.block_writer()),
            Admission::Refused(reason) => return Err(WriteError::Refused(reason)),
            Admission::Fail(errno) => return Err(WriteError::Failed(errno)),
        }
        // Messages that wait for the driver come first.
        let is_observed = stream.only_observes_writes() && stream.device().write.is_empty();
        stream.head.count_written(1, bytes.len());
        // Messages on their way come first.
        if is_observed && self.streams.scheduler.is_quiet() {
            self.write_observed(s, driver, association, info, bytes);
        } else {
            self.write_to_modules(s, driver, Place::BelowHead, association, info, bytes);
        }
        Ok(())
    }

    /// Returns whether the head holds bytes of writes with more to come, so that [`Executive::write_held`] may take the next.
    #[inline]
    pub fn is_holding(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(|stream| !stream.head.coalesced.is_empty())
    }

    /// Writes as [`Executive::write`] does, if the bytes join those that the head holds, and do not fill its block. Returns
    /// whether they did; if not, the caller writes.
    ///
    /// Neither the head nor the driver is asked: since a write that the head holds, the caller has only read from the executive,
    /// so their answers are still those to that write.
    #[inline]
    pub fn write_held(&mut self, s: StreamId, association: Which, info: &SendInfo, bytes: &[u8]) -> bool {
        let Some(stream) = self.streams.get_mut(s) else { return false };
        let joins = stream.head.coalesced.append_unasked(association, info, bytes);
        if joins {
            stream.head.count_written(1, bytes.len());
        }
        joins
    }

    /// Writes past the empty stack of modules: the driver admits and takes the message in one step.
    #[inline]
    fn write_directly(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        data: WriteData<'_>,
    ) -> Result<(), WriteError> {
        let Some(stream) = self.streams.get(s) else { return Err(WriteError::Closed) };
        let (driver, bytes) = (stream.driver(), data.len());
        let cx = &mut Cx::new(&mut self.streams);
        let admission = self.drivers[driver.0].write(cx, s, association, info, data);
        match admission {
            Admission::Idle | Admission::Room => self.count_written(s, 1, bytes),
            Admission::Full => return Err(self.block_writer(s)),
            Admission::Refused(reason) => return Err(WriteError::Refused(reason)),
            Admission::Fail(errno) => return Err(WriteError::Failed(errno)),
        }
        self.deliver_posts();
        Ok(())
    }

    /// Returns whether nothing is between the head and the driver: no module is pushed, and no earlier message waits.
    pub fn is_clear_below(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(Stream::is_clear_below)
    }

    /// Lets the driver take messages that it keeps in its own form, past the empty stack of modules. Returns
    /// `None` if they must be written one by one, because modules are pushed, or earlier data waits on the stream.
    ///
    /// # Errors
    ///
    /// Fails as [`Executive::write`] does.
    pub fn write_past<D: Driver>(
        &mut self,
        s: StreamId,
        messages: usize,
        bytes: usize,
        take: impl FnOnce(&mut D) -> Admission,
    ) -> Option<Result<(), WriteError>> {
        let Some(stream) = self.streams.get_mut(s) else { return Some(Err(WriteError::Closed)) };
        if !stream.writes_past() {
            return None;
        }
        let driver = stream.driver();
        let written = match self.driver_state(driver, take)? {
            Admission::Idle | Admission::Room => Ok(()),
            Admission::Full => Err(self.block_writer(s)),
            Admission::Refused(reason) => Err(WriteError::Refused(reason)),
            Admission::Fail(errno) => Err(WriteError::Failed(errno)),
        };
        if written.is_ok() {
            self.count_written(s, messages, bytes);
        }
        Some(written)
    }

    /// Lets the driver lend an object that takes messages in its own form, until [`Executive::take_back`]. Returns `None` if
    /// messages must be written one by one, because a module does more than observe. Until the driver has taken the object back,
    /// callers may only read from the executive, so that the stack of modules stays as it is, and they show each message to the
    /// modules by [`Executive::show_write`].
    #[inline]
    pub fn lend<D: Driver, L>(&mut self, s: StreamId, lend: impl FnOnce(&mut D) -> Option<L>) -> Option<L> {
        let stream = self.streams.get_mut(s)?;
        if !stream.lends() {
            return None;
        }
        let driver: &mut dyn Any = &mut *self.drivers[stream.driver().0];
        lend(driver.downcast_mut()?)
    }

    /// Lets the driver take back what it has lent, with this many messages and bytes.
    pub fn take_back<D: Driver>(
        &mut self,
        s: StreamId,
        messages: usize,
        bytes: usize,
        take: impl FnOnce(&mut D),
    ) {
        let Some(stream) = self.streams.get(s) else { return };
        let _ = self.driver_state(stream.driver(), take);
        self.count_written(s, messages, bytes);
    }

    /// Returns whether modules are pushed.
    #[inline]
    pub fn has_modules(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(Stream::has_modules)
    }

    /// Shows a write to the modules of a stream, which only observe. The caller then passes the message to the object that the
    /// driver has lent. `now` is that of [`Executive::write`].
    #[inline]
    pub fn show_write(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        bytes: &[u8],
        now: impl FnOnce() -> Instant,
    ) -> Shown {
        let _ = self.streams.begin_write(s, info, now);
        self.show_now(s, association, info, bytes)
    }

    /// Shows a write to the modules, which see the time that the executive has.
    #[inline]
    fn show_now(&mut self, s: StreamId, association: Which, info: &SendInfo, bytes: &[u8]) -> Shown {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Shown::Gone };
        let kind = Kind::Proto(Control::Tpi(Primitive::OptdataReq { association, info: *info }));
        match stream.show_written(s, &Seen::written(&kind, bytes), scheduler) {
            Some(Place::Driver) => Shown::Passed,
            Some(place) => Shown::HandedOver(Position(place)),
            None => Shown::Gone,
        }
    }

    /// Writes a message that [`Executive::show_write`] has handed over to a module, from this module downward, at the time of
    /// that call. The driver has taken back the object that it had lent.
    #[cold]
    pub fn write_from(
        &mut self,
        s: StreamId,
        Position(place): Position,
        association: Which,
        info: SendInfo,
        bytes: &[u8],
    ) {
        let Some(stream) = self.streams.get(s) else { return };
        let driver = stream.driver();
        self.count_written(s, 1, bytes.len());
        self.write_to_modules(s, driver, place, association, info, bytes);
    }

    #[cold]
    fn block_writer(&mut self, s: StreamId) -> WriteError {
        self.streams.get_mut(s).map_or(WriteError::Closed, |stream| stream.head.block_writer())
    }

    /// Writes bytes that already lie in a block as one message, without copying or coalescing. `now` is that of
    /// [`Executive::write`].
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::write`].
    pub fn write_bytes(
        &mut self,
        s: StreamId,
        association: Which,
        info: SendInfo,
        bytes: Bytes,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), WriteError> {
        self.streams.begin_write(s, &info, now).ok_or(WriteError::Closed)?;
        self.flush_head(s)?;
        self.check_canput(s, 0)?;
        let Some(stream) = self.streams.get(s) else { return Err(WriteError::Closed) };
        if stream.head.settings().writes_directly() && stream.is_clear_below() {
            return self.write_directly(s, association, &info, WriteData::Block(bytes));
        }
        let len = bytes.len();
        self.admit(s, association, &info, len)?;
        self.count_written(s, 1, len);
        let write_as = self.write_as(s);
        self.put_down(s, written(write_as, association, info, bytes));
        Ok(())
    }

    /// See [`At::putmsg`](super::At::putmsg).
    pub(super) fn putmsg(&mut self, s: StreamId, m: Message) -> Result<(), Refused> {
        match self.room_for(s, &m) {
            Ok(()) => {
                self.put_down(s, m);
                Ok(())
            }
            Err(error) => Err(Refused { error, message: m }),
        }
    }

    /// See [`At::flush_head`](super::At::flush_head).
    pub(super) fn flush_head(&mut self, s: StreamId) -> Result<(), WriteError> {
        let Some(stream) = self.streams.get(s) else { return Err(WriteError::Closed) };
        let coalesced = &stream.head.coalesced;
        if coalesced.is_empty() {
            return Ok(());
        }
        let ((association, info), bytes) = (coalesced.info(), coalesced.len());
        match self.admit(s, association, &info, bytes) {
            Ok(_) => {
                self.send_coalesced(s);
                Ok(())
            }
            Err(WriteError::WouldBlock) => Err(WriteError::WouldBlock),
            Err(error) => {
                if let Some((stream, _, pool)) = self.streams.all_parts(s) {
                    stream.head.coalesced.clear(pool);
                }
                Err(error)
            }
        }
    }

    /// Returns whether a message of this band could be written now. If not, the stream remembers the writer.
    pub fn canput(&mut self, s: StreamId, band: u8) -> bool {
        let Some((stream, _)) = self.streams.parts(s) else { return false };
        stream.next_down().canput(band)
    }

    /// Sends an admitted write past modules that only look at it: the driver takes it from the writer's memory, as from a head
    /// without modules.
    fn write_observed(
        &mut self,
        s: StreamId,
        driver: DriverId,
        association: Which,
        info: SendInfo,
        bytes: &[u8],
    ) {
        match self.show_now(s, association, &info, bytes) {
            Shown::Passed => {
                let cx = &mut Cx::new(&mut self.streams);
                // The driver has admitted the message a moment ago.
                self.drivers[driver.0].write(cx, s, association, &info, WriteData::Copied(bytes));
                self.deliver_posts();
            }
            Shown::HandedOver(Position(place)) => {
                self.write_to_modules(s, driver, place, association, info, bytes);
            }
            Shown::Gone => {}
        }
    }

    /// Sends an admitted write through the modules from a place on.
    fn write_to_modules(
        &mut self,
        s: StreamId,
        driver: DriverId,
        place: Place,
        association: Which,
        info: SendInfo,
        bytes: &[u8],
    ) {
        let data = self.streams.pool.copy_in(bytes);
        self.put_down_modules(s, driver, place, Message::optdata_req(association, info, data));
    }

    /// Handles a write that cannot go straight to the driver.
    fn write_by_the_way(
        &mut self,
        s: StreamId,
        association: Which,
        info: SendInfo,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        if info.more || self.holds_writes(s) {
            self.write_more(s, association, info, bytes)
        } else {
            self.write_whole(s, association, info, bytes)
        }
    }

    /// Handles a write that is a message of its own.
    fn write_whole(
        &mut self,
        s: StreamId,
        association: Which,
        info: SendInfo,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        self.flush_head(s)?;
        self.admit(s, association, &info, bytes.len())?;
        let write_as = self.write_as(s);
        if bytes.is_empty() && write_as == WriteAs::Data && !self.sends_zero(s) {
            return Ok(());
        }
        self.count_written(s, 1, bytes.len());
        let data = self.streams.pool.copy_in(bytes);
        self.put_down(s, written(write_as, association, info, data));
        Ok(())
    }

    /// Handles a write with more to come.
    fn write_more(
        &mut self,
        s: StreamId,
        association: Which,
        info: SendInfo,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        let Some((stream, ..)) = self.streams.all_parts(s) else { return Err(WriteError::Closed) };
        let max_bytes = stream.head.settings().coalesce_max_bytes();
        if bytes.len() >= max_bytes {
            return self.write_whole(s, association, info, bytes);
        }
        if !stream.head.coalesced.joins(association, &info, bytes.len()) {
            self.flush_head(s)?;
        }
        let Some((stream, scheduler, pool)) = self.streams.all_parts(s) else {
            return Err(WriteError::Closed);
        };
        stream.head.report_write()?;
        let idle = match self.drivers[stream.driver().0].admit(s, association, &info, bytes.len()) {
            Admission::Idle => true,
            // If the driver is full, the head has room until its block is full.
            Admission::Room | Admission::Full => false,
            Admission::Refused(reason) => return Err(WriteError::Refused(reason)),
            Admission::Fail(errno) => return Err(WriteError::Failed(errno)),
        };
        let driver = stream.driver();
        let coalesced = &mut stream.head.coalesced;
        if coalesced.is_empty() {
            if idle {
                return self.write_whole(s, association, info, bytes);
            }
            let max_bytes = match self.drivers[driver.0].admit(s, association, &info, max_bytes) {
                Admission::Refused(SendError::TooLong { limit_bytes, .. }) => limit_bytes.min(max_bytes),
                _ => max_bytes,
            };
            coalesced.begin(association, &info, max_bytes, pool);
        }
        let is_full = coalesced.append(bytes);
        if !coalesced.list() {
            scheduler.list_coalescing(s);
        }
        let due = idle || is_full;
        stream.head.count_written(1, bytes.len());
        match if due { self.flush_head(s) } else { Ok(()) } {
            // The head holds the bytes until the driver has room.
            Err(WriteError::WouldBlock) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns `WouldBlock` or another error unless this message may go down now.
    fn room_for(&mut self, s: StreamId, m: &Message) -> Result<(), WriteError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(WriteError::Closed) };
        stream.head.report_write()?;
        if m.kind.is_high_priority() {
            return Ok(());
        }
        self.flush_head(s)?;
        match &m.kind {
            Kind::Proto(Control::Tpi(Primitive::OptdataReq { association, info })) => {
                self.admit_in(s, *association, info, m.data.len(), m.band).map(drop)
            }
            // Only the driver knows the options of data that comes without any; it queues the data if it has no room.
            _ => self.check_canput(s, m.band),
        }
    }

    /// Checks for room below the head, and asks the driver for room in the association.
    fn admit(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        bytes: usize,
    ) -> Result<Admission, WriteError> {
        self.admit_in(s, association, info, bytes, 0)
    }

    /// Admits as [`Executive::admit`] does, in this band.
    fn admit_in(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        bytes: usize,
        band: u8,
    ) -> Result<Admission, WriteError> {
        self.check_canput(s, band)?;
        let Some(stream) = self.streams.get_mut(s) else { return Err(WriteError::Closed) };
        match self.drivers[stream.driver().0].admit(s, association, info, bytes) {
            Admission::Full => Err(stream.head.block_writer()),
            Admission::Refused(reason) => Err(WriteError::Refused(reason)),
            Admission::Fail(errno) => Err(WriteError::Failed(errno)),
            admission => Ok(admission),
        }
    }

    fn check_canput(&mut self, s: StreamId, band: u8) -> Result<(), WriteError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(WriteError::Closed) };
        stream.head.report_write()?;
        if stream.next_down().canput(band) { Ok(()) } else { Err(stream.head.block_writer()) }
    }

    pub(super) fn send_coalesced(&mut self, s: StreamId) {
        let Some((stream, _, pool)) = self.streams.all_parts(s) else { return };
        stream.head.count_coalesced();
        let (association, info, data) = stream.head.coalesced.take(pool);
        let m = written(stream.head.settings().write_as(), association, info, data);
        self.put_down(s, m);
    }

    fn write_as(&self, s: StreamId) -> WriteAs {
        self.streams.get(s).map_or(WriteAs::Data, |stream| stream.head.settings().write_as())
    }

    /// Returns whether an empty write sends a message (`SNDZERO`).
    fn sends_zero(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(|stream| stream.head.settings().write_options().send_zero)
    }

    /// Returns whether the head holds short writes (`SNDHOLD`).
    fn holds_writes(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(|stream| stream.head.settings().write_options().hold)
    }

    fn count_written(&mut self, s: StreamId, messages: usize, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(s) {
            stream.head.count_written(messages, bytes);
        }
    }

    /// Sends a message down from the head, without regard to flow control.
    pub(super) fn put_down(&mut self, s: StreamId, m: Message) {
        let Some((stream, _)) = self.streams.parts(s) else { return };
        let driver = stream.driver();
        if stream.has_modules() {
            return self.put_down_modules(s, driver, Place::BelowHead, m);
        }
        self.drivers[driver.0].put(&mut Cx::new(&mut self.streams), s, m);
        self.deliver_posts();
    }

    /// Sends a message down through the modules from `place` on.
    #[inline]
    fn put_down_modules(&mut self, s: StreamId, driver: DriverId, place: Place, m: Message) {
        if self.streams.put_to_modules(s, place, m)
            && let Some(Post { message, .. }) = self.streams.take_arrived()
        {
            self.drivers[driver.0].put(&mut Cx::new(&mut self.streams), s, message);
        }
        self.deliver_posts();
    }
}

impl Streams {
    /// Returns the stream of a write. Advances the time if something may depend on it: a module, or the lifetime of the message.
    #[inline]
    fn begin_write(
        &mut self,
        s: StreamId,
        info: &SendInfo,
        now: impl FnOnce() -> Instant,
    ) -> Option<&mut Stream> {
        let (stream, scheduler) = self.parts(s)?;
        if info.lifetime.is_some() || stream.has_modules() {
            scheduler.timers.advance(now());
        }
        Some(stream)
    }
}

/// The result of showing a write to the modules that observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It goes to the driver.
    Passed,
    /// A module handles it.
    HandedOver(Position),
    /// A module has panicked: the stream has failed, and the message is gone.
    Gone,
}

/// Place of a module on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(Place);

/// Returns the message that a write sends down: `M_DATA` without information if the stream's writes are `M_DATA`.
fn written(write_as: WriteAs, association: Which, info: SendInfo, data: Bytes) -> Message {
    match write_as {
        WriteAs::OptdataReq => Message::optdata_req(association, info, data),
        WriteAs::Data => Message::data(data),
    }
}
