//! Stream heads: the upper end of a stream, where programs read and write.

mod coalesce;
mod control;
mod ioctl;
pub(crate) mod options;
pub(crate) mod readiness;
mod settings;
mod stats;
mod waiters;

pub use options::{ErrorOptions, HeadOptions, ReadControl, ReadMode, WriteAs, WriteOptions};
pub use readiness::{Interest, Readiness, WaiterId, Woken};
pub use stats::HeadStats;
pub use waiters::{SignalEvents, SignalNotice};

use crate::credit::DiscardedCredit;
use crate::driver::info::DriverInfo;
use crate::identifiers::{LinkId, Side, StreamId};
use crate::memory::StreamMemory;
use crate::message::{Control, Kind, Message, Signal};
use crate::queue::Queue;
use crate::scheduler::{DriverCall, Scheduler};
use crate::{Chain, Errno, ReadError, RecvInfo, Which, WriteError};
use coalesce::Coalesced;
pub(crate) use ioctl::IoctlState;
use std::sync::Arc;
use std::time::Duration;

use settings::Settings;
use waiters::Waiters;

/// The upper end of one stream. The parts that other files may change are owners of their own.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) queue: Queue,
    /// Bytes of writes with more to come, which will be one message.
    pub(crate) coalesced: Coalesced,
    pub(crate) ioctl: IoctlState,
    settings: Settings,
    /// Time that a close waits for messages on their way down.
    close_time: Duration,
    /// The stream has an error or a hang-up to report, or its messages are diverted; cached for the fast path.
    failed_or_diverted: bool,
    read_error: Option<Errno>,
    write_error: Option<Errno>,
    hung_up: bool,
    /// The stream has hung up, but modules hold messages that the reader gets before it sees the hang-up.
    hang_up_is_delayed: bool,
    /// The uppermost module could not leave, and has announced since that it may.
    poppable: bool,
    /// The driver has announced that the other end sends no more.
    read_hung_up: bool,
    /// Messages that come up are not for a reader: the stream is linked or closing.
    diverted: bool,
    /// The stream is linked under a multiplexor, whose driver handles messages that come up.
    link: Option<LinkId>,
    /// While the stream is linked, its user waits instead of getting errors.
    user_waits: bool,
    /// The users have closed the stream, but written data still goes down.
    closing: bool,
    /// A writer has to wait.
    write_blocked: bool,
    waiters: Waiters,
    /// The stream is in the list of those that hold attached data.
    attached: bool,
    signals_queued: u32,
    signal: Option<Signal>,
    stats: HeadStats,
    /// The memory that data of the stream's modules is charged to.
    memory: Option<Arc<dyn StreamMemory>>,
}

impl Head {
    /// Time that a close waits for messages on their way down (`I_SETCLTIME`).
    const CLOSE_TIME: Duration = Duration::from_secs(15);

    pub(crate) fn new(info: &DriverInfo) -> Self {
        Self {
            queue: Queue::new(info.head),
            coalesced: Coalesced::default(),
            ioctl: IoctlState::default(),
            settings: Settings::new(info.write_as),
            close_time: Self::CLOSE_TIME,
            failed_or_diverted: false,
            read_error: None,
            write_error: None,
            hung_up: false,
            hang_up_is_delayed: false,
            poppable: false,
            read_hung_up: false,
            diverted: false,
            link: None,
            user_waits: false,
            closing: false,
            write_blocked: false,
            waiters: Waiters::default(),
            attached: false,
            signals_queued: 0,
            signal: None,
            stats: HeadStats::default(),
            memory: None,
        }
    }

    /// Returns the memory that data of the stream's modules is charged to.
    pub(crate) fn memory(&self) -> Option<&Arc<dyn StreamMemory>> {
        self.memory.as_ref()
    }

    pub(crate) fn set_memory(&mut self, memory: Option<Arc<dyn StreamMemory>>) {
        self.memory = memory;
    }

    /// Returns the options in effect.
    #[inline]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns whether a read needs neither look for errors nor at the options.
    #[inline]
    pub(crate) fn reads_directly(&self) -> bool {
        !self.failed_or_diverted && self.settings.reads_directly()
    }

    /// Returns whether a write needs neither look for errors nor at the options, and follows no coalesced bytes.
    #[inline]
    pub(crate) fn writes_directly(&self) -> bool {
        !self.failed_or_diverted && self.settings.writes_directly() && self.coalesced.is_empty()
    }

    /// Returns whether the stream has an error or a hang-up to report, or its messages are diverted.
    #[inline]
    pub(crate) fn is_failed_or_diverted(&self) -> bool {
        self.failed_or_diverted
    }

    /// Returns how long a close waits for messages on their way down.
    pub(crate) fn close_time(&self) -> Duration {
        self.close_time
    }

    pub(crate) fn set_close_time(&mut self, time: Duration) {
        self.close_time = time;
    }

    /// Records that data has come which may lie in a driver's memory. Returns whether the stream is in the list of such
    /// streams already.
    #[inline]
    pub(crate) fn attach(&mut self) -> bool {
        std::mem::replace(&mut self.attached, true)
    }

    /// Records that the data was copied, and whether the stream stays in the list.
    pub(crate) fn on_detached(&mut self, stays_listed: bool) {
        self.attached = stays_listed;
    }

    pub(crate) fn stats(&self) -> HeadStats {
        self.stats
    }

    /// Counts messages that were read to their end, and bytes that were read.
    #[inline]
    pub(crate) fn count_read(&mut self, messages: usize, bytes: usize) {
        self.stats.messages_read += messages as u64;
        self.stats.bytes_read += bytes as u64;
    }

    /// Counts accepted writes.
    #[inline]
    pub(crate) fn count_written(&mut self, messages: usize, bytes: usize) {
        self.stats.messages_written += messages as u64;
        self.stats.bytes_written += bytes as u64;
    }

    /// Counts a message of coalesced writes that goes down.
    pub(crate) fn count_coalesced(&mut self) {
        self.stats.messages_coalesced += 1;
    }

    /// Handles a message that has come up (`strrput`).
    #[inline]
    pub(crate) fn put(&mut self, s: StreamId, m: Message, scheduler: &mut Scheduler) {
        if self.diverted {
            return self.divert(s, m, scheduler);
        }
        match m.kind {
            Kind::Data
            | Kind::Proto(_)
            | Kind::Run(_)
            | Kind::PcProto(_)
            | Kind::PassFp(_)
            | Kind::Sig(_)
                if self.queue.is_flooded() =>
            {
                self.refuse_flood(s, m, scheduler);
            }
            Kind::Data | Kind::Proto(_) | Kind::Run(_) => {
                let readable = if m.band == 0 { Self::NORMAL } else { Self::BAND };
                let _ = self.queue.putq(m);
                self.wake(s, readable, scheduler);
            }
            _ => self.put_control(s, m, scheduler),
        }
    }

    /// Handles user data in the normal band, which is built in place on the queue.
    #[inline]
    pub(crate) fn put_data(
        &mut self,
        s: StreamId,
        association: Which,
        info: &RecvInfo,
        data: Chain,
        scheduler: &mut Scheduler,
    ) {
        if self.diverted {
            return self.divert(s, Message::optdata_ind(association, *info, data), scheduler);
        }
        self.queue.putq_data(association, info, data);
        self.wake(s, Self::NORMAL, scheduler);
    }

    /// Readiness that a message of band 0 brings, and one of another band.
    const NORMAL: Interest = Interest::READABLE.or(Interest::READ_NORMAL);
    const BAND: Interest = Interest::READABLE.or(Interest::READ_BAND);

    /// Discards a message and fails the stream, because its sender ignores flow control.
    #[cold]
    fn refuse_flood(&mut self, s: StreamId, m: Message, scheduler: &mut Scheduler) {
        scheduler.return_credit(s, &m);
        self.read_error = Some(Errno::EIO);
        self.write_error = Some(Errno::EIO);
        self.on_failure(s, SignalEvents::ERROR, scheduler);
    }

    /// Passes a message to the driver that the stream is linked under, or discards it if the stream is closing.
    #[cold]
    fn divert(&mut self, s: StreamId, m: Message, scheduler: &mut Scheduler) {
        if self.link.is_some() {
            return scheduler.defer(DriverCall::LowerPut { stream: s, message: m });
        }
        scheduler.return_credit(s, &m);
        if matches!(m.kind, Kind::Error { .. } | Kind::Hangup) {
            self.put_control(s, m, scheduler);
        }
    }

    /// Returns whether a reader gets the messages that come up: the stream is neither linked nor closing.
    #[inline]
    pub(crate) fn has_reader(&self) -> bool {
        !self.diverted
    }

    /// Links the stream under a multiplexor. Its user gets errors meanwhile, or waits.
    pub(crate) fn set_link(&mut self, link: LinkId, user_waits: bool) {
        self.link = Some(link);
        self.user_waits = user_waits;
        self.diverted = true;
        self.update_failed_or_diverted();
    }

    /// Returns a linked stream to its user, who reads the messages that the multiplexor has left.
    pub(crate) fn end_link(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        self.link = None;
        self.diverted = self.closing;
        self.write_blocked = false;
        self.update_failed_or_diverted();
        if std::mem::take(&mut self.user_waits) {
            self.waiters.wake_all(s, scheduler);
        }
    }

    /// Returns whether the user of the stream waits until its link ends.
    pub(crate) fn is_lent(&self) -> bool {
        self.user_waits
    }

    /// Turns the message at the front of the queue from control part into data, as the read mode requires (`RPROTDAT`,
    /// `RPROTDIS`). Primitives with user data are data in every mode.
    #[cold]
    pub(crate) fn uncover_data(&mut self) {
        let read_control = self.settings.read_control();
        while read_control != ReadControl::Fail
            && let Some(Message { kind: Kind::Proto(control) | Kind::PcProto(control), .. }) =
                self.queue.front()
            && !control.carries_user_data()
        {
            let as_data = read_control == ReadControl::AsData;
            let mut data = Chain::from(if as_data { control.encode() } else { Vec::new() });
            let Some(m) = self.queue.getq() else { return };
            data.append(m.data);
            if !data.is_empty() {
                let _ = self.queue.putbq(Message { kind: Kind::Data, data, ..m });
                return;
            }
        }
    }

    /// Puts back the rest of a message after `getpmsg`. The credit of the whole message has been returned, so its remaining data
    /// stays behind an empty control part, which carries no credit.
    pub(crate) fn put_back(&mut self, m: Message) {
        let kind = match m.kind {
            Kind::Data => Kind::Proto(Control::Raw([].into())),
            kind => kind,
        };
        let _ = self.queue.putbq(Message { kind, ..m });
    }

    /// Takes all unread messages, with their credit.
    pub(crate) fn take_all(&mut self, s: StreamId, scheduler: &mut Scheduler) -> Vec<Message> {
        let mut all = Vec::new();
        loop {
            if self.queue.begins_with_run()
                && let Some(credit) = self.queue.split_run()
            {
                scheduler.defer(DriverCall::Consumed { stream: s, credit });
            }
            let Some(m) = self.queue.getq() else { break };
            all.push(m);
        }
        self.signals_queued = 0;
        self.enable_senders(s, scheduler);
        all
    }

    /// Discards all unread messages, and returns their receive window.
    fn discard_unread(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        let mut discarded = DiscardedCredit::default();
        discarded.discard(&mut self.queue);
        discarded.return_to(s, scheduler);
    }

    /// Returns the link of the stream, if it is linked.
    pub(crate) fn link(&self) -> Option<LinkId> {
        self.link
    }

    /// Changes the options that are given, and the marks of a band.
    pub(crate) fn set_options(&mut self, s: StreamId, options: &HeadOptions, scheduler: &mut Scheduler) {
        self.settings.change(options);
        let (hiwat_bytes, lowat_bytes) = self.queue.marks(options.band);
        self.queue.set_marks(
            options.band,
            options.hiwat_bytes.unwrap_or(hiwat_bytes),
            options.lowat_bytes.unwrap_or(lowat_bytes),
        );
        self.enable_senders(s, scheduler);
    }

    /// Returns all options.
    pub(crate) fn options(&self) -> HeadOptions {
        let (hiwat_bytes, lowat_bytes) = self.queue.marks(0);
        HeadOptions {
            hiwat_bytes: Some(hiwat_bytes),
            lowat_bytes: Some(lowat_bytes),
            ..self.settings.options()
        }
    }

    /// Schedules a check for waiting senders after the read queue may have got room other than by a read.
    fn enable_senders(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        scheduler.enable_head(s, Side::Read);
    }

    /// Sends coalesced bytes down and wakes waiting writers, when there is room below again (`strwsrv`).
    pub(crate) fn back_enable(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        self.write_blocked = false;
        if !self.coalesced.is_empty() || self.link.is_some() {
            scheduler.enable_head(s, Side::Write);
        }
        if !self.user_waits {
            self.wake(s, Interest::WRITABLE | Interest::WRITE_BAND, scheduler);
        }
    }

    /// Notes that a writer has to wait.
    #[cold]
    pub(crate) fn block_writer(&mut self) -> WriteError {
        self.write_blocked = true;
        self.stats.writes_blocked += 1;
        WriteError::WouldBlock
    }

    /// Returns the error of a write, if there is one.
    pub(crate) fn check_write(&self) -> Result<(), WriteError> {
        match self.write_error {
            _ if self.closing => Err(WriteError::Closed),
            _ if self.user_waits => Err(WriteError::WouldBlock),
            _ if self.link.is_some() => Err(WriteError::Failed(Errno::EINVAL)),
            Some(errno) => Err(WriteError::Failed(errno)),
            None if self.hung_up => Err(WriteError::HungUp),
            None => Ok(()),
        }
    }

    /// Returns the error of a read, if there is one. Messages queued before a hang-up can still be read.
    pub(crate) fn check_read(&self) -> Result<(), ReadError> {
        match self.read_error {
            _ if self.closing => Err(ReadError::Closed),
            _ if self.user_waits => Ok(()),
            _ if self.link.is_some() => Err(ReadError::Failed(Errno::EINVAL)),
            Some(errno) => Err(ReadError::Failed(errno)),
            None if self.hung_up && !self.hang_up_is_delayed && self.queue.is_empty() => {
                Err(ReadError::HungUp)
            }
            None => Ok(()),
        }
    }

    /// Checks as [`Head::check_read`] does, for an operation that reports the error to the program: some errors are reported
    /// once.
    #[cold]
    pub(crate) fn report_read(&mut self) -> Result<(), ReadError> {
        let checked = self.check_read();
        if self.settings.error_options().read_once && matches!(checked, Err(ReadError::Failed(_))) {
            self.read_error = None;
            self.update_failed_or_diverted();
        }
        checked
    }

    /// Checks as [`Head::check_write`] does, for an operation that reports the error to the program: some errors are reported
    /// once.
    #[cold]
    pub(crate) fn report_write(&mut self) -> Result<(), WriteError> {
        let checked = self.check_write();
        if self.settings.error_options().write_once && matches!(checked, Err(WriteError::Failed(_))) {
            self.write_error = None;
            self.update_failed_or_diverted();
        }
        if self.settings.write_options().send_pipe
            && matches!(checked, Err(WriteError::Failed(_) | WriteError::HungUp))
        {
            self.signal = Some(Signal::PIPE);
        }
        checked
    }

    /// Begins the close by the stream's users.
    pub(crate) fn begin_close(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        self.diverted = true;
        self.discard_unread(s, scheduler);
        self.on_failure(s, SignalEvents::NONE, scheduler);
        self.closing = true;
        self.waiters = Waiters::default();
    }

    /// Returns whether the stream was hung up, whatever remains to be read.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Returns whether the reader gets messages that modules hold before it sees the hang-up.
    #[inline]
    pub(crate) fn delays_hang_up(&self) -> bool {
        self.hang_up_is_delayed
    }

    /// Ends the delay of a hang-up: the modules hold no messages any more, and the hang-up follows them.
    pub(crate) fn end_delay_of_hang_up(&mut self) {
        self.hang_up_is_delayed = false;
    }

    /// Returns whether no write can arrive any more.
    pub(crate) fn is_failed(&self) -> bool {
        self.hung_up || self.write_error.is_some()
    }

    /// Returns whether the users have closed the stream.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns what the program can do now (`poll`).
    pub(crate) fn poll(&self, below: &Queue) -> Readiness {
        if self.user_waits {
            return Readiness { read_hangup: self.read_hung_up, ..Readiness::default() };
        }
        let front = self.queue.front();
        let priority = front.is_some_and(|m| m.kind.is_high_priority());
        let ordinary_band = front.filter(|_| !priority).map(|m| m.band);
        let has_room = !self.write_blocked && !below.is_full(0);
        Readiness {
            readable: front.is_some()
                || self.read_error.is_some()
                || (self.hung_up && !self.hang_up_is_delayed),
            writable: self.hang_up_is_delayed || (!self.hung_up && (self.write_error.is_some() || has_room)),
            priority: priority || self.hang_up_is_delayed || self.ioctl.has_answer(),
            read_normal: ordinary_band == Some(0),
            read_band: ordinary_band.is_some_and(|band| band > 0),
            write_band: !self.hung_up && below.has_room_in_a_band(),
            poppable: self.poppable,
            read_hangup: self.read_hung_up,
            hangup: self.hung_up && !self.hang_up_is_delayed,
            error: self.read_error.is_some() || self.write_error.is_some(),
        }
    }

    /// Notes that the uppermost module, which could not leave, may be popped, and wakes those who wait for that.
    pub(crate) fn on_poppable(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        self.poppable = true;
        self.waiters.wake(s, Interest::POPPABLE, scheduler);
    }

    /// Sets whether the other end sends no more, and wakes those who wait for that.
    pub(crate) fn set_read_hung_up(&mut self, s: StreamId, hung_up: bool, scheduler: &mut Scheduler) {
        self.read_hung_up = hung_up;
        if hung_up {
            self.wake_quietly(s, Interest::READ_HANGUP, scheduler);
        }
    }

    /// Forgets whether a module may be popped: it is asked now.
    pub(crate) fn on_pop(&mut self) {
        self.poppable = false;
    }

    /// Lists the stream once when part of the interest becomes ready, at once if it is.
    pub(crate) fn want(&mut self, s: StreamId, wants: Interest, now: Readiness, scheduler: &mut Scheduler) {
        self.waiters.want(wants);
        self.wake_ready(s, now, scheduler);
        if now.hangup || now.error {
            self.waiters.list(s, scheduler);
        }
    }

    /// Adds a waiter, and wakes it at once if part of its interest is ready. Returns false if there are too many.
    pub(crate) fn wait(
        &mut self,
        s: StreamId,
        waiter: WaiterId,
        interest: Interest,
        now: Readiness,
        scheduler: &mut Scheduler,
    ) -> bool {
        let added = self.waiters.add(waiter, interest);
        match now.hangup || now.error {
            true => self.waiters.wake_all(s, scheduler),
            false => self.wake_ready(s, now, scheduler),
        }
        added
    }

    fn wake_ready(&mut self, s: StreamId, now: Readiness, scheduler: &mut Scheduler) {
        let ready = now.interest();
        if self.waiters.wait_for(ready) {
            self.waiters.wake(s, ready, scheduler);
        }
    }

    /// Returns the waiters of the stream.
    pub(crate) fn waiters(&mut self) -> &mut Waiters {
        &mut self.waiters
    }

    /// Removes the stream from the list of wake-ups.
    pub(crate) fn unlist(&mut self) {
        self.waiters.unlist();
        self.stats.wakeups += 1;
    }

    /// Takes the last signal that has come up to the reader.
    pub(crate) fn take_signal(&mut self) -> Option<Signal> {
        self.signal.take()
    }

    /// Delivers signals that have reached the front of the queue.
    #[inline]
    pub(crate) fn take_due_signals(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        if self.signals_queued > 0 {
            self.raise_due_signals(s, scheduler);
        }
    }

    #[cold]
    fn raise_due_signals(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        while self.signals_queued > 0
            && let Some(Message { kind: Kind::Sig(signal), .. }) = self.queue.front()
        {
            let signal = *signal;
            self.signals_queued -= 1;
            let _ = self.queue.getq();
            self.raise(s, signal, scheduler);
        }
    }

    #[inline]
    fn wake(&mut self, s: StreamId, what: Interest, scheduler: &mut Scheduler) {
        if self.waiters.wait_for(what) {
            self.wake_waiters(s, what, scheduler);
        }
    }

    /// Wakes without a signal.
    fn wake_quietly(&mut self, s: StreamId, what: Interest, scheduler: &mut Scheduler) {
        if self.waiters.wait_for(what) {
            self.waiters.wake(s, what, scheduler);
        }
    }

    #[cold]
    fn wake_waiters(&mut self, s: StreamId, what: Interest, scheduler: &mut Scheduler) {
        self.waiters.wake(s, what, scheduler);
        if self.waiters.has_programs() {
            self.waiters.signal(s, SignalEvents::of(what), scheduler);
        }
    }

    /// Wakes all waiters after an error or hang-up. A close waits no longer.
    fn on_failure(&mut self, s: StreamId, events: SignalEvents, scheduler: &mut Scheduler) {
        self.update_failed_or_diverted();
        if self.closing {
            scheduler.list_drained(s);
        }
        self.ioctl.abandon();
        self.waiters.wake_all(s, scheduler);
        self.waiters.signal(s, events, scheduler);
    }

    fn update_failed_or_diverted(&mut self) {
        self.failed_or_diverted =
            self.diverted || self.hung_up || self.read_error.is_some() || self.write_error.is_some();
    }
}
