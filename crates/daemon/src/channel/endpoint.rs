//! The daemon's end of a channel: takes what a program sends, from the pair and the ring in their order, and puts
//! records into the pair, without waiting and with.

use std::cell::{Cell, OnceCell, RefCell};
#[cfg(test)]
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use channel_protocol::record::{Flags, Header, Kind, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use links::AlignedBuffer;
use rustix::io::Errno;
use tokio::time::Instant;

use crate::channel::accounts::Accounts;
use crate::channel::busy_poll::BusyPolling;
use crate::channel::daemon_end::{self, DaemonEnd};
use crate::channel::form::Form;
use crate::channel::in_flight::Breach;
use crate::channel::inbound_long::InboundLong;
use crate::channel::incoming::Incoming;
use crate::channel::receive_ring::ReceiveRing;
use crate::channel::ring::{Content, FrontRecord, OutboundRing};
use crate::users::budget::{Charge, cost_of};
use crate::users::close_watches::CloseWatch;
use crate::users::closer::{Closer, ReceivedDescriptor, ReceivedMessage};
use crate::users::round_share::Turn;
use crate::users::worker::Worker;

/// Maximum number of fillers that are discarded at once. Others stay until the ring is empty.
const FILLERS_DISCARDED_MAX: usize = 8;
/// Length of the longest write that a program can make past the shim, plus one byte, because the kernel truncates longer ones.
/// The send buffer of the program's end bounds such writes, too.
const RECEIVE_BUFFER_BYTES: usize = MESSAGE_BYTES_MAX + 1;
/// Charge for a record whose length is not known yet.
const RECORD_ROOM_BYTES: usize = cost_of(PAYLOAD_BYTES_MAX);
/// Maximum time to wait until the sharers' page is read: the time of a thread that is stuck, and of the one that relieves it.
const PAGE_WAIT: Duration = Duration::from_secs(1);
/// Time after which a long message is tried again if the host is short of memory or descriptors.
pub(super) const SHORTAGE_WAIT: Duration = Duration::from_millis(50);

/// The daemon's end of a channel.
pub(crate) struct Endpoint {
    /// The pair, which the thread that takes records back uses, too.
    daemon_end: Arc<DaemonEnd>,
    /// The ring through which the program sends.
    ring: OutboundRing,
    /// Long messages from the program.
    long: InboundLong,
    /// Whether the program has sent a malformed record. Each later read reports that again.
    is_broken: Cell<bool>,
    /// Number of bytes of records that were taken from the pair.
    taken_bytes: Cell<u64>,
    /// Number of records that were sent before the last message in the ring, as that message says. All of them were taken.
    records_before: Cell<u32>,
    /// The form in which messages are put into the pair.
    pub(super) form: Form,
    accounts: Accounts,
    busy_polling: Rc<BusyPolling>,
    /// The end of the wait for the sharers' page, if records wait for that. Several waits in a row may be given up before.
    page_wait_ends: Cell<Option<Instant>>,
    /// The watch of the program's end, once the program shuts it down.
    close_watch: OnceCell<CloseWatch>,
}

/// A position in the pair and the ring: the end of what the program has sent, or of what the daemon has taken.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    record_bytes: u64,
    ring_position: u64,
}

impl Progress {
    /// Returns whether everything up to `other` is included.
    pub(crate) fn reaches(self, other: Progress) -> bool {
        self.record_bytes >= other.record_bytes && self.ring_position >= other.ring_position
    }

    /// Returns whether as much is included as up to `other`, from whichever of the two: a program that fills the ring without
    /// pause can keep the records in the pair waiting.
    pub(crate) fn is_as_far_as(self, other: Progress) -> bool {
        self.total_bytes() >= other.total_bytes()
    }

    fn total_bytes(self) -> u64 {
        self.record_bytes.wrapping_add(self.ring_position)
    }
}

/// Creates a pair; returns the daemon's end, with a name, and the program's. Messages are charged to `accounts`.
pub(crate) fn pair(
    busy_polling: &Rc<BusyPolling>,
    closer: Arc<Closer>,
    accounts: Accounts,
    ring: OutboundRing,
) -> Result<(Endpoint, OwnedFd), Errno> {
    let receive_ring = ReceiveRing::new(Arc::clone(ring.memory()), Arc::clone(accounts.received()));
    let (daemon_end, program_end) = daemon_end::open(closer, receive_ring)?;
    let endpoint = Endpoint {
        daemon_end: Arc::new(daemon_end),
        ring,
        long: InboundLong::default(),
        is_broken: Cell::new(false),
        taken_bytes: Cell::new(0),
        records_before: Cell::new(0),
        form: Form::default(),
        accounts,
        busy_polling: Rc::clone(busy_polling),
        page_wait_ends: Cell::new(None),
        close_watch: OnceCell::new(),
    };
    Ok((endpoint, program_end))
}

thread_local! {
    /// The receive buffer for the records of all sockets. Each record is copied into memory of its own length, so that a record
    /// that waits for long occupies no more than that. The system provides memory only for the part that the longest record has
    /// used.
    static RECEIVE_BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(RECEIVE_BUFFER_BYTES));
}

/// The treatment of a filler at the front of the pair while less than half of the ring is free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fillers {
    /// The filler stays, so that the program's end does not poll writable.
    Stay,
    /// The filler is taken, because the ring waits for a record behind it. A writer that finds no room sends another one.
    Go,
}

/// Returns whether a record is a filler.
fn is_filler(header: Option<Header>) -> bool {
    header.is_some_and(|header| header.kind == Kind::Filler)
}

/// Returns whether a record was begun after a message in the ring that `before` records precede, or a filler has no earlier
/// record behind it. The ring announces the turn of a long message behind that message, so its record was sent later, too.
fn is_sent_after(record: &Header, before: u32) -> bool {
    let is_after = |records: u32| records.wrapping_sub(before).cast_signed() >= 0;
    matches!(record.kind, Kind::Data | Kind::Filler) && record.records_before().is_none_or(is_after)
}

/// Input: what the program sends.
impl Endpoint {
    /// Takes the next available record. `NOBUFS`: its user has no memory left for it, see [`Endpoint::room`]. The end of an empty
    /// channel needs none.
    pub(crate) fn try_take(&self) -> Result<Incoming, Errno> {
        if self.is_broken.get() {
            return Ok(Incoming::Malformed);
        }
        let taken = self.take_next();
        if matches!(taken, Ok(Incoming::Malformed)) {
            self.is_broken.set(true);
            // This wakes tasks that wait for the next record.
            self.daemon_end.stop_input();
        }
        taken
    }

    fn take_next(&self) -> Result<Incoming, Errno> {
        // A long message that was begun needs no more descriptors, and `readable` does not wait for the closer then, either.
        if let Some(taken) = self.long.take(&self.accounts, self.worker()) {
            return taken;
        }
        if !self.may_take() {
            return Err(Errno::AGAIN);
        }
        if let Some(taken) = self.take_from_ring() {
            return taken;
        }
        if self.ring.is_checked(self.worker()) {
            return Err(Errno::AGAIN);
        }
        match self.take_record(Fillers::Stay) {
            // Records that were sent before a message in the ring are in the pair by now.
            Err(Errno::AGAIN) if self.is_emptied() && self.ring.waits_for_wake() => {
                match self.take_record(Fillers::Stay) {
                    Err(Errno::AGAIN) if self.is_emptied() && self.ring.wakes_without_record() => {
                        self.take_next()
                    }
                    taken => taken,
                }
            }
            taken => taken,
        }
    }

    /// Returns whether records may be taken: there is room for the descriptors that may come with them, and the
    /// socket is not throttled.
    fn may_take(&self) -> bool {
        self.closer().has_room() && !self.daemon_end.time().is_throttled()
    }

    /// Returns whether `AGAIN` does not mean that nothing is left: [`Endpoint::readable`] waits until more can be taken.
    pub(crate) fn takes_later(&self) -> bool {
        self.awaits_thread() || !self.may_take()
    }

    /// Returns whether `AGAIN` means that the pair is empty. The kernel reports that something was left unread before
    /// it delivers what the program has sent.
    fn is_emptied(&self) -> bool {
        !self.daemon_end.reset().awaits_page()
    }

    /// Takes the next record of a program that has closed its end; learns first how far it has read, if it has
    /// left records unread.
    pub(crate) async fn take_at_close(&self) -> Result<Incoming, Errno> {
        if !self.may_take() {
            self.closer().room().await;
            self.daemon_end.time().unthrottled().await;
        }
        let taken = self.try_take();
        if !self.daemon_end.reset().awaits_page() {
            return taken;
        }
        self.readable().await;
        self.try_take()
    }

    /// Takes the next message from the ring; `None` if there is none, or if the pair comes first.
    fn take_from_ring(&self) -> Option<Result<Incoming, Errno>> {
        let front = match self.ring.front() {
            Ok(front) => front?,
            Err(ring::Broken) => return Some(Ok(Incoming::Malformed)),
        };
        if let Some(earlier) = self.take_before(&front) {
            return Some(earlier);
        }
        if front.header.flags.contains(Flags::IN_MEMFD) {
            return Some(self.take_in_turn(&front));
        }
        if front.content_bytes() > self.accounts.sent().message_bytes_max() {
            return Some(Ok(Incoming::Malformed));
        }
        let bytes = cost_of(front.content_bytes());
        let Some(mut charge) = self.accounts.take_for_record(bytes) else {
            return Some(Err(Errno::NOBUFS));
        };
        charge.shrink_to(bytes);
        let Some(content) = self.take_front(&front) else {
            self.long.on_host_short();
            return Some(Err(Errno::NOBUFS));
        };
        Some(Ok(Incoming::Message(front.header, charge.on(content))))
    }

    /// Returns whether the next message of the program is a short one in the ring.
    pub(crate) fn has_short(&self) -> bool {
        !self.is_broken.get() && !self.long.is_begun() && self.may_take() && self.ring.has_short()
    }

    /// Passes short messages at the front of the ring to `accept`, until they count as `weight` records of a turn, and removes
    /// those that it accepts. Returns how many records they count as. [`Endpoint::has_short`] has returned true.
    pub(crate) fn pass_short(&self, weight: usize, accept: impl FnMut(&Header, &[u8]) -> bool) -> usize {
        // The association charges the user for its copies of the messages, even beyond the limit. So the messages of one call
        // may exceed it, and no others.
        let Some(_room) = self.accounts.take_for_record(RECORD_ROOM_BYTES) else { return 0 };
        let passed = self.ring.pass_short(weight, self.records_before.get(), accept);
        if passed.messages > 0 {
            self.busy_polling.records_came(passed.messages);
        }
        if passed.has_room_again {
            self.discard_fillers();
        }
        passed.weight
    }

    /// Takes a record that was sent before a message in the ring, by a program that does not use the ring.
    /// `None` if there is none.
    fn take_before(&self, front: &FrontRecord) -> Option<Result<Incoming, Errno>> {
        // The record of a long message brings those with it that were sent before.
        let before = front.header.records_before().filter(|before| *before != self.records_before.get())?;
        let taken = match self.next_header() {
            Ok(Some(next)) if is_sent_after(&next, before) => Err(Errno::AGAIN),
            Ok(_) => self.take_record(Fillers::Go),
            Err(error) => Err(error),
        };
        match taken {
            // The record is looked for again once the sharers' page was read.
            Err(Errno::AGAIN) if self.daemon_end.reset().awaits_page() => Some(Err(Errno::AGAIN)),
            Err(Errno::AGAIN) | Ok(Incoming::End | Incoming::Empty) => {
                self.records_before.set(before);
                None
            }
            taken => Some(taken),
        }
    }

    /// Takes a long message whose turn the ring has announced. Its record came before.
    fn take_in_turn(&self, front: &FrontRecord) -> Result<Incoming, Errno> {
        while let Some((header, memfd)) = self.long.next_in_turn() {
            if header == front.header {
                self.take_front(front);
                return self.begin_long(header, memfd);
            }
            // The writer of this one has died before it announced the turn.
        }
        // Takes one record, which may be the message: the next call looks. The caller bounds the number of calls.
        match self.take_record(Fillers::Go) {
            // The record is looked for again once the sharers' page was read.
            Err(Errno::AGAIN) if self.daemon_end.reset().awaits_page() => Err(Errno::AGAIN),
            Ok(Incoming::End | Incoming::Empty) | Err(Errno::AGAIN) => Ok(Incoming::Malformed),
            other => other,
        }
    }

    /// Removes the message at the front of the ring; returns its content. `None`: the host has no memory for that, and the
    /// message stays.
    fn take_front(&self, front: &FrontRecord) -> Option<Content> {
        self.busy_polling.record_came();
        let (content, has_room_again) = self.ring.take(front)?;
        if has_room_again {
            self.discard_fillers();
        }
        Some(content)
    }

    /// Returns the memory that the next record needs.
    fn needed_bytes(&self) -> usize {
        let in_ring = || match self.ring.front() {
            Ok(Some(front)) => cost_of(front.content_bytes()),
            Ok(None) | Err(ring::Broken) => 0,
        };
        self.long.needed_bytes().unwrap_or_else(|| in_ring().max(RECORD_ROOM_BYTES))
    }

    /// Discards the records with which writers wait for room in the ring, so that the program's end polls writable.
    fn discard_fillers(&self) {
        for _ in 0..FILLERS_DISCARDED_MAX {
            // Looked at behind the record: a writer that finds the ring nearly full again sends another filler,
            // which has to stay.
            let may_go = self.next_header().is_ok_and(is_filler) && self.ring.is_half_free();
            if !may_go || !self.discard_record() {
                return;
            }
        }
    }

    fn take_record(&self, fillers: Fillers) -> Result<Incoming, Errno> {
        self.daemon_end.try_receive(|| {
            if self.daemon_end.reset().awaits_page() {
                return Err(Errno::AGAIN);
            }
            if self.daemon_end.reset().take() {
                return Ok(Incoming::Unread);
            }
            if self.ring.is_awake() {
                let next = self.next_header()?;
                // A writer has filled the ring meanwhile.
                if is_filler(next) && fillers == Fillers::Stay && !self.ring.is_half_free() {
                    return Ok(Incoming::Filler);
                }
            }
            let charge = match self.accounts.take_for_record(RECORD_ROOM_BYTES) {
                Some(charge) => charge,
                None if self.daemon_end.waiting_bytes() > 0 => return Err(Errno::NOBUFS),
                // The end needs no memory. A record that comes at this moment may exceed the limit.
                None => self.accounts.sent().charge_anyway(RECORD_ROOM_BYTES),
            };
            RECEIVE_BUFFER.with_borrow_mut(|buffer| self.receive_into(buffer, charge))
        })
    }

    /// Returns the header of the next record, which stays; `None` if it is not of the shim.
    fn next_header(&self) -> Result<Option<Header>, Errno> {
        self.daemon_end.next_header().map_err(|error| self.note_reset(error))
    }

    /// Notes that a read has reported a reset. The records behind it are taken once the sharers' page was read.
    fn note_reset(&self, error: Errno) -> Errno {
        if error != Errno::CONNRESET {
            return error;
        }
        self.daemon_end.reset().on_read_reset();
        Errno::AGAIN
    }

    /// Receives a record; `charge` covers the longest one.
    fn receive_into(&self, buffer: &mut [u8], charge: Charge) -> Result<Incoming, Errno> {
        let ReceivedMessage { bytes, descriptors } = match self.daemon_end.receive(buffer) {
            Ok(ReceivedMessage { bytes: 0, .. }) if !self.has_ended() => return Ok(Incoming::Empty),
            Ok(ReceivedMessage { bytes: 0, .. }) => {
                return if self.daemon_end.reset().on_end() { Err(Errno::AGAIN) } else { Ok(Incoming::End) };
            }
            Ok(received) => received,
            Err(error) => return Err(self.note_reset(error)),
        };
        self.busy_polling.record_came();
        self.taken_bytes.set(self.taken_bytes.get() + bytes as u64);
        let record = &buffer[..bytes];
        if !Header::is_meant(record) {
            return Ok(self.accept_written(record, charge));
        }
        let whole = Header::split_padded(record).filter(|(_, content)| content.len() <= PAYLOAD_BYTES_MAX);
        let Some((header, content)) = whole else { return Ok(Incoming::Malformed) };
        self.accept_record(header, content, descriptors, charge)
    }

    /// Handles a record of the shim.
    fn accept_record(
        &self,
        header: Header,
        content: &[u8],
        descriptors: Vec<ReceivedDescriptor>,
        mut charge: Charge,
    ) -> Result<Incoming, Errno> {
        if header.kind == Kind::Wake {
            self.ring.wake();
        }
        if matches!(header.kind, Kind::Filler | Kind::Wake) {
            return Ok(Incoming::Filler);
        }
        // Only programs get bundles.
        if header.kind == Kind::Bundle {
            return Ok(Incoming::Malformed);
        }
        if header.kind != Kind::Ring && !header.flags.contains(Flags::IN_MEMFD) {
            charge.shrink_to(cost_of(content.len()));
            return Ok(Incoming::Message(header, charge.on(content.to_vec())));
        }
        drop(charge);
        let Some(memfd) = descriptors.into_iter().next() else { return Ok(Incoming::Malformed) };
        if let Some(number) = header.ring_number() {
            self.ring.announce(number, memfd);
            return Ok(Incoming::Filler);
        }
        if !header.flags.contains(Flags::IN_TURN) {
            return self.begin_long(header, memfd);
        }
        if !self.long.await_turn(header, memfd) {
            return Ok(Incoming::Malformed);
        }
        // Its writer may have found no room for a wake record.
        self.ring.wakes_without_record();
        Ok(Incoming::Filler)
    }

    /// Handles data that a program has written past the shim, for example by standard I/O: one message with the default send
    /// parameters.
    fn accept_written(&self, content: &[u8], mut charge: Charge) -> Incoming {
        if content.len() > MESSAGE_BYTES_MAX {
            return Incoming::Malformed;
        }
        if content.len() > PAYLOAD_BYTES_MAX {
            // The charge covers only the longest record of the shim. This one has been received already.
            charge = self.accounts.sent().charge_anyway(cost_of(content.len()));
        }
        let flags = Flags::END.with(Flags::BY_DEFAULT);
        let header = Header { flags, bytes: content.len() as u32, ..Header::new(Kind::Data) };
        charge.shrink_to(cost_of(content.len()));
        Incoming::Message(header, charge.on(content.to_vec()))
    }

    fn begin_long(&self, header: Header, memfd: ReceivedDescriptor) -> Result<Incoming, Errno> {
        self.long.begin(header, memfd, &self.accounts, self.worker())
    }

    /// Returns whether a thread is at work whose result comes before all else that can be taken.
    pub(crate) fn awaits_thread(&self) -> bool {
        self.long.is_being_read()
            || self.daemon_end.reset().awaits_page()
            || self.ring.is_checked(self.worker())
    }

    /// Waits until the user of the socket has memory for the next record, and reserves it.
    pub(crate) async fn room(&self) {
        if self.long.take_host_short() {
            tokio::time::sleep(SHORTAGE_WAIT).await;
        }
        self.accounts.reserve(self.needed_bytes()).await;
    }

    /// Waits until [`Endpoint::try_take`] may find something other than `AGAIN`.
    pub(crate) async fn readable(&self) {
        if self.long.readable().await {
            return;
        }
        self.closer().room().await;
        self.daemon_end.time().unthrottled().await;
        if self.ring.is_checked(self.worker()) {
            return self.ring.checked().await;
        }
        if self.daemon_end.reset().awaits_page() {
            let until = self.page_wait_ends.get().unwrap_or_else(|| Instant::now() + PAGE_WAIT);
            self.page_wait_ends.set(Some(until));
            match self.read_page_until(until).await {
                true => self.daemon_end.reset().on_learned(),
                false => self.daemon_end.reset().on_unknown(),
            }
            self.page_wait_ends.set(None);
            return;
        }
        if self.ring.is_busy() {
            self.busy_polling.poll_for(|| self.ring.is_filled()).await;
        }
        if self.ring.sleep() {
            tokio::select! {
                biased;
                // Another task may take the wake record out of the pair, and leave messages in the ring.
                () = self.ring.woken() => {}
                () = self.daemon_end.readable() => {}
            }
        }
    }

    /// Makes the next read report again that the program has closed with unread records.
    pub(crate) fn repeat_reset(&self) {
        self.daemon_end.reset().on_learned();
    }

    /// Begins a reading of the sharers' page, and does not wait for it.
    pub(super) fn begin_reading_page(&self) {
        drop(self.ring.memory().begin_reading(self.worker()));
    }

    /// Reads the sharers' page on a thread that may wait for programs. Returns false if that takes too long: what the
    /// page said when it was read last may be old.
    #[must_use]
    pub(crate) async fn read_page(&self) -> bool {
        self.read_page_until(Instant::now() + PAGE_WAIT).await
    }

    async fn read_page_until(&self, until: Instant) -> bool {
        let reading = self.ring.memory().begin_reading(self.worker());
        tokio::time::timeout_at(until, reading.done()).await.is_ok()
    }

    /// Discards the next available record. Returns whether there was one.
    pub(crate) fn discard(&self) -> bool {
        self.long.discard() || self.ring.discard() || self.discard_record()
    }

    fn discard_record(&self) -> bool {
        let discarded = RECEIVE_BUFFER.with_borrow_mut(|buffer| self.daemon_end.discard(buffer));
        // What the program has sent counts as taken, too, for those who wait until all of it was.
        self.taken_bytes.set(self.taken_bytes.get() + discarded.unwrap_or(0) as u64);
        discarded.is_some_and(|bytes| bytes > 0 || !self.has_ended())
    }

    /// Returns whether the program has shut down sending, and all that it has sent was taken.
    fn has_ended(&self) -> bool {
        self.daemon_end.is_at_end() && self.ring.fix_end()
    }

    /// Returns the number of bytes that the program has sent and the daemon has not taken, with a header for each message.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.daemon_end.waiting_bytes() + self.ring.tail().wrapping_sub(self.ring.position())
    }

    /// Returns how far the daemon has taken what the program sends.
    pub(crate) fn taken(&self) -> Progress {
        // A long message that was begun is taken with the last byte of its record, when its content has been read.
        let begun = u64::from(self.long.is_begun());
        let record_bytes = self.taken_bytes.get().saturating_sub(begun);
        Progress { record_bytes, ring_position: self.ring.position() }
    }

    /// Returns how far the program has sent.
    pub(crate) fn sent(&self) -> Progress {
        let record_bytes = self.taken_bytes.get() + self.daemon_end.waiting_bytes();
        Progress { record_bytes, ring_position: self.ring.tail() }
    }
}

/// The end of the program.
impl Endpoint {
    /// Watches the close of the program's end, which is shut down next: a hang-up does not tell the two apart.
    pub(crate) fn watch_close(&self, watch: impl FnOnce() -> Result<CloseWatch, Errno>) -> Result<(), Errno> {
        if self.close_watch.get().is_none() {
            // No other task sets it.
            let _ = self.close_watch.set(watch()?);
        }
        Ok(())
    }

    /// Returns whether the program's end is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.daemon_end.is_hung_up() && self.close_watch.get().is_none_or(CloseWatch::is_closed)
    }

    /// Waits until the program's end is closed.
    pub(crate) async fn closed(&self) {
        self.daemon_end.hung_up_both_ways().await;
        if let Some(watch) = self.close_watch.get() {
            watch.closed().await;
        }
    }
}

/// Output: what the program reads.
impl Endpoint {
    /// Ends the content: the program reads the available messages, and then the end.
    pub(crate) fn end_content(&self) {
        if self.form.end_content() {
            self.daemon_end.end_output();
        }
    }

    /// Ends the content silently: a program that reads records is not shown that, because its descriptor would poll readable.
    pub(crate) fn end_content_silently(&self) {
        if self.form.end_content_silently() {
            self.daemon_end.end_output();
        }
    }
}

impl Endpoint {
    /// Waits until the program breaks the socket by what it sends while the daemon takes none of it, or leaves too much of it
    /// behind.
    pub(crate) async fn breach(&self, turn: Turn) -> Breach {
        let charge = |bytes: usize| self.accounts.left().take(bytes.saturating_add(self.long.memory_bytes()));
        self.daemon_end.breach_in_flight(turn, charge).await
    }

    /// Returns the daemon's end of the pair.
    pub(crate) fn daemon_end(&self) -> &Arc<DaemonEnd> {
        &self.daemon_end
    }

    fn closer(&self) -> &Arc<Closer> {
        self.daemon_end.closer()
    }

    /// Returns the threads that do what may wait for a program.
    fn worker(&self) -> &Worker {
        self.daemon_end.closer().worker()
    }

    /// Returns the accounts of the socket's user.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }
}

#[cfg(test)]
impl Endpoint {
    /// Moves to a ring that no program has announced, and is awake for it.
    pub(crate) fn join_ring(&self, memfd: impl AsFd) {
        self.ring.join(memfd);
    }
}
