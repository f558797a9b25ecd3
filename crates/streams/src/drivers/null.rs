//! Drivers that discard everything written.

use crate::driver::{Cx, Driver, Open};
use crate::identifiers::StreamId;
use crate::message::{Kind, Message};
use crate::{Chain, Errno};

/// Discards everything written; a read finds nothing (`nuls`, the null stream). Acknowledges ioctls.
#[derive(Debug, Default)]
pub struct Nuls;

impl Driver for Nuls {
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            Kind::Ioctl(ioctl) => cx.ack(s, ioctl, 0, Chain::new()),
            _ => {}
        }
    }
}

/// Discards everything written; a read finds the end at once, as with `/dev/null` (`null`).
#[derive(Debug, Default)]
pub struct Null;

impl Driver for Null {
    fn open(&mut self, cx: &mut Cx<'_>, s: StreamId, _open: &Open) -> Result<(), Errno> {
        let options = crate::HeadOptions { announce_reads: Some(true), ..Default::default() };
        cx.putnext(s, Message::new(Kind::Setopts(Box::new(options))));
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            Kind::Ioctl(ioctl) => cx.nak(s, ioctl, Errno::EINVAL),
            // A reader takes an empty message as the end.
            Kind::Read { .. } => cx.putnext(s, Message::data(Chain::new())),
            _ => {}
        }
    }
}
