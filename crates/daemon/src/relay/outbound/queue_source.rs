//! The send queue of an association of a one-to-many socket as the source of its messages.

use bytes::Bytes;
use channel_protocol::record::Header;
use swiftwater::SendError;

use super::{Ends, Next, OutboundWait, Source, is_reported_later, is_shutdown_pending, reports};
use crate::channel::endpoint::Progress;
use crate::state::inbound_queue::ToProgram;
use crate::state::send_queue::{QueueFront, SendQueue};

/// The events that only this source waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueWait {
    /// The end of the inbound direction: the program first hears of the end of the association, and of the messages that were
    /// sent before.
    InboundDone,
    /// The records that are in the channel at this moment are in the send queues of their associations. Then
    /// [`Outbound::on_drained`](super::Outbound::on_drained) is called.
    Drained,
}

/// The queue is empty and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueClosed;

/// The messages in a send queue.
pub(crate) struct QueueSource<'a> {
    ends: Ends<'a>,
    queue: &'a SendQueue,
    first: First,
    /// Whether the channel was drained since the peer has shut the association down.
    is_drained: bool,
    last: Last,
}

/// The end of what the program had sent when the peer's shutdown was noticed.
#[derive(Clone, Copy)]
enum Last {
    Unnoticed,
    /// The socket's task has not taken all of it: it ends here in the channel.
    InChannel(Progress),
    /// What is left of it is among so many messages, the first ones of the queue.
    InQueue(u64),
}

/// The state of the first message in the queue.
#[derive(PartialEq, Eq)]
enum First {
    /// Neither sent nor refused.
    Whole,
    /// Its content was sent or refused, but its SHUTDOWN was not sent.
    Shutdown,
    /// The association has refused it. It leaves the queue once that is reported.
    Refused,
}

impl<'a> QueueSource<'a> {
    pub(super) fn new(ends: Ends<'a>, queue: &'a SendQueue) -> QueueSource<'a> {
        QueueSource { ends, queue, first: First::Whole, is_drained: false, last: Last::Unnoticed }
    }

    /// Returns whether the channel may contain messages that the program has sent to this association before the peer has shut it
    /// down, or does so next. Only the records say which association they are for.
    fn needs_drain(&self) -> bool {
        let assoc = self.ends.assoc;
        assoc.has_upper_records() || assoc.has_last_upper_data() && !self.is_drained
    }

    pub(super) fn on_drained(&mut self) {
        let assoc = self.ends.assoc;
        assoc.set_has_upper_records(false);
        self.is_drained = assoc.has_last_upper_data();
    }

    fn remove_first(&mut self) {
        self.queue.pop();
        self.first = First::Whole;
    }
}

impl Source for QueueSource<'_> {
    type Own = QueueWait;
    type End = QueueClosed;

    fn on_sending_shut(&mut self) {
        self.queue.refuse();
        if let Last::Unnoticed = self.last {
            self.last = Last::InChannel(self.ends.socket.channel().sent());
        }
    }

    fn has_taken_last(&mut self) -> bool {
        if let Last::InChannel(last) = self.last
            && self.ends.socket.channel().taken().is_as_far_as(last)
        {
            self.last = Last::InQueue(self.queue.pushed());
        }
        matches!(self.last, Last::InQueue(last) if self.queue.popped() >= last)
    }

    fn on_reported(&mut self) -> Result<(), QueueClosed> {
        if self.first == First::Refused {
            self.remove_first();
        }
        Ok(())
    }

    fn next(&mut self, _weight_max: usize) -> Result<Next<QueueWait>, QueueClosed> {
        match self.queue.front() {
            QueueFront::Message(header, _) if self.first == First::Shutdown => {
                Ok(Next::Message(header, Bytes::new()))
            }
            QueueFront::Message(header, content) => Ok(Next::Message(header, content)),
            QueueFront::Nothing if self.needs_drain() => {
                Ok(Next::Waits { wait: OutboundWait::Own(QueueWait::Drained), has_untaken: true })
            }
            QueueFront::Nothing => {
                self.ends.association.flush();
                Ok(Next::Waits { wait: OutboundWait::Message, has_untaken: false })
            }
            QueueFront::Closed => Err(QueueClosed),
        }
    }

    fn on_sent(&mut self) {
        self.remove_first();
    }

    fn on_blocked(&mut self, _header: Header, content: Bytes) {
        self.first = if content.is_empty() { First::Shutdown } else { First::Whole };
    }

    /// Reports refused messages to an association that accepts no more, too: the program is notified of each, and never waits for
    /// room.
    fn on_refused(
        &mut self,
        refused: &SendError,
        header: Header,
        content: Bytes,
    ) -> Result<Vec<ToProgram>, QueueWait> {
        match refused {
            SendError::PeerShutdown => self.queue.refuse(),
            SendError::Closed => self.queue.on_gone(),
            _ => {}
        }
        let is_shutdown_pending = is_shutdown_pending(refused, &header, &content);
        if is_reported_later(self.ends.assoc, refused, &content) {
            return Err(QueueWait::InboundDone);
        }
        self.first = if is_shutdown_pending { First::Shutdown } else { First::Refused };
        Ok(reports(self.ends, refused, header, content))
    }
}
