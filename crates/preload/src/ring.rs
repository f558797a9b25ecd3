//! Messages to the daemon, through a ring.
//!
//! A sender that finds the ring full sends a filler record, so that the descriptor polls writable only once the daemon has made
//! room. With the smallest send buffer that the kernel has, one filler is enough for that, and another record has to wait: so a
//! call that may block waits in the kernel, subject to the descriptor's time limit, to signals and to the end of the daemon.

use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use channel_protocol::record::{Flags, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX, Sequence, Turn};
use channel_protocol::sharers_page::SharersPage;
use libc::c_int;
use ring::{PutOutcome, Record, Writer};

use crate::descriptor::Descriptor;
use crate::lock::{self, LockError, Patience};
use crate::system::{self, Content, Errno, Result, Source};

/// Number of records of long messages that this process has sent.
static LONG_MESSAGES: AtomicU32 = AtomicU32::new(0);

/// Length of a filler, without its header: with it the smallest send buffer is full.
const FILLER_BYTES: usize = 3840;

/// Number of times that a send tries again to wake the daemon while the kernel has no memory for that.
const WAKE_TRIES: u32 = 20;
/// Pause after each of these tries.
pub(crate) const WAKE_PAUSE: Duration = Duration::from_millis(1);

/// Reason for which a message is not in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutError {
    /// The daemon reads no ring of this process, or the call comes from a signal handler that has interrupted this thread in a
    /// send: the message can be sent as a record.
    RingUnusable,
    /// The association takes no more messages.
    Refused(Errno),
    /// The message cannot be sent.
    Errno(Errno),
}

impl From<Errno> for PutError {
    fn from(error: Errno) -> PutError {
        PutError::Errno(error)
    }
}

impl From<LockError> for PutError {
    fn from(error: LockError) -> PutError {
        match error {
            LockError::HeldByThisThread => PutError::RingUnusable,
            LockError::TimedOut | LockError::Interrupted => PutError::Errno(error.into()),
        }
    }
}

/// Sends a message of up to [`LONG_BYTES_MAX`](channel_protocol::record::LONG_BYTES_MAX), unless `check` fails; waits for room,
/// if a call with these flags may.
pub(crate) fn send(
    fd: RawFd,
    descriptor: &Descriptor,
    header: &Header,
    content: Content<'_>,
    flags: c_int,
    check: impl Fn() -> Result<()>,
) -> Result<(), PutError> {
    content.check()?;
    put_waiting(fd, descriptor, flags, is_long(content.bytes()), |ring| {
        let header = encoded(header, descriptor.pages().sharers);
        ring.try_put(HEADER_BYTES + content.bytes(), |record| write(record, &header, content, &check))
    })
}

/// Encodes a header with the number of records that were sent before.
fn encoded(header: &Header, sharers: &SharersPage) -> [u8; HEADER_BYTES] {
    Header { sequence: Sequence::sent_after(sharers.records_sent()), ..*header }.encode()
}

/// Writes a message into a record of the ring, unless `check` fails.
fn write(
    record: &mut Record<'_>,
    header: &[u8; HEADER_BYTES],
    content: Content<'_>,
    check: impl FnOnce() -> Result<()>,
) -> Result<(), PutError> {
    record.push(header);
    content.for_each_part(|part| record.push(part));
    // Last, to narrow the window in which the daemon looks for messages behind the end of the association and this one comes
    // later: the thread may be interrupted before the store that publishes it (`docs/sockets.md`).
    check().map_err(PutError::Refused)
}

/// Sends a message whose content is in a memfd, unless `check` fails: `send_record` sends its record, and the ring gets the
/// header, so that the message keeps its place among the others.
pub(crate) fn send_long(
    fd: RawFd,
    descriptor: &Descriptor,
    header: Header,
    flags: c_int,
    check: impl Fn() -> Result<()>,
    send_record: impl Fn(&Header) -> Result<()>,
) -> Result<(), PutError> {
    put_waiting(fd, descriptor, flags, false, |ring| {
        if !ring.fits(HEADER_BYTES) {
            return Ok(PutOutcome::Full);
        }
        // No other record has this turn: not that of a writer that died before its header was in the ring, either.
        let turn = Turn { counter: LONG_MESSAGES.fetch_add(1, Relaxed), thread: system::thread_id() };
        let flags = header.flags.with(Flags::IN_TURN);
        let header = Header { flags, sequence: Sequence::in_turn(turn), ..header };
        check().map_err(PutError::Refused)?;
        match send_record(&header) {
            Err(Errno(libc::EAGAIN)) => Ok(PutOutcome::Full),
            sent => Ok(sent.map(|()| ring.put(HEADER_BYTES, |record| record.push(&header.encode())))?),
        }
    })
}

/// Returns whether only a long ring holds a message of so many bytes.
fn is_long(bytes: usize) -> bool {
    bytes > PAYLOAD_BYTES_MAX
}

/// Puts a message into the ring by `put`, as soon as there is room. A long message needs a long ring.
fn put_waiting(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    is_long: bool,
    put: impl Fn(Writer<'_>) -> Result<PutOutcome, PutError>,
) -> Result<(), PutError> {
    let patience = Patience::of_send(fd, flags);
    let sent = wait_for_room(fd, flags, &patience, || try_put(fd, descriptor, &patience, is_long, &put));
    abandon_if_closed(descriptor, sent.err());
    if sent.is_ok() {
        try_to_wake(fd, descriptor);
    }
    sent
}

/// Stops using the ring if the daemon has died or forgotten the socket. A message that fits the ring would wait there for ever.
fn abandon_if_closed(descriptor: &Descriptor, error: Option<PutError>) {
    if let Some(PutError::Errno(Errno(libc::EPIPE | libc::ECONNRESET))) = error {
        descriptor.ring.abandon();
    }
}

/// Wakes the daemon for a message in the ring, if the kernel had no memory for that and soon has some. Otherwise the next call
/// that sends or receives tries it again.
fn try_to_wake(fd: RawFd, descriptor: &Descriptor) {
    let patience = Patience::of_a_look();
    for _ in 0..WAKE_TRIES {
        if wake_again(fd, descriptor, &patience) != Ok(false) {
            return;
        }
        system::sleep(WAKE_PAUSE);
    }
}

/// Sends a record by `send`, which needs room in the pair; waits for the room, if a call with these flags may.
pub(crate) fn send_alone(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    send: impl Fn() -> Result<()>,
) -> Result<()> {
    if descriptor.pages().sharers.sending().sleep_to_end().is_some() {
        // If a signal handler has interrupted a batch, the daemon must take the messages of the batch before this one. If the
        // wake record fails, the send below fails for the same reason.
        let _ = wake(fd);
    }
    wait_for_room(fd, flags, &Patience::of_send(fd, flags), || match send() {
        Err(Errno(libc::EAGAIN)) => Ok(false),
        sent => sent.map(|()| true),
    })
}

/// Repeats `attempt` until it returns true, and waits in between for room in the pair, if a call with these flags may.
fn wait_for_room<E: From<Errno>>(
    fd: RawFd,
    flags: c_int,
    patience: &Patience,
    attempt: impl Fn() -> Result<bool, E>,
) -> Result<(), E> {
    while !attempt()? {
        // Other senders may take the room again and again.
        if !system::waits(fd, flags) || patience.is_over() {
            return Err(Errno(libc::EAGAIN).into());
        }
        let filler = Header::new(Kind::Filler).encode();
        system::send_waiting(fd, Content::new(&[Source::of(&filler)]), None, libc::MSG_NOSIGNAL)?;
    }
    Ok(())
}

/// Puts a message into the ring. Returns false if there is no room; then the descriptor does not poll writable until there is.
fn try_put(
    fd: RawFd,
    descriptor: &Descriptor,
    patience: &Patience,
    is_long: bool,
    put: impl Fn(Writer<'_>) -> Result<PutOutcome, PutError>,
) -> Result<bool, PutError> {
    let pages = descriptor.pages();
    let _held = lock::hold(pages.sharers.write_lock(), patience)?;
    let Some(ring) = descriptor.ring.writer(pages).filter(|ring| ring.is_long() || !is_long) else {
        descriptor.ring.count(pages, is_long, |number, memfd| announce(fd, number, memfd));
        return Err(PutError::RingUnusable);
    };
    let mut done = put(ring)?;
    if done == PutOutcome::Full {
        ring.request_notification();
        done = put(ring)?;
    }
    match done {
        PutOutcome::Done { sleep } => {
            on_put(fd, pages.sharers, ring, sleep, is_long).map_err(PutError::Errno)?
        }
        PutOutcome::Full => {
            fill(fd, pages.sharers)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ends this sleep of the daemon, and makes the descriptor poll writable as the room in the ring requires. The caller has put a
/// message, a long one if `is_long`, or several short ones, and holds the write lock.
fn on_put(
    fd: RawFd,
    sharers: &SharersPage,
    ring: Writer<'_>,
    sleep: Option<NonZeroU32>,
    is_long: bool,
) -> Result<()> {
    if let Some(sleep) = sleep.filter(|sleep| !sharers.sending().has_ended(*sleep)) {
        // Before a filler: the daemon leaves that in place only while it is awake.
        end_sleep(fd, sharers, sleep)?;
    }
    // From here on the message is in the ring: what fails does not fail the call.
    if ring.fits(HEADER_BYTES + PAYLOAD_BYTES_MAX) {
        // The next message tries it again.
        let _ = restore(fd, sharers);
    } else if is_long || sharers.sending().lowered_send_buffer().is_none() {
        // The next message may find no room. The descriptor polls writable only while any message that fits a record does. A long
        // message alone fills a ring that had room, whose fillers were discarded.
        ring.request_notification();
        if !ring.fits(HEADER_BYTES + PAYLOAD_BYTES_MAX) {
            // This fails if the daemon has closed the pair.
            let _ = fill(fd, sharers);
        }
    }
    Ok(())
}

/// Number of messages that go into the ring under one hold of the lock: other senders wait meanwhile.
const BATCH_MAX: usize = 64;

/// A ring that gets several messages under one hold of the write lock.
pub(crate) struct Batch<'a> {
    ring: Writer<'a>,
    sharers: &'a SharersPage,
}

impl Batch<'_> {
    /// Puts a message of up to [`PAYLOAD_BYTES_MAX`] into the ring, unless `check` fails. Returns whether the message is there.
    pub(crate) fn put(
        &self,
        header: &Header,
        content: Content<'_>,
        check: impl FnOnce() -> Result<()>,
    ) -> bool {
        if content.check().is_err() {
            return false;
        }
        let (ring, sending) = (self.ring, self.sharers.sending());
        if let Some(sleep) = ring.sleep_that_is_noted().filter(|sleep| !sending.has_ended(*sleep)) {
            // Noted first: if this thread dies before it has woken the daemon, or a signal handler jumps out of the call, the
            // next call of a sharer wakes the daemon.
            sending.on_wake_due(sleep);
        }
        let header = encoded(header, self.sharers);
        let write = |record: &mut Record<'_>| write(record, &header, content, check);
        ring.try_put_of_several(HEADER_BYTES + content.bytes(), write) == Ok(true)
    }
}

/// Puts messages into the ring under one hold of the lock, for as long as `put_next` returns true: it puts one. Nothing waits for
/// room meanwhile. Each message is visible to the daemon once it is complete; a daemon that sleeps is woken behind the last one.
///
/// No message is put where the daemon reads no ring of this process, or where a signal handler has interrupted this thread in a
/// send.
pub(crate) fn send_batch(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    put_next: impl FnMut(&Batch<'_>) -> bool,
) -> Result<()> {
    let put = put_batch(fd, descriptor, flags, put_next);
    abandon_if_closed(descriptor, put.err());
    match put {
        Ok(true) => try_to_wake(fd, descriptor),
        Ok(false) | Err(PutError::RingUnusable) => {}
        Err(PutError::Refused(error) | PutError::Errno(error)) => return Err(error),
    }
    Ok(())
}

/// Does the work of [`send_batch`] that needs the lock. Returns whether there is a message in the ring that was not there before.
fn put_batch(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    mut put_next: impl FnMut(&Batch<'_>) -> bool,
) -> Result<bool, PutError> {
    let pages = descriptor.pages();
    let _held = lock::hold(pages.sharers.write_lock(), &Patience::of_send(fd, flags))?;
    // While the process does not use its ring, threads are counted that send.
    let writer = descriptor.ring.is_used().then(|| descriptor.ring.writer(pages)).flatten();
    let ring = writer.ok_or(PutError::RingUnusable)?;
    let batch = Batch { ring, sharers: pages.sharers };
    if !put_next(&batch) {
        return Ok(false);
    }
    // The lock is given up without regard to what is left.
    let _last = (1..BATCH_MAX).find(|_| !put_next(&batch));
    on_put(fd, pages.sharers, ring, ring.sleep_to_end(), false)?;
    Ok(true)
}

/// Wakes the daemon for a message in the ring, for which the kernel had no memory before. Returns whether no message waits for
/// that.
pub(crate) fn wake_again(fd: RawFd, descriptor: &Descriptor, patience: &Patience) -> Result<bool> {
    let sharers = descriptor.pages().sharers;
    if sharers.sending().sleep_to_end().is_none() {
        return Ok(true);
    }
    let _held = lock::hold(sharers.write_lock(), patience)?;
    // Another sharer may have woken it meanwhile.
    sharers.sending().sleep_to_end().map_or(Ok(true), |sleep| end_sleep(fd, sharers, sleep))
}

/// Ends a sleep of the daemon. Returns whether it looks into the ring soon. The caller holds the write lock.
fn end_sleep(fd: RawFd, sharers: &SharersPage, sleep: NonZeroU32) -> Result<bool> {
    // In the whole send buffer: a filler that the daemon has not taken yet fills a small one, and then a record that another
    // program sends after this message would come before it. Where the process may not change the size any more, the daemon is
    // woken all the same.
    let _ = restore(fd, sharers);
    let has_woken = wake(fd)?;
    if has_woken {
        // Noted last: if this thread dies before, the next writer wakes the daemon.
        sharers.sending().on_sleep_ended(sleep);
    } else {
        sharers.sending().on_wake_due(sleep);
    }
    Ok(has_woken)
}

/// Restores the send buffer that a sharer has made small because its ring was full.
pub(crate) fn restore_send_buffer(fd: RawFd, descriptor: &Descriptor, flags: c_int) -> Result<()> {
    let sharers = descriptor.pages().sharers;
    let _held = lock::hold(sharers.write_lock(), &Patience::of_send(fd, flags))?;
    restore(fd, sharers)
}

/// Restores the send buffer if it is small. The caller holds the write lock.
fn restore(fd: RawFd, sharers: &SharersPage) -> Result<()> {
    if let Some(bytes) = sharers.sending().lowered_send_buffer() {
        system::set_send_buffer(fd, bytes.get() as c_int)?;
        sharers.sending().on_send_buffer_restored();
    }
    Ok(())
}

/// Announces a ring to the daemon.
fn announce(fd: RawFd, number: u32, memfd: RawFd) -> Result<()> {
    let header = Header { sequence: Sequence::ring(number), ..Header::new(Kind::Ring) }.encode();
    let record = [Source::of(&header)];
    system::send(fd, Content::new(&record), Some(memfd), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).map(drop)
}

/// Wakes the daemon. Returns whether it looks into the ring soon.
fn wake(fd: RawFd) -> Result<bool> {
    let header = Header::new(Kind::Wake).encode();
    let record = [Source::of(&header)];
    match system::send(fd, Content::new(&record), None, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
        // The daemon looks into the ring when it has emptied the pair.
        Ok(_) | Err(Errno(libc::EAGAIN)) => Ok(true),
        // The message is in the ring.
        Err(Errno(libc::ENOBUFS | libc::ENOMEM)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the descriptor poll unwritable until the daemon has discarded this filler, which it does once half of the ring is free.
fn fill(fd: RawFd, page: &SharersPage) -> Result<()> {
    // With the count of records, as a message has it: the daemon may take the filler only for a record behind it.
    let sequence = Sequence::sent_after(page.records_sent());
    let header = Header { bytes: FILLER_BYTES as u32, sequence, ..Header::new(Kind::Filler) }.encode();
    let record = [Source::of(&header), Source::of(&[0; FILLER_BYTES])];
    // Sent first: a small send buffer takes no filler while the daemon has not taken records of other programs, or those that
    // preceded the ring, and would poll writable as soon as it has.
    match system::send(fd, Content::new(&record), None, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
        Ok(_) | Err(Errno(libc::EAGAIN)) => {}
        Err(error) => return Err(error),
    }
    if page.sending().lowered_send_buffer().is_none() {
        // Noted before the change: the next sender restores the size, also if this thread dies.
        page.sending().on_send_buffer_lowered(system::send_buffer(fd)? as u32);
    }
    system::set_send_buffer(fd, 0)
}
