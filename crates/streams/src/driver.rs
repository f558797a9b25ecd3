//! Drivers, the lower end of streams.

use crate::executive::Names;
use crate::flow;
use crate::head::{Interest, WriteAs};
use crate::message::{CopyRequest, Credentials, Flush, IocAck, IocNak, Ioctl, Kind, Message, Run};
use crate::module::give_credit;
use crate::queue::{Queue, QueueInfo, Side};
use crate::scheduler::{Place, QueueRef};
use crate::stream::{Stream, StreamId, Streams};
use crate::timers::{Alarm, TimerId};
use crate::{Chain, Errno, RecvInfo, SendInfo};
use bytes::Bytes;
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Identifies one driver of an executive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverId(pub(crate) usize);

/// Answer of a driver to a stream head that wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room, and nothing is outstanding: the head need not hold writes back.
    Idle,
    /// There is room.
    Room,
    /// There is no room. The driver remembers the writer, and calls [`Cx::back_enable`] when there is room.
    Full,
    /// The driver can never take the data.
    Fail(Errno),
}

/// The bytes of one write.
#[derive(Clone, Debug)]
pub enum WriteData<'a> {
    /// They lie in the writer's memory. [`Cx::block`] copies them.
    Copied(&'a [u8]),
    /// They lie in a block already.
    Block(Bytes),
}

impl WriteData<'_> {
    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            WriteData::Copied(bytes) => bytes.len(),
            WriteData::Block(block) => block.len(),
        }
    }

    /// Returns whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Data that a flush passes to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// The data that [`Driver::flush_due`] refers to. Other data may wait to be batched.
    Due,
    /// Everything.
    All,
}

/// Limits of the queues of a driver's streams and of the read queue of their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The queue for messages that the driver could not send up.
    pub read: QueueInfo,
    /// The queue for messages that the driver could not take.
    pub write: QueueInfo,
    /// The read queue of the stream head.
    pub head: QueueInfo,
    /// The type of message that a write sends down.
    pub write_as: WriteAs,
}

/// Attributes of an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The minor device.
    pub minor: u32,
    /// `CLONEOPEN`: the executive chose a minor device that was not open.
    pub is_clone: bool,
    /// Whether the minor device was not open before.
    pub is_first: bool,
    /// The user that opens the device.
    pub credentials: Credentials,
}

impl Default for DriverInfo {
    /// Returns 64 KB and 8 KB for the driver, 128 KB and 16 KB for the head; writes are `M_DATA`.
    fn default() -> Self {
        Self {
            read: QueueInfo::served(64 * 1024, 8 * 1024),
            write: QueueInfo::served(64 * 1024, 8 * 1024),
            head: QueueInfo::served(128 * 1024, 16 * 1024),
            write_as: WriteAs::Data,
        }
    }
}

/// A driver: one object for a device, shared by all streams that are open to it.
///
/// The procedures return soon and never block. `put` handles a message at once, or queues it with [`Cx::putq`] for `service`. The
/// procedures of the lower half correspond to interrupts: the owner of the executive calls them when descriptors are ready or a
/// deadline has passed.
pub trait Driver: Any + Send {
    /// Returns the marks of the queues of each stream.
    fn info(&self) -> DriverInfo {
        DriverInfo::default()
    }

    /// Opens a stream, or opens its minor device again. An error undoes the open.
    fn open(&mut self, cx: &mut Cx<'_>, s: StreamId, open: &Open) -> Result<(), Errno>;

    /// Closes a stream for the last of its users. Messages that the driver leaves on its queues are lost.
    fn close(&mut self, cx: &mut Cx<'_>, s: StreamId);

    /// Decides whether `bytes` of user data with this information may come down now. The head asks before every write: the queue
    /// of the stream cannot speak for one of several associations.
    fn admit(&mut self, _s: StreamId, _association: u32, _info: &SendInfo, _bytes: usize) -> Admission {
        Admission::Room
    }

    /// Admits a write and takes it in one step: for a head with no module below it, so that nothing can change the message
    /// between the two. Takes nothing if there is no room or the data can never be taken.
    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: u32,
        info: &SendInfo,
        data: WriteData<'_>,
    ) -> Admission {
        let admission = self.admit(s, association, info, data.len());
        if matches!(admission, Admission::Idle | Admission::Room) {
            let data = cx.block(data);
            self.put(cx, s, Message::optdata_req(association, *info, data));
        }
        admission
    }

    /// Handles a message on its way down.
    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message);

    /// Handles the messages that [`Cx::putq`] has queued.
    fn service(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    /// Runs when the queue above has room again, after [`Cx::canputnext`] returned false.
    fn read_service(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    /// Reopens the receive window: the reader has taken `bytes` of user data and `charges` for overhead: 1 with the rest of a
    /// message, [`Run::charges`] with the rest of a run, otherwise 0.
    fn consumed(
        &mut self,
        _cx: &mut Cx<'_>,
        _s: StreamId,
        _association: u32,
        _bytes: usize,
        _charges: usize,
    ) {
    }

    /// Handles the expiry of a timer that [`Cx::timeout`] has started.
    fn timer(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _timer: TimerId) {}

    /// Links a stream under a stream of this driver (`I_LINK`, `I_PLINK`). An error undoes the link.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the driver is no multiplexor.
    fn link(&mut self, _cx: &mut Cx<'_>, _upper: StreamId, _lower: StreamId) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// Unlinks a linked stream, which its user gets back (`I_UNLINK`, `I_PUNLINK`).
    fn unlink(&mut self, _cx: &mut Cx<'_>, _lower: StreamId) {}

    /// Handles a message that has come up on a linked stream (the put procedure of the lower read queue). The default frees the
    /// message and returns its receive window.
    fn lower_put(&mut self, cx: &mut Cx<'_>, lower: StreamId, m: Message) {
        cx.freemsg(lower, m);
    }

    /// Handles the messages that [`Cx::lower_putq`] has queued.
    fn lower_read_service(&mut self, _cx: &mut Cx<'_>, _lower: StreamId) {}

    /// Runs when a linked stream has room again, after [`Cx::lower_canput`] returned false.
    fn lower_write_service(&mut self, _cx: &mut Cx<'_>, _lower: StreamId) {}

    /// Calls `f` with each descriptor to wait for, and with the interest.
    fn descriptors(&self, _f: &mut dyn FnMut(BorrowedFd<'_>, Interest)) {}

    /// Takes what has arrived; returns whether more may have.
    ///
    /// # Errors
    ///
    /// The error of the system call; the driver stays usable.
    fn receive(&mut self, _cx: &mut Cx<'_>, _now: Instant) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns whether [`Driver::receive`] has work that no descriptor announces.
    fn has_arrivals(&self) -> bool {
        false
    }

    /// Returns the time by which [`Driver::timeout`] must be called.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Handles the passing of the deadline.
    fn timeout(&mut self, _cx: &mut Cx<'_>, _now: Instant) {}

    /// Returns whether the waiting data should be sent now: a batch or the window is full, or nothing is outstanding.
    fn flush_due(&self) -> bool {
        false
    }

    /// Recovers after a call into this driver, or one that this driver made, has unwound: ends the operation in progress, and
    /// fails stream `s`. The driver must stay usable.
    fn fault(&mut self, _cx: &mut Cx<'_>, _s: Option<StreamId>) {}

    /// Returns whether the driver has work left that needs no open stream: data to deliver, a release to finish.
    fn is_busy(&self) -> bool {
        false
    }

    /// Returns whether data waits that only a flush of everything sends.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Passes waiting data to the link.
    fn flush(&mut self, _cx: &mut Cx<'_>, _now: Instant, _scope: FlushScope) {}
}

/// The operations that a driver may perform on its streams while one of its procedures runs. They do nothing on a closed stream.
#[derive(Debug)]
pub struct Cx<'a> {
    streams: &'a mut Streams,
}

impl<'a> Cx<'a> {
    #[inline]
    pub(crate) fn new(streams: &'a mut Streams) -> Self {
        Self { streams }
    }

    /// Returns what the executive knows by name.
    pub(crate) fn names(&mut self) -> &mut Names {
        &mut self.streams.names
    }

    /// Sends a message up.
    #[inline]
    pub fn putnext(&mut self, s: StreamId, m: Message) {
        self.streams.put_up(s, m);
    }

    /// Returns a chain of these blocks, which are moved out: for data that came in parts, without an allocation if an earlier
    /// chain has been read.
    pub fn chain(&mut self, blocks: &mut Vec<Bytes>) -> Chain {
        self.streams.pool.chain(blocks)
    }

    /// Returns the bytes of a write in a block, which is the executive's if they must be copied.
    #[inline]
    pub fn block(&mut self, data: WriteData<'_>) -> Bytes {
        match data {
            WriteData::Copied(bytes) => self.streams.pool.copy_in(bytes),
            WriteData::Block(block) => block,
        }
    }

    /// Sends user data up, as `T_OPTDATA_IND`. Cheaper than [`Cx::putnext`], because it moves less memory.
    #[inline]
    pub fn put_data(&mut self, s: StreamId, association: u32, info: &RecvInfo, data: Chain) {
        self.streams.put_data_up(s, association, info, data);
    }

    /// Returns whether a stream takes messages of user data together, with [`Cx::put_run`]: no module is pushed, and a reader is
    /// there.
    #[inline]
    pub fn takes_runs(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(Stream::takes_runs)
    }

    /// Sends messages of user data up together; only if [`Cx::takes_runs`] returns true. `data` is one block.
    #[inline]
    pub fn put_run(&mut self, s: StreamId, run: Run, data: Bytes) {
        self.streams.put_run_up(s, run, data);
    }

    /// Returns whether streams hold data from [`Cx::put_data`] that may still lie in the driver's memory.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.streams.is_attached()
    }

    /// Copies the data from [`Cx::put_data`] that waits in queues, so that the driver can reuse the memory it was cut from. In a
    /// `pause`, empty queues also free the memory of a burst.
    pub fn detach(&mut self, pause: bool) {
        self.streams.detach(pause);
    }

    /// Returns whether the queue above has room in this band. If not, the executive calls [`Driver::read_service`] once it has.
    #[inline]
    pub fn canputnext(&mut self, s: StreamId, band: u8) -> bool {
        let Some((stream, _)) = self.streams.parts(s) else { return true };
        flow::next_up(&mut stream.modules, &mut stream.head).canput(band)
    }

    /// Wakes a writer that [`Driver::admit`] has refused: there is room again.
    pub fn back_enable(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        stream.head.back_enable(s, scheduler);
    }

    /// Queues a message that the driver cannot take now, for `service`.
    pub fn putq(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.device.write.putq(m) {
            scheduler.qenable(&mut stream.device.write, write_side(s));
        }
    }

    /// Puts back a message that `service` could not handle now.
    pub fn putbq(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.device.write.putbq(m) {
            scheduler.qenable(&mut stream.device.write, write_side(s));
        }
    }

    /// Takes the first message from the driver's queue.
    pub fn getq(&mut self, s: StreamId) -> Option<Message> {
        let (stream, _) = self.streams.parts(s)?;
        let m = stream.device.write.getq();
        self.back_enable_if_relieved(s);
        m
    }

    /// Returns the queue of messages that the driver could not take.
    #[inline]
    pub fn queue(&self, s: StreamId) -> Option<&Queue> {
        Some(&self.streams.get(s)?.device.write)
    }

    /// Enables `service`.
    pub fn qenable(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        scheduler.qenable(&mut stream.device.write, write_side(s));
    }

    /// Stops [`Cx::putq`] from enabling `service`, except for high-priority messages.
    pub fn noenable(&mut self, s: StreamId) {
        if let Some((stream, _)) = self.streams.parts(s) {
            stream.device.write.noenable();
        }
    }

    /// Undoes [`Cx::noenable`].
    pub fn enableok(&mut self, s: StreamId) {
        if let Some((stream, _)) = self.streams.parts(s) {
            stream.device.write.enableok();
        }
    }

    /// Makes reads and writes fail (`M_ERROR`).
    pub fn error(&mut self, s: StreamId, errno: Errno) {
        self.putnext(s, Message::new(Kind::Error { read: Some(errno), write: Some(errno) }));
    }

    /// Hangs the stream up: queued messages can still be read (`M_HANGUP`).
    pub fn hangup(&mut self, s: StreamId) {
        self.putnext(s, Message::new(Kind::Hangup));
    }

    /// Answers an ioctl that was carried out.
    pub fn ack(&mut self, s: StreamId, ioctl: &Ioctl, value: i32, data: Chain) {
        self.putnext(s, Message::with_data(Kind::IocAck(IocAck { id: ioctl.id, value }), data));
    }

    /// Answers an ioctl that is refused.
    pub fn nak(&mut self, s: StreamId, ioctl: &Ioctl, errno: Errno) {
        self.putnext(s, Message::new(Kind::IocNak(IocNak { id: ioctl.id, errno })));
    }

    /// Asks the caller of an ioctl for `bytes` at `address` of its memory; they arrive as [`Kind::IocData`] with `private`.
    pub fn copyin(&mut self, s: StreamId, ioctl: &Ioctl, address: u64, bytes: usize, private: u64) {
        let request = CopyRequest { id: ioctl.id, address, bytes, private };
        self.putnext(s, Message::new(Kind::CopyIn(Box::new(request))));
    }

    /// Asks the caller of an ioctl to store `data` at `address` of its memory; [`Kind::IocData`] with `private` reports the
    /// result.
    pub fn copyout(&mut self, s: StreamId, ioctl: &Ioctl, address: u64, data: Chain, private: u64) {
        let request = CopyRequest { id: ioctl.id, address, bytes: data.len(), private };
        self.putnext(s, Message::with_data(Kind::CopyOut(Box::new(request)), data));
    }

    /// Starts a timer for a stream (`timeout`). The executive calls [`Driver::timer`] when it has expired, never early, and never
    /// after the stream was closed.
    pub fn timeout(&mut self, s: StreamId, after: Duration) -> TimerId {
        let alarm = Alarm::Procedure { place: Place::Driver, serial: 0, side: Side::Write };
        self.streams.scheduler.timers.start(s, alarm, after)
    }

    /// Stops a timer (`untimeout`). Returns false if it has expired before.
    pub fn untimeout(&mut self, s: StreamId, timer: TimerId) -> bool {
        self.streams.scheduler.timers.stop(s, timer)
    }

    /// Frees a message that came up on a stream; the receive window of user data returns to the driver.
    pub fn freemsg(&mut self, s: StreamId, m: Message) {
        give_credit(s, &m, &mut self.streams.scheduler);
    }

    /// Sends a message down a linked stream without regard to flow control; call [`Cx::lower_canput`] before.
    pub fn lower_put(&mut self, lower: StreamId, m: Message) {
        let at = QueueRef { stream: lower, place: Place::BelowHead, side: Side::Write };
        self.streams.scheduler.post(at, m);
    }

    /// Returns whether a linked stream has room in this band. If not, the executive calls [`Driver::lower_write_service`] once it
    /// has.
    pub fn lower_canput(&mut self, lower: StreamId, band: u8) -> bool {
        let Some((stream, _)) = self.streams.parts(lower) else { return true };
        flow::next_down(&mut stream.modules, &mut stream.device).canput(band)
    }

    /// Queues a message that came up on a linked stream (`putq` on the lower read queue). The queue counts for the flow
    /// control of the linked stream.
    pub fn lower_putq(&mut self, lower: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(lower) else { return };
        if stream.head.queue.putq(m) {
            scheduler.qenable(&mut stream.head.queue, head_side(lower));
        }
    }

    /// Puts back a message that [`Driver::lower_read_service`] could not handle now.
    pub fn lower_putbq(&mut self, lower: StreamId, m: Message) {
        let Some((stream, _)) = self.streams.parts(lower) else { return };
        let _ = stream.head.queue.putbq(m);
    }

    /// Takes the first message from the queue of [`Driver::lower_read_service`].
    pub fn lower_getq(&mut self, lower: StreamId) -> Option<Message> {
        let (stream, scheduler) = self.streams.parts(lower)?;
        let m = stream.head.queue.getq();
        if stream.head.queue.relieved() {
            flow::back_enable_below(lower, &mut stream.modules, &mut stream.device, scheduler);
        }
        if let Some(m) = &m {
            give_credit(lower, m, scheduler);
        }
        m
    }

    /// Enables [`Driver::lower_read_service`].
    pub fn lower_qenable(&mut self, lower: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(lower) else { return };
        scheduler.qenable(&mut stream.head.queue, head_side(lower));
    }

    /// Handles `M_FLUSH` as every driver must: flushes the driver's queues, and turns the message up if it flushes the read side.
    pub fn flush(&mut self, s: StreamId, m: Message) {
        let Kind::Flush(flush) = m.kind else { return };
        self.flushq(s, &flush);
        if flush.read {
            self.putnext(s, Message { kind: Kind::Flush(Flush { write: false, ..flush }), ..m });
        }
    }

    /// Flushes the driver's queues (`flushq`, `flushband`).
    pub fn flushq(&mut self, s: StreamId, flush: &Flush) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if flush.write {
            stream.device.write.flushq(flush, drop);
        }
        if flush.read {
            stream.device.read.flushq(flush, |m| give_credit(s, &m, scheduler));
        }
        self.back_enable_if_relieved(s);
    }

    fn back_enable_if_relieved(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.device.write.relieved() {
            flow::back_enable_above(s, &mut stream.modules, 0, &mut stream.head, scheduler);
        }
    }
}

fn head_side(stream: StreamId) -> QueueRef {
    QueueRef { stream, place: Place::Head, side: Side::Read }
}

fn write_side(stream: StreamId) -> QueueRef {
    QueueRef { stream, place: Place::Driver, side: Side::Write }
}
