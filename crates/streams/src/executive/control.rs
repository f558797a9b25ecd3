//! Control of streams: ioctls, options, flushing, signals.

use std::time::Duration;

use crate::Errno;
use crate::Executive;
use crate::chain::Chain;
use crate::error::{IoctlError, WriteError};
use crate::head::HeadOptions;
use crate::identifiers::StreamId;
use crate::message::{Credentials, Flush, IocData, Ioctl, IoctlArgument, Kind, Message, Signal};
use crate::timers::Alarm;

/// A request to the modules and the driver of a stream.
#[derive(Clone, Debug)]
pub struct IoctlRequest {
    /// The command.
    pub command: u32,
    /// Place of the argument. Default: in `data` (`I_STR`).
    pub argument: IoctlArgument,
    /// The argument of an `I_STR`.
    pub data: Chain,
    /// Time limit for the answer; `None` waits for ever (`INFTIM`). Default: [`IoctlRequest::TIMEOUT`].
    pub timeout: Option<Duration>,
    /// The caller. Default: the superuser, for calls of the executive's owner.
    pub credentials: Credentials,
}

impl IoctlRequest {
    /// Default time limit for an answer (`ic_timout` 0).
    pub const TIMEOUT: Duration = Duration::from_secs(15);

    /// Returns an `I_STR` with this argument.
    pub fn str(command: u32, data: impl Into<Chain>) -> Self {
        Self {
            command,
            argument: IoctlArgument::Str,
            data: data.into(),
            timeout: Some(Self::TIMEOUT),
            credentials: Credentials::ROOT,
        }
    }

    /// Returns a transparent ioctl with this third argument.
    pub fn transparent(command: u32, argument: u64) -> Self {
        Self { argument: IoctlArgument::Transparent(argument), ..Self::str(command, Chain::new()) }
    }

    /// Returns the request with this time limit.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Returns the request on behalf of this user.
    #[must_use]
    pub fn by(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }
}

/// Progress of an ioctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoctlStep {
    /// The answer has not come. Call [`Executive::ioctl_step`] again when the stream has priority readiness.
    Pending,
    /// The caller must read `bytes` at `address` of its memory and call [`Executive::ioctl_copied`].
    CopyIn {
        /// Address in the caller's memory.
        address: u64,
        /// Number of bytes.
        bytes: usize,
    },
    /// The caller must store the data at `address` of its memory and call [`Executive::ioctl_copied`].
    CopyOut {
        /// Address in the caller's memory.
        address: u64,
        /// The data.
        data: Chain,
    },
    /// The request was carried out.
    Done(IoctlReply),
}

/// The answer to an ioctl that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoctlReply {
    /// Return value of the call.
    pub value: i32,
    /// Data of the answer.
    pub data: Chain,
}

impl Executive {
    /// Sends an `I_STR` to the modules and the driver. Returns `Ok(None)` while there is no answer; take the answer with
    /// [`Executive::ioctl_reply`] when the stream has priority readiness.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::ioctl_begin`].
    pub fn ioctl(
        &mut self,
        s: StreamId,
        command: u32,
        data: impl Into<Chain>,
    ) -> Result<Option<IoctlReply>, IoctlError> {
        let step = self.ioctl_begin(s, IoctlRequest::str(command, data))?;
        self.reply_of(s, step)
    }

    /// Returns the answer to the ioctl in progress, if it has come.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::ioctl_begin`].
    pub fn ioctl_reply(&mut self, s: StreamId) -> Result<Option<IoctlReply>, IoctlError> {
        let step = self.ioctl_step(s)?;
        self.reply_of(s, step)
    }

    /// Returns the reply of an `I_STR`, if it is there. The caller passed the argument at the start, so nothing is copied.
    fn reply_of(&mut self, s: StreamId, step: IoctlStep) -> Result<Option<IoctlReply>, IoctlError> {
        match step {
            IoctlStep::Done(reply) => Ok(Some(reply)),
            IoctlStep::Pending => Ok(None),
            IoctlStep::CopyIn { .. } | IoctlStep::CopyOut { .. } => {
                match self.ioctl_copied(s, Err(Errno::EFAULT))? {
                    IoctlStep::Done(reply) => Ok(Some(reply)),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Begins an ioctl: sends the request to the modules and the driver, and returns its progress.
    ///
    /// # Errors
    ///
    /// The request is refused, its time is over, another is in progress, or the stream has failed.
    pub fn ioctl_begin(&mut self, s: StreamId, request: IoctlRequest) -> Result<IoctlStep, IoctlError> {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(IoctlError::Closed) };
        check(stream.head.check_write())?;
        let id = stream.head.ioctl.next_id().ok_or(IoctlError::Busy)?;
        let IoctlRequest { command, argument, data, timeout, credentials } = request;
        let ioctl = Ioctl { command, id, argument, credentials };
        let timer = timeout.map(|after| scheduler.timers.start(s, Alarm::Ioctl { id }, after));
        stream.head.ioctl.begin(ioctl, timer);
        // Coalesced bytes that a full driver refuses now go down behind the request.
        let _ = self.flush_head(s);
        self.put_down(s, Message::with_data(Kind::Ioctl(Box::new(ioctl)), data));
        self.ioctl_step(s)
    }

    /// Returns the progress of the ioctl.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::ioctl_begin`].
    pub fn ioctl_step(&mut self, s: StreamId) -> Result<IoctlStep, IoctlError> {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return Err(IoctlError::Closed) };
        let state = &mut stream.head.ioctl;
        if let Some((request, data)) = state.copy_request() {
            return Ok(match data {
                None => IoctlStep::CopyIn { address: request.address, bytes: request.bytes },
                Some(data) => IoctlStep::CopyOut { address: request.address, data },
            });
        }
        let answer = state.take_answer();
        if answer.is_some()
            && let Some(timer) = state.take_timer()
        {
            scheduler.timers.stop(s, timer);
        }
        match answer {
            Some(Message { kind: Kind::IocAck(ack), data, .. }) => {
                Ok(IoctlStep::Done(IoctlReply { value: ack.value, data }))
            }
            Some(Message { kind: Kind::IocNak(nak), .. }) => Err(IoctlError::Refused(nak.errno)),
            _ => check(stream.head.check_write()).map(|()| IoctlStep::Pending),
        }
    }

    /// Answers the request of a module or driver for a copy: with the bytes that were copied in, with an empty chain after a copy
    /// out, or with the error.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::ioctl_begin`]; does nothing if no copy was requested.
    pub fn ioctl_copied(
        &mut self,
        s: StreamId,
        copied: Result<Chain, Errno>,
    ) -> Result<IoctlStep, IoctlError> {
        let Some(stream) = self.streams.get_mut(s) else { return Err(IoctlError::Closed) };
        if let Some((ioctl, private)) = stream.head.ioctl.resume() {
            let (result, data) = match copied {
                Ok(data) => (Ok(()), data),
                Err(errno) => (Err(errno), Chain::new()),
            };
            let answer = IocData { ioctl, private, result };
            self.put_down(s, Message::with_data(Kind::IocData(Box::new(answer)), data));
        }
        self.ioctl_step(s)
    }

    /// Stops waiting for the answer to an ioctl.
    pub fn cancel_ioctl(&mut self, s: StreamId) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        stream.head.ioctl.abandon();
        let _ = stream.head.ioctl.take_answer();
        if let Some(timer) = stream.head.ioctl.take_timer() {
            scheduler.timers.stop(s, timer);
        }
    }

    /// Discards all messages queued along a stream (`I_FLUSH`, `I_FLUSHBAND`), and coalesced bytes.
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

    /// Returns the high- and the low-water mark of the head's read queue (`I_GET_HIWAT`, `I_GET_LOWAT`).
    pub fn marks(&self, s: StreamId) -> Option<(usize, usize)> {
        Some(self.streams.get(s)?.head.queue.marks(0))
    }

    /// Takes the last signal that a module or the driver has sent up and that was not taken yet.
    pub fn take_signal(&mut self, s: StreamId) -> Option<Signal> {
        self.streams.get_mut(s)?.head.take_signal()
    }
}

fn check(written: Result<(), WriteError>) -> Result<(), IoctlError> {
    match written {
        Ok(()) | Err(WriteError::WouldBlock) => Ok(()),
        Err(WriteError::Refused(reason)) => Err(IoctlError::Failed(reason.into())),
        Err(WriteError::Failed(errno)) => Err(IoctlError::Failed(errno)),
        Err(WriteError::HungUp) => Err(IoctlError::HungUp),
        Err(WriteError::Closed) => Err(IoctlError::Closed),
    }
}
