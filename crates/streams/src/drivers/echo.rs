//! A driver that sends every message back (`echo`).

use super::pause::Pauses;
use crate::Errno;
use crate::driver::{Cx, Driver, Open};
use crate::identifiers::StreamId;
use crate::message::{Kind, Message};
use crate::timers::TimerId;

/// Sends data, control parts and signals up again on the stream that they came down on. Queues messages for which the reader has
/// no room, and pauses where an `M_DELAY` says so.
#[derive(Debug, Default)]
pub struct Echo {
    pauses: Pauses,
}

impl Driver for Echo {
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, s: StreamId) {
        self.pauses.close(s);
    }

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            Kind::Ioctl(ioctl) => cx.nak(s, ioctl, Errno::EINVAL),
            Kind::IocData(_) | Kind::Read { .. } => {}
            _ if m.kind.is_high_priority() => cx.putnext(s, m),
            _ => self.pauses.send_up_or_wait(cx, s, s, m),
        }
    }

    fn service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        self.pauses.send_queued(cx, s, s);
    }

    fn timer(&mut self, cx: &mut Cx<'_>, s: StreamId, timer: TimerId) {
        self.pauses.end(cx, s, timer);
    }

    fn read_service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        cx.qenable(s);
    }
}
