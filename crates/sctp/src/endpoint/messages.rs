//! Messages of the user on their way down, and the window that its reads open.

use bytes::Bytes;
use sctp_message::SendInfo;

use super::{Admission, Endpoint, Permit};
use crate::error::SendError;
use crate::identifiers::AssociationId;
use crate::outbound::{Batch, Block, Stage, wire_bytes};
use crate::time::Time;

/// How an association packs the messages that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Maximum size of a message that is copied to the others, if nothing else keeps its bytes.
    pub copied_bytes_max: usize,
    /// Bytes of a packet for messages with their headers.
    pub packet_bytes: usize,
    /// Bytes of all messages that wait with their headers.
    pub waiting_bytes: usize,
}

impl Packing {
    /// Returns the bytes that a message takes in a packet.
    pub fn wire_bytes(bytes: usize) -> usize {
        wire_bytes(bytes)
    }
}

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
        if !association.has_room(bytes) {
            return Admission::Full;
        }
        let (is_idle, copies) = (association.is_quiet(), association.copies(info, bytes));
        Admission::Granted(Permit { endpoint: self, id, info, bytes, is_idle, copies })
    }

    /// Returns why [`Endpoint::admit`] refuses a message; `None` if it admits the message once there is room.
    pub fn refusal(&self, id: AssociationId, info: &SendInfo, bytes: usize) -> Option<SendError> {
        let association = self.associations.get(id);
        association.map_or(Err(SendError::Closed), |association| association.check_message(info, bytes)).err()
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
        association.queue_message(now, info, bytes, blocks);
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
        let queued = association.queue_batch(batch)?;
        if queued {
            self.associations.enqueue_for_message(id, self.limits);
        }
        Ok(queued)
    }

    /// Lends the end of an association's send queue to a caller that has several messages for it. `None`: the association is due
    /// to transmit, or takes no messages; each message needs [`Endpoint::admit`] then.
    ///
    /// ```
    /// # use sctp::{AssociationId, BatchLimits, Endpoint, EndpointConfig};
    /// let limits = BatchLimits { segments_max: 1, bytes_max: 1500 };
    /// let mut endpoint = Endpoint::new(EndpointConfig::default(), [0; 32], limits);
    /// assert!(endpoint.lend_stage(AssociationId(0)).is_none(), "there is no association");
    /// ```
    #[inline]
    pub fn lend_stage(&mut self, id: AssociationId) -> Option<Stage> {
        self.associations.lend_stage(id)
    }

    /// Returns the maximum size of a message that an association copies to the others that wait, if nothing else keeps its bytes.
    #[inline]
    pub fn copied_bytes_max(&self, id: AssociationId) -> Option<usize> {
        Some(self.associations.get(id)?.copied_bytes_max())
    }

    /// Returns how an association packs the messages that wait; `None` if there is no association.
    pub fn packing(&self, id: AssociationId) -> Option<Packing> {
        Some(self.associations.get(id)?.packing())
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
