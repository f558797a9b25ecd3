//! The one ioctl that may be under way on a stream.

use crate::message::{Kind, Message};

/// Whether an ioctl is under way, and its answer when it has come.
#[derive(Debug, Default)]
pub(crate) struct IoctlState {
    last_id: u32,
    waiting: bool,
    answer: Option<Box<Message>>,
}

impl IoctlState {
    /// Begins an ioctl and gives it a number. `None`: another one is under way.
    pub(crate) fn begin(&mut self) -> Option<u32> {
        if self.waiting || self.answer.is_some() {
            return None;
        }
        self.waiting = true;
        self.last_id = self.last_id.wrapping_add(1);
        Some(self.last_id)
    }

    /// Takes an answer in. False: nobody waits for it, and it is thrown away.
    pub(crate) fn answer(&mut self, m: Message) -> bool {
        let id = match &m.kind {
            Kind::IocAck(ack) => ack.id,
            Kind::IocNak(nak) => nak.id,
            _ => return false,
        };
        let expected = self.waiting && id == self.last_id;
        if expected {
            self.waiting = false;
            self.answer = Some(Box::new(m));
        }
        expected
    }

    pub(crate) fn take_answer(&mut self) -> Option<Message> {
        self.answer.take().map(|m| *m)
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    /// Waits no more: an answer that still comes is thrown away.
    pub(crate) fn abandon(&mut self) {
        self.waiting = false;
    }
}
