//! The channel between a socket and its program: the endpoint that carries records, the shared pages, and the credit that unread
//! messages hold in the receive windows of associations. The layers above see messages, not where they are stored.

pub(crate) mod accounts;
mod arrivals;
pub(crate) mod blocked;
pub(crate) mod busy_poll;
pub(crate) mod carrier_socket;
pub(crate) mod endpoint;
mod form;
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
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use carrier::record::{Header, Kind};
use rustix::io::Errno;

use blocked::NotPut;
use carrier_socket::CarrierSocket;
use endpoint::Endpoint;
pub(crate) use form::Put;
use raw_record::RawRecord;
use receive_ring::IDLE_TIME;
use shared_pages::SharedPages;
use window_credit::WindowCredit;

/// The state that a socket shares with its program. The program has the other end of `endpoint`, and maps `pages`.
pub(crate) struct Channel {
    pub(crate) endpoint: Endpoint,
    pages: Rc<SharedPages>,
    pub(crate) credit: WindowCredit,
    /// Locked while the daemon puts a message, from its first part to its last.
    pub(crate) delivery: Arc<tokio::sync::Mutex<()>>,
    announced: RefCell<Announced>,
}

/// The reader's knowledge of the records in its carrier. A reader takes a message without peeking first if the message cannot be
/// longer than its buffer and no bundles are announced.
#[derive(Clone, Copy, Default)]
struct Announced {
    /// Length of the longest message so far.
    longest: u32,
    /// Number of times that `longest` has grown.
    size_hints: u32,
    /// Whether records may be bundles.
    bundles: bool,
    /// Messages put alone since the last bundle.
    alone: u32,
    /// Number of messages put when the sharers' page was asked last how many were read.
    asked: Option<u32>,
}

/// Number of size hints with exact lengths. Later size hints round up to a power of two, so that few are sent.
const EXACT_SIZE_HINTS_MAX: u32 = 8;
/// Interval, in messages put alone, at which the daemon announces that no more bundles come, if the program has read everything.
const ALONE_MAX: u32 = 64;

impl Channel {
    pub(crate) fn new(endpoint: Endpoint, pages: SharedPages) -> Channel {
        let credit = WindowCredit::new(endpoint.carrier().closer().worker().clone());
        let pages = Rc::new(pages);
        Channel { endpoint, pages, credit, delivery: Arc::default(), announced: RefCell::default() }
    }

    /// Returns the daemon's end of the carrier.
    pub(crate) fn carrier(&self) -> &Arc<CarrierSocket> {
        self.endpoint.carrier()
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
            // If all messages up to the last bundle were read, none is left in the carrier.
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
        self.carrier().try_put_parts(&[IoSlice::new(&Header::new(Kind::SizeHint).encode())], &[])?;
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

    /// Announces a record that is put into a carrier from which the program has not read yet.
    pub(crate) fn expect(&self, record: &RawRecord) {
        let mut announced = self.announced();
        let messages = record.messages().map(|(_, header)| header.bytes);
        announced.longest = messages.fold(announced.longest, u32::max);
        announced.bundles |= record.is_bundle;
        self.pages.set_longest(announced.longest);
        self.pages.set_bundles(announced.bundles);
    }

    /// Announces messages of this length that are put into a carrier from which the program has not read yet.
    pub(crate) fn expect_length(&self, bytes: u32) {
        let mut announced = self.announced();
        announced.longest = announced.longest.max(bytes);
        self.pages.set_longest(announced.longest);
    }

    /// Starts a task that returns the memory of the receive ring once that is idle, if the ring has memory and no task waits.
    pub(crate) fn watch_ring(self: &Rc<Self>) {
        if let Some(bundles) = self.carrier().ring().begin_watch() {
            tokio::task::spawn_local(return_idle_ring(Rc::downgrade(self), bundles));
        }
    }

    fn announced(&self) -> RefMut<'_, Announced> {
        self.announced.borrow_mut()
    }
}

/// Returns the memory of a socket's receive ring to the system once it is idle, on a thread that may wait for programs.
async fn return_idle_ring(channel: Weak<Channel>, mut bundles: u64) {
    loop {
        tokio::time::sleep(IDLE_TIME).await;
        // The memory of a closed socket is returned with its pages.
        let Some(channel) = channel.upgrade() else { return };
        let carrier = Arc::clone(channel.carrier());
        if carrier.begin_return_of_ring(&mut bundles) {
            let worker = carrier.closer().worker().clone();
            worker.run(move || carrier.ring().return_memory());
            return;
        }
    }
}

impl Announced {
    /// Returns the announcement due before a message of this length; `None` if an earlier message was as long.
    fn hint_for_longer(&self, bytes: u32) -> Option<Announced> {
        let exact = self.size_hints < EXACT_SIZE_HINTS_MAX;
        let longest = if exact { bytes } else { bytes.next_power_of_two() };
        (bytes > self.longest).then_some(Announced { longest, size_hints: self.size_hints + 1, ..*self })
    }

    /// Returns the announcement due before a bundle; `None` if the reader expects bundles already.
    fn hint_for_bundle(&mut self) -> Option<Announced> {
        (self.alone, self.asked) = (0, None);
        (!self.bundles).then_some(Announced { bundles: true, ..*self })
    }
}
