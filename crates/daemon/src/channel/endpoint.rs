//! The daemon's end of a carrier: receives and sends records, without waiting and with.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use carrier::name::CarrierName;
use carrier::record::{Flags, HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::busy_poll::BusyPolling;
use crate::channel::form::Form;
use crate::channel::incoming::{FILLER_BYTES, Incoming};
use crate::channel::long_messages::{self, LentMemfd};
use crate::channel::raw_record::RawRecord;
use crate::channel::received_memfd::{self, MemfdError};
use crate::channel::ring::{Content, Front, OutboundRing};
use crate::system::aligned_buffer::AlignedBuffer;
use crate::system::descriptor_io::{errno_of, polls, register};
use crate::users::budget::{Account, Charge, RECORD_COST_BYTES};
use crate::users::closer::{self, Closer, End, Job, ReceivedDescriptor};

/// Maximum number of names to try for one carrier. Names are random, so the second is free unless a program can predict our
/// random numbers.
const NAMES_TRIED_MAX: usize = 8;
/// Maximum number of filler records for one carrier, in case its buffer is huge.
const FILLERS_MAX: usize = 4096;
/// Maximum number of fillers that are discarded at once. Others stay until the ring is empty.
const FILLERS_DISCARDED_MAX: usize = 8;
/// Maximum number of records that are taken out of a carrier to empty it. A send buffer of the usual 208 KB holds a third of
/// that; in a larger one, which a program has requested, some records may stay.
pub(crate) const CARRIER_RECORDS_MAX: usize = 1024;
/// Maximum number of long messages whose turn the ring has not announced. There is one at a time, and one for each writer that died
/// just then. More would take from the descriptors of the user.
const IN_TURN_MAX: usize = 8;
/// Length of the longest write that a program can make past the shim, plus one byte, because the kernel truncates longer ones.
/// The send buffer of the program's end bounds such writes, too.
const RECEIVE_BUFFER_BYTES: usize = MESSAGE_BYTES_MAX + 1;
/// Charge for a record whose length is not known yet.
const RECORD_ROOM_BYTES: usize = PAYLOAD_BYTES_MAX + RECORD_COST_BYTES;
/// Maximum time to wait for the thread that reads the sharers' page. After that the daemon uses what it has read last.
const LEARN_WAIT: Duration = Duration::from_millis(500);
/// Interval for rechecking for room if no descriptor is free to be notified by.
const ROOM_RECHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Time after which a long message is tried again if the host is short of memory or descriptors.
pub(super) const SHORTAGE_WAIT: Duration = Duration::from_millis(50);

/// The daemon's end of a carrier.
pub(crate) struct Endpoint {
    descriptor: AsyncFd<Arc<End>>,
    /// Closes descriptors that programs send with records.
    closer: Arc<Closer>,
    /// Whether the program has left records unread. The kernel reports that once.
    reset: Mutex<Reset>,
    /// Whether the program has sent a malformed record. Each later read reports that again.
    is_broken: AtomicBool,
    busy_polling: Arc<BusyPolling>,
    gate: Arc<tokio::sync::RwLock<()>>,
    accounts: Accounts,
    /// A long message that was taken from the carrier and not by the caller.
    long: Mutex<Option<Long>>,
    /// Whether the last message found no memory because the host is short of it, independent of the user's limit.
    is_host_short: AtomicBool,
    /// Memory reserved for the next record by [`Endpoint::room`].
    reserved: Mutex<Option<Charge>>,
    /// The form in which messages are put into the carrier.
    pub(crate) form: Form,
    /// Long messages whose turn the ring announces.
    in_turn: Mutex<VecDeque<(Header, ReceivedDescriptor)>>,
    /// The ring through which the program sends.
    ring: OutboundRing,
    /// Number of bytes of records that were taken from the carrier.
    taken_bytes: AtomicU64,
}

/// A message whose content is in a memfd.
struct Long {
    header: Header,
    stage: Stage,
}

enum Stage {
    /// It waits for memory.
    Stalled(ReceivedDescriptor),
    /// A thread reads it.
    Read(Arc<Job<Result<Bytes, (MemfdError, ReceivedDescriptor)>>>),
}

/// Whether the kernel has reported that a program has left records unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reset {
    #[default]
    None,
    /// A send has reported it.
    Sent,
    /// A read has reported it. The sharers' page is read before others hear of it.
    Reported,
    /// The sharers' page says which of the records were messages.
    Learned,
}

/// Accounts of a socket's user, each in a separate budget, so that data from peers does not keep a program from sending.
pub(crate) struct Accounts {
    /// For messages that the program sends.
    pub(crate) sent: Arc<Account>,
    /// For long messages that the program has not read.
    pub(crate) unread: Arc<Account>,
    /// For data that the associations have received, and for messages that wait for room in the carrier.
    pub(crate) received: Arc<Account>,
}

/// Notifies about reads of a program.
pub(crate) struct Reads(Option<Copy>);

/// A copy of the daemon's end. It is closed before that end.
struct Copy {
    descriptor: AsyncFd<OwnedFd>,
    _end: Arc<End>,
}

impl Reads {
    /// Waits until the carrier polls writable, that is, until less than a quarter of its contents is unread; each later call
    /// waits until the program has read more. Returns at once after the program's end was closed.
    pub(crate) async fn next(&self) {
        match &self.0 {
            Some(copy) => {
                // This fails only when the runtime has ended.
                if let Ok(mut ready) = copy.descriptor.writable().await {
                    // Later reads notify again.
                    ready.clear_ready();
                }
            }
            // No descriptor was free for the copy.
            None => tokio::time::sleep(ROOM_RECHECK_INTERVAL).await,
        }
    }
}

/// How far the program has sent, or the daemon has taken: in the carrier and in the ring.
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
    let (ours, program_end) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind_to_one(ours.as_fd(), random_name)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let descriptor = register(Arc::new(closer.guard(ours)), Interest::READABLE)?;
    let endpoint = Endpoint {
        descriptor,
        closer,
        reset: Mutex::default(),
        is_broken: AtomicBool::new(false),
        busy_polling: Arc::clone(busy_polling),
        gate: Arc::default(),
        accounts,
        long: Mutex::default(),
        is_host_short: AtomicBool::new(false),
        reserved: Mutex::default(),
        form: Form::default(),
        in_turn: Mutex::default(),
        ring,
        taken_bytes: AtomicU64::new(0),
    };
    Ok((endpoint, program_end))
}

fn random_name() -> Result<CarrierName, Errno> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| Errno::AGAIN)?;
    Ok(CarrierName::from_random(u128::from_ne_bytes(random)))
}

/// Binds the daemon's end to the first free one of some names.
fn bind_to_one(
    ours: BorrowedFd<'_>,
    mut names: impl FnMut() -> Result<CarrierName, Errno>,
) -> Result<(), Errno> {
    for _ in 0..NAMES_TRIED_MAX {
        let name = SocketAddrUnix::new_abstract_name(names()?.as_bytes())?;
        match rustix::net::bind(ours, &name) {
            Err(Errno::ADDRINUSE) => {}
            bound => return bound,
        }
    }
    Err(Errno::ADDRINUSE)
}

/// Fills a carrier from the program's end until it does not poll writable.
pub(crate) fn fill(program_end: BorrowedFd<'_>) -> Result<(), Errno> {
    let header = Header { bytes: FILLER_BYTES as u32, ..Header::new(Kind::Filler) }.encode();
    let filler = vec![0; FILLER_BYTES];
    for _ in 0..FILLERS_MAX {
        if !polls(program_end, PollFlags::OUT) {
            return Ok(());
        }
        let record = [IoSlice::new(&header), IoSlice::new(&filler)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(program_end, &record, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the charge for a message in a memfd.
fn large_room_bytes(bytes: usize) -> usize {
    bytes + RECORD_COST_BYTES
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The receive buffer for the records of all sockets. Each record is copied into memory of its own length, so that a record
    /// that waits for long occupies no more than that. The system provides memory only for the part that the longest record has
    /// used.
    static RECEIVE_BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::new(RECEIVE_BUFFER_BYTES));
}

impl Endpoint {
    /// Takes the next available record. `NOBUFS`: its user has no memory left for it, see [`Endpoint::room`].
    ///
    /// This asks the kernel even if the runtime reports nothing to read, because the runtime may not have polled yet. If the
    /// runtime does report readiness and there is no record, the readiness is cleared, so that a waiting task does not ask again.
    pub(crate) fn try_take(&self) -> Result<Incoming, Errno> {
        // A long message that was begun needs no more descriptors, and `readable` does not wait for the closer then, either.
        if let Some(taken) = self.take_long() {
            return taken;
        }
        if !self.closer.has_room() {
            return Err(Errno::AGAIN);
        }
        if let Some(taken) = self.take_from_ring() {
            return taken;
        }
        if self.ring.is_checked(&self.closer) {
            return Err(Errno::AGAIN);
        }
        match self.try_take_record() {
            // What was sent before a message in the ring is in the carrier by now.
            Err(Errno::AGAIN) if self.is_emptied() && self.ring.waits_for_wake() => {
                match self.try_take_record() {
                    Err(Errno::AGAIN) if self.is_emptied() && self.ring.wakes_without_record() => {
                        self.try_take()
                    }
                    taken => taken,
                }
            }
            taken => taken,
        }
    }

    /// Returns whether `AGAIN` means that the carrier is empty. The kernel reports that something was left unread before it delivers what
    /// the program has sent.
    fn is_emptied(&self) -> bool {
        *lock(&self.reset) != Reset::Reported
    }

    /// Takes the next record of a program that has closed its end; learns first how far it has read, if it has left records unread.
    pub(crate) async fn take_at_close(&self) -> Result<Incoming, Errno> {
        let taken = self.try_take();
        if *lock(&self.reset) != Reset::Reported {
            return taken;
        }
        self.readable().await;
        self.try_take()
    }

    /// Takes the next message from the ring; `None` if there is none, or if the carrier comes first.
    fn take_from_ring(&self) -> Option<Result<Incoming, Errno>> {
        if self.is_broken.load(Relaxed) {
            return None;
        }
        let front = match self.ring.front() {
            Ok(front) => front?,
            Err(ring::Broken) => return Some(Ok(self.break_off())),
        };
        if front.header.flags.contains(Flags::IN_MEMFD) {
            return Some(self.take_in_turn(&front));
        }
        let bytes = front.content_bytes() + RECORD_COST_BYTES;
        let reserved = lock(&self.reserved).take();
        let Some(mut charge) = reserved.or_else(|| self.accounts.sent.take(bytes)) else {
            return Some(Err(Errno::NOBUFS));
        };
        charge.shrink_to(bytes);
        let content = self.take_front(&front);
        Some(Ok(Incoming::Message(front.header, charge.on(content))))
    }

    /// Takes a long message whose turn the ring has announced. Its record came before.
    fn take_in_turn(&self, front: &Front) -> Result<Incoming, Errno> {
        loop {
            let next = lock(&self.in_turn).pop_front();
            match next {
                Some((header, memfd)) if header == front.header => {
                    self.take_front(front);
                    return self.begin_long(header, memfd);
                }
                // The writer has died before it announced the turn.
                Some(_) => {}
                // The caller bounds how many records are taken.
                None => match self.try_take_record() {
                    Ok(Incoming::Filler) if self.long().is_none() && !lock(&self.in_turn).is_empty() => {}
                    // The record is looked for again once the sharers' page was read.
                    Err(Errno::AGAIN) if *lock(&self.reset) == Reset::Reported => return Err(Errno::AGAIN),
                    Ok(Incoming::End | Incoming::Empty) | Err(Errno::AGAIN) => return Ok(self.break_off()),
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

    /// Makes each later read report that the program has broken its socket.
    fn break_off(&self) -> Incoming {
        self.is_broken.store(true, Relaxed);
        // This wakes tasks that wait for the next record. It fails only if the end is closed, which is readable, too.
        let _ = rustix::net::shutdown(&self.descriptor, Shutdown::Read);
        Incoming::Malformed
    }

    /// Discards the records with which writers wait for room in the ring, so that the program's end polls writable.
    fn discard_fillers(&self) {
        let mut header = [0; HEADER_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        for _ in 0..FILLERS_DISCARDED_MAX {
            let peeked = rustix::net::recv(&self.descriptor, &mut header, flags);
            let is_filler = peeked.is_ok_and(|(_, bytes)| bytes > 0)
                && Header::parse(&header).is_some_and(|header| header.kind == Kind::Filler);
            if !is_filler || !self.discard_record() {
                return;
            }
        }
    }

    fn try_take_record(&self) -> Result<Incoming, Errno> {
        let mut asked = false;
        let receive = |_: &_| {
            asked = true;
            Ok(self.receive()?)
        };
        match self.descriptor.try_io(Interest::READABLE, receive) {
            Err(_) if !asked => self.receive(),
            taken => taken.map_err(errno_of),
        }
    }

    fn receive(&self) -> Result<Incoming, Errno> {
        if self.is_broken.load(Relaxed) {
            return Ok(Incoming::Malformed);
        }
        let taken = self.receive_next();
        if matches!(taken, Ok(Incoming::Malformed)) {
            return Ok(self.break_off());
        }
        taken
    }

    fn receive_next(&self) -> Result<Incoming, Errno> {
        {
            let mut reset = lock(&self.reset);
            match *reset {
                Reset::Reported => return Err(Errno::AGAIN),
                Reset::Learned => {
                    *reset = Reset::None;
                    return Ok(Incoming::Unread);
                }
                Reset::None | Reset::Sent => {}
            }
        }
        let reserved = lock(&self.reserved).take();
        let charge = reserved.or_else(|| self.accounts.sent.take(RECORD_ROOM_BYTES)).ok_or(Errno::NOBUFS)?;
        RECEIVE_BUFFER.with_borrow_mut(|buffer| self.receive_into(buffer.bytes_mut(), charge))
    }

    /// Receives a record; `charge` covers the longest one.
    fn receive_into(&self, buffer: &mut [u8], mut charge: Charge) -> Result<Incoming, Errno> {
        let (bytes, descriptors) = match closer::receive(&self.descriptor, buffer, &self.closer) {
            Ok(received) => received,
            Err(Errno::CONNRESET) => {
                *lock(&self.reset) = Reset::Reported;
                return Err(Errno::AGAIN);
            }
            Err(error) => return Err(error),
        };
        if bytes == 0 {
            if !self.has_ended() {
                return Ok(Incoming::Empty);
            }
            let mut reset = lock(&self.reset);
            if *reset == Reset::Sent {
                *reset = Reset::Reported;
                return Err(Errno::AGAIN);
            }
            return Ok(Incoming::End);
        }
        self.busy_polling.record_came();
        self.taken_bytes.fetch_add(bytes as u64, Relaxed);
        let record = &buffer[..bytes];
        if !Header::is_meant(record) {
            return Ok(self.take_written(record, charge));
        }
        let whole = Header::split(record).filter(|(_, content)| content.len() <= PAYLOAD_BYTES_MAX);
        let Some((header, content)) = whole else { return Ok(Incoming::Malformed) };
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
        let mut in_turn = lock(&self.in_turn);
        if in_turn.len() == IN_TURN_MAX {
            return Ok(Incoming::Malformed);
        }
        in_turn.push_back((header, memfd));
        // Its writer may have found no room for a wake record.
        self.ring.wakes_without_record();
        Ok(Incoming::Filler)
    }

    /// Takes data that a program has written past the shim, for example by standard I/O: one message with the default send
    /// parameters.
    fn take_written(&self, content: &[u8], mut charge: Charge) -> Incoming {
        if content.len() > MESSAGE_BYTES_MAX {
            return Incoming::Malformed;
        }
        if content.len() > PAYLOAD_BYTES_MAX {
            // The charge covers only the longest record of the shim. This one has been received already.
            charge = self.accounts.sent.charge_anyway(large_room_bytes(content.len()));
        }
        let flags = Flags::END.with(Flags::BY_DEFAULT);
        let header = Header { flags, bytes: content.len() as u32, ..Header::new(Kind::Data) };
        charge.shrink_to(content.len() + RECORD_COST_BYTES);
        Incoming::Message(header, charge.on(content.to_vec()))
    }

    /// Begins with a message whose content is in a memfd: a thread reads it, since its sender may keep pages of the memfd locked. Keeps
    /// it for later if there is no memory for the content.
    fn begin_long(&self, header: Header, memfd: ReceivedDescriptor) -> Result<Incoming, Errno> {
        let bytes = header.bytes as usize;
        if !received_memfd::is_final(memfd.as_fd(), bytes) || bytes > self.accounts.sent.message_bytes_max() {
            return Ok(self.break_off());
        }
        let reserved = lock(&self.reserved).take().filter(|charge| charge.bytes() >= large_room_bytes(bytes));
        let Some(charge) = reserved.or_else(|| self.accounts.sent.take(large_room_bytes(bytes))) else {
            return self.stall(header, memfd, false);
        };
        let Some(memory) = received_memfd::reserve(bytes) else { return self.stall(header, memfd, true) };
        let read = move || match received_memfd::read(memfd.as_fd(), memory, bytes) {
            Ok(content) => Ok(charge.on(content)),
            Err(error) => Err((error, memfd)),
        };
        *self.long() = Some(Long { header, stage: Stage::Read(Job::begin(&self.closer, read)) });
        Ok(Incoming::Filler)
    }

    /// Keeps a long message for which the user or the host has no memory.
    fn stall(
        &self,
        header: Header,
        memfd: ReceivedDescriptor,
        is_host_short: bool,
    ) -> Result<Incoming, Errno> {
        self.is_host_short.store(is_host_short, Relaxed);
        *self.long() = Some(Long { header, stage: Stage::Stalled(memfd) });
        Err(Errno::NOBUFS)
    }

    /// Goes on with the long message that was begun; `None` if there is none. `AGAIN`: a thread reads it.
    fn take_long(&self) -> Option<Result<Incoming, Errno>> {
        let Long { header, stage } = self.long().take()?;
        let job = match stage {
            Stage::Stalled(memfd) => return Some(self.begin_long(header, memfd)),
            Stage::Read(job) => job,
        };
        Some(match job.take() {
            Some(Ok(content)) => Ok(Incoming::Message(header, content)),
            Some(Err((MemfdError::Broken, _))) => Ok(self.break_off()),
            Some(Err((MemfdError::Short, memfd))) => self.stall(header, memfd, true),
            None => {
                *self.long() = Some(Long { header, stage: Stage::Read(job) });
                Err(Errno::AGAIN)
            }
        })
    }

    fn long(&self) -> MutexGuard<'_, Option<Long>> {
        lock(&self.long)
    }

    /// Returns whether a thread is at work whose result comes before all else that can be taken.
    pub(crate) fn awaits_thread(&self) -> bool {
        let is_read = self.long().as_ref().is_some_and(|long| matches!(long.stage, Stage::Read(_)));
        is_read || *lock(&self.reset) == Reset::Reported || self.ring.is_checked(&self.closer)
    }

    /// Waits until the user of the socket has memory for the next record, and reserves it.
    pub(crate) async fn room(&self) {
        if self.is_host_short.swap(false, Relaxed) {
            tokio::time::sleep(SHORTAGE_WAIT).await;
        }
        let bytes = self
            .long()
            .as_ref()
            .map_or(RECORD_ROOM_BYTES, |long| large_room_bytes(long.header.bytes as usize));
        let charge = self.accounts.sent.room(bytes).await;
        *lock(&self.reserved) = charge;
    }

    /// Makes the next read report again that the program has closed with unread records.
    pub(crate) fn repeat_reset(&self) {
        *lock(&self.reset) = Reset::Learned;
    }

    /// Has the sharers' page read, and does not wait for that.
    pub(super) fn look(&self) {
        let memory = Arc::clone(self.ring.memory());
        self.closer.run(move || memory.look());
    }

    /// Reads the sharers' page on the thread that may wait for programs.
    pub(crate) async fn learn(&self) {
        let memory = Arc::clone(self.ring.memory());
        let looked = Job::begin(&self.closer, move || memory.look());
        let _ = tokio::time::timeout(LEARN_WAIT, looked.done()).await;
    }

    /// Discards the next available record. Returns whether there was one.
    pub(crate) fn discard(&self) -> bool {
        lock(&self.in_turn).clear();
        self.long().take().is_some() || self.ring.discard() || self.discard_record()
    }

    fn discard_record(&self) -> bool {
        if !self.closer.has_room() {
            return false;
        }
        let received = closer::receive(&self.descriptor, &mut [0], &self.closer);
        received.is_ok_and(|(bytes, _)| bytes > 0 || !self.has_ended())
    }

    /// Returns whether the program has shut down sending, and all its records were taken.
    fn has_ended(&self) -> bool {
        polls(self.descriptor.as_fd(), PollFlags::RDHUP) && self.record_bytes() == 0 && self.ring.end()
    }

    /// Waits until [`Endpoint::try_take`] may find something other than `AGAIN`.
    pub(crate) async fn readable(&self) {
        let job = match self.long().as_ref().map(|long| &long.stage) {
            Some(Stage::Stalled(_)) => return,
            Some(Stage::Read(job)) => Some(Arc::clone(job)),
            None => None,
        };
        if let Some(job) = job {
            return job.done().await;
        }
        self.closer.room().await;
        if self.ring.is_checked(&self.closer) {
            return self.ring.checked().await;
        }
        if *lock(&self.reset) == Reset::Reported {
            self.learn().await;
            *lock(&self.reset) = Reset::Learned;
            return;
        }
        if self.ring.is_busy() {
            self.busy_polling.poll_for(|| self.ring.is_filled()).await;
        }
        if self.ring.sleep() {
            self.has_come().await;
        }
    }

    /// Waits until the carrier polls readable and the closer has room.
    async fn has_come(&self) {
        loop {
            self.closer.room().await;
            // This fails only when the runtime has ended. Only an attempt that finds no record clears the readiness.
            let _ = self.descriptor.readable().await;
            if self.closer.has_room() {
                return;
            }
        }
    }

    /// Returns the account for messages that the user's programs send.
    pub(crate) fn sent_account(&self) -> &Arc<Account> {
        &self.accounts.sent
    }

    /// Returns the closer of descriptors that came over this carrier.
    pub(crate) fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    /// Waits until the program's end is closed or shut down for sending, even if records are left to read.
    pub(crate) async fn hung_up(&self) {
        // AF_UNIX sockets have no urgent data. The runtime reports a hang-up with that readiness, and a hang-up stays. This fails
        // only when the runtime has ended.
        let _ = self.descriptor.ready(Interest::PRIORITY).await;
    }

    /// Waits until the program's end is closed.
    pub(crate) async fn closed(&self) {
        // The descriptor is not registered for writability, but a hang-up, which the runtime reports with it, is always polled.
        // This fails only when the runtime has ended.
        let _ = self.descriptor.ready(Interest::WRITABLE).await;
    }

    /// Returns the number of bytes that the program has sent and the daemon has not taken, with a header for each message.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.record_bytes() + self.ring.tail().wrapping_sub(self.ring.position())
    }

    /// Returns the number of bytes of the records in the carrier.
    pub(crate) fn record_bytes(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.descriptor).unwrap_or(0)
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

    /// Returns whether the program's end is closed.
    pub(crate) fn is_hung_up(&self) -> bool {
        polls(self.descriptor.as_fd(), PollFlags::HUP)
    }

    /// Copies bytes of an unread message, which a program has taken out of the carrier, into memory of the user. Waits for memory
    /// only if the messages on their way already exceed the limits: the reader that the memory waits for may be the caller.
    pub(crate) async fn charge_and_copy(&self, content: &[u8]) -> Result<Bytes, Errno> {
        let (unread, bytes) = (&self.accounts.unread, content.len() + RECORD_COST_BYTES);
        let charge = match unread.take_moved(bytes) {
            Some(charge) => charge,
            None => unread.room(bytes).await.ok_or(Errno::NOMEM)?,
        };
        Ok(charge.on(content.to_vec()))
    }

    /// Charges the user for a message that waits for room in the carrier.
    pub(crate) fn charge_waiting(&self, bytes: usize) -> Charge {
        self.accounts.received.charge_anyway(bytes + RECORD_COST_BYTES)
    }

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

    /// Waits until no recall is in progress.
    pub(super) async fn recall_ended(&self) {
        drop(self.gate.read().await);
    }

    /// Creates the memfd of a long message. `memory` is a charge that was obtained before; it stays there on failure.
    pub(super) fn lend(&self, blocks: &[Bytes], memory: &mut Option<Charge>) -> Result<LentMemfd, Blocked> {
        let length: usize = blocks.iter().map(Bytes::len).sum();
        // A message longer than the user's limit is charged the whole limit.
        let bytes = long_messages::charged_bytes(length.min(self.accounts.unread.message_bytes_max()));
        let charge = match memory.take().or_else(|| self.accounts.unread.take(bytes)) {
            Some(charge) => charge,
            None => return Err(Blocked::Memory(bytes)),
        };
        if !self.closer.has_room() {
            *memory = Some(charge);
            return Err(Blocked::Descriptors);
        }
        LentMemfd::new(blocks, self.closer.number(), charge).map_err(|(_, charge)| {
            *memory = Some(charge);
            Blocked::Host
        })
    }

    /// Waits for memory of the user for unread messages. `None`: the user's limit is lower.
    pub(super) async fn unread_memory(&self, bytes: usize) -> Option<Charge> {
        self.accounts.unread.room(bytes).await
    }

    /// Waits until the carrier polls writable. Only a waiting task registers for that, with a descriptor of its own: otherwise
    /// each read of a program would wake the daemon.
    pub(crate) async fn has_room(&self) {
        self.reads().next().await;
    }

    /// Returns a [`Reads`] for a task that waits repeatedly until the carrier polls writable.
    pub(crate) fn reads(&self) -> Reads {
        let copy = rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0);
        let copy = copy.and_then(|copy| register(copy, Interest::WRITABLE)).ok();
        let end = Arc::clone(self.descriptor.get_ref());
        Reads(copy.map(|descriptor| Copy { descriptor, _end: end }))
    }

    fn try_send(&self, record: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&self.descriptor, record, &mut control, flags);
        if sent == Err(Errno::CONNRESET) {
            let mut reset = lock(&self.reset);
            if *reset == Reset::None {
                *reset = Reset::Sent;
            }
        }
        sent.map(drop)
    }

    /// Puts a record from a carrier back, or into another one. The caller excludes other senders meanwhile.
    pub(crate) fn put_raw(&self, record: &RawRecord) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> =
            record.descriptors.iter().map(ReceivedDescriptor::as_fd).collect();
        let parts = [IoSlice::new(&record.bytes)];
        match self.try_send(&parts, &descriptors) {
            // Two records that were one take a little more room than it did.
            Err(Errno::AGAIN) => self.double_send_buffer().and_then(|()| self.try_send(&parts, &descriptors)),
            put => put,
        }
    }

    /// Doubles the send buffer.
    fn double_send_buffer(&self) -> Result<(), Errno> {
        let bytes = sockopt::socket_send_buffer_size(&self.descriptor)?;
        // The kernel doubles the given value, to account for the overhead of records.
        sockopt::set_socket_send_buffer_size(&self.descriptor, bytes)
    }

    /// Returns the gate: locked shared to put a record, and exclusively from taking records back until they are in their
    /// carriers.
    pub(crate) fn gate(&self) -> &Arc<tokio::sync::RwLock<()>> {
        &self.gate
    }

    /// Limits the carrier to few records: associations in a listener's carrier are beyond its backlog, and no user is charged for
    /// their descriptors in flight.
    pub(crate) fn minimize_backlog(&self) {
        // The kernel uses its minimum instead. If it refuses, the queue is longer.
        let _ = sockopt::set_socket_send_buffer_size(&self.descriptor, 0);
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
        // This fails only if the end is closed.
        let _ = rustix::net::shutdown(&self.descriptor, Shutdown::Write);
    }
}

#[cfg(test)]
impl Endpoint {
    /// Moves to a ring that no program has announced, and is awake for it.
    pub(crate) fn join_ring(&self, memfd: impl AsFd) {
        self.ring.join(memfd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> OwnedFd {
        let kind = SocketType::SEQPACKET;
        rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair").0
    }

    #[test]
    fn a_name_that_somebody_has_taken_is_passed_over() {
        let (taken, free) = (random_name().expect("random"), random_name().expect("random"));
        let (first, second, third) = (end(), end(), end());
        bind_to_one(first.as_fd(), || Ok(taken)).expect("nobody has it");
        let mut names = [taken, taken, free].into_iter();
        bind_to_one(second.as_fd(), || names.next().ok_or(Errno::RANGE)).expect("the third is free");
        let name = rustix::net::getsockname(&second).expect("it is bound");
        let name = SocketAddrUnix::try_from(name).expect("of AF_UNIX");
        assert_eq!(name.abstract_name(), Some(free.as_bytes()));
        assert_eq!(bind_to_one(third.as_fd(), || Ok(taken)), Err(Errno::ADDRINUSE), "it gives up");
    }
}
