//! A multiplexor (`mux`).

use std::collections::HashMap;

use crate::Errno;
use crate::driver::{Cx, Driver, Open};
use crate::identifiers::StreamId;
use crate::message::{Kind, Message};
use crate::queue::SERVED_MAX;

/// Joins each stream with the one that it has linked under itself: messages go through in both directions, with flow control
/// across. A stream has one link. The driver discards messages that are written to a stream without a link, and messages
/// that come up on a persistent link whose stream was closed.
#[derive(Debug, Default)]
pub struct Mux {
    /// The linked stream of each stream above that has one: each message is looked up, and there may be many links.
    below: HashMap<StreamId, StreamId>,
    /// The stream above of each linked stream, until either is gone.
    above: HashMap<StreamId, StreamId>,
}

impl Mux {
    fn below(&self, upper: StreamId) -> Option<StreamId> {
        self.below.get(&upper).copied()
    }

    fn above(&self, lower: StreamId) -> Option<StreamId> {
        self.above.get(&lower).copied()
    }
}

impl Driver for Mux {
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, s: StreamId) {
        if let Some(lower) = self.below.remove(&s) {
            self.above.remove(&lower);
        }
    }

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => return cx.flush(s, m),
            Kind::Ioctl(ioctl) => return cx.nak(s, ioctl, Errno::EINVAL),
            Kind::IocData(_) | Kind::Read { .. } => return,
            _ => {}
        }
        match self.below(s) {
            Some(lower) if m.kind.is_high_priority() => cx.lower_put(lower, m),
            Some(_) => cx.putq(s, m),
            None => {}
        }
    }

    fn service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        let lower = self.below(s);
        for _ in 0..SERVED_MAX {
            let Some(m) = cx.getq(s) else { return };
            match lower {
                Some(lower) if cx.lower_canput(lower, m.band) => cx.lower_put(lower, m),
                Some(_) => return cx.putbq(s, m),
                None => {}
            }
        }
        cx.qenable(s);
    }

    fn link(&mut self, _cx: &mut Cx<'_>, upper: StreamId, lower: StreamId) -> Result<(), Errno> {
        if self.below(upper).is_some() {
            return Err(Errno::EBUSY);
        }
        self.below.insert(upper, lower);
        self.above.insert(lower, upper);
        Ok(())
    }

    fn unlink(&mut self, _cx: &mut Cx<'_>, lower: StreamId) {
        if let Some(upper) = self.above.remove(&lower) {
            self.below.remove(&upper);
        }
    }

    fn lower_put(&mut self, cx: &mut Cx<'_>, lower: StreamId, m: Message) {
        match self.above(lower) {
            Some(upper) if m.kind.is_high_priority() => cx.putnext(upper, m),
            Some(_) => cx.lower_putq(lower, m),
            None => cx.freemsg(lower, m),
        }
    }

    fn lower_read_service(&mut self, cx: &mut Cx<'_>, lower: StreamId) {
        let upper = self.above(lower);
        for _ in 0..SERVED_MAX {
            if !upper.is_none_or(|upper| cx.canputnext(upper, 0)) {
                return;
            }
            // Taking a message returns its receive window to the driver below.
            let Some(m) = cx.lower_getq(lower) else { return };
            if let Some(upper) = upper {
                cx.putnext(upper, m);
            }
        }
        cx.lower_qenable(lower);
    }

    fn lower_write_service(&mut self, cx: &mut Cx<'_>, lower: StreamId) {
        if let Some(upper) = self.above(lower) {
            cx.qenable(upper);
        }
    }

    fn read_service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        if let Some(lower) = self.below(s) {
            cx.lower_qenable(lower);
        }
    }
}
