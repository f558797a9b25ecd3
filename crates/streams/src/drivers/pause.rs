//! Pauses in what a driver sends on (`M_DELAY`).

use std::collections::HashMap;

use crate::driver::Cx;
use crate::identifiers::StreamId;
use crate::message::{Kind, Message};
use crate::queue::SERVED_MAX;
use crate::timers::TimerId;

/// The streams of a driver whose messages wait for the end of a pause. Those of high priority never come here.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    timers: HashMap<StreamId, TimerId>,
}

impl Pauses {
    /// Sends a message that came down on `from` up on `to`, or queues it where others wait, there is no room, or a pause begins
    /// with it.
    pub(super) fn send_up_or_wait(&mut self, cx: &mut Cx<'_>, from: StreamId, to: StreamId, m: Message) {
        let waits = self.timers.contains_key(&from)
            || matches!(m.kind, Kind::Delay(_))
            || cx.queue(from).is_some_and(|queue| !queue.is_empty())
            || !cx.canputnext(to, m.band);
        if waits { cx.putq(from, m) } else { cx.putnext(to, m) }
    }

    /// Sends what is queued on `from` up on `to`, as far as there is room and no pause.
    pub(super) fn send_queued(&mut self, cx: &mut Cx<'_>, from: StreamId, to: StreamId) {
        for _ in 0..SERVED_MAX {
            let Some(m) = cx.getq(from) else { return };
            if self.timers.contains_key(&from) || !cx.canputnext(to, m.band) {
                return cx.putbq(from, m);
            } else if let Kind::Delay(pause) = m.kind {
                self.timers.insert(from, cx.timeout(from, pause));
            } else {
                cx.putnext(to, m);
            }
        }
        cx.qenable(from);
    }

    /// Ends a pause.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, s: StreamId, timer: TimerId) {
        if self.timers.get(&s) == Some(&timer) {
            self.timers.remove(&s);
            cx.qenable(s);
        }
    }

    /// Forgets a stream that is closed.
    pub(super) fn close(&mut self, s: StreamId) {
        self.timers.remove(&s);
    }
}
