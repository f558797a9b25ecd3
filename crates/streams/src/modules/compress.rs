//! A module that compresses user data between two ends that both have it pushed.

use std::time::Duration;

use bytes::Bytes;
use lz4_flex::block::{compress, decompress};
use tpi::{Primitive, RecvInfo, SendInfo, Which};

use crate::identifiers::Side;
use crate::message::{Control, Kind, Marks, Message};
use crate::module::{Module, ModuleInfo, Q};
use crate::queue::{Queue, QueueInfo, SERVED_MAX};
use crate::timers::TimerId;
use crate::{Chain, Errno};

/// Compresses messages with LZ4 once the other end has answered that it also has this module (`compress`).
///
/// Each message describes itself, since messages of different streams overtake each other: messages between the modules, and
/// compressed ones, have the payload protocol identifier [`Compress::PPID`] and begin with a byte for the type. Until the other
/// end has answered, and where compression saves nothing, messages pass unchanged. So do parts of a record and messages longer
/// than [`Compress::BYTES_MAX`].
///
/// The module decompresses a received message when the reader has room for it, and the memory of the stream, too
/// ([`Q::charge`]): what it makes is charged as long as it exists, wherever it waits. Until then the message keeps its place in
/// the receive window, so that a peer cannot turn one window into many. A message on its way down is charged in its compressed
/// form.
///
/// The module sends its own messages between records of the program, the announcement behind the first one: in a record they
/// would be part of it. They do not wait for room, so that nothing of the program waits behind them. For this they are few: each
/// follows a message of the program, but for some answers (16) to an end whose program only receives. An end without the module
/// receives the announcement as one message of one byte with that payload protocol identifier. An end that pops the module says
/// so, once no record is open. The other end stops compressing and answers how many messages it has wrapped. When they have come,
/// the module is popped; until then, and for [`Compress::LEAVE_WAIT`] at most, the pop fails with
/// [`PopError::Busy`](crate::PopError::Busy), and as long as such messages wait for the reader. Messages that arrive after that
/// reach the program compressed.
#[derive(Debug, Default)]
pub struct Compress {
    announced: bool,
    /// The other end decompresses.
    answered: bool,
    /// The next message down continues a record.
    in_record: bool,
    /// The other end has announced itself, and was not answered yet: the answer follows the next record of the program.
    owes_answer: bool,
    /// The other end leaves, and was not answered yet.
    owes_left: bool,
    /// Answers since the last message of the program.
    unprompted: usize,
    /// Messages that went down compressed or stored since the other end has announced itself.
    wrapped: i64,
    /// Messages that came up so, less those of modules of the other end that have left: negative while some of these are on the
    /// way.
    unwrapped: i64,
    /// Messages of the read queue that the other end has wrapped.
    waiting: usize,
    leaving: Leaving,
    leave_timer: Option<TimerId>,
    /// Bytes of user data that went down, before and after compression.
    plain_bytes: u64,
    sent_bytes: u64,
}

/// How far an end is with leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leaving {
    #[default]
    No,
    /// The other end hears of it once it has answered and no record is open.
    Owed,
    /// The other end knows of it.
    Announced,
    /// The other end has wrapped this many messages, and will wrap no more.
    Until(i64),
    /// For [`Compress::LEAVE_WAIT`] it has not answered, or not all of its messages have come; or it cannot be told.
    Overdue,
}

/// Type of a message of the module: its first byte.
const ANNOUNCEMENT: u8 = 0;
const ANSWER: u8 = 1;
/// Followed by the sender's payload protocol identifier and the plain length, 32 bits each, and the block.
const COMPRESSED: u8 = 2;
/// Followed by the sender's payload protocol identifier and the plain bytes.
const STORED: u8 = 3;
/// The module is about to be popped: from now on messages must come uncompressed. Followed by the number of messages that it has
/// wrapped, 64 bits.
const LEAVING: u8 = 4;
/// Answer to [`LEAVING`], followed by the same number of the other end.
const LEFT: u8 = 5;

/// Type, payload protocol identifier and plain length: the beginning of a compressed message, and of a stored one the first two.
const HEADER_BYTES: usize = 9;
const STORED_HEADER_BYTES: usize = 5;

impl Compress {
    /// Payload protocol identifier of the module's messages: `SWL4`.
    pub const PPID: u32 = 0x5357_4c34;
    /// Longest message that is compressed; one that claims to have been longer is refused.
    pub const BYTES_MAX: usize = 64 * 1024;
    /// Ioctl that returns two 64-bit counts in native byte order: bytes of user data that went down, before and after
    /// compression.
    pub const GET_COUNTS: u32 = 0x434d_5001;
    /// Time for which an end that leaves waits for the other one.
    pub const LEAVE_WAIT: Duration = Duration::from_secs(2);
    /// Answers to the other end between two messages of the program.
    const UNPROMPTED_MAX: usize = 16;
    /// Bytes that may wait for the reader before messages from below must wait; the receive window bounds them, too.
    const HIWAT_BYTES: usize = 64 * 1024;

    /// Sends a message up, and unpacks it if the other end has packed it. Returns a packed message if there is no memory for its
    /// content.
    fn take(&mut self, q: &mut Q<'_>, m: Message) -> Result<(), Message> {
        let m = m.decoded();
        let Kind::Proto(Control::Tpi(Primitive::OptdataInd { association, info })) = m.kind else {
            q.putnext(m);
            return Ok(());
        };
        let mut what = [0];
        match info.ppid {
            Self::PPID if info.more => self.refuse(q, m),
            Self::PPID if m.data.copy_to(&mut what) > 0 => {
                match what {
                    [COMPRESSED | STORED] => self.unwrap(q, association, &info, m)?,
                    [what] => self.handle(q, association, what, m),
                }
                self.tell_poppers(q);
            }
            _ => q.putnext(m),
        }
        Ok(())
    }

    /// Sends up the content of a message. Returns it if there is no memory for the content.
    fn unwrap(
        &mut self,
        q: &mut Q<'_>,
        association: Which,
        info: &RecvInfo,
        m: Message,
    ) -> Result<(), Message> {
        let Some((ppid, len)) = described(&m.data) else {
            self.refuse(q, m);
            return Ok(());
        };
        let Some(charge) = q.charge(len) else { return Err(m) };
        let Some(data) = unpacked(&m.data, len) else {
            self.refuse(q, m);
            return Ok(());
        };
        q.count_bytes(len);
        self.unwrapped = self.unwrapped.saturating_add(1);
        q.credit(association, m.data.len());
        let info = RecvInfo { ppid, ..*info };
        // The window of the message that has brought it is returned.
        let marks = Marks::CREDITED | Marks::CHARGED;
        q.putnext(Message::optdata_ind(association, info, charge.on(data).into()).marked(marks));
        Ok(())
    }

    /// Handles a message of the other end's module for this one.
    fn handle(&mut self, q: &mut Q<'_>, association: Which, what: u8, m: Message) {
        let bytes = m.data.to_vec();
        let rest = &bytes[1..];
        match (what, rest.split_first_chunk::<4>()) {
            (ANNOUNCEMENT, None) => {
                // It comes from a module that has unwrapped nothing yet.
                (self.answered, self.wrapped) = (true, 0);
                q.freemsg(m);
                // Nothing may come compressed that would arrive after the module.
                self.owes_answer = self.leaving == Leaving::No;
                self.answer_unprompted(&mut q.other(), association);
            }
            (ANSWER, None) => {
                self.answered = true;
                q.freemsg(m);
                self.tell_leaving(&mut q.other(), association);
            }
            (LEAVING | LEFT, _) => {
                let Ok(wrapped) = rest.try_into().map(i64::from_be_bytes) else { return self.refuse(q, m) };
                q.freemsg(m);
                if what == LEAVING {
                    self.answered = false;
                    self.unwrapped = self.unwrapped.saturating_sub(wrapped);
                    self.owes_left = true;
                    self.answer_unprompted(&mut q.other(), association);
                } else if self.leaving == Leaving::Announced {
                    self.leaving = Leaving::Until(wrapped);
                }
                // Any other answer is late: this end has not waited for it.
            }
            _ => self.refuse(q, m),
        }
    }

    /// Answers the other end at once, unless a record is open or it has had [`Compress::UNPROMPTED_MAX`] answers since the last
    /// message of the program: then the answer follows the next one.
    fn answer_unprompted(&mut self, q: &mut Q<'_>, association: Which) {
        let owes = self.owes_answer || self.owes_left;
        if owes && !self.in_record && self.unprompted < Self::UNPROMPTED_MAX {
            self.unprompted += 1;
            self.send_answers(q, association);
        }
    }

    /// Fails the stream after the other end has broken the rules: nothing that follows can be relied upon.
    fn refuse(&self, q: &mut Q<'_>, m: Message) {
        q.freemsg(m);
        q.putnext(Message::new(Kind::Error { read: Some(Errno::EBADMSG), write: Some(Errno::EBADMSG) }));
    }

    /// Returns the compressed or wrapped form of a message on its way down; `None` leaves the message unchanged.
    fn pack(&self, q: &mut Q<'_>, info: &SendInfo, data: &Chain) -> Option<Bytes> {
        let is_own = info.ppid == Self::PPID;
        let fits = data.len() <= Self::BYTES_MAX && !info.more && !self.in_record;
        if !self.answered || !fits {
            return None;
        }
        let plain = data.to_vec();
        let block = compress(&plain);
        let mut packed = Vec::with_capacity(HEADER_BYTES + block.len());
        // The plain length is at most `BYTES_MAX`.
        let header = [&[COMPRESSED][..], &info.ppid.to_be_bytes(), &(plain.len() as u32).to_be_bytes()];
        header.iter().for_each(|part| packed.extend_from_slice(part));
        packed.extend_from_slice(&block);
        let bytes = match packed.len() < plain.len() {
            true => packed,
            // A program's message that looks like the module's own is wrapped.
            false if is_own => [&[STORED][..], &info.ppid.to_be_bytes(), &plain].concat(),
            false => return None,
        };
        Some(q.charge(bytes.len())?.on(bytes))
    }

    /// Sends the module's own messages that are due, behind a record.
    fn send_due(&mut self, q: &mut Q<'_>, association: Which) {
        if self.leaving == Leaving::No && !std::mem::replace(&mut self.announced, true) {
            q.putnext(own(association, &[ANNOUNCEMENT]));
        }
        self.send_answers(q, association);
        self.tell_leaving(q, association);
    }

    /// Sends the answers that are due. That to an announcement announces this end, too.
    fn send_answers(&mut self, q: &mut Q<'_>, association: Which) {
        if std::mem::take(&mut self.owes_answer) {
            self.announced = true;
            q.putnext(own(association, &[ANSWER]));
        }
        if std::mem::take(&mut self.owes_left) {
            q.putnext(self.count_wrapped(association, LEFT));
        }
    }

    /// Tells the other end that this one leaves, if that is due and it knows of this one: it may have no such module.
    fn tell_leaving(&mut self, q: &mut Q<'_>, association: Which) {
        if self.leaving == Leaving::Owed && self.answered && !self.in_record {
            self.leaving = Leaving::Announced;
            q.putnext(self.count_wrapped(association, LEAVING));
            self.wait_for_other(q);
        }
    }

    fn wait_for_other(&mut self, q: &mut Q<'_>) {
        if let Some(timer) = self.leave_timer.replace(q.timeout(Self::LEAVE_WAIT)) {
            q.untimeout(timer);
        }
    }

    /// Returns a message of this type with the number of messages that were wrapped.
    fn count_wrapped(&self, association: Which, what: u8) -> Message {
        own(association, &[&[what][..], &self.wrapped.to_be_bytes()].concat())
    }

    /// Returns whether no record is open, and everything has come that the other end has wrapped, or the wait for it is over, and
    /// nothing of that waits here.
    fn has_left(&self) -> bool {
        let has_come = match self.leaving {
            Leaving::No | Leaving::Owed | Leaving::Announced => false,
            Leaving::Until(wrapped) => self.unwrapped >= wrapped,
            Leaving::Overdue => true,
        };
        has_come && !self.in_record && self.waiting == 0
    }

    /// Adds a message to the read queue, which drops it if it is flooded.
    fn queue(&mut self, q: &mut Q<'_>, m: Message) {
        let (is_wrapped, before) = (is_wrapped(&m), q.queue().len());
        q.putq(m);
        self.waiting += usize::from(is_wrapped && q.queue().len() > before);
    }

    /// Takes the first message of the read queue.
    fn take_queued(&mut self, q: &mut Q<'_>) -> Option<Message> {
        let m = q.getq()?;
        self.waiting -= usize::from(is_wrapped(&m));
        Some(m)
    }

    /// Puts back a message that cannot be sent up now.
    fn put_back(&mut self, q: &mut Q<'_>, m: Message) {
        self.waiting += usize::from(is_wrapped(&m));
        q.putbq(m);
    }

    /// Passes a flush on, which may have removed any message from the read queue.
    fn flush(&mut self, q: &mut Q<'_>, m: Message) {
        q.pass(m);
        let count = |queue: &Queue| queue.iter().filter(|m| is_wrapped(m)).count();
        self.waiting = if q.side() == Side::Read { count(q.queue()) } else { count(q.other().queue()) };
        self.tell_poppers(q);
    }

    /// Tells those who wait to pop the module once it may leave.
    fn tell_poppers(&self, q: &mut Q<'_>) {
        if self.has_left() {
            q.may_leave();
        }
    }

    fn counts(&self) -> Chain {
        [self.plain_bytes, self.sent_bytes].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>().into()
    }
}

/// Returns a message of the module itself.
fn own(association: Which, bytes: &[u8]) -> Message {
    let info = SendInfo { ppid: Compress::PPID, ..SendInfo::default() };
    Message::optdata_req(association, info, bytes.to_vec().into())
}

/// Returns whether a module at the other end has compressed or wrapped a message.
fn is_wrapped(m: &Message) -> bool {
    let what = m.data.blocks().first().and_then(|block| block.first());
    matches!(what, Some(&(COMPRESSED | STORED)))
        && m.user_data().is_some_and(|data| data.ppid == Compress::PPID)
}

/// Returns the payload protocol identifier and the length of the content of a compressed or stored message; `None` if it is
/// invalid.
fn described(wire: &Chain) -> Option<(u32, usize)> {
    let mut header = [0; HEADER_BYTES];
    let copied = wire.copy_to(&mut header);
    let [what, p0, p1, p2, p3, len @ ..] = header;
    let len = match what {
        STORED if copied >= STORED_HEADER_BYTES => wire.len() - STORED_HEADER_BYTES,
        COMPRESSED if copied == HEADER_BYTES => u32::from_be_bytes(len) as usize,
        _ => return None,
    };
    let is_valid = what == STORED || len <= Compress::BYTES_MAX;
    is_valid.then_some((u32::from_be_bytes([p0, p1, p2, p3]), len))
}

/// Returns the content of a message that [`described`] says to have this length; `None` if it is invalid.
fn unpacked(wire: &Chain, len: usize) -> Option<Vec<u8>> {
    let bytes = wire.to_vec();
    match bytes.split_first()? {
        (&STORED, _) => Some(bytes[STORED_HEADER_BYTES..].to_vec()),
        _ => decompress(&bytes[HEADER_BYTES..], len).ok().filter(|data| data.len() == len),
    }
}

impl Module for Compress {
    fn name(&self) -> &str {
        "compress"
    }

    fn info(&self) -> ModuleInfo {
        let read = QueueInfo::served(Self::HIWAT_BYTES, Self::HIWAT_BYTES / 2);
        ModuleInfo { read, write: QueueInfo::PASS }
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("plain bytes", self.plain_bytes), ("sent bytes", self.sent_bytes)]
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        if let Kind::Ioctl(ioctl) = &m.kind
            && ioctl.command == Self::GET_COUNTS
        {
            return q.ack(ioctl, 0, self.counts());
        }
        if matches!(m.kind, Kind::Flush(_)) {
            return self.flush(q, m);
        }
        let m = m.decoded();
        let Kind::Proto(Control::Tpi(Primitive::OptdataReq { association, info })) = m.kind else {
            return q.pass(m);
        };
        self.plain_bytes += m.data.len() as u64;
        self.unprompted = 0;
        let packed = self.pack(q, &info, &m.data);
        self.in_record = info.more;
        let m = match packed {
            Some(packed) => {
                self.wrapped += 1;
                let info = SendInfo { ppid: Self::PPID, ..info };
                Message { band: m.band, marks: m.marks, ..Message::optdata_req(association, info, packed) }
            }
            None => m,
        };
        self.sent_bytes += m.data.len() as u64;
        q.pass(m);
        if !self.in_record {
            self.send_due(q, association);
            self.tell_poppers(q);
        }
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        if matches!(m.kind, Kind::Flush(_)) {
            return self.flush(q, m);
        }
        // Many messages may be on their way here, and would all be unpacked before the first content counts above: only the
        // service procedure, which counts what it has sent on, unpacks.
        let waits = is_wrapped(&m) || !q.queue().is_empty() || !q.canputnext(m.band);
        if waits && !m.kind.is_high_priority() {
            self.queue(q, m);
        } else if let Err(m) = self.take(q, m) {
            self.queue(q, m);
        }
    }

    fn rsrv(&mut self, q: &mut Q<'_>) {
        for _ in 0..SERVED_MAX {
            let Some(m) = self.take_queued(q) else { break };
            if !m.kind.is_high_priority() && !q.canputnext(m.band) {
                return self.put_back(q, m);
            }
            if let Err(m) = self.take(q, m) {
                return self.put_back(q, m);
            }
            if q.is_step_over() {
                break;
            }
        }
        if !q.queue().is_empty() {
            q.qenable();
        }
        self.tell_poppers(q);
    }

    /// Tells the other end, and waits for what it has compressed. An end that was not announced is not known to the other one.
    fn leave(&mut self, q: &mut Q<'_>) -> bool {
        if q.is_cut_off() {
            // The other end cannot be told, and no record can be ended. Only what waits for the reader is waited for.
            self.leaving = Leaving::Overdue;
            self.in_record = false;
        }
        match self.leaving {
            Leaving::No if !self.announced && !self.answered => true,
            Leaving::No => {
                self.leaving = Leaving::Owed;
                self.wait_for_other(q);
                self.tell_leaving(q, Which::Only);
                false
            }
            _ => self.has_left(),
        }
    }

    /// Ends the wait for the other end, which may have no such module, or whose messages may have been abandoned.
    fn timeout(&mut self, q: &mut Q<'_>, _timer: TimerId) {
        match self.leaving {
            Leaving::Announced | Leaving::Until(_) => self.leaving = Leaving::Overdue,
            Leaving::Owed if !self.answered => self.leaving = Leaving::Overdue,
            _ => {}
        }
        self.tell_poppers(q);
    }
}
