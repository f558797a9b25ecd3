//! Credit that unread messages in a pair hold in the receive windows of associations.
//!
//! A pair holds some hundred KB. A program that has asked for a small receive buffer expects its peer to be stopped long
//! before that, so each message in its pair holds credit in the window until the program has read it. Compared with a large
//! buffer the pair is small, and the daemon does not watch when the program reads. A long message, whose content is in a
//! memfd, always holds credit, because the pair does not bound its length, and its memory is charged to the user.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use tokio::task::AbortHandle;

use crate::channel::lent_memfd::{self, LentMemfd};
use crate::channel::unread_long_messages::UnreadLongMessages;
use crate::users::worker::Worker;

/// The messages that a program has not read yet, and the credit that they hold.
pub(crate) struct WindowCredit {
    /// Number of messages that were put into the pair, or wait for that, modulo 2^32.
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

/// Messages that wait to be put, and count as unread. Unless they are put, they no longer count when this is dropped.
#[must_use]
pub(super) struct Attempted {
    credit: Rc<WindowCredit>,
    messages: u32,
}

impl Attempted {
    /// Sets the number of messages.
    pub(super) fn set_messages(&mut self, messages: u32) {
        let others = self.credit.put_besides(self.messages);
        self.credit.put.set(others.wrapping_add(messages));
        self.messages = messages;
    }

    /// Records that the messages are in the pair; the last one holds `credit`, and the others none.
    pub(super) fn on_put(mut self, credit: Option<HeldCredit>) {
        let messages = std::mem::take(&mut self.messages);
        let mut unread = self.credit.unread();
        (1..messages).for_each(|_| unread.push(None));
        if messages > 0 {
            unread.push(credit);
        }
    }

    /// Records that the messages cannot reach the program any more: they stay unread.
    pub(super) fn on_lost(self) {
        self.on_put(None);
    }
}

impl Drop for Attempted {
    fn drop(&mut self) {
        self.credit.put.set(self.credit.put.get().wrapping_sub(self.messages));
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
    pub(super) fn new(worker: Worker) -> Rc<WindowCredit> {
        Rc::new(WindowCredit { put: Cell::default(), unread: RefCell::default(), worker })
    }

    /// Returns the number of messages put, apart from `waiting` messages that wait for that.
    pub(super) fn put_besides(&self, waiting: u32) -> u32 {
        self.put.get().wrapping_sub(waiting)
    }

    /// Counts messages that wait to be put: they are unread.
    pub(super) fn attempt(self: &Rc<Self>, messages: u32) -> Attempted {
        self.put.set(self.put.get().wrapping_add(messages));
        Attempted { credit: Rc::clone(self), messages }
    }

    /// Returns the number of unread messages, if the program has read `taken`.
    pub(super) fn unread_count(&self, taken: u32) -> u32 {
        self.put.get().wrapping_sub(taken)
    }

    /// Holds the memory of a long message or notification that was put.
    pub(super) fn hold_memory(&self, message: LentMemfd) {
        self.unread().long.push(message);
    }

    /// Releases the credits and the memory of all messages that were read, if the program has read `taken` messages, `long_taken`
    /// of them long.
    pub(super) fn on_read(&self, taken: u32, long_taken: u32) {
        let (credits, long) = {
            let mut unread = self.unread();
            let credits = unread.take_all_but(self.unread_count(taken) as usize);
            (credits, unread.long.take_read(long_taken))
        };
        release(credits);
        lent_memfd::empty_on(&self.worker, long);
    }

    /// Starts a watcher that releases credits as the program reads, if credits are held and none runs.
    pub(super) fn watch(&self, start: impl FnOnce() -> AbortHandle) {
        let mut unread = self.unread();
        if unread.needs_watcher() && unread.watcher.is_none() {
            unread.watcher = Some(start());
        }
    }

    /// Returns whether credits are held. If not, the watcher ends.
    pub(super) fn needs_watcher(&self) -> bool {
        let mut unread = self.unread();
        let needs = unread.needs_watcher();
        if !needs {
            unread.watcher = None;
        }
        needs
    }

    /// Records that the watcher ends, although credits are held.
    pub(super) fn on_watcher_ended(&self) {
        self.unread().watcher = None;
    }

    /// Moves the messages marked in `moved`, the oldest first, to the pair of another socket. `moved_long` marks the messages
    /// whose content is in a memfd.
    pub(super) fn move_to(&self, other: &WindowCredit, moved: &[bool], moved_long: &[bool]) {
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
    pub(super) fn release_all(&self) {
        let (credits, long) = {
            let mut unread = self.unread();
            (unread.take_all_but(0), unread.long.take_all_but(0))
        };
        release(credits);
        lent_memfd::empty_on(&self.worker, long);
    }

    /// Releases everything and stops the watcher, because the socket is closed.
    pub(super) fn close(&self) {
        self.release_all();
        if let Some(watcher) = self.unread().watcher.take() {
            watcher.abort();
        }
    }

    fn unread(&self) -> RefMut<'_, UnreadMessages> {
        self.unread.borrow_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::lent_memfd::tests::{account, message};
    use crate::testing::until;
    use crate::users::closer::{Closers, Source};
    use crate::users::descriptor_budget::DescriptorBudget;

    const NONE: [usize; 0] = [];

    struct NoWindow;

    impl ReceiveWindow for NoWindow {
        fn release(&self, _bytes: usize) {}
    }

    /// Returns a pair with one message for each number: the credit that it holds, or 0 for none.
    fn pair(credits: &[usize]) -> Rc<WindowCredit> {
        let closers = Closers::new(DescriptorBudget::with_max(1 << 16));
        let unread = WindowCredit::new(closers.of(1, Source::Pairs).worker().clone());
        for bytes in credits {
            let credit = (*bytes > 0).then(|| HeldCredit { window: Weak::<NoWindow>::new(), bytes: *bytes });
            unread.attempt(1).on_put(credit);
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
        let unread = pair(&[0, 10, 0, 20, 30]);
        assert_eq!(kept(&unread), (5, vec![10, 0, 20, 30]));
        let taken = |records| bytes(&unread.unread().take_all_but(records));
        assert_eq!(taken(4), NONE);
        assert_eq!(taken(3), [10]);
        assert_eq!(taken(1), [20], "the one before keeps none");
        assert_eq!(taken(9), NONE, "more than there are");
        assert_eq!(taken(0), [30]);
    }

    #[test]
    fn a_record_that_is_not_put_after_all_does_not_count() {
        let unread = pair(&[10]);
        let attempted = unread.attempt(1);
        assert_eq!(kept(&unread), (2, vec![10]), "it is unread while it waits");
        drop(attempted);
        assert_eq!(kept(&unread), (1, vec![10]));
        let mut attempted = unread.attempt(0);
        for messages in [3, 2] {
            attempted.set_messages(messages);
            assert_eq!(kept(&unread).0, 1 + messages, "they count once");
        }
        drop(attempted);
        unread.attempt(1).on_lost();
        unread.attempt(2).on_put(None);
        assert_eq!(kept(&unread), (4, vec![10, 0, 0, 0]));
    }

    #[test]
    fn rooms_move_with_their_records() {
        let (old, new) = (pair(&[0, 10, 20, 0, 30]), pair(&[]));
        old.move_to(&new, &[true, false, true, true, false], &[]);
        assert_eq!((kept(&old), kept(&new)), ((2, vec![10, 30]), (3, vec![20, 0])));
    }

    #[test]
    fn messages_read_before_do_not_move() {
        let (old, new) = (pair(&[10, 20, 30]), pair(&[]));
        old.move_to(&new, &[false, true], &[]);
        assert_eq!((kept(&old).1, kept(&new).1), (vec![20], vec![30]));
    }

    /// A window that counts what it was opened by.
    #[derive(Default)]
    struct Window(Cell<usize>);

    impl ReceiveWindow for Window {
        fn release(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }
    }

    #[test]
    fn a_window_opens_by_the_credits_of_the_messages_that_were_read() {
        let (unread, window) = (pair(&[]), Rc::new(Window::default()));
        let as_window: Rc<dyn ReceiveWindow> = Rc::<Window>::clone(&window);
        for bytes in [10, 20, 30, 40] {
            unread.attempt(1).on_put(Some(HeldCredit::new(Rc::downgrade(&as_window), bytes)));
        }
        let released = |taken| {
            unread.on_read(taken, 0);
            (unread.unread_count(taken), window.0.get())
        };
        assert_eq!([0, 2, 2, 3].map(released), [(4, 0), (2, 30), (2, 30), (1, 60)]);
        unread.release_all();
        assert_eq!(window.0.get(), 100);
    }

    #[tokio::test(flavor = "local")]
    async fn one_watcher_runs_while_a_credit_or_the_memory_of_a_long_message_is_held() {
        for is_long in [false, true] {
            let (unread, account) = (pair(&[]), account());
            let watchers = RefCell::new(Vec::new());
            let watch = || {
                unread.watch(|| {
                    let watcher = tokio::task::spawn_local(std::future::pending::<()>()).abort_handle();
                    watchers.borrow_mut().push(watcher.clone());
                    watcher
                });
                (watchers.borrow().len(), unread.needs_watcher())
            };
            let hold = || match is_long {
                true => unread.hold_memory(message(&account, b"long")),
                false => {
                    unread.attempt(1).on_put(Some(HeldCredit { window: Weak::<NoWindow>::new(), bytes: 10 }))
                }
            };
            let read = |count: u32| if is_long { unread.on_read(0, count) } else { unread.on_read(count, 0) };
            assert_eq!(watch(), (0, false), "nothing is held");
            hold();
            assert_eq!([(); 2].map(|()| watch()), [(1, true); 2]);
            read(1);
            until("its memory is returned", || account.charged_bytes() == 0).await;
            assert_eq!(watch(), (1, false), "the watcher ends");
            hold();
            assert_eq!(watch(), (2, true));
            unread.on_watcher_ended();
            assert_eq!(watch(), (3, true));
            unread.close();
            tokio::task::yield_now().await;
            let ended: Vec<bool> = watchers.borrow().iter().map(AbortHandle::is_finished).collect();
            assert_eq!(ended, [false, false, true], "a close stops the last one");
            until("all memory is returned", || account.charged_bytes() == 0).await;
        }
    }
}
