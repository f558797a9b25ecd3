//! A driver that sends every message back (`echo`).

use crate::Errno;
use crate::driver::{Cx, Driver, Open};
use crate::message::{Kind, Message};
use crate::stream::StreamId;

/// Sends data, control parts and signals up again on the stream that they came down on. Queues messages for which the reader has
/// no room.
#[derive(Debug, Default)]
pub struct Echo;

impl Driver for Echo {
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            Kind::Ioctl(ioctl) => cx.nak(s, ioctl, Errno::EINVAL),
            Kind::IocData(_) | Kind::Read { .. } | Kind::Delay(_) => {}
            _ if m.kind.is_high_priority() => cx.putnext(s, m),
            _ => send_up_or_wait(cx, s, s, m),
        }
    }

    fn service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        send_queued(cx, s, s);
    }

    fn read_service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        cx.qenable(s);
    }
}

/// Sends a message that came down on `from` up on `to`; queues it if others wait or there is no room.
pub(super) fn send_up_or_wait(cx: &mut Cx<'_>, from: StreamId, to: StreamId, m: Message) {
    let waits = cx.queue(from).is_some_and(|queue| !queue.is_empty()) || !cx.canputnext(to, m.band);
    if waits { cx.putq(from, m) } else { cx.putnext(to, m) }
}

/// Sends the messages queued on `from` up on `to`, as far as there is room.
pub(super) fn send_queued(cx: &mut Cx<'_>, from: StreamId, to: StreamId) {
    while let Some(m) = cx.getq(from) {
        if !m.kind.is_high_priority() && !cx.canputnext(to, m.band) {
            return cx.putbq(from, m);
        }
        cx.putnext(to, m);
    }
}
