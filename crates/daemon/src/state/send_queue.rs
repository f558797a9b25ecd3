//! The outbound messages of one association of a one-to-many socket.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use channel_protocol::record::{Header, MESSAGE_BYTES_MAX};
use channel_protocol::sharers_page::ROOM_BYTES;
use tokio::sync::Notify;

use crate::channel::shared_pages::{EntryIndex, SharedPages};

/// Maximum number of bytes in a queue, even if a program ignores the counts in the page.
const WAITING_BYTES_MAX: usize = ROOM_BYTES as usize + 2 * MESSAGE_BYTES_MAX;
/// The page is updated when this many bytes of room are free again.
const STEP_BYTES: u32 = ROOM_BYTES / 4;

/// Messages that a program has sent, and its association has not accepted yet.
pub(crate) type Messages = VecDeque<(Header, Bytes)>;

/// The first entry of a send queue.
pub(crate) enum QueueFront {
    Message(Header, Bytes),
    /// The queue is empty.
    Nothing,
    /// The queue is empty and closed.
    Closed,
}

/// The messages that one association of a one-to-many socket has not accepted yet.
pub(crate) struct SendQueue {
    pages: Rc<SharedPages>,
    /// The association's entry in the pages, until the association leaves it: from then on it may be another association's.
    entry: Cell<Option<EntryIndex>>,
    queued: RefCell<Queued>,
    /// Notified when a message was queued, or the queue was closed.
    filled: Notify,
    /// Notified when there is room again, or no message can be sent any more.
    emptied: Notify,
    /// Number of bytes passed on, modulo 2^32, and the number that the page shows.
    passed_on: Cell<u32>,
    shown: Cell<u32>,
    /// Whether the queue takes one message at a time, because hardly any memory is left to the user.
    takes_one: Cell<bool>,
}

#[derive(Default)]
struct Queued {
    waiting: Messages,
    bytes: usize,
    /// Number of messages that were queued so far.
    pushed: u64,
    closed: bool,
    /// The peer has shut the association down, or the program has, by `SCTP_EOF`.
    is_shut: bool,
    /// The association has ended, or the socket has removed it.
    is_gone: bool,
}

impl SendQueue {
    pub(crate) fn new(pages: &Rc<SharedPages>, entry: Option<EntryIndex>) -> Self {
        SendQueue {
            pages: Rc::clone(pages),
            entry: Cell::new(entry),
            queued: RefCell::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
            passed_on: Cell::new(0),
            shown: Cell::new(0),
            takes_one: Cell::new(false),
        }
    }

    fn queued(&self) -> RefMut<'_, Queued> {
        self.queued.borrow_mut()
    }

    /// Shows the program the number of outbound streams, unless the association is shut down.
    pub(crate) fn show_streams_out(&self, streams_out: u16) {
        if let Some(entry) = self.entry.get().filter(|_| !self.is_shut()) {
            self.pages.set_entry_streams_out(entry, streams_out);
        }
    }

    /// Shows the program the default stream of messages. Without an entry in the page, the shim checks nothing.
    pub(super) fn show_default_stream(&self, stream: u16) {
        if let Some(entry) = self.entry.get() {
            self.pages.set_entry_default_stream(entry, stream);
        }
    }

    /// Releases the entry in the page, because the association is gone. Messages that are still in the queue are passed on, and
    /// no longer counted there.
    pub(super) fn leave(&self) {
        if let Some(entry) = self.entry.take() {
            self.pages.leave(entry);
        }
        self.on_gone();
    }

    /// Records that the association has ended, or the socket has removed it. Wakes the tasks that wait for room: the messages in
    /// the queue may stay there until the program reads, and the program may be one that waits for room.
    pub(crate) fn on_gone(&self) {
        self.queued().is_gone = true;
        self.emptied.notify_waiters();
    }

    /// Returns whether the association has ended, or the socket has removed it.
    pub(crate) fn is_gone(&self) -> bool {
        self.queued().is_gone
    }

    /// Queues a message. Returns false if the program has sent far more than the page permits.
    pub(crate) fn push(&self, header: Header, content: Bytes) -> bool {
        let mut queued = self.queued();
        queued.bytes += content.len();
        queued.pushed += 1;
        queued.waiting.push_back((header, content));
        self.filled.notify_one();
        queued.bytes <= WAITING_BYTES_MAX
    }

    /// Returns the number of messages that were queued so far.
    pub(crate) fn pushed(&self) -> u64 {
        self.queued().pushed
    }

    /// Returns the number of messages that were queued and removed so far.
    pub(crate) fn popped(&self) -> u64 {
        let queued = self.queued();
        queued.pushed - queued.waiting.len() as u64
    }

    /// Returns the first message, without removing it.
    pub(crate) fn front(&self) -> QueueFront {
        let queued = self.queued();
        match queued.waiting.front() {
            Some((header, content)) => QueueFront::Message(*header, content.clone()),
            None if queued.closed => QueueFront::Closed,
            None => QueueFront::Nothing,
        }
    }

    /// Waits until a message is queued, or the queue is closed.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Wakes the task that waits for a message.
    pub(crate) fn wake(&self) {
        self.filled.notify_one();
    }

    /// Removes the first message, which was passed on.
    pub(crate) fn pop(&self) {
        let mut queued = self.queued();
        let Some((_, content)) = queued.waiting.pop_front() else { return };
        queued.bytes -= content.len();
        let passed_on = self.passed_on.get().wrapping_add(content.len() as u32);
        self.passed_on.set(passed_on);
        let unshown = passed_on.wrapping_sub(self.shown.get());
        if queued.waiting.is_empty() || unshown >= STEP_BYTES {
            self.show_passed_on();
        }
        drop(queued);
        self.wake_if_room();
    }

    /// Sets whether the queue takes one message at a time.
    pub(super) fn set_takes_one(&self, takes_one: bool) {
        if self.takes_one.replace(takes_one) != takes_one {
            self.show_passed_on();
            self.wake_if_room();
        }
    }

    fn show_passed_on(&self) {
        let passed_on = self.passed_on.get();
        self.shown.set(passed_on);
        // The shim sends while fewer bytes than the room have not been passed on.
        let withheld = if self.takes_one.get() { ROOM_BYTES - 1 } else { 0 };
        if let Some(entry) = self.entry.get() {
            self.pages.set_passed_on(entry, passed_on.wrapping_sub(withheld));
        }
    }

    fn wake_if_room(&self) {
        if self.has_room() {
            self.emptied.notify_waiters();
        }
    }

    fn has_room(&self) -> bool {
        let queued = self.queued();
        let room = if self.takes_one.get() { 1 } else { ROOM_BYTES as usize };
        queued.closed || queued.is_shut || queued.is_gone || queued.bytes < room
    }

    /// Waits until there is room for a message, or no message can be sent any more.
    pub(crate) async fn room(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.has_room() {
                return;
            }
            emptied.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queued().closed
    }

    /// Refuses messages from now on, because the peer or the program has shut the association down. Wakes the tasks that wait
    /// for room.
    pub(crate) fn refuse(&self) {
        if std::mem::replace(&mut self.queued().is_shut, true) {
            return;
        }
        if let Some(entry) = self.entry.get() {
            self.pages.set_entry_peer_shut(entry);
        }
        self.emptied.notify_waiters();
    }

    /// Returns whether the peer or the program has shut the association down.
    pub(crate) fn is_shut(&self) -> bool {
        self.queued().is_shut
    }

    /// Removes and returns all queued messages.
    pub(crate) fn take(&self) -> Messages {
        std::mem::take(&mut self.queued().waiting)
    }

    /// Closes the queue: no message follows. Queued messages are still sent.
    pub(crate) fn close(&self) {
        self.queued().closed = true;
        self.filled.notify_one();
        self.emptied.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel_protocol::record::Kind;

    fn pages() -> Rc<SharedPages> {
        use crate::channel::style::Style;
        use crate::system::addresses::Family;
        use crate::users::budget::{Budget, ByteLimits};
        use channel_protocol::status_page::State;
        use shared_memory::Pins;
        use std::sync::Arc;
        let account = Budget::new(ByteLimits { user_bytes: 1 << 20, all_bytes: 1 << 20 }).account(1);
        let (style, state) = (Style::OneToMany, State::OneToMany);
        let pins = Arc::new(Pins::new(1));
        let pages = SharedPages::new(Family::V4, style, state, MESSAGE_BYTES_MAX, &account, &pins);
        Rc::new(pages.expect("a memfd"))
    }

    #[test]
    fn a_program_that_does_not_keep_to_the_page_is_found_out() {
        let send_queue = SendQueue::new(&pages(), None);
        let push = |content: &Bytes| send_queue.push(Header::new(Kind::Data), content.clone());
        // A program that obeys the page sends while less than the room is in use, and may then send a message of
        // maximum size.
        assert!(push(&Bytes::from(vec![0; ROOM_BYTES as usize - 1])));
        let longest = Bytes::from(vec![0; MESSAGE_BYTES_MAX]);
        assert!(push(&longest) && push(&longest), "one more may be on its way");
        assert!(push(&Bytes::from_static(b"x")), "the limit itself");
        assert!(!push(&Bytes::from_static(b"x")));
    }

    #[test]
    fn without_memory_the_program_sends_one_message_at_a_time() {
        use channel_protocol::assoc_id::AssocId;
        use channel_protocol::sharers_page::SentBytes;
        use channel_protocol::status_page::{Entry, StatusPage};
        use std::sync::atomic::Ordering::Relaxed;
        let (page, id) = (pages(), AssocId::new(3));
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
        let send_queue = SendQueue::new(&page, page.enter(id, 10, &peer));
        let (entry, sent) = (Entry::default(), SentBytes::default());
        entry.assoc_id.store(id.get(), Relaxed);
        let send = || {
            entry.passed_on.store(page.field(StatusPage::entry_passed_on_at(0)), Relaxed);
            let has_room = sent.reserve(&entry, id, 1000);
            assert_eq!(has_room, goes_on(&send_queue), "a program that waits for room finds some");
            has_room && send_queue.push(Header::new(Kind::Data), Bytes::from(vec![0; 1000]))
        };
        assert!(send() && send(), "there is memory");
        send_queue.set_takes_one(true);
        assert!(!send());
        send_queue.pop();
        assert!(!send(), "one still waits");
        send_queue.pop();
        for _ in 0..3 {
            assert!(send() && !send());
            send_queue.pop();
        }
        assert!(send());
        send_queue.set_takes_one(false);
        assert!(send() && send(), "there is memory again");
    }

    /// Returns whether a program that waits for room may continue.
    fn goes_on(send_queue: &SendQueue) -> bool {
        let mut room = std::pin::pin!(send_queue.room());
        room.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn an_association_that_has_left_its_entry_changes_it_no_more() {
        use channel_protocol::assoc_id::AssocId;
        use channel_protocol::status_page::{Entry, StatusPage};
        let page = pages();
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 7));
        let fields = || {
            let at = [
                StatusPage::entry_streams_out_at(0),
                StatusPage::entry_passed_on_at(0),
                StatusPage::entry_default_stream_at(0),
            ];
            at.map(|at| page.field(at))
        };
        let change = |send_queue: &SendQueue| {
            send_queue.show_streams_out(5);
            send_queue.show_default_stream(2);
            assert!(send_queue.push(Header::new(Kind::Data), Bytes::from_static(b"a word")));
            send_queue.pop();
        };
        let first = SendQueue::new(&page, page.enter(AssocId::new(3), 10, &peer));
        change(&first);
        assert_eq!(fields(), [5, 6, 2]);
        first.leave();
        let second = SendQueue::new(&page, page.enter(AssocId::new(4), 10, &peer));
        change(&first);
        first.refuse();
        first.leave();
        assert_eq!(fields(), [10, 0, 0], "the entry is another association's");
        second.refuse();
        assert!(second.is_shut() && fields()[0] == Entry::PEER_SHUT);
    }

    #[test]
    fn a_program_waits_until_what_is_passed_on_leaves_room() {
        let send_queue = SendQueue::new(&pages(), None);
        let half = Bytes::from(vec![0; ROOM_BYTES as usize / 2]);
        let push = || assert!(send_queue.push(Header::new(Kind::Data), half.clone()));
        push();
        assert!(goes_on(&send_queue), "there is room");
        push();
        assert!(!goes_on(&send_queue), "it is full");
        send_queue.pop();
        assert!(goes_on(&send_queue));
        push();
        assert!(!goes_on(&send_queue) && !send_queue.is_closed());
        send_queue.close();
        assert!(goes_on(&send_queue) && send_queue.is_closed(), "nothing will come any more");
        assert_eq!(send_queue.take().len(), 2);
    }
}
