//! The operations of a driver on its streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::driver::WriteData;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::memory::StreamMemory;
use crate::message::{CopyRequest, Flush, IocAck, IocNak, Ioctl, Kind, Message, Run};
use crate::names::Names;
use crate::queue::Queue;
use crate::scheduler::DriverCall;
use crate::stream::{Stream, Streams};
use crate::timers::{Alarm, TimerId};
use crate::{Chain, Errno, RecvInfo, Which};

/// The operations that a driver may perform on its streams while one of its procedures runs. They do nothing on a closed stream.
#[derive(Debug)]
pub struct Cx<'a> {
    streams: &'a mut Streams,
    /// The linked stream that messages were last sent down, and their bytes: they have not arrived yet.
    ahead: (Option<StreamId>, usize),
}

impl<'a> Cx<'a> {
    #[inline]
    pub(crate) fn new(streams: &'a mut Streams) -> Self {
        Self { streams, ahead: (None, 0) }
    }

    /// Returns what the executive knows by name.
    pub(crate) fn names(&mut self) -> &mut Names {
        &mut self.streams.names
    }

    /// Returns the time that the executive was last given.
    #[inline]
    pub fn now(&self) -> Instant {
        self.streams.scheduler.timers.now()
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
    pub fn put_data(&mut self, s: StreamId, association: Which, info: &RecvInfo, data: Chain) {
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

    /// Returns whether a call of [`Cx::detach`] in a pause would free memory: streams may hold data from [`Cx::put_data`] that
    /// lies in the driver's memory, or memory for copies is kept.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.streams.is_attached()
    }

    /// Copies the data from [`Cx::put_data`] that waits in queues, so that the driver can reuse the memory it was cut from. In a
    /// `pause`, memory of a burst is freed, too.
    pub fn detach(&mut self, pause: bool) {
        self.streams.detach(pause);
    }

    /// Sets the memory that the data of the stream's modules is charged to; without any, it is not counted.
    pub fn set_memory(&mut self, s: StreamId, memory: Option<Arc<dyn StreamMemory>>) {
        if let Some(stream) = self.streams.get_mut(s) {
            stream.head.set_memory(memory);
        }
    }

    /// Returns whether the queue above has room in this band. If not, the executive calls
    /// [`Driver::read_service`](super::Driver::read_service) once it has.
    #[inline]
    pub fn canputnext(&mut self, s: StreamId, band: u8) -> bool {
        let Some((stream, _)) = self.streams.parts(s) else { return true };
        stream.next_up().canput(band)
    }

    /// Wakes a writer that [`Driver::admit`](super::Driver::admit) has refused: there is room again. Messages that wait on the
    /// driver's queue come first: this enables `service`.
    pub fn back_enable(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if !stream.device().write.is_empty() {
            scheduler.qenable(&mut stream.device_mut().write, write_side(s));
        }
        stream.head.back_enable(s, scheduler);
    }

    /// Queues a message that the driver cannot take now, for `service`.
    pub fn putq(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        let queue = &mut stream.device_mut().write;
        if queue.putq(m) {
            scheduler.qenable(queue, write_side(s));
        }
    }

    /// Puts back a message that `service` could not handle now.
    pub fn putbq(&mut self, s: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        let queue = &mut stream.device_mut().write;
        if queue.putbq(m) {
            scheduler.qenable(queue, write_side(s));
        }
    }

    /// Takes the first message from the driver's queue.
    pub fn getq(&mut self, s: StreamId) -> Option<Message> {
        let (stream, scheduler) = self.streams.parts(s)?;
        let m = stream.device_mut().write.getq();
        scheduler.count_work();
        self.on_removed(s);
        m
    }

    /// Returns the number of messages, or runs of them, that the user of a stream has not read.
    pub fn unread(&self, s: StreamId) -> usize {
        self.streams.get(s).map_or(0, |stream| stream.head.queue.len())
    }

    /// Returns the queue of messages that the driver could not take.
    #[inline]
    pub fn queue(&self, s: StreamId) -> Option<&Queue> {
        Some(&self.streams.get(s)?.device().write)
    }

    /// Enables `service`.
    pub fn qenable(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        scheduler.qenable(&mut stream.device_mut().write, write_side(s));
    }

    /// Stops [`Cx::putq`] from enabling `service`, except for high-priority messages.
    pub fn noenable(&mut self, s: StreamId) {
        if let Some((stream, _)) = self.streams.parts(s) {
            stream.device_mut().write.noenable();
        }
    }

    /// Undoes [`Cx::noenable`].
    pub fn enableok(&mut self, s: StreamId) {
        if let Some((stream, _)) = self.streams.parts(s) {
            stream.device_mut().write.enableok();
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

    /// Sets whether the other end sends no more ([`Interest::READ_HANGUP`](crate::Interest::READ_HANGUP)). Unlike the message
    /// that tells the reader so, this passes by all messages on their way up.
    pub fn set_read_hangup(&mut self, s: StreamId, hung_up: bool) {
        if let Some((stream, scheduler)) = self.streams.parts(s) {
            stream.head.set_read_hung_up(s, hung_up, scheduler);
        }
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

    /// Starts a timer for a stream (`timeout`). The executive calls [`Driver::timer`](super::Driver::timer) when it has
    /// expired, never early, and never after the stream was closed.
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
        self.streams.scheduler.return_credit(s, &m);
    }

    /// Sends a message down a linked stream without regard to flow control; call [`Cx::lower_canput`] before.
    pub fn lower_put(&mut self, lower: StreamId, m: Message) {
        let bytes = self.ahead_bytes(lower) + m.weight_bytes();
        self.ahead = (Some(lower), bytes);
        let at = QueueRef { stream: lower, place: Place::BelowHead, side: Side::Write };
        self.streams.scheduler.post(at, m);
    }

    /// Returns whether a linked stream has room in this band. If not, the executive calls
    /// [`Driver::lower_write_service`](super::Driver::lower_write_service) once it has.
    pub fn lower_canput(&mut self, lower: StreamId, band: u8) -> bool {
        let ahead_bytes = self.ahead_bytes(lower);
        let Some((stream, scheduler)) = self.streams.parts(lower) else { return true };
        let next = stream.next_down();
        if !next.canput(band) {
            return false;
        }
        let fills = next.would_fill(band, ahead_bytes);
        if fills {
            // No other event tells the multiplexor that these messages have arrived.
            scheduler.enable_head(lower, Side::Write);
        }
        !fills
    }

    /// Returns the bytes that this procedure has sent down a linked stream.
    fn ahead_bytes(&self, lower: StreamId) -> usize {
        if self.ahead.0 == Some(lower) { self.ahead.1 } else { 0 }
    }

    /// Queues a message that came up on a linked stream (`putq` on the lower read queue). The queue counts for the flow
    /// control of the linked stream. A stream that floods it fails, and its link ends.
    pub fn lower_putq(&mut self, lower: StreamId, m: Message) {
        let Some((stream, scheduler)) = self.streams.parts(lower) else { return };
        if stream.head.queue.is_flooded() {
            scheduler.return_credit(lower, &m);
            let failed = Kind::Error { read: Some(Errno::EIO), write: Some(Errno::EIO) };
            return self.lower_unlink(lower, Some(Message::new(failed)));
        }
        if stream.head.queue.putq(m) {
            scheduler.qenable(&mut stream.head.queue, head_side(lower));
        }
    }

    /// Puts back a message that [`Driver::lower_read_service`](super::Driver::lower_read_service) could not handle now.
    pub fn lower_putbq(&mut self, lower: StreamId, m: Message) {
        let Some((stream, _)) = self.streams.parts(lower) else { return };
        let _ = stream.head.queue.putbq(m);
    }

    /// Counts that the driver has copied so many bytes.
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.streams.scheduler.count_bytes(bytes);
    }

    /// Returns whether a service procedure should leave what it has not yet done to a later call.
    pub(crate) fn is_step_over(&self) -> bool {
        self.streams.scheduler.is_step_over()
    }

    /// Takes the first message from the queue of [`Driver::lower_read_service`](super::Driver::lower_read_service).
    pub fn lower_getq(&mut self, lower: StreamId) -> Option<Message> {
        let (stream, scheduler) = self.streams.parts(lower)?;
        let m = stream.head.queue.getq();
        scheduler.count_work();
        if stream.head.queue.relieved() {
            stream.back_enable_below(lower, scheduler);
        }
        if let Some(m) = &m {
            scheduler.return_credit(lower, m);
        }
        m
    }

    /// Ends the link of a linked stream once this procedure has returned. The stream's user gets the messages on the lower read
    /// queue, then `m`.
    pub fn lower_unlink(&mut self, lower: StreamId, m: Option<Message>) {
        self.streams.scheduler.defer(DriverCall::EndLink { stream: lower, message: m });
    }

    /// Enables [`Driver::lower_read_service`](super::Driver::lower_read_service).
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
            stream.device_mut().write.flushq(flush, drop);
        }
        if flush.read {
            stream.device_mut().read.flushq(flush, |m| scheduler.return_credit(s, &m));
        }
        self.on_removed(s);
    }

    /// Tells waiting senders, and a close that waits for the driver's queue, that messages have left it.
    fn on_removed(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.head.is_closing() && stream.device().write.is_empty() {
            scheduler.list_drained(s);
        }
        if stream.device_mut().write.relieved() {
            stream.back_enable_above(s, scheduler);
        }
    }
}

fn head_side(stream: StreamId) -> QueueRef {
    QueueRef { stream, place: Place::Head, side: Side::Read }
}

fn write_side(stream: StreamId) -> QueueRef {
    QueueRef { stream, place: Place::Driver, side: Side::Write }
}
