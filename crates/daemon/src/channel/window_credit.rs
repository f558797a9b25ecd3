//! What lies in a carrier unread, and the room that it keeps in the receive windows of its associations.
//!
//! A carrier holds some hundred KB. A program that has asked for a small receive buffer expects that its peer is stopped long
//! before: there a record keeps its room in the window until the program has read it. Beside a large buffer the carrier is
//! little, and nobody looks when the program reads. A long message, whose content is in a memfd, always keeps its room, because the
//! carrier does not bound its length, and its memory is charged to the user.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::channel::Channel;
use crate::channel::long_messages::{self, Lent, LyingLong};
use crate::users::closer::Closer;

/// How soon it is looked again whether a reader has counted what it has taken, and how often. Should it take longer still, the
/// peer's next probe of its window finds out.
const COUNT_WAIT: Duration = Duration::from_millis(1);
const COUNT_LOOKS_MAX: u32 = 100;

/// What a program has not read yet.
pub(crate) struct WindowCredit {
    /// Messages that were put into the carrier, modulo 2^32.
    put: Cell<u32>,
    lying: RefCell<Lying>,
    /// Gives the memory of long messages back.
    closer: Arc<Closer>,
}

#[derive(Default)]
struct Lying {
    /// Of the last messages that were put, from the first that keeps room on. `None`: one that keeps none.
    rooms: VecDeque<Option<HeldCredit>>,
    long: LyingLong,
    /// The task that looks what was read, while rooms are kept or long messages lie there.
    watcher: Option<AbortHandle>,
}

/// The receive window of an association.
pub(crate) trait ReceiveWindow {
    /// Opens it by so many bytes, which an unread message has kept.
    fn release(&self, bytes: usize);
}

/// Room that a message keeps in the receive window of its association.
pub(crate) struct HeldCredit {
    window: Weak<dyn ReceiveWindow>,
    bytes: usize,
}

impl HeldCredit {
    /// Keeps `bytes` of a window. An association that is gone has none.
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

impl Lying {
    fn is_watched_for(&self) -> bool {
        !self.rooms.is_empty() || !self.long.is_empty()
    }

    /// Takes the rooms of all messages but the last so many.
    fn take_all_but(&mut self, unread: usize) -> VecDeque<Option<HeldCredit>> {
        let read = self.rooms.len().saturating_sub(unread);
        let kept = self.rooms.split_off(read);
        let taken = std::mem::replace(&mut self.rooms, kept);
        while let Some(None) = self.rooms.front() {
            self.rooms.pop_front();
        }
        taken
    }

    fn push(&mut self, room: Option<HeldCredit>) {
        if room.is_some() || !self.rooms.is_empty() {
            self.rooms.push_back(room);
        }
    }
}

impl WindowCredit {
    pub(crate) fn new(closer: Arc<Closer>) -> WindowCredit {
        WindowCredit { put: Cell::default(), lying: RefCell::default(), closer }
    }

    /// Counts messages that are put, or wait to be put.
    pub(crate) fn count(&self, messages: u32) {
        self.put.set(self.put.get().wrapping_add(messages));
    }

    /// Counts messages no longer, because they are not put after all.
    pub(crate) fn uncount(&self, messages: u32) {
        self.put.set(self.put.get().wrapping_sub(messages));
    }

    /// So many messages were put into the carrier that keep no room.
    pub(crate) fn keep_no_room(&self, messages: u32) {
        let mut lying = self.lying();
        (0..messages).for_each(|_| lying.push(None));
    }

    /// Some of the messages that lie in the carrier, the oldest first, lie in that of another socket now.
    /// `moved_long` says so of those whose content is in a memfd.
    pub(crate) fn move_to(&self, other: &WindowCredit, moved: &[bool], moved_long: &[bool]) {
        let count = moved.iter().filter(|moved| **moved).count() as u32;
        self.put.set(self.put.get().wrapping_sub(count));
        other.put.set(other.put.get().wrapping_add(count));
        let (mut from, mut to) = (self.lying(), other.lying());
        let read = from.take_all_but(moved.len());
        let rooms = std::mem::take(&mut from.rooms);
        // Those before them keep no room.
        let listed = &moved[moved.len() - rooms.len()..];
        for (room, moved) in rooms.into_iter().zip(listed) {
            if *moved { to.push(room) } else { from.push(room) }
        }
        let read_long = from.long.move_to(&mut to.long, moved_long);
        drop((from, to));
        release(read);
        long_messages::empty_on(&self.closer, read_long);
    }

    /// The program reads no more.
    pub(crate) fn release_all(&self) {
        let (rooms, long) = {
            let mut lying = self.lying();
            (lying.take_all_but(0), lying.long.take_all_but(0))
        };
        release(rooms);
        long_messages::empty_on(&self.closer, long);
    }

    /// The program is gone, and the socket with it.
    pub(crate) fn close(&self) {
        self.release_all();
        if let Some(watcher) = self.lying().watcher.take() {
            watcher.abort();
        }
    }

    fn lying(&self) -> RefMut<'_, Lying> {
        self.lying.borrow_mut()
    }
}

impl Channel {
    /// Whether the program has left a message unread. Notifications do not count.
    pub(crate) fn has_unread_data(&self) -> bool {
        self.has_unread_besides(0)
    }

    /// Returns whether a message is unread besides so many that wait to be put.
    pub(super) fn has_unread_besides(&self, waiting: u32) -> bool {
        self.page.data_taken() != self.credit.put.get().wrapping_sub(waiting)
    }

    /// A message was put into the carrier. The room that it keeps is given back when it was read.
    pub(crate) fn keep_room(self: &Rc<Self>, room: Option<HeldCredit>) {
        self.credit.lying().push(room);
        self.watch_if_needed();
    }

    /// A long message or notification was put into the carrier. Its memory is given back when it was read.
    pub(crate) fn keep_memory(self: &Rc<Self>, message: Lent) {
        self.credit.lying().long.push(message);
        self.watch_if_needed();
    }

    fn watch_if_needed(self: &Rc<Self>) {
        if self.credit.lying().is_watched_for() {
            // It may have been read before anybody watches.
            self.release_read();
            self.watch_reads();
        }
    }

    /// Sees to it that rooms which are kept are given back as the program reads.
    pub(crate) fn watch_reads(self: &Rc<Self>) {
        let mut lying = self.credit.lying();
        if lying.is_watched_for() && lying.watcher.is_none() {
            lying.watcher = Some(tokio::task::spawn_local(watch_reads(Rc::clone(self))).abort_handle());
        }
    }

    /// Gives the rooms and the memory back of all that the sharers say was read.
    fn release_read(&self) {
        let (taken, long_taken) = (self.page.data_taken(), self.page.long_taken());
        let unread = self.credit.put.get().wrapping_sub(taken);
        let (rooms, long) = {
            let mut lying = self.credit.lying();
            (lying.take_all_but(unread as usize), lying.long.take_read(long_taken))
        };
        release(rooms);
        long_messages::empty_on(&self.credit.closer, long);
    }
}

/// Gives rooms back as the program reads, until none is kept.
async fn watch_reads(channel: Rc<Channel>) {
    let reads = channel.endpoint.reads();
    loop {
        reads.next().await;
        for _ in 0..COUNT_LOOKS_MAX {
            // Looked at first: who reads counts what it has taken before it lets go.
            let is_being_read = channel.page.is_being_read();
            if channel.endpoint.is_hung_up() {
                channel.credit.release_all();
            }
            channel.release_read();
            {
                let mut lying = channel.credit.lying();
                if !lying.is_watched_for() {
                    lying.watcher = None;
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
    use super::*;
    use crate::users::closer::{Closers, Source};
    use crate::users::descriptor_numbers::Numbers;

    const NONE: [usize; 0] = [];

    struct NoWindow;

    impl ReceiveWindow for NoWindow {
        fn release(&self, _bytes: usize) {}
    }

    /// Records with data of which some keep so much room, and others none, as they lie in a carrier.
    fn carrier(rooms: &[usize]) -> WindowCredit {
        let closers = Closers::new(Numbers::with_max(1 << 16));
        let unread = WindowCredit::new(closers.of(1, Source::Carriers));
        for bytes in rooms {
            unread.count(1);
            let room = (*bytes > 0).then(|| HeldCredit { window: Weak::<NoWindow>::new(), bytes: *bytes });
            unread.lying().push(room);
        }
        unread
    }

    fn bytes(rooms: &VecDeque<Option<HeldCredit>>) -> Vec<usize> {
        rooms.iter().map(|room| room.as_ref().map_or(0, |room| room.bytes)).collect()
    }

    fn kept(unread: &WindowCredit) -> (u32, Vec<usize>) {
        (unread.put.get(), bytes(&unread.lying().rooms))
    }

    #[test]
    fn what_is_read_gives_its_room_back_in_the_order_of_the_records() {
        let unread = carrier(&[0, 10, 0, 20, 30]);
        assert_eq!(kept(&unread), (5, vec![10, 0, 20, 30]));
        let taken = |records| bytes(&unread.lying().take_all_but(records));
        assert_eq!(taken(4), NONE);
        assert_eq!(taken(3), [10]);
        assert_eq!(taken(1), [20], "the one before keeps none");
        assert_eq!(taken(9), NONE, "more than there are");
        assert_eq!(taken(0), [30]);
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
    fn what_was_read_before_does_not_move() {
        let (old, new) = (carrier(&[10, 20, 30]), carrier(&[]));
        old.move_to(&new, &[false, true], &[]);
        assert_eq!((kept(&old).1, kept(&new).1), (vec![20], vec![30]));
    }
}
