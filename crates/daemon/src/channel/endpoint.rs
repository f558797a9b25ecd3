//! A carrier as the daemon sees it: records in and out, without waiting and with.

use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use carrier::name::CarrierName;
use carrier::record::{Flags, HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use rustix::buffer::spare_capacity;
use rustix::event::PollFlags;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::{Errno, pread};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::busy_poll::BusyPolling;
use crate::channel::form::Form;
use crate::channel::long_messages::{self, Lent};
use crate::channel::raw_record::RawRecord;
use crate::system::descriptor_io::{errno_of, polls, register};
use crate::system::quantum;
use crate::users::budget::{Account, Charge, RECORD_COST_BYTES};
use crate::users::closer::{self, Closer, End, ReceivedDescriptor};

/// Most names that are tried for one carrier. They are random: the second is free unless somebody knows our random numbers.
const NAMES_TRIED_MAX: usize = 8;
/// A filler record is of this size: two or three fill a carrier so far that it does not poll writable.
const FILLER_BYTES: usize = 32 * 1024;
/// Most filler records for one carrier, should its buffer be huge.
const FILLERS_MAX: usize = 4096;
/// Most records that are taken out of a carrier to empty it. A send buffer of the usual 208 KB holds a third of that; in a larger
/// one, which a program has asked for itself, some may stay.
pub(crate) const CARRIER_RECORDS_MAX: usize = 1024;
/// Messages from this length on are in memory that goes back to the system when they are gone.
const LARGE_BYTES: usize = 1 << 20;
/// The address space that each of those is read into: the C library maps what is larger than 32 MiB for itself, whatever it has
/// learned before (`mallopt(3)`, `M_MMAP_THRESHOLD`). What the message does not fill is given back once it was read.
const MAPPED_BYTES: usize = (32 << 20) + 1;
/// The longest write that a program can make past the shim, and one byte more: the kernel cuts what is longer. The send buffer of
/// the program's end bounds it, too.
const PLACE_BYTES: usize = MESSAGE_BYTES_MAX + 1;
/// What is charged for a record before it is known how long it is.
const RECORD_ROOM_BYTES: usize = PAYLOAD_BYTES_MAX + RECORD_COST_BYTES;
/// How often it is looked for room where nobody tells of it.
const ROOM_LOOKS: Duration = Duration::from_millis(1);
/// Time after which a long message is tried again if the host is short of memory or descriptors.
pub(super) const SHORTAGE_WAIT: Duration = Duration::from_millis(50);
/// Seals that keep a memfd as it was sent.
const FINAL: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// The daemon's end of a carrier.
pub(crate) struct Endpoint {
    descriptor: AsyncFd<Arc<End>>,
    /// Closes what programs send along with records.
    closer: Arc<Closer>,
    /// Sending has found that the program has left something unread. The kernel says that once.
    reset: AtomicBool,
    /// The program has written something else than records. That is told each time from then on.
    is_broken: AtomicBool,
    busy_polling: Arc<BusyPolling>,
    gate: Arc<tokio::sync::RwLock<()>>,
    accounts: Accounts,
    /// A long message that was taken from the carrier, and for whose content there was no room.
    stalled: Mutex<Option<(Header, ReceivedDescriptor)>>,
    /// There was no room because the host is short of memory, whatever the user may have.
    is_host_short: AtomicBool,
    /// Room for the next record that was waited for.
    reserved: Mutex<Option<Charge>>,
    /// How what the program reads is put here.
    pub(crate) form: Form,
}

/// What the user of a socket is charged, each in a budget of its own: what peers send must not keep a program from sending.
pub(crate) struct Accounts {
    /// For what the program sends.
    pub(crate) sent: Arc<Account>,
    /// For long messages that it has not read.
    pub(crate) unread: Arc<Account>,
    /// For what its associations have received, and for what waits for room in the carrier.
    pub(crate) received: Arc<Account>,
}

/// Tells when a program reads.
pub(crate) struct Reads(Option<Copy>);

/// A copy of the daemon's end, which is closed before that end is.
struct Copy {
    descriptor: AsyncFd<OwnedFd>,
    _end: Arc<End>,
}

impl Reads {
    /// Waits until the carrier polls writable, which is when less than a quarter of what it holds is unread, and from then on
    /// each time until the program has read more. Once the program's end is closed, this waits no more.
    pub(crate) async fn next(&self) {
        match &self.0 {
            Some(copy) => {
                // Should it fail, the runtime is gone, and nothing waits any more.
                if let Ok(mut ready) = copy.descriptor.writable().await {
                    // What is read from here on is told again.
                    ready.clear_ready();
                }
            }
            // No descriptor is left for that.
            None => tokio::time::sleep(ROOM_LOOKS).await,
        }
    }
}

/// What has come from the program.
#[derive(Debug)]
pub(crate) enum Intake {
    /// A message.
    Message(Header, Bytes),
    /// A record that only kept the carrier from polling writable.
    Filler,
    /// A record of no bytes, which looks like the end. A program writes it past the shim.
    Empty,
    /// The program sends no more.
    End,
    /// The program has closed with something unread. That is told once, and what it has sent may follow.
    Unread,
    /// It is no record of ours.
    Malformed,
}

impl Intake {
    /// Returns what the record counts for in the turn of a task.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Intake::Message(_, content) => quantum::weight(content.len()),
            Intake::Filler | Intake::Empty | Intake::End | Intake::Unread | Intake::Malformed => 1,
        }
    }

    /// Returns how many bytes the record had in the carrier.
    pub(crate) fn record_bytes(&self) -> u64 {
        match self {
            Intake::Message(header, _) if header.flags.contains(Flags::IN_MEMFD) => HEADER_BYTES as u64,
            Intake::Message(_, content) => (HEADER_BYTES + content.len()) as u64,
            Intake::Filler => (HEADER_BYTES + FILLER_BYTES) as u64,
            Intake::Empty | Intake::End | Intake::Unread | Intake::Malformed => 0,
        }
    }
}

/// Makes a carrier; returns our end, named, and the program's. What it carries is charged to `accounts`.
pub(crate) fn pair(
    busy_polling: &Arc<BusyPolling>,
    closer: Arc<Closer>,
    accounts: Accounts,
) -> Result<(Endpoint, OwnedFd), Errno> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind_to_one(ours.as_fd(), random_name)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let descriptor = register(Arc::new(closer.guard(ours)), Interest::READABLE)?;
    let line = Endpoint {
        descriptor,
        closer,
        reset: AtomicBool::new(false),
        is_broken: AtomicBool::new(false),
        busy_polling: Arc::clone(busy_polling),
        gate: Arc::default(),
        accounts,
        stalled: Mutex::default(),
        is_host_short: AtomicBool::new(false),
        reserved: Mutex::default(),
        form: Form::default(),
    };
    Ok((line, theirs))
}

fn random_name() -> Result<CarrierName, Errno> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| Errno::AGAIN)?;
    Ok(CarrierName::from_random(u128::from_ne_bytes(random)))
}

/// Binds our end to the first of some names that nobody has taken.
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
pub(crate) fn fill(theirs: BorrowedFd<'_>) -> Result<(), Errno> {
    let header = Header { bytes: FILLER_BYTES as u32, ..Header::new(Kind::Filler) }.encode();
    let filler = vec![0; FILLER_BYTES];
    for _ in 0..FILLERS_MAX {
        if !polls(theirs, PollFlags::OUT) {
            return Ok(());
        }
        let record = [IoSlice::new(&header), IoSlice::new(&filler)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(theirs, &record, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What is charged for a message in a memfd.
fn large_room_bytes(bytes: usize) -> usize {
    bytes + RECORD_COST_BYTES
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Where records are received, of all sockets. Each is copied out of it into memory of its own length: one that waits for
    /// long keeps nothing else. The system provides memory only for as much as the longest record has had.
    static PLACE: RefCell<Vec<u8>> = RefCell::new(vec![0; PLACE_BYTES]);
}

impl Endpoint {
    /// Takes the next record that is there. `NOBUFS`: its user has no memory left for it, see [`Endpoint::room`].
    ///
    /// The kernel is asked even if the runtime knows of nothing to read: it may not have heard of it yet. If it does, and
    /// there is nothing any more, it is told, so that who waits then does not ask again.
    pub(crate) fn try_take(&self) -> Result<Intake, Errno> {
        // A stalled message brings no more descriptors. `readable` does not wait for the closer then, either.
        if !self.closer.has_room() && lock(&self.stalled).is_none() {
            return Err(Errno::AGAIN);
        }
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

    fn receive(&self) -> Result<Intake, Errno> {
        if self.is_broken.load(Relaxed) {
            return Ok(Intake::Malformed);
        }
        let taken = self.receive_next();
        if matches!(taken, Ok(Intake::Malformed)) {
            self.is_broken.store(true, Relaxed);
            // Whoever waits for the next record finds out. One that is closed already is readable, too.
            let _ = rustix::net::shutdown(&self.descriptor, Shutdown::Read);
        }
        taken
    }

    fn receive_next(&self) -> Result<Intake, Errno> {
        let stalled = lock(&self.stalled).take();
        if let Some((header, memfd)) = stalled {
            return self.take_large(header, memfd);
        }
        let reserved = lock(&self.reserved).take();
        let charge = reserved.or_else(|| self.accounts.sent.take(RECORD_ROOM_BYTES)).ok_or(Errno::NOBUFS)?;
        PLACE.with_borrow_mut(|place| self.receive_into(place, charge))
    }

    /// Receives a record; `charge` is for the longest one.
    fn receive_into(&self, place: &mut [u8], mut charge: Charge) -> Result<Intake, Errno> {
        let (bytes, descriptors) = match closer::receive(&self.descriptor, place, &self.closer) {
            Ok(received) => received,
            Err(Errno::CONNRESET) => return Ok(Intake::Unread),
            Err(error) => return Err(error),
        };
        if bytes == 0 {
            return Ok(match self.has_ended() {
                false => Intake::Empty,
                true if self.reset.swap(false, Relaxed) => Intake::Unread,
                true => Intake::End,
            });
        }
        self.busy_polling.record_came();
        let record = &place[..bytes];
        if !Header::is_meant(record) {
            return Ok(self.take_written(record, charge));
        }
        let whole = Header::split(record).filter(|(_, content)| content.len() <= PAYLOAD_BYTES_MAX);
        let Some((header, content)) = whole else { return Ok(Intake::Malformed) };
        if header.kind == Kind::Filler {
            return Ok(Intake::Filler);
        }
        if !header.flags.contains(Flags::IN_MEMFD) {
            charge.shrink_to(content.len() + RECORD_COST_BYTES);
            return Ok(Intake::Message(header, charge.on(content.to_vec())));
        }
        drop(charge);
        let memfd = descriptors.into_iter().next();
        memfd.map_or(Ok(Intake::Malformed), |memfd| self.take_large(header, memfd))
    }

    /// Takes what a program has written past the shim, such as standard I/O: one message, with all that was set as default.
    fn take_written(&self, content: &[u8], mut charge: Charge) -> Intake {
        if content.len() > MESSAGE_BYTES_MAX {
            return Intake::Malformed;
        }
        if content.len() > PAYLOAD_BYTES_MAX {
            // The charge was for the longest record of ours. This one is here already.
            charge = self.accounts.sent.charge_anyway(large_room_bytes(content.len()));
        }
        let flags = Flags::END.with(Flags::BY_DEFAULT);
        let header = Header { flags, bytes: content.len() as u32, ..Header::new(Kind::Data) };
        charge.shrink_to(content.len() + RECORD_COST_BYTES);
        Intake::Message(header, charge.on(content.to_vec()))
    }

    /// Takes a message whose content is in a memfd, once there is room for it.
    fn take_large(&self, header: Header, memfd: ReceivedDescriptor) -> Result<Intake, Errno> {
        let bytes = header.bytes as usize;
        if !is_final(memfd.as_fd(), bytes) || bytes > self.accounts.sent.message_bytes_max() {
            return Ok(Intake::Malformed);
        }
        let reserved = lock(&self.reserved).take().filter(|charge| charge.bytes() >= large_room_bytes(bytes));
        let charge = reserved.or_else(|| self.accounts.sent.take(large_room_bytes(bytes)));
        let content = charge.map(|charge| (read_memfd(memfd.as_fd(), bytes, try_reserve), charge));
        match content {
            Some((Ok(content), charge)) => Ok(Intake::Message(header, charge.on(content))),
            Some((Err(MemfdError::Broken), _)) => Ok(Intake::Malformed),
            short => {
                self.is_host_short.store(short.is_some(), Relaxed);
                *lock(&self.stalled) = Some((header, memfd));
                Err(Errno::NOBUFS)
            }
        }
    }

    /// Waits until the user of the socket has memory for the next record, which is kept for it.
    pub(crate) async fn room(&self) {
        if self.is_host_short.swap(false, Relaxed) {
            tokio::time::sleep(SHORTAGE_WAIT).await;
        }
        let bytes = lock(&self.stalled)
            .as_ref()
            .map_or(RECORD_ROOM_BYTES, |(header, _)| large_room_bytes(header.bytes as usize));
        let charge = self.accounts.sent.room(bytes).await;
        *lock(&self.reserved) = charge;
    }

    /// Lets the next reader find out, too, that the program has closed with something unread.
    pub(crate) fn tell_reset_again(&self) {
        self.reset.store(true, Relaxed);
    }

    /// Throws the next record away that is there. Returns whether there was one.
    pub(crate) fn discard(&self) -> bool {
        if lock(&self.stalled).take().is_some() {
            return true;
        }
        if !self.closer.has_room() {
            return false;
        }
        let received = closer::receive(&self.descriptor, &mut [0], &self.closer);
        received.is_ok_and(|(bytes, _)| bytes > 0 || !self.has_ended())
    }

    /// Returns whether the program sends no more, and all that it has sent was taken.
    fn has_ended(&self) -> bool {
        polls(self.descriptor.as_fd(), PollFlags::RDHUP) && self.waiting_bytes() == 0
    }

    /// Waits until [`Endpoint::try_take`] may find something other than `AGAIN`.
    pub(crate) async fn readable(&self) {
        if lock(&self.stalled).is_some() {
            return;
        }
        loop {
            self.closer.room().await;
            // Should it fail, the runtime is gone, and nothing waits any more. Only an attempt that finds nothing ends the
            // readiness.
            let _ = self.descriptor.readable().await;
            if self.closer.has_room() {
                return;
            }
        }
    }

    /// Returns what the user is charged for what its programs send.
    pub(crate) fn sent_account(&self) -> &Arc<Account> {
        &self.accounts.sent
    }

    /// Closes what came from programs of this carrier.
    pub(crate) fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    /// Waits until the program's end is closed or sends no more, whatever is there to read.
    pub(crate) async fn hung_up(&self) {
        // Nothing urgent ever comes, and a hang-up, which the runtime counts among what is urgent, stays.
        // Should it fail, the runtime is gone, and nothing waits any more.
        let _ = self.descriptor.ready(Interest::PRIORITY).await;
    }

    /// Waits until the program's end is closed.
    pub(crate) async fn closed(&self) {
        // It is not registered for room to write; a hang-up, which the runtime counts with that, is always told.
        // Should it fail, the runtime is gone, and nothing waits any more.
        let _ = self.descriptor.ready(Interest::WRITABLE).await;
    }

    /// Bytes that the program has sent and nobody has taken, with a header for each message.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.descriptor).unwrap_or(0)
    }

    /// Whether the program's end is closed.
    pub(crate) fn is_hung_up(&self) -> bool {
        polls(self.descriptor.as_fd(), PollFlags::HUP)
    }

    /// Takes memory of the user for what programs read, waits for it, and copies bytes there.
    pub(crate) async fn keep(&self, content: &[u8]) -> Result<Bytes, Errno> {
        let charge =
            self.accounts.unread.room(content.len() + RECORD_COST_BYTES).await.ok_or(Errno::NOMEM)?;
        Ok(charge.on(content.to_vec()))
    }

    /// Charges the user for a message that waits for room here.
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

    /// Waits until no records are being taken back.
    pub(super) async fn recall_ended(&self) {
        drop(self.gate.read().await);
    }

    /// Creates the memfd of a long message. `memory` is what was charged for it before; it stays there if that fails.
    pub(super) fn lend(&self, blocks: &[Bytes], memory: &mut Option<Charge>) -> Result<Lent, Blocked> {
        let length: usize = blocks.iter().map(Bytes::len).sum();
        // A message that is longer than all that the user may have goes alone.
        let bytes = long_messages::charged_bytes(length.min(self.accounts.unread.message_bytes_max()));
        let charge = match memory.take().or_else(|| self.accounts.unread.take(bytes)) {
            Some(charge) => charge,
            None => return Err(Blocked::Memory(bytes)),
        };
        if !self.closer.has_room() {
            *memory = Some(charge);
            return Err(Blocked::Descriptors);
        }
        Lent::new(blocks, self.closer.number(), charge).map_err(|(_, charge)| {
            *memory = Some(charge);
            Blocked::Host
        })
    }

    /// Waits for so much of the user's memory for what programs read. `None`: the user may not have that much.
    pub(super) async fn unread_memory(&self, bytes: usize) -> Option<Charge> {
        self.accounts.unread.room(bytes).await
    }

    /// Waits until the carrier polls writable. Only who waits is told, by a registration of its own: otherwise the daemon
    /// would be woken each time that a program reads.
    pub(crate) async fn has_room(&self) {
        self.reads().next().await;
    }

    /// The same for who waits again and again.
    pub(crate) fn reads(&self) -> Reads {
        let copy = rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0);
        let copy = copy.and_then(|copy| register(copy, Interest::WRITABLE)).ok();
        let end = Arc::clone(self.descriptor.get_ref());
        Reads(copy.map(|descriptor| Copy { descriptor, _end: end }))
    }

    fn try_send(&self, record: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&self.descriptor, record, &mut control, flags);
        if sent == Err(Errno::CONNRESET) {
            self.reset.store(true, Relaxed);
        }
        sent.map(drop)
    }

    /// Hands a record over that lay in a carrier. The caller keeps others from sending meanwhile.
    pub(crate) fn put_raw(&self, record: &RawRecord) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> =
            record.descriptors.iter().map(ReceivedDescriptor::as_fd).collect();
        let parts = [IoSlice::new(&record.bytes)];
        match self.try_send(&parts, &descriptors) {
            // Where one record has become two, they take a little more room than it did.
            Err(Errno::AGAIN) => self.widen().and_then(|()| self.try_send(&parts, &descriptors)),
            put => put,
        }
    }

    /// Lets more records wait here.
    fn widen(&self) -> Result<(), Errno> {
        let bytes = sockopt::socket_send_buffer_size(&self.descriptor)?;
        // The kernel doubles what it is told, for what records take beside their bytes.
        sockopt::set_socket_send_buffer_size(&self.descriptor, bytes)
    }

    /// Read while a record is put, and written from taking records back to putting them where they belong.
    pub(crate) fn gate(&self) -> &Arc<tokio::sync::RwLock<()>> {
        &self.gate
    }

    /// Lets few records wait here: what waits in a listener's carrier is beyond its backlog, and its descriptors count for
    /// nobody while they are on their way.
    pub(crate) fn keep_short(&self) {
        // The kernel takes the least that it allows instead. Should it refuse, the line is longer.
        let _ = sockopt::set_socket_send_buffer_size(&self.descriptor, 0);
    }

    /// The program reads what is there, and then the end.
    pub(crate) fn end(&self) {
        if self.form.end(true) {
            self.tell_end();
        }
    }

    /// Nothing follows. A program that reads records is not told, because it would poll readable for that.
    pub(crate) fn end_untold(&self) {
        if self.form.end(false) {
            self.tell_end();
        }
    }

    pub(crate) fn tell_end(&self) {
        // One that is closed already needs no end.
        let _ = rustix::net::shutdown(&self.descriptor, Shutdown::Write);
    }
}

/// Returns whether a descriptor is a memfd that has as many bytes as it is said to have, and does not change any more. Others have
/// no seals, and nothing more is asked of them: a file system of a user might never answer.
fn is_final(memfd: BorrowedFd<'_>, bytes: usize) -> bool {
    fcntl_get_seals(memfd).is_ok_and(|seals| seals.contains(FINAL))
        && fstat(memfd)
            .is_ok_and(|status| u64::try_from(status.st_size).is_ok_and(|size| size == bytes as u64))
}

/// Why the content of a memfd was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemfdError {
    /// The host is short of memory. It may be read later.
    Short,
    /// It has no such content.
    Broken,
}

/// Reads the content of a memfd. `try_reserve` makes room for so many bytes, or returns false.
fn read_memfd(
    memfd: BorrowedFd<'_>,
    bytes: usize,
    try_reserve: impl Fn(&mut Vec<u8>, usize) -> bool,
) -> Result<Vec<u8>, MemfdError> {
    let mut content = Vec::new();
    let is_reserved =
        bytes >= LARGE_BYTES && try_reserve(&mut content, MAPPED_BYTES) || try_reserve(&mut content, bytes);
    if !is_reserved {
        return Err(MemfdError::Short);
    }
    while content.len() < bytes {
        let at = content.len() as u64;
        match pread(memfd, spare_capacity(&mut content), at) {
            Ok(0) => return Err(MemfdError::Broken),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::NOMEM | Errno::AGAIN) => return Err(MemfdError::Short),
            Err(_) => return Err(MemfdError::Broken),
        }
    }
    content.shrink_to_fit();
    Ok(content)
}

fn try_reserve(content: &mut Vec<u8>, bytes: usize) -> bool {
    content.try_reserve_exact(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
    use rustix::io::pwrite;

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

    #[test]
    fn only_a_sealed_memfd_is_read() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("swiftwater-test", flags).expect("a memfd");
        pwrite(&memfd, b"hello", 0).expect("it is ours");
        let read = |bytes| {
            is_final(memfd.as_fd(), bytes).then(|| read_memfd(memfd.as_fd(), bytes, try_reserve).ok())?
        };
        for seals in [SealFlags::WRITE, SealFlags::SHRINK, SealFlags::GROW] {
            assert_eq!(read(5), None, "it may still change");
            fcntl_add_seals(&memfd, seals).expect("it is ours");
        }
        assert_eq!(read(5).as_deref(), Some(&b"hello"[..]));
        assert_eq!(read(6), None, "it is shorter");
        assert_eq!(read(4), None, "it is longer");
        let file = std::fs::File::open("/dev/zero").expect("a file");
        assert!(!is_final(file.as_fd(), 5), "it is no memfd");
    }

    #[test]
    fn a_host_that_is_short_of_memory_breaks_no_socket() {
        let memfd = memfd_create("swiftwater-test", MemfdFlags::CLOEXEC).expect("a memfd");
        pwrite(&memfd, &vec![7; LARGE_BYTES], 0).expect("it is ours");
        let read = |limit: usize| {
            let reserve = |content: &mut Vec<u8>, bytes| bytes <= limit && try_reserve(content, bytes);
            read_memfd(memfd.as_fd(), LARGE_BYTES, reserve)
        };
        assert_eq!(read(LARGE_BYTES - 1), Err(MemfdError::Short));
        for limit in [LARGE_BYTES, MAPPED_BYTES] {
            let content = read(limit).expect("room for the message itself");
            assert_eq!((content.len(), content.capacity()), (LARGE_BYTES, LARGE_BYTES));
        }
        assert_eq!(read_memfd(memfd.as_fd(), LARGE_BYTES + 1, try_reserve), Err(MemfdError::Broken));
    }
}
