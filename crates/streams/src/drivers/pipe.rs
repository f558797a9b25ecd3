//! A driver that joins two of its streams (`loop`, and the ends of a pipe).

use std::collections::HashMap;

use super::pause::Pauses;
use crate::driver::{Cx, Driver, Open};
use crate::identifiers::StreamId;
use crate::message::{Flush, Kind, Message};
use crate::timers::TimerId;
use crate::{Chain, Errno};

/// Sends messages that come down on one stream up on the joined one, with flow control across. [`Pipe::JOIN`] and [`Pipe::join`]
/// join two streams. An `M_DELAY` is a pause in what its stream sends. Closing one stream hangs up the other.
#[derive(Debug, Default)]
pub struct Pipe {
    /// The other end, if the stream is joined.
    peers: HashMap<StreamId, Option<StreamId>>,
    minors: HashMap<u32, StreamId>,
    pauses: Pauses,
}

/// Reason for which two streams could not be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// One of them is no stream of this driver.
    NotOurs,
    /// One of them is joined already, or they are the same.
    Busy,
}

impl Pipe {
    /// Ioctl that joins its stream to another: the argument is the other's minor device, as four bytes in native order
    /// (`LOOP_SET`).
    pub const JOIN: u32 = 0x4c4f_4f01;

    /// Joins two streams.
    ///
    /// # Errors
    ///
    /// A stream is not of this driver or joined already, or both are the same.
    pub fn join(&mut self, a: StreamId, b: StreamId) -> Result<(), Join> {
        match (self.peers.get(&a), self.peers.get(&b)) {
            (Some(None), Some(None)) if a != b => {}
            (Some(_), Some(_)) => return Err(Join::Busy),
            _ => return Err(Join::NotOurs),
        }
        self.peers.insert(a, Some(b));
        self.peers.insert(b, Some(a));
        Ok(())
    }

    /// Returns the other end of a stream.
    pub(crate) fn peer(&self, s: StreamId) -> Option<StreamId> {
        self.peers.get(&s).copied().flatten()
    }

    fn ioctl(&mut self, cx: &mut Cx<'_>, s: StreamId, m: &Message) {
        let Kind::Ioctl(ioctl) = &m.kind else { return };
        let minor = m.data.to_vec().try_into().map(u32::from_ne_bytes);
        let other = minor.ok().and_then(|minor| self.minors.get(&minor).copied());
        match (ioctl.command, other) {
            (Self::JOIN, Some(other)) => match self.join(s, other) {
                Ok(()) => cx.ack(s, ioctl, 0, Chain::new()),
                Err(Join::Busy) => cx.nak(s, ioctl, Errno::EBUSY),
                Err(Join::NotOurs) => cx.nak(s, ioctl, Errno::ENXIO),
            },
            (Self::JOIN, None) => cx.nak(s, ioctl, Errno::ENXIO),
            _ => cx.nak(s, ioctl, Errno::EINVAL),
        }
    }
}

impl Driver for Pipe {
    fn open(&mut self, _cx: &mut Cx<'_>, s: StreamId, open: &Open) -> Result<(), Errno> {
        self.peers.entry(s).or_insert(None);
        self.minors.insert(open.minor, s);
        Ok(())
    }

    fn close(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        if let Some(peer) = self.peer(s) {
            self.peers.insert(peer, None);
            cx.hangup(peer);
        }
        self.peers.remove(&s);
        self.pauses.close(s);
        self.minors.retain(|_, other| *other != s);
    }

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        let Some(peer) = self.peer(s) else {
            return match &m.kind {
                Kind::Flush(_) => cx.flush(s, m),
                Kind::Ioctl(_) => self.ioctl(cx, s, &m),
                _ => cx.error(s, Errno::ENXIO),
            };
        };
        match &m.kind {
            // The write side of one end is the read side of the other, so the two directions change places.
            Kind::Flush(flush) => {
                let turned = Flush { read: flush.write, write: flush.read, ..*flush };
                cx.flushq(s, &Flush { read: false, ..*flush });
                cx.putnext(peer, Message { kind: Kind::Flush(turned), ..m });
            }
            Kind::Ioctl(_) => self.ioctl(cx, s, &m),
            Kind::IocData(_) | Kind::Read { .. } => {}
            _ if m.kind.is_high_priority() => cx.putnext(peer, m),
            _ => self.pauses.send_up_or_wait(cx, s, peer, m),
        }
    }

    fn service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        if let Some(peer) = self.peer(s) {
            self.pauses.send_queued(cx, s, peer);
        }
    }

    fn timer(&mut self, cx: &mut Cx<'_>, s: StreamId, timer: TimerId) {
        self.pauses.end(cx, s, timer);
    }

    fn read_service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        if let Some(peer) = self.peer(s) {
            cx.qenable(peer);
        }
    }
}
