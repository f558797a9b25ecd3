//! Drivers, the lower end of streams.

mod cx;
pub(crate) mod info;

pub use cx::Cx;
pub use info::{DriverInfo, Open};

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use bytes::Bytes;

use crate::head::Interest;
use crate::identifiers::StreamId;
use crate::message::Message;
use crate::timers::TimerId;
use crate::{Errno, SendError, SendInfo, Which};

/// Answer of a driver to a stream head that wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room, and nothing is outstanding: the head need not hold writes back.
    Idle,
    /// There is room.
    Room,
    /// There is no room. The driver remembers the writer, and calls [`Cx::back_enable`] when there is room.
    Full,
    /// The transport refuses the message: it is not valid, or the association takes none. The head passes the reason on.
    Refused(SendError),
    /// The driver can never take the data, for another reason.
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
    fn admit(&mut self, _s: StreamId, _association: Which, _info: &SendInfo, _bytes: usize) -> Admission {
        Admission::Room
    }

    /// Admits a write and takes it in one step: for a head with no module below it, so that nothing can change the message
    /// between the two. Takes nothing if there is no room or the data can never be taken.
    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: Which,
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
    /// message, the charge that the run was made with at its rest, otherwise 0.
    fn consumed(
        &mut self,
        _cx: &mut Cx<'_>,
        _s: StreamId,
        _association: Which,
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
