//! Control of streams: ioctls, options, flushing, signals.

use crate::Executive;
use crate::chain::Chain;
use crate::error::{IoctlError, WriteError};
use crate::head::HeadOptions;
use crate::message::{Flush, Ioctl, Kind, Message, Signal};
use crate::stream::StreamId;

/// The answer to an ioctl that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoctlReply {
    /// What the call returns.
    pub value: i32,
    /// What the module or driver has to say.
    pub data: Chain,
}

impl Executive {
    /// Sends a request to the modules and the driver (`I_STR`). `Ok(None)`: the answer is not there yet; take it with
    /// [`Executive::ioctl_reply`] when the stream has priority readiness.
    ///
    /// # Errors
    ///
    /// The request is refused, another is under way, or the stream has failed.
    pub fn ioctl(
        &mut self,
        s: StreamId,
        command: u32,
        data: impl Into<Chain>,
    ) -> Result<Option<IoctlReply>, IoctlError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(IoctlError::Closed) };
        check(stream.head.check_write())?;
        let id = stream.head.ioctl.begin().ok_or(IoctlError::Busy)?;
        // What a full driver does not take now goes down behind the request.
        let _ = self.flush_head(s);
        self.put_down(s, Message::with_data(Kind::Ioctl(Ioctl { command, id }), data.into()));
        self.ioctl_reply(s)
    }

    /// The answer to the ioctl that is under way, if it has come.
    ///
    /// # Errors
    ///
    /// The request is refused, or the stream has failed.
    pub fn ioctl_reply(&mut self, s: StreamId) -> Result<Option<IoctlReply>, IoctlError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(IoctlError::Closed) };
        match stream.head.ioctl.take_answer() {
            Some(Message { kind: Kind::IocAck(ack), data, .. }) => {
                Ok(Some(IoctlReply { value: ack.value, data }))
            }
            Some(Message { kind: Kind::IocNak(nak), .. }) => Err(IoctlError::Refused(nak.errno)),
            _ => check(stream.head.check_write()).map(|()| None),
        }
    }

    /// Waits no longer for the answer to an ioctl.
    pub fn cancel_ioctl(&mut self, s: StreamId) {
        if let Some(stream) = self.streams.get_mut(s) {
            stream.head.ioctl.abandon();
            let _ = stream.head.ioctl.take_answer();
        }
    }

    /// Throws away what is queued all along a stream (`I_FLUSH`, `I_FLUSHBAND`), coalesced bytes included.
    pub fn flush_queues(&mut self, s: StreamId, flush: Flush) {
        let Some((stream, _, pool)) = self.streams.all_parts(s) else { return };
        if flush.write && flush.band.is_none_or(|band| band == 0) {
            stream.head.coalesced.clear(pool);
        }
        self.put_down(s, Message::new(Kind::Flush(flush)));
    }

    /// Changes options of a stream's head.
    pub fn set_head_options(&mut self, s: StreamId, options: &HeadOptions) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        stream.head.set_options(s, options, scheduler);
    }

    /// Sets the high-water mark of the head's read queue (`I_SET_HIWAT`).
    pub fn set_hiwat(&mut self, s: StreamId, bytes: usize) {
        self.set_head_options(s, &HeadOptions { hiwat_bytes: Some(bytes), ..HeadOptions::default() });
    }

    /// Sets the low-water mark of the head's read queue (`I_SET_LOWAT`).
    pub fn set_lowat(&mut self, s: StreamId, bytes: usize) {
        self.set_head_options(s, &HeadOptions { lowat_bytes: Some(bytes), ..HeadOptions::default() });
    }

    /// The high- and the low-water mark of the head's read queue (`I_GET_HIWAT`, `I_GET_LOWAT`).
    pub fn marks(&self, s: StreamId) -> Option<(usize, usize)> {
        Some(self.streams.get(s)?.head.queue.marks(0))
    }

    /// The last signal that a module or the driver has sent up and that nobody has taken yet.
    pub fn take_signal(&mut self, s: StreamId) -> Option<Signal> {
        self.streams.get_mut(s)?.head.take_signal()
    }
}

fn check(written: Result<(), WriteError>) -> Result<(), IoctlError> {
    match written {
        Ok(()) | Err(WriteError::WouldBlock) => Ok(()),
        Err(WriteError::Failed(errno)) => Err(IoctlError::Failed(errno)),
        Err(WriteError::HungUp) => Err(IoctlError::HungUp),
        Err(WriteError::Closed) => Err(IoctlError::Closed),
    }
}
