//! The send queue of an association of a one-to-many socket as the source of its messages.

use bytes::Bytes;
use carrier::record::Header;
use swiftwater::SendError;

use super::{Ends, Next, OutboundWait, Source, is_shutdown_pending, unsent};
use crate::relay::drain::Drain;
use crate::state::inbound_queue::ToProgram;
use crate::state::send_queue::{QueueFront, SendQueue};
use crate::users::quantum::RECORDS_PER_TURN;

/// The end of the inbound direction: the program first hears of the end of the association, and of the messages that were sent
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InboundDone;

/// The queue is empty and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueClosed;

/// The messages in a send queue.
pub(crate) struct QueueSource<'a> {
    ends: Ends<'a>,
    queue: &'a SendQueue,
    first: First,
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
        QueueSource { ends, queue, first: First::Whole }
    }

    /// Takes records out of the channel if the peer has shut the association down, because they may be for this association. Returns
    /// whether there were any.
    fn takes_more(&self) -> bool {
        let Ends { socket, assoc, .. } = self.ends;
        assoc.has_last_upper_data() && Drain::new(socket).take(socket).is_none()
    }

    fn remove_first(&mut self) {
        self.queue.pop();
        self.first = First::Whole;
    }
}

impl Source for QueueSource<'_> {
    type Own = InboundDone;
    type End = QueueClosed;

    fn on_sending_shut(&self) {
        self.queue.refuse();
    }

    fn on_reported(&mut self) -> Result<(), QueueClosed> {
        if self.first == First::Refused {
            self.remove_first();
        }
        Ok(())
    }

    fn next(&mut self, _weight_max: usize) -> Result<Next<InboundDone>, QueueClosed> {
        match self.queue.front() {
            QueueFront::Message(header, _) if self.first == First::Shutdown => {
                Ok(Next::Message(header, Bytes::new()))
            }
            QueueFront::Message(header, content) => Ok(Next::Message(header, content)),
            QueueFront::Nothing if self.takes_more() => Ok(Next::Handled { weight: RECORDS_PER_TURN }),
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
    ) -> Result<Vec<ToProgram>, InboundDone> {
        if *refused == SendError::PeerShutdown {
            self.queue.refuse();
        }
        let (is_closed, assoc) = (*refused == SendError::Closed, self.ends.assoc);
        let is_shutdown_pending = is_shutdown_pending(refused, &header, &content);
        let cause = if is_closed { assoc.end_cause() } else { 0 };
        let reports = unsent(self.ends.socket, assoc, header, content, cause);
        if is_closed && !reports.is_empty() && !assoc.is_inbound_done() {
            return Err(InboundDone);
        }
        self.first = if is_shutdown_pending { First::Shutdown } else { First::Refused };
        Ok(reports)
    }
}
