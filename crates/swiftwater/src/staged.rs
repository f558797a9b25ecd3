//! The executive of a shard, with stages in front of it. No other file of this crate has the executive itself, so a rule holds
//! for every call: it returns the stages unless it is a read or a getter.
//!
//! A short message is written into a *stage*: the end of its association's send queue, which the provider lends until
//! something else is asked of it. So most messages pass no layer; those that open a stage are admitted by all of them.
//! Every call but reads and getters first returns the stages ([`StagedExecutive::return_stages`]).
//!
//! A write that continues a record needs no stage: the head collects such writes, and hands down many at once. Most of them pass
//! no other layer, by the same rule: the answers to the first are those to the next until something else is asked.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use bytes::Bytes;
use providers::SctpDriver;
use sctp::{Batch, FlushWhen, RecvInfo, SendInfo, Stage, Staged};
use smallvec::SmallVec;
use streams::{
    At, Cx, DriverId, Executive, Interest, Message, Module, OpenError, PushError, ReadError, Readiness,
    Shown, StreamId, Which, WriteError,
};

/// Maximum number of associations that have a stage at a time, since each message looks for its own.
const STAGES_MAX: usize = 8;

/// An executive with one provider, and the stages that the provider has lent.
pub(crate) struct StagedExecutive {
    executive: Executive,
    driver: DriverId,
    stages: SmallVec<[Lent; 1]>,
}

/// A place where the writes of a stream to an association wait for others.
struct Lent {
    stream: StreamId,
    association: Which,
    place: Place,
}

enum Place {
    /// The end of the association's send queue.
    Stage {
        stage: Stage,
        /// Modules are pushed that observe: each message is shown to them.
        is_observed: bool,
    },
    /// The head, which holds parts of a record.
    Head,
}

/// Effect of a message that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// The provider may be due to transmit.
    MayBeDue,
    /// The message waits for others, or for its caller to flush.
    Waits,
}

impl StagedExecutive {
    pub(crate) fn new(executive: Executive, driver: DriverId) -> Self {
        StagedExecutive { executive, driver, stages: SmallVec::new() }
    }

    /// Returns the executive with all messages queued, for calls at this time.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> At<'_> {
        self.return_stages();
        self.executive.at(now)
    }

    /// Returns the executive with all messages queued, for calls that need no time.
    #[inline]
    pub(crate) fn with_messages_queued(&mut self) -> &mut Executive {
        self.return_stages();
        &mut self.executive
    }

    /// Begins a round of the work of modules: other threads or tasks have had their turn.
    pub(crate) fn begin_round(&mut self) {
        self.executive.begin_round();
    }

    /// Returns the stages to the provider.
    #[inline]
    fn return_stages(&mut self) {
        if !self.stages.is_empty() {
            self.return_open_stages();
        }
    }

    fn return_open_stages(&mut self) {
        while let Some(Lent { stream, place, .. }) = self.stages.pop() {
            let Place::Stage { stage, .. } = place else { continue };
            let (messages, bytes) = (stage.messages(), stage.data_bytes());
            self.executive
                .take_back(stream, messages, bytes, |driver: &mut SctpDriver| driver.return_stage(stage));
        }
    }

    /// Drops all streams and the provider with its sockets.
    pub(crate) fn dispose(&mut self) {
        self.stages.clear();
        self.executive = Executive::new(Instant::now());
    }

    /// Writes a message into the stage of its association, or a part of a record into the head that holds those before. Otherwise
    /// sends it down, and opens a stage for the next.
    #[inline]
    pub(crate) fn write(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        data: &[u8],
        when: FlushWhen,
    ) -> Result<Written, WriteError> {
        let is_its = |lent: &&mut Lent| lent.stream == s && lent.association == association;
        let Some(lent) = self.stages.iter_mut().find(is_its) else {
            return self.write_down(s, association, info, data, when);
        };
        let (stage, is_observed) = match &mut lent.place {
            Place::Stage { stage, is_observed } => (stage, *is_observed),
            Place::Head if self.executive.write_held(s, association, info, data) => {
                return Ok(Written::Waits);
            }
            Place::Head => return self.write_down(s, association, info, data, when),
        };
        if is_observed && stage.fits(info, data.len()) {
            match self.executive.show_write(s, association, info, data, Instant::now) {
                Shown::Passed => {}
                shown => return Ok(self.hand_over(s, shown, association, info, data)),
            }
        }
        match stage.push(info, data) {
            Staged::Yes => Ok(Written::Waits),
            Staged::No => self.write_down(s, association, info, data, when),
            Staged::Due => {
                self.return_open_stages();
                Ok(Written::MayBeDue)
            }
        }
    }

    /// Ends the stage of a write that a module handles, or that has gone with a module's panic.
    #[cold]
    fn hand_over(
        &mut self,
        s: StreamId,
        shown: Shown,
        association: Which,
        info: &SendInfo,
        data: &[u8],
    ) -> Written {
        self.return_stages();
        if let Shown::HandedOver(at) = shown {
            self.executive.write_from(s, at, association, *info, data);
        }
        Written::MayBeDue
    }

    /// Sends a message down. If it waits for further ones, borrows their stage; if the head holds it, the next may join it there.
    /// Stages of other streams stay: nothing that they do not know changes for their associations.
    #[inline(never)]
    fn write_down(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        data: &[u8],
        when: FlushWhen,
    ) -> Result<Written, WriteError> {
        let is_full = self.stages.len() == STAGES_MAX;
        if is_full || self.stages.iter().any(|lent| lent.stream == s) {
            self.return_open_stages();
        }
        self.executive.write(s, association, *info, data, Instant::now)?;
        if Stage::takes(info, data.len()) {
            let lend = |driver: &mut SctpDriver| driver.lend_stage(s, association, data.len(), when);
            if let Some(stage) = self.executive.lend(s, lend) {
                let place = Place::Stage { stage, is_observed: self.executive.has_modules(s) };
                self.stages.push(Lent { stream: s, association, place });
                return Ok(Written::Waits);
            }
        } else if info.more && self.executive.is_holding(s) {
            // What the head held before may have gone down, and be due.
            self.stages.push(Lent { stream: s, association, place: Place::Head });
        }
        Ok(Written::MayBeDue)
    }

    /// Returns the maximum size of a message that the association of a stream without modules copies to the others that wait.
    #[cfg(feature = "internals")]
    pub(crate) fn copied_bytes_max(&mut self, s: StreamId, association: Which) -> Option<usize> {
        self.executive.lend(s, |driver: &mut SctpDriver| driver.copied_bytes_max(s, association))
    }

    pub(crate) fn write_bytes(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        data: Bytes,
    ) -> Result<Written, WriteError> {
        let executive = self.with_messages_queued();
        executive.write_bytes(s, association, *info, data, Instant::now).map(|()| Written::MayBeDue)
    }

    /// Sends the messages of a batch, and empties it; `None` if they must be sent one by one.
    pub(crate) fn write_batch(
        &mut self,
        s: StreamId,
        association: Which,
        batch: &mut Batch,
    ) -> Option<Result<Written, WriteError>> {
        self.return_stages();
        let (messages, bytes) = (batch.messages(), batch.data_bytes());
        let take = |driver: &mut SctpDriver| driver.write_batch(s, association, batch);
        Some(self.executive.write_past(s, messages, bytes, take)?.map(|()| Written::MayBeDue))
    }

    #[inline]
    pub(crate) fn read(
        &mut self,
        s: StreamId,
        buffer: &mut [u8],
        info: &mut RecvInfo,
    ) -> Result<Option<usize>, ReadError> {
        self.executive.read_into(s, buffer, info)
    }

    #[inline]
    pub(crate) fn getmsg(&mut self, s: StreamId) -> Result<Option<Message>, ReadError> {
        self.executive.getmsg(s)
    }

    pub(crate) fn getrun(&mut self, s: StreamId) -> Result<Option<Message>, ReadError> {
        self.executive.getrun(s)
    }

    pub(crate) fn open(&mut self) -> Result<StreamId, OpenError> {
        let driver = self.driver;
        self.with_messages_queued().open(driver)
    }

    #[inline]
    pub(crate) fn poll(&mut self, s: StreamId) -> Readiness {
        self.executive.poll(s)
    }

    #[inline]
    pub(crate) fn want(&mut self, s: StreamId, interest: Interest) {
        self.executive.want(s, interest);
    }

    #[inline]
    pub(crate) fn take_wakeups(&mut self, woken: &mut Vec<StreamId>) {
        self.executive.take_wakeups(woken);
    }

    /// Contains a fault of the stream, or of an unknown one: the driver drops the association that it was handling.
    pub(crate) fn fault(&mut self, s: Option<StreamId>) {
        self.with_messages_queued().fault(s);
    }

    /// Returns whether the provider is due to transmit. Messages in a stage never make it due.
    #[inline]
    pub(crate) fn flush_due(&self) -> bool {
        self.executive.flush_due()
    }

    /// Returns whether the provider has something that was not sent. Messages in a stage do not count: the flush delay knows of
    /// them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.executive.has_unsent()
    }

    /// Returns whether packets have arrived that no descriptor announces.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.executive.has_arrivals()
    }

    /// Returns when the next timer expires.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.executive.deadline()
    }

    /// Returns whether a driver has work left. An association with messages in a stage is work.
    pub(crate) fn is_busy(&self) -> bool {
        self.executive.is_busy()
    }

    /// Returns whether a service procedure is enabled.
    pub(crate) fn is_runnable(&self) -> bool {
        self.executive.is_runnable()
    }

    #[inline]
    pub(crate) fn has_wakeups(&self) -> bool {
        self.executive.has_wakeups()
    }

    /// Returns whether nothing is between the head and the driver of a stream.
    #[cfg(feature = "internals")]
    pub(crate) fn is_clear_below(&self, s: StreamId) -> bool {
        self.executive.is_clear_below(s)
    }

    /// Makes a module by name.
    pub(crate) fn make_module(&self, name: &str, arguments: &[String]) -> Result<Box<dyn Module>, PushError> {
        self.executive.make_module(name, arguments)
    }

    /// Returns the names of the modules that can be pushed by name.
    pub(crate) fn module_names(&self) -> Vec<&str> {
        self.executive.module_names()
    }

    /// Returns whether a stream was hung up, even if its reader finds messages before that.
    pub(crate) fn is_hung_up(&self, s: StreamId) -> bool {
        self.executive.is_hung_up(s)
    }

    /// Calls `f` with each descriptor that the drivers wait for, and with the interest.
    pub(crate) fn descriptors(&self, f: &mut dyn FnMut(BorrowedFd<'_>, Interest)) {
        self.executive.descriptors(f);
    }

    /// Calls a function of the provider that acts on no association; [`StagedExecutive::command`] calls those that do.
    pub(crate) fn provider<R>(&mut self, f: impl FnOnce(&mut SctpDriver) -> R) -> Option<R> {
        let driver = self.driver;
        self.with_messages_queued().driver_state(driver, f)
    }

    /// Makes the provider execute a command at `now`.
    pub(crate) fn command<R>(
        &mut self,
        now: Instant,
        f: impl FnOnce(&mut SctpDriver, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let driver = self.driver;
        self.at(now).with_driver(driver, f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use streams::{Admission, Driver, DriverInfo, Errno, FlushScope, Message, Open, WriteAs};

    use super::*;

    /// A driver that answers as the test says, and counts the questions.
    struct Device(Arc<Mutex<Seen>>);

    struct Seen {
        admission: Admission,
        questions: usize,
        received: Vec<Vec<u8>>,
    }

    impl Driver for Device {
        fn info(&self) -> DriverInfo {
            DriverInfo { write_as: WriteAs::OptdataReq, ..DriverInfo::default() }
        }

        fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
            Ok(())
        }

        fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

        fn admit(&mut self, _s: StreamId, _association: Which, _info: &SendInfo, _bytes: usize) -> Admission {
            let mut seen = self.0.lock().unwrap();
            seen.questions += 1;
            seen.admission
        }

        fn put(&mut self, _cx: &mut Cx<'_>, _s: StreamId, m: Message) {
            self.0.lock().unwrap().received.push(m.data.to_vec());
        }
    }

    struct Rig {
        executive: StagedExecutive,
        seen: Arc<Mutex<Seen>>,
    }

    impl Rig {
        fn new() -> (Self, StreamId) {
            let seen = Seen { admission: Admission::Room, questions: 0, received: Vec::new() };
            let seen = Arc::new(Mutex::new(seen));
            let mut executive = Executive::new(Instant::now());
            let driver = executive.add_driver("device", Box::new(Device(Arc::clone(&seen))));
            let mut executive = StagedExecutive::new(executive, driver);
            let s = executive.open().unwrap();
            (Rig { executive, seen }, s)
        }

        /// Writes a part of a record, and returns whether the driver was asked.
        fn asks(&mut self, s: StreamId, text: &str) -> bool {
            let more = SendInfo { more: true, ..SendInfo::default() };
            let before = self.seen.lock().unwrap().questions;
            let written = self.executive.write(s, Which::Only, &more, text.as_bytes(), FlushWhen::Rule);
            let asks = self.seen.lock().unwrap().questions > before;
            assert_eq!(written, Ok(if asks { Written::MayBeDue } else { Written::Waits }));
            asks
        }

        fn received(&self) -> Vec<Vec<u8>> {
            std::mem::take(&mut self.seen.lock().unwrap().received)
        }
    }

    #[test]
    fn the_driver_is_asked_once_for_the_parts_of_a_record_that_wait() {
        let (mut rig, s) = Rig::new();
        assert!(rig.asks(s, "ab"));
        assert!(!rig.asks(s, "c") && !rig.asks(s, "de"));
        assert!(rig.received().is_empty());
        rig.executive.with_messages_queued().flush(Instant::now(), FlushScope::All);
        assert_eq!(rig.received(), [b"abcde"]);
        assert!(rig.asks(s, "f"), "the head holds nothing");
    }

    #[test]
    fn the_driver_is_asked_again_when_its_answer_may_have_changed() {
        let (mut rig, s) = Rig::new();
        assert!(rig.asks(s, "a") && !rig.asks(s, "b"));
        let mut buffer = [0; 4];
        let read = rig.executive.read(s, &mut buffer, &mut RecvInfo::default());
        assert_eq!(read, Ok(None));
        assert!(!rig.asks(s, "c"), "a read changes nothing");
        rig.seen.lock().unwrap().admission = Admission::Idle;
        rig.executive.at(Instant::now()).run();
        assert!(rig.asks(s, "d"));
        assert_eq!(rig.received(), [b"abcd"], "an idle driver gets what is held");
    }

    #[test]
    fn a_message_follows_the_parts_of_a_record_that_wait() {
        let (mut rig, s) = Rig::new();
        let other = rig.executive.open().unwrap();
        assert!(rig.asks(s, "a") && rig.asks(other, "1"));
        assert!(!rig.asks(s, "b") && !rig.asks(other, "2"), "each stream has its own");
        let end = SendInfo::default();
        rig.executive.write(s, Which::Only, &end, b"end", FlushWhen::Rule).unwrap();
        assert_eq!(rig.received(), [&b"ab"[..], b"end"]);
        rig.executive.at(Instant::now()).close(other);
        assert_eq!(rig.received(), [b"12"]);
    }
}
