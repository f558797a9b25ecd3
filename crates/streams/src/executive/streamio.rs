//! The commands of `streamio(7)` that inspect a stream, and those that pass references between streams.

use crate::Executive;
use crate::error::{ReadError, Refused, WriteError};
use crate::head::HeadOptions;
use crate::identifiers::StreamId;
use crate::message::{Control, Credentials, Kind, Message, Passed};

impl Executive {
    /// Returns how many messages stand on the head's read queue, and the bytes of data in the first (`I_NREAD`).
    pub fn nread(&mut self, s: StreamId) -> Option<(usize, usize)> {
        self.split_front(s);
        let queue = &self.streams.get(s)?.head.queue;
        Some((queue.messages(), queue.front().map_or(0, |m| m.data.len())))
    }

    /// Returns the first message that waits for the reader, without taking it (`I_PEEK`); with `high_priority`, only a
    /// high-priority one (`RS_HIPRI`).
    pub fn peek_message(&mut self, s: StreamId, high_priority: bool) -> Option<&Message> {
        self.split_front(s);
        let front = self.streams.get(s)?.head.queue.front()?;
        (!high_priority || front.kind.is_high_priority()).then_some(front)
    }

    /// Returns the name of the module below the head (`I_LOOK`); `None` if there is none.
    pub fn look(&self, s: StreamId) -> Option<&str> {
        Some(self.streams.get(s)?.visible_modules().next()?.module.name())
    }

    /// Returns whether a module of this name is on the stream (`I_FIND`).
    pub fn find(&self, s: StreamId, name: &str) -> bool {
        self.streams
            .get(s)
            .is_some_and(|stream| stream.visible_modules().any(|slot| slot.module.name() == name))
    }

    /// Returns the names of the stream's modules, from the head downward, and of its driver (`I_LIST`).
    pub fn list(&self, s: StreamId) -> Vec<String> {
        let driver = self.driver_of(s).and_then(|driver| self.driver_name(driver));
        self.modules(s).into_iter().chain(driver.map(str::to_owned)).collect()
    }

    /// Returns whether a message of this band waits for the reader (`I_CKBAND`).
    pub fn ckband(&self, s: StreamId, band: u8) -> bool {
        let is_of_band = |m: &Message| !m.kind.is_high_priority() && m.band == band;
        self.streams.get(s).is_some_and(|stream| stream.head.queue.iter().any(is_of_band))
    }

    /// Returns the band of the first message that waits for the reader (`I_GETBAND`).
    pub fn getband(&self, s: StreamId) -> Option<u8> {
        self.streams.get(s)?.head.queue.front().map(|m| m.band)
    }

    /// Returns all options of the head (`I_GRDOPT`, `I_GWROPT`, `I_GERROPT`).
    pub fn head_options(&self, s: StreamId) -> Option<HeadOptions> {
        Some(self.streams.get(s)?.head.options())
    }

    /// See [`At::fdinsert`](super::At::fdinsert).
    pub(super) fn fdinsert(
        &mut self,
        s: StreamId,
        other: StreamId,
        mut m: Message,
        offset: usize,
    ) -> Result<(), Refused> {
        let number = u32::try_from(other.index()).unwrap_or(u32::MAX).to_ne_bytes();
        let (Kind::Proto(Control::Raw(control)) | Kind::PcProto(Control::Raw(control))) = &mut m.kind else {
            return Err(Refused { error: WriteError::Failed(crate::Errno::EINVAL), message: m });
        };
        let place = control.get_mut(offset..).and_then(|rest| rest.get_mut(..number.len()));
        match place {
            Some(place) if offset.is_multiple_of(number.len()) && self.streams.get(other).is_some() => {
                place.copy_from_slice(&number);
                self.putmsg(s, m)
            }
            _ => Err(Refused { error: WriteError::Failed(crate::Errno::EINVAL), message: m }),
        }
    }

    /// Passes a reference to the reader at the other end of a pipe (`I_SENDFD`). The owner of the executive keeps the object that
    /// the number stands for, and learns from [`Executive::recv_passed`] who has received it.
    ///
    /// # Errors
    ///
    /// The errors of [`At::putmsg`](super::At::putmsg).
    pub fn send_passed(
        &mut self,
        s: StreamId,
        number: u64,
        credentials: Credentials,
    ) -> Result<(), WriteError> {
        let m = Message::new(Kind::PassFp(Passed { number, stream: None, credentials }));
        self.putmsg(s, m).map_err(|refused| refused.error)
    }

    /// Takes a passed reference, if that is the next message (`I_RECVFD`). `Ok(None)` means that there is no message.
    ///
    /// # Errors
    ///
    /// [`ReadError::NotData`] if the next message is another one; otherwise the errors of [`Executive::getmsg`].
    pub fn recv_passed(&mut self, s: StreamId) -> Result<Option<Passed>, ReadError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(ReadError::Closed) };
        stream.head.report_read()?;
        if stream.head.is_lent() {
            return Ok(None);
        }
        match stream.head.queue.front().map(|m| &m.kind) {
            None => Ok(None),
            Some(&Kind::PassFp(passed)) => {
                if let Some(end) = passed.stream {
                    self.connections.received(end);
                }
                self.getmsg(s).map(|m| m.map(|_| passed))
            }
            Some(_) => Err(ReadError::NotData),
        }
    }
}
