//! What waits for one association of a one-to-many socket.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use carrier::page::ROOM_BYTES;
use carrier::record::{Header, MESSAGE_BYTES_MAX};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::page::{Page, Place};
use crate::pump::Waiting;

/// More than this waits for no association, whatever a program that does not keep to the page sends.
const WAITING_BYTES_MAX: usize = ROOM_BYTES as usize + 2 * MESSAGE_BYTES_MAX;
/// The page is told that there is room again in steps of this many bytes.
const STEP_BYTES: u32 = ROOM_BYTES / 4;

/// What one association of a one-to-many socket has not taken yet.
pub(crate) struct Outbox {
    /// Its entry in the page.
    pub(crate) place: Option<Place>,
    letters: Mutex<Letters>,
    /// There is something to send, or nothing will come any more.
    filled: Notify,
    /// There is room.
    emptied: Notify,
    /// Bytes passed on, modulo 2^32, and what the page says.
    passed_on: AtomicU32,
    told: AtomicU32,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Letters {
    waiting: Waiting,
    bytes: usize,
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(place: Option<Place>) -> Self {
        Outbox {
            place,
            letters: Mutex::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
            passed_on: AtomicU32::new(0),
            told: AtomicU32::new(0),
            tasks: Mutex::default(),
        }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tasks(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False: there is far more than a program that keeps to the page would send.
    pub(crate) fn push(&self, header: Header, content: Bytes) -> bool {
        let mut letters = self.letters();
        letters.bytes += content.len();
        letters.waiting.push_back((header, content));
        self.filled.notify_one();
        letters.bytes <= WAITING_BYTES_MAX
    }

    /// The message at the front; waits for one. `None`: nothing more will come.
    pub(crate) async fn front(&self, idle: impl Fn()) -> Option<(Header, Bytes)> {
        loop {
            {
                let letters = self.letters();
                match letters.waiting.front() {
                    Some(front) => return Some(front.clone()),
                    None if letters.closed => return None,
                    None => {}
                }
            }
            idle();
            self.filled.notified().await;
        }
    }

    /// The message at the front has been passed on.
    pub(crate) fn pop(&self, page: &Page) {
        let mut letters = self.letters();
        let Some((_, content)) = letters.waiting.pop_front() else { return };
        letters.bytes -= content.len();
        let passed_on = self.passed_on.load(Relaxed).wrapping_add(content.len() as u32);
        self.passed_on.store(passed_on, Relaxed);
        let untold = passed_on.wrapping_sub(self.told.load(Relaxed));
        if letters.waiting.is_empty() || untold >= STEP_BYTES {
            self.told.store(passed_on, Relaxed);
            if let Some(place) = self.place {
                page.set_passed_on(place, passed_on);
            }
        }
        if letters.bytes < ROOM_BYTES as usize {
            self.emptied.notify_waiters();
        }
    }

    fn has_room(&self) -> bool {
        let letters = self.letters();
        letters.closed || letters.bytes < ROOM_BYTES as usize
    }

    /// Waits until a message can be sent, or none can any more.
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
        self.letters().closed
    }

    /// What waits, which is not passed on.
    pub(crate) fn take(&self) -> Waiting {
        std::mem::take(&mut self.letters().waiting)
    }

    /// Nothing more will come. What waits is still sent.
    pub(crate) fn close(&self) {
        self.letters().closed = true;
        self.filled.notify_one();
        self.emptied.notify_waiters();
    }

    /// Ends the tasks; what they had in hand is where it was.
    pub(crate) async fn stop(&self) -> Waiting {
        let tasks = std::mem::take(&mut *self.tasks());
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            // It was told to end.
            let _ = task.await;
        }
        self.close();
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrier::record::Kind;

    #[test]
    fn a_program_that_does_not_keep_to_the_page_is_found_out() {
        let outbox = Outbox::new(None);
        let push = |content: &Bytes| outbox.push(Header::new(Kind::Data), content.clone());
        // One that keeps to the page sends while less than the room waits, and may send the longest message then.
        assert!(push(&Bytes::from(vec![0; ROOM_BYTES as usize - 1])));
        let longest = Bytes::from(vec![0; MESSAGE_BYTES_MAX]);
        assert!(push(&longest) && push(&longest), "one more may be on its way");
        assert!(push(&Bytes::from_static(b"x")), "the limit itself");
        assert!(!push(&Bytes::from_static(b"x")));
    }

    /// Whether a program that waits for room goes on.
    fn goes_on(outbox: &Outbox) -> bool {
        let mut room = std::pin::pin!(outbox.room());
        room.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn a_program_waits_until_what_is_passed_on_leaves_room() {
        use crate::budget::{Budget, Limits};
        use crate::socket::Style;
        use carrier::page::State;
        let account = Budget::new(Limits { user_bytes: 1 << 20, all_bytes: 1 << 20 }).account(1);
        let page = Page::new(false, Style::OneToMany, State::Many, MESSAGE_BYTES_MAX, &account);
        let page = page.expect("a memfd");
        let outbox = Outbox::new(None);
        let half = Bytes::from(vec![0; ROOM_BYTES as usize / 2]);
        let push = || assert!(outbox.push(Header::new(Kind::Data), half.clone()));
        push();
        assert!(goes_on(&outbox), "there is room for more");
        push();
        assert!(!goes_on(&outbox), "it is full");
        outbox.pop(&page);
        assert!(goes_on(&outbox));
        push();
        assert!(!goes_on(&outbox) && !outbox.is_closed());
        outbox.close();
        assert!(goes_on(&outbox) && outbox.is_closed(), "nothing will come any more");
        assert_eq!(outbox.take().len(), 2);
    }
}
