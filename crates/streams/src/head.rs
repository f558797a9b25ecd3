//! Stream heads: the upper end of a stream, where programs read and write.

mod coalesce;
mod ioctl;
mod options;
mod readiness;
mod stats;

pub use options::{HeadOptions, ReadMode};
pub use readiness::{Interest, Readiness};
pub use stats::HeadStats;

use crate::message::{Flush, IocNak, Kind, Marks, Message, Signal};
use crate::module::give_credit;
use crate::queue::{Queue, QueueInfo, Side};
use crate::scheduler::{Place, QueueRef, Scheduler};
use crate::stream::StreamId;
use crate::{Chain, Errno, ReadError, TransferInfo, WriteError};
use coalesce::Coalesced;
pub(crate) use ioctl::IoctlState;

/// The upper end of one stream.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) queue: Queue,
    /// Bytes of writes with more to come, on their way to become one message.
    pub(crate) coalesced: Coalesced,
    pub(crate) coalesce_max_bytes: usize,
    pub(crate) read_mode: ReadMode,
    /// An error or a hang-up is to be reported: one look tells the fast path.
    pub(crate) troubled: bool,
    read_error: Option<Errno>,
    write_error: Option<Errno>,
    hung_up: bool,
    /// A writer was told to wait.
    write_blocked: bool,
    wants: Interest,
    /// The stream stands in the list of wake-ups.
    listed: bool,
    /// The stream stands in the list of those that have got data.
    pub(crate) attached: bool,
    pub(crate) ioctl: IoctlState,
    signals_queued: u32,
    signal: Option<Signal>,
    pub(crate) stats: HeadStats,
}

impl Head {
    /// What coalesced writes grow to before they go down.
    pub(crate) const COALESCE_BYTES: usize = 32 * 1024;

    pub(crate) fn new(info: QueueInfo) -> Self {
        Self {
            queue: Queue::new(info),
            coalesced: Coalesced::default(),
            coalesce_max_bytes: Self::COALESCE_BYTES,
            read_mode: ReadMode::MessageNondiscard,
            troubled: false,
            read_error: None,
            write_error: None,
            hung_up: false,
            write_blocked: false,
            wants: Interest::NONE,
            listed: false,
            attached: false,
            ioctl: IoctlState::default(),
            signals_queued: 0,
            signal: None,
            stats: HeadStats::default(),
        }
    }

    /// Handles a message that has come up (`strrput`).
    #[inline]
    pub(crate) fn put(&mut self, s: StreamId, m: Message, scheduler: &mut Scheduler) {
        match m.kind {
            Kind::Data | Kind::Proto(_) => {
                let _ = self.queue.putq(m);
                self.wake(s, Interest::READABLE, scheduler);
            }
            _ => self.put_control(s, m, scheduler),
        }
    }

    /// The same for user data in the normal band, which is built in its place on the queue.
    #[inline]
    pub(crate) fn put_data(
        &mut self,
        s: StreamId,
        info: &TransferInfo,
        data: Chain,
        scheduler: &mut Scheduler,
    ) {
        self.queue.putq_data(info, data);
        self.wake(s, Interest::READABLE, scheduler);
    }

    #[cold]
    fn put_control(&mut self, s: StreamId, m: Message, scheduler: &mut Scheduler) {
        match m.kind {
            // All are kept, where SVR4 keeps one: who waits for an answer that was thrown away waits for ever.
            Kind::PcProto(_) => {
                let _ = self.queue.putq(m);
                self.wake(s, Interest::READABLE | Interest::PRIORITY, scheduler);
            }
            Kind::Flush(flush) => self.flush(s, flush, m.marks, scheduler),
            Kind::Error { read, write } => {
                self.read_error = read.map_or(self.read_error, |e| Some(e).filter(|e| e.0 != 0));
                self.write_error = write.map_or(self.write_error, |e| Some(e).filter(|e| e.0 != 0));
                self.note_trouble(s, scheduler);
            }
            Kind::Hangup => {
                self.hung_up = true;
                self.note_trouble(s, scheduler);
            }
            Kind::IocAck(_) | Kind::IocNak(_) => {
                if self.ioctl.answer(m) {
                    self.wake(s, Interest::PRIORITY, scheduler);
                }
            }
            Kind::Setopts(options) => self.set_options(s, &options, scheduler),
            Kind::Sig(_) => {
                self.signals_queued += 1;
                let _ = self.queue.putq(m);
                self.take_due_signals(s, scheduler);
            }
            // Only a module that turns a request the wrong way sends it here; whoever asked must not wait for ever.
            Kind::Ioctl(ioctl) => {
                let nak = IocNak { id: ioctl.id, errno: Errno::EINVAL };
                if self.ioctl.answer(Message::new(Kind::IocNak(nak))) {
                    self.wake(s, Interest::PRIORITY, scheduler);
                }
            }
            Kind::Data | Kind::Proto(_) => self.put(s, m, scheduler),
        }
    }

    /// M_FLUSH has come up: the read queue is flushed here, and the write side is flushed by a message that goes down.
    fn flush(&mut self, s: StreamId, flush: Flush, marks: Marks, scheduler: &mut Scheduler) {
        if flush.read {
            let signals_queued = &mut self.signals_queued;
            self.queue.flushq(&flush, |m| {
                *signals_queued -= u32::from(matches!(m.kind, Kind::Sig(_)));
                give_credit(s, &m, scheduler);
            });
            self.enable_senders(s, scheduler);
        }
        if flush.write && !marks.contains(Marks::NO_LOOP) {
            let at = QueueRef { stream: s, place: Place::BelowHead, side: Side::Write };
            scheduler.post(at, Message::new(Kind::Flush(Flush { read: false, ..flush })));
        }
    }

    pub(crate) fn set_options(&mut self, s: StreamId, options: &HeadOptions, scheduler: &mut Scheduler) {
        self.read_mode = options.read_mode.unwrap_or(self.read_mode);
        self.coalesce_max_bytes = options.coalesce_bytes.unwrap_or(self.coalesce_max_bytes);
        let (hiwat_bytes, lowat_bytes) = self.queue.marks(options.band);
        self.queue.set_marks(
            options.band,
            options.hiwat_bytes.unwrap_or(hiwat_bytes),
            options.lowat_bytes.unwrap_or(lowat_bytes),
        );
        self.enable_senders(s, scheduler);
    }

    /// The read queue may have got room other than by reading: the scheduler looks whether somebody waits for it.
    fn enable_senders(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        scheduler.enable_head(s, Side::Read);
    }

    /// There is room below again (`strwsrv`): coalesced bytes go down, and writers that wait are woken.
    pub(crate) fn back_enable(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        self.write_blocked = false;
        if !self.coalesced.is_empty() {
            scheduler.enable_head(s, Side::Write);
        }
        self.wake(s, Interest::WRITABLE, scheduler);
    }

    /// Notes that a writer was told to wait.
    #[cold]
    pub(crate) fn block_writer(&mut self) -> WriteError {
        self.write_blocked = true;
        self.stats.writes_blocked += 1;
        WriteError::WouldBlock
    }

    /// Why nothing can be written, if so.
    pub(crate) fn check_write(&self) -> Result<(), WriteError> {
        match self.write_error {
            Some(errno) => Err(WriteError::Failed(errno)),
            None if self.hung_up => Err(WriteError::HungUp),
            None => Ok(()),
        }
    }

    /// Why nothing can be read, if so. What was queued before a hang-up can.
    pub(crate) fn check_read(&self) -> Result<(), ReadError> {
        match self.read_error {
            Some(errno) => Err(ReadError::Failed(errno)),
            None if self.hung_up && self.queue.is_empty() => Err(ReadError::HungUp),
            None => Ok(()),
        }
    }

    /// Says what can be done now (`poll`).
    pub(crate) fn poll(&self, room_below: bool) -> Readiness {
        let front = self.queue.front();
        Readiness {
            readable: front.is_some() || self.read_error.is_some() || self.hung_up,
            writable: !self.hung_up && (self.write_error.is_some() || (room_below && !self.write_blocked)),
            priority: front.is_some_and(|m| m.kind.is_high_priority()) || self.ioctl.has_answer(),
            hangup: self.hung_up,
            error: self.read_error.is_some() || self.write_error.is_some(),
        }
    }

    /// Lists the stream once when one of these becomes true. What is true already lists it at once.
    pub(crate) fn want(&mut self, s: StreamId, wants: Interest, room_below: bool, scheduler: &mut Scheduler) {
        self.wants = wants;
        let now = self.poll(room_below);
        let due = now.interest();
        self.wake(s, due, scheduler);
        if now.hangup || now.error {
            self.list(s, scheduler);
        }
    }

    /// Takes the stream off the list of wake-ups.
    pub(crate) fn unlist(&mut self) {
        self.listed = false;
    }

    /// The last signal that has come up to the reader.
    pub(crate) fn take_signal(&mut self) -> Option<Signal> {
        self.signal.take()
    }

    /// Delivers signals that no data stands before any more.
    #[inline]
    pub(crate) fn take_due_signals(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        while self.signals_queued > 0
            && let Some(Message { kind: Kind::Sig(signal), .. }) = self.queue.front()
        {
            self.signal = Some(*signal);
            self.signals_queued -= 1;
            let _ = self.queue.getq();
            self.wake(s, Interest::PRIORITY, scheduler);
        }
    }

    #[inline]
    fn wake(&mut self, s: StreamId, what: Interest, scheduler: &mut Scheduler) {
        if self.wants.intersects(what) {
            self.wants = self.wants.without(what);
            self.list(s, scheduler);
        }
    }

    #[cold]
    fn list(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        if !self.listed {
            self.listed = true;
            self.stats.wakeups += 1;
            scheduler.wakeups.push(s);
        }
    }

    /// An error or hang-up wakes everybody.
    fn note_trouble(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        self.troubled = self.hung_up || self.read_error.is_some() || self.write_error.is_some();
        self.ioctl.abandon();
        if self.wants != Interest::NONE {
            self.wants = Interest::NONE;
            self.list(s, scheduler);
        }
    }
}
