//! A multiplexor that joins the two streams linked under each of its streams (`splice`).

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;

use crate::driver::{Cx, Driver, Open, WriteData};
use crate::identifiers::StreamId;
use crate::message::{Control, Kind, Marks, Message};
use crate::queue::SERVED_MAX;
use crate::{Errno, Primitive, SendInfo, Which};

/// Joins the two streams that are linked under one of its streams: user data that comes up on one goes down on the other, with
/// flow control across. Any other message, such as the end of a connection, ends both links once the data before it has
/// gone on, and goes to the user of its stream; notifications are discarded. The upper streams carry nothing.
#[derive(Debug, Default)]
pub struct Splice {
    /// The linked streams: each message is looked up here, and there may be many.
    ends: HashMap<StreamId, End>,
    /// The streams linked under each upper one.
    pairs: HashMap<StreamId, Pair>,
}

/// The streams that are linked under one upper stream.
#[derive(Clone, Copy, Debug)]
enum Pair {
    Half(StreamId),
    Whole,
}

/// A linked stream.
#[derive(Debug)]
struct End {
    upper: StreamId,
    /// The stream that it is joined with, once that is linked, too.
    other: Option<StreamId>,
    spliced: Spliced,
    memory: Option<SpliceMemory>,
}

/// Copies data that goes down on a stream into memory that is charged to the stream's owner.
pub struct SpliceMemory(Copy);

type Copy = Box<dyn Fn(&[u8]) -> Bytes + Send>;

impl SpliceMemory {
    /// Returns memory that `copy` charges.
    pub fn new(copy: impl Fn(&[u8]) -> Bytes + Send + 'static) -> Self {
        SpliceMemory(Box::new(copy))
    }
}

impl fmt::Debug for SpliceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpliceMemory").finish_non_exhaustive()
    }
}

/// User data that has come up on a linked stream and gone down on the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spliced {
    /// Number of messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the last one is part of a record that continues.
    pub is_in_record: bool,
}

/// A message that came up, as it goes down.
enum Onward {
    Data(Kind, bool),
    Discarded,
    /// It is for the user of the stream.
    ForUser(Kind),
}

impl Splice {
    /// Returns the counts of messages that were passed on from a linked stream.
    pub fn spliced(&self, lower: StreamId) -> Option<Spliced> {
        self.ends.get(&lower).map(|end| end.spliced)
    }

    /// Returns the stream that is joined with a linked one.
    pub fn other(&self, lower: StreamId) -> Option<StreamId> {
        self.ends.get(&lower)?.other
    }

    /// Sets the memory of data that goes down on a linked stream, until its link ends. Without it, that is the executive's.
    pub fn set_memory(&mut self, lower: StreamId, memory: SpliceMemory) {
        if let Some(end) = self.ends.get_mut(&lower) {
            end.memory = Some(memory);
        }
    }

    /// Copies data that goes down on a linked stream.
    fn copy(&self, cx: &mut Cx<'_>, to: StreamId, data: &[u8]) -> Bytes {
        match self.ends.get(&to).and_then(|end| end.memory.as_ref()) {
            Some(SpliceMemory(copy)) => copy(data),
            None => cx.block(WriteData::Copied(data)),
        }
    }

    fn count(&mut self, lower: StreamId, bytes: usize, goes_on: bool) {
        if let Some(Spliced { messages, bytes: all_bytes, is_in_record }) =
            self.ends.get_mut(&lower).map(|end| &mut end.spliced)
        {
            *messages += u64::from(!goes_on);
            *all_bytes += bytes as u64;
            *is_in_record = goes_on;
        }
    }

    /// Passes the message at the front of the lower read queue on. Returns false if there is none, or it ends the link.
    fn pass_one(&mut self, cx: &mut Cx<'_>, lower: StreamId, to: StreamId) -> bool {
        let Some(Message { band, kind, data, marks }) = cx.lower_getq(lower) else { return false };
        match onward(kind) {
            Onward::Data(kind, goes_on) => {
                self.count(lower, data.len(), goes_on);
                if !data.is_empty() {
                    // Its blocks are joined, and may be a small part of the memory of a batch, which must not stay in a send
                    // queue.
                    cx.count_bytes(2 * data.len());
                    let data = self.copy(cx, to, &data.into_bytes()).into();
                    cx.lower_put(to, Message { band, kind, data, marks: Marks::UNADMITTED });
                }
                true
            }
            Onward::Discarded => true,
            Onward::ForUser(kind) => {
                let m = Message { band, kind, data, marks }.marked(Marks::CREDITED);
                if matches!(m.kind, Kind::Proto(_) | Kind::PassFp(_)) {
                    cx.lower_putbq(lower, m);
                    cx.lower_unlink(lower, None);
                } else {
                    cx.lower_unlink(lower, Some(m));
                }
                false
            }
        }
    }
}

/// Returns what a message that has come up becomes on the other side.
fn onward(kind: Kind) -> Onward {
    match kind {
        Kind::Data => Onward::Data(Kind::Data, false),
        Kind::Proto(Control::Tpi(Primitive::OptdataInd { info, .. })) => {
            let (stream, ppid, unordered, more) = (info.stream, info.ppid, info.unordered, info.more);
            let info = SendInfo { stream, ppid, unordered, more, ..SendInfo::default() };
            let primitive = Primitive::OptdataReq { association: Which::Only, info };
            Onward::Data(Kind::Proto(primitive.into()), more)
        }
        Kind::Proto(Control::Tpi(Primitive::DataInd { more })) => {
            Onward::Data(Kind::Proto(Primitive::DataReq { more }.into()), more)
        }
        Kind::Proto(Control::Tpi(Primitive::ExdataInd { more })) => {
            Onward::Data(Kind::Proto(Primitive::ExdataReq { more }.into()), more)
        }
        Kind::Proto(Control::Tpi(Primitive::NotificationInd(_))) => Onward::Discarded,
        kind => Onward::ForUser(kind),
    }
}

impl Driver for Splice {
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            Kind::Ioctl(ioctl) => cx.nak(s, ioctl, Errno::EINVAL),
            _ => {}
        }
    }

    fn link(&mut self, cx: &mut Cx<'_>, upper: StreamId, lower: StreamId) -> Result<(), Errno> {
        let other = match self.pairs.get(&upper) {
            None => None,
            Some(Pair::Half(other)) => Some(*other),
            Some(Pair::Whole) => return Err(Errno::EBUSY),
        };
        self.pairs.insert(upper, if other.is_some() { Pair::Whole } else { Pair::Half(lower) });
        self.ends.insert(lower, End { upper, other, spliced: Spliced::default(), memory: None });
        if let Some(other) = other {
            if let Some(end) = self.ends.get_mut(&other) {
                end.other = Some(lower);
            }
            cx.lower_qenable(other);
        }
        Ok(())
    }

    fn unlink(&mut self, cx: &mut Cx<'_>, lower: StreamId) {
        let Some(End { upper, other, .. }) = self.ends.remove(&lower) else { return };
        let Some(other) = other else {
            self.pairs.remove(&upper);
            return;
        };
        self.pairs.insert(upper, Pair::Half(other));
        if let Some(end) = self.ends.get_mut(&other) {
            end.other = None;
        }
        cx.lower_unlink(other, None);
    }

    fn lower_put(&mut self, cx: &mut Cx<'_>, lower: StreamId, m: Message) {
        if m.kind.is_high_priority() {
            cx.lower_unlink(lower, Some(m));
        } else {
            cx.lower_putq(lower, m);
        }
    }

    fn lower_read_service(&mut self, cx: &mut Cx<'_>, lower: StreamId) {
        let Some(to) = self.other(lower) else { return };
        for _ in 0..SERVED_MAX {
            if !cx.lower_canput(to, 0) || !self.pass_one(cx, lower, to) {
                return;
            }
            if cx.is_step_over() {
                break;
            }
        }
        cx.lower_qenable(lower);
    }

    fn lower_write_service(&mut self, cx: &mut Cx<'_>, lower: StreamId) {
        if let Some(from) = self.other(lower) {
            cx.lower_qenable(from);
        }
    }
}
