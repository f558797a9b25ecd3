//! Receiving: waits until the descriptor has a message, and takes it by a [`Reader`].

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use channel_protocol::record::Header;
use channel_protocol::status_page::{PeerShut, State};
use libc::c_int;

use crate::cancel;
use crate::descriptor::Descriptor;
use crate::form::ReadError;
use crate::lock::Patience;
use crate::message::{END, Message};
use crate::pages::Pages;
use crate::reader::{Reader, await_announced, end};
use crate::ring;
use crate::self_connect;
use crate::sleep::{asleep, with_copy};
use crate::system::{self, Buffers, Errno, Result};
use crate::table;
use crate::waiting;

/// Receives into `buffers`; waits as the descriptor and the flags require.
pub(crate) fn receive(
    fd: RawFd,
    descriptor: &Descriptor,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Message, ReadError> {
    cancel::point();
    match receive_or_wait(fd, descriptor, buffers, flags) {
        // The time limit of a call that waits has passed by now.
        Err(ReadError::Errno(Errno(libc::EAGAIN))) if self_connect::let_daemon_catch_up() => {
            receive_or_wait(fd, descriptor, buffers, flags | libc::MSG_DONTWAIT)
        }
        result => result,
    }
}

/// The outcome of a receive on one number.
enum Outcome {
    Received(Message),
    /// The number was closed while the call slept. The call continues with this copy, which it closes.
    Moved(RawFd),
}

fn receive_or_wait(
    fd: RawFd,
    descriptor: &Descriptor,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Message, ReadError> {
    let mut outcome = receive_at(fd, descriptor, buffers, flags)?;
    loop {
        match outcome {
            Outcome::Received(message) => return Ok(message),
            Outcome::Moved(copy) => {
                outcome = with_copy(copy, |fd| receive_at(fd, descriptor, buffers, flags))?;
            }
        }
    }
}

fn receive_at(
    fd: RawFd,
    descriptor: &Descriptor,
    buffers: Buffers<'_>,
    flags: c_int,
) -> Result<Outcome, ReadError> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // Nothing is ever put there.
        return Err(Errno(libc::EAGAIN).into());
    }
    reach_connection(fd, descriptor, flags)?;
    let pages = descriptor.pages();
    // A message for which the program has no room stays.
    let flags = if buffers.bytes() == 0 { flags | libc::MSG_PEEK } else { flags };
    let patience = Patience::of_receive(fd, flags);
    wake_daemon(fd, descriptor, flags, &patience)?;
    if will_probably_wait(descriptor)
        && let Some(copy) = await_message(fd, descriptor, flags, &patience)?
    {
        return Ok(Outcome::Moved(copy));
    }
    let has_ended = Cell::new(false);
    loop {
        let seen = Seen::in_page(pages);
        let reader = Reader::lock(fd, pages, &patience)?;
        let taken = reader.take(buffers, flags);
        let has_hint = reader.has_hint();
        drop(reader);
        if has_hint {
            await_announced(fd, &patience)?;
            continue;
        }
        let taken = or_end(taken, fd, pages);
        if let Some(result) = seen.conclude(taken, pages, || system::waits(fd, flags)) {
            return received(result);
        }
        let moved = if pages.sharers.is_writing_shut() && system::waits(fd, flags) {
            // The page shows the end before all notifications have come, and the daemon answers after that. Another thread may
            // have read what had come.
            if seen.state == State::Lost && has_ended.get() {
                return received(end(fd, pages));
            }
            match asleep(fd, descriptor, || waiting::await_news(fd).map(|ended| has_ended.set(ended))) {
                Err(Errno(error))
                    if seen.state == State::Lost
                        && ![libc::EAGAIN, libc::EINTR, libc::ENOBUFS].contains(&error) =>
                {
                    return received(end(fd, pages));
                }
                moved => moved?,
            }
        } else {
            let moved = await_message(fd, descriptor, flags, &patience)?;
            if moved.is_none() {
                descriptor.has_waited();
            }
            moved
        };
        if let Some(copy) = moved {
            return Ok(Outcome::Moved(copy));
        }
    }
}

/// Returns the result of [`Reader::take`], with the reason for which there is no end.
fn or_end(taken: Result<Message>, fd: RawFd, pages: Pages<'_>) -> Result<Message> {
    match taken {
        Ok(Message { header: None, .. }) => end(fd, pages),
        taken => taken,
    }
}

/// Wakes the daemon for messages of this program that wait in the ring, before the call waits for an answer to them. While the
/// kernel has no memory for that, a call that may wait tries it again until there is something to read.
fn wake_daemon(fd: RawFd, descriptor: &Descriptor, flags: c_int, patience: &Patience) -> Result<()> {
    // What fails in another way, such as the pair without its daemon, the receive finds for itself. It waits for no other sharer
    // that sends for long.
    while ring::wake_again(fd, descriptor, &Patience::of_a_look()) == Ok(false) {
        if !system::waits(fd, flags) || patience.is_over() || system::has_input(fd) {
            break;
        }
        patience.pause(ring::WAKE_PAUSE)?;
    }
    Ok(())
}

/// Returns the outcome of a receive that has ended. The conversions have a frame of their own: the stack may be small.
fn received(result: Result<Message>) -> Result<Outcome, ReadError> {
    result.map(Outcome::Received).map_err(ReadError::Errno)
}

/// Waits until the setup of an association has ended, if one is under way and the call may wait.
fn reach_connection(fd: RawFd, descriptor: &Descriptor, flags: c_int) -> Result<()> {
    match descriptor.pages().status.state() {
        State::Listening => Err(Errno(libc::ENOTCONN)),
        State::Connecting if !system::waits(fd, flags) => Err(Errno(libc::EAGAIN)),
        State::Connecting => waiting::await_connection(fd, descriptor),
        _ => Ok(()),
    }
}

/// Returns whether a look into the pair would probably find nothing, so that the call waits first.
fn will_probably_wait(descriptor: &Descriptor) -> bool {
    waits_before_look(descriptor) && descriptor.expects_to_wait()
}

/// Returns whether a call that expects to wait does so before it looks into the pair.
fn waits_before_look(descriptor: &Descriptor) -> bool {
    let pages = descriptor.pages();
    pages.status.state() == State::Connected
        && !pages.sharers.is_writing_shut()
        && !pages.sharers.position().is_in_bundle()
}

/// The state of a socket before a look into its pair. The order matters: the last message is in the pair before the status
/// page says that nothing will come.
struct Seen {
    state: State,
    has_associations: bool,
    is_peer_shut: bool,
}

impl Seen {
    fn in_page(pages: Pages<'_>) -> Seen {
        Seen {
            state: pages.status.state(),
            has_associations: pages.status.associations.load(Acquire) > 0,
            is_peer_shut: pages.status.peer_shut.load(Acquire) == PeerShut::Both as u32,
        }
    }

    /// Returns the result of a call that has looked into the pair; `None` if it has found nothing, and a message may come.
    fn conclude(
        &self,
        taken: Result<Message>,
        pages: Pages<'_>,
        waits: impl Fn() -> bool,
    ) -> Option<Result<Message>> {
        match taken {
            Err(Errno(libc::EAGAIN)) => self.without_message(pages, waits),
            Err(Errno(libc::ENOTCONN)) if !waits() => Some(Err(Errno(libc::EAGAIN))),
            taken => Some(taken),
        }
    }

    /// Returns the result of a call that has found nothing; `None` if a message may come.
    fn without_message(&self, pages: Pages<'_>, waits: impl Fn() -> bool) -> Option<Result<Message>> {
        match self.state {
            State::OneToMany if !self.has_associations && waits() => Some(Err(Errno(libc::ENOTCONN))),
            _ if self.is_peer_shut => Some(Ok(END)),
            State::Idle => Some(Err(Errno(match pages.take_error() {
                0 if waits() => libc::ENOTCONN,
                0 => libc::EAGAIN,
                error => error,
            }))),
            _ => None,
        }
    }
}

/// Sleeps until there may be a message; returns the result of [`asleep`].
///
/// A record wakes one of the threads that sleep in a receive, and all that poll. It may hold messages for several, so only one
/// thread of all sharers sleeps in a receive, and the others poll.
///
/// A call that waits again, because another one has taken the message, waits for the rest of its time: a
/// receive would begin anew.
fn await_message(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    patience: &Patience,
) -> Result<Option<RawFd>> {
    let waits = || system::waits(fd, flags);
    let left = if patience.begin() && waits() { patience.left() } else { None };
    if left == Some(Duration::ZERO) {
        return Err(Errno(libc::EAGAIN));
    }
    let sharers = descriptor.pages().sharers;
    let is_alone = sharers.begin_wait();
    let leave = || sharers.end_wait();
    let slept = cancel::undoing(leave, || {
        asleep(fd, descriptor, || match is_alone && left.is_none() || !waits() {
            // The kernel knows whether the descriptor blocks.
            true => system::await_record(fd, flags),
            // Each wake-up makes `poll` look the number up again, which may be another file's by then.
            false => system::await_record_among_others(table::lasting(fd, descriptor), left),
        })
    });
    leave();
    slept
}

/// Returns the number of bytes that the next call would return (`FIONREAD`).
pub(crate) fn available(fd: RawFd, descriptor: &Descriptor) -> Result<usize, ReadError> {
    let pages = descriptor.pages();
    let patience = Patience::of_a_look();
    loop {
        let reader = Reader::lock(fd, pages, &patience)?;
        let consumed = pages.sharers.position().load().consumed();
        let (front, has_hint) = (reader.front(), reader.has_hint());
        drop(reader);
        match front? {
            None if has_hint => await_announced(fd, &patience)?,
            front => return Ok(front.map_or(0, |header| header.bytes.saturating_sub(consumed) as usize)),
        }
    }
}

/// Returns the header of the next message, if it has come and no reader has begun it.
pub(crate) fn next(fd: RawFd, descriptor: &Descriptor) -> Option<Header> {
    Reader::lock(fd, descriptor.pages(), &Patience::of_a_look()).ok()?.next()
}

/// Number of messages that are read under one hold of the lock: other readers wait meanwhile.
const BATCH_MAX: usize = 64;

/// Receives messages that have come, under one hold of the lock, without waiting for others: calls `take_next` for one after the
/// other, until it returns false. A cancellation point.
///
/// Nothing is received where [`receive`] has more to do than to look into the pair, or would wait before that, if this is the
/// `first` look of the call.
pub(crate) fn receive_batch(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    first: bool,
    mut take_next: impl FnMut(&Reader<'_>) -> bool,
) -> Result<(), ReadError> {
    cancel::point();
    let pages = descriptor.pages();
    let is_for_receive = flags & (libc::MSG_PEEK | libc::MSG_ERRQUEUE) != 0
        || pages.status.plain.load(Acquire) != 0
        || matches!(pages.status.state(), State::Listening | State::Connecting)
        || pages.sharers.sending().sleep_to_end().is_some()
        || first && descriptor.has_waited_lately() && waits_before_look(descriptor);
    if is_for_receive {
        return Ok(());
    }
    let patience = Patience::of_receive(fd, flags);
    let reader = Reader::lock(fd, pages, &patience)?;
    let taken = (0..BATCH_MAX).take_while(|_| take_next(&reader)).count();
    let has_hint = reader.has_hint();
    drop(reader);
    if has_hint && taken == 0 {
        await_announced(fd, &patience)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::mpsc;

    use channel_protocol::record::{Flags, Kind};
    use channel_protocol::status_page::StatusPage;

    use super::*;
    use crate::descriptor;
    use crate::lock::tests::until_in;
    use crate::system::{self, Content, Destination, Source};

    /// Time limit of a test, far longer than any takes.
    const HANGS_AFTER: Duration = Duration::from_secs(60);

    #[test]
    fn an_association_that_has_timed_out_is_reported_as_such() {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two numbers.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
        // SAFETY: the call takes no pointer.
        assert_eq!(unsafe { libc::shutdown(ends[1], libc::SHUT_WR) }, 0);
        let files = descriptor::tests::files();
        let lost = [
            (StatusPage::STATE_AT, State::Lost as u32),
            (StatusPage::ERROR_AT, libc::ETIMEDOUT as u32),
            (StatusPage::ERRORS_AT, 1),
        ];
        for (at, number) in lost {
            descriptor::tests::set(files[0].raw(), at, number);
        }
        let descriptor = Descriptor::map(files).expect("pages of this version");
        let receive = |flags| {
            let mut place = [0; 16];
            let place = [Destination::of(&mut place)];
            receive_at(ends[0], &descriptor, Buffers::new(&place), flags).map(drop)
        };
        let error = |errno| Err(ReadError::Errno(Errno(errno)));
        assert_eq!(receive(libc::MSG_DONTWAIT), error(libc::ETIMEDOUT));
        assert_eq!(receive(0), error(libc::ENOTCONN), "the error was reported");
        // A sharer that holds the lock for too long is no error of the association.
        descriptor.pages().sharers.read_lock().store(system::thread_id(), Relaxed);
        assert_eq!(receive(libc::MSG_DONTWAIT), error(libc::EAGAIN));
        ends.into_iter().for_each(system::close);
    }

    /// The daemon may be stopped between a size hint and the message behind it.
    #[test]
    fn a_reader_that_waits_for_an_announced_message_does_not_hold_the_lock() {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two numbers.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
        let files = descriptor::tests::files();
        descriptor::tests::set(files[0].raw(), StatusPage::STATE_AT, State::Connected as u32);
        let descriptor = &Descriptor::map(files).expect("pages of this version");
        let send = |header: Header, content: &[u8]| {
            let encoded = header.encode();
            let record = [Source::of(&encoded), Source::of(content)];
            system::send(ends[1], Content::new(&record), None, 0).expect("a pair with room");
        };
        send(Header::new(Kind::SizeHint), b"");
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                tell.send(system::thread_id()).expect("the test waits for it");
                let mut place = [0; 16];
                let place = [Destination::of(&mut place)];
                match receive_at(ends[0], descriptor, Buffers::new(&place), 0) {
                    Ok(Outcome::Received(message)) => message.bytes,
                    _ => 0,
                }
            });
            until_in(libc::SYS_ppoll, told.recv().expect("the receiver tells"));
            assert_eq!(descriptor.pages().sharers.read_lock().load(Relaxed), 0, "nobody holds the lock");
            send(Header { bytes: 4, flags: Flags::END, ..Header::new(Kind::Data) }, b"text");
            assert_eq!(receiver.join().expect("it ends"), 4);
        });
        ends.into_iter().for_each(system::close);
    }

    #[test]
    fn a_receive_does_not_wait_for_a_sharer_that_sends_for_ever() {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two numbers.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
        let files = descriptor::tests::files();
        descriptor::tests::set(files[0].raw(), StatusPage::STATE_AT, State::Connected as u32);
        let descriptor = Descriptor::map(files).expect("pages of this version");
        let header = Header { bytes: 4, flags: Flags::END, ..Header::new(Kind::Data) };
        let (encoded, content) = (header.encode(), *b"text");
        let record = [Source::of(&encoded), Source::of(&content)];
        system::send(ends[1], Content::new(&record), None, 0).expect("a pair with room");
        let sharers = descriptor.pages().sharers;
        sharers.sending().on_wake_due(NonZeroU32::MIN);
        // The first process lives as long as the test.
        sharers.write_lock().store(1, Relaxed);
        let (done, is_done) = mpsc::channel();
        let receiver = std::thread::spawn(move || {
            let mut place = [0; 16];
            let place = [Destination::of(&mut place)];
            let received = receive_at(ends[0], &descriptor, Buffers::new(&place), 0);
            done.send(received.is_ok()).expect("the test waits");
        });
        assert_eq!(is_done.recv_timeout(HANGS_AFTER), Ok(true));
        receiver.join().expect("it has received");
        ends.into_iter().for_each(system::close);
    }
}
