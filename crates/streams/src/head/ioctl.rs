//! The one ioctl that may be in progress on a stream.

use crate::message::{CopyRequest, IocNak, Ioctl, Kind, Message};
use crate::timers::TimerId;
use crate::{Chain, Errno};

/// State of the ioctl of a stream.
#[derive(Debug, Default)]
pub(crate) struct IoctlState {
    last_id: u32,
    stage: Stage,
    timer: Option<TimerId>,
}

#[derive(Debug, Default)]
enum Stage {
    /// No ioctl is in progress.
    #[default]
    Idle,
    /// The modules and the driver process the ioctl.
    Below(Box<Ioctl>),
    /// The caller is asked to copy.
    Copies(Box<Ioctl>, Box<Message>),
    /// The answer has come.
    Answered(Box<Message>),
}

impl IoctlState {
    /// Returns the number of the next ioctl; `None` if another one is in progress.
    pub(crate) fn next_id(&mut self) -> Option<u32> {
        matches!(self.stage, Stage::Idle).then(|| {
            self.last_id = self.last_id.wrapping_add(1);
            self.last_id
        })
    }

    /// Notes that the ioctl goes down. `timer` ends it.
    pub(crate) fn begin(&mut self, ioctl: Ioctl, timer: Option<TimerId>) {
        self.stage = Stage::Below(Box::new(ioctl));
        self.timer = timer;
    }

    /// Takes the timer of the ioctl, which needs it no longer.
    pub(crate) fn take_timer(&mut self) -> Option<TimerId> {
        self.timer.take()
    }

    /// Returns whether the modules and the driver process the ioctl with this number.
    pub(crate) fn is_below(&self, id: u32) -> bool {
        matches!(&self.stage, Stage::Below(ioctl) if ioctl.id == id)
    }

    /// Accepts a message about an ioctl. Returns false if no caller waits for it, and discards it.
    pub(crate) fn answer(&mut self, m: Message) -> bool {
        let Stage::Below(ioctl) = &self.stage else { return false };
        match &m.kind {
            Kind::IocAck(ack) if ack.id == ioctl.id => self.stage = Stage::Answered(Box::new(m)),
            Kind::IocNak(nak) if nak.id == ioctl.id => self.stage = Stage::Answered(Box::new(m)),
            Kind::CopyIn(copy) | Kind::CopyOut(copy) if copy.id == ioctl.id => {
                self.stage = Stage::Copies(ioctl.clone(), Box::new(m));
            }
            _ => return false,
        }
        true
    }

    /// Refuses the ioctl with this number, if it is the one in progress.
    pub(crate) fn fail(&mut self, id: u32, errno: Errno) -> bool {
        let is_under_way = match &self.stage {
            Stage::Below(ioctl) | Stage::Copies(ioctl, _) => ioctl.id == id,
            Stage::Idle | Stage::Answered(_) => false,
        };
        if is_under_way {
            let nak = Message::new(Kind::IocNak(IocNak { id, errno }));
            self.stage = Stage::Answered(Box::new(nak));
        }
        is_under_way
    }

    pub(crate) fn take_answer(&mut self) -> Option<Message> {
        match std::mem::take(&mut self.stage) {
            Stage::Answered(m) => Some(*m),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Returns the requested copy: in, or out if there is data.
    pub(crate) fn copy_request(&self) -> Option<(CopyRequest, Option<Chain>)> {
        let Stage::Copies(_, m) = &self.stage else { return None };
        match &m.kind {
            Kind::CopyIn(copy) => Some((**copy, None)),
            Kind::CopyOut(copy) => Some((**copy, Some(m.data.clone()))),
            _ => None,
        }
    }

    /// Resumes the ioctl after the caller has copied, or failed to. Returns the ioctl and the number of the request.
    pub(crate) fn resume(&mut self) -> Option<(Ioctl, u64)> {
        let (request, _) = self.copy_request()?;
        let Stage::Copies(ioctl, _) = std::mem::take(&mut self.stage) else { return None };
        let resumed = *ioctl;
        self.stage = Stage::Below(ioctl);
        Some((resumed, request.private))
    }

    /// Returns whether the caller must act: take the answer, or copy.
    pub(crate) fn has_answer(&self) -> bool {
        matches!(self.stage, Stage::Answered(_) | Stage::Copies(..))
    }

    /// Stops waiting: a later answer is discarded. An answer that has come can still be taken.
    pub(crate) fn abandon(&mut self) {
        if !matches!(self.stage, Stage::Answered(_)) {
            self.stage = Stage::Idle;
        }
    }
}
