//! Drivers: what stands at the lower end of streams.

use crate::flow;
use crate::head::{Interest, WriteAs};
use crate::message::{CopyRequest, Credentials, Flush, IocAck, IocNak, Ioctl, Kind, Message, Run};
use crate::module::give_credit;
use crate::queue::{Queue, QueueInfo, Side};
use crate::scheduler::{Place, QueueRef};
use crate::stream::{Stream, StreamId, Streams};
use crate::timers::{Alarm, TimerId};
use crate::{Chain, Errno, TransferInfo};
use bytes::Bytes;
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Names one driver of an executive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverId(pub(crate) usize);

/// What a driver says to a stream head that wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room, and nothing is outstanding: writes are not to be held back.
    Idle,
    /// There is room.
    Room,
    /// There is no room. The wish is remembered: the driver calls [`Cx::back_enable`] when there is.
    Full,
    /// The data can never be taken.
    Fail(Errno),
}

/// What a flush hands to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// What [`Driver::flush_due`] speaks of. The rest may wait for more of its kind.
    Due,
    /// Everything.
    All,
}

/// The queues of a driver's streams and the read queue of their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The queue for what the driver could not send up.
    pub read: QueueInfo,
    /// The queue for what the driver could not take.
    pub write: QueueInfo,
    /// The read queue of the stream head.
    pub head: QueueInfo,
    /// What writes send down.
    pub write_as: WriteAs,
}

/// How a stream is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The minor device.
    pub minor: u32,
    /// `CLONEOPEN`: the executive has chosen a minor device that was not open.
    pub is_clone: bool,
    /// Whether the minor device was not open before.
    pub is_first: bool,
    /// The user that opens it.
    pub credentials: Credentials,
}

impl Default for DriverInfo {
    /// 64 KB and 8 KB for the driver, 128 KB and 16 KB for the head; writes are `M_DATA`.
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
/// Its procedures return soon and never block. `put` handles a message at once, or queues it with [`Cx::putq`] for
/// `service`. The procedures of the lower half are what an interrupt would be: the owner of the executive calls them when
/// descriptors are ready or a deadline has come.
pub trait Driver: Any + Send {
    /// The marks of the queues of each stream.
    fn info(&self) -> DriverInfo {
        DriverInfo::default()
    }

    /// A stream was opened, or its minor device was opened again. An error takes that back.
    fn open(&mut self, cx: &mut Cx<'_>, s: StreamId, open: &Open) -> Result<(), Errno>;

    /// A stream is about to be closed, by the last of those who opened it. What the driver leaves on its queues is lost.
    fn close(&mut self, cx: &mut Cx<'_>, s: StreamId);

    /// Whether `bytes` of user data with this information may come down now. The head asks before every write: the
    /// queue of the stream cannot speak for one of several associations.
    fn admit(&mut self, _s: StreamId, _info: &TransferInfo, _bytes: usize) -> Admission {
        Admission::Room
    }

    /// Handles a message on its way down.
    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message);

    /// Handles what [`Cx::putq`] has queued.
    fn service(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    /// What is above has room again, after [`Cx::canputnext`] said no.
    fn read_service(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    /// The reader has taken `bytes` of user data, and what is charged beside them: 1 with the rest of a message,
    /// [`Run::charges`] with the rest of a run, otherwise 0. Its window has grown.
    fn consumed(
        &mut self,
        _cx: &mut Cx<'_>,
        _s: StreamId,
        _association: u32,
        _bytes: usize,
        _charges: usize,
    ) {
    }

    /// A timer has ended that was started with [`Cx::timeout`].
    fn timer(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _timer: TimerId) {}

    /// A stream was linked under a stream of this driver (`I_LINK`, `I_PLINK`). An error takes that back.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the driver is no multiplexor.
    fn link(&mut self, _cx: &mut Cx<'_>, _upper: StreamId, _lower: StreamId) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// A linked stream is about to be its user's again (`I_UNLINK`, `I_PUNLINK`).
    fn unlink(&mut self, _cx: &mut Cx<'_>, _lower: StreamId) {}

    /// Handles a message that has come up on a linked stream (the put procedure of the lower read queue). The default throws
    /// it away and gives its receive window back.
    fn lower_put(&mut self, cx: &mut Cx<'_>, lower: StreamId, m: Message) {
        cx.freemsg(lower, m);
    }

    /// Handles what [`Cx::lower_putq`] has queued.
    fn lower_read_service(&mut self, _cx: &mut Cx<'_>, _lower: StreamId) {}

    /// A linked stream has room again, after [`Cx::lower_canput`] said no.
    fn lower_write_service(&mut self, _cx: &mut Cx<'_>, _lower: StreamId) {}

    /// Names the descriptors to wait for, and what for.
    fn descriptors(&self, _f: &mut dyn FnMut(BorrowedFd<'_>, Interest)) {}

    /// Takes what has arrived. True: there may be more.
    ///
    /// # Errors
    ///
    /// The error of the system call; the driver can be called again.
    fn receive(&mut self, _cx: &mut Cx<'_>, _now: Instant) -> io::Result<bool> {
        Ok(false)
    }

    /// Whether something waits for [`Driver::receive`] that no descriptor tells of.
    fn has_arrivals(&self) -> bool {
        false
    }

    /// When [`Driver::timeout`] is to be called, if nothing happens before.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The deadline has come.
    fn timeout(&mut self, _cx: &mut Cx<'_>, _now: Instant) {}

    /// Whether what waits should be sent now: a batch or the window is full, or nothing is outstanding.
    fn flush_due(&self) -> bool {
        false
    }

    /// A call into this driver, or one that this driver called, has unwound: the driver ends what it was at work on,
    /// and what it does for stream `s`. What is left must be usable.
    fn fault(&mut self, _cx: &mut Cx<'_>, _s: Option<StreamId>) {}

    /// Whether something is left to do that needs no open stream: data to deliver, a release to finish.
    fn is_busy(&self) -> bool {
        false
    }

    /// Whether something waits that only a flush of everything sends.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Hands what waits to the link.
    fn flush(&mut self, _cx: &mut Cx<'_>, _now: Instant, _scope: FlushScope) {}
}

/// What a driver can do with its streams while one of its procedures runs. Operations on a closed stream do nothing.
#[derive(Debug)]
pub struct Cx<'a> {
    streams: &'a mut Streams,
}

impl<'a> Cx<'a> {
    #[inline]
    pub(crate) fn new(streams: &'a mut Streams) -> Self {
        Self { streams }
    }

    /// Sends a message up.
    #[inline]
    pub fn putnext(&mut self, s: StreamId, m: Message) {
        self.streams.put_up(s, m);
    }

    /// A chain of these blocks, which are moved out: data that has come in parts, without an allocation where an earlier
    /// such message has been read.
    pub fn chain(&mut self, blocks: &mut Vec<Bytes>) -> Chain {
        self.streams.pool.chain(blocks)
    }

    /// Sends user data up, as `T_OPTDATA_IND`. Moves less than [`Cx::putnext`] does.
    #[inline]
    pub fn put_data(&mut self, s: StreamId, info: &TransferInfo, data: Chain) {
        self.streams.put_data_up(s, info, data);
    }

    /// Whether a stream takes messages of user data together, with [`Cx::put_run`]: no module is pushed, and a reader is there.
    #[inline]
    pub fn takes_runs(&self, s: StreamId) -> bool {
        self.streams.get(s).is_some_and(Stream::takes_runs)
    }

    /// Sends messages of user data up together; only where [`Cx::takes_runs`] says so. `data` is one block.
    #[inline]
    pub fn put_run(&mut self, s: StreamId, run: Run, data: Bytes) {
        self.streams.put_run_up(s, run, data);
    }

    /// Whether streams have got data with [`Cx::put_data`] that may still lie in the memory of the driver.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.streams.is_attached()
    }

    /// Copies the data that has come with [`Cx::put_data`] and waits in queues, so that the driver has the memory back from which
    /// it was cut. In a `pause`, queues that have run empty give back the memory of a burst, too.
    pub fn detach(&mut self, pause: bool) {
        self.streams.detach(pause);
    }

    /// Whether what is above has room in this band. If not, [`Driver::read_service`] is called when it has.
    #[inline]
    pub fn canputnext(&mut self, s: StreamId, band: u8) -> bool {
        let Some((stream, _)) = self.streams.parts(s) else { return true };
        flow::next_up(&mut stream.modules, &mut stream.head).canput(band)
    }

    /// There is room again for a writer to whom [`Driver::admit`] said that there was none.
    pub fn back_enable(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        stream.head.back_enable(s, scheduler);
    }

    /// Queues a message that the driver cannot take now; `service` will find it.
    pub fn putq(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.device.write.putq(m) {
            scheduler.qenable(&mut stream.device.write, write_side(s));
        }
    }

    /// Puts a message back that `service` could not handle now.
    pub fn putbq(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.device.write.putbq(m) {
            scheduler.qenable(&mut stream.device.write, write_side(s));
        }
    }

    /// Takes the first message that is queued for the driver.
    pub fn getq(&mut self, s: StreamId) -> Option<Message> {
        let (stream, _) = self.streams.parts(s)?;
        let m = stream.device.write.getq();
        self.back_enable_if_relieved(s);
        m
    }

    /// The queue of messages that the driver could not take, to look at.
    #[inline]
    pub fn queue(&self, s: StreamId) -> Option<&Queue> {
        Some(&self.streams.get(s)?.device.write)
    }

    /// Enables `service`.
    pub fn qenable(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        scheduler.qenable(&mut stream.device.write, write_side(s));
    }

    /// From now on [`Cx::putq`] does not enable `service`, except for messages of high priority.
    pub fn noenable(&mut self, s: StreamId) {
        if let Some((stream, _)) = self.streams.parts(s) {
            stream.device.write.noenable();
        }
    }

    /// Ends what [`Cx::noenable`] began.
    pub fn enableok(&mut self, s: StreamId) {
        if let Some((stream, _)) = self.streams.parts(s) {
            stream.device.write.enableok();
        }
    }

    /// Makes reads and writes fail (`M_ERROR`).
    pub fn error(&mut self, s: StreamId, errno: Errno) {
        self.putnext(s, Message::new(Kind::Error { read: Some(errno), write: Some(errno) }));
    }

    /// Ends the stream: what is queued can still be read (`M_HANGUP`).
    pub fn hangup(&mut self, s: StreamId) {
        self.putnext(s, Message::new(Kind::Hangup));
    }

    /// Answers an ioctl: it was carried out.
    pub fn ack(&mut self, s: StreamId, ioctl: &Ioctl, value: i32, data: Chain) {
        self.putnext(s, Message::with_data(Kind::IocAck(IocAck { id: ioctl.id, value }), data));
    }

    /// Answers an ioctl: it is refused.
    pub fn nak(&mut self, s: StreamId, ioctl: &Ioctl, errno: Errno) {
        self.putnext(s, Message::new(Kind::IocNak(IocNak { id: ioctl.id, errno })));
    }

    /// Asks the caller of an ioctl for `bytes` at `address` of its memory; they come as [`Kind::IocData`] with `private`.
    pub fn copyin(&mut self, s: StreamId, ioctl: &Ioctl, address: u64, bytes: usize, private: u64) {
        let request = CopyRequest { id: ioctl.id, address, bytes, private };
        self.putnext(s, Message::new(Kind::CopyIn(Box::new(request))));
    }

    /// Asks the caller of an ioctl to put `data` at `address` of its memory; [`Kind::IocData`] with `private` says whether it
    /// could.
    pub fn copyout(&mut self, s: StreamId, ioctl: &Ioctl, address: u64, data: Chain, private: u64) {
        let request = CopyRequest { id: ioctl.id, address, bytes: data.len(), private };
        self.putnext(s, Message::with_data(Kind::CopyOut(Box::new(request)), data));
    }

    /// Starts a timer for a stream (`timeout`). [`Driver::timer`] is called when it has ended, not before, and not after the
    /// stream was closed.
    pub fn timeout(&mut self, s: StreamId, after: Duration) -> TimerId {
        let alarm = Alarm::Procedure { place: Place::Driver, serial: 0, side: Side::Write };
        self.streams.scheduler.timers.start(s, alarm, after)
    }

    /// Stops a timer (`untimeout`). False: it has ended before.
    pub fn untimeout(&mut self, s: StreamId, timer: TimerId) -> bool {
        self.streams.scheduler.timers.stop(s, timer)
    }

    /// Throws away a message that came up on a stream; where it was user data, its receive window goes back to the driver.
    pub fn freemsg(&mut self, s: StreamId, m: Message) {
        give_credit(s, &m, &mut self.streams.scheduler);
    }

    /// Sends a message down a linked stream, whatever its queues say; ask [`Cx::lower_canput`] before.
    pub fn lower_put(&mut self, lower: StreamId, m: Message) {
        let at = QueueRef { stream: lower, place: Place::BelowHead, side: Side::Write };
        self.streams.scheduler.post(at, m);
    }

    /// Returns whether a linked stream has room in this band. If not, [`Driver::lower_write_service`] is called when it has.
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

    /// Puts a message back that [`Driver::lower_read_service`] could not handle now.
    pub fn lower_putbq(&mut self, lower: StreamId, m: Message) {
        let Some((stream, _)) = self.streams.parts(lower) else { return };
        let _ = stream.head.queue.putbq(m);
    }

    /// Takes the first message that is queued for [`Driver::lower_read_service`].
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

    /// Does what every driver does with `M_FLUSH`: flushes the driver's queues, and turns the message up where the read side
    /// must be flushed.
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
