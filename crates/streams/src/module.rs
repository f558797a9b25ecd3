//! Modules, which can be pushed between the head and the driver of a stream.

pub(crate) mod flow;
pub(crate) mod slot;

use std::time::{Duration, Instant};

use crate::head::Head;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::memory::{Charge, StateCharge};
use crate::message::{CopyRequest, Credit, Flush, IocAck, IocNak, Ioctl, Kind, Message, Seen};
use crate::queue::{Queue, QueueInfo, QueuePair, SERVED_MAX};
use crate::scheduler::{DriverCall, Post, Scheduler};
use crate::timers::{Alarm, TimerId};
use crate::{Chain, Errno, Which};
use slot::Slot;

/// The queues of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The queue for messages on their way up.
    pub read: QueueInfo,
    /// The queue for messages on their way down.
    pub write: QueueInfo,
}

impl Default for ModuleInfo {
    /// Returns two queues without service procedures.
    fn default() -> Self {
        Self { read: QueueInfo::PASS, write: QueueInfo::PASS }
    }
}

/// A module: handles every message that passes its place on a stream.
///
/// Each procedure gets [`Q`], the module's place on the stream, and returns soon: it never blocks. Messages that it sends on are
/// delivered when it has returned. The provided procedures pass everything on.
///
/// A module that panics makes its stream fail with `EIO`; other streams continue.
pub trait Module: Send {
    /// Returns the module's name.
    fn name(&self) -> &str;

    /// Returns the marks of the module's queues, and which queues have a service procedure.
    fn info(&self) -> ModuleInfo {
        ModuleInfo::default()
    }

    /// Returns the module's counters with their names, for display.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Returns whether the module has nothing left to do, such as a tap whose reader has gone: the stream's manager pops it once
    /// no other module stands above it ([`Executive::pop_finished`](crate::Executive::pop_finished)).
    fn is_finished(&self) -> bool {
        false
    }

    /// Returns whether opening the stream's minor device makes a pipe of its own, with the reader at the other end of this one
    /// (`connld`).
    fn opens_connections(&self) -> bool {
        false
    }

    /// Returns whether the module observes messages ([`Module::observe`]). Asked when the module is pushed.
    fn observes(&self) -> bool {
        false
    }

    /// Looks at a message on its way, and returns whether it passes, as [`Q::pass`] would send it. If not, the put procedure
    /// gets it. This costs less than a put procedure: the message is not moved, and the bytes that a program writes are not
    /// copied. Flushes, and messages of a side whose queue has a service procedure, always go to the put procedure.
    fn observe(&mut self, _side: Side, _now: Instant, _m: &Seen<'_>) -> bool {
        false
    }

    /// Handles being pushed. An error undoes the push.
    fn open(&mut self, _q: &mut Q<'_>) -> Result<(), Errno> {
        Ok(())
    }

    /// Returns whether the module may be popped now. A module that must first hear from its other end returns false and begins to
    /// leave; it calls [`Q::may_leave`] when it may be popped, and a later call pops it. A stream
    /// that is closed pops its modules without this call.
    fn leave(&mut self, _q: &mut Q<'_>) -> bool {
        true
    }

    /// Prepares for being popped. Messages on the module's queues then go on to the next queue in their direction; a module that
    /// does not want that calls [`Q::flushq`].
    fn close(&mut self, _q: &mut Q<'_>) {}

    /// Handles a message on its way down.
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.pass(m);
    }

    /// Handles a message on its way up.
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        q.pass(m);
    }

    /// Handles the queued messages on their way down.
    fn wsrv(&mut self, q: &mut Q<'_>) {
        q.pass_queued();
    }

    /// Handles the queued messages on their way up.
    fn rsrv(&mut self, q: &mut Q<'_>) {
        q.pass_queued();
    }

    /// Handles the expiry of a timer that a procedure of the same side has started with [`Q::timeout`].
    fn timeout(&mut self, _q: &mut Q<'_>, _timer: TimerId) {}
}

/// The place of a module on its stream, as one of its procedures sees it.
///
/// All operations act on the side of the procedure: the read queue in `rput` and `rsrv`, the write queue in `wput` and `wsrv`
/// (and in `open` and `close`). [`Q::other`] is the other side.
#[derive(Debug)]
pub struct Q<'a> {
    stream: StreamId,
    index: usize,
    side: Side,
    serial: u32,
    own: &'a mut QueuePair,
    below: &'a mut [Slot],
    above: &'a mut [Slot],
    head: &'a mut Head,
    device: &'a mut QueuePair,
    scheduler: &'a mut Scheduler,
    ahead: &'a mut Ahead,
}

/// The parts of a stream that the place of a module gives access to.
pub(crate) struct Parts<'a> {
    pub(crate) modules: &'a mut [Slot],
    pub(crate) head: &'a mut Head,
    pub(crate) device: &'a mut QueuePair,
}

/// Messages that a procedure has sent on and that have not arrived yet: `canputnext` counts them as arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    up_bytes: usize,
    down_bytes: usize,
    /// `canputnext` returned false because of these bytes alone, so no other event will enable the queue.
    stopped_up: bool,
    stopped_down: bool,
}

impl<'a> Q<'a> {
    /// Returns the module at `index` of a stream, and its place as a procedure of `side` sees it; `None` if there is none.
    #[inline]
    pub(crate) fn at(
        stream: StreamId,
        index: usize,
        side: Side,
        parts: Parts<'a>,
        scheduler: &'a mut Scheduler,
        ahead: &'a mut Ahead,
    ) -> Option<(&'a mut dyn Module, Self)> {
        let Parts { modules, head, device } = parts;
        let (below, rest) = modules.split_at_mut_checked(index)?;
        let (slot, above) = rest.split_first_mut()?;
        let Slot { module, queues: own, serial, .. } = slot;
        let q =
            Self { stream, index, side, serial: *serial, own, below, above, head, device, scheduler, ahead };
        Some((&mut **module, q))
    }

    /// Takes the message that the procedure is called for.
    #[inline(always)]
    pub(crate) fn take_current(&mut self) -> Option<Post> {
        self.scheduler.take_current()
    }

    /// Returns the stream.
    #[inline]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Returns the side.
    #[inline]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns this place seen from the other side (`OTHERQ`).
    #[inline]
    pub fn other(&mut self) -> Q<'_> {
        Q {
            stream: self.stream,
            index: self.index,
            side: self.side.other(),
            serial: self.serial,
            own: self.own,
            below: self.below,
            above: self.above,
            head: self.head,
            device: self.device,
            scheduler: self.scheduler,
            ahead: self.ahead,
        }
    }

    /// Sends a message on to the next queue.
    #[inline]
    pub fn putnext(&mut self, m: Message) {
        let bytes = m.weight_bytes();
        self.putnext_of(bytes, m);
    }

    /// Sends a message of this weight on.
    #[inline]
    fn putnext_of(&mut self, bytes: usize, m: Message) {
        match self.side {
            Side::Read => self.ahead.up_bytes += bytes,
            Side::Write => self.ahead.down_bytes += bytes,
        }
        let at = self.next(self.side);
        self.scheduler.post(at, m);
    }

    /// Sends a message back in the direction that this side's messages come from.
    #[inline]
    pub fn qreply(&mut self, m: Message) {
        let at = self.next(self.side.other());
        self.scheduler.post(at, m);
    }

    /// Queues a message here, for the service procedure.
    pub fn putq(&mut self, m: Message) {
        if self.queue().is_flooded() {
            return self.refuse_flood(m);
        }
        if self.own_queue().putq(m) {
            self.qenable();
        }
    }

    /// Discards a message and fails the stream, because a module queues without end.
    #[cold]
    fn refuse_flood(&mut self, m: Message) {
        self.freemsg(m);
        let at = QueueRef { stream: self.stream, place: Place::Head, side: Side::Read };
        self.scheduler
            .post(at, Message::new(Kind::Error { read: Some(Errno::EIO), write: Some(Errno::EIO) }));
    }

    /// Puts back a message that could not be handled now.
    pub fn putbq(&mut self, m: Message) {
        if self.own_queue().putbq(m) {
            self.qenable();
        }
    }

    /// Takes the first message from this queue.
    pub fn getq(&mut self) -> Option<Message> {
        let m = self.own_queue().getq();
        self.scheduler.count_work();
        self.on_removed();
        m
    }

    /// Returns the queue of this side.
    #[inline]
    pub fn queue(&self) -> &Queue {
        match self.side {
            Side::Read => &self.own.read,
            Side::Write => &self.own.write,
        }
    }

    /// Returns whether this side's queue has room in this band. If not, the queue remembers the caller.
    #[inline]
    pub fn canput(&mut self, band: u8) -> bool {
        self.own_queue().canput(band)
    }

    /// Returns whether the next queue with a service procedure has room in this band (`bcanputnext`). If not, this side's service
    /// procedure is enabled once it has.
    #[inline]
    pub fn canputnext(&mut self, band: u8) -> bool {
        let (next, ahead_bytes, stopped) = match self.side {
            Side::Read => {
                (flow::next_up(self.above, self.head), self.ahead.up_bytes, &mut self.ahead.stopped_up)
            }
            Side::Write => (
                flow::next_down(self.below, self.device),
                self.ahead.down_bytes,
                &mut self.ahead.stopped_down,
            ),
        };
        if !next.canput(band) {
            return false;
        }
        let fills = next.would_fill(band, ahead_bytes);
        *stopped |= fills;
        !fills
    }

    /// Returns whether nothing that is sent down the stream arrives any more: it has failed or was hung up.
    pub fn is_cut_off(&self) -> bool {
        self.head.is_failed()
    }

    /// Tells those who wait to pop this module that [`Module::leave`] would return true now, after it has returned false.
    pub fn may_leave(&mut self) {
        // Others above this one are popped first. Of those that were popped only messages are left.
        if self.above.iter().all(|slot| slot.popped) {
            self.head.on_poppable(self.stream, self.scheduler);
        }
    }

    /// Enables this side's service procedure.
    pub fn qenable(&mut self) {
        let at = flow::module_at(self.stream, self.index, self.side);
        let queue = self.own.side(self.side);
        if queue.has_service() {
            self.scheduler.qenable(queue, at);
        }
    }

    /// Stops `putq` from enabling this side's service procedure, except for high-priority messages.
    pub fn noenable(&mut self) {
        self.own_queue().noenable();
    }

    /// Undoes [`Q::noenable`].
    pub fn enableok(&mut self) {
        self.own_queue().enableok();
    }

    /// Discards the messages on this side's queue that `flush` selects.
    pub fn flushq(&mut self, flush: &Flush) {
        let Self { stream, side, own, scheduler, .. } = self;
        own.side(*side).flushq(flush, |m| {
            if *side == Side::Read {
                scheduler.return_credit(*stream, &m);
            }
        });
        self.on_removed();
    }

    /// Frees a message. The receive window of user data on its way up returns to the driver.
    pub fn freemsg(&mut self, m: Message) {
        if self.side == Side::Read {
            self.scheduler.return_credit(self.stream, &m);
        }
    }

    /// Returns receive window for `bytes` of an association that a module took out of a message.
    pub fn credit(&mut self, association: Which, bytes: usize) {
        let credit = Credit { association, bytes, charges: 1 };
        self.scheduler.defer(DriverCall::Consumed { stream: self.stream, credit });
    }

    /// Charges the memory of the stream for data of this length that the module makes: [`Charge::on`] joins the two. Without
    /// memory that counts ([`Cx::set_memory`](crate::Cx::set_memory)), the charge is of nothing.
    ///
    /// On the way up, returns `None` if the memory is used up, or other queues wait for it; then this side's service procedure is
    /// enabled once it is this queue's turn (`bufcall`). On the way down the data takes the place of data that the module frees,
    /// and is always charged.
    pub fn charge(&mut self, bytes: usize) -> Option<Charge> {
        let bytes = Charge::cost_of(bytes);
        let memory = self.head.memory().cloned();
        if let Some(memory) = &memory {
            let waiter = (flow::module_at(self.stream, self.index, self.side), self.serial);
            match self.side {
                Side::Read if !self.scheduler.memory.take(memory, waiter, bytes) => return None,
                Side::Read => {}
                Side::Write => memory.charge_write(bytes),
            }
        }
        Some(Charge::counted(memory, self.side, bytes))
    }

    /// Charges the memory of the stream for state of this length that the module keeps, beside the messages on its queues.
    /// Without memory that counts, the charge is of nothing. Returns `None` if the memory is used up; the module then does with
    /// less.
    pub fn charge_state(&self, bytes: usize) -> Option<StateCharge> {
        self.head
            .memory()
            .map_or_else(|| Some(Box::new(()) as StateCharge), |memory| memory.take_state(bytes))
    }

    /// Counts work on a message that stays on the queue.
    pub(crate) fn count_work(&mut self) {
        self.scheduler.count_work();
    }

    /// Counts that the module has made so many bytes.
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.scheduler.count_bytes(bytes);
    }

    /// Returns whether the procedure should leave what it has not yet done to a later call: much was done since the owner has
    /// done other work.
    pub(crate) fn is_step_over(&self) -> bool {
        self.scheduler.is_step_over()
    }

    /// Answers an ioctl that was carried out.
    pub fn ack(&mut self, ioctl: &Ioctl, value: i32, data: Chain) {
        self.qreply(Message::with_data(Kind::IocAck(IocAck { id: ioctl.id, value }), data));
    }

    /// Answers an ioctl that is refused.
    pub fn nak(&mut self, ioctl: &Ioctl, errno: Errno) {
        self.qreply(Message::new(Kind::IocNak(IocNak { id: ioctl.id, errno })));
    }

    /// Asks the caller of an ioctl for `bytes` at `address` of its memory; they arrive as [`Kind::IocData`] with `private`.
    pub fn copyin(&mut self, ioctl: &Ioctl, address: u64, bytes: usize, private: u64) {
        let request = CopyRequest { id: ioctl.id, address, bytes, private };
        self.qreply(Message::new(Kind::CopyIn(Box::new(request))));
    }

    /// Asks the caller of an ioctl to store `data` at `address` of its memory; [`Kind::IocData`] with `private` reports the
    /// result.
    pub fn copyout(&mut self, ioctl: &Ioctl, address: u64, data: Chain, private: u64) {
        let request = CopyRequest { id: ioctl.id, address, bytes: data.len(), private };
        self.qreply(Message::with_data(Kind::CopyOut(Box::new(request)), data));
    }

    /// Starts a timer (`timeout`, `qtimeout`). The executive calls [`Module::timeout`] when it has expired, never early, and
    /// never after the module was popped.
    pub fn timeout(&mut self, after: Duration) -> TimerId {
        let place = Place::Module(self.index as u16);
        let alarm = Alarm::Procedure { place, serial: self.serial, side: self.side };
        self.scheduler.timers.start(self.stream, alarm, after)
    }

    /// Stops a timer (`untimeout`, `quntimeout`). Returns false if it has expired before.
    pub fn untimeout(&mut self, timer: TimerId) -> bool {
        self.scheduler.timers.stop(self.stream, timer)
    }

    /// Calls [`Module::timeout`] once there is memory for a block of this many bytes (`bufcall`): in the next turn, since memory
    /// is available or the process ends.
    pub fn bufcall(&mut self, _bytes: usize) -> TimerId {
        self.timeout(Duration::ZERO)
    }

    /// Takes back a call that [`Q::bufcall`] has asked for (`unbufcall`). Returns false if it has come.
    pub fn unbufcall(&mut self, call: TimerId) -> bool {
        self.untimeout(call)
    }

    /// Returns the time that the executive was last given.
    pub fn now(&self) -> Instant {
        self.scheduler.timers.now()
    }

    /// Sets the water marks of a band of this side's queue (`strqset`). This may give waiters room.
    pub fn strqset(&mut self, band: u8, hiwat_bytes: usize, lowat_bytes: usize) {
        self.own_queue().set_marks(band, hiwat_bytes, lowat_bytes);
        self.back_enable_if_relieved();
    }

    /// Removes a message from the middle of this side's queue (`rmvq`), by its position. This moves the messages in front of it
    /// or behind it, whichever are fewer, and counts as work accordingly.
    pub fn rmvq(&mut self, place: usize) -> Option<Message> {
        let moved = self.queue().cost_of_rmvq(place);
        let m = self.own_queue().rmvq(place);
        self.scheduler.count_removal(moved);
        self.on_removed();
        m
    }

    /// Inserts a message into this side's queue before the one at `place` (`insq`). Returns the message if that would break the
    /// order of priority.
    pub fn insq(&mut self, place: usize, m: Message) -> Result<(), Message> {
        if self.queue().is_flooded() {
            self.refuse_flood(m);
            return Ok(());
        }
        if self.own_queue().insq(place, m)? {
            self.qenable();
        }
        Ok(())
    }

    /// Handles a message that the module has no interest in, as every put procedure must: flushes its queues if the message says
    /// so, queues the message if the queue has a service procedure and the next one has no room, and otherwise passes it on.
    #[inline]
    pub fn pass(&mut self, m: Message) {
        if let Kind::Flush(flush) = &m.kind {
            let flush = *flush;
            self.flush_own(&flush);
        }
        if self.queue().has_service() {
            return self.pass_or_wait(m);
        }
        // Looked at before it is moved, the message is moved as a whole: stored field by field it would delay its next load.
        let bytes = m.weight_bytes();
        self.putnext_of(bytes, m);
    }

    fn pass_or_wait(&mut self, m: Message) {
        let waits = !m.kind.is_high_priority() && (!self.queue().is_empty() || !self.canputnext(m.band));
        if waits { self.putq(m) } else { self.putnext(m) }
    }

    /// Runs a service procedure that only passes on: sends the messages that the next queue has room for. After
    /// [`SERVED_MAX`] messages it enables this side's service procedure for the others.
    pub fn pass_queued(&mut self) {
        for _ in 0..SERVED_MAX {
            let Some(m) = self.getq() else { return };
            if !m.kind.is_high_priority() && !self.canputnext(m.band) {
                return self.putbq(m);
            }
            self.putnext(m);
        }
        self.qenable();
    }

    #[cold]
    fn flush_own(&mut self, flush: &Flush) {
        for (side, goes) in [(Side::Read, flush.read), (Side::Write, flush.write)] {
            if !goes {
                continue;
            }
            if self.side == side { self.flushq(flush) } else { self.other().flushq(flush) }
        }
    }

    /// Finishes the procedure: schedules another look at a queue that stopped because of messages on their way, once these have
    /// arrived.
    #[inline]
    pub(crate) fn finish(mut self) {
        if self.ahead.stopped_up || self.ahead.stopped_down {
            for (side, stopped) in
                [(Side::Read, self.ahead.stopped_up), (Side::Write, self.ahead.stopped_down)]
            {
                self.side = side;
                if stopped {
                    self.qenable();
                }
            }
        }
    }

    #[inline]
    fn own_queue(&mut self) -> &mut Queue {
        self.own.side(self.side)
    }

    /// Returns the next place in the direction of `side`.
    #[inline]
    fn next(&self, side: Side) -> QueueRef {
        let place = match side {
            Side::Read if self.above.is_empty() => Place::Head,
            Side::Read => return flow::module_at(self.stream, self.index + 1, side),
            Side::Write if self.below.is_empty() => Place::Driver,
            Side::Write => return flow::module_at(self.stream, self.index - 1, side),
        };
        QueueRef { stream: self.stream, place, side }
    }

    /// Tells waiting senders, and a close that waits for this queue, that messages have left it.
    #[inline]
    fn on_removed(&mut self) {
        if self.head.is_closing() && self.side == Side::Write && self.queue().is_empty() {
            self.scheduler.list_drained(self.stream);
        }
        self.back_enable_if_relieved();
    }

    #[inline]
    fn back_enable_if_relieved(&mut self) {
        if !self.own_queue().relieved() {
            return;
        }
        match self.side {
            Side::Read => flow::back_enable_below(self.stream, self.below, self.device, self.scheduler),
            Side::Write => {
                flow::back_enable_above(self.stream, self.above, self.index + 1, self.head, self.scheduler)
            }
        }
    }
}
