//! Streams: a head, modules and the queues of a driver.

mod ending;
mod observing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use slab::Slab;

use crate::credit::CreditAccount;
use crate::detached_blocks::DetachedBlocks;
use crate::driver::info::{DriverInfo, Open};
use crate::head::{Head, Readiness};
use crate::identifiers::{DriverId, Place, QueueRef, Side, StreamId};
use crate::memory::StreamMemory;
use crate::message::{Credentials, Kind, Message, Run};
use crate::module::slot::Slot;
use crate::module::{Ahead, Parts, Q, flow};
use crate::names::Names;
use crate::pool::Pool;
use crate::queue::{Queue, QueuePair};
use crate::scheduler::{DriverCall, Post, Scheduler};
use crate::timers::TimerId;
use crate::{Chain, Errno, RecvInfo, Which};

/// One open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    generation: u32,
    driver: DriverId,
    /// The minor device of the stream.
    minor: u32,
    /// Number of opens: users of one minor device share its stream.
    opens: u32,
    /// The user that opened it first.
    owner: Credentials,
    pub(crate) head: Head,
    /// The modules, from the driver upward.
    modules: Vec<Slot>,
    /// The driver's queues.
    device: QueuePair,
    /// The window of the messages on their way up, while there are modules.
    credit: CreditAccount,
    /// Number of times that something has come to the modules from outside: a message, a timer or memory.
    inputs: u32,
    /// A module has broken the rules for good: the executive calls none of the stream's modules any more.
    broken: bool,
}

/// A procedure of a module other than put.
pub(crate) enum Procedure {
    Open,
    Leave,
    Close,
    Service,
    Timer(TimerId),
}

/// All streams of an executive, with the state they share.
#[derive(Debug)]
pub(crate) struct Streams {
    slab: Slab<Stream>,
    next_generation: u32,
    pub(crate) scheduler: Scheduler,
    pub(crate) pool: Pool,
    /// Streams that have received data of a driver since the last [`Streams::detach`].
    attached: Vec<StreamId>,
    detached: DetachedBlocks,
    next_serial: u32,
    pub(crate) names: Names,
    /// Number of times that [`At::run`](crate::executive::At::run) has begun with no work left of the call before.
    turn: u32,
}

impl Streams {
    /// Number of put procedures that may follow from one before the stream's modules are taken to send a message round for ever.
    pub(crate) const PUTS_MAX: u32 = 1_000_000;

    pub(crate) fn new(now: Instant) -> Self {
        Self {
            slab: Slab::new(),
            next_generation: 0,
            scheduler: Scheduler::new(now),
            pool: Pool::default(),
            attached: Vec::new(),
            detached: DetachedBlocks::default(),
            next_serial: 0,
            names: Names::default(),
            turn: 0,
        }
    }

    /// Begins a turn of the service procedures, unless the last one goes on. Returns its number.
    pub(crate) fn begin_turn(&mut self) -> u32 {
        if !self.scheduler.is_behind() {
            self.turn = self.turn.wrapping_add(1);
        }
        self.turn
    }

    pub(crate) fn next_serial(&mut self) -> u32 {
        self.next_serial = self.next_serial.wrapping_add(1);
        self.next_serial
    }

    pub(crate) fn insert(&mut self, driver: DriverId, info: &DriverInfo, open: &Open) -> StreamId {
        let generation = self.next_generation;
        self.next_generation = self.next_generation.wrapping_add(1);
        let index = self.slab.insert(Stream {
            generation,
            driver,
            minor: open.minor,
            opens: 1,
            owner: open.credentials,
            head: Head::new(info),
            modules: Vec::new(),
            device: QueuePair::new(info.read, info.write),
            credit: CreditAccount::default(),
            inputs: 0,
            broken: false,
        });
        let index = u32::try_from(index).expect("an executive has less than 2^32 streams");
        StreamId { index, generation }
    }

    pub(crate) fn remove(&mut self, s: StreamId) -> Option<Stream> {
        if self.get_mut(s)?.head.waiters().has_programs() {
            self.scheduler.forget_signals(s, None);
        }
        let stream = self.slab.try_remove(s.index())?;
        if stream.head.is_closing() {
            self.scheduler.on_draining_ended();
        }
        // Those that a fault has left.
        stream.modules.iter().for_each(|module| self.scheduler.memory.forget(s, module.serial));
        Some(stream)
    }

    /// Enables the service procedure of the next queue that waits for memory and is to try again. Returns false if there is none.
    pub(crate) fn enable_next_due(&mut self) -> bool {
        let Some((at, serial)) = self.scheduler.memory.next_due() else { return false };
        if let Place::Module(index) = at.place
            && let Some((stream, scheduler)) = self.parts(at.stream)
        {
            stream.enable_module(at, index.into(), serial, scheduler);
        } else {
            self.scheduler.memory.end_try(at);
        }
        true
    }

    /// Returns the memory of a stream with modules; `None` if nobody counts it.
    pub(crate) fn memory_of_modules(&self, s: StreamId) -> Option<Arc<dyn StreamMemory>> {
        let stream = self.get(s).filter(|stream| stream.has_modules())?;
        stream.head.memory().cloned()
    }

    /// Returns the memory of a stream that is linked under a multiplexor, whose driver serves it.
    pub(crate) fn memory_of_link(&self, s: StreamId) -> Option<Arc<dyn StreamMemory>> {
        let head = &self.get(s)?.head;
        head.link().and_then(|_| head.memory().cloned())
    }

    #[inline]
    pub(crate) fn get(&self, s: StreamId) -> Option<&Stream> {
        self.slab.get(s.index()).filter(|stream| stream.generation == s.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, s: StreamId) -> Option<&mut Stream> {
        self.slab.get_mut(s.index()).filter(|stream| stream.generation == s.generation)
    }

    /// Returns a stream and the scheduler.
    #[inline]
    pub(crate) fn parts(&mut self, s: StreamId) -> Option<(&mut Stream, &mut Scheduler)> {
        let stream = self.slab.get_mut(s.index()).filter(|stream| stream.generation == s.generation)?;
        Some((stream, &mut self.scheduler))
    }

    /// Returns a stream, the scheduler and the pool.
    #[inline]
    pub(crate) fn all_parts(&mut self, s: StreamId) -> Option<(&mut Stream, &mut Scheduler, &mut Pool)> {
        let stream = self.slab.get_mut(s.index()).filter(|stream| stream.generation == s.generation)?;
        Some((stream, &mut self.scheduler, &mut self.pool))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.slab.iter().map(|(index, stream)| {
            (
                StreamId { index: u32::try_from(index).unwrap_or(u32::MAX), generation: stream.generation },
                stream,
            )
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slab.iter_mut().map(|(_, stream)| stream)
    }

    /// Passes a driver's message to the next queue above.
    #[inline]
    pub(crate) fn put_up(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.parts(s) else { return };
        if stream.modules.is_empty() {
            stream.head.put(s, m, scheduler);
            // After a burst without data, too, a pause frees the memory of the queue.
            if stream.head.queue.has_room_of_burst() && !stream.head.attach() {
                self.attached.push(s);
            }
            return;
        }
        let credit_bytes = m.receive_credit().map_or(0, |credit| credit.bytes);
        self.put_up_modules(s, credit_bytes, m);
    }

    /// Passes a driver's message to the lowest module. `credit_bytes` is the receive window that the message occupies.
    #[inline]
    fn put_up_modules(&mut self, s: StreamId, credit_bytes: usize, m: Message) {
        let Some((stream, scheduler)) = self.parts(s) else { return };
        stream.credit.on_sent_up(credit_bytes);
        stream.on_input();
        let at = QueueRef { stream: s, place: Place::Module(0), side: Side::Read };
        let is_next = scheduler.is_quiet();
        scheduler.post(at, m);
        if !is_next {
            self.deliver();
            return self.check_credit(s);
        }
        if stream.carry(s, scheduler, &mut { Self::PUTS_MAX })
            && let Some(Post { message, .. }) = scheduler.take_current()
        {
            scheduler.defer(DriverCall::Put { stream: s, message });
        }
        stream.check_credit(s, scheduler);
        if !scheduler.is_quiet() {
            self.deliver();
            self.check_credit(s);
        }
    }

    /// Fails a stream whose modules have discarded messages without the return of their receive window.
    #[inline]
    pub(crate) fn check_credit(&mut self, s: StreamId) {
        if let Some((stream, scheduler)) = self.parts(s) {
            stream.check_credit(s, scheduler);
        }
    }

    /// Passes a driver's user data to the next queue above; builds the message in place on the head's queue if no module is
    /// pushed.
    #[inline]
    pub(crate) fn put_data_up(&mut self, s: StreamId, association: Which, info: &RecvInfo, data: Chain) {
        let Some((stream, scheduler)) = self.parts(s) else { return };
        let listed = stream.head.attach();
        if stream.modules.is_empty() {
            stream.head.put_data(s, association, info, data, scheduler);
        } else {
            self.put_up_modules(s, data.len(), Message::optdata_ind(association, *info, data));
        }
        if !listed {
            self.attached.push(s);
        }
    }

    /// Passes a driver's messages to the head as one entry.
    #[inline]
    pub(crate) fn put_run_up(&mut self, s: StreamId, run: Run, data: Bytes) {
        let Some((stream, scheduler)) = self.parts(s) else { return };
        debug_assert!(stream.takes_runs(), "modules see single messages");
        let listed = stream.head.attach();
        stream.head.put(s, Message::with_data(Kind::Run(run), Chain::from(data)), scheduler);
        if !listed {
            self.attached.push(s);
        }
    }

    /// Returns whether a stream has received data since the last [`Streams::detach`], or memory for copies is kept.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        !self.attached.is_empty() || self.detached.is_bulky()
    }

    /// Copies the data that waits in queues out of shared memory. In a `pause`, empty queues also free the memory of a burst.
    pub(crate) fn detach(&mut self, pause: bool) {
        let mut listed = std::mem::take(&mut self.attached);
        let mut blocks = std::mem::take(&mut self.detached);
        listed.retain(|&s| self.get_mut(s).is_some_and(|stream| stream.detach(&mut blocks, pause)));
        if pause {
            blocks.on_pause();
        }
        (self.attached, self.detached) = (listed, blocks);
    }

    /// Sends a message down from `place` through the modules. Returns whether it has reached the driver, which takes it from
    /// [`Streams::take_arrived`].
    #[inline(always)]
    pub(crate) fn put_to_modules(&mut self, s: StreamId, place: Place, m: Message) -> bool {
        let Some((stream, scheduler)) = self.parts(s) else { return false };
        stream.on_input();
        let at = QueueRef { stream: s, place, side: Side::Write };
        let is_next = scheduler.is_quiet();
        scheduler.post(at, m);
        is_next && stream.carry(s, scheduler, &mut { Self::PUTS_MAX })
    }

    /// Takes the message that has reached its driver.
    #[inline(always)]
    pub(crate) fn take_arrived(&mut self) -> Option<Post> {
        self.scheduler.take_current()
    }

    /// Runs put procedures until no message is on its way between modules. Messages that reach a driver wait as calls: the
    /// driver may be the caller.
    pub(crate) fn deliver(&mut self) {
        if self.scheduler.is_quiet() {
            return;
        }
        let mut puts_left = Self::PUTS_MAX;
        while let Some((stream, message)) = self.deliver_to_driver(&mut puts_left) {
            self.scheduler.defer(DriverCall::Put { stream, message });
        }
    }

    /// Runs put procedures until no message is on its way between modules, or one has reached its driver.
    #[inline]
    pub(crate) fn deliver_to_driver(&mut self, puts_left: &mut u32) -> Option<(StreamId, Message)> {
        while let Some(at) = self.scheduler.next_current() {
            let Some((stream, scheduler)) = self.parts(at.stream) else {
                drop(self.scheduler.take_current());
                continue;
            };
            if stream.carry(at.stream, scheduler, puts_left) {
                return scheduler.take_current().map(|post| (at.stream, post.message));
            }
        }
        None
    }
}

impl Stream {
    #[inline]
    pub(crate) fn driver(&self) -> DriverId {
        self.driver
    }

    /// Returns the minor device of the stream.
    pub(crate) fn minor(&self) -> u32 {
        self.minor
    }

    /// Returns the user that opened the stream first.
    pub(crate) fn owner(&self) -> Credentials {
        self.owner
    }

    /// Counts one more open.
    pub(crate) fn open_again(&mut self) {
        self.opens += 1;
    }

    /// Counts a close. Returns whether it was the last.
    pub(crate) fn close_once(&mut self) -> bool {
        self.opens -= 1;
        self.opens == 0
    }

    /// Returns the modules, from the driver upward.
    #[inline]
    pub(crate) fn modules(&self) -> &[Slot] {
        &self.modules
    }

    #[inline]
    pub(crate) fn has_modules(&self) -> bool {
        !self.modules.is_empty()
    }

    /// Adds a module below the head.
    pub(crate) fn push(&mut self, slot: Slot) {
        if self.modules.is_empty() {
            self.open_credit();
        }
        self.modules.push(slot);
    }

    /// Removes the slot below the head.
    pub(crate) fn pop(&mut self) -> Option<Slot> {
        self.modules.pop()
    }

    /// Returns the index of the module below the head; `None` if there is none.
    pub(crate) fn uppermost(&self) -> Option<usize> {
        self.modules.iter().rposition(|slot| !slot.popped)
    }

    /// Returns the modules that were not popped, from the head downward.
    pub(crate) fn visible_modules(&self) -> impl Iterator<Item = &Slot> {
        self.modules.iter().rev().filter(|slot| !slot.popped)
    }

    /// Anchors the module below the head (`I_ANCHOR`); `None` if there is none.
    pub(crate) fn anchor(&mut self) -> Option<()> {
        let index = self.uppermost()?;
        self.modules[index].anchored = true;
        Some(())
    }

    /// Takes a module out of its place, where its messages stay until their service procedures have passed them on.
    pub(crate) fn take_module(
        &mut self,
        s: StreamId,
        index: usize,
        serial: u32,
        scheduler: &mut Scheduler,
    ) -> Option<Box<dyn crate::Module>> {
        let module = self.modules.get_mut(index)?.take_module(serial);
        self.on_input();
        self.enable_queued(s, scheduler);
        // A queue that waited for room further along may find it here, and would not be enabled past this place.
        self.back_enable_past(s, index, scheduler);
        Some(module)
    }

    /// Returns whether nothing is left of the module that was popped from the place below the head.
    pub(crate) fn has_passed_popped(&self) -> bool {
        self.modules.last().is_some_and(|slot| slot.popped && slot.queued() == 0)
    }

    /// Returns whether the modules are not called any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns the driver's queues.
    #[inline]
    pub(crate) fn device(&self) -> &QueuePair {
        &self.device
    }

    /// Returns the driver's queues, to change.
    #[inline]
    pub(crate) fn device_mut(&mut self) -> &mut QueuePair {
        &mut self.device
    }

    /// Returns the queue in which a write of the head must find room.
    #[inline]
    pub(crate) fn next_down(&mut self) -> &mut Queue {
        flow::next_down(&mut self.modules, &mut self.device)
    }

    /// Returns the queue in which a message of the driver must find room.
    #[inline]
    pub(crate) fn next_up(&mut self) -> &mut Queue {
        flow::next_up(&mut self.modules, &mut self.head)
    }

    /// Enables the nearest service procedure below the head, whose queue has room again.
    pub(crate) fn back_enable_below(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        flow::back_enable_below(s, &mut self.modules, &mut self.device, scheduler);
    }

    /// Enables the nearest service procedure above the driver, whose queue has room again, or wakes the writers.
    pub(crate) fn back_enable_above(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        flow::back_enable_above(s, &mut self.modules, 0, &mut self.head, scheduler);
    }

    /// Enables both neighbours of the place `index` below the head, where a module was pushed or popped.
    pub(crate) fn back_enable_past(&mut self, s: StreamId, index: usize, scheduler: &mut Scheduler) {
        self.head.back_enable(s, scheduler);
        flow::back_enable_below(s, &mut self.modules[..index], &mut self.device, scheduler);
    }

    /// Returns the readiness of the stream.
    pub(crate) fn poll(&mut self) -> Readiness {
        self.head.poll(flow::next_down(&mut self.modules, &mut self.device))
    }

    /// Notes that something has come to the modules from outside.
    #[inline]
    fn on_input(&mut self) {
        self.inputs = self.inputs.wrapping_add(1);
    }

    /// Counts receive window of messages on their way up that has returned to the driver.
    #[inline]
    pub(crate) fn on_credit_returned(&mut self, bytes: usize) {
        self.credit.on_returned(bytes);
    }

    /// Frees memory that queues keep from earlier bursts.
    pub(crate) fn trim(&mut self) {
        self.head.queue.trim(0);
        for QueuePair { read, write } in
            self.modules.iter_mut().map(|slot| &mut slot.queues).chain([&mut self.device])
        {
            read.trim(0);
            write.trim(0);
        }
    }

    /// Returns whether nothing is between the head and the driver: no module is pushed, and no earlier message waits.
    #[inline]
    pub(crate) fn is_clear_below(&self) -> bool {
        self.modules.is_empty() && self.device.write.is_empty()
    }

    /// Returns whether messages may come up together: only the reader at the head will see them.
    #[inline]
    pub(crate) fn takes_runs(&self) -> bool {
        self.modules.is_empty() && self.head.has_reader()
    }

    /// Returns whether a write may go to the driver in the driver's own form: no module is pushed, nothing waits before it, and
    /// writes are `T_OPTDATA_REQ`.
    #[inline]
    pub(crate) fn writes_past(&mut self) -> bool {
        self.head.writes_directly() && self.modules.is_empty() && !self.waits_below()
    }

    /// Returns whether the driver may lend its own form to writers: modules only look at what is written.
    #[inline]
    pub(crate) fn lends(&mut self) -> bool {
        self.head.writes_directly() && self.device.write.is_empty() && self.only_observes_writes()
    }

    /// Returns whether a write has to wait, or to take its turn: the next queue with a service procedure is full, or
    /// messages that the driver has no room for wait on its queue, which a write must not pass.
    #[inline]
    pub(crate) fn waits_below(&mut self) -> bool {
        match self.modules.is_empty() {
            true => !self.device.write.is_empty(),
            false => self.next_down().is_full(0),
        }
    }

    /// Copies the data that waits on its way up. Returns whether a queue still keeps memory of a burst.
    fn detach(&mut self, blocks: &mut DetachedBlocks, pause: bool) -> bool {
        let Stream { head, modules, device, .. } = self;
        // A module may take messages from the middle of its queue: one that stays would keep the block of many that have gone.
        let modules = modules.iter_mut().map(|slot| (&mut slot.queues.read, false));
        let mut bulky = false;
        for (queue, is_read_in_order) in modules.chain([(&mut head.queue, true), (&mut device.read, true)]) {
            queue.detach(is_read_in_order.then_some(&mut *blocks));
            if pause {
                queue.trim_burst();
            }
            bulky |= queue.is_bulky();
        }
        head.on_detached(bulky);
        bulky
    }

    /// Runs the put procedures along the path of the scheduler's message, while each sends on one message at most.
    /// Returns whether that message has reached the driver. A module that panics fails its stream, and nothing else;
    /// messages that it has sent on stay on their way.
    #[inline]
    pub(crate) fn carry(&mut self, s: StreamId, scheduler: &mut Scheduler, puts_left: &mut u32) -> bool {
        let carried = catch_unwind(AssertUnwindSafe(|| self.carry_on(s, &mut *scheduler, puts_left)));
        carried.unwrap_or_else(|_| {
            scheduler.discard_shown();
            self.fail(s, scheduler);
            self.enable_queued(s, scheduler);
            false
        })
    }

    /// Enables the service procedures of all modules that hold messages: one that panicked may have stopped for messages that it
    /// had sent on, which no other event will tell it.
    #[cold]
    fn enable_queued(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        for (index, slot) in self.modules.iter_mut().enumerate() {
            for side in [Side::Read, Side::Write] {
                let queue = slot.queues.side(side);
                if queue.has_service() && !queue.is_empty() {
                    scheduler.qenable(queue, flow::module_at(s, index, side));
                }
            }
        }
    }

    #[inline]
    fn carry_on(&mut self, s: StreamId, scheduler: &mut Scheduler, puts_left: &mut u32) -> bool {
        loop {
            let Some(QueueRef { stream, place, side }) = scheduler.current_at() else { return false };
            debug_assert_eq!(stream, s, "a procedure sends on its own stream");
            let index = match place {
                Place::Module(index) => usize::from(index),
                Place::BelowHead if !self.modules.is_empty() => self.modules.len() - 1,
                Place::BelowHead | Place::Driver => return true,
                Place::Head => {
                    self.put_to_head(s, scheduler);
                    return false;
                }
            };
            if self.broken || *puts_left == 0 {
                self.refuse_round(s, side, scheduler);
                return false;
            }
            *puts_left -= 1;
            if !self.passes_observer(index, side, scheduler) {
                self.run_put(s, index, side, scheduler);
            }
        }
    }

    #[inline]
    fn put_to_head(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        let Some(Post { message: m, .. }) = scheduler.take_current() else { return };
        if matches!(m.kind, Kind::Hangup) && self.holds_for_reader() {
            self.head.hang_up_behind_modules(s, scheduler);
        } else {
            self.head.put(s, m, scheduler);
        }
    }

    /// Discards a message that modules send round for ever, and fails the stream for good.
    #[cold]
    fn refuse_round(&mut self, s: StreamId, side: Side, scheduler: &mut Scheduler) {
        if let Some(Post { message: m, .. }) = scheduler.take_current()
            && side == Side::Read
        {
            scheduler.return_credit(s, &m);
        }
        self.break_off(s, scheduler);
    }

    /// Fails a stream for good: its modules are not called any more.
    #[cold]
    pub(crate) fn break_off(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        if !std::mem::replace(&mut self.broken, true) {
            self.fail(s, scheduler);
        }
    }

    /// Fails the stream if its modules have discarded messages without the return of their receive window. That shows when no
    /// message is on its way up: a module keeps messages on its queues and nowhere else.
    #[inline]
    pub(crate) fn check_credit(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        if self.credit.is_owed()
            && self.head.queue.is_empty()
            && !self.modules.is_empty()
            && scheduler.is_drained()
            && !self.holds_for_reader()
            && self.device.read.is_empty()
        {
            self.break_off(s, scheduler);
        }
    }

    /// Begins the account of the receive window of messages on their way up, because the first module is pushed.
    fn open_credit(&mut self) {
        let queued = self.head.queue.iter().chain(self.device.read.iter());
        let bytes = queued.filter_map(Message::receive_credit).map(|credit| credit.bytes).sum();
        self.credit = CreditAccount::of_queued(bytes);
    }

    #[cold]
    fn fail(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        let failed = Kind::Error { read: Some(Errno::EIO), write: Some(Errno::EIO) };
        self.head.put(s, Message::new(failed), scheduler);
    }

    /// Runs the put procedure of a module with the scheduler's message. It may panic.
    #[inline]
    fn run_put(&mut self, s: StreamId, index: usize, side: Side, scheduler: &mut Scheduler) {
        let Stream { head, modules, device, .. } = self;
        if index >= modules.len() {
            // The module was popped.
            return drop(scheduler.take_current());
        }
        let mut ahead = Ahead::default();
        let parts = Parts { modules, head, device };
        let Some((module, mut q)) = Q::at(s, index, side, parts, scheduler, &mut ahead) else { return };
        // Taken last, the message is moved once.
        if let Some(Post { message: m, .. }) = q.take_current() {
            match side {
                Side::Write => module.wput(&mut q, m),
                Side::Read => module.rput(&mut q, m),
            }
        }
        q.finish();
        self.hang_up_if_drained(s, scheduler);
    }

    /// Returns whether a module holds messages on their way up.
    fn holds_for_reader(&self) -> bool {
        self.modules.iter().any(|slot| !slot.queues.read.is_empty())
    }

    /// Passes the delayed hang-up to the head, behind the messages that the last module has just sent up.
    #[inline]
    pub(crate) fn hang_up_if_drained(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        if self.head.delays_hang_up() && !self.holds_for_reader() {
            self.head.end_delay_of_hang_up();
            let head = QueueRef { stream: s, place: Place::Head, side: Side::Read };
            scheduler.post(head, Message::new(Kind::Hangup));
        }
    }

    /// Runs the service procedure of a module that is enabled.
    pub(crate) fn run_service(
        &mut self,
        s: StreamId,
        index: usize,
        side: Side,
        turn: u32,
        scheduler: &mut Scheduler,
    ) {
        // A stream that gets something in a long turn may need many runs for it.
        let turn = turn.wrapping_add(self.inputs);
        let Some(slot) = self.modules.get_mut(index) else { return };
        let queue = slot.queues.side(side);
        // The module may have been popped since, and another may have its place.
        if !queue.clear_enabled() || self.broken {
            return;
        }
        if queue.runs_too_often(turn) {
            self.break_off(s, scheduler);
        } else {
            // The head has learned of a fault.
            let _ = self.run(s, index, side, Procedure::Service, scheduler);
        }
    }

    /// Enables the service procedure of the module with this index and serial number, unless that was popped.
    fn enable_module(&mut self, at: QueueRef, index: usize, serial: u32, scheduler: &mut Scheduler) {
        if let Some(slot) = self.modules.get_mut(index).filter(|slot| slot.serial == serial) {
            scheduler.qenable(slot.queues.side(at.side), at);
            self.on_input();
        } else {
            scheduler.memory.end_try(at);
        }
    }

    /// Handles a timer of the module with this index and serial number, unless that was popped.
    pub(crate) fn run_timer(
        &mut self,
        s: StreamId,
        index: usize,
        serial: u32,
        side: Side,
        timer: TimerId,
        scheduler: &mut Scheduler,
    ) {
        let is_there = self.modules.get(index).is_some_and(|slot| slot.serial == serial);
        if is_there && !self.broken {
            self.on_input();
            // The head has learned of a fault.
            let _ = self.run(s, index, side, Procedure::Timer(timer), scheduler);
        }
    }

    /// Runs another procedure of a module. A module that panics fails its stream, and nothing else.
    pub(crate) fn run(
        &mut self,
        s: StreamId,
        index: usize,
        side: Side,
        procedure: Procedure,
        scheduler: &mut Scheduler,
    ) -> Result<(), Errno> {
        let Stream { head, modules, device, .. } = self;
        let mut ahead = Ahead::default();
        let parts = Parts { modules, head, device };
        let Some((module, mut q)) = Q::at(s, index, side, parts, scheduler, &mut ahead) else {
            return Ok(());
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            match (procedure, side) {
                (Procedure::Service, Side::Write) => module.wsrv(&mut q),
                (Procedure::Service, Side::Read) => module.rsrv(&mut q),
                (Procedure::Timer(id), _) => module.timeout(&mut q, id),
                (Procedure::Open, _) => return module.open(&mut q),
                (Procedure::Leave, _) => {
                    return if module.leave(&mut q) { Ok(()) } else { Err(Errno::EBUSY) };
                }
                (Procedure::Close, _) => module.close(&mut q),
            }
            Ok(())
        }));
        q.finish();
        self.hang_up_if_drained(s, scheduler);
        self.check_credit(s, scheduler);
        outcome.unwrap_or_else(|_| {
            self.fail(s, scheduler);
            Err(Errno::EIO)
        })
    }
}
