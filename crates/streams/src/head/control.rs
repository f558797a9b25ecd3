//! Messages without user data that come up to a stream head: flushes, errors, answers to ioctls, signals.

use super::{Head, Interest, SignalEvents};
use crate::Errno;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::message::{Flush, IocData, IocNak, Ioctl, Kind, Marks, Message, Signal};
use crate::scheduler::Scheduler;

impl Head {
    /// Handles a message without user data that has come up.
    #[cold]
    pub(super) fn put_control(&mut self, s: StreamId, m: Message, scheduler: &mut Scheduler) {
        match m.kind {
            // The head keeps all of them, where SVR4 keeps one: a caller whose answer was discarded would wait for ever.
            Kind::PcProto(_) => {
                let _ = self.queue.putq(m);
                self.wake(s, Interest::READABLE | Interest::PRIORITY, scheduler);
            }
            Kind::PassFp(_) => {
                let _ = self.queue.putq(m);
                self.wake(s, Self::NORMAL, scheduler);
            }
            Kind::Flush(flush) => self.flush(s, flush, m.marks, scheduler),
            Kind::Error { read, write } => {
                self.read_error = read.map_or(self.read_error, |e| Some(e).filter(|e| e.0 != 0));
                self.write_error = write.map_or(self.write_error, |e| Some(e).filter(|e| e.0 != 0));
                self.on_failure(s, SignalEvents::ERROR, scheduler);
            }
            Kind::Hangup => {
                self.hung_up = true;
                self.hang_up_is_delayed = false;
                self.on_failure(s, SignalEvents::HANGUP, scheduler);
            }
            Kind::IocAck(_) | Kind::IocNak(_) => self.answer_ioctl(s, m, scheduler),
            Kind::CopyIn(ref copy) | Kind::CopyOut(ref copy) => {
                let (id, private) = (copy.id, copy.private);
                if !self.ioctl.is_below(id) {
                    return self.refuse_copy(s, id, private, scheduler);
                }
                self.answer_ioctl(s, m, scheduler);
            }
            Kind::Setopts(options) => self.set_options(s, &options, scheduler),
            Kind::Sig(_) => {
                self.signals_queued += 1;
                let _ = self.queue.putq(m);
                self.take_due_signals(s, scheduler);
            }
            Kind::PcSig(signal) => self.raise(s, signal, scheduler),
            // Only a module that turns a request the wrong way sends it here; its caller must not wait for ever.
            Kind::Ioctl(ioctl) => {
                let nak = IocNak { id: ioctl.id, errno: Errno::EINVAL };
                self.answer_ioctl(s, Message::new(Kind::IocNak(nak)), scheduler);
            }
            Kind::Data | Kind::Proto(_) | Kind::Run(_) => self.put(s, m, scheduler),
            // SVR4's head frees messages that are meant for drivers and neighbouring modules.
            Kind::Break
            | Kind::Event
            | Kind::Delay(_)
            | Kind::Ctl
            | Kind::Rse
            | Kind::Read { .. }
            | Kind::Stop
            | Kind::Start
            | Kind::StopI
            | Kind::StartI
            | Kind::IocData(_)
            | Kind::PcRse => {}
        }
    }

    /// Handles a hang-up that passes messages which modules hold for the reader: writes and ioctls end at once, reads behind
    /// these messages.
    #[cold]
    pub(crate) fn hang_up_behind_modules(&mut self, s: StreamId, scheduler: &mut Scheduler) {
        self.hung_up = true;
        self.hang_up_is_delayed = true;
        self.on_failure(s, SignalEvents::NONE, scheduler);
    }

    fn answer_ioctl(&mut self, s: StreamId, m: Message, scheduler: &mut Scheduler) {
        if self.ioctl.answer(m) {
            self.wake_quietly(s, Interest::PRIORITY, scheduler);
        }
    }

    /// Refuses a copy for an ioctl that no caller waits for: the module that requested the copy would otherwise wait for ever.
    fn refuse_copy(&mut self, s: StreamId, id: u32, private: u64, scheduler: &mut Scheduler) {
        let ioctl = Ioctl { id, ..Ioctl::default() };
        let refusal = IocData { ioctl, private, result: Err(Errno::EINTR) };
        let at = QueueRef { stream: s, place: Place::BelowHead, side: Side::Write };
        scheduler.post(at, Message::new(Kind::IocData(Box::new(refusal))));
    }

    /// Ends the ioctl with this number because its time is over (`ETIME`).
    pub(crate) fn expire_ioctl(&mut self, s: StreamId, id: u32, scheduler: &mut Scheduler) {
        if self.ioctl.fail(id, Errno::ETIME) {
            self.wake_quietly(s, Interest::PRIORITY, scheduler);
        }
    }

    pub(super) fn raise(&mut self, s: StreamId, signal: Signal, scheduler: &mut Scheduler) {
        self.signal = Some(signal);
        self.waiters.signal(s, SignalEvents::MESSAGE, scheduler);
        self.wake_quietly(s, Interest::PRIORITY, scheduler);
    }

    /// Handles an M_FLUSH that has come up: flushes the read queue, and sends a message down that flushes the write side.
    fn flush(&mut self, s: StreamId, flush: Flush, marks: Marks, scheduler: &mut Scheduler) {
        if flush.read {
            let signals_queued = &mut self.signals_queued;
            self.queue.flushq(&flush, |m| {
                *signals_queued -= u32::from(matches!(m.kind, Kind::Sig(_)));
                scheduler.return_credit(s, &m);
            });
            self.enable_senders(s, scheduler);
        }
        if flush.write && !marks.contains(Marks::NO_LOOP) {
            let at = QueueRef { stream: s, place: Place::BelowHead, side: Side::Write };
            // A flush that comes up again is not sent down once more.
            let down = Message::new(Kind::Flush(Flush { read: false, ..flush })).marked(Marks::NO_LOOP);
            scheduler.post(at, down);
        }
    }
}
