//! The daemon's end of a channel: takes what a program sends, from the carrier and the ring in their order, and puts records into the
//! carrier, without waiting and with.

use std::cell::RefCell;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use bytes::Bytes;
use carrier::record::{Flags, Header, Kind, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use rustix::io::Errno;

use crate::channel::accounts::Accounts;
use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::busy_poll::BusyPolling;
use crate::channel::carrier_socket::{self, CarrierSocket, Reads};
use crate::channel::form::Form;
use crate::channel::inbound_long::{self, InboundLong};
use crate::channel::incoming::Incoming;
use crate::channel::raw_record::RawRecord;
use crate::channel::reset::Reset;
use crate::channel::ring::{Content, Front, OutboundRing};
use crate::system::aligned_buffer::AlignedBuffer;
use crate::users::budget::{Charge, RECORD_COST_BYTES};
use crate::users::closer::{Closer, Job, ReceivedDescriptor};

/// Maximum number of fillers that are discarded at once. Others stay until the ring is empty.
const FILLERS_DISCARDED_MAX: usize = 8;
/// Length of the longest write that a program can make past the shim, plus one byte, because the kernel truncates longer ones.
/// The send buffer of the program's end bounds such writes, too.
const RECEIVE_BUFFER_BYTES: usize = MESSAGE_BYTES_MAX + 1;
/// Charge for a record whose length is not known yet.
const RECORD_ROOM_BYTES: usize = PAYLOAD_BYTES_MAX + RECORD_COST_BYTES;
/// Maximum time to wait for the thread that reads the sharers' page. After that the daemon uses what it has read last.
const LEARN_WAIT: Duration = Duration::from_millis(500);
/// Time after which a long message is tried again if the host is short of memory or descriptors.
pub(super) const SHORTAGE_WAIT: Duration = Duration::from_millis(50);

/// The daemon's end of a channel.
pub(crate) struct Endpoint {
    socket: CarrierSocket,
    /// The ring through which the program sends.
    ring: OutboundRing,
    /// Long messages from the program.
    long: InboundLong,
    /// Whether the program has left records unread.
    reset: Reset,
    /// Whether the program has sent a malformed record. Each later read reports that again.
    is_broken: AtomicBool,
    /// Number of bytes of records that were taken from the carrier.
    taken_bytes: AtomicU64,
    /// The form in which messages are put into the carrier.
    pub(crate) form: Form,
    /// Locked shared to put a record, and exclusively while records are taken back.
    gate: Arc<tokio::sync::RwLock<()>>,
    accounts: Accounts,
    busy_polling: Arc<BusyPolling>,
}

/// A position in the carrier and the ring: the end of what the program has sent, or of what the daemon has taken.
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
}

/// Creates a carrier; returns the daemon's end, with a name, and the program's. Messages are charged to `accounts`.
pub(crate) fn pair(
    busy_polling: &Arc<BusyPolling>,
    closer: Arc<Closer>,
    accounts: Accounts,
    ring: OutboundRing,
) -> Result<(Endpoint, OwnedFd), Errno> {
    let (socket, program_end) = carrier_socket::pair(closer)?;
    let endpoint = Endpoint {
        socket,
        ring,
        long: InboundLong::default(),
        reset: Reset::default(),
        is_broken: AtomicBool::new(false),
        taken_bytes: AtomicU64::new(0),
        form: Form::default(),
        gate: Arc::default(),
        accounts,
        busy_polling: Arc::clone(busy_polling),
    };
    Ok((endpoint, program_end))
}

thread_local! {
    /// The receive buffer for the records of all sockets. Each record is copied into memory of its own length, so that a record
    /// that waits for long occupies no more than that. The system provides memory only for the part that the longest record has
    /// used.
    static RECEIVE_BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(RECEIVE_BUFFER_BYTES));
}

/// Input: what the program sends.
impl Endpoint {
    /// Takes the next available record. `NOBUFS`: its user has no memory left for it, see [`Endpoint::room`].
    pub(crate) fn try_take(&self) -> Result<Incoming, Errno> {
        if self.is_broken.load(Relaxed) {
            return Ok(Incoming::Malformed);
        }
        let taken = self.take_next();
        if matches!(taken, Ok(Incoming::Malformed)) {
            self.is_broken.store(true, Relaxed);
            // This wakes tasks that wait for the next record.
            self.socket.stop_input();
        }
        taken
    }

    fn take_next(&self) -> Result<Incoming, Errno> {
        // A long message that was begun needs no more descriptors, and `readable` does not wait for the closer then, either.
        if let Some(taken) = self.long.take(&self.accounts, self.closer()) {
            return taken;
        }
        if !self.closer().has_room() {
            return Err(Errno::AGAIN);
        }
        if let Some(taken) = self.take_from_ring() {
            return taken;
        }
        if self.ring.is_checked(self.closer()) {
            return Err(Errno::AGAIN);
        }
        match self.take_record() {
            // Records that were sent before a message in the ring are in the carrier by now.
            Err(Errno::AGAIN) if self.is_emptied() && self.ring.waits_for_wake() => {
                match self.take_record() {
                    Err(Errno::AGAIN) if self.is_emptied() && self.ring.wakes_without_record() => {
                        self.take_next()
                    }
                    taken => taken,
                }
            }
            taken => taken,
        }
    }

    /// Returns whether `AGAIN` means that the carrier is empty. The kernel reports that something was left unread before it delivers
    /// what the program has sent.
    fn is_emptied(&self) -> bool {
        !self.reset.awaits_page()
    }

    /// Takes the next record of a program that has closed its end; learns first how far it has read, if it has left records unread.
    pub(crate) async fn take_at_close(&self) -> Result<Incoming, Errno> {
        let taken = self.try_take();
        if !self.reset.awaits_page() {
            return taken;
        }
        self.readable().await;
        self.try_take()
    }

    /// Takes the next message from the ring; `None` if there is none, or if the carrier comes first.
    fn take_from_ring(&self) -> Option<Result<Incoming, Errno>> {
        let front = match self.ring.front() {
            Ok(front) => front?,
            Err(ring::Broken) => return Some(Ok(Incoming::Malformed)),
        };
        if front.header.flags.contains(Flags::IN_MEMFD) {
            return Some(self.take_in_turn(&front));
        }
        let bytes = front.content_bytes() + RECORD_COST_BYTES;
        let Some(mut charge) = self.accounts.take_for_record(bytes) else {
            return Some(Err(Errno::NOBUFS));
        };
        charge.shrink_to(bytes);
        let content = self.take_front(&front);
        Some(Ok(Incoming::Message(front.header, charge.on(content))))
    }

    /// Takes a long message whose turn the ring has announced. Its record came before.
    fn take_in_turn(&self, front: &Front) -> Result<Incoming, Errno> {
        loop {
            match self.long.next_in_turn() {
                Some((header, memfd)) if header == front.header => {
                    self.take_front(front);
                    return self.begin_long(header, memfd);
                }
                // The writer has died before it announced the turn.
                Some(_) => {}
                // The caller bounds how many records are taken.
                None => match self.take_record() {
                    Ok(Incoming::Filler) if !self.long.is_begun() && self.long.awaits_turn() => {}
                    // The record is looked for again once the sharers' page was read.
                    Err(Errno::AGAIN) if self.reset.awaits_page() => return Err(Errno::AGAIN),
                    Ok(Incoming::End | Incoming::Empty) | Err(Errno::AGAIN) => {
                        return Ok(Incoming::Malformed);
                    }
                    other => return other,
                },
            }
        }
    }

    /// Removes the message at the front of the ring; returns its content.
    fn take_front(&self, front: &Front) -> Content {
        self.busy_polling.record_came();
        let (content, has_room_again) = self.ring.take(front);
        if has_room_again {
            self.discard_fillers();
        }
        content
    }

    /// Discards the records with which writers wait for room in the ring, so that the program's end polls writable.
    fn discard_fillers(&self) {
        for _ in 0..FILLERS_DISCARDED_MAX {
            if !self.socket.begins_with_filler() || !self.discard_record() {
                return;
            }
        }
    }

    fn take_record(&self) -> Result<Incoming, Errno> {
        self.socket.try_receive(|| {
            if self.reset.awaits_page() {
                return Err(Errno::AGAIN);
            }
            if self.reset.take() {
                return Ok(Incoming::Unread);
            }
            let charge = self.accounts.take_for_record(RECORD_ROOM_BYTES).ok_or(Errno::NOBUFS)?;
            RECEIVE_BUFFER.with_borrow_mut(|buffer| self.receive_into(buffer.bytes_mut(), charge))
        })
    }

    /// Receives a record; `charge` covers the longest one.
    fn receive_into(&self, buffer: &mut [u8], charge: Charge) -> Result<Incoming, Errno> {
        let (bytes, descriptors) = match self.socket.receive(buffer) {
            Ok((0, _)) if !self.has_ended() => return Ok(Incoming::Empty),
            Ok((0, _)) => return if self.reset.on_end() { Err(Errno::AGAIN) } else { Ok(Incoming::End) },
            Ok(received) => received,
            Err(Errno::CONNRESET) => {
                self.reset.on_read_reset();
                return Err(Errno::AGAIN);
            }
            Err(error) => return Err(error),
        };
        self.busy_polling.record_came();
        self.taken_bytes.fetch_add(bytes as u64, Relaxed);
        let record = &buffer[..bytes];
        if !Header::is_meant(record) {
            return Ok(self.accept_written(record, charge));
        }
        let whole = Header::split(record).filter(|(_, content)| content.len() <= PAYLOAD_BYTES_MAX);
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
        if header.kind != Kind::Ring && !header.flags.contains(Flags::IN_MEMFD) {
            charge.shrink_to(content.len() + RECORD_COST_BYTES);
            return Ok(Incoming::Message(header, charge.on(content.to_vec())));
        }
        drop(charge);
        let Some(memfd) = descriptors.into_iter().next() else { return Ok(Incoming::Malformed) };
        if header.kind == Kind::Ring {
            self.ring.announce(header.context, memfd);
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
            charge = self.accounts.sent().charge_anyway(inbound_long::charged_bytes(content.len()));
        }
        let flags = Flags::END.with(Flags::BY_DEFAULT);
        let header = Header { flags, bytes: content.len() as u32, ..Header::new(Kind::Data) };
        charge.shrink_to(content.len() + RECORD_COST_BYTES);
        Incoming::Message(header, charge.on(content.to_vec()))
    }

    fn begin_long(&self, header: Header, memfd: ReceivedDescriptor) -> Result<Incoming, Errno> {
        self.long.begin((header, memfd), &self.accounts, self.closer())
    }

    /// Returns whether a thread is at work whose result comes before all else that can be taken.
    pub(crate) fn awaits_thread(&self) -> bool {
        self.long.is_being_read() || self.reset.awaits_page() || self.ring.is_checked(self.closer())
    }

    /// Waits until the user of the socket has memory for the next record, and reserves it.
    pub(crate) async fn room(&self) {
        if self.long.take_host_short() {
            tokio::time::sleep(SHORTAGE_WAIT).await;
        }
        self.accounts.reserve(self.long.needed_bytes().unwrap_or(RECORD_ROOM_BYTES)).await;
    }

    /// Waits until [`Endpoint::try_take`] may find something other than `AGAIN`.
    pub(crate) async fn readable(&self) {
        if self.long.readable().await {
            return;
        }
        self.closer().room().await;
        if self.ring.is_checked(self.closer()) {
            return self.ring.checked().await;
        }
        if self.reset.awaits_page() {
            self.learn().await;
            self.reset.on_learned();
            return;
        }
        if self.ring.is_busy() {
            self.busy_polling.poll_for(|| self.ring.is_filled()).await;
        }
        if self.ring.sleep() {
            self.socket.readable().await;
        }
    }

    /// Makes the next read report again that the program has closed with unread records.
    pub(crate) fn repeat_reset(&self) {
        self.reset.on_learned();
    }

    /// Has the sharers' page read, and does not wait for that.
    pub(super) fn look(&self) {
        let memory = Arc::clone(self.ring.memory());
        self.closer().run(move || memory.look());
    }

    /// Reads the sharers' page on the thread that may wait for programs.
    pub(crate) async fn learn(&self) {
        let memory = Arc::clone(self.ring.memory());
        let looked = Job::begin(self.closer(), move || memory.look());
        let _ = tokio::time::timeout(LEARN_WAIT, looked.done()).await;
    }

    /// Discards the next available record. Returns whether there was one.
    pub(crate) fn discard(&self) -> bool {
        self.long.discard() || self.ring.discard() || self.discard_record()
    }

    fn discard_record(&self) -> bool {
        self.socket.discard().is_some_and(|bytes| bytes > 0 || !self.has_ended())
    }

    /// Returns whether the program has shut down sending, and all that it has sent was taken.
    fn has_ended(&self) -> bool {
        self.socket.is_at_end() && self.ring.end()
    }

    /// Waits until the program's end is closed or shut down for sending, even if records are left to read.
    pub(crate) async fn hung_up(&self) {
        self.socket.hung_up().await;
    }

    /// Waits until the program's end is closed.
    pub(crate) async fn closed(&self) {
        self.socket.closed().await;
    }

    /// Returns whether the program's end is closed.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.socket.is_hung_up()
    }

    /// Returns the number of bytes that the program has sent and the daemon has not taken, with a header for each message.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.record_bytes() + self.ring.tail().wrapping_sub(self.ring.position())
    }

    /// Returns the number of bytes of the records in the carrier.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.socket.waiting_bytes()
    }

    /// Returns how far the daemon has taken what the program sends.
    pub(crate) fn taken(&self) -> Progress {
        Progress { record_bytes: self.taken_bytes.load(Relaxed), ring_position: self.ring.position() }
    }

    /// Returns how far the program has sent.
    pub(crate) fn sent(&self) -> Progress {
        let record_bytes = self.taken_bytes.load(Relaxed) + self.record_bytes();
        Progress { record_bytes, ring_position: self.ring.tail() }
    }
}

/// Output: what the program reads.
impl Endpoint {
    /// Puts a record of these parts into the carrier, with descriptors.
    pub(super) fn try_put_parts(
        &self,
        parts: &[IoSlice<'_>],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), NotPut> {
        let Ok(_gate) = self.gate.try_read() else { return Err(NotPut::Blocked(Blocked::Recall)) };
        match self.try_send(parts, descriptors) {
            Err(Errno::AGAIN) => Err(NotPut::Blocked(Blocked::Full)),
            sent => sent.map_err(NotPut::Failed),
        }
    }

    /// Puts a header and its content into the carrier as one record.
    pub(super) fn try_put_message(&self, header: &Header, blocks: &[Bytes]) -> Result<(), NotPut> {
        let header = header.encode();
        let mut parts = Vec::with_capacity(1 + blocks.len());
        parts.push(IoSlice::new(&header));
        parts.extend(blocks.iter().map(|block| IoSlice::new(block)));
        self.try_put_parts(&parts, &[])
    }

    /// Puts an encoded record into the carrier, with descriptors; waits for room.
    pub(crate) async fn put_record(
        &self,
        record: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        loop {
            match self.try_put_parts(&[IoSlice::new(record)], descriptors) {
                Err(NotPut::Blocked(Blocked::Recall)) => self.recall_ended().await,
                Err(NotPut::Blocked(_)) => self.has_room().await,
                Err(NotPut::Failed(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Puts a record from a carrier back, or into another one. The caller excludes other senders meanwhile.
    pub(crate) fn put_raw(&self, record: &RawRecord) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> =
            record.descriptors.iter().map(ReceivedDescriptor::as_fd).collect();
        let parts = [IoSlice::new(&record.bytes)];
        match self.try_send(&parts, &descriptors) {
            // Two records that were one take a little more room than it did.
            Err(Errno::AGAIN) => {
                self.socket.double_send_buffer().and_then(|()| self.try_send(&parts, &descriptors))
            }
            put => put,
        }
    }

    fn try_send(&self, record: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let sent = self.socket.send(record, descriptors);
        if sent == Err(Errno::CONNRESET) {
            self.reset.on_send_reset();
        }
        sent
    }

    /// Waits until the carrier polls writable. Only a waiting task registers for that, with a descriptor of its own: otherwise
    /// each read of a program would wake the daemon.
    pub(crate) async fn has_room(&self) {
        self.reads().next().await;
    }

    /// Returns a [`Reads`] for a task that waits repeatedly until the carrier polls writable.
    pub(crate) fn reads(&self) -> Reads {
        self.socket.reads()
    }

    /// Waits until no recall is in progress.
    pub(super) async fn recall_ended(&self) {
        drop(self.gate.read().await);
    }

    /// Returns the gate: locked shared to put a record, and exclusively from taking records back until they are in their
    /// carriers.
    pub(crate) fn gate(&self) -> &Arc<tokio::sync::RwLock<()>> {
        &self.gate
    }

    /// Limits the carrier to few records: associations in a listener's carrier are beyond its backlog, and no user is charged for
    /// their descriptors in flight.
    pub(crate) fn minimize_backlog(&self) {
        self.socket.minimize_send_buffer();
    }

    /// Ends the content: the program reads the available messages, and then the end.
    pub(crate) fn end(&self) {
        if self.form.end(true) {
            self.send_end();
        }
    }

    /// Ends the content silently: a program that reads records is not told, because its descriptor would poll readable.
    pub(crate) fn end_silently(&self) {
        if self.form.end(false) {
            self.send_end();
        }
    }

    pub(crate) fn send_end(&self) {
        self.socket.end_output();
    }
}

impl Endpoint {
    /// Returns the closer of descriptors that came over this carrier.
    pub(crate) fn closer(&self) -> &Arc<Closer> {
        self.socket.closer()
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
