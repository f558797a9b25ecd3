//! Messages on their way from an association to the program.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use channel_protocol::record::{Flags, HEADER_BYTES, Header, LONG_BYTES_MAX, PAYLOAD_BYTES_MAX};
use swiftwater::internals::{self, MessageRun, Taken};
use swiftwater::{LossKind, Message, Received, RecvError};
use tokio::time::{Instant, timeout_at};

use crate::users::budget::Charge;
use crate::users::quantum;

/// Size from which a message goes into a bundle even if no other is there to share it: the kernel's copy costs more.
const BUNDLED_ALONE_BYTES: usize = 8 * 1024;

/// Messages that have waited for the program so long are copied. Until then they keep the blocks in which they arrived: a whole
/// receive block, or the whole message of a sender on this host, which its user is charged with.
const ATTACHED_TIME_MAX: Duration = Duration::from_millis(50);

/// Maximum number of bytes of the notifications of an association that wait for the end of a message.
const WAITING_NOTIFICATIONS_BYTES_MAX: usize = 64 * 1024;

/// The result of reading an association.
pub(crate) type ReadResult = Result<Option<Taken>, RecvError>;

/// The end of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer has shut the association down, after its last message.
    ByPeer,
    /// This side has shut the association down.
    ByUs,
    /// The association was aborted or lost.
    Lost(LossKind),
}

/// Messages on their way from an association to the program.
#[derive(Default)]
pub(crate) struct InboundQueue {
    /// Items to hand up, in this order.
    queue: VecDeque<ToProgram>,
    /// Messages behind these items, as they came in packets.
    runs: VecDeque<MessageRun>,
    /// The result of a read behind these items and runs that cannot share a record with them: an event, an end, an error, or
    /// a message.
    next: Option<ReadResult>,
    /// Whether the last message that was pushed lacks its end.
    is_message_open: bool,
    /// Notifications that wait for that end, with their charges: a program that gathers the parts of a message expects nothing
    /// else among them.
    notifications: VecDeque<(ToProgram, Charge)>,
    /// Number of bytes that these notifications take in records.
    notification_bytes: usize,
    /// Whether the peer has shut the association down.
    is_shut_down: bool,
    /// Whether the end must be reported once all items and runs were put.
    is_end_due: bool,
    /// How the association has ended; reported once all but the last item was put. No message follows an end, so that item is
    /// in `queue`.
    ending: Option<Ended>,
    /// Whether a message was added since all were copied.
    is_attached: bool,
    /// When the messages must be copied, if they have begun to wait for the program.
    copied_at: Option<Instant>,
}

/// Input: results of reading the association.
impl InboundQueue {
    /// Appends an item; returns the number of bytes that it takes in a record. The notifications that have waited for the end of
    /// a message follow that end.
    pub(crate) fn push(&mut self, item: ToProgram) -> usize {
        debug_assert!(self.runs.is_empty(), "the item would overtake the runs");
        let bytes = item.record_bytes();
        let is_message_open = match item {
            ToProgram::Message(..) => !item.has_end(),
            ToProgram::Notification(..) => self.is_message_open,
        };
        self.is_attached |= matches!(item, ToProgram::Message(..));
        self.queue.push_back(item);
        if !is_message_open {
            self.end_message();
        }
        self.is_message_open = is_message_open;
        bytes
    }

    /// Appends a notification, or keeps it until the message that lacks its end has ended, if there is memory: `charge` returns
    /// the charge of a number of bytes. Without memory all of them go up at once.
    pub(crate) fn push_notification(
        &mut self,
        notification: ToProgram,
        charge: impl FnOnce(usize) -> Option<Charge>,
    ) {
        let bytes = notification.record_bytes();
        if self.is_message_open
            && self.notification_bytes + bytes <= WAITING_NOTIFICATIONS_BYTES_MAX
            && let Some(charge) = charge(bytes)
        {
            self.notification_bytes += bytes;
            self.notifications.push_back((notification, charge));
            return;
        }
        self.release_notifications();
        self.push(notification);
    }

    /// Records that no further part of the last message comes.
    pub(crate) fn end_message(&mut self) {
        self.is_message_open = false;
        self.release_notifications();
    }

    fn release_notifications(&mut self) {
        self.queue.extend(self.notifications.drain(..).map(|(notification, _)| notification));
        self.notification_bytes = 0;
    }

    /// Appends messages; returns the number of bytes that they take in records.
    pub(crate) fn push_run(&mut self, run: MessageRun) -> usize {
        let bytes = record_bytes(&run);
        self.is_attached = true;
        self.runs.push_back(run);
        bytes
    }

    /// Keeps the result of a read that comes after all items and messages.
    pub(crate) fn set_next(&mut self, next: Option<ReadResult>) {
        self.is_attached |= next.is_some();
        self.next = next;
    }

    /// Removes and returns that result.
    pub(crate) fn take_next(&mut self) -> Option<ReadResult> {
        self.next.take()
    }

    /// Records that the peer has shut the association down. `shows_end`: the program is shown the end of the data.
    pub(crate) fn on_peer_shutdown(&mut self, shows_end: bool) {
        (self.is_shut_down, self.is_end_due) = (true, shows_end);
    }

    /// Records that the association has ended, by a loss or in the regular way. Its last item has been pushed.
    pub(crate) fn on_down(&mut self, loss: Option<LossKind>) {
        self.ending = Some(loss.map_or(self.regular_end(), Ended::Lost));
    }

    /// Returns how the association has ended if it was not lost.
    pub(crate) fn regular_end(&self) -> Ended {
        if self.is_shut_down { Ended::ByPeer } else { Ended::ByUs }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }
}

/// Output: items and messages for the program.
impl InboundQueue {
    /// Returns the items, which come before the runs.
    pub(crate) fn items(&self) -> &VecDeque<ToProgram> {
        &self.queue
    }

    /// Returns the messages behind the items.
    pub(crate) fn runs(&self) -> &VecDeque<MessageRun> {
        &self.runs
    }

    /// Returns the first item. If there is none, makes one of the first message of the runs.
    pub(crate) fn first(&mut self, item: impl FnOnce(Message) -> ToProgram) -> Option<&ToProgram> {
        if self.queue.is_empty() {
            let first = self.take_first_of_runs();
            self.queue.extend(first.map(item));
        }
        self.queue.front()
    }

    /// Removes the first item, which was handed up.
    pub(crate) fn pop_first(&mut self) {
        self.queue.pop_front();
        self.on_removed();
    }

    /// Removes the first `items` items and the messages of the runs that are not in `rest`: these were handed up.
    pub(crate) fn remove(&mut self, items: usize, rest: VecDeque<MessageRun>) {
        self.queue.drain(..items);
        self.runs = rest;
        self.on_removed();
    }

    fn on_removed(&mut self) {
        if self.is_empty() {
            (self.copied_at, self.is_attached) = (None, self.next.is_some());
        }
    }

    /// Waits until the program has made room, or the messages must be copied: after [`ATTACHED_TIME_MAX`], however often there
    /// was room for a part of them meanwhile.
    pub(crate) async fn wait_for_room(&mut self, room: impl Future<Output = ()>) {
        if !self.is_attached {
            return room.await;
        }
        let copied_at = *self.copied_at.get_or_insert_with(|| Instant::now() + ATTACHED_TIME_MAX);
        let _ = timeout_at(copied_at, room).await;
    }

    /// Returns whether the messages must be copied now.
    pub(crate) fn is_copy_due(&self) -> bool {
        self.copied_at.is_some_and(|at| at <= Instant::now())
    }

    /// Copies the messages out of the blocks in which they arrived; returns their number of bytes.
    pub(crate) fn copy_out(&mut self) -> usize {
        (self.copied_at, self.is_attached) = (None, false);
        let mut bytes = 0;
        let mut copy_out = |message: &mut Message| {
            bytes += message.len();
            internals::copy_out(message);
        };
        for item in &mut self.queue {
            if let ToProgram::Message(_, message) = item {
                copy_out(message);
            }
        }
        if let Some(Ok(Some(Taken::One(Received::Message(message))))) = &mut self.next {
            copy_out(message);
        }
        let mut copy_run = |run: &mut MessageRun| {
            run.copy_out();
            bytes += run.block_bytes();
        };
        self.runs.iter_mut().for_each(&mut copy_run);
        if let Some(Ok(Some(Taken::Run(run)))) = &mut self.next {
            copy_run(run);
        }
        bytes
    }

    /// Returns the number of items that stay until the end of the association is reported.
    pub(crate) fn items_behind_end(&self) -> usize {
        usize::from(self.ending.is_some())
    }

    /// Returns how the association has ended, if that was not reported.
    pub(crate) fn take_ending(&mut self) -> Option<Ended> {
        self.ending.take()
    }

    /// Returns whether the program must be shown the end of the data now; returns true once.
    pub(crate) fn take_end_due(&mut self) -> bool {
        std::mem::take(&mut self.is_end_due)
    }

    /// Removes the first message of the runs and returns it.
    fn take_first_of_runs(&mut self) -> Option<Message> {
        let run = self.runs.front_mut()?;
        let message = run.take_first();
        if run.messages() == 0 {
            self.runs.pop_front();
        }
        message
    }
}

/// Amounts.
impl InboundQueue {
    /// Returns the number of bytes that all items and messages take in records.
    pub(crate) fn record_bytes(&self) -> usize {
        let of_queue = self.queue.iter().map(ToProgram::record_bytes);
        of_queue.chain(self.runs.iter().map(record_bytes)).sum()
    }

    /// Returns the number of bytes that all items and messages keep in memory: runs keep their whole packets.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_queue = self.queue.iter().map(ToProgram::record_bytes);
        of_queue.chain(self.runs.iter().map(MessageRun::block_bytes)).sum()
    }

    /// Returns the number of bytes that the last message takes in a record, about; `None` if it may not share one.
    pub(crate) fn last_shared_bytes(&self) -> Option<usize> {
        match self.runs.back() {
            Some(run) => Some(bytes_of_each(run)),
            None => self.queue.back().filter(|last| last.may_share()).map(ToProgram::record_bytes),
        }
    }

    /// Returns the number of bytes that the first message takes in a bundle, about; `None` if it needs a record of its own.
    pub(crate) fn bundled_bytes(&self) -> Option<usize> {
        let first = match self.queue.front() {
            Some(first) => first.lies_in_ring().then(|| first.record_bytes()),
            None => self.runs.front().map(bytes_of_each),
        };
        first.filter(|bytes| self.len() > 1 || *bytes >= BUNDLED_ALONE_BYTES)
    }

    /// Returns the number of records of a turn that all items and messages count as.
    pub(crate) fn weight(&self) -> usize {
        let of_queue = self.queue.iter().map(|item| quantum::weight(item.record_bytes()));
        let of_runs = self.runs.iter().map(|run| quantum::weight(run.data_bytes()) + run.messages());
        of_queue.sum::<usize>() + of_runs.sum::<usize>()
    }

    /// Returns the number of items and messages.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.runs.iter().map(MessageRun::messages).sum::<usize>()
    }

    /// Returns whether there is neither an item nor a message.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the number of bytes that each of the messages takes in a record, on average.
fn bytes_of_each(run: &MessageRun) -> usize {
    record_bytes(run) / run.messages().max(1)
}

/// Returns the number of bytes that messages take in records.
fn record_bytes(run: &MessageRun) -> usize {
    run.data_bytes() + run.messages() * HEADER_BYTES
}

/// An item for the program.
#[derive(Debug)]
pub(crate) enum ToProgram {
    Message(Header, Message),
    Notification(Header, Bytes),
}

impl ToProgram {
    pub(crate) fn header(&self) -> &Header {
        match self {
            ToProgram::Message(header, _) | ToProgram::Notification(header, _) => header,
        }
    }

    pub(crate) fn blocks(&self) -> &[Bytes] {
        match self {
            ToProgram::Message(_, message) => message.blocks(),
            ToProgram::Notification(_, content) => std::slice::from_ref(content),
        }
    }

    /// Returns whether the item is a message that may share a record with others.
    pub(crate) fn may_share(&self) -> bool {
        self.is_message(PAYLOAD_BYTES_MAX) && self.has_end()
    }

    /// Returns whether the item is a message, or a part of one, that may lie in the receive ring: a long one does so alone, and
    /// so does a part that others follow.
    pub(crate) fn lies_in_ring(&self) -> bool {
        self.is_message(LONG_BYTES_MAX)
    }

    /// Returns whether the message ends with this item.
    pub(crate) fn has_end(&self) -> bool {
        self.header().flags.contains(Flags::END)
    }

    /// Returns whether the item is a message, or a part of one, of up to `bytes` bytes.
    fn is_message(&self, bytes: usize) -> bool {
        matches!(self, ToProgram::Message(header, _) if header.bytes as usize <= bytes)
    }

    /// Returns the number of bytes that the item takes in a record.
    pub(crate) fn record_bytes(&self) -> usize {
        self.header().record_bytes()
    }
}
