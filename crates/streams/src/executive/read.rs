//! Reads, from the head to the program.

use crate::Executive;
use crate::driver::Cx;
use crate::error::ReadError;
use crate::head::ReadMode;
use crate::identifiers::StreamId;
use crate::message::{Control, Credit, Kind, Marks, Message};
use crate::{Primitive, RecvInfo, Which};

/// Selects the messages that `getpmsg` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The first message of any kind (`MSG_ANY`).
    Any,
    /// The first message if it has high priority (`MSG_HIPRI`, `RS_HIPRI`).
    HighPriority,
    /// The first message if it has high priority, or its band is at least this one (`MSG_BAND`).
    Band(u8),
}

/// The parts of a message that `getpmsg` has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Bytes of the control part; `None` if the message has none.
    pub control_bytes: Option<usize>,
    /// Bytes of data; `None` if the message has none.
    pub data_bytes: Option<usize>,
    /// `MORECTL`: more of the control part is left.
    pub more_control: bool,
    /// `MOREDATA`: more data is left.
    pub more_data: bool,
    /// The band of the message.
    pub band: u8,
    /// Whether the message has high priority.
    pub is_high_priority: bool,
}

impl Executive {
    /// Reads data; returns the number of bytes and the description of the message, with `more` if the record continues.
    ///
    /// By default a read ends with its message, and bytes that `buf` has no room for stay for the next read; see [`ReadMode`].
    /// `Ok(None)` means that there is nothing to read now.
    ///
    /// # Errors
    ///
    /// [`ReadError::NotData`] if the next message is a primitive without data; [`ReadError::HungUp`] at the end.
    #[inline]
    pub fn read(&mut self, s: StreamId, buf: &mut [u8]) -> Result<Option<(usize, RecvInfo)>, ReadError> {
        let mut info = RecvInfo::default();
        Ok(self.read_into(s, buf, &mut info)?.map(|bytes| (bytes, info)))
    }

    /// Reads data as [`Executive::read`] does; returns the number of bytes, and writes the description of the message to `info`.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::read`].
    #[inline]
    pub fn read_into(
        &mut self,
        s: StreamId,
        buf: &mut [u8],
        info: &mut RecvInfo,
    ) -> Result<Option<usize>, ReadError> {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(ReadError::Closed) };
        let head = &mut stream.head;
        if !head.reads_directly() {
            return self.read_by_mode(s, buf, info);
        }
        if let Some((record, credit)) = head.queue.read_run(buf, info) {
            let bytes = record.data().len();
            head.count_read(1, bytes);
            head.take_due_signals(s, scheduler);
            if credit.bytes > 0 {
                self.after_taking(s, credit);
            }
            return Ok(Some(bytes));
        }
        if let Some((bytes, credit)) = head.queue.read_data(buf, info) {
            head.count_read(1, bytes);
            head.take_due_signals(s, scheduler);
            self.after_taking(s, credit);
            return Ok(Some(bytes));
        }
        self.read_message(s, buf, info)
    }

    /// Reads from the first entry of the queue, which is neither a run nor a message in one block, or does not fit `buf`.
    fn read_message(
        &mut self,
        s: StreamId,
        buf: &mut [u8],
        info: &mut RecvInfo,
    ) -> Result<Option<usize>, ReadError> {
        let front = self.streams.get(s).and_then(|stream| stream.head.queue.front());
        let Some(front) = front else { return self.found_nothing(s, buf.len()) };
        if matches!(front.kind, Kind::Run(_)) {
            return self.read_by_mode(s, buf, info);
        }
        let association = describe(front, info).ok_or(ReadError::NotData)?;
        let len = front.data.copy_to(buf);
        let whole = len == front.data.len();
        info.more |= !whole;
        self.take_front(s, association, len, len, whole);
        Ok(Some(len))
    }

    /// Reads data as [`Executive::read`] does, and leaves it on the stream.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::read`].
    pub fn peek(&mut self, s: StreamId, buf: &mut [u8]) -> Result<Option<(usize, RecvInfo)>, ReadError> {
        self.split_front(s);
        let Some(stream) = self.streams.get(s) else { return Err(ReadError::Closed) };
        stream.head.check_read()?;
        if stream.head.is_lent() {
            return Ok(None);
        }
        let Some(front) = stream.head.queue.front() else { return Ok(None) };
        let mut info = RecvInfo::default();
        describe(front, &mut info).ok_or(ReadError::NotData)?;
        let len = front.data.copy_to(buf);
        info.more |= len < front.data.len();
        Ok(Some((len, info)))
    }

    /// Takes the first message, with its data, of any kind. `Ok(None)` means that there is nothing now.
    ///
    /// # Errors
    ///
    /// [`ReadError::HungUp`] at the end, [`ReadError::Failed`] if the stream has failed.
    #[inline]
    pub fn getmsg(&mut self, s: StreamId) -> Result<Option<Message>, ReadError> {
        let Some((stream, _)) = self.streams.parts(s) else { return Err(ReadError::Closed) };
        if stream.head.is_failed_or_diverted() {
            stream.head.report_read()?;
            if stream.head.is_lent() {
                return Ok(None);
            }
        }
        if stream.head.queue.begins_with_run() {
            self.split_front(s);
        }
        self.take_first(s)
    }

    /// Takes the first entry of the read queue: a message, as [`Executive::getmsg`] does, or all messages of a run together
    /// ([`Kind::Run`]), which [`RunMessages`](crate::RunMessages) tells apart.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::getmsg`].
    pub fn getrun(&mut self, s: StreamId) -> Result<Option<Message>, ReadError> {
        let Some((stream, _)) = self.streams.parts(s) else { return Err(ReadError::Closed) };
        if stream.head.is_failed_or_diverted() {
            stream.head.report_read()?;
            if stream.head.is_lent() {
                return Ok(None);
            }
        }
        self.take_first(s)
    }

    #[inline]
    fn take_first(&mut self, s: StreamId) -> Result<Option<Message>, ReadError> {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(ReadError::Closed) };
        let Some(m) = stream.head.queue.getq() else { return Ok(None) };
        stream.head.take_due_signals(s, scheduler);
        self.after_getq(s, &m);
        Ok(Some(m))
    }

    /// Takes the first message if `select` matches it. `Ok(None)` means that there is none now.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::getmsg`].
    pub fn getpmsg(&mut self, s: StreamId, select: Select) -> Result<Option<Message>, ReadError> {
        let Some(stream) = self.streams.get(s) else { return Err(ReadError::Closed) };
        stream.head.check_read()?;
        if stream.head.is_lent() {
            return Ok(None);
        }
        let selected = stream.head.queue.front().is_some_and(|m| match select {
            Select::Any => true,
            Select::HighPriority => m.kind.is_high_priority(),
            Select::Band(band) => m.kind.is_high_priority() || m.band >= band,
        });
        if selected { self.getmsg(s) } else { Ok(None) }
    }

    /// Takes as much of the first message as two buffers hold, if `select` matches it (`getpmsg`). The rest stays for the next
    /// call. `Ok(None)` means that there is no such message now.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::getmsg`].
    pub fn getpmsg_into(
        &mut self,
        s: StreamId,
        select: Select,
        control: &mut [u8],
        data: &mut [u8],
    ) -> Result<Option<Parts>, ReadError> {
        let Some(mut m) = self.getpmsg(s, select)? else { return Ok(None) };
        let mut parts =
            Parts { band: m.band, is_high_priority: m.kind.is_high_priority(), ..Parts::default() };
        if let Kind::Proto(part) | Kind::PcProto(part) = &mut m.kind
            && !part.is_empty()
        {
            let first = part.split_to(control.len());
            control[..first.len()].copy_from_slice(&first);
            parts.control_bytes = Some(first.len());
            parts.more_control = !part.is_empty();
        }
        if !m.data.is_empty() || m.kind == Kind::Data {
            let taken_bytes = m.data.copy_to(data);
            m.data.advance(taken_bytes);
            parts.data_bytes = Some(taken_bytes);
            parts.more_data = !m.data.is_empty();
        }
        if (parts.more_control || parts.more_data)
            && let Some(stream) = self.streams.get_mut(s)
        {
            stream.head.put_back(m);
        }
        Ok(Some(parts))
    }

    /// Returns whether the next message is marked (`I_ATMARK`).
    pub fn is_at_mark(&self, s: StreamId) -> bool {
        let front = self.streams.get(s).and_then(|stream| stream.head.queue.front());
        front.is_some_and(|m| m.marks.contains(Marks::MARK))
    }

    /// Splits the first message off, if it is part of a run.
    pub(super) fn split_front(&mut self, s: StreamId) {
        let Some((stream, _)) = self.streams.parts(s) else { return };
        if stream.head.queue.begins_with_run()
            && let Some(credit) = stream.head.queue.split_run()
        {
            self.after_taking(s, credit);
        }
    }

    /// Reads from a stream that has failed, or in a mode other than the usual one.
    fn read_by_mode(
        &mut self,
        s: StreamId,
        buf: &mut [u8],
        read: &mut RecvInfo,
    ) -> Result<Option<usize>, ReadError> {
        let mut filled_bytes = 0;
        let mut first: Option<(Which, RecvInfo)> = None;
        let mut result: Option<usize> = None;
        loop {
            let Some(stream) = self.streams.get_mut(s) else { return Err(ReadError::Closed) };
            let head = &mut stream.head;
            if result.is_none() {
                head.report_read()?;
                if head.is_lent() {
                    return Ok(None);
                }
            }
            head.uncover_data();
            if head.queue.begins_with_run() {
                self.split_front(s);
            }
            let Some(stream) = self.streams.get_mut(s) else { return Err(ReadError::Closed) };
            let head = &mut stream.head;
            let Some(front) = head.queue.front() else {
                return if result.is_some() { Ok(result) } else { self.found_nothing(s, buf.len()) };
            };
            let mut info = RecvInfo::default();
            let association = match (describe(front, &mut info), &first) {
                (Some(association), None) => association,
                // A read in byte mode continues within one stream of one association, and stops at a mark.
                (Some(association), Some(first))
                    if (association, info.stream) == (first.0, first.1.stream)
                        && !front.marks.contains(Marks::MARK) =>
                {
                    association
                }
                (None, None) => return Err(ReadError::NotData),
                (_, Some(_)) => return Ok(result),
            };
            let len = front.data.copy_to(&mut buf[filled_bytes..]);
            let rest_bytes = front.data.len() - len;
            let mode = head.settings().read_mode();
            let whole = rest_bytes == 0 || mode == ReadMode::MessageDiscard;
            let gone_bytes = if whole { len + rest_bytes } else { len };
            self.take_front(s, association, len, gone_bytes, whole);
            filled_bytes += len;
            let (_, described) = first.get_or_insert((association, info));
            *read = RecvInfo { more: info.more || !whole, ..*described };
            result = Some(filled_bytes);
            if mode != ReadMode::Bytes || filled_bytes == buf.len() {
                return Ok(result);
            }
        }
    }

    /// Handles a read that found nothing: tells drivers that read on demand how much is wanted (`M_READ`).
    #[cold]
    fn found_nothing<T>(&mut self, s: StreamId, bytes: usize) -> Result<Option<T>, ReadError> {
        if self.streams.get(s).is_some_and(|stream| stream.head.settings().announces_reads()) {
            self.put_down(s, Message::new(Kind::Read { bytes }));
        }
        Ok(None)
    }

    /// Removes `gone_bytes` of the first message, or all of it, after the program has got `read_bytes`.
    #[inline]
    fn take_front(
        &mut self,
        s: StreamId,
        association: Which,
        read_bytes: usize,
        gone_bytes: usize,
        whole: bool,
    ) {
        let Some((stream, scheduler, pool)) = self.streams.all_parts(s) else { return };
        let head = &mut stream.head;
        let Some(front) = head.queue.front() else { return };
        let (has_credit, is_long) = (front.receive_credit().is_some(), front.data.is_long());
        let charges = if whole && has_credit { front.charges() } else { 0 };
        head.count_read(usize::from(whole), read_bytes);
        if whole {
            if is_long {
                if let Some(m) = head.queue.getq() {
                    pool.recycle_chain(m.data);
                }
            } else {
                head.queue.drop_front();
            }
            head.take_due_signals(s, scheduler);
        } else if let Some(rest) = head.queue.advance_front(gone_bytes) {
            // In SVR4 the mark is on the first byte of the message.
            rest.marks = rest.marks.without(Marks::MARK);
        }
        let bytes = if has_credit { gone_bytes } else { 0 };
        self.after_taking(s, Credit { association, bytes, charges });
    }

    /// Reports a message that was taken whole with `getmsg`.
    #[inline]
    fn after_getq(&mut self, s: StreamId, m: &Message) {
        let credit = m.receive_credit();
        let Some(stream) = self.streams.get_mut(s) else { return };
        let credit = credit.unwrap_or_default();
        let (messages, bytes) = m.user_messages();
        stream.head.count_read(messages, bytes);
        self.after_taking(s, credit);
    }

    /// Tells the queues below that there is room again, and the driver that its reader's window has grown.
    #[inline]
    fn after_taking(&mut self, s: StreamId, credit: Credit) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if stream.head.queue.relieved() {
            stream.back_enable_below(s, scheduler);
        }
        if stream.has_modules() {
            return self.return_credit_past_modules(s, credit);
        }
        let Credit { association, bytes, charges } = credit;
        if bytes > 0 || charges > 0 {
            let driver = &mut self.drivers[stream.driver().0];
            driver.consumed(&mut Cx::new(&mut self.streams), s, association, bytes, charges);
            self.deliver_posts();
        }
    }

    /// Returns the receive window of what was taken on a stream with modules, and checks that they have not discarded
    /// other messages without that.
    #[inline(never)]
    fn return_credit_past_modules(&mut self, s: StreamId, credit: Credit) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        stream.on_credit_returned(credit.bytes);
        if credit.bytes == 0 && credit.charges == 0 {
            return stream.check_credit(s, scheduler);
        }
        let driver = &mut self.drivers[stream.driver().0];
        let Credit { association, bytes, charges } = credit;
        driver.consumed(&mut Cx::new(&mut self.streams), s, association, bytes, charges);
        self.deliver_posts();
        self.streams.check_credit(s);
    }
}

/// Writes the description of a message of user data to `info`, and returns its association; `None` for any other message.
#[inline]
fn describe(m: &Message, info: &mut RecvInfo) -> Option<Which> {
    let more = match &m.kind {
        Kind::Proto(Control::Tpi(Primitive::OptdataInd { association, info: found })) => {
            *info = *found;
            return Some(*association);
        }
        Kind::Data => false,
        Kind::Proto(Control::Tpi(Primitive::DataInd { more } | Primitive::ExdataInd { more })) => *more,
        Kind::Proto(control) | Kind::PcProto(control) if control.is_empty() => false,
        _ => return None,
    };
    *info = RecvInfo { more, ..RecvInfo::default() };
    Some(Which::Only)
}
