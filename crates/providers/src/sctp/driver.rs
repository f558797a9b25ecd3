//! The calls of the executive and of stream heads ([`Driver`]).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use ::sctp::{Admission, Permit, SendInfo, Time};
use streams::{
    Control, Cx, Driver, DriverInfo, Errno, FlushScope, Interest, Kind, Marks, Message, Open, StreamId,
    Which, WriteAs, WriteData,
};
use tpi::Primitive;

use super::SctpDriver;
use super::minor::Minor;

impl Driver for SctpDriver {
    fn info(&self) -> DriverInfo {
        DriverInfo { write_as: WriteAs::OptdataReq, ..DriverInfo::default() }
    }

    fn open(&mut self, _cx: &mut Cx<'_>, s: StreamId, open: &Open) -> Result<(), Errno> {
        if open.is_first {
            self.minors.open(s);
        }
        Ok(())
    }

    fn close(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        self.release(cx, s);
    }

    #[inline]
    fn admit(
        &mut self,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        bytes: usize,
    ) -> streams::Admission {
        let Some(id) = self.association(s, association) else {
            return streams::Admission::Fail(Errno::ENOTCONN);
        };
        admitted(self.endpoint.admit(id, info, bytes), |_| {})
    }

    #[inline]
    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: Which,
        info: &SendInfo,
        data: WriteData<'_>,
    ) -> streams::Admission {
        let Some(id) = self.association(s, association) else {
            return streams::Admission::Fail(Errno::ENOTCONN);
        };
        let now = self.now(cx);
        admitted(self.endpoint.admit(id, info, data.len()), |permit| match data {
            WriteData::Copied(bytes) if permit.copies() => permit.send(now, [bytes]),
            data => permit.send(now, [cx.block(data)]),
        })
    }

    #[inline]
    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        let is_behind = || cx.queue(s).is_some_and(|queue| !queue.is_empty()) && m.user_data().is_some();
        if m.marks.contains(Marks::UNADMITTED) || is_behind() {
            return self.put_unadmitted(cx, s, m);
        }
        match &m.kind {
            Kind::Proto(Control::Tpi(Primitive::OptdataReq { association, info })) => {
                self.send(cx, s, *association, info, m.data);
            }
            Kind::Data => self.put_unadmitted(cx, s, m),
            _ => self.put_request(cx, s, m),
        }
    }

    fn service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        self.send_queued(cx, s);
    }

    #[inline]
    fn consumed(&mut self, _cx: &mut Cx<'_>, s: StreamId, association: Which, bytes: usize, charges: usize) {
        if !self.charges.consumed(s, association, bytes, charges)
            && let Some(id) = self.association(s, association)
        {
            self.endpoint.consumed(id, bytes, charges);
        }
    }

    fn descriptors(&self, visit: &mut dyn FnMut(BorrowedFd<'_>, Interest)) {
        let interest = match self.refused {
            Some(_) => Interest::READABLE | Interest::WRITABLE,
            None => Interest::READABLE,
        };
        self.link.descriptors(&mut |fd| visit(fd, interest));
    }

    fn receive(&mut self, cx: &mut Cx<'_>, now: Instant) -> io::Result<bool> {
        let now = self.time(now);
        self.take_arrivals(cx, now)
    }

    #[inline]
    fn has_arrivals(&self) -> bool {
        self.received.has_batches() || self.link.held_bytes() > 0
    }

    fn deadline(&self) -> Option<Instant> {
        if !self.leftovers.unwanted.is_empty() {
            return Some(self.epoch);
        }
        let deadline = self.endpoint.poll_timeout().into_iter().chain(self.attached.until()).min();
        deadline.map(|at| self.epoch + at.saturating_since(Time::ZERO))
    }

    fn timeout(&mut self, cx: &mut Cx<'_>, now: Instant) {
        let now = self.time(now);
        self.with_endpoint(cx, |endpoint, host| endpoint.handle_timeout(now, host));
        self.detach_after_pause(cx, now);
        self.hand_out_trace();
    }

    #[inline]
    fn flush_due(&self) -> bool {
        self.refused.is_some() || self.endpoint.transmit_due()
    }

    fn fault(&mut self, cx: &mut Cx<'_>, s: Option<StreamId>) {
        let in_progress = self.endpoint.take_in_progress();
        let of_stream = match s.and_then(|s| self.minors.get(s)) {
            Some(Minor::Connected { association }) => Some(association),
            _ => None,
        };
        // The batch under construction is lost, as any packet may be.
        self.refused = None;
        for id in in_progress.into_iter().chain(of_stream.filter(|id| in_progress != Some(*id))) {
            // Nothing else is done after a fault: what is left is done by the next call.
            let (endpoint, mut host) = self.split(cx);
            endpoint.abandon(id, &mut host);
        }
    }

    fn is_busy(&self) -> bool {
        self.endpoint.association_count() > 0 || self.endpoint.transmit_waits()
    }

    fn has_unsent(&self) -> bool {
        self.refused.is_some() || self.endpoint.transmit_waits()
    }

    fn flush(&mut self, cx: &mut Cx<'_>, now: Instant, scope: FlushScope) {
        let scope = match scope {
            FlushScope::Due => ::sctp::Scope::Due,
            FlushScope::All => ::sctp::Scope::All,
        };
        self.transmit(cx, now, scope);
    }
}

/// Uses the permit, if the core has granted one, and returns the answer for the stream head.
#[inline]
fn admitted(admission: Admission<'_>, take: impl FnOnce(Permit<'_>)) -> streams::Admission {
    match admission {
        Admission::Granted(permit) => {
            let answer = if permit.is_idle() { streams::Admission::Idle } else { streams::Admission::Room };
            take(permit);
            answer
        }
        Admission::Full => streams::Admission::Full,
        Admission::Fail(error) => streams::Admission::Refused(error),
    }
}
