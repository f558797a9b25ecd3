//! Messages that wait on a stream's write queue until their association has room.
//!
//! The stream head asks for room before it sends a message with options down. A multiplexor that the stream is linked
//! under cannot ask, and marks its messages ([`Marks::UNADMITTED`]); nor does the head for data without options. Later
//! messages of all senders wait behind them.

use streams::{Admission, Control, Cx, Driver, Kind, Marks, Message, SERVED_MAX, StreamId};
use tpi::{Primitive, Which};

use super::SctpDriver;

impl SctpDriver {
    /// Sends a message of user data whose sender has not asked for room, or queues the message. One whose sender has
    /// asked gives its room up when it must wait.
    #[cold]
    pub(super) fn put_unadmitted(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        let is_first = cx.queue(s).is_none_or(streams::Queue::is_empty);
        if is_first && self.ask_for_room(s, &m) {
            self.put_admitted(cx, s, m)
        } else {
            cx.putq(s, m.marked(Marks::UNADMITTED))
        }
    }

    /// Sends queued messages while there is room, some of many.
    #[cold]
    pub(super) fn send_queued(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        for _ in 0..SERVED_MAX {
            let Some(m) = cx.getq(s) else { return };
            if m.marks.contains(Marks::UNADMITTED) && !self.ask_for_room(s, &m) {
                return cx.putbq(s, m);
            }
            self.put_admitted(cx, s, m);
        }
        cx.qenable(s);
    }

    /// Returns whether a message may be sent now. If not, the core reports once it may. A message that can never be sent may:
    /// its stream fails.
    fn ask_for_room(&mut self, s: StreamId, m: &Message) -> bool {
        let (association, info) = match &m.kind {
            Kind::Proto(Control::Tpi(primitive)) => match *primitive {
                Primitive::OptdataReq { association, info } => (association, info),
                Primitive::DataReq { more } => (Which::Only, self.plain_info(s, false, more)),
                Primitive::ExdataReq { more } => (Which::Only, self.plain_info(s, true, more)),
                _ => return true,
            },
            Kind::Data => (Which::Only, self.plain_info(s, false, false)),
            _ => return true,
        };
        self.admit(s, association, &info, m.data.len()) != Admission::Full
    }

    fn put_admitted(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match m.kind {
            Kind::Data => self.send_plain(cx, s, false, false, m.data),
            _ => self.handle_request(cx, s, m),
        }
    }
}
