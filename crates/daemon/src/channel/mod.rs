//! The channel between a socket and its program: the endpoint that carries records, the shared pages, and the credit that unread
//! messages hold in the receive windows of associations. The layers above see messages, not where they are stored.

pub(crate) mod accounts;
mod announced;
mod arrivals;
pub(crate) mod blocked;
pub(crate) mod busy_poll;
mod credit_release;
pub(crate) mod daemon_end;
pub(crate) mod endpoint;
mod form;
mod form_change;
pub(crate) mod in_flight;
mod inbound_long;
pub(crate) mod incoming;
pub(crate) mod lent_memfd;
pub(crate) mod putter;
pub(crate) mod raw_record;
pub(crate) mod recall;
pub(crate) mod receive_ring;
pub(crate) mod received_memfd;
mod reset;
pub(crate) mod ring;
pub(crate) mod shared_pages;
pub(crate) mod style;
mod unread_long_messages;
pub(crate) mod window_credit;

use std::cell::{RefCell, RefMut};
use std::io::IoSlice;
#[cfg(test)]
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use channel_protocol::record::{Header, Kind};
use rustix::io::Errno;

#[cfg(test)]
use accounts::Accounts;
use announced::{ALONE_MAX, Announced};
use blocked::NotPut;
use daemon_end::DaemonEnd;
use endpoint::{Endpoint, Progress};
use in_flight::Breach;
use incoming::Incoming;
use raw_record::RawRecord;
use receive_ring::IDLE_TIME;
use shared_pages::SharedPages;
use window_credit::WindowCredit;

use crate::users::budget::Charge;
use crate::users::close_watches::CloseWatch;
use crate::users::round_share::Turn;

/// The state that a socket shares with its program. The program has the other end of `endpoint`, and maps `pages`.
pub(crate) struct Channel {
    endpoint: Endpoint,
    pages: Rc<SharedPages>,
    credit: Rc<WindowCredit>,
    /// Locked while the daemon puts a message, from its first part to its last.
    delivery: Arc<tokio::sync::Mutex<()>>,
    announced: RefCell<Announced>,
}

impl Channel {
    pub(crate) fn new(endpoint: Endpoint, pages: SharedPages) -> Channel {
        let credit = WindowCredit::new(endpoint.daemon_end().closer().worker().clone());
        let pages = Rc::new(pages);
        Channel { endpoint, pages, credit, delivery: Arc::default(), announced: RefCell::default() }
    }

    /// Returns the daemon's end of the pair.
    pub(crate) fn daemon_end(&self) -> &Arc<DaemonEnd> {
        self.endpoint.daemon_end()
    }

    /// Returns the pages, which only the owners of the state that they show write.
    pub(crate) fn shared_pages(&self) -> &Rc<SharedPages> {
        &self.pages
    }

    /// Returns descriptors of the pages for a program: of the status page for reading, and of the sharers' page.
    pub(crate) fn page_descriptors(&self) -> Result<[OwnedFd; 2], Errno> {
        self.pages.descriptors()
    }

    /// Announces a message of this length that is put alone, if the reader must know before it comes. `counted` is 1 for a
    /// message and 0 for a notification.
    fn announce_one(&self, bytes: u32, counted: u32) -> Result<(), NotPut> {
        let mut announced = self.announced();
        if announced.bundles {
            let taken = self.pages.read_so_far().data_taken;
            // If all messages up to the last bundle were read, none is left in the pair.
            if announced.asked.is_some_and(|put| taken.wrapping_sub(put).cast_signed() >= 0) {
                self.pages.set_bundles(false);
                (announced.bundles, announced.asked) = (false, None);
            } else if (announced.alone + 1).is_multiple_of(ALONE_MAX) {
                announced.asked = Some(self.credit.put_besides(counted));
                self.endpoint.begin_reading_page();
            }
        }
        let hint = announced.hint_for_longer(bytes);
        drop(announced);
        self.announce(hint)
    }

    /// Announces bundles, if the reader does not expect them yet.
    fn announce_bundle(&self) -> Result<(), NotPut> {
        let hint = self.announced().hint_for_bundle();
        self.announce(hint)
    }

    fn announce(&self, hint: Option<Announced>) -> Result<(), NotPut> {
        let Some(hint) = hint else { return Ok(()) };
        self.pages.set_longest(hint.longest);
        self.pages.set_bundles(hint.bundles);
        self.daemon_end().try_put_parts(&[IoSlice::new(&Header::new(Kind::SizeHint).encode())], &[])?;
        // A size hint that could not be put is put at the next attempt.
        *self.announced() = hint;
        Ok(())
    }

    /// Counts a message that was put alone.
    fn note_alone(&self) {
        let mut announced = self.announced();
        if announced.bundles {
            announced.alone += 1;
        }
    }

    /// Announces a record that is put into a pair from which the program has not read yet.
    pub(crate) fn expect(&self, record: &RawRecord) {
        let mut announced = self.announced();
        let messages = record.messages().map(|(_, header)| header.bytes);
        announced.longest = messages.fold(announced.longest, u32::max);
        announced.bundles |= record.is_bundle;
        self.pages.set_longest(announced.longest);
        self.pages.set_bundles(announced.bundles);
    }

    /// Announces messages of this length: they are put into a pair from which the program has not read yet, or no reader finds
    /// them alone before it has read the page again.
    pub(crate) fn expect_length(&self, bytes: u32) {
        let mut announced = self.announced();
        if bytes > announced.longest {
            announced.longest = bytes;
            self.pages.set_longest(bytes);
        }
    }

    /// Starts a task that returns the memory of the receive ring once that is idle, if the ring has memory and no task waits.
    pub(crate) fn watch_ring(self: &Rc<Self>) {
        if let Some(bundles) = self.daemon_end().ring().begin_watch() {
            tokio::task::spawn_local(return_idle_ring(Rc::downgrade(self), bundles));
        }
    }

    fn announced(&self) -> RefMut<'_, Announced> {
        self.announced.borrow_mut()
    }
}

/// Input: what the program sends.
impl Channel {
    /// Takes the next record.
    pub(crate) fn try_take(&self) -> Result<Incoming, Errno> {
        self.endpoint.try_take()
    }

    /// Takes the next record after the program has closed the socket.
    pub(crate) async fn take_at_close(&self) -> Result<Incoming, Errno> {
        self.endpoint.take_at_close().await
    }

    /// Returns whether a record that is there is taken later only: the socket is throttled, or a thread reads it.
    pub(crate) fn takes_later(&self) -> bool {
        self.endpoint.takes_later()
    }

    /// Returns whether a thread is busy with the next record.
    pub(crate) fn awaits_thread(&self) -> bool {
        self.endpoint.awaits_thread()
    }

    /// Waits until a record can be taken.
    pub(crate) async fn readable(&self) {
        self.endpoint.readable().await;
    }

    /// Waits until the program breaks the socket by what it has sent, while no records are taken.
    pub(crate) async fn breach(&self, turn: Turn) -> Breach {
        self.endpoint.breach(turn).await
    }

    /// Waits until the user has memory for the next message.
    pub(crate) async fn room(&self) {
        self.endpoint.room().await;
    }

    /// Returns whether the next message is a short one in the ring.
    pub(crate) fn has_short(&self) -> bool {
        self.endpoint.has_short()
    }

    /// Passes at most `count` short messages from the ring to `accept`, until it returns false; returns their number.
    pub(crate) fn pass_short(&self, count: usize, accept: impl FnMut(&Header, &[u8]) -> bool) -> usize {
        self.endpoint.pass_short(count, accept)
    }

    /// Discards the next record; returns false if there is none.
    pub(crate) fn discard(&self) -> bool {
        self.endpoint.discard()
    }

    /// Resets a pair again that programs have filled meanwhile.
    pub(crate) fn repeat_reset(&self) {
        self.endpoint.repeat_reset();
    }

    /// Charges the user for a notification that waits for the end of a message, if half of the memory stays free.
    pub(crate) fn charge_notification(&self, bytes: usize) -> Option<Charge> {
        self.endpoint.accounts().charge_notification(bytes)
    }

    /// Returns the number of bytes that the program has sent and the daemon has not taken.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.endpoint.waiting_bytes()
    }

    /// Returns the end of what the daemon has taken.
    pub(crate) fn taken(&self) -> Progress {
        self.endpoint.taken()
    }

    /// Returns the end of what the program has sent.
    pub(crate) fn sent(&self) -> Progress {
        self.endpoint.sent()
    }
}

/// The ends of the content, and of the channel.
impl Channel {
    /// Ends the content: the program reads the available messages, and then the end.
    pub(crate) fn end_content(&self) {
        self.endpoint.end_content();
    }

    /// Ends the content silently: a program that reads records is not shown that, because its descriptor would poll readable.
    pub(crate) fn end_content_silently(&self) {
        self.endpoint.end_content_silently();
    }

    /// Keeps the channel open until the program's last descriptor is closed, as `watch` shows.
    pub(crate) fn watch_close(&self, watch: impl FnOnce() -> Result<CloseWatch, Errno>) -> Result<(), Errno> {
        self.endpoint.watch_close(watch)
    }

    /// Returns whether the program has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.endpoint.is_closed()
    }

    /// Waits until the program has closed its end.
    pub(crate) async fn closed(&self) {
        self.endpoint.closed().await;
    }
}

#[cfg(test)]
impl Channel {
    /// Returns the accounts of the socket's user.
    pub(crate) fn accounts(&self) -> &Accounts {
        self.endpoint.accounts()
    }

    /// Moves to a ring that no program has announced, and is awake for it.
    pub(crate) fn join_ring(&self, memfd: impl AsFd) {
        self.endpoint.join_ring(memfd);
    }

    /// Reads the sharers' page.
    pub(crate) async fn read_page(&self) -> bool {
        self.endpoint.read_page().await
    }

    /// Returns the lock that excludes other senders while a message is put.
    pub(crate) fn delivery(&self) -> &Arc<tokio::sync::Mutex<()>> {
        &self.delivery
    }
}

/// Returns the memory of a socket's receive ring to the system once it is idle, on a thread that may wait for programs.
async fn return_idle_ring(channel: Weak<Channel>, mut bundles: u64) {
    loop {
        tokio::time::sleep(IDLE_TIME).await;
        // The memory of a closed socket is returned with its pages.
        let Some(channel) = channel.upgrade() else { return };
        let daemon_end = Arc::clone(channel.daemon_end());
        if daemon_end.begin_return_of_ring(&mut bundles) {
            let worker = daemon_end.closer().worker().clone();
            worker.run(move || daemon_end.ring().return_memory());
            return;
        }
    }
}
