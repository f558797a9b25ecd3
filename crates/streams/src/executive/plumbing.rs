//! Pushing and popping modules.

use crate::Errno;
use crate::Executive;
use crate::error::{PopError, PushError, WriteError};
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::module::Module;
use crate::module::flow;
use crate::module::slot::Slot;
use crate::stream::{Procedure, Stream};

/// Number of messages of a module that a pop moves at once. More go on by service procedures, in their turns.
const POPPED_AT_ONCE_MAX: usize = 64;

impl Executive {
    /// Pushes a module on a stream, below its head (`I_PUSH`). Coalesced bytes go down first, so the module does not see them if
    /// the driver has room.
    ///
    /// # Errors
    ///
    /// The module refuses, the stream has [`Executive::MODULES_MAX`] modules, has failed or is gone.
    pub fn push(&mut self, s: StreamId, module: Box<dyn Module>) -> Result<(), PushError> {
        // If the driver is full, the bytes stay and will pass the new module.
        let _ = self.flush_head(s);
        let serial = self.streams.next_serial();
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(PushError::Closed) };
        match stream.head.check_write() {
            Err(WriteError::HungUp) => return Err(PushError::HungUp),
            Err(WriteError::Refused(reason)) => return Err(PushError::Failed(reason.into())),
            Err(WriteError::Failed(errno)) => return Err(PushError::Failed(errno)),
            Err(WriteError::Closed) => return Err(PushError::Closed),
            Err(WriteError::WouldBlock) | Ok(()) => {}
        }
        let index = stream.modules().len();
        if index >= Self::MODULES_MAX {
            return Err(PushError::TooMany);
        }
        stream.push(Slot::new(module, serial));
        let at = flow::module_at(s, index, Side::Write);
        if let Err(errno) = stream.run(s, index, at.side, Procedure::Open, scheduler) {
            let _ = stream.pop();
            return Err(PushError::Module(errno));
        }
        // A queue that waited for room further along may find it in the new module, and would not be enabled past it.
        stream.back_enable_past(s, index, scheduler);
        self.deliver_posts();
        Ok(())
    }

    /// Pops the module below the head (`I_POP`) and returns it. Messages on its queues go on to the next queue in their
    /// direction: a few at once, many by service procedures, as the next queue has room. Later messages stay behind them.
    ///
    /// # Errors
    ///
    /// There is no module, the module is anchored or cannot leave yet ([`Module::leave`]), or the stream is closed.
    pub fn pop(&mut self, s: StreamId) -> Result<Box<dyn Module>, PopError> {
        let Some(stream) = self.streams.get(s) else { return Err(PopError::Closed) };
        if stream.visible_modules().next().is_some_and(|slot| slot.anchored) {
            return Err(PopError::Anchored);
        }
        self.pop_any(s)
    }

    /// Anchors the module below the head (`I_ANCHOR`): only [`Executive::pop_any`] removes it.
    ///
    /// # Errors
    ///
    /// There is no module, or the stream is closed.
    pub fn anchor(&mut self, s: StreamId) -> Result<(), PopError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(PopError::Closed) };
        stream.anchor().ok_or(PopError::NoModule)?;
        Ok(())
    }

    /// Pops the module below the head even if it is anchored: for privileged users.
    ///
    /// # Errors
    ///
    /// There is no module, it cannot leave yet, or the stream is closed.
    pub fn pop_any(&mut self, s: StreamId) -> Result<Box<dyn Module>, PopError> {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(PopError::Closed) };
        let index = stream.uppermost().ok_or(PopError::NoModule)?;
        stream.head.on_pop();
        let is_broken = stream.is_broken();
        if !is_broken && stream.run(s, index, Side::Write, Procedure::Leave, scheduler) == Err(Errno::EBUSY) {
            self.deliver_posts();
            return Err(PopError::Busy);
        }
        self.pop_now(s)
    }

    /// Pops the module below the head whether it can leave or not.
    fn pop_now(&mut self, s: StreamId) -> Result<Box<dyn Module>, PopError> {
        let Some(stream) = self.streams.get(s) else { return Err(PopError::Closed) };
        let index = stream.uppermost().ok_or(PopError::NoModule)?;
        self.close_module(s, index);
        let serial = self.streams.next_serial();
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(PopError::Closed) };
        let slot = stream.modules().get(index).ok_or(PopError::NoModule)?;
        let is_below_head = index + 1 == stream.modules().len();
        let moves_at_once = slot.queued() <= POPPED_AT_ONCE_MAX || stream.is_broken();
        if is_below_head && moves_at_once {
            let module = self.remove_below_head(s);
            self.remove_popped(s);
            return module.ok_or(PopError::NoModule);
        }
        scheduler.memory.forget(s, slot.serial);
        let module = stream.take_module(s, index, serial, scheduler).ok_or(PopError::NoModule)?;
        self.deliver_posts();
        Ok(module)
    }

    /// Pops the module below the head of a stream that is closed. Returns false if there is none.
    pub(super) fn pop_at_close(&mut self, s: StreamId) -> bool {
        let modules = self.streams.get(s).map_or(0, |stream| stream.modules().len());
        let Some(index) = modules.checked_sub(1) else { return false };
        self.close_module(s, index);
        self.remove_below_head(s).is_some()
    }

    /// Prepares a module for being popped.
    fn close_module(&mut self, s: StreamId, index: usize) {
        // Coalesced bytes were written while the module was there. If the driver is full, they will go down without it.
        let _ = self.flush_head(s);
        if let Some((stream, scheduler)) = self.streams.parts(s) {
            // A module that faults while it closes is popped nevertheless.
            let _ = stream.run(s, index, Side::Write, Procedure::Close, scheduler);
        }
        self.deliver_posts();
    }

    /// Removes the places below the head whose modules were popped and have left no message.
    pub(super) fn remove_popped(&mut self, s: StreamId) {
        while self.streams.get(s).is_some_and(Stream::has_passed_popped) {
            self.remove_below_head(s);
        }
    }

    /// Removes the place below the head. Messages on its queues go on at once. Returns its module.
    fn remove_below_head(&mut self, s: StreamId) -> Option<Box<dyn Module>> {
        let (stream, scheduler) = self.streams.parts(s)?;
        let Slot { module, mut queues, serial, .. } = stream.pop()?;
        let index = stream.modules().len();
        scheduler.memory.forget(s, serial);
        if stream.head.is_closing() && !queues.write.is_empty() {
            scheduler.list_drained(s);
        }
        while let Some(m) = queues.write.getq() {
            scheduler.count_work();
            scheduler.post(QueueRef { stream: s, place: Place::BelowHead, side: Side::Write }, m);
        }
        while let Some(m) = queues.read.getq() {
            scheduler.count_work();
            scheduler.post(QueueRef { stream: s, place: Place::Head, side: Side::Read }, m);
        }
        stream.hang_up_if_drained(s, scheduler);
        // Queues that waited for room in these queues, or beyond them through this module's services, look again.
        stream.back_enable_past(s, index, scheduler);
        self.deliver_posts();
        Some(module)
    }

    /// Pops modules below the head that have nothing left to do ([`Module::is_finished`]), up to the first other one.
    pub fn pop_finished(&mut self, s: StreamId) {
        let is_finished = |slot: &Slot| slot.module.is_finished();
        let has_finished = |stream: &Stream| stream.visible_modules().next().is_some_and(is_finished);
        while self.streams.get(s).is_some_and(has_finished) {
            // The module was found a moment ago.
            let _ = self.pop_now(s);
        }
    }

    /// Returns the names of a stream's modules, from the head downward (`I_LIST`).
    pub fn modules(&self, s: StreamId) -> Vec<String> {
        let modules = self.streams.get(s).into_iter().flat_map(Stream::visible_modules);
        modules.map(|slot| slot.module.name().to_owned()).collect()
    }

    /// Returns the number of modules on a stream, with those that were popped and whose messages have not all gone on.
    pub fn places(&self, s: StreamId) -> usize {
        self.streams.get(s).map_or(0, |stream| stream.modules().len())
    }
}
