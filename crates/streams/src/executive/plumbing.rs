//! Pushing and popping modules.

use crate::Executive;
use crate::error::{PopError, PushError, WriteError};
use crate::flow;
use crate::module::Module;
use crate::queue::{QueuePair, Side};
use crate::scheduler::{Place, QueueRef};
use crate::stream::{Procedure, Slot, StreamId};

impl Executive {
    /// Pushes a module on a stream, next below its head (`I_PUSH`). Coalesced bytes that were written before go down
    /// first, so the module does not see them if the driver has room.
    ///
    /// # Errors
    ///
    /// The module refuses, the stream has [`Executive::MODULES_MAX`] modules, has failed or is gone.
    pub fn push(&mut self, s: StreamId, module: Box<dyn Module>) -> Result<(), PushError> {
        // A full driver leaves the bytes where they are; they will pass the new module.
        let _ = self.flush_head(s);
        let serial = self.streams.next_serial();
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(PushError::Closed) };
        match stream.head.check_write() {
            Err(WriteError::HungUp) => return Err(PushError::HungUp),
            Err(WriteError::Failed(errno)) => return Err(PushError::Failed(errno)),
            Err(WriteError::Closed) => return Err(PushError::Closed),
            Err(WriteError::WouldBlock) | Ok(()) => {}
        }
        let index = stream.modules.len();
        if index >= Self::MODULES_MAX {
            return Err(PushError::TooMany);
        }
        let info = module.info();
        let queues = QueuePair::new(info.read, info.write);
        stream.modules.push(Slot { module, queues, serial, anchored: false });
        let at = flow::module_at(s, index, Side::Write);
        if let Err(errno) = stream.run(s, index, at.side, Procedure::Open, scheduler) {
            stream.modules.pop();
            return Err(PushError::Module(errno));
        }
        // Whoever waited for room beyond may find it with the new module, and would not be enabled past it.
        flow::back_enable_above(s, &mut [], index + 1, &mut stream.head, scheduler);
        flow::back_enable_below(s, &mut stream.modules[..index], &mut stream.device, scheduler);
        self.settle();
        Ok(())
    }

    /// Pops the module next below the head (`I_POP`) and gives it back. What it leaves on its queues goes on to the next
    /// in either way.
    ///
    /// # Errors
    ///
    /// There is no module, an anchor stands on it, or the stream is closed.
    pub fn pop(&mut self, s: StreamId) -> Result<Box<dyn Module>, PopError> {
        let Some(stream) = self.streams.get(s) else { return Err(PopError::Closed) };
        if stream.modules.last().is_some_and(|slot| slot.anchored) {
            return Err(PopError::Anchored);
        }
        self.pop_any(s)
    }

    /// Anchors the module next below the head (`I_ANCHOR`): only [`Executive::pop_any`] takes it off.
    ///
    /// # Errors
    ///
    /// There is no module, or the stream is closed.
    pub fn anchor(&mut self, s: StreamId) -> Result<(), PopError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(PopError::Closed) };
        stream.modules.last_mut().ok_or(PopError::NoModule)?.anchored = true;
        Ok(())
    }

    /// Pops the module next below the head even where an anchor stands on it: for privileged users, and at the close.
    ///
    /// # Errors
    ///
    /// There is no module, or the stream is closed.
    pub fn pop_any(&mut self, s: StreamId) -> Result<Box<dyn Module>, PopError> {
        // Coalesced bytes were written while the module was there. A full driver leaves them to go without it.
        let _ = self.flush_head(s);
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(PopError::Closed) };
        let index = stream.modules.len().checked_sub(1).ok_or(PopError::NoModule)?;
        // A module that faults while it closes is popped all the same.
        let _ = stream.run(s, index, Side::Write, Procedure::Close, scheduler);
        self.settle();
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(PopError::Closed) };
        let Some(Slot { module, mut queues, .. }) = stream.modules.pop() else {
            return Err(PopError::NoModule);
        };
        while let Some(m) = queues.write.getq() {
            scheduler.post(QueueRef { stream: s, place: Place::BelowHead, side: Side::Write }, m);
        }
        while let Some(m) = queues.read.getq() {
            scheduler.post(QueueRef { stream: s, place: Place::Head, side: Side::Read }, m);
        }
        stream.hang_up_if_drained(s, scheduler);
        // Whoever waited for room in these queues, or through this module's services for room beyond, looks again.
        flow::back_enable_above(s, &mut [], index, &mut stream.head, scheduler);
        flow::back_enable_below(s, &mut stream.modules, &mut stream.device, scheduler);
        self.settle();
        Ok(module)
    }

    /// Pops modules next below the head that have nothing left to do ([`Module::is_finished`]), until another one stands there.
    pub fn pop_finished(&mut self, s: StreamId) {
        let is_finished = |slot: &Slot| slot.module.is_finished();
        while self.streams.get(s).is_some_and(|stream| stream.modules.last().is_some_and(is_finished)) {
            // It stands there.
            let _ = self.pop_any(s);
        }
    }

    /// The names of a stream's modules, from the head downward (`I_LIST`).
    pub fn modules(&self, s: StreamId) -> Vec<String> {
        let modules = self.streams.get(s).map_or(&[][..], |stream| &stream.modules);
        modules.iter().rev().map(|slot| slot.module.name().to_owned()).collect()
    }
}
