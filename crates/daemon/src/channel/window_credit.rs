//! Credit that unread messages in a carrier hold in the receive windows of associations.
//!
//! A carrier holds some hundred KB. A program that has asked for a small receive buffer expects its peer to be stopped long
//! before that, so each message in its carrier holds credit in the window until the program has read it. Compared with a large
//! buffer the carrier is small, and the daemon does not watch when the program reads. A long message, whose content is in a
//! memfd, always holds credit, because the carrier does not bound its length, and its memory is charged to the user.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::channel::Channel;
use crate::channel::lent_memfd::{self, LentMemfd};
use crate::channel::unread_long_messages::UnreadLongMessages;
use crate::users::worker::Worker;

/// Interval for rechecking whether a reader has counted a message, and the number of checks. If the reader takes longer, the
/// peer's next window probe makes the daemon check again.
const COUNT_WAIT: Duration = Duration::from_millis(1);
const COUNT_LOOKS_MAX: u32 = 100;

/// The messages that a program has not read yet, and the credit that they hold.
pub(crate) struct WindowCredit {
    /// Number of messages put into the carrier, modulo 2^32.
    put: Cell<u32>,
    unread: RefCell<UnreadMessages>,
    /// Returns the memory of long messages.
    worker: Worker,
}

#[derive(Default)]
struct UnreadMessages {
    /// Credits of the last messages put, beginning with the first that holds credit. `None`: the message holds none.
    credits: VecDeque<Option<HeldCredit>>,
    long: UnreadLongMessages,
    /// The task that releases credits and memory as the program reads; `None` while none are held.
    watcher: Option<AbortHandle>,
}

/// The receive window of an association.
pub(crate) trait ReceiveWindow {
    /// Opens the window by the credit of an unread message.
    fn release(&self, bytes: usize);
}

/// Credit that a message holds in the receive window of its association.
pub(crate) struct HeldCredit {
    window: Weak<dyn ReceiveWindow>,
    bytes: usize,
}

impl HeldCredit {
    /// Holds `bytes` of a window. An association that has ended has no window.
    pub(crate) fn new(window: Weak<dyn ReceiveWindow>, bytes: usize) -> HeldCredit {
        HeldCredit { window, bytes }
    }

    /// Opens the window again.
    pub(crate) fn release(self) {
        if let Some(window) = self.window.upgrade() {
            window.release(self.bytes);
        }
    }
}

fn release(held: impl IntoIterator<Item = Option<HeldCredit>>) {
    held.into_iter().flatten().for_each(HeldCredit::release);
}

impl UnreadMessages {
    fn needs_watcher(&self) -> bool {
        !self.credits.is_empty() || !self.long.is_empty()
    }

    /// Takes the credits of all messages but the last `unread`.
    fn take_all_but(&mut self, unread: usize) -> VecDeque<Option<HeldCredit>> {
        let read = self.credits.len().saturating_sub(unread);
        let kept = self.credits.split_off(read);
        let taken = std::mem::replace(&mut self.credits, kept);
        while let Some(None) = self.credits.front() {
            self.credits.pop_front();
        }
        taken
    }

    fn push(&mut self, credit: Option<HeldCredit>) {
        if credit.is_some() || !self.credits.is_empty() {
            self.credits.push_back(credit);
        }
    }
}

impl WindowCredit {
    pub(crate) fn new(worker: Worker) -> WindowCredit {
        WindowCredit { put: Cell::default(), unread: RefCell::default(), worker }
    }

    /// Returns the number of messages put, apart from `waiting` messages that wait for that.
    pub(super) fn put_besides(&self, waiting: u32) -> u32 {
        self.put.get().wrapping_sub(waiting)
    }

    /// Counts messages that were put, or wait for that.
    pub(crate) fn count(&self, messages: u32) {
        self.put.set(self.put.get().wrapping_add(messages));
    }

    /// Undoes the count of messages that are not put after all.
    pub(crate) fn uncount(&self, messages: u32) {
        self.put.set(self.put.get().wrapping_sub(messages));
    }

    /// Records that this many messages were put into the carrier without credit.
    pub(crate) fn hold_no_credit(&self, messages: u32) {
        let mut unread = self.unread();
        (0..messages).for_each(|_| unread.push(None));
    }

    /// Moves the messages marked in `moved`, the oldest first, to the carrier of another socket. `moved_long` marks the messages
    /// whose content is in a memfd.
    pub(crate) fn move_to(&self, other: &WindowCredit, moved: &[bool], moved_long: &[bool]) {
        let count = moved.iter().filter(|moved| **moved).count() as u32;
        self.put.set(self.put.get().wrapping_sub(count));
        other.put.set(other.put.get().wrapping_add(count));
        let (mut from, mut to) = (self.unread(), other.unread());
        let read = from.take_all_but(moved.len());
        let credits = std::mem::take(&mut from.credits);
        // Earlier messages hold no credit.
        let listed = &moved[moved.len() - credits.len()..];
        for (credit, moved) in credits.into_iter().zip(listed) {
            if *moved { to.push(credit) } else { from.push(credit) }
        }
        let read_long = from.long.move_to(&mut to.long, moved_long);
        drop((from, to));
        release(read);
        lent_memfd::empty_on(&self.worker, read_long);
    }

    /// Releases all credits and memory, because the program does not read any more.
    pub(crate) fn release_all(&self) {
        let (credits, long) = {
            let mut unread = self.unread();
            (unread.take_all_but(0), unread.long.take_all_but(0))
        };
        release(credits);
        lent_memfd::empty_on(&self.worker, long);
    }

    /// Releases everything and stops the watcher, because the socket is closed.
    pub(crate) fn close(&self) {
        self.release_all();
        if let Some(watcher) = self.unread().watcher.take() {
            watcher.abort();
        }
    }

    fn unread(&self) -> RefMut<'_, UnreadMessages> {
        self.unread.borrow_mut()
    }
}

impl Channel {
    /// Returns whether the program has left a message unread, according to what the sharers' page said last. Notifications do not
    /// count.
    pub(crate) fn has_unread_data(&self) -> bool {
        self.has_unread_besides(0)
    }

    /// Returns whether a message is unread, apart from `waiting` messages that wait to be put.
    pub(super) fn has_unread_besides(&self, waiting: u32) -> bool {
        self.pages.read_so_far().data_taken != self.credit.put_besides(waiting)
    }

    /// Returns whether the program, which has closed its end, has left a message unread, apart from `waiting` messages that
    /// could not be put. If not, releases all credits. Otherwise they keep the window closed until the association is
    /// aborted: the peer must not hear that more has arrived.
    pub(crate) async fn is_left_unread(&self, waiting: u32) -> bool {
        // Without the page the daemon does not know of unread messages, and supposes that there are none.
        let is_unread = self.endpoint.read_page().await && self.has_unread_besides(waiting);
        if !is_unread {
            self.credit.release_all();
        }
        is_unread
    }

    /// Holds the credit of a message that was put into the carrier until the message was read.
    pub(crate) fn hold_credit(self: &Rc<Self>, credit: Option<HeldCredit>) {
        self.credit.unread().push(credit);
        self.watch_reads();
    }

    /// Holds the memory of a long message or notification that was put into the carrier until it was read.
    pub(crate) fn hold_memory(self: &Rc<Self>, message: LentMemfd) {
        self.credit.unread().long.push(message);
        self.watch_reads();
    }

    /// Starts a watcher that releases credits as the program reads, if credits are held and none runs.
    pub(crate) fn watch_reads(self: &Rc<Self>) {
        let mut unread = self.credit.unread();
        if unread.needs_watcher() && unread.watcher.is_none() {
            unread.watcher = Some(tokio::task::spawn_local(release_as_read(Rc::clone(self))).abort_handle());
        }
    }

    /// Releases the credits and the memory of all messages that were read according to the sharers. Returns whether a sharer was
    /// reading.
    pub(super) async fn release_read(&self) -> bool {
        // If the page cannot be read, the next call releases the messages.
        let _ = self.endpoint.read_page().await;
        let read = self.pages.read_so_far();
        let unread_count = self.credit.put.get().wrapping_sub(read.data_taken);
        let (credits, long) = {
            let mut unread = self.credit.unread();
            (unread.take_all_but(unread_count as usize), unread.long.take_read(read.long_taken))
        };
        release(credits);
        lent_memfd::empty_on(&self.credit.worker, long);
        read.is_being_read
    }
}

/// Releases credits as the program reads, until none is held.
async fn release_as_read(channel: Rc<Channel>) {
    let reads = channel.carrier().reads();
    loop {
        reads.next().await;
        for _ in 0..COUNT_LOOKS_MAX {
            if channel.carrier().is_hung_up() {
                if channel.endpoint.is_closed() && channel.is_left_unread(0).await {
                    channel.credit.unread().watcher = None;
                    return;
                }
                channel.credit.release_all();
            }
            // A reader counts a message before it releases the lock, and the lock stands in front of the number.
            let is_being_read = channel.release_read().await;
            {
                let mut unread = channel.credit.unread();
                if !unread.needs_watcher() {
                    unread.watcher = None;
                    return;
                }
            }
            if !is_being_read {
                break;
            }
            tokio::time::sleep(COUNT_WAIT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use carrier::sharers_page::SharersPage;

    use super::*;
    use crate::channel::style::Style;
    use crate::testing::{opened, registry, soon};
    use crate::users::closer::{Closers, Source};
    use crate::users::descriptor_numbers::Numbers;

    const NONE: [usize; 0] = [];

    struct NoWindow;

    impl ReceiveWindow for NoWindow {
        fn release(&self, _bytes: usize) {}
    }

    /// Returns a carrier with one message for each number: the credit that it holds, or 0 for none.
    fn carrier(credits: &[usize]) -> WindowCredit {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        let unread = WindowCredit::new(closers.of(1, Source::Carriers).worker().clone());
        for bytes in credits {
            unread.count(1);
            let credit = (*bytes > 0).then(|| HeldCredit { window: Weak::<NoWindow>::new(), bytes: *bytes });
            unread.unread().push(credit);
        }
        unread
    }

    fn bytes(credits: &VecDeque<Option<HeldCredit>>) -> Vec<usize> {
        credits.iter().map(|credit| credit.as_ref().map_or(0, |credit| credit.bytes)).collect()
    }

    fn kept(unread: &WindowCredit) -> (u32, Vec<usize>) {
        (unread.put.get(), bytes(&unread.unread().credits))
    }

    #[test]
    fn read_messages_return_their_room_in_the_order_of_the_records() {
        let unread = carrier(&[0, 10, 0, 20, 30]);
        assert_eq!(kept(&unread), (5, vec![10, 0, 20, 30]));
        let taken = |records| bytes(&unread.unread().take_all_but(records));
        assert_eq!(taken(4), NONE);
        assert_eq!(taken(3), [10]);
        assert_eq!(taken(1), [20], "the one before keeps none");
        assert_eq!(taken(9), NONE, "more than there are");
        assert_eq!(taken(0), [30]);
    }

    struct Window(Cell<usize>);

    impl ReceiveWindow for Window {
        fn release(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_close_opens_the_window_only_if_everything_was_read() {
        for read in [0, 1, 2] {
            let registry = registry();
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            let channel = socket.channel();
            let window: Rc<Window> = Rc::new(Window(Cell::new(0)));
            for _ in 0..2 {
                let of: Weak<Window> = Rc::downgrade(&window);
                channel.credit.count(1);
                channel.credit.unread().push(Some(HeldCredit::new(of, 10)));
            }
            channel.pages.write_as_sharer(SharersPage::DATA_TAKEN_AT, &[read]);
            drop(program_end);
            soon(channel.carrier().hung_up()).await;
            soon(release_as_read(Rc::clone(channel))).await;
            let released = if read == 2 { 20 } else { 0 };
            assert_eq!(window.0.get(), released, "{read} were read");
            channel.credit.close();
            assert_eq!(window.0.get(), 20);
        }
    }

    #[test]
    fn a_record_that_is_not_put_after_all_does_not_count() {
        let unread = carrier(&[10]);
        unread.count(1);
        unread.uncount(1);
        assert_eq!(kept(&unread), (1, vec![10]));
    }

    #[test]
    fn rooms_move_with_their_records() {
        let (old, new) = (carrier(&[0, 10, 20, 0, 30]), carrier(&[]));
        old.move_to(&new, &[true, false, true, true, false], &[]);
        assert_eq!((kept(&old), kept(&new)), ((2, vec![10, 30]), (3, vec![20, 0])));
    }

    #[test]
    fn messages_read_before_do_not_move() {
        let (old, new) = (carrier(&[10, 20, 30]), carrier(&[]));
        old.move_to(&new, &[false, true], &[]);
        assert_eq!((kept(&old).1, kept(&new).1), (vec![20], vec![30]));
    }
}
