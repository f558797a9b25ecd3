//! Messages of the user: which are accepted, and their way into the send queue.

use sctp_message::SendInfo;

use super::mtu::payload_bytes_max;
use super::{Association, FlushWhen, State};
use crate::error::SendError;
use crate::outbound::{Batch, Block, FreeBlocks, Stage, copied_bytes_max, is_copied, owned_copied_bytes_max};
use crate::time::Time;

impl Association {
    /// Checks whether a message with this description can be sent, whether or not there is room for it.
    #[inline]
    pub(crate) fn check_message(&self, info: &SendInfo, bytes: usize) -> Result<(), SendError> {
        if !self.takes_messages() {
            return Err(self.refusal());
        }
        self.outbound.check(info, bytes)
    }

    /// Returns whether the send buffer has room for `bytes`. If not, [`Event::Writable`] follows.
    #[inline]
    pub(crate) fn ask_for_room(&mut self, bytes: usize) -> bool {
        self.outbound.ask_for_room(bytes)
    }

    /// Returns whether no data is in flight.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.outbound.in_flight_payload_bytes() == 0
    }

    /// Queues a message that [`Association::check_message`] has found valid. It is sent when the endpoint is asked to transmit.
    #[inline]
    pub(crate) fn queue_message(
        &mut self,
        now: Time,
        info: &SendInfo,
        bytes: usize,
        blocks: impl IntoIterator<Item = impl Block>,
        free: &mut FreeBlocks,
    ) {
        let (paths, config) = (&self.paths, &self.config);
        let owned_copied_bytes_max = || owned_copied_bytes_max(payload_bytes_max(paths, config));
        self.outbound.queue(now, info, bytes, blocks, owned_copied_bytes_max, free);
        self.statistics.messages_sent += 1;
        self.statistics.bytes_sent += bytes as u64;
    }

    /// Queues the messages of a batch, and empties it. Returns whether there is room for them; if not,
    /// [`Event::Writable`] follows.
    pub(crate) fn queue_batch(
        &mut self,
        batch: &mut Batch,
        free: &mut FreeBlocks,
    ) -> Result<bool, SendError> {
        if !self.takes_messages() {
            return Err(self.refusal());
        }
        self.outbound.check_batch(batch)?;
        if !self.outbound.ask_for_batch_room(batch) {
            return Ok(false);
        }
        self.statistics.messages_sent += batch.messages() as u64;
        self.statistics.bytes_sent += batch.data_bytes() as u64;
        self.outbound.queue_batch(batch, free);
        Ok(true)
    }

    /// Lends the end of the send queue for messages of `bytes`. The endpoint holds the association, so messages may be appended
    /// without a decision to transmit until the stage is due.
    #[inline]
    pub(crate) fn lend_stage(&mut self, bytes: usize, when: FlushWhen) -> Option<Stage> {
        let copied_bytes_max = self.copied_bytes_max();
        if bytes > copied_bytes_max || !self.takes_messages() {
            return None;
        }
        let waiting_bytes = self.outbound.pending_wire_bytes();
        let leaves_from_bytes = self.leaves_from_bytes(bytes, when);
        let due_from_bytes = leaves_from_bytes.checked_sub(waiting_bytes).filter(|left| *left > 0)?;
        self.outbound.lend_stage(self.id, due_from_bytes, copied_bytes_max)
    }

    /// Returns the maximum size of a message that is copied to the others that wait, if nothing else keeps its bytes.
    #[inline]
    pub(crate) fn copied_bytes_max(&self) -> usize {
        copied_bytes_max(self.fragmentation_point_bytes())
    }

    /// Returns whether the bytes of a message are copied, if nothing else keeps them.
    #[inline]
    pub(crate) fn copies(&self, info: &SendInfo, bytes: usize) -> bool {
        bytes <= Stage::SHORT_BYTES_MAX
            || (bytes <= Stage::MESSAGE_BYTES_MAX && is_copied(info, bytes, self.copied_bytes_max()))
    }

    /// Takes the end of the send queue back, with the messages that were appended.
    #[inline]
    pub(crate) fn return_stage(&mut self, stage: Stage) {
        self.statistics.messages_sent += stage.messages() as u64;
        self.statistics.bytes_sent += stage.data_bytes() as u64;
        self.outbound.return_stage(stage);
    }

    #[inline]
    pub(super) fn takes_messages(&self) -> bool {
        match &self.state {
            State::Established => true,
            State::CookieWait(setup) | State::CookieEchoed { setup, .. } => !setup.shutdown_wanted,
            State::ShutdownReceived { .. } => self.has_upper_data,
            _ => false,
        }
    }

    /// Returns the reason why messages are refused.
    #[cold]
    pub(super) fn refusal(&self) -> SendError {
        match self.state {
            State::ShutdownReceived { .. } | State::ShutdownAckSent { .. } => SendError::PeerShutdown,
            _ => SendError::Closed,
        }
    }
}
