//! Drivers: what stands at the lower end of streams.

use crate::flow;
use crate::head::Interest;
use crate::message::{Flush, IocAck, IocNak, Ioctl, Kind, Message};
use crate::module::give_credit;
use crate::queue::{Queue, QueueInfo, Side};
use crate::scheduler::{Place, QueueRef};
use crate::stream::{StreamId, Streams};
use crate::{Chain, Errno, TransferInfo};
use bytes::Bytes;
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

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
}

impl Default for DriverInfo {
    /// 64 KB and 8 KB for the driver, 128 KB and 16 KB for the head.
    fn default() -> Self {
        Self {
            read: QueueInfo::served(64 * 1024, 8 * 1024),
            write: QueueInfo::served(64 * 1024, 8 * 1024),
            head: QueueInfo::served(128 * 1024, 16 * 1024),
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

    /// A stream was opened. An error closes it again.
    fn open(&mut self, cx: &mut Cx<'_>, s: StreamId) -> Result<(), Errno>;

    /// A stream is about to be closed. What the driver leaves on its queues is lost.
    fn close(&mut self, cx: &mut Cx<'_>, s: StreamId);

    /// Whether `bytes` of user data with this information may come down now. The head asks before every write: the
    /// queue of the stream cannot speak for one of several associations.
    fn admit(&mut self, s: StreamId, info: &TransferInfo, bytes: usize) -> Admission;

    /// Handles a message on its way down.
    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message);

    /// Handles what [`Cx::putq`] has queued.
    fn service(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    /// What is above has room again, after [`Cx::canputnext`] said no.
    fn read_service(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    /// The reader has taken `bytes` of user data, and with `whole` the rest of their message: its window has grown.
    fn consumed(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _association: u32, _bytes: usize, _whole: bool) {}

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

    /// Sends user data up, as `T_OPTDATA_IND`. Does the same as [`Cx::putnext`] and moves less.
    #[inline]
    pub fn put_data(&mut self, s: StreamId, info: &TransferInfo, data: Chain) {
        self.streams.put_data_up(s, info, data);
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
    pub fn ack(&mut self, s: StreamId, ioctl: Ioctl, value: i32, data: Chain) {
        self.putnext(s, Message::with_data(Kind::IocAck(IocAck { id: ioctl.id, value }), data));
    }

    /// Answers an ioctl: it is refused.
    pub fn nak(&mut self, s: StreamId, ioctl: Ioctl, errno: Errno) {
        self.putnext(s, Message::new(Kind::IocNak(IocNak { id: ioctl.id, errno })));
    }

    /// What every driver does with `M_FLUSH`: flushes the driver's queues, and turns the message up where the read side
    /// is to be flushed.
    pub fn flushq(&mut self, s: StreamId, flush: &Flush) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if flush.write {
            stream.device.write.flushq(flush, drop);
        }
        if flush.read {
            stream.device.read.flushq(flush, |m| give_credit(s, &m, scheduler));
        }
        self.back_enable_if_relieved(s);
        if flush.read {
            self.putnext(s, Message::new(Kind::Flush(Flush { write: false, ..*flush })));
        }
    }

    fn back_enable_if_relieved(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.device.write.relieved() {
            flow::back_enable_above(s, &mut stream.modules, 0, &mut stream.head, scheduler);
        }
    }
}

fn write_side(stream: StreamId) -> QueueRef {
    QueueRef { stream, place: Place::Driver, side: Side::Write }
}
