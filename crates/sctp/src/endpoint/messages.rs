//! Messages of the user on their way down, and the window that its reads open.

use bytes::Bytes;
use sctp_message::SendInfo;

use super::{Admission, Endpoint, Permit};
use crate::association::FlushWhen;
use crate::error::SendError;
use crate::identifiers::AssociationId;
use crate::outbound::{Batch, Block, Stage};
use crate::time::Time;

impl Endpoint {
    /// Admits a message of `bytes` in total, if it is valid and there is room for it. After [`Admission::Full`], an
    /// [`Event::Writable`](crate::Event::Writable) follows.
    #[inline]
    pub fn admit<'a>(&'a mut self, id: AssociationId, info: &'a SendInfo, bytes: usize) -> Admission<'a> {
        let Some(association) = self.associations.get_mut(id) else {
            return Admission::Fail(SendError::Closed);
        };
        if let Err(error) = association.check_message(info, bytes) {
            return Admission::Fail(error);
        }
        if !association.ask_for_room(bytes) {
            self.associations.reconsider(id);
            return Admission::Full;
        }
        let (is_idle, copies) = (association.is_quiet(), association.copies(info, bytes));
        Admission::Granted(Permit { endpoint: self, id, info, bytes, is_idle, copies })
    }

    /// Queues a message that was admitted elsewhere, whether or not there is room for it.
    ///
    /// # Errors
    ///
    /// The message is not valid, or the association takes none.
    #[inline]
    pub fn send(
        &mut self,
        now: Time,
        id: AssociationId,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), SendError> {
        let association = self.associations.get(id).ok_or(SendError::Closed)?;
        association.check_message(info, bytes)?;
        self.queue_message(now, id, info, bytes, blocks);
        Ok(())
    }

    /// Queues a message that was checked.
    #[inline]
    pub(crate) fn queue_message(
        &mut self,
        now: Time,
        id: AssociationId,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = impl Block>,
    ) {
        let Some(association) = self.associations.get_mut(id) else { return };
        association.queue_message(now, info, bytes, blocks, &mut self.free_blocks);
        self.associations.enqueue_for_message(id, self.limits);
        if info.lifetime.is_some() {
            self.associations.arm(id);
        }
    }

    /// Queues the messages of a batch, and empties it. Returns whether there is room for them; if not,
    /// [`Event::Writable`](crate::Event::Writable) tells when the buffer is at most half full.
    ///
    /// # Errors
    ///
    /// One of the messages is not valid, a record is open, or the association takes no messages. None is sent then.
    pub fn send_batch(&mut self, id: AssociationId, batch: &mut Batch) -> Result<bool, SendError> {
        let association = self.associations.get_mut(id).ok_or(SendError::Closed)?;
        if batch.is_empty() {
            return Ok(true);
        }
        let queued = association.queue_batch(batch, &mut self.free_blocks)?;
        match queued {
            true => self.associations.enqueue_for_message(id, self.limits),
            false => self.associations.reconsider(id),
        }
        Ok(queued)
    }

    /// Lends the end of an association's send queue, in which messages wait, to a caller that has several messages of `bytes` for
    /// it. The stage says when they are to leave. `None`: those that wait are to leave already, or the association does not take
    /// such messages, or does not copy them; each message needs [`Endpoint::admit`] then.
    ///
    /// ```
    /// # use sctp::{AssociationId, BatchLimits, Endpoint, EndpointConfig, FlushWhen};
    /// let limits = BatchLimits { segments_max: 1, bytes_max: 1500 };
    /// let mut endpoint = Endpoint::new(EndpointConfig::default(), [0; 32], limits);
    /// let stage = endpoint.lend_stage(AssociationId::FIRST, 16, FlushWhen::Rule);
    /// assert!(stage.is_none(), "there is no association");
    /// ```
    #[inline]
    pub fn lend_stage(&mut self, id: AssociationId, bytes: usize, when: FlushWhen) -> Option<Stage> {
        self.associations.lend_stage(id, bytes, when)
    }

    /// Returns the maximum size of a message that an association copies to the others that wait, if nothing else keeps its bytes.
    #[inline]
    pub fn copied_bytes_max(&self, id: AssociationId) -> Option<usize> {
        Some(self.associations.get(id)?.copied_bytes_max())
    }

    /// Takes a stage back. The messages that were appended are queued.
    #[inline]
    pub fn return_stage(&mut self, stage: Stage) {
        let id = stage.id();
        let Some(association) = self.associations.get_mut(id) else { return };
        association.return_stage(stage);
        self.associations.enqueue_for_message(id, self.limits);
    }

    /// Records that the reader took `bytes`, and a charge in addition: 1 with the last bytes of a
    /// [`Host::message`](crate::Host::message), [`ReceivedRun::charges`](crate::ReceivedRun::charges) with the last of a
    /// [`Host::run`](crate::Host::run), otherwise 0. The window opens.
    #[inline]
    pub fn consumed(&mut self, id: AssociationId, bytes: usize, charges: usize) {
        if let Some(association) = self.associations.get_mut(id)
            && association.consumed(bytes, charges)
        {
            self.enqueue(id);
        }
    }

    /// Keeps the credit of `bytes` that the reader has just taken, overhead included ([`Endpoint::consumed`]), because a program
    /// behind the reader has not read them yet. No window is advertised in between.
    pub fn hold_window(&mut self, id: AssociationId, bytes: usize) {
        if let Some(association) = self.associations.get_mut(id) {
            association.hold_window(bytes);
        }
    }

    /// Releases credit that was kept: the window opens.
    pub fn release_window(&mut self, id: AssociationId, bytes: usize) {
        if let Some(association) = self.associations.get_mut(id)
            && association.release_window(bytes)
        {
            self.enqueue(id);
        }
    }
}
